"""Compute the matrix products of a training step on a CPU, in full precision or in bfloat16 (bf16)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CAPABILITIES: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # not available in older torch
MULTIPLIES_BF16 = any(CAPABILITIES.get(name) for name in ("avx512_bf16", "amx_bf16"))
"""Whether the processor has instructions for products of bf16."""

Round = Callable[[Tensor], Tensor]
"""Function that rounds a factor of a product: `unrounded` or `to_bf16`."""


def unrounded(x: Tensor) -> Tensor:
    """Return x unchanged, for products in full precision."""
    return x


def to_bf16(x: Tensor) -> Tensor:
    """Return x rounded to bf16. If the processor cannot multiply bf16, the rounded values have the dtype of x."""
    return x.bfloat16() if MULTIPLIES_BF16 else x.bfloat16().to(x.dtype)


def product(out: Tensor, a: Tensor, b: Tensor, add: bool = False) -> Tensor:
    """Write the matrix product a @ b to `out`, or add it to `out` if `add` is true, and return `out`.

    If a and b are bf16 and `out` is not, the product is rounded to bf16 first.
    """
    if a.dtype == out.dtype:
        return out.baddbmm_(a, b) if add else torch.bmm(a, b, out=out)
    return out.add_(torch.bmm(a, b)) if add else out.copy_(torch.bmm(a, b))


def times(vectors: Tensor, matrices: Tensor) -> Tensor:
    """Return vector @ matrix for each of g members: (g, d) and (g, d, k) -> (g, k)."""
    return torch.bmm(vectors[:, None], matrices)[:, 0]
