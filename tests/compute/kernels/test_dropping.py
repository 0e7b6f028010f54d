"""Dropout in a kernel: its masks are those of `random.uniform`, bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels need Triton")

from placecode import random
from placecode.compute.gpu.kernels import dropping

SEEDS = (0, 1, 7)


def drop(x: Tensor, rates: tuple[float, ...], step: int, first: int) -> tuple[Tensor, Tensor]:
    """Return x after dropout, computed by the kernel and by the formula in float64."""
    keep = (1 - torch.tensor(rates, dtype=torch.float64)).float()[:, None, None, None].to(x.device)
    keys = random.keys_for(SEEDS[: len(x)], "dropout").to(x.device)
    unit = random.uniform(keys, step, x[0].numel(), torch.float32, first).view(x.shape)
    return dropping.drop(x, random.stream(keys, step), keep, first), x.double() * (unit < keep) / keep.double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("shape", "rates", "step", "first"),
    [
        ((1, 2, 3, 5), (0.5,), 0, 0),
        ((3, 7, 31, 5), (0.1, 0.5, 0.9), 12, 33),  # more than a program holds
        ((2, 2, 3, 17), (0.3, 1e-3), -4, 2**33 + 5),  # evaluation, far into a large set
    ],
)
def test_masks_are_those_of_random_uniform(shape, rates, step, first, dtype, kernel_device, monkeypatch) -> None:
    monkeypatch.setattr(dropping, "BLOCK", 256)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(kernel_device, dtype)
    actual, expected = drop(x, rates, step, first)
    assert actual.dtype == dtype
    assert torch.equal(actual == 0, expected == 0) and (expected == 0).any()
    torch.testing.assert_close(actual.double(), expected, rtol=1e-6 if dtype == torch.float32 else 1e-2, atol=0)
    assert not torch.equal(actual == 0, drop(x, rates, step, first + 1)[0] == 0)
    assert not torch.equal(actual == 0, drop(x, rates, step + 1, first)[0] == 0)


def test_inputs_that_are_not_contiguous(kernel_device) -> None:
    x = torch.randn(2, 4, 3, 10, generator=torch.Generator().manual_seed(0)).to(kernel_device)[..., ::2].transpose(1, 2)
    actual, expected = drop(x, (0.5, 0.5), 1, 0)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-6, atol=0)
