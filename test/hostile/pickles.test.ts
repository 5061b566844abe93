import { afterEach, describe, expect, test } from "vitest";
import {
  type FormatError,
  load,
  OrderedDict,
  open,
  PythonGlobal,
  PythonObject,
  type SafeGlobals,
  Tensor,
  type UnsafePickleError,
} from "../../src/index.js";
import {
  binbytes,
  bomb,
  type Code,
  call,
  checkpointRecords,
  code,
  concat,
  dict,
  floats,
  get,
  global,
  int,
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
  utf8,
  zip,
  zipCheckpoint,
} from "../support/bad-files.js";
import { checkError, failure, refused } from "./refusal.js";

/** A checkpoint whose object this code makes. */
const fileWith = (...value: Code[]): Uint8Array => zipCheckpoint(concat(...value));

/** What the object of such a checkpoint is. */
const objectOf = (value: Code, options = {}): Promise<unknown> => load(fileWith(value), options);

const prototypes = [Object, Array, Map, Set, Function, Promise, Uint8Array].map(
  ({ prototype }) => [prototype, Reflect.ownKeys(prototype).length] as const,
);

afterEach(() => {
  for (const [prototype, count] of prototypes) expect(Reflect.ownKeys(prototype).length).toBe(count);
  expect(Object.getPrototypeOf(Object.prototype)).toBeNull();
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
});

describe("a stream", () => {
  const broken: [what: string, value: Code, message: string][] = [
    ["asks for a memo that was never set", get(7), "memo 7 was never set"],
    ["asks for the last memo there can be", get(0xffffffff), "memo 4294967295 was never set"],
    ["asks for a memo in protocol 0", utf8("g5\n"), "memo 5 was never set"],
    ["asks for a negative memo", utf8("g-1\n"), "not a memo index"],
    ["memoises nothing", put(0), "the stack has 0 of the 1 value wanted"],
    ["pops nothing", op.POP, "the stack has 0 of the 1 value wanted"],
    ["calls nothing", op.REDUCE, "of the 2 values wanted"],
    ["appends to nothing", concat(int(1), op.APPEND), "of the 2 values wanted"],
    ["sets an item of nothing", concat(int(1), int(2), op.SETITEM), "of the 3 values wanted"],
    ["takes values from below a MARK", concat(int(1), op.MARK, op.TUPLE1), "the stack has 0 of the 1 value wanted"],
    ["has no MARK for TUPLE", op.TUPLE, "no MARK is open"],
    ["has no MARK for SETITEMS", concat(op.EMPTY_DICT, op.SETITEMS), "no MARK is open"],
    ["has no MARK for APPENDS", concat(op.EMPTY_LIST, op.APPENDS), "no MARK is open"],
    ["has an odd number of items for a dict", concat(op.EMPTY_DICT, op.MARK, int(1), op.SETITEMS), "without a value"],
    ["has a byte that is no opcode", code(0xff), "there is no such opcode"],
    ["has a zero byte", code(0), "there is no such opcode"],
    ["has a protocol of the future", code(0x80, 6), "protocol 6 is not known"],
    ["has a text longer than it is", text("abc", 0xffffffff), "4294967295 bytes wanted"],
    ["has bytes longer than it is", binbytes(code(1), 0x7fffffff), "2147483647 bytes wanted"],
    ["has bytes of 2^63", concat(code(0x8e, 0, 0, 0, 0, 0, 0, 0, 0x80), code(1)), "bytes wanted"],
    ["has a bytearray of 2^64 - 1", concat(code(0x96), repeat(code(0xff), 8)), "bytes wanted"],
    ["has a text of 2^56", concat(code(0x8d, 0, 0, 0, 0, 0, 0, 0, 1), code(0x61)), "bytes wanted"],
    ["has an integer of 2^31 - 1 bytes", code(0x8b, 0xff, 0xff, 0xff, 0x7f), "bytes wanted"],
    ["has an integer of a negative length", code(0x8b, 0xff, 0xff, 0xff, 0xff), "a length of -1 bytes"],
    ["has a decimal of 5000 digits", utf8(`L${"9".repeat(5000)}L\n`), "5000 digits"],
    ["has a text that is not UTF-8", concat(code(0x58, 2, 0, 0, 0, 0xc3, 0x28)), "the text is not UTF-8"],
    ["has a line without an end", utf8("I12345"), "no end of line"],
    ["names a class by number", code(0x82, 1), "extension registry"],
    ["has a buffer elsewhere", code(0x97), "out of band"],
    ["has a list as key", dict([op.EMPTY_LIST, int(1)]), "a key of type list"],
    ["has a dict in a set", concat(op.EMPTY_SET, op.MARK, op.EMPTY_DICT, op.ADDITEMS), "a key of type dict"],
    ["appends to a tuple", concat(op.EMPTY_LIST, op.TUPLE1, int(1), op.APPEND), "items are added to a tuple"],
    ["appends to a number", concat(int(1), int(2), op.APPEND), "added to something that is no list"],
    ["sets items of a list", concat(op.EMPTY_LIST, int(1), int(2), op.SETITEM), "set on something that is no dict"],
    ["calls a text", call(text("os.system"), text("ls")), "what is called is not a class or function"],
    ["calls with a list", concat(global("torch", "Size"), op.EMPTY_LIST, op.REDUCE), "the arguments are not a tuple"],
    ["sets the state of a number", concat(int(1), op.EMPTY_DICT, op.BUILD), "something that has none"],
    ["sets the state of a list", concat(op.EMPTY_LIST, op.EMPTY_DICT, op.BUILD), "an object that takes none"],
    ["sets the state of a dict", concat(op.EMPTY_DICT, op.EMPTY_DICT, op.BUILD), "an object that takes none"],
    ["sets the state of a class", concat(global("torch", "Size"), op.EMPTY_DICT, op.BUILD), "takes none"],
    ["sets the state of a dtype", concat(global("torch", "float32"), op.EMPTY_DICT, op.BUILD), "takes none"],
    ["sets the state of a storage", concat(storage("0"), op.EMPTY_DICT, op.BUILD), "takes none"],
    ["makes an object of a number", concat(int(1), tuple(), op.NEWOBJ), "what is made is not of a class"],
    ["makes an object of a storage class's name", concat(text("x"), tuple(), op.NEWOBJ), "is not of a class"],
    [
      "has attributes that are no dict",
      concat(call(global("collections", "OrderedDict")), int(1), op.BUILD),
      "are not a dict",
    ],
  ];

  test.each(broken)("that %s is refused with its place", async (_, value, message) => {
    const error = (await refused(zip(checkpointRecords(value, { "0": floats(1, 2, 3, 4) })))) as FormatError;
    expect(error.message).toContain('pickle "data.pkl" at byte ');
    expect(error.message).toContain(message);
    if (error.code === "format") expect(error.byteOffset).toBeGreaterThanOrEqual(2);
    const legacy = await refused(legacyCheckpoint(value));
    expect(legacy.code).toBe(error.code);
  });

  test("that ends without STOP is refused", async () => {
    const records = checkpointRecords(int(1));
    const cut = records.map((record) =>
      record.name === "archive/data.pkl" ? { ...record, content: record.content.slice(0, -1) } : record,
    );
    expect((await refused(zip(cut))).message).toContain("the stream ends early: no STOP");
    const empty = cut.map((record) =>
      record.name === "archive/data.pkl" ? { ...record, content: new Uint8Array(0) } : record,
    );
    expect((await refused(zip(empty))).message).toContain("the stream ends early: no STOP");
  });

  test("with a memo of the highest index works, and takes no memory for those below", async () => {
    expect(await objectOf(list(concat(text("a"), put(0xffffffff)), get(0xffffffff)))).toEqual(["a", "a"]);
  });

  // Open: Memo.get() falls back to an index set far ahead of the stream when a shortcut left the same index out later.
  test("that uses one memo index for two values gives each where it stood", async () => {
    const filler = concat(repeat(concat(int(0), op.POP), 400));
    const size = global("torch", "Size");
    const value = list(
      concat(text("first"), put(1000)),
      filler,
      concat(size, op.MARK, list(int(5)), op.TUPLE, put(1000), op.REDUCE),
      get(1000),
    );
    const [first, , again] = (await objectOf(value)) as unknown[];
    expect(first).toBe("first");
    expect(again).toEqual([[5]]);
  });
});

const forbidden: [module: string, name: string][] = [
  ["os", "system"],
  ["posix", "system"],
  ["nt", "system"],
  ["sys", "exit"],
  ["subprocess", "Popen"],
  ["builtins", "eval"],
  ["builtins", "exec"],
  ["builtins", "getattr"],
  ["builtins", "__import__"],
  ["torch.hub", "load"],
  ["torch", "load"],
  ["torch.serialization", "load"],
  ["torch.serialization", "os.system"],
  ["torch._utils", "_rebuild_tensor_v2.__globals__"],
  ["torch._utils._rebuild_tensor_v2", "__globals__"],
  ["collections", "OrderedDict.__init__"],
  ["torch.storage", "_load_from_bytes"],
  ["runpy", "run_path"],
  ["pip", "main"],
  ["Object", "prototype"],
  ["__proto__", "polluted"],
  ["constructor", "constructor"],
  ["torch", "__proto__"],
  ["torch", "constructor"],
  ["torch.cuda", "hasOwnProperty"],
  ["", "eval"],
  ["builtins.", "eval"],
  ["torch.Tensor", ""],
  ["numpy.core.multiarray", "_reconstruct"],
  ["argparse", "Namespace"],
];

describe("a class or function that is not allowed", () => {
  test.each(forbidden)("%s.%s is named, with what allows it, and is not run", async (module, name) => {
    const ways: Code[] = [
      global(module, name),
      call(global(module, name), text("touch /tmp/torchload-was-here")),
      concat(text(module), text(name), op.STACK_GLOBAL),
      concat(op.MARK, text("ls"), utf8(`i${module}\n${name}\n`)),
      concat(op.MARK, global(module, name), text("ls"), code(0x6f)),
    ];
    for (const way of ways) {
      const error = (await refused(fileWith(way))) as UnsafePickleError;
      expect(error.code).toBe("unsafe-pickle");
      expect(error.message).toContain(
        `asks for ${error.module}.${error.global}, which weights-only loading does not allow; nothing was run`,
      );
      const blocked = ["os", "posix", "nt", "sys"].includes(module);
      expect(error.message).toContain(blocked ? "no honest use" : `safeGlobals: ["${module}.${name}"]`);
      expect([error.module, error.global]).toEqual([module, name]);
    }
  });

  test("is refused wherever it stands, behind STOP excepted", async () => {
    const evil = global("os", "system");
    await refused(fileWith(list(int(1), evil)));
    await refused(fileWith(concat(evil, op.POP, int(1))));
    await refused(fileWith(dict([evil, int(1)])));
    const records = checkpointRecords(concat(int(1), op.STOP, evil));
    expect(await load(zip(records))).toBe(1);
  });

  test("is refused under the name that Python 2 had for it as well", async () => {
    for (const [module, name, now] of [
      ["__builtin__", "eval", "builtins.eval"],
      ["__builtin__", "execfile", ""],
      ["commands", "getoutput", "subprocess.getoutput"],
      ["copy_reg", "_reconstructor", "copyreg._reconstructor"],
    ] as const) {
      const error = (await refused(fileWith(global(module, name)))) as UnsafePickleError;
      expect(error.code).toBe("unsafe-pickle");
      if (now !== "") expect(`${error.module}.${error.global}`).toBe(now);
    }
  });

  test.each(forbidden)("%s.%s is inert when all names are let through", async (module, name) => {
    const value = await objectOf(call(global(module, name), text("ls")), { weightsOnly: false });
    expect(value).toBeInstanceOf(PythonObject);
    const { type, args } = value as PythonObject;
    expect(type).toBeInstanceOf(PythonGlobal);
    expect(String(type)).toBe(`${module}.${name}`);
    expect([...args]).toEqual(["ls"]);
  });

  test("of a name as long as a book is refused", async () => {
    const long = "x".repeat(1_000_000);
    const names = concat(text(long), put(0), op.POP, op.MARK);
    const many = repeat(concat(get(0), get(0), op.STACK_GLOBAL), 1000);
    for (const weightsOnly of [true, false]) {
      const error = await refused(fileWith(names, many, op.TUPLE), { weightsOnly });
      expect(error.message).toContain("has a name of 2000000 characters");
      expect(error.message.length).toBeLessThan(300);
    }
  });
});

describe("names of JavaScript's own", () => {
  const names = ["__proto__", "constructor", "prototype", "toString", "hasOwnProperty", "then", "toJSON", "length"];

  test("are keys like others", async () => {
    const inner = dict([text("polluted"), text("yes")]);
    const value = (await objectOf(dict(...names.map((name) => [text(name), inner] as const)))) as Map<string, unknown>;
    expect([...value.keys()]).toEqual(names);
    for (const name of names) expect(value.get(name)).toEqual(new Map([["polluted", "yes"]]));
    expect(Object.getPrototypeOf(value)).toBe(Map.prototype);
  });

  test("are attributes and states like others", async () => {
    const state = dict(...names.map((name) => [text(name), dict([text("polluted"), int(1)])] as const));
    const ordered = (await objectOf(
      concat(call(global("collections", "OrderedDict")), state, op.BUILD),
    )) as OrderedDict;
    expect([...(ordered.attributes as Map<string, unknown>).keys()]).toEqual(names);
    const object = (await objectOf(concat(call(global("a", "B")), state, op.BUILD), {
      weightsOnly: false,
    })) as PythonObject;
    expect(Object.getPrototypeOf(object)).toBe(PythonObject.prototype);
    expect([...(object.state as Map<string, unknown>).keys()]).toEqual(names);
    const kwargs = concat(global("a", "B"), tuple(), state, op.NEWOBJ_EX);
    const made = (await objectOf(kwargs, { weightsOnly: false })) as PythonObject;
    expect([...(made.kwargs as Map<string, unknown>).keys()]).toEqual(names);
  });

  test("are storages, locations and tensors like others", async () => {
    const of = (name: string): Code => tensor(storage(name, { location: text(name) }));
    const contents = Object.fromEntries(names.slice(1).map((name, k) => [name, floats(k, k, k, k)]));
    Object.defineProperty(contents, "__proto__", { value: floats(9, 9, 9, 9), enumerable: true });
    const bytes = zipCheckpoint(dict(...names.map((name) => [text(name), of(name)] as const)), contents);
    const value = (await load(bytes)) as Map<string, Tensor>;
    expect([...value.keys()]).toEqual(names);
    expect((value.get("__proto__") as Tensor).toArray()).toEqual([9, 9, 9, 9]);
    await using checkpoint = await open(bytes);
    expect([...checkpoint.tensors().keys()]).toEqual(names);
    const saved = checkError(await failure(() => load(bytes, { mapLocation: "saved" })), "bytes");
    expect(saved.message).toContain('was saved on "__proto__", a location that no registered package knows');
    expect(await load(bytes, { mapLocation: {} })).toHaveProperty("size", names.length);
  });

  test("make no value of a checkpoint a promise", async () => {
    const value = await objectOf(dict([text("then"), text("resolve")]));
    expect(value).toBeInstanceOf(Map);
  });
});

describe("a call of an allowed function", () => {
  const odd: [what: string, value: Code, message: string][] = [
    ["OrderedDict of a number", call(global("collections", "OrderedDict"), int(1)), "is no sequence"],
    ["OrderedDict of no pairs", call(global("collections", "OrderedDict"), list(int(1))), "other than pairs"],
    ["set of a number", call(global("builtins", "set"), int(1)), "is no sequence"],
    ["bytearray of 2^30", call(global("builtins", "bytearray"), int(2 ** 30)), "not text"],
    ["bytes beyond a byte", call(global("builtins", "bytearray"), list(int(256))), "bytes are made from 256"],
    ["bytes of a tuple of 2^64 leaves", call(global("builtins", "bytearray"), list(bomb(64))), "from a list or tuple"],
    ["encode of a number", call(global("_codecs", "encode"), int(1)), "not text"],
    ["encode beyond Latin-1", call(global("_codecs", "encode"), text("\u20ac"), text("latin1")), "beyond Latin-1"],
    ["a size of a text", call(global("torch", "Size"), tuple(text("4"))), 'a torch.Size holds "4"'],
    ["a size of tuples of 2^64 leaves", call(global("torch", "Size"), tuple(bomb(64))), "holds a list or tuple"],
    ["a size of a number", call(global("torch", "Size"), int(4)), "is no sequence"],
    ["a device without a type", call(global("torch", "device")), "a device is made without a type"],
    ["a device of another form", call(global("torch", "device"), text("\u001b[31mcuda")), "is not a device"],
    ["a device of such a form with an index", call(global("torch", "device"), text("a b"), int(0)), "is not a device"],
    [
      "a device of index 1.5",
      call(global("torch", "device"), text("cuda"), code(0x47, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0)),
      "index 1.5",
    ],
    ["a device whose index has 2^64 leaves", call(global("torch", "device"), text("cuda"), bomb(64)), "index a list"],
    ["a complex number of tuples", call(global("builtins", "complex"), bomb(64), int(1)), "from a list or tuple and 1"],
    ["a layout of a tuple", call(global("torch.serialization", "_get_layout"), bomb(64)), "without a name"],
    ["a typed tensor of nothing", call(global("torch._tensor", "_rebuild_from_type_v2")), "malformed"],
    [
      "a typed tensor of a text",
      call(global("torch._tensor", "_rebuild_from_type_v2"), text("f"), global("torch", "Tensor"), tuple(), op.NONE),
      "is not a class or function",
    ],
  ];

  test.each(odd)("%s is refused", async (_, value, message) => {
    const error = await refused(fileWith(value));
    expect(error.message).toContain(message);
    expect(error.message.length).toBeLessThan(300);
  });

  test("that calls itself 100,000 times is refused, or done", async () => {
    const rebuild = concat(global("torch._tensor", "_rebuild_from_type_v2"), put(0), op.POP);
    const type = concat(global("torch", "Tensor"), put(1), op.POP);
    const depth = 100_000;
    // (f, T, (f, T, (… , None), None), None) is made from the inside: all heads first, then all tails.
    const heads = repeat(concat(op.MARK, get(0), get(1)), depth);
    const value = concat(
      rebuild,
      type,
      get(0),
      heads,
      op.MARK,
      op.TUPLE,
      repeat(concat(op.NONE, op.TUPLE), depth),
      op.REDUCE,
    );
    const error = await refused(fileWith(value));
    expect(error.code).toBe("format");
  });

  const copies: [what: string, values: Code, callable: Code][] = [
    ["a set of one list", list(repeat(int(1), 5000)), global("builtins", "set")],
    ["a size of one list", list(repeat(int(1), 5000)), global("torch", "Size")],
    ["a bytearray of one text", text("x".repeat(100_000)), global("builtins", "bytearray")],
    ["the bytes of one text", text("x".repeat(100_000)), global("_codecs", "encode")],
    ["a bytearray of the same bytes", binbytes(new Uint8Array(100_000)), global("builtins", "bytearray")],
    [
      "a counter of one dict",
      dict(...Array.from({ length: 2000 }, (_, k) => [int(k), int(k)] as const)),
      global("collections", "Counter"),
    ],
  ];

  test.each(copies)("for %s, 10,000 times over, is refused before the memory is full", async (_, values, callable) => {
    const setup = concat(values, put(0), op.POP, callable, put(1), op.POP);
    const many = repeat(concat(get(1), get(0), op.TUPLE1, op.REDUCE), 10_000);
    const error = await refused(fileWith(setup, op.MARK, many, op.TUPLE));
    expect(error.message).toContain("the calls of the pickle copy the same values again and again");
  });

  test("may copy what the pickle holds", async () => {
    const size = 5_000_000;
    const once = await objectOf(
      call(global("builtins", "bytearray"), call(global("_codecs", "encode"), text("x".repeat(size)))),
    );
    expect((once as Uint8Array).length).toBe(size);
  });
});

describe("safeGlobals", () => {
  const namespace = call(global("argparse", "Namespace"), text("a"));

  test("gives objects for names and calls functions for functions", async () => {
    const object = await objectOf(namespace, { safeGlobals: ["argparse.Namespace"] });
    expect(String((object as PythonObject).type)).toBe("argparse.Namespace");
    const made = await objectOf(namespace, {
      safeGlobals: { "argparse.Namespace": (args: readonly unknown[]) => [...args] },
    });
    expect(made).toEqual(["a"]);
  });

  test.each<[string, unknown]>([
    ["a blocked module", ["os.system"]],
    ["a blocked module among others", ["argparse.Namespace", "posix.system"]],
    ["a blocked module with a function", { "sys.exit": () => 0 }],
    ["the module of Windows", ["nt.system"]],
    ["a name without a module", ["eval"]],
    ["a text", "os.system"],
    ["numbers", [1]],
    ["a value that is no function", { "argparse.Namespace": 5 }],
    ["null for a function", { "argparse.Namespace": null }],
  ])("with %s is a wrong argument, before anything is read", async (_, safeGlobals) => {
    const error = await failure(() => load("/nonexistent/model.pt", { safeGlobals: safeGlobals as SafeGlobals }));
    expect(error).toBeInstanceOf(TypeError);
  });

  test("lets nothing of a blocked module through, however the name is split", async () => {
    let ran = 0;
    for (const safeGlobals of [["os.path.join"], { "os.path.join": () => ran++ }]) {
      const error = (await refused(fileWith(call(global("os", "path.join"), text("a"))), {
        safeGlobals,
      })) as UnsafePickleError;
      expect(error.module).toBe("os");
      expect(await objectOf(call(global("os.path", "join"), text("a")), { safeGlobals })).toBeDefined();
    }
    expect(ran).toBe(1);
  });

  test("allows a name and none like it", async () => {
    for (const name of ["Namespace2", "namespace", "Namespace.x", "Namespac"]) {
      await refused(fileWith(call(global("argparse", name), text("a"))), { safeGlobals: ["argparse.Namespace"] });
    }
  });

  test("that lists what is known anyway changes nothing", async () => {
    const safeGlobals = ["collections.OrderedDict", "torch._utils._rebuild_tensor_v2", "torch.FloatStorage"];
    const bytes = zipCheckpoint(tensor(storage("0")), { "0": floats(1, 2, 3, 4) });
    expect(((await load(bytes, { safeGlobals })) as Tensor).toArray()).toEqual([1, 2, 3, 4]);
    expect(await objectOf(call(global("collections", "OrderedDict")), { safeGlobals })).toBeInstanceOf(OrderedDict);
  });

  test("with a function that throws ends the load with what it threw", async () => {
    class Mine extends Error {}
    const throwing = (error: unknown): SafeGlobals => ({
      "argparse.Namespace": () => {
        throw error;
      },
    });
    const mine = new Mine("mine");
    expect(await failure(() => objectOf(namespace, { safeGlobals: throwing(mine) }))).toBe(mine);
    const type = new TypeError("of the function");
    const wrapped = checkError(await failure(() => objectOf(namespace, { safeGlobals: throwing(type) })), "bytes");
    expect(wrapped.cause).toBe(type);
    expect(wrapped.message).toContain("of the function");
  });

  test("with a function that gives odd values ends in a value or an error of the library", async () => {
    for (const odd of [undefined, null, 0, "text", Symbol("s"), () => 1, Object.create(null), new Proxy({}, {})]) {
      const safeGlobals = { "argparse.Namespace": () => odd };
      for (const value of [
        namespace,
        concat(namespace, op.EMPTY_DICT, op.BUILD),
        concat(namespace, int(1), op.APPEND),
        concat(namespace, int(1), int(2), op.SETITEM),
        dict([namespace, int(1)]),
        tensor(namespace),
        call(global("torch", "Size"), namespace),
        concat(tuple(namespace, int(1)), op.BINPERSID),
        concat(namespace, put(0), op.POP, get(0)),
      ]) {
        const error = await failure(() => objectOf(value, { safeGlobals }));
        if (error !== undefined) checkError(error, "bytes");
      }
    }
  });
});

test("keys compare as in Python where a file could tell the difference", async () => {
  const value = (await objectOf(dict([int(1), text("a")], [op.NEWTRUE, text("b")], [text("1"), text("c")]))) as Map<
    unknown,
    unknown
  >;
  expect([...value]).toEqual([
    [1, "b"],
    ["1", "c"],
  ]);
});

test("an object of a class that is let through takes state, items and entries without running anything", async () => {
  const made = concat(global("a.b", "C"), tuple(int(1)), op.NEWOBJ);
  const value = concat(made, int(5), op.APPEND, text("k"), text("v"), op.SETITEM, nested(10), op.BUILD);
  const object = (await objectOf(value, { weightsOnly: false })) as PythonObject;
  expect(object.items).toEqual([5]);
  expect([...(object.entries as Map<unknown, unknown>)]).toEqual([["k", "v"]]);
  expect(object.state).toBeDefined();
});

test("a tensor is no target for items", async () => {
  const of = tensor(storage("0"));
  for (const change of [concat(int(1), op.APPEND), concat(text("shape"), int(2), op.SETITEM)]) {
    await refused(zip(checkpointRecords(concat(of, change), { "0": floats(1, 2, 3, 4) })));
  }
  expect(await load(zipCheckpoint(of, { "0": floats(1, 2, 3, 4) }))).toBeInstanceOf(Tensor);
});
