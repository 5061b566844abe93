/**
 * The CUDA driver API, as far as the library calls it: `libcuda` alone, no toolkit and no code of our own on the device.
 *
 * Signatures: cuda.h of CUDA 13; every function here is in drivers since CUDA 11.2 under the same ABI name.
 *
 * @module
 */
import { openLibrary } from "#platform";
import { DeviceError } from "../../errors.js";
import type { NativeFunction, NativeLibrary, NativeType } from "../../platform/platform.js";

/** The calls of the driver that the library makes. */
export type CudaCall =
  | "cuInit"
  | "cuDriverGetVersion"
  | "cuDeviceGetCount"
  | "cuDeviceGet"
  | "cuDeviceGetName"
  | "cuDeviceGetAttribute"
  | "cuDevicePrimaryCtxRetain"
  | "cuCtxSetCurrent"
  | "cuMemGetInfo_v2"
  | "cuMemAlloc_v2"
  | "cuMemFree_v2"
  | "cuMemPoolCreate"
  | "cuMemPoolSetAttribute"
  | "cuMemAllocFromPoolAsync"
  | "cuMemFreeAsync"
  | "cuMemHostAlloc"
  | "cuMemFreeHost"
  | "cuMemHostRegister_v2"
  | "cuMemcpyHtoDAsync_v2"
  | "cuMemcpyDtoHAsync_v2"
  | "cuMemcpyDtoDAsync_v2"
  | "cuMemcpyPeerAsync"
  | "cuStreamCreate"
  | "cuStreamSynchronize"
  | "cuEventCreate"
  | "cuEventRecord"
  | "cuEventQuery"
  | "cuEventSynchronize";

/** The table of calls: ABI name and C parameter types; every function returns a `CUresult`. */
const CALLS: Readonly<Record<CudaCall, readonly NativeType[]>> = {
  cuInit: ["uint32"],
  cuDriverGetVersion: ["pointer"],
  cuDeviceGetCount: ["pointer"],
  cuDeviceGet: ["pointer", "int32"],
  cuDeviceGetName: ["pointer", "int32", "int32"],
  cuDeviceGetAttribute: ["pointer", "int32", "int32"],
  cuDevicePrimaryCtxRetain: ["pointer", "int32"],
  cuCtxSetCurrent: ["uint64"],
  cuMemGetInfo_v2: ["pointer", "pointer"],
  cuMemAlloc_v2: ["pointer", "uint64"],
  cuMemFree_v2: ["uint64"],
  cuMemPoolCreate: ["pointer", "pointer"],
  cuMemPoolSetAttribute: ["uint64", "int32", "pointer"],
  cuMemAllocFromPoolAsync: ["pointer", "uint64", "uint64", "uint64"],
  cuMemFreeAsync: ["uint64", "uint64"],
  cuMemHostAlloc: ["pointer", "uint64", "uint32"],
  cuMemFreeHost: ["uint64"],
  cuMemHostRegister_v2: ["uint64", "uint64", "uint32"],
  cuMemcpyHtoDAsync_v2: ["uint64", "uint64", "uint64", "uint64"],
  cuMemcpyDtoHAsync_v2: ["uint64", "uint64", "uint64", "uint64"],
  cuMemcpyDtoDAsync_v2: ["uint64", "uint64", "uint64", "uint64"],
  cuMemcpyPeerAsync: ["uint64", "uint64", "uint64", "uint64", "uint64", "uint64"],
  cuStreamCreate: ["pointer", "uint32"],
  cuStreamSynchronize: ["uint64"],
  cuEventCreate: ["pointer", "uint32"],
  cuEventRecord: ["uint64", "uint64"],
  cuEventQuery: ["uint64"],
  cuEventSynchronize: ["uint64"],
};

/** `CUresult` values that have a meaning here. */
export const CUDA_SUCCESS = 0;
export const CUDA_ERROR_OUT_OF_MEMORY = 2;
export const CUDA_ERROR_NOT_READY = 600;

const RESULT_NAMES: Readonly<Record<number, string>> = {
  1: "CUDA_ERROR_INVALID_VALUE",
  2: "CUDA_ERROR_OUT_OF_MEMORY",
  3: "CUDA_ERROR_NOT_INITIALIZED",
  4: "CUDA_ERROR_DEINITIALIZED",
  34: "CUDA_ERROR_STUB_LIBRARY",
  46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
  100: "CUDA_ERROR_NO_DEVICE",
  101: "CUDA_ERROR_INVALID_DEVICE",
  200: "CUDA_ERROR_INVALID_IMAGE",
  201: "CUDA_ERROR_INVALID_CONTEXT",
  205: "CUDA_ERROR_MAP_FAILED",
  214: "CUDA_ERROR_ECC_UNCORRECTABLE",
  304: "CUDA_ERROR_OPERATING_SYSTEM",
  400: "CUDA_ERROR_INVALID_HANDLE",
  600: "CUDA_ERROR_NOT_READY",
  700: "CUDA_ERROR_ILLEGAL_ADDRESS",
  712: "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
  716: "CUDA_ERROR_MISALIGNED_ADDRESS",
  719: "CUDA_ERROR_LAUNCH_FAILED",
  801: "CUDA_ERROR_NOT_SUPPORTED",
  802: "CUDA_ERROR_SYSTEM_NOT_READY",
  803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
  999: "CUDA_ERROR_UNKNOWN",
};

/** The driver's name of a result. */
export function resultName(result: number): string {
  return RESULT_NAMES[result] ?? `CUresult ${result}`;
}

/** The loaded driver: calls by name that throw on failure. */
export class CudaDriver {
  readonly #functions: Readonly<Record<CudaCall, NativeFunction>>;
  readonly #word = new BigUint64Array(1);
  readonly #int = new Int32Array(1);

  constructor(library: NativeLibrary) {
    const functions: Partial<Record<CudaCall, NativeFunction>> = {};
    for (const name of Object.keys(CALLS) as CudaCall[]) functions[name] = library.bind(name, "int32", CALLS[name]);
    this.#functions = functions as Record<CudaCall, NativeFunction>;
  }

  /** Calls and gives the driver's result, whatever it is. */
  try(name: CudaCall, ...values: Parameters<NativeFunction>): number {
    return this.#functions[name](...values);
  }

  /** Calls. @throws DeviceError on any result but success. */
  call(name: CudaCall, ...values: Parameters<NativeFunction>): void {
    const result = this.#functions[name](...values);
    if (result !== CUDA_SUCCESS) throw driverError(name, result);
  }

  /** Calls on another thread, so that the event loop goes on. @throws DeviceError on any result but success. */
  async later(name: CudaCall, ...values: Parameters<NativeFunction>): Promise<void> {
    const result = await this.#functions[name].later(...values);
    if (result !== CUDA_SUCCESS) throw driverError(name, result);
  }

  /** Calls a function that gives a 64-bit value (an address or a handle) through its first parameter. */
  make(name: CudaCall, ...values: Parameters<NativeFunction>): number {
    this.#word[0] = 0n;
    this.call(name, this.#word, ...values);
    return Number(this.#word[0]);
  }

  /** Calls a function that gives an `int` through its first parameter. */
  int(name: CudaCall, ...values: Parameters<NativeFunction>): number {
    this.#int[0] = 0;
    this.call(name, this.#int, ...values);
    return this.#int[0] as number;
  }
}

/** The error for a driver call that failed. */
export function driverError(name: string, result: number, device = "cuda"): DeviceError {
  return new DeviceError(`CUDA: ${name} failed with ${resultName(result)}`, {
    device,
    driverCode: result,
    driverName: resultName(result),
  });
}

let standIn: NativeLibrary | undefined;

/** Puts another library in the driver's place, for tests on machines without a GPU. */
export function setDriverLibrary(library: NativeLibrary | undefined): void {
  standIn = library;
}

/** Loads the driver without starting it. @throws DeviceError when the machine has none. */
export function loadDriver(): CudaDriver {
  const library = standIn ?? openLibrary(["libcuda.so.1", "libcuda.so", "nvcuda.dll"]);
  if (library === undefined) {
    throw new DeviceError(
      'Cannot use "cuda": this machine has no NVIDIA driver (libcuda.so.1 was not found); mapLocation: "cpu" loads to main memory',
      { device: "cuda" },
    );
  }
  return new CudaDriver(library);
}
