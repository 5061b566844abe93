/**
 * What the device tests share: a stand-in for the driver that is looked at after each test, and values, files and sources
 * to load.
 *
 * @module
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, afterEach, beforeEach, expect } from "vitest";
import { forgetStaging, pinnedSlots } from "../../src/device/cuda/staging.js";
import { type ByteSource, Storage, Tensor } from "../../src/index.js";
import { FakeCuda, type FakeMachine } from "../support/fake-cuda.js";

let fake: FakeCuda;

/**
 * A stand-in for each test of a file. After the test nothing may be allocated or pending, no slot may be in use, and nothing
 * may have been done that a driver does not forgive.
 */
export function useFakeCuda(machine: FakeMachine = {}): () => FakeCuda {
  beforeEach(() => {
    fake = FakeCuda.install(machine);
  });
  afterEach(() => {
    const { faults, live, pending } = fake;
    const busy = busySlots();
    fake.uninstall();
    // The next test shall not suffer from what this one left behind.
    if (busy > 0) forgetStaging();
    expect({ faults, live, pending, busy }).toEqual({ faults: [], live: [], pending: 0, busy: 0 });
  });
  return () => fake;
}

/** How many pinned slots wait for a copy. */
export function busySlots(): number {
  return pinnedSlots().filter((slot) => {
    try {
      return !slot.idle();
    } catch {
      return true;
    }
  }).length;
}

/** Another stand-in than the one that {@link useFakeCuda} made. */
export function replug(machine: FakeMachine): FakeCuda {
  fake = FakeCuda.install(machine);
  return fake;
}

/** Every storage that can be reached from a value. */
export function storagesOf(value: unknown): Set<Storage> {
  const storages = new Set<Storage>();
  const seen = new Set<unknown>();
  const stack: unknown[] = [value];
  while (stack.length > 0) {
    const next = stack.pop();
    if (typeof next !== "object" || next === null || seen.has(next)) continue;
    seen.add(next);
    if (next instanceof Storage) storages.add(next);
    else if (next instanceof Tensor) stack.push(next.storage, next.attributes);
    else if (ArrayBuffer.isView(next)) continue;
    else if (next instanceof Map) stack.push(...next.keys(), ...next.values());
    else if (next instanceof Set) stack.push(...next);
    stack.push(...Object.values(next));
  }
  return storages;
}

/** Frees everything that a value holds. */
export function disposeAll(value: unknown): void {
  for (const storage of storagesOf(value)) storage.dispose();
}

/** A folder that is gone after the tests of the file. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "torchload-device-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Writes a file into a folder and gives its path. */
export function write(folder: string, name: string, bytes: Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, bytes);
  return path;
}

/** Bytes that are the same for the same seed, and differ everywhere from those of other seeds and places. */
export function randomBytes(seed: number, nbytes: number): Uint8Array {
  const words = new Uint32Array(Math.ceil(nbytes / 4));
  let state = (seed + 1) * 0x9e3779b1;
  for (let k = 0; k < words.length; k++) {
    state = Math.imul(state ^ (state >>> 15), 0x85ebca6b) + k;
    words[k] = state;
  }
  return new Uint8Array(words.buffer, 0, nbytes);
}

/** Whether two runs of bytes are the same; much faster than a deep comparison. */
export function same(first: Uint8Array, second: Uint8Array): boolean {
  return Buffer.compare(first, second) === 0;
}

/** A source over bytes that counts, and does at a read what a test asks for. */
export class WatchedSource implements ByteSource {
  readonly name = "watched.pt";
  readonly size: number;
  reads = 0;
  bytesRead = 0;
  inFlight = 0;
  readonly #bytes: Uint8Array;
  readonly #before: (start: number, end: number, signal: AbortSignal | undefined) => void | Promise<void>;

  constructor(
    bytes: Uint8Array,
    before: (start: number, end: number, signal: AbortSignal | undefined) => void | Promise<void> = () => {},
  ) {
    this.#bytes = bytes;
    this.size = bytes.length;
    this.#before = before;
  }

  async read(
    start: number,
    end: number,
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<Uint8Array> {
    this.reads++;
    this.inFlight++;
    try {
      await this.#before(start, end, options.signal);
      this.bytesRead += end - start;
      return this.#bytes.slice(start, end);
    } finally {
      this.inFlight--;
    }
  }
}

/** Runs the collector and what it leaves to be done. */
export async function collectGarbage(): Promise<void> {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as () => void;
  for (let round = 0; round < 4; round++) {
    gc();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
