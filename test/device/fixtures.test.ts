import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { load, open } from "../../src/index.js";
import { Comparison } from "../support/expected.js";
import { fixtures } from "../support/fixtures.js";
import { disposeAll, storagesOf, useFakeCuda } from "./device-support.js";

// Copies that take a while, so that none may be counted on before it was waited for.
const cuda = useFakeCuda({ delay: 2 });

const ways = {
  "a path": (path: string) => path,
  bytes: (path: string) => new Uint8Array(readFileSync(path)),
  "a blob": (path: string) => new Blob([readFileSync(path)]),
};

const readBack = () => new Comparison((tensor) => tensor.to("cpu"));

describe.each(["cpu", "cuda:0", "cuda:1"])("on %s", (device) => {
  describe.each(fixtures())("$name", ({ path, expected }) => {
    const offset = expected.offset === undefined ? {} : { offset: expected.offset };

    test.each(Object.entries(ways))("has the values that PyTorch has, from %s", async (_, way) => {
      const value = await load(way(path), { weightsOnly: false, mapLocation: device, ...offset });
      for (const storage of storagesOf(value)) {
        if (storage.location !== "meta") expect(String(storage.device)).toBe(device);
      }
      await readBack().compare(value, expected.value);
      disposeAll(value);
    });

    test("has them again from a file that is open, whole and tensor by tensor", async () => {
      await using checkpoint = await open(path, { weightsOnly: false, ...offset });
      const value = await checkpoint.load({ mapLocation: device });
      await readBack().compare(value, expected.value);
      for (const [name, described] of checkpoint.tensors()) {
        if (described.storage.location === "meta") continue;
        const tensor = await checkpoint.load(name, { device });
        expect(String(tensor.device)).toBe(device);
        expect(String(described.device)).toBe("meta");
        expect((await tensor.to("cpu")).storage.bytes.length).toBeLessThanOrEqual(described.storage.nbytes);
        tensor.dispose();
      }
      disposeAll(value);
      expect(cuda().live).toEqual([]);
    });
  });
});
