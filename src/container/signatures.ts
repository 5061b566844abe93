/**
 * What files look like that are not checkpoints, or not ones that are read: one row a format, with what to do about it. A
 * format that a reader is written for leaves this table and joins the containers of detect.ts.
 *
 * @module
 */
import type { ByteSource } from "../source/source.js";
import { type Finding, lookIntoGzip, lookIntoTar } from "./peek.js";
import {
  anyOf,
  bytesAt,
  isCutSafetensors,
  isPickle,
  isSafetensors,
  isTar,
  isText,
  leadingText,
  type Matches,
  protobufKind,
  type Sample,
  textAt,
  textLike,
} from "./sample.js";

/** A format that is recognised. */
export interface Signature {
  /** What the file is, as it follows "this is". */
  readonly what: string | ((sample: Sample) => string);
  readonly matches: Matches;
  /** What to do, as it ends a message. */
  readonly advice?: string | ((sample: Sample) => string);
  /** Reads further in the source and says more, where there is more to say. */
  readonly look?: (source: ByteSource) => Promise<Finding | undefined>;
}

const CHECK_ADDRESS = "check the address it was downloaded from";

/** The value of a line `key value` or `key: value` in the text of the head. */
function fieldOf(sample: Sample, key: string): string | undefined {
  return new RegExp(`^\\s*(?:- )?${key}:? (\\S+)$`, "m").exec(leadingText(sample))?.[1];
}

function pointerFor(system: string, sample: Sample): string {
  const size = fieldOf(sample, "size");
  return `a ${system} pointer${size === undefined ? "" : ` for ${size} bytes`}, not the file itself`;
}

function lfsAdvice(sample: Sample): string {
  const oid = fieldOf(sample, "oid");
  return `fetch it with "git lfs pull"${oid === undefined ? "" : `; its oid is ${oid}`}`;
}

/** The first line of a text, shortened. */
function firstLine({ head }: Sample): string {
  const [line = ""] = new TextDecoder()
    .decode(head)
    .trimStart()
    .split(/[\r\n]/, 1);
  return JSON.stringify(line.length > 60 ? `${line.slice(0, 57)}...` : line.trimEnd());
}

/** What a storage service says in XML in place of a file, such as "AccessDenied". */
const XML_ERROR = /^(?:<\?xml[^>]*>\s*)?<Error>.*?<Code>(\w+)<\/Code>/s;

/** The formats that are recognised, each by its first bytes; the first row that matches counts. */
export const SIGNATURES: readonly Signature[] = [
  // Something else in place of the file.
  {
    what: (sample) => pointerFor("Git LFS", sample),
    matches: textAt(0, "version https://git-lfs.github.com/spec/"),
    advice: lfsAdvice,
  },
  {
    what: "a Xet pointer, not the file itself",
    matches: textAt(0, "# xet version"),
    advice: 'fetch it with "git xet" or huggingface_hub',
  },
  {
    what: "a git-annex pointer, not the file itself",
    matches: textAt(0, "/annex/objects/"),
    advice: 'fetch it with "git annex get"',
  },
  {
    what: (sample) => pointerFor("DVC", sample),
    matches: textLike(/^outs:\s*\n- (?:md5|hash|size|path|etag): /),
    advice: 'fetch it with "dvc pull"',
  },
  {
    what: "an HTML page",
    matches: textLike(/^(?:<!--.*?-->\s*)?<(?:!doctype html|html|head|body|script|title)/is),
    advice: "the download gave a page in place of the file: check the address, or whether it asks for a login",
  },
  {
    what: (sample) => `an XML document that says "${XML_ERROR.exec(leadingText(sample))?.[1]}"`,
    matches: textLike(XML_ERROR),
    advice: CHECK_ADDRESS,
  },
  { what: "an XML document", matches: textLike(/^<(?:\?xml|[a-z]+[ >])/i), advice: CHECK_ADDRESS },
  {
    what: ({ tail }) => (isZero(tail) ? "all zeros at its start and end" : "all zeros at its start"),
    matches: ({ head }) => head.length >= 16 && isZero(head),
    advice: "an interrupted download or a sparse copy leaves such: fetch it again",
  },

  // PyTorch's other formats and those around it.
  { what: "a safetensors file", matches: isSafetensors, advice: "this version reads PyTorch's own formats" },
  {
    what: "a safetensors file that ends within its header",
    matches: isCutSafetensors,
    advice: "fetch it again",
  },
  {
    what: "a PyTorch archive of the preview releases of 2018 (PYTORCH1), which no release reads",
    matches: textAt(0, "PYTORCH1"),
  },
  { what: "a PyTorch mobile model (flatbuffer)", matches: textAt(4, "PTMF") },
  {
    what: "an ExecuTorch program (.pte)",
    matches: ({ head }) => textAt(4, "ET")({ head, tail: head, size: 0 }) && isDigit(head[6]) && isDigit(head[7]),
    advice: "the ExecuTorch runtime reads it",
  },
  { what: "a Lua Torch 7 file (.t7)", matches: bytesAt(8, 3, 0, 0, 0, 0x56, 0x20, 0x31), advice: "torchfile reads it" },
  {
    what: "the metadata of a distributed checkpoint, which this version does not read",
    matches: (sample) => isPickle(sample) && leadingText(sample).includes("torch.distributed.checkpoint.metadata"),
  },
  { what: "a pickle, but not one that torch.save wrote", matches: isPickle },

  // Models of other frameworks.
  { what: "a GGUF file", matches: textAt(0, "GGUF"), advice: "llama.cpp and its tools read it" },
  {
    what: "a GGML file",
    matches: anyOf(textAt(0, "lmgg"), textAt(0, "fmgg"), textAt(0, "tjgg"), textAt(0, "algg")),
    advice: "llama.cpp and its tools read it",
  },
  { what: "an HDF5 file, as Keras writes", matches: bytesAt(0, 0x89, 0x48, 0x44, 0x46), advice: "h5py reads it" },
  { what: "a TensorFlow Lite model", matches: textAt(4, "TFL3"), advice: "TensorFlow reads it" },
  {
    what: "the index of a TensorFlow checkpoint",
    // The magic number at the end of a LevelDB table.
    matches: ({ tail }) => [0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb].every((byte, k) => tail.at(k - 8) === byte),
    advice: "TensorFlow reads it",
  },
  { what: "a TensorRT engine", matches: anyOf(textAt(0, "ptrt"), textAt(0, "ftrt")), advice: "TensorRT reads it" },
  { what: "MXNet parameters", matches: bytesAt(0, 0x12, 1, 0, 0, 0, 0, 0, 0), advice: "MXNet reads them" },
  {
    what: "a NumPy array (.npy)",
    matches: bytesAt(0, 0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59),
    advice: "numpy.load reads it",
  },
  { what: "a MATLAB file", matches: textAt(0, "MATLAB "), advice: "scipy.io.loadmat reads it" },
  { what: "a Parquet file", matches: textAt(0, "PAR1") },
  { what: "an Arrow file", matches: textAt(0, "ARROW1") },
  { what: "an SQLite database", matches: textAt(0, "SQLite format 3") },

  // Archives and compressed files.
  {
    what: "a gzip file",
    matches: bytesAt(0, 0x1f, 0x8b),
    advice: 'unpack it first, with "gunzip" or "tar xzf"',
    look: lookIntoGzip,
  },
  {
    what: "zlib-compressed data, as joblib writes",
    matches: ({ head }) => head[0] === 0x78 && [0x01, 0x5e, 0x9c, 0xda].includes(head[1] as number),
    advice: "unpack it first",
  },
  { what: "a zstd file", matches: bytesAt(0, 0x28, 0xb5, 0x2f, 0xfd), advice: 'unpack it first, with "unzstd"' },
  { what: "an lz4 file", matches: bytesAt(0, 0x04, 0x22, 0x4d, 0x18), advice: 'unpack it first, with "unlz4"' },
  { what: "an xz file", matches: bytesAt(0, 0xfd, 0x37, 0x7a, 0x58, 0x5a), advice: 'unpack it first, with "unxz"' },
  { what: "a bzip2 file", matches: textAt(0, "BZh"), advice: 'unpack it first, with "bunzip2"' },
  { what: "a 7z archive", matches: bytesAt(0, 0x37, 0x7a, 0xbc, 0xaf), advice: "unpack it first" },
  { what: "a RAR archive", matches: textAt(0, "Rar!"), advice: "unpack it first" },
  { what: "a zip archive without records", matches: bytesAt(0, 0x50, 0x4b, 5, 6) },
  {
    what: "the first part of a split zip archive",
    matches: bytesAt(0, 0x50, 0x4b, 7, 8),
    advice: "join its parts first",
  },
  { what: "a tar archive", matches: isTar, advice: "unpack it first", look: lookIntoTar },

  // What is no model at all.
  { what: "a PDF document", matches: textAt(0, "%PDF") },
  {
    what: "a picture",
    matches: anyOf(
      bytesAt(0, 0x89, 0x50, 0x4e, 0x47),
      bytesAt(0, 0xff, 0xd8, 0xff),
      textAt(0, "GIF8"),
      textAt(8, "WEBP"),
      bytesAt(0, 0x49, 0x49, 0x2a, 0),
      bytesAt(0, 0x4d, 0x4d, 0, 0x2a),
    ),
  },
  {
    what: "an audio or video file",
    matches: anyOf(textAt(8, "WAVE"), textAt(8, "AVI "), textAt(4, "ftyp"), textAt(0, "OggS"), textAt(0, "ID3")),
  },
  { what: "a program (ELF)", matches: bytesAt(0, 0x7f, 0x45, 0x4c, 0x46) },
  { what: "a program (Mach-O)", matches: bytesAt(0, 0xcf, 0xfa, 0xed, 0xfe) },
  { what: "a program (Windows)", matches: isWindowsProgram },

  // What only a guess tells.
  { what: "an ONNX model", matches: (sample) => protobufKind(sample) === "onnx", advice: "ONNX Runtime reads it" },
  {
    what: "a TensorFlow SavedModel",
    matches: (sample) => protobufKind(sample) === "saved-model",
    advice: "TensorFlow reads it",
  },
  {
    what: "a Core ML model",
    matches: (sample) => protobufKind(sample) === "core-ml",
    advice: "coremltools reads it",
  },
  {
    what: "the index of a sharded checkpoint",
    matches: (sample) => /^\{/.test(leadingText(sample)) && /"weight_map"\s*:/.test(leadingText(sample)),
    advice: "the tensors are in the files that it names: load those",
  },
  { what: "a JSON document", matches: (sample) => isText(sample) && /^[{[]/.test(leadingText(sample)) },
  { what: (sample) => `a text file that begins with ${firstLine(sample)}`, matches: isText },
];

function isZero(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0);
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= 0x30 && byte <= 0x39;
}

/** `MZ`, and where it says that the newer header is, `PE`. */
function isWindowsProgram({ head }: Sample): boolean {
  if (head[0] !== 0x4d || head[1] !== 0x5a || head.length < 64) return false;
  const at = new DataView(head.buffer, head.byteOffset, head.byteLength).getUint32(60, true);
  return head[at] === 0x50 && head[at + 1] === 0x45;
}
