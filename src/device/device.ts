/**
 * Devices by name, and the memory they hold, as the rest of the library sees it.
 *
 * @module
 */

/** A device: a type such as `"cpu"`, `"cuda"`, `"meta"`, and an index where there can be several. */
export class Device {
  readonly type: string;
  /** Which device of its type; `undefined` when none is named. */
  readonly index: number | undefined;

  constructor(type: string, index?: number) {
    this.type = type;
    this.index = index;
  }

  /** `"cuda:0"`, or the type alone. */
  toString(): string {
    return this.index === undefined ? this.type : `${this.type}:${this.index}`;
  }

  toJSON(): string {
    return this.toString();
  }
}

/** Main memory. */
export const CPU: Device = new Device("cpu");

/** No device: tensors there have a shape and a type but no bytes. */
export const META: Device = new Device("meta");

/**
 * The device that a text names: a type, or a type and an index behind a colon. Whether it exists is another question.
 *
 * @throws TypeError for a text of another form.
 */
export function parseDevice(name: string): Device {
  if (name === "cpu") return CPU;
  if (name === "meta") return META;
  const match = /^([a-z_][a-z_0-9]*?)(?::(0|[1-9]\d{0,5}))?$/.exec(name);
  if (match === null)
    throw new TypeError(`"${name}" is not a device; expected a form such as "cpu", "cuda" or "cuda:0"`);
  return new Device(match[1] as string, match[2] === undefined ? undefined : Number(match[2]));
}

/**
 * A range of a device's memory that holds the bytes of one storage. Freed by {@link dispose}, or when nothing refers to it
 * any more.
 */
export interface DeviceMemory {
  readonly device: Device;
  /** Size in bytes. */
  readonly nbytes: number;
  /** Whether {@link dispose} was called. */
  readonly disposed: boolean;
  /** The bytes themselves where JavaScript can see them, without a copy; `undefined` on other devices. */
  readonly bytes: Uint8Array | undefined;
  /** Copies the bytes `[start, end)` into main memory, into `target` where one is given. */
  read(start: number, end: number, target?: Uint8Array): Promise<Uint8Array>;
  dispose(): void;
}
