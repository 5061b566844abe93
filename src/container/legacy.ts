/**
 * The legacy stream that `torch.save` wrote before PyTorch 1.6: five pickles, then the bytes of each storage. Decode step.
 *
 *     pickle(magic) pickle(1001) pickle(sys_info) pickle(object) pickle(storage keys)
 *     for each key: i64 number of elements, bytes
 *
 * Definition: `_legacy_save` and `_legacy_load` in torch/serialization.py of PyTorch 2.11. The bytes are little-endian,
 * whatever `sys_info` says.
 *
 * @module
 */
import { FormatError } from "../errors.js";
import type { PickleHandlers } from "../pickle/handlers.js";
import { END_OF_STREAM } from "../pickle/reader.js";
import { unpickle } from "../pickle/unpickler.js";
import { andThen } from "../source/and-then.js";
import type { ByteSource } from "../source/source.js";
import type { Storage } from "../tensor/storage.js";
import { type ContainerFormat, type Contents, checkReadWhole, type OpenResolver, type Resolver } from "./container.js";
import { cutShortError } from "./damage.js";
import { shown } from "./shown.js";

const MAGIC = 0x1950a86a20f9469cfc6cn;
const PROTOCOL_VERSION = 1001;

/** The magic number as every protocol from 2 on writes it: LONG1 of ten bytes, behind PROTO and its version. */
export const LEGACY_MAGIC: readonly number[] = [
  0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e,
];

/** The number of elements in front of a storage's bytes, in bytes. */
const NUMEL_SIZE = 8;

/** Bytes read at first to find the pickles' end; doubled until they are all there. */
const FIRST_READ = 16 * 1024;

/** Legacy checkpoints, at the start of a source. */
export const LEGACY: ContainerFormat = { name: "legacy", decode: (source, open) => decodeLegacy(source, 0, open) };

/** A legacy checkpoint that starts at some byte of a source. */
export function legacyAt(start: number): ContainerFormat {
  return { name: "legacy", decode: (source, open) => decodeLegacy(source, start, open) };
}

/** Pickles that hold no classes: numbers, texts and containers of them. */
const PLAIN: PickleHandlers = (() => {
  const refuse = (): never => {
    throw new TypeError("the header of a legacy checkpoint holds numbers and texts only");
  };
  return {
    findGlobal: refuse,
    persistentLoad: refuse,
    reduce: refuse,
    newObject: refuse,
    build: refuse,
    extend: refuse,
    setItems: refuse,
  };
})();

/**
 * The pickles lie in front of gigabytes of storages, and nothing says how long they are. So they are read from a piece of
 * the source that grows until they end in it.
 */
function decodeLegacy(source: ByteSource, start: number, open: OpenResolver): Contents | Promise<Contents> {
  const { name: file, size } = source;
  if (start >= size) {
    throw new FormatError(`Cannot load "${file}": nothing is at byte ${start}, the file has ${size}`, {
      file,
      byteOffset: start,
      found: size,
    });
  }
  const attempt = (nbytes: number): Contents | Promise<Contents> => {
    const end = Math.min(size, start + nbytes);
    checkReadWhole(file, end - start);
    return andThen(source.read(start, end), (bytes) => {
      try {
        return decodePickles(source, start, bytes, open);
      } catch (error) {
        const more = error instanceof FormatError && error.found === END_OF_STREAM && end < size;
        if (!more) throw error;
        return attempt(nbytes * 4);
      }
    });
  };
  return attempt(FIRST_READ);
}

function decodePickles(source: ByteSource, start: number, bytes: Uint8Array, open: OpenResolver): Contents {
  const file = source.name;
  let at = 0;
  const next = (record: string, handlers: PickleHandlers): unknown => {
    const { value, end } = unpickle(bytes, handlers, { file, record, start: at });
    at = end;
    return value;
  };
  if (next("magic number", PLAIN) !== MAGIC) {
    throw new FormatError(`Cannot load "${file}": its magic number is not that of a PyTorch file`, { file });
  }
  const protocol = next("protocol version", PLAIN);
  if (protocol !== PROTOCOL_VERSION) {
    throw new FormatError(
      `Cannot load "${file}": its protocol version is ${shown(protocol)}; expected ${PROTOCOL_VERSION}`,
      {
        file,
        expected: PROTOCOL_VERSION,
        found: shown(protocol),
      },
    );
  }
  const systemInfo = next("system info", PLAIN);
  // Sizes are compared with the file's once all are known, before anything is made of them.
  const resolver = open(() => {}, bytes.length);
  const value = next("object", resolver.handlers);
  const keys = next("storage keys", PLAIN);
  const places = placeStorages(source, start + at, value, keys, resolver);
  const { storages } = resolver;
  for (const storage of storages) {
    if (!places.has(storage) && storage.nbytes > 0) {
      throw new FormatError(
        `Cannot load "${file}": storage "${storage.key}" of ${storage.nbytes} bytes is not in the list of storages`,
        {
          file,
          record: storage.key,
        },
      );
    }
  }
  return {
    value,
    storages,
    facts: factsOf(protocol, systemInfo),
    locate(storage) {
      const place = places.get(storage);
      // Empty storages need no place.
      if (place === undefined) return { kind: "range", start: start + at };
      return andThen(source.read(place - NUMEL_SIZE, place), (header) => {
        checkNumel(file, storage, header);
        return { kind: "range" as const, start: place };
      });
    },
  };
}

function factsOf(protocol: number, systemInfo: unknown): Record<string, string | number | boolean> {
  const facts: Record<string, string | number | boolean> = { protocolVersion: protocol };
  if (systemInfo instanceof Map && typeof systemInfo.get("little_endian") === "boolean") {
    facts.savedOnLittleEndian = systemInfo.get("little_endian") as boolean;
  }
  return facts;
}

/** Where the bytes of each storage start: they follow each other in the order of the list of keys. */
function placeStorages(
  source: ByteSource,
  dataStart: number,
  value: unknown,
  keys: unknown,
  resolver: Resolver,
): Map<Storage, number> {
  const file = source.name;
  if (!Array.isArray(keys))
    throw new FormatError(`Cannot load "${file}": the list of storages is not a list`, { file });
  const places = new Map<Storage, number>();
  let at = dataStart;
  for (const key of keys) {
    const text = typeof key === "string" ? key : shown(key);
    const storage = resolver.find(text);
    if (storage === undefined || places.has(storage)) {
      const what = storage === undefined ? "that no tensor uses" : "twice";
      throw new FormatError(`Cannot load "${file}": the list of storages names "${text}" ${what}`, {
        file,
        record: text,
      });
    }
    at += NUMEL_SIZE;
    places.set(storage, at);
    at += storage.nbytes;
  }
  if (at > source.size) {
    const whole = new Set<Storage>();
    for (const [storage, start] of places) if (start + storage.nbytes <= source.size) whole.add(storage);
    throw cutShortError({ file, size: source.size, needed: at, value, storages: resolver.storages, whole });
  }
  return places;
}

/** Compares the number in front of a storage's bytes with what its tensors were built for. */
function checkNumel(file: string, storage: Storage, header: Uint8Array): void {
  const found = new DataView(header.buffer, header.byteOffset, header.byteLength).getBigInt64(0, true);
  const expected = BigInt(storage.nbytes / (storage.dtype?.itemsize ?? 1));
  if (found === expected) return;
  throw new FormatError(
    `Cannot load "${file}": storage "${storage.key}" says that it has ${found} elements; its tensors need ${expected}`,
    {
      file,
      record: storage.key,
      expected: Number(expected),
      found: Number(found),
    },
  );
}
