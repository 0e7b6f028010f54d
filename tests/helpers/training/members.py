"""Members that train in milliseconds, random tensors, and comparison of tensors bit for bit."""

import torch
from torch import Tensor

from placecode.models.member import Member


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same dtype and the same bits, NaN included."""
    integers = {8: torch.int64, 4: torch.int32, 1: torch.uint8}[a.element_size()]
    return a.dtype == b.dtype and torch.equal(a.contiguous().view(integers), b.contiguous().view(integers))


def same_state(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Return whether two state dictionaries have the same names and the same bits."""
    return a.keys() == b.keys() and all(same_bits(a[name], b[name]) for name in a)


def small(**fields: object) -> Member:
    """Return a small member with these fields changed."""
    defaults = {"width": 8, "layers": 2, "heads": 2, "batch": 4, "sigma": 0.5, "learning_rate": 1e-3}
    return Member(**{**defaults, **fields})


def draw(*shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Return a random tensor of this shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)
