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
import { LOCAL_HEADER, LOCAL_HEADER_SIZE } from "./directory.js";

/** The most bytes that the pickle of a damaged file is looked for in. */
const MAX_PICKLE = 256 * 1024 * 1024;
/** Behind a small record of unknown size the next header is looked for in as many bytes. */
const SEARCH = 4096;
/** Records that hold no storage before the walk ends: PyTorch writes five, a hostile file as many as it has room for. */
const MAX_OTHERS = 64;
/** A data descriptor, with 32-bit and with 64-bit sizes. */
const DESCRIPTOR = 16;
const DESCRIPTOR_ZIP64 = 24;

interface LocalRecord {
  /** Without the root. */
  readonly name: string;
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
  const { whole, reached } = await walkStorages(source, first.dataStart + end + DESCRIPTOR, resolver);
  const missing = resolver.storages.filter((storage) => !whole.has(storage));
  const needed = missing.reduce((sum, storage) => sum + storage.nbytes, reached);
  return cutShortError({
    file: source.name,
    size: source.size,
    // Something is missing in any case: the directory.
    needed: Math.max(needed, source.size + 1),
    value,
    storages: resolver.storages,
    whole,
  });
}

/** Walks from header to header as far as the file goes. Gives the storages that are whole and where the last of them ends. */
async function walkStorages(
  source: ByteSource,
  start: number,
  resolver: Resolver,
): Promise<{ whole: Set<Storage>; reached: number }> {
  const whole = new Set<Storage>();
  let reached = start;
  let others = 0;
  for (let at: number | undefined = start; at !== undefined; ) {
    const record: LocalRecord | undefined = await readLocalHeader(source, at);
    if (record === undefined) break;
    const storage = record.name.startsWith("data/") ? resolver.find(record.name.slice("data/".length)) : undefined;
    if (storage === undefined) {
      if (++others > MAX_OTHERS) break;
      at = await findHeader(source, record.dataStart);
      continue;
    }
    if (whole.has(storage)) break;
    const end: number = record.dataStart + storage.nbytes;
    reached = record.dataStart;
    if (end > source.size) break;
    whole.add(storage);
    reached = end;
    at = end + (storage.nbytes === 0 ? 0 : record.zip64 ? DESCRIPTOR_ZIP64 : DESCRIPTOR);
  }
  return { whole, reached };
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
  const name = new TextDecoder().decode(rest.subarray(0, nameLength));
  return {
    name: name.slice(name.indexOf("/") + 1),
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
