/**
 * What is in a checkpoint, as plain data: for the command line, for pages and for other programs.
 *
 * @module
 */
import type { Checkpoint } from "../checkpoint.js";
import type { Facts } from "../container/container.js";
import { describeValue } from "./describe-value.js";

/** One tensor of a summary. */
export interface TensorSummary {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  /** Place of the first element in the storage, in elements. */
  readonly storageOffset: number;
  /** Size of its elements in bytes. */
  readonly nbytes: number;
  /** The storage it looks at: its key in the file. */
  readonly storage: string;
  /** Where the file says the storage lay. */
  readonly location: string;
  readonly requiresGrad: boolean;
  /** What it is besides a tensor: `"parameter"`, the name of a subclass. */
  readonly kind?: string;
  /** The first tensor with the same storage, when there is one before this. */
  readonly sharesWith?: string;
}

/** A value that is not a tensor, by the keys that lead to it. */
export interface ValueSummary {
  readonly name: string;
  readonly value: string;
}

/** What is in a checkpoint. */
export interface Summary {
  readonly file: string;
  readonly size: number;
  readonly format: string;
  readonly facts: Facts;
  readonly tensors: readonly TensorSummary[];
  readonly values: readonly ValueSummary[];
  /** Number and bytes of the storages, each counted once. */
  readonly storages: { readonly count: number; readonly nbytes: number };
  /** Elements of all tensors; those that share a storage count each. */
  readonly numel: number;
  readonly locations: Readonly<Record<string, number>>;
  readonly dtypes: Readonly<Record<string, { readonly tensors: number; readonly nbytes: number }>>;
}

/** Sums up an open checkpoint. Reads nothing further of the file. */
export function summarize(checkpoint: Checkpoint): Summary {
  const tensors: TensorSummary[] = [];
  const firstOf = new Map<unknown, string>();
  const dtypes: Record<string, { tensors: number; nbytes: number }> = {};
  let numel = 0;
  for (const [name, tensor] of checkpoint.tensors()) {
    const { storage, dtype } = tensor;
    const sharesWith = firstOf.get(storage);
    if (sharesWith === undefined) firstOf.set(storage, name);
    const kind = tensor.subclass ?? (tensor.isParameter ? "parameter" : undefined);
    tensors.push({
      name,
      dtype: dtype.name,
      shape: tensor.shape,
      strides: tensor.strides,
      storageOffset: tensor.storageOffset,
      nbytes: tensor.nbytes,
      storage: storage.key,
      location: storage.location,
      requiresGrad: tensor.requiresGrad,
      ...(kind === undefined ? {} : { kind }),
      ...(sharesWith === undefined ? {} : { sharesWith }),
    });
    dtypes[dtype.name] ??= { tensors: 0, nbytes: 0 };
    const count = dtypes[dtype.name] as { tensors: number; nbytes: number };
    count.tensors++;
    count.nbytes += tensor.nbytes;
    numel += tensor.numel;
  }
  const locations = new Map<string, number>();
  let nbytes = 0;
  for (const storage of checkpoint.storages) {
    locations.set(storage.location, (locations.get(storage.location) ?? 0) + 1);
    nbytes += storage.nbytes;
  }
  return {
    file: checkpoint.file,
    size: checkpoint.size,
    format: checkpoint.format,
    facts: checkpoint.facts,
    tensors,
    values: describeValue(checkpoint.value),
    storages: { count: checkpoint.storages.length, nbytes },
    numel,
    locations: Object.fromEntries(locations),
    dtypes,
  };
}
