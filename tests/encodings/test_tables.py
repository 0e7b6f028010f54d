"""PEs as arrays: brought to a scale, and onto another grid of tokens."""

import numpy as np
import pytest

from placecode.encodings.tables import resized, scaled


def grid(rows: int, columns: int) -> np.ndarray:
    return np.stack(np.divmod(np.arange(rows * columns), columns), axis=1).astype(float)


def some(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def test_scaled_to_a_root_mean_square() -> None:
    pe = some(2, 5, 3) + 1
    result = scaled(pe, 0.3)
    assert np.sqrt((result**2).mean()) == pytest.approx(0.3)
    assert result / result[0, 0, 0] == pytest.approx(pe / pe[0, 0, 0])
    assert not scaled(np.zeros((2, 5, 3)), 0.3).any()


class TestResized:
    @pytest.mark.parametrize("sides", [(4, 4), (2, 5)])
    def test_the_same_grid_is_the_identity(self, sides) -> None:
        pe = some(2, sides[0] * sides[1], 3)
        np.testing.assert_array_equal(resized(pe, grid(*sides), grid(*sides)), pe)

    @pytest.mark.parametrize(("old", "new"), [((4, 4), (5, 5)), ((5, 5), (4, 4)), ((4, 4), (6, 6)), ((2, 3), (7, 2))])
    def test_linear_functions_of_the_coordinates_stay_what_they_are(self, old, new) -> None:
        """With the corners of one grid on those of the other; products of row and column too, by bilinearity."""

        def values(places: np.ndarray, sides: tuple[int, int]) -> np.ndarray:
            row, column = (places / (np.array(sides) - 1)).T
            return np.stack([3 * row - column + 2, np.ones(len(places)), row * column], axis=1)[None]

        result = resized(values(grid(*old), old), grid(*old), grid(*new))
        np.testing.assert_allclose(result, values(grid(*new), new), rtol=0, atol=1e-14)
        bent = values(grid(*old), old) ** 2
        if old == (4, 4):  # what is not linear does change
            assert abs(resized(bent, grid(*old), grid(*new)) - values(grid(*new), new) ** 2).max() > 0.01

    def test_from_four_to_five(self) -> None:
        np.testing.assert_array_equal(resized(grid(4, 4)[None], grid(4, 4), grid(5, 5)), grid(5, 5)[None] * 0.75)
        pe = some(2, 16, 3)
        result = resized(pe, grid(4, 4), grid(5, 5))
        np.testing.assert_array_equal(result[:, [0, 4, 20, 24]], pe[:, [0, 3, 12, 15]])  # corners are the corners

    def test_tokens_may_come_in_any_order_and_at_any_coordinates(self) -> None:
        rng, pe = np.random.default_rng(1), some(2, 12, 3)
        old_order, new_order = rng.permutation(12), rng.permutation(20)
        plain = resized(pe, grid(3, 4), grid(4, 5))
        mixed = resized(pe[:, old_order], 8 * grid(3, 4)[old_order] - 3, grid(4, 5)[new_order] / 2 + 7)
        np.testing.assert_allclose(mixed, plain[:, new_order], rtol=0, atol=1e-14)

    def test_coordinates_that_are_not_even(self) -> None:
        """Between 0 and 4 a PE goes straight, whatever lies between."""
        uneven = np.array([[row, column] for row in (0, 1, 4) for column in (0, 1)], dtype=float)
        result = resized(uneven[None, :, :1], uneven, grid(5, 2))
        np.testing.assert_allclose(result[0, ::2, 0], np.arange(5), rtol=0, atol=1e-14)
