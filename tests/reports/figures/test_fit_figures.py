"""The figures of a fit: every channel has its place, its name and its colour, however many there are."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.figure_reading import words
from helpers.made_up_own import made_up, method, scored
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure

from placecode.experiments.channels.fit_result import FitResult
from placecode.reports.figures import fit as drawing
from placecode.reports.figures import svg_text
from placecode.reports.figures.fit import channels_on_map, maps_by_method, sigma_choice
from placecode.reports.pages import fit
from placecode.reports.pages.fit import FitPage

pytestmark = pytest.mark.filterwarnings("error")

STRANGE = ("<script>alert(1)</script>", "$x_{1", "$a$ and $b$", r"\frac{1}{2}", "&amp;", "_^%#", "é" * 30, "")


def texts(figure: Figure) -> list[str]:
    in_panels = [text.get_text() for axes in figure.axes for text in axes.texts]
    return in_panels + [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def collections(figure: Figure, kind: type[Any], panel: int = 0) -> list[Any]:
    return [item for item in figure.axes[panel].collections if isinstance(item, kind)]


def dots(figure: Figure, panel: int = 0) -> np.ndarray:
    """Where all channels lie in a panel, (n, 2)."""
    return np.concatenate([np.asarray(item.get_offsets()) for item in collections(figure, PathCollection, panel)])


def page_of(result: FitResult) -> FitPage:
    run: Any = SimpleNamespace(path=Path("a fit"), experiment="own", config={"scale": "quick"})
    page = FitPage(None, run)  # type: ignore[arg-type]
    page.__dict__["fit"] = result  # instead of reading it from the folder of the run
    return page


def a_map(n: int, modules: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "places": rng.normal(size=(n, 2)),
        "names": [f"channel {i + 1}" for i in range(n)],
        "labels": np.arange(n) % modules,
        "confidence": rng.random(n),
        "run_name": "a fit",
    }


@pytest.mark.parametrize(("n", "modules"), [(2, 1), (8, 2), (60, 14), (300, 40)])
def test_every_channel_is_on_the_map(n: int, modules: int) -> None:
    settings = a_map(n, modules)
    figure = channels_on_map(**settings)
    figure.draw_without_rendering()
    np.testing.assert_allclose(dots(figure), settings["places"][np.argsort(settings["labels"], kind="stable")])
    named = "\n".join(texts(figure)).split("\n")
    assert all((name in named) == (n <= drawing.MAX_NAMES) for name in settings["names"])
    assert ("module 1" in named, f"module {modules}" in named) == (1 < modules <= drawing.MAX_MODULES,) * 2


def test_channels_of_low_confidence_are_pale() -> None:
    figure = channels_on_map(**(a_map(6, 1) | {"confidence": np.array([0.0, 0.2, 0.4, 0.6, 1.0, np.nan])}))
    (scatter,) = collections(figure, PathCollection)
    np.testing.assert_allclose(scatter.get_alpha(), [0.25, 0.4, 0.55, 0.7, 1.0, 1.0])


def test_lines_join_pairs_and_the_least_confidence_is_said() -> None:
    settings = a_map(5, 2)
    for least, percent in ((0.9, "90%"), (0.759, "75%")):
        figure = channels_on_map(**settings, edges=[(0, 3, 0.95), (1, 2, least)])
        (lines,) = collections(figure, LineCollection)
        np.testing.assert_allclose(lines.get_segments(), [settings["places"][[0, 3]], settings["places"][[1, 2]]])
        assert f"confidence of {percent} or" in words(figure)
    none = channels_on_map(**settings)
    assert "lines" not in words(none) and not collections(none, LineCollection)


def test_strange_names_are_written_as_they_are() -> None:
    figure = channels_on_map(**(a_map(len(STRANGE), 2) | {"names": list(STRANGE)}))
    assert "<script" not in svg_text(figure)
    assert {"$x_{1", "$a$ and $b$", r"\frac{1}{2}", "&amp;"} <= set(texts(figure))


def test_a_map_that_is_not_there_is_said_to_be_missing() -> None:
    good, bad = np.random.default_rng(0).normal(size=(8, 2)), np.full((8, 2), np.nan)
    for maps in ({"placecode": good, "PCA": bad}, {"placecode": bad, "PCA": good}):
        figure = maps_by_method(maps, dict.fromkeys(maps, np.zeros(8, dtype=int)), "a fit")
        figure.draw_without_rendering()
        for panel, places in enumerate(maps.values()):
            assert bool(collections(figure, PathCollection, panel)) == (places is good)
            assert ("no values" in [text.get_text() for text in figure.axes[panel].texts]) == (places is bad)
        assert np.isfinite(dots(figure, 0 if maps["placecode"] is good else 1)).all()
    figure = channels_on_map(**(a_map(8, 2) | {"places": bad}), edges=[(0, 1, 0.9)])
    figure.draw_without_rendering()
    assert texts(figure) == ["no values"]


def test_maps_are_turned_onto_the_first_and_nothing_else() -> None:
    rng, n = np.random.default_rng(0), 30
    true = rng.normal(size=(n, 2))
    maps = {"placecode": 5 * true @ np.array([[0.0, -1.0], [1.0, 0.0]]) + 3, "PCA": rng.normal(size=(n, 2))}
    figure = maps_by_method(maps, dict.fromkeys(maps, np.zeros(n, dtype=int)), "a fit", positions=true)
    np.testing.assert_allclose(dots(figure, 1), dots(figure, 0), atol=1e-6)
    apart = [np.linalg.norm(places[:, None] - places, axis=-1) for places in (dots(figure, 2), maps["PCA"])]
    assert np.corrcoef(apart[0].ravel(), apart[1].ravel())[0, 1] > 1 - 1e-6


def test_the_chosen_sigma_has_a_ring_and_what_is_unknown_no_dot() -> None:
    rows = [(0.01, 0.5, 0.02, 0.9), (0.05, 0.4, 0.03, None), (0.2, 0.42, 0.01, 0.7)]
    table: Any = [dict(zip(("sigma", "error", "standard_error", "stability"), row, strict=True)) for row in rows]
    figure = sigma_choice(table, 0.2, "a fit")
    figure.draw_without_rendering()
    for axes, value in zip(figure.axes, (0.42, 0.7), strict=True):
        rings = [line for line in axes.lines if line.get_markersize() == 11]
        assert [(ring.get_xdata()[0], ring.get_ydata()[0]) for ring in rings] == [(0.2, value)]
    bar = [line for line in figure.axes[0].lines if len(set(line.get_ydata())) == 1 and len(line.get_xdata()) == 2]
    assert bar[-1].get_ydata()[0] == pytest.approx(0.43)  # the lowest, and its own standard error


@pytest.mark.parametrize("known", [False, True])
def test_a_fit_has_its_figures_its_search_and_its_tables(known: bool) -> None:
    result = made_up(labels=np.array([0, 0, 0, 1, 1, 1, -1, 0]) if known else None, label_names=("left", "right"))
    if known:
        result = scored(result, {"ari": 0.5, "ari_p": 0.01}, {"ari": 0.1, "ari_p": 0.5})
    page = page_of(result)
    assert [item.name for item in page.figures()] == ["map", "methods", "sigma"]
    channels = page.channel_map()
    assert channels.names == result.names and channels.edges == [(0, 1, 0.9)] and channels.neighbors is not None
    assert channels.neighbors[3] == [(4, result.pairs[3, 4]), (5, result.pairs[3, 5])]
    assert channels.columns.get("known group") == ([*["left"] * 3, *["right"] * 3, "", "left"] if known else None)
    methods, sigmas, modules = page.listings()
    assert methods.columns == ["method", "held-out error", *["ARI of modules", "p of the ARI"] * known, "modules"]
    assert [row[0] for row in methods.rows] == ["placecode", "correlation + MDS", "PCA", "UMAP", "guessing the mean"]
    assert [row[1] for row in methods.rows] == [0.25, 0.375, 0.5, None, 1.0]
    assert [row[0] for row in sigmas.rows] == [0.05, 0.2] and [row[0] for row in modules.rows] == [2, 3, 4]


def test_where_fits_agree_on_no_modules_none_is_named_and_neighbours_are_alike() -> None:
    line = np.random.default_rng(0).permutation(8).astype(float)
    similarity = np.exp(-np.abs(line[:, None] - line))
    result = made_up(ours=replace(method(8, 1), similarity=similarity, labels=np.zeros(8, np.int64)))
    channels, sorting = page_of(result).channel_map(), fit.sorted_channels(result)
    assert channels.modules is None and sorting["groups"] is None and sorting["group_names"] == []
    assert np.abs(np.diff(line[sorting["order"]])).tolist() == [1.0] * 7
    two = fit.sorted_channels(made_up())
    assert two["group_names"] == ["module 1", "module 2"] and "order" not in two


def test_a_channel_without_a_place_has_no_confidence() -> None:
    result = made_up()
    placeless = np.arange(8) == 4
    ours = replace(result.ours, labels=np.where(placeless, -1, result.ours.labels))
    channels = page_of(made_up(ours=ours, confidence=np.where(placeless, 0, result.confidence))).channel_map()
    assert channels.modules is not None and channels.modules[4] == -1
    assert np.isnan(channels.columns["confidence"]).tolist() == placeless.tolist()
    assert np.isnan(channels.neighbors[3][0][1]) and np.isnan(channels.neighbors[4][0][1])  # 4 is the first of 3
    assert channels.neighbors[0][0][1] == 0.9


def test_no_more_lines_are_drawn_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "MAX_EDGES", 2)
    pairs = np.triu(np.random.default_rng(0).uniform(0.9, 1, size=(8, 8)), k=1)
    edges = fit.edges(made_up(pairs=pairs + pairs.T))
    assert [value for _, _, value in edges] == sorted(pairs[pairs > 0], reverse=True)[:2]
