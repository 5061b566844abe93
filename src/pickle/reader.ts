/**
 * Reading the arguments of opcodes: every length is compared with what is left before it is used.
 *
 * @module
 */
import { FormatError, type FormatErrorDetails, isTorchloadError } from "../errors.js";
import { opcodeName } from "./opcodes.js";
import { asciiImage, decodeUtf8, isAscii } from "./text.js";

/** Where a pickle comes from, for messages. */
export interface PickleOrigin {
  readonly file: string;
  /** The record of an archive, or the part of a file, that holds the pickle. */
  readonly record?: string | undefined;
}

/** What `found` is in errors for a stream that is cut short, so that a caller with more bytes can go on. */
export const END_OF_STREAM = "end of stream";

const scratch = new DataView(new ArrayBuffer(8));

/** The bytes of a pickle and a place in them. */
export class PickleReader {
  readonly bytes: Uint8Array;
  /** Place of the next byte. */
  position: number;
  /** Place and code of the opcode being carried out. */
  opcodeAt = 0;
  opcode = 0;
  readonly #origin: PickleOrigin;
  #ascii: string | undefined;

  constructor(bytes: Uint8Array, start: number, origin: PickleOrigin) {
    this.bytes = bytes;
    this.position = start;
    this.#origin = origin;
  }

  /** The error for a fault of the stream at the current opcode. */
  fault(message: string, details: FormatErrorDetails = {}): FormatError {
    const { file, record } = this.#origin;
    const where = record === undefined ? "pickle" : `pickle "${record}"`;
    return new FormatError(
      `Cannot load "${file}": ${where} at byte ${this.opcodeAt}, opcode ${opcodeName(this.opcode)}: ${message}`,
      { file, record, byteOffset: this.opcodeAt, ...details },
    );
  }

  /** The error to throw for whatever a handler threw: the library's own as they are, others as a fault of the stream. */
  wrap(error: unknown): unknown {
    if (isTorchloadError(error)) return error;
    if (error instanceof RangeError || error instanceof TypeError || error instanceof SyntaxError) {
      return this.fault(error.message, { cause: error });
    }
    return error;
  }

  /** Makes sure that `count` bytes follow, and steps over them. Gives the place where they start. */
  take(count: number): number {
    const start = this.position;
    const left = this.bytes.length - start;
    if (count > left) {
      throw this.fault(`the stream ends early: ${count} bytes wanted, ${left} are left`, { expected: count, found: END_OF_STREAM });
    }
    this.position = start + count;
    return start;
  }

  uint8(): number {
    return this.bytes[this.take(1)] as number;
  }

  uint16(): number {
    const at = this.take(2);
    return (this.bytes[at] as number) | ((this.bytes[at + 1] as number) << 8);
  }

  int32(): number {
    const at = this.take(4);
    const { bytes } = this;
    return (
      (bytes[at] as number) |
      ((bytes[at + 1] as number) << 8) |
      ((bytes[at + 2] as number) << 16) |
      ((bytes[at + 3] as number) << 24)
    );
  }

  uint32(): number {
    return this.int32() >>> 0;
  }

  /** A 64-bit length, which no stream that fits in memory exceeds. */
  length64(): number {
    const low = this.uint32();
    const high = this.uint32();
    return high * 2 ** 32 + low;
  }

  float64(): number {
    const at = this.take(8);
    for (let k = 0; k < 8; k++) scratch.setUint8(k, this.bytes[at + k] as number);
    return scratch.getFloat64(0, false);
  }

  /** A copy of the next `count` bytes. */
  slice(count: number): Uint8Array {
    const start = this.take(count);
    return this.bytes.slice(start, start + count);
  }

  /** The bytes up to a line feed, as text of one character a byte; the line feed is stepped over. */
  line(): string {
    const end = this.bytes.indexOf(0x0a, this.position);
    if (end === -1) throw this.fault("the stream ends early: no end of line", { found: END_OF_STREAM });
    const start = this.position;
    this.position = end + 1;
    return this.ascii(start, end);
  }

  /** The characters of `[start, end)`, one a byte. */
  ascii(start: number, end: number): string {
    this.#ascii ??= asciiImage(this.bytes);
    return this.#ascii.slice(start, end);
  }

  /** A UTF-8 string of `count` bytes. */
  text(count: number): string {
    const start = this.take(count);
    const end = start + count;
    if (isAscii(this.bytes, start, end)) return this.ascii(start, end);
    const text = decodeUtf8(this.bytes.subarray(start, end));
    if (text === undefined) throw this.fault("the text is not UTF-8");
    return text;
  }

  /** A two's complement little-endian integer of `count` bytes. */
  integer(count: number): number | bigint {
    const start = this.take(count);
    const { bytes } = this;
    if (count === 0) return 0;
    const negative = (bytes[start + count - 1] as number) >= 0x80;
    if (count <= 6) {
      let value = 0;
      for (let k = count - 1; k >= 0; k--) value = value * 256 + (bytes[start + k] as number);
      return negative ? value - 2 ** (8 * count) : value;
    }
    // Through hexadecimal, which the engine converts in linear time.
    let hex = "";
    for (let k = start + count - 1; k >= start; k--) hex += (bytes[k] as number).toString(16).padStart(2, "0");
    const unsigned = BigInt(`0x${hex}`);
    return narrowInteger(negative ? unsigned - (1n << BigInt(8 * count)) : unsigned);
  }
}

/** A `number` for what is a safe integer, else the `bigint` itself. */
export function narrowInteger(value: bigint): number | bigint {
  return value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
}
