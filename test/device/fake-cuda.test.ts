import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { allocateHuge, viewMemory } from "#platform";
import { CudaDriver } from "../../src/device/cuda/driver.js";
import { CU, FakeCuda, type FakeMachine, POISON } from "../support/fake-cuda.js";

// What the other tests believe of the stand-in: that it notices what they say cannot happen.

let fake: FakeCuda;
let driver: CudaDriver;
let pinnedAddress: number;
let context: number;
let stream: number;

function plug(machine: FakeMachine = {}): void {
  fake = new FakeCuda({ memory: 1 << 20, ...machine });
  driver = new CudaDriver(fake);
  driver.call("cuInit", 0);
  context = driver.make("cuDevicePrimaryCtxRetain", 0);
  driver.call("cuCtxSetCurrent", context);
  stream = driver.make("cuStreamCreate", 1);
  pinnedAddress = driver.make("cuMemHostAlloc", 65_536, 1);
}

beforeEach(() => plug());
afterEach(() => fake.abandon());

const pinned = (): Uint8Array => new Uint8Array(viewMemory(pinnedAddress, 65_536));
const allocate = (nbytes: number): number => driver.make("cuMemAlloc_v2", nbytes);
const upload = (address: number, nbytes: number, from = pinnedAddress): number =>
  driver.try("cuMemcpyHtoDAsync_v2", address, from, nbytes, stream);

describe("the stand-in for CUDA", () => {
  test("finds no fault in a copy that is waited for", () => {
    pinned().fill(7);
    const address = allocate(1000);
    expect(upload(address + 10, 900)).toBe(0);
    driver.call("cuStreamSynchronize", stream);
    const bytes = fake.peek(address, 1000);
    expect([bytes[9], bytes[10], bytes[909], bytes[910]]).toEqual([POISON, 7, 7, POISON]);
    expect([fake.faults, fake.pending, fake.leaks]).toEqual([[], 0, 1]);
    driver.call("cuMemFree_v2", address);
    expect([fake.faults, fake.leaks]).toEqual([[], 0]);
  });

  test("moves no byte before an event was asked for often enough", () => {
    plug({ delay: 3 });
    pinned().fill(1);
    const address = allocate(100);
    upload(address, 100);
    const event = driver.make("cuEventCreate", 3);
    driver.call("cuEventRecord", event, stream);
    for (let k = 0; k < 3; k++) {
      expect(driver.try("cuEventQuery", event)).toBe(CU.NOT_READY);
      expect(fake.peek(address, 1)).toEqual(Uint8Array.of(POISON));
    }
    // The slot was used again too early, and that shows.
    pinned().fill(2);
    expect(driver.try("cuEventQuery", event)).toBe(CU.SUCCESS);
    expect(fake.peek(address, 1)).toEqual(Uint8Array.of(2));
    expect(fake.faults).toEqual([]);
  });

  test("waits at cuEventSynchronize for what was recorded, and not for more", () => {
    const address = allocate(100);
    pinned().fill(1);
    upload(address, 10);
    const event = driver.make("cuEventCreate", 3);
    driver.call("cuEventRecord", event, stream);
    upload(address + 10, 10);
    driver.call("cuEventSynchronize", event);
    expect(fake.pending).toBe(1);
    expect([...fake.peek(address + 9, 2)]).toEqual([1, POISON]);
  });

  test("shows in pinned memory that a copy to it is not done", () => {
    const address = allocate(100);
    pinned().fill(0);
    driver.call("cuMemcpyDtoHAsync_v2", pinnedAddress, address, 100, stream);
    expect(pinned()[50]).toBe(POISON);
    driver.call("cuStreamSynchronize", stream);
    expect(pinned()[100]).toBe(0);
  });

  test.each([
    ["beyond its allocation", () => upload(allocate(100) + 50, 51), /51 bytes at 50 of an allocation of 100/],
    ["in front of its allocation", () => upload(allocate(100) - 1, 10), /no memory is allocated/],
    ["from memory that is not pinned", () => upload(allocate(100), 10, pinnedAddress + 65_530), /not pinned/],
    ["with a host address for a device's", () => upload(pinnedAddress, 10), /no memory is allocated/],
    [
      "to memory that was freed",
      () => {
        const address = allocate(100);
        driver.call("cuMemFree_v2", address);
        return upload(address, 10);
      },
      /no memory is allocated/,
    ],
    [
      "to memory that will be freed",
      () => {
        const pool = driver.make(
          "cuMemPoolCreate",
          Int32Array.from({ length: 22 }, (_, k) => (k === 0 || k === 2 ? 1 : 0)),
        );
        const address = driver.make("cuMemAllocFromPoolAsync", 100, pool, stream);
        upload(address, 10);
        driver.call("cuMemFreeAsync", address, stream);
        return upload(address, 10);
      },
      /was freed/,
    ],
    [
      "to another device",
      () => {
        const other = driver.make("cuDevicePrimaryCtxRetain", 1);
        driver.call("cuCtxSetCurrent", other);
        const address = allocate(100);
        driver.call("cuCtxSetCurrent", context);
        return upload(address, 10);
      },
      /the memory is on device 1/,
    ],
    [
      "on another context's stream",
      () => {
        const address = allocate(100);
        driver.call("cuCtxSetCurrent", driver.make("cuDevicePrimaryCtxRetain", 1));
        return driver.try("cuMemcpyHtoDAsync_v2", address, pinnedAddress, 10, stream);
      },
      /the memory is on device 0/,
    ],
    ["with an argument too few", () => driver.try("cuMemcpyHtoDAsync_v2", 1, 2, 3), /3 arguments, 4 are taken/],
    ["with a size that is none", () => upload(allocate(100), -1), /argument 2 is -1, not uint64/],
    ["with half a byte", () => upload(allocate(100), 0.5), /argument 2 is 0\.5, not uint64/],
    ["with no number", () => upload(Number.NaN, 1), /argument 0 is NaN, not uint64/],
    [
      "without a context",
      () => {
        const address = allocate(100);
        driver.call("cuCtxSetCurrent", 0);
        return upload(address, 10);
      },
      /without a current context/,
    ],
  ])("notes and refuses a copy %s", (_, copy, fault) => {
    expect(copy()).not.toBe(0);
    expect(fake.faults.length).toBe(1);
    expect(fake.faults[0]).toMatch(fault);
  });

  test("notes a free under a copy, but not one that is in the order of its stream", () => {
    const address = allocate(100);
    upload(address, 10);
    driver.call("cuMemFree_v2", address);
    expect(fake.faults).toEqual(["cuMemFree_v2: 100 bytes on device 0 are freed under a copy"]);
    expect(fake.pending).toBe(0);
  });

  test("notes a second free, and a free of what is no allocation", () => {
    const address = allocate(100);
    driver.call("cuMemFree_v2", address);
    expect(driver.try("cuMemFree_v2", address)).toBe(CU.INVALID_VALUE);
    expect(driver.try("cuMemFree_v2", address + 1)).toBe(CU.INVALID_VALUE);
    expect(fake.faults.length).toBe(2);
  });

  test("has no context on other threads, as a driver has none", async () => {
    await expect(driver.later("cuEventCreate", new BigUint64Array(1), 0)).rejects.toThrow(/INVALID_CONTEXT/);
    expect(fake.faults.length).toBe(1);
  });

  test("is out of memory when its memory is used up, and not when it is freed", () => {
    const address = allocate(1 << 19);
    expect(driver.try("cuMemAlloc_v2", new BigUint64Array(1), (1 << 19) + 1)).toBe(CU.OUT_OF_MEMORY);
    driver.call("cuMemFree_v2", address);
    allocate(1 << 20);
    expect(fake.faults).toEqual([]);
  });

  test("fails at the call that it is told to, once or for good", () => {
    fake.fail("cuEventCreate", 999, 2);
    driver.make("cuEventCreate", 0);
    expect(() => driver.make("cuEventCreate", 0)).toThrow(/CUDA_ERROR_UNKNOWN/);
    driver.make("cuEventCreate", 0);
    fake.failAlways("cuEventCreate", 999);
    for (let k = 0; k < 3; k++) expect(() => driver.make("cuEventCreate", 0)).toThrow(/CUDA_ERROR_UNKNOWN/);
    fake.heal();
    driver.make("cuEventCreate", 0);
    expect(fake.count("cuEventCreate")).toBe(7);
    expect(fake.faults).toEqual([]);
  });

  test("loses what was given to a context that breaks, and only there", () => {
    const address = allocate(100);
    upload(address, 10);
    fake.breakContext("cuEventCreate", 700);
    expect(driver.try("cuEventCreate", new BigUint64Array(1), 0)).toBe(700);
    expect(upload(address, 10)).toBe(700);
    expect(driver.try("cuStreamSynchronize", stream)).toBe(700);
    expect(fake.pending).toBe(0);
    driver.call("cuCtxSetCurrent", driver.make("cuDevicePrimaryCtxRetain", 1));
    allocate(100);
  });

  test("takes functions only as cuda.h has them", () => {
    expect(() => fake.bind("cuMemcpy", "int32", [])).toThrow(/no function/);
    fake.bind("cuMemFree_v2", "int32", ["uint32"]);
    expect(fake.faults[0]).toMatch(/cuMemFree_v2 is bound as int32 \(uint32\)/);
  });

  test("registers memory once", () => {
    const memory = allocateHuge(4096) as { address: number };
    driver.call("cuMemHostRegister_v2", memory.address, 4096, 1);
    expect(driver.try("cuMemHostRegister_v2", memory.address, 4096, 1)).toBe(CU.ALREADY_REGISTERED);
    expect(upload(allocate(100), 100, memory.address)).toBe(0);
    expect(fake.faults).toEqual([]);
  });
});
