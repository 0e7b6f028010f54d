"""What experiments hand to a slider and a map: held against the runs behind them, and against made-up runs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from placecode.analysis import alignment, modules
from placecode.experiments import experiment_of
from placecode.reports.pages import interactive
from placecode.reports.pages.interactive import SigmaSlider
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run

RESULTS = Path(__file__).parents[3] / "results"


@pytest.fixture(scope="module")
def demo() -> Run:
    return Run(RESULTS / "demo")


def sigma_slider(run: Run) -> SigmaSlider:
    slider = page_of(experiment_of(run), run).slider()
    assert slider is not None
    return slider


def test_positions_lie_on_the_one_before() -> None:
    """The same arrangement, mirrored and turned by its own eigenvectors' whims, stays where it was."""
    points = np.random.default_rng(0).normal(size=(10, 2))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    turned = points @ np.array([[0.0, 1.0], [1.0, 0.0]])
    first, gap, second = interactive._aligned_maps([points @ points.T, None, turned @ turned.T])
    assert gap is None and first is not None and second is not None
    np.testing.assert_allclose(first - first.mean(0), second, atol=1e-9)


def test_a_slider_has_the_numbers_of_the_summary(demo: Run) -> None:
    slider = sigma_slider(demo)
    assert [position.sigma for position in slider.positions] == [0.1, 0.2, 0.5, 1.0, 2.0]
    for row in demo.summary:
        if row["encoding"] == "learned" and row["metric"] == "accuracy" and row["condition"] == "all":
            position = next(position for position in slider.positions if position.sigma == row["sigma"])
            mean, low, high = position.measures[f"accuracy, {row['split']}"]
            half = stats.t.ppf(0.975, row["n"] - 1) * row["std"] / np.sqrt(row["n"])
            assert mean == pytest.approx(row["mean"])
            assert (low, high) == pytest.approx((row["mean"] - half, min(row["mean"] + half, 1.0)))


def test_a_slider_has_mean_similarity_and_attention_of_the_seeds(demo: Run) -> None:
    slider = sigma_slider(demo)
    rows = demo.members[(demo.members["encoding"] == "learned") & (demo.members["sigma"] == 0.5)]
    assert len(rows) == 3
    pes = [demo.array(f"pe_end/{i}").astype(float) for i in rows["member"]]
    maps = [demo.array(f"attention_end/{i}").astype(float).mean((0, 1)) for i in rows["member"]]
    position = slider.positions[2]
    assert position.similarity is not None and position.attention is not None and position.places is not None
    np.testing.assert_allclose(position.similarity, np.mean([alignment.token_similarity(pe) for pe in pes], axis=0))
    np.testing.assert_allclose(position.attention, np.mean(maps, axis=0))
    np.testing.assert_allclose(position.attention.sum(1), 1.0, atol=1e-4)  # attention sums to 1, in half precision
    assert list(slider.names[:5]) == ["1, 1", "1, 2", "1, 3", "1, 4", "2, 1"]
    assert slider.groups is not None and slider.groups[:5].tolist() == [0, 0, 0, 0, 1]
    assert page_of(experiment_of(demo), demo).channel_map() is None  # cells have places, not names


def test_channels_of_a_network() -> None:
    run = Run(RESULTS / "network-sigma")
    slider, channels = sigma_slider(run), page_of(experiment_of(run), run).channel_map()
    assert channels is not None and slider.groups is not None and channels.modules is not None
    labels = run.config["task"]["labels"]
    assert slider.groups.tolist() == channels.modules.tolist() == labels
    assert channels.names[0] == "node 1" and list(channels.module_names) == [f"group {i}" for i in range(1, 6)]
    similarity = alignment.token_similarity(run.array("pe_end/0").astype(float))
    for channel in (0, 57):
        order = [int(i) for i in np.argsort(-similarity[channel]) if i != channel][:5]
        assert [other for other, _ in channels.neighbors[channel]] == order
        assert all(np.isnan(sure) for _, sure in channels.neighbors[channel])  # one seed was kept
    agreement = np.mean([labels[near[0][0]] == labels[i] for i, near in enumerate(channels.neighbors)])
    assert agreement == pytest.approx(float(modules.neighbor_agreement(similarity, labels)))
    assert slider.positions[0].attention is None


def test_shuffled_pixels_turn_with_the_share_that_finds_its_neighbour() -> None:
    run = Run(RESULTS / "pixels-sigma")
    slider = sigma_slider(run)
    name = "nearest channel in the PE is next to it in space"
    at = run.analysis["step"] == run.analysis["step"].max()
    rows = run.analysis[at & (run.analysis["block"] == -1) & (run.analysis["analysis"] == "neighbor_agreement")]
    smallest = run.members[run.members["sigma"] == run.members["sigma"].min()]["member"]
    expected = rows[rows["member"].isin(smallest)]["value"].mean()
    assert slider.positions[0].measures[name][0] == pytest.approx(expected) and expected > 0.9


@pytest.mark.parametrize(("name", "positions"), [("synergy-size", 0), ("brain-transfer", 4), ("lst-encodings", 2)])
def test_a_slider_has_a_position_for_each_sigma_and_one_sigma_is_no_slider(name: str, positions: int) -> None:
    run = Run(RESULTS / name)
    slider = page_of(experiment_of(run), run).slider()
    assert (0 if slider is None else len(slider.positions)) == positions
    if name == "brain-transfer":  # of several settings the first is shown, and PEs may not be there
        assert slider is not None and slider.positions[0].similarity is None and "first half" in slider.note
        wanted = {"sigma": 0.01, "data": "first half", "start": "normal", "split": "test", "learn": True}
        wanted |= {"condition": "hidden 0.5"}
        (row,) = (row for row in run.summary if wanted.items() <= row.items() and row["metric"] == "mse")
        assert slider.positions[0].measures["mse, test, hidden 0.5"][0] == pytest.approx(row["mean"])


def test_without_known_groups_those_that_were_found_sort_the_channels() -> None:
    run = Run(RESULTS / "brain-sigma")
    slider, channels = sigma_slider(run), page_of(experiment_of(run), run).channel_map()
    assert slider.groups is not None and slider.group_names[0] == "found group 1"
    assert "found at the smallest sigma" in slider.note
    assert channels is not None and channels.modules is not None and not channels.module_names
    assert channels.modules.tolist() == slider.groups.tolist()


def thinned(run: Run, keep: Any) -> Any:
    """The run with a part of its members."""
    members = run.members[keep(run.members)]
    names = ("config", "metrics", "analysis", "array", "has_array")
    return SimpleNamespace(members=members, **{name: getattr(run, name) for name in names})


def test_diverged_members_are_left_out(demo: Run) -> None:
    part, name = thinned(demo, lambda members: members["member"] >= 0), "accuracy, ood"
    part.members = demo.members.assign(state=demo.members["state"].where(demo.members["member"] != 0, "diverged"))
    some = interactive.sigma_slider(part, "accuracy")
    assert some is not None
    pairs = zip(some.positions, sigma_slider(demo).positions, strict=True)
    assert [a.measures[name] != b.measures[name] for a, b in pairs] == [True, False, False, False, False]


@pytest.mark.parametrize("sigmas", [[], [0.2]])
def test_fewer_than_two_sigmas_are_no_slider(demo: Run, sigmas: list[float]) -> None:
    assert interactive.sigma_slider(thinned(demo, lambda members: members["sigma"].isin(sigmas)), "accuracy") is None


def test_confidence_is_the_share_of_seeds_that_agree() -> None:
    near = np.array([[1.0, 0.9, 0.1, 0.0, 0.0, 0.0, -0.5], *[[0.0] * 7] * 6])
    far = np.array([[1.0, -0.9, 0.1, 0.0, 0.0, 0.0, 0.5], *[[0.0] * 7] * 6])
    first = interactive._nearest([near, near, near, far], (3 * near + far) / 4)[0]
    assert first[0] == (1, 0.75)  # among the five nearest in three seeds of four
    assert all(other != 0 for other, _ in first) and len(first) == 5
    assert interactive._nearest([near[:3, :3]], near[:3, :3])[0][0][0] == 1
