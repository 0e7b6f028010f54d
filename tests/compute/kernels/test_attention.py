"""Attention over short and over long sequences against one formula in float64, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton", reason="the kernels need Triton")

import triton.language as tl
from helpers.training.members import draw

from placecode.compute.gpu import kernels
from placecode.compute.gpu.kernels import attention, long_attention
from placecode.compute.gpu.kernels.attention import operand

pytestmark = [
    pytest.mark.usefixtures("exact_products", "bfloat16_products"),
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),  # tests use NaN on purpose
]


def mixed_values(q: Tensor, k: Tensor, v: Tensor, biases: list[Tensor], table: Tensor | None, heads: int) -> Tensor:
    """Return softmax(q k^T / sqrt(c) + table) v, with biases added to q, or to q, k and v."""
    q = q + biases[0][:, None, None]
    if len(biases) == 3:
        k, v = k + biases[1][:, None, None], v + biases[2][:, None, None]
    c, parts = q.shape[-1] // heads, []
    for head in range(heads):
        columns = slice(head * c, (head + 1) * c)
        scores = q[..., columns] @ k[..., columns].mT / c**0.5
        if table is not None:
            scores = scores + table[head % len(table)]
        parts.append(torch.softmax(scores, -1) @ v[..., columns])
    return torch.cat(parts, -1)


def table_of(kind: str | None, heads: int, m: int, n: int, device: str) -> Tensor | None:
    """Return a score bias per head or for all heads, (1 or h, m, n). A causal one masks later keys."""
    if kind is None:
        return None
    table = draw(heads if "heads" in kind else 1, n, n, device=device, seed=9)
    square = torch.ones(n, n, dtype=torch.bool, device=device)
    if "causal" in kind:
        table.masked_fill_(~square.tril(), -torch.inf)
    if "later" in kind:  # whole tiles of keys are masked before a query sees one
        table.masked_fill_(~square.triu(), -torch.inf)
    return table[:, n - m :].contiguous()


def laid_out_as(x: Tensor) -> Tensor:
    """Return an array of NaN with the shape and strides of x."""
    count = x.untyped_storage().nbytes() // x.element_size()
    memory = torch.full((count,), torch.nan, dtype=x.dtype, device=x.device)
    return memory.as_strided(x.shape, x.stride(), x.storage_offset())


def attend(
    length: str, grad: Tensor, arguments: tuple[Any, ...], into: attention.Parts, sink: Tensor, residual: bool = False
) -> tuple[Tensor, Tensor]:
    """Return attention and the gradients of the biases. Those of q, k and v are written into `into`."""
    if length.startswith("long"):
        result, saved = long_attention.attend(*arguments)
        return result, long_attention.attend_backward(grad, result, saved, *arguments, into, (sink,), residual)
    result, weights = attention.attend(*arguments)
    return result, attention.attend_backward(grad, weights, *arguments, into, (sink,), residual)


@pytest.mark.parametrize("length", ["short", "short, weights computed again", "long", "long, rounded", "long, TF32"])
@pytest.mark.parametrize(
    ("members", "batch", "m", "n", "heads", "c", "table", "biases", "shared", "residual", "dtype"),
    [
        (2, 2, 5, 5, 1, 7, None, 1, False, True, torch.float32),  # a folded block
        (2, 3, 1, 17, 1, 5, "causal", 1, True, False, torch.float32),  # a folded block that computes the last token
        (1, 2, 19, 19, 2, 3, "heads, causal", 3, False, False, torch.float32),
        (2, 1, 1, 37, 3, 5, "heads", 3, False, False, torch.float32),
        (1, 1, 37, 37, 1, 41, "later", 1, True, True, torch.float32),  # several tiles and chunks of features
        (2, 1, 16, 16, 3, 16, "shared", 3, False, False, torch.float32),  # sizes that need no padding
        (1, 1, 1, 1, 1, 1, None, 3, False, False, torch.float32),
        (2, 1, 21, 21, 2, 5, "heads, causal", 3, False, False, torch.bfloat16),
        (1, 2, 1, 5, 1, 33, None, 1, True, False, torch.bfloat16),
    ],
)
def test_attention(
    length, members, batch, m, n, heads, c, table, biases, shared, residual, dtype, kernel_device, small_tiles,
    monkeypatch,
) -> None:  # fmt: skip
    """Compare values and all gradients. Queries, keys and values are slices of one array, as after a projection."""
    if length in ("long, rounded", "long, TF32"):
        torch.set_float32_matmul_precision("high")
    monkeypatch.setattr(kernels, "_float16_allowed", length != "long, TF32")
    monkeypatch.setattr(attention, "MAX_SAVED_TOKENS", 64 if length == "short" else 0)
    d, options = heads * c, {"device": kernel_device, "dtype": dtype}
    q, k, v = draw(members, batch, n, 3 * d, **options).split(d, -1)
    q, k = q[:, :, n - m :], k.contiguous() if residual else k
    v = k if shared else v
    flat = 0.5 * draw(members, 3 * d + 5, device=kernel_device, seed=1)
    vectors = flat[:, 5:].split(d, -1)[:biases]
    added, grad = table_of(table, heads, m, n, kernel_device), draw(members, batch, m, d, **options, seed=2)

    exact = [part.detach().double().requires_grad_() for part in (q, k, *([] if shared else [v]))]
    exact_vectors = [part.double().requires_grad_() for part in vectors]
    expected = mixed_values(*exact[:2], exact[-1], exact_vectors, None if added is None else added.double(), heads)
    expected.backward(grad.double())

    d_q, d_k = laid_out_as(q), laid_out_as(k)
    into = (d_q, d_k, d_k if shared else laid_out_as(v))
    sink = torch.full((members, biases * d + 3), torch.nan, device=kernel_device)[:, 1 : 1 + biases * d]
    result, d_biases = attend(length, grad, ((q, k, v), vectors, added, heads), into, sink, residual)

    tolerances = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 4e-2, "atol": 4e-2}
    if length in ("long, rounded", "long, TF32") and dtype == torch.float32:  # to ten bits
        tolerances = {"rtol": 2e-3, "atol": 2e-3}
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), expected.detach(), **tolerances)
    if residual:
        exact[1].grad += grad.double()
    for actual, exact_part in zip(into, exact, strict=False):
        torch.testing.assert_close(actual.double(), exact_part.grad, **tolerances)
    assert d_biases is sink
    tolerances["atol"] *= 3  # sums over tokens; the gradient of the key bias is exactly zero
    torch.testing.assert_close(d_biases.double(), torch.cat([vector.grad for vector in exact_vectors], 1), **tolerances)


@pytest.mark.parametrize("length", ["short", "long, rounded"])
def test_keys_and_gradients_in_float16(length, kernel_device, small_tiles) -> None:
    """Float16 keys give the bits of the same numbers in float32. Gradients in float16 are those numbers, rounded."""
    if length == "long, rounded":
        torch.set_float32_matmul_precision("high")
    d = 6
    source, keys = draw(2, 3, 21, 2 * d, device=kernel_device), draw(2, 3, 21, d, device=kernel_device, seed=1).half()
    q, v = source.split(d, -1)
    bias, grad = (draw(2, d, device=kernel_device, seed=2),), draw(2, 3, 21, d, device=kernel_device, seed=3)
    results = []
    for k, dtype in ((keys.float(), torch.float32), (keys, torch.float16)):
        d_q, d_v = torch.full_like(source, torch.nan, dtype=dtype).split(d, -1)
        into = (d_q, torch.full_like(k, torch.nan, dtype=torch.float32), d_v)
        result, d_bias = attend(length, grad, ((q, k, v), bias, None, 1), into, torch.empty_like(bias[0]), True)
        results.append((result, d_bias, into[1], d_q.half(), d_v.half()))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("length", ["short", "long"])
def test_neighbouring_examples_and_heads_have_no_effect(length, kernel_device, small_tiles) -> None:
    """Tiles extend beyond an example, but neither the next example nor the next head may be read or written."""
    parts = draw(1, 3, 5, 18, device=kernel_device).split(6, -1)
    bias, grad = (draw(1, 6, device=kernel_device),), draw(1, 3, 5, 6, device=kernel_device, seed=1)

    def run() -> tuple[Tensor, ...]:
        into = tuple(laid_out_as(part) for part in parts)
        return attend(length, grad, (parts, bias, None, 2), into, torch.empty_like(bias[0]))[0], *into

    clean = run()
    for part in parts:
        part[:, 1] = torch.nan  # the example in the middle
        part[:, 0, :, 3:] = torch.nan  # the second head of the first
    for actual, expected in zip(run(), clean, strict=True):
        assert torch.equal(actual[:, 2], expected[:, 2]) and torch.equal(actual[:, 0, :, :3], expected[:, 0, :, :3])
        assert actual[:, 1].isnan().all() and actual[:, 0, :, 3:].isnan().all()


@triton.jit
def _round(x, out, like, PRECISION: tl.constexpr, SIZE: tl.constexpr):  # noqa: N803
    place = tl.arange(0, SIZE)
    tl.store(out + place, operand(tl.load(x + place), like, PRECISION).to(tl.float32))


def rounded(x: Tensor, precision: str, like: Tensor | None = None) -> Tensor:
    out = torch.empty_like(x)
    _round[(1,)](x, out, x if like is None else like, PRECISION=precision, SIZE=len(x))
    return out


def test_operands_of_tf32_are_rounded_to_ten_bits(kernel_device) -> None:
    """They are rounded to nearest, ties away from zero; the hardware would truncate. Infinity and NaN are preserved."""
    x = draw(64, device=kernel_device) * 10.0 ** draw(64, device=kernel_device, seed=1)
    double = x.double().cpu()  # a GPU's powers of two are approximate
    step = 2.0 ** (double.abs().log2().floor() - 10)
    assert torch.equal(rounded(x, "tf32").double().cpu(), double.sign() * (double.abs() / step + 0.5).floor() * step)
    assert not torch.equal(rounded(x, "tf32"), x)
    unit = 2.0**-10
    for value, expected in (
        (1 + unit / 2, 1 + unit),  # a tie
        (-1 - unit / 2, -1 - unit),
        (1 + 0.499 * unit, 1.0),
        (1 + 3 * unit, 1 + 3 * unit),  # exact in ten bits
        (2 - unit / 4, 2.0),  # into the next power of two
        (0.0, 0.0),
        (torch.inf, torch.inf),
        (-torch.inf, -torch.inf),
    ):
        assert rounded(torch.full((16,), value, device=kernel_device), "tf32").unique().tolist() == [expected]
    bits = torch.tensor([0x7FFFFFFF, 0x7FC00000, -0x400000, -1], dtype=torch.int32, device=kernel_device)
    assert rounded(bits.view(torch.float32), "tf32").isnan().all()


def test_operands_of_other_products_are_not_rounded_to_ten_bits(kernel_device) -> None:
    x = draw(64, device=kernel_device)
    assert torch.equal(rounded(x, "ieee"), x)
    half = rounded(x, "tf32", like=x.bfloat16())
    torch.testing.assert_close(half, x, rtol=2**-7, atol=0)
    assert torch.equal(half, half.bfloat16().float())


@pytest.mark.parametrize("length", ["short", "long", "long, TF32"])
def test_products_have_the_precision_that_torch_is_set_to(length, kernel_device, monkeypatch) -> None:
    monkeypatch.setattr(kernels, "_float16_allowed", length != "long, TF32")
    parts = draw(1, 4, 9, 3 * 8, device=kernel_device).split(8, -1)
    bias, grad = (draw(1, 8, device=kernel_device),), draw(1, 4, 9, 8, device=kernel_device)
    exact = mixed_values(*(part.double() for part in parts), [bias[0].double()], None, 1)
    errors = {}
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        into = tuple(laid_out_as(part) for part in parts)
        result, _ = attend(length, grad, (parts, bias, None, 1), into, torch.empty_like(bias[0]))
        errors[precision] = (result.double() - exact).abs().max().item()
    assert errors["highest"] < 2e-6
    assert 1e-5 < errors["high"] < 1e-2


@pytest.mark.parametrize("length", ["short", "long"])
@pytest.mark.parametrize(
    ("q_size", "k_size", "v_size", "grad_size"),
    [
        (1, 1, 1, 1),
        (1e12, 1e-12, 1e15, 1e-12),
        (1e-8, 1e8, 1e-12, 1e15),
        (1, 1, 1e-20, 1e-8),
        (0, 1, 1, 0),
        (1, 1, 0, 1),
    ],
)
def test_rounded_products_are_as_accurate_at_any_scale(
    length, q_size, k_size, v_size, grad_size, kernel_device, small_tiles
) -> None:
    """Products keep ten bits of every input, although float16 has a small range."""
    torch.set_float32_matmul_precision("high")
    sizes = torch.tensor([q_size, k_size, v_size], device=kernel_device)
    parts = (draw(2, 2, 37, 3, 8, device=kernel_device) * sizes[:, None]).unbind(-2)
    parts = tuple(part.contiguous() for part in parts)
    bias, grad = (draw(2, 8, device=kernel_device) * q_size,), draw(2, 2, 37, 8, device=kernel_device) * grad_size
    exact = [part.double().requires_grad_() for part in parts]
    expected = mixed_values(*exact, [bias[0].double()], None, 1)
    expected.backward(grad.double())
    into = tuple(laid_out_as(part) for part in parts)
    result, _ = attend(length, grad, (parts, bias, None, 1), into, torch.empty_like(bias[0]))
    for actual, exact_values in zip((result, *into), (expected.detach(), *(part.grad for part in exact)), strict=True):
        assert (actual.double() - exact_values).norm() <= 2e-3 * exact_values.norm()


@pytest.mark.parametrize("length", ["short", "long"])
@pytest.mark.parametrize("factor", [1.0, 1e3, 1e5])
def test_one_large_gradient_does_not_reduce_the_precision_of_others(length, factor, kernel_device, small_tiles) -> None:
    """The gradient of every token has ten bits, even if that of one token is far larger."""
    torch.set_float32_matmul_precision("high")
    parts = tuple(draw(1, 1, 90, 16, device=kernel_device, seed=seed) for seed in range(3))
    bias, grad = (draw(1, 16, device=kernel_device),), draw(1, 1, 90, 16, device=kernel_device)
    grad[:, :, 7] *= factor
    exact = [part.double().requires_grad_() for part in parts]
    mixed_values(*exact, [bias[0].double()], None, 1).backward(grad.double())
    into = tuple(laid_out_as(part) for part in parts)
    attend(length, grad, (parts, bias, None, 1), into, torch.empty_like(bias[0]))
    actual, expected = into[0][0, 0].double(), exact[0].grad[0, 0]
    assert ((actual - expected).norm(dim=1) / expected.norm(dim=1)).max() < 5e-3


def test_units_cover_whole_tiles() -> None:
    for launch in long_attention.LAUNCH.values():
        assert (
            long_attention.TOKENS_PER_UNIT % launch["QUERIES"] == 0
            and long_attention.TOKENS_PER_UNIT % launch["KEYS"] == 0
        )


def test_more_examples_than_a_gpu_takes_along_an_axis(cuda: str) -> None:
    """The heads of all examples are 70,000; CUDA takes 65,535 programs along all axes but the first."""
    parts = tuple(draw(1, 35_000, 65, 2, device=cuda, seed=seed) for seed in range(3))
    bias, grad = (draw(1, 2, device=cuda),), draw(1, 35_000, 65, 2, device=cuda)
    into = tuple(laid_out_as(part) for part in parts)
    result, _ = attend("long", grad, (parts, bias, None, 2), into, torch.empty_like(bias[0]))
    expected = mixed_values(*(part[:, -1:].double() for part in parts), [bias[0].double()], None, 2)
    torch.testing.assert_close(result[:, -1:].double(), expected, rtol=1e-5, atol=1e-5)
    assert all(part.isfinite().all() for part in into)
