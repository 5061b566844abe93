/**
 * The fill step for CUDA: pieces of the source are read into pinned slots by several threads, and each slot is copied to the
 * devices as soon as it is full. One loop, run on the calling thread, keeps both going; it only starts reads and copies and
 * looks which have ended.
 *
 * @module
 */
import { copyMemory, nextTurn } from "#platform";
import type { CudaContext } from "../device/cuda/context.js";
import {
  drain,
  gatheringSlot,
  lockStaging,
  SLOT_BYTES,
  SLOT_COUNT,
  type Slot,
  stagingSlots,
} from "../device/cuda/staging.js";
import type { ByteSource } from "../source/source.js";
import type { HeadReads } from "./head-reads.js";
import {
  COPY_FIELDS,
  MAX_READS,
  planSizes,
  planTransfer,
  READ_FIELDS,
  type Segment,
  type TransferPlan,
} from "./plan.js";
import type { ProgressReporter } from "./progress.js";
import { openSlotReads, type SlotReads } from "./slot-reads.js";

/** Transfers up to this many bytes run without giving the event loop a turn: they take a millisecond. */
const BLOCKING = 16 * 1024 * 1024;
/** After this long without an event the loop sleeps instead of looking again, in ms. */
const IDLE_MS = 1;
/** After this long of work without a pause the event loop gets a turn, in ms. */
const TURN_MS = 4;
/** Copies of at most this many bytes are gathered into one: a copy costs as much as moving 128 KiB. */
const GATHER = 32 * 1024;

/** The widest gap on the device that a gathered copy writes over: padding between small storages. */
const GATHER_GAP = 256;

/** A device that a fill copies to. */
export interface FillTarget {
  readonly context: CudaContext;
  /** Whether the bytes between its segments are padding of our own allocation, which copies may write over. */
  readonly padded: boolean;
}

/** Queues of reads: as many threads can read at once. More do not make copying out of the page cache faster. */
export const MAX_QUEUES = 16;

/** How a fill is to run. */
export interface FillOptions {
  readonly signal: AbortSignal | undefined;
  readonly progress: ProgressReporter;
}

/**
 * Reads the segments' bytes and copies each to its address. Resolves when every copy is done.
 *
 * @param nbytes - bytes of the storages in the segments, for progress.
 * @throws SourceError when a read fails, DeviceError when a copy does, the signal's reason when aborted. No read and no copy
 * is in flight any more then, so that the memory can be freed.
 */
export async function fillDevices(
  source: ByteSource,
  segments: readonly Segment[],
  targets: readonly FillTarget[],
  nbytes: number,
  options: FillOptions,
  head?: HeadReads,
): Promise<void> {
  const total = segments.reduce((sum, { start, end }) => sum + (end - start), 0);
  if (total === 0) return;
  const plan = planTransfer(segments, planSizes(total, SLOT_BYTES), head);
  const blocking = total <= BLOCKING;
  if (head !== undefined) {
    const loop = new FillLoop(plan, nbytes, targets, head.reads);
    loop.adopt(head);
    try {
      await loop.run(options, blocking);
    } finally {
      await head.close();
      await loop.settle();
      head.release();
    }
    return;
  }
  await lockStaging(async () => {
    options.signal?.throwIfAborted();
    const reads = openSlotReads(source, Math.min(MAX_QUEUES, plan.reads.length / READ_FIELDS), options.signal);
    const loop = new FillLoop(plan, nbytes, targets, reads);
    try {
      await loop.run(options, blocking);
    } finally {
      await reads.close();
      await loop.settle();
    }
  });
}

const FREE = 0;
const READING = 1;
const COPYING = 2;

class FillLoop {
  readonly #plan: TransferPlan;
  readonly #targets: readonly FillTarget[];
  readonly #reads: SlotReads;
  readonly #slots: Slot[] = [];
  readonly #state = new Int8Array(SLOT_COUNT);
  /** The chunk in each slot, and how many of its reads are in flight. */
  readonly #chunk = new Int32Array(SLOT_COUNT);
  readonly #left = new Int32Array(SLOT_COUNT);
  readonly #pending = new Uint8Array(SLOT_COUNT * MAX_READS);
  /** Slots being copied, oldest first: copies end in the order in which they were submitted. */
  readonly #copying: number[] = [];
  /** Bytes of the storages, and bytes copied so far. */
  readonly #nbytes: number;
  #copied = 0;
  #next = 0;
  #done = false;
  #gatherSlot: Slot | undefined;

  constructor(plan: TransferPlan, nbytes: number, targets: readonly FillTarget[], reads: SlotReads) {
    this.#plan = plan;
    this.#nbytes = nbytes;
    this.#targets = targets;
    this.#reads = reads;
  }

  /** Takes over reads that were begun before the plan was made. */
  adopt(head: HeadReads): void {
    for (let s = 0; s < head.chunks; s++) {
      this.#slots.push(head.slots[s] as Slot);
      this.#state[s] = READING;
      this.#chunk[s] = s;
      this.#left[s] = head.readsOf(s);
      this.#pending.fill(1, s * MAX_READS, s * MAX_READS + head.readsOf(s));
    }
    this.#next = head.chunks;
  }

  async run({ signal, progress }: FillOptions, blocking: boolean): Promise<void> {
    // Slots that are not pinned yet are pinned one by one, while the ones before are being read into.
    const slots = Math.min(SLOT_COUNT, this.#plan.chunks);
    for (let s = this.#slots.length; s < slots; s++) {
      this.#slots.push(stagingSlots((this.#targets[0] as FillTarget).context, s + 1)[s] as Slot);
      this.#start(s);
    }
    let lastEvent = performance.now();
    let lastTurn = lastEvent;
    for (;;) {
      const copied = this.#poll();
      if (copied > 0) progress.add(this.#arrived(copied));
      if (this.#next === this.#plan.chunks && this.#state.every((state) => state === FREE)) {
        // The last gathered copy is no slot's.
        await this.#gatherSlot?.wait();
        this.#done = true;
        return;
      }
      if (signal?.aborted === true) throw signal.reason;
      const now = performance.now();
      if (copied >= 0) lastEvent = now;
      if (blocking && this.#reads.waitSync !== undefined) {
        if (copied < 0 && now - lastEvent > IDLE_MS) this.#sleepSync();
      } else if (copied < 0 && now - lastEvent > IDLE_MS) {
        await this.#sleep();
        lastTurn = performance.now();
      } else if (copied < 0 || now - lastTurn > TURN_MS) {
        await nextTurn();
        lastTurn = performance.now();
      }
    }
  }

  /** How many bytes of storages are among `copied` further bytes: the gaps between storages are copied along. */
  #arrived(copied: number): number {
    const before = this.#storageBytes(this.#copied);
    this.#copied += copied;
    return this.#storageBytes(this.#copied) - before;
  }

  #storageBytes(copied: number): number {
    return Math.round((this.#nbytes * copied) / this.#plan.nbytes);
  }

  /** Waits for the copies in flight, whatever becomes of them. */
  async settle(): Promise<void> {
    if (this.#done) return;
    for (const slot of [...this.#slots, this.#gatherSlot]) await slot?.wait().catch(() => {});
    // Also those that were submitted, and then the call failed that should have told of them.
    for (const { context } of this.#targets) await drain(context);
  }

  /** Starts reading the next chunk into a free slot. */
  #start(s: number): void {
    const { reads, readEnds } = this.#plan;
    if (this.#next === this.#plan.chunks) return;
    const chunk = this.#next++;
    const slot = this.#slots[s] as Slot;
    const first = chunk === 0 ? 0 : (readEnds[chunk - 1] as number);
    const last = readEnds[chunk] as number;
    this.#state[s] = READING;
    this.#chunk[s] = chunk;
    for (let k = first; k < last; k++) {
      const at = k * READ_FIELDS;
      const id = s * MAX_READS + (k - first);
      this.#reads.submit(id, slot, reads[at + 2] as number, reads[at + 1] as number, reads[at] as number);
      this.#pending[id] = 1;
      (this.#left[s] as number)++;
    }
  }

  /** Takes note of what has ended and starts what can start. Gives the bytes copied since, or -1 when nothing ended. */
  #poll(): number {
    let events = 0;
    let copied = 0;
    for (let s = 0; s < this.#slots.length; s++) {
      if (this.#state[s] !== READING) continue;
      for (let id = s * MAX_READS; id < (s + 1) * MAX_READS; id++) {
        if (this.#pending[id] === 0 || !this.#reads.finished(id)) continue;
        this.#pending[id] = 0;
        (this.#left[s] as number)--;
        events++;
      }
      if (this.#left[s] === 0) this.#copy(s);
    }
    while (this.#copying.length > 0) {
      const s = this.#copying[0] as number;
      if (!(this.#slots[s] as Slot).idle()) break;
      this.#copying.shift();
      this.#state[s] = FREE;
      copied += this.#chunkBytes(this.#chunk[s] as number);
      events++;
      this.#start(s);
    }
    return events === 0 ? -1 : copied;
  }

  /** Submits the copies of the chunk in a slot. */
  #copy(s: number): void {
    const slot = this.#slots[s] as Slot;
    const { copies, copyEnds } = this.#plan;
    const chunk = this.#chunk[s] as number;
    const last = copyEnds[chunk] as number;
    const used = new Set<CudaContext>();
    let k = chunk === 0 ? 0 : (copyEnds[chunk - 1] as number);
    while (k < last) {
      const at = k * COPY_FIELDS;
      const { context, padded } = this.#targets[copies[at + 2] as number] as FillTarget;
      const group = padded ? this.#gatherable(k, last) : 1;
      if (group > 1) {
        this.#gather(slot, k, group, context);
        k += group;
        continue;
      }
      const from = slot.address + (copies[at] as number);
      context
        .use()
        .call("cuMemcpyHtoDAsync_v2", copies[at + 3] as number, from, copies[at + 1] as number, context.stream);
      used.add(context);
      k++;
    }
    for (const context of used) slot.record(context);
    this.#state[s] = COPYING;
    this.#copying.push(s);
  }

  /** How many copies from `k` on are small and lie close together on one device. */
  #gatherable(k: number, last: number): number {
    const { copies } = this.#plan;
    const start = copies[k * COPY_FIELDS + 3] as number;
    let end = start;
    let count = 0;
    while (k + count < last) {
      const at = (k + count) * COPY_FIELDS;
      const address = copies[at + 3] as number;
      const length = copies[at + 1] as number;
      const sameTarget = copies[at + 2] === copies[k * COPY_FIELDS + 2];
      if (!sameTarget || length > GATHER || address < end || address - end > GATHER_GAP) break;
      if (address + length - start > SLOT_BYTES) break;
      end = address + length;
      count++;
    }
    return count;
  }

  /** Brings small pieces together in a slot of their own as they shall lie on the device, and copies them at once. */
  #gather(slot: Slot, first: number, count: number, context: CudaContext): void {
    const { copies } = this.#plan;
    this.#gatherSlot ??= gatheringSlot(context);
    const gather = this.#gatherSlot;
    gather.waitSync();
    const start = copies[first * COPY_FIELDS + 3] as number;
    let end = start;
    for (let k = first; k < first + count; k++) {
      const at = k * COPY_FIELDS;
      const address = copies[at + 3] as number;
      const length = copies[at + 1] as number;
      copyMemory(gather.address + (address - start), slot.address + (copies[at] as number), length);
      end = address + length;
    }
    context.use().call("cuMemcpyHtoDAsync_v2", start, gather.address, end - start, context.stream);
    gather.record(context);
  }

  #chunkBytes(chunk: number): number {
    const { copies, copyEnds } = this.#plan;
    let nbytes = 0;
    for (let k = chunk === 0 ? 0 : (copyEnds[chunk - 1] as number); k < (copyEnds[chunk] as number); k++) {
      nbytes += copies[k * COPY_FIELDS + 1] as number;
    }
    return nbytes;
  }

  #sleepSync(): void {
    if (this.#copying.length > 0) (this.#slots[this.#copying[0] as number] as Slot).waitSync();
    else this.#reads.waitSync?.();
  }

  /** Sleeps until something ends: a read while slots wait for bytes, else the oldest copy. */
  async #sleep(): Promise<void> {
    if (this.#state.includes(READING)) await this.#reads.wait();
    else await (this.#slots[this.#copying[0] as number] as Slot).wait();
  }
}
