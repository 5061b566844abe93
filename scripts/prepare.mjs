// Installs what is missing and builds what is older than its source, so that `npm start` and `npm test` work on a bare clone.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("..", import.meta.url));

/** Runs a command quietly; shows what it printed when it fails. */
export function run(command, args) {
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd: root, encoding: "utf8" });
  if (status === 0) return;
  process.stderr.write(`${stdout ?? ""}${stderr ?? ""}${error ?? ""}\n${command} ${args.join(" ")} failed\n`);
  process.exit(1);
}

const changed = (path) => (existsSync(path) ? statSync(path).mtimeMs : Number.NEGATIVE_INFINITY);

function newestIn(folder) {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return Math.max(...files.map((entry) => changed(join(entry.parentPath ?? entry.path, entry.name))));
}

export function prepare() {
  if (changed(join(root, "node_modules/.package-lock.json")) < changed(join(root, "package-lock.json"))) {
    console.log("installing …");
    run("npm", ["ci", "--no-audit", "--no-fund"]);
  }
  if (
    changed(join(root, "dist/index.js")) < Math.max(newestIn(join(root, "src")), changed(join(root, "tsconfig.json")))
  ) {
    console.log("building …");
    run(process.execPath, ["node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json"]);
  }
}
