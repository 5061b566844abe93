"""Makes examples/data/matrices.pt: two matrices, and a third for their product."""

import os

import torch

torch.manual_seed(0)
rows, inner, columns = 48, 96, 64
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "matrices.pt")
torch.save({"a": torch.randn(rows, inner), "b": torch.randn(inner, columns), "product": torch.zeros(rows, columns)}, path)
