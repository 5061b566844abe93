"""Writes pickle-tensors.jsonl: the pickles that real PyTorch makes of tensors, and what the tensors are.

    python3 test/unit/pickle-tensors.py

The file in the repository is by PyTorch 1.13. A line is [name, place of the pickle in the bytes, bytes in hexadecimal,
tensors in order], a tensor [storage type, number of elements of its storage, offset, sizes, strides, requires_grad, whether
it is a parameter]. The places matter in legacy files, where other pickles and the bytes of storages lie around.
"""

import io
import json
import os
import pickle
import zipfile
from collections import OrderedDict

import torch


def zipped(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    with zipfile.ZipFile(buffer) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        return 0, archive.read(name)


def legacy(value):
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=False)
    data = buffer.getvalue()
    stream = io.BytesIO(data)
    for _ in range(3):
        pickle.load(stream)
    return stream.tell(), data


def row(value):
    parameter = isinstance(value, torch.nn.Parameter)
    storage = value.storage()
    return [
        storage.pickle_storage_type(),
        storage.size(),
        value.storage_offset(),
        list(value.size()),
        list(value.stride()),
        value.requires_grad,
        parameter,
    ]


def tensors():
    base = torch.arange(24.0).reshape(4, 6)
    shapes = [(), (0,), (1,), (3,), (2, 3), (0, 5), (2, 3, 4), (1, 2, 1, 2), (2, 1, 2, 1, 2), (1,) * 9, (300, 2), (70000,)]
    plain = {f"shape {k}": torch.zeros(shape, dtype=torch.int8) for k, shape in enumerate(shapes)}
    return {
        "shapes": plain,
        "types": OrderedDict(
            (str(dtype), torch.zeros(2, dtype=dtype))
            for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
            for _ in range(2)
        ),
        "views": {"base": base, "row": base[1], "column": base[:, 2], "transposed": base.t(), "again": base},
        "flags": [torch.zeros(2, requires_grad=flag) for flag in (False, True, False, True)],
        "parameters": OrderedDict((f"p{k}", torch.nn.Parameter(torch.zeros(2, k + 1), k % 2 == 0)) for k in range(6)),
        # So many that indices outgrow BINPUT, with config in front, so that names are got by LONG_BINGET.
        "many": {"config": [f"text {k}" for k in range(300)], **{f"w{k}": torch.zeros(k % 5 + 1, 2) for k in range(40)}},
        "many parameters": [torch.nn.Parameter(torch.zeros(1)) for _ in range(60)],
        "tied": (lambda weight: {"in": weight, "other": torch.zeros(1), "out": weight, "view": weight[1:]})(torch.zeros(3)),
        "state dict": torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)).state_dict(),
    }


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else []


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pickle-tensors.jsonl")
    with open(path, "w", newline="\n") as file:
        for name, value in tensors().items():
            for form in (zipped, legacy):
                at, data = form(value)
                # Of the storages behind the pickle of a legacy file a part will do; its keys make it longer.
                data = data[: at + 2 * len(zipped(value)[1])]
                made = [f"{name}, {form.__name__}", at, data.hex(), [row(leaf) for leaf in leaves(value)]]
                file.write(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
