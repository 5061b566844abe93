import { describe, expect, test } from "vitest";
import { type ByteSource, load, type Tensor } from "../../src/index.js";
import {
  bomb,
  type Code,
  checkpointRecords,
  code,
  concat,
  concatAll,
  dict,
  floats,
  get,
  int,
  ints,
  legacyCheckpoint,
  list,
  nested,
  op,
  put,
  repeat,
  storage,
  tensor,
  text,
  tuple,
  zip,
  zipCheckpoint,
} from "../support/bad-files.js";
import { built, isolated } from "./isolated.js";
import { checkError, failure, fileOf } from "./refusal.js";

const content = floats(1, 2, 3, 4);
const fileWith = (value: Code): string => fileOf(zipCheckpoint(value, { "0": content }));
/** A tensor in memo 0, and nothing on the stack. */
const memoTensor = concat(tensor(storage("0")), put(0), op.POP);
const DEPTH = 100_000;

/** Lists in lists: `[T, [T, [T, …]]]`, made from the inside. */
function nestedLists(depth: number, leaf: Code): Code {
  const level = concat(op.EMPTY_LIST, put(1), leaf, op.APPEND);
  // Each list is appended to the one around it, from the innermost on.
  return concat(repeat(level, depth), repeat(op.APPEND, depth - 1));
}

/** Values of few bytes in which there is much to walk, with how many names of tensors they have. */
const walks: [what: string, value: Code, tensors: number][] = [
  ["a tuple of 2^64 leaves", bomb(64), 0],
  ["a tuple of 2^64 tensors", bomb(64, tensor(storage("0"))), 2],
  ["a list that holds itself", concat(op.EMPTY_LIST, put(1), get(1), op.APPEND, get(1), op.APPEND), 0],
  ["a dict that holds itself as a value", concat(op.EMPTY_DICT, put(1), text("a"), get(1), op.SETITEM), 0],
  ["100,000 nested tuples", nested(DEPTH), 0],
  ["100,000 nested lists", nestedLists(DEPTH, op.NONE), 0],
  [
    "100,000 nested lists with a tensor in the last",
    concat(memoTensor, repeat(op.EMPTY_LIST, DEPTH), get(0), repeat(op.APPEND, DEPTH)),
    1,
  ],
  ["a key of 2^64 leaves", concat(memoTensor, dict([bomb(64), get(0)], [text("a"), get(0)])), 2],
  ["a key of 100,000 nested tuples", concat(memoTensor, dict([nested(DEPTH), get(0)])), 1],
  [
    "an integer of 60,000 bytes as key",
    concat(memoTensor, dict([concat(code(0x8b, 0x60, 0xea, 0, 0), repeat(code(0x11), 60_000)), get(0)])),
    1,
  ],
];

/** Open: src/inspect names values by paths that grow with depth, and looks into a list again each time it is met. */
const notYetSummedUp = new Set<string>([]);

/** A test of a summary. */
const summaryTest = (what: string): typeof test.fails =>
  notYetSummedUp.has(what) ? test.fails : (test as typeof test.fails);

describe.skipIf(!built).each(walks)("%s", (what, value, tensors) => {
  const path = fileWith(value);

  test("is loaded and opened, and its tensors are named", () => {
    const outcome = isolated(
      path,
      `await torchload.load(path, { weightsOnly: false });
       const checkpoint = await torchload.open(path, { weightsOnly: false });
       console.log(checkpoint.tensors().size);`,
    );
    expect(outcome).toMatchObject({ status: 0, stdout: `${tensors}\n` });
  });

  summaryTest(what)("is summed up in a page", () => {
    const outcome = isolated(
      path,
      `const checkpoint = await torchload.open(path, { weightsOnly: false });
       console.log(JSON.stringify(summarize(checkpoint)).length < 100_000_000);`,
    );
    expect(outcome).toMatchObject({ status: 0, stdout: "true\n" });
  });
});

/** Small files whose names or texts would be large: each level and each item of them is a few bytes. */
const large: [what: string, value: Code][] = [
  ["100,000 tensors, each in a list deeper than the last", nestedLists(DEPTH, op.NONE)],
  ["a tensor at each of 100,000 depths", concat(memoTensor, nestedLists(DEPTH, get(0)))],
  [
    "a key of a million letters at each of a thousand depths",
    concat(
      memoTensor,
      concat(text("k".repeat(1_000_000)), put(2), op.POP),
      repeat(concat(op.EMPTY_DICT, get(2)), 1000),
      get(0),
      repeat(op.SETITEM, 1000),
    ),
  ],
  [
    "100,000 tensors under a key of a million letters",
    concat(memoTensor, dict([text("k".repeat(1_000_000)), list(repeat(get(0), DEPTH))])),
  ],
  [
    "100,000 tensors whose keys have no text",
    concat(
      memoTensor,
      op.EMPTY_DICT,
      op.MARK,
      concatAll(Array.from({ length: DEPTH }, (_, k) => concat(code(0x43, 4), int(k).slice(1), get(0)))),
      op.SETITEMS,
    ),
  ],
  [
    "100,000 lists of the same 100,000 numbers",
    concat(
      list(repeat(code(0x4b, 7), DEPTH)),
      put(1),
      op.POP,
      op.EMPTY_LIST,
      op.MARK,
      repeat(get(1), DEPTH),
      op.APPENDS,
    ),
  ],
  [
    "100,000 mentions of a list of lists of lists",
    concat(
      list(repeat(code(0x4b, 7), 64)),
      put(1),
      op.POP,
      op.EMPTY_LIST,
      op.MARK,
      repeat(get(1), 64),
      op.APPENDS,
      put(2),
      op.POP,
      op.EMPTY_LIST,
      op.MARK,
      repeat(get(2), 64),
      op.APPENDS,
      put(3),
      op.POP,
      op.EMPTY_LIST,
      op.MARK,
      repeat(get(3), DEPTH),
      op.APPENDS,
    ),
  ],
  [
    "a text of ten million letters a hundred times",
    concat(text("x".repeat(1e7)), put(1), op.POP, list(repeat(get(1), 100))),
  ],
];

describe.skipIf(!built).each(large)("%s", (what, value) => {
  const path = fileWith(value);

  test("get names in little time and memory", () => {
    const outcome = isolated(path, `const checkpoint = await torchload.open(path); checkpoint.tensors();`, 5000);
    expect(outcome).toMatchObject({ status: 0, stderr: "" });
  });

  summaryTest(what)("are summed up in little time and memory", () => {
    const outcome = isolated(path, `summarize(await torchload.open(path));`, 4000);
    expect(outcome).toMatchObject({ status: 0, stderr: "" });
  });
});

describe.skipIf(!built)("reading out a tensor of nothing but many rows", () => {
  const refuses = (size: Code, stride: Code): void => {
    const outcome = isolated(
      fileWith(tensor(storage("0"), { size, stride })),
      `const tensor = await torchload.load(path);
       try { tensor.toArray(); } catch (error) { console.log(error instanceof RangeError); }`,
      5000,
    );
    expect(outcome).toMatchObject({ status: 0, stdout: "true\n" });
  };

  test("refuses 2^40 rows", () => refuses(ints(2 ** 40, 0), ints(0, 0)));

  // Open: toArray() makes the arrays of the outer dimensions before it meets the one that is empty.
  test("refuses 2^31 rows, which would fill the memory", () => refuses(ints(2 ** 31, 0), ints(0, 0)));
  test("refuses 2^20 times 2^20 rows, which would fill the memory", () =>
    refuses(ints(2 ** 20, 2 ** 20, 0), ints(0, 0, 0)));
});

/** A source of any size, zeros where nothing else is. Refuses reads that no test may ask for. */
function sparse(size: number, parts: readonly [start: number, bytes: Uint8Array][]): ByteSource & { largest: number } {
  return {
    name: "sparse",
    size,
    largest: 0,
    read(start, end) {
      this.largest = Math.max(this.largest, end - start);
      if (end - start > 2 ** 28) throw new Error(`a read of ${end - start} bytes`);
      const bytes = new Uint8Array(end - start);
      for (const [at, part] of parts) {
        for (let k = Math.max(0, start - at); k < part.length && at + k < end; k++)
          bytes[at + k - start] = part[k] as number;
      }
      return bytes;
    },
  };
}

describe("a sparse file of a petabyte", () => {
  const records = checkpointRecords(dict([text("w"), tensor(storage("0"))]), { "0": content });
  const SIZE = 2 ** 50;

  test("whose directory is all of it is refused", async () => {
    const archive = zip(records, {
      entries: 0xffff,
      directorySize: 0xffffffff,
      directoryStart: 0xffffffff,
      zip64: { entries: 10n, directorySize: 2n ** 49n, directoryStart: 4096n, locatorOffset: BigInt(SIZE - 98) },
    });
    const source = sparse(SIZE, [
      [0, archive.subarray(0, 64)],
      [SIZE - 98, archive.subarray(-98)],
    ]);
    const error = checkError(await failure(() => load(source)), "sparse");
    expect(error.message).toContain(
      "its central directory has 562949953421312 bytes; at most 2147483647 are read whole",
    );
  });

  test("whose pickle is all of it is refused", async () => {
    const stream = legacyCheckpoint(text("x", 0xffffffff)).subarray(0, 64);
    const source = sparse(SIZE, [[0, stream]]);
    const error = checkError(
      await failure(() =>
        load({ ...source, read: (s, e) => (e - s > 2 ** 27 ? new Uint8Array(e - s).fill(0x78) : source.read(s, e)) }),
      ),
      "sparse",
    );
    expect(error.code).toMatch(/unsupported|format/);
  });

  test("that is cut short is refused after a look at its ends", async () => {
    const source = sparse(SIZE, [[0, zip(records).subarray(0, 400)]]);
    const error = checkError(await failure(() => load(source)), "sparse");
    expect(error.message).toContain("cut short");
    expect(source.largest).toBeLessThanOrEqual(2 ** 28);
  });
});

test("an archive of 30,000 records and one of 30,000 names that are alike are read in a moment", async () => {
  const many = (name: (k: number) => string): Uint8Array =>
    zip([
      ...checkpointRecords(dict([text("w"), tensor(storage("0"))]), { "0": content }),
      ...Array.from({ length: 30_000 }, (_, k) => ({ name: name(k), content: new Uint8Array(0) })),
    ]);
  for (const name of [(k: number) => `archive/data/${k + 1}`, (k: number) => `archive/${"x".repeat(50)}${k}`]) {
    const archive = many(name);
    const started = performance.now();
    const value = (await load(archive)) as Map<string, Tensor>;
    expect(performance.now() - started).toBeLessThan(2000);
    expect((value.get("w") as Tensor).toArray()).toEqual([1, 2, 3, 4]);
  }
});

test("keys far apart take no memory for those between", async () => {
  const keys = ["0", "999999999", "9999999", "300", "4294967295"];
  const value = tuple(...keys.map((key) => tensor(storage(key))));
  const bytes = zipCheckpoint(value, Object.fromEntries(keys.map((key) => [key, content])));
  const before = process.memoryUsage().heapUsed;
  expect(await load(bytes)).toHaveLength(keys.length);
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(200e6);
});
