/**
 * A source that fetches the start and the end of another one once each, and answers small reads there from memory.
 *
 * Directories and pickles lie there and are read piece by piece. Where each read is a round trip, to a `Blob`'s process or to a
 * server, two fetches take the place of dozens, and what follows is answered at once.
 *
 * @module
 */
import { andThen } from "./and-then.js";
import type { ByteSource } from "./source.js";

/** Bytes of a window: the directory of a thousand records, or the pickle of as many tensors. */
const WINDOW = 64 * 1024;

/** One end of the source, once it was asked for. */
interface Window {
  readonly start: number;
  readonly end: number;
  bytes: Uint8Array | Promise<Uint8Array> | undefined;
}

/**
 * A source over `source`, which it closes when it is closed. Reads that do not lie in a window go through as they are.
 *
 * A window is fetched without the signal of the read that wanted it, as others may wait for it too; one that could not be
 * fetched is asked for anew by the next read.
 */
export function windowedSource(source: ByteSource): ByteSource {
  const { size } = source;
  const windows: Window[] = [{ start: 0, end: Math.min(size, WINDOW), bytes: undefined }];
  if (size > WINDOW) windows.push({ start: Math.max(WINDOW, size - WINDOW), end: size, bytes: undefined });

  const open = (window: Window): Uint8Array | Promise<Uint8Array> => {
    if (window.bytes !== undefined) return window.bytes;
    const bytes = source.read(window.start, window.end);
    window.bytes = bytes;
    if (!(bytes instanceof Promise)) return bytes;
    return bytes.then(
      (fetched) => {
        window.bytes = fetched;
        return fetched;
      },
      (error: unknown) => {
        window.bytes = undefined;
        throw error;
      },
    );
  };

  return {
    name: source.name,
    size,
    read(start, end, options) {
      const window = windows.find((candidate) => start >= candidate.start && end <= candidate.end);
      if (window === undefined) return source.read(start, end, options);
      return andThen(open(window), (bytes) => {
        options?.signal?.throwIfAborted();
        return bytes.subarray(start - window.start, end - window.start);
      });
    },
    ...(source.close === undefined ? {} : { close: () => source.close?.() }),
  };
}
