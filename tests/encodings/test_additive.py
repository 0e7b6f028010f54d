"""The additive family, pinned to the published formulas, and to what sigma means."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from placecode import encodings
from placecode.encodings import Layout, sinusoid
from placecode.errors import BadInput
from placecode.models.encoder import Stack
from placecode.models.member import Member, Table

GRID = np.stack(np.divmod(np.arange(16), 4), axis=1).astype(float)  # 4 x 4: (row, column)


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


def shares(width: int, axes: int) -> list[int]:
    """Pairs of features for each axis: dealt out one by one, as cards."""
    hands = [0] * axes
    for pair in range(math.ceil(width / 2)):
        hands[pair % axes] += 1
    return hands


class TestSinusoid:
    @pytest.mark.parametrize(("tokens", "width", "base"), [(16, 160, 10000.0), (7, 2, 10000.0), (50, 12, 100.0)])
    def test_one_axis_is_the_published_formula(self, tokens, width, base) -> None:
        member = Member("sinusoid", width=width, layers=2, options={"base": base})
        found = table_of(member, tokens)
        expected = attention_is_all_you_need(tokens, width, base)
        np.testing.assert_allclose(found, [expected, expected], rtol=0, atol=1e-12)

    def test_one_axis_goes_by_the_sequence_whatever_the_positions(self) -> None:
        member = Member("sinusoid", width=8)
        np.testing.assert_array_equal(table_of(member, 16, GRID), table_of(member, 16))

    def test_two_axes_are_the_papers_layout(self) -> None:
        """The first half of the width codes the column, the second the row, by the 1-D formula of half the width."""
        found = table_of(Member("sinusoid", width=160, layers=1, options={"axes": 2}), 16, GRID)[0]
        half = attention_is_all_you_need(4, 80)
        for token in range(16):
            row, column = divmod(token, 4)
            np.testing.assert_allclose(found[token, :80], half[column], rtol=0, atol=1e-12)
            np.testing.assert_allclose(found[token, 80:], half[row], rtol=0, atol=1e-12)
        assert not np.allclose(found[:, :80], found[:, 80:])  # the halves could have been told apart

    @pytest.mark.parametrize(
        ("width", "axes"), [(12, 3), (8, 3), (10, 3), (7, 3), (5, 3), (6, 2), (3, 2), (9, 1), (1, 1), (17, 4)]
    )
    def test_any_width_and_number_of_axes(self, width, axes) -> None:
        """Every axis has its share of the features, the last axis first; an odd width loses the last cosine."""
        coordinates = np.random.default_rng(0).integers(0, 9, size=(5, axes)).astype(float)
        expected: list[list[float]] = [[] for _ in coordinates]
        for token, place in enumerate(coordinates):
            for pairs, coordinate in zip(shares(width, axes), reversed(place), strict=True):
                for i in range(pairs):
                    angle = coordinate / 10000 ** (2 * i / (2 * pairs))
                    expected[token] += [math.sin(angle), math.cos(angle)]
        np.testing.assert_allclose(sinusoid(coordinates, width), np.array(expected)[:, :width], rtol=0, atol=1e-12)

    @pytest.mark.parametrize(("width", "axes"), [(12, 3), (8, 3), (5, 3), (3, 2)])
    def test_no_axis_is_left_out(self, width, axes) -> None:
        for axis in range(axes):
            coordinates = np.zeros((2, axes))
            coordinates[1, axis] = 1
            one, other = sinusoid(coordinates, width)
            assert not np.allclose(one, other)

    def test_too_few_features_for_the_axes_are_refused(self) -> None:
        with pytest.raises(BadInput, match=r"^width must be at least 5 for a sinusoid of 3 axes; got 4\.$"):
            sinusoid(np.zeros((2, 3)), 4)

    @pytest.mark.parametrize("base", [0, -1.0, float("nan"), "e", True])
    def test_base_must_be_above_zero(self, base) -> None:
        with pytest.raises(BadInput, match=r"^base must be a number above 0; got "):
            encodings.make("sinusoid", 4, 8, base=base)

    def test_it_never_learns(self) -> None:
        assert not encodings.build([Member("sinusoid", learn=True)], Layout(4)).learns.any()


class TestDraws:
    """random and learned: what sigma means."""

    @pytest.mark.parametrize("name", ["random", "learned"])
    @pytest.mark.parametrize("start", ["normal", "uniform"])
    @pytest.mark.parametrize("sigma", [0.1, 2.0])
    def test_sigma_is_the_standard_deviation(self, name, start, sigma) -> None:
        sample = table_of(Member(name, sigma, start=start, width=64, layers=4), 64).ravel()
        error = {"normal": 2, "uniform": 0.8}[start]  # the variance of the squares, in units of sigma^4
        assert abs(sample.mean()) < 4 * sigma / sample.size**0.5
        assert abs(sample.var() / sigma**2 - 1) < 4 * (error / sample.size) ** 0.5

    def test_uniform_ends_where_it_must_and_normal_does_not(self) -> None:
        uniform, normal = (
            abs(table_of(Member(sigma=1.0, start=start, width=64), 64)).max() for start in ("uniform", "normal")
        )
        assert 0.99 * 3**0.5 < uniform <= 3**0.5
        assert normal > 3

    @pytest.mark.parametrize("start", ["normal", "uniform"])
    def test_every_sigma_of_a_seed_scales_the_same_draw(self, start) -> None:
        small, large = (table_of(Member(sigma=sigma, start=start, width=8)) for sigma in (0.25, 2.0))
        np.testing.assert_array_equal(small * 8, large)
        other = table_of(Member(sigma=2.0, seed=1, start=start, width=8))
        assert not (large == other).any()

    def test_random_and_learned_of_a_seed_start_alike(self) -> None:
        np.testing.assert_array_equal(*(table_of(Member(name, 1.0, width=8)) for name in ("random", "learned")))

    def test_every_block_has_a_draw_of_its_own(self) -> None:
        table = table_of(Member(sigma=1.0, width=8, layers=2))
        assert not (table[0] == table[1]).any()

    def test_the_input_alone_starts_like_the_first_block(self) -> None:
        every, alone = (table_of(Member(width=8, layers=2, placement=place)) for place in ("every", "input"))
        assert alone.shape == (1, 16, 8)
        np.testing.assert_array_equal(alone[0], every[0])

    def test_zero_and_sigma_zero(self) -> None:
        assert not table_of(Member(start="zero", sigma=None, width=8)).any()
        assert not table_of(Member(sigma=0.0, width=8)).any()
        assert table_of(Member(sigma=0.1, width=8)).any()

    def test_sigma_is_needed(self) -> None:
        with pytest.raises(BadInput, match=r"^sigma must be a number of at least 0 for the encoding learned; got None"):
            table_of(Member(sigma=None, width=8))

    def test_none_adds_nothing_whatever_sigma(self) -> None:
        assert not table_of(Member("none", sigma=2.0, width=8)).any()
        x = torch.randn(2, 16, 8)
        assert torch.equal(encodings.make("none", 16, 8)(x), x)


class TestPlaced:
    """Starts that know the true positions."""

    @pytest.mark.parametrize("sigma", [0.1, 2.0])
    @pytest.mark.parametrize("name", ["random", "learned"])
    def test_true_is_the_papers_code_at_another_scale(self, name, sigma) -> None:
        found = table_of(Member(name, sigma, start="true", width=12, layers=2), 16, GRID)
        fixed = table_of(Member("sinusoid", width=12, layers=2, options={"axes": 2}), 16, GRID)
        assert np.sqrt((found**2).mean()) == pytest.approx(sigma, abs=1e-12)
        np.testing.assert_allclose(found / found[0, 0, 1], fixed / fixed[0, 0, 1], rtol=0, atol=1e-12)
        np.testing.assert_array_equal(found[0], found[1])

    @pytest.mark.parametrize("axes", [1, 3])
    def test_true_has_as_many_axes_as_the_positions(self, axes) -> None:
        places = np.random.default_rng(0).normal(size=(5, axes))
        found, fixed = table_of(Member(sigma=1.0, start="true", width=8), 5, places)[0], sinusoid(places, 8)
        np.testing.assert_allclose(found * np.sqrt((fixed**2).mean()), fixed, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("axes", [1, 2, 3])
    def test_axes_adds_up_a_vector_for_each_coordinate(self, axes) -> None:
        """Of variance sigma^2; those of tokens that share some of their coordinates are alike in that share."""
        places = np.stack(np.meshgrid(*[np.arange(3.0)] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
        pe = table_of(Member(sigma=0.5, start="axes", width=20_000, layers=1), len(places), places)[0]
        alike = pe @ pe.T / pe.shape[1] / 0.25
        shared = (places[:, None] == places).mean(-1)
        assert abs(alike - shared).max() < 0.06  # 4 standard errors are 0.04 on the diagonal, 0.028 beside it

    def test_axes_have_no_more_than_their_parts(self) -> None:
        """A row is a row at every column: differences within one are the same in all."""
        pe = table_of(Member(sigma=1.0, start="axes", width=6, layers=2), 16, GRID).reshape(2, 4, 4, 6)
        np.testing.assert_allclose(pe[:, 1:] - pe[:, :1], (pe[:, 1:] - pe[:, :1])[:, :, :1].repeat(4, 2), atol=1e-12)
        assert not np.allclose(pe[0], pe[1])  # every block has its own

    def test_axes_go_by_the_coordinates_and_not_by_the_order_of_tokens(self) -> None:
        order, member = np.random.default_rng(0).permutation(16), Member(sigma=1.0, start="axes", width=6)
        np.testing.assert_array_equal(table_of(member, 16, GRID[order] * 2.5 - 1), table_of(member, 16, GRID)[:, order])

    def test_every_sigma_of_a_seed_scales_the_same_draw(self) -> None:
        small, large = (table_of(Member(sigma=s, start="axes", width=8), 16, GRID) for s in (0.25, 2.0))
        np.testing.assert_array_equal(small * 8, large)
        other = table_of(Member(sigma=2.0, seed=1, start="axes", width=8), 16, GRID)
        assert not (large == other).any()

    def test_the_draw_is_not_that_of_normal(self) -> None:
        """Or a member with one coordinate on its only axis for each token would start as one of start normal."""
        line = np.arange(4.0)[:, None]
        axes, normal = (table_of(Member(sigma=1.0, start=start, width=8), 4, line) for start in ("axes", "normal"))
        assert axes.shape == normal.shape and not (axes == normal).any()

    @pytest.mark.parametrize("start", ["true", "axes"])
    def test_the_input_alone_starts_like_the_first_block(self, start) -> None:
        every, alone = (
            table_of(Member(start=start, width=8, layers=2, placement=place), 16, GRID) for place in ("every", "input")
        )
        np.testing.assert_array_equal(alone, every[:1])

    @pytest.mark.parametrize("start", ["true", "axes"])
    def test_what_they_need(self, start) -> None:
        with pytest.raises(BadInput) as error:
            table_of(Member(start=start, width=8))
        text = f"the start {start} must be that of tokens with known positions; these have none."
        assert str(error.value) == text
        with pytest.raises(BadInput, match=r"^sigma must be a number of at least 0 for the encoding learned; got None"):
            table_of(Member(sigma=None, start=start, width=8), 16, GRID)
        for name in ("relative", "sinusoid", "none", "rotary"):
            with pytest.raises(BadInput, match=f"^start must be normal, uniform or zero for the encoding {name}; got"):
                encodings.family(Member(name, start=start))


class TestArrays:
    def test_one_array_for_all_blocks_or_one_for_each(self) -> None:
        array = np.random.default_rng(0).normal(size=(2, 3, 8))
        kept = table_of(Member(start=array, layers=2, width=8), 3)
        np.testing.assert_array_equal(kept, array)
        same = table_of(Member(start=array[0], layers=2, width=8), 3)
        np.testing.assert_array_equal(same, [array[0], array[0]])

    def test_blocks_that_start_from_one_array_learn_apart(self) -> None:
        pe = encodings.make("learned", 3, 8, layers=2, start=np.ones((3, 8)))
        with torch.no_grad():
            pe.table[:, 0] += 1
        assert (pe.table[:, 1] == 1).all()

    @pytest.mark.parametrize("shape", [(3, 9), (4, 8), (3, 3, 8), (1, 3, 8), (8, 3)])
    def test_wrong_shapes_are_refused(self, shape) -> None:
        with pytest.raises(BadInput) as error:
            table_of(Member(start=np.zeros(shape), layers=2, width=8), 3)
        assert str(error.value) == f"start must be an array of shape (3, 8) or (2, 3, 8); got {shape}."

    def test_a_stack_holds_different_starts(self) -> None:
        array = np.full((3, 8), 7.0)
        starts = ["zero", Table(array), "normal"]
        vectors = encodings.build([Member(start=start, layers=1, width=8) for start in starts], Layout(3)).vectors()
        assert not vectors[0].any()
        np.testing.assert_array_equal(vectors[1, 0].detach().numpy(), array)
        assert vectors[2].any()


class TestUse:
    def test_drop_in_adds_the_table(self) -> None:
        pe = encodings.make("learned", 6, 8, sigma=1.0)
        x = torch.randn(2, 6, 8)
        torch.testing.assert_close(pe(x), x + pe.vectors()[0, 0])
        torch.testing.assert_close(pe(x[:, :4]), x[:, :4] + pe.vectors()[0, 0, :4])  # shorter sequences

    def test_more_tokens_than_the_encoding_has_are_refused(self) -> None:
        with pytest.raises(BadInput, match=r"^x must have at most 6 tokens, as many as the encoding; got 7\.$"):
            encodings.make("learned", 6, 8)(torch.zeros(1, 7, 8))

    def test_each_block_adds_its_own_vectors(self) -> None:
        pe = encodings.make("learned", 6, 8, layers=3, sigma=1.0)
        for block in range(3):
            found = pe.add(torch.zeros(1, 2, 6, 8), block)
            torch.testing.assert_close(found, pe.vectors()[:, block, None].expand(1, 2, 6, 8))

    def test_a_drop_in_takes_the_number_of_the_block(self) -> None:
        pe = encodings.make("learned", tokens=6, width=8, layers=2, sigma=1.0)
        x = torch.randn(4, 6, 8)
        for block in (0, 1):
            wanted = x + pe.vectors()[0, block]
            assert torch.equal(pe(x, block), wanted) and torch.equal(pe.add(x, block), wanted)
        assert not torch.equal(pe(x, 0), pe(x, 1))

    @pytest.mark.parametrize("placement", ["every", "input"])
    def test_what_the_blocks_of_a_stack_read(self, placement) -> None:
        stack = Stack(
            [Member(sigma=1.0, width=8, layers=2, placement=placement)], tokens=6, features=3, outputs=2
        ).double()
        seen = stack.capture(torch.randn(5, 6, 3, dtype=torch.float64), "*")
        vectors = stack.encoding.vectors()
        torch.testing.assert_close(seen["input.0"] - seen["embedding"], vectors[:, 0, None].expand(1, 5, 6, 8))
        added = seen["input.1"] - seen["block.0"]
        expected = vectors[:, 1, None].expand(1, 5, 6, 8) if placement == "every" else torch.zeros_like(added)
        torch.testing.assert_close(added, expected)
