/**
 * What the library asks of the place it runs in: local files and native libraries. `node.ts` and `browser.ts` offer the
 * same names, and `#platform` in package.json picks one. These are the types they share.
 *
 * @module
 */

/** The C types that foreign-function calls of the library use. Addresses are `uint64`: a user-space address and a size
 * of real memory fit a JavaScript number exactly, which is cheaper than a `bigint`. */
export type NativeType = "void" | "int32" | "uint32" | "int64" | "uint64" | "double" | "string" | "pointer";

/** A bound foreign function. `pointer` parameters take a typed array whose memory the call reads or writes. */
export interface NativeFunction {
  (...values: (number | bigint | string | ArrayBufferView | null)[]): number;
  /** The same call on a thread of the platform's pool, so that the calling thread goes on meanwhile. */
  readonly later: (...values: (number | bigint | string | ArrayBufferView | null)[]) => Promise<number>;
}

/** A loaded shared library. */
export interface NativeLibrary {
  /** Binds a function by name. @throws Error when the library has no such symbol. */
  bind(name: string, result: NativeType, parameters: readonly NativeType[]): NativeFunction;
  /** Whether the library has a symbol of this name. */
  has(name: string): boolean;
}

/** Bytes of a file mapped into memory, private and copy-on-write. Unmapped when nothing refers to it any more. */
export interface FileMapping {
  /** Where the first byte of the file lies in memory. */
  readonly address: number;
  /** How many bytes are mapped. */
  readonly nbytes: number;
  /** The `nbytes` bytes at `byteOffset`, as an `ArrayBuffer` over the mapped memory itself. Keeps the mapping alive. */
  view(byteOffset: number, nbytes: number): ArrayBuffer;
}

/** A file opened for reading. Errors of the system leave as `SourceError`. */
export interface LocalFile {
  readonly path: string;
  /** The size when the file was opened, in bytes. */
  readonly size: number;
  /** Reads `[start, end)` at once. */
  read(start: number, end: number): Uint8Array;
  /** Fills `target` with the bytes from `start` on, at once. */
  readSync(target: Uint8Array, start: number): void;
  /** Fills `target` with the bytes from `start` on, on the platform's thread pool. */
  readInto(target: Uint8Array, start: number): Promise<void>;
  /** Maps the file, or answers `undefined` where the platform or the file system cannot. */
  map(): FileMapping | undefined;
  /** Starts reads on native threads; `undefined` where the platform has no such reads. */
  backgroundReads(queues: number): BackgroundReads | undefined;
  /** Throws a `SourceError` when the file's size or time of change is not what it was when it was opened. */
  checkUnchanged(): void;
  close(): void;
}

/**
 * Reads that native threads carry out into memory given by address. At most {@link capacity} may be pending.
 * Each queue is served by a thread of its own, in order.
 */
export interface BackgroundReads {
  readonly capacity: number;
  /** Starts reading `nbytes` at `start` of the file to `address`; `id` is below `capacity` and not pending. */
  submit(id: number, address: number, nbytes: number, start: number): void;
  /** Whether read `id` has ended. Once true, the id is free again. @throws SourceError when the read failed or fell short. */
  finished(id: number): boolean;
  /** Blocks this thread until some pending read has ended. */
  waitSync(): void;
  /** Resolves when some pending read has ended; the event loop goes on meanwhile. */
  wait(): Promise<void>;
  /** Waits for all pending reads to end, whatever their outcome, and releases the file descriptors. */
  close(): void;
}
