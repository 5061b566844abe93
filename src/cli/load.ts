/**
 * `torchload load`: brings a checkpoint to a device and says how long each step took.
 *
 * @module
 */
import { backendOf } from "../device/backends.js";
import { parseDevice } from "../device/device.js";
import { isTorchloadError } from "../errors.js";
import { type LoadOptions, type LoadReport, load } from "../load.js";
import { namedTensors } from "../tensor/named-tensors.js";
import { bytesText, jsonText, ProgressBar, painter, printable, rateText, tableText, timeText } from "./terminal.js";

/** Options of the command. */
export interface LoadCommandOptions extends Omit<LoadOptions, "mapLocation"> {
  readonly json: boolean;
  /** A device's name, or `auto` for the best one that is there. */
  readonly device: string;
}

/** Loads a file and prints what it took. */
export async function loadCommand(file: string, { json, device, ...options }: LoadCommandOptions): Promise<void> {
  const target = device === "auto" ? await bestDevice() : device;
  const bar = new ProgressBar(`loading to ${target}`);
  let report: LoadReport | undefined;
  const started = performance.now();
  let value: unknown;
  try {
    value = await load(file, {
      ...options,
      mapLocation: target,
      onProgress: (progress) => bar.update(progress),
      onReport: (done) => {
        report = done;
      },
    });
  } finally {
    bar.clear();
  }
  const totalMs = performance.now() - started;
  const tensors = namedTensors(value);
  if (report !== undefined) print(file, target, report, totalMs, tensors.size, json);
  for (const tensor of tensors.values()) tensor.dispose();
}

/** CUDA where it works, else the CPU. */
async function bestDevice(): Promise<string> {
  try {
    const cuda = parseDevice("cuda:0");
    return (await backendOf(cuda)).resolve(cuda).toString();
  } catch (error) {
    if (isTorchloadError(error)) return "cpu";
    throw error;
  }
}

function print(
  file: string,
  device: string,
  report: LoadReport,
  totalMs: number,
  tensors: number,
  json: boolean,
): void {
  const { openMs, decodeMs, placeMs, fillMs, nbytes, storages, format } = report;
  if (json) {
    const result = {
      file,
      device,
      format,
      tensors,
      storages,
      nbytes,
      openMs,
      decodeMs,
      placeMs,
      fillMs,
      totalMs,
      gigabytesPerSecond: nbytes / totalMs / 1e6,
    };
    process.stdout.write(`${jsonText(result)}\n`);
    return;
  }
  const { bold, dim, green } = painter();
  // What the fill of a mapped file moves is nothing: bytes come when they are touched.
  const filled = report.mapped ? dim("mapped: bytes are read when they are first touched") : rateText(nbytes, fillMs);
  const rows = [
    ["open", timeText(openMs), dim("the file, and what it is")],
    ["decode", timeText(decodeMs), dim("directory and pickle")],
    ["place", timeText(placeMs), dim("a device for each storage, and its memory")],
    ["fill", timeText(fillMs), filled],
    ["total", timeText(totalMs), ""],
  ];
  process.stdout.write(
    `${green("loaded")} ${bold(printable(file))} to ${bold(device)}: ${tensors} tensors, ${storages} storages, ${bytesText(nbytes)}\n${tableText(
      rows,
      [1],
    )
      .map((line) => `  ${line}`)
      .join("\n")}\n`,
  );
}
