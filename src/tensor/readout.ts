/**
 * Reading the elements of a view of bytes in main memory: as typed arrays, as numbers, as nested arrays.
 *
 * @module
 */
import type { DType, TypedArray } from "./dtype.js";
import { forEachRow, numelOf } from "./shape.js";

/** A complex number. */
export interface ComplexNumber {
  readonly re: number;
  readonly im: number;
}

/** One element, as JavaScript has it: `bigint` for 64-bit integers, `boolean` for bool. */
export type Element = number | bigint | boolean | ComplexNumber;

/** Elements nested as deep as the tensor has dimensions. */
export type NestedElements = Element | NestedElements[];

/** A view of bytes: everything that reading it needs. */
export interface View {
  readonly bytes: Uint8Array;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  readonly storageOffset: number;
  readonly contiguous: boolean;
  /** Whether the values are the complex conjugates of the stored ones. */
  readonly conj: boolean;
  /** Whether the values are the negatives of the stored ones. */
  readonly neg: boolean;
}

/** The largest array, in elements, that reading out makes: what a typed array of any engine can hold. */
const MAX_ELEMENTS = 2 ** 32 - 1;

/** The most elements, or empty arrays, of nested arrays: a few gigabytes of them. */
const MAX_NESTED = 2 ** 27;

function rawElements({ bytes, dtype }: View): TypedArray {
  const length = Math.floor(bytes.byteLength / dtype.array.BYTES_PER_ELEMENT);
  return new dtype.array(bytes.buffer, bytes.byteOffset, length);
}

/** The stored elements in row-major order: over the bytes themselves when the view is contiguous, else a copy. */
function storedElements(view: View): TypedArray {
  const { dtype, shape, strides, storageOffset, contiguous } = view;
  const { lanes } = dtype;
  const length = numelOf(shape) * lanes;
  if (dtype.packed > 1) return packedElements(view);
  const raw = rawElements(view);
  if (contiguous) return raw.subarray(storageOffset * lanes, storageOffset * lanes + length);
  if (length > MAX_ELEMENTS) throw new RangeError(`${length} elements are more than one array can hold`);
  const result = new dtype.array(length);
  let at = 0;
  forEachRow(shape, strides, storageOffset, (start, count, stride) => {
    if (stride === 1) {
      // The two are of one class, which the union of classes cannot say.
      result.set(raw.subarray(start * lanes, (start + count) * lanes) as never, at);
      at += count * lanes;
      return;
    }
    for (let k = 0; k < count; k++) {
      const from = (start + k * stride) * lanes;
      for (let lane = 0; lane < lanes; lane++) result[at++] = raw[from + lane] as never;
    }
  });
  return result;
}

/** `quint4x2` and `quint2x4`: elements of 4 or 2 bits, the first in the low bits of a byte. */
function packedElements({ bytes, dtype, shape, strides, storageOffset }: View): Uint8Array {
  const result = new Uint8Array(numelOf(shape));
  const bits = 8 / dtype.packed;
  const mask = (1 << bits) - 1;
  let at = 0;
  forEachRow(shape, strides, storageOffset, (start, count, stride) => {
    for (let k = 0; k < count; k++) {
      const index = start + k * stride;
      result[at++] = ((bytes[Math.floor(index / dtype.packed)] as number) >> ((index % dtype.packed) * bits)) & mask;
    }
  });
  return result;
}

/** The elements in row-major order with conjugation and negation carried out; a view of the bytes where possible. */
export function readTypedArray(view: View): TypedArray {
  const stored = storedElements(view);
  const { dtype, conj, neg } = view;
  if (!conj && !neg) return stored;
  const result = stored.slice();
  // Half-precision parts are negated in their sign bit: their array holds bits.
  const negate = (at: number): void => {
    const value = result[at] as number;
    result[at] = (dtype.decode === undefined ? -value : value ^ 0x8000) as never;
  };
  for (let k = 0; k < result.length; k++) {
    const imaginary = dtype.lanes === 2 && k % 2 === 1;
    if ((imaginary && conj) !== neg) negate(k);
  }
  return result;
}

/** The elements as float32, row-major, whatever the type; complex ones as pairs. 64-bit values are rounded. */
export function readFloat32(view: View): Float32Array {
  const elements = readTypedArray(view);
  if (elements instanceof Float32Array) return elements;
  const { decode } = view.dtype;
  const result = new Float32Array(elements.length);
  if (decode !== undefined) for (let k = 0; k < result.length; k++) result[k] = decode(elements[k] as number);
  else if (view.dtype.kind === "bool") for (let k = 0; k < result.length; k++) result[k] = elements[k] === 0 ? 0 : 1;
  else for (let k = 0; k < result.length; k++) result[k] = Number(elements[k]);
  return result;
}

/** One element of what {@link readTypedArray} gave. */
export function elementAt(elements: TypedArray, index: number, dtype: DType): Element {
  const decode = dtype.decode ?? ((value: number) => value);
  if (dtype.lanes === 2) {
    return { re: decode(elements[2 * index] as number), im: decode(elements[2 * index + 1] as number) };
  }
  const value = elements[index] as number | bigint;
  if (dtype.kind === "bool") return value !== 0;
  return typeof value === "bigint" ? value : decode(value);
}

/** The elements as arrays nested by dimension; the element itself for a scalar. */
export function readNested(view: View): NestedElements {
  let rows = 1;
  for (const size of view.shape) {
    if (size === 0) break;
    rows *= size;
  }
  if (rows > MAX_NESTED) throw new RangeError(`${rows} elements are more than nested arrays can hold`);
  const elements = readTypedArray(view);
  const { shape, dtype } = view;
  let at = 0;
  const nest = (dimension: number): NestedElements => {
    if (dimension === shape.length) return elementAt(elements, at++, dtype);
    return Array.from({ length: shape[dimension] as number }, () => nest(dimension + 1));
  };
  // Dimensions are bounded where tensors are made, so this recursion is as well.
  return nest(0);
}
