// What the benchmarks share: peers in Python, alternating runs, the table.
import { spawn, spawnSync } from "node:child_process";
import { createInterface } from "node:readline";

export const python = process.env.TORCHLOAD_PYTHON ?? "python3";

export const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

/** PyTorch and safetensors in a process that stays, so that their loads are as warm as ours. */
export class Peers {
  #process = spawn(python, [new URL("peers.py", import.meta.url).pathname], { stdio: ["pipe", "pipe", "inherit"] });
  #lines = createInterface({ input: this.#process.stdout })[Symbol.asyncIterator]();

  async hello() {
    return JSON.parse((await this.#lines.next()).value);
  }

  async #ask(question) {
    this.#process.stdin.write(`${JSON.stringify(question)}\n`);
    const { value, done } = await this.#lines.next();
    if (done) throw new Error("the peer process ended");
    const answer = JSON.parse(value);
    if (answer.error !== undefined) throw new Error(`${JSON.stringify(question)}: ${answer.error}`);
    return answer;
  }

  /** Milliseconds of one load. */
  async load(what, file, device) {
    return (await this.#ask({ what, file, device })).ms;
  }

  /** The hash of a tensor's bytes as PyTorch reads them. */
  async sha256(file, name) {
    return (await this.#ask({ what: "sha256", file, name })).sha256;
  }

  close() {
    this.#process.stdin.end();
  }
}

/**
 * Runs each candidate `block` times a round, in turn, after one round that does not count. Small loads run in blocks: a
 * process that has just been waiting for another finds cold caches, which would be most of what is measured.
 */
export async function inTurn(candidates, rounds, block = 1) {
  const times = Object.fromEntries(Object.keys(candidates).map((name) => [name, []]));
  for (let round = -1; round < rounds; round++) {
    for (const [name, run] of Object.entries(candidates)) {
      for (let k = 0; k < block; k++) {
        const ms = await run();
        if (round >= 0) times[name].push(ms);
      }
    }
  }
  return times;
}

/** Runs a process to its end; gives its wall time in ms and its last line. */
export function wall(command, args) {
  const started = performance.now();
  const { status, stdout, stderr } = spawnSync(command, args, { encoding: "utf8", maxBuffer: 1 << 26 });
  const ms = performance.now() - started;
  if (status !== 0) throw new Error(`${command} ${args.join(" ")}: ${stderr.slice(-2000)}`);
  return { ms, line: stdout.trim().split("\n").at(-1) };
}

export function child(...args) {
  const { ms, line } = wall(process.execPath, [new URL("child.mjs", import.meta.url).pathname, ...args]);
  return { wallMs: ms, ...JSON.parse(line) };
}

/** Collects rows and prints them as they come. */
export class Report {
  rows = [];

  add(work, times, goals = {}, notes = {}) {
    const ours = median(times.torchload);
    console.log(`\n${work}`);
    for (const [name, values] of Object.entries(times)) {
      const goal = goals[name] === undefined ? "" : `, goal ${goals[name]}`;
      const ratio = name === "torchload" ? "" : `   ratio ${(ours / median(values)).toFixed(4)}${goal}`;
      console.log(
        `  ${name.padEnd(24)} median ${median(values).toFixed(2).padStart(9)} ms   min ${Math.min(...values)
          .toFixed(2)
          .padStart(9)}${ratio}`,
      );
    }
    for (const [name, value] of Object.entries(notes))
      console.log(`  ${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
    this.rows.push({ work, times, goals, notes });
  }

  note(work, values) {
    console.log(`\n${work}`);
    for (const [name, value] of Object.entries(values))
      console.log(`  ${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
    this.rows.push({ work, values });
  }
}

export async function attempt(name, run) {
  try {
    await run();
  } catch (error) {
    console.log(`\n${name}: FAILED: ${error.stack ?? error}`);
  }
}

/** The split of a load as text. */
export function split({ openMs, decodeMs, placeMs, fillMs }) {
  const f = (ms) => ms.toFixed(3);
  return `open ${f(openMs)} decode ${f(decodeMs)} place ${f(placeMs)} fill ${f(fillMs)} ms`;
}
