/**
 * What is read and copied in which order: byte ranges of the file, sorted and merged, cut to the size of a slot. Fill step,
 * pure data that can be tested anywhere.
 *
 * @module
 */

/** Bytes `[start, end)` of the file and the address on a device they go to. */
export interface Segment {
  readonly start: number;
  readonly end: number;
  /** Which device: an index into the targets of the transfer. */
  readonly target: number;
  readonly address: number;
}

/** Sizes that a plan is cut to, in bytes. */
export interface PlanSizes {
  /** The most bytes of one chunk: the size of a slot. */
  readonly chunk: number;
  /** The most bytes of one read. */
  readonly read: number;
}

/** The most reads that a chunk is made of, so that those in flight stay few. */
export const MAX_READS = 16;
/** Numbers that describe a read: start in the file, bytes, offset in the slot. */
export const READ_FIELDS = 3;
/** Numbers that describe a copy: offset in the slot, bytes, target, address. */
export const COPY_FIELDS = 4;

/** Bytes between two segments that are read along rather than skipped: less than a separate read costs. */
const READ_THROUGH = 32 * 1024;

/** A transfer as columns of numbers. Chunk `k` is made of the reads and copies up to `readEnds[k]` and `copyEnds[k]`. */
export interface TransferPlan {
  readonly chunks: number;
  /** Bytes that arrive on devices. */
  readonly nbytes: number;
  readonly reads: readonly number[];
  readonly readEnds: readonly number[];
  readonly copies: readonly number[];
  readonly copyEnds: readonly number[];
}

/** Bytes at the start of the file that are being read already: `chunks` slots of `chunkBytes`, the last perhaps shorter. */
export interface PlannedHead {
  readonly chunks: number;
  readonly chunkBytes: number;
  readonly nbytes: number;
}

/**
 * Plans a transfer.
 *
 * @param segments - in any order; segments of several targets may share bytes of the file, which are read once.
 * @param head - what is being read already: the first chunks of the plan, whose reads are left out.
 */
export function planTransfer(segments: readonly Segment[], sizes: PlanSizes, head?: PlannedHead): TransferPlan {
  const sorted = isSorted(segments) ? segments : [...segments].sort((a, b) => a.start - b.start);
  const planner = new Planner(sorted, sizes);
  if (head !== undefined) planner.planHead(head);
  planner.planRanges(head?.nbytes ?? 0);
  return planner;
}

class Planner implements TransferPlan {
  readonly reads: number[] = [];
  readonly readEnds: number[] = [];
  readonly copies: number[] = [];
  readonly copyEnds: number[] = [];
  nbytes = 0;
  readonly #segments: readonly Segment[];
  readonly #sizes: PlanSizes;
  /** The first segment that may still have bytes that are not planned. */
  #active = 0;

  constructor(segments: readonly Segment[], sizes: PlanSizes) {
    this.#segments = segments;
    this.#sizes = sizes;
  }

  get chunks(): number {
    return this.readEnds.length;
  }

  planHead({ chunks, chunkBytes, nbytes }: PlannedHead): void {
    for (let k = 0; k < chunks; k++) {
      this.#copy(k * chunkBytes, Math.min(nbytes, (k + 1) * chunkBytes), 0);
      this.#closeChunk();
    }
  }

  /** Plans what lies from `from` on in the file. */
  planRanges(from: number): void {
    const segments = this.#segments;
    const { chunk, read } = this.#sizes;
    let used = 0;
    let count = 0;
    const close = (): void => {
      if (used > 0) this.#closeChunk();
      used = 0;
      count = 0;
    };
    for (let first = this.#active; first < segments.length; ) {
      // A range of the file that is read without a break.
      const start = Math.max(from, (segments[first] as Segment).start);
      let end = (segments[first] as Segment).end;
      first++;
      while (first < segments.length && (segments[first] as Segment).start <= end + READ_THROUGH) {
        end = Math.max(end, (segments[first] as Segment).end);
        first++;
      }
      for (let at = start; at < end; ) {
        if (used >= chunk || count >= MAX_READS) close();
        const length = Math.min(read, chunk - used, end - at);
        this.reads.push(at, length, used);
        this.#copy(at, at + length, used);
        used += length;
        count++;
        at += length;
      }
    }
    close();
  }

  #closeChunk(): void {
    this.readEnds.push(this.reads.length / READ_FIELDS);
    this.copyEnds.push(this.copies.length / COPY_FIELDS);
  }

  /** Plans the copies of the file's bytes `[start, end)`, which lie in the slot from `slotOffset` on. */
  #copy(start: number, end: number, slotOffset: number): void {
    const segments = this.#segments;
    while (this.#active < segments.length && (segments[this.#active] as Segment).end <= start) this.#active++;
    for (let k = this.#active; k < segments.length && (segments[k] as Segment).start < end; k++) {
      const segment = segments[k] as Segment;
      const from = Math.max(start, segment.start);
      const to = Math.min(end, segment.end);
      if (from >= to) continue;
      this.nbytes += to - from;
      const offset = slotOffset + (from - start);
      const address = segment.address + (from - segment.start);
      if (extendsLastCopy(this.copies, this.copyEnds, offset, segment.target, address)) {
        (this.copies[this.copies.length - 3] as number) += to - from;
      } else {
        this.copies.push(offset, to - from, segment.target, address);
      }
    }
  }
}

/** Whether a copy goes on where the last one of the same chunk ends, in the slot and on the device. */
function extendsLastCopy(
  copies: readonly number[],
  copyEnds: readonly number[],
  slotOffset: number,
  target: number,
  address: number,
): boolean {
  const at = copies.length - COPY_FIELDS;
  if (at < (copyEnds[copyEnds.length - 1] ?? 0) * COPY_FIELDS) return false;
  const length = copies[at + 1] as number;
  return (
    (copies[at] as number) + length === slotOffset &&
    copies[at + 2] === target &&
    (copies[at + 3] as number) + length === address
  );
}

function isSorted(segments: readonly Segment[]): boolean {
  for (let k = 1; k < segments.length; k++) {
    if ((segments[k] as Segment).start < (segments[k - 1] as Segment).start) return false;
  }
  return true;
}

/** Requests of this many bytes are large enough that starting them does not show. */
const MIN_READ = 512 * 1024;

/** The sizes for a transfer of `nbytes` bytes: small ones are cut so that several threads have something to read. */
export function planSizes(nbytes: number, slotBytes: number): PlanSizes {
  const eighth = Math.ceil(nbytes / 8 / 4096) * 4096;
  return { chunk: slotBytes, read: Math.min(slotBytes / 4, Math.max(MIN_READ, eighth)) };
}
