"""Small runs of the studies beyond the paper: members, figures, sentences, claims and reports."""

from __future__ import annotations

import html
import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.beyond import OWN, smallest

from placecode import cli, experiments
from placecode.execution import local
from placecode.experiments.latin.knobs import KnobStudy
from placecode.reports.pages.base import Shown
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run

Runs = Callable[[str], Run]
Made = tuple[KnobStudy, Run, dict[str, Shown]]
SIGMAS, SEEDS = (0.2, 2.0), (0, 1)
pytestmark = pytest.mark.filterwarnings("error")


def crossed(*values: Any) -> list[tuple[Any, ...]]:
    """Every combination of values with sigmas and seeds, in the order of the study."""
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
    """Encoding, data, start, origin, optimizer, step size, sigma, seed."""
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
    "lst-gain": (("gain", "learning_rate"), gains()),
    "lst-data": (("data",), crossed(("puzzles=18", "puzzles=54"))),
    "lst-size": (("encoding", "data", "start", "origin", "optimizer", "learning_rate"), sizes()),
}
"""Columns besides sigma and seed, and their values, member by member; lst-causal has a file of its own."""


@pytest.fixture(scope="module", params=OWN)
def made(request: pytest.FixtureRequest, beyond: Runs) -> Made:
    """A study, its run, and what is drawn of it."""
    study, run = smallest(request.param), beyond(request.param)
    return study, run, {each.name: each for each in page_of(study, run).figures()}


def test_every_study_of_this_kind_is_looked_at() -> None:
    others = {"lst-frozen", "lst-slingshot"}  # test_latin_training.py
    assert set(OWN) == {name for name, kind in experiments.STUDIES.items() if issubclass(kind, KnobStudy)} - others
    assert set(PLANNED) == set(OWN) - {"lst-causal"}


@pytest.mark.parametrize("name", PLANNED)
def test_members_are_those_planned_in_their_order(name: str, beyond: Runs) -> None:
    columns, wanted = PLANNED[name]
    table = beyond(name).members[[*columns, "sigma", "seed"]].astype(object)
    assert [tuple(None if value != value else value for value in row) for row in _rows(table)] == wanted
    assert (beyond(name).members["state"] == "done").all()


def _rows(table: Any) -> list[list[Any]]:
    return list(table.where(table.notna(), None).to_numpy().tolist())


def test_the_run_is_whole_and_its_settings_come_back(made: Made) -> None:
    study, run, _ = made
    assert len(run.members) == len(study.members()) == run.config["total"]
    assert experiments.study_of(run) == study
    steps = run.metrics.groupby("member")["step"].agg(lambda values: sorted(set(values)))
    (known,) = {tuple(values) for values in steps}  # all trained alike
    assert known == (0, 4, 8)  # 54 training puzzles, 16 at a time
    assert np.isfinite(run.metrics["value"]).all()
    assert not run.analysis.duplicated(["member", "step", "block", "analysis", "target"]).any()


def test_all_is_drawn_and_says_what_to_look_at(made: Made) -> None:
    study, _, shown = made
    assert list(shown) == [*["causes"] * (study.name == "lst-causal"), "accuracy", "curves"]
    for each in shown.values():
        assert each.caption.endswith(".") and f"{study.name}, quick scale" in each.figure.get_supxlabel()
        each.figure.draw_without_rendering()


ALONE = ("lst-optimizer",)
"""In whose run no two panels have lines of the same name: those are enough as titles."""


def test_every_line_is_drawn_and_told(made: Made) -> None:
    study, run, shown = made
    lines, words = study.lines(run), page_of(study, run).words()
    panels = lines.groupby(["member", "line"])["panel"].agg(set)  # who is drawn in several by one name, has none
    pairs = []
    for member, rows in lines.groupby("member", sort=False):  # everyone once
        panel, line = rows[["panel", "line"]].iloc[0]
        pairs.append((panel if len(panels[member, line]) == 1 else "", line))
    pairs = list(dict.fromkeys(pairs))
    titles = [" ".join(axes.get_title().split()) for axes in shown["curves"].figure.axes if axes.get_title()]
    if study.name != "lst-causal":  # its sentences are about claims
        whole = [f"{panel}, {line}" if panel else line for panel, line in pairs]
        assert titles == ([line for _, line in pairs] if study.name in ALONE else whole)
        starts = [line.split(": held-out accuracy ")[0] for line in words if ": held-out accuracy " in line]
        assert [start.lower() for start in starts] == [name.lower() for name in whole]
    assert all(sentence.endswith(".") and "nan" not in sentence for sentence in words)
    assert any("settled" in sentence for sentence in words)


WHOLE = ("lst-gain", "lst-decay", "lst-size")
"""Whose smallest runs have all that their claims are about."""


def test_every_claim_has_one_of_three_verdicts(made: Made) -> None:
    study, run, _ = made
    assert study.claims
    for claim in study.claims:
        found = claim.check(run)
        assert found.direction in ("holds", "fails", "undecided")
        assert found.note or np.isfinite(found.found).all()
        json.dumps(found.record(), allow_nan=False)
        if study.name in WHOLE:
            assert found.note == "" and np.isfinite(found.found).all()


def test_a_report_is_published(beyond: Runs) -> None:
    run = beyond("lst-size")
    study = experiments.study_of(run)
    page = html.unescape(cli.publish(page_of(study, run)).read_text())
    drawn = {path.stem for path in (run.path / "figures").glob("*.png")}
    assert drawn == {"accuracy", "curves"}
    assert all(sentence in page for sentence in page_of(study, run).summary())
    asked = [claim for claim in study.claims if np.isfinite(claim.check(run).found.mean)]
    assert asked and all(claim.statement in page for claim in asked)


# Scales


@pytest.mark.parametrize("name", OWN)
def test_the_quick_scale_can_be_built_and_is_not_refused(name: str) -> None:
    study = experiments.STUDIES[name].at("quick", per_class=2000 if name == "lst-data" else 20, heldout=6, distance=0.5)
    members = study.members()
    local.check(study, study.task(), members)
    assert len(set(members)) == len(members)
    assert {member.seed for member in members} >= {0, 1}


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("lst-causal", 5 * 5 * 13 + 4 * 5 + 2 * 5 + 5 + 5 * 5 * 5),
        ("lst-optimizer", (3 * 3 + 2 + 2) * 6 * 5),
        ("lst-heads", 3 * 5 * 5),
        ("lst-depth", 6 * 5 * 5),
        ("lst-width", 4 * 5 * 5),
        ("lst-decay", 7 * 5 * 5 + 3 * 5),
        ("lst-placement", 2 * 5 * 5),
        ("lst-gain", (3 + 2) * 5 * 5),
        ("lst-data", 5 * 5 * 5),
        ("lst-size", 4 * 5 * 5 + 5 + 2 * 5),
    ],
)
def test_the_paper_scale_is_the_paper_s_model_with_five_seeds(name: str, count: int) -> None:
    study = experiments.STUDIES[name].at("paper")
    members = study.members()
    assert len(members) == len(set(members)) == count
    assert study == experiments.STUDIES[name]()
    fields = study.fields()
    assert (fields["width"], fields["layers"], fields["batch"], fields["epochs"]) == (160, 4, 128, 200)
    assert {member.seed % 1000 for member in members} == set(range(5))


# What is drawn


def test_chance_is_that_of_the_grid_in_every_panel(beyond: Runs) -> None:
    """Four symbols to guess from, or five."""
    run = beyond("lst-size")
    for each in page_of(smallest("lst-size"), run).figures():
        levels = {
            axes.get_title()[:5]: line.get_ydata()[0]
            for axes in each.figure.axes
            for line in axes.lines
            if line.get_label() == "chance"
        }
        assert levels == {"4 x 4": 0.25, "5 x 5": 0.2}


SAME, DIVIDED = "one step size", "step size divided by the gain"
SMALLER, LARGER = "4 x 4 grids", "5 x 5 grids"


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        (
            "lst-gain",
            {
                **{(SAME, "gain 0.1"): range(0, 4), (SAME, "gain 1"): range(4, 8), (SAME, "gain 10"): range(8, 12)},
                **{(DIVIDED, "gain 0.1"): range(12, 16), (DIVIDED, "gain 1"): range(4, 8)},
                (DIVIDED, "gain 10"): range(16, 20),
            },
        ),
        (
            "lst-size",
            {
                (SMALLER, "random start"): range(0, 4),
                (LARGER, "random start"): range(4, 8),  # and then come the donors
                (LARGER, "learned on 4 x 4, resized"): range(10, 14),
                (LARGER, "learned on 4 x 4, shuffled, resized"): range(14, 18),
            },
        ),
    ],
)
def test_members_stand_in_their_panels(name: str, drawn: dict[tuple[str, str], range], beyond: Runs) -> None:
    """Gain 1 in both, donors in none."""
    lines = smallest(name).lines(beyond(name))
    found = {pair: list(rows) for pair, rows in lines.groupby(["panel", "line"])["member"]}
    assert found == {pair: list(members) for pair, members in drawn.items()}


@pytest.mark.parametrize("name", ["lst-causal", "lst-size"])
def test_the_paper_scale_has_the_donors_that_are_told(name: str) -> None:
    """By SGD from a tiny start, with seeds of their own; every origin is one of the seed's donors."""
    members = experiments.STUDIES[name].at("paper").members()
    first, apart = (355, 3000) if name == "lst-causal" else (50, 1000)
    donors = members[first : first + 5]
    assert [(m.optimizer, m.learning_rate, m.sigma, m.seed) for m in donors] == [
        ("sgd", 0.03, 0.05, seed + apart) for seed in range(5)
    ]
    later = [m for m in members[first + 5 :] if m.origin is not None]
    assert {m.origin for m in later} == set(range(first, first + 5))
    assert all(m.seed == (m.origin or 0) - first for m in later)
    assert all((m.origin is None) or m.origin < first for m in members[: first + 5])
