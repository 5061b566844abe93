import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { readZipDirectory, type ZipDirectory } from "../../src/container/zip/directory.js";
import { METHOD_DEFLATED, METHOD_STORED } from "../../src/container/zip/layout.js";
import { readRecord } from "../../src/container/zip/record.js";
import { type FormatError, isTorchloadError, open, type TorchloadError } from "../../src/index.js";
import { memorySource } from "../../src/source/memory-source.js";
import type { ByteSource } from "../../src/source/source.js";
import {
  code,
  concat,
  dict,
  floats,
  storage,
  tensor,
  text,
  utf8,
  type ZipRecord,
  zip,
  zipCheckpoint,
} from "../support/bad-files.js";
import { fixture } from "../support/fixtures.js";
import { largeZip } from "../support/zip-writer.js";

const directoryOf = (bytes: Uint8Array): ZipDirectory => readZipDirectory(memorySource(bytes, "a.pt")) as ZipDirectory;

const record = (name: string, content: Uint8Array = utf8(name)): ZipRecord => ({ name, content });

/** A checkpoint with so many storages of four bytes. */
function many(count: number, key: (k: number) => string = String): ZipRecord[] {
  return [
    record("archive/data.pkl"),
    ...Array.from({ length: count }, (_, k) => record(`archive/data/${key(k)}`, floats(k))),
    record("archive/version", utf8("3\n")),
  ];
}

/** A source that answers with promises and counts what it is asked for. */
function slow(bytes: Uint8Array): ByteSource & { reads: [number, number][] } {
  const reads: [number, number][] = [];
  return {
    name: "a.pt",
    size: bytes.length,
    reads,
    async read(start, end) {
      reads.push([start, end]);
      return bytes.subarray(start, end);
    },
  };
}

async function refusalOf(bytes: Uint8Array): Promise<TorchloadError> {
  try {
    await (await open(bytes)).close();
  } catch (error) {
    if (isTorchloadError(error)) return error;
    throw error;
  }
  throw new Error("it was read");
}

describe("records", () => {
  test("are found by name and by key, with what the directory says of them", async () => {
    const compressed = { ...record("root/data/1", new Uint8Array(1000)), deflate: true };
    const bytes = zip([record("root/data.pkl"), compressed, record("root/data/x/y"), record("root/data/007")]);
    const directory = directoryOf(bytes);
    expect([directory.root, directory.count, directory.file]).toEqual(["root", 4, "a.pt"]);
    const names = ["data.pkl", "data/1", "data/x/y", "data/007"];
    expect(names.map((name) => directory.find(name))).toEqual([0, 1, 2, 3]);
    expect(["1", "x/y", "007"].map((key) => directory.findStorage(key))).toEqual([1, 2, 3]);
    expect(names.map((_, index) => directory.name(index))).toEqual(names.map((name) => `root/${name}`));
    for (const other of ["data/7", "data/0", "data/", "data", "1", "Data.pkl", "", "data/-1", "data/4294967297"]) {
      expect(directory.find(other)).toBeUndefined();
    }
    expect([directory.method(0), directory.method(1)]).toEqual([METHOD_STORED, METHOD_DEFLATED]);
    expect([directory.size(1), directory.compressedSize(1) < 100]).toEqual([1000, true]);
    expect(await readRecord(memorySource(bytes), directory, 1)).toEqual(new Uint8Array(1000));
    expect(await readRecord(memorySource(bytes), directory, 2)).toEqual(utf8("root/data/x/y"));
  });

  test("have the CRC that their writer computed", () => {
    const directory = directoryOf(readFileSync(fixture("torch-1.13/bare-tensor.zip").path));
    expect(directory.crc(directory.find("version") as number)).toBe(crc32(utf8("3\n")));
  });

  test.each([
    ["in the order of their keys", (k: number) => String(k)],
    ["in another order", (k: number) => String((k * 7919) % 70_000)],
    ["with keys that are far apart", (k: number) => String(k * 10_007)],
    ["with keys that are no numbers", (k: number) => `k${k}`],
  ])("may be 70,000 in number, %s", async (_, key) => {
    const names = many(70_000, key).map(({ name }) => String(name));
    const bytes = largeZip(names, (k) => floats(k - 1));
    const source = memorySource(bytes);
    const directory = directoryOf(bytes);
    expect(directory.count).toBe(70_002);
    for (const k of [0, 1, 65_534, 65_535, 65_536, 69_999]) {
      const index = directory.findStorage(key(k)) as number;
      expect(directory.name(index)).toBe(`archive/data/${key(k)}`);
      expect(await readRecord(source, directory, index)).toEqual(floats(k));
    }
    expect(directory.findStorage("70000.5")).toBeUndefined();
  });

  test("may be listed in another order than they lie in", async () => {
    const bytes = zip(many(500));
    // Turns the directory round, header by header.
    const headers = centralHeaders(bytes);
    const turned = bytes.slice();
    turned.set(concat(...headers.map(({ bytes: header }) => header).reverse()), headers[0]?.at);
    const other = directoryOf(turned);
    expect(other.name(0)).toBe("archive/version");
    for (let k = 0; k < 500; k++) {
      expect(await readRecord(memorySource(turned), other, other.findStorage(String(k)) as number)).toEqual(floats(k));
    }
  });
});

/** The central headers of an archive and where they stand. */
function centralHeaders(bytes: Uint8Array): { at: number; bytes: Uint8Array }[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const headers: { at: number; bytes: Uint8Array }[] = [];
  let at = view.getUint32(bytes.length - 22 + 16, true);
  while (view.getUint32(at, true) === 0x02014b50) {
    const end = at + 46 + view.getUint16(at + 28, true) + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
    headers.push({ at, bytes: bytes.slice(at, end) });
    at = end;
  }
  return headers;
}

function crc32(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let k = 0; k < 8; k++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

describe("local headers", () => {
  test("are read one at a time, and once, where the bytes are at hand", () => {
    const bytes = zip(many(10));
    const reads: number[][] = [];
    const source: ByteSource = {
      name: "a.pt",
      size: bytes.length,
      read(start, end) {
        reads.push([start, end]);
        return bytes.subarray(start, end);
      },
    };
    const directory = readZipDirectory(source) as ZipDirectory;
    reads.length = 0;
    const index = directory.findStorage("3") as number;
    const place = directory.locate(source, index);
    expect(directory.locate(source, index)).toBe(place);
    const start = directory.headerOffset(index);
    expect(reads).toEqual([[start, start + 30 + "archive/data/3".length]]);
  });

  test("of neighbours are read together from a source that answers with promises", async () => {
    const bytes = zip(many(5000));
    const source = slow(bytes);
    const directory = await readZipDirectory(source);
    await directory.locate(source, 0);
    source.reads.length = 0;
    const indices = Array.from({ length: 5000 }, (_, k) => directory.findStorage(String(k)) as number);
    const places = await Promise.all(indices.map((index) => directory.locate(source, index)));
    expect(source.reads.length).toBeLessThan(8);
    const alone = directoryOf(bytes);
    expect(places).toEqual(indices.map((index) => alone.locate(memorySource(bytes), index)));
    expect(directory.locate(source, indices[17] as number)).toBe(places[17]);
  });

  test("far from each other are read alone, and no more than they are", async () => {
    const bytes = zip([
      record("a/data.pkl"),
      ...[0, 1, 2, 3].map((k) => record(`a/data/${k}`, new Uint8Array(100_000))),
    ]);
    const source = slow(bytes);
    const directory = await readZipDirectory(source);
    await directory.locate(source, 0);
    source.reads.length = 0;
    await Promise.all([3, 1, 2, 4].map((index) => directory.locate(source, index)));
    expect(source.reads.map(([start, end]) => end - start)).toEqual([38, 38, 38, 38]);
  });

  test("that are wrong fail all that were asked for with them, and nothing is left to fail unseen", async () => {
    const records = many(100).map((entry, k) => (k === 50 ? { ...entry, local: { name: "archive/data/x" } } : entry));
    const source = slow(zip(records));
    const directory = await readZipDirectory(source);
    await directory.locate(source, 0);
    const all = await Promise.allSettled(Array.from({ length: 100 }, (_, index) => directory.locate(source, index)));
    const reasons = all.flatMap((result) => (result.status === "rejected" ? [result.reason as FormatError] : []));
    expect(reasons.length).toBeGreaterThan(0);
    for (const reason of reasons) expect(reason.record).toBe("archive/data/49");
    // Others can still be had.
    expect(await directory.locate(source, 90)).toBeGreaterThan(0);
  });
});

describe("the end records", () => {
  const plain = zip(many(3));
  const changed = (fromEnd: number, ...bytes: number[]): Uint8Array => {
    const copy = plain.slice();
    copy.set(bytes, copy.length - fromEnd);
    return copy;
  };

  test.each([
    ["a locator that counts two files", changed(26, 2)],
    ["a zip64 record of the second file", changed(98 - 16, 1, 0, 0, 0)],
    ["both of a third file", changed(98 - 16, 2, 0, 0, 0, 2)],
    ["fewer records in this file than in all", changed(98 - 24, 1)],
  ])("of a split archive are refused: %s", (_, bytes) => {
    expect(() => directoryOf(bytes)).toThrow("the zip archive is split over several files");
  });

  test("may count files from 1", () => {
    expect(directoryOf(changed(98 - 16, 1, 0, 0, 0, 1)).count).toBe(5);
  });

  test("of a record that is said to be shorter than it must be are refused", () => {
    expect(() => directoryOf(changed(98 - 4, 43))).toThrow(
      "its zip64 end record says it has 43 bytes; expected 44 or more",
    );
  });

  test("may be without zip64 records", () => {
    expect(directoryOf(concat(plain.subarray(0, -98), plain.subarray(-22))).count).toBe(5);
  });

  test("may have 65,535 bytes behind them, and not many more", () => {
    expect(directoryOf(concat(plain, new Uint8Array(65_535))).count).toBe(5);
    expect(() => directoryOf(concat(plain, new Uint8Array(65_600)))).toThrow("is cut short");
  });

  test("tell of bytes in front of the archive", () => {
    expect(() => directoryOf(concat(utf8("#!/bin/sh\n"), plain))).toThrow("its zip archive begins at byte 10");
    const larger = zip(many(30));
    expect(() => directoryOf(concat(larger, plain))).toThrow(
      `its zip archive begins at byte ${larger.length}, behind other data; a .distcp file of a distributed checkpoint is several`,
    );
  });

  test("tell of bytes put into the archive", () => {
    const more = concat(plain.subarray(0, 200), code(13, 13, 13), plain.subarray(200));
    expect(() => directoryOf(more)).toThrow("its central directory is 3 bytes further on than it should be");
  });
});

describe("archives that are something else", () => {
  test.each([
    [["x.npy", "y.npy"], "this is a NumPy archive (.npz); numpy.load reads it"],
    [["a/x.npy"], "this is a NumPy archive (.npz)"],
    [["metadata.json", "config.json", "model.weights.h5"], "this is a Keras model (.keras); Keras reads it"],
    [["[Content_Types].xml", "word/document.xml"], "this is an Office document"],
    [["META-INF/MANIFEST.MF", "a.class"], "this is a Java archive"],
    [["AndroidManifest.xml", "META-INF/MANIFEST.MF"], "this is an Android package"],
    [["mimetype", "content.xml"], "this is an EPUB or OpenDocument file"],
    [["MAR-INF/MANIFEST.json", "model.pth"], "this is a TorchServe archive (.mar); unpack it first"],
    [["p-1.0.dist-info/WHEEL", "p/__init__.py"], "this is a Python wheel"],
    [[".metadata", "__0_0.distcp"], "this is a distributed checkpoint"],
    [["Manifest.json", "Data/com.apple.CoreML/model.mlmodel"], "this is a Core ML package"],
    [["serialized_exported_program.json", "version"], "this is a torch.export archive (.pt2), which this version"],
    [
      ["m/constants.pkl", "m/data.pkl"],
      "this is a TorchScript archive (torch.jit.save), which this version does not read",
    ],
    [["m/model.json", "m/tensors/0"], "this is a TorchScript archive of PyTorch 1.0 or 1.1"],
    [["m/archive_format", "m/data/weights/x"], "this is a torch.export archive (.pt2)"],
    [["m/.data/extern_modules", "m/data.pkl"], "this is a torch.package archive"],
    [
      ["config.json", "policy.pth"],
      'this is a zip archive, but not a PyTorch checkpoint: it holds "policy.pth"; unpack it first',
    ],
    [["run/a.txt", "run/epoch=1.ckpt"], 'it holds "run/epoch=1.ckpt"; unpack it first'],
    [["data.pkl", "version"], 'record "data.pkl" is not in a folder'],
    [["a.txt"], 'this is a zip archive, but not a PyTorch checkpoint: it has no record "data.pkl", but "a.txt"'],
    [["m/version", "m/data/0"], 'it has no record "data.pkl"'],
  ])("are named for what they are: %j", async (names, message) => {
    expect((await refusalOf(zip(names.map((name) => record(name))))).message).toContain(message);
  });
});

describe("a damaged archive", () => {
  const value = dict([text("a"), tensor(storage("0"))]);
  const sources = [
    zipCheckpoint(value, { "0": floats(1, 2, 3, 4) }),
    zip(many(3).map((entry) => ({ ...entry, deflate: true }))),
    new Uint8Array(readFileSync(fixture("torch-1.13/rezipped-zip64").path)),
  ];

  /** Reads all of an archive. */
  async function readAll(source: ByteSource): Promise<void> {
    const directory = await readZipDirectory(source);
    for (let index = 0; index < directory.count; index++) {
      directory.name(index);
      const content = await readRecord(source, directory, index);
      expect(content.length).toBe(directory.size(index));
    }
  }

  const settled = async (reading: Promise<void>): Promise<string> => {
    try {
      await reading;
      return "read";
    } catch (error) {
      if (!isTorchloadError(error)) throw error;
      return error.message;
    }
  };

  test("is read or refused by an error of the library, from every kind of source alike", async () => {
    const place = fc.oneof(fc.nat(3000), fc.integer({ min: -400, max: -1 }));
    const edit = fc.tuple(place, fc.constantFrom(0, 1, 0x7f, 0x80, 0xfe, 0xff, 0x50));
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...sources),
        fc.array(edit, { maxLength: 4 }),
        fc.option(fc.nat(3000)),
        async (whole, edits, cut) => {
          const bytes = whole.slice(0, cut ?? undefined);
          for (const [at, byte] of edits) {
            const index = at < 0 ? bytes.length + at : at;
            if (index >= 0 && index < bytes.length) bytes[index] = byte;
          }
          const atOnce = await settled(readAll(memorySource(bytes, "a.pt")));
          expect(await settled(readAll(slow(bytes)))).toBe(atOnce);
        },
      ),
      { numRuns: 1500 },
    );
  }, 60_000);
});
