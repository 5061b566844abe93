/**
 * The central directory of a zip archive: which records there are and where. Decode step.
 *
 * Definition: PKWARE APPNOTE 6.3.10, section 4.3.12; what PyTorch accepts of it: caffe2/serialize/inline_container.cc and
 * third_party/miniz-3.0.2 of PyTorch 2.11. Stricter than those where a lenient reader would see another file than a scanner:
 * names are unique, local headers agree, ranges do not overlap.
 *
 * Directories of 100,000 records are normal, so entries are columns of numbers over the directory's bytes, and names are
 * decoded when asked for.
 *
 * @module
 */
import { FormatError } from "../../errors.js";
import { andThen } from "../../source/and-then.js";
import type { ByteSource } from "../../source/source.js";
import { type Columns, nameAt, readColumns, uint16, uint32 } from "./columns.js";
import { type DirectoryPlace, displacement, findDirectory } from "./end-record.js";
import { CENTRAL_HEADER, LOCAL_HEADER } from "./layout.js";
import { LocalHeaders } from "./local-headers.js";
import { RecordNames } from "./names.js";

/** The records of an archive. An index is the place of a record in the directory. */
export class ZipDirectory {
  readonly file: string;
  /** Number of records. */
  readonly count: number;
  readonly #bytes: Uint8Array;
  readonly #columns: Columns;
  readonly #names: RecordNames;
  readonly #localHeaders: LocalHeaders;

  /** @internal Use {@link readZipDirectory}. */
  constructor(file: string, bytes: Uint8Array, place: DirectoryPlace) {
    this.file = file;
    this.count = place.entries;
    // One type of array, whatever the source gives: the loops over it are compiled once.
    const own = bytes.constructor === Uint8Array;
    this.#bytes = own ? bytes : new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#columns = readColumns(file, this.#bytes, place);
    this.#names = new RecordNames(file, this.#bytes, this.#columns.headers);
    this.#localHeaders = new LocalHeaders(file, this.#bytes, this.#columns);
  }

  /** The part of every name before the first `/`. */
  get root(): string {
    return this.#names.root;
  }

  /** The record of a name, without the root; `undefined` when there is none. */
  find(name: string): number | undefined {
    return this.#names.find(name);
  }

  /** The record of a storage, `data/<key>`. */
  findStorage(key: string): number | undefined {
    return this.#names.findStorage(key);
  }

  /** The full name of a record. */
  name(index: number): string {
    return nameAt(this.#bytes, this.#columns.headers[index] as number);
  }

  /** Size of the record's content, in bytes. */
  size(index: number): number {
    return this.#columns.sizes[index] as number;
  }

  /** Size of the record in the file, in bytes. */
  compressedSize(index: number): number {
    return this.#columns.compressedSizes[index] as number;
  }

  /** `METHOD_STORED` or `METHOD_DEFLATED`. */
  method(index: number): number {
    return uint16(this.#bytes, (this.#columns.headers[index] as number) + 10);
  }

  /** CRC-32 of the content; 0 may mean that none was computed. */
  crc(index: number): number {
    return uint32(this.#bytes, (this.#columns.headers[index] as number) + 16);
  }

  /** Where the record's local header starts in the file. */
  headerOffset(index: number): number {
    return this.#columns.headerOffsets[index] as number;
  }

  /**
   * Where the content of a record starts in the file. Reads the local header the first time. From sources that answer with
   * promises, the headers of records that are asked for together are read together.
   *
   * @throws FormatError when the local header disagrees with the directory.
   */
  locate(source: ByteSource, index: number): number | Promise<number> {
    return this.#localHeaders.locate(source, index);
  }
}

/** What is `expected` in the error for an archive without an end record: one that was cut short. */
export const NO_END_RECORD = "end of central directory";

/**
 * Reads the directory of an archive.
 *
 * @throws FormatError when there is none, as in an archive cut short, or when it is damaged or contradicts itself.
 * @throws UnsupportedError for archives that are something else, for encrypted records and for compression methods that
 * PyTorch does not read.
 */
export function readZipDirectory(source: ByteSource): ZipDirectory | Promise<ZipDirectory> {
  return andThen(findDirectory(source), (place) => {
    const { name: file, size } = source;
    if (place === undefined) {
      throw new FormatError(
        `Cannot load "${file}": the zip archive is cut short: its ${size} bytes have no central directory at their end`,
        { file, expected: NO_END_RECORD, found: size },
      );
    }
    if (place.entries === 0) {
      throw new FormatError(`Cannot load "${file}": it is an archive without records`, { file, found: 0 });
    }
    return andThen(source.read(place.start, place.end), (bytes) =>
      uint32(bytes, 0) === CENTRAL_HEADER
        ? new ZipDirectory(file, bytes, place)
        : andThen(explainDisplaced(source, place), () => new ZipDirectory(file, bytes, place)),
    );
  });
}

/** Throws the error for an archive that is not where its offsets say, if it is such. */
function explainDisplaced(source: ByteSource, place: DirectoryPlace): void | Promise<void> {
  const { name: file } = source;
  return andThen(displacement(source, place), (nbytes) => {
    if (nbytes === 0) return;
    return andThen(source.read(nbytes, Math.min(source.size, nbytes + 4)), (bytes) => {
      const details = { file, byteOffset: nbytes, expected: place.start, found: place.start + nbytes };
      throw uint32(bytes, 0) === LOCAL_HEADER
        ? new FormatError(
            `Cannot load "${file}": its zip archive begins at byte ${nbytes}, behind other data; ` +
              "a .distcp file of a distributed checkpoint is several archives end to end",
            details,
          )
        : new FormatError(
            `Cannot load "${file}": its central directory is ${nbytes} bytes further on than it should be: ` +
              "something was put into the file, as by a transfer in text mode; fetch it again",
            details,
          );
    });
  });
}
