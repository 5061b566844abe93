/**
 * Reading the arguments of opcodes: every length is compared with what is left before it is used.
 *
 * @module
 */
import { integerOf, MAX_INTEGER_BYTES } from "./numbers.js";
import { AsciiText, decodeLatin1, decodeUtf8, isAscii } from "./text.js";
import { ByteArray } from "./values.js";

/** What `found` is in errors for a stream that is cut short, so that a caller with more bytes can go on. */
export const END_OF_STREAM = "end of stream";

/** A fault of the stream, before it is known where: the machine makes the error of it. */
export class PickleFault {
  readonly message: string;
  readonly expected: string | number | undefined;
  readonly found: string | number | undefined;
  /** What is missing here, for a stream that is valid all the same. */
  readonly feature: string | undefined;

  constructor(message: string, expected?: string | number, found?: string | number, feature?: string) {
    this.message = message;
    this.expected = expected;
    this.found = found;
    this.feature = feature;
  }
}

/** The fault of a stream that lacks bytes. */
export function cutShort(wanted: number, left: number): PickleFault {
  return new PickleFault(`the stream ends early: ${wanted} bytes wanted, ${left} are left`, wanted, END_OF_STREAM);
}

const scratch = new DataView(new ArrayBuffer(8));

/** The bytes of a pickle and a place in them. */
export class PickleReader {
  readonly bytes: Uint8Array;
  /** Place of the next byte. */
  position: number;
  readonly #ascii: AsciiText;

  constructor(bytes: Uint8Array, start: number) {
    this.bytes = bytes;
    this.position = start;
    this.#ascii = new AsciiText(bytes);
  }

  /** Makes sure that `count` bytes follow, and steps over them. Gives the place where they start. */
  take(count: number): number {
    const start = this.position;
    const left = this.bytes.length - start;
    if (count > left) throw cutShort(count, left);
    this.position = start + count;
    return start;
  }

  uint8(): number {
    return this.bytes[this.take(1)] as number;
  }

  uint32(): number {
    return int32At(this.bytes, this.take(4)) >>> 0;
  }

  /** A 32-bit length that Python writes with a sign. */
  length32(): number {
    const length = int32At(this.bytes, this.take(4));
    if (length < 0) throw new PickleFault(`a length of ${length} bytes`, "0 or more", length);
    return length;
  }

  /** A 64-bit length. It loses bits only where it is beyond every buffer. */
  length64(): number {
    const at = this.take(8);
    return (int32At(this.bytes, at) >>> 0) + (int32At(this.bytes, at + 4) >>> 0) * 2 ** 32;
  }

  /** A view of the next `count` bytes. */
  view(count: number): Uint8Array {
    const start = this.take(count);
    return this.bytes.subarray(start, start + count);
  }

  /** A copy of the next `count` bytes. */
  copy(count: number): Uint8Array {
    const start = this.take(count);
    return this.bytes.slice(start, start + count);
  }

  byteArray(count: number): ByteArray {
    const source = this.view(count);
    const copy = new ByteArray(count);
    copy.set(source);
    return copy;
  }

  /** The bytes up to a line feed, which is stepped over. */
  lineBytes(): Uint8Array {
    const end = this.bytes.indexOf(0x0a, this.position);
    if (end === -1) throw new PickleFault("the stream ends early: no end of line", "a line feed", END_OF_STREAM);
    const start = this.position;
    this.position = end + 1;
    return this.bytes.subarray(start, end);
  }

  /** The bytes up to a line feed as Latin-1 text. */
  line(): string {
    return decodeLatin1(this.lineBytes());
  }

  /** The bytes up to a line feed as a name, in UTF-8. Text mode on Windows left a carriage return in front of the feed. */
  name(): string {
    const line = this.lineBytes();
    const name = decodeUtf8(line[line.length - 1] === 0x0d ? line.subarray(0, -1) : line);
    if (name === undefined) throw new PickleFault("the name is not UTF-8");
    return name;
  }

  /** A UTF-8 string of `count` bytes. */
  text(count: number): string {
    const start = this.take(count);
    const end = start + count;
    return isAscii(this.bytes, start, end) ? this.#ascii.slice(start, end) : this.#utf8(start, end);
  }

  #utf8(start: number, end: number): string {
    const text = decodeUtf8(this.bytes.subarray(start, end));
    if (text === undefined) throw new PickleFault("the text is not UTF-8", "UTF-8", "other bytes");
    return text;
  }

  /** The bytes `[start, end)`, which are all ASCII and likely a number. */
  digits(start: number, end: number): string {
    return this.#ascii.digits(start, end);
  }

  /** A two's complement little-endian integer of `count` bytes. */
  integer(count: number): number | bigint {
    const start = this.take(count);
    if (count > MAX_INTEGER_BYTES) {
      throw new PickleFault(`an integer of ${count} bytes`, MAX_INTEGER_BYTES, count, "integers of more than 64 KiB");
    }
    return integerOf(this.bytes, start, count);
  }
}

/** The signed 32-bit integer at a place that has four bytes. */
export function int32At(bytes: Uint8Array, at: number): number {
  return (
    (bytes[at] as number) |
    ((bytes[at + 1] as number) << 8) |
    ((bytes[at + 2] as number) << 16) |
    ((bytes[at + 3] as number) << 24)
  );
}

/** The big-endian double at a place that has eight bytes. */
export function float64At(bytes: Uint8Array, at: number): number {
  for (let k = 0; k < 8; k++) scratch.setUint8(k, bytes[at + k] as number);
  return scratch.getFloat64(0, false);
}
