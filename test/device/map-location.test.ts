import { readFileSync } from "node:fs";
import { afterEach, describe, expect, test } from "vitest";
import {
  Device,
  FormatError,
  load,
  type MapLocation,
  registerPackage,
  Storage,
  type StorageDescription,
  type Tensor,
} from "../../src/index.js";
import { Comparison } from "../support/expected.js";
import { fixture } from "../support/fixtures.js";
import { writeZipCheckpoint } from "../support/zip-checkpoint.js";
import { disposeAll, randomBytes, same, useFakeCuda } from "./device-support.js";

const cuda = useFakeCuda({ delay: 1 });
const locations = fixture("torch-2.11/locations.zip");
const views = fixture("torch-2.11/views.zip");
const saved = ["cpu", "cuda:0", "cuda:1", "mps", "npu:0"];

/** Loads the tensors whose names are the tags they were saved under, and gives the device of each. */
async function places(mapLocation: MapLocation | undefined, path = locations.path): Promise<Record<string, string>> {
  const value = (await load(path, mapLocation === undefined ? {} : { mapLocation })) as Map<string, Tensor>;
  const found = Object.fromEntries([...value].map(([name, tensor]) => [name, String(tensor.device)]));
  await new Comparison((tensor) => tensor.to("cpu")).compare(value, locations.expected.value);
  disposeAll(value);
  return found;
}

const all = (device: string): Record<string, string> => Object.fromEntries(saved.map((tag) => [tag, device]));

const registered: (() => void)[] = [];
afterEach(() => {
  for (const remove of registered.splice(0)) remove();
});

/** A package that knows some tags, for the length of a test. */
function restorer(priority: number, restore: (location: string) => Device | string | undefined): () => void {
  const remove = registerPackage(priority, () => undefined, restore);
  registered.push(remove);
  return remove;
}

describe("mapLocation", () => {
  test("puts everything on the CPU when nothing is said", async () => {
    expect(await places(undefined)).toEqual(all("cpu"));
    expect(cuda().count()).toBe(0);
  });

  test.each(["cpu", "cuda:0", "cuda:1"])("puts everything on the device of a name, %s", async (name) => {
    expect(await places(name)).toEqual(all(name));
  });

  test('takes "cuda" for cuda:0', async () => {
    expect(await places("cuda")).toEqual(all("cuda:0"));
    expect(await places(new Device("cuda"))).toEqual(all("cuda:0"));
  });

  test("puts everything on a Device", async () => {
    expect(await places(new Device("cuda", 1))).toEqual(all("cuda:1"));
    expect(await places(new Device("cpu"))).toEqual(all("cpu"));
  });

  test.each([
    ["a dictionary", { "cuda:0": "cuda:1", mps: "cuda" }],
    [
      "a Map",
      new Map([
        ["cuda:0", "cuda:1"],
        ["mps", "cuda"],
      ]),
    ],
  ])("translates the tags of %s and sends all others to the CPU", async (_, mapLocation) => {
    expect(await places(mapLocation)).toEqual({ ...all("cpu"), "cuda:0": "cuda:1", mps: "cuda:0" });
  });

  test("takes a dictionary without a prototype, and none of its names from one", async () => {
    const dictionary = Object.assign(Object.create({ cpu: "cuda:1" }), { mps: "cuda:0" }) as Record<string, string>;
    expect(await places(dictionary)).toEqual({ ...all("cpu"), mps: "cuda:0" });
  });

  test("asks a function once a storage, with what is known of it", async () => {
    const asked: [StorageDescription, string][] = [];
    expect(
      await places((storage, location) => {
        asked.push([storage, location]);
        return undefined;
      }),
    ).toEqual(all("cpu"));
    expect(asked.map(([, location]) => location).sort()).toEqual(saved);
    for (const [storage, location] of asked) {
      expect(storage.location).toBe(location);
      expect(storage.nbytes).toBeGreaterThan(0);
      expect(storage.dtype?.name).toBe("float32");
    }
    expect(new Set(asked.map(([{ key }]) => key)).size).toBe(asked.length);
  });

  test("obeys a function that answers with names, Devices and nothing", async () => {
    const answers: Record<string, string | Device | null | undefined> = {
      cpu: "cuda:1",
      "cuda:0": new Device("cuda", 0),
      "cuda:1": null,
      mps: undefined,
      "npu:0": "cpu",
    };
    expect(await places((_, location) => answers[location])).toEqual({
      cpu: "cuda:1",
      "cuda:0": "cuda:0",
      "cuda:1": "cpu",
      mps: "cpu",
      "npu:0": "cpu",
    });
  });

  test("sends the storages of one file to all devices there are, each with its bytes", async () => {
    const devices = ["cuda:0", "cpu", "cuda:1"];
    let next = 0;
    const value = await load(views.path, { mapLocation: () => devices[next++ % 3] });
    await new Comparison((tensor) => tensor.to("cpu")).compare(value, views.expected.value);
    expect(new Set(cuda().live.map(({ device }) => device))).toEqual(new Set([0, 1]));
    disposeAll(value);
  });

  test('leaves everything on meta with "meta", and reads none of it', async () => {
    const bytes = readFileSync(locations.path);
    const value = (await load(new Uint8Array(bytes), { mapLocation: "meta" })) as Map<string, Tensor>;
    for (const tensor of value.values()) {
      expect(String(tensor.device)).toBe("meta");
      expect(() => tensor.toArray()).toThrow(/meta device/);
      expect(() => tensor.devicePointer).toThrow(/no device pointer/);
      await expect(tensor.to("cuda")).rejects.toThrow(/meta device/);
    }
    expect(cuda().live).toEqual([]);
  });

  test("sends some storages to meta and others to a device", async () => {
    const value = (await load(locations.path, {
      mapLocation: (_, location) => (location === "mps" ? "meta" : "cuda:1"),
    })) as Map<string, Tensor>;
    expect(String(value.get("mps")?.device)).toBe("meta");
    expect(String(value.get("cpu")?.device)).toBe("cuda:1");
    disposeAll(value);
  });
});

describe('mapLocation: "saved"', () => {
  test("goes where the file says", async () => {
    restorer(1, (location) => (location === "mps" || location === "npu:0" ? "cpu" : undefined));
    expect(await places("saved")).toEqual({
      cpu: "cpu",
      "cuda:0": "cuda:0",
      "cuda:1": "cuda:1",
      mps: "cpu",
      "npu:0": "cpu",
    });
  });

  test("refuses a tag that no package knows, and says what to do", async () => {
    restorer(1, (location) => (location === "mps" ? "cpu" : undefined));
    const error = await load(locations.path, { mapLocation: "saved" }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(FormatError);
    expect((error as FormatError).message).toMatch(/"npu:0".*pass a mapLocation, or register one/);
    expect((error as FormatError).message).toContain(locations.path);
    expect((error as FormatError).found).toBe("npu:0");
  });

  test("refuses a known tag of a device that is not there, with what there is", async () => {
    restorer(1, (location) => (location === "cuda:1" ? "cuda:5" : location === "cuda:0" ? undefined : "cpu"));
    await expect(load(locations.path, { mapLocation: "saved" })).rejects.toThrow(
      'Cannot use "cuda:5": this machine has 2 CUDA devices, cuda:0 to cuda:1',
    );
  });
});

describe("registerPackage", () => {
  test("asks in order of priority, and among equals in order of registration", async () => {
    const order: string[] = [];
    const note = (name: string) => (location: string) => {
      if (location === "npu:0") order.push(name);
      return undefined;
    };
    restorer(30, note("thirty"));
    restorer(5, note("five"));
    restorer(30, note("thirty again"));
    restorer(-1, note("minus one"));
    restorer(40, (location) => (location === "mps" || location === "npu:0" ? "cpu" : undefined));
    restorer(2, (location) => (location === "mps" ? "cpu" : undefined));
    await places("saved");
    expect(order).toEqual(["minus one", "five", "thirty", "thirty again"]);
  });

  test("comes before PyTorch's own packages with a lower priority, and after them with a higher", async () => {
    restorer(40, (location) => (location === "cpu" ? "cuda:1" : "cpu"));
    restorer(22, (location) => (location === "mps" ? "cpu" : undefined));
    // mps is PyTorch's, with priority 21: the restorer above comes too late for it.
    await expect(load(locations.path, { mapLocation: "saved" })).rejects.toThrow(/"mps".*no such kind of device/);
    restorer(20.5, (location) => (location === "mps" ? "cuda:0" : undefined));
    expect(await places("saved")).toMatchObject({ cpu: "cpu", mps: "cuda:0", "npu:0": "cpu" });
  });

  test("takes the registration back, once and alone", async () => {
    restorer(1, (location) => (location === "mps" ? "cpu" : undefined));
    const remove = restorer(1, (location) => (location === "npu:0" ? "cuda:0" : undefined));
    restorer(2, (location) => (location === "npu:0" ? "cuda:1" : undefined));
    expect(await places("saved")).toMatchObject({ "npu:0": "cuda:0" });
    remove();
    remove();
    expect(await places("saved")).toMatchObject({ "npu:0": "cuda:1", mps: "cpu" });
  });

  test("also decides on names that mapLocation gives", async () => {
    restorer(1, (location) => (location === "accelerator" ? new Device("cuda", 1) : undefined));
    expect(await places("accelerator")).toEqual(all("cuda:1"));
    expect(await places({ mps: "accelerator" })).toEqual({ ...all("cpu"), mps: "cuda:1" });
    expect(await places(() => "accelerator")).toEqual(all("cuda:1"));
  });

  test("can send what would go to CUDA elsewhere", async () => {
    restorer(1, (location) => (location.startsWith("cuda") ? "cpu" : undefined));
    expect(await places("cuda")).toEqual(all("cpu"));
    expect(await places("cuda:1")).toEqual(all("cpu"));
    expect(cuda().live).toEqual([]);
  });

  test("refuses a priority that is no number", () => {
    expect(() =>
      registerPackage(
        Number.NaN,
        () => undefined,
        () => undefined,
      ),
    ).toThrow(TypeError);
  });
});

describe("a storage of the caller's own", () => {
  const contents = [randomBytes(1, 5000), randomBytes(2, 100), randomBytes(3, 20_000_000)];
  const file = new Uint8Array(writeZipCheckpoint(contents));
  const other = new Uint8Array(writeZipCheckpoint(contents.map(({ length }, k) => randomBytes(k + 10, length))));

  test.each(["cpu", "cuda:0", "cuda:1"])("on %s takes the bytes, and nothing beside it is written", async (device) => {
    const mine = (await load(other, { mapLocation: device })) as Tensor[];
    const allocated = cuda().live.length;
    const value = (await load(file, {
      mapLocation: ({ nbytes }) => (nbytes === 100 ? "cpu" : mine.find((tensor) => tensor.nbytes === nbytes)?.storage),
    })) as Tensor[];
    expect(cuda().live.length).toBe(allocated);
    for (const [index, tensor] of value.entries()) {
      expect(same((await tensor.to("cpu")).storage.bytes, contents[index] as Uint8Array)).toBe(true);
      const isMine = index !== 1;
      expect(tensor.storage.memory === mine[index]?.storage.memory).toBe(isMine);
      const kept = isMine ? (contents[index] as Uint8Array) : randomBytes(11, 100);
      expect(same((await (mine[index] as Tensor).to("cpu")).storage.bytes, kept)).toBe(true);
    }
    disposeAll([mine, value]);
  });

  test.each(["cpu", "cuda:0"])("on %s takes bytes that are compressed in the file", async (device) => {
    const deflated = fixture("torch-1.13/rezipped-deflated");
    const mine = await load(deflated.path, { weightsOnly: false, mapLocation: device });
    const bySize = new Map<number, Storage>();
    const value = await load(deflated.path, {
      weightsOnly: false,
      mapLocation: ({ key, dtype, nbytes, location }) => {
        if (device !== "cpu" || bySize.has(nbytes)) return device;
        const storage = new Storage({ key, dtype, nbytes, location });
        bySize.set(nbytes, storage);
        return device;
      },
    });
    await new Comparison((tensor) => tensor.to("cpu")).compare(value, deflated.expected.value);
    disposeAll([mine, value]);
  });

  test("is refused with both sizes when its size is another, before anything is allocated", async () => {
    const mine = (await load(file, { mapLocation: "cuda:0" })) as Tensor[];
    const before = cuda().count("cuMemAllocFromPoolAsync");
    await expect(load(file, { mapLocation: () => mine[1]?.storage })).rejects.toThrow(
      /a storage of 100 bytes for storage "0" of 5000/,
    );
    expect(cuda().count("cuMemAllocFromPoolAsync")).toBe(before);
    disposeAll(mine);
  });

  test("is refused when it has no memory, or was disposed of", async () => {
    const mine = (await load(file, { mapLocation: "cuda:0" })) as Tensor[];
    mine[0]?.dispose();
    await expect(load(file, { mapLocation: () => mine[0]?.storage })).rejects.toThrow(TypeError);
    const empty = new Storage({ key: "0", dtype: undefined, nbytes: 5000, location: "cpu" });
    await expect(load(file, { mapLocation: () => empty })).rejects.toThrow(TypeError);
    disposeAll(mine);
  });

  test("stays the caller's when the load fails: it is not freed", async () => {
    const mine = (await load(file, { mapLocation: "cuda:0" })) as Tensor[];
    const failed = load(file, {
      mapLocation: ({ nbytes }) => mine.find((tensor) => tensor.nbytes === nbytes)?.storage,
      onProgress() {
        throw new Error("enough");
      },
    });
    await expect(failed).rejects.toThrow("enough");
    expect(cuda().live.length).toBe(1);
    expect(mine[0]?.devicePointer).toBeGreaterThan(0n);
    disposeAll(mine);
  });
});

describe("a mapLocation that is none", () => {
  test.each([
    7,
    true,
    Symbol("cuda"),
    "",
    "cuda:",
    "cuda:-1",
    "cuda:x",
    "CUDA",
    "cu da",
    { cpu: 1 },
    new Map([[1, "cpu"]]),
  ])("is a TypeError before the file is opened", async (mapLocation) => {
    await expect(load("/nowhere/at/all.pt", { mapLocation: mapLocation as never })).rejects.toThrow(TypeError);
  });

  test.each([7, {}, "cuda:", true])("is a TypeError when a function answers it, and nothing leaks", async (answer) => {
    let asked = 0;
    const mapLocation = () => (asked++ === 0 ? "cuda:0" : (answer as never));
    await expect(load(locations.path, { mapLocation })).rejects.toThrow(TypeError);
    expect(cuda().live).toEqual([]);
  });

  test("passes on what a function throws", async () => {
    const thrown = new Error("undecided");
    const mapLocation = (): never => {
      throw thrown;
    };
    await expect(load(locations.path, { mapLocation })).rejects.toBe(thrown);
  });
});
