import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { load } from "../../src/index.js";
import { Comparison } from "../support/expected.js";

const python = process.env.TORCHLOAD_PYTHON ?? "/usr/bin/python3";
const script = fileURLToPath(new URL("make_values.py", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "torchload-roundtrip-"));
const seed = process.env.ROUNDTRIP_SEED ?? "1";
const COUNT = 150;

describe(`what PyTorch saves (${python}, seed ${seed})`, () => {
  beforeAll(() => {
    const { status, stderr } = spawnSync(python, [script, folder, seed, String(COUNT)], { encoding: "utf8" });
    if (status !== 0) throw new Error(stderr);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test.each([{ mmap: true }, { mmap: false }])("loads with the same values, types and sharing, %o", async (options) => {
    const files = readdirSync(folder).filter((name) => name.endsWith(".pt"));
    expect(files.length).toBe(2 * COUNT);
    for (const name of files) {
      const path = join(folder, name);
      const { value } = JSON.parse(readFileSync(path.replace(/\.pt$/, ".json"), "utf8"));
      await new Comparison().compare(await load(path, { weightsOnly: false, ...options }), value, name);
    }
  });
});
