/**
 * A `Blob` or `File`, read by slices and never whole.
 *
 * @module
 */
import { SourceError } from "../errors.js";
import type { ByteSource } from "./source.js";

/** A source over a blob. */
export function blobSource(blob: Blob, name: string = (blob as { name?: string }).name ?? "blob"): ByteSource {
  return {
    name,
    size: blob.size,
    async read(start, end) {
      let buffer: ArrayBuffer;
      try {
        buffer = await blob.slice(start, end).arrayBuffer();
      } catch (error) {
        throw new SourceError(`Cannot read "${name}": the file changed or is gone`, { file: name, cause: error });
      }
      if (buffer.byteLength !== end - start) {
        throw new SourceError(`Cannot read "${name}": ${end - start} bytes wanted, ${buffer.byteLength} came`, {
          file: name,
          wanted: end - start,
          got: buffer.byteLength,
        });
      }
      return new Uint8Array(buffer);
    },
  };
}
