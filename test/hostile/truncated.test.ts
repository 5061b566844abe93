import { closeSync, ftruncateSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { isTorchloadError, load, open, type TorchloadError } from "../../src/index.js";
import { Comparison } from "../support/expected.js";
import { fixture } from "../support/fixtures.js";
import { checkError, descriptorsOf, failure, fileOf } from "./refusal.js";

const zips = ["torch-2.11/bare-tensor.zip", "torch-1.13/bare-tensor.zip", "torch-1.13/rezipped-deflated"];
const legacies = ["torch-2.11/bare-tensor.legacy", "torch-1.13/tied.legacy", "torch-1.13/protocol4.legacy"];

test.each([...zips, ...legacies])(
  "%s cut at any byte is refused by its name, in memory and in a file",
  async (name) => {
    const bytes = readFileSync(fixture(name).path);
    const path = fileOf(bytes);
    for (let length = bytes.length - 1; length >= 0; length--) {
      checkError(await failure(() => load(new Uint8Array(bytes.subarray(0, length)))), "bytes");
      const file = openSync(path, "r+");
      ftruncateSync(file, length);
      closeSync(file);
      checkError(await failure(() => open(path)), path);
      checkError(await failure(() => load(path)), path);
    }
    expect(descriptorsOf(path)).toEqual([]);
  },
);

test.each([...zips, ...legacies])("%s with bytes behind its end has the values that it has without", async (name) => {
  const { path, expected } = fixture(name);
  const bytes = readFileSync(path);
  for (const more of [1, 7, 22, 100, 5000]) {
    const longer = new Uint8Array(bytes.length + more);
    longer.set(bytes);
    await new Comparison().compare(await load(longer), expected.value);
  }
});

test.each(["torch-1.13/state-dict.zip", "torch-1.13/state-dict.legacy"])(
  "%s without any of its bytes at one place is refused, or has all its values",
  async (name) => {
    const { path, expected } = fixture(name);
    const bytes = readFileSync(path);
    let refusals = 0;
    for (let at = 0; at < bytes.length; at++) {
      const shorter = new Uint8Array(bytes.length - 1);
      shorter.set(bytes.subarray(0, at));
      shorter.set(bytes.subarray(at + 1), at);
      const loading = await load(shorter).catch((error: unknown) => error);
      if (isTorchloadError(loading)) refusals++;
      else expect(loading instanceof Error, `${loading}`).toBe(false);
    }
    expect(refusals).toBeGreaterThan(bytes.length / 2);
    await new Comparison().compare(await load(new Uint8Array(bytes)), expected.value);
  },
);

test("a file that is cut while it is open is refused", async () => {
  for (const name of ["torch-2.11/bare-tensor.zip", "torch-2.11/bare-tensor.legacy"]) {
    for (const mmap of [true, false]) {
      const bytes = readFileSync(fixture(name).path);
      const path = fileOf(bytes);
      const checkpoint = await open(path);
      writeFileSync(path, bytes.subarray(0, 300));
      const error = (await failure(() => checkpoint.load({ mmap }))) as TorchloadError;
      expect(isTorchloadError(error), `${name} ${mmap}: ${error}`).toBe(true);
      expect(error.file).toBe(path);
      await checkpoint.close();
      expect(descriptorsOf(path)).toEqual([]);
    }
  }
});
