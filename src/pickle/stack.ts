/**
 * The stack of the pickle machine.
 *
 * @module
 */
import { PickleFault } from "./reader.js";

/** Values and marks. The machine's main loop works on the fields; all other opcodes use the methods. */
export class PickleStack {
  /** The values; what lies above {@link height} is left over. Starts with an object, to be an array of any values. */
  readonly values: unknown[] = [null];
  height = 0;
  /** Heights at each open MARK. */
  readonly marks: number[] = [];
  /** The height at the last open MARK, which no opcode pops beyond; 0 without one. */
  floor = 0;

  push(value: unknown): void {
    this.values[this.height++] = value;
  }

  top(): unknown {
    if (this.height <= this.floor) throw underflow(1, this.height - this.floor);
    return this.values[this.height - 1];
  }

  pop(): unknown {
    const value = this.top();
    this.height--;
    return value;
  }

  /** The values above the last MARK, which go with it. */
  popMark(): unknown[] {
    const { marks } = this;
    const from = marks.pop();
    if (from === undefined) throw noMark();
    const items = this.values.slice(from, this.height);
    this.height = from;
    this.floor = lastOf(marks);
    return items;
  }
}

/** The height at the last of the open marks. */
export function lastOf(marks: readonly number[]): number {
  return marks.length === 0 ? 0 : (marks[marks.length - 1] as number);
}

/** The fault of a stack without enough values above the last MARK. */
export function underflow(wanted: number, there: number): PickleFault {
  const values = wanted === 1 ? "1 value" : `${wanted} values`;
  return new PickleFault(`the stack has ${there} of the ${values} wanted`, wanted, there);
}

/** The fault of an opcode that takes all above a MARK where none is open. */
export function noMark(): PickleFault {
  return new PickleFault("no MARK is open", "a MARK", "none");
}
