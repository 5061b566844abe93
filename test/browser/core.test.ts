import { expect, test } from "vitest";
import { isTorchloadError, load, open, type Tensor } from "../../src/index.js";

/** A legacy checkpoint of `{"w": arange(3)}`, as PyTorch 1.13 writes it. */
const LEGACY =
  "80028a0a6cfc9c46f9206aa850192e80024de9032e80027d71002858100000" +
  "0070726f746f636f6c5f76657273696f6e71014de903580d0000006c6974746c655f656e6469616e710288580a000000747970655f73697a657371037d7104285805000000" +
  "73686f727471054b025803000000696e7471064b0458040000006c6f6e6771074b0475752e80027d7100580100000077710163746f7263682e5f7574696c730a5f72656275696c645f74656e736f725f76320a7102282858070000" +
  "0073746f72616765710363746f7263680a466c6f617453746f726167650a710458020000003432710558030000006370757106" +
  "4b034e7471075" +
  "14b004b038571084b01857109" +
  "8963636f6c6c656374696f6e730a4f726465726564446963740a710a2952710b74710c52710d732e80025d71005802000000343271" +
  "01612e0300000000000000000000000000803f00000040";

function bytesOf(hex: string): Uint8Array {
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

test("a checkpoint in a Blob loads in the browser", async () => {
  const state = (await load(new Blob([bytesOf(LEGACY) as Uint8Array<ArrayBuffer>]))) as Map<string, Tensor>;
  expect(state.get("w")?.toArray()).toEqual([0, 1, 2]);
});

test("bytes open without being loaded", async () => {
  const checkpoint = await open(bytesOf(LEGACY));
  expect([...checkpoint.tensors().keys()]).toEqual(["w"]);
  await checkpoint.close();
});

test("paths and CUDA are refused with an error of the library", async () => {
  await expect(load("model.pt")).rejects.toSatisfy((error) => isTorchloadError(error, "unsupported"));
  await expect(load(bytesOf(LEGACY), { mapLocation: "cuda" })).rejects.toSatisfy((error) => isTorchloadError(error));
});
