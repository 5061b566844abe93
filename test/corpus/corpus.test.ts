import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { isTorchloadError, load, open, Tensor } from "../../src/index.js";

/** Real files from public projects, for whoever has them: the folder's manifest.tsv lists file, kind, …. */
const folder = process.env.TORCHLOAD_CORPUS ?? "../shared/corpus";
const manifest = join(folder, "manifest.tsv");

interface RealFile {
  readonly file: string;
  readonly kind: string;
}

const files: RealFile[] = existsSync(manifest)
  ? readFileSync(manifest, "utf8")
      .trim()
      .split("\n")
      .slice(1)
      .map((line) => {
        const [file, kind] = line.split("\t") as [string, string];
        return { file, kind };
      })
  : [];

/** Its location text was made shorter and its length was not, so that the pickle no longer is one. */
const BROKEN = "cuda-saved/cuda-nonexistent-device.legacy.pt";

const ofKinds = (pattern: RegExp): RealFile[] => files.filter(({ kind }) => pattern.test(kind));

/** Kinds whose files all are zip or legacy checkpoints. */
const CHECKPOINTS =
  /^(zip-.*|legacy-.*|views-and-strides|optimizer|cuda-saved|lightning-ckpt|hf-trainer|numpy-inside|byteorder|quantized|tensor-subclass)$/;

/** Kinds that are other formats, damaged, or not checkpoints. */
const OTHERS =
  /^(torchscript.*|pt2|tar|tar-imitation|safetensors.*|dcp|hf-sharded-index|lfs-pointer|archive-around|corrupt|not-pytorch|pickle-with-tensors|pickle-plain|payload-in-data)$/;

describe.skipIf(files.length === 0)("real files", () => {
  test.each(ofKinds(CHECKPOINTS).filter(({ file }) => file !== BROKEN))(
    "$kind/$file loads, every tensor readable",
    async ({ file }) => {
      const path = join(folder, file);
      let value: unknown;
      try {
        value = await load(path, { weightsOnly: false });
      } catch (error) {
        // A few files of these folders are of another format inside; they are named for what they are.
        expect(isTorchloadError(error, "unsupported"), String(error)).toBe(true);
        return;
      }
      const checkpoint = await open(path, { weightsOnly: false });
      for (const [name, described] of checkpoint.tensors()) {
        const tensor = described.storage.location === "meta" ? described : await checkpoint.load(name);
        expect(tensor.shape).toEqual(described.shape);
        if (String(tensor.device) === "cpu")
          expect(tensor.toTypedArray().length).toBe(tensor.numel * tensor.dtype.lanes);
      }
      await checkpoint.close();
      expect(value).toBeDefined();
    },
  );

  test.each(ofKinds(OTHERS).concat(files.filter(({ file }) => file === BROKEN)))(
    "$kind/$file loads or is refused with a reason",
    async ({ file }) => {
      const path = join(folder, file);
      await load(path, { weightsOnly: false }).then(
        (value) => expect(value === undefined || value instanceof Tensor || typeof value === "object").toBe(true),
        (error) => {
          expect(isTorchloadError(error), String(error)).toBe(true);
          expect(error.message).toContain(path);
        },
      );
    },
  );

  test.each(ofKinds(/^malicious$/))("$kind/$file runs nothing", async ({ file }) => {
    const path = join(folder, file);
    await load(path).then(
      // What loads weights-only has nothing in it that could be run.
      (value) => expect(value).toBeDefined(),
      (error) => expect(isTorchloadError(error), String(error)).toBe(true),
    );
    await load(path, { weightsOnly: false }).catch((error) =>
      expect(isTorchloadError(error), String(error)).toBe(true),
    );
  });
});
