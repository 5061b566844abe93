/**
 * The platform in Node: files through `node:fs`, native libraries through the optional package `koffi`.
 *
 * @module
 */
export { openLocalFile } from "./local-file.js";
export { nativeCallsAvailable, openLibrary, viewMemory } from "./native.js";
export { allocateHuge, copyMemory } from "./posix.js";

/** Lets the event loop do what waits in it. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
