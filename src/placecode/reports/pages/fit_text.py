"""Sentences in the report of `placecode fit`: is there structure in the table, how certain is it, which method is best?

This module computes the numbers and conditions; the sentences are in templates/fit.j2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from placecode.experiments.channels.fit_result import SIGNIFICANCE_LEVEL, FitResult, Method
from placecode.reports import wording
from placecode.reports.pages.interactive import Verdict
from placecode.tasks.splits import BLOCKS

MIN_NEIGHBOR_CONFIDENCE = 0.9
"""Two channels are called neighbours if the confidence that they are is at least this."""
MIN_MAP_CONFIDENCE = 0.3
"""A map is called unreliable if its mean confidence is below this."""
MIN_STABLE_ARI = 0.5
"""Modules match known groups if their adjusted Rand index (ARI) is at least this."""
MIN_PLACE_CONFIDENCE = 0.5
"""The position of a channel is uncertain if its confidence is below this."""
MIN_MISSED_SHARE = 0.9
"""Linear predictors miss the structure if they miss more than this share of the variance that our models explain."""
MIN_LEAD = 0.1
"""Another method is named if it explains a share of the variance at least this much higher than our models do."""
METHOD_NAMES = {"correlation": "correlation + MDS", "pca": "PCA", "graphical lasso": "graphical lasso", "umap": "UMAP"}
"""Names of the other methods in reports."""
RANKED = {
    "heldout_mse": (min, ".3f"),
    "procrustes_r2": (max, ".2f"),
    "neighbor_agreement": (max, ".2f"),
    "ari": (max, ".2f"),
}
"""Scores by which methods are ranked: whether the lowest or the highest is best, and the number format."""
SCORES = [*RANKED, "neighbor_agreement_p", "ari_p"]
"""All scores that the sentences use."""


def sentences(fit: FitResult) -> list[str]:
    """Return all sentences: the verdict, how certain it is, which method did best, and what to look at."""
    sections = _sections(fit)
    order = ("headline", "unlearned", "certainty", "unplaced_channels", "best", "left_out", "sigma", "care", "data")
    return [sentence for name in order for sentence in sections[name]]


def lead(fit: FitResult) -> list[str]:
    """Return the sentences that stand below the verdict at the top of a report."""
    sections = _sections(fit)
    comparison = [*sections["best"], *sections["left_out"]][:2]
    about_map = [*sections["certainty"], *sections["unplaced_channels"]]
    return [*sections["unlearned"], *about_map, *comparison, *sections["care"]]


def verdict(fit: FitResult) -> Verdict:
    """Return the headline with the badge "found", "not found", or "unsure" (structure, but an unreliable map)."""
    unsure = np.isfinite(fit.confidence).any() and fit.mean_confidence < MIN_MAP_CONFIDENCE
    kind = "not found" if not fit.has_structure else "unsure" if unsure else "found"
    return Verdict(kind, headline(fit))


def headline(fit: FitResult) -> str:
    """Return the first sentence: whether there is structure, how strong it is, and whether other methods see it.

    Three conditions must hold before it says that no pairwise method sees the structure:

    - Our modules match the known groups: their ARI is at least MIN_STABLE_ARI, with p <= SIGNIFICANCE_LEVEL.
    - Every other method is at chance on every measure of structure that the table of methods shows: p >
      SIGNIFICANCE_LEVEL for the ARI of its modules and for its nearest neighbours, and an ARI of at most
      MIN_STABLE_ARI / 2.
    - Our models explain more than 10% of the variance, and linear predictors miss more than MIN_MISSED_SHARE of that.

    If the last condition holds, but another method has p <= SIGNIFICANCE_LEVEL for modules or neighbours, the sentence
    says which method sees what.
    """
    return _sections(fit)["headline"][0]


def _sections(fit: FitResult) -> dict[str, list[str]]:
    """Return the sentences of templates/fit.j2 by the name of their section."""
    records = {name: method.scores for name, method in by_name(fit).items()}  # ours first
    scores = pd.DataFrame.from_dict(records, orient="index").reindex(columns=SCORES).astype(float)
    ours, others, errors = scores.iloc[0], scores.iloc[1:], scores["heldout_mse"].iloc[1:].dropna()
    tests = [
        {"method": name, "score": score, "value": row[score], "p": row[f"{score}_p"]}
        for name, row in others.iterrows()
        for score in ("ari", "neighbor_agreement")
        if np.isfinite(row[f"{score}_p"])
    ]
    missed: dict[str, Any] | None = None  # the best method, if it explains clearly more variance than our models
    if (share := 1 - errors.min() / fit.mean_mse) >= max(fit.explained, 0.0) + MIN_LEAD:
        missed = {"method": errors.idxmin(), "share": share}
    explained_by_linear = 1 - min([fit.linear_mse, *errors]) / fit.mean_mse
    linear_predictors_miss = fit.explained > 0.1 and explained_by_linear < (1 - MIN_MISSED_SHARE) * fit.explained
    stability = fit.stability.get(fit.module_count, float("nan"))
    by_confidence = np.argsort(fit.confidence, kind="stable")
    uncertain = [fit.names[i] for i in by_confidence if fit.on_map[i] and fit.confidence[i] < MIN_PLACE_CONFIDENCE]
    block = fit.data_summary.get("piece", fit.data_summary["samples"] // BLOCKS)
    return wording.sections(
        "fit",
        fit=fit,
        level=SIGNIFICANCE_LEVEL,
        missed=missed,
        linear_predictors_miss=linear_predictors_miss,
        significant=[test for test in tests if test["p"] <= SIGNIFICANCE_LEVEL],
        tests=len(tests),
        only_ours=_groups_of_ours_alone(ours, others),
        several_fits=np.isfinite(fit.confidence).any(),
        sure=MIN_NEIGHBOR_CONFIDENCE,
        sure_pairs=int((np.triu(fit.pairs, k=1) >= MIN_NEIGHBOR_CONFIDENCE).sum()),
        unsure=MIN_MAP_CONFIDENCE,
        agreement=stability if fit.module_count > 1 and np.isfinite(stability) else None,
        unplaced=[name for name, placed in zip(fit.names, fit.on_map, strict=True) if not placed],
        ranking=_ranking(scores),
        not_tried={METHOD_NAMES[name]: why for name, why in fit.left_out.items()},
        memory_is_long=fit.data_summary["memory"] > block / 4,
        block=block,
        uncertain=uncertain[:5],
        constant=fit.data_summary["left out"],
    )


def by_name(fit: FitResult) -> dict[str, Method]:
    """Return all methods by the names that reports show, ours first."""
    return {"placecode": fit.ours, **{METHOD_NAMES[name]: method for name, method in fit.others.items()}}


def _groups_of_ours_alone(ours: pd.Series, others: pd.DataFrame) -> dict[str, Any] | None:
    """Return the values for the sentence that only our modules match the known groups; None if that is not so.

    It is used only if no other method has p <= SIGNIFICANCE_LEVEL on any measure.
    """
    aris, tested_neighbors = others["ari"].dropna(), others["neighbor_agreement_p"].dropna()
    if not (
        ours["ari"] >= MIN_STABLE_ARI and ours["ari_p"] <= SIGNIFICANCE_LEVEL and aris.max() <= MIN_STABLE_ARI / 2
    ):  # NaN: no such score
        return None
    scores = {"ari": ours["ari"], "p": ours["ari_p"], "low": aris.min(), "high": aris.max()}
    return {**scores, "methods": list(aris.index), "neighbors": list(tested_neighbors.index)}


def _ranking(scores: pd.DataFrame) -> list[dict[str, Any]]:
    """Compare the methods by each score that placecode and another method have.

    An entry has the name of the score, the best methods ("first"), their value as text ("value"), and the values of the
    other methods ("rest"). Values that are equal after rounding are equally good.
    """
    ranking = []
    for score, (best_of, number_format) in RANKED.items():
        values = scores[score].dropna()
        if "placecode" in values and len(values) > 1:
            best = format(best_of(values), number_format)
            texts = {name: format(value, number_format) for name, value in values.items()}
            first = [name for name, text in texts.items() if text == best]
            rest = {name: text for name, text in texts.items() if text != best}
            ranking.append({"score": score, "first": first, "value": best, "rest": rest})
    return ranking
