/**
 * What code that works with loaded tensors on a CUDA device needs beside `tensor.devicePointer`.
 *
 * @example
 * ```ts
 * import { CudaMemory } from "torchload/cuda";
 *
 * const { memory } = tensor.storage;
 * if (memory instanceof CudaMemory) console.log(memory.pointer, memory.context, memory.stream);
 * ```
 *
 * @module
 */
export { CudaMemory } from "./cuda-memory.js";
