/**
 * PyTorch's data types: their size, how PyTorch names their storages, and how JavaScript reads their elements.
 *
 * Sources: c10/core/ScalarType.h and torch/storage.py of PyTorch 2.11.
 *
 * @module
 */
import { floatDecoder, type NumberDecoder } from "./float-formats.js";

/** The typed arrays that a tensor can be read out as. */
export type TypedArray =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | BigUint64Array
  | BigInt64Array
  | Float32Array
  | Float64Array;

interface TypedArrayConstructor {
  readonly BYTES_PER_ELEMENT: number;
  new (length: number): TypedArray;
  new (buffer: ArrayBufferLike, byteOffset?: number, length?: number): TypedArray;
}

/** What the elements of a type are. */
export type DTypeKind = "float" | "complex" | "int" | "bool" | "quantized" | "bits";

/** A data type. There is one object for each name: compare with `===`, or compare names. */
export interface DType {
  /** The name as PyTorch spells it behind `torch.`, such as `"bfloat16"`. */
  readonly name: string;
  /** Size of one element in bytes. For packed types (several elements in a byte) of one packed unit. */
  readonly itemsize: number;
  readonly kind: DTypeKind;
  /** The array type that holds the raw elements; complex types take two array elements for one of theirs. */
  readonly array: TypedArrayConstructor;
  /** Array elements for one element of the type: 2 for complex types. */
  readonly lanes: number;
  /** Elements of the type in one byte, for `quint4x2` (2) and `quint2x4` (4); else 1. */
  readonly packed: number;
  /** Gives the number that one raw array element stands for, where that is not the element itself. */
  readonly decode: NumberDecoder | undefined;
}

function define(
  name: string,
  itemsize: number,
  kind: DTypeKind,
  array: TypedArrayConstructor,
  options: { lanes?: number; packed?: number; decode?: NumberDecoder } = {},
): DType {
  return {
    name,
    itemsize,
    kind,
    array,
    lanes: options.lanes ?? 1,
    packed: options.packed ?? 1,
    decode: options.decode,
  };
}

const TABLE: readonly DType[] = [
  define("uint8", 1, "int", Uint8Array),
  define("int8", 1, "int", Int8Array),
  define("int16", 2, "int", Int16Array),
  define("int32", 4, "int", Int32Array),
  define("int64", 8, "int", BigInt64Array),
  define("float16", 2, "float", Uint16Array, { decode: floatDecoder("float16") }),
  define("float32", 4, "float", Float32Array),
  define("float64", 8, "float", Float64Array),
  define("complex32", 4, "complex", Uint16Array, { lanes: 2, decode: floatDecoder("float16") }),
  define("complex64", 8, "complex", Float32Array, { lanes: 2 }),
  define("complex128", 16, "complex", Float64Array, { lanes: 2 }),
  define("bool", 1, "bool", Uint8Array),
  define("qint8", 1, "quantized", Int8Array),
  define("quint8", 1, "quantized", Uint8Array),
  define("qint32", 4, "quantized", Int32Array),
  define("bfloat16", 2, "float", Uint16Array, { decode: floatDecoder("bfloat16") }),
  define("quint4x2", 1, "quantized", Uint8Array, { packed: 2 }),
  define("quint2x4", 1, "quantized", Uint8Array, { packed: 4 }),
  define("bits1x8", 1, "bits", Uint8Array),
  define("bits2x4", 1, "bits", Uint8Array),
  define("bits4x2", 1, "bits", Uint8Array),
  define("bits8", 1, "bits", Uint8Array),
  define("bits16", 2, "bits", Uint16Array),
  define("float8_e5m2", 1, "float", Uint8Array, { decode: floatDecoder("float8_e5m2") }),
  define("float8_e4m3fn", 1, "float", Uint8Array, { decode: floatDecoder("float8_e4m3fn") }),
  define("float8_e5m2fnuz", 1, "float", Uint8Array, { decode: floatDecoder("float8_e5m2fnuz") }),
  define("float8_e4m3fnuz", 1, "float", Uint8Array, { decode: floatDecoder("float8_e4m3fnuz") }),
  define("uint16", 2, "int", Uint16Array),
  define("uint32", 4, "int", Uint32Array),
  define("uint64", 8, "int", BigUint64Array),
  define("float8_e8m0fnu", 1, "float", Uint8Array, { decode: floatDecoder("float8_e8m0fnu") }),
  // Two 4-bit floats a byte; PyTorch counts its shapes in bytes, so an element is the pair.
  define("float4_e2m1fn_x2", 1, "bits", Uint8Array),
  // The sub-byte integers exist as types only: PyTorch stores one in a byte.
  ...[1, 2, 3, 4, 5, 6, 7].map((bits) => define(`uint${bits}`, 1, "bits", Uint8Array)),
  ...[1, 2, 3, 4, 5, 6, 7].map((bits) => define(`int${bits}`, 1, "bits", Uint8Array)),
];

/** All data types by name. */
export const DTYPES: ReadonlyMap<string, DType> = new Map(TABLE.map((dtype) => [dtype.name, dtype]));

/** The data type of a name. @throws TypeError for a name that PyTorch does not have. */
export function dtypeOf(name: string): DType {
  const dtype = DTYPES.get(name);
  if (dtype === undefined) throw new TypeError(`"${name}" is not a PyTorch dtype`);
  return dtype;
}

/** The data type behind each storage class, such as `FloatStorage`. Other types use `UntypedStorage`. */
export const STORAGE_CLASS_DTYPES: ReadonlyMap<string, DType> = new Map(
  Object.entries({
    ByteStorage: "uint8",
    CharStorage: "int8",
    ShortStorage: "int16",
    IntStorage: "int32",
    LongStorage: "int64",
    HalfStorage: "float16",
    FloatStorage: "float32",
    DoubleStorage: "float64",
    ComplexFloatStorage: "complex64",
    ComplexDoubleStorage: "complex128",
    BoolStorage: "bool",
    QInt8Storage: "qint8",
    QUInt8Storage: "quint8",
    QInt32Storage: "qint32",
    BFloat16Storage: "bfloat16",
    QUInt4x2Storage: "quint4x2",
    QUInt2x4Storage: "quint2x4",
  }).map(([storageClass, name]) => [storageClass, dtypeOf(name)]),
);
