/**
 * The pickle room on its own: Python's pickles read as data.
 *
 * @module
 */
export type { ParameterShortcut, PickleHandlers, TensorShortcut } from "./handlers.js";
export type { Python2Encoding } from "./text.js";
export { type Unpickled, type UnpickleOptions, unpickle } from "./unpickler.js";
export {
  ByteArray,
  Complex,
  Counter,
  FrozenSet,
  OrderedDict,
  PythonGlobal,
  PythonObject,
  Size,
  Tuple,
} from "./values.js";
