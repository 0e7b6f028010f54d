"""Claims of the studies that turn something beside sigma, on made-up runs: each can be borne out, each can fail.

Every effect is also computed by hand, from the members and metrics of the run, one by one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from studies.by_hand import KNOBS, SMALLS, TINY, knob_effect, turned, worth
from studies.made_up import made_up, student

from placecode import studies
from placecode.claims import Claim, Finding
from placecode.members import Member

YES, NO, OPEN = "reproduced", "not reproduced", "undecided"
SEEDS, EPOCHS = 5, 8

FIELDS: dict[str, dict[str, Any]] = {
    "lst-heads": {"many": (1, 2, 4)},
    "lst-depth": {"depths": (2, 4, 6)},
    "lst-width": {"widths": (64, 320)},
    "lst-placement": {},
    "lst-gain": {"gains": (0.1, 1.0, 10.0)},
    "lst-decay": {"decays": (0.1, 1.0)},
    "lst-data": {"samples": (1000, 2000, 8100)},
    "lst-size": {},
    "lst-optimizer": {"sigmas": (*TINY, 0.2, 0.5)},
}


def heads(m: Member, sign: int) -> float:
    return -sign * 0.1 * m.heads - sign * 0.2 * (m.sigma == 2.0)


def depth(m: Member, sign: int) -> float:
    return sign * 0.05 * m.layers * (1 if m.sigma == 0.2 else -1)


def width(m: Member, sign: int) -> float:
    wide, small = m.width == 320, m.sigma == 0.2
    return 0.2 * sign * (wide + small) + (0.3 * (wide and m.sigma == 1.0) if sign < 0 else 0)


def placement(m: Member, sign: int) -> float:
    cells = {("every", 0.2): (0.5, 0.5), ("every", 2.0): (0.2, 0.6), ("input", 0.2): (0.5, 0.2)}
    return {**cells, ("input", 2.0): (0.4, 0.1)}.get((m.placement, m.sigma or 0), (9, 9))[sign < 0]


def gain(m: Member, sign: int) -> float:
    cells = {0.1: ((0.9, 0.8), (0.3, 0.4)), 1.0: ((0.85, 0.3), (0.5, 0.45)), 10.0: ((0.4, 0.2), (0.6, 0.7))}
    return 0.5 if m.sigma == 1.0 else cells[m.gain][sign < 0][m.sigma == 2.0]


def decay(m: Member, sign: int) -> float:
    """By sigma, decay of the rest and of the PE; decays of 0.1 are no claim's."""
    at = (m.sigma, m.weight_decay, m.pe_weight_decay)
    cells = {
        **{(0.2, 0.0, 0.0): (0.7, 0.8), (2.0, 0.0, 0.0): (0.3, 0.5), (0.2, 1.0, 1.0): (0.95, 0.5)},
        **{(0.2, 1.0, 0.0): (0.9, 0.6), (0.2, 0.0, 1.0): (0.8, 0.7), (2.0, 0.0, 1.0): (0.8, 0.5)},
        **{(None, 0.0, 0.0): (0.9, 0.7), (None, 1.0, 1.0): (0.96, 0.9)},
    }
    return cells.get(at, (9, 9))[sign < 0]


def data(m: Member, sign: int) -> float:
    place = ("puzzles=1000", "puzzles=2000", "puzzles=8100").index(m.data)
    small, large = (0.5, 0.7, 0.9) if sign > 0 else (0.5, 0.4, 0.3), (0.1, 0.2, 0.3) if sign > 0 else (0.6, 0.7, 0.8)
    return small[place] if m.sigma == 0.2 else large[place]


def size(m: Member, sign: int) -> float:
    if m.data != "order=5":
        return 9
    lift = {"normal": 0.0, "resized": 0.1 * sign, "resized-shuffled": 0.05}[str(m.start)]
    return 0.4 + lift + (0.4 * (m.sigma == 0.2) if sign > 0 else 0)


def optimizer(m: Member, sign: int) -> float:
    tiny = (m.sigma or 0) in TINY
    if m.learning_rate not in (1e-4, 0.01) or m.optimizer == "adamw":
        return 9
    if m.optimizer == "sgd":
        return 0.8 - 0.4 * tiny * (sign < 0)
    dipped = 0.8 - 0.3 * sign * tiny
    if m.pe_learning_rate is not None:
        return dipped + sign * (0.2 if m.pe_learning_rate < 1e-4 else -0.2)
    return dipped + (0.2 * sign if m.epsilon == 1e-4 else 9 * (m.epsilon != 1e-8))


TRUTH: dict[str, Callable[[Member, int], float]] = {
    **{"lst-heads": heads, "lst-depth": depth, "lst-width": width, "lst-placement": placement, "lst-gain": gain},
    **{"lst-decay": decay, "lst-data": data, "lst-size": size, "lst-optimizer": optimizer},
}
"""Accuracy of a member: all that the claims say with a sign of 1, the opposite of it all with -1."""


EVERYWHERE = {"lst-heads": "heads", "lst-depth": "layers", "lst-width": "width", "lst-placement": "placement"}
EVERYWHERE |= {"lst-gain": "gain", "lst-data": "data"}


def study_of(name: str) -> Any:
    usual = {
        "seeds": tuple(range(SEEDS)),
        "epochs": EPOCHS,
        "sigmas": (*SMALLS, 2.0) if name == "lst-size" else (0.2, 1.0, 2.0),
    }
    return studies.STUDIES[name].at("paper", **{**usual, **FIELDS[name]})


def noisy(value: float, member: Member, salt: str = "") -> float:
    """With a share of the member's own, and a larger one of its seed: differences must be taken seed by seed."""
    own = np.random.default_rng(zlib.crc32(f"{salt}{member}".encode())).normal() * 0.004
    return value + 0.1 * member.seed + float(own)


def run_of(name: str, sign: int = 1, lost: Callable[[Member], bool] = lambda m: False) -> Any:
    truth = TRUTH[name]
    early = (lambda m: noisy(truth(m, sign), m, "early")) if name == "lst-size" else None
    return made_up(study_of(name), lambda m: noisy(truth(m, sign), m), early=early, epoch=2, diverged=lost)


def findings(run: Any, name: str) -> dict[str, Finding]:
    claims: Sequence[Claim] = studies.STUDIES[name].claims
    return {claim.id: claim.check(run) for claim in claims}


@pytest.mark.parametrize("name", TRUTH)
def test_every_claim_is_borne_out_where_it_is_planted_and_fails_where_its_opposite_is(name: str) -> None:
    for sign, verdict in ((1, YES), (-1, NO)):
        found = findings(run_of(name, sign), name)
        assert {id: finding.verdict for id, finding in found.items()} == dict.fromkeys(found, verdict)


@pytest.mark.parametrize("name", TRUTH)
def test_effects_and_intervals_are_those_computed_by_hand(name: str) -> None:
    run = run_of(name)
    found = findings(run, name)
    assert set(found) == {*KNOBS[name], *(f"small-sigma-at-every-{EVERYWHERE[n]}" for n in EVERYWHERE if n == name)}
    for id, terms in KNOBS[name].items():
        step = 2 * (2 if id == "resized-start-speeds-up" else EPOCHS)
        values = knob_effect(run, terms, step)
        assert len(values) == SEEDS
        np.testing.assert_allclose(found[id].found, student(values), atol=1e-9, err_msg=id)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_everywhere_is_judged_where_a_small_sigma_is_worth_least(name: str) -> None:
    for sign in (1, -1):
        run, column = run_of(name, sign), EVERYWHERE[name]
        each = [knob_effect(run, worth({column: value}), 2 * EPOCHS) for value in dict.fromkeys(run.members[column])]
        assert len(each) >= 2
        least = min(each, key=lambda values: float(values.mean()))
        found = findings(run, name)[f"small-sigma-at-every-{column}"].found
        np.testing.assert_allclose(found, student(least), atol=1e-9)


def test_one_value_at_which_a_small_sigma_is_worse_is_enough() -> None:
    study = study_of("lst-heads")
    run = made_up(study, lambda m: noisy((-0.3 if m.heads == 2 else 0.3) * (m.sigma == 0.2), m))
    assert findings(run, "lst-heads")["small-sigma-at-every-heads"].verdict == NO


# What is missing


@pytest.mark.parametrize("name", TRUTH)
def test_a_seed_that_diverged_anywhere_is_left_out_of_both_sides(name: str) -> None:
    run = run_of(name, lost=lambda m: m.seed == 1 and m.sigma == 0.2 and m.optimizer != "sgd")
    found = findings(run, name)
    for id, terms in KNOBS[name].items():
        values = knob_effect(run, terms, 2 * (2 if id == "resized-start-speeds-up" else EPOCHS))
        assert len(values) >= SEEDS - 1
        np.testing.assert_allclose(found[id].found, student(values), atol=1e-9, err_msg=id)


def note(name: str, id: str, lost: Callable[[Member], bool]) -> str:
    found = findings(run_of(name, lost=lost), name)[id]
    assert found.verdict == OPEN and np.isnan(found.found.mean)
    return found.note


NONE = "the run has no finished members with"


@pytest.mark.parametrize(
    ("name", "id", "lost", "said"),
    [
        ("lst-heads", "4-heads-hurt", lambda m: m.heads == 4, f"{NONE} sigma 0.2 and heads 4"),
        ("lst-heads", "4-heads-hurt", lambda m: m.heads == 4 and m.sigma == 1, f"{NONE} sigma 1 and heads 4"),
        ("lst-heads", "small-sigma-at-every-heads", lambda m: m.heads == 2, f"{NONE} sigma 0.2 and heads 2"),
        ("lst-depth", "depth-helps", lambda m: m.layers == 2, f"{NONE} sigma 0.2 and layers 2"),
        ("lst-width", "width-leaves-sigma-alone", lambda m: m.sigma == 1, f"{NONE} sigma 1 and width 320"),
        ("lst-data", "small-sigma-at-every-data", lambda m: m.sigma == 2, f"{NONE} sigma 2 and data puzzles=1000"),
        (
            "lst-size",
            "resized-start-helps",
            lambda m: m.sigma == 0.5,
            f"{NONE} sigma 0.5 and data order=5, start resized",
        ),
        (
            *("lst-decay", "decay-closes-the-gap", lambda m: m.encoding == "sinusoid" and m.weight_decay == 1),
            "the run has no finished 2d-fixed members with weight decay 1",
        ),
        (
            *("lst-optimizer", "slow-pe-mends-adam", lambda m: m.pe_learning_rate == 1e-5),
            f"{NONE} sigma 0.01 and optimizer adam, learning rate 0.0001, pe learning rate 1e-05, epsilon 1e-08",
        ),
        (
            *("lst-optimizer", "adam-dips", lambda m: m.optimizer == "adam"),
            f"{NONE} sigma 0.2 and optimizer adam, learning rate 0.0001, pe learning rate not given, epsilon 1e-08",
        ),
        (
            *("lst-heads", "small-sigma-at-every-heads", lambda m: m.heads == 1 and (m.sigma == 2) == (m.seed > 1)),
            "the run has no seed that finished at both sigmas everywhere",
        ),
        (
            *("lst-heads", "4-heads-hurt-at-0.2", lambda m: (m.heads == 4) == (m.seed > 1)),
            "the run has no seed that finished at both settings",
        ),
    ],
)
def test_what_is_missing_is_said(name: str, id: str, lost: Callable[[Member], bool], said: str) -> None:
    assert note(name, id, lost) == said


def test_a_part_of_a_study_is_not_taken_for_the_whole() -> None:
    """One head at all sigmas, two heads at the first alone: their means are over different sigmas."""
    run = run_of("lst-heads")
    run.members = run.members.iloc[: 4 * SEEDS]
    found = findings(run, "lst-heads")
    assert {finding.verdict for finding in found.values()} == {OPEN}
    assert found["2-heads-hurt"].note == f"{NONE} sigma 1 and heads 2"
    assert found["small-sigma-at-every-heads"].note == f"{NONE} sigma 2 and heads 2"


def test_a_small_run_is_asked_about_the_sigmas_it_has() -> None:
    """The quick scale of lst-optimizer goes through one of the tiny sigmas."""
    study = studies.STUDIES["lst-optimizer"].at("quick", seeds=tuple(range(SEEDS)), epochs=EPOCHS)
    run = made_up(study, lambda m: noisy(0.5 - 0.2 * (m.sigma == 0.01), m))
    columns = turned(learning_rate=2.3e-3)
    values = knob_effect(run, [(1, (0.2,), columns), (-1, (0.01,), columns)], 2 * EPOCHS)
    np.testing.assert_allclose(findings(run, "lst-optimizer")["adam-dips"].found, student(values), atol=1e-9)


@pytest.mark.parametrize("name", [*TRUTH, "lst-causal"])
def test_ids_are_unique_statements_whole_sentences_and_margins_follow_the_rules(name: str) -> None:
    claims = studies.STUDIES[name].claims
    assert len({claim.id for claim in claims}) == len(claims)
    assert len({claim.statement for claim in claims}) == len(claims)
    for claim in claims:
        assert not claim.statement[0].islower() and claim.statement.endswith(".") and claim.source
        assert abs(claim.margin) in ({0.02, 0.05} if claim.way == "within" else {0.0, 0.05, (0.956 - 0.38) / 2})
