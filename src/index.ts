/**
 * torchload reads PyTorch checkpoints and puts every tensor where it is wanted.
 *
 * @module
 */
export { Checkpoint, type CheckpointLoadOptions, type TensorLoadOptions, type TransferChoices } from "./checkpoint.js";
export type { Facts } from "./container/container.js";
export { Device, type DeviceMemory, parseDevice } from "./device/device.js";
export {
  DeviceError,
  type ErrorCode,
  FormatError,
  isTorchloadError,
  SourceError,
  TorchloadError,
  UnsafePickleError,
  UnsupportedError,
} from "./errors.js";
export { type LoadOptions, type LoadReport, load } from "./load.js";
export { loadReplicas, type ReplicaOptions } from "./load-replicas.js";
export { type Input, type OpenOptions, open } from "./open.js";
export {
  ByteArray,
  Complex,
  Counter,
  FrozenSet,
  OrderedDict,
  PythonGlobal,
  PythonObject,
  Size,
  Tuple,
} from "./pickle/values.js";
export type { ByteRange, ByteSource } from "./source/source.js";
export { type DType, type DTypeKind, dtypeOf, type TypedArray } from "./tensor/dtype.js";
export type { ComplexNumber, Element, NestedElements } from "./tensor/readout.js";
export { Storage } from "./tensor/storage.js";
export { Tensor } from "./tensor/tensor.js";
export {
  type MapLocation,
  type MapLocationFunction,
  type Restorer,
  registerPackage,
  type StorageDescription,
  type Tagger,
} from "./torch/location.js";
export { StorageView } from "./torch/storage-table.js";
export type { SafeGlobal, SafeGlobals } from "./torch/torch-handlers.js";
export type { Progress } from "./transfer/progress.js";
