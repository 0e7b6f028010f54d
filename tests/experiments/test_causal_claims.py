"""Claims on lst-causal, on made-up runs with planted effects and with their opposites."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.by_hand import BETWEEN, EXCHANGED, SIZES, causal_effects
from helpers.made_up import findings, made_up, noisy, student

from placecode.experiments.claims import FAILS, HOLDS, UNDECIDED
from placecode.experiments.latin.causal import LstCausal
from placecode.experiments.latin.causal_claims import CAUSAL_CLAIMS
from placecode.models.member import Member
from placecode.reports.pages.causal import EXCHANGES, ROWS
from placecode.reports.pages.registry import page_of

SIGMAS, SEEDS, EPOCHS = (0.1, 0.2, 0.5, 1.0, 2.0), 3, 8
EXPERIMENT = LstCausal.from_scale("paper", sigmas=SIGMAS, seeds=tuple(range(SEEDS)), epochs=EPOCHS)

HIGH = {
    **{"donor's, frozen": 0.2, "rows and columns, frozen": 0.2, "true, frozen": 0.3, "true, learned on": 0.1},
    **{"donor's of 0.2 rescaled, frozen": 0.2, "master's, frozen": 0.2, "true centred, frozen": 0.5},
    "learned, by SGD": 0.2,
}
"""By how much the accuracy of each kind is above that of a random PE, where all claims hold."""
LOSSES = {"its start": 0.2, "another seed's": 0.4, "that of the other sigma": 0.4}


def accuracy(member: Member, sign: int) -> float:
    """Return an accuracy for which all claims hold; with sign -1 effects are reversed and controls are off by 0.3."""
    kind, large = member.label, member.sigma == 2.0
    value = 0.5 + sign * (HIGH.get(kind, 0.0) + 0.4 * (large and kind.startswith("rows")) - 0.4 * large)
    if sign < 0:
        value += {"learned": 0.2, "frozen by its step size": 0.3, "2d-fixed as a start": 0.3}.get(kind, 0.0)
        value += {"twin, frozen": 0.3, "untrained donor's, frozen": 0.3, "donor's, frozen": -0.4}.get(kind, 0.0)
    return value


def run_of(sign: int = 1, diverged: Callable[[Member], bool] = lambda m: False, exchanged: bool = True) -> Any:
    def with_pe(name: str) -> Callable[[Member], float]:
        loss = LOSSES.get(name, 0.0)
        if sign < 0:
            loss = 0.3 if name not in LOSSES else -0.2

        def value(m: Member) -> float:
            frozen = m.label == "random, frozen" and sign > 0
            lost = -0.02 if m.sigma == 2.0 and sign > 0 else loss
            return noisy(accuracy(m, sign), m, name) - (0.0 if frozen else lost) + (0.3 if sign < 0 and frozen else 0.0)

        return value

    names = dict.fromkeys((*EXCHANGES, "nothing"))
    return made_up(
        EXPERIMENT,
        lambda m: noisy(accuracy(m, sign), m),
        early=lambda m: noisy(accuracy(m, sign), m, "early"),
        epoch=2,
        analyses={
            ("rsa", "relation"): (None, lambda m: noisy(0.4 + 0.3 * sign, m, "rsa") - 0.1 * (m.seed % 1000)),
            **({("accuracy_with", name): (None, with_pe(name)) for name in names} if exchanged else {}),
        },
        diverged=diverged,
    )


@pytest.fixture(scope="module")
def planted() -> Any:
    return run_of()


def test_every_claim_holds_where_it_is_planted_and_fails_where_its_opposite_is(planted: Any) -> None:
    assert {*BETWEEN, *SIZES, *EXCHANGED, "masters-learned"} == {claim.id for claim in CAUSAL_CLAIMS}
    for run, verdict in ((planted, HOLDS), (run_of(-1), FAILS)):
        by_id = findings(run)
        assert {id: finding.direction for id, finding in by_id.items()} == dict.fromkeys(by_id, verdict)


def test_effects_and_intervals_are_those_computed_by_hand(planted: Any) -> None:
    lost = run_of(diverged=lambda m: m.seed % 1000 == 1 and m.sigma == 0.2)
    for run, seeds in ((planted, SEEDS), (lost, SEEDS - 1)):
        by_id = findings(run)
        for id, values in causal_effects(run, 2 * EPOCHS, 4).items():
            assert len(values) in (seeds, SEEDS), id  # kinds of a single size are not all at 0.2
            np.testing.assert_allclose(by_id[id].effect, student(values), atol=1e-9, err_msg=id)


def test_labels_and_sizes_of_which_no_member_finished_are_named() -> None:
    def diverged(member: Member) -> bool:
        return member.label in ("no PE", "twin, frozen") or (member.label == "learned" and member.sigma == 0.5)

    run = run_of(diverged=diverged)
    by_id = findings(run)
    at_one_size = "with sigma 0.5 and label learned"
    notes = {"control-transplant": "with the label twin, frozen", "control-swapping": at_one_size}
    for id, note in {**notes, "training-the-pe-is-not-needed": at_one_size}.items():
        assert by_id[id].direction == UNDECIDED and by_id[id].note.endswith(f"no finished members {note}")
    assert by_id["swapped-small-for-large"].direction == HOLDS  # it needs 0.2 alone
    undecided = [id for id, finding in by_id.items() if id.startswith("control-") and finding.direction == UNDECIDED]
    assert all(id in page_of(EXPERIMENT, run).sentences()[0] for id in undecided)


def test_a_run_without_exchanges_leaves_the_claims_on_them_undecided_and_their_panel_empty() -> None:
    run = run_of(exchanged=False)
    assert {id for id, finding in findings(run).items() if finding.direction == UNDECIDED} == set(EXCHANGED)
    (causes,) = [shown.figure for shown in page_of(EXPERIMENT, run).figures() if shown.name == "causes"]
    _, effects, losses = causes.axes
    by_hand = causal_effects(run_of(), 2 * EPOCHS, 4)
    drawn = [container.lines[0].get_xdata()[0] for container in effects.containers]
    assert drawn == pytest.approx([by_hand[id].mean() for id in ROWS]) and not losses.containers
