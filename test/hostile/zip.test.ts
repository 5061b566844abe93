import { describe, expect, test } from "vitest";
import { type FormatError, load, open, type Tensor } from "../../src/index.js";
import {
  checkpointRecords,
  code,
  concat,
  dict,
  floats,
  int,
  pickle,
  repeat,
  storage,
  tensor,
  text,
  utf8,
  type ZipRecord,
  zip,
  zip64Extra,
  zipCheckpoint,
  zipWith,
} from "../support/bad-files.js";
import { checkError, failure, refused } from "./refusal.js";

const value = dict([text("weight"), tensor(storage("0"))]);
const content = floats(1, 2, 3, 4);
const records = checkpointRecords(value, { "0": content });

/** Changes the record of the storage. */
const weightWith = (change: Partial<ZipRecord>): Uint8Array =>
  zipWith((record, name) => (name === "data/0" ? { ...record, ...change } : record));

/** Changes the record of the pickle. */
const pickleWith = (change: Partial<ZipRecord>): Uint8Array =>
  zipWith((record, name) => (name === "data.pkl" ? { ...record, ...change } : record));

async function weights(bytes: Uint8Array): Promise<number[]> {
  const state = (await load(bytes)) as Map<string, Tensor>;
  return [...(state.get("weight") as Tensor).toFloat32Array()];
}

describe("an archive that is as it should be", () => {
  test("is read as the writer here makes it", async () => {
    expect(await weights(zip(records))).toEqual([1, 2, 3, 4]);
  });

  test("may have records compressed, in any order, and a comment or foreign bytes behind it", async () => {
    const compressed = [...records].reverse().map((record) => ({ ...record, deflate: true }));
    expect(await weights(zip(compressed, { comment: utf8("a comment") }))).toEqual([1, 2, 3, 4]);
    expect(await weights(concat(zip(compressed), new Uint8Array(60_000)))).toEqual([1, 2, 3, 4]);
  });

  test.each([
    ["not UTF-8", code(0xe4, 0xf6, 0xfc)],
    ["with a byte order mark", code(0xef, 0xbb, 0xbf, 0x61)],
    ["of one letter", code(0x61)],
    ["of 5000 letters", new Uint8Array(5000).fill(0x61)],
  ])("may have a root folder whose name is %s", async (_, root) => {
    const moved = records.map((record) => ({
      ...record,
      name: concat(root, utf8(String(record.name).replace("archive", ""))),
    }));
    expect(await weights(zip(moved))).toEqual([1, 2, 3, 4]);
  });

  test("may have its sizes in zip64 fields alone", async () => {
    const size = BigInt(content.length);
    const central = {
      size: 0xffffffff,
      compressedSize: 0xffffffff,
      extra: concat(code(0x99, 0x99, 2, 0, 7, 7), zip64Extra(size, size)),
    };
    expect(await weights(weightWith({ central }))).toEqual([1, 2, 3, 4]);
  });
});

describe("records", () => {
  test("that are missing are named, with what needs them", async () => {
    const error = (await refused(zipWith((record, name) => (name === "data/0" ? [] : record)))) as FormatError;
    expect(error.message).toContain('record "archive/data/0" is missing');
    expect(error.record).toBe("archive/data/0");
  });

  test("without which an archive is no checkpoint are named", async () => {
    const noPickle = await refused(zipWith((record, name) => (name === "data.pkl" ? [] : record)));
    expect(noPickle.message).toContain('a zip archive, but not a PyTorch checkpoint: it has no record "data.pkl"');
    const noVersion = await refused(zipWith((record, name) => (name === "version" ? [] : record)));
    expect(noVersion.message).toContain('record "version" is null; expected a number from 1 to 10');
  });

  test.each(["data/0", "data.pkl", "version"])("that are there twice are refused: %s", async (twin) => {
    const error = await refused(zipWith((record, name) => (name === twin ? [record, record] : record)));
    expect(error.message).toMatch(new RegExp(`there are two records ".*${twin}"`));
  });

  test.each([
    ["data/0", "archive/DATA/0"],
    ["data/0", "archive/data/0"],
    ["data.pkl", "archive/Data.PKL"],
    ["version", "archive/vErsion"],
  ])("that differ from %s in case alone are refused: %s", async (of, twin) => {
    const error = await refused(
      zipWith((record, name) => (name === of ? [record, { ...record, name: twin }] : record)),
    );
    expect(error.message).toContain("there are two records");
  });

  test("are not told apart by what decoders leave out", async () => {
    // A byte order mark is a character of the name, so this record is another one, and data.pkl is not there.
    const marked = await refused(
      pickleWith({ name: concat(utf8("archive/"), code(0xef, 0xbb, 0xbf), utf8("data.pkl")) }),
    );
    expect(marked.message).toContain('it has no record "data.pkl"');
  });

  test("under two roots are refused", async () => {
    const error = await refused(weightWith({ name: "other/data/0" }));
    expect(error.message).toContain('record "other/data/0" is not in the folder of the first record');
    expect((await refused(weightWith({ name: "arc" }))).message).toContain('record "arc" is not in');
    expect((await refused(pickleWith({ name: "data.pkl" }))).message).toContain('record "data.pkl" is not in');
  });

  test("in no folder are those of a plain zip archive, and it is called one", async () => {
    const plain = zip([
      { name: "readme.txt", content: utf8("hello") },
      { name: "picture.png", content: utf8("hello") },
    ]);
    expect((await refused(plain)).message).toContain("a zip archive, but not a PyTorch checkpoint");
  });

  test.each([
    [{ flags: 0x0801 }, "is encrypted"],
    [{ flags: 0x2800 }, "is encrypted"],
    [{ method: 9 }, "compressed by method 9"],
    [{ method: 12 }, "compressed by method 12"],
    [{ method: 14 }, "compressed by method 14"],
    [{ method: 93 }, "compressed by method 93"],
    [{ method: 0xffff }, "compressed by method 65535"],
  ])("that are encrypted or compressed by other methods are refused: %j", async (central, message) => {
    const error = await refused(weightWith({ central }));
    expect(error.code).toBe("unsupported");
    expect(error.message).toContain(message);
  });

  test("larger or smaller than their tensors need are refused with both numbers", async () => {
    for (const size of [0, 12, 15, 17, 20, 1024]) {
      const error = (await refused(zipCheckpoint(value, { "0": new Uint8Array(size) }))) as FormatError;
      expect(error.message).toContain(`record "archive/data/0" has ${size} bytes; its tensors need 16`);
      expect([error.expected, error.found]).toEqual([16, size]);
    }
  });

  test("whose names are paths elsewhere are names alone", async () => {
    const key = "../../../../../../etc/passwd";
    const bytes = zipCheckpoint(dict([text("weight"), tensor(storage(key))]), { [key]: content });
    expect(await weights(bytes)).toEqual([1, 2, 3, 4]);
    const missing = await refused(zipCheckpoint(dict([text("weight"), tensor(storage(key))]), { "0": content }));
    expect(missing.message).toContain(`record "archive/data/${key}" is missing`);
  });

  test.each(["a\0b", "k".repeat(10_000), "__proto__", "constructor", "007", "-1", "1e3", "4294967296", "\ufeff1", ""])(
    "have any text as key: %j",
    async (key) => {
      const bytes = zipCheckpoint(dict([text("weight"), tensor(storage(key))]), {
        "0": floats(9, 9, 9, 9),
        [key]: content,
      });
      expect(await weights(bytes)).toEqual([1, 2, 3, 4]);
    },
  );
});

describe("places", () => {
  test("that overlap are refused", async () => {
    const twice = zipWith((record, name) =>
      name === "data/0" ? [record, { ...record, name: "archive/data/1", central: { headerOffset: 192 } }] : record,
    );
    expect((await refused(twice)).message).toMatch(
      /reaches to byte \d+ at least, the next record or the directory starts at/,
    );
    const over = await refused(weightWith({ central: { size: 1000, compressedSize: 1000 } }));
    expect(over.message).toMatch(/reaches to byte \d+ at least/);
  });

  test("within another record are refused", async () => {
    const outer = zip(checkpointRecords(value, { "0": floats(6, 6, 6, 6) }));
    // The content of a record holds a whole local header and another pickle, and a second name points into it.
    const smuggled = zip([
      ...records,
      { name: "archive/data/9", content: outer },
      {
        name: "archive/data/10",
        content: new Uint8Array(0),
        central: { headerOffset: 640, size: 16, compressedSize: 16 },
      },
    ]);
    expect((await refused(smuggled)).message).toMatch(/reaches to byte \d+ at least/);
  });

  test("beyond the file or 2^53 are refused", async () => {
    const beyond = await refused(weightWith({ central: { headerOffset: 0xfffffff0 } }));
    expect(beyond.message).toMatch(/reaches to byte \d+ at least, the next record or the directory starts at/);
    const far = await refused(weightWith({ central: { headerOffset: 0xffffffff, extra: zip64Extra(2n ** 53n) } }));
    expect(far.message).toContain("a size or offset of the archive is beyond 2^53");
    const most = await refused(
      weightWith({
        central: { size: 0xffffffff, compressedSize: 0xffffffff, extra: zip64Extra(2n ** 64n - 1n, 2n ** 64n - 1n) },
      }),
    );
    expect(most.message).toContain("a size or offset of the archive is beyond 2^53");
    const sum = await refused(
      weightWith({
        central: { size: 0xffffffff, compressedSize: 0xffffffff, extra: zip64Extra(2n ** 53n - 1n, 2n ** 53n - 1n) },
      }),
    );
    expect(sum.message).toMatch(/reaches to byte \d+ at least/);
  });

  test("that zip64 fields are too short for are refused", async () => {
    const error = await refused(
      weightWith({ central: { size: 0xffffffff, compressedSize: 0xffffffff, extra: code(1, 0, 8, 0) } }),
    );
    expect(error.message).toMatch(/reaches to byte \d+ at least/);
  });
});

describe("a local header", () => {
  test("with another name than the directory is refused", async () => {
    for (const name of ["archive/data/1", "archive/data/00", "archive/DATA/0", ""]) {
      const error = await refused(weightWith({ local: { name } }), { by: "load" });
      expect(error.message).toContain("its local header has another name than the directory");
    }
    const error = await refused(pickleWith({ local: { name: "archive/data.pk1" } }));
    expect(error.message).toContain('record "archive/data.pkl": its local header has another name than the directory');
  });

  test("that is none is refused", async () => {
    const error = await refused(weightWith({ local: { signature: 0x08074b50 } }), { by: "load" });
    expect(error.message).toMatch(/there is no local header at byte \d+/);
  });

  test("whose extra field is longer than it is there would move the content, and is refused", async () => {
    for (const extraLength of [100, 1000, 0xffff]) {
      const error = await refused(weightWith({ local: { extraLength } }), { by: "load" });
      expect(error.message).toMatch(/it ends at byte \d+, the next record starts at \d+/);
    }
  });

  test.each([
    ["a method", { method: 8 }],
    ["encryption", { flags: 0x0809 }],
    ["a size", { flags: 0x0800, size: 12, compressedSize: 16 }],
    ["a compressed size", { flags: 0x0800, size: 16, compressedSize: 12 }],
  ])("that says %s which the directory does not is refused", async (_, local) => {
    const error = await refused(weightWith({ local }), { by: "load" });
    expect(error.message).toMatch(/its local header has another .* than the directory/);
    expect((await refused(pickleWith({ local }))).message).toMatch(
      /its local header has another .* than the directory/,
    );
  });

  test("may say its sizes, or leave them to the directory", async () => {
    const sizes = [
      { flags: 0x0800, size: 16, compressedSize: 16 },
      { flags: 0x0808, size: 16, compressedSize: 16 },
      { flags: 0x0808, size: 0, compressedSize: 0 },
      { flags: 0x0800, size: 0xffffffff, compressedSize: 0xffffffff },
    ];
    for (const local of sizes) expect(await weights(weightWith({ local }))).toEqual([1, 2, 3, 4]);
  });
});

describe("the directory", () => {
  test.each([
    ["more records than it has room for", { entries: 60_000 }],
    ["2^32 records", { entries: 0xffff, zip64: { entries: 2n ** 32n } }],
    ["2^53 records", { entries: 0xffff, zip64: { entries: 2n ** 53n - 1n } }],
  ])("that claims %s is refused before anything is made of it", async (_, end) => {
    const error = await refused(zip(records, end));
    expect(error.message).toMatch(/its central directory of \d+ bytes cannot hold \d+ records/);
  });

  test("that claims more records than are there is refused", async () => {
    const roomy = [...records, { name: `archive/${"x".repeat(200)}`, content: new Uint8Array(0) }];
    const error = await refused(zip(roomy, { entries: roomy.length + 2 }));
    expect(error.message).toMatch(/its central directory has no header for record 5 of 7/);
  });

  test.each([
    ["start", { directoryStart: 0xfffffff0 }],
    ["size", { directorySize: 0xfffffff0 }],
    ["start of 64 bits", { directoryStart: 0xffffffff, zip64: { directoryStart: 2n ** 53n - 1n } }],
    ["size of 64 bits", { directorySize: 0xffffffff, zip64: { directorySize: 2n ** 53n - 1n } }],
  ])("that lies beyond its end record by its %s is refused", async (_, end) => {
    expect((await refused(zip(records, end))).message).toMatch(
      /its central directory is said to lie at bytes \d+ to \d+, its end record is at \d+/,
    );
  });

  test.each([
    ["start", { zip64: { directoryStart: 2n ** 53n } }],
    ["size", { zip64: { directorySize: 2n ** 64n - 1n } }],
    ["number of records", { zip64: { entries: 2n ** 63n } }],
    ["locator", { zip64: { locatorOffset: 2n ** 60n } }],
  ])("with a %s beyond 2^53 is refused", async (_, end) => {
    expect((await refused(zip(records, end))).message).toContain("a size or offset of the archive is beyond 2^53");
  });

  test("whose zip64 locator points elsewhere is refused", async () => {
    const error = await refused(zip(records, { zip64: { locatorOffset: 2n ** 40n } }));
    expect(error.message).toMatch(/its zip64 end record is said to be at byte \d+, beyond its locator/);
  });

  test("that the two end records place differently is refused, as scanners may follow the other", async () => {
    const plain = zip([...records, { name: "archive/more", content: new Uint8Array(0) }], { zip64: { entries: 4n } });
    expect((await refused(plain)).message).toContain("its two end records disagree");
    const size = new DataView(plain.buffer).getUint32(plain.length - 22 + 12, true);
    const sizes = zip(records, { zip64: { directorySize: BigInt(size) - 1n } });
    expect((await refused(sizes)).message).toContain("its two end records disagree");
  });

  test("of an archive split over several files is refused", async () => {
    const plain = zip(records, { disk: 1 });
    // Without the zip64 records, whose fields would count.
    const cut = concat(plain.subarray(0, -98), plain.subarray(-22));
    const error = await refused(cut);
    expect(error.code).toBe("unsupported");
    expect(error.message).toContain("the zip archive is split over several files");
  });

  test("whose names or extra fields run beyond it is refused", async () => {
    const last = records.length - 1;
    for (const lie of [{ nameLength: 0xffff }, { extraLength: 0xffff }]) {
      const changed = records.map((record, k) => (k === last ? { ...record, central: lie } : record));
      expect((await refused(zip(changed))).message).toMatch(
        /record \d of its central directory runs beyond the directory/,
      );
    }
  });

  test("without a record is refused", async () => {
    const head = zip(records).subarray(0, 100);
    const error = await refused(concat(head, zip([], { directoryStart: 100, zip64: { locatorOffset: 100n } })));
    expect(error.message).toContain("it is an archive without records");
  });

  test("that is missing is a file cut short", async () => {
    expect((await refused(zip(records).subarray(0, -150))).message).toMatch(/cut short/);
    expect((await refused(code(0x50, 0x4b, 3, 4))).message).toMatch(/cut short/);
  });
});

describe("a deflated record", () => {
  const big = new Uint8Array(300_000);
  const bigValue = dict([text("weight"), tensor(storage("0", { numel: int(75_000) }))]);
  const deflated = (size: number, raw?: Uint8Array): Uint8Array =>
    zip(
      checkpointRecords(bigValue, { "0": big }).map((record) =>
        record.name === "archive/data/0"
          ? {
              ...record,
              deflate: true,
              ...(raw === undefined ? {} : { raw }),
              content: new Uint8Array(size),
              central: { size: big.length },
            }
          : record,
      ),
    );

  test("that grows beyond its size is refused at the first byte too many", async () => {
    const bomb = await refused(deflated(20_000_000), { by: "load" });
    expect(bomb.message).toContain("inflates to more than its 300000 bytes");
    expect((bomb as FormatError).found).toBeLessThan(2_000_000);
    const byOne = await refused(deflated(300_001), { by: "load" });
    expect(byOne.message).toContain("inflates to more than its 300000 bytes");
  });

  test("that is shorter than its size is refused", async () => {
    for (const size of [0, 1, 299_999]) {
      const error = await refused(deflated(size), { by: "load" });
      expect(error.message).toContain(`inflates to ${size} of its 300000 bytes`);
    }
  });

  test("that is cut or damaged is refused", async () => {
    const whole = deflated(300_000);
    expect((await load(whole)) as Map<string, Tensor>).toHaveProperty("size", 1);
    const raws = [
      code(0xff),
      code(0xff, 0xff, 0xff, 0xff, 0xff),
      code(0x07),
      utf8("this is not deflated data at all"),
      code(0, 5, 0, 0xfa, 0xff, 1, 2),
    ];
    for (const raw of raws) {
      const error = await refused(deflated(300_000, raw), { by: "load" });
      expect(error.message).toMatch(/is not valid deflated data|inflates to \d+ of its/);
    }
  });

  test("that holds a pickle is checked alike", async () => {
    const grown = pickle(dict([text("a"), text("b".repeat(100_000))]));
    const error = await refused(pickleWith({ deflate: true, content: grown, central: { size: 1000 } }));
    expect(error.message).toContain('record "archive/data.pkl" inflates to more than its 1000 bytes');
    const damaged = await refused(pickleWith({ deflate: true, raw: utf8("nonsense, all of it") }));
    expect(damaged.message).toMatch(/is not valid deflated data|inflates to/);
  });

  test("that blows up a pickle is refused before it is inflated", async () => {
    // A hundred million empty dicts in a hundred kilobytes.
    const dicts = await refused(pickleWith({ deflate: true, raw: new Uint8Array(100_000), central: { size: 1e8 } }));
    expect(dicts.message).toContain("is said to inflate from 100000 to 100000000 bytes, as no checkpoint's does");
    const most = await refused(pickleWith({ deflate: true, central: { size: 0xfffffff0 } }));
    expect(most.message).toContain("its pickle has 4294967280 bytes; at most 2147483647 are read whole");
  });

  test("of no bytes that claims some is refused", async () => {
    const error = await refused(weightWith({ deflate: true, raw: new Uint8Array(0) }));
    expect(error.message).toContain("it has 16 bytes compressed to none");
  });
});

describe("the small records", () => {
  test.each([
    ["version", "", "expected a number from 1 to 10"],
    ["version", "0\n", "expected a number from 1 to 10"],
    ["version", "11\n", "expected a number from 1 to 10"],
    ["version", "99999999999999999999999999\n", "expected a number from 1 to 10"],
    ["version", "-3", "expected a number from 1 to 10"],
    ["version", "three", "expected a number from 1 to 10"],
    ["version", "3".repeat(2000), "has 2000 bytes"],
    ["byteorder", "middle", 'expected "little" or "big"'],
    ["byteorder", "", 'expected "little" or "big"'],
    ["byteorder", "little\0", 'expected "little" or "big"'],
  ])("are checked: %s as %.40j", async (name, content, message) => {
    const bytes = zipWith((record, of) => (of === name ? { ...record, content: utf8(content) } : record));
    expect((await refused(bytes)).message).toContain(message);
  });

  test("that fail several at once give one error, and nothing is left to fail unseen", async () => {
    const unseen: unknown[] = [];
    const note = (reason: unknown): number => unseen.push(reason);
    process.on("unhandledRejection", note);
    const bytes = zipWith((record, name) => {
      // The first fails later, while it is inflated; the second at once.
      if (name === "version") return { ...record, deflate: true, raw: utf8("not deflated data") };
      return name === "byteorder" ? { ...record, local: { name: "archive/byteordex" } } : record;
    });
    expect((await refused(bytes)).code).toBe("format");
    await new Promise((resolve) => setTimeout(resolve, 50));
    process.off("unhandledRejection", note);
    expect(unseen).toEqual([]);
  });

  test("that are too long by far are not read", async () => {
    const bytes = zipWith((record, name) =>
      name === "version" ? { ...record, deflate: true, content: new Uint8Array(10_000_000).fill(0x33) } : record,
    );
    expect((await refused(bytes)).message).toContain('record "archive/version" has 10000000 bytes');
  });
});

test("an archive that is cut short behind a million headers is refused in a moment", async () => {
  // The pickle's record, without the directory and the end records.
  const start = zip(records.slice(0, 1)).subarray(0, -98 - 46 - "archive/data.pkl".length);
  const headers = (name: string): Uint8Array =>
    repeat(
      zip([{ name, content: new Uint8Array(0), local: { extra: code() } }]).subarray(0, 30 + name.length),
      1_000_000,
    );
  for (const name of ["archive/x", "archive/data/0", "archive/data/1"]) {
    const bytes = concat(start, headers(name));
    const started = performance.now();
    const error = checkError(await failure(() => load(bytes)), "bytes");
    expect(error.message).toContain("cut short");
    expect(performance.now() - started).toBeLessThan(1000);
  }
});

test.each([
  ["constants.pkl", "a TorchScript archive (torch.jit.save)"],
  ["model.json", "a TorchScript archive of PyTorch 1.0 or 1.1"],
  ["archive_format", "a torch.export archive (.pt2)"],
  [".data/extern_modules", "a torch.package archive"],
  [".data/python_version", "a torch.package archive"],
])("an archive with %s is called %s", async (name, what) => {
  const error = await refused(zip([...records, { name: `archive/${name}`, content: utf8("x") }]));
  expect(error.code).toBe("unsupported");
  expect(error.message).toContain(what);
});

test("storages that fail several at once leave nothing to fail unseen", async () => {
  const unseen: unknown[] = [];
  const note = (reason: unknown): number => unseen.push(reason);
  process.on("unhandledRejection", note);
  const two = dict([text("a"), tensor(storage("0"))], [text("b"), tensor(storage("1"))]);
  const bytes = zip(
    checkpointRecords(two, { "0": content, "1": content }).map((record) => {
      if (record.name === "archive/data/0") return { ...record, local: { name: "archive/data/7" } };
      return record.name === "archive/data/1" ? { ...record, local: { extraLength: 0xffff } } : record;
    }),
  );
  const blob = new Blob([bytes]);
  expect(await failure(() => load(blob))).toBeDefined();
  const checkpoint = await open(blob);
  expect(await failure(() => checkpoint.load())).toBeDefined();
  await new Promise((resolve) => setTimeout(resolve, 50));
  process.off("unhandledRejection", note);
  expect(unseen).toEqual([]);
});
