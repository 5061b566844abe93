/**
 * Bytes that are already in memory, as a source.
 *
 * @module
 */
import type { ByteSource } from "./source.js";

/** A source over bytes in memory. They are not copied: they must not change while the source is in use. */
export function memorySource(bytes: Uint8Array, name = "bytes"): ByteSource {
  return { name, size: bytes.byteLength, read: (start, end) => bytes.subarray(start, end) };
}
