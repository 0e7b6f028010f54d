"""Optimizer steps (Adam, AdamW, SGD) on a GPU, for flat arrays of parameters (members, parameters).

`norms` reads the gradients once, and `update` does everything else in one pass.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
"""Number of parameters that one program of a kernel processes at a time."""


@triton.jit
def _squares(gradient, learns, sums, size, pe_first, share, BLOCK: tl.constexpr):
    member, part = tl.program_id(1).to(tl.int64), tl.program_id(0)
    frozen = tl.load(learns + member) == 0
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(part * share, tl.minimum((part + 1) * share, size), BLOCK):
        col = first + tl.arange(0, BLOCK)
        g = tl.load(gradient + member * size + col, mask=col < size, other=0.0)
        g = tl.where(frozen & (col >= pe_first), 0.0, g)
        total += g * g
    tl.store(sums + member * tl.num_programs(0) + part, tl.sum(total, 0))


def norms(gradient: Tensor, learns: Tensor, pe_first: int) -> Tensor:
    """Return the norm of each member's gradient, (members, parameters) -> (members,).

    The PE is in the columns from `pe_first` on. The norm omits these columns if the PE is frozen (`learns` is 0).
    """
    e, size = gradient.shape
    parts = max(1, min(triton.cdiv(size, BLOCK), 4096 // e))
    share = BLOCK * triton.cdiv(triton.cdiv(size, BLOCK), parts)
    sums = torch.empty(e, parts, device=gradient.device)
    _squares[(parts, e)](gradient, learns, sums, size, pe_first, share, BLOCK=BLOCK, num_warps=4)
    return sums.sum(1).sqrt()


@triton.jit
def _update(
    flat, gradient, first, second, trains, learns, rate, pe_rate, factor, decay, pe_decay, beta1, beta2, epsilon,
    correction1, correction2, size, pe_first,
    KIND: tl.constexpr, FACTOR: tl.constexpr, DECAY: tl.constexpr, PE_DECAY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(1).to(tl.int64)
    if tl.load(trains + member) != 0:
        col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        used, place = col < size, member * size + col
        of_pe = col >= pe_first
        p = tl.load(flat + place, mask=used, other=0.0)
        g = tl.load(gradient + place, mask=used, other=0.0)
        g = tl.where(of_pe & (tl.load(learns + member) == 0), 0.0, g)
        learning_rate = tl.where(of_pe, tl.load(pe_rate + member), tl.load(rate + member))
        if FACTOR:
            g = g * tl.load(factor + member)
        if DECAY or PE_DECAY:
            decay_of_weights = tl.load(decay + member) if DECAY else 0.0
            decay_of_pe = tl.load(pe_decay + member) if PE_DECAY else 0.0
            decay_here = tl.where(of_pe, decay_of_pe, decay_of_weights)
            if KIND == "adamw":
                p = p * (1.0 - learning_rate * decay_here)
            else:
                g = g + p * decay_here
        m = tl.load(first + place, mask=used, other=0.0)
        if KIND == "sgd":
            m = m * tl.load(beta1 + member) + g
            direction = m
        else:
            b1, b2 = tl.load(beta1 + member), tl.load(beta2 + member)
            m = m + (g - m) * (1.0 - b1)
            v = tl.load(second + place, mask=used, other=0.0) * b2 + g * (1.0 - b2) * g
            tl.store(second + place, v, mask=used)
            root = tl.sqrt(v) / tl.load(correction2 + member) + tl.load(epsilon + member)
            direction = m / (root * tl.load(correction1 + member))
        tl.store(first + place, m, mask=used)
        tl.store(flat + place, p - learning_rate * direction, mask=used)


def update(
    kind: str, flat: Tensor, gradient: Tensor, moments: list[Tensor], trains: Tensor, learns: Tensor, pe_first: int,
    rate: Tensor, pe_rate: Tensor, factor: Tensor | None, decays: tuple[Tensor | None, Tensor | None],
    betas: tuple[Tensor, Tensor], epsilon: Tensor, corrections: tuple[Tensor, Tensor],
) -> None:  # fmt: skip
    """Update the parameters `flat`, (e members, P parameters), and `moments` in place by one step of `kind`.

    Parameters
    ----------
    kind : {"adam", "adamw", "sgd"}
    flat, gradient : Tensor, shape (e, P)
        Parameters and their gradients. The PE is in the columns from `pe_first` on.
    moments : list of Tensor, shape (e, P)
        For adam and adamw, the running means of the gradient and of its square; for sgd, the velocity.
    trains : Tensor, shape (e,)
        Members whose number is 0 do not change.
    learns : Tensor, shape (e,) or (e, 1)
        If the number of a member is 0, the gradient of its PE counts as 0. Its PE does not change if `pe_rate` is 0
        too.
    rate, pe_rate : Tensor, shape (e, 1)
        Learning rates of the weights and of the PE. The shape of all further settings is (e, 1) too.
    factor : Tensor or None
        Multiplies the gradients.
    decays : tuple of Tensor or None
        Weight decay of the weights and of the PE, each None if it is 0 for all members.
    betas : tuple of Tensor
        Decay rates of the moments. For sgd, the first is the momentum, and the second is not used.
    epsilon : Tensor
        Added to the square root of the second moment.
    corrections : tuple of Tensor
        Bias corrections of Adam at step t: 1 - beta1^t and sqrt(1 - beta2^t).
    """
    e, size = flat.shape
    optional = (factor, *decays)
    _update[(triton.cdiv(size, BLOCK), e)](
        flat, gradient, moments[0], moments[-1], trains, learns, rate, pe_rate,
        *[rate if setting is None else setting for setting in optional],  # any tensor stands for None
        *betas, epsilon, *corrections, size, pe_first,
        KIND=kind, FACTOR=factor is not None, DECAY=decays[0] is not None, PE_DECAY=decays[1] is not None,
        BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
