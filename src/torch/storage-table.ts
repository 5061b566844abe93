/**
 * The storages that a checkpoint names by persistent ids: one {@link Storage} a key, however often it is named.
 *
 * Forms of the ids: torch/serialization.py of PyTorch 2.11, `persistent_load` in `_load` and `_legacy_load`.
 *
 * @module
 */
import { shown } from "../container/shown.js";
import { FormatError } from "../errors.js";
import { Tuple } from "../pickle/values.js";
import { type DType, dtypeOf } from "../tensor/dtype.js";
import { Storage } from "../tensor/storage.js";

/** What a storage class such as `torch.FloatStorage` stands for. */
export class StorageClass {
  readonly name: string;
  /** `undefined` for `UntypedStorage`, whose size is counted in bytes. */
  readonly dtype: DType | undefined;

  constructor(name: string, dtype: DType | undefined) {
    this.name = name;
    this.dtype = dtype;
  }
}

/** A part of a storage that files of PyTorch 0.4 and before treat as a storage of its own. */
export class StorageView {
  readonly storage: Storage;
  /** Where the part starts in the storage, in elements of the storage's type. */
  readonly storageOffset: number;
  /** Its number of elements. */
  readonly numel: number;

  constructor(storage: Storage, storageOffset: number, numel: number) {
    this.storage = storage;
    this.storageOffset = storageOffset;
    this.numel = numel;
  }
}

/** The storages of one checkpoint. */
export class StorageTable {
  readonly #file: string;
  readonly #storages: Storage[] = [];
  /** Storages by key, for keys that are numbers not far from the count of storages, as PyTorch's zip files have them. */
  readonly #byNumber: (Storage | undefined)[] = [];
  readonly #byKey = new Map<string, Storage>();
  /** Checks a storage against the file when it is first named, and again nothing. */
  readonly #check: (storage: Storage) => void;

  /**
   * @param check - called with each new storage; throws when the file cannot hold its bytes.
   */
  constructor(file: string, check: (storage: Storage) => void) {
    this.#file = file;
    this.#check = check;
  }

  /** The storages in order of first mention. */
  get storages(): readonly Storage[] {
    return this.#storages;
  }

  /** The storage of a key. */
  find(key: string): Storage | undefined {
    const number = smallNumber(key);
    return (number < this.#byNumber.length ? this.#byNumber[number] : undefined) ?? this.#byKey.get(key);
  }

  #add(storage: Storage): void {
    const number = smallNumber(storage.key);
    if (number - this.#byNumber.length < MAX_NUMBER_GAP) this.#byNumber[number] = storage;
    else this.#byKey.set(storage.key, storage);
    this.#storages.push(storage);
  }

  /** The storage that a persistent id names, or a part of one. @throws FormatError */
  load(id: unknown): Storage | StorageView {
    if (!(id instanceof Tuple) || id.length < 5 || id.length > 6) {
      throw this.#fault("a persistent id is not a tuple of five or six items");
    }
    const [, storageClass, key, location, numel, view] = id;
    if (!(storageClass instanceof StorageClass)) throw this.#fault("a persistent id names no storage class");
    const text = idText(key);
    const place = idText(location);
    if (text === undefined || place === undefined) throw this.#fault("a persistent id has no key or no location");
    const storage = this.storage(storageClass, text, place, numel);
    if (view === undefined || view === null) return storage;
    if (!(view instanceof Tuple) || view.length !== 3)
      throw this.#fault(`storage "${text}" has malformed view metadata`);
    const [, offset, count] = view;
    const all = storage.nbytes / (storageClass.dtype?.itemsize ?? 1);
    if (!isCount(offset) || !isCount(count) || offset + count > all) {
      throw this.#fault(`a view of storage "${text}" has ${shown(count)} elements from ${shown(offset)} on, of ${all}`);
    }
    return new StorageView(storage, offset, count);
  }

  /** The storage of a key, made when it is first named. @throws FormatError */
  storage(storageClass: StorageClass, key: string, location: string, numel: unknown): Storage {
    const itemsize = storageClass.dtype?.itemsize ?? 1;
    if (!isCount(numel) || !Number.isSafeInteger(numel * itemsize)) {
      throw this.#fault(`storage "${key}" has ${shown(numel)} elements; expected an integer of 0 or more`);
    }
    const nbytes = numel * itemsize;
    const known = this.find(key);
    if (known !== undefined) {
      if (known.nbytes !== nbytes) {
        throw this.#fault(
          `storage "${key}" is named with ${known.nbytes} bytes and with ${nbytes}`,
          known.nbytes,
          nbytes,
        );
      }
      return known;
    }
    const storage = new Storage({ key, dtype: storageClass.dtype, nbytes, location });
    this.#check(storage);
    this.#add(storage);
    return storage;
  }

  #fault(what: string, expected?: number, found?: number): FormatError {
    return new FormatError(`Cannot load "${this.#file}": ${what}`, { file: this.#file, expected, found });
  }
}

/** How far a key may be ahead of the keys before it and still be kept in an array. */
const MAX_NUMBER_GAP = 256;

/** The number that a key of up to nine digits is, or infinity. */
function smallNumber(key: string): number {
  if (key.length === 0 || key.length > 9 || (key.length > 1 && key.charCodeAt(0) === 0x30))
    return Number.POSITIVE_INFINITY;
  let value = 0;
  for (let k = 0; k < key.length; k++) {
    const digit = key.charCodeAt(k) - 0x30;
    if (digit < 0 || digit > 9) return Number.POSITIVE_INFINITY;
    value = value * 10 + digit;
  }
  return value;
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

/** Text of an id: files written by Python 2 have bytes, packages an integer. */
function idText(value: unknown): string | undefined {
  if (typeof value === "string") return value;
  if (typeof value === "number" && Number.isSafeInteger(value)) return String(value);
  return value instanceof Uint8Array ? new TextDecoder().decode(value) : undefined;
}

/** The storage class for tensors that are rebuilt without one. */
export const UNTYPED: StorageClass = new StorageClass("UntypedStorage", undefined);

/** The element type of a storage without a type of its own, as PyTorch reads it. */
export const UNTYPED_DTYPE: DType = dtypeOf("uint8");
