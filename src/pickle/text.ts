/**
 * The strings of a pickle: UTF-8 with lone surrogates, Python's escapes, Python 2's byte strings.
 *
 * @module
 */

/**
 * One character a byte, at the same places, so that an ASCII string is a slice: a hundred times cheaper than a decoder
 * call a string.
 */
export function asciiImage(bytes: Uint8Array): string {
  return typeof Buffer === "undefined"
    ? new TextDecoder("latin1").decode(bytes)
    : Buffer.from(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}

/** Whether the bytes `[start, end)` are all ASCII. */
export function isAscii(bytes: Uint8Array, start: number, end: number): boolean {
  for (let k = start; k < end; k++) if ((bytes[k] as number) > 0x7f) return false;
  return true;
}

const strictUtf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Decodes UTF-8 as Python's `surrogatepass` does: a lone surrogate may stand in its three-byte form.
 * `undefined` when the bytes are not even that.
 */
export function decodeUtf8(bytes: Uint8Array): string | undefined {
  try {
    return strictUtf8.decode(bytes);
  } catch {
    return decodeWithSurrogates(bytes);
  }
}

function decodeWithSurrogates(bytes: Uint8Array): string | undefined {
  const pieces: string[] = [];
  let start = 0;
  const flush = (end: number): boolean => {
    try {
      pieces.push(strictUtf8.decode(bytes.subarray(start, end)));
      return true;
    } catch {
      return false;
    }
  };
  for (let k = 0; k + 2 < bytes.length; k++) {
    const second = bytes[k + 1] as number;
    const third = bytes[k + 2] as number;
    // U+D800 to U+DFFF: ED A0..BF 80..BF.
    if (bytes[k] !== 0xed || second < 0xa0 || second > 0xbf || third < 0x80 || third > 0xbf) continue;
    if (!flush(k)) return undefined;
    pieces.push(String.fromCharCode(0xd000 | ((second & 0x3f) << 6) | (third & 0x3f)));
    start = k + 3;
    k += 2;
  }
  return flush(bytes.length) ? pieces.join("") : undefined;
}

/** One character a byte. */
export function decodeLatin1(bytes: Uint8Array): string {
  let text = "";
  // Pieces that the engine takes as arguments of one call.
  for (let k = 0; k < bytes.length; k += 4096) text += String.fromCharCode(...bytes.subarray(k, k + 4096));
  return text;
}

/**
 * A Python 2 `str`: UTF-8 as `torch.load` has it by default, and one character a byte where it is not UTF-8, so that
 * binary data in old files survives.
 */
export function decodePython2(bytes: Uint8Array): string {
  return decodeUtf8(bytes) ?? decodeLatin1(bytes);
}

const ESCAPES: Readonly<Record<string, number>> = {
  "\\": 0x5c,
  "'": 0x27,
  '"': 0x22,
  a: 0x07,
  b: 0x08,
  f: 0x0c,
  n: 0x0a,
  r: 0x0d,
  t: 0x09,
  v: 0x0b,
};

/** The bytes of a quoted Python string literal without its quotes; `undefined` for a broken escape. */
export function unescapeBytes(literal: string): Uint8Array | undefined {
  const bytes: number[] = [];
  for (let k = 0; k < literal.length; k++) {
    const char = literal[k] as string;
    if (char !== "\\") {
      bytes.push(char.charCodeAt(0));
      continue;
    }
    const next = literal[++k];
    if (next === undefined) return undefined;
    const simple = ESCAPES[next];
    const octal = /^[0-7]{1,3}/.exec(literal.slice(k, k + 3));
    if (simple !== undefined) bytes.push(simple);
    else if (octal !== null) {
      bytes.push(Number.parseInt(octal[0], 8) & 0xff);
      k += octal[0].length - 1;
    } else if (next === "x") {
      const hex = /^[0-9a-fA-F]{2}/.exec(literal.slice(k + 1, k + 3));
      if (hex === null) return undefined;
      bytes.push(Number.parseInt(hex[0], 16));
      k += 2;
    } else if (next !== "\n") bytes.push(0x5c, next.charCodeAt(0));
  }
  return Uint8Array.from(bytes);
}

/** Python's `raw-unicode-escape`: `\uXXXX` and `\UXXXXXXXX` in Latin-1 text. `undefined` beyond Unicode. */
export function decodeRawUnicodeEscape(text: string): string | undefined {
  let valid = true;
  const decoded = text.replace(/\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))/g, (_, short?: string, long?: string) => {
    const code = Number.parseInt(short ?? (long as string), 16);
    if (code > 0x10ffff) {
      valid = false;
      return "";
    }
    return short === undefined ? String.fromCodePoint(code) : String.fromCharCode(code);
  });
  return valid ? decoded : undefined;
}
