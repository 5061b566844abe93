/**
 * The values of a checkpoint that are not tensors, as short texts in Python's spelling.
 *
 * @module
 */
import { Device } from "../device/device.js";
import { Complex, Counter, FrozenSet, OrderedDict, PythonGlobal, PythonObject, Size, Tuple } from "../pickle/values.js";
import { Storage } from "../tensor/storage.js";
import { Tensor } from "../tensor/tensor.js";
import type { ValueSummary } from "./summary.js";

/** Values below a container are listed one by one while there are at most this many; larger ones as a whole. */
const MAX_LISTED = 64;
/** Characters of a value that are shown. */
const MAX_TEXT = 80;
/** Containers are opened in a short text to this depth. */
const MAX_DEPTH = 3;

/** Every value that is no tensor, in order, with the keys that lead to it. Containers that hold only tensors are left out. */
export function describeValue(value: unknown): ValueSummary[] {
  const summaries: ValueSummary[] = [];
  const seen = new Set<unknown>();
  const stack: { value: unknown; name: string }[] = [{ value, name: "" }];
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    const { value: current, name } = next;
    if (current instanceof Tensor) continue;
    const children = childrenOf(current);
    if (children === undefined || seen.has(current)) {
      summaries.push({ name, value: valueText(current) });
      continue;
    }
    seen.add(current);
    const others = children.filter(([, child]) => !(child instanceof Tensor));
    if (others.length > MAX_LISTED && others.every(([, child]) => childrenOf(child) === undefined)) {
      summaries.push({ name, value: valueText(current) });
      continue;
    }
    if (children.length === 0) summaries.push({ name, value: valueText(current) });
    for (const [key, child] of others.reverse())
      stack.push({ value: child, name: name === "" ? key : `${name}.${key}` });
  }
  return summaries;
}

function childrenOf(value: unknown): [string, unknown][] | undefined {
  if (value instanceof Map) return [...value].map(([key, child]) => [shortText(key, 0), child]);
  if (Array.isArray(value) && !(value instanceof Size)) return value.map((child, index) => [String(index), child]);
  if (value instanceof PythonObject && value.state instanceof Map) {
    return [...value.state].map(([key, child]) => [shortText(key, 0), child]);
  }
  return undefined;
}

/** A value as one line of at most {@link MAX_TEXT} characters. */
export function valueText(value: unknown): string {
  const text = pythonText(value, 0);
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT - 1)}…`;
}

function shortText(key: unknown, depth: number): string {
  return typeof key === "string" ? key : pythonText(key, depth);
}

function pythonText(value: unknown, depth: number): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string")
    return JSON.stringify(value.length > 4 * MAX_TEXT ? value.slice(0, 4 * MAX_TEXT) : value);
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  if (value instanceof Tensor || value instanceof Device) return String(value);
  if (value instanceof Storage) return `Storage(${value.nbytes} bytes)`;
  if (value instanceof Complex) return `(${value.re}${value.im < 0 ? "" : "+"}${value.im}j)`;
  if (value instanceof Uint8Array) return `bytes of length ${value.length}`;
  if (value instanceof PythonGlobal) return `<${value}>`;
  if (value instanceof PythonObject) {
    const args = value.args.length === 0 ? "" : listText(value.args, depth, "", "");
    return `${value.type}(${args})${value.state === undefined ? "" : " with state"}`;
  }
  if (value instanceof Map) {
    const kind = value instanceof OrderedDict ? "OrderedDict" : value instanceof Counter ? "Counter" : "dict";
    if (depth >= MAX_DEPTH || value.size > MAX_LISTED) return `${kind} of ${value.size}`;
    const items = [...value].map(([key, item]) => `${pythonText(key, depth + 1)}: ${pythonText(item, depth + 1)}`);
    return `{${items.join(", ")}}`;
  }
  if (value instanceof Size) return `torch.Size([${value.join(", ")}])`;
  if (value instanceof Tuple) return listText(value, depth, "(", value.length === 1 ? ",)" : ")");
  if (Array.isArray(value)) return listText(value, depth, "[", "]");
  if (value instanceof Set)
    return listText(
      [...value],
      depth,
      value instanceof FrozenSet ? "frozenset({" : "{",
      value instanceof FrozenSet ? "})" : "}",
    );
  if (typeof value === "object" && "name" in value) return `torch.${String(value.name)}`;
  return String(value);
}

function listText(items: readonly unknown[], depth: number, open: string, close: string): string {
  if (depth >= MAX_DEPTH) return `${open}… ${items.length} items${close}`;
  const shown = items.slice(0, MAX_LISTED).map((item) => pythonText(item, depth + 1));
  if (items.length > MAX_LISTED) shown.push(`… ${items.length - MAX_LISTED} more`);
  return `${open}${shown.join(", ")}${close}`;
}
