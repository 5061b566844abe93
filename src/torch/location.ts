/**
 * Where storages go: `mapLocation` and the registry of location tags. Place step, the decisions.
 *
 * Source of the rules: `_get_restore_location` and `register_package` in torch/serialization.py of PyTorch 2.11.
 *
 * @module
 */

import { CPU, Device, type DeviceMemory, META, parseDevice } from "../device/device.js";
import { FormatError } from "../errors.js";
import type { DType } from "../tensor/dtype.js";
import { Storage } from "../tensor/storage.js";

/** What a {@link MapLocationFunction} is told of a storage; no byte of it has been read. */
export interface StorageDescription {
  readonly key: string;
  /** The type it was first saved as; `undefined` for an untyped storage. */
  readonly dtype: DType | undefined;
  /** Size in bytes. */
  readonly nbytes: number;
  /** Where it lay when it was saved, such as `"cuda:0"`. */
  readonly location: string;
}

/**
 * Decides on one storage: a device or its name; a storage of the caller's own, of the same size, into which the bytes are
 * then read; or nothing, for the CPU.
 */
export type MapLocationFunction = (
  storage: StorageDescription,
  location: string,
) => string | Device | Storage | null | undefined | void;

/**
 * Where storages go, as in `torch.load`: a device or its name for all; a dictionary from the file's tags to device names
 * (tags that are not in it go to the CPU); a function; or `"saved"` for the devices that the file names.
 */
export type MapLocation =
  | string
  | Device
  | Readonly<Record<string, string>>
  | ReadonlyMap<string, string>
  | MapLocationFunction;

/** Says which location tag a device has when it is saved; `undefined` when the device is not its business. */
export type Tagger = (device: Device) => string | undefined;

/** Says which device a location tag means; `undefined` when the tag is not its business. */
export type Restorer = (location: string) => Device | string | undefined;

interface Package {
  readonly priority: number;
  readonly tagger: Tagger;
  readonly restorer: Restorer;
}

/** A device type whose tags are its name, or its name and an index. */
function indexed(type: string): Omit<Package, "priority"> {
  const pattern = new RegExp(`^${type}(?::?(\\d+))?$`);
  return {
    tagger: (device) => (device.type === type ? `${type}:${device.index ?? 0}` : undefined),
    restorer(location) {
      const match = pattern.exec(location);
      return match === null ? undefined : new Device(type, match[1] === undefined ? undefined : Number(match[1]));
    },
  };
}

/** A device type whose tag is its name. */
function single(type: string, device: Device): Omit<Package, "priority"> {
  return {
    tagger: ({ type: found }) => (found === type ? type : undefined),
    restorer: (location) => (location === type ? device : undefined),
  };
}

/** Sorted by priority, lowest first; among equals, the order of registration. The priorities are PyTorch's. */
const packages: Package[] = [
  { priority: 10, ...single("cpu", CPU) },
  { priority: 20, ...indexed("cuda") },
  { priority: 21, ...indexed("mps") },
  { priority: 22, ...single("meta", META) },
  { priority: 24, ...indexed("hpu") },
  { priority: 25, ...indexed("xpu") },
  { priority: 26, ...indexed("mtia") },
];

/**
 * Registers a kind of location tag, as `torch.serialization.register_package` does. `mapLocation: "saved"` and device names
 * that `mapLocation` gives are put to the packages in order of priority, lowest first, until one knows the tag.
 *
 * @param priority - PyTorch's own are 10 (cpu) to 26 (mtia).
 * @param tagger - gives the tag of a device, for saving.
 * @param restorer - gives the device of a tag.
 * @returns a function that takes the registration back.
 */
export function registerPackage(priority: number, tagger: Tagger, restorer: Restorer): () => void {
  if (!Number.isFinite(priority)) throw new TypeError(`registerPackage takes a number as priority, not ${priority}`);
  const added: Package = { priority, tagger, restorer };
  const later = packages.findIndex((other) => other.priority > priority);
  packages.splice(later === -1 ? packages.length : later, 0, added);
  return () => {
    const index = packages.indexOf(added);
    if (index !== -1) packages.splice(index, 1);
  };
}

/** The tag that a device is saved under. */
export function locationTag(device: Device): string {
  for (const { tagger } of packages) {
    const tag = tagger(device);
    if (tag !== undefined) return tag;
  }
  throw new TypeError(`No registered package has a location tag for device "${device}"`);
}

/** The device that a tag means, or `undefined` when no package knows it. */
function restore(location: string): Device | undefined {
  for (const { restorer } of packages) {
    const device = restorer(location);
    if (device !== undefined) return typeof device === "string" ? parseDevice(device) : device;
  }
  return undefined;
}

/** Where one storage goes: to a device, or into memory that the caller gave. */
export type Placement = { readonly device: Device } | { readonly memory: DeviceMemory };

const ON_CPU: Placement = { device: CPU };

/** Decides on each storage. The same answer for many storages is best the same object. */
export type Decide = (storage: Storage, file: string) => Placement;

/**
 * The decision that a `mapLocation` stands for. Its form is checked at once, before any I/O.
 *
 * @throws TypeError for a value of no such form.
 */
export function decisionOf(mapLocation: MapLocation | undefined): Decide {
  const named = (name: string): Placement => ({ device: restore(name) ?? parseDevice(name) });
  if (mapLocation === undefined || mapLocation === null) return () => ON_CPU;
  if (mapLocation === "saved") return (storage, file) => ({ device: savedDevice(storage, file) });
  if (typeof mapLocation === "string") {
    const placement = named(mapLocation);
    return () => placement;
  }
  if (mapLocation instanceof Device) {
    const placement = { device: mapLocation };
    return () => placement;
  }
  if (typeof mapLocation === "function") {
    return (storage) => {
      const { key, dtype, nbytes, location } = storage;
      const answer = mapLocation({ key, dtype, nbytes, location }, location);
      if (answer === undefined || answer === null) return ON_CPU;
      if (typeof answer === "string") return named(answer);
      if (answer instanceof Device) return { device: answer };
      if (answer instanceof Storage) return { memory: ownMemory(answer, storage) };
      throw new TypeError(`mapLocation answered ${String(answer)}; expected a device, its name, a Storage or nothing`);
    };
  }
  if (typeof mapLocation === "object") {
    const map =
      mapLocation instanceof Map ? (mapLocation as ReadonlyMap<string, string>) : new Map(Object.entries(mapLocation));
    for (const [tag, name] of map) {
      if (typeof tag !== "string" || typeof name !== "string")
        throw new TypeError("mapLocation takes a dictionary of texts");
    }
    return (storage) => {
      const name = map.get(storage.location);
      return name === undefined ? ON_CPU : named(name);
    };
  }
  throw new TypeError(`mapLocation is ${String(mapLocation)}; expected a device, its name, a dictionary or a function`);
}

function savedDevice(storage: Storage, file: string): Device {
  const device = restore(storage.location);
  if (device !== undefined) return device;
  throw new FormatError(
    `Cannot load "${file}": storage "${storage.key}" was saved on "${storage.location}", a location that no registered package knows; ` +
      "pass a mapLocation, or register one with registerPackage",
    { file, record: storage.key, found: storage.location },
  );
}

function ownMemory(given: Storage, wanted: Storage): DeviceMemory {
  const { memory } = given;
  if (memory === undefined || memory.disposed)
    throw new TypeError("mapLocation answered with a storage that has no memory");
  if (memory.nbytes !== wanted.nbytes) {
    throw new TypeError(
      `mapLocation answered with a storage of ${memory.nbytes} bytes for storage "${wanted.key}" of ${wanted.nbytes}`,
    );
  }
  return memory;
}
