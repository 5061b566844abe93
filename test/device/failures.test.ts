import { truncateSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { DeviceError, type LoadOptions, load, open, SourceError, type Tensor } from "../../src/index.js";
import {
  checkpointRecords,
  int,
  legacyCheckpoint,
  list,
  storage,
  tensor,
  text,
  tuple,
  zip,
} from "../support/bad-files.js";
import type { FakeCuda } from "../support/fake-cuda.js";
import { writeZipCheckpoint } from "../support/zip-checkpoint.js";
import {
  busySlots,
  disposeAll,
  randomBytes,
  replug,
  same,
  temporaryFolder,
  useFakeCuda,
  WatchedSource,
  write,
} from "./device-support.js";

const cuda = useFakeCuda({ delay: 2 });
const folder = temporaryFolder();
const MiB = 1024 * 1024;

/** More than all slots hold, in storages that are far apart in the plan. */
const large = [30 * MiB, 1000, 40 * MiB + 1, 5, 0, 12 * MiB].map((nbytes, k) => randomBytes(k, nbytes));
const small = [5000, 100, 300_000].map((nbytes, k) => randomBytes(k + 20, nbytes));
/** Storages that are compressed and so have to be made in main memory first. */
const deflated = [5000, 100, 300_000].map((nbytes, k) => randomBytes(k + 30, nbytes).fill(k));

const largeZip = new Uint8Array(writeZipCheckpoint(large));
const smallZip = new Uint8Array(writeZipCheckpoint(small));
const largeFile = write(folder, "large.pt", largeZip);
const smallFile = write(folder, "small.pt", smallZip);
const legacyFile = write(
  folder,
  "legacy.pt",
  legacyCheckpoint(
    list(...small.map(({ length }, k) => tensorOf(k, length))),
    small.map((content, k) => ({ key: String(k), content })),
  ),
);
const deflatedFile = write(
  folder,
  "deflated.pt",
  zip(
    checkpointRecords(
      list(...deflated.map(({ length }, k) => tensorOf(k, length))),
      Object.fromEntries(deflated.map((content, k) => [String(k), content])),
    ).map((record) => ({ ...record, deflate: true })),
  ),
);

function tensorOf(key: number, nbytes: number): Uint8Array {
  const numel = nbytes / 4;
  return tensor(storage(String(key), { numel: int(numel), location: text("cpu") }), { size: tuple(int(numel)) });
}

const files: Record<string, { path: string; contents: readonly Uint8Array[] }> = {
  "a large file": { path: largeFile, contents: large },
  "a small file": { path: smallFile, contents: small },
  "a legacy file": { path: legacyFile, contents: small },
  "a compressed file": { path: deflatedFile, contents: deflated },
};

async function check(value: unknown, contents: readonly Uint8Array[]): Promise<void> {
  for (const [index, tensor] of (value as Tensor[]).entries()) {
    expect(same((await tensor.to("cpu")).storage.bytes, contents[index] as Uint8Array), `tensor ${index}`).toBe(true);
  }
}

/** After a failure nothing may be left, and the same load has to work. */
async function checkCleanAndLoads(path: string, contents: readonly Uint8Array[], options: LoadOptions): Promise<void> {
  expect(cuda().live).toEqual([]);
  expect(cuda().pending).toBe(0);
  expect(cuda().faults).toEqual([]);
  expect(busySlots()).toBe(0);
  cuda().heal();
  const value = await load(path, options);
  await check(value, contents);
  disposeAll(value);
}

const both: LoadOptions = { mapLocation: ({ key }) => `cuda:${Number(key) % 2}` };

describe.each(Object.entries(files))("%s", (_, { path, contents }) => {
  describe.each([
    ["to one device", { mapLocation: "cuda:0" } as LoadOptions],
    ["to two devices", both],
  ])("%s", (_where, options) => {
    const calls = [
      "cuMemcpyHtoDAsync_v2",
      "cuEventRecord",
      "cuEventQuery",
      "cuEventSynchronize",
      "cuEventCreate",
      "cuMemAlloc_v2",
      "cuMemAllocFromPoolAsync",
      "cuMemGetInfo_v2",
      "cuCtxSetCurrent",
    ] as const;
    test.each(calls)(
      "fails with the driver's own error whichever %s fails, and leaves nothing behind",
      async (name) => {
        // Pins the slots and opens the contexts, so that what follows is about the load alone.
        disposeAll(await load(path, options));
        cuda().resetCount();
        const first = await load(path, options);
        const made = cuda().count(name);
        disposeAll(first);
        const picked = [...new Set([1, 2, 3, 4, Math.ceil(made / 2), made - 1, made])].filter(
          (n) => n > 0 && n <= made,
        );
        for (const nth of picked) {
          cuda().fail(name, 719, nth);
          const loading = load(path, options);
          const value = await loading.catch((error: unknown) => error);
          cuda().heal();
          // A load that found another way is as good, when the failure was met by one that was not needed.
          if (value instanceof Error) {
            expect(value, `${name} ${nth}`).toBeInstanceOf(DeviceError);
            expect((value as DeviceError).message).toContain("CUDA_ERROR_LAUNCH_FAILED");
            expect((value as DeviceError).driverCode).toBe(719);
          } else {
            await check(value, contents);
            disposeAll(value);
          }
          await checkCleanAndLoads(path, contents, options);
        }
      },
    );

    test("fails with the copy's error when its context does not survive it", async () => {
      disposeAll(await load(path, options));
      cuda().breakContext("cuMemcpyHtoDAsync_v2", 700);
      const error = await load(path, options).catch((thrown: unknown) => thrown);
      expect((error as DeviceError).message).toBe("CUDA: cuMemcpyHtoDAsync_v2 failed with CUDA_ERROR_ILLEGAL_ADDRESS");
      // What lies on a context that is lost cannot be freed.
      cuda().heal();
      cuda().abandon();
    });
  });
});

describe("memory that runs out", () => {
  test.each([
    ["a small file", smallFile, 100_000],
    ["a large file", largeFile, 50 * MiB],
  ])("is told with the numbers for %s", async (_, path, memory) => {
    replug({ memory });
    const error = await load(path, { mapLocation: "cuda:1" }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(DeviceError);
    expect((error as DeviceError).message).toMatch(
      new RegExp(`^Cannot place \\d+ bytes on cuda:1: ${memory} of its ${memory} bytes are free$`),
    );
    const wanted = Number(/\d+/.exec((error as DeviceError).message)?.[0]);
    expect(wanted).toBeGreaterThan(memory);
    expect((error as DeviceError).device).toBe("cuda:1");
    expect((error as DeviceError).driverName).toBe("CUDA_ERROR_OUT_OF_MEMORY");
    expect(cuda().copied).toEqual([]);
    cuda().memory.fill(2 ** 30);
    await checkCleanAndLoads(path, path === smallFile ? small : large, { mapLocation: "cuda:1" });
  });

  test("counts what others have taken", async () => {
    const value = await load(smallFile, { mapLocation: "cuda" });
    const [{ nbytes }] = cuda().live as unknown as [{ nbytes: number }];
    cuda().memory[0] = nbytes + 1000;
    await expect(load(smallFile, { mapLocation: "cuda" })).rejects.toThrow(
      `Cannot place ${nbytes} bytes on cuda:0: 1000 of its ${nbytes + 1000} bytes are free`,
    );
    disposeAll(value);
    disposeAll(await load(smallFile, { mapLocation: "cuda" }));
  });

  test("on the second device frees what was had on the first, before any byte is read", async () => {
    cuda().memory[1] = 1000;
    const source = new WatchedSource(largeZip);
    await expect(load(source, both)).rejects.toThrow(/bytes on cuda:1: 1000 of its 1000 bytes are free/);
    expect(source.bytesRead).toBeLessThan(MiB);
    expect(cuda().count("cuMemAlloc_v2")).toBeGreaterThan(0);
    cuda().memory[1] = 2 ** 30;
    await checkCleanAndLoads(largeFile, large, both);
  });

  test("while pinned memory is being had ends the load, and not the next", async () => {
    const fake: FakeCuda = cuda();
    fake.failAlways("cuMemHostRegister_v2", 801);
    fake.failAlways("cuMemHostAlloc", 2);
    const value = await load(largeFile, { mapLocation: "cuda" }).catch((error: unknown) => error);
    if (value instanceof Error) expect(value).toBeInstanceOf(DeviceError);
    else disposeAll(value);
    await checkCleanAndLoads(largeFile, large, { mapLocation: "cuda" });
  });
});

describe.each([
  ["to one device", { mapLocation: "cuda:1" } as LoadOptions],
  ["to two devices", both],
  ["to main memory", {} as LoadOptions],
])("a source that fails, %s,", (_, options) => {
  test.each([0, 1000, 20 * MiB, 60 * MiB, 82 * MiB])(
    "at byte %i of its tensors ends the load with its error",
    async (at) => {
      const failed = new Error("the cable");
      const source = new WatchedSource(largeZip, (start, end) => {
        if (start <= at + 100_000 && end > at + 1000 && end - start > 4096) throw failed;
      });
      const error = await load(source, options).catch((thrown: unknown) => thrown);
      expect(error).toBe(failed);
      expect(source.inFlight).toBe(0);
      await checkCleanAndLoads(largeFile, large, options);
    },
  );

  test("late, while other reads are in flight, is waited for", async () => {
    const failed = new Error("late");
    let reads = 0;
    const source = new WatchedSource(largeZip, async (start, end) => {
      if (end - start < 100_000) return;
      const mine = ++reads;
      await new Promise((resolve) => setTimeout(resolve, mine === 3 ? 5 : 40));
      if (mine === 3) throw failed;
    });
    await expect(load(source, options)).rejects.toBe(failed);
    expect(source.inFlight).toBe(0);
    await checkCleanAndLoads(largeFile, large, options);
  });

  test.each([-1, -1000, 1])("by giving %i bytes more than it was asked for is refused", async (more) => {
    const whole = new WatchedSource(largeZip);
    const source = {
      name: "liar.pt",
      size: largeZip.length,
      async read(start: number, end: number) {
        const far = start > 40 * MiB && end - start > 4096 && end + more <= largeZip.length;
        return whole.read(start, far ? end + more : end);
      },
    };
    const error = await load(source, options).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(SourceError);
    expect((error as SourceError).message).toContain("liar.pt");
    await checkCleanAndLoads(largeFile, large, options);
  });

  test("because its file was cut after it was opened ends the load", async () => {
    const path = write(folder, "cut.pt", largeZip);
    const checkpoint = await open(path);
    truncateSync(path, 60 * MiB);
    const error = await checkpoint.load(options).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(SourceError);
    expect((error as SourceError).message).toContain(path);
    await checkpoint.close();
    await checkCleanAndLoads(largeFile, large, options);
  });

  test("because its file was written to after it was opened ends the load", async () => {
    const path = write(folder, "changed.pt", largeZip);
    const checkpoint = await open(path);
    const changed = largeZip.slice();
    changed.fill(0, 50 * MiB, 55 * MiB);
    writeFileSync(path, changed);
    utimesSync(path, new Date(), new Date(Date.now() + 60_000));
    const error = await checkpoint.load(options).catch((thrown: unknown) => thrown);
    if (!(error instanceof Error)) disposeAll(error);
    expect(error).toBeInstanceOf(SourceError);
    await checkpoint.close();
    await checkCleanAndLoads(largeFile, large, options);
  });
});

describe.each([
  ["a large file", largeFile, large],
  ["a small file", smallFile, small],
  ["a compressed file", deflatedFile, deflated],
] as const)("a load of %s", (_, path, contents) => {
  describe.each([
    ["to one device", { mapLocation: "cuda:1" } as LoadOptions],
    ["to two devices", both],
    ["to main memory", { mmap: false } as LoadOptions],
  ])("%s", (_where, options) => {
    test("that was given up before ends with the signal's reason", async () => {
      const reason = new Error("enough");
      await expect(load(path, { ...options, signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
      await checkCleanAndLoads(path, contents, options);
    });

    test("that is given up when the first bytes have arrived ends with the signal's reason", async () => {
      const controller = new AbortController();
      const reason = { any: "value" };
      let calls = 0;
      const loading = load(path, {
        ...options,
        signal: controller.signal,
        onProgress({ loaded, total }) {
          calls++;
          if (loaded < total) controller.abort(reason);
        },
      });
      const result = await loading.catch((thrown: unknown) => thrown);
      expect(calls).toBeGreaterThan(0);
      // One piece is all there is to some of them: nothing is left to give up then.
      if (controller.signal.aborted) expect(result).toBe(reason);
      else disposeAll(result);
      await checkCleanAndLoads(path, contents, options);
    });

    test("that is given up while it waits for bytes ends with the signal's reason", async () => {
      const controller = new AbortController();
      const reason = new Error("too slow");
      const { readFileSync } = await import("node:fs");
      const bytes = new Uint8Array(readFileSync(path));
      let wanted = 0;
      const source = new WatchedSource(bytes, async (start, _end, signal) => {
        if (start < 2000 || start > bytes.length - 20_000 || wanted++ < 2) return;
        setTimeout(() => controller.abort(reason), 5);
        await new Promise<void>((resolve, reject) => {
          setTimeout(resolve, 200);
          signal?.addEventListener("abort", () => reject(signal.reason));
        });
      });
      const result = await load(source, { ...options, signal: controller.signal }).catch((thrown: unknown) => thrown);
      expect(source.inFlight).toBe(0);
      if (controller.signal.aborted) expect(result).toBe(reason);
      else disposeAll(result);
      await checkCleanAndLoads(path, contents, options);
    });

    test("ends with what onProgress throws, at its first call and at its last", async () => {
      const thrown = new Error("from onProgress");
      for (const last of [false, true]) {
        const loading = load(path, {
          ...options,
          onProgress({ loaded, total }) {
            if (!last || loaded === total) throw thrown;
          },
        });
        await expect(loading).rejects.toBe(thrown);
        await checkCleanAndLoads(path, contents, options);
      }
    });
  });
});

describe("an error of the copies that were made last", () => {
  const many = Array.from({ length: 500 }, (_, k) => randomBytes(k, 64));
  const manyLegacy = write(
    folder,
    "many-legacy.pt",
    legacyCheckpoint(
      list(...many.map(({ length }, k) => tensorOf(k, length))),
      many.map((content, k) => ({ key: String(k), content })),
    ),
  );

  test("ends the load also when they were gathered from small pieces", async () => {
    disposeAll(await load(manyLegacy, { mapLocation: "cuda" }));
    cuda().fail("cuEventSynchronize", 719);
    const result = await load(manyLegacy, { mapLocation: "cuda" }).catch((thrown: unknown) => thrown);
    expect(result).toBeInstanceOf(DeviceError);
    await checkCleanAndLoads(manyLegacy, many, { mapLocation: "cuda" });
  });
});

test("a load that fails on one device does not disturb one that runs on another", async () => {
  disposeAll(await load(smallFile, both));
  cuda().fail("cuMemcpyHtoDAsync_v2", 719, 3);
  const results = await Promise.allSettled(
    ["cuda:0", "cuda:1", "cuda:0", "cuda:1"].map((mapLocation) => load(largeFile, { mapLocation })),
  );
  expect(results.filter(({ status }) => status === "rejected").length).toBe(1);
  for (const result of results) {
    if (result.status === "rejected") continue;
    await check(result.value, large);
    disposeAll(result.value);
  }
  expect(join(folder, "large.pt")).toBe(largeFile);
});
