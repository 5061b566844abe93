/**
 * The central directory of a zip archive: which records there are and where. Decode step.
 *
 * Definition: PKWARE APPNOTE 6.3.10, sections 4.3.12 to 4.3.16; what PyTorch accepts of it: caffe2/serialize/inline_container.cc
 * and third_party/miniz-3.0.2 of PyTorch 2.11. Stricter than those where a lenient reader would see another file than a
 * scanner: names are unique, local headers agree, ranges do not overlap.
 *
 * Directories of 100,000 records are normal, so entries are columns of numbers over the directory's bytes, and names are
 * decoded when asked for.
 *
 * @module
 */
import { FormatError, type FormatErrorDetails, UnsupportedError } from "../../errors.js";
import { andThen } from "../../source/and-then.js";
import type { ByteSource } from "../../source/source.js";
import { checkReadWhole } from "../container.js";

const END_RECORD = 0x06054b50;
const END_RECORD_SIZE = 22;
const ZIP64_LOCATOR = 0x07064b50;
const ZIP64_LOCATOR_SIZE = 20;
const ZIP64_END_RECORD = 0x06064b50;
const ZIP64_END_RECORD_SIZE = 56;
const CENTRAL_HEADER = 0x02014b50;
const CENTRAL_HEADER_SIZE = 46;
/** Signature of a local header. */
export const LOCAL_HEADER = 0x04034b50;
/** Bytes of a local header in front of the name. */
export const LOCAL_HEADER_SIZE = 30;
const ZIP64_EXTRA = 1;
const UINT32_MAX = 0xffffffff;
const UINT16_MAX = 0xffff;
/** How far from the end the end record may start: its own size, and a comment or foreign bytes of at most 64 KiB. */
const END_SEARCH = END_RECORD_SIZE + UINT16_MAX;

const FLAG_ENCRYPTED = 1 << 0;
const FLAG_MASKED_HEADERS = 1 << 13;
const FLAGS_OF_ENCRYPTION = FLAG_ENCRYPTED | FLAG_MASKED_HEADERS;

/** Where fields stand in a local header; in a central one each stands {@link CENTRAL_SHIFT} bytes later. */
const LOCAL_FLAGS = 6;
const LOCAL_METHOD = 8;
const LOCAL_COMPRESSED_SIZE = 18;
const LOCAL_SIZE = 22;
const CENTRAL_SHIFT = 2;

/** Compression methods that PyTorch reads. */
export const METHOD_STORED = 0;
export const METHOD_DEFLATED = 8;

/** Where the directory lies, from the records at the archive's end. */
interface DirectoryPlace {
  readonly entries: number;
  readonly start: number;
  readonly end: number;
}

/** The records of an archive. An index is the place of a record in the directory. */
export class ZipDirectory {
  readonly file: string;
  /** Number of records. */
  readonly count: number;
  /** The part of every name before the first `/`. */
  readonly root: string;
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  /** Where each record's central header starts in the directory. */
  readonly #headers: Uint32Array;
  readonly #sizes: Float64Array;
  readonly #compressedSizes: Float64Array;
  readonly #headerOffsets: Float64Array;
  /** Where the bytes of each record start in the file; -1 until its local header was read. */
  readonly #dataOffsets: Float64Array;
  /** The next thing in the file behind each record's local header. */
  readonly #limits: Float64Array;
  /** Index by name without the root. Names of storages with small integer keys are in {@link #storages} alone. */
  readonly #names = new Map<string, number>();
  readonly #storages: number[] = [];

  /** @internal Use {@link readZipDirectory}. */
  constructor(file: string, bytes: Uint8Array, entries: number, directoryStart: number) {
    this.file = file;
    this.count = entries;
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#headers = new Uint32Array(entries);
    this.#sizes = new Float64Array(entries);
    this.#compressedSizes = new Float64Array(entries);
    this.#headerOffsets = new Float64Array(entries);
    this.#dataOffsets = new Float64Array(entries).fill(-1);
    this.#limits = new Float64Array(entries);
    this.#readHeaders(directoryStart);
    this.root = this.#readNames();
    this.#findLimits(directoryStart);
  }

  /** The record of a name, without the root; `undefined` when there is none. */
  find(name: string): number | undefined {
    const storage = storageKey(name);
    return storage === undefined ? this.#names.get(name) : this.#storages[storage];
  }

  /** The record of a storage, `data/<key>`. */
  findStorage(key: string): number | undefined {
    const index = keyNumber(key);
    return index === -1 ? this.#names.get(`data/${key}`) : this.#storages[index];
  }

  /** The full name of a record. */
  name(index: number): string {
    const start = (this.#headers[index] as number) + CENTRAL_HEADER_SIZE;
    return decodeName(
      this.#bytes.subarray(start, start + this.#view.getUint16((this.#headers[index] as number) + 28, true)),
    );
  }

  /** Size of the record's content, in bytes. */
  size(index: number): number {
    return this.#sizes[index] as number;
  }

  /** Size of the record in the file, in bytes. */
  compressedSize(index: number): number {
    return this.#compressedSizes[index] as number;
  }

  /** {@link METHOD_STORED} or {@link METHOD_DEFLATED}. */
  method(index: number): number {
    return this.#view.getUint16((this.#headers[index] as number) + 10, true);
  }

  /** CRC-32 of the content; 0 may mean that none was computed. */
  crc(index: number): number {
    return this.#view.getUint32((this.#headers[index] as number) + 16, true);
  }

  /**
   * Where the content of a record starts in the file. Reads the local header the first time.
   *
   * @throws FormatError when the local header disagrees with the directory.
   */
  locate(source: ByteSource, index: number): number | Promise<number> {
    const known = this.#dataOffsets[index] as number;
    if (known >= 0) return known;
    const start = this.#headerOffsets[index] as number;
    const nameLength = this.#view.getUint16((this.#headers[index] as number) + 28, true);
    return andThen(source.read(start, start + LOCAL_HEADER_SIZE + nameLength), (header) => {
      const offset = this.#checkLocalHeader(index, header);
      this.#dataOffsets[index] = offset;
      return offset;
    });
  }

  #checkLocalHeader(index: number, header: Uint8Array): number {
    const start = this.#headerOffsets[index] as number;
    const nameLength = header.length - LOCAL_HEADER_SIZE;
    if (uint32(header, 0) !== LOCAL_HEADER) throw this.#fault(index, `there is no local header at byte ${start}`);
    const central = (this.#headers[index] as number) + CENTRAL_HEADER_SIZE;
    let same = uint16(header, 26) === nameLength;
    for (let k = 0; same && k < nameLength; k++) same = header[LOCAL_HEADER_SIZE + k] === this.#bytes[central + k];
    if (!same) throw this.#otherThanDirectory(index, "name");
    this.#compareFields(index, header);
    const offset = start + header.length + uint16(header, 28);
    const end = offset + (this.#compressedSizes[index] as number);
    const limit = this.#limits[index] as number;
    if (end > limit) {
      throw this.#fault(index, `it ends at byte ${end}, the next record starts at ${limit}`, {
        expected: limit,
        found: end,
      });
    }
    return offset;
  }

  /**
   * Compares the fields that another reader might believe instead of the directory's. A size of 0 is one that was not known
   * when the header was written, as in all that PyTorch writes; one of 32 set bits stands in the extra field.
   */
  #compareFields(index: number, local: Uint8Array): void {
    const central = (this.#headers[index] as number) + CENTRAL_SHIFT;
    const flags = uint16(local, LOCAL_FLAGS) ^ this.#view.getUint16(central + LOCAL_FLAGS, true);
    if ((flags & FLAGS_OF_ENCRYPTION) !== 0) throw this.#otherThanDirectory(index, "encryption flag");
    if (uint16(local, LOCAL_METHOD) !== this.method(index)) {
      throw this.#otherThanDirectory(index, "compression method");
    }
    const size = uint32(local, LOCAL_SIZE);
    if (size !== 0 && size !== UINT32_MAX && size !== this.size(index)) throw this.#otherThanDirectory(index, "size");
    const compressedSize = uint32(local, LOCAL_COMPRESSED_SIZE);
    if (compressedSize !== 0 && compressedSize !== UINT32_MAX && compressedSize !== this.compressedSize(index)) {
      throw this.#otherThanDirectory(index, "compressed size");
    }
  }

  #otherThanDirectory(index: number, field: string): FormatError {
    return this.#fault(index, `its local header has another ${field} than the directory`);
  }

  #readHeaders(directoryStart: number): void {
    const view = this.#view;
    let at = 0;
    for (let index = 0; index < this.count; index++) {
      if (at + CENTRAL_HEADER_SIZE > view.byteLength || view.getUint32(at, true) !== CENTRAL_HEADER) {
        throw this.#damaged(
          `its central directory has no header for record ${index} of ${this.count}`,
          directoryStart + at,
        );
      }
      const nameLength = view.getUint16(at + 28, true);
      const extraLength = view.getUint16(at + 30, true);
      const next = at + CENTRAL_HEADER_SIZE + nameLength + extraLength + view.getUint16(at + 32, true);
      if (next > view.byteLength) {
        throw this.#damaged(`record ${index} of its central directory runs beyond the directory`, directoryStart + at);
      }
      this.#headers[index] = at;
      let compressedSize = view.getUint32(at + 20, true);
      let size = view.getUint32(at + 24, true);
      let headerOffset = view.getUint32(at + 42, true);
      if (compressedSize === UINT32_MAX || size === UINT32_MAX || headerOffset === UINT32_MAX) {
        const extra = this.#zip64Extra(at + CENTRAL_HEADER_SIZE + nameLength, extraLength);
        // The fields that do not fit stand in this order, and only those.
        if (size === UINT32_MAX) size = extra() ?? size;
        if (compressedSize === UINT32_MAX) compressedSize = extra() ?? compressedSize;
        if (headerOffset === UINT32_MAX) headerOffset = extra() ?? headerOffset;
      }
      this.#sizes[index] = size;
      this.#compressedSizes[index] = compressedSize;
      this.#headerOffsets[index] = headerOffset;
      this.#checkHeader(index);
      at = next;
    }
  }

  #checkHeader(index: number): void {
    const at = this.#headers[index] as number;
    const flags = this.#view.getUint16(at + 8, true);
    const method = this.method(index);
    if ((flags & FLAGS_OF_ENCRYPTION) !== 0) {
      throw new UnsupportedError(`Cannot load "${this.file}": record "${this.name(index)}" is encrypted`, {
        file: this.file,
        feature: "encrypted zip",
      });
    }
    if (method !== METHOD_STORED && method !== METHOD_DEFLATED) {
      throw new UnsupportedError(
        `Cannot load "${this.file}": record "${this.name(index)}" is compressed by method ${method}; PyTorch reads 0 (stored) and 8 (deflated)`,
        { file: this.file, feature: `zip compression method ${method}` },
      );
    }
    const size = this.#sizes[index] as number;
    const compressedSize = this.#compressedSizes[index] as number;
    if (method === METHOD_STORED && size !== compressedSize) {
      throw this.#fault(index, `it is stored, but of ${size} bytes ${compressedSize} are there`, {
        expected: size,
        found: compressedSize,
      });
    }
    if (compressedSize === 0 && size !== 0) throw this.#fault(index, `it has ${size} bytes compressed to none`);
  }

  /** Reads the 64-bit values of the zip64 extra field one after the other. */
  #zip64Extra(start: number, length: number): () => number | undefined {
    const view = this.#view;
    let at = start;
    const end = start + length;
    while (at + 4 <= end) {
      const id = view.getUint16(at, true);
      const fieldEnd = at + 4 + view.getUint16(at + 2, true);
      if (id === ZIP64_EXTRA && fieldEnd <= end) {
        let value = at + 4;
        return () => {
          if (value + 8 > fieldEnd) return undefined;
          value += 8;
          return safeUint64(view, value - 8, this.file);
        };
      }
      at = fieldEnd;
    }
    return () => undefined;
  }

  #readNames(): string {
    if (this.count === 0) throw this.#damaged("it is an archive without records", 0);
    const bytes = this.#bytes;
    const rootStart = (this.#headers[0] as number) + CENTRAL_HEADER_SIZE;
    const firstEnd = rootStart + this.#view.getUint16(rootStart - CENTRAL_HEADER_SIZE + 28, true);
    const slash = bytes.subarray(rootStart, firstEnd).indexOf(SLASH);
    if (slash < 0) throw this.#outside(this.name(0));
    const rootLength = slash + 1;
    const folded = new Set<string>();
    for (let index = 0; index < this.count; index++) {
      const start = (this.#headers[index] as number) + CENTRAL_HEADER_SIZE;
      const end = start + this.#view.getUint16(start - CENTRAL_HEADER_SIZE + 28, true);
      for (let k = 0; k < rootLength; k++) {
        if (bytes[start + k] !== bytes[rootStart + k] || start + k >= end) throw this.#outside(this.name(index));
      }
      const key = storageKeyIn(bytes, start + rootLength, end);
      if (key >= 0) {
        if (this.#storages[key] !== undefined) throw this.#twice(this.name(index));
        this.#storages[key] = index;
        continue;
      }
      const name = decodeName(bytes.subarray(start + rootLength, end));
      // PyTorch looks names up without regard to ASCII case, so such twins are ambiguous.
      const fold = name.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
      if (folded.has(fold)) throw this.#twice(name);
      folded.add(fold);
      this.#names.set(name, index);
    }
    for (const fold of folded) {
      const storage = storageKey(fold);
      if (storage !== undefined && this.#storages[storage] !== undefined) throw this.#twice(fold);
    }
    return decodeName(bytes.subarray(rootStart, rootStart + slash));
  }

  /** Sets what each record must end before: the next local header, or the directory. */
  #findLimits(directoryStart: number): void {
    const offsets = this.#headerOffsets;
    let order: Uint32Array | undefined;
    for (let index = 1; index < this.count; index++) {
      if ((offsets[index] as number) > (offsets[index - 1] as number)) continue;
      order = Uint32Array.from({ length: this.count }, (_, k) => k).sort(
        (a, b) => (offsets[a] as number) - (offsets[b] as number),
      );
      break;
    }
    let limit = directoryStart;
    for (let k = this.count - 1; k >= 0; k--) {
      const index = order === undefined ? k : (order[k] as number);
      const offset = offsets[index] as number;
      const nameLength = this.#view.getUint16((this.#headers[index] as number) + 28, true);
      const end = offset + LOCAL_HEADER_SIZE + nameLength + (this.#compressedSizes[index] as number);
      if (end > limit) {
        throw this.#fault(
          index,
          `it reaches to byte ${end} at least, the next record or the directory starts at ${limit}`,
          {
            expected: limit,
            found: end,
          },
        );
      }
      this.#limits[index] = limit;
      limit = offset;
    }
  }

  #fault(index: number, what: string, details: FormatErrorDetails = {}): FormatError {
    const record = this.name(index);
    return new FormatError(`Cannot load "${this.file}": record "${record}": ${what}`, {
      file: this.file,
      record,
      ...details,
    });
  }

  #damaged(what: string, byteOffset: number): FormatError {
    return new FormatError(`Cannot load "${this.file}": ${what}`, { file: this.file, byteOffset });
  }

  #outside(name: string): FormatError {
    return new FormatError(
      `Cannot load "${this.file}": this is a zip archive, but not a PyTorch checkpoint: record "${name}" is not in the folder of the first record, as all records of a checkpoint are`,
      { file: this.file, record: name },
    );
  }

  #twice(name: string): FormatError {
    return new FormatError(`Cannot load "${this.file}": there are two records "${name}"`, {
      file: this.file,
      record: name,
    });
  }
}

const SLASH = "/".charCodeAt(0);
const DATA_FOLDER = [..."data/"].map((letter) => letter.charCodeAt(0));
/** The most digits of a storage key that is kept as an index into an array. */
const MAX_KEY_DIGITS = 7;

/** The key in a name `data/<decimal>`, or -1. Reads bytes, as a string a name would double the time. */
function storageKeyIn(bytes: Uint8Array, start: number, end: number): number {
  const digits = end - start - DATA_FOLDER.length;
  if (digits < 1 || digits > MAX_KEY_DIGITS) return -1;
  for (let k = 0; k < DATA_FOLDER.length; k++) if (bytes[start + k] !== DATA_FOLDER[k]) return -1;
  let key = 0;
  for (let k = start + DATA_FOLDER.length; k < end; k++) {
    const digit = (bytes[k] as number) - 0x30;
    if (digit < 0 || digit > 9 || (key === 0 && k > start + DATA_FOLDER.length)) return -1;
    key = key * 10 + digit;
  }
  return key;
}

/** A storage key that is kept as an index, or -1. */
function keyNumber(key: string): number {
  if (key.length === 0 || key.length > MAX_KEY_DIGITS || (key.length > 1 && key.charCodeAt(0) === 0x30)) return -1;
  let value = 0;
  for (let k = 0; k < key.length; k++) {
    const digit = key.charCodeAt(k) - 0x30;
    if (digit < 0 || digit > 9) return -1;
    value = value * 10 + digit;
  }
  return value;
}

function storageKey(name: string): number | undefined {
  if (!name.startsWith("data/")) return undefined;
  const key = keyNumber(name.slice(5));
  return key === -1 ? undefined : key;
}

/** A byte order mark is kept: it is part of the name, and two names that differ by it are two. */
// Bytes put together by hand: a DataView for each of 100,000 headers takes longer than reading them.
function uint16(bytes: Uint8Array, at: number): number {
  return (bytes[at] as number) | ((bytes[at + 1] as number) << 8);
}

function uint32(bytes: Uint8Array, at: number): number {
  return (uint16(bytes, at) | (uint16(bytes, at + 2) << 16)) >>> 0;
}

const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

function decodeName(bytes: Uint8Array): string {
  return utf8.decode(bytes);
}

/** A 64-bit field as a number. @throws FormatError beyond the safe integers: no file is that large. */
function safeUint64(view: DataView, at: number, file: string): number {
  const value = view.getUint32(at, true) + view.getUint32(at + 4, true) * 2 ** 32;
  if (!Number.isSafeInteger(value)) {
    throw new FormatError(`Cannot load "${file}": a size or offset of the archive is beyond 2^53`, {
      file,
      found: value,
    });
  }
  return value;
}

/**
 * Reads the directory of an archive.
 *
 * @throws FormatError when there is none, as in an archive cut short, or when it is damaged or contradicts itself.
 * @throws UnsupportedError for encrypted records and compression methods that PyTorch does not read.
 */
export function readZipDirectory(source: ByteSource): ZipDirectory | Promise<ZipDirectory> {
  return andThen(findDirectory(source), ({ entries, start, end }) =>
    andThen(source.read(start, end), (bytes) => new ZipDirectory(source.name, bytes, entries, start)),
  );
}

function endRecordIn(tail: Uint8Array): number | undefined {
  const view = new DataView(tail.buffer, tail.byteOffset, tail.byteLength);
  for (let at = tail.length - END_RECORD_SIZE; at >= 0; at--) {
    if (tail[at] === 0x50 && view.getUint32(at, true) === END_RECORD) return at;
  }
  return undefined;
}

/** What is `expected` in the error for an archive without an end record: one that was cut short. */
export const NO_END_RECORD = "end of central directory";

/** The end records of an archive with nothing behind it, as PyTorch writes it. */
const PLAIN_TAIL = END_RECORD_SIZE + ZIP64_LOCATOR_SIZE + ZIP64_END_RECORD_SIZE;

/** Finds the directory: in the last bytes where nothing follows the archive, else by searching backwards. */
function findDirectory(source: ByteSource): DirectoryPlace | Promise<DirectoryPlace> {
  return andThen(directoryIn(source, PLAIN_TAIL, true), (place) => {
    return (
      place ?? (directoryIn(source, END_SEARCH + ZIP64_LOCATOR_SIZE, false) as DirectoryPlace | Promise<DirectoryPlace>)
    );
  });
}

/** The directory by the end record in the last `nbytes` bytes; `undefined` when it is not there and `atEnd` is asked for. */
function directoryIn(
  source: ByteSource,
  nbytes: number,
  atEnd: boolean,
): DirectoryPlace | undefined | Promise<DirectoryPlace | undefined> {
  const file = source.name;
  const tailStart = Math.max(0, source.size - nbytes);
  return andThen(source.read(tailStart, source.size), (tail) => {
    const at = endRecordIn(tail);
    if (atEnd && at !== tail.length - END_RECORD_SIZE) return undefined;
    if (at === undefined) {
      throw new FormatError(
        `Cannot load "${file}": the zip archive is cut short: its ${source.size} bytes have no central directory at their end`,
        { file, expected: NO_END_RECORD, found: source.size },
      );
    }
    const view = new DataView(tail.buffer, tail.byteOffset, tail.byteLength);
    const endAt = tailStart + at;
    const disk = view.getUint16(at + 4, true);
    const plain = {
      entriesHere: view.getUint16(at + 8, true),
      entries: view.getUint16(at + 10, true),
      size: view.getUint32(at + 12, true),
      start: view.getUint32(at + 16, true),
    };
    const locator = at - ZIP64_LOCATOR_SIZE;
    if (locator < 0 || view.getUint32(locator, true) !== ZIP64_LOCATOR) {
      if (disk !== view.getUint16(at + 6, true) || plain.entries !== plain.entriesHere) throw severalDisks(file);
      return checkPlace(file, plain.entries, plain.start, plain.size, endAt);
    }
    const zip64At = safeUint64(view, locator + 8, file);
    if (zip64At + ZIP64_END_RECORD_SIZE > tailStart + locator) {
      throw new FormatError(
        `Cannot load "${file}": its zip64 end record is said to be at byte ${zip64At}, beyond its locator`,
        {
          file,
          byteOffset: zip64At,
        },
      );
    }
    return andThen(source.read(zip64At, zip64At + ZIP64_END_RECORD_SIZE), (record) => {
      const zip64 = new DataView(record.buffer, record.byteOffset, record.byteLength);
      if (zip64.getUint32(0, true) !== ZIP64_END_RECORD) {
        return checkPlace(file, plain.entries, plain.start, plain.size, endAt);
      }
      const entries = safeUint64(zip64, 32, file);
      if (safeUint64(zip64, 24, file) !== entries || zip64.getUint32(16, true) !== zip64.getUint32(20, true)) {
        throw severalDisks(file);
      }
      const size = safeUint64(zip64, 40, file);
      const start = safeUint64(zip64, 48, file);
      const same = agrees(plain.entries, UINT16_MAX, entries) && agrees(plain.size, UINT32_MAX, size);
      if (!same || !agrees(plain.start, UINT32_MAX, start)) {
        throw new FormatError(
          `Cannot load "${file}": its two end records disagree on where its directory is or how long`,
          { file, byteOffset: zip64At },
        );
      }
      return checkPlace(file, entries, start, size, zip64At);
    });
  });
}

/** Whether a field of the plain end record leaves the matter to the zip64 one or says the same. Readers differ in which they follow. */
function agrees(plain: number, saturated: number, zip64: number): boolean {
  return plain === saturated || plain === zip64;
}

function severalDisks(file: string): UnsupportedError {
  return new UnsupportedError(`Cannot load "${file}": the zip archive is split over several files`, {
    file,
    feature: "split zip",
  });
}

function checkPlace(file: string, entries: number, start: number, size: number, limit: number): DirectoryPlace {
  const end = start + size;
  if (end > limit) {
    throw new FormatError(
      `Cannot load "${file}": its central directory is said to lie at bytes ${start} to ${end}, its end record is at ${limit}`,
      { file, expected: limit, found: end },
    );
  }
  if (entries * CENTRAL_HEADER_SIZE > size) {
    throw new FormatError(
      `Cannot load "${file}": its central directory of ${size} bytes cannot hold ${entries} records`,
      {
        file,
        expected: entries * CENTRAL_HEADER_SIZE,
        found: size,
      },
    );
  }
  checkReadWhole(file, size, "its central directory");
  return { entries, start, end };
}
