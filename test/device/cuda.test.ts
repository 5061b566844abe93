import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import { forgetCudaBackend } from "../../src/device/cuda/cuda-backend.js";
import { setDriverLibrary } from "../../src/device/cuda/driver.js";
import { forgetStaging } from "../../src/device/cuda/staging.js";
import {
  type ByteSource,
  Device,
  type DeviceError,
  isTorchloadError,
  load,
  loadReplicas,
  open,
  registerPackage,
  Storage,
  type Tensor,
} from "../../src/index.js";
import { namedTensors } from "../../src/tensor/named-tensors.js";
import { Comparison } from "../support/expected.js";
import { FakeCuda, type FakeMachine } from "../support/fake-cuda.js";
import { fixture, fixtures } from "../support/fixtures.js";
import { writeZipCheckpoint } from "../support/zip-checkpoint.js";

const folder = mkdtempSync(join(tmpdir(), "torchload-device-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let cuda: FakeCuda;

function plugIn(machine: FakeMachine = {}): FakeCuda {
  cuda = new FakeCuda(machine);
  setDriverLibrary(cuda);
  forgetCudaBackend();
  forgetStaging();
  return cuda;
}

beforeEach(() => {
  plugIn();
});

afterEach(() => {
  expect(cuda.faults).toEqual([]);
});

function dispose(value: unknown): void {
  for (const tensor of namedTensors(value).values()) tensor.dispose();
  if (value instanceof Map) for (const item of value.values()) if (item instanceof Storage) item.dispose();
}

const views = fixture("torch-2.11/views.zip");
const demo = fixture("tiny-gpt");

describe.each(["cuda:0", "cuda:1"])("on %s", (device) => {
  test.each(fixtures())("$name has the values that PyTorch has", async ({ path, expected }) => {
    const options = { weightsOnly: false, ...(expected.offset === undefined ? {} : { offset: expected.offset }) };
    for (const input of [path, new Uint8Array(readFileSync(path)), new Blob([readFileSync(path)])]) {
      const value = await load(input, { ...options, mapLocation: device });
      await new Comparison((tensor) => tensor.to("cpu")).compare(value, expected.value);
      dispose(value);
      expect(cuda.leaks).toBe(0);
    }
  });
});

describe("mapLocation", () => {
  const { path } = fixture("torch-2.11/locations.zip");
  const devices = async (mapLocation: Parameters<typeof load>[1]): Promise<Record<string, string>> => {
    const value = (await load(path, mapLocation)) as Map<string, Tensor>;
    const names = Object.fromEntries([...value].map(([name, tensor]) => [name, String(tensor.device)]));
    dispose(value);
    return names;
  };

  test("puts everything on the CPU when nothing is said", async () => {
    expect(new Set(Object.values(await devices({})))).toEqual(new Set(["cpu"]));
  });

  test("takes a name, a Device, a dictionary and a Map", async () => {
    expect(new Set(Object.values(await devices({ mapLocation: "cuda" })))).toEqual(new Set(["cuda:0"]));
    expect(new Set(Object.values(await devices({ mapLocation: new Device("cuda", 1) })))).toEqual(new Set(["cuda:1"]));
    const map = { "cuda:0": "cuda:1", mps: "cuda:0" };
    const expected = { cpu: "cpu", "cuda:0": "cuda:1", "cuda:1": "cpu", mps: "cuda:0", "npu:0": "cpu" };
    expect(await devices({ mapLocation: map })).toEqual(expected);
    expect(await devices({ mapLocation: new Map(Object.entries(map)) })).toEqual(expected);
  });

  test("asks a function once a storage, which sends them to different devices", async () => {
    const asked: string[] = [];
    const value = (await load(views.path, {
      mapLocation(storage, location) {
        asked.push(storage.key);
        expect(location).toBe("cpu");
        return storage.nbytes > 64 ? "cuda:1" : storage.nbytes > 8 ? new Device("cuda", 0) : undefined;
      },
    })) as Map<string, Tensor>;
    expect(new Set(asked).size).toBe(asked.length);
    expect(new Set([...value.values()].map((tensor) => String(tensor.device)))).toEqual(
      new Set(["cuda:0", "cuda:1", "cpu"]),
    );
    await new Comparison((tensor) => tensor.to("cpu")).compare(value, views.expected.value);
    dispose(value);
    expect(cuda.leaks).toBe(0);
  });

  test('obeys the file\'s own tags with "saved", through the registered packages', async () => {
    await expect(load(path, { mapLocation: "saved" })).rejects.toThrow(/"mps": there is no such kind of device here/);
    const order: string[] = [];
    const undo = [
      registerPackage(
        30,
        () => undefined,
        (location) => void order.push(`late ${location}`),
      ),
      registerPackage(
        5,
        () => undefined,
        (location) => (location === "npu:0" || location === "mps" ? "cpu" : undefined),
      ),
      registerPackage(
        1,
        () => undefined,
        (location) => void order.push(`early ${location}`),
      ),
    ];
    expect(await devices({ mapLocation: "saved" })).toEqual({
      cpu: "cpu",
      "cuda:0": "cuda:0",
      "cuda:1": "cuda:1",
      mps: "cpu",
      "npu:0": "cpu",
    });
    expect(order).toEqual(["early cpu", "early cuda:0", "early cuda:1", "early mps", "early npu:0"]);
    for (const remove of undo) remove();
    const unknown = registerPackage(
      5,
      () => undefined,
      (location) => (location === "mps" ? "cpu" : undefined),
    );
    await expect(load(path, { mapLocation: "saved" })).rejects.toThrow(
      /"npu:0", a location that no registered package/,
    );
    unknown();
  });

  test("reads into a storage of the caller's own, and into nothing beside it", async () => {
    const first = (await load(demo.path, { mapLocation: "cuda" })) as Map<string, Map<string, Tensor>>;
    const target = first.get("model")?.get("embed.weight")?.storage;
    const second = (await load(demo.path, {
      mapLocation: (storage) => (storage.nbytes === target?.nbytes ? target : "cuda:1"),
    })) as Map<string, Map<string, Tensor>>;
    expect(second.get("model")?.get("embed.weight")?.storage.memory).toBe(target?.memory);
    await new Comparison((tensor) => tensor.to("cpu")).compare(second, demo.expected.value);
    await new Comparison((tensor) => tensor.to("cpu")).compare(first, demo.expected.value);
    await expect(load(demo.path, { mapLocation: () => target })).rejects.toThrow(/storage of 65536 bytes for/);
    dispose(first);
    dispose(second);
    expect(cuda.leaks).toBe(0);
  });

  test("leaves everything on meta when told so, and reads nothing", async () => {
    const value = await load(views.path, { mapLocation: "meta" });
    for (const tensor of namedTensors(value).values()) expect(String(tensor.device)).toBe("meta");
    expect(() => [...namedTensors(value).values()][0]?.toTypedArray()).toThrow(/meta device/);
  });

  test("refuses what it is not before it opens the file", async () => {
    for (const mapLocation of [7, {}, { cpu: 1 }, "cuda:-1", "", "cuda:x"]) {
      if (typeof mapLocation === "object" && Object.keys(mapLocation).length === 0) continue;
      await expect(load("/nowhere", { mapLocation: mapLocation as never })).rejects.toThrow(TypeError);
    }
  });
});

describe("devices that are not there", () => {
  test("are named with what there is, before a byte of a tensor is read", async () => {
    let read = 0;
    const bytes = readFileSync(demo.path);
    const source: ByteSource = {
      name: "counted",
      size: bytes.length,
      read(start, end) {
        read += end - start;
        return new Uint8Array(bytes.subarray(start, end));
      },
    };
    const error = await load(source, { mapLocation: "cuda:7" }).catch((thrown: DeviceError) => thrown);
    expect(isTorchloadError(error, "device")).toBe(true);
    expect((error as DeviceError).message).toBe(
      'Cannot use "cuda:7": this machine has 2 CUDA devices, cuda:0 to cuda:1',
    );
    expect(read).toBeLessThan(40_000);
    await expect(load(demo.path, { mapLocation: "tpu:0" })).rejects.toThrow(
      /no such kind of device here; known are cpu, cuda/,
    );
  });

  test("a machine without a device says so", async () => {
    plugIn({ devices: 0 });
    const error = await load(demo.path, { mapLocation: "cuda" }).catch((thrown: DeviceError) => thrown);
    expect((error as DeviceError).message).toMatch(/CUDA_ERROR_NO_DEVICE/);
  });
});

describe("memory", () => {
  test("is freed with the last storage of a load, and not before", async () => {
    const value = namedTensors(await load(demo.path, { mapLocation: "cuda" }));
    expect(cuda.leaks).toBe(1);
    const tensors = [...value.values()];
    for (const tensor of tensors.slice(1)) tensor.dispose();
    const last = tensors[0] as Tensor;
    // The tied head shares the storage of the first tensor and went with it.
    expect(cuda.leaks).toBe(0);
    expect(() => last.devicePointer).toThrow(/disposed/);
    last.dispose();
    await expect(last.to("cpu")).rejects.toThrow(/disposed/);
  });

  test("tensors go between devices and back unchanged", async () => {
    const checkpoint = await open(views.path);
    const host = await checkpoint.load("transposed");
    const there = await (await host.to("cuda:0")).to("cuda:1");
    expect(String(there.device)).toBe("cuda:1");
    const back = await there.to("cpu");
    expect(back.toArray()).toEqual(host.toArray());
    const grid = await checkpoint.load("grid", { device: "cuda" });
    const part = await grid.narrow(0, 1, 2).select(1, 3).to("cpu");
    expect(part.toArray()).toEqual([9, 15]);
    expect(() => grid.toTypedArray()).toThrow(/await tensor.to\("cpu"\)/);
    await checkpoint.close();
  });

  test("a device that is too small is named with the numbers, and nothing stays allocated", async () => {
    plugIn({ memory: 100_000 });
    const error = await load(demo.path, { mapLocation: "cuda" }).catch((thrown: DeviceError) => thrown);
    expect(isTorchloadError(error, "device")).toBe(true);
    expect((error as DeviceError).message).toMatch(
      /Cannot place \d+ bytes on cuda:0: 100000 of its 100000 bytes are free/,
    );
    expect(cuda.leaks).toBe(0);
  });

  test("works without memory pools", async () => {
    plugIn({ pools: false });
    const value = await load(demo.path, { mapLocation: "cuda" });
    await new Comparison((tensor) => tensor.to("cpu")).compare(value, demo.expected.value);
    expect(cuda.count("cuMemAlloc_v2")).toBe(1);
    dispose(value);
    expect(cuda.leaks).toBe(0);
  });
});

describe("large files", () => {
  const large = join(folder, "large.pt");
  const many = join(folder, "many.pt");
  const bytesOf = (index: number, nbytes: number): Uint8Array => {
    const bytes = new Uint8Array(nbytes);
    for (let k = 0; k < nbytes; k++) bytes[k] = (k * 31 + index * 7 + (k >> 8)) & 0xff;
    return bytes;
  };
  const sizes = [30 << 20, 1000, 70_000_001, 5, 0, 12 << 20];
  writeFileSync(large, writeZipCheckpoint(sizes.map((nbytes, index) => bytesOf(index, nbytes))));
  writeFileSync(many, writeZipCheckpoint(Array.from({ length: 20_000 }, (_, index) => bytesOf(index, 64))));

  test.each([0, 50])("go through the slots several times over, with copies that take %i queries", async (delay) => {
    plugIn({ delay });
    const seen: number[] = [];
    for (const input of [large, new Blob([readFileSync(large)])]) {
      for (let round = 0; round < 2; round++) {
        const value = (await load(input, {
          mapLocation: "cuda",
          onProgress: ({ loaded, total }) => seen.push(loaded / total),
        })) as Tensor[];
        for (const [index, tensor] of value.entries()) {
          const back = (await tensor.to("cpu")).toTypedArray();
          const nbytes = sizes[index] as number;
          expect(Buffer.from(back.buffer, back.byteOffset, nbytes).equals(bytesOf(index, nbytes))).toBe(true);
        }
        dispose(value);
        expect(cuda.leaks).toBe(0);
      }
    }
    expect(seen.at(-1)).toBe(1);
  });

  test("of 20,000 small tensors take fewer device calls than a thousandth of the tensors", async () => {
    const value = (await load(many, { mapLocation: "cuda" })) as Tensor[];
    expect(cuda.count("cuMemcpyHtoDAsync_v2")).toBeLessThanOrEqual(20);
    expect(cuda.count("cuMemAllocFromPoolAsync")).toBe(1);
    for (const index of [0, 1, 777, 19_999]) {
      const back = (await (value[index] as Tensor).to("cpu")).toTypedArray();
      expect(Buffer.from(back.buffer, back.byteOffset, 64).equals(bytesOf(index, 64))).toBe(true);
    }
    dispose(value);
    expect(cuda.leaks).toBe(0);
  });

  const failures: [string, () => void, RegExp][] = [
    ["a copy fails", () => cuda.fail("cuMemcpyHtoDAsync_v2", 719, 2), /LAUNCH_FAILED/],
    ["an event fails", () => cuda.fail("cuEventQuery", 700, 5), /ILLEGAL_ADDRESS/],
    ["an allocation fails", () => cuda.fail("cuMemAlloc_v2", 2), /bytes are free/],
    ["the context fails", () => cuda.fail("cuDevicePrimaryCtxRetain", 46), /DEVICE_UNAVAILABLE/],
  ];
  test.each(failures)("leave nothing behind when %s, and load the next time", async (_, arrange, message) => {
    arrange();
    await expect(load(large, { mapLocation: "cuda" })).rejects.toThrow(message);
    expect(cuda.leaks).toBe(0);
    cuda.heal();
    dispose(await load(large, { mapLocation: "cuda" }));
    expect(cuda.leaks).toBe(0);
  });

  test("end with the signal's reason when aborted, before and during", async () => {
    const reason = new Error("enough");
    await expect(load(large, { mapLocation: "cuda", signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const controller = new AbortController();
    const loading = load(large, {
      mapLocation: "cuda",
      signal: controller.signal,
      onProgress: () => controller.abort(reason),
    });
    await expect(loading).rejects.toBe(reason);
    expect(cuda.leaks).toBe(0);
  });

  test("end with what onProgress throws", async () => {
    const thrown = new Error("from onProgress");
    const loading = load(large, {
      mapLocation: "cuda",
      onProgress() {
        throw thrown;
      },
    });
    await expect(loading).rejects.toBe(thrown);
    expect(cuda.leaks).toBe(0);
  });

  test("end with the source's error when it fails in the middle", async () => {
    const bytes = readFileSync(large);
    const failed = new Error("the cable");
    const source: ByteSource = {
      name: "failing",
      size: bytes.length,
      async read(start, end) {
        if (start < 60_000_000 && end > 50_000_000) throw failed;
        return new Uint8Array(bytes.subarray(start, end));
      },
    };
    await expect(load(source, { mapLocation: "cuda" })).rejects.toBe(failed);
    expect(cuda.leaks).toBe(0);
  });

  test("are read once for replicas on several devices", async () => {
    const bytes = readFileSync(large);
    let read = 0;
    const source: ByteSource = {
      name: "counted",
      size: bytes.length,
      read(start, end) {
        read += end - start;
        return new Uint8Array(bytes.subarray(start, end));
      },
    };
    const replicas = (await loadReplicas(source, { devices: ["cuda:0", "cuda:1"] })) as Tensor[][];
    expect(read).toBeLessThan(bytes.length * 1.01);
    for (const [device, tensors] of replicas.entries()) {
      for (const [index, tensor] of tensors.entries()) {
        const nbytes = sizes[index] as number;
        if (nbytes > 0) expect(String(tensor.device)).toBe(`cuda:${device}`);
        const back = (await tensor.to("cpu")).toTypedArray();
        expect(Buffer.from(back.buffer, back.byteOffset, nbytes).equals(bytesOf(index, nbytes))).toBe(true);
      }
      dispose(tensors);
    }
    expect(cuda.leaks).toBe(0);
  });

  test("load at the same time, one after the other", async () => {
    const values = await Promise.all([large, many, large].map((file) => load(file, { mapLocation: "cuda" })));
    const back = (await ((values[2] as Tensor[])[5] as Tensor).to("cpu")).toTypedArray();
    expect(Buffer.from(back.buffer, back.byteOffset, 12 << 20).equals(bytesOf(5, 12 << 20))).toBe(true);
    for (const value of values) dispose(value);
    expect(cuda.leaks).toBe(0);
  });
});
