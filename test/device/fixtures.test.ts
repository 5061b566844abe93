import { readFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { pinnedSlots } from "../../src/device/cuda/staging.js";
import { load, Tensor } from "../../src/index.js";
import { namedTensors } from "../../src/tensor/named-tensors.js";
import { Comparison } from "../support/expected.js";
import { FakeCuda } from "../support/fake-cuda.js";
import { fixtures } from "../support/fixtures.js";

let fake: FakeCuda;

beforeEach(() => {
  fake = FakeCuda.install({ delay: 2 });
});

afterEach(() => {
  expect(fake.faults).toEqual([]);
  expect(pinnedSlots().every((slot) => slot.idle())).toBe(true);
  fake.uninstall();
});

const ways = {
  path: (path: string) => path,
  bytes: (path: string) => new Uint8Array(readFileSync(path)),
  blob: (path: string) => new Blob([readFileSync(path)]),
};

describe.each(["cpu", "cuda:0", "cuda:1"])("on %s", (device) => {
  describe.each(fixtures())("$name", ({ path, expected }) => {
    const offset = expected.offset === undefined ? {} : { offset: expected.offset };

    test.each(Object.entries(ways))("has the values that PyTorch has, from %s", async (_, way) => {
      const value = await load(way(path), { weightsOnly: false, mapLocation: device, ...offset });
      await new Comparison((tensor) => tensor.to("cpu")).compare(value, expected.value);
      const tensors = [...(value instanceof Tensor ? [value] : namedTensors(value).values())];
      for (const tensor of tensors) tensor.dispose();
    });
  });
});
