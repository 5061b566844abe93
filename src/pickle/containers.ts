/**
 * Filling Python's built-in containers.
 *
 * @module
 */
import type { PickleHandlers } from "./handlers.js";
import { PickleFault } from "./reader.js";
import { Tuple, unhashableType } from "./values.js";

/** Sets `stack[start]` and so on, alternating keys and values. */
export function setItems(
  handlers: PickleHandlers,
  target: unknown,
  stack: readonly unknown[],
  start: number,
  end: number,
): void {
  if ((end - start) % 2 !== 0) throw new PickleFault("a key without a value", "pairs", `${end - start} values`);
  if (!(target instanceof Map)) {
    handlers.setItems(target, stack.slice(start, end));
    return;
  }
  for (let k = start; k < end; k += 2) {
    const key = stack[k];
    target.set(typeof key === "string" ? key : hashable(target, key), stack[k + 1]);
  }
}

/** Appends `stack[start]` and so on. */
export function extend(
  handlers: PickleHandlers,
  target: unknown,
  stack: readonly unknown[],
  start: number,
  end: number,
): void {
  if (!Array.isArray(target)) handlers.extend(target, stack.slice(start, end));
  else if (target instanceof Tuple) throw new PickleFault("items are added to a tuple", "a list", "a tuple");
  else for (let k = start; k < end; k++) target.push(stack[k]);
}

/** Adds items to a set. */
export function addItems(target: Set<unknown>, items: readonly unknown[]): void {
  for (const item of items) target.add(hashable(target, item));
}

/** The key under which Python would find a value in a dict or set. */
function hashable(target: { has(key: unknown): boolean }, key: unknown): unknown {
  switch (typeof key) {
    case "boolean":
      return target.has(Number(key)) ? Number(key) : key;
    case "number":
      return (key === 0 || key === 1) && target.has(key === 1) ? key === 1 : key;
    case "object": {
      const type = unhashableType(key);
      if (type !== undefined) throw new PickleFault(`a key of type ${type}`, "a hashable value", type);
      return key;
    }
    default:
      return key;
  }
}
