import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isTorchloadError, type SourceError } from "../../src/errors.js";
import { andThen } from "../../src/source/and-then.js";
import { blobSource } from "../../src/source/blob-source.js";
import { memorySource } from "../../src/source/memory-source.js";
import type { ByteSource } from "../../src/source/source.js";
import { windowedSource } from "../../src/source/windowed-source.js";

const WINDOW = 64 * 1024;

/** Bytes that tell where they stand. */
function numbered(length: number): Uint8Array<ArrayBuffer> {
  return Uint8Array.from({ length }, (_, k) => (k * 31 + (k >> 8)) & 0xff);
}

/** A source that counts, and answers with promises when `later` is set. */
function counting(bytes: Uint8Array, later: boolean): ByteSource & { reads: [number, number][]; closed: number } {
  const source = {
    name: "counted",
    size: bytes.length,
    reads: [] as [number, number][],
    closed: 0,
    read(start: number, end: number) {
      source.reads.push([start, end]);
      const part = bytes.subarray(start, end);
      return later ? Promise.resolve(part) : part;
    },
    close() {
      source.closed++;
    },
  };
  return source;
}

describe("going on with a value", () => {
  test("is at once unless it is a promise", async () => {
    expect(andThen(1, (value) => value + 1)).toBe(2);
    await expect(andThen(Promise.resolve(1), (value) => value + 1)).resolves.toBe(2);
    await expect(andThen(1, (value) => Promise.resolve(value + 1))).resolves.toBe(2);
  });
});

describe("a memory source", () => {
  test("gives views of the bytes and copies none", () => {
    const bytes = numbered(100);
    const part = memorySource(bytes.subarray(10)).read(5, 8) as Uint8Array;
    expect(part.buffer).toBe(bytes.buffer);
    expect([...part]).toEqual([...bytes.subarray(15, 18)]);
  });
});

describe("a blob source", () => {
  test("has the name of a file", () => {
    expect(blobSource(new File(["abc"], "model.pt")).name).toBe("model.pt");
    expect(blobSource(new Blob(["abc"])).name).toBe("blob");
    expect(blobSource(new Blob(["abc"]), "given").name).toBe("given");
  });

  test("takes no more than a slice for each end, and reads the rest as it is asked for", async () => {
    const bytes = numbered(1_000_000);
    const blob = new Blob([bytes]);
    const slices: [number, number][] = [];
    const slice = blob.slice.bind(blob);
    blob.slice = (start = 0, end = 0) => {
      slices.push([start, end]);
      return slice(start, end);
    };
    const source = blobSource(blob);
    for (let k = 0; k < 50; k++) {
      expect(await source.read(k * 10, k * 10 + 30)).toEqual(bytes.subarray(k * 10, k * 10 + 30));
      expect(await source.read(999_000 + k, 1_000_000 - k)).toEqual(bytes.subarray(999_000 + k, 1_000_000 - k));
    }
    expect(slices).toEqual([
      [0, WINDOW],
      [1_000_000 - WINDOW, 1_000_000],
    ]);
    await source.read(100_000, 900_000);
    expect(slices.slice(2)).toEqual([[100_000, 900_000]]);
  });

  test("that falls short is an error with both numbers", async () => {
    const blob = new Blob([numbered(100)]);
    Object.defineProperty(blob, "size", { value: 200 });
    const error = (await Promise.resolve(blobSource(blob).read(0, 200)).catch((reason) => reason)) as SourceError;
    expect(isTorchloadError(error, "source")).toBe(true);
    expect([error.wanted, error.got, error.file]).toEqual([200, 100, "blob"]);
  });

  test("that cannot be read is an error with its cause", async () => {
    const blob = new Blob([numbered(100)]);
    const cause = new DOMException("gone", "NotReadableError");
    blob.slice = () => ({ arrayBuffer: () => Promise.reject(cause) }) as unknown as Blob;
    const error = (await Promise.resolve(blobSource(blob).read(0, 10)).catch((reason) => reason)) as SourceError;
    expect(isTorchloadError(error, "source")).toBe(true);
    expect(error.cause).toBe(cause);
  });
});

describe("a windowed source", () => {
  test.each([false, true])("gives the same bytes as what it is over, with promises: %s", async (later) => {
    for (const size of [0, 1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 2 * WINDOW + 1, 5 * WINDOW]) {
      const bytes = numbered(size);
      const source = windowedSource(counting(bytes, later));
      expect(source.size).toBe(size);
      await fc.assert(
        fc.asyncProperty(fc.nat(size), fc.nat(size), async (a, b) => {
          const [start, end] = a < b ? [a, b] : [b, a];
          expect(Buffer.compare(await source.read(start, end), bytes.subarray(start, end))).toBe(0);
        }),
        { numRuns: 30 },
      );
    }
  });

  test("fetches each end once, however many ask at the same time", async () => {
    const inner = counting(numbered(3 * WINDOW), true);
    const source = windowedSource(inner);
    const asked = Array.from({ length: 20 }, (_, k) => source.read(k, k + 10));
    await Promise.all([...asked, source.read(3 * WINDOW - 5, 3 * WINDOW)]);
    expect(inner.reads).toEqual([
      [0, WINDOW],
      [2 * WINDOW, 3 * WINDOW],
    ]);
  });

  test("answers at once what it has", async () => {
    const source = windowedSource(counting(numbered(3 * WINDOW), true));
    expect(source.read(0, 4)).toBeInstanceOf(Promise);
    await source.read(0, 4);
    expect(source.read(4, 8)).toBeInstanceOf(Uint8Array);
  });

  test("answers at once over a source that does", () => {
    expect(windowedSource(counting(numbered(10), false)).read(0, 4)).toBeInstanceOf(Uint8Array);
  });

  test("asks again for what it could not have", async () => {
    let failing = true;
    const inner: ByteSource = {
      name: "flaky",
      size: 10,
      read: (start, end) =>
        failing ? Promise.reject(new Error("no")) : Promise.resolve(numbered(10).subarray(start, end)),
    };
    const source = windowedSource(inner);
    const both = await Promise.allSettled([source.read(0, 2), source.read(2, 4)]);
    expect(both.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    failing = false;
    expect(await source.read(0, 2)).toEqual(numbered(2));
  });

  test("ends a read that was given up, and no other", async () => {
    const source = windowedSource(counting(numbered(10), true));
    const given = new AbortController();
    const ended = Promise.resolve(source.read(0, 4, { signal: given.signal }));
    const other = source.read(4, 8);
    given.abort(new Error("enough"));
    await expect(ended).rejects.toThrow("enough");
    expect(await other).toEqual(numbered(8).subarray(4));
  });

  test("closes what it is over", async () => {
    const inner = counting(numbered(10), true);
    await windowedSource(inner).close?.();
    expect(inner.closed).toBe(1);
    expect(windowedSource(memorySource(numbered(10))).close).toBeUndefined();
  });
});
