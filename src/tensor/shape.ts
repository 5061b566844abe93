/**
 * Shapes and strides: how many elements, which bytes, and in which order. Pure arithmetic over plain arrays.
 *
 * Shapes and strides are in elements, outermost dimension first, as in PyTorch.
 *
 * @module
 */

/** The number of elements of a shape; 1 for a scalar's empty shape. May exceed the safe integers for hostile shapes. */
export function numelOf(shape: readonly number[]): number {
  let numel = 1;
  for (let k = 0; k < shape.length; k++) numel *= shape[k] as number;
  return numel;
}

/** The strides of a row-major layout without gaps. */
export function contiguousStrides(shape: readonly number[]): number[] {
  const strides = new Array<number>(shape.length);
  let step = 1;
  for (let k = shape.length - 1; k >= 0; k--) {
    strides[k] = step;
    step *= Math.max(shape[k] as number, 1);
  }
  return strides;
}

/** Whether elements lie in row-major order without gaps. Strides of dimensions of size 1 do not matter. */
export function isContiguous(shape: readonly number[], strides: readonly number[]): boolean {
  if (shape.includes(0)) return true;
  let step = 1;
  for (let k = shape.length - 1; k >= 0; k--) {
    const size = shape[k] as number;
    if (size !== 1) {
      if (strides[k] !== step) return false;
      step *= size;
    }
  }
  return true;
}

/**
 * How many elements a storage must have for a view of it: 0 for an empty view, else one more than the place of the last
 * element. Strides are not negative.
 */
export function elementsNeeded(shape: readonly number[], strides: readonly number[], storageOffset: number): number {
  let last = storageOffset;
  for (let k = 0; k < shape.length; k++) {
    const size = shape[k] as number;
    if (size === 0) return 0;
    last += (size - 1) * (strides[k] as number);
  }
  return last + 1;
}

/**
 * Calls `row` for each innermost row of a view, in row-major order, with the place of its first element in the storage.
 * The loop is an odometer over the outer dimensions, so that the number of dimensions does not matter.
 */
export function forEachRow(
  shape: readonly number[],
  strides: readonly number[],
  storageOffset: number,
  row: (start: number, length: number, stride: number) => void,
): void {
  if (numelOf(shape) === 0) return;
  const inner = shape.length - 1;
  if (inner < 0) {
    row(storageOffset, 1, 1);
    return;
  }
  const length = shape[inner] as number;
  const stride = strides[inner] as number;
  const index = new Array<number>(inner).fill(0);
  let start = storageOffset;
  for (;;) {
    row(start, length, stride);
    let k = inner - 1;
    for (; k >= 0; k--) {
      start += strides[k] as number;
      const next = (index[k] as number) + 1;
      if (next < (shape[k] as number)) {
        index[k] = next;
        break;
      }
      start -= next * (strides[k] as number);
      index[k] = 0;
    }
    if (k < 0) return;
  }
}
