/**
 * The names of an archive's records: the root folder that all are in, and each record by its name. Decode step.
 *
 * Storages are named by decimal numbers counted from 0, so most records are filed under a number and no string is made of
 * their name.
 *
 * @module
 */
import { FormatError } from "../../errors.js";
import { describeArchive } from "../archives.js";
import { decodeName, nameAt, uint16 } from "./columns.js";
import { CENTRAL_HEADER_SIZE } from "./layout.js";

const SLASH = 0x2f;
const ZERO = 0x30;
/** `data/`. */
const DATA_FOLDER = [0x64, 0x61, 0x74, 0x61, SLASH] as const;
/** The most digits of a key that is taken for a number. */
const MAX_KEY_DIGITS = 9;
/** From the name in a central header back to the field that holds its length, in bytes. */
const NAME_TO_LENGTH = CENTRAL_HEADER_SIZE - 28;

/** Where the records of an archive are, by name without the root. */
export class RecordNames {
  /** The part of every name before the first `/`. */
  readonly root: string;
  /** One more than the index of each storage with a small key; 0 for none. */
  readonly #storages: Uint32Array;
  /** Index by name, of all others. */
  readonly #others = new Map<string, number>();

  /**
   * @param directory - the bytes of the central directory.
   * @param headers - where each central header starts in it; there is at least one.
   * @throws FormatError for records under two roots, and for names that are there twice, if only up to ASCII case.
   * @throws UnsupportedError for an archive that is something else.
   */
  constructor(file: string, directory: Uint8Array, headers: Uint32Array) {
    const count = headers.length;
    // A few more than there are records, for keys that were left out.
    const storages = new Uint32Array(2 * count + 16);
    this.#storages = storages;
    const first = (headers[0] as number) + CENTRAL_HEADER_SIZE;
    const firstEnd = first + uint16(directory, first - NAME_TO_LENGTH);
    let rootEnd = first;
    while (rootEnd < firstEnd && directory[rootEnd] !== SLASH) rootEnd++;
    if (rootEnd === firstEnd) throw outside(file, directory, headers, 0);
    const rootLength = rootEnd + 1 - first;
    const rootName = decodeName(directory.subarray(first, rootEnd));
    this.root = rootName;

    const folded = new Set<string>();
    for (let index = 0; index < count; index++) {
      const start = (headers[index] as number) + CENTRAL_HEADER_SIZE;
      const end = start + uint16(directory, start - NAME_TO_LENGTH);
      let at = start;
      for (let k = 0; k < rootLength; k++)
        if (directory[at++] !== directory[first + k]) throw outside(file, directory, headers, index);
      if (at > end) throw outside(file, directory, headers, index);
      const key = storageKeyIn(directory, at, end);
      if (key >= 0 && key < storages.length) {
        if (storages[key] !== 0) throw twice(file, nameAt(directory, headers[index] as number));
        storages[key] = index + 1;
        continue;
      }
      const name = decodeName(directory.subarray(at, end));
      const fold = name.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
      if (folded.has(fold)) throw twice(file, name);
      folded.add(fold);
      this.#others.set(name, index);
    }
    // PyTorch looks names up without regard to ASCII case, so that "DATA/0" beside "data/0" is ambiguous.
    for (const fold of folded) {
      if (fold.startsWith("data/") && this.#numbered(fold.slice(5)) !== undefined) throw twice(file, fold);
    }
  }

  /** The record of a name; `undefined` when there is none. */
  find(name: string): number | undefined {
    return name.startsWith("data/") ? this.findStorage(name.slice(5)) : this.#others.get(name);
  }

  /** The record of a storage, `data/<key>`. */
  findStorage(key: string): number | undefined {
    return this.#numbered(key) ?? this.#others.get(`data/${key}`);
  }

  #numbered(key: string): number | undefined {
    const known = this.#storages[keyNumber(key)] ?? 0;
    return known === 0 ? undefined : known - 1;
  }
}

/** The key in a name `data/<decimal>`, or -1. Reads bytes, as a string a name would double the time. */
function storageKeyIn(bytes: Uint8Array, start: number, end: number): number {
  const digits = start + DATA_FOLDER.length;
  if (end <= digits || end - digits > MAX_KEY_DIGITS) return -1;
  for (let k = 0; k < DATA_FOLDER.length; k++) if (bytes[start + k] !== DATA_FOLDER[k]) return -1;
  if (bytes[digits] === ZERO && end > digits + 1) return -1;
  let key = 0;
  for (let k = digits; k < end; k++) {
    const digit = (bytes[k] as number) - ZERO;
    if (digit < 0 || digit > 9) return -1;
    key = key * 10 + digit;
  }
  return key;
}

/** The same for a key that is a string already. */
function keyNumber(key: string): number {
  if (key.length === 0 || key.length > MAX_KEY_DIGITS || (key.length > 1 && key.charCodeAt(0) === ZERO)) return -1;
  let value = 0;
  for (let k = 0; k < key.length; k++) {
    const digit = key.charCodeAt(k) - ZERO;
    if (digit < 0 || digit > 9) return -1;
    value = value * 10 + digit;
  }
  return value;
}

/** Says what an archive is whose records are not all in one folder; of a checkpoint, which record is the odd one out. */
function outside(file: string, directory: Uint8Array, headers: Uint32Array, index: number): Error {
  const list = Array.from(headers, (at) => nameAt(directory, at));
  const root = list[0]?.split("/", 1)[0];
  if (!list.includes(`${root}/data.pkl`)) return describeArchive(file, list);
  const record = list[index];
  return new FormatError(
    `Cannot load "${file}": record "${record}" is not in the folder of the first record, as all records of a checkpoint are`,
    { file, record, expected: `${root}/`, found: record },
  );
}

function twice(file: string, record: string): FormatError {
  return new FormatError(`Cannot load "${file}": there are two records "${record}"`, { file, record });
}
