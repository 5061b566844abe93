/**
 * The content of a record of a zip archive, in memory. For pickles and small facts; storages are never read this way unless
 * they are compressed.
 *
 * Definition of what is inflated: RFC 1951. The platform does it (`DecompressionStream`), Node and browsers alike.
 *
 * @module
 */
import { FormatError, type FormatErrorDetails, isTorchloadError, UnsupportedError } from "../../errors.js";
import { andThen } from "../../source/and-then.js";
import type { ByteSource } from "../../source/source.js";
import type { ZipDirectory } from "./directory.js";
import { METHOD_STORED } from "./layout.js";

/** Compressed bytes that are read at a time. Browsers ask for the next when they need it; Node 20 asks for all at once. */
const PIECE = 1 << 20;

/**
 * The content of a record.
 *
 * A stored record is what the source gives, which may be a view of memory that it owns.
 *
 * @throws FormatError when compressed bytes are damaged, or give more or fewer than stated.
 * @throws UnsupportedError where the platform cannot inflate.
 */
export function readRecord(
  source: ByteSource,
  directory: ZipDirectory,
  index: number,
): Uint8Array | Promise<Uint8Array> {
  return andThen(directory.locate(source, index), (start) => {
    const end = start + directory.compressedSize(index);
    if (directory.method(index) === METHOD_STORED) return source.read(start, end);
    return inflateRecord(source, start, end, directory, index);
  });
}

/** What the stream of a platform that keeps to the Compression Streams standard takes and gives. */
type Inflater = ReadableWritablePair<Uint8Array, Uint8Array>;

/**
 * Inflates a record. Output memory grows with what really comes out and stops at the first byte beyond the stated size, so
 * that a record of a few bytes cannot claim gigabytes.
 */
async function inflateRecord(
  source: ByteSource,
  start: number,
  end: number,
  directory: ZipDirectory,
  index: number,
): Promise<Uint8Array> {
  const { file } = directory;
  const expected = directory.size(index);
  const fault = (what: string, details: FormatErrorDetails): FormatError => {
    const record = directory.name(index);
    return new FormatError(`Cannot load "${file}": record "${record}" ${what}`, { file, record, ...details });
  };
  const reader = piecesOf(source, start, end).pipeThrough(inflater(file)).getReader();
  const pieces: Uint8Array[] = [];
  let found = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      found += value.length;
      if (found > expected) {
        // What is left is of no interest, nor is a fault in it.
        reader.cancel().catch(() => {});
        throw fault(`inflates to more than its ${expected} bytes`, { expected, found });
      }
      pieces.push(value);
    }
  } catch (error) {
    // Faults of the source come through the stream as they are.
    if (isTorchloadError(error)) throw error;
    throw fault("is not valid deflated data", { expected, found, cause: error });
  }
  if (found !== expected) throw fault(`inflates to ${found} of its ${expected} bytes`, { expected, found });
  return joined(pieces, expected);
}

function inflater(file: string): Inflater {
  try {
    return new DecompressionStream("deflate-raw") as Inflater;
  } catch (error) {
    throw new UnsupportedError(
      `Cannot load "${file}": its records are compressed, which this platform cannot undo; Node can from 20.12 on`,
      { file, feature: "deflate-raw", cause: error },
    );
  }
}

/** The bytes `[start, end)` of a source, piece by piece, each read when it is wanted. */
function piecesOf(source: ByteSource, start: number, end: number): ReadableStream<Uint8Array> {
  let at = start;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const next = Math.min(at + PIECE, end);
        if (next > at) controller.enqueue(await source.read(at, next));
        at = next;
        if (at === end) controller.close();
      },
    },
    { highWaterMark: 0 },
  );
}

function joined(pieces: readonly Uint8Array[], length: number): Uint8Array {
  if (pieces.length === 1) return pieces[0] as Uint8Array;
  const content = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    content.set(piece, at);
    at += piece.length;
  }
  return content;
}
