/**
 * What the pickle machine needs from whoever knows the meaning of a pickle. The machine knows opcodes, the stack, the
 * memo and Python's built-in containers; classes, functions and persistent ids are the business of the handlers.
 *
 * @module
 */

/**
 * Resolves what a pickle names. Every method may throw: a {@link TorchloadError} leaves as it is, a built-in `TypeError`,
 * `RangeError` or `SyntaxError` becomes the `cause` of a `FormatError` that says where in the stream it was met.
 *
 * A stream that is read along a shortcut (see {@link TensorShortcut}) and turns out to need the long way is read again
 * from its start, in which case the methods are called again. No file that PyTorch writes does that.
 */
export interface PickleHandlers {
  /**
   * A GLOBAL, STACK_GLOBAL or INST names a class or function. The result stands for it on the stack; the machine
   * treats it as opaque and hands it back in the calls below.
   *
   * @param module - the Python 3 name of the module: Python 2 names are already mapped.
   */
  findGlobal(module: string, name: string): unknown;
  /** BINPERSID or PERSID: the id is a string for PERSID, any value for BINPERSID. */
  persistentLoad(id: unknown): unknown;
  /** REDUCE: the value of `callable(*args)`. The arguments are a `Tuple`, or a plain array that nothing else holds. */
  reduce(callable: unknown, args: readonly unknown[]): unknown;
  /** NEWOBJ, NEWOBJ_EX, OBJ, INST: a new object of a class, `cls.__new__(cls, *args, **kwargs)`. Arguments as above. */
  newObject(cls: unknown, args: readonly unknown[], kwargs: ReadonlyMap<unknown, unknown> | undefined): unknown;
  /** BUILD: sets the state of an object. The result takes the object's place on the stack (most return `object`). */
  build(object: unknown, state: unknown): unknown;
  /** APPEND, APPENDS or ADDITEMS to something that is not a built-in list or set. */
  extend(object: unknown, items: readonly unknown[]): void;
  /** SETITEM or SETITEMS on something that is not a built-in dict: alternating keys and values. */
  setItems(object: unknown, keysAndValues: readonly unknown[]): void;
  /** A way around tuples for the one call that fills most checkpoints. */
  readonly tensors?: TensorShortcut;
}

/**
 * `torch.save` writes each tensor as the same run of opcodes: a call of `torch._utils._rebuild_tensor_v2` on a storage
 * named by a persistent id. Recognising the run saves four tuples, a dict and thirty dispatches a tensor. It is only a
 * shortcut: a run that differs in anything goes through {@link PickleHandlers} and must come out the same.
 */
export interface TensorShortcut {
  /** What `findGlobal` gives for `torch._utils._rebuild_tensor_v2`. */
  readonly rebuild: unknown;
  /** What `findGlobal` gives for `collections.OrderedDict`. */
  readonly orderedDict: unknown;
  /** The value of the call. Sizes and strides are frozen: equal ones may be one array. All numbers are integers of 32 bits. */
  make(
    storageClass: unknown,
    key: string,
    location: string,
    numel: number,
    storageOffset: number,
    size: readonly number[],
    stride: readonly number[],
    requiresGrad: boolean,
  ): unknown;
  /** The same for a parameter, whose run is that of its tensor with a call of `_rebuild_parameter` around it. */
  readonly parameters?: ParameterShortcut;
}

/** See {@link TensorShortcut.parameters}. */
export interface ParameterShortcut {
  /** What `findGlobal` gives for `torch._utils._rebuild_parameter`. */
  readonly rebuild: unknown;
  /** The value of the call. */
  make(tensor: unknown, requiresGrad: boolean): unknown;
}
