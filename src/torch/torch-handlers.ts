/**
 * The meaning of a checkpoint's pickle: which globals are let through, what calling them gives, and which storages the
 * persistent ids name.
 *
 * @module
 */
import { shown } from "../container/shown.js";
import { UnsafePickleError } from "../errors.js";
import type { PickleHandlers, TensorShortcut } from "../pickle/handlers.js";
import { OrderedDict, PythonGlobal, PythonObject, Tuple } from "../pickle/values.js";
import type { DType } from "../tensor/dtype.js";
import { Tensor } from "../tensor/tensor.js";
import { BLOCKED_MODULES, WEIGHTS_ONLY_GLOBALS } from "./allowlist.js";
import { type CallContext, KNOWN_GLOBALS, KnownGlobal } from "./globals.js";
import { makeTensor, RebuildError, rebuildParameter, setParameter, setTensor, type TensorHook } from "./rebuild.js";
import { StorageClass, type StorageTable, UNTYPED_DTYPE } from "./storage-table.js";

/** Makes the value of a class or function that a caller allows; `args` and `kwargs` are those of the call. */
export type SafeGlobal = (args: readonly unknown[], kwargs?: ReadonlyMap<unknown, unknown>) => unknown;

/**
 * Globals that a caller allows beside PyTorch's own: names `module.name`, which become inert {@link PythonObject}s, or a
 * mapping from such names to functions that make the value.
 */
export type SafeGlobals = Iterable<string> | Readonly<Record<string, SafeGlobal>>;

/** What decides on the globals of a pickle. */
export interface GlobalRules {
  /** Whether only what PyTorch's weights-only loading allows is let through. */
  readonly weightsOnly: boolean;
  readonly safeGlobals: ReadonlyMap<string, SafeGlobal | undefined>;
}

/** The map behind what a caller gave. @throws TypeError */
export function safeGlobalsMap(given: SafeGlobals | undefined): ReadonlyMap<string, SafeGlobal | undefined> {
  const map = new Map<string, SafeGlobal | undefined>();
  if (given === undefined) return map;
  const entries: Iterable<readonly [string, SafeGlobal | undefined]> =
    Symbol.iterator in given
      ? [...(given as Iterable<string>)].map((name) => [name, undefined] as const)
      : Object.entries(given);
  for (const [name, make] of entries) {
    if (typeof name !== "string" || !name.includes(".")) {
      throw new TypeError(`safeGlobals takes names such as "module.Class", not ${String(name)}`);
    }
    const module = name.slice(0, name.lastIndexOf("."));
    if (BLOCKED_MODULES.has(module)) throw new TypeError(`safeGlobals: nothing of module "${module}" is let through`);
    if (make !== undefined && typeof make !== "function") {
      throw new TypeError(`safeGlobals takes a function for ${name}, not ${typeof make}`);
    }
    map.set(name, make);
  }
  return map;
}

/** A global that a caller gave a constructor for. */
class CallerGlobal extends PythonGlobal {
  readonly make: SafeGlobal;

  constructor(module: string, name: string, make: SafeGlobal) {
    super(module, name);
    this.make = make;
  }
}

/** The most characters of the name of a class or function; Python's own are far shorter. */
const MAX_NAME = 4096;

/**
 * How many items and bytes the calls of a pickle may copy for each of its bytes, and whatever its size. What an honest
 * pickle has calls copy was written into it, once; a hostile one names one long list in a thousand calls, of a few bytes each,
 * to fill the memory.
 */
const COPIES_PER_BYTE = 4;
const FREE_COPIES = 64 * 1024;

/** How much a copy of a value would take, in items, characters or bytes. */
function sizeOf(value: unknown): number {
  if (typeof value === "string" || Array.isArray(value) || value instanceof Uint8Array) return value.length;
  return value instanceof Map || value instanceof Set ? value.size : 0;
}

/** Handlers for the pickles of one checkpoint. */
export class TorchHandlers implements PickleHandlers {
  readonly tensors: TensorShortcut;
  readonly #file: string;
  readonly #rules: GlobalRules;
  readonly #table: StorageTable;
  readonly #context: CallContext;
  readonly #hook: TensorHook;
  /** Items and bytes that calls may still copy. */
  #copyable: number;

  /**
   * @param pickleSize - size of the pickle in bytes.
   * @param hook - called with the storage and type of each tensor.
   */
  constructor(file: string, rules: GlobalRules, table: StorageTable, pickleSize: number, hook: TensorHook) {
    this.#copyable = FREE_COPIES + COPIES_PER_BYTE * pickleSize;
    this.#file = file;
    this.#rules = rules;
    this.#table = table;
    this.#hook = hook;
    this.#context = { hook, call: (callable, args) => this.reduce(callable, args) };
    this.tensors = {
      rebuild: KNOWN_GLOBALS.get("torch._utils._rebuild_tensor_v2"),
      orderedDict: KNOWN_GLOBALS.get("collections.OrderedDict"),
      make: (storageClass, key, location, numel, storageOffset, size, stride, requiresGrad) => {
        if (!(storageClass instanceof StorageClass)) throw new RebuildError("a persistent id names no storage class");
        const storage = this.#table.storage(storageClass, key, location, numel);
        const dtype: DType = storage.dtype ?? UNTYPED_DTYPE;
        this.#hook(storage, dtype);
        return makeTensor(storage, dtype, storageOffset, size, stride, requiresGrad);
      },
      parameters: {
        rebuild: KNOWN_GLOBALS.get("torch._utils._rebuild_parameter"),
        make: (tensor, requiresGrad) => rebuildParameter([tensor, requiresGrad]),
      },
    };
  }

  findGlobal(module: string, name: string): unknown {
    if (module.length + name.length > MAX_NAME) {
      throw new RebuildError(`a class or function has a name of ${module.length + name.length} characters`);
    }
    const qualified = `${module}.${name}`;
    const { weightsOnly, safeGlobals } = this.#rules;
    // Of one name there are several splits into module and name: a blocked module counts in each.
    const allowed = safeGlobals.has(qualified) && !BLOCKED_MODULES.has(module);
    const make = allowed ? safeGlobals.get(qualified) : undefined;
    if (make !== undefined) return new CallerGlobal(module, name, make);
    if (weightsOnly && !allowed && !WEIGHTS_ONLY_GLOBALS.has(qualified)) {
      throw new UnsafePickleError(
        `Cannot load "${this.#file}": its pickle asks for ${qualified}, which weights-only loading does not allow; nothing was run. ` +
          (BLOCKED_MODULES.has(module)
            ? "A checkpoint has no honest use for it"
            : `To read it as inert data, pass safeGlobals: ["${qualified}"], or weightsOnly: false for all such names`),
        { file: this.#file, module, global: name },
      );
    }
    return KNOWN_GLOBALS.get(qualified) ?? new PythonGlobal(module, name);
  }

  persistentLoad(id: unknown): unknown {
    if (id instanceof Tuple) {
      const kind = id[0];
      // Bytes, as Python 2 wrote, are decoded each time.
      for (const item of id) if (item instanceof Uint8Array) this.#charge(item);
      if (kind === "storage" || (kind instanceof Uint8Array && new TextDecoder().decode(kind) === "storage")) {
        return this.#table.load(id);
      }
      // A class whose source text was saved beside it: the text is information, the class a name.
      if (kind === "module" && !this.#rules.weightsOnly && id.length === 4) return id[1];
      throw new RebuildError(`a persistent id of kind ${shown(kind)}; expected "storage"`);
    }
    throw new RebuildError("a persistent id is not a tuple");
  }

  reduce(callable: unknown, args: readonly unknown[]): unknown {
    if (callable instanceof KnownGlobal) return this.#call(callable, args);
    if (callable instanceof CallerGlobal) return callable.make(args);
    if (callable instanceof PythonGlobal) return new PythonObject(callable, args);
    throw new RebuildError("what is called is not a class or function");
  }

  newObject(cls: unknown, args: readonly unknown[], kwargs: ReadonlyMap<unknown, unknown> | undefined): unknown {
    if (cls instanceof CallerGlobal) return cls.make(args, kwargs);
    if (cls instanceof KnownGlobal && kwargs === undefined) return this.#call(cls, args);
    if (cls instanceof PythonGlobal) return new PythonObject(cls, args, kwargs);
    throw new RebuildError("what is made is not of a class");
  }

  #call(callable: KnownGlobal, args: readonly unknown[]): unknown {
    for (const arg of args) this.#charge(arg);
    return callable.call(args, this.#context);
  }

  /** Counts a value that a call may copy. */
  #charge(value: unknown): void {
    this.#copyable -= sizeOf(value);
    if (this.#copyable < 0) throw new RebuildError("the calls of the pickle copy the same values again and again");
  }

  build(object: unknown, state: unknown): unknown {
    if (object instanceof Tensor) {
      if (state instanceof Tuple) for (const item of state) this.#charge(item);
      if (state instanceof Tuple && (state.length === 5 || state.length === 3)) setParameter(object, state);
      else setTensor(object, state, this.#hook);
    } else if (object instanceof OrderedDict) {
      object.attributes = attributesOf(state);
    } else if (object instanceof PythonObject) {
      object.state = state;
    } else if (typeof object !== "object" || object === null) {
      throw new RebuildError("a state is set on something that has none");
    } else if ("__setstate__" in object && typeof object.__setstate__ === "function") {
      object.__setstate__(state);
    } else {
      throw new RebuildError("a state is set on an object that takes none");
    }
    return object;
  }

  extend(object: unknown, items: readonly unknown[]): void {
    if (!(object instanceof PythonObject)) throw new RebuildError("items are added to something that is no list");
    object.items ??= [];
    for (const item of items) object.items.push(item);
  }

  setItems(object: unknown, keysAndValues: readonly unknown[]): void {
    if (!(object instanceof PythonObject)) throw new RebuildError("items are set on something that is no dict");
    object.entries ??= new Map();
    for (let k = 0; k < keysAndValues.length; k += 2) object.entries.set(keysAndValues[k], keysAndValues[k + 1]);
  }
}

function attributesOf(state: unknown): Map<string, unknown> {
  // With slots, the state is a pair of the attributes and the slots.
  const attributes = state instanceof Tuple ? state[0] : state;
  if (!(attributes instanceof Map)) throw new RebuildError("the attributes of an OrderedDict are not a dict");
  return attributes as Map<string, unknown>;
}
