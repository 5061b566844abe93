/**
 * What zip archives hold that `torch.save` did not write, told from the names of their records: one row a kind, with what
 * to do about it. Kinds that a reader is written for leave this table.
 *
 * @module
 */
import { UnsupportedError } from "../errors.js";

/** The names of an archive's records. */
interface Names {
  /** Whether there is a record of this full name. */
  has(name: string): boolean;
  /** The first name that fits, in quotes. */
  first(pattern: RegExp): string | undefined;
  every(pattern: RegExp): boolean;
}

/** A kind of archive. */
interface ArchiveKind {
  /** What the file is, as it follows "this is". */
  readonly what: string | ((names: Names) => string);
  readonly matches: (names: Names) => boolean;
  /** What to do, as it ends a message. */
  readonly advice?: string;
}

const NOT_READ = "which this version does not read";

/**
 * Kinds of PyTorch's own that also have, or may have, a `data.pkl`; by names without the root folder. In this order, as
 * `torch.load` looks for `constants.pkl` before anything else.
 */
const PYTORCH_KINDS: readonly ArchiveKind[] = [
  {
    what: `a TorchScript archive (torch.jit.save), ${NOT_READ}`,
    matches: (names) => names.has("constants.pkl"),
  },
  {
    what: `a TorchScript archive of PyTorch 1.0 or 1.1, ${NOT_READ}`,
    matches: (names) => names.has("model.json"),
  },
  {
    what: `a torch.export archive (.pt2), ${NOT_READ}`,
    matches: (names) => names.has("archive_format") || names.has("serialized_exported_program.json"),
  },
  {
    what: `a torch.package archive, ${NOT_READ}`,
    matches: (names) => names.has(".data/extern_modules") || names.has(".data/python_version"),
  },
];

/** The most characters of a name that a message shows. */
const MAX_SHOWN = 80;

/** Names that checkpoints and other weights are saved under. */
const CHECKPOINT_NAME = /\.(?:pt|pth|th|ckpt|bin|pkl|safetensors|pt2|ptl)$/i;

/** Archives of other makers, by full names. The first row that matches counts. */
const OTHER_KINDS: readonly ArchiveKind[] = [
  {
    what: "a NumPy archive (.npz)",
    matches: (names) => names.every(/\.npy$/),
    advice: "numpy.load reads it",
  },
  {
    what: `a torch.export archive (.pt2), ${NOT_READ}`,
    matches: (names) => names.has("serialized_exported_program.json"),
  },
  {
    what: "a Keras model (.keras)",
    matches: (names) => names.has("config.json") && (names.has("model.weights.h5") || names.has("metadata.json")),
    advice: "Keras reads it",
  },
  {
    what: "a Core ML package",
    matches: (names) => names.first(/(?:^|\/)com\.apple\.CoreML\//) !== undefined,
  },
  {
    what: "an Office document",
    matches: (names) => names.has("[Content_Types].xml"),
  },
  { what: "an Android package", matches: (names) => names.has("AndroidManifest.xml") },
  { what: "an EPUB or OpenDocument file", matches: (names) => names.has("mimetype") },
  {
    what: "a TorchServe archive (.mar)",
    matches: (names) => names.has("MAR-INF/MANIFEST.json"),
    advice: "unpack it first and load the checkpoint in it",
  },
  { what: "a Java archive", matches: (names) => names.has("META-INF/MANIFEST.MF") },
  { what: "a Python wheel", matches: (names) => names.first(/^[^/]+\.dist-info\/WHEEL$/) !== undefined },
  {
    what: "a distributed checkpoint (torch.distributed.checkpoint) in a zip archive",
    matches: (names) => names.first(/\.distcp$/) !== undefined,
    advice: "unpack it first",
  },
  {
    what: 'a zip archive, but not a PyTorch checkpoint: record "data.pkl" is not in a folder, as all records of one are',
    matches: (names) => names.has("data.pkl"),
    advice: "if another program packed it, put the records into a folder and zip that",
  },
  {
    what: (names) => `a zip archive, but not a PyTorch checkpoint: it holds ${names.first(CHECKPOINT_NAME)}`,
    matches: (names) => names.first(CHECKPOINT_NAME) !== undefined,
    advice: "unpack it first",
  },
  {
    what: (names) =>
      `a zip archive, but not a PyTorch checkpoint: it has no record "data.pkl", but ${names.first(/^/)}`,
    matches: () => true,
  },
];

function refusal(file: string, kinds: readonly ArchiveKind[], names: Names): UnsupportedError | undefined {
  const kind = kinds.find(({ matches }) => matches(names));
  if (kind === undefined) return undefined;
  const what = typeof kind.what === "string" ? kind.what : kind.what(names);
  const advice = kind.advice === undefined ? "" : `; ${kind.advice}`;
  return new UnsupportedError(`Cannot load "${file}": this is ${what}${advice}`, { file, feature: what });
}

/**
 * The error for an archive of PyTorch's that `torch.save` did not write; `undefined` for others.
 *
 * @param has - whether the archive has a record of a name, without the root.
 */
export function describePytorchArchive(file: string, has: (name: string) => boolean): UnsupportedError | undefined {
  return refusal(file, PYTORCH_KINDS, { has, first: () => undefined, every: () => false });
}

/**
 * The error for an archive without a checkpoint's records: what it is.
 *
 * @param list - the full names of its records.
 */
export function describeArchive(file: string, list: readonly string[]): UnsupportedError {
  const names = new Set(list);
  // Not from OTHER_KINDS: its last row matches everything.
  return refusal(file, OTHER_KINDS, {
    has: (name) => names.has(name),
    first(pattern) {
      const name = list.find((candidate) => pattern.test(candidate));
      return name === undefined ? undefined : JSON.stringify(name.slice(0, MAX_SHOWN));
    },
    every: (pattern) => list.every((name) => pattern.test(name)),
  }) as UnsupportedError;
}
