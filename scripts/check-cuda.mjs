// node scripts/check-cuda.mjs: on a machine with an NVIDIA GPU, loads every fixture to it and compares what comes back with
// the same file on the CPU; then devices that are not there, aborts, memory that is not there, and that all of it is freed.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openCudaBackend } from "../dist/device/cuda/cuda-backend.js";
import { isTorchloadError, load, open } from "../dist/index.js";
import { namedTensors } from "../dist/tensor/named-tensors.js";

const folder = fileURLToPath(new URL("../test/fixtures", import.meta.url));
const backend = await openCudaBackend();
const context = await backend.context(0);
let checks = 0;
const faults = [];
const check = (what, right) => {
  checks++;
  if (!right) faults.push(what);
};
const raw = (tensor) => {
  const array = tensor.contiguous();
  const start = array.storageOffset * array.dtype.itemsize;
  return Buffer.from(array.storage.bytes.subarray(start, start + array.nbytes));
};
const refused = async (what, code, run) => {
  try {
    await run();
    check(`${what}: not refused`, false);
  } catch (error) {
    check(`${what}: ${error}`, code === undefined ? !isTorchloadError(error) : isTorchloadError(error, code));
    console.log(`  ${what}: ${error.message ?? error}`);
  }
};

await load(join(folder, "tiny-gpt.pt"), { mapLocation: "cuda" }).then((value) => {
  for (const tensor of namedTensors(value).values()) tensor.dispose();
});
const before = context.memoryInfo().free;
const names = readdirSync(folder, { recursive: true })
  .map(String)
  .filter((name) => name.endsWith(".json"));
for (const name of names) {
  const { offset } = JSON.parse(readFileSync(join(folder, name), "utf8"));
  const options = { weightsOnly: false, ...(offset === undefined ? {} : { offset }) };
  const path = join(folder, name.replace(/\.json$/, ".pt"));
  const inputs = { path, bytes: new Uint8Array(readFileSync(path)), blob: new Blob([readFileSync(path)]) };
  const host = namedTensors(await load(path, { ...options, mmap: false }));
  for (const [kind, input] of Object.entries(inputs)) {
    const device = namedTensors(await load(input, { ...options, mapLocation: "cuda:0" }));
    check(`${name} ${kind}: ${device.size} tensors of ${host.size}`, device.size === host.size);
    for (const [key, expected] of host) {
      const tensor = device.get(key);
      if (String(expected.device) === "meta") continue;
      check(
        `${name} ${kind} ${key} is on ${tensor.device}`,
        String(tensor.device) === "cuda:0" || tensor.storage.nbytes === 0,
      );
      const back = await tensor.to("cpu");
      check(`${name} ${kind} ${key}: bytes differ`, raw(back).equals(raw(expected)));
    }
    for (const tensor of device.values()) tensor.dispose();
  }
}
console.log(`${names.length} fixtures on cuda:0`);

const demo = join(folder, "tiny-gpt.pt");
const one = await open(demo);
const weight = await one.load("model.embed.weight", { device: "cuda" });
const row = await weight.narrow(0, 3, 2).to("cpu");
check("a narrowed tensor", raw(row).equals(raw((await one.load("model.embed.weight")).narrow(0, 3, 2).contiguous())));
const again = await (await (await weight.to("cpu")).to("cuda:0")).to("cpu");
check("there and back", raw(again).equals(raw(await one.load("model.embed.weight"))));
weight.dispose();
await refused("a device that is not there", "device", () => load(demo, { mapLocation: "cuda:99" }));
await refused("an unknown device", "unsupported", () => load(demo, { mapLocation: "tpu:0" }));
await refused("an aborted load", undefined, () =>
  load(demo, { mapLocation: "cuda", signal: AbortSignal.abort("stopped") }),
);
await refused("progress that throws", undefined, () =>
  load(demo, {
    mapLocation: "cuda",
    onProgress() {
      throw new Error("from onProgress");
    },
  }),
);
const { total } = context.memoryInfo();
try {
  context.allocate(total * 2);
  check("twice the memory was allocated", false);
} catch (error) {
  check(String(error), isTorchloadError(error, "device"));
  console.log(`  too large: ${error.message}`);
}
const own = (await load(demo, { mapLocation: "cuda" })).get("model");
const target = own.get("embed.weight").storage;
const into = await load(demo, { mapLocation: (s) => (s.nbytes === target.nbytes ? target : "cpu") });
check("a storage of the caller's own", into.get("model").get("embed.weight").storage.memory === target.memory);
for (const tensor of own.values()) tensor.dispose();
context.driver.call("cuStreamSynchronize", context.stream);
const after = context.memoryInfo().free;
check(`device memory: ${before} bytes free before, ${after} after`, Math.abs(before - after) <= 64 << 20);
for (const fault of faults.slice(0, 40)) console.log(`FAULT ${fault}`);
console.log(`${checks - faults.length} passed, ${faults.length} failed`);
process.exit(faults.length === 0 ? 0 : 1);
