/**
 * CUDA devices: which there are, and copies between them and main memory.
 *
 * @module
 */
import { DeviceError } from "../../errors.js";
import type { DeviceBackend } from "../backends.js";
import { Device, type DeviceMemory } from "../device.js";
import { CudaContext } from "./context.js";
import { CudaArena, CudaMemory } from "./cuda-memory.js";
import { CUDA_SUCCESS, type CudaDriver, driverError, loadDriver, resultName } from "./driver.js";
import { lockStaging, SLOT_BYTES, type Slot, stagingSlots } from "./staging.js";

/** The CUDA devices of the machine. One object a process. */
export class CudaBackend implements DeviceBackend {
  readonly driver: CudaDriver;
  readonly deviceCount: number;
  readonly #contexts = new Map<number, Promise<CudaContext>>();
  readonly #open = new Map<number, CudaContext>();

  constructor(driver: CudaDriver, deviceCount: number) {
    this.driver = driver;
    this.deviceCount = deviceCount;
  }

  resolve(device: Device): Device {
    const index = device.index ?? 0;
    if (index >= this.deviceCount) {
      const there =
        this.deviceCount === 1
          ? "one CUDA device, cuda:0"
          : `${this.deviceCount} CUDA devices, cuda:0 to cuda:${this.deviceCount - 1}`;
      throw new DeviceError(`Cannot use "${device}": this machine has ${there}`, { device: `${device}` });
    }
    return new Device("cuda", index);
  }

  /** The context of a device, opened on first use. */
  context(index: number): CudaContext | Promise<CudaContext> {
    const open = this.#open.get(index);
    if (open !== undefined) return open;
    let opening = this.#contexts.get(index);
    if (opening === undefined) {
      opening = CudaContext.open(this.driver, index).then(
        (context) => {
          this.#open.set(index, context);
          return context;
        },
        (error) => {
          this.#contexts.delete(index);
          throw error;
        },
      );
      this.#contexts.set(index, opening);
    }
    return opening;
  }

  async copyFrom(origin: DeviceMemory, start: number, end: number, target: Device): Promise<DeviceMemory> {
    const context = await this.context(this.resolve(target).index as number);
    const nbytes = end - start;
    const memory = new CudaArena(context.allocate(Math.max(nbytes, 1))).take(0, nbytes);
    try {
      if (origin instanceof CudaMemory) await this.#copyBetween(origin, start, memory, context);
      else
        await uploadBytes(
          context,
          memory.address,
          origin.bytes?.subarray(start, end) ?? (await origin.read(start, end)),
        );
    } catch (error) {
      try {
        memory.dispose();
      } catch {
        // A device that failed frees nothing. What it failed with is the error to tell.
      }
      throw error;
    }
    return memory;
  }

  async #copyBetween(origin: CudaMemory, start: number, target: CudaMemory, context: CudaContext): Promise<void> {
    const from = await this.context(origin.device.index as number);
    await origin.use((address) => {
      context
        .use()
        .call(
          "cuMemcpyPeerAsync",
          target.address,
          context.handle,
          address + start,
          from.handle,
          target.nbytes,
          context.stream,
        );
      return context.driver.later("cuStreamSynchronize", context.stream);
    });
  }
}

/** Copies bytes in main memory to a device, through the pinned slots. */
export function uploadBytes(context: CudaContext, address: number, bytes: Uint8Array): Promise<void> {
  return lockStaging(async () => {
    const pair = stagingSlots(context, 2);
    for (let offset = 0, turn = 0; offset < bytes.length; offset += SLOT_BYTES, turn ^= 1) {
      const slot = pair[turn] as Slot;
      if (!slot.idle()) await slot.wait();
      const piece = bytes.subarray(offset, offset + SLOT_BYTES);
      slot.bytes.set(piece);
      context.use().call("cuMemcpyHtoDAsync_v2", address + offset, slot.address, piece.length, context.stream);
      slot.record(context);
    }
    for (const slot of pair) await slot.wait();
  }, context);
}

let backend: Promise<CudaBackend> | undefined;

/**
 * Starts the driver, on another thread: 230 ms the first time in a process.
 *
 * @throws DeviceError when there is no driver or no device.
 */
export function openCudaBackend(): Promise<CudaBackend> {
  if (backend === undefined) {
    backend = start();
    // A driver that could not be started may be there at the next try.
    backend.catch(() => {
      backend = undefined;
    });
  }
  return backend;
}

/** Forgets the driver, for tests that put a stand-in in its place. */
export function forgetCudaBackend(): void {
  backend = undefined;
}

async function start(): Promise<CudaBackend> {
  const driver = loadDriver();
  const result = await driver.later("cuInit", 0).then(
    () => CUDA_SUCCESS,
    (error: unknown) => {
      if (error instanceof DeviceError && error.driverCode !== undefined) return error.driverCode;
      throw error;
    },
  );
  if (result !== CUDA_SUCCESS) {
    throw new DeviceError(
      `Cannot use "cuda": the NVIDIA driver did not start (${resultName(result)}); mapLocation: "cpu" loads to main memory`,
      { device: "cuda", driverCode: result, driverName: resultName(result) },
    );
  }
  const count = driver.int("cuDeviceGetCount");
  if (count === 0) throw driverError("cuDeviceGetCount", 100);
  return new CudaBackend(driver, count);
}
