/** The table of opcodes, and what each of them does, from the definitions in CPython's `Lib/pickletools.py`. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { UnsupportedError } from "../../src/errors.js";
import { OPCODES, opcodeName, opcodeOf } from "../../src/pickle/opcodes.js";
import { python3Name } from "../../src/pickle/python2-names.js";
import { FrozenSet, OrderedDict, PythonGlobal, PythonObject, Tuple } from "../../src/pickle/values.js";
import { builtinHandlers, int32, PersistentId, pickled, read, readAll, stream, thrownBy } from "./pickle-support.js";

describe("the table", () => {
  test("has the 68 opcodes of protocols 0 to 5, each with a code of its own", () => {
    expect(OPCODES).toHaveLength(68);
    expect(new Set(OPCODES.map(({ code }) => code)).size).toBe(68);
    expect(new Set(OPCODES.map(({ name }) => name)).size).toBe(68);
    expect(Math.max(...OPCODES.map(({ protocol }) => protocol))).toBe(5);
  });

  test("finds rows by code", () => {
    expect(opcodeOf(0x80)).toEqual({ name: "PROTO", code: 0x80, argument: "uint1", protocol: 2 });
    expect(opcodeOf(0xff)).toBeUndefined();
    expect(opcodeName(0x2e)).toBe("STOP");
    expect(opcodeName(0x07)).toBe("0x07");
  });

  test("is what the machine carries out: each code once, under its name", () => {
    const sources = ["unpickler.ts", "rare-opcodes.ts"].map((file) =>
      readFileSync(new URL(`../../src/pickle/${file}`, import.meta.url), "utf8"),
    );
    const cases = sources.flatMap((text) => [...text.matchAll(/case 0x([0-9a-f]{2}):(?: \{)?\s+\/\/ (\w+)/g)]);
    const carriedOut = cases.map(([, code, name]) => [Number.parseInt(code as string, 16), name]);
    // NEWOBJ and REDUCE behind a tuple are carried out with it, under no case of their own.
    expect(carriedOut.sort()).toEqual(OPCODES.map(({ code, name }) => [code, name]).sort());
  });
});

describe("globals", () => {
  const global = (bytes: Uint8Array): string => `${read(bytes)}`;

  test("GLOBAL, STACK_GLOBAL and INST name a class", () => {
    expect(global(stream("cpkg.mod\nCls\n."))).toBe("pkg.mod.Cls");
    expect(global(stream("\x80\x04\x8c\x07pkg.mod\x8c\x09Outer.Cls\x93."))).toBe("pkg.mod.Outer.Cls");
    expect(read(stream("(K\x01ipkg.mod\nCls\n."))).toEqual(new PythonObject(new PythonGlobal("pkg.mod", "Cls"), [1]));
  });

  test("names may be any UTF-8, and lines end as on Windows", () => {
    expect(global(stream("cm\xc3\xb6d\n\xe4\xbd\xa0\n."))).toBe("möd.你");
    expect(global(stream("cpkg\r\nCls\r\n."))).toBe("pkg.Cls");
  });

  test.each([
    ["__builtin__", "set", "builtins.set"],
    ["__builtin__", "xrange", "builtins.range"],
    ["__builtin__", "long", "builtins.int"],
    ["__builtin__", "basestring", "builtins.str"],
    ["__builtin__", "reduce", "functools.reduce"],
    ["copy_reg", "_reconstructor", "copyreg._reconstructor"],
    ["itertools", "izip", "builtins.zip"],
    ["itertools", "izip_longest", "itertools.zip_longest"],
    ["itertools", "chain", "itertools.chain"],
    ["UserDict", "UserDict", "collections.UserDict"],
    ["UserDict", "IterableUserDict", "collections.UserDict"],
    ["StringIO", "StringIO", "io.StringIO"],
    ["whichdb", "whichdb", "dbm.whichdb"],
    ["_abcoll", "Mapping", "collections.abc.Mapping"],
    ["exceptions", "StandardError", "builtins.Exception"],
    ["exceptions", "ValueError", "builtins.ValueError"],
    ["commands", "getoutput", "subprocess.getoutput"],
    ["torch.tensor", "_rebuild_from_type", "torch._tensor._rebuild_from_type"],
    ["__proto__", "constructor", "__proto__.constructor"],
    ["torch", "FloatStorage", "torch.FloatStorage"],
  ])("%s.%s of Python 2 is %s", (module, name, renamed) => {
    expect(python3Name(module, name).join(".")).toBe(renamed);
    expect(global(stream(`c${module}\n${name}\n.`))).toBe(renamed);
    expect(global(stream("\x8c", module.length, module, "\x8c", name.length, name, "\x93."))).toBe(renamed);
  });
});

describe("objects", () => {
  const cls = new PythonGlobal("m", "C");
  const object = (args: readonly unknown[], kwargs?: Map<unknown, unknown>): PythonObject =>
    new PythonObject(cls, args, kwargs);

  test.each([
    ["REDUCE", "cm\nC\n(K\x01K\x02tR.", object([1, 2])],
    ["REDUCE of no arguments", "cm\nC\n)R.", object(Tuple.from([]))],
    ["REDUCE of a memoised tuple", "(K\x01tq\x000cm\nC\nh\x00R.", object(Tuple.from([1]))],
    ["NEWOBJ", "cm\nC\nK\x01\x85\x81.", object([1])],
    ["NEWOBJ of no arguments", "cm\nC\n)\x81.", object(Tuple.from([]))],
    ["NEWOBJ_EX", "cm\nC\nK\x01\x85}X\x01\x00\x00\x00kK\x02s\x92.", object(Tuple.from([1]), new Map([["k", 2]]))],
    ["OBJ", "(cm\nC\nK\x01K\x02o.", object([1, 2])],
    ["INST of no arguments", "(im\nC\n.", object([])],
  ])("%s makes one", (_, text, made) => {
    expect(read(stream(text))).toEqual(made);
  });

  test("BUILD gives it a state, and what that returns takes its place", () => {
    expect(read(stream("cm\nC\n)R}U\x01aK\x01sb."))).toMatchObject({ state: new Map([["a", 1]]) });
    const handlers = { ...builtinHandlers(), build: (_: unknown, state: unknown) => ["replaced", state] };
    expect(read(stream("cm\nC\n)RK\x01b."), {}, handlers)).toEqual(["replaced", 1]);
  });

  test("BUILD on an OrderedDict sets attributes, not keys", () => {
    const dict = read(stream("ccollections\nOrderedDict\n)R}U\x09_metadataK\x01sb.")) as OrderedDict;
    expect(dict).toBeInstanceOf(OrderedDict);
    expect(dict.size).toBe(0);
    expect(dict.attributes).toEqual(new Map([["_metadata", 1]]));
  });

  test("APPEND, APPENDS, ADDITEMS, SETITEM and SETITEMS reach objects of other classes", () => {
    const list = read(stream("cm\nC\n)RK\x01a(K\x02K\x03eK\x00\x85\x86.")) as unknown;
    expect((list as [PythonObject])[0].items).toEqual([1, 2, 3]);
    expect((read(stream("cm\nC\n)R(K\x02K\x03\x90.")) as PythonObject).items).toEqual([2, 3]);
    const dict = read(stream("cm\nC\n)RK\x01K\x02s(K\x03K\x04]K\x05u.")) as PythonObject;
    expect([...(dict.entries ?? [])]).toEqual([
      [1, 2],
      [3, 4],
      [[], 5],
    ]);
  });

  test("arguments of calls are not shared with values", () => {
    const seen: (readonly unknown[])[] = [];
    const handlers = { ...builtinHandlers(), reduce: (_: unknown, args: readonly unknown[]) => seen.push(args) };
    read(stream("(cm\nf\nK\x01\x85q\x00Rcm\nf\nK\x01\x85q\x01Rl."), {}, handlers);
    expect(seen).toEqual([[1], [1]]);
    expect(seen[0]).not.toBe(seen[1]);
  });
});

describe("persistent ids", () => {
  test("BINPERSID takes any value, PERSID a line", () => {
    expect(read(stream("(U\x07storageK\x01tQ."))).toEqual(new PersistentId(Tuple.from(["storage", 1])));
    expect(read(stream("]Q."))).toEqual(new PersistentId([]));
    expect(read(stream("Pid 5\n."))).toEqual(new PersistentId("id 5"));
  });
});

describe("containers", () => {
  test("tuples are frozen and distinct from lists, and the empty one is always the same", () => {
    const [list, empty, one, other] = read(stream("(])K\x01\x85)l.")) as unknown[];
    expect(list).not.toBeInstanceOf(Tuple);
    for (const tuple of [empty, one]) {
      expect(tuple).toBeInstanceOf(Tuple);
      expect(Object.isFrozen(tuple)).toBe(true);
    }
    expect((one as Tuple).map((item) => item)).not.toBeInstanceOf(Tuple);
    expect(other).toBe(empty);
  });

  test("lists, dicts and sets that hold themselves", () => {
    const list = read(stream("]q\x00h\x00a.")) as unknown[];
    expect(list[0]).toBe(list);
    const dict = read(stream("}q\x00U\x01kh\x00s.")) as Map<string, unknown>;
    expect(dict.get("k")).toBe(dict);
    // A tuple in itself, through a list, as Python writes it.
    const [tuple] = [read(stream("(]q\x00(h\x00tq\x01ah\x011h\x01."))] as [readonly [readonly unknown[]]];
    expect(tuple[0][0]).toBe(tuple);
    const object = read(stream("cm\nC\n)Rq\x00}U\x04selfh\x00sb.")) as PythonObject;
    expect((object.state as Map<string, unknown>).get("self")).toBe(object);
  });

  test("values are shared as the memo says", () => {
    const [a, b, c] = read(stream("(]q\x00h\x00]l.")) as unknown[];
    expect(a).toBe(b);
    expect(a).not.toBe(c);
    const [d, e] = read(stream("(]2l.")) as unknown[];
    expect(d).toBe(e);
  });

  test("keys keep their order, however they look", () => {
    const dict = read(
      pickled(
        new Map<unknown, unknown>([
          ["z", 1],
          ["10", 2],
          [5, 3],
          ["__proto__", 4],
          [null, 5],
        ]),
      ),
    );
    expect([...(dict as Map<unknown, unknown>).keys()]).toEqual(["z", "10", 5, "__proto__", null]);
    expect(Object.getPrototypeOf(dict)).toBe(Map.prototype);
  });

  test("frozensets are sets of their own class", () => {
    expect(read(stream("(K\x01K\x02\x91."))).toEqual(new FrozenSet([1, 2]));
  });

  test("bytes are copies of the stream", () => {
    const bytes = stream("C\x02ab.");
    const value = read(bytes) as Uint8Array;
    bytes.fill(0);
    expect([...value]).toEqual([0x61, 0x62]);
    expect(value.buffer.byteLength).toBe(2);
  });
});

describe("several pickles in a row", () => {
  test("each ends behind its STOP", () => {
    const bytes = stream("xx", pickled("one"), pickled(2), pickled(null), "rest");
    let at = 2;
    const values: unknown[] = [];
    for (let k = 0; k < 3; k++) {
      const { value, end } = readAll(bytes, { start: at });
      values.push(value);
      at = end;
    }
    expect(values).toEqual(["one", 2, null]);
    expect(Buffer.from(bytes.subarray(at)).toString()).toBe("rest");
  });

  test("in a part of a buffer, of shared memory, of a Node Buffer", () => {
    const content = stream("X\x03\x00\x00\x00abcX\x02\x00\x00\x00\xc3\xa9\x86.");
    const shared = new Uint8Array(new SharedArrayBuffer(100), 7, content.length);
    shared.set(content);
    const part = new Uint8Array(100).subarray(9, 9 + content.length);
    part.set(content);
    for (const bytes of [shared, part, Buffer.from(content)]) expect(read(bytes)).toEqual(Tuple.from(["abc", "é"]));
  });
});

describe("what only a live process could resolve", () => {
  test.each([
    ["EXT1", "\x82\x01."],
    ["EXT2", "\x83\x01\x00."],
    ["EXT4", "\x84\x01\x00\x00\x00."],
    ["NEXT_BUFFER", "\x97."],
    ["READONLY_BUFFER", "]\x98."],
  ])("%s is not supported, and says what is missing", (name, text) => {
    const error = thrownBy(() => read(stream(text))) as UnsupportedError;
    expect(error).toBeInstanceOf(UnsupportedError);
    expect(error.message).toContain(`opcode ${name}: `);
    expect(error.feature).toMatch(/^pickle's /);
  });
});

describe("integers", () => {
  test("LONG1 and LONG4 of any width are exact, and numbers where that is exact", () => {
    for (const power of [0n, 7n, 8n, 31n, 32n, 47n, 48n, 52n, 53n, 54n, 62n, 63n, 64n, 65n, 127n, 128n, 1000n, 2038n]) {
      for (const sign of [1n, -1n]) {
        for (const offset of [-1n, 0n, 1n]) {
          const exact = sign * 2n ** power + offset;
          const value = read(pickled(exact));
          expect(BigInt(value as bigint)).toBe(exact);
          expect(typeof value).toBe(Number.isSafeInteger(Number(exact)) ? "number" : "bigint");
        }
      }
    }
  });

  test("up to 64 KiB, and quickly", () => {
    const count = 64 * 1024;
    const digits = new Uint8Array(count).fill(0x55);
    const started = performance.now();
    expect(read(stream("\x8b", int32(count), digits, "."))).toBe(BigInt(`0x${"55".repeat(count)}`));
    expect(performance.now() - started).toBeLessThan(1000);
    const error = thrownBy(() => read(stream("\x8b", int32(count + 1), digits, "\x01."))) as UnsupportedError;
    expect(error).toBeInstanceOf(UnsupportedError);
    expect(error.message).toMatch(/opcode LONG4: an integer of 65537 bytes/);
  });
});
