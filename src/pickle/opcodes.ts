/**
 * The opcodes of pickle protocols 0 to 5: names and kinds of arguments as CPython's `Lib/pickletools.py` spells them.
 *
 * Definition: https://github.com/python/cpython/blob/v3.13.0/Lib/pickletools.py
 *
 * @module
 */

/**
 * The argument that follows an opcode in the stream. `…nl` is text up to a line feed; a number is the width in bytes of an
 * integer, or of the length in front of text or bytes; all are little-endian but `float8`.
 */
export type ArgumentKind =
  | "none"
  | "uint1"
  | "uint2"
  | "int4"
  | "uint4"
  | "uint8"
  | "float8"
  | "long1"
  | "long4"
  | "decimalnl_short"
  | "decimalnl_long"
  | "floatnl"
  | "stringnl"
  | "stringnl_noescape"
  | "stringnl_noescape_pair"
  | "string1"
  | "string4"
  | "bytes1"
  | "bytes4"
  | "bytes8"
  | "bytearray8"
  | "unicodestringnl"
  | "unicodestring1"
  | "unicodestring4"
  | "unicodestring8";

/** A row of the table of opcodes. */
export interface Opcode {
  readonly name: string;
  /** The byte that stands for it. */
  readonly code: number;
  readonly argument: ArgumentKind;
  /** The first protocol that has it. */
  readonly protocol: number;
}

/** Every opcode, in the order of `pickletools`. */
export const OPCODES: readonly Opcode[] = [
  { name: "INT", code: 0x49, argument: "decimalnl_short", protocol: 0 },
  { name: "BININT", code: 0x4a, argument: "int4", protocol: 1 },
  { name: "BININT1", code: 0x4b, argument: "uint1", protocol: 1 },
  { name: "BININT2", code: 0x4d, argument: "uint2", protocol: 1 },
  { name: "LONG", code: 0x4c, argument: "decimalnl_long", protocol: 0 },
  { name: "LONG1", code: 0x8a, argument: "long1", protocol: 2 },
  { name: "LONG4", code: 0x8b, argument: "long4", protocol: 2 },
  { name: "STRING", code: 0x53, argument: "stringnl", protocol: 0 },
  { name: "BINSTRING", code: 0x54, argument: "string4", protocol: 1 },
  { name: "SHORT_BINSTRING", code: 0x55, argument: "string1", protocol: 1 },
  { name: "BINBYTES", code: 0x42, argument: "bytes4", protocol: 3 },
  { name: "SHORT_BINBYTES", code: 0x43, argument: "bytes1", protocol: 3 },
  { name: "BINBYTES8", code: 0x8e, argument: "bytes8", protocol: 4 },
  { name: "BYTEARRAY8", code: 0x96, argument: "bytearray8", protocol: 5 },
  { name: "NEXT_BUFFER", code: 0x97, argument: "none", protocol: 5 },
  { name: "READONLY_BUFFER", code: 0x98, argument: "none", protocol: 5 },
  { name: "NONE", code: 0x4e, argument: "none", protocol: 0 },
  { name: "NEWTRUE", code: 0x88, argument: "none", protocol: 2 },
  { name: "NEWFALSE", code: 0x89, argument: "none", protocol: 2 },
  { name: "UNICODE", code: 0x56, argument: "unicodestringnl", protocol: 0 },
  { name: "SHORT_BINUNICODE", code: 0x8c, argument: "unicodestring1", protocol: 4 },
  { name: "BINUNICODE", code: 0x58, argument: "unicodestring4", protocol: 1 },
  { name: "BINUNICODE8", code: 0x8d, argument: "unicodestring8", protocol: 4 },
  { name: "FLOAT", code: 0x46, argument: "floatnl", protocol: 0 },
  { name: "BINFLOAT", code: 0x47, argument: "float8", protocol: 1 },
  { name: "EMPTY_LIST", code: 0x5d, argument: "none", protocol: 1 },
  { name: "APPEND", code: 0x61, argument: "none", protocol: 0 },
  { name: "APPENDS", code: 0x65, argument: "none", protocol: 1 },
  { name: "LIST", code: 0x6c, argument: "none", protocol: 0 },
  { name: "EMPTY_TUPLE", code: 0x29, argument: "none", protocol: 1 },
  { name: "TUPLE", code: 0x74, argument: "none", protocol: 0 },
  { name: "TUPLE1", code: 0x85, argument: "none", protocol: 2 },
  { name: "TUPLE2", code: 0x86, argument: "none", protocol: 2 },
  { name: "TUPLE3", code: 0x87, argument: "none", protocol: 2 },
  { name: "EMPTY_DICT", code: 0x7d, argument: "none", protocol: 1 },
  { name: "DICT", code: 0x64, argument: "none", protocol: 0 },
  { name: "SETITEM", code: 0x73, argument: "none", protocol: 0 },
  { name: "SETITEMS", code: 0x75, argument: "none", protocol: 1 },
  { name: "EMPTY_SET", code: 0x8f, argument: "none", protocol: 4 },
  { name: "ADDITEMS", code: 0x90, argument: "none", protocol: 4 },
  { name: "FROZENSET", code: 0x91, argument: "none", protocol: 4 },
  { name: "POP", code: 0x30, argument: "none", protocol: 0 },
  { name: "DUP", code: 0x32, argument: "none", protocol: 0 },
  { name: "MARK", code: 0x28, argument: "none", protocol: 0 },
  { name: "POP_MARK", code: 0x31, argument: "none", protocol: 1 },
  { name: "GET", code: 0x67, argument: "decimalnl_short", protocol: 0 },
  { name: "BINGET", code: 0x68, argument: "uint1", protocol: 1 },
  { name: "LONG_BINGET", code: 0x6a, argument: "uint4", protocol: 1 },
  { name: "PUT", code: 0x70, argument: "decimalnl_short", protocol: 0 },
  { name: "BINPUT", code: 0x71, argument: "uint1", protocol: 1 },
  { name: "LONG_BINPUT", code: 0x72, argument: "uint4", protocol: 1 },
  { name: "MEMOIZE", code: 0x94, argument: "none", protocol: 4 },
  { name: "EXT1", code: 0x82, argument: "uint1", protocol: 2 },
  { name: "EXT2", code: 0x83, argument: "uint2", protocol: 2 },
  { name: "EXT4", code: 0x84, argument: "int4", protocol: 2 },
  { name: "GLOBAL", code: 0x63, argument: "stringnl_noescape_pair", protocol: 0 },
  { name: "STACK_GLOBAL", code: 0x93, argument: "none", protocol: 4 },
  { name: "REDUCE", code: 0x52, argument: "none", protocol: 0 },
  { name: "BUILD", code: 0x62, argument: "none", protocol: 0 },
  { name: "INST", code: 0x69, argument: "stringnl_noescape_pair", protocol: 0 },
  { name: "OBJ", code: 0x6f, argument: "none", protocol: 1 },
  { name: "NEWOBJ", code: 0x81, argument: "none", protocol: 2 },
  { name: "NEWOBJ_EX", code: 0x92, argument: "none", protocol: 4 },
  { name: "PROTO", code: 0x80, argument: "uint1", protocol: 2 },
  { name: "STOP", code: 0x2e, argument: "none", protocol: 0 },
  { name: "FRAME", code: 0x95, argument: "uint8", protocol: 4 },
  { name: "PERSID", code: 0x50, argument: "stringnl_noescape", protocol: 0 },
  { name: "BINPERSID", code: 0x51, argument: "none", protocol: 1 },
];

const BY_CODE: readonly (Opcode | undefined)[] = (() => {
  const rows = new Array<Opcode | undefined>(256).fill(undefined);
  for (const row of OPCODES) rows[row.code] = row;
  return rows;
})();

/** The row of a code; `undefined` when there is no such opcode. */
export function opcodeOf(code: number): Opcode | undefined {
  return BY_CODE[code];
}

/** The name of an opcode for messages; its code in hexadecimal when there is no such opcode. */
export function opcodeName(code: number): string {
  return BY_CODE[code]?.name ?? `0x${code.toString(16).padStart(2, "0")}`;
}

/** The highest protocol there is. */
export const HIGHEST_PROTOCOL = 5;
