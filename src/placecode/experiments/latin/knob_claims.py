"""Claims on the experiments that sweep a knob, one more setting besides sigma (the initial scale of the PE): what the
paper says, and questions beyond it. The effect of sigma is the OOD accuracy at sigma 0.2 minus that at 2.0.

Margins were set before the runs, by the rules of `latin.claims`: zero for "better at all", 0.05 in accuracy for "about
equal", and half of the published difference between sigma 0.2 and 2.0 for an effect as large as that of sigma. When
they were set, only runs without a knob were known (results/lst-sigma and similar). All differences are paired by seed,
and all intervals are over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.claims import Claim, NotInRun, our_claim, paper_claim, reviewer_claim
from placecode.experiments.latin.effects import LARGE, SMALL, SMALL_SIGMAS, difference
from placecode.experiments.reading import (
    Columns,
    ValuesFunction,
    accuracy,
    analysis_values,
    early_accuracy,
    mean_over_sigmas,
)
from placecode.runs.read import Run

EQUAL_MARGIN = 0.05
"""Margin for two accuracies that are said to be about equal."""
MIN_FITTED_ACCURACY = 0.95
"""A model fits its training puzzles if its training accuracy is above this."""
HALF_PUBLISHED_EFFECT = 0.288
"""Half of the published difference in accuracy between sigma 0.2 and 2.0."""


def ood_accuracy(run: Run, sigmas: Sequence[float] | None = None, **columns: Any) -> pd.Series:
    """Return the final OOD accuracy by seed, averaged over `sigmas` (None: all sigmas of the run), of the members with
    the role "swept" that have these values in the columns of members.parquet."""
    return mean_over_sigmas(run, accuracy(run), sigmas, **columns)


def accuracy_difference(
    a: Columns, b: Columns, sigmas: Sequence[float] | None, run: Run, values: ValuesFunction = accuracy
) -> Interval:
    """Return the final OOD accuracy (or other values) of the members of the sweep with the column values `a`, minus
    that of the members with `b`. Both are averaged over `sigmas` (None: all sigmas of the run)."""
    by_member = values(run)
    return difference(mean_over_sigmas(run, by_member, sigmas, **a), mean_over_sigmas(run, by_member, sigmas, **b))


def sigma_effect(run: Run, columns: Columns, large: float = LARGE) -> pd.Series:
    """Return the effect of sigma, by seed, for the members with these column values: OOD accuracy at sigma 0.2 minus
    that at sigma `large`."""
    return ood_accuracy(run, [SMALL], **columns) - ood_accuracy(run, [large], **columns)


def sigma_effect_difference(a: Columns, b: Columns, large: float, run: Run) -> Interval:
    """Return the effect of sigma (from 0.2 to `large`) for the members with column values `a` minus that for `b`."""
    return difference(sigma_effect(run, a, large), sigma_effect(run, b, large))


def smallest_sigma_effect(column: str, field: str, template: str, run: Run) -> Interval:
    """Return the effect of sigma (OOD accuracy at 0.2 minus that at 2.0) at the value of the knob where the lower limit
    of its interval is lowest.

    Values of the knob at which models do not fit their training puzzles are left out. The value is chosen from the same
    results, so the effect is underestimated if anything.

    Parameters
    ----------
    column : str
        Column of the table of members with the value of the knob, such as "heads".
    field : str
        Setting of the run that lists the values of the knob, such as "head_counts".
    template : str
        How the column writes a value, such as "puzzles={}". If empty, the column has the value itself.
    run : Run
    """
    on_train, intervals = accuracy(run, "train"), []
    for value in run.config["fields"][field]:
        columns = {column: template.format(value) if template else value}
        if mean_over_sigmas(run, on_train, [SMALL], **columns).mean() > MIN_FITTED_ACCURACY:
            intervals.append(stats.interval(sigma_effect(run, columns)))
    if not intervals:
        raise NotInRun(f"the run has no models that fit their training puzzles at sigma {SMALL:g}")
    # an interval without bounds is the least certain
    return min(intervals, key=lambda interval: (math.isfinite(interval.low), interval.low, interval.mean))


def at_every_value(claim: Callable[..., Claim], column: str, field: str, words: str, template: str = "") -> Claim:
    """Return the claim that a small sigma is better at all values of the knob. `claim` is a constructor, such as
    `our_claim`. `words` end the statement of the claim. The other arguments are those of `smallest_sigma_effect`."""
    return claim(
        f"small-sigma-at-every-{column.replace('_', '-')}",
        f"Held-out accuracy is higher at sigma 0.2 than at 2.0, {words} (where training puzzles are fitted at 0.2).",
        partial(smallest_sigma_effect, column, field, template),
    )


# ---------------------------------------------------------------------------------------------- shape of the model

HEADS_CLAIMS: tuple[Claim, ...] = (
    *(
        paper_claim(
            f"{heads}-heads-hurt",
            f"{heads} heads generalize worse than one, mean over the sigmas.",
            partial(accuracy_difference, {"heads": 1}, {"heads": heads}, None),
        )
        for heads in (2, 4)
    ),
    reviewer_claim(
        "4-heads-hurt-at-0.2",
        "4 heads generalize worse than one at sigma 0.2.",
        partial(accuracy_difference, {"heads": 1}, {"heads": 4}, [SMALL]),
    ),
    at_every_value(reviewer_claim, "heads", "head_counts", "with any number of heads"),
)
"""Claims on the experiment lst-heads."""

DEPTH_CLAIMS: tuple[Claim, ...] = (
    reviewer_claim(
        "depth-helps",
        "6 blocks generalize better than 2 at sigma 0.2.",
        partial(accuracy_difference, {"layers": 6}, {"layers": 2}, [SMALL]),
    ),
    reviewer_claim(
        "depth-sharpens-sigma",
        "The effect of sigma is larger with 6 blocks than with 2: the PE is added in each.",
        partial(sigma_effect_difference, {"layers": 6}, {"layers": 2}, LARGE),
    ),
    at_every_value(reviewer_claim, "layers", "depths", "at every depth"),
)
"""Claims on the experiment lst-depth."""

WIDTH_CLAIMS: tuple[Claim, ...] = (
    reviewer_claim(
        "width-leaves-sigma-alone",
        "The accuracy at sigma 0.2 minus that at 1.0 is about the same at widths 64 and 320 (within 0.1).",
        partial(sigma_effect_difference, {"width": 320}, {"width": 64}, 1.0),
        2 * EQUAL_MARGIN,
        "within",
    ),
    reviewer_claim(
        "width-helps",
        "Width 320 generalizes better than 64, mean over the sigmas.",
        partial(accuracy_difference, {"width": 320}, {"width": 64}, None),
    ),
    at_every_value(reviewer_claim, "width", "widths", "at every width"),
)
"""Claims on the experiment lst-width."""

PLACEMENT_CLAIMS: tuple[Claim, ...] = (
    our_claim(
        "input-alone-is-enough",
        "At sigma 0.2 a PE at the input alone is about as good as one in every block (within 0.05).",
        partial(accuracy_difference, {"placement": "input"}, {"placement": "every"}, [SMALL]),
        EQUAL_MARGIN,
        "within",
    ),
    our_claim(
        "every-block-makes-sigma-matter",
        "The effect of sigma is larger with the PE in every block than at the input alone.",
        partial(sigma_effect_difference, {"placement": "every"}, {"placement": "input"}, LARGE),
    ),
    at_every_value(our_claim, "placement", "placements", "wherever the PE is added"),
)
"""Claims on the experiment lst-placement."""


def columns_of_gain(gain: float, divided: bool, run: Run) -> dict[str, Any]:
    """Return the column values that select the members with this gain (factor of the model's outputs). Their learning
    rate is that of the run or, if `divided`, that of the run divided by the gain."""
    rate = run.config["fields"]["learning_rate"]
    return {"output_gain": gain, "learning_rate": rate / gain if divided else rate}


def gain_difference(
    a: float, b: float, divided: bool, sigmas: Sequence[float] | None, run: Run, values: ValuesFunction = accuracy
) -> Interval:
    """Return the OOD accuracy (or other values) with gain `a` minus that with gain `b`, averaged over `sigmas` (None:
    all sigmas of the run). `divided` is as in `columns_of_gain`."""
    columns_a, columns_b = columns_of_gain(a, divided, run), columns_of_gain(b, divided, run)
    return accuracy_difference(columns_a, columns_b, sigmas, run, values)


def weights_moved(run: Run) -> pd.Series:
    """Return how far the weights of each member moved in training, without the PE. The distance is the norm of their
    change divided by their initial norm."""
    return analysis_values(run, "weights_moved", "start")


GAIN_CLAIMS: tuple[Claim, ...] = (
    reviewer_claim(
        "gain-makes-weights-move",
        "With the learning rate divided by the gain, weights move further at a gain of 0.1 than at 10, as intended.",
        partial(gain_difference, 0.1, 10.0, True, None, values=weights_moved),
    ),
    reviewer_claim(
        "small-gain-generalizes",
        "There a gain of 0.1 generalizes better than one of 10, mean over the sigmas.",
        partial(gain_difference, 0.1, 10.0, True, None),
    ),
    reviewer_claim(
        "small-gain-rescues-large-sigma",
        "There, at sigma 2.0, a gain of 0.1 acts like a small sigma: accuracy is higher than at a gain of 1 by half of "
        "the published difference.",
        partial(gain_difference, 0.1, 1.0, True, [LARGE]),
        HALF_PUBLISHED_EFFECT,
    ),
    reviewer_claim(
        "large-gain-spoils-small-sigma",
        "There, at sigma 0.2, a gain of 10 acts like a large sigma: accuracy is lower than at a gain of 1 by half of "
        "the published difference.",
        partial(gain_difference, 1.0, 10.0, True, [SMALL]),
        HALF_PUBLISHED_EFFECT,
    ),
    reviewer_claim(
        "small-gain-generalizes-at-one-step-size",
        "With one learning rate for all, a gain of 0.1 generalizes better than one of 10, mean over the sigmas.",
        partial(gain_difference, 0.1, 10.0, False, None),
    ),
)
"""Claims on the experiment lst-gain."""

# ------------------------------------------------------------------------------------------------- training puzzles

DATA_CLAIMS: tuple[Claim, ...] = (
    our_claim(
        "more-puzzles-help",
        "8,100 training puzzles generalize better than 1,000 at sigma 0.2.",
        partial(accuracy_difference, {"data": "puzzles=8100"}, {"data": "puzzles=1000"}, [SMALL]),
    ),
    our_claim(
        "more-puzzles-do-not-replace-sigma",
        "2,000 puzzles at sigma 0.2 generalize better than 8,100 at sigma 2.0.",
        lambda run: difference(
            ood_accuracy(run, [SMALL], data="puzzles=2000"), ood_accuracy(run, [LARGE], data="puzzles=8100")
        ),
    ),
    at_every_value(our_claim, "data", "samples", "with any number of training puzzles", "puzzles={}"),
)
"""Claims on the experiment lst-data."""

# ------------------------------------------------------------------------------------------------------------- size

RANDOM_START, RESIZED, SHUFFLED = (
    {"data": "order=5", "start": start} for start in ("normal", "resized", "resized-shuffled")
)
"""Column values of the members on 5 x 5 grids whose PE starts at random, or starts as a PE that was learned on 4 x 4
grids and resized, as it is or with its cells shuffled."""


SIZE_CLAIMS: tuple[Claim, ...] = (
    our_claim(
        "small-sigma-on-larger-grids",
        "On 5 x 5 grids held-out accuracy is higher at sigma 0.2 than at 2.0, by half of the published difference.",
        lambda run: stats.interval(sigma_effect(run, RANDOM_START)),
        HALF_PUBLISHED_EFFECT,
    ),
    reviewer_claim(
        "resized-start-helps",
        "On 5 x 5 grids a PE learned on 4 x 4 (by SGD, in another model) and resized is a better start than a random "
        "one of the same size, mean over sigma 0.1 to 0.5.",
        partial(accuracy_difference, RESIZED, RANDOM_START, SMALL_SIGMAS),
    ),
    reviewer_claim(
        "resized-start-speeds-up",
        "It is also better after a quarter of the training.",
        partial(accuracy_difference, RESIZED, RANDOM_START, SMALL_SIGMAS, values=early_accuracy),
    ),
    reviewer_claim(
        "arrangement-of-resized-start-helps",
        "It is a better start than the same PE with its cells in random order before it was resized.",
        partial(accuracy_difference, RESIZED, SHUFFLED, SMALL_SIGMAS),
    ),
)
"""Claims on the experiment lst-size."""
