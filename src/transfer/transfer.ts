/**
 * Place and fill: gives storages their memory on the devices that were decided for them, and their bytes. All formats, all
 * devices and all verbs go through here.
 *
 * @module
 */
import type { Contents, StoragePlace } from "../container/container.js";
import { backendOf } from "../device/backends.js";
import { HostMemory } from "../device/cpu/host-memory.js";
import type { Device, DeviceMemory } from "../device/device.js";
import { FileSource } from "../source/file-source.js";
import type { ByteSource } from "../source/source.js";
import type { Storage } from "../tensor/storage.js";
import type { Decide, Placement } from "../torch/location.js";
import type { FillOptions } from "./fill-devices.js";
import { fillByReading, fillFromMapping, fillGiven, type LocatedStorage } from "./fill-host.js";
import type { HeadReads } from "./head-reads.js";
import { type Progress, ProgressReporter } from "./progress.js";

/** What a transfer needs beside the storages. */
export interface TransferOptions {
  readonly decide: Decide;
  /** Whether a local file may be mapped into memory for tensors on the CPU. */
  readonly mmap: boolean;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  /** What {@link readEarly} gave for the same source. */
  readonly early?: EarlyReads | undefined;
  /** Called when all memory is there. */
  readonly onPlaced?: (() => void) | undefined;
}

/** A storage whose bytes have to be made from the source, inflated or turned round. */
interface MadeStorage {
  readonly storage: Storage;
  readonly read: () => Promise<Uint8Array>;
}

/** Storages with the same destination. */
interface Group {
  /** The device, or memory that the caller gave for one storage. */
  readonly destination: Device | DeviceMemory;
  readonly storages: Storage[];
  /** Those whose bytes lie in the source as they are, in order of place; known after {@link locate}. */
  readonly located: LocatedStorage[];
  readonly made: MadeStorage[];
}

/**
 * Gives `storages` memory and bytes.
 *
 * On any failure, an abort included, everything that was allocated is freed before the error leaves.
 *
 * @throws DeviceError when a device is not there or too small; before any byte is read.
 * @throws SourceError, FormatError when the bytes cannot be had.
 */
export async function transfer(
  source: ByteSource,
  contents: Contents,
  storages: readonly Storage[],
  options: TransferOptions,
): Promise<void> {
  const groups = await groupByDestination(storages, options.decide, source.name);
  const onDevices: Group[] = [];
  const inHost: Group[] = [];
  for (const group of groups) {
    const located = locate(contents, group);
    if (located !== undefined) await located;
    (deviceOf(group.destination).type === "cpu" ? inHost : onDevices).push(group);
  }
  const total = groups.reduce((sum, group) => group.storages.reduce((part, { nbytes }) => part + nbytes, sum), 0);
  const fill: FillOptions = { signal: options.signal, progress: new ProgressReporter(total, options.onProgress) };
  try {
    await fillGroups(source, inHost, onDevices, fill, options);
    // A file that was written to meanwhile may have given a mixture of old and new.
    if (source instanceof FileSource) source.file.checkUnchanged();
    // Given up while the last bytes arrived.
    fill.signal?.throwIfAborted();
  } catch (error) {
    for (const { destination, storages: failed } of groups) {
      for (const storage of failed) {
        if (isMemory(destination)) continue;
        try {
          storage.memory?.dispose();
        } catch {
          // A device that failed frees nothing. What it failed with is the error to tell.
        }
        storage.memory = undefined;
      }
    }
    throw error;
  }
  for (const { destination, storages: filled } of groups) {
    if (isMemory(destination)) for (const storage of filled) storage.memory = destination;
  }
}

function isMemory(destination: Device | DeviceMemory): destination is DeviceMemory {
  return "nbytes" in destination;
}

function deviceOf(destination: Device | DeviceMemory): Device {
  return isMemory(destination) ? destination.device : destination;
}

/** Asks for each storage once where it goes, and makes sure that each device asked for is there. */
async function groupByDestination(storages: readonly Storage[], decide: Decide, file: string): Promise<Group[]> {
  const groups: Group[] = [];
  /** The group of each decision, as most decisions are one object for many storages. */
  const byPlacement = new Map<Placement, Group | undefined>();
  const byDevice = new Map<string, Group>();
  for (const storage of storages) {
    const placement = decide(storage, file);
    let group = byPlacement.get(placement);
    if (group === undefined && !byPlacement.has(placement)) {
      if ("memory" in placement) {
        group = newGroup(placement.memory);
        groups.push(group);
      } else if (placement.device.type !== "meta") {
        const device = (await backendOf(placement.device)).resolve(placement.device);
        group = byDevice.get(`${device}`);
        if (group === undefined) {
          group = newGroup(device);
          byDevice.set(`${device}`, group);
          groups.push(group);
        }
      }
      byPlacement.set(placement, group);
    }
    group?.storages.push(storage);
  }
  return groups;
}

function newGroup(destination: Device | DeviceMemory): Group {
  return { destination, storages: [], located: [], made: [] };
}

/** Finds the place of each storage of a group in the source. A promise only where the source needs one. */
function locate(contents: Contents, group: Group): Promise<void> | undefined {
  const { storages, located } = group;
  const pending: Promise<void>[] = [];
  for (const storage of storages) {
    let place: StoragePlace | Promise<StoragePlace>;
    try {
      place = contents.locate(storage);
    } catch (error) {
      // Together with what is pending, so that none of it is rejected unheard.
      pending.push(Promise.reject(error));
      break;
    }
    if (place instanceof Promise) pending.push(place.then((found) => notePlace(group, storage, found)));
    else notePlace(group, storage, place);
  }
  const sort = (): void => {
    if (!isSorted(located)) located.sort((a, b) => a.start - b.start);
  };
  if (pending.length > 0) return Promise.all(pending).then(sort);
  sort();
  return undefined;
}

function notePlace({ located, made }: Group, storage: Storage, place: StoragePlace): void {
  if (place.kind === "range") located.push({ storage, start: place.start });
  else made.push({ storage, read: place.read });
}

function isSorted(located: readonly LocatedStorage[]): boolean {
  for (let k = 1; k < located.length; k++) {
    if ((located[k] as LocatedStorage).start < (located[k - 1] as LocatedStorage).start) return false;
  }
  return true;
}

type FillCuda = typeof import("./fill-cuda.js");

let importing: Promise<FillCuda> | undefined;
let imported: FillCuda | undefined;

function importFillCuda(): Promise<FillCuda> {
  importing ??= import("./fill-cuda.js").then((module) => {
    imported = module;
    return module;
  });
  return importing;
}

/** Reads that were begun before a file was decoded. */
export interface EarlyReads {
  /** Ends them when nothing came of them. */
  cancel(): Promise<void>;
}

/** Begins reading a file all of which goes to CUDA, when the process has loaded to CUDA before. */
export function readEarly(source: ByteSource): EarlyReads | undefined {
  return imported !== undefined && source instanceof FileSource ? imported.beginHead(source) : undefined;
}

async function fillGroups(
  source: ByteSource,
  inHost: readonly Group[],
  onDevices: readonly Group[],
  fill: FillOptions,
  options: TransferOptions,
): Promise<void> {
  fill.signal?.throwIfAborted();
  // Device memory is had before anything is read, so that a lack of it is known at once.
  const cuda = onDevices.length === 0 ? undefined : await importFillCuda();
  const devices = await cuda?.placeOnCuda(onDevices);
  options.onPlaced?.();
  for (const { destination, located } of inHost) {
    if (isMemory(destination)) await fillGiven(source, located, destination, fill);
    else await fillHost(source, located, fill, options);
  }
  if (devices !== undefined) await cuda?.fillCuda(source, devices, fill, options.early as HeadReads | undefined);
  // What follows uploads through the same slots.
  await options.early?.cancel();
  for (const { destination, made } of [...inHost, ...onDevices]) {
    for (const { storage, read } of made) {
      fill.signal?.throwIfAborted();
      await fillMade(storage, destination, await read());
      fill.progress.add(storage.nbytes);
    }
  }
}

async function fillHost(
  source: ByteSource,
  located: readonly LocatedStorage[],
  fill: FillOptions,
  { mmap }: TransferOptions,
): Promise<void> {
  if (located.length === 0) return;
  const mapping = mmap && source instanceof FileSource ? source.file.map() : undefined;
  if (mapping === undefined) await fillByReading(source, located, fill);
  else fillFromMapping(located, mapping, fill);
}

/** Puts bytes that were made in main memory where their storage goes. */
async function fillMade(storage: Storage, destination: Device | DeviceMemory, bytes: Uint8Array): Promise<void> {
  if (isMemory(destination)) {
    if (destination.bytes === undefined) await (await importFillCuda()).writeCuda(destination, bytes);
    else destination.bytes.set(bytes);
    return;
  }
  const memory = new HostMemory(bytes);
  storage.memory =
    destination.type === "cpu"
      ? memory
      : await (await backendOf(destination)).copyFrom(memory, 0, memory.nbytes, destination);
}
