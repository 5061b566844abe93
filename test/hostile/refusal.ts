/**
 * What a refusal must look like, by every way into the library.
 *
 * @module
 */
import { mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect } from "vitest";
import { isTorchloadError, load, type OpenOptions, open, type TorchloadError } from "../../src/index.js";

const folder = mkdtempSync(join(tmpdir(), "torchload-hostile-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let files = 0;

/** Writes bytes to a file that goes away with the tests. */
export function fileOf(bytes: Uint8Array): string {
  const path = join(folder, `bad-${files++}.pt`);
  writeFileSync(path, bytes);
  return path;
}

/** The open descriptors of this process that lead to a path. */
export function descriptorsOf(path: string): string[] {
  return readdirSync("/proc/self/fd").filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`) === path;
    } catch {
      return false;
    }
  });
}

/** What a call rejects with. */
export async function failure(call: () => Promise<unknown>): Promise<unknown> {
  try {
    await call();
  } catch (error) {
    return error;
  }
  return undefined;
}

/** Checks that something is an error of the library, in its form. Gives it. */
export function checkError(error: unknown, file: string): TorchloadError {
  if (!isTorchloadError(error)) throw new Error(`not an error of the library: ${error}`, { cause: error });
  expect(error.file).toBe(file);
  expect(error.message.startsWith(`Cannot load "${file}": `), error.message).toBe(true);
  expect(error.message.endsWith("."), error.message).toBe(false);
  return error;
}

/** How a bad file is tried. */
export interface RefusalOptions extends OpenOptions {
  /** `open` refuses most files; some faults lie behind what it reads and are met when the tensors are loaded. */
  readonly by?: "open" | "load";
}

/**
 * Expects that a file is refused in every way it can be loaded, with one and the same message, and that no descriptor of
 * it stays open. Gives the error.
 */
export async function refused(bytes: Uint8Array, options: RefusalOptions = {}): Promise<TorchloadError> {
  const { by = "open", ...openOptions } = options;
  const path = fileOf(bytes);
  const ways: [string, () => Promise<unknown>][] = [
    ["bytes", () => load(bytes, openOptions)],
    ["blob", () => load(new Blob([bytes as Uint8Array<ArrayBuffer>]), openOptions)],
    [path, () => load(path, openOptions)],
    [path, () => load(path, { ...openOptions, mmap: false })],
  ];
  if (by === "open") ways.push([path, () => open(path, openOptions)], ["bytes", () => open(bytes, openOptions)]);
  const errors: TorchloadError[] = [];
  for (const [name, way] of ways) errors.push(checkError(await failure(way), name));
  const [first, ...others] = errors as [TorchloadError, ...TorchloadError[]];
  const plain = ({ message, file }: TorchloadError): string => message.replace(file as string, "FILE");
  for (const other of others) {
    expect(plain(other)).toBe(plain(first));
    expect(other.code).toBe(first.code);
  }
  if (by === "load") await (await open(path, openOptions)).close();
  expect(descriptorsOf(path)).toEqual([]);
  return first;
}
