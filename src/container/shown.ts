/**
 * Values of a file in messages.
 *
 * @module
 */

/** The most characters of a value that a message shows. */
const MAX_SHOWN = 80;

/**
 * A value as a message shows it. Of containers only the kind is told: in a few bytes a pickle can describe one whose text
 * would be endless.
 */
export function shown(value: unknown): string {
  if (typeof value === "object" && value !== null) {
    if (Array.isArray(value)) return "a list or tuple";
    return value instanceof Map ? "a dict" : "an object";
  }
  // A bigint has as many digits as the file likes.
  const text = typeof value === "string" ? JSON.stringify(value.slice(0, MAX_SHOWN)) : String(value);
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN - 1)}…` : text;
}
