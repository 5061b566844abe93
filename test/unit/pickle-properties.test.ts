/** Properties: arbitrary values come back from the small pickler of pickle-support.ts, and no bytes do harm. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FormatError, isTorchloadError } from "../../src/errors.js";
import { OPCODES } from "../../src/pickle/opcodes.js";
import { ByteArray, Complex, FrozenSet, OrderedDict, type Tuple, tupleOf } from "../../src/pickle/values.js";
import { builtinHandlers, comparable, pickled, read, stream } from "./pickle-support.js";

const scalar = fc.oneof(
  fc.constant(null),
  fc.boolean(),
  fc.integer(),
  fc.maxSafeInteger(),
  fc.double(),
  fc.bigInt({ min: -(2n ** 300n), max: 2n ** 300n }).map((value) => {
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : value;
  }),
  fc.string({ unit: "binary" }),
  fc.constantFrom("__proto__", "constructor", "\ud800", "\udc00x", ""),
  fc.uint8Array().map((bytes) => Uint8Array.from(bytes)),
  fc.uint8Array().map((bytes) => new ByteArray(bytes)),
  fc.tuple(fc.double(), fc.double()).map(([re, im]) => new Complex(re, im)),
);

/** Keys that Python and JavaScript compare alike. */
const key = fc.oneof(
  fc.constant(null),
  fc.integer({ min: 2 }),
  fc.string({ unit: "binary" }),
  fc.bigInt({ min: 2n ** 60n }),
);

const value = fc.letrec((tie) => ({
  any: fc.oneof({ depthSize: "small", withCrossShrink: true }, scalar, tie("container")),
  container: fc.oneof(
    fc.array(tie("any")),
    fc.array(tie("any")).map((items) => tupleOf(items)),
    fc.array(fc.tuple(key, tie("any"))).map((entries) => new Map(entries)),
    fc.array(fc.tuple(key, tie("any"))).map((entries) => new OrderedDict(entries)),
    fc.array(key).map((items) => new Set(items)),
    fc.array(key).map((items) => new FrozenSet(items)),
  ),
})).any;

describe("values", () => {
  test("come back as they were pickled", () => {
    fc.assert(
      fc.property(value, (given) => {
        expect(comparable(read(pickled(given)))).toEqual(comparable(given));
      }),
      { numRuns: 400 },
    );
  });

  test("come back from any place in a buffer", () => {
    fc.assert(
      fc.property(value, fc.nat(50), (given, start) => {
        const bytes = stream(new Uint8Array(start).fill(0x2e), pickled(given), "trailing");
        expect(comparable(read(bytes, { start }))).toEqual(comparable(given));
      }),
    );
  });
});

/** Handlers that take anything and throw nothing, so that whatever is thrown is the machine's. */
const lenient = {
  ...builtinHandlers(),
  persistentLoad: (id: unknown) => ({ id }),
  reduce: (callable: unknown, args: readonly unknown[]) => ({ callable, args }),
  newObject: (cls: unknown, args: readonly unknown[]) => ({ cls, args }),
  build: (object: unknown) => object,
  extend: () => undefined,
  setItems: () => undefined,
};

/** The bytes give a value, or an error of the library that no fault of its own caused. */
function survives(bytes: Uint8Array): void {
  const started = performance.now();
  for (const encoding of [undefined, "ascii", "bytes"] as const) {
    try {
      read(bytes, { encoding }, lenient);
    } catch (error) {
      expect(isTorchloadError(error)).toBe(true);
      expect((error as FormatError).cause).toBeUndefined();
    }
  }
  expect(performance.now() - started).toBeLessThan(2000);
}

describe("no bytes do harm", () => {
  test("random ones", () => {
    fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), survives), { numRuns: 2000 });
  });

  test("random opcodes with random arguments", () => {
    const codes = OPCODES.map(({ code }) => code);
    const part = fc.oneof(
      { weight: 4, arbitrary: fc.constantFrom(...codes).map((code) => Uint8Array.of(code)) },
      { weight: 2, arbitrary: fc.nat(6).map((small) => Uint8Array.of(small)) },
      {
        weight: 1,
        arbitrary: fc
          .constantFrom("m\nC\n", "I1\n", "5\n", "'a'\n", "(", "(", "]", "}", ")", "N", "K\x01")
          .map((text) => stream(text)),
      },
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 80 }), (parts) => survives(stream(...parts, "."))),
      { numRuns: 5000 },
    );
  });

  test("pickles with bytes changed, cut out, and repeated", () => {
    const change = fc.record({
      at: fc.nat(),
      kind: fc.constantFrom("set", "remove", "repeat"),
      byte: fc.oneof(fc.nat(255), fc.constantFrom(...OPCODES.map(({ code }) => code))),
    });
    fc.assert(
      fc.property(value, fc.array(change, { minLength: 1, maxLength: 6 }), (given, changes) => {
        let bytes = [...pickled(given)];
        for (const { at, kind, byte } of changes) {
          const place = at % bytes.length;
          if (kind === "set") bytes[place] = byte;
          else if (kind === "remove" && bytes.length > 1) bytes.splice(place, 1);
          else bytes = [...bytes.slice(0, place + 1), ...bytes.slice(Math.max(0, place - 5))];
        }
        survives(Uint8Array.from(bytes));
      }),
      { numRuns: 1000 },
    );
  });

  test("pickles that end anywhere: an error, and never a value", () => {
    fc.assert(
      fc.property(value, fc.nat(), (given, cut) => {
        const bytes = pickled(given);
        expect(() => read(bytes.subarray(0, cut % bytes.length))).toThrow(FormatError);
      }),
      { numRuns: 300 },
    );
  });
});

test("tuples are frozen", () => {
  const tuple = read(pickled(tupleOf([1, "a"]))) as Tuple;
  expect(() => (tuple as unknown[]).push(3)).toThrow(TypeError);
});
