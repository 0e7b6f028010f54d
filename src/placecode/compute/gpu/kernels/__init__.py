"""Triton kernels for memory-bound operations of a stack: norms, GELU, attention, dropout and the optimizer.

For short sequences with few features, matrix products are too small to hide the memory traffic between them. Each
kernel therefore reads its operands once, does everything between two products, and writes once. Matrix products use the
vendor's library. The reference for every kernel is in `models.encoder` or `training.optimizers`.

    rows            residual + bias + GELU + layer norm + PE, and backward; the embedding; sums over rows
    mlp             bias + GELU between the two layers, and backward
    attention       softmax(q k^T) v for every member, example and head, and backward
    long_attention  the same for sequences that do not fit into one tile, with kernels in long_attention_tiles
    relative        score bias of relative positions, and backward
    dropping        dropout with counter-based random numbers
    updates         norms of gradients, Adam, AdamW, SGD

The functions take and return tensors, of shape (members, rows, features) with one row per token of each example, in
float32 or bfloat16, some also in float16. Parameters are float32 views of the flat array of a stack. Sums over rows
have two stages: each program writes the sum over its rows (a partial sum), and then the partial sums of a member are
added. So results do not depend on the order in which a GPU schedules its work.

In kernels, an item is usually one example, and x_member, x_item and x_row are the distances in memory between two
members, items and rows of x. Other shapes: e members, b examples, m queries, n tokens or keys, d features, h heads,
c = d / h.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator

import torch

_float16_allowed = True


@contextlib.contextmanager
def float16_products(allowed: bool) -> Iterator[None]:
    """Allow or forbid float16 in products whose inputs may be rounded (precision "high"), inside a `with` block.

    If it is forbidden, they use TF32, which is as accurate but slower. By default, float16 is allowed.
    """
    global _float16_allowed
    before, _float16_allowed = _float16_allowed, allowed
    try:
        yield
    finally:
        _float16_allowed = before


def uses_float16(x: torch.Tensor) -> bool:
    """Return whether products of x use float16.

    They do if x is float32, torch's precision of float32 products is not "highest", and `float16_products` allows it.
    """
    return _float16_allowed and x.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"


def available(device: torch.device) -> bool:
    """Return whether the kernels can run on a device: Triton is installed, and the device is a GPU.

    In Triton's interpreter, which tests use, they can run on any device.
    """
    if importlib.util.find_spec("triton") is None:
        return False
    return device.type == "cuda" or interpreted()


def interpreted() -> bool:
    """Return whether kernels run in Triton's interpreter, in which hardware-specific functions are not available."""
    return os.environ.get("TRITON_INTERPRET") == "1"
