/**
 * A local file as a source. It reads at once, so that decoding a local file never waits for the event loop.
 *
 * @module
 */
import { openLocalFile } from "#platform";
import type { LocalFile } from "../platform/platform.js";
import type { ByteSource } from "./source.js";

/**
 * Bytes fetched at once at the start and the end of a file, where directories and pickles are read piece by piece. Enough
 * for the pickle of a hundred tensors; fresh memory costs more than reading again where more is needed.
 */
const WINDOW = 16 * 1024;

/** A file on a local or mounted file system. */
export class FileSource implements ByteSource {
  readonly file: LocalFile;
  readonly name: string;
  readonly size: number;
  #window: Uint8Array = new Uint8Array(0);
  #windowStart = 0;

  constructor(file: LocalFile) {
    this.file = file;
    this.name = file.path;
    this.size = file.size;
  }

  /** Opens a path or `file:` URL. @throws SourceError */
  static open(path: string | URL): FileSource {
    return new FileSource(openLocalFile(path));
  }

  read(start: number, end: number): Uint8Array {
    if (start < this.#windowStart || end > this.#windowStart + this.#window.length) {
      const tail = Math.max(0, this.size - WINDOW);
      const from = end <= WINDOW ? 0 : start >= tail ? tail : undefined;
      if (from === undefined) return this.file.read(start, end);
      this.#window = this.file.read(from, Math.min(this.size, from + WINDOW));
      this.#windowStart = from;
    }
    return this.#window.subarray(start - this.#windowStart, end - this.#windowStart);
  }

  close(): void {
    this.file.close();
  }
}
