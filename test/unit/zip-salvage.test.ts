import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { readZipDirectory, type ZipDirectory } from "../../src/container/zip/directory.js";
import { nextRecord } from "../../src/container/zip/layout.js";
import { isTorchloadError, open, type TorchloadError } from "../../src/index.js";
import { memorySource } from "../../src/source/memory-source.js";
import { fixtures } from "../support/fixtures.js";

/** Archives that `torch.save` itself wrote, and that `open` reads. */
const written = fixtures().filter(({ name }) => /\.zip$/.test(name));

/** The records of an archive in the order of the file. */
function inFileOrder(directory: ZipDirectory): number[] {
  return Array.from({ length: directory.count }, (_, index) => index).sort(
    (a, b) => directory.headerOffset(a) - directory.headerOffset(b),
  );
}

describe.each(written)("$name", ({ path }) => {
  const bytes = new Uint8Array(readFileSync(path));
  const source = memorySource(bytes, "model.pt");
  const directory = readZipDirectory(source) as ZipDirectory;
  const order = inFileOrder(directory);

  test("has its records where the layout says", async () => {
    const alignment = await alignmentOf(bytes, directory);
    let at = 0;
    for (const index of order) {
      expect(directory.headerOffset(index)).toBe(at);
      const record = nextRecord(
        at,
        new TextEncoder().encode(directory.name(index)).length,
        directory.size(index),
        alignment,
      );
      expect(await directory.locate(source, index)).toBe(record.dataOffset);
      at = record.end;
    }
  });

  test("cut anywhere in its storages is said to have had as many bytes as it had", async () => {
    const storages = order.filter((index) => directory.name(index).includes("/data/"));
    for (const index of storages.filter((candidate) => directory.size(candidate) > 0)) {
      const start = (await directory.locate(source, index)) as number;
      for (const end of [start, start + Math.ceil(directory.size(index) / 2), start + directory.size(index)]) {
        const error = await refusalOf(bytes.subarray(0, end));
        expect(error.message).toContain(
          `it is cut short: ${end} bytes are here, at least ${bytes.length - end} are missing`,
        );
      }
    }
  });
});

async function alignmentOf(bytes: Uint8Array, directory: ZipDirectory): Promise<number> {
  const index = directory.find(".storage_alignment");
  if (index === undefined) return 64;
  const start = await directory.locate(memorySource(bytes), index);
  return Number(new TextDecoder().decode(bytes.subarray(start, start + directory.size(index))));
}

async function refusalOf(bytes: Uint8Array): Promise<TorchloadError> {
  try {
    await (await open(bytes, { weightsOnly: false })).close();
  } catch (error) {
    if (isTorchloadError(error)) return error;
    throw error;
  }
  throw new Error("it was read");
}

describe("the layout of PyTorch's writer", () => {
  test("takes fields of 64 bits from 4 GiB on", () => {
    const limit = 0xffffffff;
    // Header 30, name 14, padding field of 4 at least: 48, aligned to 64; a descriptor of 16 behind.
    expect(nextRecord(0, 14, 100, 64)).toEqual({ dataOffset: 64, end: 180 });
    expect(nextRecord(0, 14, 0, 64)).toEqual({ dataOffset: 64, end: 64 });
    // The size twice: 20 more bytes, and a descriptor of 24.
    expect(nextRecord(0, 14, limit, 64)).toEqual({ dataOffset: 128, end: 128 + limit + 24 });
    // The offset: 12 more.
    expect(nextRecord(2 ** 32, 6, 100, 64)).toEqual({ dataOffset: 2 ** 32 + 64, end: 2 ** 32 + 64 + 124 });
    expect(nextRecord(0, 14, 1, 4096)).toEqual({ dataOffset: 4096, end: 4113 });
  });
});
