"""Writes pickle-vectors.jsonl: streams that Python's pickle makes, and others, each with what Python reads from it.

    python3 test/unit/pickle-vectors.py

The file in the repository is by Python 3.11. A line is [kind, name, [stream in hexadecimal, ...], verdict]. A value is
written as JSON: None, booleans and text as they are, a list as an array, everything else as an object with one key that
names the type.
"""

import io
import json
import os
import pickle
import random
import struct
import warnings
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import OrderedDict


class Refused(Exception):
    pass


class Plain:
    """For Python's own unpicklers: hardly anything to import."""

    ALLOWED = {
        ("_codecs", "encode"): __import__("_codecs").encode,
        ("builtins", "bytes"): bytes,
        ("builtins", "bytearray"): bytearray,
        ("builtins", "set"): set,
        ("builtins", "frozenset"): frozenset,
        ("builtins", "complex"): complex,
        ("collections", "OrderedDict"): OrderedDict,
    }

    def find_class(self, module, name):
        module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        if (module, name) in self.ALLOWED:
            return self.ALLOWED[module, name]
        raise Refused(f"{module}.{name}")

    def persistent_load(self, pid):
        raise Refused("persistent id")


class Fast(Plain, pickle.Unpickler):
    pass


class Patient(Plain, pickle._Unpickler):
    """The one in Python, whose memo is sparse."""


def tagged(value):
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return {"int": str(value)}
    if isinstance(value, float):
        return {"float": struct.pack(">d", value).hex()}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, bytearray):
        return {"bytearray": value.hex()}
    if isinstance(value, complex):
        return {"complex": [tagged(value.real), tagged(value.imag)]}
    if isinstance(value, list):
        return [tagged(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [tagged(item) for item in value]}
    if isinstance(value, OrderedDict):
        return {"OrderedDict": [[tagged(key), tagged(item)] for key, item in value.items()]}
    if isinstance(value, dict):
        return {"dict": [[tagged(key), tagged(item)] for key, item in value.items()]}
    if isinstance(value, (set, frozenset)):
        return {type(value).__name__: sorted((tagged(item) for item in value), key=json.dumps)}
    raise TypeError(type(value))


VALUES = {
    "None": None,
    "booleans": [True, False],
    "small integers": [0, 1, -1, 127, 128, 255, 256, 65535, 65536, -32768],
    "integers of 32 bits": [2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**32 - 1, 2**32],
    "integers of 64 bits": [2**53 - 1, 2**53, -(2**53) + 1, -(2**53), 2**63 - 1, -(2**63), 2**63, 2**64 - 1],
    "integers at each width": [s * 2**n + d for n in range(7, 80, 8) for s in (1, -1) for d in (-1, 0)],
    "large integers": [10**40, -(10**40), 2**2039 - 1, -(2**2039), 2**2040],
    "floats": [0.0, -0.0, 1.0, -1.5, 0.1, 1e-320, 1.7976931348623157e308, 5e-324, 2.0**70],
    "special floats": [float("inf"), float("-inf"), float("nan")],
    "text": ["", "a", "plain ascii", "line\nfeed", "quote ' and \"", "back\\slash \\u0041", "tab\t\r\x00\x1a"],
    "text beyond ASCII": ["\xe9\xff", "\u4f60\u597d", "\U0001f600 \U0010ffff", "\ufeffbom", "\u2028"],
    "lone surrogates": ["\ud800", "\udfff x", "a\udc80\ud800b\xe9"],
    "long text": ["k" * 255, "k" * 256, "\xe9" * 200, "0123456789" * 60],
    "bytes": [b"", b"a", b"\x00\xff\n'\\", bytes(range(256)), b"z" * 300],
    "bytearrays": [bytearray(), bytearray(b"\x80abc"), bytearray(range(256))],
    "complex numbers": [1 + 2j, complex("-0j"), complex("inf")],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((((),),),), ("a", [1], {})],
    "lists": [[], [1], [[]], [1, [2, [3]]]],
    "dicts": [{}, {"a": 1}, {1: 2, None: 3, (1, "x"): 4, 2.5: 5, b"k": 6}],
    "keys that name prototypes": {"__proto__": 1, "constructor": {"__proto__": []}},
    "order of keys": {"z": 1, "a": 2, "m": 3, 10: 4, 9: 5},
    "sets": [set(), {1, 2, "x"}, frozenset(), frozenset([1, (2,)])],
    "ordered dicts": [OrderedDict(), OrderedDict([("b", 1), ("a", OrderedDict())])],
    "one object twice": (lambda x: [x, x, {"x": x}])([1, 2]),
    "one text twice": (lambda x: {x: x, "y": [x]})("some text that is memoised"),
}

# Streams that no present Python writes. Text lines of protocol 0 and Python 2, opcodes that nothing emits.
STREAMS = {
    "INT with a sign, a base, separators": b"(I+7\nI-0x1f\nI0b101\nI0o17\nI1_000\nI0\nI00\nI01\nI000\nl.",
    "INT with spaces around": b"I 12 \n.",
    "INT without digits": b"I\n.",
    "INT of a float": b"I1.5\n.",
    "LONG with and without L": b"(L5L\nL-5\nL123456789012345678901234567890L\nl.",
    "LONG with two L": b"L5LL\n.",
    "LONG of 2000 digits": b"L" + b"9" * 2000 + b"L\n.",
    "LONG of 4301 digits": b"L" + b"9" * 4301 + b"L\n.",
    "FLOAT in its forms": b"(F1\nF-1.5e3\nF.5\nF5.\nFinf\nF-inf\nFnan\nl.",
    "FLOAT of a word": b"Fone\n.",
    "STRING with both quotes": b"(S'it'\nS\"is\"\nS''\nl.",
    "STRING with escapes": b"S'\\\\ \\' \\\" \\a\\b\\f\\n\\r\\t\\v \\x41\\x7f \\101\\0\\12 \\q \\8'\n.",
    "STRING without quotes": b"Sa\n.",
    "STRING with one quote": b"S'\n.",
    "STRING with different quotes": b"S'a\"\n.",
    "STRING with half an escape": b"S'\\x4'\n.",
    "STRING that ends in a backslash": b"S'a\\'\n.",
    "STRING in UTF-8": b"S'\\xc3\\xa9'\n.",
    "SHORT_BINSTRING": b"U\x03abc.",
    "BINSTRING": b"T\x03\x00\x00\x00abc.",
    "BINSTRING of negative length": b"T\xff\xff\xff\xffabc.",
    "UNICODE with escapes": b"V\\u4f60 \\U0001F600 \\ud800 \xe9 \\\\u0041 \\n\n.",
    "UNICODE with half an escape": b"V\\u4f6\n.",
    "UNICODE beyond Unicode": b"V\\U00110000\n.",
    "GET and PUT": b"]p5\n(g5\ng5\nl.",
    "PUT without a number": b"Nq\x00p x\n.",
    "GET of nothing": b"g5\n.",
    "memo index of 32 bits": b"]r\xff\xff\xff\xff0j\xff\xff\xff\xff.",
    "memo index set twice": b"]q\x000}q\x000h\x00.",
    "DICT": b"(S'a'\nI1\nS'b'\nI2\nd.",
    "DICT of nothing": b"(d.",
    "DICT of an odd number": b"(S'a'\nd.",
    "DICT is not EMPTY_DICT": b"}(I1\nI2\nd\x86.",
    "LIST of nothing": b"(l.",
    "SETITEMS keeps the order": b"}(U\x01cK\x01U\x01aK\x02U\x01bK\x03u.",
    "SETITEMS of an odd number": b"}(U\x01aK\x01U\x01bu.",
    "a dict of more than one batch": pickle.dumps({k: None for k in range(1001)}, 2),
    "a list of more than one batch": pickle.dumps([None] * 1001, 2),
    "APPENDS of nothing": b"](e.",
    "SETITEM on a list": b"](K\x00l0K\x00K\x01s.",
    "APPEND to a tuple": b")K\x01a.",
    "SETITEM with a list as key": b"}]Ns.",
    "SETITEM with a dict as key": b"}}Ns.",
    "POP and DUP": b"(K\x01K\x020K\x032l.",
    "POP of a MARK": b"K\x01(0.",
    "POP of nothing": b"0.",
    "POP_MARK": b"K\x01(K\x02K\x031.",
    "POP_MARK without MARK": b"K\x011.",
    "POP below a MARK": b"K\x01(00.",
    "APPEND below a MARK": b"](K\x01a.",
    "TUPLE without MARK": b"K\x01t.",
    "TUPLE2 of one": b"K\x01\x86.",
    "STOP with nothing": b".",
    "STOP with more on the stack": b"K\x01K\x02.",
    "STOP at an open MARK": b"K\x01(.",
    "no STOP": b"K\x01",
    "nothing": b"",
    "an unknown opcode": b"\xff.",
    "PROTO in the middle": b"K\x01\x80\x02.",
    "PROTO 6": b"\x80\x06N.",
    "FRAME": b"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N.",
    "LONG1 of nothing": b"\x8a\x00.",
    "LONG1 with redundant bytes": b"\x8a\x0c\x01" + b"\x00" * 11 + b".",
    "LONG1 with redundant sign": b"\x8a\x0c\xfe" + b"\xff" * 11 + b".",
    "LONG1 cut short": b"\x8a\x05\x01.",
    "LONG4": b"\x8b\x03\x00\x00\x00\x01\x02\x83.",
    "LONG4 of negative length": b"\x8b\xff\xff\xff\xff.",
    "BINUNICODE cut short": b"X\xff\xff\xff\xffabc.",
    "BINUNICODE that is not UTF-8": b"X\x02\x00\x00\x00\xc3\x28.",
    "BINUNICODE with half a surrogate": b"X\x02\x00\x00\x00\xed\xa0.",
    "BINUNICODE of an overlong form": b"X\x02\x00\x00\x00\xc0\x80.",
    "BINUNICODE8 longer than anything": b"\x8d" + b"\xff" * 8 + b"abc.",
    "BINUNICODE8": b"\x8d\x02\x00\x00\x00\x00\x00\x00\x00ab.",
    "BINBYTES8": b"\x8e\x02\x00\x00\x00\x00\x00\x00\x00ab.",
    "BYTEARRAY8": b"\x96\x02\x00\x00\x00\x00\x00\x00\x00ab.",
    "BYTEARRAY8 longer than anything": b"\x96" + b"\xff" * 8 + b"abc.",
    "EMPTY_SET and ADDITEMS": b"\x8f(K\x01K\x02K\x01\x90.",
    "ADDITEMS with a list": b"\x8f(]\x90.",
    "FROZENSET": b"(K\x01K\x02\x91.",
    "FROZENSET with a dict": b"(}\x91.",
    "ADDITEMS to a frozenset": b"(\x91(K\x01\x90.",
    "MEMOIZE": b"\x80\x04]\x94h\x00\x86.",
    "MEMOIZE behind PUT": b"Nq\x050]\x94h\x01\x86.",
    "MEMOIZE of nothing": b"\x94.",
    "STACK_GLOBAL of numbers": b"K\x01K\x02\x93.",
    "GLOBAL": b"c__builtin__\nset\n(K\x01K\x02l\x85R.",
    "GLOBAL without its second line": b"c__builtin__\nset",
    "REDUCE of nothing": b")R.",
    "BUILD of nothing": b"}b.",
    "INST": b"(]K\x01ai__builtin__\nset\n.",
    "INST without MARK": b"i__builtin__\nset\n.",
    "OBJ": b"(c__builtin__\nset\n]K\x01ao.",
    "OBJ of nothing": b"(o.",
    "True, 1 and 1.0 are one key": b"}(K\x01U\x01a\x88U\x01bG?\xf0\x00\x00\x00\x00\x00\x00U\x01cu.",
    "True first": b"}(\x88U\x01aK\x01U\x01bu.",
    "False and 0": b"}(K\x00U\x01a\x89U\x01bu.",
}


def verdict(stream):
    """What Python reads from a stream, tagged, or `error`. None where its two unpicklers do not agree."""
    verdicts = []
    for unpickler in (Fast, Patient):
        try:
            verdicts.append({"value": tagged(unpickler(io.BytesIO(stream)).load())})
        except MemoryError:
            pass
        except Exception:
            verdicts.append({"error": True})
    return verdicts[0] if verdicts and verdicts[0] == verdicts[-1] else None


def mutants(count):
    """Valid streams with a few bytes changed, removed or repeated, and Python's verdict on each."""
    generator = random.Random(20)
    parts = [None, True, 3, -70000, 2**40, 1.5, "key", "\xe9", (1, 2), [1], {"a": [2, "b"]}, (), [], {}, 10**20]
    made = []
    while len(made) < count:
        value = [generator.choice(parts) for _ in range(generator.randint(1, 5))]
        stream = bytearray(pickle.dumps(value, generator.randint(0, 4)))
        for _ in range(generator.randint(1, 3)):
            at = generator.randrange(len(stream))
            kind = generator.random()
            if kind < 0.5:
                stream[at] = generator.choice(list(b"(.012FIJKMNPRSUVX]abeghjlpqrstu})\x85\x86\x87\x88\x8a\x94\x00\x01\x02\x0a\xff"))
            elif kind < 0.75:
                del stream[at]
            else:
                stream[at:at] = stream[at : at + generator.randint(1, 4)]
            if len(stream) < 2:
                break
        stream = bytes(stream)
        # Framing is advice here, and PyTorch's way with it; Python insists on it.
        if b"\x95" in stream:
            continue
        result = verdict(stream)
        if result is None or "error" in result and generator.random() < 0.6:
            continue
        made.append([stream.hex(), result])
    return made


def main():
    warnings.simplefilter("ignore")
    rows = [
        ["value", name, [pickle.dumps(value, protocol).hex() for protocol in range(6)], {"value": tagged(value)}]
        for name, value in VALUES.items()
    ]
    for name, stream in STREAMS.items():
        if verdict(stream) is None:
            raise ValueError(f"no agreement on {name}")
        rows.append(["stream", name, [stream.hex()], verdict(stream)])
    rows += [["mutant", str(k), [stream], result] for k, (stream, result) in enumerate(mutants(400))]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pickle-vectors.jsonl")
    with open(path, "w", newline="\n") as file:
        file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)


if __name__ == "__main__":
    main()
