/**
 * A storage: a flat run of bytes that one or more tensors look at. While a file is only decoded it is a description; the
 * fill step gives it memory.
 *
 * @module
 */
import { type Device, type DeviceMemory, META } from "../device/device.js";
import type { DType } from "./dtype.js";

/** What is known of a storage before any of its bytes is read. */
export interface StorageInit {
  /** The name of the storage in its file, such as `"0"`. */
  readonly key: string;
  /** The type under which it was first saved; `undefined` for an untyped storage. */
  readonly dtype: DType | undefined;
  /** Size in bytes. */
  readonly nbytes: number;
  /** Where the file says it lay when it was saved, such as `"cuda:0"`. */
  readonly location: string;
}

/**
 * A flat run of bytes. Tensors that share a storage share its memory on every device, as in PyTorch.
 */
export class Storage {
  readonly key: string;
  readonly dtype: DType | undefined;
  readonly nbytes: number;
  readonly location: string;
  /** The memory that holds the bytes; `undefined` while the storage is only a description. */
  memory: DeviceMemory | undefined = undefined;

  constructor(init: StorageInit) {
    this.key = init.key;
    this.dtype = init.dtype;
    this.nbytes = init.nbytes;
    this.location = init.location;
  }

  /** The device of the memory, or `meta` while there is none. */
  get device(): Device {
    return this.memory === undefined ? META : this.memory.device;
  }

  /**
   * The bytes, without a copy: writing to them writes to every tensor of the storage, and never to the file.
   *
   * @throws TypeError when the bytes are not in main memory, or were disposed of.
   */
  get bytes(): Uint8Array {
    if (this.nbytes === 0) return new Uint8Array(0);
    const bytes = this.memory?.bytes;
    if (bytes === undefined) {
      throw new TypeError(
        this.memory === undefined
          ? "The tensor is on the meta device: it describes data that is not loaded"
          : `The tensor is on ${this.device}: its bytes can be read after \`await tensor.to("cpu")\``,
      );
    }
    return bytes;
  }

  /** Frees the memory. Every tensor of the storage is empty of data from then on. */
  dispose(): void {
    this.memory?.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
