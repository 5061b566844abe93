/** Text: ASCII, UTF-8 with lone surrogates, Python 2 strings in each encoding. */
import fc from "fast-check";
import { afterEach, describe, expect, test, vi } from "vitest";
import { FormatError } from "../../src/errors.js";
import type { Python2Encoding } from "../../src/pickle/text.js";
import { int32, pickled, read, stream, thrownBy, wtf8 } from "./pickle-support.js";

const unicode = (bytes: Uint8Array): unknown => read(stream("X", int32(bytes.length), bytes, "."));

afterEach(() => vi.unstubAllGlobals());

/** With Node's `Buffer`, and as in browsers without it. */
describe.each(["with Buffer", "without Buffer"])("%s", (kind) => {
  const withoutBuffer = <Result>(action: () => Result): Result => {
    if (kind === "without Buffer") vi.stubGlobal("Buffer", undefined);
    try {
      return action();
    } finally {
      vi.unstubAllGlobals();
    }
  };

  test("any text is exact, lone surrogates too", () => {
    fc.assert(
      fc.property(
        fc.string({ unit: "binary", maxLength: 40 }),
        fc.constantFrom("", "\ud800", "\udfff", "é\udc00"),
        (text, more) => {
          const bytes = stream("X", int32(wtf8(text + more).length), wtf8(text + more), ".");
          expect(withoutBuffer(() => read(bytes))).toBe(text + more);
        },
      ),
    );
  });

  test("texts of all lengths, one behind the other", () => {
    const texts = Array.from({ length: 700 }, (_, k) => String.fromCharCode(33 + (k % 90)).repeat(k));
    texts.push("x".repeat(100_000), "short", "y".repeat(17_000), "z".repeat(70_000), "é".repeat(9), "last");
    const bytes = pickled(texts);
    expect(withoutBuffer(() => read(bytes))).toEqual(texts);
  });

  test("bytes above 0x7f in lines of protocol 0 are Latin-1, all of them", () => {
    const high = Array.from({ length: 128 }, (_, k) => String.fromCharCode(128 + k)).join("");
    const bytes = stream("V", high, "\n.");
    expect(withoutBuffer(() => read(bytes))).toBe(high);
    const string = stream("U", 128, high, ".");
    expect(withoutBuffer(() => read(string, { encoding: "latin1" }))).toBe(high);
  });
});

describe("UTF-8", () => {
  test.each([
    ["a lone continuation byte", [0x80]],
    ["an overlong slash", [0xc0, 0xaf]],
    ["a cut form", [0xe2, 0x82]],
    ["half a surrogate", [0xed, 0xa0]],
    ["beyond Unicode", [0xf4, 0x90, 0x80, 0x80]],
    ["Latin-1 behind a surrogate", [0xed, 0xa0, 0x80, 0xe9]],
    ["Latin-1 before a surrogate", [0xe9, 0xed, 0xa0, 0x80]],
  ])("is not %s", (_, bytes) => {
    const error = thrownBy(() => unicode(Uint8Array.from(bytes))) as FormatError;
    expect(error).toBeInstanceOf(FormatError);
    expect(error.message).toMatch(/opcode BINUNICODE: the text is not UTF-8/);
  });

  test("two surrogates in their own forms become the one character they mean", () => {
    expect(unicode(Uint8Array.of(0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80))).toBe("😀");
  });

  test("a byte order mark is a character", () => {
    expect(unicode(Uint8Array.of(0xef, 0xbb, 0xbf, 0x61))).toBe("\ufeffa");
  });
});

describe("strings of Python 2", () => {
  const forms = (content: string): readonly (readonly [string, Uint8Array])[] => [
    ["SHORT_BINSTRING", stream("U", content.length, content, ".")],
    ["BINSTRING", stream("T", int32(content.length), content, ".")],
    [
      "STRING",
      stream(
        "S'",
        [...content].map((char) => `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`).join(""),
        "'\n.",
      ),
    ],
  ];
  const bytesOf = (content: string): Uint8Array => Uint8Array.from(content, (char) => char.charCodeAt(0));
  const cases: readonly (readonly [string, Python2Encoding | undefined, string | Uint8Array | undefined])[] = [
    ["abc", undefined, "abc"],
    ["abc", "utf-8", "abc"],
    ["abc", "latin1", "abc"],
    ["abc", "ascii", "abc"],
    ["abc", "bytes", bytesOf("abc")],
    ["\xc3\xa9", undefined, "é"],
    ["\xc3\xa9", "utf-8", "é"],
    ["\xc3\xa9", "latin1", "\xc3\xa9"],
    ["\xc3\xa9", "ascii", undefined],
    ["\xc3\xa9", "bytes", bytesOf("\xc3\xa9")],
    ["\xe9\x00\x80", undefined, "\xe9\x00\x80"],
    ["\xe9\x00\x80", "utf-8", undefined],
    ["\xe9\x00\x80", "latin1", "\xe9\x00\x80"],
    // Surrogates pass in text of Python 3 only.
    ["\xed\xa0\x80", "utf-8", undefined],
    ["", undefined, ""],
    ["", "bytes", new Uint8Array(0)],
  ];

  test.each(cases)("%j in encoding %s", (content, encoding, expected) => {
    for (const [opcode, bytes] of forms(content)) {
      if (expected !== undefined) {
        expect(read(bytes, { encoding })).toEqual(expected);
        continue;
      }
      const error = thrownBy(() => read(bytes, { encoding })) as FormatError;
      expect(error).toBeInstanceOf(FormatError);
      expect(error.message).toContain(`opcode ${opcode}: a string of Python 2 is not ${encoding}; encoding: "latin1"`);
    }
  });

  test("may have spaces behind the quote, as Python 2 let them", () => {
    expect(read(stream("S'a' \t\r\n."))).toBe("a");
  });

  test("keep every escape that Python knows", () => {
    expect(
      read(stream("S'\\\\ \\' \\\" \\a\\b\\f\\n\\r\\t\\v\\x41\\101\\0\\377\\400 \\q'\n."), { encoding: "latin1" }),
    ).toBe("\\ ' \" \x07\b\f\n\r\t\vAA\0\xff\0 \\q");
  });
});
