/**
 * For the tests of the pickle room: handlers that know Python's built-in types and nothing else, a small pickler, and
 * values in a form that can be compared.
 *
 * @module
 */
import type { PickleHandlers } from "../../src/pickle/handlers.js";
import { type Unpickled, type UnpickleOptions, unpickle } from "../../src/pickle/unpickler.js";
import {
  ByteArray,
  Complex,
  FrozenSet,
  OrderedDict,
  PythonGlobal,
  PythonObject,
  Tuple,
} from "../../src/pickle/values.js";

/** A stand-in for `storage(...)` ids. */
export class PersistentId {
  readonly id: unknown;

  constructor(id: unknown) {
    this.id = id;
  }
}

function latin1(text: string): Uint8Array {
  return Uint8Array.from(text, (char) => char.charCodeAt(0));
}

const BUILTINS: ReadonlyMap<string, (args: readonly unknown[]) => unknown> = new Map(
  Object.entries({
    "_codecs.encode": (args: readonly unknown[]) => latin1(args[0] as string),
    "builtins.bytes": () => new Uint8Array(0),
    "builtins.bytearray": ([bytes, encoding]: readonly unknown[]) =>
      new ByteArray(encoding === undefined ? ((bytes ?? []) as Uint8Array) : latin1(bytes as string)),
    "builtins.set": (args: readonly unknown[]) => new Set((args[0] ?? []) as unknown[]),
    "builtins.frozenset": (args: readonly unknown[]) => new FrozenSet((args[0] ?? []) as unknown[]),
    "builtins.complex": (args: readonly unknown[]) => new Complex(args[0] as number, args[1] as number),
    "collections.OrderedDict": () => new OrderedDict(),
  }),
);

/** Built-in types are made, every other class becomes a {@link PythonObject}. Calls are noted in `log`. */
export function builtinHandlers(log: unknown[] = [], strict = false): PickleHandlers {
  const make = (callable: unknown, args: readonly unknown[]): unknown => {
    if (!(callable instanceof PythonGlobal)) throw new TypeError("what is called is no global");
    return BUILTINS.get(`${callable}`)?.(args) ?? new PythonObject(callable, args);
  };
  const inert = (value: unknown): PythonObject => {
    if (value instanceof PythonObject) return value;
    throw new TypeError("not an object");
  };
  return {
    findGlobal(module, name) {
      log.push(`${module}.${name}`);
      if (strict && !BUILTINS.has(`${module}.${name}`)) throw new TypeError(`${module}.${name} is not allowed`);
      return new PythonGlobal(module, name);
    },
    persistentLoad(id) {
      if (strict) throw new TypeError("a persistent id");
      return new PersistentId(id);
    },
    reduce: make,
    newObject(cls, args, kwargs) {
      if (!(cls instanceof PythonGlobal)) throw new TypeError("not a class");
      return kwargs === undefined ? make(cls, args) : new PythonObject(cls, args, kwargs);
    },
    build(object, state) {
      if (object instanceof OrderedDict) object.attributes = state as Map<string, unknown>;
      else inert(object).state = state;
      return object;
    },
    extend(object, items) {
      const target = inert(object);
      target.items = [...(target.items ?? []), ...items];
    },
    setItems(object, keysAndValues) {
      const target = inert(object);
      target.entries ??= new Map();
      for (let k = 0; k < keysAndValues.length; k += 2) target.entries.set(keysAndValues[k], keysAndValues[k + 1]);
    },
  };
}

/** The bytes of a stream written as text, one character a byte, or as an array of such texts and bytes. */
export function stream(...parts: (string | number | Uint8Array)[]): Uint8Array {
  return Buffer.concat(
    parts.map((part) =>
      typeof part === "number" ? Uint8Array.of(part) : typeof part === "string" ? latin1(part) : part,
    ),
  );
}

/** Reads a stream with {@link builtinHandlers}. */
export function read(
  bytes: Uint8Array,
  options: Partial<UnpickleOptions> = {},
  handlers: PickleHandlers = builtinHandlers(),
): unknown {
  return readAll(bytes, options, handlers).value;
}

/** The same, with the place behind it. */
export function readAll(
  bytes: Uint8Array,
  options: Partial<UnpickleOptions> = {},
  handlers: PickleHandlers = builtinHandlers(),
): Unpickled {
  return unpickle(bytes, handlers, { file: "model.pt", record: "data.pkl", ...options });
}

/** What was thrown. */
export function thrownBy(action: () => unknown): unknown {
  try {
    action();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

/** A value in the form of pickle-vectors.py, but that an int and a float are one where JavaScript has them as one. */
export function comparable(value: unknown): unknown {
  if (value === null || typeof value === "boolean" || typeof value === "string") return value;
  if (typeof value === "number") return { number: Object.is(value, -0) ? "-0" : String(value) };
  if (typeof value === "bigint") return { int: String(value) };
  if (value instanceof Tuple) return { tuple: Array.from(value, comparable), frozen: Object.isFrozen(value) };
  if (Array.isArray(value)) return value.map(comparable);
  if (value instanceof ByteArray) return { bytearray: Buffer.from(value).toString("hex") };
  if (value instanceof Uint8Array) return { bytes: Buffer.from(value).toString("hex") };
  if (value instanceof Complex) return { complex: [comparable(value.re), comparable(value.im)] };
  if (value instanceof Map) {
    const entries = Array.from(value, ([key, item]) => [comparable(key), comparable(item)]);
    return value instanceof OrderedDict ? { OrderedDict: entries } : { dict: entries };
  }
  if (value instanceof Set)
    return { [value instanceof FrozenSet ? "frozenset" : "set"]: sorted(Array.from(value, comparable)) };
  throw new TypeError(`no form for ${Object.prototype.toString.call(value)}`);
}

/** What pickle-vectors.py wrote, in the form of {@link comparable}. */
export function expectedForm(tagged: unknown): unknown {
  if (tagged === null || typeof tagged !== "object") return tagged;
  if (Array.isArray(tagged)) return tagged.map(expectedForm);
  const [[type, content]] = Object.entries(tagged) as [[string, unknown]];
  switch (type) {
    case "int": {
      const value = BigInt(content as string);
      return comparable(Number.isSafeInteger(Number(value)) ? Number(value) : value);
    }
    case "float":
      return comparable(Buffer.from(content as string, "hex").readDoubleBE());
    case "bytes":
    case "bytearray":
      return tagged;
    case "tuple":
      return { tuple: expectedForm(content), frozen: true };
    case "set":
    case "frozenset":
      return { [type]: sorted(expectedForm(content) as unknown[]) };
    default:
      return { [type]: expectedForm(content) };
  }
}

function sorted(items: unknown[]): unknown[] {
  return items.sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
}

/** A pickler of protocol 2 for the values that {@link comparable} knows. It memoises nothing. */
export function pickled(value: unknown): Uint8Array {
  const parts: Uint8Array[] = [stream("\x80\x02")];
  // Work still to do, last first: values to write, and bytes to put between them.
  const work: (() => void)[] = [() => parts.push(stream("."))];
  const later = (...steps: (() => void)[]): void => void work.push(...steps.reverse());
  const bytes = (text: string) => () => void parts.push(stream(text));
  const item = (inner: unknown) => () => write(inner);
  const call = (name: string, args: readonly unknown[]): void =>
    later(bytes(`c${name.replace(".", "\n")}\n`), item(Tuple.from(args)), bytes("R"));
  const write = (inner: unknown): void => {
    if (inner === null) parts.push(stream("N"));
    else if (typeof inner === "boolean") parts.push(stream(inner ? "\x88" : "\x89"));
    else if (typeof inner === "string") parts.push(stream("X"), int32(wtf8(inner).length), wtf8(inner));
    else if (typeof inner === "bigint" || (Number.isSafeInteger(inner) && !Object.is(inner, -0))) {
      const digits = long(BigInt(inner as number | bigint));
      parts.push(
        digits.length < 256 ? stream("\x8a", digits.length, digits) : stream("\x8b", int32(digits.length), digits),
      );
    } else if (typeof inner === "number") parts.push(stream("G", float64(inner)));
    else if (inner instanceof Tuple) {
      if (inner.length === 0) parts.push(stream(")"));
      else later(bytes("("), ...inner.map(item), bytes("t"));
    } else if (Array.isArray(inner)) later(bytes("]("), ...inner.map(item), bytes("e"));
    else if (inner instanceof ByteArray) call("__builtin__.bytearray", [Uint8Array.from(inner)]);
    else if (inner instanceof Uint8Array) call("_codecs.encode", [Buffer.from(inner).toString("latin1"), "latin1"]);
    else if (inner instanceof Complex)
      later(bytes("c__builtin__\ncomplex\n"), () =>
        parts.push(stream("G", float64(inner.re), "G", float64(inner.im), "\x86R")),
      );
    else if (inner instanceof FrozenSet) call("__builtin__.frozenset", [[...inner]]);
    else if (inner instanceof Set) call("__builtin__.set", [[...inner]]);
    else if (inner instanceof Map) {
      const empty = inner instanceof OrderedDict ? "ccollections\nOrderedDict\n)R" : "}";
      later(bytes(`${empty}(`), ...[...inner].flat().map(item), bytes("u"));
    } else throw new TypeError("no form in a pickle");
  };
  write(value);
  for (let step = work.pop(); step !== undefined; step = work.pop()) step();
  return Buffer.concat(parts);
}

/** A little-endian integer of 32 bits. */
export function int32(value: number): Uint8Array {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value >>> 0);
  return bytes;
}

function float64(value: number): Uint8Array {
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleBE(value);
  return bytes;
}

/** Two's complement, little-endian, in as few bytes as will do. */
export function long(value: bigint): Uint8Array {
  if (value === 0n) return new Uint8Array(0);
  let width = 1;
  while (BigInt.asIntN(8 * width, value) !== value) width++;
  const hex = BigInt.asUintN(8 * width, value)
    .toString(16)
    .padStart(2 * width, "0");
  return Buffer.from(hex, "hex").reverse();
}

/** UTF-8 in which a lone surrogate has the three bytes that its number would have. */
export function wtf8(text: string): Uint8Array {
  const bytes: number[] = [];
  for (const char of text) {
    const code = char.codePointAt(0) as number;
    if (code >= 0xd800 && code <= 0xdfff) bytes.push(0xed, 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
    else bytes.push(...Buffer.from(char));
  }
  return Uint8Array.from(bytes);
}
