import { describe, expect, test } from "vitest";
import {
  type Code,
  call,
  checkpointRecords,
  concat,
  dict,
  floats,
  global,
  int,
  list,
  op,
  put,
  repeat,
  storage,
  tensor,
  text,
  zip,
  zipCheckpoint,
} from "../support/bad-files.js";
import { built, command } from "./isolated.js";
import { fileOf } from "./refusal.js";

const content = floats(1, 2, 3, 4);

/** What steers a terminal: escape sequences in 7 and 8 bits, carriage returns, backspaces, turned text. */
const steering = [
  "\u001b[2J\u001b[H",
  "\u009b31m",
  "\r",
  "\b\b\b",
  "\u202e",
  "\u2066",
  "\u0007",
  "\u001b]0;title\u0007",
  "\n",
  "\u0000",
  "\u2028",
];
const evil = `x${steering.join("y")}z`;

/** Everything of a text that a terminal would act upon; line ends and tabs are the command's own. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/;

const everywhere = (): Uint8Array => {
  const of = tensor(storage(evil, { location: text(evil) }));
  const object = concat(call(global("a.b", "C\u001b[31m"), text(evil)), dict([text(evil), text(evil)]), op.BUILD);
  const value = dict(
    [text(evil), of],
    [text("twice"), of],
    [text("value"), text(evil)],
    [text("list"), list(text(evil), dict([text(evil), int(1)]))],
    [text("object"), object],
    [text("class"), global("module\u001b[2J", "name\u009b")],
  );
  const records = checkpointRecords(value, { [evil]: content }, "root\u001b[2J");
  return zip(
    records.map((record) =>
      record.name === "root\u001b[2J/version"
        ? { ...record, content: new TextEncoder().encode("3\u001b[2J\u009b1m") }
        : record,
    ),
  );
};

describe.skipIf(!built)("the command", () => {
  test.each([["inspect"], ["inspect", "--all"], ["inspect", "--json"], ["load"], ["load", "--json"]])(
    "%s %s prints nothing of a file that steers the terminal",
    (...args) => {
      const path = fileOf(everywhere());
      const { status, stdout, stderr } = command([...args, "--no-weights-only", path]);
      expect(stderr).toBe("");
      expect(status).toBe(0);
      // In JSON the characters beyond ASCII stand as they are.
      const shown = args.includes("--json") ? stdout.replace(/[\u007f-\uffff]/g, "") : stdout;
      expect(CONTROL.exec(shown)).toBeNull();
      if (!args.includes("--json") && args[0] === "inspect") {
        expect(stdout).toContain("x\\u001b[2J\\u001b[Hy\\u009b31my\\u000dy\\u0008");
        // A name with line ends stays in its line.
        expect(stdout.split("\n").length).toBeLessThan(40);
      }
    },
  );

  test("puts every name of a file into its JSON", () => {
    const { stdout } = command(["inspect", "--json", "--no-weights-only", fileOf(everywhere())]);
    const summary = JSON.parse(stdout);
    expect(summary.tensors[0].name).toBe(evil);
    expect(summary.tensors[0].location).toBe(evil);
    expect(summary.tensors[1]).toMatchObject({ name: "twice", sharesWith: evil });
  });

  test("tells of a refusal in one line on standard error, and exits with 1", () => {
    const module = "os\u001b[2J\u001b]0;owned\u0007";
    const bad: [Uint8Array, string][] = [
      [zipCheckpoint(global("os", "system")), "os.system"],
      [zipCheckpoint(global(module, "system\r")), "\\u001b[2J\\u001b]0;owned\\u0007"],
      [zipCheckpoint(tensor(storage(evil))), "is missing"],
      [zip([{ name: `root/${evil}`, content }]), "data.pkl"],
      [zip([{ name: evil, content }]), "\\u001b[2J"],
      [new Uint8Array(0), "the file is empty"],
      [new TextEncoder().encode("\u001b[2J\u001b[H hello\n"), "a text file"],
    ];
    for (const [bytes, message] of bad) {
      for (const verb of ["inspect", "load"]) {
        for (const more of [[], ["--json"]]) {
          const { status, stdout, stderr } = command([verb, fileOf(bytes), ...more]);
          expect(status).toBe(1);
          expect(stdout).toBe("");
          expect(stderr).toMatch(/^torchload: Cannot load "[^\n]*": [^\n]*[^.]\n$/);
          expect(stderr).toContain(message);
          expect(CONTROL.exec(stderr)).toBeNull();
        }
      }
    }
  }, 60_000);

  // Open: src/inspect/summary.ts counts locations in a plain object.
  test.each(["__proto__", "constructor", "toString", "hasOwnProperty"])(
    "counts storages at the location %s",
    (name) => {
      const path = fileOf(zipCheckpoint(list(tensor(storage("0", { location: text(name) }))), { "0": content }));
      const { locations } = JSON.parse(command(["inspect", "--json", path]).stdout);
      expect(Object.entries(locations)).toEqual([[name, 1]]);
    },
  );

  test("prints numbers of elements that are beyond all memory", () => {
    const size = (count: number | bigint): Code => concat(op.MARK, int(count), int(2 ** 26), op.TUPLE);
    const value = list(
      tensor(storage("0"), { size: size(2 ** 26), stride: concat(op.MARK, int(0), int(0), op.TUPLE) }),
    );
    const path = fileOf(zipCheckpoint(value, { "0": content }));
    expect(command(["inspect", path]).stdout).toContain("4,503,599,627,370,496 elements");
    const { numel, tensors } = JSON.parse(command(["inspect", "--json", path]).stdout);
    expect([numel, tensors[0].nbytes]).toEqual([2 ** 52, 2 ** 54]);
  });

  // Open: names are printed whole, and every row of the table is as wide as the longest.
  test("shows the first part of names and texts that fill pages", () => {
    const long = "k".repeat(1_000_000);
    const value = concat(
      text(long),
      put(1),
      op.POP,
      dict(
        [text(long), tensor(storage("0"))],
        [text("text"), text(long)],
        ...Array.from({ length: 100 }, (_, k) => [text(`a${k}`), tensor(storage("0"))] as const),
      ),
    );
    const { status, stdout } = command(["inspect", fileOf(zipCheckpoint(value, { "0": content }))]);
    expect(status).toBe(0);
    expect(stdout.length).toBeLessThan(2_000_000);
  });

  test("lists a hundred thousand tensors when all are asked for", () => {
    const memo = concat(tensor(storage("0")), put(0), op.POP);
    const value = concat(memo, list(repeat(new Uint8Array([0x68, 0]), 100_000)));
    const { status, stdout } = command(["inspect", "--all", fileOf(zipCheckpoint(value, { "0": content }))]);
    expect(status).toBe(0);
    expect(stdout.split("\n").length).toBeGreaterThan(100_000);
  });
});
