"""Claims of the experiments that sweep one more setting, on made-up runs with planted effects and with their opposites.

Every effect is also computed from the members and metrics of the run.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from helpers.by_hand import RATE, SMALLS, TINY, gaps, knob_effect, knob_effects, sigma_effect, with_optimizer
from helpers.made_up import findings, made_up, noisy, student

from placecode import experiments
from placecode.experiments.claims import FAILS, HOLDS, UNDECIDED
from placecode.models.member import Member

SEEDS, EPOCHS = 5, 8

FIELDS: dict[str, dict[str, Any]] = {
    "lst-heads": {"head_counts": (1, 2, 4)},
    "lst-depth": {"depths": (2, 4, 6)},
    "lst-width": {"widths": (64, 320)},
    "lst-placement": {},
    "lst-gain": {"gains": (0.1, 1.0, 10.0)},
    "lst-decay": {"decays": (1.0, 3.0)},
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


def divided(m: Member) -> bool:
    """Return whether the learning rate is divided by the gain; with a gain of 1 it makes no difference."""
    return m.output_gain == 1 or m.learning_rate != RATE


def gain(m: Member, sign: int) -> float:
    """With one learning rate for all gains, a gain of 0.1 does not do what a small sigma does."""
    cells = {0.1: ((0.9, 0.8), (0.3, 0.4)), 1.0: ((0.85, 0.3), (0.5, 0.45)), 10.0: ((0.4, 0.2), (0.6, 0.7))}
    same = {0.1: ((0.5, 0.35), (0.4, 0.3)), 10.0: ((0.45, 0.25), (0.95, 0.8))}
    return 0.5 if m.sigma == 1.0 else (cells if divided(m) else same)[m.output_gain][sign < 0][m.sigma == 2.0]


def movement(m: Member, sign: int) -> float:
    """Return how far weights move; the opposite where the learning rate is not divided."""
    return 2 + 0.1 * (m.sigma or 0) - (sign if divided(m) else -sign) * 0.3 * float(np.log10(m.output_gain))


def decay(m: Member, sign: int) -> float:
    """By sigma, decay of the other weights and decay of the PE; no claim is about decays of 1."""
    at = (m.sigma, m.weight_decay, m.pe_weight_decay)
    cells = {
        **{(0.2, 0.0, 0.0): (0.7, 0.8), (2.0, 0.0, 0.0): (0.3, 0.5), (0.2, 3.0, 3.0): (1.05, 0.5)},
        **{(0.2, 3.0, 0.0): (0.9, 0.6), (0.2, 0.0, 3.0): (0.8, 0.7), (2.0, 0.0, 3.0): (0.8, 0.5)},
        **{(None, 0.0, 0.0): (0.9, 0.75), (None, 3.0, 3.0): (1.03, 0.7)},
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
"""Accuracy of a member: all claims hold with a sign of 1, and all fail with -1."""
EVERYWHERE = {"lst-heads": "heads", "lst-depth": "layers", "lst-width": "width", "lst-placement": "placement"}
EVERYWHERE |= {"lst-data": "data"}
"""Experiments with a claim on every value of a setting, and the column of that setting."""


def experiment_of(name: str) -> Any:
    sigmas = (*SMALLS, 2.0) if name == "lst-size" else (0.2, 1.0, 2.0)
    defaults = {"seeds": tuple(range(SEEDS)), "epochs": EPOCHS, "sigmas": sigmas}
    return experiments.EXPERIMENTS[name].from_scale("paper", **{**defaults, **FIELDS[name]})


def run_of(name: str, sign: int = 1, diverged: Callable[[Member], bool] = lambda m: False) -> Any:
    truth = TRUTH[name]
    early = (lambda m: noisy(truth(m, sign), m, "early")) if name == "lst-size" else None
    analyses = {("weights_moved", "start"): (lambda m: 9.0, lambda m: noisy(movement(m, sign), m, "moved"))}
    return made_up(
        experiment_of(name),
        lambda m: noisy(truth(m, sign), m),
        early=early,
        epoch=2,
        diverged=diverged,
        analyses=analyses if name == "lst-gain" else None,
    )


@pytest.mark.parametrize("name", TRUTH)
def test_every_claim_fails_where_its_opposite_is_planted(name: str) -> None:
    by_id = findings(run_of(name, -1))
    assert {id: finding.direction for id, finding in by_id.items()} == dict.fromkeys(by_id, FAILS)


@pytest.mark.parametrize("diverged", [False, True], ids=["all finished", "a seed diverged"])
@pytest.mark.parametrize("name", TRUTH)
def test_every_claim_holds_where_it_is_planted_with_the_effect_computed_by_hand(name: str, diverged: bool) -> None:
    """A seed of which a member diverged is left out of both sides."""
    run = run_of(name, diverged=lambda m: diverged and m.seed == 1 and m.sigma == 0.2 and m.optimizer != "sgd")
    by_id = findings(run)
    assert {id: finding.direction for id, finding in by_id.items()} == dict.fromkeys(by_id, HOLDS)
    effects = knob_effects(run, name, 2 * EPOCHS, 2 * 2)  # all but those on every value of a setting
    assert set(by_id) == {*effects, *(f"small-sigma-at-every-{EVERYWHERE[n]}" for n in EVERYWHERE if n == name)}
    for id, values in effects.items():
        assert SEEDS - diverged <= len(values) <= SEEDS
        np.testing.assert_allclose(by_id[id].effect, student(values), atol=1e-9, err_msg=id)


def least(run: Any, column: str, values: Sequence[Any]) -> tuple[float, float, float]:
    """Return the gain of sigma 0.2 over 2.0 at the value of a setting at which its interval reaches lowest."""
    gains = [student(knob_effect(run, sigma_effect({column: value}), 2 * EPOCHS)) for value in values]
    return min(gains, key=lambda gain: gain[1])


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_claim_on_every_value_is_judged_where_the_gain_is_least_sure(name: str) -> None:
    for sign in (1, -1):
        run, column = run_of(name, sign), EVERYWHERE[name]
        values = list(dict.fromkeys(run.members[column]))
        assert len(values) >= 2
        effect = findings(run)[f"small-sigma-at-every-{column}"].effect
        np.testing.assert_allclose(effect, least(run, column, values), atol=1e-9)


def at_every_head(gain: Callable[[Member], float], train: Callable[[Member], float] = lambda m: 1.0) -> Any:
    """Return a run of lst-heads with this gain at sigma 0.2, and its finding on every number of heads."""
    run = made_up(experiment_of("lst-heads"), lambda m: noisy(gain(m) * (m.sigma == 0.2), m), train=train)
    return run, findings(run)["small-sigma-at-every-heads"]


def test_the_least_sure_value_is_not_the_one_of_the_least_mean() -> None:
    """With two heads the gain is largest in the mean, and differs from seed to seed."""
    run, finding = at_every_head(lambda m: (0.0, 0.9)[m.seed % 2] if m.heads == 2 else 0.2)
    gains = {heads: student(knob_effect(run, sigma_effect({"heads": heads}), 2 * EPOCHS)) for heads in (1, 2, 4)}
    assert gains[2][0] > max(gains[1][0], gains[4][0])
    assert finding.direction == UNDECIDED
    np.testing.assert_allclose(finding.effect, gains[2], atol=1e-9)


@pytest.mark.parametrize(
    ("train", "fitted"),
    [
        (lambda m: 0.9 if m.heads == 2 and m.sigma == 0.2 else 1.0, (1, 4)),
        (lambda m: 0.7 if m.heads == 2 and m.seed == 1 else 1.0, (1, 4)),  # 0.94 in the mean
        (lambda m: 0.8 if m.heads == 2 and m.seed == 1 else 1.0, (1, 2, 4)),  # 0.96
        (lambda m: 0.9 if m.heads == 2 and m.sigma != 0.2 else 1.0, (1, 2, 4)),
        (lambda m: 1.0 if m.heads == 4 else 0.0, (4,)),
    ],
)
def test_a_value_without_a_fit_is_left_out(train: Callable[[Member], float], fitted: tuple[int, ...]) -> None:
    """Of training puzzles, on the mean over seeds."""
    run, finding = at_every_head(lambda m: -0.3 if m.heads == 2 else 0.1 * m.heads, train)
    np.testing.assert_allclose(finding.effect, least(run, "heads", fitted), atol=1e-9)
    assert finding.direction == (FAILS if 2 in fitted else HOLDS)


def test_where_no_training_puzzles_are_fitted_nothing_is_decided() -> None:
    _, finding = at_every_head(lambda m: 0.3, lambda m: 0.95 if m.sigma == 0.2 else 1.0)
    assert finding.direction == UNDECIDED and np.isnan(finding.effect.mean)
    assert finding.note == "the run has no models that fit their training puzzles at sigma 0.2"


@pytest.mark.parametrize(
    ("lead", "verdict"),
    [
        (lambda m: 0.02, HOLDS),
        (lambda m: -0.3, FAILS),  # the learned PE leads by more than it was behind
        (lambda m: 0.2 * (-1) ** m.seed, FAILS),  # no gap in the mean, and a wider one in every seed
    ],
)
def test_a_gap_is_closed_where_both_are_closer_by_seed(lead: Callable[[Member], float], verdict: str) -> None:
    """2d-fixed leads by 0.1 without decay, and by `lead` with it."""

    def accuracy(m: Member) -> float:
        return 0.5 if m.encoding != "sinusoid" else 0.6 if m.weight_decay == 0 else 0.5 + lead(m)

    run = made_up(experiment_of("lst-decay"), lambda m: noisy(accuracy(m), m))
    finding = findings(run)["decay-closes-the-gap"]
    assert finding.direction == verdict
    values = (gaps(run, 0.0, 2 * EPOCHS).abs() - gaps(run, 3.0, 2 * EPOCHS).abs()).to_numpy()
    assert len(values) == SEEDS
    np.testing.assert_allclose(finding.effect, student(values), atol=1e-9)


@pytest.mark.parametrize(("change", "verdict"), [(0.07, HOLDS), (-0.07, HOLDS), (0.13, FAILS), (-0.13, FAILS)])
def test_width_may_change_the_gain_of_sigma_by_up_to_a_tenth(change: float, verdict: str) -> None:
    run = made_up(experiment_of("lst-width"), lambda m: noisy(0.5 + change * (m.width == 320 and m.sigma == 0.2), m))
    assert findings(run)["width-leaves-sigma-alone"].direction == verdict


NONE = "the run has no finished members with"
NO_PAIR = "the run has no seed that finished at both settings"
NO_FIXED = "the run has no finished 2d-fixed members with weight decay 3"
RESIZED, ADAM = "data order=5, start resized", "learning rate 0.0001, pe learning rate not set, epsilon 1e-08"


@pytest.mark.parametrize(
    ("name", "id", "diverged", "note"),
    [
        ("lst-heads", "4-heads-hurt", lambda m: m.heads == 4 and m.sigma == 1, f"{NONE} sigma 1 and heads 4"),
        ("lst-heads", "small-sigma-at-every-heads", lambda m: m.heads == 2, f"{NONE} sigma 0.2 and heads 2"),
        ("lst-heads", "4-heads-hurt-at-0.2", lambda m: (m.heads == 4) == (m.seed > 1), NO_PAIR),
        ("lst-size", "resized-start-helps", lambda m: m.sigma == 0.5, f"{NONE} sigma 0.5 and {RESIZED}"),
        ("lst-decay", "decay-closes-the-gap", lambda m: m.sigma is None and m.weight_decay == 3, NO_FIXED),
        ("lst-optimizer", "adam-dips", lambda m: m.optimizer == "adam", f"{NONE} sigma 0.2 and optimizer adam, {ADAM}"),
    ],
)
def test_a_missing_setting_is_named(name: str, id: str, diverged: Callable[[Member], bool], note: str) -> None:
    finding = findings(run_of(name, diverged=diverged))[id]
    assert (finding.direction, finding.note) == (UNDECIDED, note) and np.isnan(finding.effect.mean)


def test_a_part_of_an_experiment_decides_nothing() -> None:
    """One head has all sigmas and two heads only the first: their means are over different sigmas."""
    run = run_of("lst-heads")
    run.members = run.members.iloc[: 4 * SEEDS]
    assert {finding.direction for finding in findings(run).values()} == {UNDECIDED}


def test_a_small_run_is_judged_by_the_sigmas_it_has() -> None:
    """The quick scale of lst-optimizer has one of the tiny sigmas."""
    experiment = experiments.EXPERIMENTS["lst-optimizer"].from_scale("quick", seeds=tuple(range(SEEDS)), epochs=EPOCHS)
    run = made_up(experiment, lambda m: noisy(0.5 - 0.2 * (m.sigma == 0.01), m))
    columns = with_optimizer(learning_rate=2.3e-3)
    values = knob_effect(run, [(1, (0.2,), columns), (-1, (0.01,), columns)], 2 * EPOCHS)
    np.testing.assert_allclose(findings(run)["adam-dips"].effect, student(values), atol=1e-9)


@pytest.mark.parametrize("name", TRUTH)
def test_the_paper_scale_has_all_that_claims_need(name: str) -> None:
    analyses = {("weights_moved", "start"): (None, lambda m: noisy(1.0, m))}
    experiment = experiments.EXPERIMENTS[name].from_scale("paper")
    run = made_up(experiment, lambda m: noisy(0.5, m), early=lambda m: noisy(0.4, m), epoch=50, analyses=analyses)
    for finding in findings(run).values():
        assert finding.note == "" and np.isfinite(finding.effect).all()


OTHER_MARGINS = {"width-leaves-sigma-alone": 0.1, "decay-reaches-0.97": 0.97, "masters-learned": 0.4}


@pytest.mark.parametrize("name", [*TRUTH, "lst-causal"])
def test_margins_follow_the_rules(name: str) -> None:
    for claim in experiments.EXPERIMENTS[name].claims:
        usual = {0.02, 0.05} if claim.way == "within" else {0.0, 0.05, (0.956 - 0.38) / 2}
        assert abs(claim.margin) in ({OTHER_MARGINS[claim.id]} if claim.id in OTHER_MARGINS else usual)
