"""Makes the files that the benchmarks load, once, in the folder given as argument.

small: one float32 tensor of 4 MB. big: 2.2 GB of bfloat16 in 147 tensors, as an LLM of a billion parameters has them.
many: 100,000 tensors of 8 KiB. huge: a 16 GB file whose bytes are a hole (it measures memory, not reading).
"""

import os
import sys

import torch

try:
    from safetensors.torch import save_file
except ImportError:
    save_file = None

folder = sys.argv[1]
wanted = set(sys.argv[2:]) or {"small", "big", "many", "huge"}
os.makedirs(folder, exist_ok=True)
torch.manual_seed(0)


def path(name):
    return os.path.join(folder, name)


def make(name, tensors):
    if os.path.exists(path(f"{name}.done")):
        return
    torch.save(tensors, path(f"{name}.zip.pt"))
    torch.save(tensors, path(f"{name}.legacy.pt"), _use_new_zipfile_serialization=False)
    if save_file is not None:
        save_file(tensors, path(f"{name}.safetensors"))
    open(path(f"{name}.done"), "w").close()


def random_bits(shape, dtype):
    size = torch.empty((), dtype=dtype).element_size()
    count = size
    for n in shape:
        count *= n
    bits = torch.randint(-(2**62), 2**62, ((count + 7) // 8,), dtype=torch.int64)
    return bits.view(torch.uint8)[:count].view(dtype).reshape(shape)


def big():
    hidden, inner, vocabulary = 2048, 8192, 32000
    tensors = {"embed": random_bits((vocabulary, hidden), torch.bfloat16)}
    for k in range(16):
        for name, shape in {
            "q": (hidden, hidden), "k": (hidden // 4, hidden), "v": (hidden // 4, hidden), "o": (hidden, hidden),
            "gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner), "norm1": (hidden,), "norm2": (hidden,),
        }.items():
            tensors[f"layers.{k}.{name}.weight"] = random_bits(shape, torch.bfloat16)
    tensors["norm"] = random_bits((hidden,), torch.bfloat16)
    tensors["head"] = random_bits((vocabulary, hidden), torch.bfloat16)
    return tensors


if "small" in wanted:
    make("small", {"weight": random_bits((1024, 1024), torch.float32)})
if "big" in wanted:
    make("big", big())
if "many" in wanted:
    make("many", {f"layers.{k // 10}.part{k % 10}.weight": random_bits((64, 64), torch.bfloat16) for k in range(100_000)})
if "huge" in wanted and not os.path.exists(path("huge.zip.pt")):
    try:
        with torch.serialization.skip_data():
            torch.save({f"w{k}": torch.empty((1 << 27,), dtype=torch.bfloat16) for k in range(64)}, path("huge.zip.pt"))
    except AttributeError:
        print("skipped huge: this PyTorch cannot write holes", file=sys.stderr)
