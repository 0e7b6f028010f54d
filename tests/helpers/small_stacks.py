"""Small stacks in float64 for the tests of models."""

import numpy as np
import torch
from torch import Tensor

from placecode.models.encoder import Stack
from placecode.models.member import Member

POSITIONS = np.stack(np.divmod(np.arange(6), 3), axis=1).astype(float)


def stack_of(members: list[Member], readout: str = "last", dtype: torch.dtype = torch.float64, **more) -> Stack:
    """Return a stack of these members for 6 tokens with 3 features each."""
    return Stack(members, tokens=6, features=3, outputs=4, readout=readout, positions=POSITIONS, dtype=dtype, **more)


def small(**fields: object) -> Member:
    """Return a small member with these fields changed."""
    return Member(**{"width": 8, "layers": 2, "heads": 2, "sigma": 0.5, "expansion": 3, **fields})


def inputs(members: int = 1, batch: int = 5, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return random inputs (members, batch, 6, 3)."""
    return torch.randn(members, batch, 6, 3, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def shaken(stack: Stack) -> Stack:
    """Add noise to the initial weights in place, so that biases and norms matter too, and return the stack."""
    generator = torch.Generator().manual_seed(1)
    for view in stack.views(stack.flat):
        view += 0.1 * torch.randn(view.shape, generator=generator, dtype=torch.float64).to(view)
    return stack
