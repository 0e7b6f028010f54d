"""What the paper says about Latin squares, and what we doubt about it, as claims on lst-sigma.

Margins of direction follow one rule each: half of the published difference where one is published; for two that are
said to be about equal, five points of accuracy (two where the authors' logs say so); and none, that is zero, for
"better at all" and for "predicts at all". The accuracies 0.93 and 0.5 of single settings were expected beforehand.

Margins were declared again before the new runs with the authors' loss. Correlations over the sigmas, two of them
published as nearly perfect, had a margin of 0.9 until then. It is now zero, the sign, since the published number has a
verdict of its own. All earlier runs of lst-sigma were known by then. Claims with the remark LATER got their margins
after the first run of lst-sigma, whose verdict on them is no test.

The tolerance of a published number is what its rounding allows: half a unit of its last digit, or twice that for the
difference of two. Members of a seed share their initial weights and data, so every interval is over seeds. Claims on
lst-sigma are about PEs that are learned, without dropout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.claims import OURS, PAPER, Claim, NotInRun
from placecode.experiments.reading import accuracy, at_sigma, by_sigma, first_epoch, measured, paired, swept
from placecode.runs.read import Run

LATER = "margin set after the first run"
LOGS = "from the authors' logs"
SMALL, LARGE = 0.2, 2.0
"""The paper's best and its largest sigma: fixed here, not chosen by what a run shows."""
EARLY = 200
"""The epoch by which, the authors' logs say, accuracy is what it is at the end; always evaluated."""
ATTENTION = "2d-fixed"
"""The reference of attention agreement: the 2d-fixed members of the run without dropout."""
AUTHORS_SEEDS = 15
AUTHORS_MEANS: dict[float, float] = {
    0.1: 0.925,
    0.2: 0.956,
    0.3: 0.946,
    0.4: 0.929,
    0.5: 0.946,
    0.6: 0.929,
    0.7: 0.926,
    0.8: 0.916,
    0.9: 0.896,
    1.0: 0.894,
    1.1: 0.835,
    1.2: 0.756,
    1.3: 0.702,
    1.4: 0.654,
    1.5: 0.616,
    1.6: 0.582,
    1.7: 0.480,
    1.8: 0.378,
    1.9: 0.406,
    2.0: 0.377,
}
"""Mean accuracy on the human puzzles by sigma in the authors' own runs: 15 seeds, epoch 4,000; from their logs."""
FITTED = 0.99
"""Training accuracy at which training puzzles count as learned, for how fast that is."""
TINY = 0.05
"""Up to which a sigma is very small."""
STALL = 0.01
"""Training accuracy that a model must lack for its training to have stalled."""

Table = np.ndarray


def difference(a: pd.Series, b: pd.Series) -> Interval:
    """The mean difference of two settings, paired by seed, with Student's t interval."""
    pairs = (a - b).dropna()
    if pairs.empty:
        raise NotInRun("the run has no seed that finished at both settings")
    return stats.interval(pairs.to_numpy())


# -------------------------------------------------------------------------------------------------- lst-sigma


def small_against_large(run: Run) -> Interval:
    values = accuracy(run)
    return difference(at_sigma(run, values, SMALL), at_sigma(run, values, LARGE))


def mean_at(sigma: float, run: Run) -> Interval:
    return stats.interval(at_sigma(run, accuracy(run), sigma).to_numpy())


def lowest_on_train(run: Run) -> Interval:
    """The mean training accuracy of the sigma at which it is lowest."""
    table = by_sigma(run, accuracy(run, "train"))
    lost = [sigma for sigma in run.config["fields"]["sigmas"] if sigma not in table.index]
    if lost:  # it cannot be said of every sigma
        raise NotInRun(f"the run has no finished members with sigma {lost[0]:g}")

    def lowest(values: Table) -> Table:
        return np.asarray(_means(values).min(axis=-1))

    return stats.bootstrap(lowest, table.to_numpy())


def reflected(statistic: Callable[[Table], Table], table: Table) -> Interval:
    """A statistic of absolute values over seeds, with the bounds of the bootstrap reflected at it (not below 0).

    Seeds drawn anew add noise, which absolute values cannot cancel: most draws lie above the statistic by about as much
    as the statistic lies above the truth. Reflection ("basic bootstrap") takes that off. With the bounds as drawn, two
    sets of runs of the very same models would never come out as alike.
    """
    found, low, high = stats.bootstrap(statistic, table)
    bounds = np.maximum(0.0, [2 * found - high, 2 * found - low])  # NaN stays NaN
    return Interval(found, *bounds.tolist())


def against_authors(run: Run) -> tuple[Table, Table]:
    """Our accuracies, (sigmas, seeds), and the authors' means, (sigmas,), at the sigmas of the authors."""
    table = by_sigma(run, accuracy(run))
    missing = [sigma for sigma in AUTHORS_MEANS if sigma not in table.index]
    if missing:
        raise NotInRun(f"the run has no finished members with sigma {missing[0]:g}")
    return table.loc[list(AUTHORS_MEANS)].to_numpy(), np.array(list(AUTHORS_MEANS.values()))


def _means(values: Table) -> Table:
    """(draws, sigmas, seeds) -> (draws, sigmas): NaN where none of a sigma's finished seeds was drawn."""
    count, kept = (~np.isnan(values)).sum(axis=-1), np.nan_to_num(values).sum(axis=-1)
    return np.asarray(np.divide(kept, count, out=np.full_like(kept, np.nan), where=count > 0))


def mean_gap(run: Run) -> Interval:
    """Mean over the sigmas of the absolute difference between our mean accuracy and the authors'."""
    ours, theirs = against_authors(run)
    return reflected(lambda values: np.abs(_means(values) - theirs).mean(axis=-1), ours)


def largest_gap(run: Run) -> Interval:
    """The largest of these differences in units of its standard error, the authors' spread taken equal to ours."""
    ours, theirs = against_authors(run)
    seeds = (~np.isnan(ours)).sum(axis=-1)
    if seeds.min() < 2:
        raise NotInRun("the run has a single seed of a sigma, which has no standard error")
    error = np.nanstd(ours, axis=-1, ddof=1) * np.sqrt(1 / seeds + 1 / AUTHORS_SEEDS)
    error[error == 0] = np.nan
    return reflected(lambda values: np.abs((_means(values) - theirs) / error).max(axis=-1), ours)


def learned_at(run: Run, values: pd.Series, sigma: float) -> pd.Series:
    """Values by seed of the members of the sweep with this sigma whose PE is learned, from a random start and added
    where the run adds it."""
    rows = swept(run)
    rows = rows[rows["start"] == run.config["fields"].get("start", "normal")]
    rows = rows[rows["placement"] == run.config["fields"].get("placement", "every")]
    rows = rows[rows["learn"].astype(bool) & (rows["encoding"] == "learned") & (rows["sigma"] == sigma)]
    if rows.empty:
        raise NotInRun(f"the run has no finished members with sigma {sigma:g}")
    if rows["seed"].duplicated().any():
        raise NotInRun(f"the run has several members of one seed with sigma {sigma:g}")
    return pd.Series(rows["member"].map(values).to_numpy(), index=rows["seed"])


def later_at_large(run: Run) -> Interval:
    """First epoch with 99% training accuracy at the large sigma minus that at the small one."""
    epochs = first_epoch(run, FITTED)
    return difference(learned_at(run, epochs, LARGE), learned_at(run, epochs, SMALL))


def stalled(run: Run) -> Interval:
    """Final training accuracy at the smallest sigma of the run, which must be very small, minus that at 0.2."""
    sigmas = [float(sigma) for sigma in swept(run)["sigma"].unique() if sigma <= TINY]
    if not sigmas:
        raise NotInRun(f"the run has no finished members with a sigma up to {TINY:g}")
    values = accuracy(run, "train")
    return difference(learned_at(run, values, min(sigmas)), learned_at(run, values, SMALL))


def _tables(run: Run, analysis: str, target: str, when: str = "end") -> tuple[Table, Table]:
    x, y = paired(run, analysis, target, when)
    if len(x) < 3:
        raise NotInRun(f"the run has {len(x)} sigmas; a correlation over them takes 3")
    return x.to_numpy(), y.to_numpy()


def over_sigmas(analysis: str, target: str, run: Run) -> Interval:
    """Rank correlation, over the sigmas, of the mean measure with the mean accuracy."""
    return stats.bootstrap(stats.over_settings, *_tables(run, analysis, target))


def gained_by_training(analysis: str, target: str, run: Run) -> Interval:
    """By how much the correlation over the sigmas is stronger after training than before it."""
    after, y = _tables(run, analysis, target)
    before, _ = _tables(run, analysis, target, "start")

    def gain(x: Table, start: Table, y: Table) -> Table:
        return np.abs(stats.over_settings(x, y)) - np.abs(stats.over_settings(start, y))

    return stats.bootstrap(gain, after, before, y)


def within_sigma(analysis: str, target: str, run: Run) -> Interval:
    """Rank correlation of measure and accuracy at a fixed sigma, pooled over the sigmas."""
    return stats.bootstrap(stats.within, *_tables(run, analysis, target))


def beyond_start(analysis: str, target: str, run: Run) -> Interval:
    """The same, once the measure's value before training is accounted for."""
    after, y = _tables(run, analysis, target)
    before, _ = _tables(run, analysis, target, "start")
    return stats.bootstrap(stats.within_given, after, y, before)


def learned_arrangement(sigma: float, against: float | None, run: Run) -> Interval:
    """By how much training raised the PE's RSA with the relation of rows and columns; less that at another sigma."""
    gain = measured(run, "rsa", "relation") - measured(run, "rsa", "relation", "start")
    own = at_sigma(run, gain, sigma)
    return stats.interval(own.to_numpy()) if against is None else difference(own, at_sigma(run, gain, against))


def under_noise(split: str, run: Run) -> Interval:
    """Accuracy under noise, the mean over all levels, at the small sigma less that at the large one."""
    levels = run.config["fields"]["noise"]
    if not levels:
        raise NotInRun("the run was not tested under noise")
    mean = sum(measured(run, "noise_accuracy", f"{split} {level:g}") for level in levels) / len(levels)
    assert isinstance(mean, pd.Series)
    return difference(at_sigma(run, mean, SMALL), at_sigma(run, mean, LARGE))


def after_early(sigma: float, run: Run) -> Interval:
    """Accuracy at the end less that at epoch 200, at one sigma."""
    epochs, last = run.config["fields"]["epochs"], int(run.metrics["step"].max())
    if epochs <= EARLY:
        raise NotInRun(f"the run ends at epoch {epochs}")
    early = accuracy(run, step=last // epochs * EARLY)
    return difference(at_sigma(run, accuracy(run), sigma), at_sigma(run, early, sigma))


def _predicts(
    name: str, words: str, analysis: str, target: str, *, sign: int, label: str, published: float | None = None
) -> list[Claim]:
    """Three questions to a measure: over the sigmas, at a fixed sigma, and beyond what it was before training."""
    ask: Sequence[tuple[str, str, Callable[..., Interval], str, float | None]] = (
        ("over-sigmas", "over the sigmas", over_sigmas, label, published),
        ("at-fixed-sigma", "at a fixed sigma", within_sigma, OURS, None),
        ("beyond-start", "at a fixed sigma beyond its own value before training", beyond_start, OURS, None),
    )
    return [
        Claim(
            f"{name}-{id}",
            f"{words} predicts accuracy {question}.",
            whose,
            0.0,
            partial(measure, analysis, target),
            "above" if sign > 0 else "below",
            published=value,
            tolerance=None if value is None else 0.005,
        )
        for id, question, measure, whose, value in ask
    ]


def of_learned(measure: Callable[[Run], Interval], run: Run) -> Interval:
    """The measure, of a run that it is about."""
    fields = run.config["fields"]
    if fields["encoding"] != "learned" or not fields["learn"] or fields["dropout"]:
        raise NotInRun("the PEs of the run are not learned, or not without dropout")
    return measure(run)


TRAINING: tuple[Claim, ...] = (
    Claim(
        "large-sigma-trains-faster",
        "Large sigma (2.0) reaches 99% training accuracy earlier than 0.2, in epochs; models that never reach it count "
        "as the last epoch.",
        PAPER,
        0.0,
        later_at_large,
        "below",
    ),
    Claim(
        "tiny-sigma-stalls",
        "Training stalls at a very small sigma (the smallest of the run, 0.05 or less): final training accuracy is "
        "lower than at 0.2 by more than 0.01.",
        PAPER,
        -STALL,
        stalled,
        "below",
    ),
)
"""How fast models train: for every run with a sweep of learned PEs."""

_SIGMA: tuple[Claim, ...] = (
    Claim(
        "small-sigma-generalizes",
        "Held-out accuracy is higher at sigma 0.2 than at 2.0 (published: 0.956 and 0.38).",
        PAPER,
        0.288,
        small_against_large,
        published=0.579,
        tolerance=0.001,
    ),
    Claim(
        "accuracy-at-0.2",
        "Sigma 0.2 reaches 0.93 on held-out puzzles.",
        PAPER,
        0.93,
        partial(mean_at, SMALL),
        published=AUTHORS_MEANS[SMALL],
        tolerance=0.0005,
    ),
    Claim(
        "accuracy-at-2.0",
        "Sigma 2.0 stays below 0.5.",
        PAPER,
        0.5,
        partial(mean_at, LARGE),
        "below",
        published=AUTHORS_MEANS[LARGE],
        tolerance=0.0005,
    ),
    Claim(
        "sigma-curve",
        "Mean absolute difference between our mean accuracies and the authors' at the 20 sigmas is below 0.025.",
        PAPER,
        0.025,
        mean_gap,
        "below",
        published=0.0,
        tolerance=0.025,
        remark=LOGS,
    ),
    Claim(
        "sigma-curve-largest-gap",
        "The largest of these differences is below 3 standard errors, the authors' spread taken equal to ours.",
        PAPER,
        3.0,
        largest_gap,
        "below",
        remark=LOGS,
    ),
    Claim(
        "all-fit-training",
        "Every sigma reaches 100% (0.99) on its training puzzles.",
        PAPER,
        0.99,
        lowest_on_train,
        published=1.0,
        tolerance=0.005,
    ),
    *TRAINING,
    *_predicts(
        "procrustes-raw",
        "The raw Procrustes distance to 2d-fixed",
        "procrustes_raw",
        "2d-fixed",
        sign=-1,
        label=PAPER,
        published=-0.98,
    ),
    Claim(
        "procrustes-raw-learned",
        "The raw distance predicts accuracy over the sigmas better after training than before it.",
        OURS,
        0.0,
        partial(gained_by_training, "procrustes_raw", "2d-fixed"),
    ),
    Claim(
        "procrustes-raw-known-before",
        "The raw distance predicts accuracy over the sigmas as well before training as after it.",
        OURS,
        0.05,
        partial(gained_by_training, "procrustes_raw", "2d-fixed"),
        "within",
        remark=LATER,
    ),
    *_predicts(
        "procrustes",
        "The Procrustes distance free of place and scale",
        "procrustes",
        "2d-fixed",
        sign=-1,
        label=OURS,
    ),
    Claim(
        "pe-learns-rows-and-columns",
        "Training brings the PE nearer to rows and columns at sigma 0.2 (rank correlation of similarities).",
        OURS,
        0.0,
        partial(learned_arrangement, SMALL, None),
        remark=LATER,
    ),
    Claim(
        "small-sigma-learns-more-of-it",
        "It does so more at sigma 0.2 than at 2.0.",
        OURS,
        0.0,
        partial(learned_arrangement, SMALL, LARGE),
        remark=LATER,
    ),
    *_predicts(
        "attention",
        "Cosine similarity of attention to that of 2d-fixed models",
        "attention_cosine",
        ATTENTION,
        sign=1,
        label=PAPER,
        published=0.96,
    ),
    Claim(
        "attention-learned",
        "Attention agreement predicts accuracy over the sigmas better after training than before it.",
        OURS,
        0.0,
        partial(gained_by_training, "attention_cosine", ATTENTION),
    ),
    Claim(
        "attention-known-before",
        "Attention agreement predicts accuracy over the sigmas as well before training as after it.",
        OURS,
        0.05,
        partial(gained_by_training, "attention_cosine", ATTENTION),
        "within",
        remark=LATER,
    ),
    Claim(
        "withstands-noise",
        "Under noise on the token embeddings, sigma 0.2 keeps more accuracy than 2.0 on training puzzles, which both "
        "answer without noise.",
        OURS,
        0.0,
        partial(under_noise, "train"),
    ),
    Claim(
        "withstands-noise-held-out",
        "Under noise on the token embeddings, sigma 0.2 has a higher accuracy than 2.0 on held-out puzzles.",
        PAPER,
        0.0,
        partial(under_noise, "validation"),
    ),
    *(
        Claim(
            f"epoch-200-at-{sigma:g}",
            f"Accuracy at epoch 200 is that at the end, at sigma {sigma:g}.",
            PAPER,
            0.02,
            partial(after_early, sigma),
            "within",
            remark=LOGS,
        )
        for sigma in (0.2, 1.0, 2.0)
    ),
)

SIGMA = tuple(replace(claim, measure=partial(of_learned, claim.measure)) for claim in _SIGMA)
