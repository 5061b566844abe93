/**
 * What is left of a checkpoint that was cut short: which storages are whole, which tensors that makes whole, and how many
 * bytes are missing at least.
 *
 * @module
 */
import { FormatError } from "../errors.js";
import { namedTensors } from "../tensor/named-tensors.js";
import type { Storage } from "../tensor/storage.js";

/** A checkpoint of which the end is missing. */
export interface Damage {
  readonly file: string;
  /** How many bytes the file has. */
  readonly size: number;
  /** How many it should have at least. */
  readonly needed: number;
  /** The objects of its pickle. */
  readonly value: unknown;
  readonly storages: readonly Storage[];
  /** The storages all of whose bytes are there. */
  readonly whole: ReadonlySet<Storage>;
}

/** Names that a message lists before it only counts. */
const LISTED = 3;

/** The error that says so. Its `whole` lists the tensors that are whole. */
export function cutShortError({ file, size, needed, value, storages, whole }: Damage): FormatError {
  const names: string[] = [];
  const broken: string[] = [];
  for (const [name, tensor] of namedTensors(value)) (whole.has(tensor.storage) ? names : broken).push(name);
  const first = storages.find((storage) => !whole.has(storage));
  const shown = broken.slice(0, LISTED).map((name) => `"${name}"`);
  const rest = broken.length > LISTED ? ` and ${broken.length - LISTED} more` : "";
  return new FormatError(
    `Cannot load "${file}": it is cut short: ${size} bytes are here, at least ${needed - size} are missing; ` +
      `${names.length} of ${names.length + broken.length} tensors are whole` +
      (broken.length === 0 ? "" : `, not whole are ${shown.join(", ")}${rest}`),
    { file, record: first?.key, expected: needed, found: size, whole: names },
  );
}
