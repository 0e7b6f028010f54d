"""Precision "high" on a GPU: products use float16, which has the bits of TF32, and gradients are scaled by units."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("triton", reason="the kernels need Triton")

from helpers.training.both_ways import errors_of, inputs_of, losses_of, outcome, stack_of

from placecode import encodings
from placecode.compute.gpu import kernels
from placecode.compute.gpu.functions import ScaleGradients
from placecode.compute.gpu.kernels import attention, rows
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.training.trainer import Trainer, stack_for

pytestmark = pytest.mark.usefixtures("float16_products")

DRAWS = 48 if torch.cuda.is_available() else 12


class Rounded(TorchDispatchMode):
    """Emulate TF32 on a CPU: round the inputs of products to ten bits after the leading one."""

    PRODUCTS = (torch.ops.aten.bmm, torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.baddbmm)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in self.PRODUCTS:
            factors = len(args) - 2
            args = (*args[:factors], *(self.rounded(factor) for factor in args[factors:]))
        return func(*args, **(kwargs or {}))

    @staticmethod
    def rounded(x: Tensor) -> Tensor:
        mantissa, exponent = torch.frexp(x)
        return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)


@pytest.fixture
def float16_products(exact_products: None) -> None:
    """Set precision "high". The fixture `exact_products` restores the setting."""
    torch.set_float32_matmul_precision("high")


def in_units(stack: Stack, x: Tensor, factor: float = 1.0) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Return `outcome` from gradients that `ScaleGradients` scaled, these gradients, and the units that reverse it."""
    stack.inverse_scale = torch.full((len(stack.members),), torch.nan, device=x.device)
    stack.sink = gradient = torch.full_like(stack.flat, torch.nan)
    losses = factor * losses_of(stack, x, step=0)
    stack.gradients(losses.sum(), out=gradient)
    unit = stack.inverse_scale
    stack.sink = stack.inverse_scale = None
    names = {id(p): name for name, p in stack.named_parameters()}
    views = zip(stack.ordered, stack.views(gradient * unit[:, None]), strict=True)
    return {"loss": losses.detach(), **{names[id(p)]: view for p, view in views}}, gradient, unit


def fast_and_exact(device: str, **fields: Any) -> tuple[Stack, Stack]:
    stack, exact = stack_of(device, **fields), stack_of(device, **fields, fast=False, dtype=torch.float64)
    exact.flat.copy_(stack.flat)
    return stack, exact


SHAPES = [
    {"heads": 1},
    {"heads": 1, "readout": "token", "width": 7},
    {"heads": 2, "readout": "mean"},
    {"heads": 2},
    {"heads": 1, "dropout": 0.3, "readout": "token"},
    {"heads": 1, "placement": "input", "features": 19},
    {"encoding": "rotary", "readout": "token"},
    {"encoding": "alibi", "heads": 2, "readout": "mean"},
    {"layers": 1, "readout": "token"},
]


@pytest.mark.parametrize("fields", SHAPES, ids=str)
def test_errors_are_those_of_tf32(fields: dict[str, Any], kernel_device) -> None:
    """Over many draws, the error is at most 1.5 times that of the reference implementation with TF32.

    The reference is computed on a CPU, because a GPU's library may multiply such small matrices in another way.
    """
    fast = stack_of(kernel_device, **fields)
    plain, exact = (stack_of("cpu", **fields, fast=False, dtype=dtype) for dtype in (torch.float32, torch.float64))
    for reference in (plain, exact):
        reference.flat.copy_(fast.flat)
    errors: dict[str, list[dict[str, float]]] = {"fast": [], "plain": []}
    for seed in range(DRAWS):
        x = inputs_of(plain, 4, seed)
        expected = outcome(exact, x.double(), step=0)
        with Rounded():
            errors["plain"].append(errors_of(outcome(plain, x, step=0), expected))
        if kernel_device == "cuda" or seed < 2:  # the interpreter is slow
            actual, _, _ = in_units(fast, x.to(kernel_device))
            errors["fast"].append(errors_of({name: value.cpu() for name, value in actual.items()}, expected))
    pooled = {
        implementation: {name: sum(draw[name] ** 2 for draw in draws) / len(draws) for name in draws[0]}
        for implementation, draws in errors.items()
    }
    ratio, floor = (1.5, 1e-4) if kernel_device == "cuda" else (2.5, 2e-4)
    worse = {
        name: (pooled["fast"][name] ** 0.5, pooled["plain"][name] ** 0.5)
        for name in expected
        if not pooled["fast"][name] ** 0.5 <= ratio * pooled["plain"][name] ** 0.5 + floor
    }
    assert max(pooled["fast"].values()) > 1e-10  # products are really rounded
    assert not worse


@pytest.mark.parametrize("heads", [1, 2])
def test_gradients_do_not_depend_on_the_scale_of_the_loss(heads: int, kernel_device) -> None:
    """Gradients have the same bits, in other units."""
    stack = stack_of(kernel_device, heads=heads, readout="token")
    x = inputs_of(stack)
    _, gradient, unit = in_units(stack, x)
    assert gradient.isfinite().all()
    for power in (-60, 60):
        _, scaled, scaled_unit = in_units(stack, x, 2.0**power)
        assert torch.equal(gradient, scaled), power
        assert torch.equal(scaled_unit, unit * 2.0**power), power


@pytest.mark.parametrize("readout", ["last", "token"])
def test_gradients_do_not_depend_on_the_gain(readout: str, kernel_device) -> None:
    """With a loss that is linear in the outputs, gains that are powers of two change the units only."""
    results = []
    for gains in ((1.0, 1.0), (2.0**-7, 2.0**7)):
        stack = stack_of(kernel_device, readout=readout, gains=gains)
        stack.inverse_scale = torch.full((2,), torch.nan, device=kernel_device)
        stack.sink = gradient = torch.full_like(stack.flat, torch.nan)
        stack.gradients(stack(inputs_of(stack), step=0).sum(), out=gradient)
        results.append((gradient, stack.inverse_scale))
    (plain, unit), (scaled, scaled_unit) = results
    assert torch.equal(scaled, plain) and plain.isfinite().all()
    assert torch.equal(scaled_unit, unit * torch.tensor(gains, device=kernel_device))


def test_units_are_powers_of_two_that_scale_the_largest_gradient(kernel_device) -> None:
    unit = torch.zeros(5, device=kernel_device)
    outputs = torch.zeros(5, 2, 3, device=kernel_device, requires_grad=True)
    grad = torch.zeros(5, 2, 3, device=kernel_device)
    grad[0, 0, 0], grad[1, 1, 2], grad[2, 0, 1], grad[3, 0, 0], grad[4, 0, 1] = 3.0, -1e-30, 1e38, torch.nan, 0.0
    (scaled,) = torch.autograd.grad(ScaleGradients.apply(outputs, unit), outputs, grad)
    peaks = scaled.abs().flatten(1).amax(1)
    assert (
        (peaks[:3] < 2**ScaleGradients.PEAK_EXPONENT) & (peaks[:3] >= 2 ** (ScaleGradients.PEAK_EXPONENT - 1))
    ).all()
    torch.testing.assert_close(scaled[:3] * unit[:3, None, None], grad[:3], rtol=0, atol=0)
    assert (torch.frexp(unit)[0] == 0.5).all()
    assert peaks[3].isnan() and unit[3] == 1 and peaks[4] == 0 and unit[4] == 1


def test_gradients_outside_of_training_are_not_scaled(kernel_device) -> None:
    stack, exact = fast_and_exact(kernel_device)
    x = inputs_of(stack)
    errors = errors_of(outcome(stack, x), outcome(exact, x.double()))
    assert max(errors.values()) < 5e-3


def test_evaluation_uses_the_same_products(kernel_device) -> None:
    stack = stack_of(kernel_device, readout="token")
    x = inputs_of(stack)
    with torch.no_grad():
        evaluated = stack(x)
    stack.inverse_scale = torch.ones(2, device=kernel_device)
    assert torch.equal(evaluated, stack(x).detach())
    stack.inverse_scale = None
    assert not torch.equal(evaluated, stack(x).detach())  # TF32 on a GPU; on a CPU products of all bits


def trainer_of(task: Any, device: str, members: int = 3, **fields: Any) -> Trainer:
    shape = {"width": 6, "layers": 2, "batch": 2, "expansion": 2, "learning_rate": 3e-3, "sigma": 0.2, **fields}
    return Trainer(stack_for([Member(seed=seed, **shape) for seed in range(members)], task, device, fast=True), task, 8)


@pytest.mark.parametrize("fields", [{"heads": 1, "clip": 0.05}, {"heads": 2, "optimizer": "sgd"}], ids=str)
def test_training_ends_close_to_exact_training(fields: dict[str, Any], kernel_device, tiny_task) -> None:
    """The difference is small relative to the steps. Clipping uses the norms of unscaled gradients."""
    ends: dict[str, Tensor] = {}
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        trainer = trainer_of(tiny_task, kernel_device, 2, **fields)
        start = trainer.stack.flat.clone()
        for _ in range(2):
            trainer.update()
        assert trainer.outcome()["alive"].all()
        ends[precision] = trainer.stack.flat - start
    gap = (ends["high"] - ends["highest"]).norm() / ends["highest"].norm()
    assert 0 < gap < 0.05


@pytest.mark.parametrize("precision", ["tf32", "highest"])
def test_other_precisions_use_neither_units_nor_float16(precision: str, kernel_device, tiny_task, monkeypatch) -> None:
    """Float16 would overflow with such large numbers."""
    monkeypatch.setattr(kernels, "_float16_allowed", precision != "tf32")
    torch.set_float32_matmul_precision("highest" if precision == "highest" else "high")
    trainer = trainer_of(tiny_task, kernel_device, 1)
    trainer.stack.blocks[0].norm_1.scale.data[0] = 1e6
    assert trainer.update().isfinite().all() and trainer.outcome()["alive"].all()
    assert trainer.active.inverse_scale.tolist() == [1.0]


def test_units_are_reset_in_every_step(kernel_device, tiny_task, monkeypatch) -> None:
    """They are also reset if training continues with another precision, or after an error."""
    trainer = trainer_of(tiny_task, kernel_device, 1)
    trainer.update()
    assert trainer.active.inverse_scale.item() != 1
    torch.set_float32_matmul_precision("highest")
    trainer.update()
    assert trainer.active.inverse_scale.item() == 1
    torch.set_float32_matmul_precision("high")
    trainer = trainer_of(tiny_task, kernel_device, 1)
    monkeypatch.setattr(type(trainer.task), "loss", lambda task, outputs, targets: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trainer.update()
    assert trainer.stack.inverse_scale is None and trainer.stack.sink is None


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # infinity on purpose
def test_overflow_in_float16_stops_only_that_member(kernel_device, tiny_task) -> None:
    quiet, overflowing = (trainer_of(tiny_task, kernel_device) for _ in range(2))
    overflowing.stack.blocks[0].norm_1.scale.data[1] = 1e6
    for trainer in (quiet, overflowing):
        for _ in range(2):
            trainer.update()
    assert (
        overflowing.outcome()["alive"].tolist() == [True, False, True] and overflowing.outcome()["diverged_at"][1] == 1
    )
    assert torch.equal(overflowing.stack.flat[[0, 2]], quiet.stack.flat[[0, 2]])


@pytest.mark.parametrize("fields", [{"heads": 1}, {"heads": 2, "readout": "token"}], ids=str)
def test_long_sequences(fields: dict[str, Any], kernel_device, small_tiles, monkeypatch) -> None:
    monkeypatch.setattr(attention, "MAX_TILE_TOKENS", 4)
    stack, exact = fast_and_exact(kernel_device, tokens=21, members=1, **fields)
    x = inputs_of(stack, 1)
    errors = errors_of(in_units(stack, x)[0], outcome(exact, x.double(), step=0))
    assert 1e-5 < max(errors.values()) < 5e-3


class Turned(encodings.Encoding):
    """An encoding that adds nothing but returns another memory layout."""

    def add(self, x: Tensor, block: int) -> Tensor:
        return x.transpose(1, 2).contiguous().transpose(1, 2) if block else x.mT.contiguous().mT


class Larger(encodings.Encoding):
    """An encoding that changes the input after its float16 copy would have been made."""

    def add(self, x: Tensor, block: int) -> Tensor:
        return 1.5 * x


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("kind", [Turned, Larger])
def test_user_defined_encodings(kind: type[encodings.Encoding], heads: int, kernel_device, monkeypatch) -> None:
    monkeypatch.setattr(encodings, "_REGISTRY", {**encodings._REGISTRY, "custom": kind})
    stack, exact = fast_and_exact(kernel_device, encoding="custom", heads=heads, readout="token")
    x = inputs_of(stack)
    errors = errors_of(in_units(stack, x)[0], outcome(exact, x.double(), step=0))
    assert 1e-5 < max(errors.values()) < 3e-3


def test_gradients_may_be_several_hundred_times_as_large_as_at_the_outputs(kernel_device) -> None:
    stack, exact = fast_and_exact(kernel_device, readout="token")
    for model in (stack, exact):
        model.answer.weight.data *= 400
    x = inputs_of(stack)
    errors = errors_of(in_units(stack, x)[0], outcome(exact, x.double(), step=0))
    assert max(errors.values()) < 3e-3


@pytest.mark.parametrize(
    ("fields", "uses_float16"),
    [
        ({"sigma": 2.0, "layers": 4}, True),
        ({"sigma": 9.0, "layers": 4}, False),
        ({"sigma": 9.0, "layers": 2}, True),
        ({"sigma": 2.0, "layers": 12}, False),
        ({"sigma": 9.0, "layers": 12, "placement": "input"}, True),
        ({"sigma": 1e5, "layers": 1}, False),
        ({"sigma": 1e30, "layers": 12}, False),
        ({"encoding": "rotary", "layers": 12}, True),
        ({"sigma": 0.2, "layers": 4, "weight_decay": 0.1, "optimizer": "adamw"}, True),
        ({"sigma": 0.2, "layers": 4, "weight_decay": 1.0, "optimizer": "adamw"}, False),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # sigma is unrealistically large
def test_large_pes_and_strong_decay_use_tf32(fields: dict[str, Any], uses_float16: bool, kernel_device) -> None:
    """Each norm divides gradients by the size of its input, so they would become too small for float16."""
    stack = stack_of(kernel_device, **fields, width=8)
    assert stack.allows_float16 == uses_float16
    if not uses_float16 and fields["layers"] == 4:
        stack.inverse_scale = torch.full((2,), torch.nan, device=kernel_device)
        stack(inputs_of(stack, 1)).sum().backward()
        assert stack.inverse_scale.isnan().all()  # gradients were not scaled


@pytest.mark.parametrize("mistake", ["unit", "half"])
def test_mistakes_are_detected(mistake: str, kernel_device, monkeypatch) -> None:
    """The mistakes are a unit that is not reversed, or a wrong float16 copy."""
    stack, exact = fast_and_exact(kernel_device)
    x = inputs_of(stack)
    norm = rows.norm

    def wrong_norm(*arguments: Any) -> tuple[Tensor | None, ...]:
        out, half, *rest = norm(*arguments)
        return out, None if half is None else half * 1.02, *rest

    if mistake == "half":
        monkeypatch.setattr(rows, "norm", wrong_norm)
    outcomes, gradient, _ = in_units(stack, x)
    if mistake == "unit":
        names = {id(p): name for name, p in stack.named_parameters()}
        outcomes |= {names[id(p)]: v for p, v in zip(stack.ordered, stack.views(gradient), strict=True)}
    assert max(errors_of(outcomes, outcome(exact, x.double(), step=0)).values()) > 5e-3
