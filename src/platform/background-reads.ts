/**
 * Reads carried out by native threads: POSIX asynchronous I/O as glibc implements it, a small pool of threads that do
 * blocking reads. It gives what many worker threads would (several cores copying out of the page cache at once) without
 * their start (100 ms for 16) and their heaps (9 MiB each): see docs/performance.md.
 *
 * glibc serves the requests of one file descriptor in order, on one thread at a time, so there is a descriptor for each queue.
 *
 * Layout of `struct aiocb` and `struct aioinit`: glibc, rt/aio.h and bits/types/sigevent_t.h, 64-bit.
 *
 * @module
 */
import { closeSync } from "node:fs";
import { getSystemErrorName } from "node:util";
import { SourceError } from "../errors.js";
import { nativeCallsAvailable, openLibrary, viewMemory } from "./native.js";
import type { BackgroundReads, NativeFunction } from "./platform.js";
import { allocateHuge } from "./posix.js";

const EINPROGRESS = 115;
const SIGEV_NONE = 1;
/** Bytes of one `struct aiocb`. */
const AIOCB_SIZE = 168;
const AIO_FILDES = 0;
const AIO_BUF = 16;
const AIO_NBYTES = 24;
const AIO_SIGEV_NOTIFY = 44;
const AIO_OFFSET = 128;

/** Threads in the process, and seconds one waits idle before it ends. */
const THREADS = 16;
const IDLE_SECONDS = 5;
/** The most requests that one set of reads may have pending. */
const CAPACITY = 128;

interface AioCalls {
  readonly read: NativeFunction;
  readonly error: NativeFunction;
  readonly result: NativeFunction;
  readonly suspend: NativeFunction;
  readonly dup: NativeFunction;
}

let callsCache: AioCalls | null | undefined;

function aio(): AioCalls | undefined {
  if (callsCache !== undefined) return callsCache ?? undefined;
  callsCache = null;
  // Only glibc on 64-bit Linux has this layout and these threads.
  if (process.platform !== "linux" || !["x64", "arm64"].includes(process.arch) || !nativeCallsAvailable())
    return undefined;
  const library = openLibrary(["libc.so.6"]);
  if (library === undefined || !library.has("aio_init")) return undefined;
  callsCache = {
    read: library.bind("aio_read64", "int32", ["uint64"]),
    error: library.bind("aio_error64", "int32", ["uint64"]),
    result: library.bind("aio_return64", "int64", ["uint64"]),
    suspend: library.bind("aio_suspend64", "int32", ["uint64", "int32", "uint64"]),
    dup: library.bind("dup", "int32", ["int32"]),
  };
  // struct aioinit: threads, expected simultaneous requests, …, idle time as the seventh int.
  const settings = new Int32Array(16);
  settings.set([THREADS, CAPACITY, 0, 0, 0, 0, IDLE_SECONDS, 0]);
  library.bind("aio_init", "void", ["pointer"])(settings);
  return callsCache;
}

/** Control blocks live outside the JavaScript heap, since native threads write to them. Kept and reused. */
const spareBlocks: ControlBlocks[] = [];

interface ControlBlocks {
  readonly address: number;
  readonly view: DataView;
  /** The addresses of the pending control blocks, as `aio_suspend` takes them; 0 for none. */
  readonly list: BigUint64Array;
  readonly listAddress: number;
}

function takeBlocks(): ControlBlocks | undefined {
  const spare = spareBlocks.pop();
  if (spare !== undefined) return spare;
  const nbytes = CAPACITY * (AIOCB_SIZE + 8);
  const memory = allocateHuge(nbytes);
  if (memory === undefined) return undefined;
  const buffer = viewMemory(memory.address, nbytes);
  const listAddress = memory.address + CAPACITY * AIOCB_SIZE;
  return {
    address: memory.address,
    view: new DataView(buffer),
    list: new BigUint64Array(buffer, CAPACITY * AIOCB_SIZE, CAPACITY),
    listAddress,
  };
}

/** Makes `queues` further descriptors of an open file and serves reads from them; `undefined` where that cannot be. */
export function openBackgroundReads(path: string, fd: number, queues: number): BackgroundReads | undefined {
  const calls = aio();
  if (calls === undefined) return undefined;
  const blocks = takeBlocks();
  if (blocks === undefined) return undefined;
  const fds: number[] = [];
  for (let k = 0; k < queues; k++) {
    const copy = calls.dup(fd);
    if (copy < 0) break;
    fds.push(copy);
  }
  // Out of descriptors: fewer queues are slower, and none are none.
  if (fds.length === 0) {
    spareBlocks.push(blocks);
    return undefined;
  }
  return new AioReads(path, fds, calls, blocks);
}

class AioReads implements BackgroundReads {
  readonly capacity = CAPACITY;
  readonly #path: string;
  readonly #fds: readonly number[];
  readonly #calls: AioCalls;
  readonly #blocks: ControlBlocks;
  readonly #wanted = new Float64Array(CAPACITY);
  #nextQueue = 0;

  constructor(path: string, fds: readonly number[], calls: AioCalls, blocks: ControlBlocks) {
    this.#path = path;
    this.#fds = fds;
    this.#calls = calls;
    this.#blocks = blocks;
  }

  submit(id: number, address: number, nbytes: number, start: number): void {
    const { view, list } = this.#blocks;
    const at = id * AIOCB_SIZE;
    const block = this.#blocks.address + at;
    view.setInt32(at + AIO_FILDES, this.#fds[this.#nextQueue++ % this.#fds.length] as number, true);
    view.setBigUint64(at + AIO_BUF, BigInt(address), true);
    view.setBigUint64(at + AIO_NBYTES, BigInt(nbytes), true);
    view.setInt32(at + AIO_SIGEV_NOTIFY, SIGEV_NONE, true);
    view.setBigInt64(at + AIO_OFFSET, BigInt(start), true);
    if (this.#calls.read(block) !== 0) {
      throw new SourceError(`Cannot read "${this.#path}": the system refused an asynchronous read`, {
        file: this.#path,
      });
    }
    this.#wanted[id] = nbytes;
    list[id] = BigInt(block);
  }

  finished(id: number): boolean {
    const block = this.#blocks.address + id * AIOCB_SIZE;
    const error = this.#calls.error(block);
    if (error === EINPROGRESS) return false;
    const got = this.#calls.result(block);
    this.#blocks.list[id] = 0n;
    const wanted = this.#wanted[id] as number;
    if (error !== 0) {
      const status = getSystemErrorName(-error);
      throw new SourceError(`Cannot read "${this.#path}": ${status}`, { file: this.#path, status, wanted });
    }
    if (got !== wanted) {
      throw new SourceError(`Cannot read "${this.#path}": ${wanted} bytes wanted, the file ended after ${got}`, {
        file: this.#path,
        wanted,
        got,
      });
    }
    return true;
  }

  waitSync(): void {
    this.#calls.suspend(this.#blocks.listAddress, CAPACITY, 0);
  }

  async wait(): Promise<void> {
    await this.#calls.suspend.later(this.#blocks.listAddress, CAPACITY, 0);
  }

  close(): void {
    for (let id = 0; id < CAPACITY; id++) {
      if (this.#blocks.list[id] === 0n) continue;
      const block = this.#blocks.address + id * AIOCB_SIZE;
      while (this.#calls.error(block) === EINPROGRESS) this.waitSync();
      this.#calls.result(block);
      this.#blocks.list[id] = 0n;
    }
    for (const fd of this.#fds) closeSync(fd);
    spareBlocks.push(this.#blocks);
  }
}
