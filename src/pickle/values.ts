/**
 * Python values that JavaScript has no type for. The others: dict is `Map`, list is `Array`, set is `Set`, bytes is
 * `Uint8Array`, None is `null`, float is `number`, int is `number` or, beyond the safe integers, `bigint`.
 *
 * Keys of a dict and items of a set compare as JavaScript compares them, with one thing done as Python does it: of 1 and
 * True, or 0 and False, the first that came is the key. What differs from Python: tuples, frozensets, bytes and complex
 * numbers are compared by identity, an int beyond the safe integers is never equal to a float, and -0.0 as a key is 0.
 *
 * @module
 */

/** A tuple: a frozen array. */
export class Tuple<Item = unknown> extends Array<Item> {
  // Methods such as map() give plain arrays.
  static override get [Symbol.species](): ArrayConstructor {
    return Array;
  }
}

/** A `torch.Size`: a tuple of integers. */
export class Size extends Tuple<number> {}

/** Python has one empty tuple, too. */
export const EMPTY_TUPLE: Tuple<never> = Object.freeze(new Tuple<never>()) as Tuple<never>;

/** Makes a frozen tuple of the items `[start, end)`, by default all. */
export function tupleOf<Item>(items: readonly Item[], start = 0, end: number = items.length): Tuple<Item> {
  const length = end - start;
  if (length === 0) return EMPTY_TUPLE;
  const tuple = new Tuple<Item>(length);
  for (let k = 0; k < length; k++) tuple[k] = items[start + k] as Item;
  return Object.freeze(tuple) as Tuple<Item>;
}

/** Makes a frozen `torch.Size`. */
export function sizeOf(items: readonly number[]): Size {
  const size = new Size(items.length);
  for (let k = 0; k < items.length; k++) size[k] = items[k] as number;
  return Object.freeze(size) as Size;
}

/**
 * Whether Python would refuse a value as a key of a dict or an item of a set; the name of its type if so. A tuple that
 * holds such a value is let through.
 */
export function unhashableType(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (Array.isArray(value)) return value instanceof Tuple ? undefined : "list";
  if (value instanceof OrderedDict) return "OrderedDict";
  if (value instanceof Map) return "dict";
  if (value instanceof Set) return value instanceof FrozenSet ? undefined : "set";
  return value instanceof ByteArray ? "bytearray" : undefined;
}

/** A `collections.OrderedDict`. State dicts are of this type and keep `_metadata` as an attribute. */
export class OrderedDict<Key = unknown, Value = unknown> extends Map<Key, Value> {
  /** Python attributes set on the object itself; `undefined` when there are none. */
  attributes: Map<string, unknown> | undefined = undefined;
}

/** A `collections.Counter`. */
export class Counter<Key = unknown> extends Map<Key, number> {}

/** A frozenset. */
export class FrozenSet<Item = unknown> extends Set<Item> {}

/** A bytearray. */
export class ByteArray extends Uint8Array {}

/** A complex number. */
export class Complex {
  readonly re: number;
  readonly im: number;

  constructor(re: number, im: number) {
    this.re = re;
    this.im = im;
  }
}

/** A class or function that a pickle names. It stands for the name alone; nothing is imported. */
export class PythonGlobal {
  readonly module: string;
  readonly name: string;

  constructor(module: string, name: string) {
    this.module = module;
    this.name = name;
  }

  /** `module.name` */
  toString(): string {
    return `${this.module}.${this.name}`;
  }
}

/**
 * An object of a class that the library does not know, or what an unknown function would have returned: the call that
 * would make it, and what would be done to it. Nothing of it is run.
 */
export class PythonObject {
  /** The class or function. */
  readonly type: PythonGlobal;
  /** The arguments of the call. */
  readonly args: readonly unknown[];
  /** The keyword arguments of the call. */
  readonly kwargs: ReadonlyMap<unknown, unknown> | undefined;
  /** What `__setstate__` would be given, in most classes a dict of the attributes. */
  state: unknown = undefined;
  /** What would be appended, for subclasses of list. */
  items: unknown[] | undefined = undefined;
  /** What would be set by key, for subclasses of dict. */
  entries: Map<unknown, unknown> | undefined = undefined;

  constructor(type: PythonGlobal, args: readonly unknown[], kwargs?: ReadonlyMap<unknown, unknown>) {
    this.type = type;
    this.args = args;
    this.kwargs = kwargs;
  }
}
