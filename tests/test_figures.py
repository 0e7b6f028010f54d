"""Figures: what is drawn is read back from the artists and compared with an independent computation."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import stats

from placecode import figures
from placecode.errors import BadInput

SPLITS = ("train", "test", "validation")
STEPS = (0, 10, 20)


def tables(
    sigmas: Sequence[float | None] = (0.2, 1.0, 2.0),
    seeds: int = 3,
    encodings: Sequence[tuple[str, str]] = (("learned", "{}"),),
    diverged: Sequence[int] = (),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Members and metrics of a made-up run; encodings are (name, options), those other than learned have no sigma."""
    rng = np.random.default_rng(0)
    members, metrics = [], []
    for encoding, options in encodings:
        for sigma, seed in itertools.product(sigmas if encoding == "learned" else [None], range(seeds)):
            number = len(members)
            state = "diverged" if number in diverged else "done"
            spec = {"encoding": encoding, "sigma": sigma, "seed": seed, "options": options, "width": 8}
            members.append({"member": number, **spec, "state": state, "diverged_at": 10 if number in diverged else -1})
            for step, split, condition in itertools.product(STEPS, SPLITS, ("all", "Binary")):
                value = rng.uniform(0.4, 1.0) if number not in diverged else np.nan
                metrics.append((number, step, split, condition, "accuracy", value))
                metrics.append((number, step, split, condition, "loss", 99.0))
    columns = ["member", "step", "split", "condition", "metric", "value"]
    return pd.DataFrame(members), pd.DataFrame(metrics, columns=columns)


def final(members: pd.DataFrame, metrics: pd.DataFrame, split: str, **spec: Any) -> np.ndarray:
    """The values that a mean is over, picked row by row."""
    wanted = {
        row["member"]
        for row in members.to_dict("records")
        if row["state"] == "done" and all(row[name] == value for name, value in spec.items())
    }
    kept = [
        row["value"]
        for row in metrics.to_dict("records")
        if (row["split"], row["condition"], row["metric"], row["step"]) == (split, "all", "accuracy", STEPS[-1])
        and row["member"] in wanted
    ]
    return np.array(kept)


def drawn(axes: Axes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Means (k,) and bars (k, 2) of each split, read from the panel."""
    found = {}
    for container in axes.containers:
        assert isinstance(container, ErrorbarContainer)
        line, _, (bars,) = container.lines
        assert isinstance(bars, LineCollection)
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        found[str(container.get_label())] = (np.asarray(line.get_ydata()), ends)
    return found


def words(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


# ---------------------------------------------------------------------------------------------- accuracy_by_sigma


def test_means_and_intervals_are_those_of_the_seeds() -> None:
    members, metrics = tables()
    axes = figures.accuracy_by_sigma(members, metrics, "demo").axes[0]
    found = drawn(axes)
    assert list(found) == list(SPLITS)
    for split, (means, bars) in found.items():
        for i, sigma in enumerate((0.2, 1.0, 2.0)):
            values = final(members, metrics, split, sigma=sigma)
            low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
            assert means[i] == pytest.approx(values.mean())
            np.testing.assert_allclose(bars[i], np.clip([low, high], 0, 1))


def test_every_seed_is_a_dot() -> None:
    members, metrics = tables()
    axes = figures.accuracy_by_sigma(members, metrics, "demo").axes[0]
    dots = [line for line in axes.lines if line.get_linestyle() == "None" and line.get_alpha() is not None]
    found = sorted(y for line in dots for y in np.asarray(line.get_ydata(), dtype=float))
    expected = sorted(y for split in SPLITS for y in final(members, metrics, split))
    np.testing.assert_allclose(found, expected)


def test_chance_is_drawn_where_it_was_said_to_be() -> None:
    axes = figures.accuracy_by_sigma(*tables(), "demo", chance=0.125).axes[0]
    (line,) = [line for line in axes.lines if line.get_label() == "chance"]
    assert set(np.asarray(line.get_ydata())) == {0.125}


def test_other_encodings_stand_beside_the_sweep() -> None:
    members, metrics = tables(
        encodings=[("learned", "{}"), ("sinusoid", '{"axes": 1}'), ("sinusoid", '{"axes": 2}'), ("none", "{}")]
    )
    sweep, others = figures.accuracy_by_sigma(members, metrics, "demo").axes
    assert len(drawn(sweep)["test"][0]) == 3
    names = [label.get_text() for label in others.get_xticklabels()]
    assert names == ["sinusoid, axes 1", "sinusoid, axes 2", "none"]
    at = dict(zip(np.round(others.containers[1].lines[0].get_xdata()), drawn(others)["test"][0], strict=True))
    assert at[2] == pytest.approx(final(members, metrics, "test", encoding="none").mean())
    assert at[0] == pytest.approx(final(members, metrics, "test", options='{"axes": 1}').mean())


def test_members_that_differ_in_more_than_sigma_are_not_averaged_together() -> None:
    members, metrics = tables(seeds=4)
    members["optimizer"] = ["adam", "sgd"] * 6
    adam, sgd = figures.accuracy_by_sigma(members, metrics, "demo").axes
    assert (adam.get_title(), sgd.get_title()) == ("learned, optimizer adam", "learned, optimizer sgd")
    values = final(members, metrics, "train", sigma=0.2, optimizer="sgd")
    assert drawn(sgd)["train"][0][0] == pytest.approx(values.mean())


def test_one_seed_has_a_mean_and_no_interval() -> None:
    figure = figures.accuracy_by_sigma(*tables(seeds=1), "demo")
    for means, bars in drawn(figure.axes[0]).values():
        np.testing.assert_allclose(bars, np.stack([means, means], axis=1))
    assert "no interval" in words(figure)


def test_diverged_members_are_left_out_and_mentioned() -> None:
    members, metrics = tables(diverged=[0])
    figure = figures.accuracy_by_sigma(members, metrics, "demo")
    values = final(members, metrics, "train", sigma=0.2)
    assert len(values) == 2
    assert drawn(figure.axes[0])["train"][0][0] == pytest.approx(values.mean())
    assert "1 of 9 members diverged" in words(figure)
    assert "diverged" not in words(figures.accuracy_by_sigma(*tables(), "demo"))


def test_a_sigma_that_lost_all_its_members_keeps_its_place() -> None:
    figure = figures.accuracy_by_sigma(*tables(diverged=[0, 1, 2]), "demo")
    assert "all members diverged" in words(figure)
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["0.2", "1", "2"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sigmas", [[0.2], [0.0, 1.0], [0.01, 0.1, 2.0], list(np.arange(1, 21) / 10)])
@pytest.mark.parametrize("draw", [figures.accuracy_by_sigma, figures.learning_curves])
def test_any_set_of_sigmas_can_be_drawn(draw: Any, sigmas: list[float], tmp_path: Path) -> None:
    figures.save(draw(*tables(sigmas), "demo"), tmp_path / "figure.png")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("draw", [figures.accuracy_by_sigma, figures.learning_curves])
def test_a_run_in_which_everything_diverged_can_be_drawn(draw: Any, tmp_path: Path) -> None:
    figures.save(draw(*tables(diverged=range(9)), "demo"), tmp_path / "figure.png")


# ------------------------------------------------------------------------------------------------ learning_curves


def test_curves_are_means_with_bands() -> None:
    members, metrics = tables()
    axes = figures.learning_curves(members, metrics, "demo").axes[1]
    assert axes.get_title().endswith("= 1")
    lines = {line.get_label(): line for line in axes.lines}
    for band, split in zip(axes.collections, SPLITS, strict=True):
        line = lines[split]
        assert tuple(line.get_xdata()) == STEPS
        values = final(members, metrics, split, sigma=1.0)
        assert line.get_ydata()[-1] == pytest.approx(values.mean())
        low, high = np.clip(stats.t.interval(0.95, 2, values.mean(), stats.sem(values)), 0, 1)
        corners = band.get_paths()[0].vertices
        ends = corners[corners[:, 0] == STEPS[-1], 1]
        assert (ends.min(), ends.max()) == (pytest.approx(low), pytest.approx(high))


def test_many_sigmas_are_thinned_evenly_and_keep_their_ends() -> None:
    figure = figures.learning_curves(*tables(list(np.arange(1, 21) / 10)), "demo")
    shown = [float(axes.get_title().split("= ")[1]) for axes in figure.axes if axes.get_title()]
    assert len(shown) == 6
    assert (shown[0], shown[-1]) == (0.1, 2.0)
    assert max(np.diff(shown)) - min(np.diff(shown)) < 0.11


def test_other_encodings_have_their_own_curves() -> None:
    figure = figures.learning_curves(*tables([0.2, 2.0], encodings=[("learned", "{}"), ("none", "{}")]), "demo")
    assert [axes.get_title() for axes in figure.axes][-1] == "none"


# ------------------------------------------------------------------------------------------------ similarity_maps


def maps(n: int, count: int) -> list[np.ndarray]:
    return list(np.random.default_rng(1).uniform(-1, 1, size=(count, n, n)))


def test_maps_show_their_arrays_on_one_scale() -> None:
    true, a, b, c, d = maps(16, 5)
    names = [f"t{i}" for i in range(16)]
    figure = figures.similarity_maps(true, (a, b), (c, d), names, "demo", ("s", "l", "t"), rule=4)
    shown = [axes.images[0] for axes in figure.axes if axes.images]
    for drawn_map, array in zip(shown, (a, b, c, d, true), strict=True):
        np.testing.assert_array_equal(drawn_map.get_array(), array)
        assert drawn_map.get_clim() == (-1, 1)
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == ["s", "l", "t"]
    assert {"before training", "after training"} <= set(words(figure).split("\n"))
    named = [(len(axes.get_xticklabels()), len(axes.get_yticklabels())) for axes in figure.axes if axes.images]
    assert named == [(0, 16), (16, 16), (0, 0), (16, 0), (16, 16)]  # at the left, below, and all around the true one
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == names


def test_maps_without_a_start_have_one_row() -> None:
    true, a, b = maps(16, 3)
    figure = figures.similarity_maps(true, a, b, [""] * 16, "demo")
    assert sum(bool(axes.images) for axes in figure.axes) == 3
    assert "before training" not in words(figure)


@pytest.mark.filterwarnings("error")
def test_a_diverged_map_is_blank(tmp_path: Path) -> None:
    figures.save(
        figures.similarity_maps(np.eye(4), np.full((4, 4), np.nan), np.eye(4), list("abcd"), "demo"), tmp_path / "f"
    )


def test_many_tokens_are_not_named() -> None:
    true, a, b = maps(100, 3)
    figure = figures.similarity_maps(true, a, b, [f"t{i}" for i in range(100)], "demo")
    assert "t3" not in words(figure).split("\n")


def test_maps_of_another_size_are_refused() -> None:
    with pytest.raises(BadInput, match="similarity map must be"):
        figures.similarity_maps(np.eye(4), np.eye(4), np.eye(5), list("abcd"), "demo")


# ------------------------------------------------------------------------------------------------ every figure, files


def all_figures(name: str) -> list[Figure]:
    return [
        figures.accuracy_by_sigma(*tables(), name),
        figures.learning_curves(*tables(), name),
        figures.similarity_maps(np.eye(4), np.eye(4), np.eye(4), [name] * 4, name),
    ]


@pytest.mark.parametrize("name", ["lst-quick", "$x^_{", "<script>alert(1)</script> --> &amp; \"'", "a" * 300])
def test_every_figure_names_its_run_whatever_its_name(name: str) -> None:
    for figure in all_figures(name):
        assert f"run {name[:28]}" in words(figure)
        figures.svg_text(figure)  # names are not read as mathematics, which would fail here


def test_axes_are_labelled() -> None:
    for figure in all_figures("demo")[:2]:
        assert any(axes.get_xlabel() for axes in figure.axes)
        assert any(axes.get_ylabel() for axes in figure.axes)


def test_png_is_whole_and_at_150_dpi(tmp_path: Path) -> None:
    figure = figures.accuracy_by_sigma(*tables(), "demo")
    figures.save(figure, tmp_path / "figure.png")
    height, width = image.imread(tmp_path / "figure.png").shape[:2]
    assert (width, height) == tuple((figure.get_size_inches() * 150).astype(int))
    assert [path.name for path in tmp_path.iterdir()] == ["figure.png"]


class Ids(HTMLParser):
    """Collects ids, the ids that are referred to, and tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.used: set[str] = set()
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            elif name.endswith("href") and str(value).startswith("#"):
                self.used.add(str(value)[1:])
            else:
                self.used |= set(re.findall(r"url\(#([^)]+)\)", str(value)))


def test_svg_is_the_same_every_time_and_leaves_no_trace() -> None:
    before = dict(matplotlib.rcParams)
    first, second = (figures.svg_text(figures.accuracy_by_sigma(*tables(), "demo"), "a") for _ in range(2))
    assert first == second
    assert dict(matplotlib.rcParams) == before
    assert first.startswith("<svg ")


def test_svg_ids_are_unique_on_a_page_and_all_references_hold() -> None:
    page = "".join(figures.svg_text(figure, f"figure-{i}") for i, figure in enumerate(all_figures("demo")))
    found = Ids(page)
    assert len(found.ids) == len(set(found.ids)) > 10
    assert found.used
    assert found.used <= set(found.ids)


def test_svg_escapes_names_and_label() -> None:
    name = '<script>alert(1)</script>--><b class="x">'
    for figure in all_figures(name):
        found = Ids(figures.svg_text(figure, label=name))
        assert not {"script", "b", "style", "metadata"} & found.tags


def test_svg_colours_follow_the_page() -> None:
    text = figures.svg_text(figures.accuracy_by_sigma(*tables(), "demo"))
    assert "currentColor" in text
    assert "var(--figure-blue, #0072B2)" in text
    assert figures.INK not in text


def test_figures_can_be_made_in_threads() -> None:
    expected = figures.svg_text(figures.accuracy_by_sigma(*tables(), "demo"), "a")
    found: list[str] = []

    def work() -> None:
        found.append(figures.svg_text(figures.accuracy_by_sigma(*tables(), "demo"), "a"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4
