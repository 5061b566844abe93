/**
 * A checkpoint that was opened and not loaded: what is in it, and any part of it on demand.
 *
 * @module
 */
import type { ContainerFormat, Contents, DecodeOptions, Facts, StoragePlace } from "./container/container.js";
import type { Device } from "./device/device.js";
import type { ByteSource } from "./source/source.js";
import { namedTensors } from "./tensor/named-tensors.js";
import { Storage } from "./tensor/storage.js";
import { Tensor } from "./tensor/tensor.js";
import { decisionOf, type MapLocation } from "./torch/location.js";
import { resolverFor } from "./torch/resolver.js";
import type { GlobalRules } from "./torch/torch-handlers.js";
import type { Progress } from "./transfer/progress.js";
import { transfer } from "./transfer/transfer.js";

/** How tensors are brought to their devices. */
export interface TransferChoices {
  /** Whether tensors on the CPU may be views of the mapped file (default), or are read into memory of their own. */
  readonly mmap?: boolean;
  /** Ends the load; it then rejects with the signal's reason, and everything it allocated is freed. */
  readonly signal?: AbortSignal;
  /** Told how far the load is. One that throws ends the load with what it threw. */
  readonly onProgress?: (progress: Progress) => void;
}

/** How a whole checkpoint is loaded. */
export interface CheckpointLoadOptions extends TransferChoices {
  /** Where each storage goes; to the CPU when nothing is said. */
  readonly mapLocation?: MapLocation;
}

/** How one tensor is loaded. */
export interface TensorLoadOptions extends TransferChoices {
  /** The device it goes to; the CPU when nothing is said. */
  readonly device?: Device | string;
}

/**
 * An open checkpoint. Its tensors are on the `meta` device: they tell their type, shape, location tag and place, and have no
 * data until they are loaded.
 *
 * Close it when done, or declare it with `await using`. Tensors that were loaded stay valid.
 */
export class Checkpoint {
  readonly #source: ByteSource;
  readonly #format: ContainerFormat;
  readonly #rules: GlobalRules;
  readonly #decodeOptions: DecodeOptions;
  readonly #contents: Contents;
  #names: ReadonlyMap<string, Tensor> | undefined;
  #closed = false;

  /** @internal Use `open`. */
  constructor(
    source: ByteSource,
    format: ContainerFormat,
    rules: GlobalRules,
    decodeOptions: DecodeOptions,
    contents: Contents,
  ) {
    this.#source = source;
    this.#format = format;
    this.#rules = rules;
    this.#decodeOptions = decodeOptions;
    this.#contents = contents;
  }

  /** The name of the file or other source. */
  get file(): string {
    return this.#source.name;
  }

  /** Size of the file in bytes. */
  get size(): number {
    return this.#source.size;
  }

  /** The container: `"zip"`, `"legacy"`. */
  get format(): string {
    return this.#format.name;
  }

  /** What the file says about itself, such as the version of its format. */
  get facts(): Facts {
    return this.#contents.facts;
  }

  /** The objects of the checkpoint, with tensors that describe. */
  get value(): unknown {
    return this.#contents.value;
  }

  /** The storages of the checkpoint, in order of first mention. */
  get storages(): readonly Storage[] {
    return this.#contents.storages;
  }

  /**
   * Every tensor of the checkpoint by its name: the keys that lead to it, joined with dots. Tensors are reached through
   * dicts, lists, tuples and the state of objects.
   */
  tensors(): ReadonlyMap<string, Tensor> {
    this.#names ??= namedTensors(this.#contents.value);
    return this.#names;
  }

  /**
   * Where the bytes of a storage start in the file; `undefined` when they are compressed there.
   *
   * @throws FormatError when the file contradicts itself there.
   */
  async placeOf(storage: Storage): Promise<number | undefined> {
    const place: StoragePlace = await this.#contents.locate(storage);
    return place.kind === "range" ? place.start : undefined;
  }

  /** Loads the whole checkpoint: the same objects as {@link value}, with tensors that have data. */
  load(options?: CheckpointLoadOptions): Promise<unknown>;
  /**
   * Loads one tensor. Of the file only its storage is read.
   *
   * @throws RangeError when the checkpoint has no tensor of that name.
   */
  load(name: string, options?: TensorLoadOptions): Promise<Tensor>;
  async load(first: string | CheckpointLoadOptions = {}, second: TensorLoadOptions = {}): Promise<unknown> {
    if (this.#closed) throw new TypeError(`The checkpoint "${this.file}" is closed`);
    return typeof first === "string" ? this.#loadTensor(first, second) : this.#loadAll(first);
  }

  async #loadTensor(name: string, { device, ...choices }: TensorLoadOptions): Promise<Tensor> {
    const described = this.tensors().get(name);
    if (described === undefined) throw new RangeError(`"${this.file}" has no tensor "${name}"`);
    const { key, dtype, nbytes, location } = described.storage;
    // A storage of its own, so that the description stays one.
    const storage = new Storage({ key, dtype, nbytes, location });
    const contents: Contents = { ...this.#contents, locate: () => this.#contents.locate(described.storage) };
    const decide = decisionOf(device);
    await transfer(this.#source, contents, [storage], { ...choices, mmap: choices.mmap ?? true, decide });
    const { shape, strides, storageOffset, requiresGrad } = described;
    return new Tensor(
      { storage, dtype: described.dtype, shape, strides, storageOffset, requiresGrad },
      Tensor.extrasOf(described),
    );
  }

  async #loadAll({ mapLocation, ...choices }: CheckpointLoadOptions): Promise<unknown> {
    const decide = decisionOf(mapLocation);
    // Decoded anew: the pickle gives the objects their identities and cycles, which no copy of them would.
    const contents = await this.#format.decode(this.#source, resolverFor(this.file, this.#rules), this.#decodeOptions);
    await transfer(this.#source, contents, contents.storages, { ...choices, mmap: choices.mmap ?? true, decide });
    return contents.value;
  }

  /** Closes the file. A source of the caller's own stays open. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#source.close?.();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
