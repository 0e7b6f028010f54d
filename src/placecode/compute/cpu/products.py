"""Matrix products of the training step on a CPU, in full precision or in bf16."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CAPABILITIES: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # not available in older torch
MULTIPLIES_BF16 = any(CAPABILITIES.get(name) for name in ("avx512_bf16", "amx_bf16"))

Round = Callable[[Tensor], Tensor]


def unrounded(x: Tensor) -> Tensor:
    """Return x unchanged, for products in full precision."""
    return x


def to_bf16(x: Tensor) -> Tensor:
    """Round x to bf16 for a product. If the processor cannot multiply bf16, the result has the dtype of x."""
    return x.bfloat16() if MULTIPLIES_BF16 else x.bfloat16().to(x.dtype)


def product(out: Tensor, a: Tensor, b: Tensor, more: bool = False) -> Tensor:
    """Compute out = a b, or out += a b with `more`. The product of bf16 factors is rounded to bf16 first."""
    if a.dtype == out.dtype:
        return out.baddbmm_(a, b) if more else torch.bmm(a, b, out=out)
    return out.add_(torch.bmm(a, b)) if more else out.copy_(torch.bmm(a, b))


def times(vectors: Tensor, matrices: Tensor) -> Tensor:
    """Multiply one vector per member, (g, d), by one matrix per member."""
    return torch.bmm(vectors[:, None], matrices)[:, 0]
