"""CompiledKernels kernels of the training step on a CPU against torch, and against float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from placecode.compute.cpu import kernels
from placecode.compute.cpu.kernels import CompiledKernels, Kernels, Parts, kernels_for
from placecode.models.member import Member
from placecode.training.trainer import Trainer, stack_for


@pytest.fixture
def compiled() -> CompiledKernels:
    fastest = kernels_for(torch.zeros(1))
    if not isinstance(fastest, CompiledKernels):
        pytest.skip("needs a C++ compiler, and there is none")
    return fastest


def close(actual: Tensor, plain: Tensor, exact: Tensor) -> bool:
    """Return whether the error of a compiled kernel is at most twice that of torch, up to rounding."""
    rounding = torch.finfo(torch.float32).eps * exact.norm()
    return bool((actual - exact).norm() <= 2 * (plain - exact).norm() + 2 * rounding)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * seed + sum(shape)))


def blank(*shape: int) -> Tensor:
    return torch.full(shape, torch.nan)


def results(
    implementation: Kernels, dtype: torch.dtype, name: str, arguments: tuple[Tensor | bool, ...]
) -> list[Tensor]:
    """Return all arrays after a call of the kernel `name`, including those that it changed."""
    arrays = [a.to(dtype, copy=True) if isinstance(a, Tensor) else a for a in arguments]
    getattr(implementation, name)(*arrays)
    return [array for array in arrays if isinstance(array, Tensor)]


def check(compiled: CompiledKernels, name: str, *arguments: Tensor | bool) -> list[Tensor]:
    """Compare a compiled kernel with torch. Return torch's arrays, for the backward kernel."""
    plain = results(Kernels(), torch.float32, name, arguments)
    exact = results(Kernels(), torch.float64, name, arguments)
    actual = results(compiled, torch.float32, name, arguments)
    for arrays in zip(actual, plain, exact, strict=True):
        assert close(*(array.nan_to_num() for array in arrays)), name
    return plain


@pytest.mark.parametrize(("e", "rows", "d"), [(1, 70, 5), (3, 33, 16), (2, 8, 47), (2, 1, 4)])
def test_compiled_rows(compiled: CompiledKernels, e: int, rows: int, d: int) -> None:
    x, branch, dy = (3 * draw(e, rows, d, seed=seed) for seed in range(3))
    bias, scale, shift = (draw(e, d, seed=seed) for seed in range(3))
    check(compiled, "gelu", blank(e, rows, d), x, bias)
    check(compiled, "gelu_backward", x, dy, bias, blank(e, d))
    for gelu in (False, True):
        room = blank(e, rows, d), blank(e, rows, d), blank(e, rows)
        _, unit, inverse, *_ = check(compiled, "norm", *room, x, branch, bias, scale, shift, gelu)
        sums = blank(e, d), blank(e, d), blank(e, d)
        check(compiled, "norm_backward", blank(e, rows, d), branch, dy, unit, inverse, bias, scale, *sums, gelu)


def attention(
    kernels: Kernels, dtype: torch.dtype, sizes: tuple[int, ...], folded: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Return means and weights, and the gradients of queries, keys and values.

    If `folded` is true, the keys are the tokens, and their gradient is stored in the memory of that of the means.
    """
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
    kernels.attend_backward(into, dmixed, weights, parts(projected, x), bias, folded)
    return [mixed, weights[..., :n]], list(into)


@pytest.mark.parametrize("n", [1, 6, 16, 25, 36, 49, 64, 100])
@pytest.mark.parametrize(("e", "b", "h", "c"), [(2, 3, 1, 20), (1, 2, 5, 3)])
def test_compiled_attention(compiled: CompiledKernels, n: int, e: int, b: int, h: int, c: int) -> None:
    d = h * c
    for folded in (False, True):
        sizes = (e, b, n, h, c)
        actual, plain = (attention(kernels, torch.float32, sizes, folded) for kernels in (compiled, Kernels()))
        exact = attention(Kernels(), torch.float64, sizes, folded)
        for value, expected in zip(actual[0], exact[0], strict=True):
            torch.testing.assert_close(value.double(), expected, rtol=0, atol=1e-5)
        assert all(close(*arrays) for arrays in zip(actual[1], plain[1], exact[1], strict=True))
    x, query, dmeans = draw(e, b, n, d), draw(e, h, b, d), draw(e, h, b, d, seed=1)
    _, weights, *_ = check(compiled, "attend_one", blank(e, h, b, d), blank(e, b, h, n), query, x)
    check(compiled, "attend_one_backward", blank(e, b, n, d), blank(e, h, b, d), dmeans, weights, query, x)


def test_compiled_kernels_propagate_nan_and_infinity(compiled: CompiledKernels) -> None:
    """Otherwise divergence would not be noticed."""
    for value in (torch.nan, torch.inf):
        x, bias = torch.zeros(1, 2, 4), torch.zeros(1, 4)
        x[0, 1, 2] = value
        y, dy = blank(1, 2, 4), torch.ones(1, 2, 4)
        compiled.gelu(y, x, bias)
        assert y[0, 0].isfinite().all() and not y[0, 1, 2].isfinite()
        compiled.norm(y, y.clone(), blank(1, 2), x, dy, bias, bias, bias, False)
        assert y[0, 0].isfinite().all() and not y[0, 1].isfinite().any()
        mixed, keys = blank(1, 2, 4), torch.zeros(1, 2, 4)
        keys[0, 0, 1] = value
        compiled.attend(mixed, blank(1, 1, 1, 2, 16), (torch.ones(1, 2, 4), keys, torch.zeros(1, 2, 4)), bias)
        assert not mixed.isfinite().any()


def test_gelu_far_out(compiled: CompiledKernels) -> None:
    x, y = torch.tensor([[[-1e30, -50.0, -6.0, 0.0, 6.0, 50.0, 1e30]]]), blank(1, 1, 7)
    compiled.gelu(y, x, torch.zeros(1, 7))
    torch.testing.assert_close(y, x.clamp(min=0), rtol=1e-6, atol=1e-6)


def test_the_number_of_threads_changes_no_bit_of_a_kernel(compiled: CompiledKernels) -> None:
    x, dy, bias = draw(3, 500, 40), draw(3, 500, 40, seed=1), draw(3, 40)
    runs, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            runs.append(results(compiled, torch.float32, "gelu_backward", (x, dy, bias, blank(3, 40))))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run, strict=True))


@pytest.mark.parametrize("missing", ["compiler", "cache", "flag"])
def test_without_compiled_kernels_torch_is_used(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_task
) -> None:
    monkeypatch.setattr(kernels, "_compiled", kernels._compiled.__wrapped__)
    if missing == "compiler":
        monkeypatch.setenv("CXX", "no-such-compiler")
    elif missing == "cache":
        (tmp_path / "file").touch()
        monkeypatch.setenv("PLACECODE_CACHE", str(tmp_path / "file" / "folder"))
    else:
        monkeypatch.setattr(kernels, "FLAGS", ("--no-such-flag",))
    assert kernels_for(torch.zeros(1)).name == "torch"
    task = make_task()
    trainer = Trainer(stack_for([Member(width=12, layers=1, heads=3, batch=9)], task), task, steps=3)
    first = trainer.update()
    assert trainer.update().isfinite().all() and first.isfinite().all()


def test_compiled_kernels_are_cached(
    compiled: CompiledKernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACECODE_CACHE", str(tmp_path))
    load = kernels._compiled.__wrapped__
    assert isinstance(load(), CompiledKernels)
    (library,) = tmp_path.iterdir()
    before = library.stat().st_mtime_ns
    assert isinstance(load(), CompiledKernels) and library.stat().st_mtime_ns == before


def test_compiled_adam_is_that_of_torch(compiled: CompiledKernels) -> None:
    columns, pe_first = 40_001, 40_000
    flat, gradient = draw(2, columns), draw(2, columns, seed=1)
    parameters, rates = [flat[i].double().requires_grad_() for i in range(2)], (0.01, 0.1)
    optimizers = [torch.optim.Adam([p], lr=rate) for p, rate in zip(parameters, rates, strict=True)]
    first, second = torch.zeros_like(flat), torch.zeros_like(flat)
    start = flat.clone()
    for t in range(1, 4):
        for parameter, g, optimizer in zip(parameters, gradient, optimizers, strict=True):
            parameter.grad = g.double()
            optimizer.step()
        fixed = [0.9, 0.999, 1 - 0.9**t, (1 - 0.999**t) ** 0.5, 1e-8]
        settings = torch.tensor([[*fixed, rate, 0.0] for rate in rates])
        compiled.adam(flat, gradient, first, second, settings, pe_first)
        gradient = gradient.roll(1, 1)
    expected = torch.stack([p.detach() for p in parameters])
    np.testing.assert_allclose(flat[:, :pe_first], expected[:, :pe_first], atol=1e-5)
    assert torch.equal(flat[:, pe_first:], start[:, pe_first:])  # the PE has another rate, here zero
