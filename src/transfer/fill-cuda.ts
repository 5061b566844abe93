/**
 * Place step for CUDA: one allocation a device, with each storage at an aligned place in it; and the way from there to the
 * fill loop.
 *
 * @module
 */

import type { CudaContext } from "../device/cuda/context.js";
import { openCudaBackend, uploadBytes } from "../device/cuda/cuda-backend.js";
import { CudaArena, CudaMemory } from "../device/cuda/cuda-memory.js";
import type { Device, DeviceMemory } from "../device/device.js";
import { UnsupportedError } from "../errors.js";
import type { FileSource } from "../source/file-source.js";
import type { ByteSource } from "../source/source.js";
import { type FillOptions, type FillTarget, fillDevices } from "./fill-devices.js";
import type { LocatedStorage } from "./fill-host.js";
import { HeadReads } from "./head-reads.js";
import { layoutOf } from "./layout.js";
import type { Segment } from "./plan.js";

/** Storages with a CUDA device, or memory on one, as destination. */
export interface CudaGroup {
  readonly destination: Device | DeviceMemory;
  readonly located: readonly LocatedStorage[];
}

/** What is to be read and where it goes. */
export interface CudaPlacement {
  readonly segments: Segment[];
  readonly targets: FillTarget[];
  /** Bytes of the storages, without the gaps between them. */
  readonly nbytes: number;
}

/** Allocations below this size are not compared with the free memory first: asking takes longer than making them. */
const CHECKED = 32 * 1024 * 1024;

/**
 * Gives the storages of each group memory, uninitialised.
 *
 * @throws DeviceError with the numbers when a device has not enough. What was allocated until then is the storages' memory.
 */
export async function placeOnCuda(groups: readonly CudaGroup[]): Promise<CudaPlacement> {
  const backend = await openCudaBackend();
  const segments: Segment[] = [];
  const targets: FillTarget[] = [];
  for (const { destination, located } of groups) {
    const context = backend.context(
      destination instanceof CudaMemory ? (destination.device.index as number) : indexOf(destination),
    );
    const open = context instanceof Promise ? await context : context;
    if (destination instanceof CudaMemory) {
      targets.push({ context: open, padded: false });
      for (const { storage, start } of located) {
        segments.push({ start, end: start + storage.nbytes, target: targets.length - 1, address: destination.address });
      }
    } else {
      targets.push({ context: open, padded: true });
      placeInArena(open, located, targets.length - 1, segments);
    }
  }
  const nbytes = groups.reduce(
    (sum, { located }) => located.reduce((part, { storage }) => part + storage.nbytes, sum),
    0,
  );
  return { segments, targets, nbytes };
}

function indexOf(destination: Device | DeviceMemory): number {
  if ("type" in destination && destination.type === "cuda") return destination.index as number;
  throw new UnsupportedError(`Cannot fill memory on "${"type" in destination ? destination : destination.device}"`, {
    feature: "device",
  });
}

function placeInArena(
  context: CudaContext,
  located: readonly LocatedStorage[],
  target: number,
  segments: Segment[],
): void {
  if (located.length === 0) return;
  const { nbytes, runs, byteOffsets } = layoutOf(
    located.map(({ storage, start }) => ({ start, nbytes: storage.nbytes })),
  );
  if (nbytes >= CHECKED && nbytes > context.memoryInfo().free) throw context.outOfMemory(nbytes);
  const allocation = context.allocate(Math.max(nbytes, 1));
  const arena = new CudaArena(allocation);
  for (let k = 0; k < located.length; k++) {
    const { storage } = located[k] as LocatedStorage;
    storage.memory = arena.take(byteOffsets[k] as number, storage.nbytes);
  }
  for (const { start, end, byteOffset } of runs) {
    segments.push({ start, end, target, address: allocation.address + byteOffset });
  }
}

/** Brings the bytes of a placement to the devices. */
export async function fillCuda(
  source: ByteSource,
  { segments, targets, nbytes }: CudaPlacement,
  fill: FillOptions,
  head: HeadReads | undefined,
): Promise<void> {
  if (segments.length > 0) await fillDevices(source, segments, targets, nbytes, fill, head);
}

/** Begins reading a file before it is decoded, when the device it goes to is ready. */
export function beginHead(source: FileSource): HeadReads | undefined {
  return HeadReads.begin(source);
}

/** Writes bytes from main memory into memory on a device. */
export async function writeCuda(memory: DeviceMemory, bytes: Uint8Array): Promise<void> {
  if (!(memory instanceof CudaMemory))
    throw new UnsupportedError(`Cannot fill memory on "${memory.device}"`, { feature: "device" });
  const backend = await openCudaBackend();
  await uploadBytes(await backend.context(memory.device.index as number), memory.address, bytes);
}
