"""What experiments hand to a dial and a map: held against the runs behind them, and against made-up runs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from placecode.analysis import modules
from placecode.experiments import experiment_of
from placecode.reports.pages import dials
from placecode.reports.pages.dials import Dial
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run

RESULTS = Path(__file__).parents[3] / "results"


@pytest.fixture(scope="module")
def demo() -> Run:
    return Run(RESULTS / "demo")


def dial_of(run: Run) -> Dial:
    dial = page_of(experiment_of(run), run).dial()
    assert dial is not None
    return dial


def test_stops_lie_on_the_one_before() -> None:
    """The same arrangement, mirrored and turned by its own eigenvectors' whims, stays where it was."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(10, 2))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    turned = points @ np.array([[0.0, 1.0], [1.0, 0.0]])
    first, gap, second = dials._aligned_maps([points @ points.T, None, turned @ turned.T])
    assert gap is None and first is not None and second is not None
    np.testing.assert_allclose(first - first.mean(0), second, atol=1e-9)


def test_a_dial_has_the_numbers_of_the_summary(demo: Run) -> None:
    dial = dial_of(demo)
    assert [stop.sigma for stop in dial.stops] == [0.1, 0.2, 0.5, 1.0, 2.0]
    for row in demo.summary:
        if row["encoding"] == "learned" and row["metric"] == "accuracy" and row["condition"] == "all":
            stop = next(stop for stop in dial.stops if stop.sigma == row["sigma"])
            mean, low, high = stop.measures[f"accuracy, {row['split']}"]
            half = stats.t.ppf(0.975, row["n"] - 1) * row["std"] / np.sqrt(row["n"])
            assert mean == pytest.approx(row["mean"])
            assert (low, high) == pytest.approx((row["mean"] - half, min(row["mean"] + half, 1.0)))


def test_a_dial_has_mean_similarity_and_attention_of_the_seeds(demo: Run) -> None:
    dial = dial_of(demo)
    rows = demo.members[(demo.members["encoding"] == "learned") & (demo.members["sigma"] == 0.5)]
    assert len(rows) == 3
    pes = [demo.array(f"pe_end/{i}").astype(float) for i in rows["member"]]
    maps = [demo.array(f"attention_end/{i}").astype(float).mean((0, 1)) for i in rows["member"]]
    stop = dial.stops[2]
    assert stop.similarity is not None and stop.attention is not None and stop.places is not None
    np.testing.assert_allclose(stop.similarity, np.mean([modules.similarities(pe)[-1] for pe in pes], axis=0))
    np.testing.assert_allclose(stop.attention, np.mean(maps, axis=0))
    np.testing.assert_allclose(stop.attention.sum(1), 1.0, atol=1e-4)  # attention sums to 1, in half precision
    assert list(dial.names[:5]) == ["1, 1", "1, 2", "1, 3", "1, 4", "2, 1"]
    assert dial.groups is not None and dial.groups[:5].tolist() == [0, 0, 0, 0, 1]
    assert page_of(experiment_of(demo), demo).channels() is None  # cells have places, not names


def test_channels_of_a_network() -> None:
    run = Run(RESULTS / "network-sigma")
    dial, channels = dial_of(run), page_of(experiment_of(run), run).channels()
    assert channels is not None and dial.groups is not None and channels.modules is not None
    labels = run.config["task"]["labels"]
    assert dial.groups.tolist() == channels.modules.tolist() == labels
    assert channels.names[0] == "node 1" and list(channels.module_names) == [f"group {i}" for i in range(1, 6)]
    similar = modules.similarities(run.array("pe_end/0").astype(float))[-1]
    for channel in (0, 57):
        order = [int(i) for i in np.argsort(-similar[channel]) if i != channel][:5]
        assert [other for other, _ in channels.neighbors[channel]] == order
        assert all(np.isnan(sure) for _, sure in channels.neighbors[channel])  # one seed was kept
    agreement = np.mean([labels[near[0][0]] == labels[i] for i, near in enumerate(channels.neighbors)])
    assert agreement == pytest.approx(float(modules.neighbor_agreement(similar, labels)))
    assert dial.stops[0].attention is None


def test_shuffled_pixels_turn_with_the_share_that_finds_its_neighbour() -> None:
    run = Run(RESULTS / "pixels-sigma")
    dial = dial_of(run)
    name = "nearest channel in the PE is next to it in space"
    at = run.analysis["step"] == run.analysis["step"].max()
    rows = run.analysis[at & (run.analysis["block"] == -1) & (run.analysis["analysis"] == "neighbor_agreement")]
    smallest = run.members[run.members["sigma"] == run.members["sigma"].min()]["member"]
    expected = rows[rows["member"].isin(smallest)]["value"].mean()
    assert dial.stops[0].measures[name][0] == pytest.approx(expected) and expected > 0.9


@pytest.mark.parametrize(("name", "stops"), [("synergy-size", 0), ("brain-transfer", 4), ("lst-encodings", 2)])
def test_a_dial_has_a_stop_for_each_sigma_and_one_sigma_is_no_dial(name: str, stops: int) -> None:
    run = Run(RESULTS / name)
    dial = page_of(experiment_of(run), run).dial()
    assert (0 if dial is None else len(dial.stops)) == stops
    if name == "brain-transfer":  # of several settings the first is shown, and PEs may not be there
        assert dial is not None and dial.stops[0].similarity is None and "first half" in dial.note
        wanted = {"sigma": 0.01, "data": "first half", "start": "normal", "split": "test", "learn": True}
        wanted |= {"condition": "hidden 0.5"}
        (row,) = (row for row in run.summary if wanted.items() <= row.items() and row["metric"] == "mse")
        assert dial.stops[0].measures["mse, test, hidden 0.5"][0] == pytest.approx(row["mean"])


def test_without_known_groups_those_that_were_found_sort_the_channels() -> None:
    run = Run(RESULTS / "brain-sigma")
    dial, channels = dial_of(run), page_of(experiment_of(run), run).channels()
    assert dial.groups is not None and dial.group_names[0] == "found group 1"
    assert "found at the smallest sigma" in dial.note
    assert channels is not None and channels.modules is not None and not channels.module_names
    assert channels.modules.tolist() == dial.groups.tolist()


def thinned(run: Run, keep: Any) -> Any:
    """The run with a part of its members."""
    members = run.members[keep(run.members)]
    names = ("config", "metrics", "analysis", "array", "has_array")
    return SimpleNamespace(members=members, **{name: getattr(run, name) for name in names})


def test_diverged_members_are_left_out(demo: Run) -> None:
    part, name = thinned(demo, lambda members: members["member"] >= 0), "accuracy, ood"
    part.members = demo.members.assign(state=demo.members["state"].where(demo.members["member"] != 0, "diverged"))
    some = dials.dial_of(part, "accuracy")
    assert some is not None
    changed = [a.measures[name] != b.measures[name] for a, b in zip(some.stops, dial_of(demo).stops, strict=True)]
    assert changed == [True, False, False, False, False]


@pytest.mark.parametrize("sigmas", [[], [0.2]])
def test_fewer_than_two_sigmas_are_no_dial(demo: Run, sigmas: list[float]) -> None:
    assert dials.dial_of(thinned(demo, lambda members: members["sigma"].isin(sigmas)), "accuracy") is None


def test_confidence_is_the_share_of_seeds_that_agree() -> None:
    near = np.array([[1.0, 0.9, 0.1, 0.0, 0.0, 0.0, -0.5], *[[0.0] * 7] * 6])
    far = np.array([[1.0, -0.9, 0.1, 0.0, 0.0, 0.0, 0.5], *[[0.0] * 7] * 6])
    first = dials._nearest([near, near, near, far], (3 * near + far) / 4)[0]
    assert first[0] == (1, 0.75)  # among the five nearest in three seeds of four
    assert all(other != 0 for other, _ in first) and len(first) == 5
    assert dials._nearest([near[:3, :3]], near[:3, :3])[0][0][0] == 1
