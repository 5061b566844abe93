import { describe, expect, test } from "vitest";
import { type FormatError, load, open, type Tensor } from "../../src/index.js";
import {
  bomb,
  code,
  concat,
  dict,
  floats,
  int,
  ints,
  type LegacyParts,
  legacyCheckpoint,
  list,
  nested,
  op,
  pickle,
  storage,
  tensor,
  text,
  tuple,
  utf8,
} from "../support/bad-files.js";
import { checkError, failure, fileOf, refused } from "./refusal.js";

const content = floats(1, 2, 3, 4);
const value = dict([text("weight"), tensor(storage("k", { view: op.NONE }))]);
const with_ = (parts: LegacyParts): Uint8Array => legacyCheckpoint(value, [{ key: "k", content }], parts);

test("a stream is read as the writer here makes it", async () => {
  const state = (await load(with_({}))) as Map<string, Tensor>;
  expect([...(state.get("weight") as Tensor).toFloat32Array()]).toEqual([1, 2, 3, 4]);
});

describe("a header", () => {
  test("whose magic number is another is refused", async () => {
    const head = pickle(int(0x1950a86a20f9469cfc6cn)).subarray(0, -1);
    // The first bytes are right, and more opcodes follow that change the number.
    for (const rest of [concat(int(7), op.STOP), concat(op.TUPLE1, op.STOP), concat(op.POP, bomb(64), op.STOP)]) {
      const error = await refused(concat(head, rest, with_({})), { offset: 0 });
      expect(error.message).toMatch(/not one that torch.save wrote|magic number is not that of a PyTorch file/);
    }
    const error = checkError(
      await failure(() => load(concat(code(0), pickle(int(5)), with_({})), { offset: 1 })),
      "bytes",
    );
    expect(error.message).toContain("its magic number is not that of a PyTorch file");
  });

  test.each([
    ["1000", int(1000), "is 1000; expected 1001"],
    ["a text", text("1001"), 'is "1001"; expected 1001'],
    ["None", op.NONE, "is null; expected 1001"],
    ["an integer of 250 bytes", int(2n ** 1998n), "is 28703267381856363105"],
    ["a tuple of 2^64 leaves", bomb(64), "is a list or tuple; expected 1001"],
    ["100,000 nested tuples", nested(100_000), "is a list or tuple; expected 1001"],
    ["a dict", op.EMPTY_DICT, "is a dict; expected 1001"],
  ])("whose protocol version is %s is refused", async (_, protocol, message) => {
    const error = await refused(with_({ protocol }));
    expect(error.message).toContain(`its protocol version ${message}`);
    expect(error.message.length).toBeLessThan(300);
  });

  test("with a class in it is refused", async () => {
    for (const part of ["protocol", "systemInfo", "keys"] as const) {
      const error = await refused(with_({ [part]: utf8("cos\nsystem\n") }));
      expect(error.message).toContain("the header of a legacy checkpoint holds numbers and texts only");
    }
  });

  test("whose system info is anything at all does no harm, as in PyTorch", async () => {
    for (const systemInfo of [op.NONE, int(3), bomb(64), dict([text("__proto__"), op.EMPTY_DICT])]) {
      const checkpoint = await open(with_({ systemInfo }));
      expect(checkpoint.facts).toEqual({ protocolVersion: 1001 });
    }
  });
});

describe("a list of storages", () => {
  test.each([
    ["is none", op.NONE, "the list of storages is not a list"],
    ["is a dict", op.EMPTY_DICT, "the list of storages is not a list"],
    ["lacks one", op.EMPTY_LIST, 'storage "k" of 16 bytes is not in the list of storages'],
    ["has one twice", list(text("k"), text("k")), 'the list of storages names "k" twice'],
    ["has one too many", list(text("k"), text("z")), 'the list of storages names "z" that no tensor uses'],
    ["has a number", list(text("k"), int(7)), 'the list of storages names "7" that no tensor uses'],
    ["has a list of 2^64 leaves", list(text("k"), bomb(64)), "that no tensor uses"],
    ["has 100,000 nested tuples", list(text("k"), nested(100_000)), "that no tensor uses"],
    ["has names of an object", list(text("k"), text("__proto__")), 'names "__proto__" that no tensor uses'],
  ])("that %s is refused", async (_, keys, message) => {
    const error = await refused(with_({ keys }));
    expect(error.message).toContain(message);
    expect(error.message.length).toBeLessThan(300);
  });
});

describe("a storage", () => {
  test.each([[3n], [5n], [0n], [-1n], [2n ** 63n - 1n]])(
    "whose count of elements is %s and not what its tensors need is refused",
    async (numel) => {
      const bytes = legacyCheckpoint(value, [{ key: "k", content, numel }]);
      const error = (await refused(bytes, { by: "load" })) as FormatError;
      expect(error.message).toContain(`storage "k" says that it has ${numel} elements; its tensors need 4`);
      expect(error.record).toBe("k");
    },
  );

  test.each([
    ["2^45 elements", int(2n ** 45n)],
    ["2^51 elements", int(2n ** 51n)],
    ["2^53 elements", int(2n ** 53n)],
    ["2^64 elements", int(2n ** 64n)],
    ["-1 elements", int(-1)],
  ])("of %s is refused before anything is made of it", async (_, numel) => {
    const huge = dict([text("weight"), tensor(storage("k", { numel, view: op.NONE }))]);
    const error = await refused(legacyCheckpoint(huge, [{ key: "k", content }]));
    expect(error.message).toMatch(/it is cut short|elements; expected an integer of 0 or more/);
  });

  test("of which a view is asked beyond its end is refused", async () => {
    const views: [string, ReturnType<typeof tuple>][] = [
      ["2 elements from 3 on, of 4", tuple(text("v"), int(3), int(2))],
      ["4 elements from -1 on, of 4", tuple(text("v"), int(-1), int(4))],
      ["9007199254740991 elements from 1 on", tuple(text("v"), int(1), int(2n ** 53n - 1n))],
      ["a list or tuple elements from 0 on", tuple(text("v"), int(0), bomb(64))],
      ["2 elements from a list or tuple on", tuple(text("v"), nested(100_000), int(2))],
    ];
    for (const [message, view] of views) {
      const of = tensor(storage("k", { view }), { size: ints(2) });
      const error = await refused(legacyCheckpoint(dict([text("w"), of]), [{ key: "k", content }]));
      expect(error.message).toContain(message);
    }
    for (const view of [int(1), tuple(), tuple(int(1), int(2)), op.EMPTY_LIST]) {
      const of = tensor(storage("k", { view }));
      const error = await refused(legacyCheckpoint(dict([text("w"), of]), [{ key: "k", content }]));
      expect(error.message).toContain('storage "k" has malformed view metadata');
    }
  });
});

test("an offset at or behind the end of the file is refused", async () => {
  const bytes = with_({});
  const path = fileOf(bytes);
  for (const offset of [bytes.length, bytes.length + 1, 2 ** 40, Number.MAX_SAFE_INTEGER]) {
    for (const input of [path, bytes, new Blob([bytes as Uint8Array<ArrayBuffer>])]) {
      const name = typeof input === "string" ? path : input instanceof Blob ? "blob" : "bytes";
      const error = checkError(await failure(() => load(input, { offset })), name);
      expect(error.message).toContain(`nothing is at byte ${offset}, the file has ${bytes.length}`);
    }
  }
});
