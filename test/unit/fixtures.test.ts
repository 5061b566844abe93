import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { isTorchloadError, load, open } from "../../src/index.js";
import { Comparison } from "../support/expected.js";
import { fixtures } from "../support/fixtures.js";

/** Types that PyTorch's weights-only list has and a version's own unpickler cannot read for another reason. */
const ways = {
  mapped: (path: string) => ({ input: path, options: {} }),
  read: (path: string) => ({ input: path, options: { mmap: false } }),
  "from bytes": (path: string) => ({ input: new Uint8Array(readFileSync(path)), options: {} }),
  "from a blob": (path: string) => ({ input: new Blob([readFileSync(path)]), options: {} }),
};

describe.each(fixtures())("$name", ({ path, expected }) => {
  const offset = expected.offset === undefined ? {} : { offset: expected.offset };

  test.each(Object.entries(ways))("has the values that PyTorch has, %s", async (_, way) => {
    const { input, options } = way(path);
    const value = await load(input, { weightsOnly: false, ...offset, ...options });
    await new Comparison().compare(value, expected.value);
  });

  test("opens with tensors that describe the same", async () => {
    const checkpoint = await open(path, { weightsOnly: false, ...offset });
    for (const tensor of checkpoint.tensors().values()) expect(String(tensor.device)).toBe("meta");
    for (const [name, tensor] of checkpoint.tensors()) {
      if (tensor.storage.location === "meta") continue;
      const loaded = await checkpoint.load(name);
      expect(String(loaded.device)).toBe("cpu");
      expect(loaded.shape).toEqual(tensor.shape);
    }
    await checkpoint.close();
  });

  test("is read weights-only when PyTorch reads it so", async () => {
    const loading = load(path, offset);
    if (expected.weightsOnly) await expect(loading).resolves.toBeDefined();
    else await loading.catch((error) => expect(isTorchloadError(error)).toBe(true));
  });
});
