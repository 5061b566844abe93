/**
 * Looking into files that have others packed in them, to say what those are. Nothing is unpacked for use: a few kilobytes
 * are read, and names are shown, never followed.
 *
 * @module
 */
import { isTorchloadError } from "../errors.js";
import type { ByteSource } from "../source/source.js";
import { isLegacy, isTar, isZip } from "./sample.js";

/** Compressed bytes that are looked at. */
const PACKED_SIZE = 64 * 1024;
/** Bytes that are taken out of them: enough for the first members of an archive. */
const UNPACKED_SIZE = 1024 * 1024;
/** Members of a tar archive that are looked at. */
const MAX_MEMBERS = 64;
const TAR_BLOCK = 512;

/** Names that checkpoints are saved under. */
const CHECKPOINT_NAME = /\.(?:pt|pth|th|ckpt|bin|pkl|safetensors|pt2|ptl|npz)$/i;

/** What a file is, and what to do about it. */
export interface Finding {
  readonly what: string;
  readonly advice?: string | undefined;
}

/** Says what is in a gzip file; `undefined` when that is nothing known. */
export async function lookIntoGzip(source: ByteSource): Promise<Finding | undefined> {
  const head = await inflatedHead(await source.read(0, Math.min(source.size, PACKED_SIZE)));
  if (isTar({ head })) {
    const inside: ByteSource = {
      name: source.name,
      size: head.length,
      read: (start, end) => head.subarray(start, end),
    };
    const tar = await lookIntoTar(inside);
    return { what: `a gzip file around ${tar.what}`, advice: 'unpack it first, with "tar xzf"' };
  }
  const what = isLegacy({ head }) ? "a legacy checkpoint" : isZip({ head }) ? "a zip archive" : undefined;
  return what && { what: `a gzip file around ${what}`, advice: 'unpack it first, with "gunzip"' };
}

/** Says what is in a tar archive. */
export async function lookIntoTar(source: ByteSource): Promise<Finding> {
  const names = await tarNames(source);
  if (names.includes("pickle") && names.includes("storages")) {
    return { what: "a tar checkpoint, as PyTorch before 0.1.10 wrote, which this version does not read" };
  }
  const checkpoint = names.find((name) => CHECKPOINT_NAME.test(name));
  const inside = checkpoint === undefined ? "" : ` with ${JSON.stringify(checkpoint)} inside`;
  return { what: `a tar archive${inside}`, advice: "unpack it first" };
}

/** The names of the first members. */
async function tarNames(source: ByteSource): Promise<string[]> {
  const names: string[] = [];
  let at = 0;
  for (let k = 0; k < MAX_MEMBERS && at + TAR_BLOCK <= source.size; k++) {
    const head = await source.read(at, at + TAR_BLOCK);
    if (!isTar({ head })) break;
    const text = new TextDecoder("latin1").decode(head);
    const size = Number.parseInt(text.slice(124, 136), 8);
    // Types x and g hold attributes of other members.
    if (!/[xgL]/.test(text[156] as string)) names.push(text.slice(0, 100).split("\0", 1)[0] as string);
    if (!Number.isSafeInteger(size) || size < 0) break;
    at += TAR_BLOCK + Math.ceil(size / TAR_BLOCK) * TAR_BLOCK;
  }
  return names;
}

/** What the start of a gzip file inflates to, as far as it goes. */
async function inflatedHead(packed: Uint8Array): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  try {
    const bytes = new Blob([packed as Uint8Array<ArrayBuffer>]).stream();
    const reader = bytes.pipeThrough(new DecompressionStream("gzip")).getReader();
    while (length < UNPACKED_SIZE) {
      const { done, value } = await reader.read();
      if (done) break;
      pieces.push(value);
      length += value.length;
    }
    reader.cancel().catch(() => {});
  } catch (error) {
    // A start that ends in the middle of a stream, or damage: what came until then will do.
    if (isTorchloadError(error)) throw error;
  }
  const head = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    head.set(piece, at);
    at += piece.length;
  }
  return head;
}
