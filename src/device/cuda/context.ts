/**
 * One CUDA device in use: its primary context (the one that other CUDA libraries in the process share), a stream for our
 * copies, and allocation.
 *
 * @module
 */
import { DeviceError } from "../../errors.js";
import { Device } from "../device.js";
import {
  CUDA_ERROR_OUT_OF_MEMORY,
  CUDA_SUCCESS,
  type CudaCall,
  type CudaDriver,
  driverError,
  resultName,
} from "./driver.js";

/** `CU_STREAM_NON_BLOCKING`: no implicit waits on the legacy default stream. */
const STREAM_NON_BLOCKING = 1;
/** `CU_EVENT_DISABLE_TIMING`; with `CU_EVENT_BLOCKING_SYNC` a waiting thread sleeps. */
const EVENT_DISABLE_TIMING = 2;
const EVENT_BLOCKING_SYNC = 1;
/** `CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED` */
const ATTRIBUTE_MEMORY_POOLS = 115;
/** `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD` */
const POOL_RELEASE_THRESHOLD = 4;

/**
 * Allocations below this size, in bytes, come from a pool that keeps as much when they are freed: 3 µs a call instead of
 * 58 (and 47 to free). Larger ones are allocated and freed directly, so that the memory is other programs' at once.
 */
const POOLED = 32 * 1024 * 1024;

/** `CUmemPoolProps` of cuda.h as 32-bit words: pinned memory on one device, no export. */
function poolProperties(ordinal: number): Int32Array {
  const properties = new Int32Array(22);
  properties[0] = 1; // CU_MEM_ALLOCATION_TYPE_PINNED
  properties[2] = 1; // CU_MEM_LOCATION_TYPE_DEVICE
  properties[3] = ordinal;
  return properties;
}

/** A device with its context. Made once a process and device, and kept. */
export class CudaContext {
  readonly driver: CudaDriver;
  readonly device: Device;
  /** The handle of the primary context. */
  readonly handle: number;
  /** The stream on which all copies of the library run. */
  readonly stream: number;
  readonly #pool: number | undefined;

  private constructor(driver: CudaDriver, ordinal: number, handle: number) {
    this.driver = driver;
    this.device = new Device("cuda", ordinal);
    this.handle = handle;
    this.use();
    this.stream = driver.make("cuStreamCreate", STREAM_NON_BLOCKING);
    this.#pool = this.#createPool(ordinal);
  }

  /** Retains the primary context of a device: 130 ms the first time in a process, on another thread. */
  static async open(driver: CudaDriver, ordinal: number): Promise<CudaContext> {
    const device = driver.int("cuDeviceGet", ordinal);
    const handle = new BigUint64Array(1);
    await driver.later("cuDevicePrimaryCtxRetain", handle, device);
    return new CudaContext(driver, ordinal, Number(handle[0]));
  }

  /** Makes this the calling thread's current context, which most driver calls act on. */
  use(): CudaDriver {
    this.driver.call("cuCtxSetCurrent", this.handle);
    return this.driver;
  }

  /** An event for ordering and waiting. `sleeping` ones let a waiting thread sleep, others answer a few µs sooner. */
  createEvent(sleeping: boolean): number {
    return this.use().make("cuEventCreate", EVENT_DISABLE_TIMING | (sleeping ? EVENT_BLOCKING_SYNC : 0));
  }

  /** Free and total memory of the device, in bytes. */
  memoryInfo(): { readonly free: number; readonly total: number } {
    const free = new BigUint64Array(1);
    const total = new BigUint64Array(1);
    this.use().call("cuMemGetInfo_v2", free, total);
    return { free: Number(free[0]), total: Number(total[0]) };
  }

  /**
   * Uninitialised device memory.
   *
   * @throws DeviceError with the numbers when the device has not so much left.
   */
  allocate(nbytes: number): DeviceAllocation {
    const driver = this.use();
    const word = new BigUint64Array(1);
    const pooled = this.#pool !== undefined && nbytes < POOLED;
    const name: CudaCall = pooled ? "cuMemAllocFromPoolAsync" : "cuMemAlloc_v2";
    const result = pooled
      ? driver.try(name, word, nbytes, this.#pool as number, this.stream)
      : driver.try(name, word, nbytes);
    if (result === CUDA_ERROR_OUT_OF_MEMORY) throw this.outOfMemory(nbytes);
    if (result !== CUDA_SUCCESS) throw driverError(name, result, `${this.device}`);
    return new DeviceAllocation(this, Number(word[0]), nbytes, pooled);
  }

  /** The error for memory that the device does not have. */
  outOfMemory(nbytes: number): DeviceError {
    const { free, total } = this.memoryInfo();
    return new DeviceError(`Cannot place ${nbytes} bytes on ${this.device}: ${free} of its ${total} bytes are free`, {
      device: `${this.device}`,
      driverCode: CUDA_ERROR_OUT_OF_MEMORY,
      driverName: resultName(CUDA_ERROR_OUT_OF_MEMORY),
    });
  }

  #createPool(ordinal: number): number | undefined {
    const { driver } = this;
    if (driver.int("cuDeviceGetAttribute", ATTRIBUTE_MEMORY_POOLS, driver.int("cuDeviceGet", ordinal)) === 0)
      return undefined;
    const pool = driver.make("cuMemPoolCreate", poolProperties(ordinal));
    driver.call("cuMemPoolSetAttribute", pool, POOL_RELEASE_THRESHOLD, new BigUint64Array([BigInt(POOLED)]));
    return pool;
  }
}

/** Frees allocations that nobody disposed of once nothing refers to them. */
const forgotten = new FinalizationRegistry<() => void>((free) => {
  try {
    free();
  } catch {
    // A driver that failed or has ended: there is no caller to tell, and an error from here would end the process.
  }
});

/** A range of device memory, freed as a whole. */
export class DeviceAllocation {
  readonly context: CudaContext;
  /** The device address of the first byte. */
  readonly address: number;
  readonly nbytes: number;
  #free: (() => void) | undefined;

  constructor(context: CudaContext, address: number, nbytes: number, pooled: boolean) {
    this.context = context;
    this.address = address;
    this.nbytes = nbytes;
    const free = (): void => {
      const driver = context.use();
      if (pooled) driver.call("cuMemFreeAsync", address, context.stream);
      else driver.call("cuMemFree_v2", address);
    };
    this.#free = free;
    // The closure must not hold the allocation itself, or it would never be collected.
    forgotten.register(this, free, this);
  }

  /** Frees the memory. No copy to or from it may be pending. */
  free(): void {
    if (this.#free === undefined) return;
    forgotten.unregister(this);
    this.#free();
    this.#free = undefined;
  }
}
