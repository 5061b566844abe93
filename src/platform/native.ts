/**
 * Foreign-function calls, through `koffi`. The only file that knows the package: another bridge (`node:ffi`, `bun:ffi`)
 * would take its place here.
 *
 * @module
 */
import { createRequire } from "node:module";
import { UnsupportedError } from "../errors.js";
import type { NativeFunction, NativeLibrary, NativeType } from "./platform.js";

type Koffi = typeof import("koffi");

let loaded: Koffi | undefined;

/** `koffi`, loaded when first needed. It is an optional dependency: `undefined` where it is not installed. */
function koffi(): Koffi | undefined {
  if (loaded !== undefined) return loaded;
  try {
    loaded = createRequire(import.meta.url)("koffi") as Koffi;
  } catch {
    return undefined;
  }
  return loaded;
}

const KOFFI_TYPES: Readonly<Record<NativeType, string>> = {
  void: "void",
  int32: "int32",
  uint32: "uint32",
  int64: "int64",
  uint64: "uint64",
  double: "double",
  string: "str",
  pointer: "void *",
};

/** Whether foreign-function calls can be made at all. */
export function nativeCallsAvailable(): boolean {
  return koffi() !== undefined;
}

/**
 * Opens the first of several names of a shared library that can be loaded; `undefined` when there is none.
 *
 * @throws UnsupportedError when the optional package `koffi` is not installed.
 */
export function openLibrary(names: readonly string[]): NativeLibrary | undefined {
  const bridge = koffi();
  if (bridge === undefined) {
    throw new UnsupportedError(
      `Cannot call ${names[0]}: the optional package "koffi" is not installed; add it with "npm install koffi"`,
      { feature: "native calls" },
    );
  }
  for (const name of names) {
    let library: ReturnType<Koffi["load"]>;
    try {
      library = bridge.load(name);
    } catch {
      continue;
    }
    return {
      bind(symbol, result, parameters): NativeFunction {
        const call = library.func(
          symbol,
          KOFFI_TYPES[result],
          parameters.map((type) => KOFFI_TYPES[type]),
        );
        const later = (...values: unknown[]): Promise<number> =>
          new Promise((resolve, reject) => {
            call.async(...values, (error: unknown, value: number) => (error ? reject(error) : resolve(value)));
          });
        return Object.assign(call as (...values: unknown[]) => number, { later }) as NativeFunction;
      },
      has(symbol): boolean {
        try {
          library.func(symbol, "void", []);
          return true;
        } catch {
          return false;
        }
      },
    };
  }
  return undefined;
}

/** An `ArrayBuffer` over native memory. The caller answers for the memory outliving the buffer. */
export function viewMemory(address: number, nbytes: number): ArrayBuffer {
  const bridge = koffi();
  if (bridge === undefined) throw new UnsupportedError("koffi is not installed", { feature: "native calls" });
  // An empty view needs no memory, and the bridge refuses a length of zero.
  return nbytes === 0 ? new ArrayBuffer(0) : bridge.view(address, nbytes);
}
