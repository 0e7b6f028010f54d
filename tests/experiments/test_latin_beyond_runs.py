"""Small runs of the experiments beyond the paper: members, tables, figures and claims."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.beyond import SWEPT, smallest
from helpers.figure_reading import chance_lines

from placecode import experiments
from placecode.execution import local
from placecode.experiments.latin.knobs import KnobExperiment
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run

Runs = Callable[[str], Run]
Made = tuple[KnobExperiment, Run]
SIGMAS, SEEDS = (0.2, 2.0), (0, 1)
pytestmark = pytest.mark.filterwarnings("error")


def crossed(*values: Any) -> list[tuple[Any, ...]]:
    """Return every combination of values with sigmas and seeds, in the order of the experiment."""
    return list(itertools.product(*values, SIGMAS, SEEDS))


def optimizers() -> list[tuple[Any, ...]]:
    """Optimizer, step size, weight decay, step size of the PE, epsilon, sigma, seed."""
    kinds = [
        *(("adam", rate, 0.0, None, 1e-8) for rate in (1e-3, 1e-2)),
        ("sgd", 0.1, 0.0, None, 1e-8),
        *(("adam", 1e-3, 0.0, factor * 1e-3, 1e-8) for factor in (0.1, 10.0)),
        ("adam", 1e-3, 0.0, None, 1e-4),
    ]
    return [(*kind, sigma, seed) for kind, sigma, seed in itertools.product(kinds, (0.01, 0.2), SEEDS)]


def decays() -> list[tuple[Any, ...]]:
    """Encoding, optimizer, decay of the rest, of the PE, sigma, seed."""
    pairs = [(0.0, 0.0), *((a, b) for x in (1.0, 3.0) for a, b in ((x, x), (x, 0.0), (0.0, x)))]
    fixed = [("sinusoid", "adamw", x, x, None, seed) for x, seed in itertools.product((0.0, 1.0, 3.0), SEEDS)]
    return [*(("learned", "adamw", *pair, *rest) for pair in pairs for rest in crossed()), *fixed]


def gains() -> list[tuple[Any, ...]]:
    """Gain, step size, sigma, seed."""
    kinds = [*((gain, 0.01) for gain in (0.1, 1.0, 10.0)), *((gain, 0.01 / gain) for gain in (0.1, 10.0))]
    return [(*kind, *rest) for kind in kinds for rest in crossed()]


def sizes() -> list[tuple[Any, ...]]:
    """Encoding, data, start, donor, optimizer, step size, sigma, seed."""
    small, large, adam = "order=4", "order=5", ("adam", 0.01)
    fresh = [("learned", data, "normal", None, *adam, *rest) for data, *rest in crossed((small, large))]
    donors = [("learned", small, "normal", None, "sgd", 0.03, 0.05, seed + 1000) for seed in SEEDS]
    resized = [
        ("learned", large, start, len(fresh) + SEEDS.index(seed), *adam, sigma, seed)
        for start, sigma, seed in crossed(("resized", "resized-shuffled"))
    ]
    fixed = itertools.product((small, large), SEEDS)
    return [*fresh, *donors, *resized, *(("sinusoid", data, "normal", None, *adam, None, seed) for data, seed in fixed)]


PLANNED: dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]] = {
    "lst-optimizer": (("optimizer", "learning_rate", "weight_decay", "pe_learning_rate", "epsilon"), optimizers()),
    "lst-heads": (("heads",), crossed((1, 2, 4))),
    "lst-depth": (("layers",), crossed((2, 1))),
    "lst-width": (("width",), crossed((8, 16))),
    "lst-decay": (("encoding", "optimizer", "weight_decay", "pe_weight_decay"), decays()),
    "lst-placement": (("placement",), crossed(("every", "input"))),
    "lst-gain": (("output_gain", "learning_rate"), gains()),
    "lst-data": (("data",), crossed(("puzzles=18", "puzzles=54"))),
    "lst-size": (("encoding", "data", "start", "donor", "optimizer", "learning_rate"), sizes()),
}
"""Columns besides sigma and seed, and their values, member by member; lst-causal has a file of its own."""


@pytest.fixture(scope="module", params=SWEPT)
def made(request: pytest.FixtureRequest, beyond: Runs) -> Made:
    """Return an experiment and its run."""
    return smallest(request.param), beyond(request.param)


def test_every_experiment_of_this_kind_is_here() -> None:
    knobs = {name for name, cls in experiments.EXPERIMENTS.items() if issubclass(cls, KnobExperiment)}
    assert set(SWEPT) == knobs - {"lst-frozen", "lst-slingshot"}  # test_latin_training.py
    assert set(PLANNED) == set(SWEPT) - {"lst-causal"}


@pytest.mark.parametrize("name", PLANNED)
def test_members_are_those_planned_in_their_order(name: str, beyond: Runs) -> None:
    columns, expected = PLANNED[name]
    table = beyond(name).members[[*columns, "sigma", "seed"]].astype(object)
    rows = table.where(table.notna(), None).to_numpy().tolist()
    assert [tuple(None if value != value else value for value in row) for row in rows] == expected
    assert (beyond(name).members["state"] == "done").all()


def test_a_run_has_all_members_and_evaluations_and_its_experiment_is_read_back(made: Made) -> None:
    experiment, run = made
    assert len(run.members) == len(experiment.members()) == run.config["total"]
    assert experiments.experiment_of(run) == experiment
    steps = run.metrics.groupby("member")["step"].agg(lambda values: tuple(sorted(set(values))))
    assert set(steps) == {(0, 4, 8)}  # 54 training puzzles, 16 at a time
    assert np.isfinite(run.metrics["value"]).all()
    assert not run.analysis.duplicated(["member", "step", "block", "analysis", "target"]).any()


def test_a_run_has_its_figures_and_sentences(made: Made) -> None:
    experiment, run = made
    page = page_of(experiment, run)
    names = [shown.name for shown in page.figures()]
    assert names == [*["causes"] * (experiment.name == "lst-causal"), "accuracy", "curves"]
    assert page.sentences() and all(sentence.endswith(".") and "nan" not in sentence for sentence in page.sentences())


def test_every_claim_has_a_verdict(made: Made) -> None:
    experiment, run = made
    assert experiment.claims
    for claim in experiment.claims:
        finding = claim.check(run)
        assert finding.direction in ("holds", "fails", "undecided")
        complete = experiment.name in ("lst-gain", "lst-decay", "lst-size")  # the run has all that its claims need
        assert np.isfinite(finding.effect).all() or (finding.note and not complete)
        json.dumps(finding.record(), allow_nan=False)


@pytest.mark.parametrize("name", SWEPT)
def test_the_quick_scale_can_be_built(name: str) -> None:
    puzzles = {"per_class": 2000 if name == "lst-data" else 20, "heldout": 6, "distance": 0.5}
    experiment = experiments.EXPERIMENTS[name].from_scale("quick", **puzzles)
    members = experiment.members()
    local.check(experiment, experiment.task(), members)
    assert len(set(members)) == len(members)
    assert {member.seed for member in members} >= {0, 1}


@pytest.mark.parametrize("name", SWEPT)
def test_the_paper_scale_has_the_model_of_the_paper_and_five_seeds(name: str) -> None:
    experiment = experiments.EXPERIMENTS[name].from_scale("paper")
    members = experiment.members()
    assert len(members) == len(set(members))
    assert experiment == experiments.EXPERIMENTS[name]()
    fields = experiment.fields()
    assert (fields["width"], fields["layers"], fields["batch"], fields["epochs"]) == (160, 4, 128, 200)
    assert {member.seed % 1000 for member in members} == set(range(5))


def test_lines_of_lst_size_leave_out_donors_and_have_the_chance_of_their_grid(beyond: Runs) -> None:
    """Four symbols to guess from, or five."""
    experiment, run = smallest("lst-size"), beyond("lst-size")
    donors = set(run.members.loc[run.members["role"] == "donor", "member"])
    assert donors and not donors & set(experiment.lines(run)["member"])
    for shown in page_of(experiment, run).figures():
        lines = {axes.get_title()[:5]: chance_lines(axes) for axes in shown.figure.axes}
        heights = {title: line.get_ydata()[0] for title, of_panel in lines.items() for line in of_panel}
        assert heights == {"4 x 4": 0.25, "5 x 5": 0.2}
