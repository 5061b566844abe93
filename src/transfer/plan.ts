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

/**
 * Plans a transfer.
 *
 * @param segments - in any order; segments of several targets may share bytes of the file, which are read once.
 */
export function planTransfer(segments: readonly Segment[], sizes: PlanSizes): TransferPlan {
  const sorted = isSorted(segments) ? segments : [...segments].sort((a, b) => a.start - b.start);
  const reads: number[] = [];
  const readEnds: number[] = [];
  const copies: number[] = [];
  const copyEnds: number[] = [];
  let nbytes = 0;
  /** Bytes and reads in the chunk that is being filled. */
  let used = 0;
  let count = 0;
  const limit = (): number => Math.min(sizes.chunk, rampedChunk(readEnds.length, sizes.chunk));
  const closeChunk = (): void => {
    if (used === 0) return;
    readEnds.push(reads.length / READ_FIELDS);
    copyEnds.push(copies.length / COPY_FIELDS);
    used = 0;
    count = 0;
  };
  let first = 0;
  while (first < sorted.length) {
    // A range of the file that is read without a break, and the segments that start in it.
    const rangeStart = (sorted[first] as Segment).start;
    let rangeEnd = (sorted[first] as Segment).end;
    let last = first + 1;
    while (last < sorted.length && (sorted[last] as Segment).start <= rangeEnd + READ_THROUGH) {
      rangeEnd = Math.max(rangeEnd, (sorted[last] as Segment).end);
      last++;
    }
    /** The first segment that may still have bytes at `at`. */
    let active = first;
    for (let at = rangeStart; at < rangeEnd; ) {
      if (used >= limit() || count >= MAX_READS) closeChunk();
      const length = Math.min(readEnds.length < 2 ? sizes.read / 4 : sizes.read, limit() - used, rangeEnd - at);
      reads.push(at, length, used);
      const end = at + length;
      while (active < last && (sorted[active] as Segment).end <= at) active++;
      for (let k = active; k < last && (sorted[k] as Segment).start < end; k++) {
        const segment = sorted[k] as Segment;
        const from = Math.max(at, segment.start);
        const to = Math.min(end, segment.end);
        if (from >= to) continue;
        nbytes += to - from;
        const slotOffset = used + (from - at);
        const address = segment.address + (from - segment.start);
        if (!extendsLastCopy(copies, copyEnds, slotOffset, segment.target, address)) {
          copies.push(slotOffset, to - from, segment.target, address);
        } else {
          (copies[copies.length - 3] as number) += to - from;
        }
      }
      used += length;
      count++;
      at = end;
    }
    first = last;
  }
  closeChunk();
  return { chunks: readEnds.length, nbytes, reads, readEnds, copies, copyEnds };
}

/** The first chunks are small, so that the first copy need not wait for a whole slot to be read. */
function rampedChunk(index: number, chunk: number): number {
  return index < 2 ? chunk / (4 >> index) : chunk;
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

/** The sizes for a transfer of `nbytes` bytes: small ones are cut finer, so that reading and copying still overlap. */
export function planSizes(nbytes: number, slotBytes: number): PlanSizes {
  const MiB = 1024 * 1024;
  if (nbytes > 8 * slotBytes) return { chunk: slotBytes, read: 2 * MiB };
  const eighth = Math.ceil(nbytes / 8 / 4096) * 4096;
  return { chunk: slotBytes, read: Math.min(MiB, Math.max(256 * 1024, eighth)) };
}
