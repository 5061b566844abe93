/**
 * A source of the caller's own, held to its contract: every read gives all the bytes that were asked for.
 *
 * @module
 */
import { SourceError } from "../errors.js";
import { andThen } from "./and-then.js";
import type { ByteSource } from "./source.js";

/** The same source with each answer checked. It has no `close`: who made the source closes it. */
export function checkedSource(source: ByteSource): ByteSource {
  const { name, size } = source;
  if (typeof name !== "string" || !Number.isSafeInteger(size) || size < 0) {
    throw new TypeError("A ByteSource has a name, and a size in bytes");
  }
  return {
    name,
    size,
    read(start, end, options) {
      const wanted = end - start;
      return andThen(source.read(start, end, options), (bytes) => {
        if (bytes instanceof Uint8Array && bytes.length === wanted) return bytes;
        const got = bytes instanceof Uint8Array ? bytes.length : undefined;
        throw new SourceError(`Cannot read "${name}": ${wanted} bytes wanted at ${start}, ${got ?? "no bytes"} came`, {
          file: name,
          wanted,
          got,
        });
      });
    },
  };
}
