"""Matrix products of the training step on a CPU, in its own precision or in bf16."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CAPABILITIES: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # older torch does not say
MULTIPLIES_BF16 = any(CAPABILITIES.get(name) for name in ("avx512_bf16", "amx_bf16"))

Round = Callable[[Tensor], Tensor]


def as_it_is(x: Tensor) -> Tensor:
    return x


def to_bf16(x: Tensor) -> Tensor:
    """What a product in bf16 takes. Where the processor cannot multiply it, the rounded numbers as float32."""
    return x.bfloat16() if MULTIPLIES_BF16 else x.bfloat16().to(x.dtype)


def product(out: Tensor, a: Tensor, b: Tensor, more: bool = False) -> Tensor:
    """out = a b, or with `more`, what it was plus a b. Of factors in bf16 the product is rounded to bf16 first."""
    if a.dtype == out.dtype:
        return out.baddbmm_(a, b) if more else torch.bmm(a, b, out=out)
    return out.add_(torch.bmm(a, b)) if more else out.copy_(torch.bmm(a, b))


def times(vectors: Tensor, matrices: Tensor) -> Tensor:
    """One vector per member, (g, d), times one matrix."""
    return torch.bmm(vectors[:, None], matrices)[:, 0]
