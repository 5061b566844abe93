/**
 * Which container a source is, from its bytes and never from its name; and what it is when it is none. Decode step.
 *
 * @module
 */
import { FormatError, UnsupportedError } from "../errors.js";
import { andThen } from "../source/and-then.js";
import type { ByteSource } from "../source/source.js";
import type { ContainerFormat } from "./container.js";
import { LEGACY } from "./legacy.js";
import { isLegacy, SAMPLE_SIZE, type Sample, SIGNATURES } from "./signatures.js";
import { ZIP } from "./zip/zip-checkpoint.js";

const isZip = ({ head }: Sample): boolean =>
  head[0] === 0x50 && head[1] === 0x4b && head[2] === 0x03 && head[3] === 0x04;

/** The containers that are read. The first that matches is the one. */
const CONTAINERS: readonly { readonly format: ContainerFormat; readonly matches: (sample: Sample) => boolean }[] = [
  { format: ZIP, matches: isZip },
  { format: LEGACY, matches: isLegacy },
];

/**
 * The container format of a source.
 *
 * @throws FormatError naming what the source is, when that is no checkpoint at all.
 * @throws UnsupportedError when it is a format of another library.
 */
export function detect(source: ByteSource): ContainerFormat | Promise<ContainerFormat> {
  const { name: file, size } = source;
  if (size === 0) throw new FormatError(`Cannot load "${file}": the file is empty`, { file, found: 0 });
  return andThen(source.read(0, Math.min(size, SAMPLE_SIZE)), (head) => {
    const sample = { head, size };
    const container = CONTAINERS.find(({ matches }) => matches(sample));
    if (container !== undefined) return container.format;
    const signature = SIGNATURES.find(({ matches }) => matches(sample));
    if (signature === undefined) {
      const bytes = [...head.subarray(0, 8)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
      throw new FormatError(
        `Cannot load "${file}": this is not a PyTorch checkpoint, nor another format that is known; it starts with ${bytes}`,
        {
          file,
          found: bytes,
        },
      );
    }
    const what = typeof signature.what === "string" ? signature.what : signature.what(sample);
    const advice = signature.advice === undefined ? "" : `; ${signature.advice}`;
    throw new UnsupportedError(`Cannot load "${file}": this is ${what}${advice}`, { file, feature: what });
  });
}
