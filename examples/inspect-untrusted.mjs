// Looks into a file from somebody you do not know: nothing in it is run, and what it asks for is named.
//
//   npm run build && node examples/inspect-untrusted.mjs FILE
import { isTorchloadError, open } from "torchload";

const file = process.argv[2] ?? new URL("../test/fixtures/torch-2.11/module.zip.pt", import.meta.url).pathname;
let checkpoint;
try {
  checkpoint = await open(file);
  console.log("weights only: nothing beyond what PyTorch itself allows");
} catch (error) {
  if (!isTorchloadError(error, "unsafe-pickle")) throw error;
  console.log(`not weights only: it asks for ${error.module}.${error.global}`);
  // As inert data it can be looked at all the same.
  checkpoint = await open(file, { weightsOnly: false });
}
for (const [name, tensor] of checkpoint.tensors()) console.log(name, tensor.dtype.name, tensor.shape);
await checkpoint.close();
