/**
 * The platform in a browser: no local files and no native libraries. Offers the same names as `node.ts`.
 *
 * @module
 */
import { UnsupportedError } from "../errors.js";
import type { LocalFile, NativeLibrary } from "./platform.js";

export function openLocalFile(pathOrUrl: string | URL): LocalFile {
  throw new UnsupportedError(`Cannot open "${pathOrUrl}": a browser has no paths; pass a File, a Blob or the bytes`, {
    feature: "local files",
    file: String(pathOrUrl),
  });
}

export function nativeCallsAvailable(): boolean {
  return false;
}

export function openLibrary(_names: readonly string[]): NativeLibrary | undefined {
  return undefined;
}

export function viewMemory(_address: number, _nbytes: number): ArrayBuffer {
  throw new UnsupportedError("A browser has no native memory", { feature: "native calls" });
}

export function allocateHuge(_nbytes: number): { readonly address: number; free(): void } | undefined {
  return undefined;
}

export function copyMemory(_target: number, _origin: number, _nbytes: number): void {
  throw new UnsupportedError("A browser has no native memory", { feature: "native calls" });
}

export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}
