/**
 * Reading the start of a file into the pinned slots before it is known what is in it. When everything goes to one device
 * nearly every byte will be wanted, and the reads take the time in which the pickle is decoded. A small file is read whole
 * this way, once.
 *
 * @module
 */
import { pinnedSlots, SLOT_BYTES, type Slot, tryLockStaging } from "../device/cuda/staging.js";
import type { FileSource } from "../source/file-source.js";
import { MAX_QUEUES } from "./fill-devices.js";
import { MAX_READS, type PlannedHead, planSizes } from "./plan.js";
import { openSlotReads, type SlotReads } from "./slot-reads.js";

/** Reads of the first bytes of a file, `SLOT_BYTES` a slot. Holds the slots until it is released. */
export class HeadReads implements PlannedHead {
  readonly chunks: number;
  readonly chunkBytes: number = SLOT_BYTES;
  readonly nbytes: number;
  readonly slots: readonly Slot[];
  readonly reads: SlotReads;
  readonly #readBytes: number;
  #release: (() => void) | undefined;

  private constructor(source: FileSource, slots: readonly Slot[], release: () => void) {
    this.slots = slots;
    this.nbytes = Math.min(source.size, slots.length * SLOT_BYTES);
    this.chunks = Math.ceil(this.nbytes / SLOT_BYTES);
    this.#release = release;
    this.#readBytes = planSizes(source.size, SLOT_BYTES).read;
    this.reads = openSlotReads(source, Math.min(MAX_QUEUES, Math.ceil(source.size / this.#readBytes)), undefined);
    for (let s = 0; s < this.chunks; s++) {
      for (let k = 0; k < this.readsOf(s); k++) {
        const offset = k * this.#readBytes;
        const start = s * SLOT_BYTES + offset;
        const nbytes = Math.min(this.#readBytes, SLOT_BYTES - offset, this.nbytes - start);
        this.reads.submit(s * MAX_READS + k, slots[s] as Slot, offset, nbytes, start);
      }
    }
  }

  /** Begins reading when there are pinned slots that nobody uses. */
  static begin(source: FileSource): HeadReads | undefined {
    const slots = pinnedSlots();
    if (slots.length === 0 || source.size === 0) return undefined;
    const release = tryLockStaging();
    if (release === undefined) return undefined;
    try {
      return new HeadReads(source, slots.slice(), release);
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Number of reads that chunk `s` is made of. */
  readsOf(s: number): number {
    return Math.ceil(Math.min(SLOT_BYTES, this.nbytes - s * SLOT_BYTES) / this.#readBytes);
  }

  /** Waits for the reads that are in flight. */
  async close(): Promise<void> {
    await this.reads.close();
  }

  /** Gives the slots back. */
  release(): void {
    this.#release?.();
    this.#release = undefined;
  }

  /** Ends reads that nothing came of; does nothing after they were used. */
  async cancel(): Promise<void> {
    if (this.#release === undefined) return;
    await this.close();
    this.release();
  }
}
