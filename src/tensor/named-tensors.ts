/**
 * The tensors in a checkpoint's objects, by name.
 *
 * @module
 */
import { PythonObject } from "../pickle/values.js";
import { Tensor } from "./tensor.js";

/** The most characters of one name. A key may be that long, and be in a dict in a dict in a thousand dicts. */
const MAX_NAME = 64 * 1024;
/** The most characters of all names together, in files whose few bytes would make gigabytes of names. */
const MAX_NAMES = 64 * 1024 * 1024;
/** Characters that are left of the last key in a name that would be too long. */
const SHORT_NAME = 64;
/** Items of a tuple that is a key up to which they are shown. */
const MAX_KEY_ITEMS = 16;

/** An object that is still to be looked into. */
interface Pending {
  readonly value: unknown;
  readonly name: string;
  /** The last of the keys that lead to it. */
  readonly key: string;
}

/**
 * Every tensor that can be reached, under the keys that lead to it, joined with dots. A tensor that is reached by two ways
 * has two names. Objects are looked into once, so that cycles and heavily shared structures end; and names that no honest
 * file has, of 64 Ki characters or 64 Mi in all, are cut down to their last key.
 */
export function namedTensors(value: unknown): Map<string, Tensor> {
  const names = new Map<string, Tensor>();
  /** The next number to try behind a name that was taken. */
  const numbers = new Map<string, number>();
  const seen = new Set<unknown>();
  let left = MAX_NAMES;
  // A stack, deepest last, filled in reverse so that tensors come out in the order in which they stand.
  const stack: Pending[] = [{ value, name: "", key: "" }];
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    const { value: current, name, key } = next;
    if (current instanceof Tensor) {
      left -= name.length;
      names.set(uniqueName(names, numbers, left < 0 ? shortened(key) : name), current);
      continue;
    }
    if (typeof current !== "object" || current === null || seen.has(current)) continue;
    seen.add(current);
    const children = childrenOf(current);
    for (let k = children.length - 1; k >= 0; k--) {
      const [part, child] = children[k] as [unknown, unknown];
      // Numbers and texts lead nowhere; a checkpoint may have millions of them.
      if (typeof child !== "object" || child === null) continue;
      const childKey = keyText(part);
      stack.push({ value: child, name: joinKeys(name, childKey), key: childKey });
    }
  }
  return names;
}

/** A key behind the name of what it is in. */
export function joinKeys(name: string, key: string): string {
  if (name === "" || key === "") return name + key;
  return name.length + key.length < MAX_NAME ? `${name}.${key}` : shortened(key);
}

function shortened(key: string): string {
  return `…${key.slice(-SHORT_NAME)}`;
}

function uniqueName(names: ReadonlyMap<string, Tensor>, numbers: Map<string, number>, name: string): string {
  if (!names.has(name)) return name;
  for (let k = numbers.get(name) ?? 2; ; k++) {
    const other = `${name}#${k}`;
    if (names.has(other)) continue;
    numbers.set(name, k + 1);
    return other;
  }
}

function childrenOf(value: object): [unknown, unknown][] {
  if (value instanceof Map) return [...value];
  if (Array.isArray(value)) return [...value.entries()];
  if (value instanceof Set) return [...value].map((child, index) => [index, child]);
  if (value instanceof PythonObject) {
    return [
      ...value.args.entries(),
      ...(value.state === undefined ? [] : ([["", value.state]] as [unknown, unknown][])),
      ...(value.items ?? []).entries(),
      ...(value.entries ?? new Map()),
    ];
  }
  return [];
}

/** A key as a part of a name. Of containers only short tuples of numbers and texts are shown: others could be endless. */
export function keyText(key: unknown): string {
  if (typeof key !== "object" || key === null) return String(key);
  const shown = Array.isArray(key) && key.length <= MAX_KEY_ITEMS && key.every((item) => typeof item !== "object");
  return shown ? key.join(",") : "?";
}
