"""Adam, AdamW and SGD over a stack: torch's own updates, with every setting per member.

Parameters, gradients and moments are flat arrays (e, P), so a step is a few operations for all members together. A
member's settings are columns (e, 1); a member that is switched off keeps its parameters bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from placecode.compute.cpu.kernels import Compiled, kernels_for
from placecode.models.encoder import Stack
from placecode.models.member import Member


class Optimizer:
    """Steps the parameters of a stack. `state` is what a checkpoint must hold besides the parameters."""

    name: str
    moments: tuple[str, ...] = ()

    def __init__(self, stack: Stack) -> None:
        self.flat, self.fast = stack.flat, stack.fast
        self.pe_columns = slice(stack.encoding_columns, stack.flat.shape[1])
        self.pe_learns = stack.encoding.learns[:, None]
        self.state = {name: torch.zeros_like(stack.flat) for name in self.moments}

        def column(read: Callable[[Member], float]) -> Tensor:
            values = [read(member) for member in stack.members]
            return torch.tensor(values, dtype=stack.flat.dtype, device=stack.flat.device)[:, None]

        members = stack.members
        self.rate = column(lambda m: m.learning_rate)
        self.pe_rate = column(lambda m: m.learning_rate if m.pe_learning_rate is None else m.pe_learning_rate)
        self.pe_rate = torch.where(self.pe_learns, self.pe_rate, 0)
        decay = column(lambda m: m.weight_decay)
        pe_decay = column(lambda m: m.weight_decay if m.pe_weight_decay is None else m.pe_weight_decay)
        self.decay, self.pe_decay = (each if each.any() else None for each in (decay, pe_decay))
        self.limit = None
        if any(member.clip is not None for member in members):
            self.limit = column(lambda m: float("inf") if m.clip is None else m.clip)
        self.momentum, self.epsilon = column(lambda m: m.momentum), column(lambda m: m.epsilon)
        # never 0, in any dtype: 0 / 0 would be NaN, and NaN times the rate 0 of a frozen PE is NaN too
        self.epsilon.clamp_(min=torch.finfo(self.epsilon.dtype).tiny ** 0.5)
        self.beta1, self.beta2 = column(lambda m: m.beta1), column(lambda m: m.beta2)

    def step(
        self,
        gradient: Tensor,
        count: int | Tensor,
        alive: Tensor,
        scale: Tensor | float = 1.0,
        unit: Tensor | None = None,
    ) -> Tensor:
        """One update from `gradient` (e, P), which is used up; `count` = 1, 2, ... is the number of this step.

        The rates are multiplied by `scale`, (e, 1), and the gradient by its `unit`, (e,). `alive` (e,) says which
        members still train. Returns which of them still do: one whose gradient is not finite stops here, its parameters
        as they were.
        """
        if self.fast:
            return self._fused_step(gradient, count, alive, scale, unit)
        if unit is not None:
            gradient *= unit[:, None]
        pe = gradient[:, self.pe_columns]
        pe.copy_(torch.where(self.pe_learns, pe, 0))  # a frozen PE counts for nothing, not even in the norm
        norm = torch.linalg.vector_norm(gradient, dim=1)
        alive = alive & norm.isfinite()
        on = alive[:, None]
        if gradient.device.type != "cpu" or not on.all():  # a GPU would have to be waited for
            gradient.masked_fill_(~on, 0)
        if self.limit is not None:
            gradient *= torch.where(on, self.limit / (norm[:, None] + 1e-6), 1).clamp(max=1)
        rate = torch.where(on, self.rate * scale, 0)
        pe_rate = torch.where(on, self.pe_rate * scale, 0)
        columns = self.pe_columns.start
        if self.decay is not None:
            self._decay(self.flat[:, :columns], gradient[:, :columns], rate, self.decay)
        if self.pe_decay is not None:
            self._decay(self.flat[:, columns:], gradient[:, columns:], pe_rate, self.pe_decay)
        self._move(gradient, count, rate, pe_rate)
        return alive

    def _move(self, gradient: Tensor, count: int | Tensor, rate: Tensor, pe_rate: Tensor) -> None:
        """Take the step."""
        direction = self._direction(gradient, count)
        columns = self.pe_columns.start
        self.flat[:, :columns].addcmul_(direction[:, :columns], rate, value=-1)
        self.flat[:, columns:].addcmul_(direction[:, columns:], pe_rate, value=-1)

    def _fused_step(
        self, gradient: Tensor, count: int | Tensor, alive: Tensor, scale: Tensor | float, unit: Tensor | None
    ) -> Tensor:
        """The same by fused kernels, which leave members that do not train untouched."""
        from placecode.compute.gpu.kernels import updates  # needs Triton

        columns = self.pe_columns.start
        norm = updates.norms(gradient, self.pe_learns, columns)
        norm = norm if unit is None else norm * unit
        alive = alive & norm.square().isfinite()  # as in the plain way, which adds up squares
        factor = None if unit is None else unit[:, None]
        if self.limit is not None:
            shrink = (self.limit / (norm[:, None] + 1e-6)).clamp(max=1)
            factor = shrink if factor is None else shrink * factor
        betas = (self.momentum if self.name == "sgd" else self.beta1, self.beta2)
        fixes = (1 - self.beta1**count, (1 - self.beta2**count).sqrt())
        decays = self.decay, self.pe_decay
        updates.update(
            *(self.name, self.flat, gradient, list(self.state.values()), alive, self.pe_learns, columns),
            *(self.rate * scale, self.pe_rate * scale, factor, decays, betas, self.epsilon, fixes),
        )
        return alive

    def _decay(self, weights: Tensor, gradient: Tensor, rate: Tensor, decay: Tensor) -> None:
        """Weight decay as part of the gradient."""
        gradient.addcmul_(weights, decay)

    def _direction(self, gradient: Tensor, count: int | Tensor) -> Tensor:
        """What is taken off the parameters, per unit of rate."""
        raise NotImplementedError


class Adam(Optimizer):
    """Adam as in `torch.optim.Adam`."""

    name = "adam"
    moments = ("first", "second")

    def _move(self, gradient: Tensor, count: int | Tensor, rate: Tensor, pe_rate: Tensor) -> None:
        if not isinstance(kernels := kernels_for(self.flat), Compiled):
            return super()._move(gradient, count, rate, pe_rate)
        corrections = 1 - self.beta1**count, (1 - self.beta2**count).sqrt()
        settings = torch.cat([self.beta1, self.beta2, *corrections, self.epsilon, rate, pe_rate], dim=1)
        first, second = self.state["first"], self.state["second"]
        kernels.adam(self.flat, gradient, first, second, settings, self.pe_columns.start)

    def _direction(self, gradient: Tensor, count: int | Tensor) -> Tensor:
        first, second = self.state["first"], self.state["second"]
        first.lerp_(gradient, 1 - self.beta1)
        second.mul_(self.beta2).addcmul_(gradient * (1 - self.beta2), gradient)
        scale = second.sqrt().div_((1 - self.beta2**count).sqrt()).add_(self.epsilon)
        return torch.div(first, scale.mul_(1 - self.beta1**count), out=scale)


class AdamW(Adam):
    """Adam with the decay taken off the weights directly, as in `torch.optim.AdamW`."""

    name = "adamw"

    def _decay(self, weights: Tensor, gradient: Tensor, rate: Tensor, decay: Tensor) -> None:
        weights.mul_(1 - rate * decay)


class SGD(Optimizer):
    """Gradient descent with momentum, as in `torch.optim.SGD`."""

    name = "sgd"
    moments = ("velocity",)

    def _direction(self, gradient: Tensor, count: int | Tensor) -> Tensor:
        return self.state["velocity"].mul_(self.momentum).add_(gradient)


def build(stack: Stack) -> Optimizer:
    """The optimizer that the members of a stack name."""
    return {kind.name: kind for kind in (Adam, AdamW, SGD)}[stack.members[0].optimizer](stack)
