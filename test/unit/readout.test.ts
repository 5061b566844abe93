import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { HostMemory } from "../../src/device/cpu/host-memory.js";
import { dtypeOf, Storage, Tensor } from "../../src/index.js";
import { contiguousStrides, elementsNeeded, forEachRow, isContiguous, numelOf } from "../../src/tensor/shape.js";

/** A view: its definition in PyTorch is element [i, j, …] = storage[offset + i·stride₀ + j·stride₁ + …]. */
const view = fc
  .array(fc.tuple(fc.integer({ min: 0, max: 4 }), fc.integer({ min: 0, max: 7 })), { maxLength: 5 })
  .chain((dimensions) =>
    fc.record({
      shape: fc.constant(dimensions.map(([size]) => size)),
      strides: fc.constant(dimensions.map(([, stride]) => stride)),
      storageOffset: fc.integer({ min: 0, max: 9 }),
    }),
  );

function placesOf(shape: readonly number[], strides: readonly number[], offset: number): number[] {
  if (shape.length === 0) return [offset];
  const [size, ...sizes] = shape as [number, ...number[]];
  const [stride, ...rest] = strides as [number, ...number[]];
  return Array.from({ length: size }, (_, k) => placesOf(sizes, rest, offset + k * stride)).flat();
}

function tensorOf(shape: readonly number[], strides: readonly number[], storageOffset: number, name = "int32"): Tensor {
  const dtype = dtypeOf(name);
  const elements = Math.max(1, elementsNeeded(shape, strides, storageOffset));
  const bytes = new Uint8Array(elements * dtype.itemsize);
  new Int32Array(bytes.buffer).forEach((_, index, array) => {
    array[index] = index;
  });
  const storage = new Storage({ key: "0", dtype, nbytes: bytes.length, location: "cpu" });
  storage.memory = new HostMemory(bytes);
  return new Tensor({ storage, dtype, shape, strides, storageOffset });
}

describe("strides", () => {
  test("elements come out in row-major order of their definition", () => {
    fc.assert(
      fc.property(view, ({ shape, strides, storageOffset }) => {
        const places = placesOf(shape, strides, storageOffset);
        const tensor = tensorOf(shape, strides, storageOffset);
        expect([...tensor.toTypedArray()]).toEqual(places);
        expect(([tensor.toArray()] as unknown[]).flat(6)).toEqual(places);
        expect([...tensor.toFloat32Array()]).toEqual(places);
        expect([...tensor.contiguous().toTypedArray()]).toEqual(places);
        expect(tensor.contiguous().isContiguous).toBe(true);
        expect(numelOf(shape)).toBe(places.length);
        expect(elementsNeeded(shape, strides, storageOffset)).toBe(places.length === 0 ? 0 : Math.max(...places) + 1);
      }),
    );
  });

  test("views select, narrow and transpose as their definitions say", () => {
    fc.assert(
      fc.property(view, fc.nat(4), fc.nat(4), fc.nat(4), ({ shape, strides, storageOffset }, a, b, c) => {
        fc.pre(shape.length > 0);
        const tensor = tensorOf(shape, strides, storageOffset);
        const dimension = a % shape.length;
        const size = shape[dimension] as number;
        const start = size === 0 ? 0 : b % size;
        const length = Math.min(size - start, c);
        const narrowed = shape.with(dimension, length);
        const step = strides[dimension] as number;
        expect([...tensor.narrow(dimension, start, length).toTypedArray()]).toEqual(
          placesOf(narrowed, strides, storageOffset + start * step),
        );
        if (size > 0) {
          expect([...tensor.select(dimension, start).toTypedArray()]).toEqual(
            placesOf(shape.toSpliced(dimension, 1), strides.toSpliced(dimension, 1), storageOffset + start * step),
          );
        }
        const other = b % shape.length;
        const swap = (values: readonly number[]): number[] =>
          values.with(dimension, values[other] as number).with(other, values[dimension] as number);
        expect([...tensor.transpose(dimension, other).toTypedArray()]).toEqual(
          placesOf(swap(shape), swap(strides), storageOffset),
        );
      }),
    );
  });

  test("rows cover each element once, and contiguity is what the definition gives", () => {
    fc.assert(
      fc.property(view, ({ shape, strides, storageOffset }) => {
        const places: number[] = [];
        forEachRow(shape, strides, storageOffset, (start, length, stride) => {
          for (let k = 0; k < length; k++) places.push(start + k * stride);
        });
        expect(places).toEqual(placesOf(shape, strides, storageOffset));
        const dense = placesOf(shape, strides, storageOffset).every((place, index) => place === storageOffset + index);
        expect(isContiguous(shape, strides)).toBe(dense);
        expect(isContiguous(shape, contiguousStrides(shape))).toBe(true);
      }),
    );
  });

  test("a view without a copy writes to its storage", () => {
    const tensor = tensorOf([2, 3], [3, 1], 0);
    tensor.narrow(0, 1, 1).toTypedArray()[0] = 42;
    expect(tensor.toArray()).toEqual([
      [0, 1, 2],
      [42, 4, 5],
    ]);
    expect(tensor.view([3, 2]).toArray()).toEqual([
      [0, 1],
      [2, 42],
      [4, 5],
    ]);
  });

  test("arguments out of range are RangeErrors", () => {
    const tensor = tensorOf([2, 3], [3, 1], 0);
    expect(() => tensor.narrow(0, 1, 2)).toThrow(RangeError);
    expect(() => tensor.narrow(2, 0, 1)).toThrow(RangeError);
    expect(() => tensor.select(1, 3)).toThrow(RangeError);
    expect(() => tensor.select(1, -1)).toThrow(RangeError);
    expect(() => tensor.view([4, 2])).toThrow(RangeError);
    expect(() => tensor.transpose(0, 1).view([6])).toThrow(TypeError);
    expect(() => tensor.item()).toThrow(TypeError);
    expect(tensor.select(0, 1).select(0, 2).item()).toBe(5);
  });
});
