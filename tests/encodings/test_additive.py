"""Additive encodings: the published formulas, what sigma means, and starts from positions and arrays."""

import math

import numpy as np
import pytest
import torch

from placecode import encodings
from placecode.encodings import Layout, sinusoid
from placecode.models.encoder import Stack
from placecode.models.member import InitialPE, Member

GRID = np.stack(np.divmod(np.arange(16), 4), axis=1).astype(float)  # 4 x 4: (row, column)
each_draw = pytest.mark.parametrize("start", ["normal", "uniform", "axes"])


def table_of(member: Member, tokens: int = 16, positions: np.ndarray | None = None) -> np.ndarray:
    """The PE (l, n, d) of one member before training."""
    return encodings.build([member], Layout(tokens, positions)).vectors()[0].detach().numpy()


def attention_is_all_you_need(positions: int, width: int, base: float = 10000.0) -> np.ndarray:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d)), PE(pos, 2i + 1) = cos(pos / 10000^(2i / d)), by loops."""
    code = np.empty((positions, width))
    for pos in range(positions):
        for i in range(width // 2):
            code[pos, 2 * i] = math.sin(pos / base ** (2 * i / width))
            code[pos, 2 * i + 1] = math.cos(pos / base ** (2 * i / width))
    return code


@pytest.mark.parametrize(("tokens", "width", "base"), [(16, 160, 10000.0), (7, 2, 10000.0), (50, 12, 100.0)])
def test_sinusoid_of_one_axis_is_the_published_formula(tokens, width, base) -> None:
    member = Member("sinusoid", width=width, layers=2, options={"base": base})
    expected = attention_is_all_you_need(tokens, width, base)
    np.testing.assert_allclose(table_of(member, tokens), [expected, expected], rtol=0, atol=1e-12)
    places = np.random.default_rng(0).normal(size=(tokens, 2))  # which one axis does not use
    np.testing.assert_array_equal(table_of(member, tokens, places), table_of(member, tokens))
    assert not encodings.build([member], Layout(4)).learns.any()


def test_sinusoid_of_two_axes_has_the_papers_layout() -> None:
    """The first half of the width encodes the column, the second the row, by the 1-D formula of half the width."""
    result = table_of(Member("sinusoid", width=160, layers=1, options={"axes": 2}), 16, GRID)[0]
    half = attention_is_all_you_need(4, 80)
    for token in range(16):
        row, column = divmod(token, 4)
        np.testing.assert_allclose(result[token, :80], half[column], rtol=0, atol=1e-12)
        np.testing.assert_allclose(result[token, 80:], half[row], rtol=0, atol=1e-12)
    assert not np.allclose(result[:, :80], result[:, 80:])


@pytest.mark.parametrize(
    ("width", "pairs"),
    [
        (12, (2, 2, 2)),
        (8, (2, 1, 1)),
        (7, (2, 1, 1)),
        (5, (1, 1, 1)),
        (3, (1, 1)),
        (9, (5,)),
        (1, (1,)),
        (17, (3, 2, 2, 2)),
    ],
)
def test_sinusoid_of_any_width_and_number_of_axes(width, pairs) -> None:
    """Pairs of features per axis, the last axis first. An odd width lacks the last cosine."""
    coordinates = np.random.default_rng(0).integers(0, 9, size=(5, len(pairs))).astype(float)
    expected: list[list[float]] = [[] for _ in coordinates]
    for token, place in enumerate(coordinates):
        for count, coordinate in zip(pairs, reversed(place), strict=True):
            for i in range(count):
                angle = coordinate / 10000 ** (i / count)
                expected[token] += [math.sin(angle), math.cos(angle)]
    np.testing.assert_allclose(sinusoid(coordinates, width), np.array(expected)[:, :width], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["random", "learned"])
@pytest.mark.parametrize("start", ["normal", "uniform"])
@pytest.mark.parametrize("sigma", [0.1, 2.0])
def test_sigma_is_the_standard_deviation(name, start, sigma) -> None:
    sample = table_of(Member(name, sigma, start=start, width=64, layers=4), 64).ravel()
    error = {"normal": 2, "uniform": 0.8}[start]  # the variance of the squares, in units of sigma^4
    assert abs(sample.mean()) < 4 * sigma / sample.size**0.5
    assert abs(sample.var() / sigma**2 - 1) < 4 * (error / sample.size) ** 0.5
    largest = abs(sample).max() / sigma
    assert largest > 3 if start == "normal" else 0.99 * 3**0.5 < largest <= 3**0.5


@each_draw
def test_every_sigma_of_a_seed_scales_the_same_draw(start) -> None:
    small, large = (table_of(Member(sigma=sigma, start=start, width=8), 16, GRID) for sigma in (0.25, 2.0))
    np.testing.assert_array_equal(small * 8, large)
    assert not (large == table_of(Member(sigma=2.0, seed=1, start=start, width=8), 16, GRID)).any()
    np.testing.assert_array_equal(table_of(Member("random", 2.0, start=start, width=8), 16, GRID), large)
    assert not (large[0] == large[1]).any()  # blocks have different draws


@pytest.mark.parametrize("start", ["normal", "uniform", "true", "axes"])
def test_the_input_alone_starts_like_the_first_block(start) -> None:
    shape = {"start": start, "width": 8, "layers": 2}
    every, alone = (table_of(Member(**shape, placement=place), 16, GRID) for place in ("every", "input"))
    np.testing.assert_array_equal(alone, every[:1])


def test_without_scale_or_encoding_the_pe_is_zero() -> None:
    assert not table_of(Member(start="zero", sigma=None, width=8)).any()
    assert not table_of(Member(sigma=0.0, width=8)).any() and table_of(Member(sigma=0.1, width=8)).any()
    assert not table_of(Member("none", sigma=2.0, width=8)).any()
    x = torch.randn(2, 16, 8)
    assert torch.equal(encodings.make("none", 16, 8)(x), x)


@pytest.mark.parametrize("sigma", [0.1, 2.0])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_true_is_the_sinusoid_of_the_positions_at_another_scale(sigma, axes) -> None:
    places = np.random.default_rng(0).normal(size=(5, axes))
    result, fixed = table_of(Member(sigma=sigma, start="true", width=12, layers=2), 5, places), sinusoid(places, 12)
    np.testing.assert_allclose(result, [sigma * fixed / np.sqrt((fixed**2).mean())] * 2, rtol=0, atol=1e-12)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_axes_adds_up_a_vector_for_each_coordinate(axes) -> None:
    """Of variance sigma^2. Tokens that share some of their coordinates are similar to that degree."""
    places = np.stack(np.meshgrid(*[np.arange(3.0)] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
    pe = table_of(Member(sigma=0.5, start="axes", width=20_000, layers=1), len(places), places)[0]
    alike = pe @ pe.T / pe.shape[1] / 0.25
    shared = (places[:, None] == places).mean(-1)
    assert abs(alike - shared).max() < 0.06  # 4 standard errors are 0.04 on the diagonal, 0.028 beside it


def test_axes_are_sums_of_rows_and_columns() -> None:
    """Differences within a row are the same in all rows. Only the coordinates matter, not the order of tokens."""
    member, order = Member(sigma=1.0, start="axes", width=6, layers=2), np.random.default_rng(0).permutation(16)
    result = table_of(member, 16, GRID)
    pe = result.reshape(2, 4, 4, 6)
    np.testing.assert_allclose(pe[:, 1:] - pe[:, :1], (pe[:, 1:] - pe[:, :1])[:, :, :1].repeat(4, 2), atol=1e-12)
    np.testing.assert_array_equal(table_of(member, 16, GRID[order] * 2.5 - 1), result[:, order])
    line = np.arange(4.0)[:, None]  # one coordinate for each token, and yet not the draw of "normal"
    axes, normal = (table_of(Member(sigma=1.0, start=start, width=8), 4, line) for start in ("axes", "normal"))
    assert axes.shape == normal.shape and not (axes == normal).any()


def test_a_start_may_be_one_array_for_all_blocks_or_one_for_each() -> None:
    array = np.random.default_rng(0).normal(size=(2, 3, 8))
    np.testing.assert_array_equal(table_of(Member(start=array, layers=2, width=8), 3), array)
    np.testing.assert_array_equal(table_of(Member(start=array[0], layers=2, width=8), 3), array[[0, 0]])
    pe = encodings.make("learned", 3, 8, layers=2, start=np.ones((3, 8)))
    with torch.no_grad():
        pe.table[:, 0] += 1
    assert (pe.table[:, 1] == 1).all()  # blocks that start from one array are trained separately
    starts = ["zero", InitialPE(array[0]), "normal"]
    vectors = encodings.build([Member(start=start, layers=1, width=8) for start in starts], Layout(3)).vectors()
    assert not vectors[0].any() and vectors[2].any()
    np.testing.assert_array_equal(vectors[1, 0].detach().numpy(), array[0])


def test_a_pe_is_added_to_the_tokens_of_any_model() -> None:
    pe, x = encodings.make("learned", 6, 8, layers=2, sigma=1.0), torch.randn(4, 6, 8)
    for block in (0, 1):
        expected = x + pe.vectors()[0, block]
        assert torch.equal(pe(x, block), expected) and torch.equal(pe.add(x, block), expected)
        assert torch.equal(pe.add(x[None], block)[0], expected)
        assert torch.equal(pe(x[:, :4], block), expected[:, :4])  # shorter sequences
    assert not torch.equal(pe(x, 0), pe(x, 1))


@pytest.mark.parametrize("placement", ["every", "input"])
def test_blocks_of_a_stack_read_the_sum_with_the_pe(placement) -> None:
    stack = Stack([Member(sigma=1.0, width=8, layers=2, placement=placement)], tokens=6, features=3, outputs=2).double()
    captured = stack.capture(torch.randn(5, 6, 3, dtype=torch.float64), "*")
    vectors = stack.encoding.vectors()
    torch.testing.assert_close(captured["input.0"] - captured["embedding"], vectors[:, 0, None].expand(1, 5, 6, 8))
    added = captured["input.1"] - captured["block.0"]
    expected = vectors[:, 1, None].expand(1, 5, 6, 8) if placement == "every" else torch.zeros_like(added)
    torch.testing.assert_close(added, expected)
