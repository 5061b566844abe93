/**
 * The devices that memory can be had on, one backend a type. Heavy ones are imported when first asked for.
 *
 * @module
 */
import { DeviceError, UnsupportedError } from "../errors.js";
import { allocateHost, HostMemory } from "./cpu/host-memory.js";
import { CPU, type Device, type DeviceMemory } from "./device.js";

/** What the library asks of one type of device. */
export interface DeviceBackend {
  /**
   * The device that is meant, with its index, once it is known to be there.
   *
   * @throws DeviceError naming what was asked for and what there is.
   */
  resolve(device: Device): Device;
  /** New memory on `target` with the bytes `[start, end)` of memory on any device. */
  copyFrom(origin: DeviceMemory, start: number, end: number, target: Device): Promise<DeviceMemory>;
}

const cpuBackend: DeviceBackend = {
  resolve(device) {
    if ((device.index ?? 0) !== 0)
      throw new DeviceError(`There is one CPU device, not "${device}"`, { device: `${device}` });
    return CPU;
  },
  async copyFrom(origin, start, end) {
    return new HostMemory(await origin.read(start, end, allocateHost(end - start)));
  },
};

/** Backends by type. An import is a promise that is kept: asking for a module anew takes 30 µs. */
const BACKENDS: Readonly<Record<string, () => DeviceBackend | Promise<DeviceBackend>>> = {
  cpu: () => cpuBackend,
  cuda: async () => (await importCuda()).openCudaBackend(),
};

let cuda: Promise<typeof import("./cuda/cuda-backend.js")> | undefined;

/** The CUDA backend's module, imported when first asked for. */
export function importCuda(): Promise<typeof import("./cuda/cuda-backend.js")> {
  cuda ??= import("./cuda/cuda-backend.js");
  return cuda;
}

/**
 * The backend for a device's type.
 *
 * @throws UnsupportedError when the library has none.
 * @throws DeviceError when the device's driver is missing.
 */
export async function backendOf(device: Device): Promise<DeviceBackend> {
  const open = Object.hasOwn(BACKENDS, device.type) ? BACKENDS[device.type] : undefined;
  if (open === undefined) {
    throw new UnsupportedError(
      `Cannot place tensors on "${device}": there is no such kind of device here; known are ${Object.keys(BACKENDS).join(", ")} and meta`,
      { feature: `device ${device.type}` },
    );
  }
  return open();
}
