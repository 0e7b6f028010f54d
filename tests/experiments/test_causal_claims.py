"""Claims on lst-causal, on made-up runs with planted effects and with their opposites."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.by_hand import BETWEEN, EXCHANGED, SIZES, causal_effects
from helpers.made_up import made_up, student

from placecode.experiments.claims import Finding
from placecode.experiments.latin.causal import LstCausal
from placecode.experiments.latin.causal_claims import CLAIMS
from placecode.models.member import Member
from placecode.reports.pages.causal import EXCHANGES, ROWS
from placecode.reports.pages.registry import page_of

YES, NO, OPEN = "holds", "fails", "undecided"
SIGMAS, SEEDS, EPOCHS = (0.1, 0.2, 0.5, 1.0, 2.0), 3, 8
STUDY = LstCausal.at("paper", sigmas=SIGMAS, seeds=tuple(range(SEEDS)), epochs=EPOCHS)
MEMBERS = STUDY.members()
KIND = {member: member.label for member in MEMBERS}

HIGH = {
    **{"donor's, frozen": 0.2, "rows and columns, frozen": 0.2, "true, frozen": 0.3, "true, learned on": 0.1},
    **{"donor's of 0.2 rescaled, frozen": 0.2, "master's, frozen": 0.2, "true centred, frozen": 0.5},
    "learned, by SGD": 0.2,
}
"""What kinds have more than a random PE, where all is planted."""
LOSSES = {"its start": 0.2, "another seed's": 0.4, "that of the other sigma": 0.4}


def noisy(value: float, member: Member, salt: str = "") -> float:
    own = np.random.default_rng(zlib.crc32(f"{salt}{member}".encode())).normal() * 0.001
    return value + 0.1 * (member.seed % 1000) + float(own)


def accuracy(member: Member, sign: int) -> float:
    """With a sign of -1 all effects of size and arrangement are turned round; controls are off by 0.3 each."""
    kind, large = KIND[member], member.sigma == 2.0
    lift = HIGH.get(kind, 0.0) + 0.4 * (large and kind.startswith("rows"))
    value = 0.5 + sign * (lift - 0.4 * large)
    if sign < 0:
        value += {"learned": 0.2, "frozen by its step size": 0.3, "2d-fixed as a start": 0.3}.get(kind, 0.0)
        value += {"twin, frozen": 0.3, "untrained donor's, frozen": 0.3, "donor's, frozen": -0.4}.get(kind, 0.0)
    return value


def run_of(sign: int = 1, lost: Callable[[Member], bool] = lambda m: False, exchanged: bool = True) -> Any:
    def with_pe(name: str) -> Callable[[Member], float]:
        loss = LOSSES.get(name, 0.0)
        if sign < 0:
            loss = 0.3 if name not in LOSSES else -0.2

        def value(m: Member) -> float:
            frozen = KIND[m] == "random, frozen" and sign > 0
            gained = -0.02 if m.sigma == 2.0 and sign > 0 else loss
            return (
                noisy(accuracy(m, sign), m, name) - (0.0 if frozen else gained) + (0.3 if sign < 0 and frozen else 0.0)
            )

        return value

    names = dict.fromkeys((*EXCHANGES, "nothing"))
    return made_up(
        STUDY,
        lambda m: noisy(accuracy(m, sign), m),
        early=lambda m: noisy(accuracy(m, sign), m, "early"),
        epoch=2,
        analyses={
            ("rsa", "relation"): (None, lambda m: noisy(0.4 + 0.3 * sign, m, "rsa") - 0.1 * (m.seed % 1000)),
            **({("accuracy_with", name): (None, with_pe(name)) for name in names} if exchanged else {}),
        },
        diverged=lost,
    )


def findings(run: Any) -> dict[str, Finding]:
    return {claim.id: claim.check(run) for claim in CLAIMS}


@pytest.fixture(scope="module")
def borne_out() -> Any:
    return run_of()


@pytest.fixture(scope="module")
def denied() -> Any:
    return run_of(-1)


@pytest.fixture(scope="module")
def without_control() -> Any:
    """Nobody finished without a PE."""
    return run_of(lost=lambda m: KIND[m] == "no PE")


def test_every_claim_is_asked_about() -> None:
    assert {*BETWEEN, *SIZES, *EXCHANGED, "masters-learned"} == {claim.id for claim in CLAIMS}


def test_every_claim_follows_what_is_planted(borne_out: Any, denied: Any) -> None:
    for run, verdict in ((borne_out, YES), (denied, NO)):
        found = findings(run)
        assert {id: each.direction for id, each in found.items()} == dict.fromkeys(found, verdict)


def test_effects_and_intervals_are_those_computed_by_hand(borne_out: Any) -> None:
    lost = run_of(lost=lambda m: m.seed % 1000 == 1 and m.sigma == 0.2)
    for run, seeds in ((borne_out, SEEDS), (lost, SEEDS - 1)):
        found = findings(run)
        for id, values in causal_effects(run, 2 * EPOCHS, 4).items():
            assert len(values) in (seeds, SEEDS), id  # kinds of a single size are not all at 0.2
            np.testing.assert_allclose(found[id].found, student(values), atol=1e-9, err_msg=id)


@pytest.mark.parametrize(
    ("lost", "id", "said"),
    [
        ("donor's, frozen", "transplant-helps", "the run has no finished members of the kind donor's, frozen"),
        ("twin, frozen", "control-transplant", "the run has no finished members of the kind twin, frozen"),
    ],
)
def test_a_kind_of_which_nobody_finished_is_named(lost: str, id: str, said: str) -> None:
    found = findings(run_of(lost=lambda m: KIND[m] == lost))[id]
    assert (found.direction, found.note) == (OPEN, said)


def test_a_size_at_which_nobody_finished_is_named() -> None:
    found = findings(run_of(lost=lambda m: KIND[m] == "learned" and m.sigma == 0.5))
    said = "the run has no finished members of the kind learned with sigma 0.5"
    for id in ("training-the-pe-is-not-needed", "control-swapping"):
        assert (found[id].direction, found[id].note) == (OPEN, said)
    assert found["swapped-small-for-large"].direction == YES  # which asks for 0.2 alone


def test_a_run_without_exchanges_says_so() -> None:
    found = findings(run_of(exchanged=False))
    assert found["control-swapping"].note == "the run has no accuracy_with (itself)"
    assert {id for id, each in found.items() if each.direction == OPEN} == set(EXCHANGED)


# Words and figures


def test_controls_are_told_first_and_those_that_fail_are_named(
    borne_out: Any, denied: Any, without_control: Any
) -> None:
    controls = [claim.id for claim in CLAIMS if claim.id.startswith("control-")]
    assert page_of(STUDY, borne_out).words()[0] == "Of 10 controls, which must do nothing, 10 do nothing."
    told = page_of(STUDY, denied).words()[0]
    assert told == f"Of 10 controls, which must do nothing, 0 do nothing; not so: {', '.join(controls)}."
    told = page_of(STUDY, without_control).words()
    assert told[0] == "Of 10 controls, which must do nothing, 9 do nothing; undecided: control-ablating."
    assert told[-1] == f"{SEEDS} of {len(MEMBERS)} members diverged and are left out of the means."


def test_a_sentence_says_verdict_effect_and_interval_or_what_is_missing(borne_out: Any) -> None:
    spoils = next(claim for claim in CLAIMS if claim.id == "size-spoils-a-learned-pe")
    mean, low, high = student(causal_effects(borne_out, 2 * EPOCHS, 4)[spoils.id])
    told = f"Size. {spoils.statement} Yes, {mean:+.2f} ({low:+.2f} to {high:+.2f})."
    assert told in page_of(STUDY, borne_out).words()
    kind = "donor's of 0.2 rescaled, frozen"
    told = f"Size. {spoils.statement} Undecided (the run has no finished members of the kind {kind})."
    assert told in page_of(STUDY, run_of(lost=lambda m: KIND[m] == kind)).words()


def test_effects_and_losses_are_drawn_where_they_are(borne_out: Any) -> None:
    """One row for each effect; controls hollow; losses of sigma 0.2 and 2.0 by exchange."""
    causes = next(each.figure for each in page_of(STUDY, borne_out).figures() if each.name == "causes")
    _, middle, right = causes.axes
    effects = causal_effects(borne_out, 2 * EPOCHS, 4)
    drawn = [container.lines[0] for container in middle.containers]
    assert len(drawn) == len(ROWS)
    for line, id in zip(drawn, ROWS, strict=True):
        assert line.get_xdata()[0] == pytest.approx(effects[id].mean())
        assert (line.get_markeredgewidth() > 0) == id.startswith("control-")
    names = [" ".join(label.get_text().split()) for label in right.get_yticklabels()]
    assert names == list(EXCHANGES)
    (small,) = [each for each in right.containers if str(each.get_label()).endswith("= 0.2")]
    at = {names[round(y)]: x for x, y in small.lines[0].get_xydata()}
    assert {name: round(at[name], 2) for name in LOSSES} == LOSSES
    assert at["nothing"] == pytest.approx(0, abs=0.01) and "itself" not in at  # controls are marks of their own


def test_a_piece_without_exchanges_is_drawn_without_them() -> None:
    causes = next(each.figure for each in page_of(STUDY, run_of(exchanged=False)).figures() if each.name == "causes")
    _, middle, right = causes.axes
    assert len(middle.containers) == len(ROWS)
    assert not right.containers and "no " in right.texts[0].get_text()
