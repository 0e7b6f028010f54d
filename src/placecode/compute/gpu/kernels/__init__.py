"""Triton kernels for what moves bytes: norms, GELU, attention, dropout and the optimizer, for all members of a stack.

For short sequences of few features the matrix products are too thin to hide the traffic of everything between them. So
each kernel reads its operands once, does all there is to do between two products, and writes once. Matrix products
stay with the vendor's library. Every kernel has a plain counterpart in `encoder` or `optim`, which is its reference.

    rows            residual + bias + GELU + layer norm + PE, and backward; the embedding; sums of pieces
    mlp             bias + GELU between the two layers, and backward
    attention       softmax(q k^T) v for every member, example and head, and backward
    long_attention  the same for sequences that do not fit into one tile; its kernels are in long_attention_tiles
    dropping        dropout by stateless random numbers
    updates         norms of gradients, Adam, AdamW, SGD

The functions take and return tensors; what they compute is said in their docstrings. Arrays are (e, rows, features),
in float32 or bfloat16, some also in float16; parameters are float32 views of a stack's flat array. Sums over rows are
done in two stages, so results do not depend on the order in which a GPU schedules its work.
"""

from __future__ import annotations

import importlib.util
import os

import torch

HALVES = True
"""Whether products whose inputs may be rounded to ten bits take float16 numbers, and not TF32: quicker, as exact."""


def takes_halves(x: torch.Tensor) -> bool:
    """Whether products of such a tensor may take it as float16, by what torch and this module are set to."""
    return HALVES and x.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"


def available(device: torch.device) -> bool:
    """Whether the kernels can run there: on a CUDA device, or anywhere in Triton's interpreter, for tests."""
    if importlib.util.find_spec("triton") is None:
        return False
    return device.type == "cuda" or interpreted()


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, which has none of a GPU's own functions."""
    return os.environ.get("TRITON_INTERPRET") == "1"
