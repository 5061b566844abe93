/**
 * A `Blob` or `File`, read by slices and never whole.
 *
 * @module
 */
import { SourceError } from "../errors.js";
import type { ByteSource } from "./source.js";
import { windowedSource } from "./windowed-source.js";

/** A source over a blob. Its name is that of the file, when it is one. */
export function blobSource(blob: Blob, name: string = (blob as { name?: string }).name ?? "blob"): ByteSource {
  return windowedSource({
    name,
    size: blob.size,
    async read(start, end, options) {
      options?.signal?.throwIfAborted();
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
  });
}
