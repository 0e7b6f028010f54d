"""Names beside points do not hide one another; and what all figures share."""

import itertools

import numpy as np
import pytest
from matplotlib.figure import Figure

from placecode.reports.figures import base
from placecode.reports.figures.labels import write_beside


@pytest.mark.parametrize("seed", range(5))
def test_names_of_scattered_points_do_not_overlap(seed: int) -> None:
    places = np.random.default_rng(seed).uniform(0.05, 0.95, size=(16, 2))
    axes = Figure(figsize=(3, 3), dpi=72).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    write_beside(axes, places, [f"r{i // 4}c{i % 4}" for i in range(16)], (216, 216), size=6.3)
    axes.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_text_is_wrapped_evenly_and_loses_nothing() -> None:
    text = "over the sigmas -0.98, before training 0.00"
    assert base.wrapped(text, 40) == "over the sigmas -0.98,\nbefore training 0.00"
    assert base.wrapped(text, 40, even=False) == "over the sigmas -0.98, before training\n0.00"
    assert base.wrapped("a b\n\nc", 40) == "a b\n\nc"
    for width in range(3, 50):
        lines = base.wrapped(text, width).split("\n")
        assert max(map(len, lines)) <= width
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
