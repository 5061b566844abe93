/**
 * The globals that PyTorch's weights-only loading allows.
 *
 * Source: `_get_allowed_globals` in torch/_weights_only_unpickler.py of PyTorch 2.11.
 *
 * @module
 */
import { DTYPES, STORAGE_CLASS_DTYPES } from "../tensor/dtype.js";

const NAMES: readonly string[] = [
  "collections.OrderedDict",
  "collections.Counter",
  "_codecs.encode",
  "builtins.bytearray",
  "builtins.bytes",
  "builtins.set",
  "builtins.complex",
  "torch.Size",
  "torch.Tensor",
  "torch.device",
  "torch.nn.parameter.Parameter",
  "torch.nn.parameter.Buffer",
  "torch.serialization._get_layout",
  "torch._utils._rebuild_tensor",
  "torch._utils._rebuild_tensor_v2",
  "torch._utils._rebuild_tensor_v3",
  "torch._utils._rebuild_parameter",
  "torch._utils._rebuild_parameter_with_state",
  "torch._utils._rebuild_qtensor",
  "torch._utils._rebuild_sparse_tensor",
  "torch._utils._rebuild_nested_tensor",
  "torch._utils._rebuild_meta_tensor_no_storage",
  "torch._utils._rebuild_wrapper_subclass",
  "torch._utils._rebuild_device_tensor_from_numpy",
  "torch._utils._rebuild_device_tensor_from_cpu_tensor",
  "torch._utils._rebuild_xla_tensor",
  "torch._tensor._rebuild_from_type_v2",
  "torch.per_tensor_affine",
  "torch.per_tensor_symmetric",
  "torch.per_channel_affine",
  "torch.per_channel_symmetric",
  "torch.per_channel_affine_float_qparams",
  "torch.storage.TypedStorage",
  "torch.storage.UntypedStorage",
  "torch.UntypedStorage",
];

/** Letters of the tensor classes that PyTorch had before 0.4, such as `torch.FloatTensor`. */
export const LEGACY_TENSOR_KINDS: readonly string[] = [
  "Float",
  "Double",
  "Half",
  "BFloat16",
  "Long",
  "Int",
  "Short",
  "Char",
  "Byte",
  "Bool",
];

/** `module.name` of every global that is allowed when only weights are loaded. */
export const WEIGHTS_ONLY_GLOBALS: ReadonlySet<string> = new Set([
  ...NAMES,
  ...[...DTYPES.keys()].map((name) => `torch.${name}`),
  ...[...STORAGE_CLASS_DTYPES.keys()].flatMap((name) => [`torch.${name}`, `torch.cuda.${name}`]),
  ...LEGACY_TENSOR_KINDS.flatMap((kind) => ["torch", "torch.cuda"].map((module) => `${module}.${kind}Tensor`)),
  ...LEGACY_TENSOR_KINDS.filter((kind) => kind !== "Bool").flatMap((kind) =>
    ["torch.sparse", "torch.cuda.sparse"].map((module) => `${module}.${kind}Tensor`),
  ),
]);

/** Modules of which PyTorch lets nothing through, whatever a caller allows. */
export const BLOCKED_MODULES: ReadonlySet<string> = new Set(["sys", "os", "posix", "nt"]);
