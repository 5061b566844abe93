import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { layoutOf, type PlacedRange } from "../../src/transfer/layout.js";
import {
  COPY_FIELDS,
  MAX_READS,
  type PlannedHead,
  type PlanSizes,
  planSizes,
  planTransfer,
  READ_FIELDS,
  type Segment,
  type TransferPlan,
} from "../../src/transfer/plan.js";

const KiB = 1024;
/** Bytes that a plan may read along rather than skip. */
const READ_THROUGH = 32 * KiB;

/** Where in a file storages lie: gaps in front of them, and sizes, which are often those that real files have. */
const gap = fc.oneof(
  fc.constantFrom(0, 8, 16, 64, 128, 192, 511, 512, 513, 4096),
  fc.nat(700),
  fc.nat(3 * READ_THROUGH),
  fc.integer({ min: READ_THROUGH - 2, max: READ_THROUGH + 2 }),
);
const size = fc.oneof(fc.constantFrom(0, 1, 4, 64, 256, 4095, 4096, 4097), fc.nat(300), fc.nat(20_000));

describe("layoutOf", () => {
  /** Ranges in the order of the file; `back` lets some start before the one in front of them ends. */
  const ranges = (aligned: boolean, overlapping: boolean): fc.Arbitrary<PlacedRange[]> =>
    fc
      .array(fc.record({ gap, nbytes: size, back: overlapping ? fc.nat(500) : fc.constant(0) }), { maxLength: 40 })
      .map((items) => {
        const placed: PlacedRange[] = [];
        let at = 0;
        let least = 0;
        for (const { gap: skipped, nbytes, back } of items) {
          let start = Math.max(least, at + skipped - back);
          if (aligned) start = Math.ceil(start / 64) * 64;
          placed.push({ start, nbytes });
          least = start;
          at = Math.max(at, start + nbytes);
        }
        return placed;
      });
  const anyRanges = fc.oneof(ranges(true, false), ranges(false, false), ranges(true, true), ranges(false, true));

  /** Storages with bytes, and where they were put. */
  function placesOf(placed: readonly PlacedRange[]): { start: number; nbytes: number; byteOffset: number }[] {
    const { byteOffsets } = layoutOf(placed);
    return placed
      .map((range, k) => ({ ...range, byteOffset: byteOffsets[k] as number }))
      .filter(({ nbytes }) => nbytes > 0);
  }

  test("gives every storage bytes of its own, within the allocation", () => {
    fc.assert(
      fc.property(anyRanges, (placed) => {
        const { nbytes: total } = layoutOf(placed);
        const places = placesOf(placed).sort((a, b) => a.byteOffset - b.byteOffset);
        let used = 0;
        for (const { byteOffset, nbytes } of places) {
          expect(byteOffset).toBeGreaterThanOrEqual(used);
          used = byteOffset + nbytes;
        }
        expect(used).toBeLessThanOrEqual(total);
      }),
    );
  });

  test("keeps the alignment that a storage has in the file, or gives it one of its own", () => {
    fc.assert(
      fc.property(anyRanges, (placed) => {
        for (const { start, nbytes, byteOffset } of placesOf(placed)) {
          if (start % 16 === 0) expect(byteOffset % 256).toBe(start % 256);
          else expect(byteOffset % (nbytes < 4096 ? 64 : 256)).toBe(0);
        }
      }),
    );
  });

  test("covers each storage with one run, in which it lies as in the file", () => {
    fc.assert(
      fc.property(anyRanges, (placed) => {
        const { runs } = layoutOf(placed);
        for (const { start, nbytes, byteOffset } of placesOf(placed)) {
          const holding = runs.filter(
            (run) =>
              start >= run.start && start + nbytes <= run.end && byteOffset - run.byteOffset === start - run.start,
          );
          expect(holding.length).toBe(1);
        }
      }),
    );
  });

  test("makes runs that do not overlap in the allocation, in the order of the file", () => {
    fc.assert(
      fc.property(anyRanges, (placed) => {
        const { runs, nbytes } = layoutOf(placed);
        let used = 0;
        let start = 0;
        for (const run of runs) {
          expect(run.end).toBeGreaterThan(run.start);
          expect(run.byteOffset).toBeGreaterThanOrEqual(used);
          expect(run.start).toBeGreaterThanOrEqual(start);
          used = run.byteOffset + (run.end - run.start);
          start = run.start;
        }
        expect(used).toBe(nbytes);
      }),
    );
  });

  test("wastes at most 512 bytes between neighbours and an alignment between runs", () => {
    fc.assert(
      fc.property(anyRanges, (placed) => {
        const { nbytes, runs } = layoutOf(placed);
        const places = placesOf(placed);
        const content = places.reduce((sum, place) => sum + place.nbytes, 0);
        expect(nbytes).toBeLessThanOrEqual(content + 512 * places.length + 512 * runs.length);
        const covered = runs.reduce((sum, { start, end }) => sum + end - start, 0);
        expect(covered).toBeLessThanOrEqual(content + 512 * Math.max(0, places.length - 1));
      }),
    );
  });

  test("makes one run of neighbours that lie as PyTorch's zip files have them", () => {
    const placed = Array.from({ length: 1000 }, (_, k) => ({ start: 320 + k * 256, nbytes: 100 }));
    expect(layoutOf(placed).runs.length).toBe(1);
  });

  test("needs nothing for nothing", () => {
    expect(layoutOf([])).toMatchObject({ nbytes: 0, runs: [] });
    expect(layoutOf([{ start: 64, nbytes: 0 }])).toMatchObject({ nbytes: 0, runs: [] });
  });
});

interface Planned {
  readonly segments: readonly Segment[];
  readonly sizes: PlanSizes;
  readonly fileSize: number;
  readonly head: PlannedHead | undefined;
}

/** Segments with addresses of their own, over places of the file that some of them share. */
const planned: fc.Arbitrary<Planned> = fc
  .record({
    items: fc.array(
      fc.record({ gap, nbytes: size, back: fc.oneof(fc.constant(0), fc.nat(30_000)), apart: fc.nat(300) }),
      {
        maxLength: 25,
      },
    ),
    targets: fc.integer({ min: 1, max: 3 }),
    read: fc.oneof(fc.integer({ min: 1000, max: 9000 }), fc.constant(4096)),
    readsPerChunk: fc.integer({ min: 1, max: MAX_READS }),
    cut: fc.nat(999),
    headChunks: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 8 })),
    shuffle: fc.boolean(),
    tail: fc.nat(20_000),
  })
  .map(({ items, targets, read, readsPerChunk, cut, headChunks, shuffle, tail }) => {
    const segments: Segment[] = [];
    const addresses = new Array<number>(targets).fill(0);
    let at = 0;
    let fileSize = 0;
    items.forEach(({ gap: skipped, nbytes, back, apart }, k) => {
      const start = Math.max(0, at + skipped - back);
      const target = k % targets;
      const address = (addresses[target] as number) + (k % 3 === 0 ? 0 : apart);
      segments.push({ start, end: start + nbytes, target, address });
      addresses[target] = address + nbytes;
      at = start + nbytes;
      fileSize = Math.max(fileSize, at);
    });
    fileSize += tail;
    const chunk = read * readsPerChunk - (readsPerChunk > 1 ? cut : 0);
    const nbytes = Math.min(fileSize, headChunks * chunk);
    const head = nbytes === 0 ? undefined : { chunks: Math.ceil(nbytes / chunk), chunkBytes: chunk, nbytes };
    if (shuffle) segments.sort((a, b) => (a.address % 97) - (b.address % 97));
    return { segments, sizes: { chunk, read: Math.min(read, chunk) }, fileSize, head };
  });

interface Read {
  readonly start: number;
  readonly nbytes: number;
  readonly offset: number;
}

interface Copy {
  readonly offset: number;
  readonly nbytes: number;
  readonly target: number;
  readonly address: number;
}

/** The chunks of a plan, in words. */
function chunksOf(plan: TransferPlan): { reads: Read[]; copies: Copy[] }[] {
  return Array.from({ length: plan.chunks }, (_, k) => {
    const rows = <Row>(ends: readonly number[], width: number, row: (at: number) => Row): Row[] => {
      const first = k === 0 ? 0 : (ends[k - 1] as number);
      return Array.from({ length: (ends[k] as number) - first }, (_unused, j) => row((first + j) * width));
    };
    const { reads, copies } = plan;
    return {
      reads: rows(plan.readEnds, READ_FIELDS, (at) => ({
        start: reads[at] as number,
        nbytes: reads[at + 1] as number,
        offset: reads[at + 2] as number,
      })),
      copies: rows(plan.copyEnds, COPY_FIELDS, (at) => ({
        offset: copies[at] as number,
        nbytes: copies[at + 1] as number,
        target: copies[at + 2] as number,
        address: copies[at + 3] as number,
      })),
    };
  });
}

const NOTHING = -1;

/** Carries a plan out, each byte of the file being its own place, and gives the devices' memory. */
function carryOut({ sizes, head }: Planned, plan: TransferPlan): Map<number, Map<number, number>> {
  const devices = new Map<number, Map<number, number>>();
  for (const [k, { reads, copies }] of chunksOf(plan).entries()) {
    const slot = new Int32Array(sizes.chunk).fill(NOTHING);
    if (head !== undefined && k < head.chunks) {
      const start = k * head.chunkBytes;
      for (let j = 0; j < Math.min(head.chunkBytes, head.nbytes - start); j++) slot[j] = start + j;
    }
    for (const { start, nbytes, offset } of reads) {
      for (let j = 0; j < nbytes; j++) {
        if (slot[offset + j] !== NOTHING) throw new Error("two reads go to one place of a slot");
        slot[offset + j] = start + j;
      }
    }
    for (const { offset, nbytes, target, address } of copies) {
      const device = devices.get(target) ?? new Map<number, number>();
      devices.set(target, device);
      for (let j = 0; j < nbytes; j++) {
        if (device.has(address + j)) throw new Error(`byte ${address + j} of target ${target} is copied twice`);
        device.set(address + j, slot[offset + j] ?? NOTHING);
      }
    }
  }
  return devices;
}

describe("planTransfer", () => {
  test("copies every byte of every segment once, to its address, and nothing else", () => {
    fc.assert(
      fc.property(planned, (input) => {
        const plan = planTransfer(input.segments, input.sizes, input.head);
        const devices = carryOut(input, plan);
        let total = 0;
        for (const { start, end, target, address } of input.segments) {
          for (let j = 0; j < end - start; j++) {
            if (devices.get(target)?.get(address + j) !== start + j) {
              throw new Error(`byte ${start + j} of the file is not at ${address + j} of target ${target}`);
            }
          }
          total += end - start;
        }
        const written = [...devices.values()].reduce((sum, device) => sum + device.size, 0);
        expect(written).toBe(total);
        expect(plan.nbytes).toBe(total);
      }),
      { numRuns: 300 },
    );
  });

  test("never reads more at once than it may, nor beyond a slot or the file", () => {
    fc.assert(
      fc.property(planned, ({ segments, sizes, fileSize, head }) => {
        const last = segments.reduce((most, { end }) => Math.max(most, end), 0);
        for (const { reads, copies } of chunksOf(planTransfer(segments, sizes, head))) {
          expect(reads.length).toBeLessThanOrEqual(MAX_READS);
          for (const { start, nbytes, offset } of reads) {
            expect(nbytes).toBeGreaterThan(0);
            expect(nbytes).toBeLessThanOrEqual(sizes.read);
            expect(offset).toBeGreaterThanOrEqual(0);
            expect(offset + nbytes).toBeLessThanOrEqual(sizes.chunk);
            expect(start).toBeGreaterThanOrEqual(0);
            expect(start + nbytes).toBeLessThanOrEqual(Math.min(last, fileSize));
          }
          for (const { offset, nbytes } of copies) {
            expect(nbytes).toBeGreaterThan(0);
            expect(offset + nbytes).toBeLessThanOrEqual(sizes.chunk);
          }
        }
      }),
    );
  });

  test("reads forward, no byte twice, and none that was read ahead", () => {
    fc.assert(
      fc.property(planned, ({ segments, sizes, head }) => {
        let at = head?.nbytes ?? 0;
        for (const { reads } of chunksOf(planTransfer(segments, sizes, head))) {
          for (const { start, nbytes } of reads) {
            expect(start).toBeGreaterThanOrEqual(at);
            at = start + nbytes;
          }
        }
      }),
    );
  });

  test("reads along only short gaps", () => {
    fc.assert(
      fc.property(planned, ({ segments, sizes, head, fileSize }) => {
        const wanted = new Uint8Array(fileSize + 1);
        // An empty segment is a place like another: it may be what makes two gaps out of one.
        for (const { start, end } of segments) wanted.fill(1, start, Math.max(end, start + 1));
        const read = new Uint8Array(fileSize + 1);
        for (const { reads } of chunksOf(planTransfer(segments, sizes, head))) {
          for (const { start, nbytes } of reads) read.fill(1, start, start + nbytes);
        }
        let along = 0;
        for (let at = 0; at <= fileSize; at++) {
          along = read[at] === 1 && wanted[at] === 0 ? along + 1 : 0;
          if (along > READ_THROUGH) throw new Error(`${along} bytes up to ${at} are read that nobody wants`);
        }
      }),
    );
  });

  test("leaves no read out of the chunks of a head, and adds none to them", () => {
    fc.assert(
      fc.property(planned, ({ segments, sizes, head }) => {
        const chunks = chunksOf(planTransfer(segments, sizes, head));
        const ahead = head?.chunks ?? 0;
        expect(chunks.length).toBeGreaterThanOrEqual(ahead);
        for (const { reads } of chunks.slice(0, ahead)) expect(reads).toEqual([]);
        for (const { reads } of chunks.slice(ahead)) expect(reads.length).toBeGreaterThan(0);
      }),
    );
  });

  test("does not change the segments it is given, and gives the same for them in any order", () => {
    fc.assert(
      fc.property(planned, ({ segments, sizes, head }) => {
        const before = structuredClone(segments);
        const plan = planTransfer(segments, sizes, head);
        expect(segments).toEqual(before);
        const sorted = [...segments].sort((a, b) => a.start - b.start);
        const again = planTransfer(sorted, sizes, head);
        expect(plan.reads).toEqual(again.reads);
        expect(plan.nbytes).toBe(again.nbytes);
      }),
    );
  });

  test("copies what lies together in the file and on the device at once", () => {
    const segments = Array.from({ length: 100 }, (_, k) => ({
      start: 1000 + k * 100,
      end: 1100 + k * 100,
      target: 0,
      address: 5000 + k * 100,
    }));
    const plan = planTransfer(segments, { chunk: 8192, read: 2048 });
    expect(plan.copyEnds.at(-1)).toBe(plan.chunks);
    expect(plan.chunks).toBe(2);
  });

  test("has nothing to do for nothing", () => {
    expect(planTransfer([], { chunk: 8192, read: 2048 }).chunks).toBe(0);
    const empty = [{ start: 7, end: 7, target: 0, address: 9 }];
    const plan = planTransfer(empty, { chunk: 8192, read: 2048 });
    expect([plan.chunks, plan.nbytes, plan.copies.length]).toEqual([0, 0, 0]);
  });
});

describe("planSizes", () => {
  test("gives reads that fill a slot with as many as a chunk may have, and small transfers several reads", () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), fc.constantFrom(2, 8, 32), (nbytes, mib) => {
        const slot = mib * KiB * KiB;
        const { chunk, read } = planSizes(nbytes, slot);
        expect(chunk).toBe(slot);
        expect(read).toBeGreaterThan(0);
        expect(read).toBeLessThanOrEqual(slot / 4);
        if (mib <= 8) expect(read * MAX_READS).toBeGreaterThanOrEqual(slot);
        expect(read % 4096).toBe(0);
        if (nbytes >= 8 * KiB * KiB) expect(nbytes / read).toBeGreaterThan(3);
      }),
    );
  });
});
