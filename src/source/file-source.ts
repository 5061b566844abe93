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

/** Reads that follow each other this closely, in bytes, are a walk over small records. */
const MAX_STEP = 64 * 1024;
/** After so many steps of a walk more is read than is asked for. */
const MIN_STEPS = 32;
/** Bytes read at once in a walk: stays in the processor's cache, and the disk sees long reads. */
const AHEAD = 256 * 1024;

/** Bytes of a mapped file that are looked at through one view: below what any engine takes as one array. */
const MAPPED_VIEW = 1 << 30;

/** A file on a local or mounted file system. */
export class FileSource implements ByteSource {
  readonly file: LocalFile;
  readonly name: string;
  readonly size: number;
  /** Whether the file may be mapped into memory. */
  mayMap = true;
  #window: Uint8Array = new Uint8Array(0);
  #windowStart = 0;
  /** Bytes ahead in a walk, over the mapped file or over the buffer. */
  #ahead: Uint8Array = new Uint8Array(0);
  #aheadStart = 0;
  #buffer: Uint8Array | undefined;
  #lastStart = 0;
  #steps = 0;

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
      if (from === undefined) return this.#readElsewhere(start, end);
      this.#window = this.file.read(from, Math.min(this.size, from + WINDOW));
      this.#windowStart = from;
    }
    return this.#window.subarray(start - this.#windowStart, end - this.#windowStart);
  }

  /**
   * Single pieces are read as they are. A walk from header to header over small records looks at the mapped file, which
   * costs a fifth of reading, or else reads ahead.
   */
  #readElsewhere(start: number, end: number): Uint8Array {
    const step = start - this.#lastStart;
    this.#lastStart = start;
    this.#steps = step > 0 && step <= MAX_STEP ? this.#steps + 1 : 0;
    if (start >= this.#aheadStart && end <= this.#aheadStart + this.#ahead.length) {
      const from = start - this.#aheadStart;
      const bytes = this.#ahead.subarray(from, end - this.#aheadStart);
      // The buffer is used again, the mapping is not.
      return this.#buffer === undefined ? bytes : bytes.slice();
    }
    if (this.#steps < MIN_STEPS || end - start > MAX_STEP) return this.file.read(start, end);
    const mapping = this.mayMap ? this.file.map() : undefined;
    this.#aheadStart = start;
    if (mapping !== undefined) {
      this.#ahead = new Uint8Array(mapping.view(start, Math.min(MAPPED_VIEW, this.size - start)));
    } else {
      this.#buffer ??= new Uint8Array(AHEAD);
      this.#ahead = this.#buffer.subarray(0, Math.min(AHEAD, this.size - start));
      this.file.readSync(this.#ahead, start);
    }
    return this.#readElsewhere(start, end);
  }

  close(): void {
    this.file.close();
  }
}
