"""Encodings on the scores: loops over pairs of tokens, and the published slopes."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from placecode import encodings
from placecode.encodings import ALL
from placecode.encodings.relative import slopes_for
from placecode.models.encoder import Stack
from placecode.models.member import Member

GRID = np.stack(np.divmod(np.arange(6), 3), axis=1).astype(float)  # 2 x 3
SLOPES_8 = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256)


def queries(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def stack_of(encoding: str, layers: int = 2, placement: str = "every", **options: object) -> Stack:
    """A stack of one member with weights and biases that are not the initial ones."""
    member = Member(encoding, 1.0, width=8, layers=layers, heads=2, placement=placement, options=options)
    stack = Stack([member], tokens=6, features=3, outputs=2, readout="token", dtype=torch.float64)
    weights = stack.flat[:, : stack.encoding_columns]
    weights += 0.3 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(1))
    return stack


def check_causal_attention(stack: Stack, score: Callable[[np.ndarray, np.ndarray, int, int], float]) -> None:
    """Captured attention is, token by token, exp(score) over its sum up to the token itself. `score(q, k, block,
    offset)` is that of a query and a key, (c,), with the offset from the query to the key."""
    x = queries(3, 6, 3)
    captured = {name: value[0].numpy() for name, value in stack.capture(x, "input.*", "attention.*").items()}
    for block in range(2):
        layer = stack.blocks[block].attention.projection
        projected = captured[f"input.{block}"] @ layer.matrix[0].detach().numpy() + layer.bias[0].detach().numpy()
        q, k, _ = projected.reshape(3, 6, 3, 2, 4).transpose(2, 0, 3, 1, 4)  # each (b, h, n, c)
        for b, h, i in np.ndindex(3, 2, 6):
            raised = np.array([math.exp(score(q[b, h, i], k[b, h, j], block, j - i)) for j in range(i + 1)])
            expected = [*raised / raised.sum(), *[0.0] * (5 - i)]
            np.testing.assert_allclose(captured[f"attention.{block}"][b, h, i], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("max_distance", [None, 1, 3, 100])
def test_relative_bias_equals_a_loop_over_pairs(axes, max_distance) -> None:
    """a[clip(j - i)] . q / sqrt(c), with one vector per axis and offset, the same in all heads."""
    places = GRID if axes == 2 else np.arange(6)[:, None]
    reach = max_distance or int(places.max())
    shape = {"heads": 2, "layers": 2, "sigma": 1.0, "dtype": torch.float64, "positions": GRID}
    pe = encodings.make("relative", 6, 8, **shape, axes=axes, max_distance=max_distance)
    assert pe.table.shape == (1, 2, axes * (2 * reach + 1), 4)
    q = queries(3, 2, 6, 4)
    for block in range(2):
        tables, result = pe.table[0, block].view(axes, 2 * reach + 1, 4), pe.bias(q, block)
        for i, j in np.ndindex(6, 6):
            steps = np.clip(places[j] - places[i], -reach, reach).astype(int) + reach
            vector = sum(table[step] for table, step in zip(tables, steps, strict=True))
            torch.testing.assert_close(result[:, :, i, j], q[:, :, i] @ vector / 2, rtol=0, atol=1e-12)


def test_sigma_is_the_standard_deviation_of_relative_vectors() -> None:
    table = encodings.make("relative", 100, 64, sigma=0.3, dtype=torch.float64).table
    assert abs(table.std().item() / 0.3 - 1) < 4 * (1 / (2 * table.numel())) ** 0.5
    assert encodings.make("relative", 1, 4).bias(queries(2, 1, 1, 4).float()).shape == (2, 1, 1, 1)


def test_causal_relative_attention_equals_a_loop_over_the_tokens_before() -> None:
    causal, both = stack_of("relative", causal=True), stack_of("relative")
    a = causal.encoding.table[0].detach().numpy()  # (l, r, c), offset 0 in the middle
    check_causal_attention(causal, lambda q, k, block, offset: q @ (k + a[block, 5 + offset]) / 2)
    with pytest.raises(AssertionError):
        check_causal_attention(both, lambda q, k, block, offset: q @ (k + a[block, 5 + offset]) / 2)
    with pytest.raises(AssertionError):
        check_causal_attention(causal, lambda q, k, block, offset: q @ (k + a[block, 4 + offset]) / 2)
    causal(queries(3, 6, 3)).square().sum().backward()
    gradient = causal.encoding.table.grad  # (e, l, r, c)
    assert (gradient[:, :, 6:] == 0).all()  # vectors of later keys are never used
    assert (gradient[:, :, :6].abs().amax(-1) > 1e-9).all()


def published_slopes(heads: int) -> list[float]:
    """The recipe of the paper's own code, `get_slopes`."""

    def power_of_2(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power_of_2(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return power_of_2(closest) + published_slopes(2 * closest)[0::2][: heads - closest]


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20])
def test_alibi_has_the_published_slopes(heads) -> None:
    np.testing.assert_allclose(slopes_for(heads).numpy(), published_slopes(heads), rtol=1e-12)
    assert tuple(slopes_for(8).tolist()) == SLOPES_8
    assert slopes_for(4, 4.0).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16]  # another steepness


@pytest.mark.parametrize("tokens", [5, 60])
def test_alibi_is_bidirectional_and_exact(tokens) -> None:
    pe = encodings.make("alibi", tokens, 16, heads=8, dtype=torch.float64)
    distance = abs(torch.arange(tokens)[:, None] - torch.arange(tokens))
    expected = -torch.tensor(SLOPES_8, dtype=torch.float64)[:, None, None] * distance
    assert torch.equal(pe.bias(queries(2, 8, tokens, 2)), expected) and not list(pe.parameters())


@pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
def test_alibi_of_two_axes_uses_their_distance(distance) -> None:
    pe = encodings.make("alibi", 6, 8, heads=2, positions=GRID, dtype=torch.float64, axes=2, distance=distance)
    steps = abs(GRID[:, None] - GRID)
    apart = np.hypot(*steps.T) if distance == "euclidean" else steps.sum(-1)
    expected = [-slope * apart for slope in (1 / 16, 1 / 256)]
    np.testing.assert_allclose(pe.bias(queries(1, 2, 6, 4)).numpy(), expected, rtol=0, atol=1e-15)


def influence(encoding: str, **options: object) -> np.ndarray:
    """(n, n): whether the output of token i changes with the input of token j, through the whole encoder."""
    stack, x = stack_of(encoding, layers=3, **options), queries(2, 6, 3)
    changed = np.empty((6, 6), dtype=bool)
    for j in range(6):
        shifted = x.clone()
        shifted[:, j] += 1
        changed[:, j] = (stack(x) - stack(shifted)).detach().abs().amax(dim=(0, 2)) > 0
    return changed


def test_a_token_does_not_depend_on_later_ones_if_causal() -> None:
    earlier = np.tril(np.ones((6, 6), dtype=bool))
    for encoding, options in (("causal-none", {}), ("causal-none", {"temperature": 0.5}), ("relative", {"causal": 1})):
        assert (influence(encoding, **options) == earlier).all()
    for encoding in ("none", "learned", "relative", "rotary", "alibi"):
        assert influence(encoding).all()


@pytest.mark.parametrize("temperature", [1, 0.01, 3.5])
def test_causal_none_divides_the_scores_by_the_temperature(temperature) -> None:
    stack = stack_of("causal-none", temperature=temperature)
    check_causal_attention(stack, lambda q, k, block, offset: q @ k / 2 / temperature)
    with pytest.raises(AssertionError):
        check_causal_attention(stack, lambda q, k, block, offset: q @ k / 2 / (1.01 * temperature))
    stack(queries(3, 6, 3)).square().sum().backward()
    for block in stack.blocks:  # a key bias has no effect
        query, key, value = block.attention.projection.bias.grad.chunk(3, 1)
        assert (key == 0).all() and query.abs().max() > 1e-6 and value.abs().max() > 1e-6


def test_a_temperature_of_1_changes_no_bit() -> None:
    q, k = queries(2, 3, 2, 6, 4)
    plain = encodings.make("causal-none", 6, 8, heads=2, temperature=1)
    assert all(result is original for result, original in zip(plain.rotate(q, k), (q, k), strict=True))
    assert plain.rotated == ()


@pytest.mark.parametrize("name", ["relative", "alibi"])
def test_an_encoding_may_be_used_for_fewer_tokens(name) -> None:
    pe, q = encodings.make(name, tokens=9, width=8, heads=2, sigma=1.0), torch.randn(3, 2, 9, 4)
    few, full = pe.bias(q[:, :, :5]).expand(3, 2, 5, 5), pe.bias(q).expand(3, 2, 9, 9)
    assert torch.allclose(few, full[:, :, :5, :5], atol=1e-6)


@pytest.mark.parametrize("name", ["relative", "rotary", "alibi", "causal-none"])
def test_placement_input_acts_in_the_first_block_alone(name) -> None:
    """The first block is that of a stack with the encoding in every block, the second that of one without encoding."""
    x, plain = queries(5, 6, 3), stack_of("none")
    stacks = (stack_of(name, placement="input"), stack_of(name), plain)
    first, everywhere, nowhere = (stack.capture(x, "*") for stack in stacks)
    assert torch.equal(first["block.0"], everywhere["block.0"])
    assert not torch.equal(first["block.0"], nowhere["block.0"])
    assert torch.equal(plain.blocks[1](first["input.1"], plain.encoding, 1, ALL, None), first["block.1"])
    assert not torch.equal(first["block.1"], everywhere["block.1"])
