import { randomBytes } from "node:crypto";
import { afterEach, describe, expect, test, vi } from "vitest";
import { readZipDirectory, type ZipDirectory } from "../../src/container/zip/directory.js";
import { readRecord } from "../../src/container/zip/record.js";
import { type FormatError, isTorchloadError, SourceError } from "../../src/errors.js";
import { memorySource } from "../../src/source/memory-source.js";
import type { ByteSource } from "../../src/source/source.js";
import { concat, utf8, type ZipRecord, zip } from "../support/bad-files.js";

const MIB = 1 << 20;

function archiveOf(record: Partial<ZipRecord>): { bytes: Uint8Array; directory: ZipDirectory; index: number } {
  const bytes = zip([
    { name: "a/data.pkl", content: utf8("x") },
    { name: "a/data/0", content: new Uint8Array(0), ...record },
    { name: "a/version", content: utf8("3\n") },
  ]);
  const directory = readZipDirectory(memorySource(bytes, "a.pt")) as ZipDirectory;
  return { bytes, directory, index: directory.find("data/0") as number };
}

async function failure(reading: () => unknown): Promise<unknown> {
  try {
    await reading();
  } catch (error) {
    return error;
  }
  return undefined;
}

afterEach(() => vi.unstubAllGlobals());

describe("a stored record", () => {
  test("is a view of what the source has, at once", () => {
    const { bytes, directory, index } = archiveOf({ content: utf8("hello") });
    const content = readRecord(memorySource(bytes), directory, index) as Uint8Array;
    expect(content).toEqual(utf8("hello"));
    expect(content.buffer).toBe(bytes.buffer);
  });
});

describe("a deflated record", () => {
  test.each([
    ["of nothing", new Uint8Array(0)],
    ["of one byte", utf8("x")],
    ["that hardly shrinks", new Uint8Array(randomBytes(3 * MIB + 17))],
    ["that shrinks a thousandfold", new Uint8Array(20 * MIB)],
  ])("gives its content: %s", async (_, content) => {
    const { bytes, directory, index } = archiveOf({ content, deflate: true });
    const found = (await readRecord(memorySource(bytes), directory, index)) as Uint8Array;
    expect(Buffer.compare(found, content)).toBe(0);
  });

  test("is read piece by piece", async () => {
    const { bytes, directory, index } = archiveOf({ content: new Uint8Array(randomBytes(3 * MIB)), deflate: true });
    const lengths: number[] = [];
    const source: ByteSource = {
      name: "a.pt",
      size: bytes.length,
      async read(start, end) {
        lengths.push(end - start);
        return bytes.subarray(start, end);
      },
    };
    await directory.locate(source, index);
    lengths.length = 0;
    await readRecord(source, directory, index);
    expect(Math.max(...lengths)).toBe(MIB);
    expect(lengths.reduce((sum, length) => sum + length, 0)).toBe(directory.compressedSize(index));
  });

  test("that grows too large is given up at its stated size", async () => {
    const { bytes, directory, index } = archiveOf({
      content: new Uint8Array(64 * MIB),
      deflate: true,
      central: { size: 100_000 },
    });
    const error = (await failure(() => readRecord(memorySource(bytes), directory, index))) as FormatError;
    expect(error.message).toBe('Cannot load "a.pt": record "a/data/0" inflates to more than its 100000 bytes');
    expect([error.record, error.expected]).toEqual(["a/data/0", 100_000]);
    expect(error.found).toBeLessThan(2 * MIB);
  });

  test.each([
    ["garbage", utf8("no deflated data"), /is not valid deflated data/],
    [
      "nothing but an unended block",
      Uint8Array.of(0, 5, 0, 0xfa, 0xff, 1),
      /is not valid deflated data|inflates to \d+ of/,
    ],
  ])("that is damaged is an error with its cause: %s", async (_, raw, message) => {
    const { bytes, directory, index } = archiveOf({ content: new Uint8Array(1000), deflate: true, raw });
    const error = await failure(() => readRecord(memorySource(bytes), directory, index));
    expect(isTorchloadError(error, "format")).toBe(true);
    expect((error as FormatError).message).toMatch(message);
  });

  test("whose bytes cannot be had is an error of the source", async () => {
    const { bytes, directory, index } = archiveOf({ content: new Uint8Array(randomBytes(2 * MIB)), deflate: true });
    const gone = new SourceError("Cannot read it", { file: "a.pt" });
    let reads = 0;
    const source: ByteSource = {
      name: "a.pt",
      size: bytes.length,
      async read(start, end) {
        if (end - start > 100 && reads++ > 0) throw gone;
        return bytes.subarray(start, end);
      },
    };
    expect(await failure(() => readRecord(source, directory, index))).toBe(gone);
  });

  test("asks for what a platform may not have, and says so", async () => {
    const { bytes, directory, index } = archiveOf({ content: new Uint8Array(1000), deflate: true });
    vi.stubGlobal(
      "DecompressionStream",
      class {
        constructor() {
          throw new TypeError("not supported");
        }
      },
    );
    const error = await failure(() => readRecord(memorySource(bytes), directory, index));
    expect(isTorchloadError(error, "unsupported")).toBe(true);
  });

  test("may be followed by bytes that do not belong to it", async () => {
    const { bytes, directory, index } = archiveOf({
      content: utf8("abc"),
      raw: concat(utf8("\x4bLJ\x06\x00"), utf8("more")),
      deflate: true,
    });
    const error = await failure(async () =>
      expect(await readRecord(memorySource(bytes), directory, index)).toEqual(utf8("abc")),
    );
    // Platforms differ in whether they take it.
    if (error !== undefined) expect(isTorchloadError(error, "format"), String(error)).toBe(true);
  });
});
