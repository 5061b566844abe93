// npm start [FILE] [OPTIONS]: shows what is in a checkpoint and loads it to the best device there is.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { prepare, root } from "./prepare.mjs";

prepare();
const given = process.argv.slice(2);
const file =
  given[0] === undefined || given[0].startsWith("-") ? join("test", "fixtures", "tiny-gpt.pt") : given.shift();
const commands = [
  ["inspect", file],
  ["load", file, ...(given.some((option) => option.startsWith("--device")) ? [] : ["--device", "auto"]), ...given],
];
for (const args of commands) {
  console.log(`\n$ torchload ${args.join(" ")}`);
  const { status } = spawnSync(process.execPath, [join(root, "dist/cli/main.js"), ...args], { stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
