/**
 * The content of a record of a zip archive, in memory. For pickles and small facts; storages are never read this way unless
 * they are compressed.
 *
 * @module
 */
import { FormatError } from "../../errors.js";
import { andThen } from "../../source/and-then.js";
import type { ByteSource } from "../../source/source.js";
import { METHOD_STORED, type ZipDirectory } from "./directory.js";

/** The content of a record. @throws FormatError when compressed bytes are damaged or give more or fewer than stated. */
export function readRecord(
  source: ByteSource,
  directory: ZipDirectory,
  index: number,
): Uint8Array | Promise<Uint8Array> {
  const stored = andThen(directory.locate(source, index), (start) =>
    source.read(start, start + directory.compressedSize(index)),
  );
  if (directory.method(index) === METHOD_STORED) return stored;
  return andThen(stored, (bytes) => inflateRecord(bytes, directory, index));
}

/**
 * Inflates a record. Output memory grows with what really comes out and stops at the first byte beyond the stated size, so
 * that a record of a few bytes cannot claim gigabytes.
 */
async function inflateRecord(bytes: Uint8Array, directory: ZipDirectory, index: number): Promise<Uint8Array> {
  const { file } = directory;
  const record = directory.name(index);
  const expected = directory.size(index);
  const pieces: Uint8Array[] = [];
  let found = 0;
  const inflated = new Blob([bytes as Uint8Array<ArrayBuffer>])
    .stream()
    .pipeThrough(new DecompressionStream("deflate-raw"));
  const reader = inflated.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      found += value.length;
      if (found > expected) {
        await reader.cancel();
        throw new FormatError(`Cannot load "${file}": record "${record}" inflates to more than its ${expected} bytes`, {
          file,
          record,
          expected,
          found,
        });
      }
      pieces.push(value);
    }
  } catch (error) {
    if (error instanceof FormatError) throw error;
    throw new FormatError(`Cannot load "${file}": record "${record}" is not valid deflated data`, {
      file,
      record,
      cause: error,
    });
  }
  if (found !== expected) {
    throw new FormatError(`Cannot load "${file}": record "${record}" inflates to ${found} of its ${expected} bytes`, {
      file,
      record,
      expected,
      found,
    });
  }
  if (pieces.length === 1) return pieces[0] as Uint8Array;
  const content = new Uint8Array(expected);
  let at = 0;
  for (const piece of pieces) {
    content.set(piece, at);
    at += piece.length;
  }
  return content;
}
