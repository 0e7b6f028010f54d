"""The optimizers Adam, AdamW and SGD for a stack of members (models): updates as in torch, settings per member.

Parameters, gradients and moments are arrays (e, P), for e members with P parameters each, so one step takes a few
operations for all members. Settings of the members, such as the learning rate, are arrays (e, 1). The parameters of
members that no longer train do not change.

There are three implementations. Plain PyTorch operations are the reference. On a GPU, all three optimizers use fused
Triton kernels (`Optimizer._fused_step`, `placecode.compute.gpu.kernels.updates`). On a CPU, Adam and AdamW use a
compiled kernel if there is one (`placecode.compute.cpu.kernels`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from placecode.compute.cpu.kernels import CompiledKernels, kernels_for
from placecode.models.encoder import Stack
from placecode.models.member import Member


class Optimizer:
    """Base class of the optimizers of a stack.

    Parameters
    ----------
    stack : Stack
        The members to train. Each `step` updates the parameters of this stack in place.

    Attributes
    ----------
    state : dict of str to Tensor, shape (e, P)
        The running averages of the optimizer (moments) by name. They are part of a checkpoint.
    """

    name: str
    """The value of `Member.optimizer` that selects this class."""
    moments: tuple[str, ...] = ()
    """Names of the moments, the keys of `state`."""

    def __init__(self, stack: Stack) -> None:
        self.flat, self.fast = stack.flat, stack.fast
        self.pe_first = stack.encoding_columns  # the first column of the PE in `flat`
        self.pe_learns = stack.encoding.learns[:, None]
        self.state = {name: torch.zeros_like(stack.flat) for name in self.moments}

        def column(read: Callable[[Member], float]) -> Tensor:  # (e, 1)
            values = [read(member) for member in stack.members]
            return torch.tensor(values, dtype=stack.flat.dtype, device=stack.flat.device)[:, None]

        self.rate = column(lambda m: m.learning_rate)
        self.pe_rate = column(lambda m: m.learning_rate if m.pe_learning_rate is None else m.pe_learning_rate)
        self.pe_rate = torch.where(self.pe_learns, self.pe_rate, 0)
        decay = column(lambda m: m.weight_decay)
        pe_decay = column(lambda m: m.weight_decay if m.pe_weight_decay is None else m.pe_weight_decay)
        self.decay, self.pe_decay = (values if values.any() else None for values in (decay, pe_decay))
        self.max_norm = None
        if any(member.clip is not None for member in stack.members):
            self.max_norm = column(lambda m: float("inf") if m.clip is None else m.clip)
        self.momentum, self.epsilon = column(lambda m: m.momentum), column(lambda m: m.epsilon)
        # positive in every dtype: 0 / 0 is NaN, and stays NaN after multiplication by the zero rate of a frozen PE
        self.epsilon.clamp_(min=torch.finfo(self.epsilon.dtype).tiny ** 0.5)
        self.beta1, self.beta2 = column(lambda m: m.beta1), column(lambda m: m.beta2)

    def step(
        self,
        gradient: Tensor,
        count: int | Tensor,
        trains: Tensor,
        rate_scale: Tensor | float = 1.0,
        inverse_scale: Tensor | None = None,
    ) -> Tensor:
        """Update the parameters of the stack once, in place.

        Parameters
        ----------
        gradient : Tensor, shape (e, P)
            Gradient of the loss. It may be overwritten.
        count : int or Tensor
            Step number, counted from 1.
        trains : Tensor of bool, shape (e,)
            Whether each member still trains. Parameters of the other members do not change.
        rate_scale : Tensor, shape (e, 1), or float
            Factor by which the learning rates are multiplied.
        inverse_scale : Tensor, shape (e,), optional
            Factor by which the gradient of each member is multiplied first, see `Stack.inverse_scale`.

        Returns
        -------
        Tensor of bool, shape (e,)
            `trains`, but False for members whose gradient is not finite. The parameters of these do not change either.
        """
        if self.fast:
            return self._fused_step(gradient, count, trains, rate_scale, inverse_scale)
        if inverse_scale is not None:
            gradient *= inverse_scale[:, None]
        pe = gradient[:, self.pe_first :]
        pe.copy_(torch.where(self.pe_learns, pe, 0))  # the gradient of a frozen PE must not count in the norm
        norm = torch.linalg.vector_norm(gradient, dim=1)
        trains = trains & norm.isfinite()
        column = trains[:, None]
        if gradient.device.type != "cpu" or not trains.all():  # on a GPU, `trains.all()` would synchronize
            gradient.masked_fill_(~column, 0)
        if self.max_norm is not None:
            gradient *= torch.where(column, self.max_norm / (norm[:, None] + 1e-6), 1).clamp(max=1)
        rate = torch.where(column, self.rate * rate_scale, 0)
        pe_rate = torch.where(column, self.pe_rate * rate_scale, 0)
        if self.decay is not None:
            self._decay(self.flat[:, : self.pe_first], gradient[:, : self.pe_first], rate, self.decay)
        if self.pe_decay is not None:
            self._decay(self.flat[:, self.pe_first :], gradient[:, self.pe_first :], pe_rate, self.pe_decay)
        self._update_parameters(gradient, count, rate, pe_rate)
        return trains

    def _update_parameters(self, gradient: Tensor, count: int | Tensor, rate: Tensor, pe_rate: Tensor) -> None:
        """Update the parameters in place from the gradient, (e, P), at step `count`.

        `rate` and `pe_rate`, (e, 1), are the learning rates of the weights and of the PE.
        """
        direction = self._direction(gradient, count)
        self.flat[:, : self.pe_first].addcmul_(direction[:, : self.pe_first], rate, value=-1)
        self.flat[:, self.pe_first :].addcmul_(direction[:, self.pe_first :], pe_rate, value=-1)

    def _fused_step(
        self,
        gradient: Tensor,
        count: int | Tensor,
        trains: Tensor,
        rate_scale: Tensor | float,
        inverse_scale: Tensor | None,
    ) -> Tensor:
        """Do the same as the reference in `step`, with fused GPU kernels, which skip members that no longer train."""
        from placecode.compute.gpu.kernels import updates  # needs Triton

        norm = updates.norms(gradient, self.pe_learns, self.pe_first)
        norm = norm if inverse_scale is None else norm * inverse_scale
        trains = trains & norm.square().isfinite()  # `step` sums squares, so the square must not overflow here either
        factor = None if inverse_scale is None else inverse_scale[:, None]
        if self.max_norm is not None:
            shrink = (self.max_norm / (norm[:, None] + 1e-6)).clamp(max=1)
            factor = shrink if factor is None else shrink * factor
        updates.update(
            self.name,
            self.flat,
            gradient,
            list(self.state.values()),
            trains,
            self.pe_learns,
            self.pe_first,
            self.rate * rate_scale,
            self.pe_rate * rate_scale,
            factor,
            decays=(self.decay, self.pe_decay),
            betas=(self.momentum if self.name == "sgd" else self.beta1, self.beta2),
            epsilon=self.epsilon,
            corrections=self._bias_corrections(count),
        )
        return trains

    def _bias_corrections(self, count: int | Tensor) -> tuple[Tensor, Tensor]:
        """Return Adam's bias corrections at step `count`: 1 - beta1^count and sqrt(1 - beta2^count), (e, 1) each."""
        return 1 - self.beta1**count, (1 - self.beta2**count).sqrt()

    def _decay(self, weights: Tensor, gradient: Tensor, rate: Tensor, decay: Tensor) -> None:
        """Apply weight decay: add `decay` times `weights` to the gradient in place. AdamW shrinks the weights instead.

        `weights` and `gradient` are either the columns of the weights or those of the PE. `rate`, (e, 1), is the
        learning rate of these columns, and `decay`, (e, 1), is their weight decay.
        """
        gradient.addcmul_(weights, decay)

    def _direction(self, gradient: Tensor, count: int | Tensor) -> Tensor:
        """Update the moments and return the direction of the step, (e, P).

        The parameters change by minus the learning rate times this direction.
        """
        raise NotImplementedError


class Adam(Optimizer):
    """Adam as in `torch.optim.Adam`."""

    name = "adam"
    moments = ("first", "second")

    def _update_parameters(self, gradient: Tensor, count: int | Tensor, rate: Tensor, pe_rate: Tensor) -> None:
        """Update moments and parameters in place, with a compiled CPU kernel if there is one for this dtype."""
        if not isinstance(kernels := kernels_for(self.flat), CompiledKernels):
            return super()._update_parameters(gradient, count, rate, pe_rate)
        corrections = self._bias_corrections(count)
        settings = torch.cat([self.beta1, self.beta2, *corrections, self.epsilon, rate, pe_rate], dim=1)
        first, second = self.state["first"], self.state["second"]
        kernels.adam(self.flat, gradient, first, second, settings, self.pe_first)

    def _direction(self, gradient: Tensor, count: int | Tensor) -> Tensor:
        first, second = self.state["first"], self.state["second"]
        first.lerp_(gradient, 1 - self.beta1)
        second.mul_(self.beta2).addcmul_(gradient * (1 - self.beta2), gradient)
        first_correction, second_correction = self._bias_corrections(count)
        scale = second.sqrt().div_(second_correction).add_(self.epsilon)
        return torch.div(first, scale.mul_(first_correction), out=scale)


class AdamW(Adam):
    """Adam with decoupled weight decay, as in `torch.optim.AdamW`."""

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
    """Return a new optimizer for a stack, of the kind that all its members have in `Member.optimizer`."""
    return {kind.name: kind for kind in (Adam, AdamW, SGD)}[stack.members[0].optimizer](stack)
