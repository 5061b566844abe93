/**
 * Files that no honest program writes: a zip writer in PyTorch's layout whose every field can be made to lie, and an
 * assembler of pickles.
 *
 * @module
 */
import { deflateRawSync } from "node:zlib";

const encoder = new TextEncoder();

/** Bytes one after the other. */
export function concat(...parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  return concatAll(parts);
}

/** The same for more parts than a call can have arguments. */
export function concatAll(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** The same bytes `count` times. */
export function repeat(part: Uint8Array, count: number): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(part.length * count);
  for (let k = 0; k < count; k++) whole.set(part, k * part.length);
  return whole;
}

/** UTF-8. */
export function utf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/** Float32 values as little-endian bytes. */
export function floats(...values: number[]): Uint8Array {
  return new Uint8Array(new Float32Array(values).buffer);
}

// --- pickles -----------------------------------------------------------------------------------------------------------

/** Opcodes of a pickle with their arguments. */
export type Code = Uint8Array;

type Opcode =
  | "MARK"
  | "STOP"
  | "POP"
  | "DUP"
  | "NONE"
  | "BINPERSID"
  | "REDUCE"
  | "EMPTY_LIST"
  | "APPEND"
  | "BUILD"
  | "APPENDS"
  | "SETITEM"
  | "TUPLE"
  | "SETITEMS"
  | "EMPTY_DICT"
  | "NEWOBJ"
  | "TUPLE1"
  | "NEWTRUE"
  | "NEWFALSE"
  | "EMPTY_SET"
  | "ADDITEMS"
  | "FROZENSET"
  | "NEWOBJ_EX"
  | "STACK_GLOBAL";

/** Opcodes without an argument, by the names of `pickletools`. */
export const op: Readonly<Record<Opcode, Code>> = {
  MARK: code(0x28),
  STOP: code(0x2e),
  POP: code(0x30),
  DUP: code(0x32),
  NONE: code(0x4e),
  BINPERSID: code(0x51),
  REDUCE: code(0x52),
  EMPTY_LIST: code(0x5d),
  APPEND: code(0x61),
  BUILD: code(0x62),
  APPENDS: code(0x65),
  SETITEM: code(0x73),
  TUPLE: code(0x74),
  SETITEMS: code(0x75),
  EMPTY_DICT: code(0x7d),
  NEWOBJ: code(0x81),
  TUPLE1: code(0x85),
  NEWTRUE: code(0x88),
  NEWFALSE: code(0x89),
  EMPTY_SET: code(0x8f),
  ADDITEMS: code(0x90),
  FROZENSET: code(0x91),
  NEWOBJ_EX: code(0x92),
  STACK_GLOBAL: code(0x93),
};

/** Raw bytes, for what no assembler should help with. */
export function code(...bytes: number[]): Code {
  return Uint8Array.from(bytes);
}

/** A whole pickle of protocol 2. */
export function pickle(...parts: readonly Code[]): Uint8Array {
  return concat(code(0x80, 2), ...parts, op.STOP);
}

/** BININT for 32 bits, else LONG1. */
export function int(value: number | bigint): Code {
  const wide = BigInt(value);
  if (BigInt.asIntN(32, wide) === wide) {
    const bytes = new Uint8Array(5);
    bytes[0] = 0x4a;
    new DataView(bytes.buffer).setInt32(1, Number(wide), true);
    return bytes;
  }
  const count = Math.ceil((wide.toString(2).replace("-", "").length + 1) / 8);
  const bytes = new Uint8Array(2 + count);
  bytes.set([0x8a, count]);
  const unsigned = BigInt.asUintN(8 * count, wide);
  for (let k = 0; k < count; k++) bytes[2 + k] = Number((unsigned >> BigInt(8 * k)) & 0xffn);
  return bytes;
}

/** BINFLOAT. */
export function float(value: number): Code {
  const bytes = new Uint8Array(9);
  bytes[0] = 0x47;
  new DataView(bytes.buffer).setFloat64(1, value);
  return bytes;
}

/** An opcode with a length of 32 bits in front of its content; `length` is what it claims. */
function sized(opcode: number, content: Uint8Array, length: number = content.length): Code {
  const head = new Uint8Array(5);
  head[0] = opcode;
  new DataView(head.buffer).setUint32(1, length, true);
  return concat(head, content);
}

/** BINUNICODE. */
export function text(value: string, claimed?: number): Code {
  return sized(0x58, utf8(value), claimed);
}

/** BINBYTES. */
export function binbytes(value: Uint8Array, claimed?: number): Code {
  return sized(0x42, value, claimed);
}

/** GLOBAL. */
export function global(module: string, name: string): Code {
  return utf8(`c${module}\n${name}\n`);
}

/** LONG_BINPUT. */
export function put(index: number): Code {
  return sized(0x72, new Uint8Array(0), index);
}

/** LONG_BINGET. */
export function get(index: number): Code {
  return sized(0x6a, new Uint8Array(0), index);
}

export function tuple(...items: readonly Code[]): Code {
  return concat(op.MARK, ...items, op.TUPLE);
}

export function list(...items: readonly Code[]): Code {
  return concat(op.EMPTY_LIST, op.MARK, ...items, op.APPENDS);
}

export function dict(...pairs: readonly (readonly [Code, Code])[]): Code {
  return concat(op.EMPTY_DICT, op.MARK, ...pairs.flat(), op.SETITEMS);
}

export function call(callable: Code, ...args: readonly Code[]): Code {
  return concat(callable, tuple(...args), op.REDUCE);
}

/** What a persistent id says of a storage; each part can be any code. */
export interface StorageCode {
  readonly kind?: Code;
  readonly storageClass?: Code;
  readonly location?: Code;
  readonly numel?: Code;
  /** View metadata, a sixth item. */
  readonly view?: Code;
}

/** A storage by its key: four float32 on the CPU unless said otherwise. */
export function storage(key: string | Code, parts: StorageCode = {}): Code {
  const { kind = text("storage"), storageClass = global("torch", "FloatStorage"), location = text("cpu") } = parts;
  const { numel = int(4), view } = parts;
  const id = [kind, storageClass, typeof key === "string" ? text(key) : key, location, numel];
  return concat(tuple(...id, ...(view === undefined ? [] : [view])), op.BINPERSID);
}

/** The tensor of a storage by `_rebuild_tensor_v2`: four elements in a row unless said otherwise. */
export function tensor(
  of: Code,
  parts: { readonly offset?: Code; readonly size?: Code; readonly stride?: Code } = {},
): Code {
  const { offset = int(0), size = tuple(int(4)), stride = tuple(int(1)) } = parts;
  const hooks = call(global("collections", "OrderedDict"));
  return call(global("torch._utils", "_rebuild_tensor_v2"), of, offset, size, stride, op.NEWFALSE, hooks);
}

/** Arrays of the dimensions, for {@link tensor}. */
export function ints(...values: readonly (number | bigint)[]): Code {
  return tuple(...values.map(int));
}

/** A list that holds itself twice, `depth` times over: 2^depth leaves in a few bytes a level. */
export function bomb(depth: number, leaf: Code = int(1)): Code {
  // Each level is a tuple of the level below, twice.
  return concat(leaf, repeat(concat(op.DUP, code(0x86)), depth));
}

/** Tuples within tuples. */
export function nested(depth: number, leaf: Code = op.NONE): Code {
  return concat(leaf, repeat(op.TUPLE1, depth));
}

// --- zip ---------------------------------------------------------------------------------------------------------------

/** The fields of a header that a test may set. 64-bit values are written as they are where the field is that wide. */
export interface HeaderFields {
  readonly flags?: number;
  readonly method?: number;
  readonly crc?: number;
  readonly size?: number;
  readonly compressedSize?: number;
  readonly name?: string | Uint8Array;
  /** The length that the header claims for its name. */
  readonly nameLength?: number;
  readonly extra?: Uint8Array;
  /** The length that the header claims for its extra field. */
  readonly extraLength?: number;
  readonly signature?: number;
}

/** A record. */
export interface ZipRecord {
  /** The whole name, with the root folder. */
  readonly name: string | Uint8Array;
  readonly content: Uint8Array;
  readonly deflate?: boolean;
  /** What stands in the file in place of the content. */
  readonly raw?: Uint8Array;
  readonly local?: HeaderFields;
  readonly central?: HeaderFields & { readonly headerOffset?: number };
}

/** The records at the end of an archive. */
export interface ZipEnd {
  readonly entries?: number;
  readonly directorySize?: number;
  readonly directoryStart?: number;
  readonly disk?: number;
  readonly zip64?: {
    readonly entries?: bigint;
    readonly directorySize?: bigint;
    readonly directoryStart?: bigint;
    readonly locatorOffset?: bigint;
  };
  readonly comment?: Uint8Array;
}

const ALIGNMENT = 64;

function bytesOf(name: string | Uint8Array): Uint8Array {
  return typeof name === "string" ? utf8(name) : name;
}

/** An archive as PyTorch writes it, but for what is asked to be otherwise. */
export function zip(records: readonly ZipRecord[], end: ZipEnd = {}): Uint8Array<ArrayBuffer> {
  const parts: Uint8Array[] = [];
  const directory: Uint8Array[] = [];
  let at = 0;
  const add = (...added: readonly Uint8Array[]): void => {
    for (const part of added) {
      parts.push(part);
      at += part.length;
    }
  };
  for (const { name, content, deflate = false, raw, local = {}, central = {} } of records) {
    const data = raw ?? (deflate ? deflateRawSync(content) : content);
    const headerOffset = at;
    const common = { flags: 0x0800, method: deflate ? 8 : 0, name };
    const localName = bytesOf(local.name ?? name);
    const padding = local.extra ?? paddingFor(at + 30 + localName.length);
    // PyTorch leaves the sizes in the local header at 0: they follow the data.
    add(header(false, { ...common, flags: 0x0808, size: 0, compressedSize: 0, extra: padding, ...local }), data);
    add(descriptor(content.length, data.length));
    const sizes = { size: content.length, compressedSize: data.length };
    directory.push(header(true, { ...common, flags: 0x0808, ...sizes, headerOffset, ...central }));
  }
  const start = at;
  for (const entry of directory) add(entry);
  const size = at - start;
  const zip64At = at;
  const { entries = records.length, directorySize = size, directoryStart = start, zip64 = {} } = end;
  const record = new DataView(new ArrayBuffer(56));
  record.setUint32(0, 0x06064b50, true);
  record.setBigUint64(4, 44n, true);
  record.setBigUint64(24, zip64.entries ?? BigInt(entries), true);
  record.setBigUint64(32, zip64.entries ?? BigInt(entries), true);
  record.setBigUint64(40, zip64.directorySize ?? BigInt(directorySize), true);
  record.setBigUint64(48, zip64.directoryStart ?? BigInt(directoryStart), true);
  const locator = new DataView(new ArrayBuffer(20));
  locator.setUint32(0, 0x07064b50, true);
  locator.setBigUint64(8, zip64.locatorOffset ?? BigInt(zip64At), true);
  locator.setUint32(16, 1, true);
  const last = new DataView(new ArrayBuffer(22));
  last.setUint32(0, 0x06054b50, true);
  last.setUint16(4, end.disk ?? 0, true);
  last.setUint16(8, Math.min(entries, 0xffff), true);
  last.setUint16(10, Math.min(entries, 0xffff), true);
  last.setUint32(12, Math.min(directorySize, 0xffffffff), true);
  last.setUint32(16, Math.min(directoryStart, 0xffffffff), true);
  last.setUint16(20, end.comment?.length ?? 0, true);
  for (const view of [record, locator, last]) add(new Uint8Array(view.buffer));
  add(end.comment ?? new Uint8Array(0));
  return concatAll(parts);
}

/** PyTorch's padding field, after which the content is aligned. */
function paddingFor(nameEnd: number): Uint8Array {
  const length = (ALIGNMENT - ((nameEnd + 4) % ALIGNMENT)) % ALIGNMENT;
  return concat(code(0x46, 0x42, length & 0xff, length >> 8), new Uint8Array(length).fill(0x5a));
}

function header(central: boolean, fields: HeaderFields & { readonly headerOffset?: number }): Uint8Array {
  const name = bytesOf(fields.name ?? "");
  const extra = fields.extra ?? new Uint8Array(0);
  const view = new DataView(new ArrayBuffer(central ? 46 : 30));
  view.setUint32(0, fields.signature ?? (central ? 0x02014b50 : 0x04034b50), true);
  const at = central ? 8 : 6;
  view.setUint16(at, fields.flags ?? 0, true);
  view.setUint16(at + 2, fields.method ?? 0, true);
  view.setUint32(at + 8, fields.crc ?? 0, true);
  view.setUint32(at + 12, fields.compressedSize ?? 0, true);
  view.setUint32(at + 16, fields.size ?? 0, true);
  view.setUint16(at + 20, fields.nameLength ?? name.length, true);
  view.setUint16(at + 22, fields.extraLength ?? extra.length, true);
  if (central) view.setUint32(42, fields.headerOffset ?? 0, true);
  return concat(new Uint8Array(view.buffer), name, extra);
}

function descriptor(size: number, compressedSize: number): Uint8Array {
  if (size === 0) return new Uint8Array(0);
  const view = new DataView(new ArrayBuffer(16));
  view.setUint32(0, 0x08074b50, true);
  view.setUint32(8, compressedSize, true);
  view.setUint32(12, size, true);
  return new Uint8Array(view.buffer);
}

/** A zip64 extra field with these values. */
export function zip64Extra(...values: readonly bigint[]): Uint8Array {
  const view = new DataView(new ArrayBuffer(4 + 8 * values.length));
  view.setUint16(0, 1, true);
  view.setUint16(2, 8 * values.length, true);
  values.forEach((value, k) => {
    view.setBigUint64(4 + 8 * k, value, true);
  });
  return new Uint8Array(view.buffer);
}

/** The records of a checkpoint: `data.pkl`, `byteorder`, one record a storage, `version`. */
export function checkpointRecords(
  value: Code,
  storages: Readonly<Record<string, Uint8Array>> = {},
  root = "archive",
): ZipRecord[] {
  return [
    { name: `${root}/data.pkl`, content: pickle(value) },
    { name: `${root}/byteorder`, content: utf8("little") },
    ...Object.entries(storages).map(([key, content]) => ({ name: `${root}/data/${key}`, content })),
    { name: `${root}/version`, content: utf8("3\n") },
  ];
}

/** A zip checkpoint. */
export function zipCheckpoint(
  value: Code,
  storages: Readonly<Record<string, Uint8Array>> = {},
): Uint8Array<ArrayBuffer> {
  return zip(checkpointRecords(value, storages));
}

/** A zip checkpoint of one tensor, with some records changed. */
export function zipWith(change: (record: ZipRecord, name: string) => ZipRecord | ZipRecord[]): Uint8Array<ArrayBuffer> {
  const records = checkpointRecords(dict([text("weight"), tensor(storage("0"))]), { "0": floats(1, 2, 3, 4) });
  return zip(records.flatMap((record) => change(record, String(record.name).replace("archive/", ""))));
}

// --- legacy ------------------------------------------------------------------------------------------------------------

/** The parts of a legacy file that can be made to lie. */
export interface LegacyParts {
  readonly magic?: Code;
  readonly protocol?: Code;
  readonly systemInfo?: Code;
  /** The list of storage keys; by default those of `storages`. */
  readonly keys?: Code;
}

/** A storage of a legacy file. */
export interface LegacyStorage {
  readonly key: string;
  readonly content: Uint8Array;
  /** The number of elements in front of the content; by default that of float32. */
  readonly numel?: bigint;
}

/** A legacy checkpoint. */
export function legacyCheckpoint(
  value: Code,
  storages: readonly LegacyStorage[] = [],
  parts: LegacyParts = {},
): Uint8Array<ArrayBuffer> {
  const { magic = int(0x1950a86a20f9469cfc6cn), protocol = int(1001), systemInfo = op.EMPTY_DICT } = parts;
  const { keys = list(...storages.map(({ key }) => text(key))) } = parts;
  const contents = storages.map(({ content, numel = BigInt(content.length / 4) }) => {
    const count = new DataView(new ArrayBuffer(8));
    count.setBigInt64(0, numel, true);
    return concat(new Uint8Array(count.buffer), content);
  });
  return concat(pickle(magic), pickle(protocol), pickle(systemInfo), pickle(value), pickle(keys), ...contents);
}
