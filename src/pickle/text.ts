/**
 * The strings of a pickle: UTF-8 with lone surrogates, Python's escapes, Python 2's byte strings.
 *
 * @module
 */

/**
 * How a Python 2 `str` is read. `undefined` stands for UTF-8, and Latin-1 for what is not UTF-8: nothing that `torch.load`
 * reads comes out differently, and binary data in old files survives where `torch.load` stops.
 */
export type Python2Encoding = "utf-8" | "latin1" | "ascii" | "bytes";

/** Bytes turned into text at a time where that is dear. Slices keep their piece alive. */
const PIECE_SIZE: number = 64 * 1024;

/** The longest run of digits that is a small integer in every engine. */
const MAX_SMALL_DIGITS = 9;

/** A `Buffer` with a method that Node documents nowhere and has always had. */
interface LatinBuffer extends Buffer {
  latin1Slice(start: number, end: number): string;
}

/** Reads text of one character a byte from a buffer, many short ones quickly. */
export class AsciiText {
  readonly #bytes: Uint8Array;
  /** The same bytes with Node's methods, which cost a fifth of what a decoder call does. */
  readonly #buffer: LatinBuffer | undefined;
  #piece = "";
  #start = 0;
  #end = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    if (typeof Buffer !== "undefined") {
      this.#buffer = Buffer.from(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength) as LatinBuffer;
    }
  }

  /** The bytes `[start, end)`, which are all ASCII. */
  slice(start: number, end: number): string {
    return this.#buffer === undefined ? this.#fromPiece(start, end) : this.#buffer.latin1Slice(start, end);
  }

  /** The same for bytes that are likely a small number in decimal, such as the key of a storage. */
  digits(start: number, end: number): string {
    const bytes = this.#bytes;
    if (end - start > MAX_SMALL_DIGITS || end === start) return this.slice(start, end);
    if (bytes[start] === 0x30) return end - start === 1 ? "0" : this.slice(start, end);
    let value = 0;
    for (let k = start; k < end; k++) {
      const digit = (bytes[k] as number) - 0x30;
      if (digit < 0 || digit > 9) return this.slice(start, end);
      value = value * 10 + digit;
    }
    return `${value}`;
  }

  /** In browsers a piece is turned into a string at once, and texts are slices of that. */
  #fromPiece(start: number, end: number): string {
    if (start < this.#start || end > this.#end) {
      // A long text is decoded by itself, or a piece for each of several such texts would be decoded mostly in vain.
      if (end - start > PIECE_SIZE >> 2) return decodeLatin1(this.#bytes.subarray(start, end));
      this.#start = start;
      this.#end = Math.min(start + PIECE_SIZE, this.#bytes.length);
      this.#piece = decodeLatin1(this.#bytes.subarray(start, this.#end));
    }
    return this.#piece.slice(start - this.#start, end - this.#start);
  }
}

/** Whether the bytes `[start, end)` are all ASCII. */
export function isAscii(bytes: Uint8Array, start: number, end: number): boolean {
  for (let k = start; k < end; k++) if ((bytes[k] as number) > 0x7f) return false;
  return true;
}

/** One character a byte. The decoder of that name will not do: browsers take `latin1` for windows-1252. */
export function decodeLatin1(bytes: Uint8Array): string {
  if (typeof Buffer !== "undefined") {
    return Buffer.from(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
  }
  const pieces: string[] = [];
  // As many as every engine takes as arguments of one call.
  for (let k = 0; k < bytes.length; k += 4096) {
    pieces.push(String.fromCharCode.apply(null, bytes.subarray(k, k + 4096) as unknown as number[]));
  }
  return pieces.join("");
}

const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Decodes UTF-8 as Python's `surrogatepass` does: a lone surrogate may stand in its three-byte form.
 * `undefined` when the bytes are not even that.
 *
 * Two surrogates in that form that make a pair are two characters in Python and become one here.
 */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  // A copy, as decoders refuse shared memory.
  const own = bytes.slice();
  try {
    return strictUtf8.decode(own);
  } catch {
    return decodeWithSurrogates(own);
  }
}

function decodeWithSurrogates(bytes: Uint8Array): string | undefined {
  const pieces: string[] = [];
  let start = 0;
  const flush = (end: number): boolean => {
    if (start === end) return true;
    try {
      pieces.push(strictUtf8.decode(bytes.subarray(start, end)));
      return true;
    } catch {
      return false;
    }
  };
  for (let k = 0; k + 2 < bytes.length; k++) {
    // U+D800 to U+DFFF: ED A0..BF 80..BF. ED never stands inside the form of another character.
    if (bytes[k] !== 0xed) continue;
    const second = bytes[k + 1] as number;
    const third = bytes[k + 2] as number;
    if (second < 0xa0 || second > 0xbf || third < 0x80 || third > 0xbf) continue;
    if (!flush(k)) return undefined;
    pieces.push(String.fromCharCode(0xd000 | ((second & 0x3f) << 6) | (third & 0x3f)));
    start = k + 3;
    k += 2;
  }
  return flush(bytes.length) ? pieces.join("") : undefined;
}

/** A Python 2 `str` in an encoding; `undefined` when its bytes are not of that encoding. */
export function decodePython2(
  bytes: Uint8Array,
  encoding: Python2Encoding | undefined,
): string | Uint8Array | undefined {
  if (encoding === "bytes") return bytes.slice();
  if (encoding === "latin1" || isAscii(bytes, 0, bytes.length)) return decodeLatin1(bytes);
  if (encoding === "ascii") return undefined;
  // Python's decoder of Python 2 text lets no surrogates pass.
  try {
    return strictUtf8.decode(bytes.slice());
  } catch {
    return encoding === undefined ? decodeLatin1(bytes) : undefined;
  }
}

const ESCAPES: ReadonlyMap<number, number> = new Map(
  Object.entries({ "\\": 0x5c, "'": 0x27, '"': 0x22, a: 7, b: 8, f: 12, n: 10, r: 13, t: 9, v: 11 }).map(
    ([letter, code]) => [letter.charCodeAt(0), code],
  ),
);

/** The bytes of a Python string literal without its quotes, as `codecs.escape_decode`; `undefined` for a broken escape. */
export function unescapeBytes(literal: Uint8Array): Uint8Array | undefined {
  const bytes = new Uint8Array(literal.length);
  let length = 0;
  for (let k = 0; k < literal.length; k++) {
    const code = literal[k] as number;
    if (code !== 0x5c) {
      bytes[length++] = code;
      continue;
    }
    const next = literal[++k];
    if (next === undefined) return undefined;
    const simple = ESCAPES.get(next);
    if (simple !== undefined) bytes[length++] = simple;
    else if (next >= 0x30 && next <= 0x37) {
      let octal = next & 7;
      for (let digits = 1; digits < 3; digits++) {
        const digit = literal[k + 1];
        if (digit === undefined || digit < 0x30 || digit > 0x37) break;
        octal = octal * 8 + (digit & 7);
        k++;
      }
      // \400 and up: Python, too, keeps the low eight bits.
      bytes[length++] = octal;
    } else if (next === 0x78) {
      const high = hexDigit(literal[k + 1]);
      const low = hexDigit(literal[k + 2]);
      if (high === -1 || low === -1) return undefined;
      bytes[length++] = high * 16 + low;
      k += 2;
    } else if (next !== 0x0a) {
      // Not an escape: both characters stand.
      bytes[length++] = 0x5c;
      bytes[length++] = next;
    }
  }
  return bytes.slice(0, length);
}

function hexDigit(code: number | undefined): number {
  if (code === undefined) return -1;
  if (code >= 0x30 && code <= 0x39) return code - 0x30;
  const lower = code | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

/**
 * Python's `raw-unicode-escape`: Latin-1 text with `\uXXXX` and `\UXXXXXXXX`. `undefined` for a broken escape or one
 * beyond Unicode.
 */
export function decodeRawUnicodeEscape(text: string): string | undefined {
  if (!text.includes("\\")) return text;
  let valid = true;
  // A backslash takes the character behind it with it, so that of two the second starts no escape.
  const decoded = text.replace(/\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\s\S]))/g, (both, short, long, other) => {
    if (other === "u" || other === "U") valid = false;
    if (other !== undefined) return both;
    const code = Number.parseInt(short ?? long, 16);
    if (code <= 0x10ffff) return String.fromCodePoint(code);
    valid = false;
    return "";
  });
  return valid ? decoded : undefined;
}
