/**
 * `open`: the decode step alone.
 *
 * @module
 */
import { Checkpoint } from "./checkpoint.js";
import type { Contents, DecodeOptions } from "./container/container.js";
import { detect } from "./container/detect.js";
import { legacyAt } from "./container/legacy.js";
import { blobSource } from "./source/blob-source.js";
import { checkedSource } from "./source/checked-source.js";
import { FileSource } from "./source/file-source.js";
import { memorySource } from "./source/memory-source.js";
import type { ByteSource } from "./source/source.js";
import { resolverFor } from "./torch/resolver.js";
import { type GlobalRules, type SafeGlobals, safeGlobalsMap } from "./torch/torch-handlers.js";

/** What can be opened: a path, a `file:` URL, a `Blob` or `File`, bytes, or any {@link ByteSource}. */
export type Input = string | URL | Blob | ArrayBuffer | Uint8Array | ByteSource;

/** How a checkpoint is decoded. */
export interface OpenOptions {
  /**
   * Whether only what PyTorch's own weights-only loading allows is read (default). With `false`, classes and functions that
   * are not known become inert `PythonObject`s. Nothing is ever run in either case.
   */
  readonly weightsOnly?: boolean;
  /** Classes and functions to allow beside PyTorch's own. */
  readonly safeGlobals?: SafeGlobals;
  /** The byte order of zip files that do not state theirs, as files before PyTorch 2.1 did not; little by default. */
  readonly endianness?: "little" | "big";
  /** Where in the input a legacy checkpoint starts, in bytes, when other data is in front of it. */
  readonly offset?: number;
}

/** A source over whatever was given. @throws TypeError for anything else. */
export function sourceOf(input: Input): ByteSource {
  if (typeof input === "string") {
    return /^file:/i.test(input) ? FileSource.open(new URL(input)) : FileSource.open(checkPath(input));
  }
  if (input instanceof URL) {
    if (input.protocol !== "file:") throw new TypeError(`Cannot open "${input}": only file: URLs are read`);
    return FileSource.open(input);
  }
  if (input instanceof Uint8Array) return memorySource(input);
  if (input instanceof ArrayBuffer) return memorySource(new Uint8Array(input));
  if (typeof Blob !== "undefined" && input instanceof Blob) return blobSource(input);
  if (typeof input === "object" && input !== null && typeof (input as ByteSource).read === "function")
    return checkedSource(input as ByteSource);
  throw new TypeError(`Cannot open ${String(input)}; expected a path, a URL, a Blob, bytes or a ByteSource`);
}

function checkPath(path: string): string {
  if (/^[a-z][a-z0-9+.-]+:\/\//i.test(path))
    throw new TypeError(`Cannot open "${path}": only paths and file: URLs are read`);
  return path;
}

/** Checks options and gives what they stand for. @throws TypeError */
export function decodeRules(options: OpenOptions): { rules: GlobalRules; decodeOptions: DecodeOptions } {
  const { weightsOnly = true, safeGlobals, endianness = "little", offset } = options;
  if (typeof weightsOnly !== "boolean")
    throw new TypeError(`weightsOnly is ${String(weightsOnly)}; expected true or false`);
  if (endianness !== "little" && endianness !== "big") {
    throw new TypeError(`endianness is ${String(endianness)}; expected "little" or "big"`);
  }
  if (offset !== undefined && (!Number.isSafeInteger(offset) || offset < 0)) {
    throw new TypeError(`offset is ${offset}; expected a number of bytes`);
  }
  return { rules: { weightsOnly, safeGlobals: safeGlobalsMap(safeGlobals) }, decodeOptions: { endianness } };
}

/**
 * Opens a checkpoint: reads its directory and its pickle, and no byte of a tensor.
 *
 * @param input - a path, URL, `Blob`, bytes or source. The caller keeps ownership of a source of its own.
 * @throws FormatError, UnsupportedError when the input is not a checkpoint, is damaged, or is of a kind that is not read.
 * @throws UnsafePickleError when its pickle asks for a class or function that is not allowed.
 * @throws SourceError when the input cannot be read.
 *
 * @example
 * ```ts
 * await using checkpoint = await open("model.pt");
 * for (const [name, tensor] of checkpoint.tensors()) console.log(name, tensor.dtype.name, tensor.shape);
 * ```
 */
export async function open(input: Input, options: OpenOptions = {}): Promise<Checkpoint> {
  const { rules, decodeOptions } = decodeRules(options);
  const source = sourceOf(input);
  try {
    const found = options.offset ? legacyAt(options.offset) : detect(source);
    const format = found instanceof Promise ? await found : found;
    const decoded = format.decode(source, resolverFor(source.name, rules), decodeOptions);
    const contents: Contents = decoded instanceof Promise ? await decoded : decoded;
    return new Checkpoint(source, format, rules, decodeOptions, contents);
  } catch (error) {
    await source.close?.();
    throw error;
  }
}
