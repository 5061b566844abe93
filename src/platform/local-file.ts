/**
 * A file on a local or mounted file system, read by offset.
 *
 * @module
 */
import { closeSync, constants, fstatSync, openSync, read, readSync, type Stats } from "node:fs";
import { fileURLToPath } from "node:url";
import { SourceError } from "../errors.js";
import { openBackgroundReads } from "./background-reads.js";
import type { BackgroundReads, FileMapping, LocalFile } from "./platform.js";
import { mapFile } from "./posix.js";

/** The most that one call of `read` takes, in bytes: Linux stops short of 2 GiB. */
const MAX_READ = 1 << 30;

/** Opens a file for reading. @throws SourceError when that is not possible, or when it is not a regular file. */
export function openLocalFile(pathOrUrl: string | URL): LocalFile {
  const path = typeof pathOrUrl === "string" ? pathOrUrl : fileURLToPath(pathOrUrl);
  let fd: number;
  try {
    // A pipe without a writer would block the process; what is no regular file is refused below.
    fd = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  } catch (error) {
    throw systemError(path, "open", error);
  }
  let stats: Stats;
  try {
    stats = fstatSync(fd);
  } catch (error) {
    closeSync(fd);
    throw systemError(path, "open", error);
  }
  if (!stats.isFile()) {
    closeSync(fd);
    const what = stats.isDirectory() ? "a directory" : "not a regular file";
    throw new SourceError(`Cannot open "${path}": it is ${what}`, {
      file: path,
      status: stats.isDirectory() ? "EISDIR" : undefined,
    });
  }
  return new NodeFile(path, fd, stats);
}

class NodeFile implements LocalFile {
  readonly path: string;
  readonly size: number;
  readonly #fd: number;
  readonly #mtimeMs: number;
  #mapping: FileMapping | undefined;
  #closed = false;

  constructor(path: string, fd: number, stats: Stats) {
    this.path = path;
    this.size = stats.size;
    this.#fd = fd;
    this.#mtimeMs = stats.mtimeMs;
  }

  read(start: number, end: number): Uint8Array {
    // Small pieces come from Node's pool, which costs less than a buffer of their own.
    const target = end - start < 4096 ? Buffer.allocUnsafe(end - start) : Buffer.allocUnsafeSlow(end - start);
    this.readSync(target, start);
    // A plain array: the methods of Node's own class differ in meaning (its slice() is no copy).
    return new Uint8Array(target.buffer, target.byteOffset, target.length);
  }

  readSync(target: Uint8Array, start: number): void {
    let got = 0;
    while (got < target.length) {
      let n: number;
      try {
        n = readSync(this.#fd, target, got, Math.min(target.length - got, MAX_READ), start + got);
      } catch (error) {
        throw systemError(this.path, "read", error);
      }
      if (n === 0) throw endedEarly(this.path, target.length, got);
      got += n;
    }
  }

  async readInto(target: Uint8Array, start: number): Promise<void> {
    let got = 0;
    while (got < target.length) {
      const at = got;
      const n = await new Promise<number>((resolve, reject) => {
        read(this.#fd, target, at, Math.min(target.length - at, MAX_READ), start + at, (error, count) =>
          error ? reject(systemError(this.path, "read", error)) : resolve(count),
        );
      });
      if (n === 0) throw endedEarly(this.path, target.length, got);
      got += n;
    }
  }

  map(): FileMapping | undefined {
    // A mapping of a file that has shrunk would kill the process on its first touch of the missing pages.
    this.checkUnchanged();
    this.#mapping ??= mapFile(this.#fd, this.size);
    return this.#mapping;
  }

  backgroundReads(queues: number): BackgroundReads | undefined {
    return openBackgroundReads(this.path, this.#fd, queues);
  }

  checkUnchanged(): void {
    const stats = fstatSync(this.#fd);
    if (stats.size !== this.size || stats.mtimeMs !== this.#mtimeMs) {
      const how = stats.size === this.size ? "was written to" : `went from ${this.size} to ${stats.size} bytes`;
      throw new SourceError(`Cannot load "${this.path}": the file ${how} while it was being read`, { file: this.path });
    }
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    closeSync(this.#fd);
  }
}

function endedEarly(path: string, wanted: number, got: number): SourceError {
  return new SourceError(`Cannot read "${path}": ${wanted} bytes wanted, the file ended after ${got}`, {
    file: path,
    wanted,
    got,
  });
}

function systemError(path: string, verb: "open" | "read", error: unknown): SourceError {
  const status = (error as NodeJS.ErrnoException).code ?? "unknown";
  const reason = status === "ENOENT" ? "there is no such file" : status === "EACCES" ? "permission denied" : status;
  return new SourceError(`Cannot ${verb} "${path}": ${reason}`, { file: path, status, cause: error });
}
