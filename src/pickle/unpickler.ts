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
import { extend, setItems } from "./containers.js";
import type { PickleHandlers } from "./handlers.js";
import { Memo, SKIPPED, unknownIndex } from "./memo.js";
import { opcodeName } from "./opcodes.js";
import { argumentsOf, carryOutRare, type MachineParts } from "./rare-opcodes.js";
import { cutShort, END_OF_STREAM, float64At, int32At, PickleFault, PickleReader } from "./reader.js";
import { lastOf, noMark, PickleStack, underflow } from "./stack.js";
import { TensorRun } from "./tensor-shortcut.js";
import type { Python2Encoding } from "./text.js";
import { EMPTY_TUPLE, tupleOf } from "./values.js";

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

class Machine implements MachineParts {
  readonly reader: PickleReader;
  readonly stack = new PickleStack();
  readonly memo = new Memo();
  readonly handlers: PickleHandlers;
  readonly encoding: Python2Encoding | undefined;
  readonly #origin: PickleOrigin;
  /** Whether values that nothing is expected to ask for may be left out. */
  readonly #shortcuts: boolean;

  constructor(bytes: Uint8Array, handlers: PickleHandlers, options: UnpickleOptions, shortcuts: boolean) {
    this.reader = new PickleReader(bytes, options.start ?? 0);
    this.handlers = handlers;
    this.encoding = options.encoding;
    this.#origin = options;
    this.#shortcuts = shortcuts;
  }

  /**
   * The opcodes of which checkpoints are made. The cases are literals and the state is in local variables, which is what
   * engines turn into a jump table and registers; a file is read in the time that they take to get warm.
   */
  run(): Unpickled {
    const { reader, handlers, memo } = this;
    const { values: stack, marks } = this.stack;
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
              throw unknownIndex(memo, width === 1 ? (bytes[at - 1] as number) : int32At(bytes, at - 4) >>> 0);
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
            stack[height++] = EMPTY_TUPLE;
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
              floor = lastOf(marks);
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
            floor = lastOf(marks);
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
            floor = lastOf(marks);
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
            this.stack.height = height;
            this.stack.floor = floor;
            carryOutRare(bytes[opcodeAt] as number, this);
            at = reader.position;
            height = this.stack.height;
            floor = this.stack.floor;
        }
      }
    } catch (error) {
      throw this.#errorFor(error, opcodeAt);
    }
  }

  /**
   * The place of a REDUCE or NEWOBJ that follows a tuple at `at`, with or without a PUT between them that is left out;
   * 0 when another opcode follows.
   */
  #callBehind(at: number): number {
    const { bytes } = this.reader;
    const { memo } = this;
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

  /** The error to throw for what was thrown while the opcode at a place was carried out. */
  #errorFor(error: unknown, opcodeAt: number): unknown {
    if (error === SKIPPED || isTorchloadError(error)) return error;
    const own = error instanceof PickleFault;
    const foreign = error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError;
    if (!own && !foreign) return error;
    const { bytes } = this.reader;
    const { file, record } = this.#origin;
    const where = record === undefined ? "pickle" : `pickle "${record}"`;
    const opcode = opcodeAt < bytes.length ? `, opcode ${opcodeName(bytes[opcodeAt] as number)}` : "";
    const message = `Cannot load "${file}": ${where} at byte ${opcodeAt}${opcode}: ${error.message}`;
    if (!own) return new FormatError(message, { file, record, byteOffset: opcodeAt, cause: error });
    const { expected, found, feature } = error;
    if (feature !== undefined) return new UnsupportedError(message, { file, feature });
    return new FormatError(message, { file, record, byteOffset: opcodeAt, expected, found });
  }
}
