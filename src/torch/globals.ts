/**
 * What the globals of a checkpoint stand for. Each is a row of a table with what a call of it gives; nothing is imported
 * and nothing of Python runs.
 *
 * @module
 */
import { shown } from "../container/shown.js";
import { Device, parseDevice } from "../device/device.js";
import { ByteArray, Complex, Counter, FrozenSet, OrderedDict, PythonGlobal, sizeOf, Tuple } from "../pickle/values.js";
import { DTYPES, dtypeOf, STORAGE_CLASS_DTYPES } from "../tensor/dtype.js";
import { LEGACY_TENSOR_KINDS } from "./allowlist.js";
import {
  emptyTensor,
  RebuildError,
  rebuildFromType,
  rebuildMeta,
  rebuildParameter,
  rebuildTensor,
  type TensorHook,
} from "./rebuild.js";
import { StorageClass } from "./storage-table.js";

/** What a call may need of the checkpoint that is being decoded. */
export interface CallContext {
  readonly hook: TensorHook;
  /** Calls another global of the pickle. */
  call(callable: unknown, args: readonly unknown[]): unknown;
}

/** A class or function with a meaning here. */
export class KnownGlobal extends PythonGlobal {
  /** The value of calling it, or of `cls.__new__(cls, *args)`. */
  readonly call: (args: readonly unknown[], context: CallContext) => unknown;

  constructor(qualified: string, call: (args: readonly unknown[], context: CallContext) => unknown) {
    const dot = qualified.lastIndexOf(".");
    super(qualified.slice(0, dot), qualified.slice(dot + 1));
    this.call = call;
  }
}

type Call = (args: readonly unknown[], context: CallContext) => unknown;

function items(args: readonly unknown[], what: string): Iterable<unknown> {
  const [first] = args;
  if (first === undefined) return [];
  if (typeof first !== "object" || first === null || !(Symbol.iterator in first)) {
    throw new RebuildError(`${what} is made from something that is no sequence`);
  }
  return first as Iterable<unknown>;
}

/** Latin-1 text as the bytes it stands for: how Python writes bytes at protocol 2. */
function latin1Bytes(text: unknown): Uint8Array {
  if (text instanceof Uint8Array) return text;
  if (typeof text !== "string") throw new RebuildError("bytes are made from something that is not text");
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) {
    const code = text.charCodeAt(k);
    if (code > 0xff) throw new RebuildError("bytes are made from text beyond Latin-1");
    bytes[k] = code;
  }
  return bytes;
}

function bytesOf(args: readonly unknown[]): Uint8Array {
  const [content] = args;
  if (content === undefined) return new Uint8Array(0);
  if (!Array.isArray(content)) return latin1Bytes(content);
  for (const item of content) {
    if (!isInteger(item) || item < 0 || item > 0xff) throw new RebuildError(`bytes are made from ${shown(item)}`);
  }
  return Uint8Array.from(content as number[]);
}

function isInteger(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value);
}

/** `OrderedDict()`, or of a list of pairs as Python 2 wrote it. */
function orderedDict(args: readonly unknown[]): OrderedDict {
  const dict = new OrderedDict();
  for (const pair of items(args, "an OrderedDict")) {
    if (!Array.isArray(pair) || pair.length !== 2)
      throw new RebuildError("an OrderedDict is made from other than pairs");
    dict.set(pair[0], pair[1]);
  }
  return dict;
}

function counter(args: readonly unknown[]): Counter {
  const counts = new Counter();
  if (args[0] instanceof Map) for (const [key, count] of args[0]) counts.set(key, count as number);
  return counts;
}

function torchDevice(args: readonly unknown[]): Device {
  const [type, index] = args;
  if (typeof type !== "string") throw new RebuildError("a device is made without a type");
  const device = parseDevice(type);
  if (index === undefined || index === null) return device;
  if (!isInteger(index)) throw new RebuildError(`a device has the index ${shown(index)}`);
  return new Device(device.type, index);
}

function torchSize(args: readonly unknown[]): unknown {
  const sizes = [...items(args, "a torch.Size")];
  for (const size of sizes) if (!isInteger(size)) throw new RebuildError(`a torch.Size holds ${shown(size)}`);
  return sizeOf(sizes as number[]);
}

function layout([name]: readonly unknown[]): PythonGlobal {
  if (typeof name !== "string") throw new RebuildError("a layout is made without a name");
  return new PythonGlobal("torch", name.replace(/^torch\./, ""));
}

function complex([re = 0, im = 0]: readonly unknown[]): Complex {
  if (typeof re !== "number" || typeof im !== "number") {
    throw new RebuildError(`a complex number is made from ${shown(re)} and ${shown(im)}`);
  }
  return new Complex(re, im);
}

function parameter(args: readonly unknown[]): unknown {
  const [data, requiresGrad] = args;
  return data === undefined ? emptyTensor(dtypeOf("float32")) : rebuildParameter([data, requiresGrad ?? true]);
}

function fromType(args: readonly unknown[], context: CallContext): unknown {
  const [func, type, inner, state] = args;
  if (!(type instanceof PythonGlobal) || !(inner instanceof Tuple))
    throw new RebuildError("a typed tensor is malformed");
  return rebuildFromType(context.call(func, inner), `${type}`, state);
}

const CALLS: Readonly<Record<string, Call>> = {
  "collections.OrderedDict": orderedDict,
  "collections.Counter": counter,
  "_codecs.encode": (args) => latin1Bytes(args[0]),
  "builtins.bytes": bytesOf,
  "builtins.bytearray": (args) => new ByteArray(bytesOf(args)),
  "builtins.set": (args) => new Set(items(args, "a set")),
  "builtins.frozenset": (args) => new FrozenSet(items(args, "a frozenset")),
  "builtins.complex": complex,
  "torch.Size": torchSize,
  "torch.device": torchDevice,
  "torch.serialization._get_layout": layout,
  "torch.Tensor": () => emptyTensor(dtypeOf("float32")),
  "torch.nn.parameter.Parameter": parameter,
  "torch._utils._rebuild_tensor": (args, { hook }) => rebuildTensor(args, 1, hook),
  "torch._utils._rebuild_tensor_v2": (args, { hook }) => rebuildTensor(args, 2, hook),
  "torch._utils._rebuild_tensor_v3": (args, { hook }) => rebuildTensor(args, 3, hook),
  "torch._utils._rebuild_parameter": rebuildParameter,
  "torch._utils._rebuild_parameter_with_state": rebuildParameter,
  "torch._utils._rebuild_meta_tensor_no_storage": rebuildMeta,
  "torch._tensor._rebuild_from_type_v2": fromType,
  "torch._tensor._rebuild_from_type": fromType,
};

/** PyTorch's tensor classes by type, of before 0.4: `FloatTensor` holds float32. */
const LEGACY_TENSOR_DTYPES: Readonly<Record<string, string>> = Object.fromEntries(
  LEGACY_TENSOR_KINDS.map((kind) => [kind, STORAGE_CLASS_DTYPES.get(`${kind}Storage`)?.name as string]),
);

function build(): Map<string, unknown> {
  const table = new Map<string, unknown>();
  for (const [name, call] of Object.entries(CALLS)) table.set(name, new KnownGlobal(name, call));
  for (const [name, dtype] of DTYPES) table.set(`torch.${name}`, dtype);
  for (const [name, dtype] of STORAGE_CLASS_DTYPES) {
    for (const module of ["torch", "torch.cuda"]) table.set(`${module}.${name}`, new StorageClass(name, dtype));
  }
  for (const name of ["torch.storage.UntypedStorage", "torch.UntypedStorage", "torch.cuda.UntypedStorage"]) {
    table.set(name, new StorageClass("UntypedStorage", undefined));
  }
  for (const [kind, dtype] of Object.entries(LEGACY_TENSOR_DTYPES)) {
    for (const module of ["torch", "torch.cuda"]) {
      table.set(
        `${module}.${kind}Tensor`,
        new KnownGlobal(`${module}.${kind}Tensor`, () => emptyTensor(dtypeOf(dtype))),
      );
    }
  }
  return table;
}

/** Every global with a meaning, by `module.name`: classes and functions, dtypes, storage classes. */
export const KNOWN_GLOBALS: ReadonlyMap<string, unknown> = build();
