#!/usr/bin/env node
/**
 * The command `torchload`. Exit codes: 0 done, 1 the file or device could not do what was asked, 2 wrong usage.
 *
 * @module
 */
import { createRequire } from "node:module";
import { parseArgs } from "node:util";
import { isTorchloadError } from "../errors.js";
import { inspect } from "./inspect.js";
import { loadCommand } from "./load.js";
import { painter, printable } from "./terminal.js";

const HELP = `torchload: reads PyTorch checkpoints, and never runs code from them

  torchload inspect FILE              what is in it: format, tensors, other values
  torchload load FILE                 brings it to a device and says how long each step took

options
  --device DEVICE      load: cpu, cuda, cuda:1 …, or auto for the best there is (default cpu)
  --json               prints JSON
  --all                inspect: lists everything, however long
  --no-mmap            load: reads into memory instead of mapping the file
  --no-weights-only    reads classes that weights-only loading does not allow, as inert data
  --allow NAME         allows one class or function, such as argparse.Namespace, as inert data (repeatable)
  --big-endian         the byte order of zip files that do not state theirs
  --offset BYTES       where a legacy checkpoint starts in the file
  --help, --version

Exit codes: 0 done; 1 the file or the device could not do what was asked; 2 wrong usage.
NO_COLOR turns colours off.
`;

const OPTIONS = {
  device: { type: "string", default: "cpu" },
  json: { type: "boolean", default: false },
  all: { type: "boolean", default: false },
  "no-mmap": { type: "boolean", default: false },
  "no-weights-only": { type: "boolean", default: false },
  allow: { type: "string", multiple: true, default: [] as string[] },
  "big-endian": { type: "boolean", default: false },
  offset: { type: "string" },
  help: { type: "boolean", short: "h", default: false },
  version: { type: "boolean", default: false },
} as const;

class UsageError extends Error {}

async function main(args: readonly string[]): Promise<void> {
  const { values, positionals } = parse(args);
  if (values.version) {
    const { version } = createRequire(import.meta.url)("../../package.json") as { version: string };
    process.stdout.write(`${version}\n`);
    return;
  }
  const [command, file, ...rest] = positionals;
  if (values.help || (command === undefined && args.length === 0)) {
    process.stdout.write(HELP);
    return;
  }
  if (command !== "inspect" && command !== "load") {
    throw new UsageError(command === undefined ? "no command" : `there is no command "${command}"`);
  }
  if (file === undefined) throw new UsageError(`${command} takes a file`);
  if (rest.length > 0) throw new UsageError(`${command} takes one file, not ${rest.length + 1}`);
  const options = {
    weightsOnly: !values["no-weights-only"],
    safeGlobals: values.allow,
    endianness: values["big-endian"] ? ("big" as const) : ("little" as const),
    ...(values.offset === undefined ? {} : { offset: bytesOf(values.offset) }),
  };
  if (command === "inspect") await inspect(file, { ...options, json: values.json, all: values.all });
  else await loadCommand(file, { ...options, json: values.json, device: values.device, mmap: !values["no-mmap"] });
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function bytesOf(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new UsageError(`--offset takes a number of bytes, not "${text}"`);
  return Number(text);
}

main(process.argv.slice(2)).catch((error: unknown) => {
  const { red } = painter(process.stderr);
  const usage = error instanceof UsageError || error instanceof TypeError;
  if (usage || isTorchloadError(error)) {
    const hint = error instanceof UsageError ? '; "torchload --help" lists what there is' : "";
    process.stderr.write(`${red("torchload:")} ${printable((error as Error).message)}${hint}\n`);
    process.exitCode = usage ? 2 : 1;
    return;
  }
  process.stderr.write(`${red("torchload:")} an error of its own: ${(error as Error)?.stack ?? String(error)}\n`);
  process.exitCode = 1;
});

// A reader such as `head` that goes away ends the command without a complaint.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(0);
});
