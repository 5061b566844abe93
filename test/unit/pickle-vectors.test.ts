/**
 * Streams of Python's own pickler, and streams that no pickler writes, against what Python reads from them.
 * `pickle-vectors.py` makes them.
 */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { FormatError, isTorchloadError, UnsupportedError } from "../../src/errors.js";
import { builtinHandlers, comparable, expectedForm, read, readAll, thrownBy } from "./pickle-support.js";

type Verdict = { readonly value: unknown } | { readonly error: true };
type Row = readonly [kind: string, name: string, streams: readonly string[], verdict: Verdict];

const rows = readFileSync(new URL("pickle-vectors.jsonl", import.meta.url), "utf8")
  .trim()
  .split("\n")
  .map((line) => JSON.parse(line) as Row);
const of = (kind: string) =>
  rows.filter((row) => row[0] === kind).map(([, name, hex, verdict]) => ({ name, hex, verdict }));

describe("what Python writes is read as what it was", () => {
  describe.each(of("value"))("$name", ({ hex, verdict }) => {
    test.each(hex.map((text, protocol) => [protocol, text] as const))("in protocol %s", (_, text) => {
      const bytes = Buffer.from(text, "hex");
      const { value, end } = readAll(bytes);
      expect(comparable(value)).toEqual(expectedForm((verdict as { value: unknown }).value));
      expect(end).toBe(bytes.length);
    });
  });
});

test.each(of("stream"))("Python and this library agree on: $name", ({ hex, verdict }) =>
  check(hex[0] as string, verdict),
);

test.each(of("mutant"))("Python and this library agree on mutant $name", ({ hex, verdict }) =>
  check(hex[0] as string, verdict),
);

function check(hex: string, verdict: Verdict): void {
  const bytes = Buffer.from(hex, "hex");
  const handlers = builtinHandlers([], true);
  // The default of Python; that of PyTorch is UTF-8.
  const options = { encoding: "ascii" } as const;
  if ("value" in verdict) {
    expect(comparable(read(bytes, options, handlers))).toEqual(expectedForm(verdict.value));
    return;
  }
  const error = thrownBy(() => read(bytes, options, handlers));
  expect(isTorchloadError(error)).toBe(true);
  expect(error).toSatisfy((thrown) => thrown instanceof FormatError || thrown instanceof UnsupportedError);
}
