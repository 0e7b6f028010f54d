"""Optimizers of a stack against those of torch, for every member and step."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from helpers.training.members import same_bits
from torch import Tensor

from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.training import optimizers

STEPS = 25
SETTINGS: list[dict[str, object]] = [
    {"learning_rate": 1e-3},
    {"learning_rate": 1e-2, "pe_learning_rate": 0.1, "weight_decay": 0.1, "pe_weight_decay": 0.3, "momentum": 0.0},
    {"learning_rate": 0.05, "pe_learning_rate": 0.0, "clip": 0.5, "beta2": 0.9, "epsilon": 1e-3, "momentum": 0.5},
    {"learning_rate": 1e-3, "clip": 1.0, "weight_decay": 0.5, "beta1": 0.0, "beta2": 0.5, "momentum": 0.99},
    {"learning_rate": 0.0, "pe_learning_rate": 1e-2, "weight_decay": 0.1, "pe_weight_decay": 0.0, "beta1": 0.8},
    {"learning_rate": 1e-2, "learn": False, "clip": 0.7, "weight_decay": 0.2, "pe_weight_decay": 0.5},
    {"learning_rate": 1e-2, "encoding": "sinusoid", "weight_decay": 0.2},
    {"learning_rate": 1e-2, "clip": 0.0},
    {"learning_rate": 1e-2, "pe_weight_decay": 0.3},
]


def members_of(optimizer: str, settings: list[dict[str, object]]) -> list[Member]:
    shape = {"width": 4, "layers": 1, "expansion": 2, "optimizer": optimizer}
    return [Member(seed=seed, **shape, **fields) for seed, fields in enumerate(settings)]


def stack_of(
    optimizer: str,
    settings: list[dict[str, object]] = SETTINGS,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
) -> Stack:
    members = members_of(optimizer, settings)
    return Stack(members, tokens=3, features=2, outputs=2, dtype=dtype, device=device)


def gradients_of(stack: Stack, step: int) -> Tensor:
    """Random gradients of very different sizes, so that some are clipped and some are not."""
    generator = torch.Generator().manual_seed(step)
    size = 10 ** torch.empty(len(stack.members), 1, dtype=torch.float64).uniform_(-2, 1, generator=generator)
    return (size * torch.randn(stack.flat.shape, generator=generator, dtype=torch.float64)).to(stack.flat)


def torch_optimizer(member: Member, rest: Tensor, pe: Tensor) -> torch.optim.Optimizer:
    groups = [{"params": [rest], "lr": member.learning_rate, "weight_decay": member.weight_decay}]
    if pe.requires_grad:
        rate = member.learning_rate if member.pe_learning_rate is None else member.pe_learning_rate
        decay = member.weight_decay if member.pe_weight_decay is None else member.pe_weight_decay
        groups.append({"params": [pe], "lr": rate, "weight_decay": decay})
    adam = {"betas": (member.beta1, member.beta2), "eps": member.epsilon}
    build: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "adam": lambda: torch.optim.Adam(groups, **adam),
        "adamw": lambda: torch.optim.AdamW(groups, **adam),
        "sgd": lambda: torch.optim.SGD(groups, momentum=member.momentum),
    }
    return build[member.optimizer]()


def everyone(stack: Stack) -> Tensor:
    return torch.ones(len(stack.members), dtype=torch.bool, device=stack.flat.device)


each_optimizer = pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])


@each_optimizer
def test_steps_are_those_of_torch(optimizer: str, device: str) -> None:
    stack = stack_of(optimizer, device=device)
    ours, columns, trains = optimizers.build(stack), stack.encoding_columns, everyone(stack)
    theirs = []
    for i, member in enumerate(stack.members):
        row = stack.flat[i].clone()
        rest = row[:columns].clone().requires_grad_()
        pe = row[columns:].clone().requires_grad_(bool(stack.encoding.learns[i]))
        theirs.append((member, rest, pe, torch_optimizer(member, rest, pe)))
    for step in range(1, STEPS + 1):
        gradient = gradients_of(stack, step)
        for i, (member, rest, pe, optimizer_of_torch) in enumerate(theirs):
            rest.grad = gradient[i, :columns].clone()
            if pe.requires_grad:
                pe.grad = gradient[i, columns:].clone()
            if member.clip is not None:
                torch.nn.utils.clip_grad_norm_([rest, pe] if pe.requires_grad else [rest], member.clip)
            optimizer_of_torch.step()
        trains = ours.step(gradient, count=step, trains=trains)
        assert trains.all()
        for i, (_, rest, pe, _) in enumerate(theirs):
            expected = torch.cat([rest, pe]).detach()
            torch.testing.assert_close(stack.flat[i], expected, rtol=0, atol=1e-12, msg=f"member {i}, step {step}")


@each_optimizer
def test_members_do_not_depend_on_their_neighbours(optimizer: str) -> None:
    """Bit for bit: that a neighbour is clipped or decays must not change the order of operations."""
    together = stack_of(optimizer)
    ours = optimizers.build(together)
    singles = [stack_of(optimizer, [fields]) for fields in SETTINGS]
    for i, single in enumerate(singles):
        single.flat.copy_(together.flat[i])
    alone = [optimizers.build(single) for single in singles]
    for step in range(1, 6):
        gradient = gradients_of(together, step)
        for i, (single, its_optimizer) in enumerate(zip(singles, alone, strict=True)):
            its_optimizer.step(gradient[i : i + 1].clone(), count=step, trains=everyone(single))
        ours.step(gradient, count=step, trains=everyone(together))
        for i, single in enumerate(singles):
            assert same_bits(together.flat[i], single.flat[0]), f"member {i}"


@each_optimizer
def test_a_frozen_pe_never_moves(optimizer: str) -> None:
    stack = stack_of(optimizer)
    start, columns, ours = stack.flat.clone(), stack.encoding_columns, optimizers.build(stack)
    for step in range(1, 6):
        ours.step(gradients_of(stack, step), count=step, trains=everyone(stack))
    moved = (stack.flat != start)[:, columns:].any(1).tolist()
    # no rate for the PE; frozen; fixed; clipped to nothing
    assert moved == [True, True, False, True, True, False, False, False, True]


@pytest.mark.parametrize(
    ("fields", "decays"),
    [
        ({}, (False, False)),
        ({"weight_decay": 0.1}, (True, True)),
        ({"weight_decay": 0.1, "pe_weight_decay": 0.0}, (True, False)),
        ({"pe_weight_decay": 0.1}, (False, True)),
    ],
    ids=str,
)
def test_decay_is_skipped_if_no_member_has_it(fields: dict[str, object], decays: tuple[bool, bool]) -> None:
    ours = optimizers.build(stack_of("adam", [fields]))
    assert (ours.decay is not None, ours.pe_decay is not None) == decays


@each_optimizer
def test_units_of_the_gradient_are_reversed(optimizer: str, device: str) -> None:
    """Steps do not depend on the unit, a power of two, with or without clipping."""
    plain, ours = stack_of(optimizer, device=device), stack_of(optimizer, device=device)
    units = 2.0 ** torch.arange(-40, 50, 10, device=device)[: len(SETTINGS)].to(plain.flat)
    first, second = optimizers.build(plain), optimizers.build(ours)
    for step in range(1, 4):
        gradient = gradients_of(plain, step)
        first.step(gradient.clone(), count=step, trains=everyone(plain))
        second.step(gradient / units[:, None], count=step, trains=everyone(ours), inverse_scale=units)
    torch.testing.assert_close(ours.flat, plain.flat, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("learn", [False, True])
def test_a_frozen_pe_does_not_count_in_the_clipping_norm(learn: bool) -> None:
    """The gradient of a trained PE does count (the negative twin)."""
    rest = []
    for factor in (1, 1000):
        stack = stack_of("sgd", [{"learn": learn, "clip": 0.1, "learning_rate": 0.1}])
        gradient = gradients_of(stack, 0)
        gradient[:, stack.encoding_columns :] *= factor
        optimizers.build(stack).step(gradient, count=1, trains=everyone(stack))
        rest.append(stack.flat[:, : stack.encoding_columns])
    assert torch.equal(*rest) == (not learn)


@each_optimizer
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_stops_its_member_alone(optimizer: str, bad: float, device: str) -> None:
    """It keeps its parameters, NaN included, then and later. The others are bit for bit what they would have been."""
    hit, quiet = stack_of(optimizer, device=device), stack_of(optimizer, device=device)
    victim, columns = 1, hit.encoding_columns
    others = [i for i in range(len(SETTINGS)) if i != victim]
    ours, theirs = optimizers.build(hit), optimizers.build(quiet)
    trains = everyone(hit)
    for step in range(1, 8):
        gradient = gradients_of(hit, step)
        theirs.step(gradient.clone(), count=step, trains=everyone(quiet))
        if step == 3:
            gradient[victim, columns // 2] = bad
            hit.flat[victim, 2] = math.nan
        before = hit.flat.clone()
        trains = ours.step(gradient, count=step, trains=trains)
        assert trains.tolist() == [i != victim or step < 3 for i in range(len(SETTINGS))]
        assert same_bits(hit.flat[others], quiet.flat[others])
        assert same_bits(hit.flat[victim], before[victim]) == (step >= 3)


def test_a_frozen_pe_with_bad_gradients_does_not_stop_its_member() -> None:
    stack = stack_of("adam", [{"learn": False}])
    gradient = gradients_of(stack, 1)
    gradient[:, stack.encoding_columns :] = math.nan
    assert optimizers.build(stack).step(gradient, count=1, trains=everyone(stack)).all()
    assert stack.flat.isfinite().all()


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize("epsilon", [0.0, 1e-60])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_epsilon_and_no_gradient_make_no_nan(optimizer: str, epsilon: float, dtype: torch.dtype) -> None:
    """A frozen PE has no gradient at all: 0 / (0 + 0) must not reach it."""
    stack = stack_of(optimizer, [{"learn": False, "epsilon": epsilon}, {"epsilon": epsilon}], dtype)
    start, ours = stack.flat.clone(), optimizers.build(stack)
    for step in range(1, 4):
        gradient = gradients_of(stack, step)
        gradient[1, 0] = 0
        ours.step(gradient, count=step, trains=everyone(stack))
    assert stack.flat.isfinite().all()
    assert stack.flat[1, 0] == start[1, 0]
    assert torch.equal(stack.flat[0, stack.encoding_columns :], start[0, stack.encoding_columns :])


@each_optimizer
def test_single_precision_stays_close_to_double(optimizer: str) -> None:
    single, double = stack_of(optimizer, dtype=torch.float32), stack_of(optimizer)
    double.flat.copy_(single.flat)
    start, ours, exact = double.flat.clone(), optimizers.build(single), optimizers.build(double)
    for step in range(1, STEPS + 1):
        gradient = gradients_of(single, step)
        ours.step(gradient.clone(), count=step, trains=everyone(single))
        exact.step(gradient.double(), count=step, trains=everyone(double))
    way = (double.flat - start).abs().amax(1, keepdim=True)
    assert ((single.flat - double.flat).abs() <= 1e-4 * way + 1e-6).all()
