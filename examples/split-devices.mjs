// Sends the layers of a model to different devices in one load: one decision a storage, before anything is allocated.
//
//   npm run build && node examples/split-devices.mjs [FILE] [DEVICE …]
import { load, Tensor } from "torchload";

const [file = new URL("../test/fixtures/tiny-gpt.pt", import.meta.url).pathname, ...devices] = process.argv.slice(2);
const targets = devices.length > 0 ? devices : ["cpu"];

// Storages come in the order in which the file names them, so neighbours belong to the same layer.
let placed = 0;
const total = 264_000;
const checkpoint = await load(file, {
  mapLocation(storage) {
    const share = Math.min(targets.length - 1, Math.floor((placed / total) * targets.length));
    placed += storage.nbytes;
    return targets[share];
  },
});
for (const [name, tensor] of checkpoint.get("model")) {
  if (tensor instanceof Tensor) console.log(String(tensor.device).padEnd(8), name, tensor.shape);
}
