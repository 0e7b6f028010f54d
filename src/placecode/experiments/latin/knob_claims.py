"""Claims on the experiments that sweep a knob, one more setting besides sigma: remarks of the paper, and questions
beyond it.

Margins were set before the runs, by the rules of `latin.claims`: zero for "better at all", five points of accuracy for
"about equal", and half of the published difference between sigma 0.2 and 2.0 for an effect as large as that of sigma.
When they were set, only runs at the usual setting were known (results/lst-sigma and similar). All intervals are over
seeds, and all differences are paired by seed. The effect of sigma is the accuracy at sigma 0.2 minus that at 2.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.claims import Claim, NotInRun, our_claim, paper_claim, reviewer_claim
from placecode.experiments.latin.effects import LARGE, SMALL, difference
from placecode.experiments.reading import accuracy, analysis_values, early_accuracy, mean_over_sigmas
from placecode.runs.read import Run

EQUAL = 0.05
"""Margin for accuracies that are said to be about equal."""
FITTED = 0.95
"""Training accuracy above which a model has learned its training puzzles."""
HALF = 0.288
"""Half of the published difference in accuracy between sigma 0.2 and 2.0."""

Columns = Mapping[str, Any]
"""Values that select members, by column of the table of members."""


def of(run: Run, sigmas: Sequence[float] | None = None, **columns: Any) -> pd.Series:
    """Return the OOD accuracy by seed of the members of the sweep with these columns, as the mean over sigmas."""
    return mean_over_sigmas(run, accuracy(run), sigmas, **columns)


def between(a: Columns, b: Columns, sigmas: Sequence[float] | None, run: Run) -> Interval:
    """Return the OOD accuracy at setting `a` minus that at setting `b`, as the mean over `sigmas` (None: all sigmas of
    the run)."""
    return difference(of(run, sigmas, **a), of(run, sigmas, **b))


def worth(run: Run, columns: Columns, large: float = LARGE) -> pd.Series:
    """Return the effect of sigma at a setting, by seed: accuracy at sigma 0.2 minus that at `large`."""
    return of(run, [SMALL], **columns) - of(run, [large], **columns)


def worth_between(a: Columns, b: Columns, large: float, run: Run) -> Interval:
    """Return the effect of sigma (`worth`) at setting `a` minus that at setting `b`."""
    return difference(worth(run, a, large), worth(run, b, large))


def least_worth(column: str, field: str, template: str, run: Run) -> Interval:
    """Return the effect of sigma at the value of a setting where the effect is least certain (lowest confidence limit).

    The values are those of the run's setting `field`. Values at which models do not fit their training puzzles are left
    out. `template`, if not empty, turns a value into that of the members' `column`. The value is chosen from the same
    results, so the effect is too small rather than too large.
    """
    on_train, intervals = accuracy(run, "train"), []
    for value in run.config["fields"][field]:
        columns = {column: template.format(value) if template else value}
        if mean_over_sigmas(run, on_train, [SMALL], **columns).mean() > FITTED:
            intervals.append(stats.interval(worth(run, columns).dropna().to_numpy()))
    if not intervals:
        raise NotInRun(f"the run has no models that fit their training puzzles at sigma {SMALL:g}")
    # an interval without bounds is the least certain
    return min(intervals, key=lambda interval: (math.isfinite(interval.low), interval.low, interval.mean))


def everywhere(claim: Callable[..., Claim], column: str, field: str, words: str, template: str = "") -> Claim:
    """Return the claim that a small sigma is better at all values of a setting. `column`, `field` and `template` are
    those of `least_worth`, and `words` complete the statement."""
    return claim(
        f"small-sigma-at-every-{column.replace('_', '-')}",
        f"Held-out accuracy is higher at sigma 0.2 than at 2.0, {words} (where training puzzles are fitted at 0.2).",
        partial(least_worth, column, field, template),
    )


# ---------------------------------------------------------------------------------------------- shape of the model

HEADS: tuple[Claim, ...] = (
    *(
        paper_claim(
            f"{heads}-heads-hurt",
            f"{heads} heads generalize worse than one, mean over the sigmas.",
            partial(between, {"heads": 1}, {"heads": heads}, None),
        )
        for heads in (2, 4)
    ),
    reviewer_claim(
        "4-heads-hurt-at-0.2",
        "4 heads generalize worse than one at sigma 0.2.",
        partial(between, {"heads": 1}, {"heads": 4}, [SMALL]),
    ),
    everywhere(reviewer_claim, "heads", "many", "with any number of heads"),
)
"""Claims on lst-heads."""

DEPTH: tuple[Claim, ...] = (
    reviewer_claim(
        "depth-helps",
        "6 blocks generalize better than 2 at sigma 0.2.",
        partial(between, {"layers": 6}, {"layers": 2}, [SMALL]),
    ),
    reviewer_claim(
        "depth-sharpens-sigma",
        "The effect of sigma is larger with 6 blocks than with 2: the PE is added in each.",
        partial(worth_between, {"layers": 6}, {"layers": 2}, LARGE),
    ),
    everywhere(reviewer_claim, "layers", "depths", "at every depth"),
)
"""Claims on lst-depth."""

WIDTH: tuple[Claim, ...] = (
    reviewer_claim(
        "width-leaves-sigma-alone",
        "The accuracy at sigma 0.2 minus that at 1.0 is about the same at widths 64 and 320 (within 0.1).",
        partial(worth_between, {"width": 320}, {"width": 64}, 1.0),
        2 * EQUAL,
        "within",
    ),
    reviewer_claim(
        "width-helps",
        "Width 320 generalizes better than 64, mean over the sigmas.",
        partial(between, {"width": 320}, {"width": 64}, None),
    ),
    everywhere(reviewer_claim, "width", "widths", "at every width"),
)
"""Claims on lst-width."""

PLACEMENT: tuple[Claim, ...] = (
    our_claim(
        "input-alone-is-enough",
        "At sigma 0.2 a PE at the input alone is about as good as one in every block (within 0.05).",
        partial(between, {"placement": "input"}, {"placement": "every"}, [SMALL]),
        EQUAL,
        "within",
    ),
    our_claim(
        "every-block-makes-sigma-matter",
        "The effect of sigma is larger with the PE in every block than at the input alone.",
        partial(worth_between, {"placement": "every"}, {"placement": "input"}, LARGE),
    ),
    everywhere(our_claim, "placement", "placements", "wherever the PE is added"),
)
"""Claims on lst-placement."""


def columns_of_gain(gain: float, divided: bool, run: Run) -> dict[str, Any]:
    """Return the columns of the members with a gain, with the usual learning rate or (`divided`) with that rate divided
    by the gain."""
    rate = run.config["fields"]["learning_rate"]
    return {"output_gain": gain, "learning_rate": rate / gain if divided else rate}


def between_gains(a: float, b: float, divided: bool, sigmas: Sequence[float] | None, run: Run) -> Interval:
    """Return the OOD accuracy with gain `a` minus that with gain `b`, as the mean over `sigmas` (None: all of the
    run)."""
    return between(columns_of_gain(a, divided, run), columns_of_gain(b, divided, run), sigmas, run)


def movement_between(a: float, b: float, divided: bool, run: Run) -> Interval:
    """Return the distance that weights move with gain `a` minus that with gain `b`, as the mean over the sigmas."""
    moved = analysis_values(run, "weights_moved", "start")
    return difference(*(mean_over_sigmas(run, moved, **columns_of_gain(gain, divided, run)) for gain in (a, b)))


GAIN: tuple[Claim, ...] = (
    reviewer_claim(
        "gain-makes-weights-move",
        "With the learning rate divided by the gain, weights move further at a gain of 0.1 than at 10, as intended.",
        partial(movement_between, 0.1, 10.0, True),
    ),
    reviewer_claim(
        "small-gain-generalizes",
        "There a gain of 0.1 generalizes better than one of 10, mean over the sigmas.",
        partial(between_gains, 0.1, 10.0, True, None),
    ),
    reviewer_claim(
        "small-gain-rescues-large-sigma",
        "There, at sigma 2.0, a gain of 0.1 acts like a small sigma: accuracy is higher than at a gain of 1 by half of "
        "the published difference.",
        partial(between_gains, 0.1, 1.0, True, [LARGE]),
        HALF,
    ),
    reviewer_claim(
        "large-gain-spoils-small-sigma",
        "There, at sigma 0.2, a gain of 10 acts like a large sigma: accuracy is lower than at a gain of 1 by half of "
        "the published difference.",
        partial(between_gains, 1.0, 10.0, True, [SMALL]),
        HALF,
    ),
    reviewer_claim(
        "small-gain-generalizes-at-one-step-size",
        "With one learning rate for all, a gain of 0.1 generalizes better than one of 10, mean over the sigmas.",
        partial(between_gains, 0.1, 10.0, False, None),
    ),
)
"""Claims on lst-gain."""

# ------------------------------------------------------------------------------------------------- training puzzles

DATA: tuple[Claim, ...] = (
    our_claim(
        "more-puzzles-help",
        "8,100 training puzzles generalize better than 1,000 at sigma 0.2.",
        partial(between, {"data": "puzzles=8100"}, {"data": "puzzles=1000"}, [SMALL]),
    ),
    our_claim(
        "more-puzzles-do-not-replace-sigma",
        "2,000 puzzles at sigma 0.2 generalize better than 8,100 at sigma 2.0.",
        lambda run: difference(of(run, [SMALL], data="puzzles=2000"), of(run, [LARGE], data="puzzles=8100")),
    ),
    everywhere(our_claim, "data", "samples", "with any number of training puzzles", "puzzles={}"),
)
"""Claims on lst-data."""

# ------------------------------------------------------------------------------------------------------------- size

SMALLS = (0.1, 0.2, 0.5)
"""The sigmas at which models generalize."""
FRESH, RESIZED, SHUFFLED = ({"data": "order=5", "start": start} for start in ("normal", "resized", "resized-shuffled"))
"""Columns of the members on 5 x 5 grids: with a random start, and with a PE learned on smaller grids, as it is or
shuffled."""


def early(a: Columns, b: Columns, sigmas: Sequence[float], run: Run) -> Interval:
    """Return the same difference as `between`, with the accuracies after a quarter of the training."""
    values = early_accuracy(run)
    return difference(mean_over_sigmas(run, values, sigmas, **a), mean_over_sigmas(run, values, sigmas, **b))


SIZE: tuple[Claim, ...] = (
    our_claim(
        "small-sigma-on-larger-grids",
        "On 5 x 5 grids held-out accuracy is higher at sigma 0.2 than at 2.0, by half of the published difference.",
        lambda run: stats.interval(worth(run, FRESH).dropna().to_numpy()),
        HALF,
    ),
    reviewer_claim(
        "resized-start-helps",
        "On 5 x 5 grids a PE learned on 4 x 4 (by SGD, in another model) and resized is a better start than a random "
        "one of the same size, mean over sigma 0.1 to 0.5.",
        partial(between, RESIZED, FRESH, SMALLS),
    ),
    reviewer_claim(
        "resized-start-speeds-up",
        "It is also better after a quarter of the training.",
        partial(early, RESIZED, FRESH, SMALLS),
    ),
    reviewer_claim(
        "arrangement-of-resized-start-helps",
        "It is a better start than the same PE with its cells in random order before it was resized.",
        partial(between, RESIZED, SHUFFLED, SMALLS),
    ),
)
"""Claims on lst-size."""
