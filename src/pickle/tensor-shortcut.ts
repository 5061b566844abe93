/**
 * The run of opcodes that `torch.save` writes for a tensor, read field by field (protocol 2, from the second tensor on,
 * when the names in it are memoised):
 *
 *     BINGET _rebuild_tensor_v2, MARK,
 *       MARK, BINGET 'storage', BINGET class, BINUNICODE key + PUT (or BINGET), BINGET location, int numel, TUPLE + PUT,
 *       BINPERSID, int offset, size tuple + PUT, stride tuple + PUT, NEWFALSE or NEWTRUE,
 *       BINGET OrderedDict, EMPTY_TUPLE, REDUCE + PUT, TUPLE + PUT, REDUCE
 *
 * Legacy files have a NONE behind numel; PyTorch's C++ pickler leaves out the PUTs of tuples. A parameter is
 *
 *     BINGET _rebuild_parameter, (run of the tensor) + PUT, NEWFALSE or NEWTRUE,
 *       BINGET OrderedDict, EMPTY_TUPLE, REDUCE + PUT, TUPLE3 + PUT, REDUCE
 *
 * The values in between are not made, and their places in the memo stay empty.
 *
 * @module
 */
import type { TensorShortcut } from "./handlers.js";
import type { Memo } from "./memo.js";
import { int32At, type PickleReader } from "./reader.js";
import { isAscii } from "./text.js";

/** More bytes than any recognised run has: a key of 255, twice 64 dimensions of 5 bytes, less than 200 around them. */
const LONGEST_RUN = 1200;
const MAX_DIMENSIONS = 64;

/** How many shapes are remembered, a power of two: models have many tensors of few shapes. */
const REMEMBERED = 64;

const NO_DIMENSIONS: readonly number[] = Object.freeze([]);

/** Reads runs. A step that does not fit sets `#failed`, and the machine goes its usual way. */
export class TensorRun {
  /** What the run that was read last gives. */
  value: unknown = undefined;
  readonly #reader: PickleReader;
  readonly #bytes: Uint8Array;
  readonly #memo: Memo;
  readonly #shortcut: TensorShortcut;
  readonly #rebuild: unknown;
  readonly #rebuildParameter: unknown;
  #at = 0;
  /** One more than the highest memo index so far. A lower one may hold a value that would stay, so none is skipped. */
  #top = 0;
  #failed = false;
  /** The items of the tuple being read. */
  readonly #items: number[] = new Array<number>(MAX_DIMENSIONS).fill(0);
  readonly #shapes: (readonly number[])[] = new Array<readonly number[]>(REMEMBERED).fill(NO_DIMENSIONS);

  constructor(reader: PickleReader, memo: Memo, shortcut: TensorShortcut) {
    this.#reader = reader;
    this.#bytes = reader.bytes;
    this.#memo = memo;
    this.#shortcut = shortcut;
    this.#rebuild = shortcut.rebuild;
    // Nothing that the memo holds is equal to `this`.
    this.#rebuildParameter = shortcut.parameters?.rebuild ?? this;
  }

  /**
   * Reads a run from behind its first BINGET, which gave `callable`. Gives the place behind the run, or 0 when the bytes
   * are not one; the memo is changed only in the first case.
   */
  read(callable: unknown, start: number): number {
    const parameter = callable === this.#rebuildParameter;
    if (!parameter && callable !== this.#rebuild) return 0;
    const bytes = this.#bytes;
    if (start + LONGEST_RUN > bytes.length) return 0;
    this.#at = start;
    this.#top = this.#memo.top;
    this.#failed = false;
    if (parameter && this.#got() !== this.#rebuild) return 0;
    // MARK MARK
    if (bytes[this.#at] !== 0x28 || bytes[this.#at + 1] !== 0x28) return 0;
    this.#at += 2;
    if (this.#got() !== "storage") return 0;
    const storageClass = this.#got();
    let key: unknown;
    let keyIndex = -1;
    // BINUNICODE
    if (bytes[this.#at] === 0x58) {
      const length = int32At(bytes, this.#at + 1);
      if (length < 0 || length > 255) return 0;
      const from = this.#at + 5;
      this.#at = from + length;
      if (!isAscii(bytes, from, this.#at)) return 0;
      key = this.#reader.digits(from, this.#at);
      keyIndex = this.#put();
    } else {
      key = this.#got();
    }
    const location = this.#got();
    const numel = this.#int();
    // NONE
    if (bytes[this.#at] === 0x4e) this.#at++;
    this.#expect(0x74); // TUPLE
    this.#put();
    this.#expect(0x51); // BINPERSID
    const storageOffset = this.#int();
    const size = this.#tuple();
    const stride = this.#tuple();
    const tensorFlag = this.#flag();
    this.#hooks();
    this.#expect(0x74); // TUPLE
    this.#put();
    this.#expect(0x52); // REDUCE
    let tensorIndex = -1;
    let parameterFlag = false;
    if (parameter) {
      tensorIndex = this.#put();
      parameterFlag = this.#flag();
      this.#hooks();
      this.#expect(0x87); // TUPLE3
      this.#put();
      this.#expect(0x52); // REDUCE
    }
    if (this.#failed || typeof key !== "string" || typeof location !== "string") return 0;
    const memo = this.#memo;
    const shortcut = this.#shortcut;
    let value = shortcut.make(storageClass, key, location, numel, storageOffset, size, stride, tensorFlag);
    if (keyIndex >= 0) memo.set(keyIndex, key, start);
    if (tensorIndex >= 0) memo.set(tensorIndex, value, start);
    memo.top = this.#top;
    memo.skipped = true;
    if (parameter) value = shortcut.parameters?.make(value, parameterFlag);
    this.value = value;
    return this.#at;
  }

  #expect(opcode: number): void {
    if (this.#bytes[this.#at++] !== opcode) this.#failed = true;
  }

  /** BINGET or LONG_BINGET of an index that has a value. */
  #got(): unknown {
    const at = this.#at;
    const opcode = this.#bytes[at];
    let value: unknown;
    if (opcode === 0x68) {
      this.#at = at + 2;
      value = this.#memo.first[this.#bytes[at + 1] as number];
    } else if (opcode === 0x6a) {
      this.#at = at + 5;
      value = this.#memo.get(int32At(this.#bytes, at + 1) >>> 0);
    }
    if (value === undefined) this.#failed = true;
    return value;
  }

  /** BINPUT or LONG_BINPUT of an index that is not taken, or none. Gives the index, or -1. */
  #put(): number {
    const at = this.#at;
    const opcode = this.#bytes[at];
    let index: number;
    if (opcode === 0x72) {
      this.#at = at + 5;
      index = int32At(this.#bytes, at + 1) >>> 0;
    } else if (opcode === 0x71) {
      this.#at = at + 2;
      index = this.#bytes[at + 1] as number;
    } else {
      return -1;
    }
    if (index < this.#top || index > at) this.#failed = true;
    this.#top = index + 1;
    return index;
  }

  /** BININT1, BININT2 or BININT. */
  #int(): number {
    const at = this.#at;
    const bytes = this.#bytes;
    const opcode = bytes[at];
    if (opcode === 0x4b) {
      this.#at = at + 2;
      return bytes[at + 1] as number;
    }
    if (opcode === 0x4d) {
      this.#at = at + 3;
      return (bytes[at + 1] as number) | ((bytes[at + 2] as number) << 8);
    }
    if (opcode === 0x4a) {
      this.#at = at + 5;
      return int32At(bytes, at + 1);
    }
    this.#failed = true;
    return 0;
  }

  /** NEWTRUE or NEWFALSE. */
  #flag(): boolean {
    const opcode = this.#bytes[this.#at++];
    if (opcode !== 0x88 && opcode !== 0x89) this.#failed = true;
    return opcode === 0x88;
  }

  /** The empty OrderedDict of hooks. */
  #hooks(): void {
    if (this.#got() !== this.#shortcut.orderedDict) this.#failed = true;
    this.#expect(0x29); // EMPTY_TUPLE
    this.#expect(0x52); // REDUCE
    this.#put();
  }

  /** A tuple of integers. Equal tuples give one array, so that shapes cost little memory. */
  #tuple(): readonly number[] {
    const bytes = this.#bytes;
    const items = this.#items;
    const opcode = bytes[this.#at];
    let count = 0;
    let hash = 0;
    if (opcode === 0x29) {
      this.#at++;
      return NO_DIMENSIONS;
    }
    // TUPLE behind a MARK, or TUPLE1, TUPLE2 and TUPLE3.
    const marked = opcode === 0x28;
    if (marked) this.#at++;
    while (!this.#failed) {
      const item = this.#int();
      items[count++] = item;
      hash = Math.imul(hash ^ item, 0x9e3779b1);
      const next = bytes[this.#at];
      if (marked ? next === 0x74 : next === 0x84 + count) break;
      if (count === (marked ? MAX_DIMENSIONS : 3)) this.#failed = true;
    }
    this.#at++;
    this.#put();
    return this.#remembered(count, (hash ^ (hash >>> 16)) & (REMEMBERED - 1));
  }

  #remembered(count: number, place: number): readonly number[] {
    const items = this.#items;
    const known = this.#shapes[place] as readonly number[];
    let k = known.length === count ? 0 : -1;
    while (k >= 0 && k < count) k = known[k] === items[k] ? k + 1 : -1;
    if (k === count) return known;
    const shape = Object.freeze(items.slice(0, count));
    this.#shapes[place] = shape;
    return shape;
  }
}
