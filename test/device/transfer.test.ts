import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { SLOT_BYTES, SLOT_COUNT, stagingSlots } from "../../src/device/cuda/staging.js";
import {
  type ByteSource,
  type LoadOptions,
  type LoadReport,
  load,
  loadReplicas,
  open,
  type Progress,
  type Tensor,
} from "../../src/index.js";
import {
  checkpointRecords,
  concatAll,
  int,
  legacyCheckpoint,
  list,
  storage,
  tensor,
  tuple,
  zip,
} from "../support/bad-files.js";
import { fixture } from "../support/fixtures.js";
import { writeZipCheckpoint } from "../support/zip-checkpoint.js";
import {
  disposeAll,
  randomBytes,
  replug,
  same,
  storagesOf,
  temporaryFolder,
  useFakeCuda,
  WatchedSource,
  write,
} from "./device-support.js";

const cuda = useFakeCuda();
const folder = temporaryFolder();
const MiB = 1024 * 1024;

/** A checkpoint that is a list of float32 tensors, each of whole elements. */
interface Made {
  readonly path: string;
  readonly contents: readonly Uint8Array[];
}

function tensorsOf(contents: readonly Uint8Array[]): Uint8Array {
  return list(
    ...contents.map(({ length }, k) => {
      const numel = int(length / 4);
      return tensor(storage(String(k), { numel }), { size: tuple(numel) });
    }),
  );
}

function zipOf(name: string, contents: readonly Uint8Array[]): Made {
  return { path: write(folder, name, writeZipCheckpoint(contents)), contents };
}

function legacyOf(name: string, contents: readonly Uint8Array[]): Made {
  const storages = contents.map((content, k) => ({ key: String(k), content }));
  return { path: write(folder, name, legacyCheckpoint(tensorsOf(contents), storages)), contents };
}

/** A zip whose records are not in the order of the tensors. */
function shuffledOf(name: string, contents: readonly Uint8Array[]): Made {
  const records = checkpointRecords(
    tensorsOf(contents),
    Object.fromEntries(contents.map((content, k) => [String(k), content])),
  );
  const data = records.filter(({ name: record }) => String(record).includes("/data/"));
  const others = records.filter((record) => !data.includes(record));
  const turned = data.map((_, k) => data[(k * 7 + 3) % data.length] as (typeof data)[number]);
  return { path: write(folder, name, zip([...others, ...turned])), contents };
}

const sizes = [24 * MiB, 4000, 30 * MiB + 4, 8, 0, 12 * MiB, 100_000, SLOT_BYTES];
const mixed = sizes.map((nbytes, k) => randomBytes(k, nbytes));
const tiny = (count: number, nbytes: number): Uint8Array[] =>
  Array.from({ length: count }, (_, k) => randomBytes(k, nbytes));

const large = zipOf("large.pt", mixed);
const largeLegacy = legacyOf("large-legacy.pt", mixed);
const manyZip = zipOf("many.pt", tiny(20_000, 64));
const manyLegacy = legacyOf("many-legacy.pt", tiny(20_000, 64));
/** Groups of tiny storages between large ones: each group is brought together in a slot of its own before it is copied. */
const groups = legacyOf(
  "groups.pt",
  Array.from({ length: 40 * 21 }, (_, k) => randomBytes(k, k % 21 === 20 ? 150_000 : 40 + 4 * (k % 21))),
);
const shuffled = shuffledOf("shuffled.pt", tiny(101, 40_000));

async function check(value: unknown, contents: readonly Uint8Array[]): Promise<void> {
  const tensors = value as Tensor[];
  expect(tensors.length).toBe(contents.length);
  for (const [index, tensor] of tensors.entries()) {
    const host = await tensor.to("cpu");
    expect(same(host.storage.bytes, contents[index] as Uint8Array), `tensor ${index}`).toBe(true);
  }
}

/** Looks at the bytes of many small tensors where they lie, without a copy for each. */
function checkInPlace(value: unknown, contents: readonly Uint8Array[]): void {
  const [{ address, nbytes }] = cuda().live as unknown as [{ address: number; nbytes: number }];
  const bytes = cuda().peek(address, nbytes);
  for (const [index, tensor] of (value as Tensor[]).entries()) {
    const start = Number(tensor.devicePointer) - address;
    const content = contents[index] as Uint8Array;
    expect(same(bytes.subarray(start, start + content.length), content), `tensor ${index}`).toBe(true);
  }
}

const destinations: Record<string, LoadOptions> = {
  "one device": { mapLocation: "cuda:1" },
  "both devices": { mapLocation: ({ key }) => `cuda:${Number(key) % 2}` },
  "devices and main memory": { mapLocation: ({ key }) => ["cuda:0", "cpu", "cuda:1"][Number(key) % 3] },
};

describe.each(Object.entries(destinations))("to %s", (_, options) => {
  describe.each([0, 1, 7, 100])("with copies that take %i queries", (delay) => {
    test.each([
      ["a zip file", large],
      ["a legacy file", largeLegacy],
      ["a zip file in another order", shuffled],
      ["a legacy file of tiny and large storages", groups],
    ])("%s goes through the slots and arrives whole", async (_name, { path, contents }) => {
      replug({ delay });
      // Twice, since the second load has slots that are pinned already and reads ahead.
      for (let round = 0; round < 2; round++) {
        const value = await load(path, options);
        await check(value, contents);
        disposeAll(value);
        expect(cuda().live).toEqual([]);
      }
    });

    test("a source that is not a file goes through the slots and arrives whole", async () => {
      replug({ delay });
      let turn = 0;
      const source = new WatchedSource(readFileSync(large.path), async () => {
        // Later reads end before earlier ones.
        await new Promise((resolve) => setTimeout(resolve, 10 - (turn++ % 8)));
      });
      const value = await load(source, options);
      expect(source.inFlight).toBe(0);
      await check(value, large.contents);
      disposeAll(value);
    });
  });
});

describe("the slots", () => {
  test("are all used by a file that is larger than they are together, and more than once", async () => {
    expect(mixed.reduce((sum, { length }) => sum + length, 0)).toBeGreaterThan(SLOT_BYTES * SLOT_COUNT);
    disposeAll(await load(large.path, { mapLocation: "cuda" }));
    cuda().resetCount();
    const value = await load(large.path, { mapLocation: "cuda" });
    expect(cuda().copied.length).toBeGreaterThan(SLOT_COUNT);
    expect(cuda().copied.length).toBeLessThan(SLOT_COUNT * 4);
    expect(Math.max(...cuda().copied)).toBeLessThanOrEqual(SLOT_BYTES);
    disposeAll(value);
  });

  test("are pinned once a process, eight of them, and never freed", async () => {
    const before = cuda().count("cuMemHostRegister_v2") + cuda().count("cuMemHostAlloc");
    for (let k = 0; k < 3; k++) disposeAll(await load(large.path, { mapLocation: `cuda:${k % 2}` }));
    expect(cuda().count("cuMemHostRegister_v2") + cuda().count("cuMemHostAlloc")).toBe(before);
    expect(cuda().count("cuMemFreeHost")).toBe(0);
    const slots = stagingSlots(undefined as never, 100);
    expect(slots.length).toBe(SLOT_COUNT);
    const addresses = slots.map(({ address }) => address).sort((a, b) => a - b);
    for (const [index, address] of addresses.slice(1).entries()) {
      expect(address - (addresses[index] as number)).toBeGreaterThanOrEqual(SLOT_BYTES);
    }
  });

  test("are made with the driver's own allocation where memory cannot be registered", async () => {
    const { forgetStaging } = await import("../../src/device/cuda/staging.js");
    forgetStaging();
    cuda().failAlways("cuMemHostRegister_v2", 801);
    const value = await load(shuffled.path, { mapLocation: "cuda" });
    expect(cuda().count("cuMemHostAlloc")).toBeGreaterThan(0);
    await check(value, shuffled.contents);
    disposeAll(value);
  });

  test("serve loads that run at the same time, one after the other", async () => {
    const files = [large, manyZip, largeLegacy, shuffled, large];
    const values = await Promise.all(
      files.map(({ path }, k) =>
        load(path, { mapLocation: k % 2 === 0 ? "cuda:0" : ({ key }) => `cuda:${Number(key) % 2}` }),
      ),
    );
    for (const [index, value] of values.entries()) {
      const { contents } = files[index] as Made;
      if (contents.length < 1000) await check(value, contents);
      disposeAll(value);
    }
  });

  test("serve loads, reads and moves that are mixed", async () => {
    const value = (await load(large.path, { mapLocation: "cuda:0" })) as Tensor[];
    const [moved, read, again, other] = await Promise.all([
      (value[0] as Tensor).to("cuda:1"),
      (value[2] as Tensor).to("cpu"),
      load(large.path, { mapLocation: "cuda:1" }),
      load(shuffled.path, { mapLocation: ({ key }) => (Number(key) % 2 === 0 ? "cuda:0" : "cpu") }),
    ]);
    await check([moved, read], [mixed[0] as Uint8Array, mixed[2] as Uint8Array]);
    await check(again, mixed);
    await check(other, shuffled.contents);
    disposeAll([value, moved, again, other]);
  });

  test("are given back by a load that read ahead in vain", async () => {
    disposeAll(await load(large.path, { mapLocation: "cuda" }));
    const broken = write(folder, "broken.pt", readFileSync(large.path).subarray(0, 50 * MiB));
    for (let k = 0; k < 3; k++) {
      await expect(load(broken, { mapLocation: "cuda" })).rejects.toThrow();
      await expect(load(large.path, { mapLocation: "cuda:9" })).rejects.toThrow(/cuda:9/);
      await expect(load(large.path, { mapLocation: "cuda", signal: AbortSignal.abort("no") })).rejects.toBe("no");
    }
    const empty = fixture("torch-2.11/empty.zip").path;
    disposeAll(await load(empty, { mapLocation: "cuda" }));
    const value = await load(large.path, { mapLocation: "cuda" });
    await check(value, mixed);
    disposeAll(value);
  });
});

describe.skipIf(process.platform !== "linux")("open files", () => {
  const openFiles = (): string[] => readdirSync("/proc/self/fd");

  test("are as many after loads that succeed, fail, are given up or read ahead in vain", async () => {
    const broken = write(folder, "broken-again.pt", readFileSync(large.path).subarray(0, 50 * MiB));
    const round = async (): Promise<void> => {
      for (const options of Object.values(destinations)) disposeAll(await load(shuffled.path, options));
      await load(broken, { mapLocation: "cuda" }).catch(() => {});
      await load(large.path, { mapLocation: "cuda:9" }).catch(() => {});
      await load(large.path, { mapLocation: "cuda", signal: AbortSignal.abort() }).catch(() => {});
      cuda().fail("cuMemcpyHtoDAsync_v2", 719);
      await load(large.path, { mapLocation: "cuda" }).catch(() => {});
      cuda().fail("cuMemcpyHtoDAsync_v2", 719);
      await load(large.path, { mapLocation: () => "cuda" }).catch(() => {});
      await using checkpoint = await open(large.path);
      disposeAll(await checkpoint.load({ mapLocation: "cuda" }));
    };
    await round();
    const before = openFiles().length;
    for (let k = 0; k < 3; k++) await round();
    expect(openFiles().length).toBe(before);
  });
});

describe("calls of the driver", () => {
  test.each([
    ["a zip file", manyZip],
    ["a legacy file", manyLegacy],
  ])("are few for 20,000 tiny storages that lie in order in %s", async (_, { path, contents }) => {
    disposeAll(await load(path, { mapLocation: "cuda" }));
    for (const input of [path, new Uint8Array(readFileSync(path))]) {
      cuda().resetCount();
      const value = await load(input, { mapLocation: "cuda" });
      expect(cuda().copied.length).toBeLessThan(20);
      expect(cuda().count("cuMemAllocFromPoolAsync") + cuda().count("cuMemAlloc_v2")).toBe(1);
      expect(cuda().count() - cuda().count("cuEventQuery") - cuda().count("cuCtxSetCurrent")).toBeLessThan(100);
      checkInPlace(value, contents);
      cuda().resetCount();
      disposeAll(value);
      expect(cuda().count("cuMemFreeAsync") + cuda().count("cuMemFree_v2")).toBe(1);
    }
  });

  test("are few for 2,000 storages of 1 KiB, and one allocation a device", async () => {
    const { path, contents } = zipOf("kib.pt", tiny(2000, 1024));
    cuda().resetCount();
    const value = await load(path, { mapLocation: ({ key }) => `cuda:${Number(key) < 1000 ? 0 : 1}` });
    expect(cuda().live.length).toBe(2);
    expect(cuda().copied.length).toBeLessThan(20);
    await check((value as Tensor[]).slice(990, 1010), contents.slice(990, 1010));
    disposeAll(value);
  });

  test("move of one tensor no more than that tensor", async () => {
    await using checkpoint = await open(large.path);
    cuda().resetCount();
    const tensor = await checkpoint.load("3", { device: "cuda" });
    expect(cuda().copied).toEqual([8]);
    await check([tensor], [mixed[3] as Uint8Array]);
    tensor.dispose();
  });

  test("copy every byte once", async () => {
    disposeAll(await load(large.path, { mapLocation: "cuda" }));
    const total = mixed.reduce((sum, { length }) => sum + length, 0);
    for (const { path } of [large, largeLegacy]) {
      cuda().resetCount();
      const value = await load(path, { mapLocation: "cuda" });
      const copied = cuda().copied.reduce((sum, nbytes) => sum + nbytes, 0);
      // The gaps between neighbours are copied along: at most 512 bytes for each.
      expect(copied).toBeGreaterThanOrEqual(total);
      expect(copied).toBeLessThanOrEqual(total + 512 * mixed.length);
      disposeAll(value);
    }
  });

  test("leave what is beside the storages of an allocation as it was", async () => {
    const { path, contents } = zipOf("apart.pt", [randomBytes(1, 1 * MiB), randomBytes(2, 1 * MiB)]);
    const value = (await load(path, { mapLocation: "cuda" })) as Tensor[];
    checkInPlace(value, contents);
    disposeAll(value);
  });
});

describe("progress", () => {
  test.each([
    ["a zip file to one device", large.path, destinations["one device"] as LoadOptions],
    ["a zip file to two devices", large.path, destinations["both devices"] as LoadOptions],
    ["a zip file to three places", large.path, destinations["devices and main memory"] as LoadOptions],
    ["a legacy file", largeLegacy.path, destinations["one device"] as LoadOptions],
    ["many small storages", manyZip.path, destinations["both devices"] as LoadOptions],
    ["many small storages of a legacy file", manyLegacy.path, destinations["one device"] as LoadOptions],
    ["compressed records", fixture("torch-1.13/rezipped-deflated").path, destinations["one device"] as LoadOptions],
    ["main memory", large.path, {} as LoadOptions],
    ["main memory that is read into", large.path, { mmap: false } as LoadOptions],
  ])("of %s only grows, and ends at all there is", async (_, path, options) => {
    const seen: Progress[] = [];
    let report: LoadReport | undefined;
    const value = await load(path, {
      ...options,
      onProgress: (progress) => seen.push(progress),
      onReport: (told) => {
        report = told;
      },
    });
    const total = [...storagesOf(value)].reduce((sum, { nbytes }) => sum + nbytes, 0);
    disposeAll(value);
    expect(seen.length).toBeGreaterThan(0);
    for (const [index, { loaded, total: all }] of seen.entries()) {
      expect(all).toBe(total);
      expect(loaded).toBeGreaterThanOrEqual(seen[index - 1]?.loaded ?? 0);
      expect(loaded).toBeLessThanOrEqual(total);
    }
    expect(seen.at(-1)).toEqual({ loaded: total, total });
    expect(seen.filter(({ loaded }) => loaded === total).length).toBe(1);
    expect(report?.nbytes).toBe(total);
    expect(report?.fillMs).toBeGreaterThanOrEqual(0);
  });
});

test("a source of the caller's own is read and not closed, whichever verb reads it", async () => {
  let closed = 0;
  const bytes = readFileSync(shuffled.path);
  const source: ByteSource = {
    name: "mine",
    size: bytes.length,
    read: (start, end) => bytes.subarray(start, end),
    close: () => void closed++,
  };
  const loaded = await load(source, { mapLocation: "cuda" });
  const replicas = await loadReplicas(source, { devices: ["cuda:0", "cuda:0", "cuda:1", "cpu"] });
  await using checkpoint = await open(source);
  const again = await checkpoint.load({ mapLocation: "cuda:1" });
  for (const value of [loaded, ...replicas, again]) await check(value, shuffled.contents);
  for (const value of [loaded, ...replicas, again]) disposeAll(value);
  await checkpoint.close();
  expect(closed).toBe(0);
});

describe("the event loop", () => {
  test("goes on while a large file is loaded", async () => {
    replug({ delay: 50 });
    let turns = 0;
    const timer = setInterval(() => turns++, 1);
    const value = await load(large.path, { mapLocation: ({ key }) => `cuda:${Number(key) % 2}` });
    clearInterval(timer);
    expect(turns).toBeGreaterThan(0);
    disposeAll(value);
  });
});

test("what the tests compare with is not what happens to be there", () => {
  const bytes = concatAll([randomBytes(1, 100_000), randomBytes(2, 100_000)]);
  expect(same(bytes.subarray(0, 100_000), bytes.subarray(100_000))).toBe(false);
  const words = new Set(new Uint32Array(randomBytes(3, 4 * MiB).buffer));
  expect(words.size).toBeGreaterThan(MiB * 0.99);
});
