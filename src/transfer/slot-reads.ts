/**
 * Reading pieces of a source into pinned slots, in whichever way the source can.
 *
 * @module
 */
import type { Slot } from "../device/cuda/staging.js";
import type { BackgroundReads } from "../platform/platform.js";
import { FileSource } from "../source/file-source.js";
import type { ByteSource } from "../source/source.js";

/** Reads in flight, each under an id that is free again once it has ended. */
export interface SlotReads {
  submit(id: number, slot: Slot, slotOffset: number, nbytes: number, start: number): void;
  /** Whether a read has ended. @throws what the read failed with. */
  finished(id: number): boolean;
  /** Blocks until a read has ended; absent where only the event loop can end one. */
  readonly waitSync?: () => void;
  wait(): Promise<void>;
  /** Resolves when nothing is in flight any more. */
  close(): void | Promise<void>;
}

/** Opens the fastest way to read a source: native threads for a local file, else the source's own reads. */
export function openSlotReads(source: ByteSource, queues: number, signal: AbortSignal | undefined): SlotReads {
  const background = source instanceof FileSource ? source.file.backgroundReads(queues) : undefined;
  return background === undefined ? new PromisedReads(source, signal) : nativeReads(background);
}

function nativeReads(reads: BackgroundReads): SlotReads {
  return {
    submit: (id, slot, slotOffset, nbytes, start) => reads.submit(id, slot.address + slotOffset, nbytes, start),
    finished: (id) => reads.finished(id),
    waitSync: () => reads.waitSync(),
    wait: () => reads.wait(),
    close: () => reads.close(),
  };
}

class PromisedReads implements SlotReads {
  readonly #source: ByteSource;
  readonly #signal: AbortSignal | undefined;
  readonly #pending = new Map<number, Promise<void>>();
  readonly #ended = new Map<number, { error?: unknown }>();

  constructor(source: ByteSource, signal: AbortSignal | undefined) {
    this.#source = source;
    this.#signal = signal;
  }

  submit(id: number, slot: Slot, slotOffset: number, nbytes: number, start: number): void {
    const target = slot.bytes.subarray(slotOffset, slotOffset + nbytes);
    const reading = this.#read(target, start).then(
      () => void this.#ended.set(id, {}),
      (error) => void this.#ended.set(id, { error }),
    );
    this.#pending.set(id, reading);
  }

  finished(id: number): boolean {
    const ended = this.#ended.get(id);
    if (ended === undefined) return false;
    this.#ended.delete(id);
    this.#pending.delete(id);
    if ("error" in ended) throw ended.error;
    return true;
  }

  async wait(): Promise<void> {
    await Promise.race(this.#pending.values());
  }

  async close(): Promise<void> {
    await Promise.all(this.#pending.values());
  }

  async #read(target: Uint8Array, start: number): Promise<void> {
    if (this.#source instanceof FileSource) await this.#source.file.readInto(target, start);
    else target.set(await this.#source.read(start, start + target.length, { signal: this.#signal }));
  }
}
