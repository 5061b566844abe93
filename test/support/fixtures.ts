/**
 * The fixtures that real PyTorch made, one entry a file.
 *
 * @module
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Fixture } from "./expected.js";

const folder = fileURLToPath(new URL("../fixtures", import.meta.url));

/** A fixture and where its file is. */
export interface FixtureFile {
  /** `torch-1.13/views.zip` */
  readonly name: string;
  readonly path: string;
  readonly expected: Fixture;
}

/** All fixtures, of each version of PyTorch. */
export function fixtures(): FixtureFile[] {
  return readdirSync(folder, { recursive: true })
    .map(String)
    .filter((name) => name.endsWith(".json"))
    .sort()
    .map((name) => ({
      name: name.slice(0, -".json".length),
      path: join(folder, name.replace(/\.json$/, ".pt")),
      expected: JSON.parse(readFileSync(join(folder, name), "utf8")) as Fixture,
    }));
}

/** One fixture by name. */
export function fixture(name: string): FixtureFile {
  const found = fixtures().find((file) => file.name === name);
  if (found === undefined) throw new Error(`no fixture ${name}`);
  return found;
}
