/**
 * The memo of a pickle: values by index.
 *
 * @module
 */

import { PickleFault } from "./reader.js";

/** Thrown when a value is wanted that a shortcut did not make: the stream is then read again without shortcuts. */
export const SKIPPED: unique symbol = Symbol("skipped");

/** What to throw for an index without a value. */
export function unknownIndex(memo: Memo, index: number): PickleFault | typeof SKIPPED {
  return memo.skipped ? SKIPPED : new PickleFault(`memo ${index} was never set`, "a memoised value", index);
}

/** Indices that have a place from the start: those of BINGET. */
const FIRST_SIZE = 256;

/** A large memo is made of pages, so that it grows without copies. */
const PAGE_BITS = 14;
const PAGE_SIZE: number = 1 << PAGE_BITS;
const PAGE_MASK: number = PAGE_SIZE - 1;

/** Values by index: pages of arrays, and a map for indices that no real stream has at that place. */
export class Memo {
  /** The values of the indices below 256, and maybe more. Holes are `undefined`, which is no value: None is null. */
  readonly first: unknown[] = new Array<unknown>(FIRST_SIZE);
  /** One more than the highest index in the pages that was set or skipped. */
  top = 0;
  /** Whether some places were left empty because nothing was expected to ask for them. */
  skipped = false;
  readonly #pages: unknown[][] = [this.first];
  #far: Map<number, unknown> | undefined;
  #count = 0;

  /** How many values there are: the index that MEMOIZE takes. Wrong once places were skipped. */
  get count(): number {
    return this.#count;
  }

  /** The value of an index; `undefined` when there is none. */
  get(index: number): unknown {
    const page = this.#pages[index >>> PAGE_BITS];
    const place = index & PAGE_MASK;
    const value = page !== undefined && place < page.length ? page[place] : undefined;
    if (value !== undefined || this.#far === undefined) return value;
    // A value that was skipped may have taken the place of one from far ahead.
    return this.skipped && index < this.top ? undefined : this.#far.get(index);
  }

  /**
   * Sets the value of an index.
   *
   * @param consumed - how many bytes of the stream are read. A value takes at least one to memoise, so a higher index was
   * not counted up to, and gets no page.
   */
  set(index: number, value: unknown, consumed: number): void {
    const number = Math.floor(index / PAGE_SIZE);
    const place = index & PAGE_MASK;
    let page = this.#pages[number];
    if (page === undefined || place >= page.length) {
      if (index > consumed) {
        this.#setFar(index, value);
        return;
      }
      page = this.#grow(number, place);
    }
    if (page[place] === undefined && !(this.#far?.delete(index) ?? false)) this.#count++;
    page[place] = value;
    if (index >= this.top) this.top = index + 1;
  }

  #setFar(index: number, value: unknown): void {
    this.#far ??= new Map();
    if (!this.#far.has(index)) this.#count++;
    this.#far.set(index, value);
  }

  #grow(number: number, place: number): unknown[] {
    const pages = this.#pages;
    if (number === 0) {
      // Setting the length makes room in one step.
      this.first.length = Math.max(Math.min(this.first.length * 4, PAGE_SIZE), place + 1);
      return this.first;
    }
    while (pages.length <= number) pages.push(new Array<unknown>(PAGE_SIZE));
    return pages[number] as unknown[];
  }
}
