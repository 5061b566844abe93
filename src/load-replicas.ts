/**
 * `loadReplicas`: one checkpoint on several devices, each byte of it read once.
 *
 * @module
 */
import type { TransferChoices } from "./checkpoint.js";
import type { Contents } from "./container/container.js";
import { detect } from "./container/detect.js";
import { legacyAt } from "./container/legacy.js";
import type { Device } from "./device/device.js";
import { decodeRules, type Input, type OpenOptions, sourceOf } from "./open.js";
import type { Storage } from "./tensor/storage.js";
import { type Decide, decisionOf } from "./torch/location.js";
import { resolverFor } from "./torch/resolver.js";
import { transfer } from "./transfer/transfer.js";

/** How replicas are loaded. */
export interface ReplicaOptions extends OpenOptions, TransferChoices {
  /** The devices, one replica each. */
  readonly devices: readonly (Device | string)[];
}

/**
 * Loads a copy of a checkpoint to each of several devices. The file is read once for all CUDA devices together: a piece of it
 * goes from main memory to every device before the next takes its place.
 *
 * @returns the objects of the checkpoint once for each device, in the order of the devices.
 * @throws what `load` throws. When one device fails, the memory on all is freed.
 *
 * @example
 * ```ts
 * const [first, second] = await loadReplicas("model.pt", { devices: ["cuda:0", "cuda:1"] });
 * ```
 */
export async function loadReplicas(input: Input, options: ReplicaOptions): Promise<unknown[]> {
  const { rules, decodeOptions } = decodeRules(options);
  const decisions = options.devices.map((device) => decisionOf(device));
  const source = sourceOf(input);
  try {
    const format = options.offset ? legacyAt(options.offset) : await detect(source);
    const replicas: Contents[] = [];
    // Decoded once each: objects and storages of their own, over the same places in the file.
    for (const _ of decisions) {
      replicas.push(await format.decode(source, resolverFor(source.name, rules), decodeOptions));
    }
    const storages: Storage[] = [];
    const owner = new Map<Storage, number>();
    for (const [index, contents] of replicas.entries()) {
      for (const storage of contents.storages) {
        storages.push(storage);
        owner.set(storage, index);
      }
    }
    const all: Contents = {
      value: undefined,
      storages,
      facts: {},
      locate: (storage) => (replicas[owner.get(storage) as number] as Contents).locate(storage),
    };
    const decide: Decide = (storage, file) => (decisions[owner.get(storage) as number] as Decide)(storage, file);
    await transfer(source, all, storages, {
      decide,
      mmap: options.mmap ?? true,
      signal: options.signal,
      onProgress: options.onProgress,
    });
    return replicas.map(({ value }) => value);
  } finally {
    await source.close?.();
  }
}
