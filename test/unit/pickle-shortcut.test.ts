/**
 * The shortcut for tensors gives what the long way gives, on what PyTorch writes and on anything else. `pickle-tensors.py`
 * makes the pickles.
 */
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FormatError, isTorchloadError } from "../../src/errors.js";
import type { PickleHandlers } from "../../src/pickle/handlers.js";
import { OrderedDict, PythonGlobal, PythonObject, Tuple } from "../../src/pickle/values.js";
import { int32, readAll, stream, thrownBy } from "./pickle-support.js";

/** A tensor as the handlers below make it. */
class TensorStub {
  readonly storage: readonly unknown[];
  readonly rest: readonly unknown[];
  parameter: readonly unknown[] | undefined = undefined;

  constructor(storage: readonly unknown[], rest: readonly unknown[]) {
    this.storage = storage;
    this.rest = rest;
  }
}

interface Counts {
  shortcuts: number;
  parameters: number;
  globals: number;
}

/** Handlers that make {@link TensorStub}s, with or without the shortcut. */
function tensorHandlers(way: "shortcut" | "long way"): PickleHandlers & { readonly counts: Counts } {
  const counts: Counts = { shortcuts: 0, parameters: 0, globals: 0 };
  const known = new Map<string, PythonGlobal>();
  const global = (module: string, name: string): PythonGlobal => {
    const qualified = `${module}.${name}`;
    const made = known.get(qualified) ?? new PythonGlobal(module, name);
    known.set(qualified, made);
    return made;
  };
  const rebuild = global("torch._utils", "_rebuild_tensor_v2");
  const orderedDict = global("collections", "OrderedDict");
  const rebuildParameter = global("torch._utils", "_rebuild_parameter");
  const parameter = (tensor: unknown, requiresGrad: unknown): unknown => {
    if (!(tensor instanceof TensorStub)) throw new TypeError("not a tensor");
    tensor.parameter = [requiresGrad];
    return tensor;
  };
  const handlers: PickleHandlers = {
    findGlobal(module, name) {
      counts.globals++;
      return global(module, name);
    },
    persistentLoad(id) {
      if (id instanceof Tuple && id[0] === "storage") return { storage: id.slice(1, 5) };
      throw new TypeError("not a storage");
    },
    reduce(callable, args) {
      if (callable === orderedDict && args.length === 0) return new OrderedDict();
      if (callable === rebuildParameter) return parameter(args[0], args[1]);
      if (callable !== rebuild) return new PythonObject(callable as PythonGlobal, args);
      const [storage, offset, size, stride, requiresGrad] = args as [
        { storage: unknown[] },
        number,
        Tuple,
        Tuple,
        boolean,
      ];
      const whole = Array.isArray(storage?.storage) && Array.isArray(size) && Array.isArray(stride);
      if (!whole) throw new TypeError("not the arguments of a tensor");
      return new TensorStub(storage.storage, [offset, [...size], [...stride], requiresGrad]);
    },
    newObject: (cls, args) => new PythonObject(cls as PythonGlobal, args),
    build(object, state) {
      if (object instanceof OrderedDict) object.attributes = state as Map<string, unknown>;
      return object;
    },
    extend() {
      throw new TypeError("no list");
    },
    setItems() {
      throw new TypeError("no dict");
    },
    ...(way === "long way"
      ? {}
      : {
          tensors: {
            rebuild,
            orderedDict,
            make(storageClass, key, location, numel, storageOffset, size, stride, requiresGrad) {
              counts.shortcuts++;
              expect(Object.isFrozen(size) && Object.isFrozen(stride)).toBe(true);
              const rest = [storageOffset, [...size], [...stride], requiresGrad];
              return new TensorStub([storageClass, key, location, numel], rest);
            },
            parameters: {
              rebuild: rebuildParameter,
              make(tensor, requiresGrad) {
                counts.parameters++;
                return parameter(tensor, requiresGrad);
              },
            },
          },
        }),
  };
  return { ...handlers, counts };
}

/** A shortcut is taken only where enough bytes follow for the longest run. */
const padding = new Uint8Array(2000);

/** The tensors in a value, in order of first mention. */
function tensorsIn(value: unknown): TensorStub[] {
  if (value instanceof TensorStub) return [value];
  if (value instanceof Map) return [...value.values()].flatMap(tensorsIn);
  return Array.isArray(value) ? value.flatMap(tensorsIn) : [];
}

type Row = readonly [name: string, start: number, hex: string, tensors: readonly (readonly unknown[])[]];
const pickles = readFileSync(new URL("pickle-tensors.jsonl", import.meta.url), "utf8")
  .trim()
  .split("\n")
  .map((line) => JSON.parse(line) as Row)
  .map(([name, start, hex, tensors]) => ({ name, start, bytes: Buffer.from(hex, "hex"), tensors }));

describe.each(pickles)("$name", ({ start, bytes, tensors }) => {
  const padded = stream(bytes, padding);

  test.each(["shortcut", "long way"] as const)("is what PyTorch saved, by the %s", (way) => {
    const handlers = tensorHandlers(way);
    const { value } = readAll(padded, { start }, handlers);
    const found = tensorsIn(value).map(({ storage, rest, parameter }) => {
      const [type, , , numel] = storage;
      const requiresGrad = parameter === undefined ? rest[3] : parameter[0];
      return [(type as PythonGlobal).name, numel, ...rest.slice(0, 3), requiresGrad, parameter !== undefined];
    });
    expect(found).toEqual(tensors);
    const first = tensors[0]?.[6] === true ? handlers.counts.parameters : handlers.counts.shortcuts;
    // All but the first of a pickle, in which the names are not yet memoised, and those that appear again.
    if (way === "shortcut") expect(first).toBeGreaterThanOrEqual(new Set(tensorsIn(value)).size - 5);
  });

  test("is the same by both ways, with the same sharing", () => {
    const short = readAll(padded, { start }, tensorHandlers("shortcut"));
    const long = readAll(padded, { start }, tensorHandlers("long way"));
    expect(short).toEqual(long);
    const order = (value: unknown): number[] => {
      const seen = tensorsIn(value);
      return seen.map((tensor) => seen.indexOf(tensor));
    };
    expect(order(short.value)).toEqual(order(long.value));
  });

  test("is the same by both ways when bytes of it are changed", () => {
    const end = readAll(bytes, { start }, tensorHandlers("long way")).end;
    const places = fc.array(fc.tuple(fc.integer({ min: start, max: end - 1 }), fc.nat(255)), {
      minLength: 1,
      maxLength: 3,
    });
    fc.assert(
      fc.property(places, (changes) => {
        const changed = Uint8Array.from(padded);
        for (const [at, byte] of changes) changed[at] = byte;
        const outcome = (way: "shortcut" | "long way"): unknown => {
          try {
            return readAll(changed, { start }, tensorHandlers(way));
          } catch (error) {
            expect(isTorchloadError(error)).toBe(true);
            return "refused";
          }
        };
        expect(outcome("shortcut")).toEqual(outcome("long way"));
      }),
      { numRuns: 100 },
    );
  });
});

/** A tensor of sizes [2, 3] whose names are memoised at 0 (function), 1 (`storage`), 2 (class), 3 (location), 4 (hooks). */
function run(index: number, key: string): Uint8Array {
  const put = (k: number): string => `q${String.fromCharCode(index + k)}`;
  return stream(
    "h\x00((h\x01h\x02X",
    int32(key.length),
    `${key}${put(0)}h\x03K\x06t${put(1)}QK\x00K\x02K\x03\x86${put(2)}K\x03K\x01\x86${put(3)}\x89h\x04)R${put(4)}t${put(5)}R${put(6)}`,
  );
}

const names = stream(
  "ctorch._utils\n_rebuild_tensor_v2\nq\x000",
  "X\x07\x00\x00\x00storageq\x010ctorch\nFloatStorage\nq\x020X\x03\x00\x00\x00cpuq\x030ccollections\nOrderedDict\nq\x040",
);

describe("what the shortcut leaves out", () => {
  const taken = (bytes: Uint8Array) => {
    const handlers = tensorHandlers("shortcut");
    return { ...readAll(stream(bytes, padding), {}, handlers), counts: handlers.counts };
  };
  const kinds = ["key", "persistent id", "size", "stride", "hooks", "arguments", "tensor"];

  test.each(kinds.map((kind, k) => [kind, k] as const))("is there when it is asked for: the %s", (_, k) => {
    const bytes = stream("\x80\x02]", names, "(", run(10, "0"), run(20, "1"), "h", 10 + k, "h", 20 + k, "e.");
    const { value, counts } = taken(bytes);
    expect(value).toEqual(readAll(bytes, {}, tensorHandlers("long way")).value);
    const [first, second, a, b] = value as unknown[];
    expect(a).not.toBe(b);
    if (k === 6) expect([a, b]).toEqual([first, second]);
    if (k === 2) expect(a).toBeInstanceOf(Tuple);
    // The key and the tensor are memoised; for the others the stream is read again, without the shortcut.
    expect(counts.shortcuts).toBe(2);
    expect(counts.globals).toBe(k === 0 || k === 6 ? 3 : 6);
  });

  test("is not taken for a value that an index had before", () => {
    const bytes = stream(
      "\x80\x02]",
      names,
      "(K\x05q\x1dX\x01\x00\x00\x00xq\x0c",
      run(10, "0"),
      run(30, "1"),
      "h\x0ch\x1de.",
    );
    const { value } = taken(bytes);
    expect(value).toEqual(readAll(bytes, {}, tensorHandlers("long way")).value);
    expect((value as unknown[])[4]).toBeInstanceOf(Tuple);
    expect((value as unknown[])[5]).toBe(5);
  });

  test("is counted by MEMOIZE", () => {
    const bytes = stream("\x80\x04]", names, "(", run(10, "0"), "]\x94h\x0c\x94e.");
    expect(taken(bytes).value).toEqual(readAll(bytes, {}, tensorHandlers("long way")).value);
  });

  test("is no excuse for an index that was never set", () => {
    const bytes = stream("\x80\x02]", names, "(", run(10, "0"), "h\xc8e.");
    expect(thrownBy(() => taken(bytes))).toBeInstanceOf(FormatError);
  });

  test("are the arguments of other calls, too", () => {
    const handlers = tensorHandlers("shortcut");
    const bytes = stream("\x80\x02](cm\nf\n(K\x01K\x02tq\x00Rcm\nf\nK\x01\x85q\x01R", "h\x00h\x01e.");
    const { value } = readAll(bytes, {}, handlers);
    const [, , a, b] = value as unknown[];
    expect(a).toEqual(Tuple.from([1, 2]));
    expect(b).toEqual(Tuple.from([1]));
    expect(handlers.counts.globals).toBe(4);
  });
});

describe("the shortcut is taken", () => {
  test.each([
    ["for a legacy id", "h\x03K\x06Nt", 1],
    ["for PUTs that are left out", "h\x03K\x06t", 1],
    ["not for view metadata", "h\x03K\x06(X\x01\x00\x00\x00vK\x00K\x06tt", 0],
    ["not for an id of four", "h\x03t", 0],
    ["not for a number of elements that is a float", "h\x03G@\x18\x00\x00\x00\x00\x00\x00t", 0],
    ["not for a location that is no text", "h\x02K\x06t", 0],
  ])("%s", (_, id, shortcuts) => {
    const handlers = tensorHandlers("shortcut");
    const bytes = stream(
      names,
      "h\x00((h\x01h\x02X\x01\x00\x00\x00kq\x0a",
      id,
      "QK\x00K\x06\x85K\x01\x85\x89h\x04)RtR.",
    );
    const { value } = readAll(stream(bytes, padding), {}, handlers);
    expect(value).toEqual(readAll(bytes, {}, tensorHandlers("long way")).value);
    expect(handlers.counts.shortcuts).toBe(shortcuts);
  });

  test("with keys that are numbers, nearly numbers, and not", () => {
    for (const key of [
      "0",
      "7",
      "42",
      "123456789",
      "1234567890",
      "00",
      "01",
      "-1",
      "1e3",
      "",
      "a/b",
      "x".repeat(255),
    ]) {
      const handlers = tensorHandlers("shortcut");
      const { value } = readAll(stream(names, run(10, key), ".", padding), {}, handlers);
      expect((value as TensorStub).storage[1]).toBe(key);
      expect(handlers.counts.shortcuts).toBe(1);
    }
  });

  test("with as many dimensions as PyTorch has", () => {
    for (const dimensions of [0, 1, 2, 3, 4, 5, 64, 65]) {
      const handlers = tensorHandlers("shortcut");
      const items = Array.from({ length: dimensions }, (_, k) => (k % 3 === 0 ? 70000 + k : k % 3 === 1 ? 300 + k : k));
      const int = (item: number): Uint8Array => stream("J", int32(item));
      const tuple = stream(...(dimensions === 0 ? [")"] : ["(", ...items.map(int), "t"]));
      const bytes = stream(
        names,
        "h\x00((h\x01h\x02X\x01\x00\x00\x00kh\x03K\x06tQK\x00",
        tuple,
        tuple,
        "\x88h\x04)RtR.",
      );
      const { value } = readAll(stream(bytes, padding), {}, handlers);
      expect((value as TensorStub).rest).toEqual([0, items, items, true]);
      expect(handlers.counts.shortcuts).toBe(dimensions > 0 && dimensions < 4 ? 1 : dimensions <= 64 ? 1 : 0);
    }
  });
});
