import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { detect } from "../../src/container/detect.js";
import { LEGACY } from "../../src/container/legacy.js";
import { ZIP } from "../../src/container/zip/zip-checkpoint.js";
import { isTorchloadError, type TorchloadError } from "../../src/errors.js";
import { blobSource } from "../../src/source/blob-source.js";
import { memorySource } from "../../src/source/memory-source.js";
import { concat, dict, legacyCheckpoint, utf8, zip, zipCheckpoint } from "../support/bad-files.js";

/** What detection says of bytes. */
async function refusalOf(bytes: Uint8Array): Promise<TorchloadError> {
  try {
    await detect(memorySource(bytes, "model.pt"));
  } catch (error) {
    if (isTorchloadError(error)) return error;
    throw error;
  }
  throw new Error("it was taken for a checkpoint");
}

function bytesOf(...parts: readonly (string | number | readonly number[])[]): Uint8Array {
  return concat(
    ...parts.map((part) =>
      typeof part === "string" ? utf8(part) : typeof part === "number" ? new Uint8Array(part) : Uint8Array.from(part),
    ),
  );
}

/** A tar archive, as far as its headers go. */
function tar(members: Readonly<Record<string, number>>): Uint8Array {
  const blocks = Object.entries(members).map(([name, size]) => {
    const header = new Uint8Array(512);
    header.set(utf8(name));
    header.set(utf8(size.toString(8).padStart(11, "0")), 124);
    header.set(utf8("        "), 148);
    header.set(utf8("0"), 156);
    header.set(
      utf8(
        `${header
          .reduce((sum, byte) => sum + byte, 0)
          .toString(8)
          .padStart(6, "0")}\0`,
      ),
      148,
    );
    return concat(header, new Uint8Array(Math.ceil(size / 512) * 512));
  });
  return concat(...blocks, new Uint8Array(1024));
}

const POINTER = `version https://git-lfs.github.com/spec/v1
oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393
size 438007537
`;

describe("what is read", () => {
  test("is found by its first bytes", async () => {
    expect(await detect(memorySource(zipCheckpoint(dict())))).toBe(ZIP);
    expect(await detect(memorySource(legacyCheckpoint(dict())))).toBe(LEGACY);
    expect(await detect(blobSource(new Blob([legacyCheckpoint(dict())])))).toBe(LEGACY);
  });

  test.each(["8a0a6cfc9c46f9206aa850192e", "950d000000000000008a0a6cfc9c46f9206aa850192e"])(
    "has its magic number pickled by any protocol: 80..%s",
    async (magic) => {
      for (const protocol of [2, 3, 4, 5]) {
        const bytes = bytesOf([0x80, protocol], Array.from(Buffer.from(magic, "hex")));
        expect(await detect(memorySource(bytes))).toBe(LEGACY);
      }
    },
  );

  test("answers at once where the bytes are at hand, and from the first of them alone", () => {
    const ranges: number[][] = [];
    const bytes = concat(legacyCheckpoint(dict()), new Uint8Array(100_000));
    const source = {
      ...memorySource(bytes),
      read(start: number, end: number) {
        ranges.push([start, end]);
        return bytes.subarray(start, end);
      },
    };
    expect(detect(source)).toBe(LEGACY);
    expect(ranges).toEqual([[0, 4096]]);
  });
});

describe("what is not read is named for what it is", () => {
  test.each<[string, Uint8Array, string]>([
    ["nothing", new Uint8Array(0), "the file is empty"],
    [
      "a Git LFS pointer",
      utf8(POINTER),
      'this is a Git LFS pointer for 438007537 bytes, not the file itself; fetch it with "git lfs pull"; ' +
        "its oid is sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393",
    ],
    ["a git-annex pointer", utf8("/annex/objects/SHA256E-s1024--abc.pt\n"), 'fetch it with "git annex get"'],
    [
      "a DVC pointer",
      utf8("outs:\n- md5: a304afb96060aad90176268345e10355\n  size: 37891850\n  path: model.pt\n"),
      "this is a DVC pointer for 37891850 bytes, not the file itself",
    ],
    ["a web page", utf8("\n<!DOCTYPE html>\n<html><body>Sign in</body></html>"), "this is an HTML page; the download"],
    [
      "a web page behind a byte order mark",
      bytesOf([0xef, 0xbb, 0xbf], "<html></html>"),
      "this is an HTML page; the download",
    ],
    [
      "an answer of a storage service",
      utf8('<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'),
      'this is an XML document that says "AccessDenied"; check the address',
    ],
    ["XML", utf8('<?xml version="1.0"?><svg></svg>'), "this is an XML document"],
    ["few zeros", new Uint8Array(100), "this is all zeros at its start and end; an interrupted download"],
    ["zeros in front of something", bytesOf(5000, "abc"), "this is all zeros at its start; an interrupted"],
    [
      "safetensors",
      bytesOf([2, 0, 0, 0, 0, 0, 0, 0], "{}"),
      "this is a safetensors file; this version reads PyTorch's own formats",
    ],
    [
      "safetensors cut short",
      bytesOf([200, 0, 0, 0, 0, 0, 0, 0], '{"weight":{"dtype":"F32"'),
      "this is a safetensors file that ends within its header",
    ],
    ["the preview format", bytesOf("PYTORCH1", 100), "this is a PyTorch archive of the preview releases of 2018"],
    ["a mobile flatbuffer", bytesOf([28, 0, 0, 0], "PTMF", 100), "this is a PyTorch mobile model"],
    ["ExecuTorch", bytesOf([28, 0, 0, 0], "ET12", 100), "this is an ExecuTorch program (.pte)"],
    [
      "Lua Torch",
      bytesOf([4, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0], "V 1", [13, 0, 0, 0], "torch.FloatTensor"),
      "this is a Lua Torch 7 file (.t7)",
    ],
    [
      "DCP metadata",
      bytesOf([0x80, 2], "ctorch.distributed.checkpoint.metadata\nMetadata\nq\0)\x81q\x01."),
      "this is the metadata of a distributed checkpoint",
    ],
    [
      "a pickle of protocol 4",
      bytesOf([0x80, 4, 0x4b, 1, 0x2e]),
      "this is a pickle, but not one that torch.save wrote",
    ],
    ["a pickle of protocol 1", bytesOf("}q\0."), "this is a pickle, but not one"],
    ["a pickle of protocol 0", utf8("(dp0\nS'a'\np1\nI1\ns."), "this is a pickle, but not one"],
    ["a pickle of a global", utf8("cposix\nsystem\n(S'ls'\ntR"), "this is a pickle, but not one"],
    ["a call without a memo", utf8("(S'1'\ni__builtin__\neval\n."), "this is a pickle, but not one"],
    ["GGUF", bytesOf("GGUF", [3, 0, 0, 0], 100), "this is a GGUF file; llama.cpp"],
    ["GGML", bytesOf("lmgg", 100), "this is a GGML file"],
    ["HDF5", bytesOf([0x89], "HDF\r\n", [0x1a, 10], 100), "this is an HDF5 file, as Keras writes"],
    ["TensorFlow Lite", bytesOf([28, 0, 0, 0], "TFL3", 100), "this is a TensorFlow Lite model"],
    [
      "TensorFlow's checkpoint index",
      bytesOf([0, 0, 2], 600, [0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb]),
      "this is the index of a TensorFlow checkpoint",
    ],
    ["SavedModel", bytesOf([8, 1, 0x12, 0x85, 0x10, 10, 0x20], 100), "this is a TensorFlow SavedModel"],
    ["Core ML", bytesOf([8, 4, 0x12, 0x30, 10, 0x10], 100), "this is a Core ML model"],
    [
      "ONNX",
      bytesOf([8, 7, 0x12, 7], "pytorch", [0x1a, 4], "2.11", 100),
      "this is an ONNX model; ONNX Runtime reads it",
    ],
    ["ONNX without a producer", bytesOf([8, 7, 0x3a, 0x80, 1], 100), "this is an ONNX model"],
    ["a NumPy array", bytesOf([0x93], "NUMPY", [1, 0], 100), "this is a NumPy array (.npy)"],
    ["gzip", gzipSync(utf8("hello")), 'this is a gzip file; unpack it first, with "gunzip" or "tar xzf"'],
    [
      "gzip around a checkpoint",
      gzipSync(legacyCheckpoint(dict())),
      'this is a gzip file around a legacy checkpoint; unpack it first, with "gunzip"',
    ],
    ["gzip around a zip", gzipSync(zipCheckpoint(dict())), "this is a gzip file around a zip archive; unpack"],
    [
      "a checkpoint in a tar.gz",
      gzipSync(tar({ "config.json": 1000, "model.pth": 5000 })),
      'this is a gzip file around a tar archive with "model.pth" inside; unpack it first, with "tar xzf"',
    ],
    ["a cut gzip", gzipSync(tar({ "model.pth": 5000 })).subarray(0, -10), 'a tar archive with "model.pth" inside'],
    [
      "gzip that is damaged",
      bytesOf([0x1f, 0x8b, 8, 0, 1, 2, 3, 4, 5, 6, 0xff, 0xff, 0xff, 0xff]),
      "this is a gzip file; ",
    ],
    ["zstd", bytesOf([0x28, 0xb5, 0x2f, 0xfd], 100), "this is a zstd file"],
    ["lz4", bytesOf([4, 0x22, 0x4d, 0x18], 100), "this is an lz4 file"],
    ["xz", bytesOf([0xfd], "7zXZ", 100), "this is an xz file"],
    ["bzip2", bytesOf("BZh9", 100), "this is a bzip2 file"],
    ["7z", bytesOf("7z", [0xbc, 0xaf, 0x27, 0x1c], 100), "this is a 7z archive"],
    ["RAR", bytesOf("Rar!", [0x1a, 7], 100), "this is a RAR archive"],
    ["zlib", bytesOf([0x78, 0x9c], 100), "this is zlib-compressed data"],
    [
      "PyTorch's tar format",
      tar({ sys_info: 100, pickle: 100, tensors: 100, storages: 100 }),
      "this is a tar checkpoint, as PyTorch before 0.1.10 wrote, which this version does not read",
    ],
    [
      "a tar with a checkpoint",
      tar({ a: 10, "b/model.ckpt": 10 }),
      'this is a tar archive with "b/model.ckpt" inside; unpack',
    ],
    ["a tar", tar({ a: 10, b: 0 }), "this is a tar archive; unpack it first"],
    ["a zip archive without records", zip([]).subarray(-22), "this is a zip archive without records"],
    ["PDF", bytesOf("%PDF-1.7\n", 100), "this is a PDF document"],
    ["PNG", bytesOf([0x89], "PNG\r\n", 100), "this is a picture"],
    ["a program", bytesOf([0x7f], "ELF", 100), "this is a program"],
    [
      "an index of shards",
      utf8('{"metadata": {"total_size": 10}, "weight_map": {"a": "pytorch_model-00001-of-00002.bin"}}'),
      "this is the index of a sharded checkpoint; the tensors are in the files that it names",
    ],
    ["JSON", utf8('{"error": "not found"}'), "this is a JSON document"],
    ["text", utf8("Entry not found\n"), 'this is a text file that begins with "Entry not found"'],
    ["a long text", utf8("x".repeat(1000)), `this is a text file that begins with "${"x".repeat(57)}..."`],
    ["source code", utf8("import torch\n\nprint(1)\n"), 'this is a text file that begins with "import torch"'],
    ["anything else", bytesOf([0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 5]), "it starts with de ad be ef 01 02 03 04"],
    ["one byte", bytesOf([0x80]), "it starts with 80"],
  ])("%s", async (_, bytes, message) => {
    const error = await refusalOf(bytes);
    expect(error.message.startsWith('Cannot load "model.pt": '), error.message).toBe(true);
    expect(error.message).toContain(message);
    expect(error.file).toBe("model.pt");
  });

  test("names from a file cannot act on a terminal", async () => {
    const { message } = await refusalOf(tar({ "\x1b[2Jmodel.pt": 10 }));
    expect(message).not.toContain("\x1b");
    expect((await refusalOf(utf8("\x1b[2Jhello"))).message).not.toContain("\x1b");
  });
});

describe("whatever the bytes are", () => {
  test("there is a container or an error of the library", async () => {
    const starts = [
      "PK\x03\x04",
      "\x1f\x8b",
      "\x80\x02",
      "{",
      "(",
      "c",
      "\x08\x07\x12",
      "<",
      "version https://git-lfs",
    ].map((text) => Uint8Array.from(text, (letter) => letter.charCodeAt(0)));
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(new Uint8Array(0), ...starts),
        fc.uint8Array({ maxLength: 700 }),
        async (start, rest) => {
          try {
            expect([ZIP, LEGACY]).toContain(await detect(memorySource(concat(start, rest))));
          } catch (error) {
            if (!isTorchloadError(error)) throw error;
          }
        },
      ),
      { numRuns: 500 },
    );
  });

  test("a damaged tar or gzip gives an error of the library", async () => {
    const whole = [tar({ "a.txt": 700, "model.pt": 3000 }), new Uint8Array(gzipSync(tar({ "model.pt": 3000 })))];
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...whole),
        fc.nat(4000),
        fc.nat(255),
        fc.nat(5000),
        async (bytes, place, byte, end) => {
          const damaged = bytes.slice(0, end);
          if (place < damaged.length) damaged[place] = byte;
          await refusalOf(damaged);
        },
      ),
      { numRuns: 300 },
    );
  });
});
