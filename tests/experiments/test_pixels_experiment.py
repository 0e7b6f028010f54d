"""The experiment on shuffled pixels: claims on planted runs, chance levels and figures."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.made_up_masked import made_up
from helpers.refusal import refused
from helpers.small_runs import execute

from placecode import experiments
from placecode.analysis import alignment, modules
from placecode.experiments.channels.pixels import NEXT_TO, PIXELS, PixelsSigma
from placecode.experiments.reading import chance_levels
from placecode.models.member import Member
from placecode.reports.figures import SIGMA
from placecode.reports.pages.pixels import as_pictures
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run
from placecode.tasks.pixels import Pixels

pytest.importorskip("PIL", reason="reads the photographs")

SIGMAS, SEEDS, SIZE = (0.01, 0.2, 0.5, 1.0, 2.0), (0, 1, 2, 3), 5
SAME = "hidden 0.5"
POSITIONS = np.stack(np.divmod(np.random.default_rng(0).permutation(SIZE**2), SIZE), axis=1).astype(float)
TINY: dict[str, Any] = {
    **{"size": 4, "train": 200, "test": 30, "width": 8, "layers": 1, "batch": 8, "steps": 3, "evaluations": 1},
    **{"seeds": (0, 1), "sigmas": (0.01, 2.0), "baseline_names": ("linear", "fc", "pca of channels")},
}


def run_of(near: Callable[[Member], float], error: Callable[[Member], float], fc: float, **arguments: Any) -> Any:
    """Return a made-up run with the agreement of neighbours and the error by member, and the agreement of fc."""
    worlds = range(len(SEEDS))
    run = made_up(
        PixelsSigma.from_scale("paper", sigmas=SIGMAS, seeds=SEEDS),
        {SAME: error, "hidden 0.9": lambda m: 0.8},
        {NEXT_TO: (lambda m: 0.03, near), ("procrustes_r2", "positions"): (lambda m: 0.02, lambda m: 0.9)},
        {
            ("linear", "test", SAME, "mse"): {w: 0.3 + w / 1e3 for w in worlds},
            ("fc", "analysis", "positions", "neighbor_agreement"): {w: fc - w / 1e4 for w in worlds},
        },
        labels=None,
        tokens=SIZE**2,
        positions=POSITIONS.tolist(),
        **arguments,
    )
    run.config["shape"]["positions"] = POSITIONS.tolist()
    bumps = np.exp(-np.square(POSITIONS[:, None] - POSITIONS).sum(-1) / 6)
    small = set(run.members.loc[run.members["sigma"] < 0.1, "member"])

    def array(name: str) -> np.ndarray:
        """Return a PE, which has the arrangement of the grid at the smallest sigma alone, or correlations with it."""
        kind, number = name.split("/")
        noise = np.random.default_rng(int(number)).normal(size=(2, SIZE**2, SIZE**2))
        return bumps if kind == "fc" else bumps[None] + 0.01 * noise if int(number) in small else noise

    run.has_array, run.array = (lambda name: True), array
    return run


def planted(right: bool) -> Any:
    small, error, fc = (0.98, 0.4, 1.0) if right else (0.4, 0.2, 0.3)
    near = lambda m: (small if m.sigma < 0.1 else 0.05) + m.seed / 1e3  # noqa: E731
    return run_of(near, lambda m: error + m.seed / 1e3 + m.sigma / 1e3, fc)


def test_the_experiment_is_known_by_its_name() -> None:
    assert experiments.lookup("pixels-sigma") is PixelsSigma
    paper, quick = PixelsSigma.from_scale("paper"), PixelsSigma.from_scale("quick")
    assert len(paper.members()) == 11 * 15 and (paper.width, paper.layers) == (64, 4)
    assert len(quick.members()) == 4 * 3 and {0.01, 2.0} <= set(quick.sigmas)
    task = PixelsSigma.from_scale("quick", train=100, test=20, size=4, stride=2, shuffled=False, seeds=(0, 1)).task()
    assert isinstance(task, Pixels) and (task.tokens, task.worlds, task.options["stride"]) == (16, 2, 2)


@pytest.mark.parametrize(("right", "verdict"), [(True, "holds"), (False, "fails")])
def test_verdicts_follow_what_was_planted(right: bool, verdict: str) -> None:
    run = planted(right)
    assert {claim.check(run).direction for claim in PIXELS} == {verdict}


def test_margins_are_those_that_were_set_and_effects_those_of_the_tables() -> None:
    assert PixelsSigma.claims == PIXELS
    assert {claim.id: (claim.margin, claim.way) for claim in PIXELS} == {
        "grid-falls-with-sigma": (0.5, "above"),
        "correlation-does-as-well": (0.05, "below"),
        "linear-predicts-better": (0.0, "above"),
    }
    effects = [claim.check(planted(True)).effect.mean for claim in PIXELS]
    worlds = np.arange(len(SEEDS))
    agreement, error = np.mean(0.98 + worlds / 1e3 - (1.0 - worlds / 1e4)), 0.10001
    assert effects == pytest.approx([0.93, agreement, error])


def test_a_run_without_the_smallest_sigma_decides_nothing() -> None:
    run = planted(True)
    run.members.loc[run.members["sigma"] == 0.01, "sigma"] = 0.02
    for claim in PIXELS:
        finding = claim.check(run)
        assert (finding.direction, finding.note) == ("undecided", "the run has no finished members with sigma 0.01")


def test_chance_is_the_share_of_pairs_that_are_neighbours() -> None:
    near = np.abs(POSITIONS[:, None] - POSITIONS).sum(-1) == 1
    chance = chance_levels({"tokens": SIZE**2, "positions": POSITIONS.tolist(), "labels": None})[NEXT_TO]
    assert chance == pytest.approx(near.sum() / (SIZE**2 * (SIZE**2 - 1)))
    noise = alignment.token_similarity(np.random.default_rng(1).normal(size=(300, 1, SIZE**2, 8)))
    assert modules.related_neighbor_agreement(noise, near).mean() == pytest.approx(chance, abs=0.02)
    assert NEXT_TO not in chance_levels({"tokens": 25, "labels": None})


def test_maps_are_shown_from_the_largest_sigma_to_the_smallest_beside_correlation() -> None:
    (shown,) = as_pictures(planted(True))
    titles = [axes.get_title() for axes in shown.figure.axes]
    assert titles == [*(f"{SIGMA} = {sigma}" for sigma in ("2", "1", "0.2", "0.01")), "plain correlation", "true grid"]
    notes = [[text.get_text() for text in axes.texts if text.get_text()] for axes in shown.figure.axes]
    right = [int(re.search(r"for (\d+)%", note[0])[1]) for note in notes[:5]]  # type: ignore[index]
    fits = [float(re.search(r"R² (\d\.\d+)", note[0])[1]) for note in notes[:5]]  # type: ignore[index]
    assert right[3] == right[4] == 100 and max(right[:3]) < 60
    assert min(fits[3:]) > 0.9 and fits[0] < 0.5


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return execute(PixelsSigma.from_scale("quick", **TINY), tmp_path_factory.mktemp("pixels") / "run")


def test_a_run_has_all_that_claims_and_figures_need(tiny: Run) -> None:
    experiment = experiments.experiment_of(tiny)
    assert experiment == PixelsSigma.from_scale("quick", **TINY)
    assert {claim.check(tiny).note for claim in experiment.claims} == {""}
    page = page_of(experiment, tiny)
    assert [shown.name for shown in page.figures()] == ["structure", "error", "curves", "similarity", "picture"]
    measured = set(zip(tiny.analysis["analysis"], tiny.analysis["target"], strict=True))
    assert set(page.measures or ()) <= measured and ("neighbor_agreement_p", "positions") in measured
    rows = tiny.baselines[tiny.baselines["condition"] == "positions"]
    assert {"neighbor_agreement", "neighbor_agreement_p", "procrustes_r2"} <= set(rows["metric"])
    assert set(rows["baseline"]) == {"fc", "pca of channels"}


def test_an_unknown_source_is_refused() -> None:
    error = refused(PixelsSigma.from_scale, "quick", source="faces")
    assert (error.name, error.given) == ("source", "faces")


def test_splits_of_the_digits_use_all_of_them_or_as_many_as_are_set() -> None:
    for scale in ("quick", "paper"):
        splits = PixelsSigma.from_scale(scale, source="digits", seeds=(0,)).task().splits
        assert {name: len(split) for name, split in splits.items()} == {"train": 1797 - 449, "test": 449}
    few = PixelsSigma.from_scale("quick", source="digits", train=100, test=50, seeds=(0,)).task().splits
    assert {name: len(split) for name, split in few.items()} == {"train": 100, "test": 50}
