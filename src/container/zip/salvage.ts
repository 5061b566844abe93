/**
 * A zip checkpoint whose end is missing, and with it the directory: what can be said of it from its local headers.
 *
 * `torch.save` writes the pickle first and then the storages; local headers carry names but no sizes, so the sizes come from
 * the pickle. Layout: caffe2/serialize/inline_container.cc of PyTorch 2.11.
 *
 * @module
 */
import { type FormatError, isTorchloadError } from "../../errors.js";
import { unpickle } from "../../pickle/unpickler.js";
import type { ByteSource } from "../../source/source.js";
import type { Storage } from "../../tensor/storage.js";
import type { OpenResolver, Resolver } from "../container.js";
import { cutShortError } from "../damage.js";
import {
  CENTRAL_HEADER_SIZE,
  DATA_DESCRIPTOR_SIZE,
  END_RECORD_SIZE,
  LOCAL_HEADER,
  LOCAL_HEADER_SIZE,
  nextRecord,
  UINT32_MAX,
  ZIP64_DATA_DESCRIPTOR_SIZE,
  ZIP64_END_RECORD_SIZE,
  ZIP64_LOCATOR_SIZE,
} from "./layout.js";

/** The most bytes that the pickle of a damaged file is looked for in. */
const MAX_PICKLE = 256 * 1024 * 1024;
/** Behind a small record of unknown size the next header is looked for in as many bytes. */
const SEARCH = 4096;
/** Records that hold no storage before the walk ends: PyTorch writes five, a hostile file as many as it has room for. */
const MAX_OTHERS = 64;
/** What content is aligned to where the file does not say otherwise, in bytes. */
const DEFAULT_ALIGNMENT = 64;
/** What `torch.save` writes behind the storages, with the size of each in bytes; the second one since it writes `byteorder`. */
const CLOSING_RECORDS = [
  ["version", 2],
  [".data/serialization_id", 40],
] as const;

interface LocalRecord {
  /** Without the root. */
  readonly name: string;
  /** Of the root and the slash behind it, in bytes. */
  readonly rootLength: number;
  readonly dataStart: number;
  readonly zip64: boolean;
}

/**
 * The error for an archive that is cut short, with what is whole; `undefined` when its start does not tell.
 */
export async function salvageZip(source: ByteSource, open: OpenResolver): Promise<FormatError | undefined> {
  const first = await readLocalHeader(source, 0);
  if (first === undefined || first.name !== "data.pkl") return undefined;
  let resolver: Resolver;
  let value: unknown;
  let end: number;
  try {
    const bytes = await source.read(first.dataStart, Math.min(source.size, first.dataStart + MAX_PICKLE));
    resolver = open(() => {}, bytes.length);
    ({ value, end } = unpickle(bytes, resolver.handlers, { file: source.name, record: "data.pkl" }));
  } catch (error) {
    // The pickle itself is cut, or not to be read: the plain message will do.
    if (isTorchloadError(error)) return undefined;
    throw error;
  }
  const walk = await walkRecords(source, first.dataStart + end + DATA_DESCRIPTOR_SIZE, resolver);
  return cutShortError({
    file: source.name,
    size: source.size,
    // Something is missing in any case: the directory.
    needed: Math.max(writtenSize(walk, first.rootLength, resolver.storages), source.size + 1),
    value,
    storages: resolver.storages,
    whole: walk.whole,
  });
}

/** What was met on the way from header to header. */
interface Walk {
  readonly whole: Set<Storage>;
  /** The names of the records that are whole, without the root. */
  readonly names: Set<string>;
  /** What content is aligned to, in bytes. */
  alignment: number;
  /** Where the first header stands, or would, of which the file does not have all. */
  end: number;
}

/** Walks from header to header as far as the file goes. */
async function walkRecords(source: ByteSource, start: number, resolver: Resolver): Promise<Walk> {
  const walk: Walk = { whole: new Set(), names: new Set(["data.pkl"]), alignment: DEFAULT_ALIGNMENT, end: start };
  for (let others = 0; ; ) {
    const record = await readLocalHeader(source, walk.end);
    if (record === undefined || walk.names.has(record.name)) return walk;
    const { name, dataStart, zip64 } = record;
    const storage = name.startsWith("data/") ? resolver.find(name.slice("data/".length)) : undefined;
    let next: number | undefined;
    if (storage === undefined) {
      if (++others > MAX_OTHERS) return walk;
      next = await findHeader(source, dataStart);
      if (name === ".storage_alignment") walk.alignment = (await readNumber(source, dataStart)) ?? walk.alignment;
    } else if (dataStart + storage.nbytes <= source.size) {
      const descriptor = zip64 ? ZIP64_DATA_DESCRIPTOR_SIZE : DATA_DESCRIPTOR_SIZE;
      next = dataStart + storage.nbytes + (storage.nbytes === 0 ? 0 : descriptor);
      walk.whole.add(storage);
    }
    if (next === undefined) return walk;
    walk.names.add(name);
    walk.end = next;
  }
}

/** How large the file was as `torch.save` wrote it, if that is what wrote it: all sizes and the order of records are known. */
function writtenSize({ names, alignment, end }: Walk, rootLength: number, storages: readonly Storage[]): number {
  const records = storages.map(({ key, nbytes }): readonly [string, number] => [`data/${key}`, nbytes]);
  // Before PyTorch 2.7, which says so by another record, storages were sorted by their keys as text.
  if (!names.has(".format_version")) records.sort(([a], [b]) => (a < b ? -1 : 1));
  records.push(...CLOSING_RECORDS.slice(0, names.has("byteorder") ? 2 : 1));
  let at = end;
  let directory = ZIP64_END_RECORD_SIZE + ZIP64_LOCATOR_SIZE + END_RECORD_SIZE;
  const enter = (nameLength: number, size: number): void => {
    const zip64 = (size >= UINT32_MAX ? 16 : 0) + (at >= UINT32_MAX ? 8 : 0);
    directory += CENTRAL_HEADER_SIZE + rootLength + nameLength + (zip64 === 0 ? 0 : 4 + zip64);
  };
  for (const name of names) enter(utf8Length(name), 0);
  for (const [name, size] of records) {
    if (names.has(name)) continue;
    const nameLength = utf8Length(name);
    enter(nameLength, size);
    at = nextRecord(at, rootLength + nameLength, size, alignment).end;
  }
  return at + directory;
}

function utf8Length(text: string): number {
  return new TextEncoder().encode(text).length;
}

async function readLocalHeader(source: ByteSource, at: number): Promise<LocalRecord | undefined> {
  if (at + LOCAL_HEADER_SIZE > source.size) return undefined;
  const fixed = await source.read(at, at + LOCAL_HEADER_SIZE);
  const view = new DataView(fixed.buffer, fixed.byteOffset, fixed.byteLength);
  if (view.getUint32(0, true) !== LOCAL_HEADER) return undefined;
  const nameLength = view.getUint16(26, true);
  const extraLength = view.getUint16(28, true);
  const dataStart = at + LOCAL_HEADER_SIZE + nameLength + extraLength;
  if (dataStart > source.size) return undefined;
  const rest = await source.read(at + LOCAL_HEADER_SIZE, dataStart);
  const name = rest.subarray(0, nameLength);
  const rootLength = name.indexOf(0x2f) + 1;
  return {
    name: new TextDecoder().decode(name.subarray(rootLength)),
    rootLength,
    dataStart,
    zip64: extraLength >= 4 && rest[nameLength] === 1 && rest[nameLength + 1] === 0,
  };
}

async function findHeader(source: ByteSource, start: number): Promise<number | undefined> {
  const bytes = await source.read(start, Math.min(source.size, start + SEARCH));
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let k = 0; k + 4 <= bytes.length; k++) if (view.getUint32(k, true) === LOCAL_HEADER) return start + k;
  return undefined;
}

/** The decimal number at a place, up to the first byte that is no digit. */
async function readNumber(source: ByteSource, start: number): Promise<number | undefined> {
  const bytes = await source.read(start, Math.min(source.size, start + 8));
  const digits = /^[1-9]\d{0,4}(?!\d)/.exec(new TextDecoder("latin1").decode(bytes));
  return digits === null ? undefined : Number(digits[0]);
}
