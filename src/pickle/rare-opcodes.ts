/**
 * The opcodes that a checkpoint has a few times, if at all, and those of protocol 0, whose arguments are lines of text.
 *
 * @module
 */
import { addItems, setItems } from "./containers.js";
import type { PickleHandlers } from "./handlers.js";
import { type Memo, SKIPPED, unknownIndex } from "./memo.js";
import { MAX_DECIMAL_DIGITS, parseFloating, parseInteger } from "./numbers.js";
import { HIGHEST_PROTOCOL, opcodeName } from "./opcodes.js";
import { python3Name } from "./python2-names.js";
import { PickleFault, type PickleReader } from "./reader.js";
import type { PickleStack } from "./stack.js";
import { decodePython2, decodeRawUnicodeEscape, type Python2Encoding, unescapeBytes } from "./text.js";
import { FrozenSet, Tuple } from "./values.js";

/** The highest index that LONG_BINPUT can write; text could write any. */
const MAX_MEMO_INDEX = 0xffffffff;

/** What a machine is made of. */
export interface MachineParts {
  readonly reader: PickleReader;
  readonly stack: PickleStack;
  readonly memo: Memo;
  readonly handlers: PickleHandlers;
  readonly encoding: Python2Encoding | undefined;
}

/** Carries out an opcode that is not one of the main loop's. */
export function carryOutRare(opcode: number, machine: MachineParts): void {
  const { reader, stack, memo, handlers } = machine;
  switch (opcode) {
    case 0x80: {
      // PROTO
      const protocol = reader.uint8();
      if (protocol > HIGHEST_PROTOCOL) {
        throw new PickleFault(`protocol ${protocol} is not known`, `at most ${HIGHEST_PROTOCOL}`, protocol);
      }
      return;
    }
    case 0x95: // FRAME
      // Advice on how much to read ahead. Python's two unpicklers differ on a length that is too large, and whoever looks
      // for what a hostile stream calls has to look behind it. What is really missing is noticed where it is wanted.
      reader.take(8);
      return;
    case 0x63: // GLOBAL
      return stack.push(globalOf(handlers, reader.name(), reader.name()));
    case 0x93: {
      // STACK_GLOBAL
      const name = stack.pop();
      const module = stack.pop();
      if (typeof name !== "string" || typeof module !== "string") {
        throw new PickleFault("module and name are not text", "two strings", `${typeof module} and ${typeof name}`);
      }
      return stack.push(globalOf(handlers, module, name));
    }
    case 0x8a: // LONG1
      return stack.push(reader.integer(reader.uint8()));
    case 0x8b: // LONG4
      return stack.push(reader.integer(reader.length32()));
    case 0x49: {
      // INT
      const text = reader.line();
      return stack.push(text === "00" || text === "01" ? text === "01" : integerOf(text));
    }
    case 0x4c: // LONG
      return stack.push(integerOf(reader.line().replace(/L$/, "")));
    case 0x46: {
      // FLOAT
      const text = reader.line();
      const value = parseFloating(text);
      if (value === undefined) throw new PickleFault("not a number", "a float", shown(text));
      return stack.push(value);
    }
    case 0x94: // MEMOIZE
      if (memo.skipped) throw SKIPPED;
      return memo.set(memo.count, stack.top(), reader.position);
    case 0x70: // PUT
      return memo.set(memoIndex(reader.line()), stack.top(), reader.position);
    case 0x67: {
      // GET
      const index = memoIndex(reader.line());
      const value = memo.get(index);
      if (value === undefined) throw unknownIndex(memo, index);
      return stack.push(value);
    }
    case 0x30: // POP
      // A MARK on top of the stack is what POP takes.
      if (stack.marks.length > 0 && stack.height === stack.floor) stack.popMark();
      else stack.pop();
      return;
    case 0x31: // POP_MARK
      stack.popMark();
      return;
    case 0x32: // DUP
      return stack.push(stack.top());
    case 0x8c: // SHORT_BINUNICODE
      return stack.push(reader.text(reader.uint8()));
    case 0x8d: // BINUNICODE8
      return stack.push(reader.text(reader.length64()));
    case 0x56: {
      // UNICODE
      const text = decodeRawUnicodeEscape(reader.line());
      if (text === undefined) throw new PickleFault("the text has a broken escape");
      return stack.push(text);
    }
    case 0x55: // SHORT_BINSTRING
      return stack.push(python2(machine.encoding, reader.view(reader.uint8())));
    case 0x54: // BINSTRING
      return stack.push(python2(machine.encoding, reader.view(reader.length32())));
    case 0x53: // STRING
      return stack.push(python2(machine.encoding, unquote(reader.lineBytes())));
    case 0x43: // SHORT_BINBYTES
      return stack.push(reader.copy(reader.uint8()));
    case 0x42: // BINBYTES
      return stack.push(reader.copy(reader.uint32()));
    case 0x8e: // BINBYTES8
      return stack.push(reader.copy(reader.length64()));
    case 0x96: // BYTEARRAY8
      return stack.push(reader.byteArray(reader.length64()));
    case 0x6c: // LIST
      return stack.push(stack.popMark());
    case 0x64: {
      // DICT
      const items = stack.popMark();
      const dict = new Map();
      setItems(handlers, dict, items, 0, items.length);
      return stack.push(dict);
    }
    case 0x8f: // EMPTY_SET
      return stack.push(new Set());
    case 0x90: {
      // ADDITEMS
      const items = stack.popMark();
      const target = stack.top();
      if (target instanceof FrozenSet) throw new PickleFault("items are added to a frozenset", "a set", "a frozenset");
      if (target instanceof Set) addItems(target, items);
      else handlers.extend(target, items);
      return;
    }
    case 0x91: {
      // FROZENSET
      const set = new FrozenSet();
      addItems(set, stack.popMark());
      return stack.push(set);
    }
    case 0x50: // PERSID
      return stack.push(handlers.persistentLoad(reader.name()));
    case 0x69: {
      // INST
      const cls = globalOf(handlers, reader.name(), reader.name());
      return stack.push(handlers.newObject(cls, stack.popMark(), undefined));
    }
    case 0x6f: {
      // OBJ
      const items = stack.popMark();
      if (items.length === 0) throw new PickleFault("no class above the MARK", "a class", "a MARK");
      return stack.push(handlers.newObject(items[0], items.slice(1), undefined));
    }
    case 0x81: {
      // NEWOBJ
      const args = argumentsOf(stack.pop());
      return stack.push(handlers.newObject(stack.pop(), args, undefined));
    }
    case 0x92: {
      // NEWOBJ_EX
      const kwargs = stack.pop();
      if (!(kwargs instanceof Map)) throw new PickleFault("the keyword arguments are no dict", "a dict", typeof kwargs);
      const args = argumentsOf(stack.pop());
      return stack.push(handlers.newObject(stack.pop(), args, kwargs));
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

/** What stands for a global, by its name in Python 2 or 3. */
function globalOf(handlers: PickleHandlers, module: string, name: string): unknown {
  const [newModule, newName] = python3Name(module, name);
  return handlers.findGlobal(newModule, newName);
}

function python2(encoding: Python2Encoding | undefined, bytes: Uint8Array): string | Uint8Array {
  const text = decodePython2(bytes, encoding);
  if (text !== undefined) return text;
  throw new PickleFault(
    `a string of Python 2 is not ${encoding}; encoding: "latin1" reads any, "bytes" leaves them undecoded`,
    encoding,
    "other bytes",
  );
}

/** The arguments of a call. */
export function argumentsOf(value: unknown): readonly unknown[] {
  if (value instanceof Tuple) return value;
  throw new PickleFault("the arguments are not a tuple", "a tuple", Array.isArray(value) ? "a list" : typeof value);
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
