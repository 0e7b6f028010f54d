"""Stacks with all settings of optimizers, and random gradients for them."""

from typing import Any

import torch
from torch import Tensor

from placecode.models.encoder import Stack
from placecode.models.member import Member

SETTINGS: list[dict[str, object]] = [
    {"learning_rate": 1e-3},
    {"learning_rate": 1e-2, "pe_learning_rate": 0.1, "weight_decay": 0.1, "pe_weight_decay": 0.3, "momentum": 0.0},
    {"learning_rate": 0.05, "pe_learning_rate": 0.0, "clip": 0.5, "beta2": 0.9, "epsilon": 1e-3, "momentum": 0.5},
    {"learning_rate": 1e-3, "clip": 1.0, "weight_decay": 0.5, "beta1": 0.0, "beta2": 0.5, "momentum": 0.99},
    {"learning_rate": 0.0, "pe_learning_rate": 1e-2, "weight_decay": 0.1, "pe_weight_decay": 0.0, "beta1": 0.8},
    {"learning_rate": 1e-2, "learn": False, "clip": 0.7, "weight_decay": 0.2, "pe_weight_decay": 0.5},
    {"learning_rate": 1e-2, "encoding": "sinusoid", "weight_decay": 0.2, "beta1": 0.0, "momentum": 0.99},
    {"learning_rate": 1e-2, "clip": 0.0},
    {"learning_rate": 1e-2, "pe_weight_decay": 0.3},
]


def stack_of(
    optimizer: str, settings: list[dict[str, object]] = SETTINGS, dtype: torch.dtype = torch.float64, **more: Any
) -> Stack:
    """Return a small stack with a member for each of the settings."""
    shape = {"width": more.pop("width", 4), "layers": 1, "expansion": 2, "optimizer": optimizer}
    members = [Member(seed=seed, **shape, **fields) for seed, fields in enumerate(settings)]
    return Stack(members, tokens=3, features=2, outputs=2, dtype=dtype, **more)


def gradients_of(stack: Stack, step: int) -> Tensor:
    """Return random gradients of very different sizes, so that some are clipped and some are not."""
    generator = torch.Generator().manual_seed(step)
    size = 10 ** torch.empty(len(stack.members), 1, dtype=torch.float64).uniform_(-2, 1, generator=generator)
    return (size * torch.randn(stack.flat.shape, generator=generator, dtype=torch.float64)).to(stack.flat)
