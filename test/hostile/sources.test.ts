import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { type ByteSource, isTorchloadError, load, open, SourceError } from "../../src/index.js";
import { dict, floats, legacyCheckpoint, op, storage, tensor, text, zipCheckpoint } from "../support/bad-files.js";
import { built, isolated } from "./isolated.js";
import { descriptorsOf, failure, fileOf } from "./refusal.js";

const folder = mkdtempSync(join(tmpdir(), "torchload-sources-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const content = floats(1, 2, 3, 4);
const good = [
  ["zip", zipCheckpoint(dict([text("w"), tensor(storage("0"))]), { "0": content })],
  ["legacy", legacyCheckpoint(dict([text("w"), tensor(storage("0", { view: op.NONE }))]), [{ key: "0", content }])],
] as const;

test.each([
  ["that is not there", join(folder, "missing.pt"), "there is no such file"],
  ["that is a folder", folder, "it is a directory"],
  ["that is a device", "/dev/zero", "it is not a regular file"],
  ["below a file", join(fileOf(content), "model.pt"), "ENOTDIR"],
  ["with a NUL in it", join(folder, "model\0.pt"), "ERR_INVALID_ARG_VALUE"],
  ["longer than there are", join(folder, "x".repeat(5000)), "ENAMETOOLONG"],
])("a path %s is refused by its name", async (_, path, reason) => {
  for (const verb of [open, load]) {
    const error = (await failure(() => verb(path))) as SourceError;
    expect(error).toBeInstanceOf(SourceError);
    expect(error.file).toBe(path);
    expect(error.message).toBe(`Cannot open "${path}": ${reason}`);
  }
});

test.skipIf(!built || process.platform === "win32")("a path that is a pipe is refused, and not waited for", () => {
  const path = join(folder, "pipe.pt");
  execFileSync("mkfifo", [path]);
  const outcome = isolated(path, "await torchload.open(path).catch((error) => console.log(error.name));", 2000);
  expect(outcome.stdout).toBe("SourceError\n");
});

test.each(good)("a %s source that fails is passed on, and is left open to its owner", async (_, bytes) => {
  for (let failing = 0; failing < 12; failing++) {
    const mine = new SourceError('Cannot read "mine": gone', { file: "mine" });
    let reads = 0;
    let closed = 0;
    const source: ByteSource = {
      name: "mine",
      size: bytes.length,
      async read(start, end) {
        if (reads++ === failing) throw mine;
        return bytes.slice(start, end);
      },
      close: () => void closed++,
    };
    const error = await failure(() => load(source));
    expect(error).toBe(reads > failing ? mine : undefined);
    expect(closed).toBe(0);
  }
});

// Open: parsers take what a source gives as all that was asked for.
test.each(good)("a %s source that gives fewer bytes than asked for is refused", async (_, bytes) => {
  for (let short = 0; short < 8; short++) {
    let reads = 0;
    const read = (start: number, end: number): Uint8Array =>
      bytes.slice(start, reads++ === short ? Math.max(start, end - 1) : end);
    const error = await failure(() => load({ name: "short", size: bytes.length, read }));
    if (reads > short) expect(isTorchloadError(error), `read ${short}: ${error}`).toBe(true);
  }
});

// Open: only mapping looks whether the file is still the one that was opened.
test.each(good)("a %s file that was written to while it was open is refused", async (name, bytes) => {
  const path = join(folder, `changed-${name}.pt`);
  writeFileSync(path, bytes);
  const checkpoint = await open(path);
  await new Promise((resolve) => setTimeout(resolve, 20));
  writeFileSync(
    path,
    bytes.map((byte) => byte ^ 0),
  );
  const error = await failure(() => checkpoint.load({ mmap: false }));
  await checkpoint.close();
  expect(descriptorsOf(path)).toEqual([]);
  expect(isTorchloadError(error, "source")).toBe(true);
});
