/**
 * Main memory: bytes in an `ArrayBuffer`, and bytes of a mapped file that get a view when first looked at.
 *
 * @module
 */
import type { FileMapping } from "../../platform/platform.js";
import { CPU, type Device, type DeviceMemory } from "../device.js";

/** The strictest alignment that a typed array asks for, in bytes. */
const MAX_ELEMENT_ALIGNMENT = 8;

/** Uninitialised main memory of `nbytes` bytes, aligned for every element type, in a buffer of its own. */
export function allocateHost(nbytes: number): Uint8Array<ArrayBuffer> {
  // Node's allocUnsafeSlow skips the zeroing that the language otherwise promises.
  const buffer = (globalThis as { Buffer?: { allocUnsafeSlow(n: number): Uint8Array<ArrayBuffer> } }).Buffer;
  if (buffer === undefined) return new Uint8Array(nbytes);
  const bytes = buffer.allocUnsafeSlow(nbytes);
  return new Uint8Array(bytes.buffer, bytes.byteOffset, nbytes);
}

abstract class Host implements DeviceMemory {
  readonly device: Device = CPU;
  abstract readonly nbytes: number;
  disposed = false;

  protected abstract view(): Uint8Array;

  get bytes(): Uint8Array {
    if (this.disposed) throw new TypeError("The memory of this storage was disposed of");
    return this.view();
  }

  async read(start: number, end: number, target?: Uint8Array): Promise<Uint8Array> {
    const range = this.bytes.subarray(start, end);
    if (target === undefined) return range.slice();
    target.set(range);
    return target;
  }

  dispose(): void {
    this.disposed = true;
    this.release();
  }

  protected abstract release(): void;
}

/** Bytes that lie in JavaScript's own memory. Disposing lets go of them; the collector frees them. */
export class HostMemory extends Host {
  readonly nbytes: number;
  #bytes: Uint8Array | undefined;

  /** @param bytes - the bytes; from now on the storage's, not copied. */
  constructor(bytes: Uint8Array) {
    super();
    this.nbytes = bytes.byteLength;
    this.#bytes = bytes;
  }

  protected view(): Uint8Array {
    return this.#bytes as Uint8Array;
  }

  protected release(): void {
    this.#bytes = undefined;
  }
}

/**
 * Bytes of a mapped file. The view is made when first asked for: making one tells the collector about memory that it
 * cannot free, and most tensors of a large file may never be touched.
 *
 * Disposing lets go of the mapping; typed arrays that were handed out stay valid and keep it alive for themselves.
 */
export class MappedMemory extends Host {
  readonly nbytes: number;
  #mapping: FileMapping | undefined;
  readonly #byteOffset: number;
  #bytes: Uint8Array | undefined;

  constructor(mapping: FileMapping, byteOffset: number, nbytes: number) {
    super();
    this.#mapping = mapping;
    this.#byteOffset = byteOffset;
    this.nbytes = nbytes;
  }

  protected view(): Uint8Array {
    if (this.#bytes === undefined) {
      const mapping = this.#mapping as FileMapping;
      const mapped = new Uint8Array(mapping.view(this.#byteOffset, this.nbytes));
      if ((mapping.address + this.#byteOffset) % MAX_ELEMENT_ALIGNMENT === 0) {
        this.#bytes = mapped;
      } else {
        // A typed array over a misaligned address is undefined behaviour; this copy is the storage's one move.
        this.#bytes = allocateHost(this.nbytes);
        this.#bytes.set(mapped);
        this.#mapping = undefined;
      }
    }
    return this.#bytes;
  }

  protected release(): void {
    this.#mapping = undefined;
    this.#bytes = undefined;
  }
}
