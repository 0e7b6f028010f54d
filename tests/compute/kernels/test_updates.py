"""The fused optimizer step against the plain one in float64, with every setting per member."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels need Triton")

from helpers.training.members import same_bits

from placecode.compute.gpu.kernels import updates
from placecode.models.encoder import Stack
from placecode.models.member import OPTIMIZERS, Member
from placecode.training import optimizers

SETTINGS: list[dict[str, object]] = [
    {"learning_rate": 1e-3},
    {"learning_rate": 1e-2, "pe_learning_rate": 0.1, "weight_decay": 0.1, "pe_weight_decay": 0.3, "momentum": 0.0},
    {"learning_rate": 0.05, "pe_learning_rate": 0.0, "clip": 0.5, "beta2": 0.9, "epsilon": 1e-3, "momentum": 0.5},
    {"learning_rate": 1e-2, "learn": False, "clip": 0.7, "weight_decay": 0.2, "pe_weight_decay": 0.5},
    {"learning_rate": 1e-2, "encoding": "sinusoid", "beta1": 0.0, "momentum": 0.99},
]
ALONE = SETTINGS[:1]  # neither clipped nor decayed: those branches of the kernel are left out
PE_DECAYS: list[dict[str, object]] = [{"learning_rate": 1e-2, "pe_weight_decay": 0.5}]
REST_DECAYS: list[dict[str, object]] = [{"learning_rate": 1e-2, "weight_decay": 0.5, "pe_weight_decay": 0.0}]


def stack_of(optimizer: str, settings: list[dict[str, object]], device: str, **options: object) -> Stack:
    shape = {"width": 10, "layers": 1, "expansion": 2, "optimizer": optimizer}
    members = [Member(seed=seed, **shape, **fields) for seed, fields in enumerate(settings)]
    return Stack(members, tokens=3, features=2, outputs=2, device=device, **options)


def gradients_of(stack: Stack, step: int) -> Tensor:
    """Return random gradients of very different sizes, so that some are clipped and some are not."""
    generator = torch.Generator().manual_seed(step)
    size = 10 ** torch.empty(len(stack.members), 1).uniform_(-2, 1, generator=generator)
    return (size * torch.randn(stack.flat.shape, generator=generator)).to(stack.flat)


@pytest.mark.parametrize(
    "settings", [SETTINGS, ALONE, PE_DECAYS, REST_DECAYS], ids=["all sorts", "plain", "the PE decays", "the rest does"]
)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_fused_step_is_the_plain_step(optimizer: str, settings, kernel_device, monkeypatch) -> None:
    """Compare parameters and moments, also with scaled learning rates and with the step number on the device."""
    monkeypatch.setattr(updates, "BLOCK", 256)
    fused = stack_of(optimizer, settings, kernel_device, fast=True)
    exact = stack_of(optimizer, settings, kernel_device, dtype=torch.float64, fast=False)
    exact.flat.copy_(fused.flat)
    assert fused.flat.shape[1] > 256 and fused.encoding_columns % 256  # the PE begins within a block
    start, optimizer_of_fused, optimizer_of_exact = exact.flat.clone(), optimizers.build(fused), optimizers.build(exact)
    trains = torch.ones(len(settings), dtype=torch.bool, device=kernel_device)
    for step in range(1, 5):
        gradient, count = gradients_of(fused, step), torch.tensor(step, device=kernel_device) if step > 2 else step
        scale = torch.full((len(settings), 1), 0.5, device=kernel_device) if step == 4 else 1.0
        optimizer_of_exact.step(gradient.double(), count=count, trains=trains, rate_scale=scale)
        assert optimizer_of_fused.step(gradient, count=count, trains=trains, rate_scale=scale).all()
    change = (exact.flat - start).abs().amax(1, keepdim=True)
    assert (change > 1e-3).all()
    assert ((fused.flat - exact.flat).abs() <= 1e-5 * change + 1e-6).all()
    for name, value in optimizer_of_fused.state.items():
        torch.testing.assert_close(value.double(), optimizer_of_exact.state[name], rtol=1e-5, atol=1e-6)
    frozen = ~fused.encoding.learns
    columns = fused.encoding_columns
    assert same_bits(fused.flat[frozen, columns:], start[frozen, columns:].float())
    missed = (fused.flat - start).abs() > 1e-5 * change + 1e-6  # a negative control with unchanged parameters
    assert missed[:, :columns].any(1).all()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_dead_member_is_not_touched(optimizer: str, kernel_device) -> None:
    """Member 1 is dead already, with NaN of unusual bits, and the gradient of member 2 is not finite."""
    stack, quiet = (stack_of(optimizer, SETTINGS, kernel_device, fast=True) for _ in range(2))
    optimizer_of_stack, optimizer_of_quiet = optimizers.build(stack), optimizers.build(quiet)
    odd_nan = torch.tensor([0x7FC12345, -0x12345], dtype=torch.int32, device=kernel_device).view(torch.float32)
    stack.flat[1, :2] = odd_nan
    for value in optimizer_of_stack.state.values():
        value[1, 5:7] = odd_nan
    before, moments = stack.flat.clone(), {name: value.clone() for name, value in optimizer_of_stack.state.items()}
    trains = torch.tensor([True, False, True, True, True], device=kernel_device)
    gradient = gradients_of(stack, 1)
    optimizer_of_quiet.step(gradient.clone(), count=1, trains=torch.ones_like(trains))
    gradient[2, -1] = math.inf
    assert optimizer_of_stack.step(gradient, count=1, trains=trains).tolist() == [True, False, False, True, True]
    for i in (1, 2):
        assert same_bits(stack.flat[i], before[i])
        assert all(same_bits(value[i], moments[name][i]) for name, value in optimizer_of_stack.state.items())
    for i in (0, 3, 4):
        assert same_bits(stack.flat[i], quiet.flat[i]) and not same_bits(stack.flat[i], before[i])


@pytest.mark.parametrize(("members", "size", "first_of_pe"), [(1, 7, 7), (3, 3001, 2500), (2, 2048, 0)])
def test_norms(members: int, size: int, first_of_pe: int, kernel_device) -> None:
    """The gradient of a PE that is not trained is ignored, even if it is NaN."""
    if kernel_device == "cuda" and size > 2048:
        size = 7_000_001  # more than there are programs
    gradient = torch.randn(members, size, generator=torch.Generator().manual_seed(0)).to(kernel_device)
    learns = (torch.arange(members, device=kernel_device) % 2 == 1)[:, None]
    gradient[0, first_of_pe:] = math.nan
    counts = learns | (torch.arange(size, device=kernel_device) < first_of_pe)
    expected = torch.where(counts, gradient.double(), 0).norm(dim=1)
    torch.testing.assert_close(updates.norms(gradient, learns, first_of_pe).double(), expected, rtol=1e-6, atol=0)
    if members > 1:
        gradient[1, -1] = math.nan
        assert updates.norms(gradient, learns, first_of_pe).isnan().tolist() == [i == 1 for i in range(members)]
