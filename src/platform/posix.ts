/**
 * The calls of the C library that Node does not offer: memory mapping and asynchronous reads.
 *
 * Constants are those of Linux (x86-64 and AArch64 agree) and macOS; other systems get no mapping.
 *
 * @module
 */
import { nativeCallsAvailable, openLibrary, viewMemory } from "./native.js";
import type { FileMapping, NativeFunction } from "./platform.js";

const PROT_READ = 1;
const PROT_WRITE = 2;
const MAP_PRIVATE = 2;
const MAP_ANONYMOUS = process.platform === "darwin" ? 0x1000 : 0x20;
/** Linux: back the range with huge pages where possible. */
const MADV_HUGEPAGE = 14;
/** Linux 5.14: fault the range in for writing, in one call. */
const MADV_POPULATE_WRITE = 23;
const HUGE_PAGE = 2 * 1024 * 1024;

interface LibC {
  readonly mmap: NativeFunction;
  readonly munmap: NativeFunction;
  readonly madvise: NativeFunction;
  readonly memmove: NativeFunction;
}

let libcCache: LibC | null | undefined;

function libc(): LibC | undefined {
  if (libcCache !== undefined) return libcCache ?? undefined;
  libcCache = null;
  if ((process.platform === "linux" || process.platform === "darwin") && nativeCallsAvailable()) {
    const library = openLibrary(C_LIBRARY);
    if (library !== undefined) {
      libcCache = {
        mmap: library.bind("mmap", "int64", ["uint64", "uint64", "int32", "int32", "int32", "int64"]),
        munmap: library.bind("munmap", "int32", ["uint64", "uint64"]),
        madvise: library.bind("madvise", "int32", ["uint64", "uint64", "int32"]),
        memmove: library.bind("memmove", "uint64", ["uint64", "uint64", "uint64"]),
      };
    }
  }
  return libcCache ?? undefined;
}

/** The C library's names: glibc, musl, macOS. */
export const C_LIBRARY: readonly string[] =
  process.platform === "darwin" ? ["/usr/lib/libSystem.B.dylib"] : ["libc.so.6", "libc.musl-x86_64.so.1", "libc.so"];

/** Unmaps a mapping once nothing in JavaScript refers to it. */
const mappings = new FinalizationRegistry<{ address: number; nbytes: number }>(({ address, nbytes }) => {
  libc()?.munmap(address, nbytes);
});

/** Ties an `ArrayBuffer` to the mapping under it: an entry keeps the mapping for as long as the buffer lives. */
const owners = new WeakMap<ArrayBuffer, FileMapping>();

class Mapping implements FileMapping {
  readonly address: number;
  readonly nbytes: number;

  constructor(address: number, nbytes: number) {
    this.address = address;
    this.nbytes = nbytes;
    mappings.register(this, { address, nbytes });
  }

  view(byteOffset: number, nbytes: number): ArrayBuffer {
    if (byteOffset < 0 || nbytes < 0 || byteOffset + nbytes > this.nbytes) {
      throw new RangeError(
        `view [${byteOffset}, ${byteOffset + nbytes}) is not within the ${this.nbytes} mapped bytes`,
      );
    }
    const buffer = viewMemory(this.address + byteOffset, nbytes);
    owners.set(buffer, this);
    return buffer;
  }
}

/**
 * Maps a file privately: reading goes to the page cache, writing makes a page of the process's own and never reaches the
 * file. `undefined` where mapping is not possible.
 */
export function mapFile(fd: number, nbytes: number): FileMapping | undefined {
  if (nbytes === 0) return undefined;
  const address = libc()?.mmap(0, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  return address === undefined || address < 0 ? undefined : new Mapping(address, nbytes);
}

/**
 * Memory of the process's own outside the JavaScript heap, aligned to 2 MiB, on huge pages where the system has them, and
 * faulted in: pinning pages that are present and large costs a fifth of pinning small ones that are not (measured: 18 ms
 * against 37 ms for 64 MiB). `undefined` where it cannot be had.
 */
export function allocateHuge(nbytes: number): { readonly address: number; free(): void } | undefined {
  const c = libc();
  if (c === undefined) return undefined;
  const mapped = nbytes + HUGE_PAGE;
  const base = c.mmap(0, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base < 0) return undefined;
  const address = Math.ceil(base / HUGE_PAGE) * HUGE_PAGE;
  if (process.platform === "linux") {
    // Both are wishes: without them the pages are small, or come in on first touch.
    c.madvise(address, nbytes, MADV_HUGEPAGE);
    c.madvise(address, nbytes, MADV_POPULATE_WRITE);
  }
  return { address, free: () => void c.munmap(base, mapped) };
}

/** Copies `nbytes` from one address to another; the ranges may overlap. */
export function copyMemory(target: number, origin: number, nbytes: number): void {
  const c = libc();
  if (c === undefined) throw new Error("no C library");
  c.memmove(target, origin, nbytes);
}
