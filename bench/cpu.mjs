// npm run bench [FOLDER]: loads to the CPU beside PyTorch and safetensors, in turn, on any machine.
// TORCHLOAD_PYTHON names a Python that has torch and safetensors; without one only our own numbers are shown.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { load, open } from "../dist/index.js";
import { attempt, child, inTurn, Peers, python, Report, split, wall } from "./lib.mjs";

const folder = process.argv[2] ?? join(tmpdir(), "torchload-bench");
const rounds = Number(process.env.BENCH_ROUNDS ?? 5);
console.log(`making data in ${folder} (about 7 GB) …`);
wall(python, [new URL("make_data.py", import.meta.url).pathname, folder, "small", "big", "many"]);
const at = (name) => join(folder, name);
const report = new Report();
const hasPeers = spawnSync(python, ["-c", "import torch, safetensors.torch"]).status === 0;
if (!hasPeers) console.log(`${python} has not both torch and safetensors: our own numbers alone`);
const peers = hasPeers ? new Peers() : undefined;
const versions = await peers?.hello();
console.log({ node: process.version, ...versions, cores: cpus().length });

let last;
const ours =
  (file, options = {}) =>
  async () => {
    const started = performance.now();
    await load(file, { ...options, onReport: (r) => (last = r) });
    return performance.now() - started;
  };
const theirs = (candidates) =>
  Object.fromEntries(
    Object.entries(hasPeers ? candidates : {}).map(([name, args]) => [name, () => peers.load(...args)]),
  );

/** Compares tensors of the big file, mapped and read, with what PyTorch reads. */
async function check(options) {
  const value = await load(at("big.zip.pt"), options);
  const names = ["embed", "layers.7.down.weight", "norm", "head"];
  for (const name of names) {
    const array = value.get(name).toTypedArray();
    const digest = createHash("sha256")
      .update(new Uint8Array(array.buffer, array.byteOffset, array.byteLength))
      .digest("hex");
    if (digest !== (await peers.sha256(at("big.zip.pt"), name)))
      throw new Error(`${name} differs from what PyTorch reads`);
  }
  return `${names.length} tensors equal to PyTorch's`;
}

await attempt("small", async () => {
  const times = await inTurn(
    {
      torchload: ours(at("small.zip.pt")),
      ...theirs({
        "torch.load": ["torch", at("small.zip.pt"), "cpu"],
        safetensors: ["safetensors", at("small.safetensors"), "cpu"],
      }),
    },
    rounds,
    10,
  );
  report.add("one 4 MB tensor -> CPU", times, {}, { split: split(last) });
});

await attempt("mapped", async () => {
  const zip = at("big.zip.pt");
  for (let k = 0; k < 60; k++) await load(zip);
  const times = await inTurn(
    {
      torchload: ours(zip),
      ...theirs({
        "safetensors load_file": ["safetensors", at("big.safetensors"), "cpu"],
        "torch.load(mmap=True)": ["torch_mmap", zip, "cpu"],
      }),
    },
    rounds,
    5,
  );
  report.add(
    "2.2 GB -> CPU tensors (views of the mapped file)",
    times,
    { "safetensors load_file": 0.5 },
    { split: split(last), ...(hasPeers ? { checked: await check({}) } : {}) },
  );
});

await attempt("read", async () => {
  const zip = at("big.zip.pt");
  const times = await inTurn(
    { torchload: ours(zip, { mmap: false }), ...theirs({ "torch.load": ["torch", zip, "cpu"] }) },
    2,
  );
  report.add(
    "2.2 GB -> CPU tensors, read into memory (mmap: false)",
    times,
    {},
    { split: split(last), ...(hasPeers ? { checked: await check({ mmap: false }) } : {}) },
  );
});

await attempt("one", async () => {
  const times = await inTurn(
    {
      torchload: async () => {
        const started = performance.now();
        const checkpoint = await open(at("big.zip.pt"));
        const tensor = await checkpoint.load("layers.7.up.weight");
        const ms = performance.now() - started;
        if (tensor.toTypedArray().length !== tensor.numel) throw new Error("short");
        await checkpoint.close();
        return ms;
      },
    },
    rounds,
    5,
  );
  report.add("one tensor of the 2.2 GB file, from open to a tensor", times);
});

await attempt("open", async () => {
  const script = `import torch, time\nt = time.time()\ntorch.load("${at("many.zip.pt")}", weights_only=True)\nprint((time.time() - t) * 1000)`;
  const mine = [0, 1, 2].map(() => child("open", at("many.zip.pt")));
  const other = hasPeers ? { "torch.load": [Number(wall(python, ["-c", script]).line)] } : {};
  report.add(
    "open of 100,000 small tensors, new process",
    { torchload: mine.map((m) => m.ms), ...other },
    { "torch.load": 0.03 },
  );
});

peers?.close();
const out = process.env.BENCH_JSON ?? "bench-cpu.json";
writeFileSync(out, JSON.stringify({ versions, node: process.version, rows: report.rows }, null, 1));
console.log(`\nwritten: ${out}`);
