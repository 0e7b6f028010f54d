"""Claims on lst-sigma, on made-up runs with planted effects and with their opposites.

Every effect is also computed from the tables that the run was made of.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.made_up import findings, made_up, over_sigmas, student, within_sigma

from placecode.experiments.claims import FAILS, HOLDS, UNDECIDED
from placecode.experiments.latin.claims import SIGMA_CLAIMS, TRAINING_SPEED_CLAIMS
from placecode.experiments.latin.effects import AUTHORS_MEANS
from placecode.experiments.latin.squares import LstSigma
from placecode.models.member import Member

SIGMAS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 1.8, 2.0)
SMALL, MIDDLE, LARGE = SIGMAS.index(0.2), SIGMAS.index(1.0), SIGMAS.index(2.0)
SEEDS, LEVELS = 12, (0.1, 0.5, 1.0)
MEASURES = {"procrustes-raw": "procrustes_raw", "procrustes": "procrustes", "attention": "attention_cosine"}
SIGNS = {"procrustes-raw": -1, "procrustes": -1, "attention": 1}
"""Sign of the correlation of each measure with accuracy."""
Table = np.ndarray
"""Values by sigma and seed."""


@dataclasses.dataclass
class World:
    """The tables (sigmas, seeds) that a made-up run of lst-sigma is made of."""

    accuracy: Table
    train: Table
    early: Table
    noisy: dict[str, Table]
    start: dict[str, Table]
    end: dict[str, Table]
    epochs: int = 400
    diverged: tuple[tuple[float, int], ...] = ()
    """Members (sigma, seed) that diverged."""

    def run(self, **fields: Any) -> Any:
        """Return the run, of an experiment with these fields."""
        defaults = {"sigmas": SIGMAS, "seeds": tuple(range(SEEDS)), "noise": LEVELS, "epochs": self.epochs}

        def of(table: Table) -> Callable[[Member], float]:
            return lambda m: table[SIGMAS.index(m.sigma), m.seed] if m.encoding == "learned" else 0.777

        keys = {name: ("rsa", "relation") if name == "rsa" else (MEASURES[name], "2d-fixed") for name in self.end}
        analyses = {key: (of(self.start[name]), of(self.end[name])) for name, key in keys.items()}
        for split, table in self.noisy.items():
            analyses["noise_accuracy", f"{split} 0"] = (None, lambda m: -99.0)  # without noise: not to be counted
            for i, level in enumerate(LEVELS):
                analyses["noise_accuracy", f"{split} {level:g}"] = (lambda m: -99.0, of(table + 0.1 * (i - 1)))
        return made_up(
            LstSigma.from_scale("paper", **{**defaults, **fields}),
            of(self.accuracy),
            train=of(self.train),
            early=of(self.early) if self.epochs > 200 else None,
            analyses=analyses,
            diverged=lambda m: (m.sigma, m.seed) in self.diverged,
        )


def column(values: Any) -> Table:
    return np.asarray(values, dtype=float)[:, None]


def normal(rng: np.random.Generator, scale: float = 1.0) -> Table:
    return rng.normal(size=(len(SIGMAS), SEEDS)) * scale


def planted(sign: int = 1) -> World:
    """Return tables for which all claims of lst-sigma hold; or, with sign -1, for which all fail."""
    rng = np.random.default_rng(0)
    residual, by_seed = normal(rng, 0.01), rng.normal(size=SEEDS) * 0.003
    falls = np.array([0.97, 0.965, 0.9, 0.8, 0.7, 0.6, 0.595, 0.5, 0.4, 0.3])
    accuracy = column(falls if sign > 0 else falls[::-1]) + residual + by_seed
    rises = column(20.0 * np.arange(len(SIGMAS)))
    uneven = column(50.0 * np.array([1, 0, 0, 1, 1, 0, 0, 1, 1, 0]))
    half_way = column(50.0 * np.array([2, 0, 5, 1, 7, 3, 9, 4, 6, 8]))  # correlates with sigma, but not perfectly
    start, end = {}, {}
    for name, towards in SIGNS.items():
        follows = sign * towards * residual / 0.01 + 0.5 * normal(rng)  # within a sigma
        chance = normal(rng)
        start[name] = (uneven if sign > 0 else rises) + chance
        end[name] = -towards * (rises if sign > 0 else half_way) + follows + 0.3 * chance
    start["rsa"] = normal(rng, 0.05)
    end["rsa"] = start["rsa"] + sign * column(0.3 / (1 + np.arange(len(SIGMAS)))) + normal(rng, 0.02)
    train = 0.999 + normal(rng, 0.0005)
    if sign < 0:
        train[3] -= 0.1
    gap = column(np.where(np.arange(len(SIGMAS)) == LARGE, -0.1 * sign, 0.0))
    noisy = {split: 0.5 + gap + normal(rng, 0.02) + 2 * by_seed for split in ("train", "ood")}
    return World(accuracy, train, accuracy + normal(rng, 0.005) + (0.0 if sign > 0 else 0.2), noisy, start, end)


def difference(table: Table) -> Table:
    return np.asarray(table[SMALL] - table[LARGE])


def gain(name: str) -> Callable[[World], float]:
    return lambda w: abs(over_sigmas(w.end[name], w.accuracy)) - abs(over_sigmas(w.start[name], w.accuracy))


def predicts(name: str) -> dict[str, Callable[[World], float]]:
    return {
        f"{name}-over-sigmas": lambda w: over_sigmas(w.end[name], w.accuracy),
        f"{name}-at-fixed-sigma": lambda w: within_sigma(w.end[name], w.accuracy),
        f"{name}-beyond-start": lambda w: within_sigma(w.end[name], w.accuracy, w.start[name]),
    }


STUDENT: dict[str, Callable[[World], Table]] = {
    "small-sigma-generalizes": lambda w: difference(w.accuracy),
    "accuracy-at-0.2": lambda w: w.accuracy[SMALL],
    "accuracy-at-2.0": lambda w: w.accuracy[LARGE],
    "withstands-noise": lambda w: difference(w.noisy["train"]),
    "withstands-noise-held-out": lambda w: difference(w.noisy["ood"]),
    "pe-learns-rows-and-columns": lambda w: (w.end["rsa"] - w.start["rsa"])[SMALL],
    "small-sigma-learns-more-of-it": lambda w: difference(w.end["rsa"] - w.start["rsa"]),
    "epoch-200-at-0.2": lambda w: w.accuracy[SMALL] - w.early[SMALL],
    "epoch-200-at-1": lambda w: w.accuracy[MIDDLE] - w.early[MIDDLE],
    "epoch-200-at-2": lambda w: w.accuracy[LARGE] - w.early[LARGE],
}
"""Claims on a mean over seeds: the values of the seeds."""
RESAMPLED: dict[str, Callable[[World], float]] = {
    "all-fit-training": lambda w: w.train.mean(axis=1).min(),
    **predicts("procrustes-raw"),
    "procrustes-raw-learned": gain("procrustes-raw"),
    "procrustes-raw-known-before": gain("procrustes-raw"),
    **predicts("procrustes"),
    **predicts("attention"),
    "attention-learned": gain("attention"),
    "attention-known-before": gain("attention"),
}
"""The other claims that a `World` decides: the effect."""
CURVE = tuple(claim for claim in SIGMA_CLAIMS if claim.id.startswith("sigma-curve"))
OF_WORLDS = tuple(claim for claim in SIGMA_CLAIMS if claim.id in {*STUDENT, *RESAMPLED})
MARGINS: dict[str, tuple[str, float]] = {
    "small-sigma-generalizes": ("above", 0.288),
    "accuracy-at-0.2": ("above", 0.93),
    "accuracy-at-2.0": ("below", 0.5),
    "sigma-curve": ("below", 0.025),
    "sigma-curve-largest-gap": ("below", 3.0),
    "all-fit-training": ("above", 0.99),
    "large-sigma-trains-faster": ("below", 0.0),
    "tiny-sigma-stalls": ("below", -0.01),
    **{id: ("below" if id.startswith("procrustes") else "above", 0.0) for name in SIGNS for id in predicts(name)},
    **{f"{name}-learned": ("above", 0.0) for name in ("procrustes-raw", "attention")},
    **{f"{name}-known-before": ("within", 0.05) for name in ("procrustes-raw", "attention")},
    **{f"withstands-noise{where}": ("above", 0.0) for where in ("", "-held-out")},
    **dict.fromkeys(("pe-learns-rows-and-columns", "small-sigma-learns-more-of-it"), ("above", 0.0)),
    **{f"epoch-200-at-{sigma:g}": ("within", 0.02) for sigma in (0.2, 1.0, 2.0)},
}


def if_all_planted(id: str) -> str:
    """Return the verdict on a run with all effects: what training brought was not there before it."""
    return FAILS if id.endswith("-known-before") else HOLDS


def test_margins_are_those_declared_before_the_runs() -> None:
    assert {claim.id: (claim.way, claim.margin) for claim in SIGMA_CLAIMS} == MARGINS


@pytest.mark.parametrize("sign", [1, -1], ids=["planted", "opposite"])
def test_verdicts_and_effects_are_those_planted(sign: int) -> None:
    world = planted(sign)
    by_id = findings(world.run(), OF_WORLDS)
    others = {claim.id for claim in (*CURVE, *TRAINING_SPEED_CLAIMS)}
    assert set(by_id) == {*STUDENT, *RESAMPLED} == set(MARGINS) - others
    for id, finding in by_id.items():
        assert finding.direction == (if_all_planted(id) if sign > 0 else FAILS), id
    for id, values in STUDENT.items():
        assert by_id[id].effect == pytest.approx(student(values(world)), abs=1e-12), id
    for id, value in RESAMPLED.items():
        effect, low, high = by_id[id].effect
        assert effect == pytest.approx(value(world), abs=1e-9), id
        assert low <= effect + 1e-9 and effect <= high + 1e-9


def test_a_measure_that_only_follows_sigma_predicts_over_the_sigmas_alone() -> None:
    """It grows with sigma before training as after it, and does not predict accuracy at a fixed sigma."""
    world = planted()
    rng = np.random.default_rng(1)
    for name, towards in SIGNS.items():
        world.start[name] = -towards * column(20.0 * np.arange(len(SIGMAS))) + normal(rng)
        world.end[name] = world.start[name] + 0.01 * normal(rng)
    by_id = findings(world.run(), OF_WORLDS)
    for name in MEASURES:
        assert by_id[f"{name}-over-sigmas"].direction == HOLDS
        assert HOLDS not in {by_id[f"{name}-at-fixed-sigma"].direction, by_id[f"{name}-beyond-start"].direction}
    for name in ("procrustes-raw", "attention"):
        assert by_id[f"{name}-learned"].direction != HOLDS and by_id[f"{name}-known-before"].direction == HOLDS


@pytest.mark.parametrize("fields", [{"learn": False}, {"encoding": "random"}, {"dropout": 0.1}])
def test_runs_without_learned_encodings_decide_nothing(fields: dict[str, Any]) -> None:
    run = planted().run()
    run.config["fields"] |= fields
    for finding in findings(run, SIGMA_CLAIMS).values():
        assert finding.direction == UNDECIDED and "not learned" in finding.note


def test_the_order_of_rows_and_members_changes_nothing() -> None:
    run, rng = planted().run(), np.random.default_rng(0)
    by_id = findings(run, OF_WORLDS)
    number = dict(zip(run.members["member"], rng.permutation(len(run.members)), strict=True))
    for name in ("members", "metrics", "analysis"):
        table: pd.DataFrame = getattr(run, name)
        table = table.assign(member=table["member"].map(number))
        setattr(run, name, table.iloc[rng.permutation(len(table))].set_axis(rng.permutation(len(table))))
    for id, finding in findings(run, OF_WORLDS).items():
        assert finding.direction == by_id[id].direction
        assert finding.effect == pytest.approx(by_id[id].effect, abs=1e-9), id


def test_members_that_diverged_are_left_out() -> None:
    """Effects are those of the others, and differences those of the seeds of which both members finished."""
    world = planted()
    world.diverged = ((0.2, 3), (2.0, 5), (1.0, 0), (0.1, 7))
    for table in (world.accuracy, world.train, world.early, *world.noisy.values(), *world.start.values()):
        for sigma, seed in world.diverged:
            table[SIGMAS.index(sigma), seed] = 1e6
    by_id = findings(world.run(), OF_WORLDS)
    both = [seed for seed in range(SEEDS) if seed not in (3, 5)]
    for id, values in {
        "small-sigma-generalizes": difference(world.accuracy)[both],
        "accuracy-at-0.2": np.delete(world.accuracy[SMALL], 3),
        "withstands-noise": difference(world.noisy["train"])[both],
    }.items():
        assert by_id[id].effect == pytest.approx(student(values), abs=1e-9)
    finished = np.ma.masked_greater(world.train, 1e5)
    assert by_id["all-fit-training"].effect.mean == pytest.approx(finished.mean(axis=1).min(), abs=1e-9)
    assert all(finding.direction == if_all_planted(id) for id, finding in by_id.items())


AT_SMALL = ["small-sigma-generalizes", "accuracy-at-0.2", "withstands-noise", "epoch-200-at-0.2", "all-fit-training"]
AT_LARGE = ["small-sigma-generalizes", "accuracy-at-2.0", "withstands-noise-held-out", "epoch-200-at-2"]
BY_MEASURE = ["procrustes-raw-over-sigmas", "procrustes-raw-at-fixed-sigma", "procrustes-raw-learned"]
EARLY = ["epoch-200-at-0.2", "epoch-200-at-1", "epoch-200-at-2"]
NEVER_TOGETHER = tuple((0.2 if seed % 2 else 2.0, seed) for seed in range(SEEDS))
"""Every seed diverged at one of the two sigmas that are compared."""


@pytest.mark.parametrize(
    ("changes", "fields", "undecided", "note"),
    [
        ({"diverged": tuple((0.2, seed) for seed in range(SEEDS))}, {}, AT_SMALL, "no finished members with sigma 0.2"),
        ({"diverged": NEVER_TOGETHER}, {}, AT_SMALL[:1], "no seed that finished at both settings"),
        ({}, {"sigmas": SIGMAS[:-1]}, AT_LARGE, "the run has no finished members with sigma 2"),
        ({}, {"sigmas": (0.2, 2.0)}, BY_MEASURE, "the run has 2 sigmas; a correlation over them takes 3"),
        ({}, {"noise": ()}, ["withstands-noise"], "the run was not tested under noise"),
        ({"noisy": {}}, {}, ["withstands-noise"], "the run has no noise_accuracy (train 0.1)"),
        ({"end": {}}, {}, BY_MEASURE, "the run has no procrustes_raw (2d-fixed)"),
        ({"epochs": 200}, {}, EARLY, "the run ends at epoch 200"),
    ],
)
def test_claims_on_what_a_run_lacks_are_undecided_and_others_are_not(
    changes: dict[str, Any], fields: dict[str, Any], undecided: list[str], note: str
) -> None:
    by_id = findings(dataclasses.replace(planted(), **changes).run(**fields), OF_WORLDS)
    for id in undecided:
        assert by_id[id].direction == UNDECIDED and note in by_id[id].note
        assert all(map(math.isnan, by_id[id].effect))
    for id, finding in by_id.items():
        assert finding.direction == (UNDECIDED if finding.note else if_all_planted(id)), finding


def test_a_single_seed_decides_nothing() -> None:
    for finding in findings(planted().run(seeds=(4,)), OF_WORLDS).values():
        assert finding.direction == UNDECIDED and finding.note


def curve_run(shift: float = 0.0, **fields: Any) -> tuple[Table, Any]:
    """Return a run at the authors' sigmas whose means differ from theirs by chance and by a shift, and its table."""
    sigmas, seeds = list(AUTHORS_MEANS), 15
    noise = np.random.default_rng(13).normal(size=(len(sigmas), seeds))
    table = column(list(AUTHORS_MEANS.values())) + shift + 0.03 * noise
    experiment = LstSigma.from_scale("paper", **{"sigmas": sigmas, "seeds": tuple(range(seeds)), "epochs": 2, **fields})
    values = lambda m: table[sigmas.index(m.sigma), m.seed] if m.encoding == "learned" else 0.7  # noqa: E731
    return table, made_up(experiment, values)


@pytest.mark.parametrize(("shift", "direction", "number"), [(0.0, HOLDS, "match"), (0.06, FAILS, "no match")])
def test_the_distance_from_the_authors_curve_is_computed(shift: float, direction: str, number: str) -> None:
    table, run = curve_run(shift)
    mean, largest = findings(run, CURVE).values()
    apart = np.abs(table.mean(axis=1) - list(AUTHORS_MEANS.values()))
    error = math.sqrt(2) * table.std(axis=1, ddof=1) / math.sqrt(15)
    assert mean.effect.mean == pytest.approx(apart.mean())
    assert largest.effect.mean == pytest.approx((apart / error).max())
    for finding in (mean, largest):
        assert 0 <= finding.effect.low < finding.effect.high and finding.direction == direction
    assert (mean.number, largest.number) == (number, "")


@pytest.mark.parametrize("fields", [{"sigmas": tuple(AUTHORS_MEANS)[1:]}, {"seeds": (0,)}, {"seeds": (0, 1, 2)}])
def test_a_curve_with_fewer_sigmas_or_few_seeds_is_undecided(fields: dict[str, Any]) -> None:
    for finding in findings(curve_run(**fields)[1], CURVE).values():
        assert finding.direction == UNDECIDED and finding.note


RESIDUALS = 0.002 * np.random.default_rng(19).uniform(size=SEEDS)


def training_speed(early: dict[float, float], train: dict[float, float]) -> Any:
    """Return a run with these training accuracies by sigma at epochs 200 and 400, minus a residual by seed.

    At epoch 0 the accuracy is 0.123.
    """
    experiment = LstSigma.from_scale("paper", sigmas=tuple(train), seeds=tuple(range(SEEDS)), epochs=400)

    def of(levels: dict[float, float]) -> Callable[[Member], float]:
        return lambda m: levels[m.sigma] - RESIDUALS[m.seed] if m.encoding == "learned" else 0.7

    return made_up(experiment, lambda m: 0.5, train=of(train), early=of(early))


def test_the_first_epoch_at_99_percent_is_interpolated_and_at_most_the_last() -> None:
    fast = 200 * (0.99 - 0.123) / (1.0 - RESIDUALS - 0.123)
    slow = 200 + 200 * (0.99 - 0.5 + RESIDUALS) / 0.5
    cases = [
        ({0.2: 1.0, 2.0: 0.5}, {0.2: 1.0, 2.0: 1.0}, slow - fast, FAILS),
        ({0.2: 0.5, 2.0: 1.0}, {0.2: 1.0, 2.0: 1.0}, fast - slow, HOLDS),
        ({0.2: 1.0, 2.0: 0.5}, {0.2: 1.0, 2.0: 0.9}, 400 - fast, FAILS),  # never reached
    ]
    for early, train, by_hand, direction in cases:
        faster = TRAINING_SPEED_CLAIMS[0].check(training_speed(early, train))
        assert faster.effect == pytest.approx(student(by_hand)) and faster.direction == direction


@pytest.mark.parametrize(("level", "direction"), [(0.9, HOLDS), (1.0, FAILS), (0.995, FAILS)])
def test_a_stall_lacks_training_accuracy_at_the_smallest_sigma(level: float, direction: str) -> None:
    levels = {0.01: level, 0.05: 0.5, 0.2: 1.0, 2.0: 1.0}
    stalls = TRAINING_SPEED_CLAIMS[1].check(training_speed(levels, levels))
    assert stalls.direction == direction and stalls.effect.mean == pytest.approx(level - 1.0)


def test_speed_is_undecided_without_the_sigmas_it_compares() -> None:
    run = training_speed({0.1: 1.0, 0.2: 1.0}, {0.1: 1.0, 0.2: 1.0})
    faster, stalls = findings(run, TRAINING_SPEED_CLAIMS).values()
    assert (faster.direction, faster.note) == (UNDECIDED, "the run has no finished members with sigma 2")
    assert (stalls.direction, stalls.note) == (UNDECIDED, "the run has no finished members with a sigma up to 0.05")
