/**
 * Runs what might never end, or might fill the memory, in a process of its own with little memory and little time.
 *
 * @module
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** Whether the package was built: a process of its own runs the build. */
export const built: boolean = existsSync(`${root}/dist/index.js`);

/** How a process ended. */
export interface Outcome {
  /** The exit code; `null` when it was killed, for taking too long or by running out of memory. */
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function run(args: readonly string[], timeoutMs: number, env: Readonly<Record<string, string>> = {}): Outcome {
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--max-old-space-size=512", ...args], {
    cwd: root,
    encoding: "utf8",
    timeout: timeoutMs,
    maxBuffer: 2 ** 28,
    env: { ...process.env, NO_COLOR: "1", ...env },
  });
  return { status, stdout, stderr };
}

/** Runs the body of a module that has the package's names as `torchload`, `summarize`, and a file's path as `path`. */
export function isolated(path: string, body: string, timeoutMs = 10_000): Outcome {
  const script = `
    import * as torchload from "./dist/index.js";
    import { summarize } from "./dist/inspect/index.js";
    const path = ${JSON.stringify(path)};
    ${body}`;
  return run(["--input-type=module", "--eval", script], timeoutMs);
}

/** Runs the command. */
export function command(
  args: readonly string[],
  timeoutMs = 10_000,
  env: Readonly<Record<string, string>> = {},
): Outcome {
  return run(["dist/cli/main.js", ...args], timeoutMs, env);
}
