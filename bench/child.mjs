// One measurement in a process of its own: first loads, memory, opening. Prints one line of JSON.
//   node bench/child.mjs first|memory|open|process FILE [DEVICE]
import { readFileSync } from "node:fs";
import { load, open } from "../dist/index.js";

const [what, file, device = "cpu"] = process.argv.slice(2);

/** Memory of the process in MiB: its own (anonymous and shared, pinned memory included), without mapped files. */
function ownMemory() {
  const status = readFileSync("/proc/self/status", "utf8");
  const field = (name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1] ?? 0) / 1024;
  return field("RssAnon") + field("RssShmem");
}

/** Starts the driver and the device's context, and nothing else. */
async function openContext() {
  const { openCudaBackend } = await import("../dist/device/cuda/cuda-backend.js");
  await (await openCudaBackend()).context(0);
}

async function timed(options) {
  const started = performance.now();
  let report;
  const value = await load(file, { ...options, onReport: (r) => (report = r) });
  const ms = performance.now() - started;
  dispose(value);
  return { ms, report };
}

function dispose(value) {
  for (const tensor of value.values()) tensor.dispose?.();
}

if (what === "first") {
  if (device !== "cpu") await openContext();
  const runs = [];
  for (let k = 0; k < 5; k++) runs.push(await timed({ mapLocation: device }));
  console.log(JSON.stringify({ first: runs[0], warm: Math.min(...runs.slice(1).map(({ ms }) => ms)) }));
} else if (what === "memory") {
  await openContext();
  const before = ownMemory();
  let most = before;
  const watch = setInterval(() => (most = Math.max(most, ownMemory())), 2);
  const value = await load(file, { mapLocation: device });
  clearInterval(watch);
  most = Math.max(most, ownMemory());
  console.log(JSON.stringify({ before, most, added: most - before, tensors: value.size }));
} else if (what === "open") {
  const started = performance.now();
  const checkpoint = await open(file);
  const ms = performance.now() - started;
  console.log(JSON.stringify({ ms, sinceStart: performance.now(), tensors: checkpoint.value.size }));
} else if (what === "process") {
  let report;
  const value = await load(file, { mapLocation: device, onReport: (r) => (report = r) });
  console.log(JSON.stringify({ sinceStart: performance.now(), report, tensors: value.size }));
}
process.exit(0);
