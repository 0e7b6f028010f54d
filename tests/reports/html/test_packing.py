"""Bytes and back: what a page holds of matrices and maps is what the study gave, to the step of its scale."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from helpers import report_parts as made_up

from placecode.reports.html import packing


def read(text: str, scale: float, steps: int) -> np.ndarray:
    """As the page's script reads it."""
    whole = np.frombuffer(base64.b64decode(text), dtype="<u1" if steps < 256 else "<u2").astype(float)
    return np.where(whole == 0, np.nan, (whole - 1 - steps) / steps * scale)


@pytest.mark.parametrize("steps", [packing.STEPS, packing.FINE])
def test_values_come_back_to_half_a_step(steps: int) -> None:
    values = np.random.default_rng(0).uniform(-3, 3, (7, 7))
    values[0, :3] = 3.0, -3.0, 0.0
    back = read(str(packing.packed(values, 3.0, steps)), 3.0, steps).reshape(7, 7)
    assert np.abs(back - values).max() <= 1.5 / steps + 1e-12
    assert back[0, :3].tolist() == [3.0, -3.0, 0.0]  # the ends and zero are exact


def test_what_is_missing_stays_missing() -> None:
    back = read(str(packing.packed(np.array([[0.5, np.nan, np.inf]]), 1.0)), 1.0, packing.STEPS)
    assert np.isnan(back).tolist() == [False, True, True]


def test_blocks_are_means() -> None:
    rng = np.random.default_rng(0)
    matrix, order = rng.normal(size=(7, 7)), rng.permutation(7)
    means = packing.blocks(matrix, order, 3)
    sorted_by = matrix[np.ix_(order, order)]
    assert means.shape == (3, 3)
    np.testing.assert_allclose(means[0, 1], sorted_by[:3, 3:6].mean())
    np.testing.assert_allclose(means[2, 2], sorted_by[6, 6])
    np.testing.assert_array_equal(packing.blocks(matrix, order, 1), sorted_by)


@pytest.mark.parametrize(("count", "rows"), [(250, 250), (251, 126), (1000, 250)])
def test_matrices_are_at_most_250_wide(count: int, rows: int) -> None:
    packed = packing.dial(made_up.dial(count, 3, sigmas=(0.1,)))
    stop = packed["stops"][0]
    assert len(read(stop["similarity"], packed["scales"]["similarity"], packing.STEPS)) == rows**2
    assert len(read(stop["places"], packed["scales"]["places"], packing.FINE)) == 2 * count


def test_channels_are_in_the_order_of_their_groups_and_the_groupless_last() -> None:
    groups = np.array([2, -1, 0, 2, 0])
    assert packing.in_groups(groups, 5).tolist() == [2, 4, 0, 3, 1]
    assert packing.in_groups(None, 3).tolist() == [0, 1, 2]


def test_the_diagonal_does_not_set_the_scale() -> None:
    assert packing.dial(made_up.dial(30, 3))["scales"]["similarity"] < 1.2
    faint = made_up.dial(30, 3, sigmas=(0.1,))
    similar = np.where(np.eye(30, dtype=bool), 1.0, 0.05)
    faint = type(faint)(faint.names, None, (), [type(faint.stops[0])("0.1", 0.1, {}, similar)], {})
    assert packing.dial(faint)["scales"]["similarity"] == pytest.approx(0.05)


def test_texts_cannot_leave_the_script() -> None:
    data = {"</script><!--": [made_up.EVIL, float("nan"), np.float64(0.5), np.int64(3), None, "\u2028"]}
    text = packing.as_script(data)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"</script><!--": [made_up.EVIL, None, 0.5, 3, None, "\u2028"]}
