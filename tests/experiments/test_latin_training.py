"""lst-frozen and lst-slingshot: members, figures, and verdicts on planted runs."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.beyond import SMALLEST
from helpers.made_up import findings, made_up
from helpers.refusal import refused

from placecode.encodings.tables import root_mean_square
from placecode.execution import local
from placecode.experiments import experiment_of
from placecode.experiments.claims import FAILS, HOLDS, UNDECIDED
from placecode.experiments.latin.training import PE_VARIANTS, LstFrozen, LstSlingshot
from placecode.models.member import Member
from placecode.reports.pages.registry import page_of
from placecode.reports.pages.training import spikes
from placecode.runs.read import Run

SMALL = {name: value for name, value in SMALLEST.items() if name != "evaluations"}


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Run:
    experiment = LstFrozen.from_scale("quick", **{**SMALL, "layers": 2})
    return local.execute(experiment, tmp_path_factory.mktemp("frozen") / "run")


@pytest.fixture(scope="module")
def slingshot(tmp_path_factory: pytest.TempPathFactory) -> Run:
    experiment = LstSlingshot.from_scale("quick", **SMALL, evaluate_every=1)
    return local.execute(experiment, tmp_path_factory.mktemp("slingshot") / "run")


def test_every_kind_has_every_sigma_and_seed() -> None:
    experiment = LstFrozen.from_scale("paper")
    members = experiment.members()
    assert len(members) == len(set(members)) == 4 * 8 * 5 == 160
    assert (experiment.epochs, experiment.zero_loss_patience, experiment.log_softmax) == (1000, 100, 2)
    for i, kind in enumerate(PE_VARIANTS):
        group = members[40 * i : 40 * (i + 1)]
        assert {member.label for member in group} == {kind}
        pairs = list(itertools.product(experiment.sigmas, range(5)))
        assert [(member.sigma, member.seed) for member in group] == pairs
    sized = members[80:120]
    assert [member.donor for member in sized] == list(range(40))
    assert all((members[m.donor].sigma, members[m.donor].seed) == (m.sigma, m.seed) for m in sized)  # type: ignore[index]


def test_sized_vectors_are_the_start_at_the_size_of_the_end(frozen: Run) -> None:
    """Block by block; and they are frozen."""
    for number, donor in zip(range(8, 12), range(4), strict=True):
        start, end = (frozen.array(f"pe_{when}/{donor}").astype(float) for when in ("start", "end"))
        sized = frozen.array(f"pe_start/{number}").astype(float)
        assert np.array_equal(sized, frozen.array(f"pe_end/{number}"))
        for block in range(2):
            factor = root_mean_square(end[block]) / root_mean_square(start[block])
            assert sized[block] == pytest.approx(start[block] * factor, abs=1e-6)
            assert factor != pytest.approx(1, abs=1e-6)


def test_a_frozen_run_has_its_figures_and_sentences_on_every_kind(frozen: Run) -> None:
    experiment = experiment_of(frozen)
    assert isinstance(experiment, LstFrozen)
    assert [shown.name for shown in page_of(experiment, frozen).figures()] == ["accuracy", "curves"]
    words = page_of(experiment, frozen).sentences()
    assert all(any(sentence.lower().startswith(kind.lower()) for sentence in words) for kind in PE_VARIANTS)


def planted(**levels: Any) -> Any:
    """Return a run of lst-frozen whose accuracies are these functions of sigma, by kind, plus noise."""
    noise = np.random.default_rng(0).normal(size=(4, 8, 5)) * 0.004
    experiment = LstFrozen.from_scale("paper")

    def accuracy(member: Member) -> float:
        place = list(PE_VARIANTS).index(member.label), experiment.sigmas.index(member.sigma), member.seed  # type: ignore[arg-type]
        return float(levels[("learned", "frozen", "sized", "input")[place[0]]](member.sigma) + noise[place])

    return made_up(experiment, accuracy, train=lambda member: 1.0 if (member.sigma or 0) > 0.02 else 0.7)


def verdicts(run: Any) -> dict[str, str]:
    return {id: finding.direction for id, finding in findings(run).items()}


def test_verdicts_on_frozen_pes_follow_what_was_planted() -> None:
    falls = lambda sigma: 0.9 - 0.25 * sigma  # noqa: E731
    flat = lambda sigma: 0.9  # noqa: E731
    tiny = lambda sigma: falls(sigma) - 0.3 * (sigma < 0.1)  # noqa: E731
    by_id = verdicts(planted(learned=falls, frozen=tiny, sized=falls, input=flat))
    all_hold = {"learning-is-not-needed", "input-alone-shrinks-the-effect", "tiny-sigma-stalls"}
    all_hold |= {f"{id}-at-{sigma}" for id in ("learning-helps", "size-is-what-is-learned") for sigma in (0.01, 0.05)}
    assert {id: by_id[id] for id in by_id if not id.startswith("large")} == dict.fromkeys(all_hold, HOLDS)
    opposite = verdicts(planted(learned=tiny, frozen=lambda s: falls(s) - 0.2 * (s > 0.05), sized=falls, input=falls))
    assert opposite["learning-is-not-needed"] == FAILS
    assert opposite["learning-helps-at-0.01"] == opposite["learning-helps-at-0.05"] == FAILS
    assert opposite["size-is-what-is-learned-at-0.01"] == FAILS
    assert opposite["input-alone-shrinks-the-effect"] == FAILS


def test_both_losses_and_frozen_pes(slingshot: Run) -> None:
    members = LstSlingshot.from_scale("paper").members()
    assert len(members) == len(set(members)) == 3 * 3 * 5
    one, two = "log_softmax=1", "log_softmax=2"
    assert [(m.data, m.learn) for m in members[::15]] == [(one, True), (two, True), (one, False)]
    parts = slingshot.config["task"]["parts"]
    assert (parts[one]["log_softmax"], parts[two]["log_softmax"]) == (1, 2)
    assert parts[one]["sha256"] == parts[two]["sha256"]  # the same puzzles


def test_mean_logit_loss_and_accuracy_are_recorded_and_drawn(slingshot: Run) -> None:
    assert sorted(slingshot.metrics["step"].unique()) == [0, 4, 8]
    assert set(slingshot.metrics["metric"]) == {"accuracy", "loss", "mean_logit"}
    experiment = experiment_of(slingshot)
    assert [shown.name for shown in page_of(experiment, slingshot).figures()] == ["slingshots-0.2", "slingshots-2"]
    words = page_of(experiment, slingshot).sentences()
    assert len(words) == 6 and all("in 0 of 2 models" in sentence for sentence in words)  # none has a spike


@pytest.mark.parametrize(
    "fields", [{"losses": (3,)}, {"losses": ()}, {"frozen": (0,)}, {"evaluate_every": 0}, {"losses": (1, 1)}]
)
def test_bad_settings_are_refused(fields: dict[str, Any]) -> None:
    assert [refused(LstSlingshot.from_scale, "quick", **fields).name] == list(fields)


def rising(once: float, twice: float, still: float) -> Any:
    """Return a run whose accuracies rise by this much after epoch 200, by loss and for frozen PEs."""
    noise = np.random.default_rng(1).normal(size=100) * 0.002
    experiment = LstSlingshot.from_scale("paper")
    rise = {("log_softmax=1", True): once, ("log_softmax=2", True): twice, ("log_softmax=1", False): still}
    numbers = {member: number for number, member in enumerate(experiment.members())}
    return made_up(experiment, lambda m: 0.8 + rise[m.data, m.learn] + noise[numbers[m]], early=lambda m: 0.8)


def test_verdicts_on_slingshots_follow_what_was_planted() -> None:
    assert set(verdicts(rising(0.05, 0.0, 0.05)).values()) == {HOLDS}
    assert set(verdicts(rising(0.0, 0.05, -0.05)).values()) == {FAILS}
    short = made_up(LstSlingshot.from_scale("paper", epochs=150), lambda m: 0.8)
    assert set(verdicts(short).values()) == {UNDECIDED}


def test_a_spike_is_a_loss_that_rises_after_it_was_small() -> None:
    losses = {
        0: [1.0, 1e-3, 1e-6, 1e-6, 1e-6],  # falls
        1: [1.0, 1e-6, 1e-2, 1e-6, 1e-2],  # two spikes
        2: [1.0, 1e-6, 5e-5, 1e-6, 1e-2],  # one, and one that is too small
        3: [1.0, 0.5, 1.0, 0.5, 1.0],  # never small
    }
    rows = [(member, step, value) for member, values in losses.items() for step, value in enumerate(values)]
    table = pd.DataFrame(rows, columns=["member", "step", "value"]).assign(condition="all", metric="loss")
    metrics = pd.concat([table.assign(split="train"), table.assign(split="test", value=9.0)])
    run: Any = SimpleNamespace(path=Path("x"), metrics=metrics)
    assert spikes(run).to_dict() == {0: 0, 1: 2, 2: 1, 3: 0}
