/**
 * The run of opcodes that `torch.save` writes for a tensor, read field by field (protocol 2, from the second tensor on,
 * when the names in it are memoised):
 *
 *     BINGET _rebuild_tensor_v2, MARK,
 *       MARK, BINGET 'storage', BINGET class, BINUNICODE key + PUT (or BINGET), BINGET location, int numel, TUPLE + PUT,
 *       BINPERSID, int offset, size tuple + PUT, stride tuple + PUT, NEWFALSE or NEWTRUE,
 *       BINGET OrderedDict, EMPTY_TUPLE, REDUCE + PUT, TUPLE + PUT, REDUCE + PUT
 *
 * @module
 */
import type { TensorShortcut } from "./handlers.js";
import { OP } from "./opcodes.js";

/** The memo as the machine keeps it. */
export interface Memo {
  get(index: number): unknown;
  set(index: number, value: unknown): void;
}

/** Stands in the memo for a value that the shortcut did not make. Nothing in a real file refers to one. */
export const SKIPPED: unique symbol = Symbol("skipped");

/** A cursor over the run. Any step that does not fit sets `failed`, and the machine goes its usual way. */
export class TensorRun {
  readonly #bytes: Uint8Array;
  readonly #memo: Memo;
  readonly #shortcut: TensorShortcut;
  readonly #ascii: (start: number, end: number) => string;
  /** Memo places of the values that are not made, and of the key and the tensor. */
  readonly #skipped: number[] = [];
  #at = 0;
  #failed = false;

  constructor(bytes: Uint8Array, memo: Memo, shortcut: TensorShortcut, ascii: (start: number, end: number) => string) {
    this.#bytes = bytes;
    this.#memo = memo;
    this.#shortcut = shortcut;
    this.#ascii = ascii;
  }

  /** The place behind the run that was read last. */
  get end(): number {
    return this.#at;
  }

  /**
   * Reads a run from behind its first BINGET. Gives the tensor, or {@link SKIPPED} when the bytes are not such a run; the
   * memo is as the run leaves it only in the first case.
   */
  read(start: number): unknown {
    const bytes = this.#bytes;
    this.#at = start;
    this.#failed = false;
    this.#skipped.length = 0;
    if (bytes[this.#at++] !== OP.MARK || bytes[this.#at++] !== OP.MARK) return SKIPPED;
    if (this.#memoised() !== "storage") return SKIPPED;
    const storageClass = this.#memoised();
    let key: unknown;
    let keyIndex = -1;
    if (bytes[this.#at] === OP.BINUNICODE) {
      const length = bytes[this.#at + 1] as number;
      // Storage keys are short; their length fits the lowest byte.
      if (bytes[this.#at + 2] !== 0 || bytes[this.#at + 3] !== 0 || bytes[this.#at + 4] !== 0) return SKIPPED;
      const from = this.#at + 5;
      for (let k = from; k < from + length; k++) if (!((bytes[k] as number) < 0x80)) return SKIPPED;
      key = this.#ascii(from, from + length);
      this.#at = from + length;
      keyIndex = this.#put();
    } else {
      key = this.#memoised();
    }
    const location = this.#memoised();
    const numel = this.#int();
    this.#expect(OP.TUPLE);
    this.#skip();
    this.#expect(OP.BINPERSID);
    const storageOffset = this.#int();
    const size = this.#tuple();
    const stride = this.#tuple();
    const flag = bytes[this.#at++];
    if (flag !== OP.NEWFALSE && flag !== OP.NEWTRUE) return SKIPPED;
    if (this.#memoised() !== this.#shortcut.orderedDict) return SKIPPED;
    this.#expect(OP.EMPTY_TUPLE);
    this.#expect(OP.REDUCE);
    this.#skip();
    this.#expect(OP.TUPLE);
    this.#skip();
    this.#expect(OP.REDUCE);
    if (this.#failed || typeof key !== "string" || typeof location !== "string") return SKIPPED;
    const tensor = this.#shortcut.make(storageClass, key, location, numel, storageOffset, size, stride, flag === OP.NEWTRUE);
    // The PUT of the tensor itself is left to the machine.
    for (const index of this.#skipped) this.#memo.set(index, SKIPPED);
    if (keyIndex >= 0) this.#memo.set(keyIndex, key);
    return tensor;
  }

  #expect(opcode: number): void {
    if (this.#bytes[this.#at++] !== opcode) this.#failed = true;
  }

  #uint32(at: number): number {
    const bytes = this.#bytes;
    return (
      ((bytes[at] as number) |
        ((bytes[at + 1] as number) << 8) |
        ((bytes[at + 2] as number) << 16) |
        ((bytes[at + 3] as number) << 24)) >>>
      0
    );
  }

  #memoised(): unknown {
    const opcode = this.#bytes[this.#at++];
    if (opcode === OP.BINGET) return this.#memo.get(this.#bytes[this.#at++] as number);
    if (opcode === OP.LONG_BINGET) {
      this.#at += 4;
      return this.#memo.get(this.#uint32(this.#at - 4));
    }
    this.#failed = true;
    return undefined;
  }

  #put(): number {
    const opcode = this.#bytes[this.#at++];
    if (opcode === OP.BINPUT) return this.#bytes[this.#at++] as number;
    if (opcode === OP.LONG_BINPUT) {
      this.#at += 4;
      return this.#uint32(this.#at - 4);
    }
    this.#failed = true;
    return 0;
  }

  #skip(): void {
    this.#skipped.push(this.#put());
  }

  #int(): number {
    const bytes = this.#bytes;
    switch (bytes[this.#at++]) {
      case OP.BININT1:
        return bytes[this.#at++] as number;
      case OP.BININT2:
        this.#at += 2;
        return (bytes[this.#at - 2] as number) | ((bytes[this.#at - 1] as number) << 8);
      case OP.BININT:
        this.#at += 4;
        return this.#uint32(this.#at - 4) | 0;
      default:
        this.#failed = true;
        return 0;
    }
  }

  #tuple(): number[] {
    const bytes = this.#bytes;
    const values: number[] = [];
    if (bytes[this.#at] === OP.EMPTY_TUPLE) {
      this.#at++;
      return values;
    }
    const marked = bytes[this.#at] === OP.MARK;
    if (marked) this.#at++;
    while (!this.#failed) {
      const opcode = bytes[this.#at] as number;
      if (marked ? opcode === OP.TUPLE : opcode === OP.TUPLE1 + values.length - 1 && values.length > 0) break;
      if (!marked && values.length === 3) this.#failed = true;
      else values.push(this.#int());
    }
    this.#at++;
    this.#skip();
    return values;
  }
}
