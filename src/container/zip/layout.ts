/**
 * The numbers of the zip format: signatures, sizes of fixed parts, and the arithmetic of PyTorch's own writer.
 *
 * Definition: PKWARE APPNOTE 6.3.10, section 4.3; for {@link nextRecord} the padding of
 * caffe2/serialize/inline_container.cc and the header sizes of third_party/miniz-3.0.2 in PyTorch 2.11.
 *
 * @module
 */
import { FormatError } from "../../errors.js";

/** `PK\3\4`, in front of each record. */
export const LOCAL_HEADER = 0x04034b50;
/** A local header without its name and extra field, in bytes. */
export const LOCAL_HEADER_SIZE = 30;
/** `PK\7\8`, behind the content of a record whose local header does not state its size. */
export const DATA_DESCRIPTOR = 0x08074b50;
/** A data descriptor with sizes of 32 bits, in bytes. */
export const DATA_DESCRIPTOR_SIZE = 16;
/** A data descriptor with sizes of 64 bits, in bytes. */
export const ZIP64_DATA_DESCRIPTOR_SIZE = 24;
/** `PK\1\2`, an entry of the central directory. */
export const CENTRAL_HEADER = 0x02014b50;
/** A central header without its name, extra field and comment, in bytes. */
export const CENTRAL_HEADER_SIZE = 46;
/** `PK\5\6`, the end of central directory record. */
export const END_RECORD = 0x06054b50;
/** An end record without its comment, in bytes. */
export const END_RECORD_SIZE = 22;
/** `PK\6\7`, which says where the zip64 end record is. */
export const ZIP64_LOCATOR = 0x07064b50;
export const ZIP64_LOCATOR_SIZE = 20;
/** `PK\6\6`, the end record with fields of 64 bits. */
export const ZIP64_END_RECORD = 0x06064b50;
/** A zip64 end record without extensible data, in bytes. */
export const ZIP64_END_RECORD_SIZE = 56;
/** Id of the extra field that holds what does not fit 32 bits. */
export const ZIP64_EXTRA = 1;
/** In a 16-bit field: the value is in the zip64 record. */
export const UINT16_MAX = 0xffff;
/** In a 32-bit field: the value is in the zip64 record or extra field. */
export const UINT32_MAX = 0xffffffff;

/** Compression methods that PyTorch reads. */
export const METHOD_STORED = 0;
export const METHOD_DEFLATED = 8;

/** A 64-bit field as a number. @throws FormatError beyond the safe integers: no file is that large. */
export function safeUint64(view: DataView, at: number, file: string): number {
  const value = view.getUint32(at, true) + view.getUint32(at + 4, true) * 2 ** 32;
  if (!Number.isSafeInteger(value)) {
    throw new FormatError(`Cannot load "${file}": a size or offset of the archive is beyond 2^53`, {
      file,
      found: value,
    });
  }
  return value;
}

/** Where PyTorch's writer puts a record, in bytes of the file. */
export interface WrittenRecord {
  /** Where the content starts. */
  readonly dataOffset: number;
  /** Where the next local header starts, or the central directory. */
  readonly end: number;
}

/**
 * Where PyTorch's writer puts the content of a record, and what follows it. All values in bytes.
 *
 * @param headerOffset - where the record's local header starts.
 * @param nameLength - of the full name, root included, in UTF-8.
 * @param alignment - what the content is aligned to, 64 unless the file says otherwise.
 */
export function nextRecord(headerOffset: number, nameLength: number, size: number, alignment: number): WrittenRecord {
  const large = size >= UINT32_MAX;
  const far = headerOffset >= UINT32_MAX;
  const zip64 = large || far ? 4 + (large ? 16 : 0) + (far ? 8 : 0) : 0;
  // Behind the zip64 field stands a padding field, of four bytes at least.
  const unaligned = headerOffset + LOCAL_HEADER_SIZE + nameLength + zip64 + 4;
  const dataOffset = Math.ceil(unaligned / alignment) * alignment;
  const descriptor = size === 0 ? 0 : zip64 > 0 ? ZIP64_DATA_DESCRIPTOR_SIZE : DATA_DESCRIPTOR_SIZE;
  return { dataOffset, end: dataOffset + size + descriptor };
}
