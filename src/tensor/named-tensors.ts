/**
 * The tensors in a checkpoint's objects, by name.
 *
 * @module
 */
import { PythonObject } from "../pickle/values.js";
import { Tensor } from "./tensor.js";

/** An object that is still to be looked into. */
interface Pending {
  readonly value: unknown;
  readonly name: string;
}

/**
 * Every tensor that can be reached, under the keys that lead to it, joined with dots. A tensor that is reached by two ways
 * has two names. Objects are looked into once, so that cycles and heavily shared structures end.
 */
export function namedTensors(value: unknown): Map<string, Tensor> {
  const names = new Map<string, Tensor>();
  const seen = new Set<unknown>();
  // A stack, deepest last, filled in reverse so that tensors come out in the order in which they stand.
  const stack: Pending[] = [{ value, name: "" }];
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    const { value: current, name } = next;
    if (current instanceof Tensor) {
      names.set(uniqueName(names, name), current);
      continue;
    }
    if (typeof current !== "object" || current === null || seen.has(current)) continue;
    seen.add(current);
    const children = childrenOf(current);
    for (let k = children.length - 1; k >= 0; k--) {
      const [key, child] = children[k] as [unknown, unknown];
      // Numbers and texts lead nowhere; a checkpoint may have millions of them.
      if (typeof child !== "object" || child === null) continue;
      const part = String(key);
      stack.push({ value: child, name: name === "" ? part : part === "" ? name : `${name}.${part}` });
    }
  }
  return names;
}

function uniqueName(names: ReadonlyMap<string, Tensor>, name: string): string {
  if (!names.has(name)) return name;
  for (let k = 2; ; k++) if (!names.has(`${name}#${k}`)) return `${name}#${k}`;
}

function childrenOf(value: object): [unknown, unknown][] {
  if (value instanceof Map) return [...value].map(([key, child]) => [keyText(key), child]);
  if (Array.isArray(value)) return [...value.entries()];
  if (value instanceof Set) return [...value].map((child, index) => [index, child]);
  if (value instanceof PythonObject) {
    return [
      ...[...value.args.entries()],
      ...(value.state === undefined ? [] : ([["", value.state]] as [unknown, unknown][])),
      ...[...(value.items ?? []).entries()],
      ...(value.entries ?? new Map()),
    ];
  }
  return [];
}

function keyText(key: unknown): string {
  return typeof key === "object" && key !== null && !Array.isArray(key) ? "?" : String(key);
}
