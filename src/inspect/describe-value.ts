/**
 * The values of a checkpoint that are not tensors, as short texts in Python's spelling.
 *
 * @module
 */
import { Device } from "../device/device.js";
import { Complex, Counter, FrozenSet, OrderedDict, PythonGlobal, PythonObject, Size, Tuple } from "../pickle/values.js";
import { joinKeys, keyText } from "../tensor/named-tensors.js";
import { Storage } from "../tensor/storage.js";
import { Tensor } from "../tensor/tensor.js";
import type { ValueSummary } from "./summary.js";

/** Values below a container are listed one by one while there are at most this many; larger ones as a whole. */
const MAX_LISTED = 64;
/** Characters of a value that are shown. */
const MAX_TEXT = 80;
/** Characters of all names together; beyond that only last keys are given, as no honest file has so many. */
const MAX_NAMES = 16 * 1024 * 1024;
/** Containers are opened in a short text to this depth. */
const MAX_DEPTH = 3;

/** Every value that is no tensor, in order, with the keys that lead to it. Containers that hold only tensors are left out. */
export function describeValue(value: unknown): ValueSummary[] {
  const summaries: ValueSummary[] = [];
  const seen = new Set<unknown>();
  let left = MAX_NAMES;
  const add = (name: string, key: string, current: unknown): void => {
    left -= name.length;
    summaries.push({ name: left < 0 ? `…${key.slice(-MAX_TEXT)}` : name, value: valueText(current) });
  };
  const stack: { value: unknown; name: string; key: string }[] = [{ value, name: "", key: "" }];
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    const { value: current, name, key: lastKey } = next;
    if (current instanceof Tensor) continue;
    if (!isContainer(current) || seen.has(current)) {
      add(name, lastKey, current);
      continue;
    }
    seen.add(current);
    const children = childrenOf(current);
    const others = children.filter(([, child]) => !(child instanceof Tensor));
    if (children.length === 0 || (others.length > MAX_LISTED && !others.some(([, child]) => isContainer(child)))) {
      add(name, lastKey, current);
      continue;
    }
    for (const [part, child] of others.reverse()) {
      const key = keyText(part);
      stack.push({ value: child, name: joinKeys(name, key), key });
    }
  }
  return summaries;
}

function isContainer(value: unknown): value is Map<unknown, unknown> | unknown[] | PythonObject {
  if (value instanceof Map) return true;
  if (Array.isArray(value)) return !(value instanceof Size);
  return value instanceof PythonObject && value.state instanceof Map;
}

function childrenOf(value: Map<unknown, unknown> | unknown[] | PythonObject): [unknown, unknown][] {
  if (value instanceof Map) return [...value];
  if (Array.isArray(value)) return [...value.entries()];
  return [...(value.state as Map<unknown, unknown>)];
}

/** A value as one line of at most {@link MAX_TEXT} characters. */
export function valueText(value: unknown): string {
  const writer = new Writer();
  writer.value(value, 0);
  return writer.text.length <= MAX_TEXT ? writer.text : `${writer.text.slice(0, MAX_TEXT - 1)}…`;
}

/** Writes values in Python's spelling and stops when there is enough: in a few bytes a file can describe endless text. */
class Writer {
  text = "";

  get full(): boolean {
    return this.text.length > MAX_TEXT;
  }

  value(value: unknown, depth: number): void {
    if (this.full) return;
    if (value instanceof Map) {
      const kind = value instanceof OrderedDict ? "OrderedDict" : value instanceof Counter ? "Counter" : "dict";
      if (depth >= MAX_DEPTH || value.size > MAX_LISTED) this.text += `${kind} of ${value.size}`;
      else this.#entries(value, depth);
    } else if (value instanceof Tuple && !(value instanceof Size)) {
      this.#items(value, depth, "(", value.length === 1 ? ",)" : ")");
    } else if (Array.isArray(value) && !(value instanceof Size)) this.#items(value, depth, "[", "]");
    else if (value instanceof FrozenSet) this.#items([...value], depth, "frozenset({", "})");
    else if (value instanceof Set) this.#items([...value], depth, "{", "}");
    else if (value instanceof PythonObject) {
      this.text += String(value.type);
      this.#items(value.args, depth, "(", ")");
      if (value.state !== undefined) this.text += " with state";
    } else this.text += leafText(value);
  }

  #entries(map: ReadonlyMap<unknown, unknown>, depth: number): void {
    this.text += "{";
    let first = true;
    for (const [key, item] of map) {
      if (this.full) return;
      if (!first) this.text += ", ";
      first = false;
      this.value(key, depth + 1);
      this.text += ": ";
      this.value(item, depth + 1);
    }
    this.text += "}";
  }

  #items(items: readonly unknown[], depth: number, open: string, close: string): void {
    this.text += open;
    if (depth >= MAX_DEPTH) this.text += `… ${items.length} items`;
    else {
      for (let k = 0; k < items.length && !this.full; k++) {
        if (k > 0) this.text += ", ";
        if (k === MAX_LISTED) {
          this.text += `… ${items.length - MAX_LISTED} more`;
          break;
        }
        this.value(items[k], depth + 1);
      }
    }
    this.text += close;
  }
}

function leafText(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return JSON.stringify(value.slice(0, MAX_TEXT));
  // A bigint may have a hundred thousand digits, whose conversion takes its time.
  if (typeof value === "bigint")
    return value > -HUGE && value < HUGE ? String(value) : "an integer of more than 300 digits";
  if (typeof value === "number") return String(value);
  if (value instanceof Tensor || value instanceof Device || value instanceof PythonGlobal) return String(value);
  if (value instanceof Storage) return `Storage(${value.nbytes} bytes)`;
  if (value instanceof Complex) return `(${value.re}${value.im < 0 ? "" : "+"}${value.im}j)`;
  if (value instanceof Uint8Array) return `bytes of length ${value.length}`;
  if (value instanceof Size) return `torch.Size([${value.slice(0, MAX_LISTED).join(", ")}])`;
  if (typeof value === "object" && "name" in value) return `torch.${String(value.name)}`;
  return typeof value;
}

const HUGE = 10n ** 300n;
