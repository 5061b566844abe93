/**
 * What files look like that are not checkpoints, or not ones that are read: one row a format, with what to do about it.
 *
 * @module
 */
import { LEGACY_MAGIC } from "./legacy.js";

/** What is known of a source when it is to be recognised. */
export interface Sample {
  /** The first bytes, at most {@link SAMPLE_SIZE}. */
  readonly head: Uint8Array;
  /** Size of the whole source in bytes. */
  readonly size: number;
}

/** How many of the first bytes are looked at. */
export const SAMPLE_SIZE = 4096;

/** A format that is recognised. */
export interface Signature {
  /** What the file is, as it follows "this is". */
  readonly what: string | ((sample: Sample) => string);
  readonly matches: (sample: Sample) => boolean;
  /** What to do, as it ends a message. */
  readonly advice?: string;
}

function bytesAt(offset: number, ...bytes: number[]): (sample: Sample) => boolean {
  return ({ head }) => bytes.every((byte, k) => head[offset + k] === byte);
}

function textAt(offset: number, text: string): (sample: Sample) => boolean {
  return bytesAt(offset, ...[...text].map((letter) => letter.charCodeAt(0)));
}

/** The head as text, without a byte order mark and leading white space. */
function leadingText({ head }: Sample): string {
  return new TextDecoder("latin1").decode(head).replace(/^(\xef\xbb\xbf|ï»¿)?\s*/, "");
}

function looksLikeText({ head }: Sample): boolean {
  return head.length > 0 && head.every((byte) => byte >= 0x20 || (byte >= 0x09 && byte <= 0x0d) || byte === 0x1b);
}

function pointerSize(sample: Sample): string {
  const size = /^size (\d+)$/m.exec(leadingText(sample))?.[1];
  return size === undefined
    ? "a Git LFS pointer, not the file itself"
    : `a Git LFS pointer for ${size} bytes, not the file itself`;
}

/** safetensors: a length and a JSON object that long. */
function isSafetensors({ head, size }: Sample): boolean {
  if (head.length < 9 || head[8] !== 0x7b) return false;
  const view = new DataView(head.buffer, head.byteOffset, head.byteLength);
  return view.getUint32(4, true) === 0 && view.getUint32(0, true) + 8 <= size;
}

/** A POSIX or older tar header: the checksum in bytes 148 to 155 is the sum of the header with those bytes as spaces. */
export function isTar({ head }: Sample): boolean {
  if (head.length < 512) return false;
  let sum = 0;
  for (let k = 0; k < 512; k++) sum += k >= 148 && k < 156 ? 0x20 : (head[k] as number);
  const stated = Number.parseInt(new TextDecoder("latin1").decode(head.subarray(148, 156)).replace(/[\0 ]+$/, ""), 8);
  return stated === sum && head[0] !== 0;
}

/** ONNX: a protobuf message that starts with ir_version (field 1) and has a producer name (field 2) or graph (7) next. */
function isOnnx({ head }: Sample): boolean {
  return head[0] === 0x08 && (head[1] as number) < 0x20 && [0x12, 0x3a, 0x42].includes(head[2] as number);
}

/** FRAME and its length, which protocols 4 and 5 put in front of a pickle's content, in bytes. */
const FRAME_SIZE = 9;

/** Whether bytes are the start of a legacy checkpoint: the magic number as a pickle of any protocol. */
export function isLegacy({ head }: Sample): boolean {
  const text = "L119547037146038801333356L\n.";
  if (textAt(0, text)({ head, size: head.length })) return true;
  const start = head[2] === 0x95 ? 2 + FRAME_SIZE : 2;
  return head[0] === 0x80 && LEGACY_MAGIC.every((byte, k) => head[start + k] === byte);
}

const isPickle = ({ head }: Sample): boolean =>
  head[0] === 0x80 && (head[1] as number) >= 1 && (head[1] as number) <= 5;

/** The formats that are recognised, each by its first bytes; the first row that matches counts. */
export const SIGNATURES: readonly Signature[] = [
  {
    what: pointerSize,
    matches: textAt(0, "version https://git-lfs.github.com/spec/"),
    advice: 'fetch the file with "git lfs pull"',
  },
  {
    what: "an HTML page",
    matches: (sample) => /^(<!doctype html|<html|<head|<body)/i.test(leadingText(sample)),
    advice: "the download gave a page in place of the file: check the address, or whether it asks for a login",
  },
  {
    what: "an XML document",
    matches: (sample) => /^<(\?xml|[a-z]+[ >])/i.test(leadingText(sample)),
    advice: "check the address it was downloaded from",
  },
  { what: "a safetensors file", matches: isSafetensors, advice: "this version reads PyTorch's own formats" },
  {
    what: "a PyTorch archive of the preview releases of 2018 (PYTORCH1), which no release reads",
    matches: textAt(0, "PYTORCH1"),
  },
  { what: "a PyTorch mobile model (flatbuffer)", matches: textAt(4, "PTMF") },
  { what: "a GGUF file", matches: textAt(0, "GGUF"), advice: "llama.cpp and its tools read it" },
  {
    what: "a GGML file",
    matches: (sample) => ["lmgg", "fmgg", "tjgg", "algg"].some((magic) => textAt(0, magic)(sample)),
  },
  { what: "an HDF5 file, as Keras writes", matches: bytesAt(0, 0x89, 0x48, 0x44, 0x46) },
  { what: "a TensorFlow Lite model", matches: textAt(4, "TFL3") },
  { what: "a NumPy array (.npy)", matches: bytesAt(0, 0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59) },
  { what: "a gzip file", matches: bytesAt(0, 0x1f, 0x8b), advice: 'unpack it first, with "gunzip" or "tar xzf"' },
  { what: "a zstd file", matches: bytesAt(0, 0x28, 0xb5, 0x2f, 0xfd), advice: 'unpack it first, with "unzstd"' },
  { what: "an xz file", matches: bytesAt(0, 0xfd, 0x37, 0x7a, 0x58, 0x5a), advice: 'unpack it first, with "unxz"' },
  { what: "a bzip2 file", matches: textAt(0, "BZh"), advice: 'unpack it first, with "bunzip2"' },
  { what: "a 7z archive", matches: bytesAt(0, 0x37, 0x7a, 0xbc, 0xaf), advice: "unpack it first" },
  { what: "a RAR archive", matches: textAt(0, "Rar!"), advice: "unpack it first" },
  { what: "a PDF document", matches: textAt(0, "%PDF") },
  {
    what: "a picture",
    matches: (sample) =>
      [bytesAt(0, 0x89, 0x50, 0x4e, 0x47), bytesAt(0, 0xff, 0xd8, 0xff), textAt(0, "GIF8")].some((matches) =>
        matches(sample),
      ),
  },
  { what: "a program (ELF)", matches: bytesAt(0, 0x7f, 0x45, 0x4c, 0x46) },
  {
    what: "a tar archive; PyTorch wrote such before 0.1.10, and models are shipped in others",
    matches: isTar,
    advice: "unpack it first if a checkpoint is inside",
  },
  { what: "a pickle, but not one that torch.save wrote", matches: isPickle },
  { what: "an ONNX model", matches: isOnnx, advice: "ONNX Runtime reads it" },
  {
    what: "all zeros, as an interrupted download or a sparse copy leaves",
    matches: ({ head }) => head.length >= 16 && head.every((byte) => byte === 0),
  },
  { what: "a JSON document", matches: (sample) => looksLikeText(sample) && /^[{[]/.test(leadingText(sample)) },
  { what: "a text file", matches: looksLikeText },
];
