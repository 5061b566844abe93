import { closeSync, ftruncateSync, openSync, readFileSync, writeSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isTorchloadError, load, type OpenOptions, open, Tensor } from "../../src/index.js";
import { summarize } from "../../src/inspect/index.js";
import { KNOWN_GLOBALS } from "../../src/torch/globals.js";
import {
  code,
  concat,
  float,
  floats,
  get,
  global,
  int,
  ints,
  legacyCheckpoint,
  op,
  put,
  storage,
  tensor,
  text,
  zipCheckpoint,
} from "../support/bad-files.js";
import { fixture } from "../support/fixtures.js";
import { descriptorsOf, fileOf } from "./refusal.js";

/** How often and how long each property is tried; TORCHLOAD_FUZZ multiplies both, for a longer search. */
const EFFORT = Number(process.env.TORCHLOAD_FUZZ ?? 1);
const RUNS = 1000 * EFFORT;
const TIME_LIMIT_MS = 5000 * EFFORT;

/** Small files of many kinds. */
const names = [
  "torch-2.11/bare-tensor.zip",
  "torch-2.11/state-dict.zip",
  "torch-1.13/views.zip",
  "torch-1.13/tied.zip",
  "torch-1.13/parameters.zip",
  "torch-1.13/conj-neg.zip",
  "torch-1.13/protocol4.zip",
  "torch-1.13/big-endian",
  "torch-1.13/rezipped-deflated",
  "torch-1.13/rezipped-zip64",
  "torch-2.11/bare-tensor.legacy",
  "torch-1.13/state-dict.legacy",
  "torch-1.13/tied.legacy",
  "torch-1.13/module.legacy",
  "torch-1.13/protocol2.legacy",
  "torch-1.13/float-tensor-build",
  "torch-1.13/python2-strings",
] as const;

const originals = names.map((name) => new Uint8Array(readFileSync(fixture(name).path)));

/** A change to bytes. Places are fractions of the length, so that they shrink with it. */
type Change =
  | { readonly kind: "set"; readonly at: number; readonly value: number }
  | { readonly kind: "flip"; readonly at: number; readonly bit: number }
  | { readonly kind: "cut"; readonly at: number; readonly length: number }
  | { readonly kind: "end"; readonly at: number }
  | { readonly kind: "insert"; readonly at: number; readonly bytes: Uint8Array }
  | { readonly kind: "copy"; readonly at: number; readonly from: number; readonly length: number }
  | {
      readonly kind: "splice";
      readonly at: number;
      readonly other: number;
      readonly from: number;
      readonly length: number;
    }
  | { readonly kind: "number"; readonly at: number; readonly value: number };

const place = fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true });
const length = fc.integer({ min: 1, max: 64 });
/** Numbers that are the edge of something. */
const edges = fc.constantFrom(0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff);

const change: fc.Arbitrary<Change> = fc.oneof(
  fc.record({ kind: fc.constant("set" as const), at: place, value: fc.integer({ min: 0, max: 255 }) }),
  fc.record({ kind: fc.constant("flip" as const), at: place, bit: fc.integer({ min: 0, max: 7 }) }),
  fc.record({ kind: fc.constant("cut" as const), at: place, length }),
  fc.record({ kind: fc.constant("end" as const), at: place }),
  fc.record({ kind: fc.constant("insert" as const), at: place, bytes: fc.uint8Array({ minLength: 1, maxLength: 16 }) }),
  fc.record({ kind: fc.constant("copy" as const), at: place, from: place, length }),
  fc.record({
    kind: fc.constant("splice" as const),
    at: place,
    other: fc.nat(names.length - 1),
    from: place,
    length: fc.integer({ min: 1, max: 400 }),
  }),
  fc.record({ kind: fc.constant("number" as const), at: place, value: edges }),
);

function replaced(bytes: Uint8Array, at: number, count: number, by: Uint8Array): Uint8Array {
  const end = Math.min(bytes.length, at + count);
  const result = new Uint8Array(at + by.length + bytes.length - end);
  result.set(bytes.subarray(0, at));
  result.set(by, at);
  result.set(bytes.subarray(end), at + by.length);
  return result;
}

function changed(bytes: Uint8Array, made: Change): Uint8Array {
  const at = Math.floor(made.at * bytes.length);
  switch (made.kind) {
    case "set":
      return replaced(bytes, at, 1, Uint8Array.of(made.value));
    case "flip":
      return replaced(bytes, at, 1, Uint8Array.of((bytes[at] as number) ^ (1 << made.bit)));
    case "cut":
      return replaced(bytes, at, made.length, new Uint8Array(0));
    case "end":
      return bytes.slice(0, at);
    case "insert":
      return replaced(bytes, at, 0, made.bytes);
    case "copy": {
      const from = Math.floor(made.from * bytes.length);
      const part = bytes.slice(from, from + made.length);
      return replaced(bytes, at, part.length, part);
    }
    case "splice": {
      const other = originals[made.other] as Uint8Array;
      const from = Math.floor(made.from * other.length);
      return replaced(bytes, at, 0, other.slice(from, from + made.length));
    }
    case "number": {
      const part = new Uint8Array(4);
      new DataView(part.buffer).setUint32(0, made.value, true);
      return replaced(bytes, at, 4, part);
    }
    default:
      return made satisfies never;
  }
}

const mutant = fc
  .tuple(fc.nat(names.length - 1), fc.array(change, { minLength: 1, maxLength: 3 }))
  .map(([index, changes]) => {
    let bytes = originals[index] as Uint8Array;
    for (const made of changes) if (bytes.length > 0) bytes = changed(bytes, made);
    return bytes;
  });

/** Largest read-out of a mutant that is tried, in elements: what an expanded view claims may be anything. */
const MAX_READ = 10_000;

/** Reads every tensor; each must have the shape that it says, over bytes that are there. */
function checkTensors(tensors: Iterable<Tensor>): void {
  for (const tensor of tensors) {
    if (String(tensor.device) !== "cpu") continue;
    expect(tensor.storage.bytes.length).toBe(tensor.storage.nbytes);
    if (tensor.numel > MAX_READ) continue;
    expect(tensor.toTypedArray().length).toBe(tensor.numel * tensor.dtype.lanes);
    expect(([tensor.toArray()] as unknown[]).flat(64).length).toBe(tensor.numel);
    expect(tensor.toFloat32Array().length).toBe(tensor.numel * tensor.dtype.lanes);
  }
}

/** Loads one mutant; what comes must be right in shape, or an error of the library about the file. */
async function tryMutant(input: string | Uint8Array, options: OpenOptions): Promise<"loaded" | "refused"> {
  const file = typeof input === "string" ? input : "bytes";
  let checkpoint: Awaited<ReturnType<typeof open>>;
  try {
    checkpoint = await open(input, options);
  } catch (error) {
    checkRefusal(error, file);
    const again = await load(input, options).then(
      () => undefined,
      (other: unknown) => other,
    );
    expect((again as Error).message).toBe((error as Error).message);
    return "refused";
  }
  try {
    for (const tensor of checkpoint.tensors().values()) expect(tensor).toBeInstanceOf(Tensor);
    expect(JSON.parse(JSON.stringify(summarize(checkpoint))).tensors.length).toBe(checkpoint.tensors().size);
    const loaded = new Map<string, Tensor>();
    for (const name of checkpoint.tensors().keys()) loaded.set(name, await checkpoint.load(name));
    checkTensors(loaded.values());
    await checkpoint.load({ mmap: false });
    await load(input, options);
    return "loaded";
  } catch (error) {
    if (!isTorchloadError(error)) throw error;
    checkRefusal(error, file);
    return "refused";
  } finally {
    await checkpoint.close();
  }
}

function checkRefusal(error: unknown, file: string): void {
  if (!isTorchloadError(error)) throw new Error(`not an error of the library: ${(error as Error)?.stack ?? error}`);
  expect(error.file).toBe(file);
  expect(error.message).toContain(`"${file}"`);
  expect(error.message.endsWith(".")).toBe(false);
}

describe.each([
  ["weights only", { weightsOnly: true }],
  ["with all names let through", { weightsOnly: false }],
])("changed files, %s", (_, options) => {
  test("give values or errors of the library, from memory", { timeout: 4 * TIME_LIMIT_MS + 30_000 }, async () => {
    const unseen: unknown[] = [];
    const note = (reason: unknown): number => unseen.push(reason);
    process.on("unhandledRejection", note);
    const outcomes = { loaded: 0, refused: 0 };
    await fc.assert(
      fc.asyncProperty(mutant, async (bytes) => {
        const started = performance.now();
        outcomes[await tryMutant(bytes, options)]++;
        expect(performance.now() - started).toBeLessThan(2000);
      }),
      { numRuns: RUNS, interruptAfterTimeLimit: TIME_LIMIT_MS, markInterruptAsFailure: false },
    );
    await new Promise((resolve) => setTimeout(resolve, 20));
    process.off("unhandledRejection", note);
    expect(unseen).toEqual([]);
    // Neither is everything refused nor is nothing.
    expect(outcomes.loaded).toBeGreaterThan(0);
    expect(outcomes.refused).toBeGreaterThan(0);
  });

  test("give values or errors of the library, from a file, and leave no descriptor open", {
    timeout: 4 * TIME_LIMIT_MS + 30_000,
  }, async () => {
    const path = fileOf(new Uint8Array(0));
    await fc.assert(
      fc.asyncProperty(mutant, async (bytes) => {
        const fd = openSync(path, "r+");
        ftruncateSync(fd, 0);
        writeSync(fd, bytes, 0, bytes.length, 0);
        closeSync(fd);
        await tryMutant(path, options);
      }),
      { numRuns: RUNS / 4, interruptAfterTimeLimit: TIME_LIMIT_MS, markInterruptAsFailure: false },
    );
    expect(descriptorsOf(path)).toEqual([]);
  });
});

/** Opcodes with arguments that fit, and what checkpoints are made of. */
const piece: fc.Arbitrary<Uint8Array> = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(...Object.values(op).filter((bytes) => bytes !== op.STOP)) },
  { weight: 3, arbitrary: fc.oneof(fc.integer({ min: -2, max: 8 }), edges, fc.bigInt()).map(int) },
  { weight: 1, arbitrary: fc.double().map(float) },
  {
    weight: 2,
    arbitrary: fc
      .oneof(fc.constantFrom("storage", "0", "1", "cpu", "cuda:0", "conj", "__proto__", "latin1"), fc.string())
      .map((value) => text(value)),
  },
  {
    weight: 4,
    arbitrary: fc
      .constantFrom(...KNOWN_GLOBALS.keys())
      .map((name) => global(name.slice(0, name.lastIndexOf(".")), name.slice(name.lastIndexOf(".") + 1))),
  },
  { weight: 2, arbitrary: fc.nat(7).map(put) },
  { weight: 3, arbitrary: fc.nat(7).map(get) },
  { weight: 3, arbitrary: fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 3 }).map((sizes) => ints(...sizes)) },
  { weight: 3, arbitrary: fc.constantFrom("0", "1").map((key) => storage(key)) },
  { weight: 2, arbitrary: fc.constantFrom("0", "1").map((key) => tensor(storage(key))) },
  { weight: 1, arbitrary: fc.array(fc.nat(255), { maxLength: 3 }).map((bytes) => code(...bytes)) },
);

/** Calls of what is known with arguments of any kind: deeper than chance would build them. */
const calls: fc.Arbitrary<Uint8Array> = fc
  .tuple(
    fc.constantFrom(...KNOWN_GLOBALS.keys()),
    fc.array(piece, { maxLength: 8 }),
    fc.constantFrom(op.REDUCE, op.NEWOBJ),
    fc.option(fc.array(piece, { maxLength: 6 })),
  )
  .map(([name, args, opcode, state]) => {
    const dot = name.lastIndexOf(".");
    const made = concat(global(name.slice(0, dot), name.slice(dot + 1)), op.MARK, ...args, op.TUPLE, opcode);
    return state === null ? made : concat(made, op.MARK, ...state, op.TUPLE, op.BUILD);
  });

const program = fc
  .array(fc.oneof({ weight: 2, arbitrary: piece }, { weight: 1, arbitrary: calls }), { maxLength: 24 })
  // What is left on the stack becomes a tuple, so that everything that was made is looked at.
  .map((pieces) => concat(op.MARK, ...pieces, op.TUPLE));

describe.each([true, false])("pickles of random opcodes, weightsOnly: %s", (weightsOnly) => {
  test("give values or errors of the library", { timeout: 4 * TIME_LIMIT_MS + 30_000 }, async () => {
    const outcomes = { loaded: 0, refused: 0 };
    const contents = { "0": floats(1, 2, 3, 4), "1": floats(5, 6, 7, 8) };
    await fc.assert(
      fc.asyncProperty(program, async (value) => {
        outcomes[await tryMutant(zipCheckpoint(value, contents), { weightsOnly })]++;
        const storages = Object.entries(contents).map(([key, content]) => ({ key, content }));
        await tryMutant(legacyCheckpoint(value, storages), { weightsOnly });
      }),
      { numRuns: RUNS, interruptAfterTimeLimit: TIME_LIMIT_MS, markInterruptAsFailure: false },
    );
    expect(outcomes.loaded).toBeGreaterThan(0);
    expect(outcomes.refused).toBeGreaterThan(0);
  });
});
