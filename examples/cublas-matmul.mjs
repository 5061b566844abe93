// Multiplies two matrices of a checkpoint on the GPU with cuBLAS, without a copy in between: torchload puts them there and
// gives their addresses, koffi calls cuBLAS.
//
//   npm run build && node examples/cublas-matmul.mjs [FILE]
//
// Needs an NVIDIA GPU and cuBLAS; CUBLAS_PATH names its library where it is not on the loader's path, as with pip's
// packages: …/site-packages/nvidia/cu13/lib/libcublas.so.13
import koffi from "koffi";
import { load } from "torchload";
import { CudaMemory } from "torchload/cuda";

const file = process.argv[2] ?? new URL("data/matrices.pt", import.meta.url).pathname;

/** Loads the first library of several names. */
function library(names) {
  for (const name of names) {
    try {
      return koffi.load(name);
    } catch {}
  }
  throw new Error(`none of ${names.join(", ")} can be loaded; set CUBLAS_PATH`);
}

const cublas = library(
  [process.env.CUBLAS_PATH, "libcublas.so.13", "libcublas.so.12", "libcublas.so.11"].filter(Boolean),
);
const cuda = library(["libcuda.so.1"]);
const checked =
  (call) =>
  (...values) => {
    const status = call(...values);
    if (status !== 0) throw new Error(`the call failed with status ${status}`);
  };
// Device addresses and handles are 64-bit integers for the calls.
const create = checked(cublas.func("int cublasCreate_v2(_Out_ uint64 *handle)"));
const setStream = checked(cublas.func("int cublasSetStream_v2(uint64 handle, uint64 stream)"));
const destroy = checked(cublas.func("int cublasDestroy_v2(uint64 handle)"));
const sgemm = checked(
  cublas.func(
    "int cublasSgemm_v2(uint64 handle, int transa, int transb, int m, int n, int k, const float *alpha, uint64 a, int lda, uint64 b, int ldb, const float *beta, uint64 c, int ldc)",
  ),
);
const synchronize = checked(cuda.func("int cuStreamSynchronize(uint64 stream)"));

// The three tensors lie on the GPU when this resolves, with nothing left to wait for.
const tensors = await load(file, { mapLocation: "cuda:0" });
const [a, b, product] = ["a", "b", "product"].map((name) => tensors.get(name));
const [rows, inner] = a.shape;
const columns = b.shape[1];

const { memory } = product.storage;
if (!(memory instanceof CudaMemory)) throw new Error("the tensors are not on a CUDA device");
const handle = [0n];
create(handle);
// On the stream that torchload copies on, so that bringing the product back needs no wait in between.
setStream(handle[0], memory.stream);
// cuBLAS takes matrices column by column. A row-major matrix read so is its transpose, and (A·B)ᵀ = Bᵀ·Aᵀ: the operands change
// places, and the product comes out row-major.
const one = new Float32Array([1]);
const zero = new Float32Array([0]);
sgemm(
  handle[0],
  0,
  0,
  columns,
  rows,
  inner,
  one,
  b.devicePointer,
  columns,
  a.devicePointer,
  inner,
  zero,
  product.devicePointer,
  columns,
);
synchronize(memory.stream);
destroy(handle[0]);

const found = (await product.to("cpu")).toFloat32Array();
const left = (await a.to("cpu")).toFloat32Array();
const right = (await b.to("cpu")).toFloat32Array();
let difference = 0;
let size = 0;
for (let i = 0; i < rows; i++) {
  for (let j = 0; j < columns; j++) {
    let sum = 0;
    for (let k = 0; k < inner; k++) sum += left[i * inner + k] * right[k * columns + j];
    difference += (found[i * columns + j] - sum) ** 2;
    size += sum ** 2;
  }
}
const error = Math.sqrt(difference / size);
console.log(
  `[${a.shape}] x [${b.shape}] on ${product.device}: relative error ${error.toExponential(2)} against double precision`,
);
for (const tensor of tensors.values()) tensor.dispose();
if (!(error < 1e-3)) {
  console.error("the product is wrong");
  process.exit(1);
}
console.log("right");
