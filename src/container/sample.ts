/**
 * The first and last bytes of a source, and the tests on them from which the signatures are made.
 *
 * @module
 */
import { LEGACY_MAGIC } from "./legacy.js";

/** What is known of a source when it is to be recognised. */
export interface Sample {
  /** The first bytes, at most {@link SAMPLE_SIZE}. */
  readonly head: Uint8Array;
  /** The last bytes, at most {@link TAIL_SIZE}. Empty where only the head was looked at. */
  readonly tail: Uint8Array;
  /** Size of the whole source in bytes. */
  readonly size: number;
}

/** How many of the first bytes are looked at. */
export const SAMPLE_SIZE = 4096;
/** How many of the last bytes are looked at. */
export const TAIL_SIZE = 512;

/** A test on a sample. */
export type Matches = (sample: Sample) => boolean;

/** Whether these bytes stand at `offset`. */
export function bytesAt(offset: number, ...bytes: readonly number[]): Matches {
  return ({ head }) => bytes.every((byte, k) => head[offset + k] === byte);
}

/** Whether this text, of ASCII, stands at `offset`. */
export function textAt(offset: number, text: string): Matches {
  return bytesAt(offset, ...[...text].map((letter) => letter.charCodeAt(0)));
}

/** Whether any of the tests holds. */
export function anyOf(...tests: readonly Matches[]): Matches {
  return (sample) => tests.some((matches) => matches(sample));
}

const latin1 = new TextDecoder("latin1");

/** The head as text, each byte a character, without a byte order mark and leading white space. */
export function leadingText({ head }: Sample): string {
  return latin1.decode(head).replace(/^(?:\xef\xbb\xbf|ï»¿)?\s*/, "");
}

/** Whether the text of the head, less leading white space, begins so. */
export function textLike(pattern: RegExp): Matches {
  return (sample) => pattern.test(leadingText(sample));
}

/** Whether the head is UTF-8 without control characters that texts do not have. */
export function isText({ head }: Sample): boolean {
  if (!head.every((byte) => byte >= 0x20 || (byte >= 0x09 && byte <= 0x0d) || byte === 0x1b)) return false;
  try {
    // As a stream: the head may end within a character.
    new TextDecoder("utf-8", { fatal: true }).decode(head, { stream: true });
    return true;
  } catch {
    return false;
  }
}

/** safetensors: a length and a JSON object that long. White space in front of the object is not in its definition. */
export function isSafetensors({ head, size }: Sample): boolean {
  const length = headerLength(head);
  return length !== undefined && length + 8 <= size && head[8] === 0x7b;
}

/** The start of a safetensors file that ends within its header. */
export function isCutSafetensors({ head, size }: Sample): boolean {
  const length = headerLength(head);
  return (
    length !== undefined &&
    length + 8 > size &&
    length <= MAX_SAFETENSORS_HEADER &&
    head[8] === 0x7b &&
    head[9] === 0x22
  );
}

/** The most bytes of a safetensors header: the limit of the reference implementation. */
const MAX_SAFETENSORS_HEADER = 100_000_000;

function headerLength(head: Uint8Array): number | undefined {
  if (head.length < 9) return undefined;
  const view = new DataView(head.buffer, head.byteOffset, head.byteLength);
  return view.getUint32(4, true) === 0 ? view.getUint32(0, true) : undefined;
}

/** A POSIX or older tar header: the checksum in bytes 148 to 155 is the sum of the header with those bytes as spaces. */
export function isTar({ head }: { readonly head: Uint8Array }): boolean {
  if (head.length < 512 || head[0] === 0) return false;
  let sum = 0;
  for (let k = 0; k < 512; k++) sum += k >= 148 && k < 156 ? 0x20 : (head[k] as number);
  return Number.parseInt(latin1.decode(head.subarray(148, 156)).replace(/[\0 ]+$/, ""), 8) === sum;
}

/** FRAME and its length, which protocols 4 and 5 put in front of a pickle's content, in bytes. */
const FRAME_SIZE = 9;

/** Whether bytes are the start of a legacy checkpoint: the magic number as a pickle of any protocol. */
export function isLegacy({ head }: { readonly head: Uint8Array }): boolean {
  const text = "L119547037146038801333356L\n.";
  if ([...text].every((letter, k) => head[k] === letter.charCodeAt(0))) return true;
  const start = head[2] === 0x95 ? 2 + FRAME_SIZE : 2;
  return head[0] === 0x80 && LEGACY_MAGIC.every((byte, k) => head[start + k] === byte);
}

/** Whether bytes are the start of a zip archive. */
export function isZip({ head }: { readonly head: Uint8Array }): boolean {
  return head[0] === 0x50 && head[1] === 0x4b && head[2] === 0x03 && head[3] === 0x04;
}

/** What pickles of protocol 0 begin with: a global, a mark, or a text or number on a line. */
const GLOBAL = /^c[A-Za-z_][\w.]*\r?\n[A-Za-z_]\w*\r?\n/;
const MARK_OR_LINE = /^(?:\(|[SVILF][^\r\n]*\r?\n)/;
/** Such pickles put what they make into the memo, or begin with a call's arguments. */
const PUT_OR_CALL = /p\d+\r?\n|^\((?:S['"]|c[\w.]+\r?\n\w+\r?\n)/;

/** A pickle: of protocol 2 on by its header, before by what it begins and ends with. */
export function isPickle({ head, tail }: Sample): boolean {
  const [first, second, third] = head;
  if (first === 0x80) return second !== undefined && second >= 1 && second <= 5;
  // Protocol 1: an empty list or dict, put into the memo at 0.
  if ((first === 0x5d || first === 0x7d) && second === 0x71) return third === 0;
  const text = latin1.decode(head);
  // STOP ends it. One that begins with a global is told by that alone.
  return GLOBAL.test(text) || (tail.at(-1) === 0x2e && MARK_OR_LINE.test(text) && PUT_OR_CALL.test(text));
}

/**
 * What a protobuf message is that begins with a version number and a nested field, as the models of several frameworks do:
 * a text there is ONNX's producer, a message is TensorFlow's or Core ML's.
 */
export function protobufKind({ head }: Sample): "onnx" | "saved-model" | "core-ml" | undefined {
  if (head[0] !== 0x08 || (head[1] as number) === 0 || (head[1] as number) >= 0x20) return undefined;
  const tag = head[2];
  // Graph, domain, model version, operator sets: ONNX without a producer.
  if (tag === 0x1a || tag === 0x22 || tag === 0x28 || tag === 0x3a || tag === 0x42) return "onnx";
  if (tag !== 0x12) return undefined;
  const text = head.subarray(4, 4 + Math.min(head[3] as number, 0x7f));
  if (head[3] === 0 || ((head[3] as number) < 0x80 && text.every((byte) => byte >= 0x20 && byte < 0x7f))) return "onnx";
  return head[1] === 1 ? "saved-model" : "core-ml";
}
