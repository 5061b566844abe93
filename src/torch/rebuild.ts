/**
 * The functions that PyTorch names in a pickle to make tensors.
 *
 * Source: torch/_utils.py and torch/_tensor.py of PyTorch 2.11. Offsets, sizes and strides are in elements.
 *
 * @module
 */
import { shown } from "../container/shown.js";
import { Tuple } from "../pickle/values.js";
import type { DType } from "../tensor/dtype.js";
import { elementsNeeded, numelOf } from "../tensor/shape.js";
import { Storage } from "../tensor/storage.js";
import { Tensor, type TensorExtras } from "../tensor/tensor.js";
import { StorageView, UNTYPED_DTYPE } from "./storage-table.js";

/** What is wrong with a call in the pickle. The pickle machine adds file and place. */
export class RebuildError extends TypeError {}

/** Far beyond what PyTorch computes with (64), and low enough for code that recurses over dimensions. */
const MAX_DIMENSIONS = 1000;

/** Called with each tensor and its storage; lets the decoder note which element sizes a storage is read with. */
export type TensorHook = (storage: Storage, dtype: DType) => void;

/** Checks a view against its storage and makes the tensor. @throws RebuildError */
export function makeTensor(
  storage: Storage,
  dtype: DType,
  storageOffset: number,
  size: readonly number[],
  stride: readonly number[],
  requiresGrad: boolean,
  extras?: TensorExtras,
): Tensor {
  checkView(storage, dtype, storageOffset, size, stride);
  return new Tensor({ storage, dtype, shape: size, strides: stride, storageOffset, requiresGrad }, extras);
}

function checkView(
  storage: Storage,
  dtype: DType,
  storageOffset: number,
  size: readonly number[],
  stride: readonly number[],
): void {
  if (size.length !== stride.length) {
    throw new RebuildError(`a tensor has ${size.length} sizes and ${stride.length} strides`);
  }
  if (!isCount(storageOffset)) throw new RebuildError(`a tensor has the storage offset ${shown(storageOffset)}`);
  for (let k = 0; k < size.length; k++) {
    if (!isCount(size[k])) throw new RebuildError(`a tensor has the size ${shown(size[k])}`);
    if (!isCount(stride[k])) throw new RebuildError(`a tensor has the stride ${shown(stride[k])}`);
  }
  if (!Number.isSafeInteger(numelOf(size))) throw new RebuildError(`a tensor of shape [${size}] has too many elements`);
  const needed = elementsNeeded(size, stride, storageOffset);
  const there = Math.floor(storage.nbytes / dtype.itemsize) * dtype.packed;
  if (needed > there) {
    throw new RebuildError(
      `a ${dtype.name} tensor of shape [${size}], strides [${stride}] and offset ${storageOffset} needs ${needed} elements; storage "${storage.key}" has ${there}`,
    );
  }
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

/** A tuple of integers as a pickle has it. */
function ints(value: unknown, what: string): readonly number[] {
  // A size may be a list in files that other programs wrote.
  if (!Array.isArray(value)) throw new RebuildError(`${what} is not a tuple of integers`);
  if (value.length > MAX_DIMENSIONS) throw new RebuildError(`a tensor has ${value.length} dimensions`);
  return value.map((item) => {
    if (typeof item !== "number") throw new RebuildError(`${what} holds ${shown(item)}; expected safe integers`);
    return item;
  });
}

function storageOf(value: unknown): { storage: Storage; viewOffset: number } {
  if (value instanceof Storage) return { storage: value, viewOffset: 0 };
  if (value instanceof StorageView) return { storage: value.storage, viewOffset: value.storageOffset };
  throw new RebuildError("a tensor is rebuilt from something that is not a storage");
}

/** `_rebuild_tensor`, `_rebuild_tensor_v2` and `_rebuild_tensor_v3`. */
export function rebuildTensor(args: readonly unknown[], version: 1 | 2 | 3, hook: TensorHook): Tensor {
  const [value, offset, size, stride, requiresGrad] = args;
  const { storage, viewOffset } = storageOf(value);
  const dtype = version === 3 ? (args[6] as DType | undefined) : (storage.dtype ?? UNTYPED_DTYPE);
  if (dtype === undefined || typeof dtype !== "object" || !("itemsize" in dtype)) {
    throw new RebuildError("a tensor is rebuilt without a dtype");
  }
  if (!isCount(offset)) throw new RebuildError(`a tensor has the storage offset ${shown(offset)}`);
  hook(storage, dtype);
  const metadata = version === 1 ? undefined : args[version === 3 ? 7 : 6];
  return makeTensor(
    storage,
    dtype,
    offset + viewOffset,
    ints(size, "the size of a tensor"),
    ints(stride, "the stride of a tensor"),
    version !== 1 && requiresGrad === true,
    metadataOf(metadata),
  );
}

function metadataOf(metadata: unknown): TensorExtras | undefined {
  if (!(metadata instanceof Map)) return undefined;
  return { conj: metadata.get("conj") === true, neg: metadata.get("neg") === true };
}

/** A copy of a tensor with something added to what it already is. */
function withExtras(tensor: Tensor, requiresGrad: boolean, extras: TensorExtras): Tensor {
  const { storage, dtype, shape, strides, storageOffset } = tensor;
  return new Tensor(
    { storage, dtype, shape, strides, storageOffset, requiresGrad },
    { ...Tensor.extrasOf(tensor), ...extras },
  );
}

/** `_rebuild_parameter` and `_rebuild_parameter_with_state`: (tensor, requires_grad, hooks [, state]). */
export function rebuildParameter(args: readonly unknown[]): unknown {
  const [tensor, requiresGrad, , state] = args;
  // A parameter over a quantised or sparse tensor stays what that is.
  if (!(tensor instanceof Tensor)) return tensor;
  return withExtras(tensor, requiresGrad === true, {
    isParameter: true,
    ...(state === undefined || state === null ? {} : { attributes: state }),
  });
}

/** `_rebuild_from_type_v2`, once `func(*args)` has been made: the tensor as a subclass, with attributes. */
export function rebuildFromType(made: unknown, typeName: string, state: unknown): unknown {
  if (!(made instanceof Tensor)) return made;
  const plain = typeName === "torch.Tensor";
  const parameter = typeName === "torch.nn.parameter.Parameter";
  return withExtras(made, made.requiresGrad, {
    ...(plain || parameter ? {} : { subclass: typeName }),
    ...(parameter ? { isParameter: true } : {}),
    ...(state === undefined || state === null ? {} : { attributes: state }),
  });
}

/** `_rebuild_meta_tensor_no_storage`: (dtype, size, stride, requires_grad). */
export function rebuildMeta(args: readonly unknown[]): Tensor {
  const [dtype, size, stride, requiresGrad] = args as [DType, unknown, unknown, unknown];
  if (typeof dtype !== "object" || dtype === null || !("itemsize" in dtype)) {
    throw new RebuildError("a meta tensor is rebuilt without a dtype");
  }
  const shape = ints(size, "the size of a tensor");
  const strides = ints(stride, "the stride of a tensor");
  const nbytes = elementsNeeded(shape, strides, 0) * dtype.itemsize;
  if (!Number.isSafeInteger(nbytes)) throw new RebuildError(`a meta tensor of shape [${shape}] has too many elements`);
  const storage = new Storage({ key: "meta", dtype, nbytes, location: "meta" });
  return makeTensor(storage, dtype, 0, shape, strides, requiresGrad === true);
}

/** An empty tensor that BUILD fills later, as pickles of PyTorch 0.1 have them. */
export function emptyTensor(dtype: DType): Tensor {
  const storage = new Storage({ key: "empty", dtype, nbytes: 0, location: "cpu" });
  return new Tensor({ storage, dtype, shape: [0], strides: [1] });
}

/** BUILD on a tensor: `set_(storage, offset, size, stride)`. */
export function setTensor(tensor: Tensor, state: unknown, hook: TensorHook): void {
  if (!(state instanceof Tuple) || state.length < 4)
    throw new RebuildError("the state of a tensor is not a tuple of four");
  const made = rebuildTensor(state.slice(0, 4), 1, hook);
  Tensor.become(tensor, made, Tensor.extrasOf(tensor));
}

/**
 * BUILD on a parameter, in the forms of PyTorch 0.1 to 0.3:
 * `(data, grad, hooks, requires_grad, volatile)` or `(requires_grad, volatile, hooks)`.
 */
export function setParameter(tensor: Tensor, state: unknown): void {
  if (!(state instanceof Tuple)) throw new RebuildError("the state of a parameter is not a tuple");
  const data = state.length === 5 ? state[0] : tensor;
  const requiresGrad = state[state.length === 5 ? 3 : 0];
  if (!(data instanceof Tensor)) throw new RebuildError("the data of a parameter is not a tensor");
  const { storage, dtype, shape, strides, storageOffset } = data;
  Tensor.become(
    tensor,
    { storage, dtype, shape, strides, storageOffset, requiresGrad: requiresGrad === true },
    { ...Tensor.extrasOf(data), isParameter: true },
  );
}
