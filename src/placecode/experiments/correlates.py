"""Rank correlations of measures of the PE and of attention with OOD accuracy: over the sigmas, and at a fixed sigma.

Sigma is the initial scale of the PE. Accuracy depends on sigma, so every measure that depends on sigma correlates with
accuracy over the sigmas, even one that training does not change. Correlations are therefore also computed among members
(models) with the same sigma, in three ways: with the measure before training, with the measure after training, and with
the measure after training while that before training is held constant (partial correlation).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from placecode.analysis import stats
from placecode.experiments.claims import NotInRun
from placecode.experiments.measures import MeasureKey
from placecode.experiments.reading import accuracy, analysis_values, measure_and_accuracy, sweep_members
from placecode.runs.read import Run

MEASURES: dict[str, MeasureKey] = {
    "Procrustes distance, raw": ("procrustes_raw", "2d-fixed"),
    "Procrustes distance, scale-free": ("procrustes", "2d-fixed"),
    "RSA with 2d-fixed": ("rsa", "2d-fixed"),
    "attention cosine to 2d-fixed": ("attention_cosine", "2d-fixed"),
}
"""The main measures by their names in figures: the values of `analysis` and `target` in the analysis table."""
MORE_MEASURES: dict[str, MeasureKey] = {
    **MEASURES,
    "Procrustes z against permuted tokens": ("procrustes_z", "2d-fixed"),
    "Procrustes distance to row and column": ("procrustes", "one-hot"),
    "RSA with grid distances": ("rsa", "grid"),
    "RSA with same row or column": ("rsa", "relation"),
    "CKA with 2d-fixed": ("cka", "2d-fixed"),
    "nearest token in same row or column": ("neighbor_agreement", "relation"),
    "row decoded": ("probe", "row"),
    "column decoded": ("probe", "column"),
    "PE norm": ("norm", ""),
    "PE effective dimension": ("effective_dimension", ""),
    "attention correlation to 2d-fixed": ("attention_correlation", "2d-fixed"),
    "attention cosine per puzzle": ("attention_cosine_each", "2d-fixed"),
    "attention cosine to the ideal map": ("attention_cosine", "ideal"),
    "attention correlation to the ideal map": ("attention_correlation", "ideal"),
    "attention cosine to an even map": ("attention_cosine", "even"),
}
"""All measures that are correlated with accuracy, in the form of `MEASURES`."""
CORRELATION_KINDS: dict[str, tuple[str, Callable[..., Any]]] = {
    "over the sigmas": ("end", stats.between_correlation),
    "fixed sigma, before training": ("start", stats.within_correlation),
    "fixed sigma, after training": ("end", stats.within_correlation),
    "fixed sigma, after, given before": ("given", stats.partial_within_correlation),
}
"""The kinds of correlation by name. Each is a pair: when the measure is taken, and the statistic. "start" is before
training, "end" is after training, and "given" is after training with the value before training partialled out."""


def correlations(run: Run) -> pd.DataFrame | None:
    """Return a table of rank correlations of the measures in `MORE_MEASURES` with OOD accuracy, or None.

    It has a row for each measure and kind of correlation. Its columns are measure, question (a key of
    `CORRELATION_KINDS`), value, low and high (the interval over seeds), p and adjusted. At a fixed sigma, p is from a
    permutation test over seeds. Over the sigmas, each sigma counts as one independent point. `adjusted` is p with the
    FDR correction over the measures. The result is None if the run has none of the measures, fewer than 3 sigmas, or
    too few seeds.
    """
    rows = []
    for label, (analysis, target) in MORE_MEASURES.items():
        try:
            after, y = (table.to_numpy() for table in measure_and_accuracy(run, analysis, target))
            before = measure_and_accuracy(run, analysis, target, "start")[0].to_numpy()
        except NotInRun:
            continue
        if after.shape[0] < 3 or after.shape[1] < stats.MIN_SEEDS:
            continue
        for question, (moment, statistic) in CORRELATION_KINDS.items():
            x = before if moment == "start" else after
            partialled = before if moment == "given" else None
            value, low, high = stats.bootstrap(statistic, x, y, *([] if partialled is None else [partialled]))
            if statistic is stats.between_correlation:
                p = _between_p(x, y)
            else:
                p = stats.within_permutation_p(x, y, partialled)
            row = {"measure": label, "question": question, "value": value, "low": low, "high": high, "p": p}
            rows.append(row)
    if not rows:
        return None
    table = pd.DataFrame(rows)
    table["adjusted"] = table.groupby("question")["p"].transform(lambda p: stats.fdr(p.to_numpy()))
    return table


def _between_p(x: np.ndarray, y: np.ndarray) -> float:
    """Return the two-sided p value of the rank correlation, over sigmas, of the means over seeds of two measures.

    `x` and `y` have shape (sigmas, seeds). The correlation is that of `stats.between_correlation`; if it is NaN, so is
    the p value. Means are in single precision, so that equal means are ties.
    """
    if np.isnan(stats.between_correlation(x, y)):
        return math.nan
    pairs = np.where(np.isnan(x) | np.isnan(y), np.nan, np.stack([x, y]))  # (2, sigmas, seeds)
    pairs = pairs[:, ~np.isnan(pairs[0]).all(axis=1)]
    return float(spearmanr(*np.nanmean(pairs, axis=-1).astype(np.float32)).pvalue)


def measure_table(run: Run) -> pd.DataFrame | None:
    """Return a table with a row for each member of the sweep over sigma, each measure in `MEASURES` and each `moment`
    ("start" or "end" of training): its `value` at that time, and the final OOD accuracy. The result is None if the run
    has none of the measures."""
    final, parts = accuracy(run), []
    for label, (analysis, target) in MEASURES.items():
        try:
            moments = {moment: analysis_values(run, analysis, target, moment) for moment in ("start", "end")}
        except NotInRun:
            continue
        for moment, values in moments.items():
            rows = sweep_members(run)[["member", "sigma", "seed"]]
            rows = rows.assign(measure=label, moment=moment, value=rows["member"].map(values))
            parts.append(rows.assign(accuracy=rows["member"].map(final)))
    return pd.concat(parts, ignore_index=True) if parts else None


def correlation_notes(run: Run) -> dict[str, str]:
    """Return a text for each measure in `MEASURES` that the run has, such as "rank correlation -0.95, before training
    0.20". The correlation is that of the measure with the final OOD accuracy over the sigmas."""
    texts = {}
    for label, (analysis, target) in MEASURES.items():
        try:
            tables = {when: measure_and_accuracy(run, analysis, target, when) for when in ("start", "end")}
        except NotInRun:
            continue
        before, after = (float(stats.between_correlation(*tables[when])) for when in ("start", "end"))
        # members of a seed start from the same random numbers times sigma: a scale-free measure is constant over sigma
        start = tables["start"][0]
        constant = bool((start.max() - start.min()).max() <= 1e-5 * start.abs().max().max())
        words = "the same at every sigma" if constant else _rounded(before)
        texts[label] = f"rank correlation {_rounded(after)}, before training {words}"
    return texts


def _rounded(correlation: float) -> str:
    """Return a correlation as a text with two decimals, or "undefined" for NaN."""
    return "undefined" if math.isnan(correlation) else f"{correlation:.2f}"
