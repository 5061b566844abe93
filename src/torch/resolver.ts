/**
 * The resolver that container formats are handed: PyTorch's meaning of globals and persistent ids, over a table of storages.
 *
 * @module
 */
import type { OpenResolver } from "../container/container.js";
import { FormatError } from "../errors.js";
import type { Storage } from "../tensor/storage.js";
import { StorageTable } from "./storage-table.js";
import { type GlobalRules, TorchHandlers } from "./torch-handlers.js";

/** A resolver for one decoding of a file. */
export function resolverFor(file: string, rules: GlobalRules): OpenResolver {
  return (check, pickleSize) => {
    const table = new StorageTable(file, check);
    // Only storages read with another width than that of their own type need an entry.
    const widths = new Map<Storage, number>();
    const handlers = new TorchHandlers(file, rules, table, pickleSize, (storage, dtype) => {
      if (dtype === storage.dtype) return;
      const width = dtype.itemsize / dtype.lanes;
      const known = widths.get(storage) ?? widthOf(storage);
      if (known === undefined || known === width) widths.set(storage, width);
      // In files of this machine's byte order mixed widths do no harm; otherwise there is no right order.
      else widths.set(storage, Number.NaN);
    });
    return {
      handlers,
      get storages() {
        return table.storages;
      },
      find: (key) => table.find(key),
      swapWidth(storage) {
        const width = widths.get(storage) ?? widthOf(storage) ?? 1;
        if (Number.isNaN(width)) {
          throw new FormatError(
            `Cannot load "${file}": storage "${storage.key}" is big-endian and tensors of different element sizes share it`,
            { file, record: storage.key },
          );
        }
        return width;
      },
    };
  };
}

function widthOf({ dtype }: Storage): number | undefined {
  return dtype === undefined ? undefined : dtype.itemsize / dtype.lanes;
}
