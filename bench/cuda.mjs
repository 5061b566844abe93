// npm run bench:cuda [FOLDER]: loads to CUDA beside PyTorch and safetensors, in turn, and checks the bytes on the device.
import { statSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { openCudaBackend } from "../dist/device/cuda/cuda-backend.js";
import { SLOT_BYTES, stagingSlots } from "../dist/device/cuda/staging.js";
import { load } from "../dist/index.js";
import { attempt, child, inTurn, median, Peers, python, Report, split, wall } from "./lib.mjs";

const folder = process.argv[2] ?? "/tmp/torchload-bench";
const only = process.env.BENCH_ONLY?.split(",");
const wants = (name) => only === undefined || only.includes(name);
console.log(`making data in ${folder} …`);
wall(python, [
  new URL("make_data.py", import.meta.url).pathname,
  folder,
  ...(process.env.BENCH_DATA?.split(",") ?? []),
]);
const at = (name) => `${folder}/${name}`;
const report = new Report();
const peers = new Peers();
const versions = await peers.hello();
const context = await (await openCudaBackend()).context(0);
console.log({ node: process.version, ...versions, cores: cpus().length });

function dispose(value) {
  for (const tensor of value.values()) tensor.dispose();
}

let last;
async function ours(file, options = {}) {
  const started = performance.now();
  const value = await load(file, { mapLocation: "cuda", onReport: (r) => (last = r), ...options });
  const ms = performance.now() - started;
  dispose(value);
  return ms;
}

/** Compares every byte on the device with the same file loaded by reading to main memory. */
async function check(file) {
  const device = await load(file, { mapLocation: "cuda" });
  const host = await load(file, { mmap: false });
  let compared = 0;
  for (const [name, tensor] of device) {
    const bytes = (await tensor.to("cpu")).contiguous().toTypedArray();
    const expected = host.get(name).contiguous().toTypedArray();
    const a = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (!a.equals(Buffer.from(expected.buffer, expected.byteOffset, expected.byteLength)))
      throw new Error(`${file}: ${name} differs on the device`);
    compared += bytes.byteLength;
  }
  dispose(device);
  return compared;
}

/** The rate of copies out of pinned memory, in GB/s, with nothing else going on. */
function pinnedRate(nbytes) {
  const slot = stagingSlots(context, 1)[0];
  const allocation = context.allocate(nbytes);
  const rates = [];
  for (let k = 0; k < 5; k++) {
    const driver = context.use();
    const started = performance.now();
    for (let offset = 0; offset < nbytes; offset += SLOT_BYTES) {
      driver.call(
        "cuMemcpyHtoDAsync_v2",
        allocation.address + offset,
        slot.address,
        Math.min(SLOT_BYTES, nbytes - offset),
        context.stream,
      );
    }
    driver.call("cuStreamSynchronize", context.stream);
    rates.push(nbytes / (performance.now() - started) / 1e6);
  }
  allocation.free();
  return Math.max(...rates);
}

if (wants("small")) {
  await attempt("small", async () => {
    const file = at("small.legacy.pt");
    const splits = [];
    // A warm process: the engine has compiled what it will compile.
    for (let k = 0; k < 500; k++) await ours(file);
    for (let k = 0; k < 20; k++) await peers.load("torch", file, "cuda");
    const times = await inTurn(
      {
        torchload: async () => {
          const ms = await ours(file);
          splits.push(last);
          return ms;
        },
        "torch.load": () => peers.load("torch", file, "cuda"),
        safetensors: () => peers.load("safetensors", at("small.safetensors"), "cuda"),
      },
      10,
      20,
    );
    const middle = splits.sort((a, b) => a.fillMs - b.fillMs)[splits.length >> 1];
    report.add(
      "one 4 MB tensor, legacy -> CUDA, warm process",
      times,
      { "torch.load": 0.18, safetensors: 0.5 },
      {
        split: split(middle),
        checked: `${await check(file)} bytes`,
      },
    );
  });
}

if (wants("big")) {
  await attempt("big", async () => {
    const zip = at("big.zip.pt");
    const legacy = at("big.legacy.pt");

    const nbytes = statSync(zip).size;
    const splits = { zip: [], legacy: [] };
    const run = (kind, file) => async () => {
      const ms = await ours(file);
      splits[kind].push([ms, last]);
      return ms;
    };
    const times = await inTurn(
      {
        torchload: run("zip", zip),
        "torchload, legacy": run("legacy", legacy),
        "torch.load": () => peers.load("torch", zip, "cuda"),
        "torch.load(mmap=True)": () => peers.load("torch_mmap", zip, "cuda"),
        safetensors: () => peers.load("safetensors", at("big.safetensors"), "cuda"),
        "torch.load, legacy": () => peers.load("torch", legacy, "cuda"),
      },
      Number(process.env.BENCH_ROUNDS ?? 3),
      3,
    );
    const link = pinnedRate(nbytes);
    const rate = (ms) =>
      `${(nbytes / ms / 1e6).toFixed(1)} GB/s, ${(nbytes / ms / 1e6 / link).toFixed(3)} of the pinned rate ${link.toFixed(1)}`;
    const best = (kind) => split(splits[kind].sort((a, b) => a[0] - b[0])[0][1]);
    report.add(
      "2.2 GB of bf16 in 147 tensors, zip -> CUDA",
      times,
      { "torch.load": 0.03, "torch.load(mmap=True)": 0.12, safetensors: 0.12 },
      {
        rate: rate(median(times.torchload)),
        "best rate": rate(Math.min(...times.torchload)),
        "split of the best": best("zip"),
        "legacy / torch.load legacy": `${(median(times["torchload, legacy"]) / median(times["torch.load, legacy"])).toFixed(4)}, goal 0.02`,
        "legacy / zip": `${(median(times["torchload, legacy"]) / median(times.torchload)).toFixed(3)}, goal 1.05`,
        "split of the best legacy": best("legacy"),
        checked: `${await check(zip)} bytes of zip, ${await check(legacy)} of legacy`,
      },
    );
  });
}

if (wants("first")) {
  await attempt("first", async () => {
    const runs = [0, 1, 2].map(() => child("first", at("big.zip.pt"), "cuda:0"));
    report.note("the first load of a process, context ready", {
      first: runs.map((r) => r.first.ms.toFixed(1)).join(" "),
      warm: runs.map((r) => r.warm.toFixed(1)).join(" "),
      ratio: `${(median(runs.map((r) => r.first.ms)) / median(runs.map((r) => r.warm))).toFixed(2)}, goal 2`,
      split: split(runs[0].first.report),
    });
  });
}

if (wants("process")) {
  await attempt("process", async () => {
    const script = `import torch\nt = torch.load("${at("big.zip.pt")}", map_location="cuda", weights_only=True)\ntorch.cuda.synchronize()`;
    const theirs = [0, 1, 2].map(() => wall(python, ["-c", script]).ms);
    const mine = [0, 1, 2].map(() => child("process", at("big.zip.pt"), "cuda:0"));
    report.add(
      "whole process, 2.2 GB",
      { torchload: mine.map((m) => m.wallMs), "python torch.load": theirs },
      { "python torch.load": 0.15 },
      {
        split: split(mine[1].report),
        "since start of node": mine.map((m) => m.sinceStart.toFixed(0)).join(" "),
      },
    );
  });
}

if (wants("many")) {
  await attempt("many", async () => {
    const zip = at("many.zip.pt");
    const times = await inTurn(
      { torchload: () => ours(zip), "torch.load": () => peers.load("torch", zip, "cuda") },
      Number(process.env.BENCH_MANY_ROUNDS ?? 2),
    );
    const shown = split(last);
    const legacy = [await ours(at("many.legacy.pt")), await ours(at("many.legacy.pt"))];
    const legacySplit = split(last);
    report.add(
      "100,000 tensors of 8 KiB, zip -> CUDA",
      times,
      { "torch.load": 0.03 },
      {
        split: shown,
        "legacy, ms": legacy.map((ms) => ms.toFixed(0)).join(" "),
        "split of legacy": legacySplit,
        checked: `${await check(zip)} bytes of zip, ${await check(at("many.legacy.pt"))} of legacy`,
      },
    );
  });
  await attempt("open", async () => {
    const theirs = [0].map(() =>
      wall(python, [
        "-c",
        `import torch, time\nt = time.time()\ntorch.load("${at("many.zip.pt")}", weights_only=True)\nprint((time.time() - t) * 1000)`,
      ]),
    );
    const mine = [0, 1, 2].map(() => child("open", at("many.zip.pt")));
    report.add(
      "open of 100,000 small tensors, new process",
      { torchload: mine.map((m) => m.ms), "torch.load": theirs.map((t) => Number(t.line)) },
      { "torch.load": 0.03 },
      {
        "whole process": mine.map((m) => m.wallMs.toFixed(0)).join(" "),
      },
    );
  });
}

if (wants("memory")) {
  await attempt("memory", async () => {
    for (const name of ["big.zip.pt", "big.legacy.pt", "huge.zip.pt"])
      report.note(`host memory added, ${name}`, child("memory", at(name), "cuda:0"));
  });
}

if (wants("cpu")) {
  await attempt("cpu", async () => {
    const zip = at("big.zip.pt");
    for (let k = 0; k < 60; k++) await load(zip);
    const times = await inTurn(
      {
        torchload: async () => {
          const started = performance.now();
          await load(zip, { onReport: (r) => (last = r) });
          return performance.now() - started;
        },
        "safetensors load_file": () => peers.load("safetensors", at("big.safetensors"), "cpu"),
        "torch.load(mmap=True)": () => peers.load("torch_mmap", zip, "cpu"),
      },
      15,
    );
    report.add(
      "2.2 GB -> CPU tensors (views of the mapped file)",
      times,
      { "safetensors load_file": 0.5 },
      { split: split(last) },
    );
  });
}

if (wants("cold")) {
  await attempt("cold", async () => {
    const zip = at("big.zip.pt");
    const drop = () => wall("sh", ["-c", "sync; echo 3 > /proc/sys/vm/drop_caches"]);
    const read = `import sys, os, time, threading
path, n, piece = sys.argv[1], int(sys.argv[2]), 4 << 20
size = os.path.getsize(path); fd = os.open(path, os.O_RDONLY); lock = threading.Lock(); state = [0]
def lane():
    buffer = bytearray(piece)
    while True:
        with lock:
            at = state[0]; state[0] += piece
        if at >= size: return
        os.preadv(fd, [buffer], at)
t = time.time(); lanes = [threading.Thread(target=lane) for _ in range(n)]
[l.start() for l in lanes]; [l.join() for l in lanes]
print((time.time() - t) * 1000)`;
    const plain = {};
    for (const n of [1, 2, 4, 8, 16]) {
      drop();
      plain[n] = Number(wall(python, ["-c", read, zip, String(n)]).line);
    }
    const mine = [];
    for (let k = 0; k < 3; k++) {
      drop();
      mine.push(await ours(zip));
    }
    const best = Math.min(...Object.values(plain));
    report.note("cold page cache, 2.2 GB -> CUDA", {
      "plain reads by threads, ms": plain,
      "torchload, ms": mine.map((ms) => ms.toFixed(0)).join(" "),
      "share of the best plain read": `${(best / median(mine)).toFixed(3)}, goal 0.92`,
      split: split(last),
    });
  });
}

peers.close();
const out = process.env.BENCH_JSON ?? "bench-cuda.json";
writeFileSync(out, JSON.stringify({ versions, node: process.version, rows: report.rows }, null, 1));
console.log(`\nwritten: ${out}`);
process.exit(0);
