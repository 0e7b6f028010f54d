"""Noise, confidence and errors: what is drawn is what the tables say."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.figure_reading import made_up, mean_and_bounds, of, points, words
from matplotlib.colors import to_rgb

from placecode.errors import BadInput
from placecode.reports import figures
from placecode.reports.figures import SIGMA

pytestmark = pytest.mark.filterwarnings("error")


# ------------------------------------------------------------------------------------------------------ noise_curves


def test_a_panel_per_split_and_a_line_per_sigma() -> None:
    rows = made_up({"split": ("ood", "train"), "sigma": (0.2, 2.0), "level": (0.0, 0.1, 5.0)})
    figure = figures.noise_curves(rows, "demo", chance=0.125)
    assert [axes.get_title() for axes in figure.axes] == ["train", "ood"]  # as splits always stand
    for axes in figure.axes:
        found = points(axes)
        assert list(found) == [f"{SIGMA} = 0.2", f"{SIGMA} = 2"]
        assert len({marks.marker for marks in found.values()}) == 2
        for label, sigma in ((f"{SIGMA} = 0.2", 0.2), (f"{SIGMA} = 2", 2.0)):
            marks = found[label]
            assert np.round(marks.x).tolist() == [0, 1, 2]  # at equal distances, not at 0, 0.1 and 5
            assert marks.y_bars is not None
            for y, bar, level in zip(marks.y, marks.y_bars, (0.0, 0.1, 5.0), strict=True):
                mean, *bounds = mean_and_bounds(of(rows, split=axes.get_title(), sigma=sigma, level=level))
                assert y == pytest.approx(mean)
                np.testing.assert_allclose(bar, bounds)
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "0.1", "5"]
        (chance,) = [line for line in axes.lines if line.get_label() == "chance"]
        assert set(chance.get_ydata()) == {0.125}


def test_many_sigmas_are_thinned_and_it_is_told() -> None:
    sigmas = np.arange(1, 21) / 10
    figure = figures.noise_curves(made_up({"split": ("train",), "sigma": sigmas, "level": (0.0, 1.0)}, 2), "demo")
    shown = [float(label.split("= ")[1]) for label in points(figure.axes[0])]
    assert len(shown) == 5
    assert (shown[0], shown[-1]) == (0.1, 2.0)
    assert "5 of 20 sigmas" in words(figure)
    few = made_up({"split": ("train",), "sigma": sigmas[:5], "level": (0.0, 1.0)}, 2)
    assert "sigmas" not in words(figures.noise_curves(few, "demo"))


# ----------------------------------------------------------------------------------------------- conditions_by_sigma


def test_accuracy_and_confidence_stand_beside_each_other() -> None:
    rows = made_up({"condition": ("easy", "hard"), "sigma": (0.5, 1.0, 1.5)}, values=("accuracy", "confidence"))
    figure = figures.conditions_by_sigma(rows, "demo")
    assert [axes.get_ylabel().split()[0] for axes in figure.axes] == ["accuracy", "confidence"]
    for axes, value in zip(figure.axes, ("accuracy", "confidence"), strict=True):
        found = points(axes)
        assert list(found) == ["easy", "hard"]
        assert found["easy"].marker != found["hard"].marker
        for condition, marks in found.items():
            for sigma, y in zip(marks.x, marks.y, strict=True):
                assert y == pytest.approx(of(rows, value, condition=condition, sigma=sigma).mean())


def test_more_conditions_than_styles_can_be_drawn() -> None:
    rows = made_up({"condition": list("abcdefgh"), "sigma": (0.5, 1.0)}, 2, ("accuracy", "confidence"))
    figure = figures.conditions_by_sigma(rows, "demo")
    figure.draw_without_rendering()
    assert len(points(figure.axes[0])) == 8


# -------------------------------------------------------------------------------------------------------- error_maps


def test_every_cell_says_its_rate_or_none() -> None:
    rates = np.array([[0.0, 0.125, 0.6], [np.nan, 1 / 3, 0.07]])
    figure = figures.error_maps([("small", rates), ("large", rates / 2)], "demo")
    first, second = figure.axes[:2]
    assert (first.get_title(), second.get_title()) == ("small", "large")
    written = {text.get_position(): text.get_text() for text in first.texts}
    assert written[(0, 1)] == "none"
    assert written[(2, 0)] == "0.60"
    assert written[(1, 1)] == "0.33"
    assert len(written) == rates.size
    assert [text.get_text() for text in second.texts][2] == "0.30"
    np.testing.assert_array_equal(np.asarray(first.images[0].get_array().filled(np.nan)), rates)


def test_maps_share_a_scale_from_zero_and_say_what_it_is() -> None:
    figure = figures.error_maps([("a", np.full((2, 2), 0.02)), ("b", np.full((2, 2), 0.33))], "demo")
    limits = {axes.images[0].get_clim() for axes in figure.axes if axes.images}
    assert limits == {(0, 0.4)}
    assert "share of wrong answers" in words(figure)


def test_numbers_can_be_read_on_their_cells() -> None:
    """WCAG's contrast of text and cell, for all rates; and colours that are not swapped would fail it."""
    rates = np.linspace(0, 1, 100).reshape(10, 10)
    axes = figures.error_maps([("a", rates)], "demo").axes[0]
    cells = axes.images[0].to_rgba(rates)[..., :3]

    def light(color: np.ndarray) -> float:
        linear = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05

    contrasts, swapped = [], []
    for text in axes.texts:
        column, row = text.get_position()
        cell, ink = light(cells[int(row), int(column)]), light(np.array(to_rgb(text.get_color())))
        contrasts.append(max(cell, ink) / min(cell, ink))
        other = light(np.array([0.995] * 3)) if ink < 0.5 else light(np.zeros(3))
        swapped.append(max(cell, other) / min(cell, other))
    assert min(contrasts) > 3.5
    assert min(swapped) < 1.5


@pytest.mark.parametrize("panels", [[], [("a", np.full((2, 2), np.nan))]])
def test_nothing_to_show_can_be_drawn(panels: list[tuple[str, np.ndarray]]) -> None:
    figure = figures.error_maps(panels, "demo")
    figure.draw_without_rendering()
    assert "run demo" in words(figure)


def test_rates_of_another_shape_are_refused() -> None:
    with pytest.raises(BadInput, match="error rates must be"):
        figures.error_maps([("a", np.zeros(4))], "demo")
