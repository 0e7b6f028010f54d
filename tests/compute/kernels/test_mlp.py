"""Bias and GELU of the MLP and their gradients, and the accuracy of GELU compared with torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton", reason="the kernels need Triton")

from helpers.training.members import draw

from placecode.compute.gpu.kernels import mlp

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # overflows that are meant


@pytest.mark.parametrize(
    ("members", "count", "width", "programs", "dtype"),
    [
        (1, 7, 5, 8192, torch.float32),
        (3, 37, 17, 8192, torch.float32),
        (2, 53, 130, 4, torch.float32),
        (1, 1, 1, 8192, torch.float32),
        (2, 19, 33, 2, torch.bfloat16),
    ],
)
def test_activate(members, count, width, programs, dtype, kernel_device, monkeypatch) -> None:
    """The gradient of u overwrites the incoming gradient, and that of the bias is written to its destination."""
    monkeypatch.setattr(mlp, "PROGRAMS", programs)
    u, grad = (draw(members, count, width, device=kernel_device, dtype=dtype, seed=seed) for seed in range(2))
    bias = draw(members, 2 * width + 1, device=kernel_device, seed=2)[:, 1 : width + 1]  # as in a flat array
    exact_u, exact_bias = (array.double().requires_grad_() for array in (u, bias))
    expected = F.gelu(exact_u + exact_bias[:, None])
    expected.backward(grad.double())
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    result = mlp.activate(u, bias)
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), expected.detach(), **close)
    destination = torch.zeros_like(bias)
    d_u, d_bias = mlp.activate_backward(grad, u, bias, (destination,))
    assert d_u is grad and d_bias is destination
    torch.testing.assert_close(d_u.double(), exact_u.grad, **close)
    torch.testing.assert_close(d_bias.double(), exact_bias.grad, rtol=1e-5, atol=1e-5)  # float32 sums in any case
    with pytest.raises(AssertionError):  # a negative control: another bias
        torch.testing.assert_close(result.double(), F.gelu(u.double() + bias.double()[:, None] + 0.1), **close)


def test_activate_into_float16(kernel_device) -> None:
    """Results are rounded. The incoming gradient is not changed, and sums are computed before rounding."""
    u, grad = (draw(2, 19, 33, device=kernel_device, seed=seed) for seed in range(2))
    bias, grad_before = draw(2, 33, device=kernel_device, seed=2), grad.clone()
    half = mlp.activate(u, bias, torch.float16)
    assert torch.equal(half, mlp.activate(u, bias).half())
    d_u, d_bias = mlp.activate_backward(grad, u, bias, None, torch.float16)
    assert d_u.dtype == torch.float16 and torch.equal(grad, grad_before)
    single, sums = mlp.activate_backward(grad, u, bias, None)
    assert torch.equal(d_u, single.half()) and torch.equal(d_bias, sums)


def gelu(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return GELU and its derivative, computed by the kernels."""
    x = x.view(1, max(1, len(x) // 100), -1)
    no_bias = torch.zeros(1, x.shape[2], device=x.device)
    return mlp.activate(x, no_bias).flatten(), mlp.activate_backward(torch.ones_like(x), x, no_bias, None)[0].flatten()


def torch_gelu(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    value = F.gelu(x)
    (slope,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), slope


def test_gelu_is_as_accurate_as_that_of_torch(kernel_device) -> None:
    """The error against float64 is at most 4e-7, and its root mean square at most 1.2 times that of torch.

    On a GPU, whose powers of two are approximate, it is at most twice that of torch.
    """
    factor = 1.2 if kernel_device == "cpu" else 2
    tiny = torch.logspace(-30, 0, 500)
    x = torch.cat([torch.linspace(-15, 15, 6000), tiny, -tiny]).to(kernel_device)
    for actual, reference, exact in zip(gelu(x), torch_gelu(x), torch_gelu(x.double()), strict=True):
        errors, torch_errors = ((values.double() - exact).abs() for values in (actual, reference))
        assert errors.max() < 4e-7
        assert errors.square().mean().sqrt() < factor * torch_errors.square().mean().sqrt()


def test_gelu_keeps_its_digits_in_the_tail(kernel_device) -> None:
    """There, erf rounds to -1, so 1 + erf loses all digits."""
    x = torch.linspace(-10, -1, 1000, device=kernel_device)
    exact = 0.5 * x.double() * torch.special.erfc(-x.double() / 2**0.5)
    error, torch_error = (((value.double() - exact) / exact).abs().max() for value in (gelu(x)[0], F.gelu(x)))
    assert error < 2e-5
    assert torch_error > 1e-2


def test_gelu_far_out(kernel_device) -> None:
    far = torch.tensor([20.0, 1e10, 1e30, 3e38], device=kernel_device)
    for value, expected in ((far, (far, 1)), (-far, (0 * far, 0))):
        values, slopes = gelu(value)
        assert torch.equal(values, expected[0]) and (slopes == expected[1]).all()
    values, slopes = gelu(torch.tensor([0.0, torch.inf, -torch.inf, torch.nan], device=kernel_device))
    assert values[0] == 0 and slopes[0].item() == pytest.approx(0.5, abs=3e-7)
    assert (
        values[1:].isnan().all() and slopes[1:].isnan().all()
    )  # infinity too: a member that diverged must not recover
