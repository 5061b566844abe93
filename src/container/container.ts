/**
 * What a container format is to the rest of the library: something that finds the pickle in a source, and says where the
 * bytes of each storage lie.
 *
 * @module
 */
import { UnsupportedError } from "../errors.js";
import type { PickleHandlers } from "../pickle/handlers.js";
import type { ByteSource } from "../source/source.js";
import type { Storage } from "../tensor/storage.js";

/** Where the bytes of a storage are. */
export type StoragePlace =
  /** In the source, as they are, from this offset on. */
  | { readonly kind: "range"; readonly start: number }
  /** To be made from the source: inflated, or with the bytes of each element turned round. */
  | { readonly kind: "content"; readonly read: () => Promise<Uint8Array> };

/** The meaning of a checkpoint's pickles, handed in by the room that knows PyTorch. */
export interface Resolver {
  readonly handlers: PickleHandlers;
  /** The storages that were named so far, in order of first mention. */
  readonly storages: readonly Storage[];
  /** The storage of a key, once it was named. */
  find(key: string): Storage | undefined;
  /** Size in bytes of what is to be turned round in a storage of the other byte order; 1 for nothing. */
  swapWidth(storage: Storage): number;
}

/**
 * Makes a {@link Resolver}.
 *
 * @param check - called with each new storage; throws when the source cannot hold it.
 * @param pickleSize - size of the pickle in bytes: what its calls copy must be in proportion to it.
 */
export type OpenResolver = (check: (storage: Storage) => void, pickleSize: number) => Resolver;

/** How a checkpoint is decoded. */
export interface DecodeOptions {
  /** The byte order of files that do not state theirs. PyTorch before 2.1 did not. */
  readonly endianness: "little" | "big";
}

/** What the file says about itself, such as PyTorch's version fields. */
export type Facts = Readonly<Record<string, string | number | boolean>>;

/** A decoded checkpoint: the objects of its pickle, over storages that are only descriptions. */
export interface Contents {
  readonly value: unknown;
  readonly storages: readonly Storage[];
  readonly facts: Facts;
  /** Where the bytes of a storage lie. @throws FormatError when the source contradicts itself there. */
  locate(storage: Storage): StoragePlace | Promise<StoragePlace>;
}

/** A kind of container. */
export interface ContainerFormat {
  /** The name that `inspect` shows. */
  readonly name: string;
  /** Decodes a source of this kind. */
  decode(source: ByteSource, open: OpenResolver, options: DecodeOptions): Contents | Promise<Contents>;
}

/**
 * The most bytes of a pickle or directory, which are read whole. Far above what checkpoints have, as tensors lie beside the
 * pickle; and below what one array of every engine can hold, beyond which the engine's own error would come.
 */
const MAX_READ_WHOLE = 2 ** 31 - 1;

/** Refuses what would be read whole and is too large for that, such as the hole in a sparse file. */
export function checkReadWhole(file: string, nbytes: number, what = "its pickle"): void {
  if (nbytes <= MAX_READ_WHOLE) return;
  throw new UnsupportedError(
    `Cannot load "${file}": ${what} has ${nbytes} bytes; at most ${MAX_READ_WHOLE} are read whole`,
    { file, feature: `${what} of 2 GiB and more` },
  );
}

/** Turns round the bytes of each element of `width` bytes, in place. */
export function swapBytes(bytes: Uint8Array, width: number): void {
  for (let at = 0; at + width <= bytes.length; at += width) bytes.subarray(at, at + width).reverse();
}
