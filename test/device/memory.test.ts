import { describe, expect, test, vi } from "vitest";
import { lockStaging } from "../../src/device/cuda/staging.js";
import { load, open, type Storage, type Tensor } from "../../src/index.js";
import { namedTensors } from "../../src/tensor/named-tensors.js";
import { fixture } from "../support/fixtures.js";
import { writeZipCheckpoint } from "../support/zip-checkpoint.js";
import { collectGarbage, disposeAll, randomBytes, replug, same, useFakeCuda } from "./device-support.js";

const cuda = useFakeCuda({ delay: 1 });
const { path } = fixture("tiny-gpt");
const contents = [randomBytes(1, 5000), randomBytes(2, 100), randomBytes(3, 12_000_000)];
const file = new Uint8Array(writeZipCheckpoint(contents));

async function loaded(device: string): Promise<Tensor[]> {
  return (await load(file, { mapLocation: device })) as Tensor[];
}

describe.each(["cuda:0", "cuda:1"])("memory on %s", (device) => {
  test("is freed with the last storage of a load, whichever that is, and not before", async () => {
    for (const order of [
      [0, 1, 2],
      [2, 1, 0],
      [1, 2, 0],
    ]) {
      const tensors = await loaded(device);
      for (const [count, index] of order.entries()) {
        expect(cuda().live.length).toBe(1);
        for (const left of order.slice(count)) {
          const back = await (tensors[left] as Tensor).to("cpu");
          expect(same(back.storage.bytes, contents[left] as Uint8Array)).toBe(true);
        }
        tensors[index]?.dispose();
      }
      expect(cuda().live).toEqual([]);
    }
  });

  test("goes with the first dispose of tensors that share a storage", async () => {
    const tensors = namedTensors(await load(fixture("torch-2.11/tied.zip").path, { mapLocation: device }));
    const storages = new Map<Storage, Tensor[]>();
    for (const tensor of tensors.values()) {
      storages.set(tensor.storage, [...(storages.get(tensor.storage) ?? []), tensor]);
    }
    expect(storages.size).toBeLessThan(tensors.size);
    for (const [storage, [first, ...others]] of storages) {
      expect(cuda().live.length).toBe(1);
      first?.dispose();
      for (const other of [first, ...others]) {
        expect(() => other?.devicePointer).toThrow(/disposed/);
        await expect(other?.to("cpu")).rejects.toThrow(TypeError);
      }
      expect(storage.memory?.disposed).toBe(true);
    }
    expect(cuda().live).toEqual([]);
  });

  test("is freed once, however often its storages are disposed of", async () => {
    const tensors = await loaded(device);
    for (const tensor of [...tensors, ...tensors, ...tensors]) tensor.dispose();
    for (const tensor of tensors) tensor.storage.dispose();
    expect(cuda().count("cuMemFree_v2") + cuda().count("cuMemFreeAsync")).toBe(1);
  });

  test("that was disposed of is told by every use", async () => {
    const tensors = await loaded(device);
    const [tensor] = tensors as [Tensor];
    const view = tensor.narrow(0, 0, 10);
    tensor.dispose();
    const { memory } = tensor.storage;
    expect(memory?.disposed).toBe(true);
    expect(() => tensor.devicePointer).toThrow(/was disposed of/);
    expect(() => view.devicePointer).toThrow(/was disposed of/);
    await expect(tensor.to("cpu")).rejects.toThrow(/was disposed of/);
    await expect(view.to("cpu")).rejects.toThrow(/was disposed of/);
    await expect(tensor.to(device === "cuda:0" ? "cuda:1" : "cuda:0")).rejects.toThrow(/was disposed of/);
    await expect(memory?.read(0, 10)).rejects.toThrow(/was disposed of/);
    await expect(load(file, { mapLocation: () => tensor.storage })).rejects.toThrow(TypeError);
    disposeAll(tensors);
  });

  test("is freed at the end of a block that uses it", async () => {
    const tensors = await loaded(device);
    {
      using _first = tensors[0] as Tensor;
      using _second = (tensors[1] as Tensor).storage;
      using _third = tensors[2] as Tensor;
      expect(cuda().live.length).toBe(1);
    }
    expect(cuda().live).toEqual([]);
  });

  test("is freed at the end of a block that throws", async () => {
    await expect(
      (async () => {
        const [tensor] = (await load(new Uint8Array(writeZipCheckpoint([randomBytes(1, 100)])), {
          mapLocation: device,
        })) as [Tensor];
        using _held = tensor;
        throw new Error("in between");
      })(),
    ).rejects.toThrow("in between");
    expect(cuda().live).toEqual([]);
  });

  test("of tensors loaded one by one is freed one by one, and outlives the checkpoint", async () => {
    const checkpoint = await open(path);
    const names = [...checkpoint.tensors().keys()].slice(0, 5);
    const tensors: Tensor[] = [];
    for (const name of names) tensors.push(await checkpoint.load(name, { device }));
    await checkpoint.close();
    for (const [index, tensor] of tensors.entries()) {
      expect(cuda().live.length).toBe(names.length - index);
      expect((await tensor.to("cpu")).numel).toBe(tensor.numel);
      tensor.dispose();
    }
  });
});

describe("main memory that was disposed of", () => {
  test.each(["cpu", "mapped"])("is told by every use: %s", async (way) => {
    const value = namedTensors(await load(path, { mmap: way === "mapped" }));
    const [tensor] = value.values() as unknown as [Tensor];
    const array = tensor.toTypedArray();
    const before = array.slice();
    tensor.dispose();
    tensor.dispose();
    expect(() => tensor.toTypedArray()).toThrow(/was disposed of/);
    expect(() => tensor.storage.bytes).toThrow(/was disposed of/);
    await expect(tensor.to("cuda")).rejects.toThrow(/was disposed of/);
    await collectGarbage();
    expect(array).toEqual(before);
  });
});

describe("memory that nobody disposed of", () => {
  /** Loads in a frame of its own, so that nothing on the stack holds on to the tensors. */
  async function forget(device: string): Promise<void> {
    const tensors = await loaded(device);
    expect(tensors.length).toBe(3);
  }

  test("is freed when nothing refers to it any more", async () => {
    await forget("cuda:0");
    await forget("cuda:1");
    await vi.waitFor(async () => {
      await collectGarbage();
      expect(cuda().live).toEqual([]);
    });
  });

  test("is kept as long as one tensor of the load can be reached", async () => {
    await (async () => {
      const kept = await (async () => (await loaded("cuda:0"))[1] as Tensor)();
      await collectGarbage();
      expect(cuda().live.length).toBe(1);
      expect(same((await kept.to("cpu")).storage.bytes, contents[1] as Uint8Array)).toBe(true);
      kept.dispose();
    })();
    await vi.waitFor(async () => {
      await collectGarbage();
      expect(cuda().live).toEqual([]);
    });
  });

  test("is not freed a second time when it was disposed of", async () => {
    await (async () => disposeAll(await loaded("cuda:0")))();
    const freed = cuda().count("cuMemFree_v2") + cuda().count("cuMemFreeAsync");
    await collectGarbage();
    expect(cuda().count("cuMemFree_v2") + cuda().count("cuMemFreeAsync")).toBe(freed);
  });

  test("does not end the process when the driver fails to free it", async () => {
    const uncaught: unknown[] = [];
    const note = (error: unknown): void => void uncaught.push(error);
    process.on("uncaughtException", note);
    cuda().failAlways("cuMemFree_v2", 700);
    cuda().failAlways("cuMemFreeAsync", 700);
    await forget("cuda:0");
    await vi.waitFor(async () => {
      await collectGarbage();
      expect(cuda().count("cuMemFree_v2") + cuda().count("cuMemFreeAsync")).toBe(1);
    });
    await new Promise((resolve) => setTimeout(resolve, 20));
    process.off("uncaughtException", note);
    expect(uncaught).toEqual([]);
    cuda().heal();
    cuda().abandon();
  });

  test.each([true, false])("is not freed under a read of it that was begun before (pools: %s)", async (pools) => {
    const fake = replug({ delay: 1, pools });
    let release = (): void => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const start = async (): Promise<Promise<Uint8Array | undefined>[]> => {
      const tensors = await loaded("cuda:0");
      // Whoever has the slots keeps the read from being done before the collector runs.
      void lockStaging(() => held);
      return [(tensors[2] as Tensor).storage.memory?.read(0, 12_000_000) as Promise<Uint8Array>];
    };
    const [reading] = await start();
    await collectGarbage();
    const { live } = fake;
    release();
    const bytes = await reading;
    expect(live.length).toBe(1);
    expect(same(bytes as Uint8Array, contents[2] as Uint8Array)).toBe(true);
    await vi.waitFor(async () => {
      await collectGarbage();
      expect(fake.live).toEqual([]);
    });
  });
});

describe("memory that is disposed of while something is done with it", () => {
  const large = new Uint8Array(writeZipCheckpoint([randomBytes(7, 40_000_000)]));

  test.each(["cpu", "cuda:1"])(
    "ends a copy to %s with an error or with its bytes, and does no harm",
    async (target) => {
      const [tensor] = (await load(large, { mapLocation: "cuda:0" })) as [Tensor];
      const moving = tensor.to(target);
      tensor.dispose();
      const moved = await moving.catch((error: unknown) => error as Error);
      if (moved instanceof Error) expect(moved).toBeInstanceOf(TypeError);
      else {
        expect(same((await moved.to("cpu")).storage.bytes, randomBytes(7, 40_000_000))).toBe(true);
        moved.dispose();
      }
    },
  );
});
