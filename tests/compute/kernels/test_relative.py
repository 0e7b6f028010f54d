"""The score bias of relative positions against a sum over one-hot vectors, forward and backward."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels need Triton")

from helpers.training.members import draw

from placecode.compute.gpu.kernels import relative


def bias_of(products: Tensor, lift: Tensor, index: Tensor, table: Tensor | None, scale: float) -> Tensor:
    """The same as `relative.select`, as a product with one-hot vectors of the columns."""
    chosen = torch.nn.functional.one_hot(index.long(), products.shape[-1]).sum(0).to(products)  # (m, n, columns)
    padded = torch.zeros(len(lift), products.shape[-1], dtype=lift.dtype, device=lift.device)
    padded[:, : lift.shape[1]] = lift
    bias = scale * torch.einsum("ebmr,mnr->ebmn", products + padded[:, None, None], chosen)
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
def test_bias_and_its_gradient_equal_float64(m, n, axes, vectors, columns, dtype, masked, kernel_device) -> None:
    """Products are a slice of a wider array, as after one product for queries, values and these."""
    where = {"device": kernel_device}
    products = draw(2, 3, m, 7 + columns, **where, dtype=dtype)[..., 7:]
    lift, grad = draw(2, vectors, **where, seed=1), draw(2, 3, 1, m, n, **where, seed=2)
    index = (torch.arange(axes * m * n, device=kernel_device).view(axes, m, n) * 5 % vectors).int()
    hidden = torch.ones(m, n, dtype=torch.bool, device=kernel_device).triu(1)
    table = torch.zeros(1, m, n, device=kernel_device).masked_fill(hidden, -torch.inf) if masked else None
    exact = products.double().requires_grad_()
    true = bias_of(exact, lift.double(), index, table, 0.3)
    torch.autograd.backward(true, grad.double())
    bias = relative.select(products, lift, index, table, 0.3)
    torch.testing.assert_close(bias.double(), true.detach(), rtol=1e-5, atol=1e-5)
    into = torch.full_like(products, torch.nan)
    relative.select_backward(grad, index, 0.3, into)
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-2}
    torch.testing.assert_close(into.double(), exact.grad, **close)
    assert (into[..., vectors:] == 0).all()  # padding
