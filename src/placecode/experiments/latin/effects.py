"""Effects in runs on Latin squares, each with a 95% interval over seeds. Sigma is the initial scale of the PE.

They are differences in accuracy between sigmas or between times in training, differences from the accuracies of the
paper's authors, and correlations of a measure of the PE or of attention with accuracy. The claims on lst-sigma
(`latin.claims`) use most of them; other experiments use some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.claims import NotInRun
from placecode.experiments.reading import (
    ValuesFunction,
    accuracy,
    analysis_gain,
    analysis_values,
    at_sigma,
    by_sigma,
    first_epoch,
    measure_and_accuracy,
    select,
    sweep_members,
)
from placecode.runs.read import Run

SMALL, LARGE = 0.2, 2.0
"""The paper's best and largest sigma. They are fixed here and not chosen from the results of a run."""
SMALL_SIGMAS = (0.1, 0.2, 0.5)
"""The sigmas at which models generalize, for effects that are means over several sigmas."""
PLATEAU_EPOCH = 200
"""The epoch after which accuracy no longer changes in the training logs of the paper's authors. All longer runs are
evaluated at this epoch."""
ATTENTION_TARGET = "2d-fixed"
"""What the attention of members is compared with: the attention of 2d-fixed members without dropout."""
AUTHORS_SEEDS = 15
"""Number of seeds behind each mean in AUTHORS_MEANS (Ito et al., arXiv 2406.08272)."""
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
"""Mean accuracy on the human puzzles (OOD) by sigma, at epoch 4,000, from the training logs of the paper's authors."""
FITTING_ACCURACY = 0.99
"""The speed of training is measured by the epoch at which this training accuracy is first reached."""
MAX_TINY_SIGMA = 0.05
"""Largest sigma that counts as very small."""
Table = np.ndarray
"""An array of values by sigma and seed, (..., sigmas, seeds), or an array that is computed from one."""


def difference(a: pd.Series, b: pd.Series) -> Interval:
    """Return the mean of a - b over seeds, with Student's t interval. `a` and `b` are values at two settings, such as
    two sigmas, indexed by seed. Raise NotInRun if no seed has both."""
    pairs = (a - b).dropna()
    if pairs.empty:
        raise NotInRun("the run has no seed that finished at both settings")
    return stats.interval(pairs)


def small_minus_large(run: Run, values: ValuesFunction = accuracy) -> Interval:
    """Return the final OOD accuracy (or other values) at sigma 0.2 minus that at 2.0."""
    by_member = values(run)
    return difference(at_sigma(run, by_member, SMALL), at_sigma(run, by_member, LARGE))


def mean_at_sigma(sigma: float, run: Run, values: ValuesFunction = accuracy) -> Interval:
    """Return the mean over seeds of the final OOD accuracy (or of other values) at one sigma."""
    return stats.interval(at_sigma(run, values(run), sigma))


def lowest_training_accuracy(run: Run) -> Interval:
    """Return the mean final training accuracy at the sigma where this mean is lowest."""
    table = _accuracy_table(run, run.config["fields"]["sigmas"], "train")
    return stats.bootstrap(lambda values: np.asarray(_means(values).min(axis=-1)), table.to_numpy())


def _accuracy_table(run: Run, sigmas: Iterable[float], split: str = "ood") -> pd.DataFrame:
    """Return the final accuracies on a split, (sigmas, seeds). Raise NotInRun if the run lacks one of `sigmas`."""
    table = by_sigma(run, accuracy(run, split))
    if missing := [sigma for sigma in sigmas if sigma not in table.index]:
        raise NotInRun(f"the run has no finished members with sigma {missing[0]:g}")
    return table


def reflected_bootstrap(statistic: Callable[[Table], Table], table: Table) -> Interval:
    """Return a statistic of absolute values, such as a mean absolute difference, with an interval from a "basic"
    bootstrap over seeds.

    A bound q of the percentile interval becomes 2 * statistic - q, and negative bounds become 0. This removes a bias:
    noise does not cancel in absolute values, so resampling of seeds raises the statistic, and the percentile interval
    would exclude 0 even if the true difference is 0.
    """
    value, low, high = stats.bootstrap(statistic, table)
    bounds = np.maximum(0.0, [2 * value - high, 2 * value - low])  # NaN stays NaN
    return Interval(value, *bounds.tolist())


def ours_and_published(run: Run) -> tuple[Table, Table]:
    """Return our final OOD accuracies, (sigmas, seeds), and the authors' means, (sigmas,), at the authors' sigmas."""
    table = _accuracy_table(run, AUTHORS_MEANS)
    return table.loc[list(AUTHORS_MEANS)].to_numpy(), np.array(list(AUTHORS_MEANS.values()))


def _means(values: Table) -> Table:
    """Return means over seeds, leaving out NaNs, (samples, sigmas, seeds) -> (samples, sigmas). A mean of no value is
    NaN."""
    count, total = (~np.isnan(values)).sum(axis=-1), np.nan_to_num(values).sum(axis=-1)
    return np.asarray(np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0))


def mean_gap_to_authors(run: Run) -> Interval:
    """Return the absolute difference between our mean OOD accuracy and the authors' (AUTHORS_MEANS), averaged over the
    sigmas, with a bootstrap interval over our seeds."""
    ours, theirs = ours_and_published(run)
    return reflected_bootstrap(lambda values: np.abs(_means(values) - theirs).mean(axis=-1), ours)


def largest_gap_to_authors(run: Run) -> Interval:
    """Return the absolute difference between our mean OOD accuracy and the authors' (AUTHORS_MEANS), in standard
    errors, at the sigma where it is largest. The interval is from a bootstrap over our seeds. The standard deviation
    over the authors' seeds is assumed to equal ours."""
    ours, theirs = ours_and_published(run)
    seeds = (~np.isnan(ours)).sum(axis=-1)
    if seeds.min() < 2:
        raise NotInRun("the run has a single seed of a sigma, which has no standard error")
    error = np.nanstd(ours, axis=-1, ddof=1) * np.sqrt(1 / seeds + 1 / AUTHORS_SEEDS)
    error[error == 0] = np.nan
    return reflected_bootstrap(lambda values: np.abs((_means(values) - theirs) / error).max(axis=-1), ours)


def learned_pe_values(run: Run, values: pd.Series, sigma: float) -> pd.Series:
    """Return the values of the members with a learned PE of one sigma, by seed. `values` is indexed by member. Members
    are left out if the `start` or `placement` of their PE differs from the settings of the run."""
    fields = run.config["fields"]
    usual = {"start": fields.get("start", "normal"), "placement": fields.get("placement", "every")}
    kind = {"role": "swept", "encoding": "learned", "learn": True, "sigma": sigma, **usual}
    selected = select(run, values, f"members with sigma {sigma:g}", **kind)
    if selected.index.has_duplicates:
        raise NotInRun(f"the run has several members of one seed with sigma {sigma:g}")
    return selected


def fitting_delay_at_large(run: Run) -> Interval:
    """Return the epoch at which training accuracy first reaches 99% at sigma 2.0 minus that at sigma 0.2."""
    epochs = first_epoch(run, FITTING_ACCURACY)
    return difference(learned_pe_values(run, epochs, LARGE), learned_pe_values(run, epochs, SMALL))


def tiny_minus_small_on_train(run: Run) -> Interval:
    """Return the final training accuracy at the smallest sigma of the run minus that at sigma 0.2. Raise NotInRun if
    the smallest sigma is above MAX_TINY_SIGMA."""
    sigmas = [float(sigma) for sigma in sweep_members(run)["sigma"].unique() if sigma <= MAX_TINY_SIGMA]
    if not sigmas:
        raise NotInRun(f"the run has no finished members with a sigma up to {MAX_TINY_SIGMA:g}")
    values = accuracy(run, "train")
    return difference(learned_pe_values(run, values, min(sigmas)), learned_pe_values(run, values, SMALL))


def _correlation_arrays(run: Run, analysis: str, target: str, when: str = "end") -> tuple[Table, Table]:
    """Return two arrays (sigmas, seeds) to correlate: the measure (`analysis`, `target`) of the PE before or after
    training (`when` is "start" or "end"), and the final OOD accuracy. Raise NotInRun if the run has fewer than 3
    sigmas."""
    x, y = measure_and_accuracy(run, analysis, target, when)
    if len(x) < 3:
        raise NotInRun(f"the run has {len(x)} sigmas; a correlation over them takes 3")
    return x.to_numpy(), y.to_numpy()


def correlation_over_sigmas(analysis: str, target: str, run: Run) -> Interval:
    """Return the rank correlation over sigmas between a measure and OOD accuracy, both averaged over the seeds of each
    sigma. `analysis` and `target` name the measure in the analysis table, here and below."""
    return stats.bootstrap(stats.between_correlation, *_correlation_arrays(run, analysis, target))


def correlation_gained(analysis: str, target: str, run: Run) -> Interval:
    """Return how much training strengthens `correlation_over_sigmas`: its absolute value for the measure after
    training, minus that for the measure before training. Both are correlations with the final accuracy."""
    after, y = _correlation_arrays(run, analysis, target)
    before, _ = _correlation_arrays(run, analysis, target, "start")

    def gain(x: Table, start: Table, y: Table) -> Table:
        return np.abs(stats.between_correlation(x, y)) - np.abs(stats.between_correlation(start, y))

    return stats.bootstrap(gain, after, before, y)


def correlation_at_fixed_sigma(analysis: str, target: str, run: Run) -> Interval:
    """Return the rank correlation of a measure with OOD accuracy over seeds of the same sigma, pooled over sigmas."""
    return stats.bootstrap(stats.within_correlation, *_correlation_arrays(run, analysis, target))


def correlation_beyond_start(analysis: str, target: str, run: Run) -> Interval:
    """Return `correlation_at_fixed_sigma`, with the value of the measure before training partialled out."""
    after, y = _correlation_arrays(run, analysis, target)
    before, _ = _correlation_arrays(run, analysis, target, "start")
    return stats.bootstrap(stats.partial_within_correlation, after, y, before)


def rsa_gain(run: Run) -> pd.Series:
    """Return, by member, how much the RSA (representational similarity analysis) between the PE and the relation "same
    row or column" increases in training."""
    return analysis_gain(run, "rsa", "relation")


def noise_accuracy(split: str, run: Run) -> pd.Series:
    """Return the accuracy on a split with noise on the token embeddings, averaged over the noise levels, by member."""
    levels = run.config["fields"]["noise"]
    if not levels:
        raise NotInRun("the run was not tested under noise")
    mean = sum(analysis_values(run, "noise_accuracy", f"{split} {level:g}") for level in levels) / len(levels)
    assert isinstance(mean, pd.Series)
    return mean


def accuracy_at_epoch_200(run: Run) -> pd.Series:
    """Return the OOD accuracy at epoch 200 (PLATEAU_EPOCH) by member. Raise NotInRun if the run is not longer."""
    epochs, last = run.config["fields"]["epochs"], int(run.metrics["step"].max())
    if epochs <= PLATEAU_EPOCH:
        raise NotInRun(f"the run ends at epoch {epochs}")
    return accuracy(run, step=last // epochs * PLATEAU_EPOCH)


def late_gain(run: Run) -> pd.Series:
    """Return the late gain by member: the OOD accuracy at the end of training minus that at epoch 200."""
    early = accuracy_at_epoch_200(run)
    return accuracy(run) - early
