/**
 * Python values that JavaScript has no type for. The others: dict is `Map`, list is `Array`, set is `Set`, bytes is
 * `Uint8Array`, None is `null`, int is `number` or, beyond the safe integers, `bigint`.
 *
 * Keys of a dict compare as JavaScript compares them: 1 and 1.0 are one key as in Python, but True is another, and tuples
 * are compared by identity.
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

/** Makes a frozen tuple of items. */
export function tupleOf<Item>(items: readonly Item[]): Tuple<Item> {
  return freezeInto(new Tuple<Item>(), items);
}

/** Makes a frozen `torch.Size`. */
export function sizeOf(items: readonly number[]): Size {
  return freezeInto(new Size(), items);
}

function freezeInto<Kind extends unknown[]>(target: Kind, items: readonly unknown[]): Kind {
  for (let k = 0; k < items.length; k++) target.push(items[k]);
  return Object.freeze(target) as Kind;
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
