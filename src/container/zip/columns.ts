/**
 * The entries of a central directory as columns of numbers. Decode step.
 *
 * A directory of 100,000 records is normal, so this makes no object and no string a record. It is plain loops over the
 * directory's bytes: they are read in the time that the engine needs to compile them.
 *
 * Definition: PKWARE APPNOTE 6.3.10, sections 4.3.12 and 4.5.3; refusals as in third_party/miniz-3.0.2 of PyTorch 2.11.
 *
 * @module
 */
import { FormatError, type FormatErrorDetails, UnsupportedError } from "../../errors.js";
import type { DirectoryPlace } from "./end-record.js";
import {
  CENTRAL_HEADER,
  CENTRAL_HEADER_SIZE,
  LOCAL_HEADER_SIZE,
  METHOD_DEFLATED,
  METHOD_STORED,
  safeUint64,
  UINT32_MAX,
  ZIP64_EXTRA,
} from "./layout.js";

/** Bits 0 and 6 say that content is encrypted, bit 13 that the headers are. */
export const FLAGS_ENCRYPTED: number = (1 << 0) | (1 << 6) | (1 << 13);
/** The content is a difference to another file. */
const FLAG_PATCH = 1 << 5;
/** Those flags and, in the upper half, any method but 0: what a record that is stored as it is does not have. */
const NOT_PLAIN = 0xffff0000 | FLAGS_ENCRYPTED | FLAG_PATCH;

/** The numbers of each record, by its place in the directory. */
export interface Columns {
  /** Where the central header starts in the directory. */
  readonly headers: Uint32Array;
  /** Size of the content, in bytes. */
  readonly sizes: Float64Array;
  /** Size of the content in the file, in bytes. */
  readonly compressedSizes: Float64Array;
  /** Where the local header starts in the file. */
  readonly headerOffsets: Float64Array;
  /**
   * What the record has to end before: the next local header in the file, or the directory. There is room for a local header
   * with the name of the central one.
   */
  readonly limits: Float64Array;
}

/**
 * Reads the columns.
 *
 * @param bytes - the directory, from its first byte to its last.
 * @throws FormatError when a header is missing or damaged, when sizes contradict each other, or when records overlap.
 * @throws UnsupportedError for encrypted records and compression methods that PyTorch does not read.
 */
export function readColumns(file: string, bytes: Uint8Array, place: DirectoryPlace): Columns {
  const { entries } = place;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const headers = new Uint32Array(entries);
  const sizes = new Float64Array(entries);
  const compressedSizes = new Float64Array(entries);
  const headerOffsets = new Float64Array(entries);
  const limits = new Float64Array(entries);
  const nbytes = bytes.byteLength;
  let at = 0;
  /** Where the record before ends at the earliest; beyond every place once one starts before that. */
  let end = 0;
  for (let index = 0; index < entries; index++) {
    if (at + CENTRAL_HEADER_SIZE > nbytes || view.getUint32(at, true) !== CENTRAL_HEADER) {
      throw damaged(file, `its central directory has no header for record ${index} of ${entries}`, place.start + at);
    }
    // Two fields of 16 bits at a time: flags and method, the lengths of name and extra field, that of the comment and the disk.
    const flagsAndMethod = view.getUint32(at + 8, true);
    const nameAndExtra = view.getUint32(at + 28, true);
    const commentAndDisk = view.getUint32(at + 32, true);
    const nameLength = nameAndExtra & 0xffff;
    const extraLength = nameAndExtra >>> 16;
    const next = at + CENTRAL_HEADER_SIZE + nameLength + extraLength + (commentAndDisk & 0xffff);
    if (next > nbytes) {
      throw damaged(file, `record ${index} of its central directory runs beyond the directory`, place.start + at);
    }
    let compressedSize = view.getUint32(at + 20, true);
    let size = view.getUint32(at + 24, true);
    let headerOffset = view.getUint32(at + 42, true);
    if (compressedSize === UINT32_MAX || size === UINT32_MAX || headerOffset === UINT32_MAX) {
      const large = zip64Reader(file, view, at + CENTRAL_HEADER_SIZE + nameLength, extraLength);
      // The fields that do not fit stand in this order, and only those.
      if (size === UINT32_MAX) size = large() ?? size;
      if (compressedSize === UINT32_MAX) compressedSize = large() ?? compressedSize;
      if (headerOffset === UINT32_MAX) headerOffset = large() ?? headerOffset;
    }
    if ((flagsAndMethod & NOT_PLAIN) !== 0 || commentAndDisk >>> 17 !== 0 || size !== compressedSize) {
      checkHeader(file, bytes, at, size, compressedSize);
    }
    headers[index] = at;
    sizes[index] = size;
    compressedSizes[index] = compressedSize;
    headerOffsets[index] = headerOffset;
    if (index > 0) limits[index - 1] = headerOffset;
    end =
      headerOffset < end ? Number.POSITIVE_INFINITY : headerOffset + LOCAL_HEADER_SIZE + nameLength + compressedSize;
    at = next;
  }
  limits[entries - 1] = place.start;
  const columns = { headers, sizes, compressedSizes, headerOffsets, limits };
  if (end > place.start) {
    setLimits(columns, place.start);
    checkLimits(file, bytes, columns);
  }
  return columns;
}

/** Sets limits for records that are not listed in the order in which they lie. */
function setLimits({ headerOffsets, limits }: Columns, directoryStart: number): void {
  const order = Uint32Array.from(limits, (_, index) => index).sort(
    (a, b) => (headerOffsets[a] as number) - (headerOffsets[b] as number),
  );
  let limit = directoryStart;
  for (let k = order.length - 1; k >= 0; k--) {
    const index = order[k] as number;
    limits[index] = limit;
    limit = headerOffsets[index] as number;
  }
}

/** Refuses records that reach beyond the start of the next one in the file. */
function checkLimits(
  file: string,
  bytes: Uint8Array,
  { headers, headerOffsets, compressedSizes, limits }: Columns,
): void {
  for (let index = 0; index < limits.length; index++) {
    const headerEnd =
      (headerOffsets[index] as number) + LOCAL_HEADER_SIZE + uint16(bytes, (headers[index] as number) + 28);
    const end = headerEnd + (compressedSizes[index] as number);
    const limit = limits[index] as number;
    if (end <= limit) continue;
    const what = `it reaches to byte ${end} at least, the next record or the directory starts at ${limit}`;
    throw recordFault(file, nameAt(bytes, headers[index] as number), what, { expected: limit, found: end });
  }
}

/** Reads the 64-bit values of the zip64 extra field one after the other. */
function zip64Reader(file: string, view: DataView, start: number, length: number): () => number | undefined {
  const end = start + length;
  for (let at = start; at + 4 <= end; ) {
    const id = view.getUint16(at, true);
    const fieldEnd = at + 4 + view.getUint16(at + 2, true);
    if (id === ZIP64_EXTRA && fieldEnd <= end) {
      let value = at + 4;
      return () => {
        if (value + 8 > fieldEnd) return undefined;
        value += 8;
        return safeUint64(view, value - 8, file);
      };
    }
    at = fieldEnd;
  }
  return () => undefined;
}

/** Refuses a header that no PyTorch reads: an entry that is encrypted, in another file, or of a method or sizes that cannot be. */
function checkHeader(file: string, bytes: Uint8Array, at: number, size: number, compressedSize: number): void {
  const record = nameAt(bytes, at);
  const refuse = (what: string, feature: string): UnsupportedError =>
    new UnsupportedError(`Cannot load "${file}": record "${record}" ${what}`, { file, feature });
  const flags = uint16(bytes, at + 8);
  if ((flags & FLAGS_ENCRYPTED) !== 0) throw refuse("is encrypted", "encrypted zip");
  if ((flags & FLAG_PATCH) !== 0) throw refuse("is a patch of another file", "zip with patched data");
  // Some writers count disks from 1.
  if (uint16(bytes, at + 34) > 1) throw refuse("is in another file of a split archive", "split zip");
  const method = uint16(bytes, at + 10);
  if (method !== METHOD_STORED && method !== METHOD_DEFLATED) {
    throw refuse(
      `is compressed by method ${method}; PyTorch reads 0 (stored) and 8 (deflated)`,
      `zip compression method ${method}`,
    );
  }
  if (method === METHOD_STORED && size !== compressedSize) {
    throw recordFault(file, record, `it is stored, but of ${size} bytes ${compressedSize} are there`, {
      expected: size,
      found: compressedSize,
    });
  }
  if (compressedSize === 0 && size !== 0) {
    throw recordFault(file, record, `it has ${size} bytes compressed to none`, { expected: size, found: 0 });
  }
}

/** A byte order mark is part of a name, like any other character. */
const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** A name, or part of one. */
export function decodeName(bytes: Uint8Array): string {
  return utf8.decode(bytes);
}

/** The full name of the record whose central header is at `at`. */
export function nameAt(directory: Uint8Array, at: number): string {
  const length = uint16(directory, at + 28);
  return decodeName(directory.subarray(at + CENTRAL_HEADER_SIZE, at + CENTRAL_HEADER_SIZE + length));
}

/** A field of 16 bits. */
export function uint16(bytes: Uint8Array, at: number): number {
  return (bytes[at] as number) | ((bytes[at + 1] as number) << 8);
}

/** A field of 32 bits. */
export function uint32(bytes: Uint8Array, at: number): number {
  return (uint16(bytes, at) | (uint16(bytes, at + 2) << 16)) >>> 0;
}

/** An error about one record. */
export function recordFault(
  file: string,
  record: string,
  what: string,
  details: Omit<FormatErrorDetails, "file" | "record"> = {},
): FormatError {
  return new FormatError(`Cannot load "${file}": record "${record}": ${what}`, { file, record, ...details });
}

function damaged(file: string, what: string, byteOffset: number): FormatError {
  return new FormatError(`Cannot load "${file}": ${what}`, { file, byteOffset });
}
