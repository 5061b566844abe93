/**
 * A stand-in for the CUDA driver on machines without a GPU: the calls of `libcuda` that the library makes, over main memory.
 * It stands at the border of foreign-function calls, so that everything in front of it is the real thing.
 *
 * It is stricter than a driver. Copies are carried out only when someone waits for them or has asked often enough, in the
 * order of their stream, so that a pinned slot that is used again too early gives wrong bytes. Whatever a driver would let
 * pass or answer with a crash is noted in {@link FakeCuda.faults}: wrong arguments, a missing or wrong current context,
 * copies that leave an allocation, memory that is freed under a copy.
 *
 * Device addresses are not addresses of this process: they lie above all that it can have, so that touching one directly
 * ends the process.
 *
 * Signatures and result codes: cuda.h of CUDA 13.
 *
 * @module
 */
import { allocateHuge, copyMemory, nextTurn, viewMemory } from "#platform";
import { forgetCudaBackend } from "../../src/device/cuda/cuda-backend.js";
import { type CudaCall, setDriverLibrary } from "../../src/device/cuda/driver.js";
import type { NativeFunction, NativeLibrary, NativeType } from "../../src/platform/platform.js";

type Value = Parameters<NativeFunction>[number];
type Values = readonly Value[];

/** What of `CUresult` the stand-in answers with by itself. */
export const CU: Readonly<Record<string, number>> = {
  SUCCESS: 0,
  INVALID_VALUE: 1,
  OUT_OF_MEMORY: 2,
  NOT_INITIALIZED: 3,
  DEINITIALIZED: 4,
  INVALID_DEVICE: 101,
  INVALID_CONTEXT: 201,
  INVALID_HANDLE: 400,
  NOT_READY: 600,
  ILLEGAL_ADDRESS: 700,
  ALREADY_REGISTERED: 712,
  LAUNCH_FAILED: 719,
  NOT_SUPPORTED: 801,
  UNKNOWN: 999,
};

/** What the stand-in is to be like. */
export interface FakeMachine {
  /** Number of devices; 2. */
  readonly devices?: number;
  /** Memory of each device in bytes; 1 GiB. */
  readonly memory?: number;
  /** How often an event answers that it is not ready before it is; 0. */
  readonly delay?: number;
  /** Whether the devices have memory pools; they have. */
  readonly pools?: boolean;
  /** What `cuInit` answers; success. */
  readonly init?: number;
}

/** Memory of a device that is in use. */
export interface FakeAllocation {
  readonly address: number;
  readonly nbytes: number;
  readonly device: number;
  readonly pooled: boolean;
}

interface Allocation extends FakeAllocation {
  /** Where the bytes are in this process. */
  readonly host: number;
  readonly release: () => void;
  /** Freed by the caller; perhaps still waiting for its stream. */
  freed: boolean;
}

/** Something that a stream does in its turn. */
interface Work {
  readonly run: () => void;
  /** The allocations it reads or writes; none for a free. */
  readonly uses: readonly Allocation[];
}

interface Context {
  readonly handle: number;
  readonly device: number;
  /** What every call answers after an error that a context does not survive. */
  broken: number;
}

interface Stream {
  readonly context: Context;
  readonly queue: Work[];
  /** How much was ever given to it, and how much of that is done. */
  submitted: number;
  done: number;
}

interface Event {
  readonly context: Context;
  stream: Stream | undefined;
  /** Up to where its stream has to be. */
  mark: number;
  queries: number;
}

interface Failure {
  readonly name: CudaCall;
  readonly result: number;
  /** Calls of that name to let pass. */
  skip: number;
  readonly sticky: boolean;
  readonly forever: boolean;
}

const PARAMETERS: Readonly<Record<CudaCall, readonly NativeType[]>> = {
  cuInit: ["uint32"],
  cuDriverGetVersion: ["pointer"],
  cuDeviceGetCount: ["pointer"],
  cuDeviceGet: ["pointer", "int32"],
  cuDeviceGetName: ["pointer", "int32", "int32"],
  cuDeviceGetAttribute: ["pointer", "int32", "int32"],
  cuDevicePrimaryCtxRetain: ["pointer", "int32"],
  cuCtxSetCurrent: ["uint64"],
  cuMemGetInfo_v2: ["pointer", "pointer"],
  cuMemAlloc_v2: ["pointer", "uint64"],
  cuMemFree_v2: ["uint64"],
  cuMemPoolCreate: ["pointer", "pointer"],
  cuMemPoolSetAttribute: ["uint64", "int32", "pointer"],
  cuMemAllocFromPoolAsync: ["pointer", "uint64", "uint64", "uint64"],
  cuMemFreeAsync: ["uint64", "uint64"],
  cuMemHostAlloc: ["pointer", "uint64", "uint32"],
  cuMemFreeHost: ["uint64"],
  cuMemHostRegister_v2: ["uint64", "uint64", "uint32"],
  cuMemcpyHtoDAsync_v2: ["uint64", "uint64", "uint64", "uint64"],
  cuMemcpyDtoHAsync_v2: ["uint64", "uint64", "uint64", "uint64"],
  cuMemcpyDtoDAsync_v2: ["uint64", "uint64", "uint64", "uint64"],
  cuMemcpyPeerAsync: ["uint64", "uint64", "uint64", "uint64", "uint64", "uint64"],
  cuStreamCreate: ["pointer", "uint32"],
  cuStreamSynchronize: ["uint64"],
  cuEventCreate: ["pointer", "uint32"],
  cuEventRecord: ["uint64", "uint64"],
  cuEventQuery: ["uint64"],
  cuEventSynchronize: ["uint64"],
};

/** The calls that act on the calling thread's current context. Waiting for an event or a stream is no such call. */
const NEEDS_CONTEXT: ReadonlySet<CudaCall> = new Set<CudaCall>([
  "cuMemGetInfo_v2",
  "cuMemAlloc_v2",
  "cuMemFree_v2",
  "cuMemAllocFromPoolAsync",
  "cuMemFreeAsync",
  "cuMemHostAlloc",
  "cuMemFreeHost",
  "cuMemHostRegister_v2",
  "cuMemcpyHtoDAsync_v2",
  "cuMemcpyDtoHAsync_v2",
  "cuMemcpyDtoDAsync_v2",
  "cuMemcpyPeerAsync",
  "cuStreamCreate",
  "cuEventCreate",
  "cuEventRecord",
]);

/** How far device addresses lie from the memory that stands for them: a device more, another 2^48. */
const SPACE = 2 ** 48;
/** What `cuMemAlloc` aligns to, in bytes. The memory below is aligned to 2 MiB, which nobody may count on. */
const ALIGNMENT = 512;
/** What fresh device memory is full of, so that bytes that nobody wrote show. */
export const POISON = 0xcd;

const ATTRIBUTE_MEMORY_POOLS = 115;
const GiB = 2 ** 30;

/** Pinned memory. It belongs to the process and outlives a stand-in, as the library's slots do. */
const pinned: { readonly address: number; readonly nbytes: number }[] = [];

let poisonBlock: number | undefined;
const POISON_BLOCK = 1 << 20;

function poison(host: number, nbytes: number): void {
  if (poisonBlock === undefined) {
    poisonBlock = nativeMemory(POISON_BLOCK).address;
    new Uint8Array(viewMemory(poisonBlock, POISON_BLOCK)).fill(POISON);
  }
  for (let at = 0; at < nbytes; at += POISON_BLOCK) {
    copyMemory(host + at, poisonBlock, Math.min(POISON_BLOCK, nbytes - at));
  }
}

function nativeMemory(nbytes: number): { readonly address: number; free(): void } {
  const memory = allocateHuge(nbytes);
  if (memory === undefined) throw new Error("the stand-in for CUDA needs native memory");
  return memory;
}

/** A driver that answers with this result, the arguments being wrong. */
class Refusal extends Error {
  readonly result: number;

  constructor(result: number, message: string) {
    super(message);
    this.result = result;
  }
}

/** The stand-in. {@link install} puts it in the driver's place. */
export class FakeCuda implements NativeLibrary {
  /** What was done that a driver does not forgive, one text each. Empty when all is well. */
  readonly faults: string[] = [];
  /** Called before each call is carried out, with its name. */
  onCall: ((name: CudaCall) => void) | undefined;
  /** How often an event answers that it is not ready before it is. */
  delay: number;
  /** Memory of each device in bytes. */
  readonly memory: number[];
  /** Copies as they were given: bytes of each. */
  readonly copied: number[] = [];
  readonly #pools: boolean;
  readonly #init: number;
  readonly #calls = new Map<CudaCall, number>();
  readonly #allocations = new Map<number, Allocation>();
  readonly #contexts = new Map<number, Context>();
  readonly #streams = new Map<number, Stream>();
  readonly #events = new Map<number, Event>();
  readonly #pool = new Map<number, number>();
  readonly #failures: Failure[] = [];
  #gone = false;
  #current: Context | undefined;
  #initialised = false;
  #nextHandle = 0x1000;

  constructor({ devices = 2, memory = GiB, delay = 0, pools = true, init = CU.SUCCESS as number }: FakeMachine = {}) {
    this.memory = Array.from({ length: devices }, () => memory);
    this.delay = delay;
    this.#pools = pools;
    this.#init = init;
  }

  /** Puts a stand-in in the driver's place. */
  static install(options?: FakeMachine): FakeCuda {
    const fake = new FakeCuda(options);
    setDriverLibrary(fake);
    forgetCudaBackend();
    return fake;
  }

  /** Puts the driver back in its place, and lets go of what is still allocated. Later calls get the answer of a driver that ended. */
  uninstall(): void {
    this.#gone = true;
    setDriverLibrary(undefined);
    forgetCudaBackend();
    this.abandon();
  }

  /** The allocations that are in use. */
  get live(): FakeAllocation[] {
    return [...this.#allocations.values()]
      .filter(({ freed }) => !freed)
      .map(({ address, nbytes, device, pooled }) => ({ address, nbytes, device, pooled }));
  }

  /** How many allocations are in use. */
  get leaks(): number {
    return this.live.length;
  }

  /** Copies that were given to streams and not carried out yet. */
  get pending(): number {
    let sum = 0;
    for (const { queue } of this.#streams.values()) sum += queue.filter(({ uses }) => uses.length > 0).length;
    return sum;
  }

  /** How often a call was made, all of them together without a name. */
  count(name?: CudaCall): number {
    if (name !== undefined) return this.#calls.get(name) ?? 0;
    let sum = 0;
    for (const count of this.#calls.values()) sum += count;
    return sum;
  }

  /** Starts counting anew. */
  resetCount(): void {
    this.#calls.clear();
    this.copied.length = 0;
  }

  /**
   * Makes a call answer with a failure.
   *
   * @param nth - which call of that name from now on: 1 is the next.
   */
  fail(name: CudaCall, result: number, nth = 1): void {
    this.#failures.push({ name, result, skip: nth - 1, sticky: false, forever: false });
  }

  /** Makes all calls of a name, from the `nth` on, answer with a failure. */
  failAlways(name: CudaCall, result: number, nth = 1): void {
    this.#failures.push({ name, result, skip: nth - 1, sticky: false, forever: true });
  }

  /** Makes a call fail in a way that its context does not survive: all that follow on it answer the same. */
  breakContext(name: CudaCall, result: number, nth = 1): void {
    this.#failures.push({ name, result, skip: nth - 1, sticky: true, forever: false });
  }

  /** Takes back what {@link fail} and its like were told. */
  heal(): void {
    this.#failures.length = 0;
    for (const context of this.#contexts.values()) context.broken = 0;
  }

  /** Lets go of what is still allocated, for tests in which it cannot be freed. */
  abandon(): void {
    for (const { release } of this.#allocations.values()) release();
    this.#allocations.clear();
    for (const stream of this.#streams.values()) {
      stream.queue.length = 0;
      stream.done = stream.submitted;
    }
  }

  /** The bytes of device memory as they are now, whatever is pending. */
  peek(address: number, nbytes: number): Uint8Array {
    const allocation = this.#within(address, nbytes, "peek");
    const scratch = nativeMemory(Math.max(nbytes, 1));
    copyMemory(scratch.address, allocation.host + (address - allocation.address), nbytes);
    const bytes = new Uint8Array(viewMemory(scratch.address, nbytes)).slice();
    scratch.free();
    return bytes;
  }

  has(name: string): boolean {
    return Object.hasOwn(PARAMETERS, name);
  }

  bind(name: string, result: NativeType, parameters: readonly NativeType[]): NativeFunction {
    if (!this.has(name)) throw new Error(`libcuda has no function ${name}`);
    const call = name as CudaCall;
    const signature = PARAMETERS[call];
    if (result !== "int32" || signature.join() !== parameters.join()) {
      this.#fault(`${name} is bound as ${result} (${parameters.join()}); it is int32 (${signature.join()})`);
    }
    const now = (...values: Value[]): number => this.#call(call, values, false);
    const later = async (...values: Value[]): Promise<number> => {
      // A thread of its own: the event loop goes on, and no context is current there.
      await nextTurn();
      return this.#call(call, values, true);
    };
    return Object.assign(now, { later });
  }

  #fault(message: string): void {
    this.faults.push(message);
  }

  #call(name: CudaCall, values: Values, onThread: boolean): number {
    this.#calls.set(name, (this.#calls.get(name) ?? 0) + 1);
    if (this.#gone) return CU.DEINITIALIZED as number;
    this.onCall?.(name);
    try {
      checkValues(name, values);
      const context = onThread ? undefined : this.#current;
      if (NEEDS_CONTEXT.has(name) && context === undefined) {
        throw new Refusal(CU.INVALID_CONTEXT as number, `${name} is called without a current context`);
      }
      if (!this.#initialised && name !== "cuInit") {
        throw new Refusal(CU.NOT_INITIALIZED as number, `${name} is called before cuInit`);
      }
      const failed = this.#failureOf(name, values);
      return failed ?? this.#carryOut(name, values, context as Context);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.#fault(`${error.message}\n${error.stack?.split("\n").slice(2, 9).join("\n")}`);
      return error.result;
    }
  }

  #failureOf(name: CudaCall, values: Values): number | undefined {
    const context = this.#contextOf(name, values);
    if (context !== undefined && context.broken !== 0) return context.broken;
    for (const [index, failure] of this.#failures.entries()) {
      if (failure.name !== name) continue;
      if (failure.skip > 0) {
        failure.skip--;
        continue;
      }
      if (!failure.forever) this.#failures.splice(index, 1);
      if (failure.sticky && context !== undefined) this.#break(context, failure.result);
      return failure.result;
    }
    return undefined;
  }

  /** The context that a call is about: that of its event or stream, else the current one. */
  #contextOf(name: CudaCall, values: Values): Context | undefined {
    const handle = Number(values.at(-1));
    if (name === "cuEventQuery" || name === "cuEventSynchronize") return this.#events.get(handle)?.context;
    if (name === "cuStreamSynchronize") return this.#streams.get(handle)?.context;
    return NEEDS_CONTEXT.has(name) ? this.#current : undefined;
  }

  /** A context that broke does nothing more: what was given to its streams is lost. */
  #break(context: Context, result: number): void {
    context.broken = result;
    for (const stream of this.#streams.values()) {
      if (stream.context !== context) continue;
      stream.queue.length = 0;
      stream.done = stream.submitted;
    }
  }

  #carryOut(name: CudaCall, values: Values, context: Context): number {
    const number = (index: number): number => Number(values[index]);
    switch (name) {
      case "cuInit":
        this.#initialised = this.#init === CU.SUCCESS;
        return this.#init;
      case "cuDriverGetVersion":
        return giveInt(values, 13000);
      case "cuDeviceGetCount":
        return giveInt(values, this.memory.length);
      case "cuDeviceGet":
        // A driver answers so without taking offence.
        if (number(1) < 0 || number(1) >= this.memory.length) return CU.INVALID_DEVICE as number;
        return giveInt(values, number(1));
      case "cuDeviceGetName": {
        const target = values[0] as Uint8Array;
        target.set(new TextEncoder().encode(`Fake ${number(2)}\0`).subarray(0, number(1)));
        return CU.SUCCESS as number;
      }
      case "cuDeviceGetAttribute":
        return giveInt(values, number(1) === ATTRIBUTE_MEMORY_POOLS && this.#pools ? 1 : 0);
      case "cuDevicePrimaryCtxRetain":
        return giveWord(values, this.#retain(number(1)).handle);
      case "cuCtxSetCurrent":
        if (number(0) !== 0) this.#current = this.#contextByHandle(number(0));
        else this.#current = undefined;
        return this.#current?.broken ?? 0;
      case "cuMemGetInfo_v2": {
        const total = this.memory[context.device] as number;
        (values[1] as BigUint64Array)[0] = BigInt(total);
        return giveWord(values, total - this.#used(context.device));
      }
      case "cuMemAlloc_v2":
        return this.#allocate(values, context.device, number(1), false);
      case "cuMemFree_v2":
        return this.#free(number(0), context);
      case "cuMemPoolCreate":
        return this.#createPool(values);
      case "cuMemPoolSetAttribute":
        if (!this.#pool.has(number(0))) throw new Refusal(CU.INVALID_HANDLE as number, `${name}: no such pool`);
        return CU.SUCCESS as number;
      case "cuMemAllocFromPoolAsync": {
        const device = this.#pool.get(number(2));
        if (device === undefined) throw new Refusal(CU.INVALID_HANDLE as number, `${name}: no such pool`);
        this.#stream(number(3), context, name);
        return this.#allocate(values, device, number(1), true);
      }
      case "cuMemFreeAsync":
        return this.#freeInTurn(number(0), this.#stream(number(1), context, name));
      case "cuMemHostAlloc": {
        const { address } = nativeMemory(number(1));
        pinned.push({ address, nbytes: number(1) });
        return giveWord(values, address);
      }
      case "cuMemFreeHost":
        throw new Refusal(CU.INVALID_VALUE as number, "pinned memory is kept for the process");
      case "cuMemHostRegister_v2": {
        const [address, nbytes] = [number(0), number(1)];
        if (pinned.some((range) => address < range.address + range.nbytes && range.address < address + nbytes)) {
          return CU.ALREADY_REGISTERED as number;
        }
        pinned.push({ address, nbytes });
        return CU.SUCCESS as number;
      }
      case "cuMemcpyHtoDAsync_v2": {
        const [target, origin, nbytes] = [number(0), number(1), number(2)];
        const allocation = this.#within(target, nbytes, name, context.device);
        checkPinned(origin, nbytes, name);
        return this.#copy(this.#stream(number(3), context, name), hostOf(allocation, target), origin, nbytes, [
          allocation,
        ]);
      }
      case "cuMemcpyDtoHAsync_v2": {
        const [target, origin, nbytes] = [number(0), number(1), number(2)];
        const allocation = this.#within(origin, nbytes, name, context.device);
        checkPinned(target, nbytes, name);
        const stream = this.#stream(number(3), context, name);
        // Whoever looks before the copy is done sees this.
        if (stream.queue.length === 0) poison(target, nbytes);
        return this.#copy(stream, target, hostOf(allocation, origin), nbytes, [allocation]);
      }
      case "cuMemcpyDtoDAsync_v2": {
        const [target, origin, nbytes] = [number(0), number(1), number(2)];
        const to = this.#within(target, nbytes, name, context.device);
        const from = this.#within(origin, nbytes, name, context.device);
        const stream = this.#stream(number(3), context, name);
        return this.#copy(stream, hostOf(to, target), hostOf(from, origin), nbytes, [to, from]);
      }
      case "cuMemcpyPeerAsync": {
        const [target, origin, nbytes] = [number(0), number(2), number(4)];
        const to = this.#within(target, nbytes, name, this.#contextByHandle(number(1)).device);
        const from = this.#within(origin, nbytes, name, this.#contextByHandle(number(3)).device);
        const stream = this.#stream(number(5), context, name);
        return this.#copy(stream, hostOf(to, target), hostOf(from, origin), nbytes, [to, from]);
      }
      case "cuStreamCreate": {
        const handle = this.#handle();
        this.#streams.set(handle, { context, queue: [], submitted: 0, done: 0 });
        return giveWord(values, handle);
      }
      case "cuStreamSynchronize": {
        const stream = this.#streams.get(number(0));
        if (stream === undefined) throw new Refusal(CU.INVALID_HANDLE as number, `${name}: no such stream`);
        advance(stream, stream.submitted);
        return CU.SUCCESS as number;
      }
      case "cuEventCreate": {
        const handle = this.#handle();
        this.#events.set(handle, { context, stream: undefined, mark: 0, queries: 0 });
        return giveWord(values, handle);
      }
      case "cuEventRecord": {
        const event = this.#event(number(0), name);
        const stream = this.#stream(number(1), context, name);
        if (event.context !== stream.context) {
          throw new Refusal(CU.INVALID_HANDLE as number, `${name}: event and stream are of different contexts`);
        }
        Object.assign(event, { stream, mark: stream.submitted, queries: 0 });
        return CU.SUCCESS as number;
      }
      case "cuEventQuery": {
        const event = this.#event(number(0), name);
        if (event.stream === undefined || event.stream.done >= event.mark) return CU.SUCCESS as number;
        if (event.queries++ < this.delay) return CU.NOT_READY as number;
        advance(event.stream, event.mark);
        return CU.SUCCESS as number;
      }
      case "cuEventSynchronize": {
        const event = this.#event(number(0), name);
        if (event.stream !== undefined) advance(event.stream, event.mark);
        return CU.SUCCESS as number;
      }
      default:
        return name satisfies never;
    }
  }

  #handle(): number {
    this.#nextHandle += 0x10;
    return this.#nextHandle;
  }

  #retain(device: number): Context {
    if (device < 0 || device >= this.memory.length) {
      throw new Refusal(CU.INVALID_DEVICE as number, `there is no device ${device}`);
    }
    for (const context of this.#contexts.values()) if (context.device === device) return context;
    const context: Context = { handle: this.#handle(), device, broken: 0 };
    this.#contexts.set(context.handle, context);
    return context;
  }

  #contextByHandle(handle: number): Context {
    const context = this.#contexts.get(handle);
    if (context === undefined) throw new Refusal(CU.INVALID_CONTEXT as number, `${handle} is not a context`);
    return context;
  }

  #stream(handle: number, context: Context, name: string): Stream {
    const stream = this.#streams.get(handle);
    if (stream === undefined) throw new Refusal(CU.INVALID_HANDLE as number, `${name}: ${handle} is not a stream`);
    if (stream.context !== context) {
      throw new Refusal(CU.INVALID_CONTEXT as number, `${name}: the stream is not of the current context`);
    }
    return stream;
  }

  #event(handle: number, name: string): Event {
    const event = this.#events.get(handle);
    if (event === undefined) throw new Refusal(CU.INVALID_HANDLE as number, `${name}: ${handle} is not an event`);
    return event;
  }

  #createPool(values: Values): number {
    if (!this.#pools) return CU.NOT_SUPPORTED as number;
    const properties = values[1] as Int32Array;
    const [type, , location, device] = properties;
    if (properties.byteLength < 88 || type !== 1 || location !== 1 || (device as number) >= this.memory.length) {
      throw new Refusal(CU.INVALID_VALUE as number, "cuMemPoolCreate: not the properties of a pool on a device");
    }
    const handle = this.#handle();
    this.#pool.set(handle, device as number);
    return giveWord(values, handle);
  }

  #used(device: number): number {
    let sum = 0;
    for (const { nbytes, device: of, freed } of this.#allocations.values()) if (of === device && !freed) sum += nbytes;
    return sum;
  }

  #allocate(values: Values, device: number, nbytes: number, pooled: boolean): number {
    if (nbytes === 0) throw new Refusal(CU.INVALID_VALUE as number, "an allocation of 0 bytes");
    if (this.#used(device) + nbytes > (this.memory[device] as number)) return CU.OUT_OF_MEMORY as number;
    const memory = nativeMemory(nbytes + ALIGNMENT);
    const host = memory.address + ALIGNMENT;
    poison(host, nbytes);
    const address = host + SPACE * (device + 1);
    const release = (): void => memory.free();
    this.#allocations.set(address, { address, nbytes, device, pooled, host, release, freed: false });
    return giveWord(values, address);
  }

  /** The allocation that a range lies in. */
  #within(address: number, nbytes: number, name: string, device?: number): Allocation {
    for (const allocation of this.#allocations.values()) {
      if (address < allocation.address || address >= allocation.address + allocation.nbytes) continue;
      if (address + nbytes > allocation.address + allocation.nbytes) {
        throw new Refusal(
          CU.ILLEGAL_ADDRESS as number,
          `${name}: ${nbytes} bytes at ${address - allocation.address} of an allocation of ${allocation.nbytes}`,
        );
      }
      if (allocation.freed) throw new Refusal(CU.ILLEGAL_ADDRESS as number, `${name}: the memory was freed`);
      if (device !== undefined && device !== allocation.device) {
        throw new Refusal(CU.INVALID_VALUE as number, `${name}: the memory is on device ${allocation.device}`);
      }
      return allocation;
    }
    throw new Refusal(CU.ILLEGAL_ADDRESS as number, `${name}: no memory is allocated at ${address}`);
  }

  #allocated(address: number, name: string): Allocation {
    const allocation = this.#allocations.get(address);
    if (allocation === undefined || allocation.freed) {
      throw new Refusal(CU.INVALID_VALUE as number, `${name}: no allocation starts at ${address}`);
    }
    return allocation;
  }

  #checkUnused(allocation: Allocation, name: string, except?: Stream): void {
    for (const stream of this.#streams.values()) {
      if (stream === except || !stream.queue.some(({ uses }) => uses.includes(allocation))) continue;
      this.#fault(`${name}: ${allocation.nbytes} bytes on device ${allocation.device} are freed under a copy`);
      advance(stream, stream.submitted);
    }
  }

  #free(address: number, context: Context): number {
    const allocation = this.#allocated(address, "cuMemFree_v2");
    if (allocation.pooled) throw new Refusal(CU.INVALID_VALUE as number, "cuMemFree_v2: the memory is a pool's");
    if (allocation.device !== context.device) {
      throw new Refusal(CU.INVALID_VALUE as number, "cuMemFree_v2: the memory is another device's");
    }
    this.#checkUnused(allocation, "cuMemFree_v2");
    this.#drop(allocation);
    return CU.SUCCESS as number;
  }

  /** Frees when the stream gets there, so that copies before it on that stream are no fault. */
  #freeInTurn(address: number, stream: Stream): number {
    const allocation = this.#allocated(address, "cuMemFreeAsync");
    this.#checkUnused(allocation, "cuMemFreeAsync", stream);
    allocation.freed = true;
    if (stream.queue.length === 0) this.#drop(allocation);
    else submit(stream, { run: () => this.#drop(allocation), uses: [] });
    return CU.SUCCESS as number;
  }

  #drop(allocation: Allocation): void {
    allocation.freed = true;
    this.#allocations.delete(allocation.address);
    allocation.release();
  }

  #copy(stream: Stream, target: number, origin: number, nbytes: number, uses: readonly Allocation[]): number {
    this.copied.push(nbytes);
    submit(stream, { run: () => copyMemory(target, origin, nbytes), uses });
    return CU.SUCCESS as number;
  }
}

function hostOf(allocation: Allocation, address: number): number {
  return allocation.host + (address - allocation.address);
}

function submit(stream: Stream, work: Work): void {
  stream.queue.push(work);
  stream.submitted++;
}

function advance(stream: Stream, mark: number): void {
  while (stream.done < mark) {
    stream.done++;
    stream.queue.shift()?.run();
  }
}

function checkPinned(address: number, nbytes: number, name: string): void {
  const inside = pinned.some((range) => address >= range.address && address + nbytes <= range.address + range.nbytes);
  if (!inside) throw new Refusal(CU.INVALID_VALUE as number, `${name}: ${nbytes} bytes at ${address} are not pinned`);
}

function giveWord(values: Values, word: number): number {
  (values[0] as BigUint64Array)[0] = BigInt(word);
  return CU.SUCCESS as number;
}

function giveInt(values: Values, int: number): number {
  (values[0] as Int32Array)[0] = int;
  return CU.SUCCESS as number;
}

/** Calls whose first parameter takes a `uint64`; the others with a pointer take an `int`, or text. */
const GIVES_WORD: ReadonlySet<CudaCall> = new Set<CudaCall>([
  "cuDevicePrimaryCtxRetain",
  "cuMemGetInfo_v2",
  "cuMemAlloc_v2",
  "cuMemPoolCreate",
  "cuMemAllocFromPoolAsync",
  "cuMemHostAlloc",
  "cuStreamCreate",
  "cuEventCreate",
]);

const RANGES: Readonly<Record<string, readonly [number, number]>> = {
  int32: [-(2 ** 31), 2 ** 31 - 1],
  uint32: [0, 2 ** 32 - 1],
  uint64: [0, Number.MAX_SAFE_INTEGER],
};

function checkValues(name: CudaCall, values: Values): void {
  const types = PARAMETERS[name];
  const refuse = (what: string): never => {
    throw new Refusal(CU.INVALID_VALUE as number, `${name}: ${what}`);
  };
  if (values.length !== types.length) refuse(`${values.length} arguments, ${types.length} are taken`);
  types.forEach((type, index) => {
    const value = values[index] as Value;
    if (type === "pointer") {
      if (!ArrayBuffer.isView(value)) refuse(`argument ${index} is ${String(value)}, not memory`);
      return;
    }
    const [least, most] = RANGES[type] as readonly [number, number];
    const number = typeof value === "bigint" ? Number(value) : value;
    if (typeof number !== "number" || !Number.isInteger(number) || number < least || number > most) {
      refuse(`argument ${index} is ${String(value)}, not ${type}`);
    }
  });
  if (types[0] !== "pointer" || name === "cuDeviceGetName") return;
  const first = values[0];
  const fits = GIVES_WORD.has(name) ? first instanceof BigUint64Array : first instanceof Int32Array;
  if (!fits || (first as Int32Array).length < 1) refuse("the first argument has no room for the answer");
}
