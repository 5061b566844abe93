// Checks that imports only point to earlier rooms (see CONTRIBUTING.md), and that Node's modules are used where they may be.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix, relative } from "node:path";
import { fileURLToPath } from "node:url";

const source = join(dirname(fileURLToPath(import.meta.url)), "..", "src");

/** Each room and the rooms it may import from, beside itself. */
const EARLIER = {
  errors: [],
  platform: ["errors"],
  source: ["errors", "platform"],
  device: ["errors", "platform"],
  pickle: ["errors", "platform"],
  tensor: ["errors", "platform", "source", "device", "pickle"],
  container: ["errors", "platform", "source", "device", "pickle", "tensor"],
  torch: ["errors", "platform", "source", "device", "pickle", "tensor", "container"],
  transfer: ["errors", "platform", "source", "device", "pickle", "tensor", "container", "torch"],
  verbs: ["errors", "platform", "source", "device", "pickle", "tensor", "container", "torch", "transfer"],
  inspect: ["errors", "device", "pickle", "tensor", "container", "torch", "verbs"],
  cli: ["errors", "device", "pickle", "tensor", "torch", "verbs", "inspect"],
};

/** Rooms whose files may import Node's modules. */
const NODE = ["platform", "cli"];

/** The room of a file of `src`: its folder, or for files at the top the verbs. */
function roomOf(path) {
  const [first, ...rest] = path.split("/");
  if (rest.length > 0) return first;
  return first === "errors.ts" ? "errors" : "verbs";
}

const faults = [];
for (const entry of readdirSync(source, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !entry.name.endsWith(".ts")) continue;
  const file = relative(source, join(entry.parentPath ?? entry.path, entry.name));
  const room = roomOf(file);
  const text = readFileSync(join(source, file), "utf8");
  for (const [, target] of text.matchAll(/(?:^(?:import|export)[^"';]*?from |^import |\bimport\()"([^"]+)"/gm)) {
    if (target.startsWith("node:")) {
      if (!NODE.includes(room)) faults.push(`${file}: ${target} belongs in ${NODE.join(" and ")}`);
    } else if (target.startsWith(".")) {
      const to = roomOf(posix.join(posix.dirname(file), target).replace(/\.js$/, ".ts"));
      if (to !== room && !EARLIER[room]?.includes(to))
        faults.push(`${file}: ${room} may not import from ${to} (${target})`);
    } else if (target === "#platform") {
      if (!EARLIER[room]?.includes("platform")) faults.push(`${file}: ${room} may not import from platform`);
    } else if (target !== "koffi" || room !== "platform") {
      faults.push(`${file}: the package ${target}`);
    }
  }
}
for (const fault of faults) console.error(fault);
if (faults.length === 0) console.log("rooms: every import points to an earlier room");
process.exitCode = faults.length === 0 ? 0 : 1;
