import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { forgetCudaBackend } from "../../src/device/cuda/cuda-backend.js";
import { setDriverLibrary } from "../../src/device/cuda/driver.js";
import { forgetStaging } from "../../src/device/cuda/staging.js";
import { type ByteSource, loadReplicas, type Tensor } from "../../src/index.js";
import { FakeCuda } from "../support/fake-cuda.js";
import { writeZipCheckpoint } from "../support/zip-checkpoint.js";

const sizes = [30 << 20, 1000, 25_000_001, 5, 0];
const contents = sizes.map((nbytes, index) =>
  Uint8Array.from({ length: nbytes }, (_, k) => k * 31 + index * 7 + (k >> 8)),
);
const file = new Uint8Array(writeZipCheckpoint(contents));

let cuda: FakeCuda;

beforeEach(() => {
  cuda = new FakeCuda();
  setDriverLibrary(cuda);
  forgetCudaBackend();
  forgetStaging();
});

afterEach(() => {
  expect(cuda.faults).toEqual([]);
  expect(cuda.leaks).toBe(0);
});

/** The file as a source that counts the bytes read of it, and fails at a place. */
function counted(failAt = Number.POSITIVE_INFINITY): ByteSource & { read: ByteSource["read"]; count: number } {
  return {
    name: "counted",
    size: file.length,
    count: 0,
    read(start, end) {
      this.count += end - start;
      if (start <= failAt && failAt < end) throw new Error("the cable");
      return file.subarray(start, end);
    },
  };
}

describe("loadReplicas", () => {
  test.each([[["cuda:0", "cuda:1"]], [["cuda:1", "cpu"]], [["cpu"]], [[]]])(
    "gives one checkpoint for each of %j, with every byte right",
    async (devices) => {
      const replicas = (await loadReplicas(file, { devices })) as Tensor[][];
      expect(replicas.length).toBe(devices.length);
      for (const [number, tensors] of replicas.entries()) {
        for (const [index, tensor] of tensors.entries()) {
          if (tensor.numel > 0) expect(String(tensor.device)).toBe(devices[number]);
          const back = (await tensor.to("cpu")).toTypedArray() as Uint8Array;
          expect(Buffer.from(back).equals(Buffer.from(contents[index] as Uint8Array))).toBe(true);
          tensor.dispose();
        }
      }
    },
  );

  test("reads the file once for several CUDA devices", async () => {
    const source = counted();
    const replicas = (await loadReplicas(source, { devices: ["cuda:0", "cuda:1"] })) as Tensor[][];
    expect(source.count).toBeLessThan(file.length * 1.01);
    for (const tensor of replicas.flat()) tensor.dispose();
  });

  test("frees the memory on all devices when it fails", async () => {
    await expect(loadReplicas(counted(40 << 20), { devices: ["cuda:0", "cuda:1"] })).rejects.toThrow("the cable");
    await expect(loadReplicas(file, { devices: ["cuda:0", "cuda:9"] })).rejects.toThrow(/2 CUDA devices/);
  });
});
