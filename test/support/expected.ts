/**
 * Comparing a loaded value with the tree that test/fixtures/make.py wrote beside the file. The tree's form is described there.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { expect } from "vitest";
import {
  ByteArray,
  Complex,
  Counter,
  Device,
  type DeviceMemory,
  FrozenSet,
  OrderedDict,
  PythonGlobal,
  PythonObject,
  Size,
  Storage,
  Tensor,
  Tuple,
} from "../../src/index.js";

/** A node of the tree. */
export type Expected = Readonly<Record<string, unknown>>;

/** What a fixture's JSON holds. */
export interface Fixture {
  readonly torch: string;
  readonly container: "zip" | "legacy";
  readonly weightsOnly: boolean;
  readonly weightsOnlyError?: string;
  readonly root?: string;
  readonly offset?: number;
  readonly value: Expected;
}

interface TensorNode {
  readonly dtype: string;
  readonly shape: number[];
  readonly strides: number[];
  readonly storageOffset: number;
  readonly requiresGrad: boolean;
  readonly conj: boolean;
  readonly neg: boolean;
  readonly kind: string;
  readonly location?: string;
  readonly storage?: number;
  readonly storageNbytes?: number;
  readonly sha256?: string;
  readonly values?: readonly (string | [string, string])[];
  readonly attributes?: Expected;
}

/** A Python float in the hexadecimal form of `float.hex`. */
export function floatFromHex(text: string): number {
  if (text === "nan") return Number.NaN;
  if (text.endsWith("inf")) return text.startsWith("-") ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  const match = /^(-?)0x([01])\.?([0-9a-f]*)p([+-]\d+)$/.exec(text);
  if (match === null) throw new Error(`not a float: ${text}`);
  const [, sign, whole, fraction = "", exponent] = match;
  const mantissa = Number.parseInt(`${whole}${fraction}`, 16) / 16 ** fraction.length;
  return (sign === "-" ? -1 : 1) * mantissa * 2 ** Number(exponent);
}

/** Walks value and tree side by side. */
export class Comparison {
  readonly #byId = new Map<number, unknown>();
  readonly #storages = new Map<number, Storage>();
  readonly #readOut: (tensor: Tensor) => Promise<Tensor>;

  /** @param readOut - brings a tensor to the CPU, for values on other devices. */
  constructor(readOut: (tensor: Tensor) => Promise<Tensor> = async (tensor) => tensor) {
    this.#readOut = readOut;
  }

  async compare(actual: unknown, node: Expected, path = "value"): Promise<void> {
    if (typeof node.id === "number") this.#byId.set(node.id, actual);
    const [kind] = Object.keys(node).filter((key) => key !== "id" && key !== "attributes") as [string];
    const content = node[kind];
    switch (kind) {
      case "none":
        return expect(actual, path).toBeNull();
      case "bool":
      case "str":
        return expect(actual, path).toBe(content);
      case "strCodeUnits":
        return expect(actual, path).toBe(String.fromCharCode(...(content as number[])));
      case "int": {
        const value = BigInt(content as string);
        const safe = value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER;
        return expect(actual, path).toBe(safe ? Number(value) : value);
      }
      case "float":
        return expect(Object.is(actual, floatFromHex(content as string)), `${path}: ${actual} is ${content}`).toBe(
          true,
        );
      case "complex":
        expect(actual, path).toBeInstanceOf(Complex);
        return expect(actual, path).toEqual(
          new Complex(...((content as string[]).map(floatFromHex) as [number, number])),
        );
      case "bytes":
      case "bytearray":
        expect(actual, path).toBeInstanceOf(kind === "bytes" ? Uint8Array : ByteArray);
        return expect(Buffer.from(actual as Uint8Array).toString("hex"), path).toBe(content);
      case "dtype":
        return expect((actual as { name: string }).name, path).toBe(content);
      case "device":
        expect(actual, path).toBeInstanceOf(Device);
        return expect(String(actual), path).toBe(content);
      case "layout":
        expect(actual, path).toBeInstanceOf(PythonGlobal);
        return expect((actual as PythonGlobal).name, path).toBe(content);
      case "size":
        expect(actual, path).toBeInstanceOf(Size);
        return expect([...(actual as Size)], path).toEqual(content);
      case "tuple":
        expect(actual, path).toBeInstanceOf(Tuple);
        expect(Object.isFrozen(actual), `${path} is frozen`).toBe(true);
        return this.#items(actual as unknown[], content as Expected[], path);
      case "list":
        expect(Array.isArray(actual) && !(actual instanceof Tuple), `${path} is a list`).toBe(true);
        return this.#items(actual as unknown[], content as Expected[], path);
      case "dict":
        expect(Object.getPrototypeOf(actual), path).toBe(Map.prototype);
        return this.#pairs(actual as Map<unknown, unknown>, content as [Expected, Expected][], path);
      case "orderedDict": {
        expect(actual, path).toBeInstanceOf(OrderedDict);
        await this.#pairs(actual as Map<unknown, unknown>, content as [Expected, Expected][], path);
        const { attributes } = actual as OrderedDict;
        if (node.attributes === undefined) return expect(attributes, path).toBeUndefined();
        return this.compare(attributes, node.attributes as Expected, `${path}.attributes`);
      }
      case "counter":
        expect(actual, path).toBeInstanceOf(Counter);
        return this.#pairs(actual as Map<unknown, unknown>, content as [Expected, Expected][], path);
      case "set":
      case "frozenset":
        expect(actual instanceof FrozenSet, path).toBe(kind === "frozenset");
        expect((actual as Set<unknown>).size, path).toBe((content as Expected[]).length);
        for (const item of content as Expected[])
          expect((actual as Set<unknown>).has(Number(item.int)), path).toBe(true);
        return;
      case "storage": {
        expect(actual, path).toBeInstanceOf(Storage);
        const { memory, nbytes } = actual as Storage;
        return expect(sha256(await (memory as DeviceMemory).read(0, nbytes)), path).toBe(
          (content as { sha256: string }).sha256,
        );
      }
      case "tensor":
        return this.#tensor(actual, content as TensorNode, path);
      case "object":
        expect(actual, path).toBeInstanceOf(PythonObject);
        return expect(String((actual as PythonObject).type), path).toBe(
          `${(content as { module: string }).module}.${(content as { name: string }).name}`,
        );
      case "ref":
        return expect(actual === this.#byId.get(content as number), `${path} is shared`).toBe(true);
      default:
        throw new Error(`${path}: unknown node ${kind}`);
    }
  }

  async #items(actual: readonly unknown[], nodes: readonly Expected[], path: string): Promise<void> {
    expect(actual.length, path).toBe(nodes.length);
    for (const [index, node] of nodes.entries()) await this.compare(actual[index], node, `${path}[${index}]`);
  }

  async #pairs(actual: Map<unknown, unknown>, pairs: readonly [Expected, Expected][], path: string): Promise<void> {
    expect(actual.size, path).toBe(pairs.length);
    const entries = [...actual];
    for (const [index, [key, node]] of pairs.entries()) {
      const [actualKey, value] = entries[index] as [unknown, unknown];
      await this.compare(actualKey, key, `${path} key ${index}`);
      await this.compare(value, node, `${path}.${String(actualKey)}`);
    }
  }

  async #tensor(actual: unknown, node: TensorNode, path: string): Promise<void> {
    expect(actual, path).toBeInstanceOf(Tensor);
    const tensor = actual as Tensor;
    const { dtype, shape, strides, storageOffset, requiresGrad, conj, neg, kind } = node;
    expect(
      {
        dtype: tensor.dtype.name,
        shape: [...tensor.shape],
        strides: [...tensor.strides],
        storageOffset: tensor.storageOffset,
        requiresGrad: tensor.requiresGrad,
        conj: tensor.conj,
        neg: tensor.neg,
        parameter: tensor.isParameter,
      },
      path,
    ).toEqual({ dtype, shape, strides, storageOffset, requiresGrad, conj, neg, parameter: kind === "parameter" });
    if (node.location === "meta") return expect(String(tensor.device), path).toBe("meta");
    expect(tensor.storage.nbytes, path).toBe(node.storageNbytes);
    this.#checkSharing(tensor.storage, node.storage as number, path);
    if (node.attributes !== undefined) await this.compare(tensor.attributes, node.attributes, `${path}.attributes`);
    const host = await this.#readOut(tensor);
    const elements = host.contiguous().storage;
    const contiguous = host.contiguous();
    const size = tensor.dtype.itemsize;
    const start = contiguous.storageOffset * size;
    expect(sha256(elements.bytes.subarray(start, start + contiguous.numel * size)), `${path}: bytes`).toBe(node.sha256);
    if (node.values !== undefined) checkValues(host, node.values, path);
  }

  #checkSharing(storage: Storage, number: number, path: string): void {
    const known = this.#storages.get(number);
    // Empty storages have no identity.
    if (storage.nbytes === 0) return;
    if (known === undefined) {
      for (const other of this.#storages.values()) expect(other === storage, `${path} shares no storage`).toBe(false);
      this.#storages.set(number, storage);
    } else expect(known === storage, `${path} shares its storage`).toBe(true);
  }
}

function checkValues(tensor: Tensor, values: readonly (string | [string, string])[], path: string): void {
  const flat = ([tensor.toArray()] as unknown[]).flat(8);
  expect(flat.length, path).toBe(values.length);
  values.forEach((text, index) => {
    const value = flat[index];
    if (Array.isArray(text)) {
      const { re, im } = value as { re: number; im: number };
      expect([re, im], `${path} at ${index}`).toEqual(text.map(floatFromHex));
    } else if (text === "true" || text === "false") expect(value, path).toBe(text === "true");
    else if (typeof value === "bigint") expect(value, path).toBe(BigInt(text));
    else if (tensor.dtype.kind === "float") {
      expect(Object.is(value, floatFromHex(text)), `${path} at ${index}: ${String(value)} is ${text}`).toBe(true);
    } else expect(value, path).toBe(Number(text));
  });
}

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}
