/**
 * The border between a file and everything that reads one: bytes by range. Decoding and filling know no other way
 * to a byte, so a file on a disk, bytes in memory, a `Blob` and a URL are all the same to them.
 *
 * @module
 */

/** A half-open range of bytes `[start, end)` of a source. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/**
 * Something that has a length and gives bytes by range. An object literal with these four members is a source.
 */
export interface ByteSource {
  /** A path, URL or other name, used in error messages only. */
  readonly name: string;
  /** How many bytes there are. Known from the start and fixed. */
  readonly size: number;
  /**
   * The bytes `[start, end)`, all of them: `0 <= start <= end <= size` holds for every call. The result may be a view
   * of memory that the source owns; readers never write to it. A source that has the bytes at hand answers at once,
   * others with a promise.
   *
   * @throws SourceError (thrown or as rejection) when not every byte can be had.
   */
  read(
    start: number,
    end: number,
    options?: { readonly signal?: AbortSignal | undefined },
  ): Uint8Array | Promise<Uint8Array>;
  /** Releases what the source holds. Called once, after the last read. */
  close?(): void | Promise<void>;
}
