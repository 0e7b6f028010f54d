"""The training step on a CPU: compiled kernels against torch, the step by hand against automatic differentiation."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from placecode import encodings
from placecode.compute.cpu import kernels as kernels_room
from placecode.compute.cpu import products
from placecode.compute.cpu import step as step_room
from placecode.compute.cpu.kernels import Compiled, Kernels, Parts, kernels_for
from placecode.compute.cpu.step import Step, fits
from placecode.encodings.additive import Learned
from placecode.models.encoder import Stack
from placecode.models.member import OPTIMIZERS, Member
from placecode.training.trainer import Trainer, stack_for


@pytest.fixture
def compiled() -> Compiled:
    found = kernels_for(torch.zeros(1))
    if not isinstance(found, Compiled):
        pytest.skip("needs a C++ compiler, and there is none")
    return found


def close(ours: Tensor, plain: Tensor, exact: Tensor) -> bool:
    """Whether our error is at most twice that of the plain way, both in float32; a rounding of the result is free."""
    rounding = torch.finfo(torch.float32).eps * exact.norm()
    return bool((ours - exact).norm() <= 2 * (plain - exact).norm() + 2 * rounding)


# ---- kernels --------------------------------------------------------------------------------------------------------


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * seed + sum(shape)))


def blank(*shape: int) -> Tensor:
    return torch.full(shape, torch.nan)


def results(kernels: Kernels, dtype: torch.dtype, name: str, arguments: tuple[Tensor | bool, ...]) -> list[Tensor]:
    """All arrays after a call, those that it changed among them."""
    arrays = [a.to(dtype, copy=True) if isinstance(a, Tensor) else a for a in arguments]
    getattr(kernels, name)(*arrays)
    return [array for array in arrays if isinstance(array, Tensor)]


def check(compiled: Compiled, name: str, *arguments: Tensor | bool) -> list[Tensor]:
    """The compiled kernel does as torch does. Returns torch's arrays, for the backward kernel."""
    plain = results(Kernels(), torch.float32, name, arguments)
    exact = results(Kernels(), torch.float64, name, arguments)
    for ours, theirs, true in zip(results(compiled, torch.float32, name, arguments), plain, exact, strict=True):
        assert close(ours.nan_to_num(), theirs.nan_to_num(), true.nan_to_num()), name
    return plain


@pytest.mark.parametrize(("e", "rows", "d"), [(1, 70, 5), (3, 33, 16), (2, 8, 47), (2, 1, 4)])
def test_compiled_rows(compiled: Compiled, e: int, rows: int, d: int) -> None:
    x, branch, dy = (3 * draw(e, rows, d, seed=seed) for seed in range(3))
    bias, scale, shift = (draw(e, d, seed=seed) for seed in range(3))
    check(compiled, "gelu", blank(e, rows, d), x, bias)
    check(compiled, "gelu_back", x, dy, bias, blank(e, d))
    for gelu in (False, True):
        room = blank(e, rows, d), blank(e, rows, d), blank(e, rows)
        _, unit, inverse, *_ = check(compiled, "norm", *room, x, branch, bias, scale, shift, gelu)
        sums = blank(e, d), blank(e, d), blank(e, d)
        check(compiled, "norm_back", blank(e, rows, d), branch, dy, unit, inverse, bias, scale, *sums, gelu)


def attention(
    kernels: Kernels, dtype: torch.dtype, sizes: tuple[int, ...], folded: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Means and weights; and the gradients of queries, keys and values. Folded, the keys are tokens of their own, and
    their gradient takes the place of the means'."""
    e, b, n, h, c = sizes
    projected, x, bias = draw(e, b * n, (2 if folded else 3) * h * c), draw(e, b * n, h * c), draw(e, h * c)
    projected, x, bias = projected.to(dtype), x.to(dtype), bias.to(dtype)
    mixed, weights = blank(e, b * n, h * c).to(dtype), torch.zeros(e, b, h, n, -(-n // 16) * 16, dtype=dtype)
    dprojected, dmixed = torch.full_like(projected, torch.nan), draw(e, b * n, h * c, seed=2).to(dtype)

    def parts(array: Tensor, keys: Tensor) -> Parts:
        first, *between, last = array.split(h * c, -1)
        return first, keys if folded else between[0], last

    into = parts(dprojected, dmixed)
    kernels.attend(mixed, weights, parts(projected, x), bias)
    kernels.attend_back(into, dmixed, weights, parts(projected, x), bias, folded)
    return [mixed, weights[..., :n]], list(into)


@pytest.mark.parametrize("n", [1, 6, 16, 25, 36, 49, 64, 100])
@pytest.mark.parametrize(("e", "b", "h", "c"), [(2, 3, 1, 20), (1, 2, 5, 3)])
def test_compiled_attention(compiled: Compiled, n: int, e: int, b: int, h: int, c: int) -> None:
    d = h * c
    for folded in (False, True):
        sizes = (e, b, n, h, c)
        ours, plain = (attention(kernels, torch.float32, sizes, folded) for kernels in (compiled, Kernels()))
        exact = attention(Kernels(), torch.float64, sizes, folded)
        for one, true in zip(ours[0], exact[0], strict=True):
            torch.testing.assert_close(one.double(), true, rtol=0, atol=1e-5)
        assert all(close(*three) for three in zip(ours[1], plain[1], exact[1], strict=True))
    x, query, dseen = draw(e, b, n, d), draw(e, h, b, d), draw(e, h, b, d, seed=1)
    _, weights, *_ = check(compiled, "look", blank(e, h, b, d), blank(e, b, h, n), query, x)
    check(compiled, "look_back", blank(e, b, n, d), blank(e, h, b, d), dseen, weights, query, x)


def test_compiled_kernels_pass_on_what_is_not_a_number(compiled: Compiled) -> None:
    """Else a member that diverges would go unnoticed."""
    for bad in (torch.nan, torch.inf):
        x, bias = torch.zeros(1, 2, 4), torch.zeros(1, 4)
        x[0, 1, 2] = bad
        y, dy = blank(1, 2, 4), torch.ones(1, 2, 4)
        compiled.gelu(y, x, bias)
        assert y[0, 0].isfinite().all() and not y[0, 1, 2].isfinite()
        compiled.norm(y, y.clone(), blank(1, 2), x, dy, bias, bias, bias, False)
        assert y[0, 0].isfinite().all() and not y[0, 1].isfinite().any()
        mixed, keys = blank(1, 2, 4), torch.zeros(1, 2, 4)
        keys[0, 0, 1] = bad
        compiled.attend(mixed, blank(1, 1, 1, 2, 16), (torch.ones(1, 2, 4), keys, torch.zeros(1, 2, 4)), bias)
        assert not mixed.isfinite().any()


def test_gelu_far_out(compiled: Compiled) -> None:
    x, y = torch.tensor([[[-1e30, -50.0, -6.0, 0.0, 6.0, 50.0, 1e30]]]), blank(1, 1, 7)
    compiled.gelu(y, x, torch.zeros(1, 7))
    torch.testing.assert_close(y, x.clamp(min=0), rtol=1e-6, atol=1e-6)


def test_the_number_of_threads_changes_no_bit_of_a_kernel(compiled: Compiled) -> None:
    x, dy, bias = draw(3, 500, 40), draw(3, 500, 40, seed=1), draw(3, 40)
    runs, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            runs.append(results(compiled, torch.float32, "gelu_back", (x, dy, bias, blank(3, 40))))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for run in runs[1:] for one, other in zip(runs[0], run, strict=True))


# ---- where there is no compiler -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lacking", ["compiler", "room", "skill"])
def test_without_compiled_kernels_torch_does_it(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_task
) -> None:
    monkeypatch.setattr(kernels_room, "_compiled", kernels_room._compiled.__wrapped__)
    if lacking == "compiler":
        monkeypatch.setenv("CXX", "no-such-compiler")
    elif lacking == "room":
        (tmp_path / "file").touch()
        monkeypatch.setenv("PLACECODE_CACHE", str(tmp_path / "file" / "folder"))
    else:
        monkeypatch.setattr(kernels_room, "FLAGS", ("--no-such-flag",))
    assert kernels_for(torch.zeros(1)).name == "torch"
    task = make_task()
    trainer = Trainer(stack_for([small()], task), task, steps=3)
    first = trainer.update()
    assert trainer.update().isfinite().all() and first.isfinite().all()


def test_compiled_kernels_are_kept(compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACECODE_CACHE", str(tmp_path))
    load = kernels_room._compiled.__wrapped__
    assert isinstance(load(), Compiled)
    (kept,) = tmp_path.iterdir()
    before = kept.stat().st_mtime_ns
    assert isinstance(load(), Compiled) and kept.stat().st_mtime_ns == before


# ---- the step -------------------------------------------------------------------------------------------------------


def small(**fields: object) -> Member:
    return Member(**{"width": 12, "layers": 3, "heads": 3, "sigma": 0.5, "expansion": 2, "batch": 9, **fields})


def shaken(stack: Stack) -> Stack:
    """The stack with other weights than at the start, so that biases and norms matter too."""
    generator = torch.Generator().manual_seed(1)
    for view in stack.views(stack.flat):
        view += 0.2 * torch.randn(view.shape, generator=generator, dtype=torch.float64).to(view)
    return stack


def by_hand(stack: Stack, inputs: Tensor, targets: Tensor, task) -> tuple[Tensor, Tensor]:
    gradient = torch.full_like(stack.flat, torch.nan)
    return Step(stack, gradient)(inputs, targets, task.loss), gradient


def typically_close(ours: Tensor, plain: Tensor, exact: Tensor) -> bool:
    """`close` for arrays (e, ...), of the median member: one that wavers between two tokens errs by luck."""
    size = exact.flatten(1).norm(dim=1).clamp(min=1e-30)
    one, other = (((array - exact).flatten(1).norm(dim=1) / size).median() for array in (ours, plain))
    return bool(one <= 2 * other + 2 * torch.finfo(torch.float32).eps)


def derived(stack: Stack, inputs: Tensor, targets: Tensor, task) -> tuple[Tensor, Tensor]:
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
    {"heads": 1, "batch": 1},  # fewer tokens than folding is worth
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
    """Losses and gradients of every member, in float64, to 1e-12: all at once, and member by member."""
    if not together:
        monkeypatch.setattr(step_room, "GROUP_VALUES", 1)
    task = make_task(readout=readout).to("cpu", torch.float64)
    kinds = ("learned", "none", "sinusoid", "random")
    members = [small(encoding=kind, seed=i, gain=(1.0, 0.3, 2.0, 0.01)[i], **spec) for i, kind in enumerate(kinds)]
    stack = stack_for(members, task, "cpu", torch.float64)
    assert fits(shaken(stack))
    rows = torch.arange(stack.members[0].batch).expand(4, -1) + torch.arange(4)[:, None]
    inputs, targets = task.batch("train", rows)
    losses, gradient = by_hand(stack, inputs, targets, task)
    expected, reference = derived(stack, inputs, targets, task)
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
    """Loss and every parameter's gradient, by norm: at most twice as far from float64."""
    if kernels == "torch":
        monkeypatch.setattr(step_room, "kernels_for", lambda array: Kernels())
    task = make_task(rows, columns, readout)
    stack = shaken(stack_for([small(seed=seed, width=30, heads=heads, sigma=1.0) for seed in range(8)], task))
    exact = copy.deepcopy(stack).double()
    inputs, targets = task.to("cpu").batch("train", (torch.arange(72) % 22).view(8, 9))
    ours, plain = by_hand(stack, inputs, targets, task), derived(stack, inputs, targets, task)
    if targets.is_floating_point():
        targets = targets.double()
    true = derived(exact, inputs.double(), targets, task)
    assert typically_close(ours[0][:, None], plain[0][:, None], true[0][:, None])
    names = [name for name, _ in stack.named_parameters()]
    for name, *three in zip(names, *(stack.views(gradient) for gradient in (ours[1], plain[1], true[1])), strict=True):
        assert typically_close(*three), name


@pytest.mark.parametrize("multiplies", [True, False])
@pytest.mark.parametrize("heads", [1, 3])
def test_bf16_errs_as_autocast_does(multiplies: bool, heads: int, make_task, monkeypatch: pytest.MonkeyPatch) -> None:
    """By norm over all parameters, not further from float64 than torch's own mixed precision; but further than float32.

    A processor that cannot multiply bf16 gets the same numbers to the rounding of its products.
    """
    monkeypatch.setattr(products, "MULTIPLIES_BF16", multiplies)
    task = make_task(4, 4)
    stack = shaken(stack_for([small(seed=seed, width=30, heads=heads, sigma=1.0) for seed in range(8)], task))
    inputs, targets = task.to("cpu").batch("train", (torch.arange(72) % 22).view(8, 9))
    _, exact = derived(copy.deepcopy(stack).double(), inputs.double(), targets, task)
    _, single = by_hand(stack, inputs, targets, task)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        losses, ours = by_hand(stack, inputs, targets, task)
        _, theirs = derived(stack, inputs, targets, task)
    assert losses.dtype == ours.dtype == torch.float32
    assert (ours - exact).norm() <= 1.5 * (theirs - exact).norm()
    assert (ours - exact).norm() > 100 * (single - exact).norm()


AUTHORS = [("relative", {"causal": True}), ("rotary", {"fraction": 0.5}), ("causal-none", {"temperature": 0.3})]
"""Encodings with the options of the authors' code, except that bf16 is all luck at their temperature of 0.01."""


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in encodings.names()), *AUTHORS], ids=str)
@pytest.mark.parametrize("placement", ["every", "input"])
@pytest.mark.parametrize("readout", ["last", "token"])
def test_every_encoding(name: str, options: dict[str, object], placement: str, readout: str, make_task) -> None:
    """In float64 to 1e-12; in float32 and bf16 no worse than automatic differentiation."""
    task = make_task(readout=readout)
    given = {"encoding": name, "options": options, "placement": placement, "width": 24}
    members = [small(**given, seed=seed) for seed in range(8)]
    single, double = shaken(stack_for(members, task)), stack_for(members, task, "cpu", torch.float64)
    double.flat.copy_(single.flat)
    assert fits(single)
    rows = (torch.arange(72) % 22).view(8, 9)
    inputs, targets = task.to("cpu", torch.float64).batch("train", rows)
    exact = derived(double, inputs, targets, task)
    for ours, true in zip(by_hand(double, inputs, targets, task), exact, strict=True):
        torch.testing.assert_close(ours, true, rtol=0, atol=1e-12)
    inputs, targets = task.to("cpu").batch("train", rows)
    ours, plain = by_hand(single, inputs, targets, task), derived(single, inputs, targets, task)
    assert all(typically_close(*(each.view(8, -1) for each in three)) for three in zip(ours, plain, exact, strict=True))
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        (_, ours), (_, plain) = by_hand(single, inputs, targets, task), derived(single, inputs, targets, task)
    assert (ours - exact[1]).norm() <= 1.5 * (plain - exact[1]).norm()


@pytest.mark.parametrize(("name", "options"), [("learned", {}), ("rotary", {}), *AUTHORS], ids=str)
def test_a_key_bias_counts_for_nothing(name: str, options: dict[str, object], tiny_task) -> None:
    """All keys of a query share what it adds, unless they are turned: its gradient is zero, and no rounding error."""
    stack = shaken(stack_for([small(encoding=name, options=options)], tiny_task))
    _, gradient = by_hand(stack, *tiny_task.to("cpu").batch("train", torch.arange(9)[None]), tiny_task)
    places = dict(zip(map(id, stack.ordered), stack.views(gradient), strict=True))
    for block in stack.blocks:
        query, key, value = places[id(block.attention.projection.bias)].chunk(3, 1)
        assert key.abs().max() > 1e-5 if name == "rotary" else (key == 0).all()
        assert query.abs().max() > 1e-5 and value.abs().max() > 1e-5


@pytest.mark.parametrize(("heads", "batch", "folded"), [(1, 9, [1, 1, 0]), (1, 3, [0, 0, 0]), (2, 9, [0, 0, 0])])
def test_a_single_head_is_folded_where_that_pays(heads: int, batch: int, folded: list[int], tiny_task) -> None:
    """Not with few tokens, of which there are 6 an example, nor in a block that computes one of them alone."""
    stack = stack_for([small(heads=heads)], tiny_task)
    step = Step(stack, torch.empty_like(stack.flat))
    step(*tiny_task.to("cpu").batch("train", torch.arange(batch)[None]), tiny_task.loss)
    assert [block.folded for block in step._groups[0, batch].blocks] == folded


def test_models_that_the_step_does_not_know_are_left_alone(tiny_task) -> None:
    assert fits(stack_for([small(learn=False, placement="input")], tiny_task))
    assert not fits(stack_for([small(norm="pre")], tiny_task))
    assert not fits(stack_for([small(dropout=0.1)], tiny_task))


def test_an_encoding_that_changes_the_input_in_its_own_way_is_left_alone(
    tiny_task, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Doubled(encodings.Encoding):
        def add(self, x: Tensor, block: int) -> Tensor:
            return 2 * x

    class Louder(Learned):
        def add(self, x: Tensor, block: int) -> Tensor:
            return super().add(x, block) * 2

    monkeypatch.setitem(encodings._REGISTRY, "doubled", Doubled)
    monkeypatch.setitem(encodings._REGISTRY, "louder", Louder)
    for name in ("doubled", "louder"):
        assert not fits(stack_for([small(encoding=name)], tiny_task))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_goes_the_same_way(optimizer: str, tiny_task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty steps by hand, the smaller batch of an epoch among them, and twenty by automatic differentiation."""
    given = {"optimizer": optimizer, "learning_rate": 0.01, "weight_decay": 0.01, "pe_weight_decay": 0.1}
    members = [small(seed=seed, gain=(1.0, 0.3, 3.0)[seed], **given) for seed in range(3)]
    ours = Trainer(stack_for(members, tiny_task, "cpu", torch.float64), tiny_task, steps=20)
    plain = Trainer(stack_for(members, tiny_task, "cpu", torch.float64), tiny_task, steps=20)
    assert ours.running.by_hand is not None
    plain.running.by_hand = None
    x = tiny_task.splits["test"].inputs.expand(3, -1, -1, -1)
    start = ours.stack(x)
    for _ in range(20):
        torch.testing.assert_close(ours.update(), plain.update(), rtol=0, atol=1e-6)
    torch.testing.assert_close(ours.stack(x), plain.stack(x), rtol=0, atol=1e-6)
    assert (ours.stack(x) - start).abs().max() > 1e-2


def test_arrays_of_a_larger_batch_come_later(tiny_task) -> None:
    """Resuming may begin with an epoch's last, smaller batch."""
    stack = shaken(stack_for([small()], tiny_task))
    step = Step(stack, torch.empty_like(stack.flat))
    task = tiny_task.to("cpu")
    for count in (4, 9, 4):
        inputs, targets = task.batch("train", torch.arange(count)[None])
        step(inputs, targets, task.loss)
        _, reference = derived(stack, inputs, targets, task)
        torch.testing.assert_close(step.gradient, reference, rtol=1e-4, atol=1e-5)


def test_compiled_adam_is_torchs(compiled: Compiled) -> None:
    columns, own = 40_001, 40_000
    flat, gradient = draw(2, columns), draw(2, columns, seed=1)
    parameters = [flat[i].double().requires_grad_() for i in range(2)]
    rates = [(0.01, 0.01), (0.1, 0.1)]
    theirs = [torch.optim.Adam([p], lr=rate) for p, (rate, _) in zip(parameters, rates, strict=True)]
    first, second = torch.zeros_like(flat), torch.zeros_like(flat)
    start = flat.clone()
    for t in range(1, 4):
        for parameter, g, optimizer in zip(parameters, gradient, theirs, strict=True):
            parameter.grad = g.double()
            optimizer.step()
        fixed = [0.9, 0.999, 1 - 0.9**t, (1 - 0.999**t) ** 0.5, 1e-8]
        settings = torch.tensor([[*fixed, rate, 0.0] for rate, _ in rates])
        compiled.adam(flat, gradient, first, second, settings, own)
        gradient = gradient.roll(1, 1)
    expected = torch.stack([p.detach() for p in parameters])
    np.testing.assert_allclose(flat[:, :own], expected[:, :own], atol=1e-5)
    assert torch.equal(flat[:, own:], start[:, own:])  # a rate of its own: here zero
