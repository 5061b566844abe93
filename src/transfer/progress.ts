/**
 * Progress of a load, told to the caller not more often than anyone can look.
 *
 * @module
 */

/** How far a load is. */
export interface Progress {
  /** Bytes that are where they belong. */
  readonly loaded: number;
  /** Bytes of all storages that are being loaded. */
  readonly total: number;
}

/** The least time between two calls, in ms. */
const INTERVAL_MS = 30;

/** Counts bytes and calls the caller's function. */
export class ProgressReporter {
  readonly #total: number;
  readonly #report: ((progress: Progress) => void) | undefined;
  #loaded = 0;
  #last = Number.NEGATIVE_INFINITY;

  constructor(total: number, report: ((progress: Progress) => void) | undefined) {
    this.#total = total;
    this.#report = report;
  }

  /** Notes that `nbytes` more bytes arrived. Throws what the caller's function throws. */
  add(nbytes: number): void {
    this.#loaded += nbytes;
    if (this.#report === undefined) return;
    const now = performance.now();
    if (this.#loaded < this.#total && now - this.#last < INTERVAL_MS) return;
    this.#last = now;
    this.#report({ loaded: this.#loaded, total: this.#total });
  }
}
