"""Build small stacks with the fast or the plain implementation, and compute their errors against float64."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from placecode.models.encoder import Stack
from placecode.models.member import Member


def stack_of(
    device: str, tokens: int = 5, features: int = 3, readout: str = "last", members: int = 2, fast: bool = True,
    dtype: torch.dtype = torch.float32, gains: tuple[float, ...] = (1.0,), **fields: Any,
) -> Stack:  # fmt: skip
    """Return a stack whose initial weights are changed, so that biases and norms matter too."""
    shape = {"width": 6, "layers": 2, "expansion": 2, "sigma": 0.5}
    kinds = [{**shape, "seed": seed, "output_gain": gains[seed % len(gains)]} for seed in range(members)]
    specs = [Member(**{**kind, **fields}) for kind in kinds]
    positions = np.stack(np.divmod(np.arange(tokens), 3), axis=1).astype(float)
    sizes = {"tokens": tokens, "features": features, "outputs": 2, "readout": readout, "positions": positions}
    stack, generator = Stack(specs, **sizes, device=device, dtype=dtype, fast=fast), torch.Generator().manual_seed(1)
    for view in stack.views(stack.flat):
        view += 0.1 * torch.randn(view.shape, generator=generator).to(view)
    return stack


def inputs_of(stack: Stack, batch: int = 2, seed: int = 0) -> Tensor:
    """Return random inputs for a stack."""
    shape = (len(stack.members), batch, stack.shape["tokens"], stack.shape["features"])
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(stack.flat)


def losses_of(stack: Stack, x: Tensor, **call: int) -> Tensor:
    """Return a loss for every output (e, b, ...)."""
    outputs = stack(x, **call).to(stack.flat.dtype)
    weights = torch.linspace(-1, 1, outputs[0, 0].numel()).view(outputs[0, 0].shape).to(outputs)
    return (outputs * weights + 0.5).square()


def outcome(stack: Stack, x: Tensor, **call: int) -> dict[str, Tensor]:
    """Return the losses, and the gradient of every parameter by its name."""
    gradient = torch.full_like(stack.flat, torch.nan)
    stack.sink = gradient if stack.fast else None
    losses = losses_of(stack, x, **call)
    stack.gradients(losses.sum(), out=gradient)
    names = {id(p): name for name, p in stack.named_parameters()}
    views = zip(stack.ordered, stack.views(gradient), strict=True)
    return {"loss": losses.detach(), **{names[id(p)]: view for p, view in views}}


def errors_of(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Return, for each tensor, the norm of its error relative to the norm of the true tensor."""
    sizes = {name: value.norm().clamp_min(1e-30) for name, value in expected.items()}
    return {name: ((actual[name].double() - expected[name]).norm() / sizes[name]).item() for name in expected}
