/**
 * The floating-point formats that JavaScript has no array type for, decoded to numbers. Each value is exact: every
 * format here is a subset of float32.
 *
 * Definitions: IEEE 754 binary16; bfloat16 as the upper half of float32; OCP 8-bit Floating Point Specification 1.0
 * (e5m2, e4m3fn); the `fnuz` variants of arXiv:2206.02915; OCP Microscaling Formats 1.0 (e8m0).
 *
 * @module
 */

/** Gives the number that raw bits stand for. */
export type NumberDecoder = (bits: number) => number;

/** Formats with a decoder. */
export type FloatFormat =
  | "float16"
  | "bfloat16"
  | "float8_e5m2"
  | "float8_e4m3fn"
  | "float8_e5m2fnuz"
  | "float8_e4m3fnuz"
  | "float8_e8m0fnu";

interface Layout {
  readonly exponentBits: number;
  readonly mantissaBits: number;
  readonly bias: number;
  /** `ieee`: infinities and NaNs in the top exponent. `fn`: one NaN a sign, all bits set. `fnuz`: one NaN, at minus zero. */
  readonly special: "ieee" | "fn" | "fnuz";
}

const LAYOUTS: Readonly<Record<Exclude<FloatFormat, "bfloat16" | "float8_e8m0fnu">, Layout>> = {
  float16: { exponentBits: 5, mantissaBits: 10, bias: 15, special: "ieee" },
  float8_e5m2: { exponentBits: 5, mantissaBits: 2, bias: 15, special: "ieee" },
  float8_e4m3fn: { exponentBits: 4, mantissaBits: 3, bias: 7, special: "fn" },
  float8_e5m2fnuz: { exponentBits: 5, mantissaBits: 2, bias: 16, special: "fnuz" },
  float8_e4m3fnuz: { exponentBits: 4, mantissaBits: 3, bias: 8, special: "fnuz" },
};

function decodeBits(bits: number, { exponentBits, mantissaBits, bias, special }: Layout): number {
  const topExponent = (1 << exponentBits) - 1;
  const negative = bits >> (exponentBits + mantissaBits) === 1;
  const exponent = (bits >> mantissaBits) & topExponent;
  const mantissa = bits & ((1 << mantissaBits) - 1);
  const sign = negative ? -1 : 1;
  if (special === "ieee" && exponent === topExponent)
    return mantissa === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  if (special === "fn" && exponent === topExponent && mantissa === (1 << mantissaBits) - 1) return Number.NaN;
  if (special === "fnuz" && negative && exponent === 0 && mantissa === 0) return Number.NaN;
  const scale = 2 ** -mantissaBits;
  return exponent === 0
    ? sign * mantissa * scale * 2 ** (1 - bias)
    : sign * (1 + mantissa * scale) * 2 ** (exponent - bias);
}

const floatBits = new Uint32Array(1);
const floatValue = new Float32Array(floatBits.buffer);

function decodeBfloat16(bits: number): number {
  floatBits[0] = bits << 16;
  return floatValue[0] as number;
}

function decodeE8m0(bits: number): number {
  return bits === 0xff ? Number.NaN : 2 ** (bits - 127);
}

/** The decoder of a format: by arithmetic for bfloat16, else by a table that is made on first use. */
export function floatDecoder(format: FloatFormat): NumberDecoder {
  if (format === "bfloat16") return decodeBfloat16;
  if (format === "float8_e8m0fnu") return decodeE8m0;
  const layout = LAYOUTS[format];
  let table: Float32Array | undefined;
  return (bits) => {
    if (table === undefined) {
      table = new Float32Array(1 << (1 + layout.exponentBits + layout.mantissaBits));
      for (let k = 0; k < table.length; k++) table[k] = decodeBits(k, layout);
    }
    return table[bits] as number;
  };
}
