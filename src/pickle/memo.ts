/**
 * The memo of a pickle: values by index.
 *
 * @module
 */

/** Indices that have a place from the start. */
const FIRST_SIZE = 256;

/** Values by index: an array, and a map for indices that no real stream has at that place. */
export class Memo {
  /** Holes are `undefined`, which is never a value: None is null. */
  slots: unknown[] = new Array<unknown>(FIRST_SIZE);
  /** One more than the highest index in {@link slots} that was set or skipped. */
  top = 0;
  /** Whether some slots were left empty because nothing was expected to ask for them. */
  skipped = false;
  #far: Map<number, unknown> | undefined;
  #count = 0;

  /** How many values there are: the index that MEMOIZE takes. Wrong once slots were skipped. */
  get count(): number {
    return this.#count;
  }

  get(index: number): unknown {
    const value = index < this.slots.length ? this.slots[index] : undefined;
    return value === undefined && this.#far !== undefined ? this.#far.get(index) : value;
  }

  /**
   * @param consumed - how many bytes of the stream are read. A value takes at least one to memoise, so a higher index was
   * not counted up to, and gets no array of that size.
   */
  set(index: number, value: unknown, consumed: number): void {
    if (index >= this.slots.length && !this.#grow(index, consumed)) {
      this.#far ??= new Map();
      if (!this.#far.has(index)) this.#count++;
      this.#far.set(index, value);
      return;
    }
    if (this.slots[index] === undefined && !(this.#far?.delete(index) ?? false)) this.#count++;
    this.slots[index] = value;
    if (index >= this.top) this.top = index + 1;
  }

  #grow(index: number, consumed: number): boolean {
    if (index > consumed) return false;
    const slots = new Array<unknown>(Math.max(index + 1, this.slots.length * 2));
    for (let k = 0; k < this.top; k++) slots[k] = this.slots[k];
    this.slots = slots;
    return true;
  }
}
