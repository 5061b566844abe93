import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { DeviceError, isTorchloadError, load, open, type Tensor, UnsupportedError } from "../../src/index.js";
import { CU, FakeCuda } from "../support/fake-cuda.js";
import { fixture } from "../support/fixtures.js";
import { writeZipCheckpoint } from "../support/zip-checkpoint.js";
import { disposeAll, randomBytes, replug, useFakeCuda, WatchedSource } from "./device-support.js";

const cuda = useFakeCuda();
const { path } = fixture("tiny-gpt");
/** A file whose storages are far larger than all that has to be read to know them. */
const bytes = new Uint8Array(writeZipCheckpoint([randomBytes(1, 1_000_000), randomBytes(2, 1_000_000)]));

/** The error that a load fails with, and how many bytes it read before. */
async function refusal(mapLocation: string): Promise<{ error: unknown; bytesRead: number }> {
  const source = new WatchedSource(bytes);
  const error = await load(source, { mapLocation }).catch((thrown: unknown) => thrown);
  return { error, bytesRead: source.bytesRead };
}

describe("a device that is not there", () => {
  test("is named with the devices there are, before a byte of a tensor is read", async () => {
    const { error, bytesRead } = await refusal("cuda:7");
    expect(error).toBeInstanceOf(DeviceError);
    expect((error as DeviceError).message).toBe(
      'Cannot use "cuda:7": this machine has 2 CUDA devices, cuda:0 to cuda:1',
    );
    expect((error as DeviceError).device).toBe("cuda:7");
    expect(bytesRead).toBeLessThan(300_000);
    expect(cuda().count("cuMemAllocFromPoolAsync") + cuda().count("cuMemAlloc_v2")).toBe(0);
  });

  test("is named with the one device there is", async () => {
    replug({ devices: 1 });
    const { error } = await refusal("cuda:1");
    expect((error as DeviceError).message).toBe('Cannot use "cuda:1": this machine has one CUDA device, cuda:0');
  });

  test("is the same error from a file on disk, from an open checkpoint and from a tensor", async () => {
    const text = 'Cannot use "cuda:7": this machine has 2 CUDA devices, cuda:0 to cuda:1';
    await expect(load(path, { mapLocation: "cuda:7" })).rejects.toThrow(text);
    await using checkpoint = await open(path);
    await expect(checkpoint.load({ mapLocation: "cuda:7" })).rejects.toThrow(text);
    const [name] = checkpoint.tensors().keys() as unknown as [string];
    await expect(checkpoint.load(name, { device: "cuda:7" })).rejects.toThrow(text);
    const tensor: Tensor = await checkpoint.load(name);
    await expect(tensor.to("cuda:7")).rejects.toThrow(text);
  });

  test("among good ones ends the load before anything is allocated", async () => {
    const devices = ["cuda:0", "cuda:9"];
    await expect(load(bytes, { mapLocation: () => devices.shift() })).rejects.toThrow('Cannot use "cuda:9"');
    expect(cuda().live).toEqual([]);
    expect(cuda().copied).toEqual([]);
  });

  test("may be a second CPU", async () => {
    await expect(load(path, { mapLocation: "cpu:1" })).rejects.toThrow('There is one CPU device, not "cpu:1"');
  });
});

describe("a kind of device that is not there", () => {
  test.each(["xpu", "mps", "hpu:3", "tpu:0"])("is named with the kinds there are: %s", async (device) => {
    const { error, bytesRead } = await refusal(device);
    expect(error).toBeInstanceOf(UnsupportedError);
    expect((error as UnsupportedError).message).toBe(
      `Cannot place tensors on "${device}": there is no such kind of device here; known are cpu, cuda and meta`,
    );
    expect(bytesRead).toBeLessThan(300_000);
  });
});

describe("a machine without CUDA", () => {
  test("that has no driver says which library it looked for, and what to do", async () => {
    cuda().uninstall();
    const { error, bytesRead } = await refusal("cuda");
    expect(isTorchloadError(error, "device")).toBe(true);
    expect((error as DeviceError).message).toMatch(
      /^Cannot use "cuda": this machine has no NVIDIA driver \(libcuda\.so\.1 was not found\); mapLocation: "cpu"/,
    );
    expect(bytesRead).toBeLessThan(300_000);
    disposeAll(await load(path));
  });

  test("that has a driver that does not start says why", async () => {
    replug({ init: 100 });
    const { error, bytesRead } = await refusal("cuda:0");
    expect(error).toBeInstanceOf(DeviceError);
    expect((error as DeviceError).message).toMatch(/the NVIDIA driver did not start \(CUDA_ERROR_NO_DEVICE\)/);
    expect((error as DeviceError).driverCode).toBe(100);
    expect(bytesRead).toBeLessThan(300_000);
  });

  test("that has a driver and no device says so", async () => {
    replug({ devices: 0 });
    const { error } = await refusal("cuda");
    expect(error).toBeInstanceOf(DeviceError);
    expect((error as DeviceError).message).toMatch(/CUDA_ERROR_NO_DEVICE/);
  });

  test("is looked at again at the next load", async () => {
    const fake = replug({ init: 802 });
    await expect(load(path, { mapLocation: "cuda" })).rejects.toThrow(/CUDA_ERROR_SYSTEM_NOT_READY/);
    fake.uninstall();
    replug({});
    disposeAll(await load(path, { mapLocation: "cuda" }));
  });

  test("whose context cannot be made says why, and loads when it can", async () => {
    cuda().fail("cuDevicePrimaryCtxRetain", 46);
    cuda().fail("cuDevicePrimaryCtxRetain", 46);
    await expect(load(path, { mapLocation: "cuda" })).rejects.toThrow(/CUDA_ERROR_DEVICE_UNAVAILABLE/);
    cuda().heal();
    disposeAll(await load(path, { mapLocation: "cuda" }));
  });

  test("whose stream cannot be made says why, and loads when it can", async () => {
    cuda().fail("cuStreamCreate", CU.OUT_OF_MEMORY as number);
    await expect(load(path, { mapLocation: () => "cuda" })).rejects.toThrow(/cuStreamCreate.*OUT_OF_MEMORY/);
    disposeAll(await load(path, { mapLocation: "cuda" }));
  });
});

test("a device without memory pools is loaded to all the same", async () => {
  const fake = replug({ pools: false });
  const value = await load(path, { mapLocation: "cuda" });
  expect(fake.count("cuMemAlloc_v2")).toBe(1);
  expect(fake.count("cuMemAllocFromPoolAsync")).toBe(0);
  disposeAll(value);
  expect(fake.count("cuMemFree_v2")).toBe(1);
});

test("the driver is not touched by loads to the CPU", async () => {
  disposeAll(await load(path));
  disposeAll(await load(new Uint8Array(readFileSync(path)), { mapLocation: "cpu" }));
  expect(cuda()).toBeInstanceOf(FakeCuda);
  expect(cuda().count()).toBe(0);
});
