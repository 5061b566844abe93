/**
 * What the commands know of terminals: colours, widths, a progress bar, sizes and times as people read them.
 *
 * @module
 */

/** Whether colours are wanted on a stream: a terminal, without `NO_COLOR` (no-color.org), or `FORCE_COLOR`. */
export function wantsColor(stream: NodeJS.WriteStream): boolean {
  const { NO_COLOR, FORCE_COLOR, TERM } = process.env;
  if (NO_COLOR !== undefined && NO_COLOR !== "") return false;
  if (FORCE_COLOR !== undefined && FORCE_COLOR !== "0") return true;
  return stream.isTTY === true && TERM !== "dumb";
}

const CODES = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 } as const;

/** Functions that colour a text for standard output, or leave it as it is. */
export function painter(
  stream: NodeJS.WriteStream = process.stdout,
): Record<keyof typeof CODES, (text: string) => string> {
  const color = wantsColor(stream);
  const paint =
    (code: number) =>
    (text: string): string =>
      color ? `\u001b[${code}m${text}\u001b[0m` : text;
  return {
    bold: paint(CODES.bold),
    dim: paint(CODES.dim),
    red: paint(CODES.red),
    green: paint(CODES.green),
    yellow: paint(CODES.yellow),
    cyan: paint(CODES.cyan),
  };
}

/** Text from a file without the control characters that could steer a terminal. */
export function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is replaced
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

/** Characters of a name that are shown. */
const MAX_NAME = 160;

/** A name or text from a file for one cell of a table: printable, and cut where it would fill pages. */
export function cellText(text: string): string {
  return printable(text.length <= MAX_NAME ? text : `${text.slice(0, MAX_NAME - 1)}…`);
}

/** JSON without characters that could steer a terminal. */
export function jsonText(value: unknown, indent?: number): string {
  return JSON.stringify(value, null, indent).replace(
    /[\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (character) => {
      return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
    },
  );
}

/** `438.0 MB`: decimal units, as rates are given in. */
export function bytesText(nbytes: number): string {
  if (nbytes < 1000) return `${nbytes} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = nbytes / 1000;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : value.toFixed(0)} ${units[unit]}`;
}

/** `1.23 ms` */
export function timeText(ms: number): string {
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  return ms >= 100 ? `${ms.toFixed(0)} ms` : `${ms.toFixed(2)} ms`;
}

/** `12.3 GB/s` */
export function rateText(nbytes: number, ms: number): string {
  return `${(nbytes / ms / 1e6).toFixed(nbytes / ms / 1e6 < 10 ? 2 : 1)} GB/s`;
}

/** Rows as columns: widths fit the widest cell; `right` names the columns that are flush right. */
export function tableText(rows: readonly (readonly string[])[], right: readonly number[] = []): string[] {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, column) => {
      widths[column] = Math.max(widths[column] ?? 0, cell.length);
    });
  }
  return rows.map((row) =>
    row
      .map((cell, column) => {
        const width = widths[column] as number;
        return right.includes(column) ? cell.padStart(width) : column === row.length - 1 ? cell : cell.padEnd(width);
      })
      .join("  ")
      .trimEnd(),
  );
}

/** A progress bar on standard error, when that is a terminal. */
export class ProgressBar {
  readonly #label: string;
  readonly #stream = process.stderr;
  readonly #started = performance.now();
  #shown = false;

  constructor(label: string) {
    this.#label = label;
  }

  update({ loaded, total }: { readonly loaded: number; readonly total: number }): void {
    if (this.#stream.isTTY !== true) return;
    const width = Math.max(10, Math.min(40, (this.#stream.columns ?? 80) - this.#label.length - 40));
    const filled = total === 0 ? width : Math.round((loaded / total) * width);
    const rate = rateText(loaded, Math.max(0.001, performance.now() - this.#started));
    const bar = `${"█".repeat(filled)}${"░".repeat(width - filled)}`;
    this.#stream.write(`\r\u001b[K${this.#label} ${bar} ${bytesText(loaded)} of ${bytesText(total)}  ${rate}`);
    this.#shown = true;
  }

  /** Takes the bar away. */
  clear(): void {
    if (this.#shown) this.#stream.write("\r\u001b[K");
  }
}
