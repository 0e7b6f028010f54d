"""Figures of known networks: what is drawn is compared with the tables."""

import itertools

import numpy as np
import pandas as pd
import pytest
from helpers.figure_reading import assert_inside, levels, points, words

from placecode.reports import figures
from placecode.reports.figures import SIGMA
from placecode.reports.figures.structure import CENTRED_FC_LABEL, FC_LABEL, SHUFFLED, SMOOTH
from placecode.reports.figures.structure import NETWORK_MEASURES as MEASURES

pytestmark = pytest.mark.filterwarnings("error")

TITLES = {"yeo7": "Yeo-7 networks", "cole-anticevic": "Cole-Anticevic networks"}
SIGMAS = (0.01, 0.1, 2.0)
LEVELS = {"fc": 0.4, "centred fc": 0.7, "partial correlation": 9.4}
LIMITS = {"_low": -0.1, "_high": 0.1, "_smooth_low": -0.2, "_smooth_high": 0.25}


def tables(seeds: int = 3) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Members, analysis and baselines of a made-up run: a measure is 1 / (1 + sigma), and 0 before training."""
    members, rows = [], []
    for number, (sigma, seed) in enumerate(itertools.product(SIGMAS, range(seeds))):
        members.append({"member": number, "sigma": sigma, "seed": seed, "data": "", "state": "done"})
        for target, measure, step in itertools.product(TITLES, MEASURES, (0, 9)):
            rows.append((number, step, -1, measure, target, (0.01 * seed + 1 / (1 + sigma)) * (step > 0)))
            rows.append((number, step, 0, measure, target, 77.0))
            rows += [(number, step, -1, measure + end, target, value + 0.03 * seed) for end, value in LIMITS.items()]
    columns = ["member", "step", "block", "analysis", "target", "value"]
    others = [
        ("", world, name, "analysis", target, measure, level + 0.2 * world)
        for world, (name, level), target, measure in itertools.product((0, 1), LEVELS.items(), TITLES, MEASURES)
    ]
    known = ["data", "world", "baseline", "split", "condition", "metric", "value"]
    return pd.DataFrame(members), pd.DataFrame(rows, columns=columns), pd.DataFrame(others, columns=known)


def test_a_panel_for_each_measure_and_partition_has_both_nulls_and_connectivity() -> None:
    figure = figures.networks_by_sigma(*tables(), "demo", TITLES)
    assert [axes.get_title() for axes in figure.axes] == [*TITLES.values(), "", ""]
    assert [axes.get_ylabel() for axes in figure.axes][::2] == list(MEASURES.values())
    for axes in figure.axes:
        bands = {str(band.get_label()): band.get_paths()[0].get_extents() for band in axes.collections}
        for label, bounds in {SHUFFLED: (-0.07, 0.13), SMOOTH: (-0.17, 0.28)}.items():
            assert (bands[label].y0, bands[label].y1) == pytest.approx(bounds)  # the mean over three seeds
        assert levels(axes) == pytest.approx({FC_LABEL: 0.5, CENTRED_FC_LABEL: 0.8})  # means over two worlds
        curves = [line for line in axes.lines if len(line.get_ydata()) == 3 and line.get_linestyle() == "-"]
        assert any(np.allclose(line.get_ydata(), [0.01 + 1 / (1 + sigma) for sigma in SIGMAS]) for line in curves)


def test_without_nulls_or_connectivity_the_rest_is_drawn() -> None:
    members, analysis, baselines = tables()
    plain = analysis[analysis["analysis"].isin(list(MEASURES))]
    figure = figures.networks_by_sigma(members, plain, baselines.iloc[:0], "demo", TITLES)
    assert SHUFFLED not in words(figure) and FC_LABEL not in words(figure) and "after training" in words(figure)
    assert len(figures.networks_by_sigma(members, analysis, baselines, "demo", {"yeo7": "Yeo-7"}).axes) == 2
    empty = figures.networks_by_sigma(members.iloc[:0], analysis.iloc[:0], baselines.iloc[:0], "demo", TITLES)
    empty.draw_without_rendering()
    assert "no values" in words(empty)


def by_variant(seeds: int = 3) -> pd.DataFrame:
    variants = ("as is", "a rather long name of a variant, in words")
    rows = itertools.product(("modularity Q", "mirrors"), variants, SIGMAS, range(seeds))
    table = pd.DataFrame(rows, columns=["measure", "variant", "sigma", "seed"])
    return table.assign(value=table["sigma"] + 0.1 * table["seed"])


def test_variants_are_rows_and_sigmas_are_marks_in_them() -> None:
    levels = pd.DataFrame([{"measure": "modularity Q", "variant": "as is", "value": value} for value in (0.2, 0.4)])
    figure = figures.measures_by_variant(by_variant(), levels, "demo", ["modularity Q", "mirrors"])
    first, second = figure.axes
    marks = {label: np.stack([mark.x, mark.y], axis=1) for label, mark in points(first).items()}
    assert set(marks) == {*(f"{SIGMA} = {sigma:g}" for sigma in SIGMAS), FC_LABEL}
    for sigma in SIGMAS:
        of_sigma = marks[f"{SIGMA} = {sigma:g}"]
        np.testing.assert_allclose(of_sigma[:, 0], sigma + 0.1)
        assert sorted(of_sigma[:, 1].round()) == [0, 1]  # each within the row of its variant
    np.testing.assert_allclose(marks[FC_LABEL][:, 0], [0.3])
    assert FC_LABEL not in points(second)
    assert_inside(figure)


def test_a_single_seed_and_no_row_at_all_can_be_drawn() -> None:
    levels = pd.DataFrame(columns=["measure", "variant", "value"])
    for table in (by_variant(1), by_variant().iloc[:0], by_variant().assign(value=np.nan)):
        figure = figures.measures_by_variant(table, levels, "demo", ["modularity Q"])
        figure.draw_without_rendering()
        assert "run demo" in words(figure)
