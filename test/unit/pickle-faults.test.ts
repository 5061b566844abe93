/** Streams that are no pickles: which error, where, and that nothing is allocated for what a stream only claims. */
import { describe, expect, test } from "vitest";
import { FormatError, isTorchloadError, UnsafePickleError, UnsupportedError } from "../../src/errors.js";
import { END_OF_STREAM } from "../../src/pickle/reader.js";
import { PythonObject, Tuple } from "../../src/pickle/values.js";
import { builtinHandlers, int32, pickled, read, readAll, stream, thrownBy } from "./pickle-support.js";

type Fault = readonly [
  name: string,
  text: string,
  opcode: string,
  byteOffset: number,
  message: RegExp,
  expected?: unknown,
  found?: unknown,
];

const faults: readonly Fault[] = [
  ["TUPLE2 of one value", "K\x01\x86.", "TUPLE2", 2, /has 1 of the 2 values wanted$/, 2, 1],
  ["TUPLE1 of nothing", "\x85.", "TUPLE1", 0, /has 0 of the 1 value wanted$/, 1, 0],
  ["TUPLE3 across a MARK", "K\x01(K\x02K\x03\x87.", "TUPLE3", 7, /has 2 of the 3 values wanted$/, 3, 2],
  ["REDUCE without a callable", ")R.", "REDUCE", 1, /has 1 of the 2 values wanted$/, 2, 1],
  ["REDUCE of a tuple without a callable", "K\x01\x85R.", "REDUCE", 3, /has 1 of the 2 values wanted$/, 2, 1],
  ["REDUCE of a list", "cm\nC\n]R.", "REDUCE", 6, /arguments are not a tuple$/, "a tuple", "a list"],
  ["NEWOBJ of a number", "cm\nC\nK\x01\x81.", "NEWOBJ", 7, /arguments are not a tuple$/, "a tuple", "number"],
  ["NEWOBJ_EX without a dict", "cm\nC\n)]\x92.", "NEWOBJ_EX", 7, /keyword arguments are no dict$/],
  ["BUILD of nothing", "}b.", "BUILD", 1, /has 1 of the 2 values wanted$/, 2, 1],
  ["STOP with an empty stack", ".", "STOP", 0, /has 0 of the 1 value wanted$/, 1, 0],
  ["STOP at an open MARK", "K\x01(.", "STOP", 3, /has 0 of the 1 value wanted$/, 1, 0],
  ["POP of nothing", "0.", "POP", 0, /has 0 of the 1 value wanted$/, 1, 0],
  ["DUP of nothing", "2.", "DUP", 0, /has 0 of the 1 value wanted$/, 1, 0],
  ["BINPUT of nothing", "q\x00.", "BINPUT", 0, /has 0 of the 1 value wanted$/, 1, 0],
  ["LONG_BINPUT at a MARK", "K\x01(r\x00\x00\x00\x00.", "LONG_BINPUT", 3, /has 0 of the 1 value wanted$/, 1, 0],
  ["MEMOIZE of nothing", "\x94.", "MEMOIZE", 0, /has 0 of the 1 value wanted$/, 1, 0],
  ["BINPERSID of nothing", "Q.", "BINPERSID", 0, /has 0 of the 1 value wanted$/, 1, 0],
  ["APPEND to nothing", "K\x01a.", "APPEND", 2, /has 1 of the 2 values wanted$/, 2, 1],
  ["APPENDS to nothing", "(K\x01e.", "APPENDS", 3, /has 0 of the 1 value wanted$/, 1, 0],
  ["SETITEM of two", "}K\x01s.", "SETITEM", 3, /has 2 of the 3 values wanted$/, 3, 2],
  ["SETITEMS to nothing", "(K\x01K\x02u.", "SETITEMS", 5, /has 0 of the 1 value wanted$/, 1, 0],
  ["ADDITEMS to nothing", "(\x90.", "ADDITEMS", 1, /has 0 of the 1 value wanted$/, 1, 0],
  ["TUPLE without MARK", "K\x01t.", "TUPLE", 2, /no MARK is open$/, "a MARK", "none"],
  ["LIST without MARK", "l.", "LIST", 0, /no MARK is open$/, "a MARK", "none"],
  ["DICT without MARK", "d.", "DICT", 0, /no MARK is open$/, "a MARK", "none"],
  ["FROZENSET without MARK", "\x91.", "FROZENSET", 0, /no MARK is open$/, "a MARK", "none"],
  ["SETITEMS without MARK", "}u.", "SETITEMS", 1, /no MARK is open$/, "a MARK", "none"],
  ["APPENDS without MARK", "]e.", "APPENDS", 1, /no MARK is open$/, "a MARK", "none"],
  ["ADDITEMS without MARK", "\x8f\x90.", "ADDITEMS", 1, /no MARK is open$/, "a MARK", "none"],
  ["POP_MARK without MARK", "K\x011.", "POP_MARK", 2, /no MARK is open$/, "a MARK", "none"],
  ["INST without MARK", "im\nC\n.", "INST", 0, /no MARK is open$/, "a MARK", "none"],
  ["OBJ without MARK", "o.", "OBJ", 0, /no MARK is open$/, "a MARK", "none"],
  ["OBJ without a class", "(o.", "OBJ", 1, /no class above the MARK$/],
  ["BINGET of nothing", "h\x07.", "BINGET", 0, /memo 7 was never set$/, "a memoised value", 7],
  ["LONG_BINGET of nothing", "j\xff\xff\xff\xff.", "LONG_BINGET", 0, /memo 4294967295 was never set$/],
  ["GET of nothing", "g12\n.", "GET", 0, /memo 12 was never set$/, "a memoised value", 12],
  ["GET of a word", "gone\n.", "GET", 0, /not a memo index$/, "a number of 32 bits", '"one"'],
  ["PUT of a large number", "Np4294967296\n.", "PUT", 1, /not a memo index$/],
  ["PUT of a negative number", "Np-1\n.", "PUT", 1, /not a memo index$/],
  ["an unknown opcode", "K\x01\xff.", "0xff", 2, /there is no such opcode$/, "an opcode", "0xff"],
  ["zeros", "\0\0\0\0", "0x00", 0, /there is no such opcode$/],
  ["protocol 6", "\x80\x06.", "PROTO", 0, /protocol 6 is not known$/, "at most 5", 6],
  ["SETITEMS of an odd number", "}(K\x01K\x02K\x03u.", "SETITEMS", 8, /a key without a value$/, "pairs", "3 values"],
  ["DICT of an odd number", "(K\x01d.", "DICT", 3, /a key without a value$/, "pairs", "1 values"],
  ["a list as key", "}]Ns.", "SETITEM", 3, /a key of type list$/, "a hashable value", "list"],
  ["a dict as key", "}(}Nu.", "SETITEMS", 4, /a key of type dict$/],
  ["an OrderedDict as key", "}ccollections\nOrderedDict\n)RNs.", "SETITEM", 29, /a key of type OrderedDict$/],
  ["a set in a set", "\x8f(\x8f\x90.", "ADDITEMS", 3, /a key of type set$/],
  ["a bytearray in a frozenset", `(\x96${"\0".repeat(8)}\x91.`, "FROZENSET", 10, /a key of type bytearray$/],
  ["APPEND to a tuple", ")Na.", "APPEND", 2, /items are added to a tuple$/, "a list", "a tuple"],
  ["ADDITEMS to a frozenset", "(\x91(N\x90.", "ADDITEMS", 4, /items are added to a frozenset$/, "a set", "a frozenset"],
  ["STACK_GLOBAL of numbers", "K\x01K\x02\x93.", "STACK_GLOBAL", 4, /module and name are not text$/],
  ["GLOBAL that is not UTF-8", "c\xff\nx\n.", "GLOBAL", 0, /the name is not UTF-8$/],
  ["BINSTRING of negative length", "T\xff\xff\xff\xff.", "BINSTRING", 0, /a length of -1 bytes$/, "0 or more", -1],
  ["LONG4 of negative length", "\x8b\xfe\xff\xff\xff.", "LONG4", 0, /a length of -2 bytes$/, "0 or more", -2],
  ["INT of a word", "Ione\n.", "INT", 0, /not an integer$/, "an integer", '"one"'],
  ["INT of a float", "I1.5\n.", "INT", 0, /not an integer$/, "an integer", '"1.5"'],
  ["LONG of nothing", "L\n.", "LONG", 0, /not an integer$/, "an integer", '""'],
  ["FLOAT of a word", "Fone\n.", "FLOAT", 0, /not a number$/, "a float", '"one"'],
  ["FLOAT in JavaScript's way", "F0x10\n.", "FLOAT", 0, /not a number$/, "a float", '"0x10"'],
  ["STRING without quotes", "Sabc\n.", "STRING", 0, /not a quoted string$/],
  ["STRING with a broken escape", "S'\\x4'\n.", "STRING", 0, /not a quoted string$/],
  ["UNICODE with a broken escape", "V\\u12\n.", "UNICODE", 0, /a broken escape$/],
];

test.each(faults.map((fault) => ({ name: fault[0], fault })))("$name", ({ fault }) => {
  const [, text, opcode, byteOffset, message, expected, found] = fault;
  const error = thrownBy(() => read(stream(text))) as FormatError;
  expect(error).toBeInstanceOf(FormatError);
  expect(error.message).toMatch(message);
  const start = `Cannot load "model.pt": pickle "data.pkl" at byte ${byteOffset}, opcode ${opcode}: `;
  expect(error.message.slice(0, start.length)).toBe(start);
  expect(error).toMatchObject({ code: "format", file: "model.pt", record: "data.pkl", byteOffset });
  if (expected !== undefined) expect(error).toMatchObject({ expected, found });
});

describe("a stream that is cut short", () => {
  const streams = [
    ["PROTO", "\x80"],
    ["BININT", "J\x01\x02\x03"],
    ["BININT1", "K"],
    ["BININT2", "M\x01"],
    ["BINFLOAT", "G\x01\x02\x03\x04\x05\x06\x07"],
    ["BINPUT", "Nq"],
    ["LONG_BINPUT", "Nr\x01\x02\x03"],
    ["BINGET", "Nh"],
    ["LONG_BINGET", "Nj\x01\x02\x03"],
    ["LONG1", "\x8a\x05\x01"],
    ["LONG4", "\x8b\xff\xff\xff\x7f\x01"],
    ["BINUNICODE", "X\xff\xff\xff\xffabc"],
    ["BINUNICODE", "X\xff\xff"],
    ["SHORT_BINUNICODE", "\x8c\x05abc"],
    ["BINUNICODE8", "\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc"],
    ["BINBYTES", "B\xff\xff\xff\xffabc"],
    ["SHORT_BINBYTES", "C\x05abc"],
    ["BINBYTES8", "\x8e\x00\x00\x00\x00\x01\x00\x00\x00abc"],
    ["BYTEARRAY8", "\x96\xff\xff\xff\xff\xff\xff\xff\x7fabc"],
    ["BINSTRING", "T\xff\xff\xff\x7fabc"],
    ["SHORT_BINSTRING", "U\x05abc"],
    ["FRAME", "\x95\x05\x00"],
    ["INT", "I12"],
    ["GLOBAL", "cmodule\nnam"],
    ["UNICODE", "Vabc"],
    ["PERSID", "Pabc"],
  ] as const;

  test.each(streams)("in %s says so", (opcode, text) => {
    const error = thrownBy(() => read(stream(text))) as FormatError;
    expect(error).toBeInstanceOf(FormatError);
    expect(error.message).toMatch(new RegExp(`opcode ${opcode}: .*(the stream ends early|bytes wanted)`));
    expect(error.found).toBe(END_OF_STREAM);
  });

  test("at any byte says so, and how to tell", () => {
    const bytes = pickled(
      new Map<unknown, unknown>([
        ["weights", [1, 2.5, 10n ** 30n]],
        ["é", Tuple.from([Tuple.from([])])],
      ]),
    );
    for (let length = 0; length < bytes.length; length++) {
      const error = thrownBy(() => read(bytes.subarray(0, length))) as FormatError;
      expect(error).toBeInstanceOf(FormatError);
      expect(error.found).toBe(END_OF_STREAM);
    }
  });

  test("between opcodes has no opcode to name", () => {
    const error = thrownBy(() => read(stream("K\x01"))) as FormatError;
    expect(error.message).toBe('Cannot load "model.pt": pickle "data.pkl" at byte 2: the stream ends early: no STOP');
    expect(error).toMatchObject({ byteOffset: 2, expected: "STOP" });
  });

  test("that starts at its end, or beyond", () => {
    for (const start of [1, 5]) expect(thrownBy(() => read(stream("."), { start }))).toBeInstanceOf(FormatError);
  });
});

describe("what handlers throw", () => {
  const reading = (error: unknown) => {
    const handlers = builtinHandlers();
    const fail = (): never => {
      throw error;
    };
    return thrownBy(() => read(stream("K\x01\x85cm\nC\n)R\x86."), {}, { ...handlers, findGlobal: fail }));
  };

  test("errors of this library leave as they are", () => {
    const error = new UnsafePickleError("no", { module: "os", global: "system" });
    expect(reading(error)).toBe(error);
  });

  test("built-in errors get file and place", () => {
    const cause = new TypeError("what is called is not a class");
    const error = reading(cause) as FormatError;
    expect(error).toMatchObject({ file: "model.pt", record: "data.pkl", byteOffset: 3, cause });
    expect(error.message).toBe(
      'Cannot load "model.pt": pickle "data.pkl" at byte 3, opcode GLOBAL: what is called is not a class',
    );
  });

  test("anything else leaves as it is", () => {
    for (const error of [new Error("mine"), "text", undefined, Symbol("s")]) expect(reading(error)).toBe(error);
  });

  test("a place is that of the call, also when a tuple stands before it", () => {
    const handlers = { ...builtinHandlers(), reduce: (): never => expect.fail() };
    const failing = { ...handlers, reduce: () => [].at(0) ?? (null as unknown as { x: { y: 1 } }).x.y };
    const error = thrownBy(() => read(stream("cm\nC\nK\x01\x85q\x00R."), {}, failing)) as FormatError;
    expect(error).toMatchObject({ byteOffset: 10 });
    expect(error.message).toContain("opcode REDUCE: ");
  });

  test("without a record the message has none", () => {
    const error = thrownBy(() => read(stream("0."), { record: undefined })) as FormatError;
    expect(error.message).toMatch(/^Cannot load "model.pt": pickle at byte 0, opcode POP: /);
    expect(error.record).toBeUndefined();
  });
});

describe("faults seen in the wild", () => {
  test("DICT is not read as EMPTY_DICT", () => {
    expect(read(stream("(K\x01K\x02d."))).toEqual(new Map([[1, 2]]));
  });

  test("SETITEMS keeps the order", () => {
    const dict = read(stream("}(U\x01cK\x01U\x01aK\x02U\x01bK\x03u.")) as Map<string, number>;
    expect([...dict.keys()]).toEqual(["c", "a", "b"]);
  });

  test("the memo holds values, not copies of them", () => {
    const [a, b] = read(stream("(]q\x00h\x00K\x01al.")) as unknown[][];
    expect(a).toBe(b);
    expect(a).toEqual([1]);
  });

  test("strings are not allocated by their declared length", () => {
    const before = process.memoryUsage().arrayBuffers + process.memoryUsage().heapUsed;
    for (let k = 0; k < 100; k++) thrownBy(() => read(stream("B\xff\xff\xff\x7f.")));
    for (let k = 0; k < 100; k++) thrownBy(() => read(stream("X\xff\xff\xff\x7f.")));
    expect(process.memoryUsage().arrayBuffers + process.memoryUsage().heapUsed - before).toBeLessThan(64 * 1024 * 1024);
  });

  test("LONG1 goes past 64 bits", () => {
    expect(read(stream("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."))).toBe(0x1950a86a20f9469cfc6cn);
  });

  test("short tuples are passed on, for the handlers to judge", () => {
    const tensor = read(stream("ctorch._utils\n_rebuild_tensor_v2\nK\x01\x85R.")) as PythonObject;
    expect(tensor).toBeInstanceOf(PythonObject);
    expect(tensor.args).toEqual([1]);
  });

  test("what a handler refuses is not left out in silence", () => {
    const handlers = builtinHandlers([], true);
    expect(isTorchloadError(thrownBy(() => read(stream("(cm\nC\n)RK\x01l."), {}, handlers)))).toBe(true);
  });
});

describe("hostile streams", () => {
  test("nesting 100,000 deep is read, in lists, tuples and dicts", () => {
    const depth = 100_000;
    for (const [open, close] of [
      ["]", "a"],
      ["", "\x85"],
      ["(", "l"],
      ["}U\x01k", "s"],
      ["(", "t"],
    ] as const) {
      const inner = open === "}U\x01k" ? "}" : "]";
      let value = read(stream(open.repeat(depth), inner, close.repeat(depth), "."));
      let levels = 0;
      for (; ; levels++) {
        const next = value instanceof Map ? value.get("k") : (value as unknown[])[0];
        if (next === undefined) break;
        value = next;
      }
      expect(levels).toBe(depth);
    }
  });

  test("marks 1,000,000 deep", () => {
    expect(thrownBy(() => read(stream("(".repeat(1_000_000), ".")))).toBeInstanceOf(FormatError);
  });

  test("lists of one list, 2^60 leaves, stay small", () => {
    // Each level is a list that holds the one below twice.
    const level = (k: number): string =>
      `]q${String.fromCharCode(k)}(h${String.fromCharCode(k - 1)}h${String.fromCharCode(k - 1)}e`;
    const levels = Array.from({ length: 60 }, (_, k) => level(k + 1)).join("");
    let value = read(stream("]q\x00", levels, "."));
    for (let k = 0; k < 60; k++) {
      const [left, right] = value as unknown[];
      expect(left).toBe(right);
      value = left;
    }
  });

  test("memo indices that nothing counted up to take no array of their size", () => {
    const before = process.memoryUsage().heapUsed;
    const indices = Array.from({ length: 2000 }, (_, k) => 0xffffffff - k * 2_000_000);
    const bytes = stream(
      "(",
      ...indices.flatMap((index) => ["K\x07r", int32(index)]),
      ...indices.flatMap((index) => ["j", int32(index)]),
      "l.",
    );
    expect(read(bytes)).toEqual(new Array(4000).fill(7));
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(64 * 1024 * 1024);
  });

  test("a memo of 300,000 values, set in order and against it", () => {
    const count = 300_000;
    const probes = [0, 1, 255, 256, 16383, 16384, 16385, 65535, 65536, count - 1];
    const gets = stream("(", ...probes.flatMap((index) => ["j", int32(index)]), "l.");
    for (const order of [(k: number) => k, (k: number) => count - 1 - k, (k: number) => (k * 7919) % count]) {
      // BININT k, LONG_BINPUT k, POP
      const puts = Buffer.alloc(11 * count);
      for (let k = 0; k < count; k++) {
        puts.writeUInt8(0x4a, 11 * k);
        puts.writeUInt32LE(order(k), 11 * k + 1);
        puts.writeUInt8(0x72, 11 * k + 5);
        puts.writeUInt32LE(order(k), 11 * k + 6);
        puts.writeUInt8(0x30, 11 * k + 10);
      }
      expect(read(stream(puts, gets))).toEqual(probes);
    }
  });

  test("an integer that would take forever is refused", () => {
    const digits = stream("L", "9".repeat(1_000_000), "L\n.");
    const started = performance.now();
    expect(thrownBy(() => read(digits))).toBeInstanceOf(UnsupportedError);
    expect(thrownBy(() => read(stream("\x8b", int32(10_000_000), new Uint8Array(10_000_000), ".")))).toBeInstanceOf(
      UnsupportedError,
    );
    expect(performance.now() - started).toBeLessThan(1000);
  });

  test("a number with quadratic ways to be read is read or refused at once", () => {
    const started = performance.now();
    for (const text of [
      `F${"1".repeat(200_000)}x`,
      `F${" ".repeat(200_000)}x`,
      `S'${"' ".repeat(100_000)}x`,
      `V${"\\".repeat(200_000)}`,
    ]) {
      try {
        read(stream(text, "\n."));
      } catch (error) {
        expect(error).toBeInstanceOf(FormatError);
      }
    }
    expect(performance.now() - started).toBeLessThan(2000);
  });

  test("`__proto__` is a key as any other", () => {
    const dict = read(stream("}(U\x09__proto__}U\x08pollutedK\x01sU\x0bconstructorK\x02u.")) as Map<string, unknown>;
    expect(dict.get("__proto__")).toEqual(new Map([["polluted", 1]]));
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });

  test("a frame that claims too much hides nothing", () => {
    const log: unknown[] = [];
    read(stream("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff\x8c\x02nt\x8c\x06system\x93."), {}, builtinHandlers(log));
    expect(log).toEqual(["nt.system"]);
  });

  test("a pickle after STOP is not read", () => {
    const log: unknown[] = [];
    const { end } = readAll(stream("N.cos\nsystem\n."), {}, builtinHandlers(log));
    expect(end).toBe(2);
    expect(log).toEqual([]);
  });

  test("a handler is never called with what a broken stream left half done", () => {
    const handlers = builtinHandlers();
    const calls: string[] = [];
    const watched = new Proxy(handlers, {
      get: (target, name) => {
        calls.push(String(name));
        return Reflect.get(target, name);
      },
    });
    thrownBy(() => read(stream("cm\nC\n(K\x01tR"), {}, watched));
    thrownBy(() => read(stream("K\x01R"), {}, watched));
    expect(calls.filter((name) => name === "build" || name === "persistentLoad")).toEqual([]);
  });
});
