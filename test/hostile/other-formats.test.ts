import { expect, test } from "vitest";
import { SIGNATURES } from "../../src/container/signatures.js";
import { code, concat, floats, int, pickle, repeat, text, utf8, zip } from "../support/bad-files.js";
import { refused } from "./refusal.js";

/** A header of the tar format with its checksum. */
function tarHeader(name: string): Uint8Array {
  const header = new Uint8Array(512);
  header.set(utf8(name));
  header.set(utf8("0000644"), 100);
  header.fill(0x20, 148, 156);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.set(utf8(`${sum.toString(8).padStart(6, "0")}\0 `), 148);
  return header;
}

const json = utf8('{"weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}');
const safetensors = concat(code(json.length, 0, 0, 0, 0, 0, 0, 0), json, floats(1, 2));

const samples: [what: string, advice: string, bytes: Uint8Array][] = [
  [
    "a Git LFS pointer for 438000000 bytes",
    "git lfs pull",
    utf8("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 438000000\n"),
  ],
  [
    "a Git LFS pointer, not the file",
    "git lfs pull",
    utf8("version https://git-lfs.github.com/spec/v1\noid sha256:4d"),
  ],
  ["an HTML page", "check the address", utf8("<!DOCTYPE html><html><body>Sign in</body></html>")],
  ["an HTML page", "check the address", utf8("\ufeff\n\n  <html lang=en>")],
  ["an XML document", "check the address", utf8('<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>')],
  ["a safetensors file", "PyTorch's own formats", safetensors],
  ["PYTORCH1", "", concat(utf8("PYTORCH1"), new Uint8Array(100))],
  ["a PyTorch mobile model (flatbuffer)", "", concat(code(0x18, 0, 0, 0), utf8("PTMF"), new Uint8Array(64))],
  ["a GGUF file", "llama.cpp", concat(utf8("GGUF"), code(3, 0, 0, 0))],
  ["a GGML file", "", concat(utf8("lmgg"), new Uint8Array(64))],
  ["a GGML file", "", concat(utf8("tjgg"), new Uint8Array(64))],
  ["an HDF5 file", "", concat(code(0x89), utf8("HDF\r\n\x1a\n"), new Uint8Array(64))],
  ["a TensorFlow Lite model", "", concat(code(0x1c, 0, 0, 0), utf8("TFL3"), new Uint8Array(64))],
  ["a NumPy array (.npy)", "", concat(code(0x93), utf8("NUMPY\x01\x00"), new Uint8Array(64))],
  ["a gzip file", "unpack it", code(0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3)],
  ["a zstd file", "unpack it", code(0x28, 0xb5, 0x2f, 0xfd, 4, 0)],
  ["an xz file", "unpack it", code(0xfd, 0x37, 0x7a, 0x58, 0x5a, 0)],
  ["a bzip2 file", "unpack it", utf8("BZh91AY&SY")],
  ["a 7z archive", "unpack it", code(0x37, 0x7a, 0xbc, 0xaf, 0x27, 0x1c)],
  ["a RAR archive", "unpack it", utf8("Rar!\x1a\x07")],
  ["a PDF document", "", utf8("%PDF-1.7")],
  ["a picture", "", code(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)],
  ["a picture", "", code(0xff, 0xd8, 0xff, 0xe0)],
  ["a picture", "", utf8("GIF89a")],
  ["a program (ELF)", "", code(0x7f, 0x45, 0x4c, 0x46, 2, 1, 1)],
  ["a tar archive", "unpack it", concat(tarHeader("sys_info"), new Uint8Array(1024))],
  ["a pickle, but not one that torch.save wrote", "", pickle(int(1001))],
  ["a pickle, but not one that torch.save wrote", "", pickle(text("weights"))],
  ["an ONNX model", "ONNX Runtime", code(8, 7, 0x12, 7, ...utf8("pytorch"))],
  ["all zeros", "", new Uint8Array(10_000)],
  ["a JSON document", "", utf8('{"weights": [1, 2, 3]}')],
  ["a text file", "", utf8("epoch,loss\n1,0.5\n")],
  ["a Xet pointer, not the file itself", "git xet", utf8("# xet version 0\n")],
  ["a git-annex pointer", "git annex get", utf8("/annex/objects/SHA256E-s1024--abc.pt\n")],
  ["a DVC pointer for 37891850 bytes", "dvc pull", utf8("outs:\n- md5: a304\n  size: 37891850\n  path: model.pt\n")],
  ['an XML document that says "NoSuchKey"', "check the address", utf8("<Error><Code>NoSuchKey</Code></Error>")],
  ["an XML document", "check the address", utf8('<svg xmlns="http://www.w3.org/2000/svg"/>')],
  ["all zeros at its start", "fetch it again", concat(new Uint8Array(5000), code(1))],
  ["a safetensors file that ends within its header", "fetch it again", safetensors.subarray(0, 30)],
  ["an ExecuTorch program (.pte)", "ExecuTorch", concat(code(0x1c, 0, 0, 0), utf8("ET12"), new Uint8Array(64))],
  ["a Lua Torch 7 file (.t7)", "torchfile", concat(code(4, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0), utf8("V 1"))],
  [
    "the metadata of a distributed checkpoint",
    "",
    concat(code(0x80, 2), utf8("ctorch.distributed.checkpoint.metadata\nMetadata\n)"), code(0x81), utf8(".")),
  ],
  [
    "the index of a TensorFlow checkpoint",
    "TensorFlow",
    concat(code(0, 0, 2), new Uint8Array(600), code(0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb)),
  ],
  ["a TensorRT engine", "TensorRT", concat(utf8("ptrt"), new Uint8Array(64))],
  ["MXNet parameters", "MXNet", concat(code(0x12, 1, 0, 0, 0, 0, 0, 0), new Uint8Array(64))],
  ["a MATLAB file", "scipy", utf8("MATLAB 5.0 MAT-file, Platform: GLNXA64")],
  ["a Parquet file", "", utf8("PAR1\x15\x04")],
  ["an Arrow file", "", utf8("ARROW1\0\0")],
  ["an SQLite database", "", utf8("SQLite format 3\0")],
  ["zlib-compressed data", "unpack it", concat(code(0x78, 0x9c), new Uint8Array(64))],
  ["an lz4 file", "unpack it", concat(code(4, 0x22, 0x4d, 0x18), new Uint8Array(64))],
  ["a zip archive without records", "", zip([]).subarray(-22)],
  ["the first part of a split zip archive", "join", concat(utf8("PK"), code(7, 8, 0x50, 0x4b, 3, 4))],
  ["an audio or video file", "", concat(utf8("OggS"), new Uint8Array(64))],
  ["a program (Mach-O)", "", concat(code(0xcf, 0xfa, 0xed, 0xfe), new Uint8Array(64))],
  [
    "a program (Windows)",
    "",
    concat(utf8("MZ"), new Uint8Array(58), code(0x40, 0, 0, 0), utf8("PE\0\0"), new Uint8Array(64)),
  ],
  ["a TensorFlow SavedModel", "TensorFlow", concat(code(8, 1, 0x12, 0x85, 0x10, 10, 0x20), new Uint8Array(64))],
  ["a Core ML model", "coremltools", concat(code(8, 4, 0x12, 0x30, 10, 0x10), new Uint8Array(64))],
  ["the index of a sharded checkpoint", "load those", utf8('{"weight_map": {"a": "model-00001-of-00002.bin"}}')],
];

test.each(samples)("%s is called that", async (what, advice, bytes) => {
  const error = await refused(bytes);
  expect(error.code).toBe("unsupported");
  expect(error.message).toContain(`this is ${what.startsWith("PYTORCH1") ? "a PyTorch archive of the preview" : what}`);
  expect(error.message).toContain(advice);
});

test("every format that is recognised has a sample here", () => {
  const firsts = samples.map(([, , bytes]) => {
    const sample = { head: bytes.subarray(0, 4096), tail: bytes.subarray(-512), size: bytes.length };
    return SIGNATURES.find(({ matches }) => matches(sample));
  });
  for (const signature of SIGNATURES) expect(firsts.includes(signature), String(signature.what)).toBe(true);
});

test("an empty file is called empty", async () => {
  const error = await refused(new Uint8Array(0));
  expect(error.code).toBe("format");
  expect(error.message).toContain("the file is empty");
});

test("bytes of no known format are shown", async () => {
  const error = await refused(code(0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 0x34, 0));
  expect(error.message).toContain(
    "not a PyTorch checkpoint, nor another format that is known; it starts with ca fe ba be",
  );
});

test("a file of a single byte is refused, whichever it is", async () => {
  for (let byte = 0; byte < 256; byte++) await refused(code(byte));
});

test("a signature without what should follow it is refused", async () => {
  for (const [, , bytes] of samples) {
    for (let length = 1; length < Math.min(bytes.length, 12); length++) await refused(bytes.slice(0, length));
  }
});

test("a file that is two formats at once is what its first bytes say", async () => {
  const inside = zip([{ name: "archive/data.pkl", content: pickle(int(1)) }]);
  expect((await refused(concat(utf8("GGUF"), inside))).message).toContain("a GGUF file");
  expect((await refused(concat(tarHeader("x"), inside))).message).toContain("a tar archive");
  expect((await refused(concat(repeat(utf8("text "), 1000), inside))).message).toContain("a text file");
});
