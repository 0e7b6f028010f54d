"""The score bias of relative positions against a sum over one-hot vectors, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels need Triton")

from helpers.training.members import draw

from placecode.compute.gpu.kernels import relative


def bias_of(products: Tensor, lift: Tensor, index: Tensor, table: Tensor | None, scale: float) -> Tensor:
    """Return the same as `relative.select`, computed as a product with one-hot vectors of the columns."""
    one_hot = torch.nn.functional.one_hot(index.long(), products.shape[-1]).sum(0).to(products)  # (m, n, columns)
    padded = torch.zeros(len(lift), products.shape[-1], dtype=lift.dtype, device=lift.device)
    padded[:, : lift.shape[1]] = lift
    bias = scale * torch.einsum("ebmr,mnr->ebmn", products + padded[:, None, None], one_hot)
    return (bias if table is None else bias + table)[:, :, None]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "axes", "vectors", "columns", "dtype"),
    [
        (5, 5, 1, 9, 16, torch.float32),
        (1, 6, 2, 8, 16, torch.float32),  # the last token of a block; several keys share a column
        (16, 16, 2, 14, 16, torch.float32),
        (17, 17, 1, 3, 16, torch.float32),  # distances are clipped: most keys share a column
        (6, 6, 1, 11, 16, torch.bfloat16),
    ],
)
def test_bias_and_gradient(m, n, axes, vectors, columns, dtype, masked, kernel_device) -> None:
    """Products are a slice of a wider array, because one product computes queries, values and them."""
    products = draw(2, 3, m, 7 + columns, device=kernel_device, dtype=dtype)[..., 7:]
    lift, grad = draw(2, vectors, device=kernel_device, seed=1), draw(2, 3, 1, m, n, device=kernel_device, seed=2)
    index = (torch.arange(axes * m * n, device=kernel_device).view(axes, m, n) * 5 % vectors).int()
    hidden = torch.ones(m, n, dtype=torch.bool, device=kernel_device).triu(1)
    table = torch.zeros(1, m, n, device=kernel_device).masked_fill(hidden, -torch.inf) if masked else None

    exact = products.double().requires_grad_()
    expected = bias_of(exact, lift.double(), index, table, 0.3)
    torch.autograd.backward(expected, grad.double())

    bias = relative.select(products, lift, index, table, 0.3)
    torch.testing.assert_close(bias.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    into = torch.full_like(products, torch.nan)
    relative.select_backward(grad, index, 0.3, into)
    assert exact.grad is not None
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-2}
    torch.testing.assert_close(into.double(), exact.grad, **close)
    assert (into[..., vectors:] == 0).all()  # padding
