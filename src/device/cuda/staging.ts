/**
 * Pinned main memory that copies to and from devices go through: a ring of slots, made as needed, once, and kept for the
 * process. Pinned memory alone moves at the link's full speed, and pinning is dear (0.3 ms a MiB), so there is little of
 * it: at most {@link SLOT_COUNT} slots.
 *
 * @module
 */
import { allocateHuge, viewMemory } from "#platform";
import { allocateHost } from "../cpu/host-memory.js";
import type { CudaContext } from "./context.js";
import { CUDA_ERROR_NOT_READY, CUDA_SUCCESS, driverError } from "./driver.js";

/**
 * Bytes of one slot, the unit of copying. The copy engine pauses 2 to 3 µs between copies: 8 MiB loses 2 % of the link to
 * that, 2 MiB 7 % (measured on an H200; docs/performance.md).
 */
export const SLOT_BYTES: number = 8 * 1024 * 1024;

/** Slots of a load: 64 MiB in all, which keeps sixteen reads and a few copies in flight. */
export const SLOT_COUNT = 8;

/** `CU_MEMHOSTALLOC_PORTABLE` and `CU_MEMHOSTREGISTER_PORTABLE`: pinned for every context. */
const PORTABLE = 1;

/** One slot of pinned memory. */
export class Slot {
  /** Address in main memory. */
  readonly address: number;
  /** The same memory for JavaScript. */
  readonly bytes: Uint8Array;
  /** An event a device, recorded behind the last copy that uses the slot. */
  readonly #events = new Map<CudaContext, number>();
  readonly #pending = new Set<CudaContext>();

  constructor(address: number) {
    this.address = address;
    this.bytes = new Uint8Array(viewMemory(address, SLOT_BYTES));
  }

  /** Notes that copies of this slot were submitted on the context's stream. */
  record(context: CudaContext): void {
    let event = this.#events.get(context);
    if (event === undefined) {
      event = context.createEvent(true);
      this.#events.set(context, event);
    }
    context.use().call("cuEventRecord", event, context.stream);
    this.#pending.add(context);
  }

  /** Whether all copies of the slot are done. @throws DeviceError when one failed. */
  idle(): boolean {
    for (const context of this.#pending) {
      const result = context.use().try("cuEventQuery", this.#events.get(context) as number);
      if (result === CUDA_ERROR_NOT_READY) return false;
      if (result !== CUDA_SUCCESS) throw driverError("cuEventQuery", result, `${context.device}`);
      this.#pending.delete(context);
    }
    return true;
  }

  /** Blocks this thread until the copies of the slot are done. @throws DeviceError when one failed. */
  waitSync(): void {
    for (const context of this.#pending) {
      context.use().call("cuEventSynchronize", this.#events.get(context) as number);
      this.#pending.delete(context);
    }
  }

  /** Resolves when the copies of the slot are done. @throws DeviceError when one failed. */
  async wait(): Promise<void> {
    for (const context of [...this.#pending]) {
      await context.driver.later("cuEventSynchronize", this.#events.get(context) as number);
      this.#pending.delete(context);
    }
  }
}

const slots: Slot[] = [];

/** The first `count` slots, pinned now if they are not yet. Only the holder of {@link lockStaging} may use them. */
export function stagingSlots(context: CudaContext, count: number): readonly Slot[] {
  while (slots.length < Math.min(count, SLOT_COUNT)) slots.push(new Slot(pin(context)));
  return slots.slice(0, count);
}

/** The slots that are pinned already. */
export function pinnedSlots(): readonly Slot[] {
  return slots;
}

/** Forgets the slots, for tests that put a stand-in in the driver's place. Their memory stays pinned. */
export function forgetStaging(): void {
  slots.length = 0;
  gathering = undefined;
}

let gathering: Slot | undefined;

/** One more slot, for loads that bring small pieces together before they copy them. */
export function gatheringSlot(context: CudaContext): Slot {
  gathering ??= new Slot(pin(context));
  return gathering;
}

function pin(context: CudaContext): number {
  const driver = context.use();
  const huge = allocateHuge(SLOT_BYTES);
  if (huge !== undefined) {
    if (driver.try("cuMemHostRegister_v2", huge.address, SLOT_BYTES, PORTABLE) === CUDA_SUCCESS) return huge.address;
    huge.free();
  }
  return driver.make("cuMemHostAlloc", SLOT_BYTES, PORTABLE);
}

let staging: Promise<unknown> = Promise.resolve();
let busy = 0;

/** Takes the slots if nobody holds them; the result gives them back. */
export function tryLockStaging(): (() => void) | undefined {
  if (busy > 0) return undefined;
  let release = (): void => {};
  staging = new Promise<void>((resolve) => {
    release = resolve;
  });
  busy++;
  return () => {
    busy--;
    release();
  };
}

/**
 * Runs `work` while it alone holds the slots: transfers share one link, and one after the other is no slower.
 *
 * @param context - where `work` copies; when it fails its copies end before the error leaves.
 */
export function lockStaging<Result>(work: () => Promise<Result>, context?: CudaContext): Promise<Result> {
  const before = busy === 0 ? undefined : staging;
  busy++;
  const run = (async () => {
    // Awaiting nothing would still cost a turn of the event loop, which the smallest loads notice.
    if (before !== undefined) await before.catch(() => {});
    try {
      return await work();
    } catch (error) {
      if (context !== undefined) await drain(context);
      throw error;
    } finally {
      busy--;
    }
  })();
  staging = run;
  return run;
}

/** Waits, after a failure, for all copies that are in flight, so that slots and memory can be used for something else. */
export async function drain({ driver, stream }: CudaContext): Promise<void> {
  await driver.later("cuStreamSynchronize", stream).catch(() => {});
}

/** Copies device memory into main memory, through the slots: one is emptied while the next is being filled. */
export function readDevice(
  context: CudaContext,
  address: number,
  nbytes: number,
  target?: Uint8Array,
): Promise<Uint8Array> {
  return lockStaging(async () => {
    const result = target ?? allocateHost(nbytes);
    const [first, second] = stagingSlots(context, 2) as [Slot, Slot];
    const start = (slot: Slot, offset: number): void => {
      const length = Math.min(SLOT_BYTES, nbytes - offset);
      context.use().call("cuMemcpyDtoHAsync_v2", slot.address, address + offset, length, context.stream);
      slot.record(context);
    };
    let slot = first;
    let next = second;
    if (nbytes > 0) start(slot, 0);
    for (let offset = 0; offset < nbytes; offset += SLOT_BYTES) {
      if (offset + SLOT_BYTES < nbytes) start(next, offset + SLOT_BYTES);
      if (!slot.idle()) await slot.wait();
      result.set(slot.bytes.subarray(0, Math.min(SLOT_BYTES, nbytes - offset)), offset);
      [slot, next] = [next, slot];
    }
    return result;
  }, context);
}
