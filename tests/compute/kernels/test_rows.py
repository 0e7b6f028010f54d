"""Kernels over rows against float64 and autograd: sizes that are not those of a tile, and rows with strides."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton", reason="the kernels need Triton")

from helpers.training.members import draw

from placecode.compute.gpu.kernels import rows

CLOSE = {torch.float32: {"rtol": 5e-6, "atol": 5e-6}, torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2}}


def laid_out(members: int, *shapes: tuple[int, ...], device: str, seed: int = 0) -> list[Tensor]:
    """Return parameters as in a stack: views of one flat array, with gaps between them."""
    sizes = [torch.Size(shape).numel() for shape in shapes]
    flat = draw(members, sum(sizes) + 3 * len(sizes), device=device, seed=seed)
    starts = [sum(sizes[:i]) + 3 * i + 1 for i in range(len(sizes))]
    pairs = zip(starts, sizes, shapes, strict=True)
    return [flat[:, start : start + size].view(members, *shape) for start, size, shape in pairs]


def exact(*arrays: Tensor | None) -> list[Tensor | None]:
    """Return copies in float64 that require gradients."""
    return [None if array is None else array.detach().double().requires_grad_() for array in arrays]


def agree(actual: Tensor, expected: Tensor | None, dtype: torch.dtype = torch.float32, **tolerances: float) -> None:
    assert expected is not None
    torch.testing.assert_close(actual.double(), expected.detach(), **{**CLOSE[dtype], **tolerances})


def normed(x: Tensor, y: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, pe: Tensor | None, gelu: bool) -> Tensor:
    branch = y + bias[:, None]
    plain = F.layer_norm(x + (F.gelu(branch) if gelu else branch), x.shape[-1:])
    result = plain * scale[:, None] + shift[:, None]
    return result if pe is None else result + pe.repeat(1, x.shape[1] // pe.shape[1], 1)


@pytest.mark.parametrize(
    ("members", "items", "tokens", "width", "gelu", "pe", "sliced", "programs", "dtype"),
    [
        (1, 5, 3, 5, True, True, False, 8192, torch.float32),
        (3, 11, 1, 17, False, False, True, 8192, torch.float32),
        (3, 2, 9, 33, True, True, True, 8192, torch.float32),
        (2, 7, 1, 160, True, False, False, 4, torch.float32),
        (1, 1, 7, 160, False, True, True, 8192, torch.float32),
        (2, 29, 3, 5, False, False, False, 2, torch.float32),
        (3, 5, 3, 17, True, True, False, 9, torch.float32),
        (1, 1, 1, 1, True, True, False, 8192, torch.float32),
        (3, 3, 5, 33, True, True, True, 4, torch.bfloat16),
        (1, 3, 3, 160, False, False, False, 8192, torch.bfloat16),
    ],
)
def test_norm(members, items, tokens, width, gelu, pe, sliced, programs, dtype, kernel_device, monkeypatch) -> None:
    """Test LN(x + f(y + bias)) scale + shift + pe, its mean and inverse standard deviation, and all gradients.

    With few `programs`, each processes several items in the backward pass. If `sliced`, x has a larger row stride.
    """
    monkeypatch.setattr(rows, "PROGRAMS", programs)
    count, options = items * tokens, {"device": kernel_device, "dtype": dtype}
    x = draw(members, count, 2 * width if sliced else width, **options)[..., :width]
    assert x.is_contiguous() != sliced
    y, grad = (draw(members, count, width, **options, seed=seed) for seed in (1, 2))
    scale, shift, table = laid_out(members, (width,), (width,), (tokens, width), device=kernel_device)
    bias = draw(members, width, device=kernel_device, seed=3)  # not part of the flat array, like the `offset` of `Fold`
    table = table if pe else None
    result, _, mean, inverse = rows.norm(x, y, bias, scale, shift, table, gelu)
    assert result.dtype == dtype
    inputs = exact(x, y, bias, scale, shift, table)
    expected = normed(*inputs, gelu)
    agree(result, expected, dtype)
    branch = inputs[1] + inputs[2][:, None]
    total = inputs[0] + (F.gelu(branch) if gelu else branch)
    agree(mean, total.mean(-1))
    agree(inverse, (total.var(-1, correction=0) + 1e-5).rsqrt(), rtol=1e-5)

    expected.backward(grad.double())
    destinations = laid_out(members, (width,), (width,), device=kernel_device)
    d_x, d_y, vectors, d_pe = rows.norm_backward(
        grad, x, y, bias, scale, mean, inverse, tokens if pe else None, gelu, (None, *destinations)
    )
    tolerances = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 4e-2, "atol": 4e-2}
    agree(d_x, inputs[0].grad, dtype, **tolerances)
    agree(d_y, inputs[1].grad, dtype, **tolerances)
    assert (d_x is d_y) != gelu  # one tensor where both are the same
    for value, exact_vector in zip(vectors, inputs[2:5], strict=True):
        agree(value, exact_vector.grad, dtype, **tolerances)
    assert vectors[1] is destinations[0] and vectors[2] is destinations[1]
    if pe:
        agree(d_pe, inputs[5].grad, dtype, **tolerances)
    else:
        assert d_pe is None


def test_norm_with_float16_copies(kernel_device) -> None:
    """The copies of the result and of the branch's gradient are rounded. Everything else has the same bits."""
    x, y, grad = (draw(2, 6, 5, device=kernel_device, seed=seed) for seed in range(3))
    bias, scale, shift, pe = laid_out(2, (5,), (5,), (5,), (3, 5), device=kernel_device)
    for gelu in (True, False):
        result, no_copy, mean, inverse = rows.norm(x, y, bias, scale, shift, pe, gelu)
        same_result, half, *statistics = rows.norm(x, y, bias, scale, shift, pe, gelu, True)
        assert no_copy is None and torch.equal(half, result.half())
        assert all(torch.equal(a, b) for a, b in zip((same_result, *statistics), (result, mean, inverse), strict=True))
        arguments = (grad, x, y, bias, scale, mean, inverse, 3, gelu, None)
        d_x, d_y, vectors, d_pe = rows.norm_backward(*arguments)
        other_x, half_y, other_vectors, other_pe = rows.norm_backward(*arguments, torch.float16)
        assert torch.equal(half_y, d_y.half()) and not torch.equal(half_y.float(), d_y)
        assert torch.equal(other_x, d_x) and torch.equal(other_pe, d_pe)
        assert all(torch.equal(a, b) for a, b in zip(other_vectors, vectors, strict=True))


def test_norm_with_the_parameters_of_a_neighbour_differs(kernel_device) -> None:
    """This negative control uses the PE of the next token, or the vectors of the next member."""
    x, y = (draw(2, 6, 5, device=kernel_device, seed=seed) for seed in range(2))
    parameters = laid_out(2, (5,), (5,), (5,), (3, 5), device=kernel_device)
    result, _, _, _ = rows.norm(x, y, *parameters, True)
    agree(result, normed(*exact(x, y, *parameters), True))
    for i in range(4):
        for axis in {0, parameters[i].dim() - 2}:
            wrong = [parameter.roll(1, axis) if j == i else parameter for j, parameter in enumerate(parameters)]
            with pytest.raises(AssertionError):
                agree(result, normed(*exact(x, y, *wrong), True))


@pytest.mark.parametrize(
    ("members", "items", "tokens", "features", "width", "pe", "flipped", "programs", "dtype"),
    [
        (1, 3, 5, 1, 5, True, False, 8192, torch.float32),
        (3, 7, 1, 3, 17, False, True, 12, torch.float32),
        (2, 2, 3, 16, 33, True, True, 8192, torch.float32),
        (1, 5, 2, 5, 160, True, False, 8, torch.float32),
        (2, 3, 3, 3, 17, True, False, 8192, torch.bfloat16),
    ],
)
def test_embed(
    members, items, tokens, features, width, pe, flipped, programs, dtype, kernel_device, monkeypatch
) -> None:
    """x W + bias + pe and its gradients, with W stored as in a stack: the longer side last."""
    monkeypatch.setattr(rows, "PROGRAMS", programs)
    x = draw(members, items * tokens, features, device=kernel_device, dtype=dtype)
    sides = (width, features) if flipped else (features, width)
    w, bias, table = laid_out(members, sides, (width,), (tokens, width), device=kernel_device)
    w, table = w.mT if flipped else w, table if pe else None
    inputs = exact(x, w, bias, table)
    expected = inputs[0] @ inputs[1] + inputs[2][:, None] + (inputs[3].repeat(1, items, 1) if pe else 0)
    result, no_copy = rows.embed(x, w, bias, table)
    assert result.dtype == dtype and no_copy is None
    agree(result, expected, dtype)
    if dtype == torch.float32:
        same_result, half = rows.embed(x, w, bias, table, True)
        assert torch.equal(same_result, result) and torch.equal(half, result.half())
    grad = draw(*result.shape, device=kernel_device, dtype=dtype, seed=1)
    expected.backward(grad.double())
    d_w, d_pe = rows.embed_backward(grad, x, tokens)
    agree(d_w, inputs[1].grad, rtol=1e-5, atol=1e-5)  # sums are float32 even of bfloat16
    agree(d_pe.sum(1), inputs[2].grad, rtol=1e-5, atol=1e-5)
    if pe:
        agree(d_pe, inputs[3].grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("members", "count", "width"), [(1, 15, 5), (3, 37, 33), (2, 3, 160)])
def test_shift_rows(members, count, width, dtype, kernel_device) -> None:
    """x is changed in place."""
    x = draw(members, count, width, device=kernel_device, dtype=dtype)
    bias, _ = laid_out(members, (width,), (width,), device=kernel_device)
    expected = x.double() + bias.double()[:, None]
    assert rows.shift_rows(x, bias) is x
    agree(x, expected, dtype)


@pytest.mark.parametrize(
    ("members", "parts", "count", "width"), [(1, 1, 1, 5), (3, 7, 2, 33), (2, 21, 3, 160), (1, 8, 3, 17)]
)
def test_sum_pieces(members, parts, count, width, kernel_device) -> None:
    pieces = draw(members, parts, count, width, device=kernel_device)
    destinations = laid_out(members, *[(width,)] * count, device=kernel_device)
    before = destinations[0]._base.clone()
    for into in (None, (*destinations[:-1], None), tuple(destinations)):
        sums = rows.sum_pieces(pieces, into)
        for i in range(count):
            agree(sums[i], pieces.double()[:, :, i].sum(1))
            assert into is None or into[i] is None or sums[i] is into[i]
    for destination in destinations:
        destination.zero_()
    outside = destinations[0]._base != 0  # gaps between the destinations are unchanged
    assert outside.any() and torch.equal(destinations[0]._base[outside], before[outside])


def test_sums_are_deterministic(kernel_device) -> None:
    """They have two stages and no atomics, so the bits are the same every time."""
    x, y, grad = (draw(2, 40, 17, device=kernel_device, seed=seed) for seed in range(3))
    bias, scale, shift, pe = laid_out(2, (17,), (17,), (17,), (5, 17), device=kernel_device)
    _, _, mean, inverse = rows.norm(x, y, bias, scale, shift, pe, True)
    once, twice = (rows.norm_backward(grad, x, y, bias, scale, mean, inverse, 5, True, None) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip((*once[2], once[3]), (*twice[2], twice[3]), strict=True))
