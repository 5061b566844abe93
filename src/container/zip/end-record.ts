/**
 * Where the central directory of a zip archive lies, from the records at the archive's end. Decode step.
 *
 * Definition: PKWARE APPNOTE 6.3.10, sections 4.3.14 to 4.3.16; what PyTorch accepts of it: `mz_zip_reader_read_central_dir`
 * in third_party/miniz-3.0.2 of PyTorch 2.11.
 *
 * @module
 */
import { FormatError, UnsupportedError } from "../../errors.js";
import { andThen } from "../../source/and-then.js";
import type { ByteSource } from "../../source/source.js";
import { checkReadWhole } from "../container.js";
import {
  CENTRAL_HEADER,
  CENTRAL_HEADER_SIZE,
  END_RECORD,
  END_RECORD_SIZE,
  safeUint64,
  UINT16_MAX,
  UINT32_MAX,
  ZIP64_END_RECORD,
  ZIP64_END_RECORD_SIZE,
  ZIP64_LOCATOR,
  ZIP64_LOCATOR_SIZE,
} from "./layout.js";

/** How far from the end the end record may start: its own size, and a comment or foreign bytes of at most 64 KiB. */
const END_SEARCH = END_RECORD_SIZE + UINT16_MAX;
/** The end records of an archive with nothing behind it, as PyTorch writes it. */
const PLAIN_TAIL = END_RECORD_SIZE + ZIP64_LOCATOR_SIZE + ZIP64_END_RECORD_SIZE;
/** What a zip64 end record says its size is, less the 12 bytes in front of that field. */
const ZIP64_END_RECORD_STATED_SIZE = ZIP64_END_RECORD_SIZE - 12;

/** Where the directory lies. */
export interface DirectoryPlace {
  /** Number of records. */
  readonly entries: number;
  readonly start: number;
  readonly end: number;
}

function endRecordIn(tail: Uint8Array): number | undefined {
  const view = viewOf(tail);
  for (let at = tail.length - END_RECORD_SIZE; at >= 0; at--) {
    if (tail[at] === 0x50 && view.getUint32(at, true) === END_RECORD) return at;
  }
  return undefined;
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/**
 * Finds the directory: in the last bytes where nothing follows the archive, else by searching backwards.
 * `undefined` when there is no end record, as in an archive cut short.
 *
 * @throws FormatError when the end records contradict themselves or the size of the source.
 * @throws UnsupportedError for an archive split over several files.
 */
export function findDirectory(source: ByteSource): DirectoryPlace | undefined | Promise<DirectoryPlace | undefined> {
  return andThen(directoryIn(source, PLAIN_TAIL, true), (place) =>
    place === undefined ? directoryIn(source, END_SEARCH + ZIP64_LOCATOR_SIZE, false) : place,
  );
}

/** The directory by the end record in the last `nbytes` bytes, which has to end the source when `atEnd` is set. */
function directoryIn(
  source: ByteSource,
  nbytes: number,
  atEnd: boolean,
): DirectoryPlace | undefined | Promise<DirectoryPlace | undefined> {
  const tailStart = Math.max(0, source.size - nbytes);
  return andThen(source.read(tailStart, source.size), (tail) => {
    const at = endRecordIn(tail);
    if (at === undefined || (atEnd && at !== tail.length - END_RECORD_SIZE)) return undefined;
    return placeBy(source, viewOf(tail), tailStart, at);
  });
}

/** The directory by the end record at `at` of `tail`, which starts at byte `tailStart` of the source. */
function placeBy(
  source: ByteSource,
  tail: DataView,
  tailStart: number,
  at: number,
): DirectoryPlace | Promise<DirectoryPlace> {
  const file = source.name;
  const endAt = tailStart + at;
  const plain = (): DirectoryPlace => {
    checkDisks(file, tail.getUint16(at + 4, true), tail.getUint16(at + 6, true));
    const entries = tail.getUint16(at + 10, true);
    if (tail.getUint16(at + 8, true) !== entries) throw severalDisks(file);
    return checkPlace(file, entries, tail.getUint32(at + 16, true), tail.getUint32(at + 12, true), endAt);
  };
  const locator = at - ZIP64_LOCATOR_SIZE;
  if (locator < 0 || tail.getUint32(locator, true) !== ZIP64_LOCATOR) return plain();
  const zip64At = safeUint64(tail, locator + 8, file);
  if (zip64At + ZIP64_END_RECORD_SIZE > tailStart + locator) {
    throw new FormatError(
      `Cannot load "${file}": its zip64 end record is said to be at byte ${zip64At}, beyond its locator`,
      { file, byteOffset: zip64At },
    );
  }
  const inTail = zip64At - tailStart;
  const record =
    inTail >= 0
      ? new Uint8Array(tail.buffer, tail.byteOffset + inTail, ZIP64_END_RECORD_SIZE)
      : source.read(zip64At, zip64At + ZIP64_END_RECORD_SIZE);
  return andThen(record, (bytes) => {
    const zip64 = viewOf(bytes);
    // PyTorch takes a locator that points elsewhere for bytes of another meaning.
    if (zip64.getUint32(0, true) !== ZIP64_END_RECORD) return plain();
    const stated = safeUint64(zip64, 4, file);
    if (stated < ZIP64_END_RECORD_STATED_SIZE) {
      throw new FormatError(
        `Cannot load "${file}": its zip64 end record says it has ${stated} bytes; expected ${ZIP64_END_RECORD_STATED_SIZE} or more`,
        { file, byteOffset: zip64At, expected: ZIP64_END_RECORD_STATED_SIZE, found: stated },
      );
    }
    if (tail.getUint32(locator + 16, true) !== 1) throw severalDisks(file);
    checkDisks(file, zip64.getUint32(16, true), zip64.getUint32(20, true));
    const entries = safeUint64(zip64, 32, file);
    if (safeUint64(zip64, 24, file) !== entries) throw severalDisks(file);
    const size = safeUint64(zip64, 40, file);
    const start = safeUint64(zip64, 48, file);
    const same =
      agrees(tail.getUint16(at + 10, true), UINT16_MAX, entries) &&
      agrees(tail.getUint32(at + 12, true), UINT32_MAX, size) &&
      agrees(tail.getUint32(at + 16, true), UINT32_MAX, start);
    if (!same) {
      throw new FormatError(
        `Cannot load "${file}": its two end records disagree on where its directory is or how long`,
        { file, byteOffset: zip64At },
      );
    }
    return checkPlace(file, entries, start, size, zip64At);
  });
}

/** Whether a field of the plain end record leaves the matter to the zip64 one or says the same. Readers differ in which they follow. */
function agrees(plain: number, saturated: number, zip64: number): boolean {
  return plain === saturated || plain === zip64;
}

/** An archive of one file is disk 0, or 1 for some writers. */
function checkDisks(file: string, disk: number, directoryDisk: number): void {
  if (disk !== directoryDisk || disk > 1) throw severalDisks(file);
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
      { file, expected: entries * CENTRAL_HEADER_SIZE, found: size },
    );
  }
  checkReadWhole(file, size, "its central directory");
  return { entries, start, end };
}

/**
 * How many bytes further on than it is said to be the directory is, by the end record that it ends at; 0 when it is where it
 * should be, or nowhere. Offsets count from the start of the file, so that what is put in front of an archive or into it
 * displaces all that follows.
 */
export function displacement(source: ByteSource, { start, end }: DirectoryPlace): number | Promise<number> {
  const tailStart = Math.max(0, source.size - END_SEARCH - ZIP64_LOCATOR_SIZE);
  return andThen(source.read(tailStart, source.size), (tail) => {
    const endAt = tailStart + (endRecordIn(tail) ?? 0);
    const look = ([candidate, ...others]: readonly number[]): number | Promise<number> => {
      if (candidate === undefined) return 0;
      const found = candidate - (end - start);
      if (found <= start) return look(others);
      return andThen(source.read(found, found + 4), (bytes) =>
        viewOf(bytes).getUint32(0, true) === CENTRAL_HEADER ? found - start : look(others),
      );
    };
    return look([endAt, endAt - ZIP64_LOCATOR_SIZE - ZIP64_END_RECORD_SIZE]);
  });
}
