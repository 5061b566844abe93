/**
 * The numbers of a pickle: two's complement of any width, and Python's literals. An int is a `number` where that is exact,
 * else a `bigint`.
 *
 * @module
 */

/**
 * The widest integer that is read, in bytes. PyTorch's weights-only loading takes 255 (LONG1); this is far above what a
 * checkpoint holds and keeps whatever is later done with the number, such as showing it, quick.
 */
export const MAX_INTEGER_BYTES: number = 64 * 1024;

/** The most digits of a decimal integer: Python's own limit, as conversion takes quadratic time. */
export const MAX_DECIMAL_DIGITS = 4300;

/** A `number` for what is a safe integer, else the `bigint` itself. */
export function narrowInteger(value: bigint): number | bigint {
  return value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
}

/** The two's complement little-endian integer of the bytes `[start, start + count)`. */
export function integerOf(bytes: Uint8Array, start: number, count: number): number | bigint {
  if (count === 0) return 0;
  const negative = (bytes[start + count - 1] as number) >= 0x80;
  if (count <= 8) {
    // The sign fills what bytes are missing.
    let low = negative ? -1 : 0;
    let high = low;
    for (let k = count - 1; k >= 0; k--) {
      high = (high << 8) | (low >>> 24);
      low = (low << 8) | (bytes[start + k] as number);
    }
    const value = high * 2 ** 32 + (low >>> 0);
    return Number.isSafeInteger(value) ? value : (BigInt(high) << 32n) | BigInt(low >>> 0);
  }
  // Through hexadecimal, which the engine converts in linear time.
  const digits = new Array<string>(count);
  for (let k = 0; k < count; k++) {
    digits[count - 1 - k] = (bytes[start + k] as number).toString(16).padStart(2, "0");
  }
  const unsigned = BigInt(`0x${digits.join("")}`);
  return narrowInteger(negative ? BigInt.asIntN(8 * count, unsigned) : unsigned);
}

/** Python's `int(text, 0)`: decimal, or with the prefix `0x`, `0o` or `0b`. `undefined` when it is not an integer. */
export function parseInteger(text: string): number | bigint | undefined {
  const parts =
    /^([+-]?)((?:0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+)|0(?:_?0)*|[1-9](?:_?[0-9])*)$/.exec(
      text.trim(),
    );
  if (parts === null) return undefined;
  const magnitude = BigInt((parts[2] as string).replaceAll("_", ""));
  return narrowInteger(parts[1] === "-" ? -magnitude : magnitude);
}

/** Python's `float(text)`. `undefined` when it is not a number. */
export function parseFloating(text: string): number | undefined {
  const trimmed = text.trim();
  const special = /^([+-]?)(?:(inf|infinity)|nan)$/i.exec(trimmed);
  if (special !== null) {
    if (special[2] === undefined) return Number.NaN;
    return special[1] === "-" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  }
  // No two parts of the pattern can take the same digits: a long line that is no number is refused in linear time.
  return /^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$/.test(trimmed) ? Number(trimmed) : undefined;
}
