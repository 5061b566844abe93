/**
 * Where in an allocation each storage goes. Place step, pure arithmetic.
 *
 * Storages that lie close together in the file keep their distances, so that a whole run of them is one copy: the gaps cost
 * a few bytes of memory, a copy costs 3 µs. Where the file's own places are not aligned, as in legacy files, each storage
 * gets an aligned place of its own.
 *
 * @module
 */

/** Alignment of storages in device memory, in bytes: what `cuMemAlloc` guarantees and cuBLAS wants of its largest loads. */
const ALIGNMENT = 256;
/** Alignment of storages that are smaller than a page. */
const SMALL_ALIGNMENT = 64;
const SMALL = 4096;
/** The least alignment, in bytes, that a place in the file must have to be kept: the widest vector load. */
const KEPT_ALIGNMENT = 16;
/** Gaps up to this many bytes are copied along: headers and padding between the records of a zip file. */
const MAX_GAP = 512;

/** A storage to be placed: where its bytes lie in the file. */
export interface PlacedRange {
  readonly start: number;
  readonly nbytes: number;
}

/** Bytes of the file that go to one place of the allocation as they are, gaps included. */
export interface Run {
  readonly start: number;
  end: number;
  /** Where in the allocation the run starts, in bytes. */
  readonly byteOffset: number;
}

/** The layout of an allocation. */
export interface Layout {
  /** Size of the allocation in bytes. */
  readonly nbytes: number;
  /** Ordered by place in the file. */
  readonly runs: readonly Run[];
  /** Where each storage starts in the allocation, in the order they were given. */
  readonly byteOffsets: Float64Array;
}

/** Lays out storages, given in the order in which they lie in the file. */
export function layoutOf(ranges: readonly PlacedRange[]): Layout {
  const runs: Run[] = [];
  const byteOffsets = new Float64Array(ranges.length);
  let run: Run | undefined;
  let used = 0;
  for (let k = 0; k < ranges.length; k++) {
    const { start, nbytes } = ranges[k] as PlacedRange;
    if (nbytes === 0) continue;
    const aligned = start % KEPT_ALIGNMENT === 0;
    if (
      run !== undefined &&
      aligned &&
      run.start % KEPT_ALIGNMENT === 0 &&
      start >= run.end &&
      start - run.end <= MAX_GAP
    ) {
      byteOffsets[k] = run.byteOffset + (start - run.start);
      run.end = start + nbytes;
    } else {
      const alignment = nbytes < SMALL && !aligned ? SMALL_ALIGNMENT : ALIGNMENT;
      // Congruent to the place in the file, so that every storage of the run is aligned as it is there.
      const byteOffset: number = Math.ceil(used / alignment) * alignment + (aligned ? start % ALIGNMENT : 0);
      byteOffsets[k] = byteOffset;
      run = { start, end: start + nbytes, byteOffset };
      runs.push(run);
    }
    used = (byteOffsets[k] as number) + nbytes;
  }
  return { nbytes: used, runs, byteOffsets };
}
