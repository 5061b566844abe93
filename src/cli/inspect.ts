/**
 * `torchload inspect`: what is in a checkpoint.
 *
 * @module
 */
import { type Summary, summarize, type TensorSummary } from "../inspect/summary.js";
import { type OpenOptions, open } from "../open.js";
import { bytesText, cellText, jsonText, painter, printable, tableText } from "./terminal.js";

/** Tensors and values that are listed when not all are asked for. */
const LISTED = 40;

/** Options of the command. */
export interface InspectOptions extends OpenOptions {
  readonly json: boolean;
  /** Lists everything however long it is. */
  readonly all: boolean;
}

/** Prints the summary of a file. */
export async function inspect(file: string, { json, all, ...options }: InspectOptions): Promise<void> {
  const checkpoint = await open(file, options);
  try {
    const summary = summarize(checkpoint);
    process.stdout.write(json ? `${jsonText(summary, 2)}\n` : `${summaryText(summary, all).join("\n")}\n`);
  } finally {
    await checkpoint.close();
  }
}

/** The lines that the command prints. */
export function summaryText(summary: Summary, all: boolean): string[] {
  const { bold, dim } = painter();
  const facts = Object.entries(summary.facts).map(([name, value]) => `${name} ${value}`);
  const lines = [
    `${bold(printable(summary.file))}  ${bytesText(summary.size)}, ${summary.format}${dim(facts.length === 0 ? "" : `  (${printable(facts.join(", "))})`)}`,
    "",
  ];
  const shown = all ? summary.tensors : edges(summary.tensors);
  const rows = shown.map((entry) =>
    entry === undefined ? omittedRow(summary.tensors.length - LISTED) : tensorRow(entry),
  );
  if (rows.length > 0) {
    const [header, ...body] = tableText([["tensor", "dtype", "shape", "size", "device", ""], ...rows], [3]);
    lines.push(dim(header as string), ...body, "");
  }
  const values = all ? summary.values : summary.values.slice(0, LISTED);
  if (values.length > 0) {
    lines.push(dim("other values"));
    lines.push(...tableText(values.map(({ name, value }) => [cellText(name) || "(the value)", cellText(value)])));
    if (values.length < summary.values.length)
      lines.push(dim(`… ${summary.values.length - values.length} more (--all)`));
    lines.push("");
  }
  const dtypes = Object.entries(summary.dtypes).map(
    ([name, { tensors, nbytes }]) => `${name} ${tensors} (${bytesText(nbytes)})`,
  );
  lines.push(
    `${bold(`${summary.tensors.length} tensors`)}, ${summary.numel.toLocaleString("en")} elements: ${dtypes.join(", ") || "none"}`,
    `${summary.storages.count} storages, ${bytesText(summary.storages.nbytes)}; saved on ${locationsText(summary)}`,
  );
  return lines;
}

function locationsText({ locations }: Summary): string {
  const entries = Object.entries(locations);
  if (entries.length === 0) return "no device";
  return entries
    .map(([name, count]) => (entries.length === 1 ? cellText(name) : `${cellText(name)} (${count})`))
    .join(", ");
}

/** The first and the last of a long list, with `undefined` for what is between. */
function edges(tensors: readonly TensorSummary[]): (TensorSummary | undefined)[] {
  if (tensors.length <= LISTED) return [...tensors];
  return [...tensors.slice(0, LISTED - 8), undefined, ...tensors.slice(-8)];
}

function omittedRow(count: number): string[] {
  return [`… ${count} more (--all)`, "", "", "", "", ""];
}

function tensorRow(tensor: TensorSummary): string[] {
  const notes: string[] = [];
  if (tensor.kind !== undefined) notes.push(tensor.kind);
  if (tensor.sharesWith !== undefined) notes.push(`shares storage ${tensor.storage} with ${tensor.sharesWith}`);
  if (!hasPlainStrides(tensor)) notes.push(`strides [${tensor.strides.join(", ")}]`);
  return [
    cellText(tensor.name) || "(the value)",
    tensor.dtype,
    `[${tensor.shape.join(", ")}]`,
    bytesText(tensor.nbytes),
    cellText(tensor.location),
    cellText(notes.join("; ")),
  ];
}

function hasPlainStrides({ shape, strides }: TensorSummary): boolean {
  let step = 1;
  for (let k = shape.length - 1; k >= 0; k--) {
    if (shape[k] !== 1 && strides[k] !== step) return shape.includes(0);
    step *= shape[k] as number;
  }
  return true;
}
