import { describe, expect, test } from "vitest";
import { type FormatError, load, open, Tensor } from "../../src/index.js";
import {
  binbytes,
  bomb,
  type Code,
  call,
  checkpointRecords,
  code,
  concat,
  dict,
  float,
  floats,
  global,
  int,
  ints,
  legacyCheckpoint,
  list,
  nested,
  op,
  repeat,
  type StorageCode,
  storage,
  tensor,
  text,
  tuple,
  utf8,
  zip,
  zipCheckpoint,
} from "../support/bad-files.js";
import { refused } from "./refusal.js";

const content = floats(1, 2, 3, 4);

function fileWith(value: Code): Uint8Array {
  return zipCheckpoint(dict([text("weight"), value]), { "0": content });
}

/** The same tensor in both containers. */
function bothWith(value: (parts: StorageCode) => Code): Uint8Array[] {
  return [
    fileWith(value({})),
    legacyCheckpoint(dict([text("weight"), value({ view: op.NONE })]), [{ key: "0", content }]),
  ];
}

async function loaded(bytes: Uint8Array): Promise<Tensor> {
  return ((await load(bytes)) as Map<string, Tensor>).get("weight") as Tensor;
}

const wrong: [what: string, parts: { offset?: Code; size?: Code; stride?: Code }, message: string | RegExp][] = [
  ["a size beyond the storage", { size: ints(5) }, 'needs 5 elements; storage "0" has 4'],
  ["an offset beyond the storage", { offset: int(1) }, "needs 5 elements"],
  ["a stride beyond the storage", { stride: ints(2) }, "needs 7 elements"],
  ["an offset of 2^53 - 1", { offset: int(2n ** 53n - 1n) }, /needs \d+ elements/],
  ["an offset of 2^53", { offset: int(2n ** 53n) }, "the storage offset 9007199254740992"],
  ["a stride of 2^53 - 1", { stride: ints(2n ** 53n - 1n) }, /needs \d+ elements/],
  ["a negative size", { size: ints(-4) }, "the size -4"],
  ["two negative sizes", { size: ints(-2, -2), stride: ints(1, 1) }, "the size -2"],
  ["a negative stride", { stride: ints(-1) }, "the stride -1"],
  ["a negative offset", { offset: int(-1) }, "the storage offset -1"],
  ["a product of sizes beyond 2^53", { size: ints(2 ** 30, 2 ** 30), stride: ints(0, 0) }, "too many elements"],
  [
    "a product of sizes beyond 2^64",
    { size: ints(...new Array(16).fill(2 ** 30)), stride: ints(...new Array(16).fill(0)) },
    "too many elements",
  ],
  [
    "a product of sizes that is infinite",
    { size: ints(...new Array(64).fill(2n ** 53n - 1n)), stride: ints(...new Array(64).fill(0)) },
    "too many elements",
  ],
  [
    "an infinite product times none",
    { size: ints(...new Array(64).fill(2n ** 53n - 1n), 0), stride: ints(...new Array(65).fill(0)) },
    "too many elements",
  ],
  ["a size of 2^62", { size: ints(2n ** 62n), stride: ints(0) }, "holds 4611686018427387904; expected safe integers"],
  ["a size of 2^64 + 4", { size: ints(2n ** 64n + 4n) }, "holds 18446744073709551620"],
  ["more sizes than strides", { size: ints(2, 2) }, "2 sizes and 1 strides"],
  ["more strides than sizes", { stride: ints(1, 1) }, "1 sizes and 2 strides"],
  [
    "100,000 dimensions",
    { size: tuple(repeat(int(1), 100_000)), stride: tuple(repeat(int(1), 100_000)) },
    "100000 dimensions",
  ],
  ["a fractional size", { size: tuple(float(1.5)) }, "the size 1.5"],
  ["a size that is a float", { size: tuple(float(Number.NaN)) }, "the size NaN"],
  ["an infinite size", { size: tuple(float(Number.POSITIVE_INFINITY)) }, "the size Infinity"],
  ["a boolean size", { size: tuple(op.NEWTRUE) }, "holds true"],
  ["a size that is None", { size: tuple(op.NONE) }, "holds null"],
  ["a size that is a text", { size: tuple(text("4")) }, 'holds "4"'],
  ["a size that is a tuple of 2^64 leaves", { size: tuple(bomb(64)) }, "holds a list or tuple"],
  ["a fractional stride", { stride: tuple(float(0.5)) }, "the stride 0.5"],
  ["a boolean stride", { stride: tuple(op.NEWFALSE) }, "holds false"],
  ["a fractional offset", { offset: float(0.5) }, "the storage offset 0.5"],
  ["a boolean offset", { offset: op.NEWTRUE }, "the storage offset true"],
  ["an offset that is a tuple of 2^64 leaves", { offset: bomb(64) }, "the storage offset a list or tuple"],
  ["an offset that is 100,000 tuples deep", { offset: nested(100_000) }, "the storage offset a list or tuple"],
  ["a size that is no tuple", { size: int(4) }, "the size of a tensor is not a tuple of integers"],
  ["a stride that is a dict", { stride: op.EMPTY_DICT }, "the stride of a tensor is not a tuple of integers"],
];

describe("a tensor", () => {
  test.each(wrong)("with %s is refused", async (_, parts, message) => {
    for (const bytes of bothWith((of) => tensor(storage("0", of), parts))) {
      const error = (await refused(bytes)) as FormatError;
      if (typeof message === "string") expect(error.message).toContain(message);
      else expect(error.message).toMatch(message);
      expect(error.message.length).toBeLessThan(2000);
      expect(error.byteOffset).toBeGreaterThan(0);
    }
  });

  test("of a version without arguments is refused", async () => {
    for (const version of ["_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"]) {
      for (let count = 0; count < 4; count++) {
        const args = [storage("0"), int(0), ints(4), ints(1)].slice(0, count);
        await refused(fileWith(call(global("torch._utils", version), ...args)));
      }
    }
    const noType = call(
      global("torch._utils", "_rebuild_tensor_v3"),
      storage("0"),
      int(0),
      ints(4),
      ints(1),
      op.NEWFALSE,
      op.NONE,
      text("float32"),
    );
    expect((await refused(fileWith(noType))).message).toContain("without a dtype");
    for (const wrong of [op.NONE, int(0), op.EMPTY_DICT, global("torch", "FloatStorage"), text("0")]) {
      const error = await refused(fileWith(tensor(wrong)));
      expect(error.message).toContain("rebuilt from something that is not a storage");
    }
  });

  test("with a wider dtype than its storage has room for is refused", async () => {
    const of = (name: string, size: number): Code =>
      call(
        global("torch._utils", "_rebuild_tensor_v3"),
        storage("0"),
        int(0),
        ints(size),
        ints(1),
        op.NEWFALSE,
        op.NONE,
        global("torch", name),
      );
    expect((await loaded(fileWith(of("float64", 2)))).shape).toEqual([2]);
    expect((await refused(fileWith(of("float64", 3)))).message).toContain('needs 3 elements; storage "0" has 2');
    expect((await refused(fileWith(of("complex128", 2)))).message).toContain("has 1");
    expect((await refused(fileWith(of("uint8", 17)))).message).toContain("has 16");
  });

  test("on the meta device is checked alike", async () => {
    const meta = (size: Code, stride: Code): Code =>
      call(
        global("torch._utils", "_rebuild_meta_tensor_no_storage"),
        global("torch", "float32"),
        size,
        stride,
        op.NEWFALSE,
      );
    const tensor = await loaded(fileWith(meta(ints(2 ** 20, 2 ** 20), ints(2 ** 20, 1))));
    expect(String(tensor.device)).toBe("meta");
    expect(() => tensor.toTypedArray()).toThrow(/meta device/);
    for (const [size, stride] of [
      [ints(-1), ints(1)],
      [ints(2), ints(-1)],
      [ints(2n ** 53n - 1n), ints(4)],
      [ints(2n ** 52n), ints(1)],
      [ints(2 ** 30, 2 ** 30), ints(0, 0)],
      [ints(...new Array(2000).fill(1)), ints(...new Array(2000).fill(1))],
      [tuple(float(0.5)), ints(1)],
      [int(1), ints(1)],
      [ints(1), ints(1, 1)],
    ] as const) {
      await refused(fileWith(meta(size, stride)));
    }
    await refused(
      fileWith(call(global("torch._utils", "_rebuild_meta_tensor_no_storage"), text("float32"), ints(1), ints(1))),
    );
  });

  test("may be empty at any offset, and have no element", async () => {
    for (const [size, stride] of [
      [ints(0), ints(1)],
      [ints(0, 3), ints(3, 1)],
      [ints(2n ** 40n, 0), ints(0, 0)],
      [ints(0, 2n ** 53n - 1n), ints(2n ** 53n - 1n, 2n ** 53n - 1n)],
    ] as const) {
      const tensor = await loaded(fileWith(tensor_(size, stride, int(2n ** 53n - 1n))));
      expect(tensor.numel).toBe(0);
      expect(tensor.toTypedArray().length).toBe(0);
      expect(tensor.contiguous().numel).toBe(0);
    }
  });
});

function tensor_(size: Code, stride: Code, offset: Code = int(0)): Code {
  return tensor(storage("0"), { size, stride, offset });
}

describe("reading out a tensor that repeats its elements", () => {
  const expanded: [what: string, size: Code, stride: Code][] = [
    ["2^52 times", ints(2 ** 26, 2 ** 26), ints(0, 0)],
    ["2^53 - 1 times", ints(2n ** 53n - 1n), ints(0)],
    ["2^40 times in rows of four", ints(2 ** 38, 4), ints(0, 1)],
    ["2^40 times in columns of four", ints(4, 2 ** 38), ints(1, 0)],
    ["2^48 times over 48 dimensions", ints(...new Array(48).fill(2)), ints(...new Array(48).fill(0))],
  ];

  test.each(expanded)("%s refuses at once, though it loads as a view", async (_, size, stride) => {
    const tensor = await loaded(fileWith(tensor_(size, stride)));
    expect(tensor.numel).toBeGreaterThan(2 ** 39);
    const started = performance.now();
    for (const read of [
      () => tensor.toTypedArray(),
      () => tensor.toFloat32Array(),
      () => tensor.toArray(),
      () => tensor.contiguous(),
    ]) {
      expect(read).toThrow(RangeError);
    }
    expect(performance.now() - started).toBeLessThan(1000);
    expect(tensor.select(0, 1).storage).toBe(tensor.storage);
  });

  test("works while it fits", async () => {
    const tensor = await loaded(fileWith(tensor_(ints(1000, 4), ints(0, 1))));
    expect(tensor.toTypedArray().length).toBe(4000);
    expect((await loaded(fileWith(tensor_(ints(3, 2), ints(1, 1))))).toArray()).toEqual([
      [1, 2],
      [2, 3],
      [3, 4],
    ]);
  });

  test("of packed elements refuses as well", async () => {
    const storageClass = global("torch", "QUInt4x2Storage");
    const packed = tensor(storage("0", { storageClass, numel: int(16) }), { size: ints(2 ** 45), stride: ints(0) });
    const tensor_ = await loaded(fileWith(packed));
    for (const read of [() => tensor_.toTypedArray(), () => tensor_.toArray(), () => tensor_.contiguous()]) {
      expect(read).toThrow(RangeError);
    }
  });
});

describe("a persistent id", () => {
  const ids: [what: string, id: Code, message: string | RegExp][] = [
    ["a text", text("0"), "a persistent id is not a tuple"],
    ["a number", int(0), "a persistent id is not a tuple"],
    ["None", op.NONE, "a persistent id is not a tuple"],
    ["a list", list(text("storage")), "a persistent id is not a tuple"],
    ["a dict", op.EMPTY_DICT, "a persistent id is not a tuple"],
    ["an empty tuple", tuple(), 'a persistent id of kind undefined; expected "storage"'],
    ["of another kind", tuple(text("module"), int(1), int(2), int(3)), 'of kind "module"'],
    ["of a kind that is a number", tuple(int(1), int(2)), "of kind 1"],
    ["of a kind that is a bigint", tuple(int(2n ** 100n)), "of kind 1267650600228229401496703205376"],
    ["of a kind that is a tuple of 2^64 leaves", tuple(bomb(64)), "of kind a list or tuple"],
    ["of a kind that is 100,000 tuples deep", tuple(nested(100_000)), "of kind a list or tuple"],
    ["of a kind that is bytes", tuple(binbytes(utf8("module")), int(1), int(2), int(3)), "of kind an object"],
    ["too short", tuple(text("storage"), global("torch", "FloatStorage"), text("0"), text("cpu")), "five or six items"],
    ["too long", tuple(text("storage"), ...new Array(6).fill(int(0))), "five or six items"],
  ];

  test.each(ids)("that is %s is refused", async (_, id, message) => {
    const error = await refused(fileWith(tensor(concat(id, op.BINPERSID))));
    expect(error.message).toContain(message);
  });

  const parts: [what: string, parts: StorageCode, message: string][] = [
    ["no class", { storageClass: op.NONE }, "names no storage class"],
    ["a class that is a text", { storageClass: text("FloatStorage") }, "names no storage class"],
    ["a class that is a dtype", { storageClass: global("torch", "float32") }, "names no storage class"],
    [
      "a class that is a function",
      { storageClass: global("torch._utils", "_rebuild_tensor_v2") },
      "names no storage class",
    ],
    ["no location", { location: op.NONE }, "has no key or no location"],
    ["a location that is a tuple", { location: bomb(64) }, "has no key or no location"],
    ["a negative numel", { numel: int(-4) }, 'storage "0" has -4 elements'],
    ["a fractional numel", { numel: float(4.5) }, 'storage "0" has 4.5 elements'],
    ["a boolean numel", { numel: op.NEWTRUE }, 'storage "0" has true elements'],
    ["a numel that is None", { numel: op.NONE }, 'storage "0" has null elements'],
    ["a numel that is a text", { numel: text("4") }, 'storage "0" has "4" elements'],
    ["a numel that is NaN", { numel: float(Number.NaN) }, 'storage "0" has NaN elements'],
    ["a numel of 2^53", { numel: int(2n ** 53n) }, 'storage "0" has 9007199254740992 elements'],
    ["a numel whose bytes are beyond 2^53", { numel: int(2n ** 51n) }, 'storage "0" has 2251799813685248 elements'],
    ["a numel that is a tuple of 2^64 leaves", { numel: bomb(64) }, 'storage "0" has a list or tuple elements'],
    ["a numel that the record has not", { numel: int(2n ** 45n) }, "has 16 bytes; its tensors need 140737488355328"],
  ];

  test.each(parts)("with %s is refused", async (_, parts, message) => {
    expect((await refused(fileWith(tensor(storage("0", parts))))).message).toContain(message);
  });

  test("with a key that is no name is refused", async () => {
    for (const key of [op.NONE, float(0.5), op.EMPTY_DICT, bomb(64), tuple(text("0"))]) {
      expect((await refused(fileWith(tensor(storage(key))))).message).toContain("has no key or no location");
    }
  });

  test("that is the text of protocol 0 is refused", async () => {
    expect((await refused(fileWith(tensor(utf8("Pstorage\n"))))).message).toContain("is not a tuple");
  });

  test("that names a key with another size than before is refused with both", async () => {
    for (const [numel, found] of [
      [int(5), 20],
      [int(0), 0],
    ] as const) {
      const twice = list(tensor(storage("0")), tensor(storage("0", { numel }), { size: ints(0) }));
      const error = (await refused(fileWith(twice))) as FormatError;
      expect(error.message).toContain(`storage "0" is named with 16 bytes and with ${found}`);
      expect([error.expected, error.found]).toEqual([16, found]);
    }
  });

  test("that names a key with another class of the same size gives the same storage", async () => {
    const storageClass = global("torch", "IntStorage");
    const state = (await load(fileWith(list(tensor(storage("0")), tensor(storage("0", { storageClass })))))) as Map<
      string,
      Tensor[]
    >;
    const [first, second] = state.get("weight") as [Tensor, Tensor];
    expect(second.storage).toBe(first.storage);
  });
});

test("a big-endian storage that tensors of two widths share is refused when it is opened", async () => {
  const as = (name: string, size: number): Code =>
    call(
      global("torch._utils", "_rebuild_tensor_v3"),
      storage("0"),
      int(0),
      ints(size),
      ints(1),
      op.NEWFALSE,
      op.NONE,
      global("torch", name),
    );
  const records = checkpointRecords(list(as("float32", 4), as("float64", 2)), { "0": content });
  expect(await load(zip(records))).toHaveLength(2);
  const swapped = records.map((record) =>
    record.name === "archive/byteorder" ? { ...record, content: utf8("big") } : record,
  );
  const error = await refused(zip(swapped));
  expect(error.message).toContain('storage "0" is big-endian and tensors of different element sizes share it');
});

test("a state that is set on a tensor is checked like a tensor", async () => {
  const empty = call(global("torch", "FloatTensor"));
  const build = (state: Code): Code => concat(empty, state, op.BUILD);
  const [good] = [tuple(storage("0"), int(0), ints(4), ints(1))];
  expect((await loaded(fileWith(build(good)))).toArray()).toEqual([1, 2, 3, 4]);
  for (const state of [
    op.NONE,
    tuple(),
    op.EMPTY_DICT,
    tuple(storage("0"), int(0), ints(5), ints(1)),
    tuple(storage("0"), int(-1), ints(4), ints(1)),
    tuple(int(0), int(0), ints(4), ints(1)),
    tuple(int(0), int(0), ints(4), ints(1), int(0)),
    tuple(op.NONE, op.NONE, op.NONE, op.NONE, op.NONE),
  ]) {
    await refused(fileWith(build(state)));
  }
});

test("one list of sizes in a hundred thousand tensors does not fill the memory", async () => {
  const sizes = ints(...new Array(1000).fill(1));
  const memo = concat(sizes, code(0x71, 1), op.POP, storage("0"), code(0x71, 2), op.POP);
  const one = concat(op.MARK, code(0x68, 2), int(0), code(0x68, 1), code(0x68, 1), op.TUPLE, op.REDUCE);
  const rebuild = global("torch._utils", "_rebuild_tensor");
  const many = repeat(concat(code(0x68, 3), one), 100_000);
  const value = concat(op.EMPTY_LIST, memo, rebuild, code(0x71, 3), op.POP, op.MARK, many, op.APPENDS);
  const error = await refused(fileWith(value));
  expect(error.message).toContain("the calls of the pickle copy the same values again and again");
});

test("an open checkpoint with such tensors lists them without their elements", async () => {
  await using checkpoint = await open(fileWith(tensor_(ints(2 ** 26, 2 ** 26), ints(0, 0))));
  const [tensor] = checkpoint.tensors().values();
  expect(tensor).toBeInstanceOf(Tensor);
  expect(String(tensor)).toBe("Tensor(float32 [67108864, 67108864] on meta)");
  const one = await checkpoint.load("weight");
  expect(() => one.toTypedArray()).toThrow(RangeError);
});

test("one key of bytes in ten thousand persistent ids is not decoded each time", async () => {
  const key = "k".repeat(50_000);
  const parts = [text("storage"), global("torch", "FloatStorage"), binbytes(utf8(key)), text("cpu"), int(4)];
  const id = concat(tuple(...parts), code(0x71, 1), op.POP);
  const ids = (count: number): Uint8Array =>
    zipCheckpoint(concat(id, op.MARK, repeat(concat(code(0x68, 1), op.BINPERSID), count), op.TUPLE), {
      [key]: content,
    });
  expect(await load(ids(2))).toHaveLength(2);
  expect((await refused(ids(10_000))).message).toContain(
    "the calls of the pickle copy the same values again and again",
  );
});
