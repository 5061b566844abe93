import { describe, expect, test } from "vitest";
import { CudaMemory } from "../../src/device/cuda/cuda-memory.js";
import { Device, load, open, type Tensor } from "../../src/index.js";
import { namedTensors } from "../../src/tensor/named-tensors.js";
import type { FakeAllocation } from "../support/fake-cuda.js";
import { fixture } from "../support/fixtures.js";
import { writeZipCheckpoint } from "../support/zip-checkpoint.js";
import { disposeAll, randomBytes, same, useFakeCuda } from "./device-support.js";

const cuda = useFakeCuda({ delay: 2 });
const views = fixture("torch-2.11/views.zip");
const tied = fixture("torch-2.11/tied.zip");

async function tensorsOn(device: string, path = views.path): Promise<Map<string, Tensor>> {
  return namedTensors(await load(path, { mapLocation: device }));
}

describe.each(["cuda:0", "cuda:1"])("tensors on %s", (device) => {
  test.each(["torch-2.11/tied.zip", "torch-2.11/tied.legacy"])("share what they share in %s", async (name) => {
    const file = fixture(name);
    const here = namedTensors(await load(file.path));
    const there = await tensorsOn(device, file.path);
    for (const [first, one] of here) {
      for (const [second, two] of here) {
        expect(there.get(first)?.storage === there.get(second)?.storage).toBe(one.storage === two.storage);
        const sameStorage = there.get(first)?.storage.memory === there.get(second)?.storage.memory;
        expect(sameStorage).toBe(one.storage === two.storage);
      }
    }
    disposeAll(there);
  });

  test("that are views of one storage have one memory, and pointers into it", async () => {
    const there = await tensorsOn(device);
    const storages = new Set([...there.values()].map(({ storage }) => storage));
    expect(storages.size).toBeLessThan(there.size);
    for (const tensor of there.values()) {
      const memory = tensor.storage.memory as CudaMemory;
      expect(memory).toBeInstanceOf(CudaMemory);
      expect(tensor.devicePointer).toBe(memory.pointer + BigInt(tensor.storageOffset * tensor.dtype.itemsize));
    }
    disposeAll(there);
  });

  test("lie in one allocation, aligned for their type and apart from each other", async () => {
    const there = await tensorsOn(device, fixture("tiny-gpt").path);
    expect(cuda().live.length).toBe(1);
    const [{ address, nbytes }] = cuda().live as [FakeAllocation];
    const storages = [...new Set([...there.values()].map(({ storage }) => storage))];
    const ranges = storages.map((storage) => {
      const start = Number((storage.memory as CudaMemory).pointer);
      return { start, end: start + storage.nbytes };
    });
    ranges.sort((a, b) => a.start - b.start);
    for (const [index, { start, end }] of ranges.entries()) {
      expect(start % 16).toBe(0);
      expect(start).toBeGreaterThanOrEqual(ranges[index - 1]?.end ?? address);
      expect(end).toBeLessThanOrEqual(address + nbytes);
    }
    disposeAll(there);
  });

  test("tell their device, context and stream", async () => {
    const there = await tensorsOn(device);
    const [tensor] = there.values() as unknown as [Tensor];
    const memory = tensor.storage.memory as CudaMemory;
    expect(String(tensor.device)).toBe(device);
    expect(tensor.device).toEqual(new Device("cuda", Number(device.at(-1))));
    expect(memory.context).toBeGreaterThan(0n);
    expect(memory.stream).toBeGreaterThan(0n);
    expect(memory.bytes).toBeUndefined();
    expect(() => tensor.toTypedArray()).toThrow(/its bytes can be read after `await tensor\.to\("cpu"\)`/);
    expect(() => tensor.storage.bytes).toThrow(TypeError);
    disposeAll(there);
  });

  test("are narrowed, selected, viewed and transposed there, and read out as on the CPU", async () => {
    await using checkpoint = await open(views.path);
    const [here, there] = [await checkpoint.load("grid"), await checkpoint.load("grid", { device })];
    const [rows, columns] = here.shape as [number, number];
    const changes: ((tensor: Tensor) => Tensor)[] = [
      (tensor) => tensor.narrow(0, 1, rows - 2),
      (tensor) => tensor.narrow(1, 2, 1),
      (tensor) => tensor.narrow(0, rows, 0),
      (tensor) => tensor.select(0, rows - 1),
      (tensor) => tensor.select(1, columns - 1),
      (tensor) => tensor.transpose(0, 1),
      (tensor) => tensor.view([rows * columns]),
      (tensor) => tensor.view([1, columns, rows, 1]).select(0, 0),
      (tensor) => tensor.transpose(0, 1).narrow(0, 1, 2).select(1, 1),
      (tensor) => tensor.select(0, 1).select(0, 2),
    ];
    for (const change of changes) {
      const part = change(there);
      expect(part.storage).toBe(there.storage);
      expect(String(part.device)).toBe(device);
      const back = await part.to("cpu");
      expect(back.shape).toEqual(part.shape);
      expect(back.toArray()).toEqual(change(here).toArray());
    }
    expect(cuda().live.length).toBe(1);
    there.dispose();
  });

  test("of part of a storage bring over only what their elements span", async () => {
    const file = writeZipCheckpoint([randomBytes(1, 1_000_000)]);
    const [tensor] = (await load(new Uint8Array(file), { mapLocation: device })) as [Tensor];
    const part = tensor.narrow(0, 999_000, 10);
    cuda().resetCount();
    const back = await part.to("cpu");
    expect(back.storage.nbytes).toBe(10);
    expect(cuda().copied).toEqual([10]);
    expect(same(back.storage.bytes, randomBytes(1, 1_000_000).subarray(999_000, 999_010))).toBe(true);
    tensor.dispose();
  });
});

describe("tensor.to", () => {
  const nbytes = [0, 1, 1000, 8 * 1024 * 1024, 8 * 1024 * 1024 + 1, 40_000_003];

  test.each(nbytes)("brings %i bytes around all devices and back", async (size) => {
    const content = randomBytes(5, size);
    const [host] = (await load(new Uint8Array(writeZipCheckpoint([content])))) as [Tensor];
    const first = await host.to("cuda:0");
    const second = await first.to("cuda:1");
    const third = await second.to("cuda:0");
    const back = await third.to("cpu");
    expect([first, second, third, back].map(({ device }) => String(device))).toEqual([
      "cuda:0",
      "cuda:1",
      "cuda:0",
      "cpu",
    ]);
    expect(same(back.storage.bytes, content)).toBe(true);
    expect(same(host.storage.bytes, content)).toBe(true);
    disposeAll([first, second, third]);
  });

  test("gives the tensor itself when it is there already, however the device is named", async () => {
    const there = await tensorsOn("cuda:0");
    const [tensor] = there.values() as unknown as [Tensor];
    expect(await tensor.to("cuda:0")).toBe(tensor);
    expect(await tensor.to("cuda")).toBe(tensor);
    expect(await tensor.to(new Device("cuda"))).toBe(tensor);
    disposeAll(there);
  });

  test("describes the tensor on meta", async () => {
    const there = await tensorsOn("cuda:0");
    const [tensor] = there.values() as unknown as [Tensor];
    const meta = await tensor.to("meta");
    expect(String(meta.device)).toBe("meta");
    expect(meta.shape).toEqual(tensor.shape);
    disposeAll(there);
  });

  test("keeps shape, strides, dtype and what only some tensors have", async () => {
    const names = ["torch-2.11/conj-neg.zip", "torch-2.11/parameters.zip", "torch-2.11/views.zip"];
    for (const name of names) {
      const there = namedTensors(await load(fixture(name).path, { weightsOnly: false, mapLocation: "cuda:1" }));
      for (const tensor of there.values()) {
        const moved = await tensor.to("cuda:0");
        for (const field of ["dtype", "shape", "strides", "requiresGrad", "conj", "neg", "isParameter"] as const) {
          expect(moved[field]).toEqual(tensor[field]);
        }
        const [one, other] = [await tensor.to("cpu"), await moved.to("cpu")];
        expect(other.toArray()).toEqual(one.toArray());
        if (moved !== tensor) moved.dispose();
      }
      disposeAll(there);
    }
  });

  test("runs many times at once, each with its own bytes", async () => {
    const contents = Array.from({ length: 12 }, (_, k) => randomBytes(k, 1_000_000 * (k % 4) + 17));
    const value = (await load(new Uint8Array(writeZipCheckpoint(contents)), {
      mapLocation: ({ key }) => `cuda:${Number(key) % 2}`,
    })) as Tensor[];
    const moved = await Promise.all(value.map((tensor, k) => tensor.to(["cpu", "cuda:0", "cuda:1"][k % 3] as string)));
    const back = await Promise.all(moved.map((tensor) => tensor.to("cpu")));
    back.forEach((tensor, k) => {
      expect(same(tensor.storage.bytes, contents[k] as Uint8Array)).toBe(true);
    });
    disposeAll([value, moved]);
  });

  test("makes no more events the more often it is called", async () => {
    const there = await tensorsOn("cuda:0", tied.path);
    const [tensor] = there.values() as unknown as [Tensor];
    const around = async (): Promise<void> => {
      for (const device of ["cuda:1", "cpu"]) disposeAll(await (await tensor.to(device)).to("cuda:1"));
    };
    await around();
    cuda().resetCount();
    for (let k = 0; k < 10; k++) await around();
    expect(cuda().count("cuEventCreate")).toBe(0);
    disposeAll(there);
  });

  test("that fails frees what it allocated, and works the next time", async () => {
    const there = await tensorsOn("cuda:0");
    const [tensor] = there.values() as unknown as [Tensor];
    const host = await tensor.to("cpu");
    const allocated = cuda().live.length;
    const failures: [() => Promise<Tensor>, Parameters<ReturnType<typeof cuda>["fail"]>[0]][] = [
      [() => tensor.to("cuda:1"), "cuMemcpyPeerAsync"],
      [() => tensor.to("cuda:1"), "cuMemAllocFromPoolAsync"],
      [() => tensor.to("cpu"), "cuMemcpyDtoHAsync_v2"],
      [() => tensor.to("cpu"), "cuEventQuery"],
      [() => host.to("cuda:1"), "cuMemcpyHtoDAsync_v2"],
      [() => host.to("cuda:1"), "cuMemAllocFromPoolAsync"],
    ];
    await tensor.to("cuda:1").then(disposeAll);
    for (const [move, name] of failures) {
      cuda().fail(name, 719);
      await expect(move()).rejects.toThrow(`CUDA: ${name} failed with CUDA_ERROR_LAUNCH_FAILED`);
      expect(cuda().live.length).toBe(allocated);
      const moved = await move();
      expect((await moved.to("cpu")).toArray()).toEqual(host.toArray());
      disposeAll(moved);
    }
    disposeAll(there);
  });

  test("to a device that is full says so with the numbers", async () => {
    const [host] = (await load(new Uint8Array(writeZipCheckpoint([randomBytes(1, 5000)])))) as [Tensor];
    cuda().memory[1] = 4000;
    await expect(host.to("cuda:1")).rejects.toThrow(
      "Cannot place 5000 bytes on cuda:1: 4000 of its 4000 bytes are free",
    );
  });
});

describe("reading device memory", () => {
  test("gives the range that is asked for, into memory of the caller's where there is some", async () => {
    const content = randomBytes(3, 20_000_000);
    const [tensor] = (await load(new Uint8Array(writeZipCheckpoint([content])), { mapLocation: "cuda" })) as [Tensor];
    const { memory } = tensor.storage;
    expect(same((await memory?.read(5, 19_000_001)) as Uint8Array, content.subarray(5, 19_000_001))).toBe(true);
    const target = new Uint8Array(10);
    expect(await memory?.read(9_000_000, 9_000_010, target)).toBe(target);
    expect(same(target, content.subarray(9_000_000, 9_000_010))).toBe(true);
    disposeAll(tensor);
  });

  test("into memory that is too small fails, and leaves no slot in use", async () => {
    const content = randomBytes(3, 40_000_000);
    const [tensor] = (await load(new Uint8Array(writeZipCheckpoint([content])), { mapLocation: "cuda" })) as [Tensor];
    await expect(tensor.storage.memory?.read(0, 40_000_000, new Uint8Array(1000))).rejects.toThrow();
    const other = randomBytes(4, 40_000_000);
    const [again] = (await load(new Uint8Array(writeZipCheckpoint([other])), { mapLocation: "cuda" })) as [Tensor];
    expect(same((await again.to("cpu")).storage.bytes, other)).toBe(true);
    disposeAll([tensor, again]);
  });
});
