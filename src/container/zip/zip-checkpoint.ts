/**
 * The zip container that `torch.save` writes since PyTorch 1.6: `data.pkl` beside one record a storage. Decode step.
 *
 * Definition: `_save` and `_load` in torch/serialization.py, caffe2/serialize/inline_container.cc (PyTorch 2.11).
 *
 * @module
 */
import { FormatError } from "../../errors.js";
import { unpickle } from "../../pickle/unpickler.js";
import { andThen } from "../../source/and-then.js";
import type { ByteSource } from "../../source/source.js";
import type { Storage } from "../../tensor/storage.js";
import { describeArchive, describePytorchArchive } from "../archives.js";
import {
  type ContainerFormat,
  type Contents,
  checkReadWhole,
  type DecodeOptions,
  type OpenResolver,
  swapBytes,
} from "../container.js";
import { NO_END_RECORD, readZipDirectory, type ZipDirectory } from "./directory.js";
import { METHOD_STORED } from "./layout.js";
import { readRecord } from "./record.js";
import { salvageZip } from "./salvage.js";

/** The versions of the archive format that PyTorch 2.11 reads. */
const MIN_VERSION = 1;
const MAX_VERSION = 10;

/** Records of a line or two that say something about the file, by the name that facts have. */
const FACTS = {
  version: [".data/version", "version"],
  byteorder: ["byteorder"],
  formatVersion: [".format_version"],
  storageAlignment: [".storage_alignment"],
  serializationId: [".data/serialization_id"],
} as const;

/** The most bytes that one of those records is read to have. */
const MAX_FACT_SIZE = 1024;

/**
 * How many bytes a byte of a compressed pickle may become, beyond some that any may. PyTorch compresses none; real ones that
 * other programs compressed have 5 to 20, deflate can give a thousand, and each of those can take 250 bytes of memory.
 */
const MAX_INFLATION = 64;
const FREE_INFLATION = 1024 * 1024;

/** Zip checkpoints. */
export const ZIP: ContainerFormat = {
  name: "zip",
  decode(source, open, options) {
    let directory: ZipDirectory | Promise<ZipDirectory>;
    try {
      directory = readZipDirectory(source);
    } catch (error) {
      return explainCut(source, open, error);
    }
    if (!(directory instanceof Promise)) return decodeArchive(source, directory, open, options);
    return directory.then(
      (found) => decodeArchive(source, found, open, options),
      (error) => explainCut(source, open, error),
    );
  },
};

/** Throws the error for an archive without an end, with what is whole of it where its start tells. */
async function explainCut(source: ByteSource, open: OpenResolver, error: unknown): Promise<never> {
  const cut = error instanceof FormatError && error.expected === NO_END_RECORD;
  throw (cut ? await salvageZip(source, open) : undefined) ?? error;
}

/** Decodes an archive whose directory was read. @throws FormatError @throws UnsupportedError */
export function decodeArchive(
  source: ByteSource,
  directory: ZipDirectory,
  open: OpenResolver,
  options: DecodeOptions,
): Contents | Promise<Contents> {
  const pickle = findPickle(directory);
  return andThen(readFacts(source, directory), (facts) => {
    const byteorder = checkFacts(directory, facts) ?? options.endianness;
    checkPickleSize(directory, pickle);
    return andThen(readRecord(source, directory, pickle), (bytes) => {
      const resolver = open((storage) => checkRecord(directory, storage), bytes.length);
      const { value } = unpickle(bytes, resolver.handlers, { file: source.name, record: "data.pkl" });
      // Those without a width are refused now.
      if (byteorder === "big") for (const storage of resolver.storages) resolver.swapWidth(storage);
      const locate: Contents["locate"] = (storage) => {
        const index = recordOf(directory, storage);
        const width = byteorder === "big" ? resolver.swapWidth(storage) : 1;
        if (directory.method(index) === METHOD_STORED && width === 1) {
          return andThen(directory.locate(source, index), (start) => ({ kind: "range" as const, start }));
        }
        return {
          kind: "content" as const,
          async read() {
            const content = (await readRecord(source, directory, index)).slice();
            if (width > 1) swapBytes(content, width);
            return content;
          },
        };
      };
      return { value, storages: resolver.storages, facts: { root: directory.root, ...facts }, locate };
    });
  });
}

/** Refuses a pickle that is too large to be read whole, or that a few compressed bytes blow up. */
function checkPickleSize(directory: ZipDirectory, index: number): void {
  const { file } = directory;
  const size = directory.size(index);
  const compressedSize = directory.compressedSize(index);
  checkReadWhole(file, Math.max(size, compressedSize));
  if (size <= FREE_INFLATION + compressedSize * MAX_INFLATION) return;
  const record = directory.name(index);
  throw new FormatError(
    `Cannot load "${file}": record "${record}" is said to inflate from ${compressedSize} to ${size} bytes, as no checkpoint's does`,
    { file, record, found: size },
  );
}

/** Refuses what is no checkpoint. Gives the index of the pickle. */
function findPickle(directory: ZipDirectory): number {
  const { file, root, count } = directory;
  const other = describePytorchArchive(file, (name) => directory.find(name) !== undefined);
  if (other !== undefined) throw other;
  const pickle = directory.find("data.pkl");
  if (pickle !== undefined) return pickle;
  if (FACTS.version.every((name) => directory.find(name) === undefined)) {
    throw describeArchive(
      file,
      Array.from({ length: count }, (_, index) => directory.name(index)),
    );
  }
  throw new FormatError(
    `Cannot load "${file}": this is a zip archive, but not a PyTorch checkpoint: it has no record "data.pkl"`,
    { file, expected: `${root}/data.pkl` },
  );
}

function readFacts(
  source: ByteSource,
  directory: ZipDirectory,
): Record<string, string> | Promise<Record<string, string>> {
  const pending: Promise<void>[] = [];
  const facts: Record<string, string> = {};
  for (const [fact, names] of Object.entries(FACTS)) {
    const index = names.map((name) => directory.find(name)).find((found) => found !== undefined);
    if (index === undefined) continue;
    try {
      const set = andThen(readFact(source, directory, index), (text) => {
        facts[fact] = text;
      });
      if (set instanceof Promise) pending.push(set);
    } catch (error) {
      // It waits with those that are under way: left alone, one of them that fails would end the process.
      pending.push(Promise.reject(error));
    }
  }
  return pending.length === 0 ? facts : Promise.all(pending).then(() => facts);
}

function readFact(source: ByteSource, directory: ZipDirectory, index: number): string | Promise<string> {
  if (directory.size(index) > MAX_FACT_SIZE) {
    throw new FormatError(
      `Cannot load "${directory.file}": record "${directory.name(index)}" has ${directory.size(index)} bytes; expected at most ${MAX_FACT_SIZE}`,
      {
        file: directory.file,
        record: directory.name(index),
        expected: MAX_FACT_SIZE,
        found: directory.size(index),
      },
    );
  }
  return andThen(readRecord(source, directory, index), (bytes) => new TextDecoder().decode(bytes).trim());
}

/** Checks what PyTorch checks. Gives the byte order where the file states it. */
function checkFacts(
  { file }: ZipDirectory,
  { version, byteorder }: Record<string, string>,
): "little" | "big" | undefined {
  const fault = (record: string, expected: string, found: string | undefined): FormatError =>
    new FormatError(
      `Cannot load "${file}": record "${record}" is ${JSON.stringify(found ?? null)}; expected ${expected}`,
      {
        file,
        record,
        expected,
        found,
      },
    );
  const number = /^\d+/.exec(version ?? "");
  const range = `a number from ${MIN_VERSION} to ${MAX_VERSION}`;
  if (number === null || Number(number[0]) < MIN_VERSION || Number(number[0]) > MAX_VERSION)
    throw fault("version", range, version);
  if (byteorder !== undefined && byteorder !== "little" && byteorder !== "big") {
    throw fault("byteorder", '"little" or "big"', byteorder);
  }
  return byteorder;
}

function recordOf(directory: ZipDirectory, storage: Storage): number {
  const index = directory.findStorage(storage.key);
  if (index === undefined) {
    const record = `${directory.root}/data/${storage.key}`;
    throw new FormatError(
      `Cannot load "${directory.file}": record "${record}" is missing: it holds a storage of ${storage.nbytes} bytes`,
      {
        file: directory.file,
        record,
        expected: storage.nbytes,
      },
    );
  }
  return index;
}

function checkRecord(directory: ZipDirectory, storage: Storage): void {
  const index = recordOf(directory, storage);
  const size = directory.size(index);
  if (size === storage.nbytes) return;
  const record = directory.name(index);
  throw new FormatError(
    `Cannot load "${directory.file}": record "${record}" has ${size} bytes; its tensors need ${storage.nbytes}`,
    {
      file: directory.file,
      record,
      expected: storage.nbytes,
      found: size,
    },
  );
}
