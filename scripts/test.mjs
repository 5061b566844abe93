// npm test [PROJECT …]: the tests that need nothing but Node, or the named projects of vitest.config.ts.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { prepare, root } from "./prepare.mjs";

prepare();
const projects = process.argv.slice(2).length > 0 ? process.argv.slice(2) : ["unit", "device", "hostile"];
const vitest = join(root, "node_modules/vitest/vitest.mjs");
const args = ["--expose-gc", vitest, "run", ...projects.flatMap((project) => ["--project", project])];
const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: "inherit" });
process.exit(status ?? 1);
