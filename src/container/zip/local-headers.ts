/**
 * The local headers of a zip archive, which say where content starts: the directory does not, as extra fields differ in length.
 * Each is compared with the directory, so that no other reader can be made to see another file.
 *
 * Definition: PKWARE APPNOTE 6.3.10, section 4.3.7.
 *
 * @module
 */
import type { FormatError } from "../../errors.js";
import type { ByteSource } from "../../source/source.js";
import { type Columns, FLAGS_ENCRYPTED, nameAt, recordFault, uint16, uint32 } from "./columns.js";
import { CENTRAL_HEADER_SIZE, LOCAL_HEADER, LOCAL_HEADER_SIZE, UINT32_MAX } from "./layout.js";

/** Where fields stand in a local header; in a central one each stands {@link CENTRAL_SHIFT} bytes later. */
const FLAGS = 6;
const METHOD = 8;
const COMPRESSED_SIZE = 18;
const SIZE = 22;
const NAME_LENGTH = 26;
const EXTRA_LENGTH = 28;
const CENTRAL_SHIFT = 2;

/** Headers are fetched together while less than this lies between them, in bytes: that is cheaper than another request. */
const GAP = 16 * 1024;
/** The most that is fetched at once for headers, in bytes. */
const MAX_FETCH = 256 * 1024;
/** Fetches under way at once. */
const FETCHES = 8;

/** Records that were asked for since the caller last waited. */
interface Batch {
  readonly indices: number[];
  /** Set once they are to be read. */
  done?: Promise<void>;
}

/** The local headers of an archive, each read when it is first asked for. */
export class LocalHeaders {
  readonly #file: string;
  readonly #directory: Uint8Array;
  readonly #columns: Columns;
  /** Where the content of each record starts in the file; 0 until its header was read. */
  readonly #dataOffsets: Float64Array;
  /** There is one once the source has answered with a promise: reading one by one would then take a round trip each. */
  #batch: Batch | undefined;

  /** @param directory - the bytes of the directory that the columns were read from. */
  constructor(file: string, directory: Uint8Array, columns: Columns) {
    this.#file = file;
    this.#directory = directory;
    this.#columns = columns;
    this.#dataOffsets = new Float64Array(columns.headers.length);
  }

  /**
   * Where the content of a record starts in the file.
   *
   * @throws FormatError when the local header disagrees with the directory.
   */
  locate(source: ByteSource, index: number): number | Promise<number> {
    const known = this.#dataOffsets[index] as number;
    if (known > 0) return known;
    if (this.#batch !== undefined) return this.#locateTogether(source, this.#batch, index);
    const start = this.#columns.headerOffsets[index] as number;
    const header = source.read(start, start + this.#length(index));
    if (!(header instanceof Promise)) return this.#note(index, header, 0);
    this.#batch = { indices: [] };
    return header.then((bytes) => this.#note(index, bytes, 0));
  }

  async #locateTogether(source: ByteSource, batch: Batch, index: number): Promise<number> {
    batch.indices.push(index);
    // Whoever asks for many asks for all of them before waiting for one.
    batch.done ??= Promise.resolve().then(() => {
      this.#batch = { indices: [] };
      return this.#fetch(source, batch.indices);
    });
    await batch.done;
    return this.#dataOffsets[index] as number;
  }

  /** Reads the headers of records, those of neighbours together where little lies between them. */
  async #fetch(source: ByteSource, indices: readonly number[]): Promise<void> {
    const startOf = (index: number): number => this.#columns.headerOffsets[index] as number;
    const sorted = Uint32Array.from(new Set(indices)).sort((a, b) => startOf(a) - startOf(b));
    let next = 0;
    const lane = async (): Promise<void> => {
      while (next < sorted.length) {
        const first = next;
        const start = startOf(sorted[first] as number);
        let end = start;
        for (; next < sorted.length; next++) {
          const index = sorted[next] as number;
          const headerEnd = startOf(index) + this.#length(index);
          if (next > first && (startOf(index) - end > GAP || headerEnd - start > MAX_FETCH)) break;
          end = headerEnd;
        }
        const group = sorted.subarray(first, next);
        const bytes = await source.read(start, end);
        for (const index of group) this.#note(index, bytes, startOf(index) - start);
      }
    };
    const lanes = Array.from({ length: FETCHES }, lane);
    // All end before an error leaves, so that none is left to fail unseen.
    for (const result of await Promise.allSettled(lanes)) if (result.status === "rejected") throw result.reason;
  }

  /** Length of the local header up to the end of its name, if that is the name in the directory. */
  #length(index: number): number {
    const central = (this.#columns.headers[index] as number) + CENTRAL_SHIFT;
    return LOCAL_HEADER_SIZE + uint16(this.#directory, central + NAME_LENGTH);
  }

  /** Compares the local header at `at` of `bytes` with the directory. Notes and gives where the content starts. */
  #note(index: number, bytes: Uint8Array, at: number): number {
    const directory = this.#directory;
    const { headers, headerOffsets, compressedSizes, limits } = this.#columns;
    const start = headerOffsets[index] as number;
    const central = headers[index] as number;
    if (uint32(bytes, at) !== LOCAL_HEADER) throw this.#fault(index, `there is no local header at byte ${start}`);
    const nameLength = uint16(bytes, at + NAME_LENGTH);
    let same = nameLength === uint16(directory, central + CENTRAL_SHIFT + NAME_LENGTH);
    const name = at + LOCAL_HEADER_SIZE;
    const centralName = central + CENTRAL_HEADER_SIZE;
    for (let k = 0; same && k < nameLength; k++) same = bytes[name + k] === directory[centralName + k];
    if (!same) throw this.#otherThanDirectory(index, "name");
    this.#compareFields(index, bytes, at, central + CENTRAL_SHIFT);
    const offset = start + LOCAL_HEADER_SIZE + nameLength + uint16(bytes, at + EXTRA_LENGTH);
    const end = offset + (compressedSizes[index] as number);
    const limit = limits[index] as number;
    if (end > limit) {
      const what = `it ends at byte ${end}, the next record starts at ${limit}`;
      throw this.#fault(index, what, { expected: limit, found: end });
    }
    this.#dataOffsets[index] = offset;
    return offset;
  }

  /**
   * Compares the fields that another reader might believe instead of the directory's. A size of 0 is one that was not known
   * when the header was written, as in all that PyTorch writes; one of 32 set bits stands in the extra field.
   */
  #compareFields(index: number, bytes: Uint8Array, at: number, central: number): void {
    const directory = this.#directory;
    const flags = uint16(bytes, at + FLAGS) ^ uint16(directory, central + FLAGS);
    if ((flags & FLAGS_ENCRYPTED) !== 0) throw this.#otherThanDirectory(index, "encryption flag");
    if (uint16(bytes, at + METHOD) !== uint16(directory, central + METHOD)) {
      throw this.#otherThanDirectory(index, "compression method");
    }
    const size = uint32(bytes, at + SIZE);
    if (size !== 0 && size !== UINT32_MAX && size !== this.#columns.sizes[index]) {
      throw this.#otherThanDirectory(index, "size");
    }
    const compressed = uint32(bytes, at + COMPRESSED_SIZE);
    if (compressed !== 0 && compressed !== UINT32_MAX && compressed !== this.#columns.compressedSizes[index]) {
      throw this.#otherThanDirectory(index, "compressed size");
    }
  }

  #otherThanDirectory(index: number, field: string): FormatError {
    return this.#fault(index, `its local header has another ${field} than the directory`);
  }

  #fault(index: number, what: string, details?: { expected: number; found: number }): FormatError {
    const name = nameAt(this.#directory, this.#columns.headers[index] as number);
    return recordFault(this.#file, name, what, details);
  }
}
