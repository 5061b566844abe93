/**
 * The fill step for main memory: mapping a local file, or reading into uninitialised buffers with several reads in flight.
 *
 * @module
 */
import { allocateHost, HostMemory, MappedMemory } from "../device/cpu/host-memory.js";
import type { DeviceMemory } from "../device/device.js";
import type { FileMapping } from "../platform/platform.js";
import { FileSource } from "../source/file-source.js";
import type { ByteSource } from "../source/source.js";
import type { Storage } from "../tensor/storage.js";
import type { FillOptions } from "./fill-devices.js";

/** A storage whose bytes lie in the source as they are. */
export interface LocatedStorage {
  readonly storage: Storage;
  /** Where its bytes start in the source. */
  readonly start: number;
}

/** Reads in flight at once. */
const READS = 8;
/** Small neighbours are read together, up to this many bytes. */
const MAX_RUN = 8 * 1024 * 1024;
/** Bytes between two neighbours that are read along. */
const MAX_GAP = 4096;
/** The largest piece of one read: progress and aborts are looked at between pieces. */
const MAX_PIECE = 16 * 1024 * 1024;

/** Gives each storage its part of the mapping. No byte is read: that happens when one is first touched. */
export function fillFromMapping(
  located: readonly LocatedStorage[],
  mapping: FileMapping,
  { progress }: FillOptions,
): void {
  for (const { storage, start } of located) {
    storage.memory = new MappedMemory(mapping, start, storage.nbytes);
    progress.add(storage.nbytes);
  }
}

/** Reads each storage into memory of its own, small neighbours with one read. `located` is in order of place. */
export async function fillByReading(
  source: ByteSource,
  located: readonly LocatedStorage[],
  options: FillOptions,
): Promise<void> {
  const runs = runsOf(located);
  let next = 0;
  let failed = false;
  const lane = async (): Promise<void> => {
    while (next < runs.length && !failed) {
      const run = runs[next++] as Run;
      try {
        await readRun(source, run, options);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  // All lanes end before an error leaves, so that nothing is still being written to.
  const lanes = await Promise.allSettled(Array.from({ length: Math.min(READS, runs.length) }, lane));
  for (const result of lanes) if (result.status === "rejected") throw result.reason;
}

/** Reads a storage into memory that the caller gave. */
export async function fillGiven(
  source: ByteSource,
  located: readonly LocatedStorage[],
  memory: DeviceMemory,
  { signal, progress }: FillOptions,
): Promise<void> {
  for (const { start, storage } of located) {
    await readInto(source, memory.bytes as Uint8Array, start, signal);
    progress.add(storage.nbytes);
  }
}

interface Run {
  readonly start: number;
  end: number;
  readonly members: LocatedStorage[];
}

function runsOf(located: readonly LocatedStorage[]): Run[] {
  const runs: Run[] = [];
  let run: Run | undefined;
  for (const member of located) {
    const { start, storage } = member;
    const end = start + storage.nbytes;
    if (run !== undefined && start >= run.end && start - run.end <= MAX_GAP && end - run.start <= MAX_RUN) {
      run.members.push(member);
      run.end = end;
    } else {
      run = { start, end, members: [member] };
      runs.push(run);
    }
  }
  return runs;
}

async function readRun(source: ByteSource, run: Run, { signal, progress }: FillOptions): Promise<void> {
  const bytes = allocateHost(run.end - run.start);
  await readInto(source, bytes, run.start, signal);
  for (const { storage, start } of run.members) {
    const part = bytes.subarray(start - run.start, start - run.start + storage.nbytes);
    // Typed arrays over the part need it aligned; only neighbours in legacy files are not.
    storage.memory = new HostMemory(part.byteOffset % 8 === 0 ? part : part.slice());
    progress.add(storage.nbytes);
  }
}

/** Fills `target` with the bytes of the source from `start` on. */
async function readInto(
  source: ByteSource,
  target: Uint8Array,
  start: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  for (let at = 0; at < target.length; at += MAX_PIECE) {
    signal?.throwIfAborted();
    const piece = target.subarray(at, at + MAX_PIECE);
    if (source instanceof FileSource) await source.file.readInto(piece, start + at);
    else piece.set(await source.read(start + at, start + at + piece.length, { signal }));
  }
}
