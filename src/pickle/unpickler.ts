/**
 * The pickle machine: bytes to values, for every opcode of protocols 0 to 5. It is iterative, so that nesting costs memory
 * and never the call stack, and it runs nothing: what a pickle names goes to the {@link PickleHandlers}.
 *
 * PyTorch's weights-only unpickler accepts a subset of the opcodes. Here all are accepted in either mode, since no opcode
 * does anything by itself; what matters for safety is which globals the handlers let through.
 *
 * Definition: https://github.com/python/cpython/blob/v3.13.0/Lib/pickletools.py and Lib/pickle.py there.
 *
 * @module
 */
import { FormatError, isTorchloadError, UnsupportedError } from "../errors.js";
import type { PickleHandlers } from "./handlers.js";
import { Memo } from "./memo.js";
import { MAX_DECIMAL_DIGITS, parseFloating, parseInteger } from "./numbers.js";
import { HIGHEST_PROTOCOL, opcodeName } from "./opcodes.js";
import { python3Name } from "./python2-names.js";
import { cutShort, END_OF_STREAM, float64At, int32At, PickleFault, PickleReader } from "./reader.js";
import { TensorRun } from "./tensor-shortcut.js";
import { decodePython2, decodeRawUnicodeEscape, type Python2Encoding, unescapeBytes } from "./text.js";
import { FrozenSet, Tuple, tupleOf, unhashableType } from "./values.js";

/** The highest index that LONG_BINPUT can write; text could write any. */
const MAX_MEMO_INDEX = 0xffffffff;

/** Where a pickle comes from, for messages. */
export interface PickleOrigin {
  readonly file: string;
  /** The record of an archive, or the part of a file, that holds the pickle. */
  readonly record?: string | undefined;
}

/** Where to start in the bytes, what to call them, and how to read them. */
export interface UnpickleOptions extends PickleOrigin {
  /** Place of the first opcode, in bytes. */
  readonly start?: number | undefined;
  /**
   * What the strings of Python 2 are encoded in. By default UTF-8, and a string that is not is taken as Latin-1;
   * an encoding that is given holds for all, and `"bytes"` leaves them as `Uint8Array`.
   */
  readonly encoding?: Python2Encoding | undefined;
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
 * shared values stay shared. The dearest byte is an opcode for an empty dict or set, at about 250 bytes of memory.
 *
 * @throws FormatError for a stream that is cut short (its `found` is then {@link END_OF_STREAM}) or not a valid pickle.
 * @throws UnsupportedError for a stream that is valid only together with something outside of it.
 * @throws whatever a handler throws; see {@link PickleHandlers}.
 */
export function unpickle(bytes: Uint8Array, handlers: PickleHandlers, options: UnpickleOptions): Unpickled {
  // One type of array, whatever the caller's is: reading a byte is the hottest thing there is.
  const own = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const machine = new Machine(own, handlers, options, true);
  try {
    return machine.run();
  } catch (error) {
    if (error === SKIPPED) return new Machine(own, handlers, options, false).run();
    throw error;
  }
}

/** Thrown when a value is wanted that a shortcut did not make. */
const SKIPPED: unique symbol = Symbol("skipped");

class Machine {
  readonly #reader: PickleReader;
  readonly #handlers: PickleHandlers;
  readonly #options: UnpickleOptions;
  /** Whether values that nothing is expected to ask for may be left out. */
  readonly #shortcuts: boolean;
  readonly #memo = new Memo();
  /** The values; what lies above {@link #height} is left over. Starts with an object, to be an array of any values. */
  readonly #stack: unknown[] = [null];
  #height = 0;
  /** Heights of the stack at each open MARK. */
  readonly #marks: number[] = [];
  /** The height at the last open MARK, which no opcode pops beyond; 0 without one. */
  #floor = 0;

  constructor(bytes: Uint8Array, handlers: PickleHandlers, options: UnpickleOptions, shortcuts: boolean) {
    this.#reader = new PickleReader(bytes, options.start ?? 0);
    this.#handlers = handlers;
    this.#options = options;
    this.#shortcuts = shortcuts;
  }

  /**
   * The opcodes of which checkpoints are made. The cases are literals and the state is in local variables, which is what
   * engines turn into a jump table and registers; a file is read in the time that they take to get warm.
   */
  run(): Unpickled {
    const reader = this.#reader;
    const handlers = this.#handlers;
    const memo = this.#memo;
    const stack = this.#stack;
    const marks = this.#marks;
    const { bytes } = reader;
    const end = bytes.length;
    const shortcut = this.#shortcuts ? handlers.tensors : undefined;
    const run = shortcut === undefined ? undefined : new TensorRun(reader, memo, shortcut);
    const rebuild = shortcut?.rebuild;
    const rebuildParameter = shortcut?.parameters?.rebuild;
    let at = reader.position;
    let opcodeAt = at;
    let height = 0;
    let floor = 0;
    try {
      for (;;) {
        opcodeAt = at;
        if (at >= end) throw new PickleFault("the stream ends early: no STOP", "STOP", END_OF_STREAM);
        switch (bytes[at++]) {
          case 0x71: // BINPUT
            if (at >= end) throw cutShort(1, 0);
            if (height <= floor) throw underflow(1, height - floor);
            memo.set(bytes[at] as number, stack[height - 1], at);
            at += 1;
            break;
          case 0x72: // LONG_BINPUT
            if (at + 4 > end) throw cutShort(4, end - at);
            if (height <= floor) throw underflow(1, height - floor);
            memo.set(int32At(bytes, at) >>> 0, stack[height - 1], at);
            at += 4;
            break;
          case 0x68: // BINGET
          case 0x6a: {
            // LONG_BINGET
            const width = bytes[opcodeAt] === 0x68 ? 1 : 4;
            if (at + width > end) throw cutShort(width, end - at);
            const value = memo.get(width === 1 ? (bytes[at] as number) : int32At(bytes, at) >>> 0);
            at += width;
            if (value === undefined)
              throw this.#unknownIndex(width === 1 ? (bytes[at - 1] as number) : int32At(bytes, at - 4) >>> 0);
            if (run !== undefined && (value === rebuild || value === rebuildParameter)) {
              const behind = run.read(value, at);
              if (behind !== 0) {
                at = behind;
                stack[height++] = run.value;
                break;
              }
            }
            stack[height++] = value;
            break;
          }
          case 0x28: // MARK
            marks.push(height);
            floor = height;
            break;
          case 0x58: {
            // BINUNICODE
            if (at + 4 > end) throw cutShort(4, end - at);
            reader.position = at + 4;
            stack[height++] = reader.text(int32At(bytes, at) >>> 0);
            at = reader.position;
            break;
          }
          case 0x4b: // BININT1
            if (at >= end) throw cutShort(1, 0);
            stack[height++] = bytes[at++];
            break;
          case 0x4d: // BININT2
            if (at + 2 > end) throw cutShort(2, end - at);
            stack[height++] = (bytes[at] as number) | ((bytes[at + 1] as number) << 8);
            at += 2;
            break;
          case 0x4a: // BININT
            if (at + 4 > end) throw cutShort(4, end - at);
            stack[height++] = int32At(bytes, at);
            at += 4;
            break;
          case 0x47: // BINFLOAT
            if (at + 8 > end) throw cutShort(8, end - at);
            stack[height++] = float64At(bytes, at);
            at += 8;
            break;
          case 0x4e: // NONE
            stack[height++] = null;
            break;
          case 0x88: // NEWTRUE
            stack[height++] = true;
            break;
          case 0x89: // NEWFALSE
            stack[height++] = false;
            break;
          case 0x7d: // EMPTY_DICT
            stack[height++] = new Map();
            break;
          case 0x5d: // EMPTY_LIST
            stack[height++] = [];
            break;
          case 0x29: // EMPTY_TUPLE
            stack[height++] = tupleOf([]);
            break;
          case 0x85: // TUPLE1
          case 0x86: // TUPLE2
          case 0x87: // TUPLE3
          case 0x74: {
            // TUPLE
            const opcode = bytes[opcodeAt] as number;
            let from = height - (opcode - 0x84);
            if (opcode === 0x74) {
              from = floor;
              if (marks.pop() === undefined) throw noMark();
              floor = marks.length === 0 ? 0 : (marks[marks.length - 1] as number);
            } else if (from < floor) {
              throw underflow(opcode - 0x84, height - floor);
            }
            // Most tuples are the arguments of a call that follows at once, and then gone.
            const call = this.#shortcuts && from > floor ? this.#callBehind(at) : 0;
            if (call === 0) {
              stack[from] = tupleOf(stack, from, height);
              height = from + 1;
              break;
            }
            const args = stack.slice(from, height);
            height = from;
            opcodeAt = call;
            at = call + 1;
            const callable = stack[height - 1];
            stack[height - 1] =
              bytes[call] === 0x52 ? handlers.reduce(callable, args) : handlers.newObject(callable, args, undefined);
            break;
          }
          case 0x52: {
            // REDUCE
            if (height - 2 < floor) throw underflow(2, height - floor);
            height--;
            stack[height - 1] = handlers.reduce(stack[height - 1], argumentsOf(stack[height]));
            break;
          }
          case 0x51: // BINPERSID
            if (height <= floor) throw underflow(1, height - floor);
            stack[height - 1] = handlers.persistentLoad(stack[height - 1]);
            break;
          case 0x75: {
            // SETITEMS
            const from = floor;
            if (marks.pop() === undefined) throw noMark();
            floor = marks.length === 0 ? 0 : (marks[marks.length - 1] as number);
            if (from <= floor) throw underflow(1, from - floor);
            setItems(handlers, stack[from - 1], stack, from, height);
            height = from;
            break;
          }
          case 0x73: // SETITEM
            if (height - 3 < floor) throw underflow(3, height - floor);
            setItems(handlers, stack[height - 3], stack, height - 2, height);
            height -= 2;
            break;
          case 0x65: {
            // APPENDS
            const from = floor;
            if (marks.pop() === undefined) throw noMark();
            floor = marks.length === 0 ? 0 : (marks[marks.length - 1] as number);
            if (from <= floor) throw underflow(1, from - floor);
            extend(handlers, stack[from - 1], stack, from, height);
            height = from;
            break;
          }
          case 0x61: // APPEND
            if (height - 2 < floor) throw underflow(2, height - floor);
            extend(handlers, stack[height - 2], stack, height - 1, height);
            height--;
            break;
          case 0x62: // BUILD
            if (height - 2 < floor) throw underflow(2, height - floor);
            height--;
            stack[height - 1] = handlers.build(stack[height - 1], stack[height]);
            break;
          case 0x2e: // STOP
            if (height <= floor) throw underflow(1, height - floor);
            return { value: stack[height - 1], end: at };
          default:
            reader.position = at;
            this.#height = height;
            this.#floor = floor;
            this.#rare(bytes[opcodeAt] as number);
            at = reader.position;
            height = this.#height;
            floor = this.#floor;
        }
      }
    } catch (error) {
      throw this.#errorFor(error, opcodeAt);
    }
  }

  /** Opcodes that a checkpoint has a few times, if at all. */
  #rare(opcode: number): void {
    const reader = this.#reader;
    const handlers = this.#handlers;
    switch (opcode) {
      case 0x80: {
        // PROTO
        const protocol = reader.uint8();
        if (protocol > HIGHEST_PROTOCOL) {
          throw new PickleFault(`protocol ${protocol} is not known`, `at most ${HIGHEST_PROTOCOL}`, protocol);
        }
        return;
      }
      case 0x95: {
        // FRAME
        const length = reader.length64();
        const left = reader.bytes.length - reader.position;
        if (length > left) throw cutShort(length, left);
        return;
      }
      case 0x63: // GLOBAL
        return this.#push(this.#global(reader.name(), reader.name()));
      case 0x93: {
        // STACK_GLOBAL
        const name = this.#pop();
        const module = this.#pop();
        if (typeof name !== "string" || typeof module !== "string") {
          throw new PickleFault("module and name are not text", "two strings", `${typeof module} and ${typeof name}`);
        }
        return this.#push(this.#global(module, name));
      }
      case 0x8a: // LONG1
        return this.#push(reader.integer(reader.uint8()));
      case 0x8b: // LONG4
        return this.#push(reader.integer(reader.length32()));
      case 0x49: {
        // INT
        const text = reader.line();
        return this.#push(text === "00" || text === "01" ? text === "01" : integerOf(text));
      }
      case 0x4c: // LONG
        return this.#push(integerOf(reader.line().replace(/L$/, "")));
      case 0x46: {
        // FLOAT
        const text = reader.line();
        const value = parseFloating(text);
        if (value === undefined) throw new PickleFault("not a number", "a float", shown(text));
        return this.#push(value);
      }
      case 0x94: // MEMOIZE
        if (this.#memo.skipped) throw SKIPPED;
        return this.#memo.set(this.#memo.count, this.#top(), reader.position);
      case 0x70: // PUT
        return this.#memo.set(memoIndex(reader.line()), this.#top(), reader.position);
      case 0x67: {
        // GET
        const index = memoIndex(reader.line());
        const value = this.#memo.get(index);
        if (value === undefined) throw this.#unknownIndex(index);
        return this.#push(value);
      }
      case 0x30: // POP
        // A MARK on top of the stack is what POP takes.
        if (this.#marks.length > 0 && this.#height === this.#floor) this.#popMark();
        else this.#pop();
        return;
      case 0x31: // POP_MARK
        this.#popMark();
        return;
      case 0x32: // DUP
        return this.#push(this.#top());
      case 0x8c: // SHORT_BINUNICODE
        return this.#push(reader.text(reader.uint8()));
      case 0x8d: // BINUNICODE8
        return this.#push(reader.text(reader.length64()));
      case 0x56: {
        // UNICODE
        const text = decodeRawUnicodeEscape(reader.line());
        if (text === undefined) throw new PickleFault("the text has a broken escape");
        return this.#push(text);
      }
      case 0x55: // SHORT_BINSTRING
        return this.#push(this.#python2(reader.view(reader.uint8())));
      case 0x54: // BINSTRING
        return this.#push(this.#python2(reader.view(reader.length32())));
      case 0x53: // STRING
        return this.#push(this.#python2(unquote(reader.lineBytes())));
      case 0x43: // SHORT_BINBYTES
        return this.#push(reader.copy(reader.uint8()));
      case 0x42: // BINBYTES
        return this.#push(reader.copy(reader.uint32()));
      case 0x8e: // BINBYTES8
        return this.#push(reader.copy(reader.length64()));
      case 0x96: // BYTEARRAY8
        return this.#push(reader.byteArray(reader.length64()));
      case 0x6c: // LIST
        return this.#push(this.#popMark());
      case 0x64: {
        // DICT
        const items = this.#popMark();
        const dict = new Map();
        setItems(handlers, dict, items, 0, items.length);
        return this.#push(dict);
      }
      case 0x8f: // EMPTY_SET
        return this.#push(new Set());
      case 0x90: {
        // ADDITEMS
        const items = this.#popMark();
        const target = this.#top();
        if (target instanceof FrozenSet)
          throw new PickleFault("items are added to a frozenset", "a set", "a frozenset");
        if (target instanceof Set) addItems(target, items);
        else handlers.extend(target, items);
        return;
      }
      case 0x91: {
        // FROZENSET
        const set = new FrozenSet();
        addItems(set, this.#popMark());
        return this.#push(set);
      }
      case 0x50: // PERSID
        return this.#push(handlers.persistentLoad(reader.name()));
      case 0x69: {
        // INST
        const cls = this.#global(reader.name(), reader.name());
        return this.#push(handlers.newObject(cls, this.#popMark(), undefined));
      }
      case 0x6f: {
        // OBJ
        const items = this.#popMark();
        if (items.length === 0) throw new PickleFault("no class above the MARK", "a class", "a MARK");
        return this.#push(handlers.newObject(items[0], items.slice(1), undefined));
      }
      case 0x81: {
        // NEWOBJ
        const args = argumentsOf(this.#pop());
        return this.#push(handlers.newObject(this.#pop(), args, undefined));
      }
      case 0x92: {
        // NEWOBJ_EX
        const kwargs = this.#pop();
        if (!(kwargs instanceof Map))
          throw new PickleFault("the keyword arguments are no dict", "a dict", typeof kwargs);
        const args = argumentsOf(this.#pop());
        return this.#push(handlers.newObject(this.#pop(), args, kwargs));
      }
      case 0x82: // EXT1
      case 0x83: // EXT2
      case 0x84: // EXT4
        throw new PickleFault(
          "a class is named by its number in the extension registry (copyreg) of the process that wrote it",
          "a name",
          "a number",
          "pickle's extension registry",
        );
      case 0x97: // NEXT_BUFFER
      case 0x98: // READONLY_BUFFER
        throw new PickleFault(
          "a buffer was pickled out of band, apart from this stream",
          "a buffer in the stream",
          "none",
          "pickle's out-of-band buffers",
        );
      default:
        throw new PickleFault("there is no such opcode", "an opcode", opcodeName(opcode));
    }
  }

  /**
   * The place of a REDUCE or NEWOBJ that follows a tuple at `at`, with or without a PUT between them that is left out;
   * 0 when another opcode follows.
   */
  #callBehind(at: number): number {
    const { bytes } = this.#reader;
    const memo = this.#memo;
    const put = bytes[at];
    let call = at;
    let index = -1;
    if (put === 0x71 && at + 2 < bytes.length) {
      call = at + 2;
      index = bytes[at + 1] as number;
    } else if (put === 0x72 && at + 5 < bytes.length) {
      call = at + 5;
      index = int32At(bytes, at + 1) >>> 0;
    }
    if (bytes[call] !== 0x52 && bytes[call] !== 0x81) return 0;
    if (index >= 0) {
      // A lower index may hold a value that would stay.
      if (index < memo.top || index > at) return 0;
      memo.top = index + 1;
      memo.skipped = true;
    }
    return call;
  }

  #unknownIndex(index: number): unknown {
    return this.#memo.skipped ? SKIPPED : new PickleFault(`memo ${index} was never set`, "a memoised value", index);
  }

  #push(value: unknown): void {
    this.#stack[this.#height++] = value;
  }

  #top(): unknown {
    if (this.#height <= this.#floor) throw underflow(1, this.#height - this.#floor);
    return this.#stack[this.#height - 1];
  }

  #pop(): unknown {
    const value = this.#top();
    this.#height--;
    return value;
  }

  /** The values above the last MARK, which go with it. */
  #popMark(): unknown[] {
    const marks = this.#marks;
    const from = marks.pop();
    if (from === undefined) throw noMark();
    const items = this.#stack.slice(from, this.#height);
    this.#height = from;
    this.#floor = marks.length === 0 ? 0 : (marks[marks.length - 1] as number);
    return items;
  }

  #global(module: string, name: string): unknown {
    const [newModule, newName] = python3Name(module, name);
    return this.#handlers.findGlobal(newModule, newName);
  }

  #python2(bytes: Uint8Array): string | Uint8Array {
    const { encoding } = this.#options;
    const text = decodePython2(bytes, encoding);
    if (text === undefined) {
      throw new PickleFault(
        `a string of Python 2 is not ${encoding}; encoding: "latin1" reads any, "bytes" leaves them undecoded`,
        encoding,
        "other bytes",
      );
    }
    return text;
  }

  /** The error to throw for what was thrown while the opcode at a place was carried out. */
  #errorFor(error: unknown, opcodeAt: number): unknown {
    if (error === SKIPPED || isTorchloadError(error)) return error;
    const own = error instanceof PickleFault;
    const foreign = error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError;
    if (!own && !foreign) return error;
    const { bytes } = this.#reader;
    const { file, record } = this.#options;
    const where = record === undefined ? "pickle" : `pickle "${record}"`;
    const opcode = opcodeAt < bytes.length ? `, opcode ${opcodeName(bytes[opcodeAt] as number)}` : "";
    const message = `Cannot load "${file}": ${where} at byte ${opcodeAt}${opcode}: ${error.message}`;
    if (!own) return new FormatError(message, { file, record, byteOffset: opcodeAt, cause: error });
    const { expected, found, feature } = error;
    if (feature !== undefined) return new UnsupportedError(message, { file, feature });
    return new FormatError(message, { file, record, byteOffset: opcodeAt, expected, found });
  }
}

function underflow(wanted: number, there: number): PickleFault {
  return new PickleFault(`the stack is empty: ${wanted} values wanted, ${there} are there`, wanted, there);
}

function noMark(): PickleFault {
  return new PickleFault("no MARK is open", "a MARK", "none");
}

function argumentsOf(value: unknown): readonly unknown[] {
  if (value instanceof Tuple) return value;
  throw new PickleFault("the arguments are not a tuple", "a tuple", Array.isArray(value) ? "a list" : typeof value);
}

/** Sets `stack[start]` and so on, alternating keys and values. */
function setItems(
  handlers: PickleHandlers,
  target: unknown,
  stack: readonly unknown[],
  start: number,
  end: number,
): void {
  if ((end - start) % 2 !== 0) throw new PickleFault("a key without a value", "pairs", `${end - start} values`);
  if (!(target instanceof Map)) {
    handlers.setItems(target, stack.slice(start, end));
    return;
  }
  for (let k = start; k < end; k += 2) {
    const key = stack[k];
    target.set(typeof key === "string" ? key : hashable(target, key), stack[k + 1]);
  }
}

function extend(
  handlers: PickleHandlers,
  target: unknown,
  stack: readonly unknown[],
  start: number,
  end: number,
): void {
  if (!Array.isArray(target)) handlers.extend(target, stack.slice(start, end));
  else if (target instanceof Tuple) throw new PickleFault("items are added to a tuple", "a list", "a tuple");
  else for (let k = start; k < end; k++) target.push(stack[k]);
}

function addItems(target: Set<unknown>, items: readonly unknown[]): void {
  for (const item of items) target.add(hashable(target, item));
}

/** The key under which Python would find a value in a dict or set. */
function hashable(target: { has(key: unknown): boolean }, key: unknown): unknown {
  switch (typeof key) {
    case "boolean":
      return target.has(Number(key)) ? Number(key) : key;
    case "number":
      return (key === 0 || key === 1) && target.has(key === 1) ? key === 1 : key;
    case "object": {
      const type = unhashableType(key);
      if (type !== undefined) throw new PickleFault(`a key of type ${type}`, "a hashable value", type);
      return key;
    }
    default:
      return key;
  }
}

/** A Python string literal without its quotes, its escapes resolved. */
function unquote(line: Uint8Array): Uint8Array {
  let end = line.length;
  while (end > 0 && isSpace(line[end - 1] as number)) end--;
  const quote = line[0];
  const quoted = end >= 2 && (quote === 0x22 || quote === 0x27) && line[end - 1] === quote;
  const raw = quoted ? unescapeBytes(line.subarray(1, end - 1)) : undefined;
  if (raw === undefined) throw new PickleFault("the text is not a quoted string", "a quoted string");
  return raw;
}

function isSpace(code: number): boolean {
  return code === 0x20 || (code >= 0x09 && code <= 0x0d);
}

function integerOf(text: string): number | bigint {
  if (text.length > MAX_DECIMAL_DIGITS) {
    throw new PickleFault(
      `an integer of ${text.length} digits`,
      MAX_DECIMAL_DIGITS,
      text.length,
      `integers of more than ${MAX_DECIMAL_DIGITS} digits`,
    );
  }
  const value = parseInteger(text);
  if (value === undefined) throw new PickleFault("not an integer", "an integer", shown(text));
  return value;
}

function memoIndex(text: string): number {
  if (!/^[0-9]{1,10}$/.test(text.trim()) || Number(text) > MAX_MEMO_INDEX) {
    throw new PickleFault("not a memo index", "a number of 32 bits", shown(text));
  }
  return Number(text);
}

/** The start of a text, for messages. */
function shown(text: string): string {
  return JSON.stringify(text.slice(0, 40));
}
