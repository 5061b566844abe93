/**
 * Python 2 names and what Python 3 calls them. Python 3 itself writes the old names at protocol 2.
 *
 * Source: CPython 3.13, `Lib/_compat_pickle.py`, as far as checkpoints can meet it.
 *
 * @module
 */

const MODULES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    __builtin__: "builtins",
    copy_reg: "copyreg",
    Queue: "queue",
    repr: "reprlib",
    UserDict: "collections",
    UserList: "collections",
    UserString: "collections",
    StringIO: "io",
    cStringIO: "io",
    _abcoll: "collections.abc",
    whichdb: "dbm",
    cPickle: "pickle",
    "torch.tensor": "torch._tensor",
  }),
);

const NAMES: ReadonlyMap<string, readonly [string, string]> = new Map(
  Object.entries({
    "__builtin__.xrange": ["builtins", "range"],
    "__builtin__.long": ["builtins", "int"],
    "__builtin__.unicode": ["builtins", "str"],
    "__builtin__.basestring": ["builtins", "str"],
    "__builtin__.unichr": ["builtins", "chr"],
    "__builtin__.reduce": ["functools", "reduce"],
    "__builtin__.intern": ["sys", "intern"],
    "itertools.izip": ["builtins", "zip"],
    "itertools.imap": ["builtins", "map"],
    "itertools.ifilter": ["builtins", "filter"],
    "itertools.izip_longest": ["itertools", "zip_longest"],
    "itertools.ifilterfalse": ["itertools", "filterfalse"],
    "exceptions.StandardError": ["builtins", "Exception"],
  } as const),
);

/** The Python 3 module and name of a global. */
export function python3Name(module: string, name: string): readonly [module: string, name: string] {
  return NAMES.get(`${module}.${name}`) ?? [MODULES.get(module) ?? module, name];
}
