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
import type { Finding } from "./peek.js";
import { isLegacy, isZip, type Matches, SAMPLE_SIZE, type Sample, TAIL_SIZE } from "./sample.js";
import { SIGNATURES } from "./signatures.js";
import { ZIP } from "./zip/zip-checkpoint.js";

/** The containers that are read. The first that matches is the one. */
const CONTAINERS: readonly { readonly format: ContainerFormat; readonly matches: Matches }[] = [
  { format: ZIP, matches: isZip },
  { format: LEGACY, matches: isLegacy },
];

/** Bytes of a file that is not recognised, as shown in the message. */
const SHOWN = 8;

/**
 * The container format of a source.
 *
 * @throws FormatError when the source is empty or nothing is known that begins so.
 * @throws UnsupportedError naming what the source is, when that is another format.
 */
export function detect(source: ByteSource): ContainerFormat | Promise<ContainerFormat> {
  const { name: file, size } = source;
  if (size === 0) throw new FormatError(`Cannot load "${file}": the file is empty`, { file, found: 0 });
  return andThen(source.read(0, Math.min(size, SAMPLE_SIZE)), (head) => {
    const sample = { head, tail: new Uint8Array(0), size };
    const container = CONTAINERS.find(({ matches }) => matches(sample));
    if (container !== undefined) return container.format;
    const tail = source.read(Math.max(0, size - TAIL_SIZE), size);
    return andThen(tail, (last) => refuse(source, { ...sample, tail: last }));
  });
}

function refuse(source: ByteSource, sample: Sample): never | Promise<never> {
  const { name: file } = source;
  const signature = SIGNATURES.find(({ matches }) => matches(sample));
  if (signature === undefined) {
    const bytes = Array.from(sample.head.subarray(0, SHOWN), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    throw new FormatError(
      `Cannot load "${file}": this is not a PyTorch checkpoint, nor another format that is known; it starts with ${bytes}`,
      { file, found: bytes },
    );
  }
  const found: Finding = { what: told(signature.what, sample), advice: told(signature.advice, sample) };
  const fail = ({ what, advice }: Finding = found): never => {
    const message = `Cannot load "${file}": this is ${what}${advice === undefined ? "" : `; ${advice}`}`;
    throw new UnsupportedError(message, { file, feature: what });
  };
  return signature.look === undefined ? fail() : signature.look(source).then(fail);
}

function told<Text extends string | undefined>(
  text: Text | ((sample: Sample) => string),
  sample: Sample,
): Text | string {
  return typeof text === "function" ? text(sample) : text;
}
