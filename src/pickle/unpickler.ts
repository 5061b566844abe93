/**
 * The pickle machine: bytes to values, for every opcode of protocols 0 to 5. It is iterative, so that nesting costs memory
 * and never the call stack, and it runs nothing: what a pickle names goes to the {@link PickleHandlers}.
 *
 * PyTorch's weights-only unpickler accepts a subset of the opcodes. Here all are accepted in either mode, since no opcode
 * does anything by itself; what matters for safety is which globals the handlers let through.
 *
 * Definition: CPython 3.13, `Lib/pickletools.py` and `Lib/pickle.py`.
 *
 * @module
 */
import type { PickleHandlers } from "./handlers.js";
import { HIGHEST_PROTOCOL, OP } from "./opcodes.js";
import { python3Name } from "./python2-names.js";
import { END_OF_STREAM, narrowInteger, type PickleOrigin, PickleReader } from "./reader.js";
import { type Memo, SKIPPED, TensorRun } from "./tensor-shortcut.js";
import { decodePython2, decodeRawUnicodeEscape, unescapeBytes } from "./text.js";
import { ByteArray, FrozenSet, OrderedDict, Tuple, tupleOf } from "./values.js";

/** The most digits of a decimal integer: Python's own limit, as conversion takes quadratic time. */
const MAX_DECIMAL_DIGITS = 4300;

/** Where to start in the bytes, and what to call them. */
export interface UnpickleOptions extends PickleOrigin {
  /** Place of the first opcode, in bytes. */
  readonly start?: number;
}

/** A value, and the place behind the STOP that ended it. */
export interface Unpickled {
  readonly value: unknown;
  readonly end: number;
}

/**
 * Reads one pickle.
 *
 * Memory is bounded by the length of the stream: every length in it is compared with what is left before it is used, and
 * shared values stay shared.
 *
 * @throws FormatError for a stream that is cut short or not a valid pickle.
 * @throws whatever a handler throws.
 */
export function unpickle(bytes: Uint8Array, handlers: PickleHandlers, options: UnpickleOptions): Unpickled {
  const machine = new Machine(bytes, handlers, options, true);
  try {
    return machine.run();
  } catch (error) {
    if (error === SKIPPED) return new Machine(bytes, handlers, options, false).run();
    throw error;
  }
}

/** The memo: dense while indices follow each other, as they do in every real pickle, else sparse. */
class DenseMemo implements Memo {
  readonly dense: unknown[] = [];
  #sparse: Map<number, unknown> | undefined;
  /** How many values were memoised: what MEMOIZE counts. */
  count = 0;

  get(index: number): unknown {
    return index < this.dense.length ? this.dense[index] : this.#sparse?.get(index);
  }

  set(index: number, value: unknown): void {
    if (index < this.dense.length) {
      this.dense[index] = value;
    } else if (index === this.dense.length) {
      this.dense.push(value);
      this.count++;
    } else {
      this.#sparse ??= new Map();
      if (!this.#sparse.has(index)) this.count++;
      this.#sparse.set(index, value);
    }
  }
}

class Machine {
  readonly #reader: PickleReader;
  readonly #handlers: PickleHandlers;
  readonly #memo = new DenseMemo();
  readonly #run: TensorRun | undefined;
  #stack: unknown[] = [];
  /** Heights of the stack at each open MARK. */
  readonly #marks: number[] = [];

  constructor(bytes: Uint8Array, handlers: PickleHandlers, options: UnpickleOptions, shortcut: boolean) {
    this.#reader = new PickleReader(bytes, options.start ?? 0, options);
    this.#handlers = handlers;
    if (shortcut && handlers.tensors !== undefined) {
      this.#run = new TensorRun(bytes, this.#memo, handlers.tensors, (start, end) => this.#reader.ascii(start, end));
    }
  }

  run(): Unpickled {
    const reader = this.#reader;
    try {
      return this.#loop(reader);
    } catch (error) {
      throw reader.wrap(error);
    }
  }

  #loop(reader: PickleReader): Unpickled {
    const { bytes } = reader;
    const stack = this.#stack;
    const marks = this.#marks;
    for (;;) {
      const at = reader.position;
      reader.opcodeAt = at;
      if (at >= bytes.length) {
        reader.opcode = OP.STOP;
        throw reader.fault("the stream ends early: no STOP", { found: END_OF_STREAM });
      }
      const opcode = bytes[at] as number;
      reader.opcode = opcode;
      reader.position = at + 1;
      switch (opcode) {
        case OP.BINPUT:
          this.#memo.set(reader.uint8(), this.#top());
          break;
        case OP.LONG_BINPUT:
          this.#memo.set(reader.uint32(), this.#top());
          break;
        case OP.BINGET:
          this.#get(reader.uint8());
          break;
        case OP.LONG_BINGET:
          this.#get(reader.uint32());
          break;
        case OP.MARK:
          marks.push(stack.length);
          break;
        case OP.BINUNICODE:
          stack.push(reader.text(reader.uint32()));
          break;
        case OP.BININT1:
          stack.push(reader.uint8());
          break;
        case OP.BININT2:
          stack.push(reader.uint16());
          break;
        case OP.BININT:
          stack.push(reader.int32());
          break;
        case OP.BINFLOAT:
          stack.push(reader.float64());
          break;
        case OP.EMPTY_TUPLE:
          stack.push(tupleOf([]));
          break;
        case OP.TUPLE1:
          this.#tuple(1);
          break;
        case OP.TUPLE2:
          this.#tuple(2);
          break;
        case OP.TUPLE3:
          this.#tuple(3);
          break;
        case OP.TUPLE:
          stack.push(tupleOf(this.#popMark()));
          break;
        case OP.NEWFALSE:
          stack.push(false);
          break;
        case OP.NEWTRUE:
          stack.push(true);
          break;
        case OP.NONE:
          stack.push(null);
          break;
        case OP.BINPERSID:
          stack.push(this.#handlers.persistentLoad(this.#pop()));
          break;
        case OP.REDUCE: {
          const args = this.#args();
          stack.push(this.#handlers.reduce(this.#pop(), args));
          break;
        }
        case OP.GLOBAL: {
          const module = this.#name(reader.line());
          this.#global(module, this.#name(reader.line()));
          break;
        }
        case OP.EMPTY_DICT:
          stack.push(new Map());
          break;
        case OP.EMPTY_LIST:
          stack.push([]);
          break;
        case OP.EMPTY_SET:
          stack.push(new Set());
          break;
        case OP.SETITEM: {
          const value = this.#pop();
          const key = this.#pop();
          this.#setItems(this.#top(), [key, value]);
          break;
        }
        case OP.SETITEMS: {
          const items = this.#popMark();
          this.#setItems(this.#top(), items);
          break;
        }
        case OP.APPEND: {
          const item = this.#pop();
          this.#extend(this.#top(), [item]);
          break;
        }
        case OP.APPENDS: {
          const items = this.#popMark();
          this.#extend(this.#top(), items);
          break;
        }
        case OP.ADDITEMS: {
          const items = this.#popMark();
          this.#addItems(this.#top(), items);
          break;
        }
        case OP.BUILD: {
          const state = this.#pop();
          stack.push(this.#handlers.build(this.#pop(), state));
          break;
        }
        case OP.LONG1:
          stack.push(reader.integer(reader.uint8()));
          break;
        case OP.PROTO: {
          const protocol = reader.uint8();
          if (protocol > HIGHEST_PROTOCOL) {
            throw reader.fault(`protocol ${protocol} is not known; the highest is ${HIGHEST_PROTOCOL}`, {
              expected: HIGHEST_PROTOCOL,
              found: protocol,
            });
          }
          break;
        }
        case OP.FRAME: {
          const length = reader.length64();
          const left = bytes.length - reader.position;
          if (length > left) {
            throw reader.fault(`a frame of ${length} bytes, ${left} are left`, { expected: length, found: END_OF_STREAM });
          }
          break;
        }
        case OP.STOP:
          return { value: this.#pop(), end: reader.position };
        default:
          this.#rare(opcode, reader);
      }
    }
  }

  /** Opcodes that `torch.save` does not write at its usual protocol. */
  #rare(opcode: number, reader: PickleReader): void {
    const stack = this.#stack;
    switch (opcode) {
      case OP.MEMOIZE:
        this.#memo.set(this.#memo.count, this.#top());
        return;
      case OP.PUT:
        this.#memo.set(this.#index(reader.line()), this.#top());
        return;
      case OP.GET:
        this.#get(this.#index(reader.line()));
        return;
      case OP.POP:
        // A MARK that is on top is what POP takes.
        if (this.#marks.length > 0 && this.#marks[this.#marks.length - 1] === stack.length) this.#marks.pop();
        else this.#pop();
        return;
      case OP.POP_MARK:
        this.#popMark();
        return;
      case OP.DUP:
        stack.push(this.#top());
        return;
      case OP.SHORT_BINUNICODE:
        stack.push(reader.text(reader.uint8()));
        return;
      case OP.BINUNICODE8:
        stack.push(reader.text(reader.length64()));
        return;
      case OP.UNICODE: {
        const text = decodeRawUnicodeEscape(reader.line());
        if (text === undefined) throw reader.fault("the text has an escape beyond Unicode");
        stack.push(text);
        return;
      }
      case OP.SHORT_BINSTRING:
        stack.push(decodePython2(reader.slice(reader.uint8())));
        return;
      case OP.BINSTRING:
        stack.push(decodePython2(reader.slice(this.#signedLength(reader))));
        return;
      case OP.STRING: {
        const quoted = /^\s*(['"])([\s\S]*)\1\s*$/.exec(reader.line());
        const raw = quoted === null ? undefined : unescapeBytes(quoted[2] as string);
        if (raw === undefined) throw reader.fault("the text is not a quoted string");
        stack.push(decodePython2(raw));
        return;
      }
      case OP.SHORT_BINBYTES:
        stack.push(reader.slice(reader.uint8()));
        return;
      case OP.BINBYTES:
        stack.push(reader.slice(reader.uint32()));
        return;
      case OP.BINBYTES8:
        stack.push(reader.slice(reader.length64()));
        return;
      case OP.BYTEARRAY8:
        stack.push(new ByteArray(reader.slice(reader.length64())));
        return;
      case OP.INT: {
        const text = reader.line();
        if (text === "00" || text === "01") stack.push(text === "01");
        else stack.push(this.#decimal(text));
        return;
      }
      case OP.LONG:
        stack.push(this.#decimal(reader.line().replace(/L$/, "")));
        return;
      case OP.LONG4:
        stack.push(reader.integer(this.#signedLength(reader)));
        return;
      case OP.FLOAT:
        stack.push(this.#float(reader.line()));
        return;
      case OP.LIST:
        stack.push(this.#popMark());
        return;
      case OP.DICT: {
        const items = this.#popMark();
        const dict = new Map();
        this.#setItems(dict, items);
        stack.push(dict);
        return;
      }
      case OP.FROZENSET: {
        const items = this.#popMark();
        const set = new FrozenSet();
        this.#addItems(set, items);
        stack.push(set);
        return;
      }
      case OP.PERSID:
        stack.push(this.#handlers.persistentLoad(reader.line()));
        return;
      case OP.STACK_GLOBAL: {
        const name = this.#pop();
        const module = this.#pop();
        if (typeof name !== "string" || typeof module !== "string") throw reader.fault("module and name are not text");
        this.#global(module, name);
        return;
      }
      case OP.INST: {
        const [module, name] = python3Name(this.#name(reader.line()), this.#name(reader.line()));
        const args = this.#popMark();
        stack.push(this.#handlers.newObject(this.#handlers.findGlobal(module, name), args, undefined));
        return;
      }
      case OP.OBJ: {
        const [cls, ...args] = this.#popMark();
        if (cls === undefined) throw reader.fault("no class above the MARK");
        stack.push(this.#handlers.newObject(cls, args, undefined));
        return;
      }
      case OP.NEWOBJ: {
        const args = this.#args();
        stack.push(this.#handlers.newObject(this.#pop(), args, undefined));
        return;
      }
      case OP.NEWOBJ_EX: {
        const kwargs = this.#pop();
        if (!(kwargs instanceof Map)) throw reader.fault("the keyword arguments are not a dict");
        const args = this.#args();
        stack.push(this.#handlers.newObject(this.#pop(), args, kwargs));
        return;
      }
      case OP.EXT1:
      case OP.EXT2:
      case OP.EXT4:
        throw reader.fault("the extension registry (copyreg.add_extension) is private to a Python process");
      case OP.NEXT_BUFFER:
      case OP.READONLY_BUFFER:
        throw reader.fault("out-of-band buffers are not part of a file");
      default:
        throw reader.fault("there is no such opcode");
    }
  }

  #floor(): number {
    const marks = this.#marks;
    return marks.length === 0 ? 0 : (marks[marks.length - 1] as number);
  }

  #top(): unknown {
    const stack = this.#stack;
    if (stack.length <= this.#floor()) throw this.#reader.fault("the stack is empty");
    return stack[stack.length - 1];
  }

  #pop(): unknown {
    const stack = this.#stack;
    if (stack.length <= this.#floor()) throw this.#reader.fault("the stack is empty");
    return stack.pop();
  }

  #popMark(): unknown[] {
    const mark = this.#marks.pop();
    if (mark === undefined) throw this.#reader.fault("no MARK is open");
    return this.#stack.splice(mark);
  }

  #tuple(count: number): void {
    const stack = this.#stack;
    if (stack.length - this.#floor() < count) throw this.#reader.fault("the stack is empty");
    stack.push(tupleOf(stack.splice(stack.length - count)));
  }

  #args(): readonly unknown[] {
    const args = this.#pop();
    if (!(args instanceof Tuple)) throw this.#reader.fault("the arguments are not a tuple");
    return args;
  }

  #get(index: number): void {
    const value = this.#memo.get(index);
    // `undefined` is never on the stack: None is null.
    if (value === undefined) throw this.#reader.fault(`memo ${index} was never set`);
    if (value === SKIPPED) throw SKIPPED;
    if (this.#run !== undefined && value === this.#handlers.tensors?.rebuild) {
      const tensor = this.#run.read(this.#reader.position);
      if (tensor !== SKIPPED) {
        this.#reader.position = this.#run.end;
        this.#stack.push(tensor);
        return;
      }
    }
    this.#stack.push(value);
  }

  #global(module: string, name: string): void {
    const [newModule, newName] = python3Name(module, name);
    this.#stack.push(this.#handlers.findGlobal(newModule, newName));
  }

  #name(line: string): string {
    return line.endsWith("\r") ? line.slice(0, -1) : line;
  }

  #setItems(target: unknown, items: readonly unknown[]): void {
    if (items.length % 2 !== 0) throw this.#reader.fault("a key without a value");
    if (!(target instanceof Map)) {
      this.#handlers.setItems(target, items);
      return;
    }
    for (let k = 0; k < items.length; k += 2) target.set(this.#hashable(items[k]), items[k + 1]);
  }

  #extend(target: unknown, items: readonly unknown[]): void {
    if (target instanceof Tuple) throw this.#reader.fault("a tuple cannot be appended to");
    if (!Array.isArray(target)) {
      this.#handlers.extend(target, items);
      return;
    }
    for (let k = 0; k < items.length; k++) target.push(items[k]);
  }

  #addItems(target: unknown, items: readonly unknown[]): void {
    if (!(target instanceof Set)) {
      this.#handlers.extend(target, items);
      return;
    }
    for (const item of items) target.add(this.#hashable(item));
  }

  /** A key of a dict or item of a set: lists, dicts and sets are none, as in Python. */
  #hashable(key: unknown): unknown {
    if (typeof key !== "object" || key === null || key instanceof Tuple || key instanceof FrozenSet) return key;
    const kind =
      key instanceof OrderedDict
        ? "an OrderedDict"
        : key instanceof Map
          ? "a dict"
          : Array.isArray(key)
            ? "a list"
            : key instanceof Set
              ? "a set"
              : undefined;
    if (kind !== undefined) throw this.#reader.fault(`${kind} cannot be a key`);
    return key;
  }

  #index(text: string): number {
    if (!/^\d{1,15}$/.test(text.trim())) throw this.#reader.fault(`"${text.slice(0, 40)}" is not a memo index`);
    return Number(text);
  }

  #decimal(text: string): number | bigint {
    const trimmed = text.trim();
    if (!/^[+-]?\d+$/.test(trimmed)) throw this.#reader.fault(`"${text.slice(0, 40)}" is not an integer`);
    if (trimmed.length > MAX_DECIMAL_DIGITS) {
      throw this.#reader.fault(`an integer of ${trimmed.length} digits; Python reads ${MAX_DECIMAL_DIGITS}`);
    }
    return narrowInteger(BigInt(trimmed.replace(/^\+/, "")));
  }

  #float(text: string): number {
    const trimmed = text.trim().toLowerCase();
    const special = /^([+-]?)(inf|infinity|nan)$/.exec(trimmed);
    if (special !== null) {
      if (special[2] === "nan") return Number.NaN;
      return special[1] === "-" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
    }
    if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/.test(trimmed)) {
      throw this.#reader.fault(`"${text.slice(0, 40)}" is not a float`);
    }
    return Number(trimmed);
  }

  #signedLength(reader: PickleReader): number {
    const length = reader.int32();
    if (length < 0) throw reader.fault(`a negative length, ${length}`, { found: length });
    return length;
  }
}
