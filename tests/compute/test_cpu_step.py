"""The training step on a CPU against automatic differentiation."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from placecode import encodings
from placecode.compute.cpu import products
from placecode.compute.cpu import step as cpu_step
from placecode.compute.cpu.kernels import Kernels
from placecode.compute.cpu.step import Step, fits
from placecode.encodings.additive import Learned
from placecode.models.encoder import Stack
from placecode.models.member import OPTIMIZERS, Member
from placecode.training.trainer import Trainer, stack_for


def small(**fields: object) -> Member:
    return Member(**{"width": 12, "layers": 3, "heads": 3, "sigma": 0.5, "expansion": 2, "batch": 9, **fields})


def perturbed(stack: Stack) -> Stack:
    """Return the stack with changed weights, so that biases and norms matter too."""
    generator = torch.Generator().manual_seed(1)
    for view in stack.views(stack.flat):
        view += 0.2 * torch.randn(view.shape, generator=generator, dtype=torch.float64).to(view)
    return stack


def by_hand(stack: Stack, inputs: Tensor, targets: Tensor, task) -> tuple[Tensor, Tensor]:
    gradient = torch.full_like(stack.flat, torch.nan)
    return Step(stack, gradient)(inputs, targets, task.loss), gradient


def typically_close(actual: Tensor, plain: Tensor, exact: Tensor) -> bool:
    """Return whether the median error over members is at most twice that of automatic differentiation (`plain`).

    The error of a member whose attention is nearly equal for two tokens is a matter of chance.
    """
    size = exact.flatten(1).norm(dim=1).clamp(min=1e-30)
    error, plain_error = (((array - exact).flatten(1).norm(dim=1) / size).median() for array in (actual, plain))
    return bool(error <= 2 * plain_error + 2 * torch.finfo(torch.float32).eps)


def by_autograd(stack: Stack, inputs: Tensor, targets: Tensor, task) -> tuple[Tensor, Tensor]:
    gradient = torch.empty_like(stack.flat)
    losses = task.loss(stack(inputs, step=0), targets)
    stack.gradients(losses.sum(), out=gradient)
    return losses.detach(), gradient


SPECS = [
    {},
    {"layers": 1},
    {"layers": 2, "heads": 1, "width": 7, "expansion": 1},
    {"heads": 1, "width": 15, "placement": "input"},
    {"heads": 1, "width": 2},  # fewer features than the inputs have
    {"heads": 1, "batch": 1},  # too few tokens for folding to save time
    {"heads": 2, "width": 2},
    {"placement": "input"},
    {"batch": 1},
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("readout", ["last", "mean", "token"])
@pytest.mark.parametrize("together", [True, False])
def test_gradients_are_those_of_automatic_differentiation(
    spec: dict[str, object], readout: str, together: bool, make_task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64 they agree to 1e-12, for all members at once and member by member."""
    if not together:
        monkeypatch.setattr(cpu_step, "GROUP_VALUES", 1)
    task = make_task(readout=readout).to("cpu", torch.float64)
    kinds = ("learned", "none", "sinusoid", "random")
    members = [
        small(encoding=kind, seed=i, output_gain=(1.0, 0.3, 2.0, 0.01)[i], **spec) for i, kind in enumerate(kinds)
    ]
    stack = stack_for(members, task, "cpu", torch.float64)
    assert fits(perturbed(stack))
    rows = torch.arange(stack.members[0].batch).expand(4, -1) + torch.arange(4)[:, None]
    inputs, targets = task.batch("train", rows)
    losses, gradient = by_hand(stack, inputs, targets, task)
    expected, reference = by_autograd(stack, inputs, targets, task)
    torch.testing.assert_close(losses, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient, reference, rtol=0, atol=1e-12)
    assert (gradient != 0).any(1).all()


@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (4, 4), (5, 7), (9, 9)])
@pytest.mark.parametrize("readout", ["last", "token"])
@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("kernels", ["compiled", "torch"])
def test_errors_in_float32_are_those_of_automatic_differentiation(
    rows: int, columns: int, readout: str, heads: int, kernels: str, make_task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors of the loss and of every parameter's gradient are at most twice as large."""
    if kernels == "torch":
        monkeypatch.setattr(cpu_step, "kernels_for", lambda array: Kernels())
    task = make_task(rows, columns, readout)
    stack = perturbed(stack_for([small(seed=seed, width=30, heads=heads, sigma=1.0) for seed in range(8)], task))
    exact = copy.deepcopy(stack).double()
    inputs, targets = task.to("cpu").batch("train", (torch.arange(72) % 22).view(8, 9))
    actual, plain = by_hand(stack, inputs, targets, task), by_autograd(stack, inputs, targets, task)
    if targets.is_floating_point():
        targets = targets.double()
    expected = by_autograd(exact, inputs.double(), targets, task)
    assert typically_close(actual[0][:, None], plain[0][:, None], expected[0][:, None])
    names = [name for name, _ in stack.named_parameters()]
    gradients = (stack.views(gradient) for _, gradient in (actual, plain, expected))
    for name, *views in zip(names, *gradients, strict=True):
        assert typically_close(*views), name


@pytest.mark.parametrize("multiplies", [True, False])
@pytest.mark.parametrize("heads", [1, 3])
def test_errors_in_bf16_are_those_of_autocast(
    multiplies: bool, heads: int, make_task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The norm of the error over all parameters is that of torch's mixed precision, and larger than in float32.

    A processor that cannot multiply bf16 gets the same numbers up to the rounding of its products.
    """
    monkeypatch.setattr(products, "MULTIPLIES_BF16", multiplies)
    task = make_task(4, 4)
    stack = perturbed(stack_for([small(seed=seed, width=30, heads=heads, sigma=1.0) for seed in range(8)], task))
    inputs, targets = task.to("cpu").batch("train", (torch.arange(72) % 22).view(8, 9))
    _, exact = by_autograd(copy.deepcopy(stack).double(), inputs.double(), targets, task)
    _, single = by_hand(stack, inputs, targets, task)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        losses, actual = by_hand(stack, inputs, targets, task)
        _, autocast = by_autograd(stack, inputs, targets, task)
    assert losses.dtype == actual.dtype == torch.float32
    assert (actual - exact).norm() <= 1.5 * (autocast - exact).norm()
    assert (actual - exact).norm() > 100 * (single - exact).norm()


AUTHORS = [("relative", {"causal": True}), ("rotary", {"fraction": 0.5}), ("causal-none", {"temperature": 0.3})]
"""Encodings with the options of the authors' code, but another temperature: errors in bf16 are arbitrary at 0.01."""


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in encodings.names()), *AUTHORS], ids=str)
@pytest.mark.parametrize("placement", ["every", "input"])
@pytest.mark.parametrize("readout", ["last", "token"])
def test_every_encoding(name: str, options: dict[str, object], placement: str, readout: str, make_task) -> None:
    """Results are exact to 1e-12 in float64, and in float32 and bf16 no worse than automatic differentiation."""
    task = make_task(readout=readout)
    fields = {"encoding": name, "options": options, "placement": placement, "width": 24}
    members = [small(**fields, seed=seed) for seed in range(8)]
    single, double = perturbed(stack_for(members, task)), stack_for(members, task, "cpu", torch.float64)
    double.flat.copy_(single.flat)
    assert fits(single)
    rows = (torch.arange(72) % 22).view(8, 9)
    inputs, targets = task.to("cpu", torch.float64).batch("train", rows)
    exact = by_autograd(double, inputs, targets, task)
    for actual, expected in zip(by_hand(double, inputs, targets, task), exact, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    inputs, targets = task.to("cpu").batch("train", rows)
    actual, plain = by_hand(single, inputs, targets, task), by_autograd(single, inputs, targets, task)
    for arrays in zip(actual, plain, exact, strict=True):
        assert typically_close(*(array.view(8, -1) for array in arrays))
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        (_, actual), (_, plain) = by_hand(single, inputs, targets, task), by_autograd(single, inputs, targets, task)
    assert (actual - exact[1]).norm() <= 1.5 * (plain - exact[1]).norm()


@pytest.mark.parametrize(("name", "options"), [("learned", {}), ("rotary", {}), *AUTHORS], ids=str)
def test_the_gradient_of_a_key_bias_is_zero(name: str, options: dict[str, object], tiny_task) -> None:
    """It is exactly zero unless keys are rotated, since the bias adds the same number to all scores of a query."""
    stack = perturbed(stack_for([small(encoding=name, options=options)], tiny_task))
    _, gradient = by_hand(stack, *tiny_task.to("cpu").batch("train", torch.arange(9)[None]), tiny_task)
    gradients = dict(zip(map(id, stack.ordered), stack.views(gradient), strict=True))
    for block in stack.blocks:
        query, key, value = gradients[id(block.attention.projection.bias)].chunk(3, 1)
        assert key.abs().max() > 1e-5 if name == "rotary" else (key == 0).all()
        assert query.abs().max() > 1e-5 and value.abs().max() > 1e-5


@pytest.mark.parametrize(("heads", "batch", "folded"), [(1, 9, [1, 1, 0]), (1, 3, [0, 0, 0]), (2, 9, [0, 0, 0])])
def test_a_single_head_is_folded_if_that_is_faster(heads: int, batch: int, folded: list[int], tiny_task) -> None:
    """It is not folded with few tokens (6 per example) or in a block that computes only the last token."""
    stack = stack_for([small(heads=heads)], tiny_task)
    step = Step(stack, torch.empty_like(stack.flat))
    step(*tiny_task.to("cpu").batch("train", torch.arange(batch)[None]), tiny_task.loss)
    assert [block.folded for block in step._groups[0, batch].blocks] == folded


class Doubled(encodings.Encoding):
    def add(self, x: Tensor, block: int) -> Tensor:
        return 2 * x


class Louder(Learned):
    def add(self, x: Tensor, block: int) -> Tensor:
        return super().add(x, block) * 2


def test_models_that_the_step_does_not_support(tiny_task, monkeypatch: pytest.MonkeyPatch) -> None:
    """They include encodings that change the input in another way than by adding a PE."""
    monkeypatch.setattr(encodings, "_REGISTRY", {**encodings._REGISTRY, "doubled": Doubled, "louder": Louder})
    assert fits(stack_for([small(learn=False, placement="input")], tiny_task))
    for fields in ({"norm": "pre"}, {"dropout": 0.1}, {"encoding": "doubled"}, {"encoding": "louder"}):
        assert not fits(stack_for([small(**fields)], tiny_task))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_is_that_with_automatic_differentiation(
    optimizer: str, tiny_task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twenty steps include the smaller last batch of an epoch."""
    fields = {"optimizer": optimizer, "learning_rate": 0.01, "weight_decay": 0.01, "pe_weight_decay": 0.1}
    members = [small(seed=seed, output_gain=(1.0, 0.3, 3.0)[seed], **fields) for seed in range(3)]
    actual = Trainer(stack_for(members, tiny_task, "cpu", torch.float64), tiny_task, steps=20)
    plain = Trainer(stack_for(members, tiny_task, "cpu", torch.float64), tiny_task, steps=20)
    assert actual.active.cpu_step is not None
    plain.active.cpu_step = None
    x = tiny_task.splits["test"].inputs.expand(3, -1, -1, -1)
    start = actual.stack(x)
    for _ in range(20):
        torch.testing.assert_close(actual.update(), plain.update(), rtol=0, atol=1e-6)
    torch.testing.assert_close(actual.stack(x), plain.stack(x), rtol=0, atol=1e-6)
    assert (actual.stack(x) - start).abs().max() > 1e-2


def test_a_larger_batch_after_a_smaller_one(tiny_task) -> None:
    """Resuming may begin with the last, smaller batch of an epoch."""
    stack = perturbed(stack_for([small()], tiny_task))
    step = Step(stack, torch.empty_like(stack.flat))
    task = tiny_task.to("cpu")
    for count in (4, 9, 4):
        inputs, targets = task.batch("train", torch.arange(count)[None])
        step(inputs, targets, task.loss)
        _, reference = by_autograd(stack, inputs, targets, task)
        torch.testing.assert_close(step.gradient, reference, rtol=1e-4, atol=1e-5)
