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
];

test.each(samples)("%s is called that", async (what, advice, bytes) => {
  const error = await refused(bytes);
  expect(error.code).toBe("unsupported");
  expect(error.message).toContain(`this is ${what.startsWith("PYTORCH1") ? "a PyTorch archive of the preview" : what}`);
  expect(error.message).toContain(advice);
});

test("every format that is recognised has a sample here", () => {
  for (const { matches } of SIGNATURES) {
    const found = samples.some(([, , bytes]) => matches({ head: bytes.subarray(0, 4096), size: bytes.length }));
    expect(found).toBe(true);
  }
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
