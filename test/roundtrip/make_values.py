"""Makes checkpoints with random contents and says what is in them, in the form of test/fixtures/make.py.

    python make_values.py FOLDER SEED COUNT
"""

import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))
sys.setrecursionlimit(10000)

import torch

from make import Describer, load

folder, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
torch.manual_seed(seed)
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
          torch.bool, torch.complex64, torch.complex128]


def shape():
    return [random.choice([0, 1, 2, 3, 5, 8]) for _ in range(random.randrange(5))]


def tensor(pool):
    base = torch.randint(-100, 100, shape()).to(random.choice(DTYPES))
    if pool and random.random() < 0.3:
        base = random.choice(pool)
    pool.append(base)
    for _ in range(random.randrange(3)):
        if base.dim() == 0:
            break
        d = random.randrange(base.dim())
        what = random.random()
        if what < 0.3:
            base = base.transpose(d, random.randrange(base.dim()))
        elif what < 0.6 and base.shape[d] > 1:
            base = base.narrow(d, 1, base.shape[d] - 1)
        elif what < 0.8 and base.shape[d] > 0:
            base = base.select(d, random.randrange(base.shape[d]))
        elif base.shape[d] > 2:
            base = base[tuple([slice(None)] * d + [slice(None, None, 2)])]
    if random.random() < 0.2 and base.is_floating_point():
        return torch.nn.Parameter(base.clone(), requires_grad=random.random() < 0.5)
    return base


def value(pool, depth):
    kind = random.randrange(12 if depth < 4 else 7)
    if kind < 4:
        return tensor(pool)
    if kind == 4:
        return random.choice([None, True, False, random.random(), -(2 ** random.randrange(100)), random.randrange(1000)])
    if kind == 5:
        return "".join(chr(random.choice([65, 0xE9, 0x6F22, 0x1F600])) for _ in range(random.randrange(6)))
    if kind == 6:
        return bytes(random.randrange(256) for _ in range(random.randrange(1, 9)))
    items = [value(pool, depth + 1) for _ in range(random.randrange(5))]
    if kind < 9:
        return {f"k{k}" if random.random() < 0.7 else k: item for k, item in enumerate(items)}
    return items if kind < 11 else tuple(items)


os.makedirs(folder, exist_ok=True)
for k in range(count):
    made = {"root": value([], 0), "more": [value([], 1) for _ in range(3)]}
    for container in ("zip", "legacy"):
        path = os.path.join(folder, f"{k}.{container}.pt")
        torch.save(made, path, _use_new_zipfile_serialization=container == "zip", pickle_protocol=random.choice([2, 2, 2, 4, 5]))
        with open(path[:-3] + ".json", "w") as file:
            json.dump({"value": Describer().describe(load(path))}, file)
