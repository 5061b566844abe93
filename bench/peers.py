"""Loads files with PyTorch and safetensors, one at a time, as asked on standard input; answers with milliseconds.

A question is a line of JSON: {"what": "torch" | "torch_mmap" | "safetensors", "file": path, "device": "cpu" | "cuda"}.
With "what": "sha256" and "name", the answer is the hash of that tensor's bytes.
"""

import gc
import hashlib
import json
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch
from safetensors.torch import load_file


def load(what, file, device):
    if what == "safetensors":
        return load_file(file, device=device)
    if what == "torch_mmap":
        return torch.load(file, map_location=device, mmap=True, weights_only=True)
    return torch.load(file, map_location=device, weights_only=True)


print(json.dumps({"torch": torch.__version__, "python": sys.version.split()[0]}), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    try:
        if question["what"] == "sha256":
            tensor = torch.load(question["file"], mmap=True, weights_only=True)[question["name"]]
            digest = hashlib.sha256(bytes(tensor.contiguous().flatten().view(torch.uint8).numpy())).hexdigest()
            print(json.dumps({"sha256": digest}), flush=True)
            continue
        gc.collect()
        started = time.perf_counter()
        tensors = load(question["what"], question["file"], question["device"])
        if question["device"] != "cpu":
            torch.cuda.synchronize()
        ms = (time.perf_counter() - started) * 1000
        del tensors
        gc.collect()
        print(json.dumps({"ms": ms}), flush=True)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"[:300]}), flush=True)
