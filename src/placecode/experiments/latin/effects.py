"""Effects in runs on Latin squares, such as a difference in accuracy between two sigmas, with 95% intervals over seeds.

The claims on lst-sigma (`latin.claims`) use all of them. The claims on lst-frozen also use those on training speed
(`later_at_large`, `stalled`), and those on lst-slingshot use `accuracy_at_early`. The claims on other experiments use
only `difference` and the sigmas SMALL and LARGE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.claims import NotInRun
from placecode.experiments.reading import (
    accuracy,
    analysis_values,
    at_sigma,
    by_sigma,
    first_epoch,
    measure_and_accuracy,
    sweep_members,
)
from placecode.runs.read import Run

SMALL, LARGE = 0.2, 2.0
"""The paper's best and largest sigma. They are fixed here and not chosen from the results of a run."""
EARLY = 200
"""The epoch from which on accuracy no longer changes in the authors' logs. Longer runs always evaluate it."""
ATTENTION = "2d-fixed"
"""Target of attention agreement: the 2d-fixed members without dropout."""
AUTHORS_SEEDS = 15
"""Number of seeds behind each of the means of the authors (Ito et al., arXiv 2406.08272)."""
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
"""Mean accuracy on the human puzzles by sigma in the authors' runs: 15 seeds, epoch 4,000; from their logs."""
FITTED = 0.99
"""Training accuracy at which the training puzzles count as learned, for the speed of training."""
TINY = 0.05
"""Largest sigma that counts as very small."""
Table = np.ndarray
"""Values (..., sigmas, seeds)."""


def difference(a: pd.Series, b: pd.Series) -> Interval:
    """Return the mean of a - b, paired by seed, with Student's t interval. `a` and `b` are values by seed of two
    settings. Raise NotInRun if no seed has both."""
    pairs = (a - b).dropna()
    if pairs.empty:
        raise NotInRun("the run has no seed that finished at both settings")
    return stats.interval(pairs.to_numpy())


def small_against_large(run: Run) -> Interval:
    """Return the final OOD accuracy at the small sigma minus that at the large sigma."""
    values = accuracy(run)
    return difference(at_sigma(run, values, SMALL), at_sigma(run, values, LARGE))


def mean_at(sigma: float, run: Run) -> Interval:
    """Return the mean final OOD accuracy at one sigma."""
    return stats.interval(at_sigma(run, accuracy(run), sigma).to_numpy())


def lowest_on_train(run: Run) -> Interval:
    """Return the lowest mean training accuracy of any sigma of the run."""
    table = _all_sigmas(run, run.config["fields"]["sigmas"], "train")
    return stats.bootstrap(lambda values: np.asarray(_means(values).min(axis=-1)), table.to_numpy())


def _all_sigmas(run: Run, sigmas: Iterable[float], split: str = "ood") -> pd.DataFrame:
    """Return the final accuracies (sigmas, seeds). Raise NotInRun if the run does not have all of these sigmas."""
    table = by_sigma(run, accuracy(run, split))
    if missing := [sigma for sigma in sigmas if sigma not in table.index]:
        raise NotInRun(f"the run has no finished members with sigma {missing[0]:g}")
    return table


def reflected(statistic: Callable[[Table], Table], table: Table) -> Interval:
    """Return a statistic of absolute values, with its interval from a "basic" bootstrap over seeds.

    A percentile bound q becomes 2 * statistic - q, and negative bounds become 0. Resampling of seeds adds noise, which
    does not cancel in absolute values: most resamples lie above the statistic, by about as much as the statistic lies
    above the true value. The reflection removes this bias. The percentile interval would exclude 0 even if the true
    difference is 0.
    """
    value, low, high = stats.bootstrap(statistic, table)
    bounds = np.maximum(0.0, [2 * value - high, 2 * value - low])  # NaN stays NaN
    return Interval(value, *bounds.tolist())


def against_authors(run: Run) -> tuple[Table, Table]:
    """Return our final OOD accuracies, (sigmas, seeds), and the means of Ito et al. (arXiv 2406.08272), (sigmas,), at
    the sigmas that they used."""
    table = _all_sigmas(run, AUTHORS_MEANS)
    return table.loc[list(AUTHORS_MEANS)].to_numpy(), np.array(list(AUTHORS_MEANS.values()))


def _means(values: Table) -> Table:
    """Return means over seeds: (draws, sigmas, seeds) -> (draws, sigmas). A mean is NaN if no finished seed of the
    sigma was drawn."""
    count, total = (~np.isnan(values)).sum(axis=-1), np.nan_to_num(values).sum(axis=-1)
    return np.asarray(np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0))


def mean_gap(run: Run) -> Interval:
    """Return the absolute difference between our mean OOD accuracy and that of Ito et al. (arXiv 2406.08272), averaged
    over their sigmas, with a bootstrap interval over our seeds."""
    ours, theirs = against_authors(run)
    return reflected(lambda values: np.abs(_means(values) - theirs).mean(axis=-1), ours)


def largest_gap(run: Run) -> Interval:
    """Return the largest of these absolute differences at any sigma, in standard errors, with a bootstrap interval over
    our seeds. The standard deviation of Ito et al. is assumed to equal ours."""
    ours, theirs = against_authors(run)
    seeds = (~np.isnan(ours)).sum(axis=-1)
    if seeds.min() < 2:
        raise NotInRun("the run has a single seed of a sigma, which has no standard error")
    error = np.nanstd(ours, axis=-1, ddof=1) * np.sqrt(1 / seeds + 1 / AUTHORS_SEEDS)
    error[error == 0] = np.nan
    return reflected(lambda values: np.abs((_means(values) - theirs) / error).max(axis=-1), ours)


def learned_at(run: Run, values: pd.Series, sigma: float) -> pd.Series:
    """Return the values by seed of the members with a learned PE and this sigma, and with the initial values and the
    placement of the PE in the settings of the run. `values` are by member."""
    rows = sweep_members(run)
    rows = rows[rows["start"] == run.config["fields"].get("start", "normal")]
    rows = rows[rows["placement"] == run.config["fields"].get("placement", "every")]
    rows = rows[rows["learn"].astype(bool) & (rows["encoding"] == "learned") & (rows["sigma"] == sigma)]
    if rows.empty:
        raise NotInRun(f"the run has no finished members with sigma {sigma:g}")
    if rows["seed"].duplicated().any():
        raise NotInRun(f"the run has several members of one seed with sigma {sigma:g}")
    return pd.Series(rows["member"].map(values).to_numpy(), index=rows["seed"])


def later_at_large(run: Run) -> Interval:
    """Return the first epoch with 99% training accuracy at the large sigma minus that at the small sigma."""
    epochs = first_epoch(run, FITTED)
    return difference(learned_at(run, epochs, LARGE), learned_at(run, epochs, SMALL))


def stalled(run: Run) -> Interval:
    """Return the final training accuracy at the smallest sigma of the run minus that at 0.2. Raise NotInRun if the
    smallest is above `TINY`."""
    sigmas = [float(sigma) for sigma in sweep_members(run)["sigma"].unique() if sigma <= TINY]
    if not sigmas:
        raise NotInRun(f"the run has no finished members with a sigma up to {TINY:g}")
    values = accuracy(run, "train")
    return difference(learned_at(run, values, min(sigmas)), learned_at(run, values, SMALL))


def _tables(run: Run, analysis: str, target: str, when: str = "end") -> tuple[Table, Table]:
    """Return an analysis before or after training (`when`), and the final OOD accuracy, as arrays (sigmas, seeds).
    Raise NotInRun if the run has fewer than 3 sigmas."""
    x, y = measure_and_accuracy(run, analysis, target, when)
    if len(x) < 3:
        raise NotInRun(f"the run has {len(x)} sigmas; a correlation over them takes 3")
    return x.to_numpy(), y.to_numpy()


def over_sigmas(analysis: str, target: str, run: Run) -> Interval:
    """Return the rank correlation over sigmas between a measure (`analysis`, against `target`) and OOD accuracy. Both
    are first averaged over the seeds of each sigma."""
    return stats.bootstrap(stats.between_correlation, *_tables(run, analysis, target))


def gained_by_training(analysis: str, target: str, run: Run) -> Interval:
    """Return |r| of the trained PEs minus |r| of the initial PEs.

    r is the correlation, over sigmas, of a measure (`analysis`, against `target`) with the accuracy after training.
    """
    after, y = _tables(run, analysis, target)
    before, _ = _tables(run, analysis, target, "start")

    def gain(x: Table, start: Table, y: Table) -> Table:
        return np.abs(stats.between_correlation(x, y)) - np.abs(stats.between_correlation(start, y))

    return stats.bootstrap(gain, after, before, y)


def within_sigma(analysis: str, target: str, run: Run) -> Interval:
    """Return the rank correlation of a measure with accuracy among seeds of the same sigma, pooled over the sigmas."""
    return stats.bootstrap(stats.within_correlation, *_tables(run, analysis, target))


def beyond_start(analysis: str, target: str, run: Run) -> Interval:
    """Return the correlation of `within_sigma` with the value of the measure before training partialled out."""
    after, y = _tables(run, analysis, target)
    before, _ = _tables(run, analysis, target, "start")
    return stats.bootstrap(stats.partial_within_correlation, after, y, before)


def learned_arrangement(sigma: float, against: float | None, run: Run) -> Interval:
    """Return how much the RSA of the PE with rows and columns increases in training at one sigma. If `against` is
    another sigma, subtract the increase there."""
    gain = analysis_values(run, "rsa", "relation") - analysis_values(run, "rsa", "relation", "start")
    gains = at_sigma(run, gain, sigma)
    return stats.interval(gains.to_numpy()) if against is None else difference(gains, at_sigma(run, gain, against))


def under_noise(split: str, run: Run) -> Interval:
    """Return the mean accuracy over all levels of noise at the small sigma minus that at the large sigma."""
    levels = run.config["fields"]["noise"]
    if not levels:
        raise NotInRun("the run was not tested under noise")
    mean = sum(analysis_values(run, "noise_accuracy", f"{split} {level:g}") for level in levels) / len(levels)
    assert isinstance(mean, pd.Series)
    return difference(at_sigma(run, mean, SMALL), at_sigma(run, mean, LARGE))


def after_early(sigma: float, run: Run) -> Interval:
    """Return the OOD accuracy at the end minus that at epoch 200, at one sigma."""
    early = accuracy_at_early(run)
    return difference(at_sigma(run, accuracy(run), sigma), at_sigma(run, early, sigma))


def accuracy_at_early(run: Run) -> pd.Series:
    """Return the OOD accuracy at epoch 200 by member. Raise NotInRun if the run is not longer."""
    epochs, last = run.config["fields"]["epochs"], int(run.metrics["step"].max())
    if epochs <= EARLY:
        raise NotInRun(f"the run ends at epoch {epochs}")
    return accuracy(run, step=last // epochs * EARLY)
