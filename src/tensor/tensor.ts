/**
 * Tensors: a shape and strides over a storage.
 *
 * @module
 */

import { backendOf } from "../device/backends.js";
import { HostMemory } from "../device/cpu/host-memory.js";
import { type Device, type DeviceMemory, parseDevice } from "../device/device.js";
import type { DType, TypedArray } from "./dtype.js";
import {
  type Element,
  elementAt,
  type NestedElements,
  readFloat32,
  readNested,
  readTypedArray,
  type View,
} from "./readout.js";
import { contiguousStrides, elementsNeeded, isContiguous, numelOf } from "./shape.js";
import { Storage } from "./storage.js";

/** What a tensor is made of. */
export interface TensorInit {
  readonly storage: Storage;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  readonly storageOffset?: number;
  readonly requiresGrad?: boolean;
}

/** What only some tensors have. */
export interface TensorExtras {
  /** Whether it was an `nn.Parameter`. */
  readonly isParameter?: boolean;
  /** The values are the complex conjugates of the stored ones. */
  readonly conj?: boolean;
  /** The values are the negatives of the stored ones. */
  readonly neg?: boolean;
  /** The Python subclass it was saved as, `module.name`. */
  readonly subclass?: string;
  /** Python attributes that were saved with it. */
  readonly attributes?: unknown;
}

const NO_EXTRAS: TensorExtras = Object.freeze({});

/**
 * A tensor: typed elements of a {@link Storage}, seen through a shape and strides. Several tensors may share a storage;
 * views made by {@link narrow}, {@link select}, {@link view} and {@link transpose} do.
 *
 * A tensor on the CPU reads out at once. One on another device is brought over first: `await tensor.to("cpu")`.
 */
export class Tensor {
  readonly storage: Storage;
  readonly dtype: DType;
  /** Size of each dimension, in elements. Empty for a scalar. */
  readonly shape: readonly number[];
  /** Distance between neighbours in each dimension, in elements. */
  readonly strides: readonly number[];
  /** Place of the first element in the storage, in elements. */
  readonly storageOffset: number;
  readonly requiresGrad: boolean;
  #extras: TensorExtras;

  constructor(init: TensorInit, extras: TensorExtras = NO_EXTRAS) {
    this.storage = init.storage;
    this.dtype = init.dtype;
    this.shape = init.shape;
    this.strides = init.strides;
    this.storageOffset = init.storageOffset ?? 0;
    this.requiresGrad = init.requiresGrad ?? false;
    this.#extras = extras;
  }

  /** Where the elements are. `meta` for a tensor that only describes what a file holds. */
  get device(): Device {
    return this.storage.device;
  }

  get isParameter(): boolean {
    return this.#extras.isParameter ?? false;
  }

  get conj(): boolean {
    return this.#extras.conj ?? false;
  }

  get neg(): boolean {
    return this.#extras.neg ?? false;
  }

  get subclass(): string | undefined {
    return this.#extras.subclass;
  }

  get attributes(): unknown {
    return this.#extras.attributes;
  }

  /** Number of dimensions. */
  get ndim(): number {
    return this.shape.length;
  }

  /** Number of elements. */
  get numel(): number {
    return numelOf(this.shape);
  }

  /** Size of the elements in bytes, each counted once however the strides repeat them. */
  get nbytes(): number {
    return (this.numel * this.dtype.itemsize) / this.dtype.packed;
  }

  /** Whether the elements lie in row-major order without gaps. */
  get isContiguous(): boolean {
    return isContiguous(this.shape, this.strides);
  }

  /**
   * The address of the first element in the device's memory, for code that runs there: a `CUdeviceptr` on CUDA.
   *
   * @throws TypeError on devices without addresses.
   */
  get devicePointer(): bigint {
    const pointer = (this.storage.memory as { pointer?: bigint } | undefined)?.pointer;
    if (pointer === undefined) throw new TypeError(`A tensor on ${this.device} has no device pointer`);
    return pointer + BigInt(this.storageOffset * this.dtype.itemsize);
  }

  /**
   * The elements in row-major order. For a contiguous tensor this is a view of the storage, so that writing to it changes
   * the tensor; for others a copy. float16, bfloat16 and 8-bit floats come as their bits, complex numbers as pairs.
   *
   * @throws TypeError when the tensor is not on the CPU.
   */
  toTypedArray(): TypedArray {
    return readTypedArray(this.#view());
  }

  /**
   * The elements as float32, in row-major order, whatever the dtype: floats widened exactly (float64 and 64-bit integers
   * rounded), booleans as 0 and 1, complex numbers as pairs. A view for a contiguous float32 tensor.
   *
   * @throws TypeError when the tensor is not on the CPU.
   */
  toFloat32Array(): Float32Array {
    return readFloat32(this.#view());
  }

  /**
   * The elements as nested arrays: numbers, `bigint` for 64-bit integers, booleans, `{ re, im }` for complex ones.
   *
   * @throws TypeError when the tensor is not on the CPU.
   */
  toArray(): NestedElements {
    return readNested(this.#view());
  }

  /**
   * The element of a tensor that has just one.
   *
   * @throws TypeError when it has more or none, or is not on the CPU.
   */
  item(): Element {
    if (this.numel !== 1) throw new TypeError(`item() takes a tensor of one element; this one has ${this.numel}`);
    return elementAt(readTypedArray(this.#view()), 0, this.dtype);
  }

  /** The tensor itself when it is contiguous, else a copy that is, on the CPU. */
  contiguous(): Tensor {
    if (this.isContiguous) return this;
    const array = readTypedArray({ ...this.#view(), conj: false, neg: false });
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    return this.#on(hostStorage(this, bytes), contiguousStrides(this.shape), 0);
  }

  /**
   * The part `[start, start + length)` of one dimension, sharing the storage.
   *
   * @throws RangeError when it does not lie within the dimension.
   */
  narrow(dimension: number, start: number, length: number): Tensor {
    const size = this.#sizeOf(dimension);
    if (!Number.isInteger(start) || !Number.isInteger(length) || start < 0 || length < 0 || start + length > size) {
      throw new RangeError(`[${start}, ${start + length}) is not within dimension ${dimension} of size ${size}`);
    }
    const shape = this.shape.with(dimension, length);
    return this.#viewAs(shape, this.strides, this.storageOffset + start * (this.strides[dimension] as number));
  }

  /** The part at one index of a dimension, without that dimension, sharing the storage. @throws RangeError */
  select(dimension: number, index: number): Tensor {
    const size = this.#sizeOf(dimension);
    if (!Number.isInteger(index) || index < 0 || index >= size) {
      throw new RangeError(`Index ${index} is not within dimension ${dimension} of size ${size}`);
    }
    const offset = this.storageOffset + index * (this.strides[dimension] as number);
    return this.#viewAs(this.shape.toSpliced(dimension, 1), this.strides.toSpliced(dimension, 1), offset);
  }

  /** Two dimensions exchanged, sharing the storage. @throws RangeError */
  transpose(first: number, second: number): Tensor {
    this.#sizeOf(first);
    this.#sizeOf(second);
    const swap = (values: readonly number[]): number[] =>
      values.with(first, values[second] as number).with(second, values[first] as number);
    return this.#viewAs(swap(this.shape), swap(this.strides), this.storageOffset);
  }

  /**
   * The same elements in another shape, sharing the storage.
   *
   * @throws TypeError when the tensor is not contiguous.
   * @throws RangeError when the shape has another number of elements.
   */
  view(shape: readonly number[]): Tensor {
    if (!this.isContiguous) throw new TypeError("view() takes a contiguous tensor; call contiguous() first");
    if (numelOf(shape) !== this.numel || shape.some((size) => !Number.isInteger(size) || size < 0)) {
      throw new RangeError(`A tensor of ${this.numel} elements has no view of shape [${shape}]`);
    }
    return this.#viewAs([...shape], contiguousStrides(shape), this.storageOffset);
  }

  /**
   * The tensor on another device: itself when it is there, else a copy of the bytes that its elements span, with strides
   * kept. Between a CUDA device and main memory the copy goes through pinned memory.
   *
   * @throws DeviceError when the device is not there or has not the memory.
   */
  async to(device: Device | string): Promise<Tensor> {
    const wanted = typeof device === "string" ? parseDevice(device) : device;
    if (wanted.type === "meta") return this.#on(describeAs(this), this.strides, this.storageOffset);
    const backend = await backendOf(wanted);
    const target = backend.resolve(wanted);
    const origin = this.storage.memory;
    if (origin === undefined && this.storage.nbytes > 0) {
      throw new TypeError("The tensor is on the meta device: it describes data that is not loaded");
    }
    if (origin === undefined || origin.device.toString() === target.toString()) return this;
    const { itemsize, packed } = this.dtype;
    const start = Math.floor((this.storageOffset * itemsize) / packed);
    const needed = elementsNeeded(this.shape, this.strides, this.storageOffset);
    const end = needed === 0 ? start : Math.ceil((needed * itemsize) / packed);
    const memory = await backend.copyFrom(origin, start, end, target);
    // A packed type that starts within a byte keeps the offset in that byte.
    const offset = this.storageOffset - (start * packed) / itemsize;
    return this.#on(storageOver(this, memory), this.strides, offset);
  }

  /** Frees the memory of the storage, for every tensor that shares it. */
  dispose(): void {
    this.storage.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** `Tensor(bfloat16 [4096, 4096] on cuda:0)` */
  toString(): string {
    return `Tensor(${this.dtype.name} [${this.shape.join(", ")}] on ${this.device})`;
  }

  /**
   * Makes a tensor that exists into another, for pickles that create tensors empty and fill them later.
   *
   * @internal
   */
  static become(tensor: Tensor, init: TensorInit, extras: TensorExtras): void {
    const { storage, dtype, shape, strides, storageOffset = 0, requiresGrad = false } = init;
    Object.assign(tensor, { storage, dtype, shape, strides, storageOffset, requiresGrad });
    tensor.#extras = extras;
  }

  /** What distinguishes this tensor from a plain one. @internal */
  static extrasOf(tensor: Tensor): TensorExtras {
    return tensor.#extras;
  }

  #view(): View {
    return {
      bytes: this.storage.bytes,
      dtype: this.dtype,
      shape: this.shape,
      strides: this.strides,
      storageOffset: this.storageOffset,
      contiguous: this.isContiguous,
      conj: this.conj,
      neg: this.neg,
    };
  }

  #sizeOf(dimension: number): number {
    const size = this.shape[dimension];
    if (size === undefined) throw new RangeError(`Dimension ${dimension} is not among the ${this.ndim} of the tensor`);
    return size;
  }

  #viewAs(shape: readonly number[], strides: readonly number[], storageOffset: number): Tensor {
    const { storage, dtype, requiresGrad } = this;
    return new Tensor(
      { storage, dtype, shape, strides, storageOffset, requiresGrad },
      { conj: this.conj, neg: this.neg },
    );
  }

  #on(storage: Storage, strides: readonly number[], storageOffset: number): Tensor {
    const { dtype, shape, requiresGrad } = this;
    return new Tensor({ storage, dtype, shape, strides, storageOffset, requiresGrad }, this.#extras);
  }
}

// Node prints a tensor as one line and not as the fields it is made of.
Object.defineProperty(Tensor.prototype, Symbol.for("nodejs.util.inspect.custom"), {
  value(this: Tensor): string {
    return this.toString();
  },
});

function storageOver(tensor: Tensor, memory: DeviceMemory): Storage {
  const { key, location, dtype } = tensor.storage;
  const storage = new Storage({ key, dtype, nbytes: memory.nbytes, location });
  storage.memory = memory;
  return storage;
}

function hostStorage(tensor: Tensor, bytes: Uint8Array): Storage {
  return storageOver(tensor, new HostMemory(bytes));
}

function describeAs(tensor: Tensor): Storage {
  const { key, location, dtype, nbytes } = tensor.storage;
  return new Storage({ key, dtype, nbytes, location });
}
