/**
 * `load`: decode, place and fill in one call.
 *
 * @module
 */
import type { TransferChoices } from "./checkpoint.js";
import { detect } from "./container/detect.js";
import { legacyAt } from "./container/legacy.js";
import { importCuda } from "./device/backends.js";
import { MappedMemory } from "./device/cpu/host-memory.js";
import { Device } from "./device/device.js";
import { decodeRules, type Input, type OpenOptions, sourceOf } from "./open.js";
import { FileSource } from "./source/file-source.js";
import { decisionOf, type MapLocation } from "./torch/location.js";
import { resolverFor } from "./torch/resolver.js";
import { type EarlyReads, readEarly, transfer } from "./transfer/transfer.js";

/** What a load did and how long each step took. */
export interface LoadReport {
  /** Opening the input and recognising its container, in ms. */
  readonly openMs: number;
  /** Reading directory and pickle, in ms. */
  readonly decodeMs: number;
  /** Deciding on devices, starting their drivers and allocating, in ms. */
  readonly placeMs: number;
  /** Moving the bytes, in ms. */
  readonly fillMs: number;
  /** Bytes of all storages. */
  readonly nbytes: number;
  /** Number of storages. */
  readonly storages: number;
  readonly format: string;
  /** Whether tensors are views of the mapped file, whose bytes are read when they are first touched. */
  readonly mapped: boolean;
}

/** How a checkpoint is loaded. */
export interface LoadOptions extends OpenOptions, TransferChoices {
  /** Where each storage goes, as in `torch.load`; to the CPU when nothing is said. */
  readonly mapLocation?: MapLocation;
  /** Called once, at the end, with what each step took. */
  readonly onReport?: (report: LoadReport) => void;
}

/**
 * Loads a checkpoint, as `torch.load` does: each storage is allocated, uninitialised, on the device it belongs on, and the
 * bytes of the file go there by the shortest way.
 *
 * @returns the objects of the checkpoint: `Map` for a dict, `Tensor` for a tensor, and so on.
 * @throws TypeError for wrong options, before any I/O.
 * @throws FormatError, UnsupportedError when the input is not a checkpoint, is damaged, or is of a kind that is not read.
 * @throws UnsafePickleError when its pickle asks for a class or function that is not allowed.
 * @throws DeviceError when a device is not there, is too small or fails.
 * @throws SourceError when the input cannot be read.
 *
 * @example
 * ```ts
 * const state = (await load("model.pt", { mapLocation: "cuda:0" })) as Map<string, Tensor>;
 * ```
 */
export async function load(input: Input, options: LoadOptions = {}): Promise<unknown> {
  const started = performance.now();
  const { rules, decodeOptions } = decodeRules(options);
  const decide = decisionOf(options.mapLocation);
  const source = sourceOf(input);
  let early: EarlyReads | undefined;
  if (options.mmap === false && source instanceof FileSource) source.mayMap = false;
  try {
    if (startCuda(options.mapLocation)) early = readEarly(source);
    const found = options.offset ? legacyAt(options.offset) : detect(source);
    const format = found instanceof Promise ? await found : found;
    const opened = performance.now();
    const decoded = format.decode(source, resolverFor(source.name, rules), decodeOptions);
    const contents = decoded instanceof Promise ? await decoded : decoded;
    const decodedAt = performance.now();
    let placedAt = decodedAt;
    await transfer(source, contents, contents.storages, {
      decide,
      mmap: options.mmap ?? true,
      signal: options.signal,
      onProgress: options.onProgress,
      early,
      onPlaced: () => {
        placedAt = performance.now();
      },
    });
    options.onReport?.({
      openMs: opened - started,
      decodeMs: decodedAt - opened,
      placeMs: placedAt - decodedAt,
      fillMs: performance.now() - placedAt,
      nbytes: contents.storages.reduce((sum, storage) => sum + storage.nbytes, 0),
      storages: contents.storages.length,
      format: format.name,
      mapped: contents.storages.some(({ memory }) => memory instanceof MappedMemory),
    });
    return contents.value;
  } finally {
    await early?.cancel();
    await source.close?.();
  }
}

/**
 * Starts the driver when all goes to a CUDA device, so that it gets ready while the file is being decoded. Gives whether all
 * does.
 */
function startCuda(mapLocation: MapLocation | undefined): boolean {
  const name = mapLocation instanceof Device ? mapLocation.toString() : mapLocation;
  const match = typeof name === "string" ? /^cuda(?::?(\d+))?$/.exec(name) : null;
  if (match === null) return false;
  // Failures are met again, and told, where the device is needed.
  startContext(Number(match[1] ?? 0)).catch(() => {});
  return true;
}

async function startContext(index: number): Promise<void> {
  const backend = await (await importCuda()).openCudaBackend();
  if (index < backend.deviceCount) await backend.context(index);
}
