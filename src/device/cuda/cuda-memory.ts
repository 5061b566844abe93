/**
 * Storages in CUDA memory: ranges of arenas. An arena is one allocation that many storages share, since a call of
 * `cuMemAlloc` costs as much as copying three megabytes.
 *
 * @module
 */
import type { Device, DeviceMemory } from "../device.js";
import type { DeviceAllocation } from "./context.js";
import { readDevice } from "./staging.js";

/** An allocation that is freed when the last of its storages is. */
export class CudaArena {
  readonly allocation: DeviceAllocation;
  #users = 0;

  constructor(allocation: DeviceAllocation) {
    this.allocation = allocation;
  }

  /** The memory of one storage: `nbytes` bytes at `byteOffset`. */
  take(byteOffset: number, nbytes: number): CudaMemory {
    this.#users++;
    return new CudaMemory(this, byteOffset, nbytes);
  }

  /** Keeps the allocation until {@link release} is called for it. */
  hold(): void {
    this.#users++;
  }

  /** Called by each storage once, and for each {@link hold}. */
  release(): void {
    if (--this.#users === 0) this.allocation.free();
  }
}

/** The bytes of one storage on a CUDA device. */
export class CudaMemory implements DeviceMemory {
  readonly nbytes: number;
  readonly bytes = undefined;
  disposed = false;
  readonly #arena: CudaArena;
  readonly #byteOffset: number;

  constructor(arena: CudaArena, byteOffset: number, nbytes: number) {
    this.#arena = arena;
    this.#byteOffset = byteOffset;
    this.nbytes = nbytes;
  }

  get device(): Device {
    return this.#arena.allocation.context.device;
  }

  /** The `CUdeviceptr` of the first byte. @throws TypeError after disposal. */
  get pointer(): bigint {
    return BigInt(this.address);
  }

  /** The same as a number: device addresses fit. */
  get address(): number {
    if (this.disposed) throw new TypeError("The memory of this storage was disposed of");
    return this.#arena.allocation.address + this.#byteOffset;
  }

  /** The `CUcontext` the memory belongs to: the device's primary context. */
  get context(): bigint {
    return BigInt(this.#arena.allocation.context.handle);
  }

  /**
   * The `CUstream` on which the bytes were copied. When a load has resolved its copies are done; work on other streams
   * needs no further wait.
   */
  get stream(): bigint {
    return BigInt(this.#arena.allocation.context.stream);
  }

  /** Runs `work` with the address. Until it ends the memory is not freed, even when it is disposed of or forgotten. */
  async use<Result>(work: (address: number) => Promise<Result>): Promise<Result> {
    const { address } = this;
    this.#arena.hold();
    try {
      return await work(address);
    } finally {
      this.#arena.release();
    }
  }

  read(start: number, end: number, target?: Uint8Array): Promise<Uint8Array> {
    return this.use((address) => readDevice(this.#arena.allocation.context, address + start, end - start, target));
  }

  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    this.#arena.release();
  }
}
