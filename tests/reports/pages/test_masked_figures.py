"""Figures of masked prediction: which ones a run has, chance levels, and how missing values are drawn."""

import io
import itertools
from typing import Any

import numpy as np
import pytest
from helpers.figure_reading import chance_lines, levels, points, words
from helpers.made_up_masked import LABELS, STRANGE, made_up
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from placecode.experiments import experiment_of
from placecode.experiments.base import Experiment
from placecode.experiments.channels.brain import BrainEncodings, BrainMask, BrainSigma
from placecode.experiments.channels.network import NetworkEncodings, NetworkNoise, NetworkSigma, NetworkSize
from placecode.experiments.channels.synergy import SynergyEncodings, SynergyOptimizer, SynergySigma, SynergySize
from placecode.experiments.reading import chance_levels
from placecode.models.member import Member
from placecode.reports.figures import SIGMA
from placecode.reports.pages.base import ReportFigure
from placecode.reports.pages.masked import MAX_MEASURES, MEASURES, measures_in, run_tables
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run

pytestmark = pytest.mark.filterwarnings("error")

GROUPS, MIRROR = ("neighbor_agreement", "labels"), ("mirror_agreement", "partner")
ALL = {measure: (lambda m: 0.1, lambda m: 0.4 + m.seed / 10) for measure in MEASURES}
FEW = {GROUPS: ALL[GROUPS]}
ERRORS = {"hidden 0.5": lambda m: 0.7 + m.seed / 100, "hidden 0.9": lambda m: 0.9 + m.seed / 100}
BASELINES = {("linear", "test", "hidden 0.5", "mse"): {0: 0.6, 1: 0.8}}
BASELINES |= {("fc", "analysis", "labels", "neighbor_agreement"): {0: 0.2, 1: 0.4}}
SWEEP, BESIDE, MAPS = ["structure", "error", "curves", "similarity"], ["encodings"], ["errors", "structure"]


def figures_of(run: Any) -> list[ReportFigure]:
    return page_of(experiment_of(run), run).figures()


def shown(experiment: Experiment, **changes: Any) -> list[ReportFigure]:
    return figures_of(made_up(experiment, **{"errors": ERRORS, "analyses": FEW, "baselines": BASELINES, **changes}))


def figure(experiment: Experiment, name: str, **changes: Any) -> Figure:
    return next(item.figure for item in shown(experiment, **changes) if item.name == name)


def draw(figure: Figure) -> None:
    """To the last dot; whatever matplotlib warns of fails the test."""
    figure.savefig(io.BytesIO(), format="png", dpi=40)


def cells(axes: Axes) -> dict[tuple[str, str], str]:
    """What is written in a map, by the names of its row and its column."""
    first = axes.figure.axes[0]  # rows are named there
    down, across = ([label.get_text() for label in axis.get_ticklabels()] for axis in (first.yaxis, axes.xaxis))
    texts = dict.fromkeys(itertools.product(down, across), "")
    for text in axes.texts:
        x, y = text.get_position()
        texts[down[round(y)], across[round(x)]] += f" {text.get_text()}"
    return {name: text.strip() for name, text in texts.items()}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        *((kind, SWEEP) for kind in (NetworkSigma, SynergySigma, BrainSigma)),
        *((kind, BESIDE) for kind in (NetworkEncodings, SynergyEncodings, BrainEncodings)),
        *((kind, MAPS) for kind in (NetworkSize, NetworkNoise, SynergySize, SynergyOptimizer, BrainMask)),
    ],
)
def test_a_run_shows_what_it_varies_without_a_warning(kind: Any, names: list[str]) -> None:
    figures = shown(kind.from_scale("quick"))
    assert [item.name for item in figures] == names
    for item in figures:
        draw(item.figure)


def test_a_run_that_was_really_made_is_drawn(sigmas_run: Run) -> None:
    figures = {item.name: item.figure for item in figures_of(sigmas_run)}
    assert list(figures) == SWEEP
    for drawing in figures.values():
        draw(drawing)
    axes = figures["error"].axes[0]
    last = sigmas_run.metrics.query("step == 4 and split == 'test' and condition == 'hidden 0.5'")
    means = last.merge(sigmas_run.members, on="member").groupby("sigma")["value"].mean()
    np.testing.assert_allclose(points(axes)["members"].x, means.index)
    np.testing.assert_allclose(points(axes)["members"].y, means)
    linear = sigmas_run.baselines.query("baseline == 'linear' and condition == 'hidden 0.5' and split == 'test'")
    assert levels(axes) == {"linear": pytest.approx(linear["value"].mean())}


def test_an_encoding_without_a_pe_says_so_beside_others() -> None:
    run = made_up(NetworkEncodings.from_scale("quick"), ERRORS, FEW)
    without = run.members.loc[run.members["encoding"].isin(["none", "rotary"]), "member"]
    run.analysis = run.analysis[~run.analysis["member"].isin(without)]
    (item,) = figures_of(run)
    assert [text.get_text() for text in item.figure.axes[2].texts] == 2 * ["no PE to measure"]
    assert len(points(item.figure.axes[2])["after training"].x) == 2
    (alone,) = shown(NetworkEncodings.from_scale("quick", encodings=("none", "rotary")), analyses={}, baselines={})
    assert len(alone.figure.axes) == 2  # errors alone


def test_sweeps_without_measures_or_arrays_leave_out_what_needs_them() -> None:
    experiment = NetworkSigma.from_scale("quick")
    assert [item.name for item in shown(experiment, analyses={})] == SWEEP[1:]
    run = made_up(experiment, ERRORS, FEW)
    run.has_array = lambda name: False
    assert [item.name for item in figures_of(run)] == SWEEP[:3]
    assert [item.name for item in shown(NetworkSize.from_scale("quick"), analyses={})] == ["errors"]


def test_the_first_measures_that_a_run_has_are_shown() -> None:
    experiment = BrainSigma.from_scale("quick")
    assert measures_in(made_up(experiment, ERRORS, ALL)) == list(MEASURES)[:MAX_MEASURES]
    unlabelled = {measure: of for measure, of in reversed(ALL.items()) if measure[1] not in ("labels", "positions")}
    first = measures_in(made_up(experiment, ERRORS, unlabelled, labels=None))
    assert first == [MIRROR, ("modularity", "best"), ("fc_correlation", "fc")]
    assert measures_in(made_up(experiment, ERRORS, {("norm", ""): ALL[GROUPS]})) == []


def nearest(n: int, seed: int) -> np.ndarray:
    """Who is nearest to whom, in some PE."""
    similarity = np.random.default_rng(seed).normal(size=(n, n))
    np.fill_diagonal(similarity, -np.inf)
    return similarity.argmax(axis=1)


@pytest.mark.parametrize("labels", [[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, -1, -1]])
def test_chance_is_the_mean_over_all_ways_to_deal_out_labels(labels: list[int]) -> None:
    dealt = np.array(list(itertools.permutations(labels)))  # (n!, n)
    near = dealt[:, nearest(len(labels), 0)]
    right = ((near == dealt) & (dealt >= 0)).sum(axis=1) / (dealt >= 0).sum(axis=1)
    chance = chance_levels(made_up(NetworkSigma.from_scale("quick"), ERRORS, FEW, labels=labels).config["task"])[GROUPS]
    assert chance == pytest.approx(right.mean())
    with_itself = np.mean([labels.count(label) / len(labels) for label in labels if label >= 0])
    assert abs(chance - with_itself) > 0.05


def test_chance_of_mirrors_is_the_mean_over_all_ways_to_name_the_regions() -> None:
    partner, near = np.array([1, 0, 3, 2, 5, 4, -1]), nearest(7, 1)
    names = np.array(list(itertools.permutations(range(7))))  # region i of the PE is region names[i] of the brain
    right = (partner[names] == names[:, near]).sum(axis=1) / 6
    chance = chance_levels(made_up(BrainSigma.from_scale("quick"), ERRORS, FEW, labels=None, tokens=7).config["task"])
    assert chance[MIRROR] == pytest.approx(right.mean()) and GROUPS not in chance


def test_chance_is_drawn_where_it_is_a_number() -> None:
    experiment = NetworkSigma.from_scale("quick")
    three = {measure: ALL[measure] for measure in (GROUPS, ("modularity", "labels"), ("ari", "labels"))}
    lines = [chance_lines(axes) for axes in figure(experiment, "structure", analyses=three).axes]
    assert [[line.get_ydata()[0] for line in of_panel] for of_panel in lines] == [[pytest.approx(2 / 5)], [], [0.0]]
    assert chance_lines(figure(experiment, "structure", labels=None).axes[0]) == []


def test_baselines_and_the_best_possible_error_are_lines() -> None:
    best = {"hidden 0.3": 0.5, "hidden 0.5": 0.55}
    errors = dict(zip(best, ERRORS.values(), strict=True))
    lines = {("linear", "test", "hidden 0.3", "mse"): {0: 0.6, 1: 0.8}}
    drawing = figure(SynergySigma.from_scale("quick"), "error", errors=errors, best_mse=best, baselines=lines)
    by_panel = [levels(axes) for axes in drawing.axes]
    assert by_panel == [pytest.approx({"linear": 0.7, "best possible": 0.5}), {"best possible": 0.55}]
    assert levels(figure(NetworkSigma.from_scale("quick"), "structure").axes[0]) == {"fc": pytest.approx(0.3)}


def lost(member: Member) -> bool:
    return member.sigma == 0.1


def test_a_sigma_that_diverged_keeps_its_place_in_a_sweep() -> None:
    figures = {item.name: item.figure for item in shown(NetworkSigma.from_scale("quick"), diverged=lost)}
    for name in ("structure", "error"):
        assert f"{SIGMA} = 0.1: all members diverged" in words(figures[name])
    assert points(figures["structure"].axes[0])["after training"].x.tolist() == [0.01, 0.5, 2.0]
    assert [axes.get_title() for axes in figures["similarity"].axes[:3]] == [f"{SIGMA} = {s:g}" for s in (0.01, 0.5, 2)]


def test_one_lost_seed_is_left_out_of_a_mean() -> None:
    drawing = figure(NetworkSigma.from_scale("quick"), "structure", diverged=lambda m: lost(m) and m.seed == 2)
    np.testing.assert_allclose(points(drawing.axes[0])["after training"].y, [0.5, 0.45, 0.5, 0.5])
    assert "over 2 to 3 seeds" in words(drawing) and "1 of 12 members diverged" in words(drawing)


@pytest.mark.parametrize("experiment", [SynergyOptimizer.from_scale("quick"), NetworkSigma.from_scale("quick")])
def test_a_run_of_which_every_member_diverged_is_drawn(experiment: Experiment) -> None:
    figures = {item.name: item.figure for item in shown(experiment, diverged=lambda m: True)}
    assert "similarity" not in figures
    for drawing in figures.values():
        draw(drawing)
        assert STRANGE not in [mark for axes in drawing.axes for line in axes.lines for mark in line.get_ydata()]


def test_cells_are_means_of_the_members_of_their_setting(rates_run: Run) -> None:
    figures = {item.name: item.figure for item in figures_of(rates_run)}
    assert list(figures) == MAPS
    members = rates_run.members[rates_run.members["state"] == "done"]
    errors = rates_run.metrics.query("step == 4 and split == 'test'").merge(members, on="member")
    near = rates_run.analysis.query("step == 4 and block == -1 and analysis == 'neighbor_agreement'")
    near = near.merge(members, on="member")
    panels = {
        figures["errors"].axes[0]: errors[errors["condition"] == "hidden 0.3"],
        figures["errors"].axes[1]: errors[errors["condition"] == "hidden 0.5"],
        figures["structure"].axes[0]: near,
    }
    for axes, rows in panels.items():
        written = cells(axes)
        for rate in (0.001, 0.1):
            values = rows.loc[rows["learning_rate"] == rate, "value"]
            half = stats.sem(values) * stats.t.ppf(0.975, 1)
            assert len(values) == 2
            assert written[f"learning rate {rate:g}", "0.2"] == f"{values.mean():.2f} ± {half:.2f}"


@pytest.mark.parametrize("name", MAPS)
def test_a_setting_that_diverged_keeps_its_cells_and_is_no_setting_that_was_not_run(name: str) -> None:
    experiment = SynergyOptimizer.from_scale("quick", optimizers=("adam", "sgd"))
    whole = figure(experiment, name, diverged=lambda m: m.optimizer == "sgd")
    assert sorted(cells(whole.axes[0]).values())[2:] == ["no values", "no values"]
    cell = figure(experiment, name, diverged=lambda m: m.optimizer == "sgd" and m.sigma == 0.2)
    assert "no values" in words(cell) and "not run" not in words(cell)


def cosine(pe: np.ndarray) -> np.ndarray:
    """Of the PEs of all blocks side by side, less their mean over tokens, (l, n, d) -> (n, n), one by one."""
    rows = [(pe[:, token] - pe.mean(axis=1)).ravel() for token in range(pe.shape[1])]
    return np.array([[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in rows] for a in rows])


def test_maps_are_cosines_of_the_first_seed_that_finished_sorted_by_group() -> None:
    experiment = NetworkSigma.from_scale("paper", sigmas=(0.01, 0.02, 0.1, 0.2, 0.5, 1.0, 2.0), seeds=(0, 1, 2))
    run = made_up(experiment, ERRORS, FEW, labels=[1, 0, 1, 0, 1, 0], diverged=lambda m: m.seed == 0)
    drawing = figures_of(run)[-1].figure
    titles = {axes.get_title(): axes for axes in drawing.axes if axes.get_title()}
    assert list(titles) == [f"{SIGMA} = {sigma:g}" for sigma in experiment.sigmas] and "seed 1" in words(drawing)
    order = [1, 3, 5, 0, 2, 4]
    for axes, sigma in zip(titles.values(), experiment.sigmas, strict=True):
        number = run.members.query("seed == 1").set_index("sigma")["member"][sigma]
        shades = np.asarray(axes.images[0].get_array())
        np.testing.assert_allclose(shades, cosine(run.array(f"pe_end/{number}"))[np.ix_(order, order)])


def test_without_labels_the_maps_are_sorted_by_groups_that_were_found() -> None:
    run = made_up(NetworkSigma.from_scale("quick"), ERRORS, {MIRROR: ALL[MIRROR]}, labels=None)
    blocks = np.array([[1.0, 0.1], [0.1, 1.0]] * 3)[None] + np.arange(6)[None, :, None] / 100  # even and odd tokens
    run.array = lambda name: blocks
    shades = np.asarray(figures_of(run)[-1].figure.axes[0].images[0].get_array())
    same = np.equal.outer(np.sort(LABELS), np.sort(LABELS))
    assert shades[same].min() > shades[~same].max()


def test_seeds_of_a_world_are_averaged_before_an_interval_is_drawn() -> None:
    """Six seeds in three worlds: what differs between the seeds of a world cancels out."""
    experiment = NetworkSigma.from_scale("paper", sigmas=(0.1, 2.0), seeds=tuple(range(6)))

    def value(member: Member) -> float:
        return member.seed % 3 + (0.25 if member.seed < 3 else -0.25) + (member.sigma or 0)

    over_worlds = run_tables(made_up(experiment, {"hidden 0.5": value}, {GROUPS: (value, value)}, worlds=3))
    assert sorted(over_worlds.members["seed"]) == [0, 0, 1, 1, 2, 2] and "a seed here is a world" in over_worlds.name
    metrics = over_worlds.metrics.query("split == 'test' and step > 0")
    for table in (metrics, over_worlds.analysis.query("step > 0 and block == -1")):
        means = table.merge(over_worlds.members, on="member").set_index(["sigma", "seed"])["value"]
        assert means.to_dict() == pytest.approx({(s, w): w + s for s in (0.1, 2.0) for w in range(3)})


def test_a_world_is_lost_only_with_all_its_seeds() -> None:
    experiment = NetworkSigma.from_scale("paper", sigmas=(0.1,), seeds=tuple(range(4)))
    errors = {"hidden 0.5": lambda m: 10.0 + m.seed}
    by_world = run_tables(made_up(experiment, errors, FEW, worlds=2, diverged=lambda m: m.seed != 2))
    assert by_world.members.set_index("seed")["state"].to_dict() == {0: "done", 1: "diverged"}
    last = by_world.metrics.query("split == 'test' and step > 0").merge(by_world.members, on="member")
    assert last.set_index("seed")["value"][0] == 12  # of seed 2 alone
    for worlds in (1, 4, 5):  # one for all, or as many as seeds
        run = made_up(experiment, ERRORS, FEW, worlds=worlds)
        assert run_tables(run).metrics is run.metrics and "is a world" not in run_tables(run).name
