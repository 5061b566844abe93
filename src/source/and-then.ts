/**
 * Going on with a value that may be a promise: parsers over bytes in memory or a local file stay synchronous.
 *
 * @module
 */

/** Calls `next` with the value, at once unless it is a promise. */
export function andThen<Value, Result>(
  value: Value | Promise<Value>,
  next: (value: Value) => Result | Promise<Result>,
): Result | Promise<Result> {
  return value instanceof Promise ? value.then(next) : next(value);
}
