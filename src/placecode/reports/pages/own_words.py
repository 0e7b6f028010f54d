"""Sentences in the report of `placecode fit`: is there structure in the table, how certain is it, which method is best?

This module computes the numbers and conditions; the sentences are in templates/fit.j2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from placecode.experiments.channels.own_results import LEVEL, Found, Method
from placecode.reports import wording
from placecode.reports.pages.dials import Verdict
from placecode.tasks.splits import BLOCKS

SURE, UNSURE = 0.9, 0.3
"""Two channels are called neighbours if their confidence is at least the first number.

A map is called unreliable if its mean confidence is below the second.
"""
STABLE = 0.5
"""Modules are unreliable if their ARI, between fits or with known groups, is below this."""
BLIND = 0.9
"""Linear predictors miss the structure if they explain less than 1 - BLIND of the variance that our models explain."""
MISSED = 0.1
"""A sentence names another method if it explains more of the variance than our models by at least this share."""
SAID = {"correlation": "correlation + MDS", "pca": "PCA", "graphical lasso": "graphical lasso", "umap": "UMAP"}
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


def sentences(found: Found) -> list[str]:
    """Return all sentences: the verdict, how certain it is, which method did best, and what to look at."""
    words = _words(found)
    order = ("headline", "unlearned", "certainty", "unplaced_channels", "best", "left_out", "sigma", "care", "data")
    return [sentence for name in order for sentence in words[name]]


def in_short(found: Found) -> list[str]:
    """Return the sentences that stand below the verdict at the top of a report."""
    words = _words(found)
    compared = [*words["best"], *words["left_out"]][:2]
    return [*words["unlearned"], *words["certainty"], *words["unplaced_channels"], *compared, *words["care"]]


def verdict(found: Found) -> Verdict:
    """Return the headline under a badge: "found", "unsure" or "not found"."""
    unsure = np.isfinite(found.confidence).any() and found.mean_confidence < UNSURE
    kind = "not found" if not found.found else "unsure" if unsure else "found"
    return Verdict(kind, headline(found))


def headline(found: Found) -> str:
    """Return the first sentence: whether there is structure, how strong it is, and whether other methods see it.

    It says that no pairwise method sees the structure only if all of this holds:

    - Our modules match the known groups: their ARI is at least STABLE, with p <= LEVEL.
    - Every other method is at chance on every measure of structure that the table of methods shows: p > LEVEL for the
      ARI of its modules and for its nearest neighbours, and an ARI of at most STABLE / 2.
    - Linear predictors miss it: none explains more than 1 - BLIND of the variance that our models explain.

    If any other method has p <= LEVEL on either measure, the sentence says which method sees what instead.
    """
    return _words(found)["headline"][0]


def _words(found: Found) -> dict[str, list[str]]:
    """Return the sentences of templates/fit.j2 by the name of their section."""
    scores = _scores(found)
    ours, others, errors = scores.iloc[0], scores.iloc[1:], scores["heldout_mse"].iloc[1:].dropna()
    tests = _tests_of_others(others)
    stability = found.stability.get(found.count, float("nan"))
    by_confidence = np.argsort(found.confidence, kind="stable")
    uncertain = [found.names[i] for i in by_confidence if found.placed[i] and found.confidence[i] < STABLE]
    block = found.facts.get("piece", found.facts["samples"] // BLOCKS)
    return wording.sections(
        "fit",
        found=found,
        level=LEVEL,
        missed=_missed(found, errors),
        linear_predictors_miss=_linear_predictors_miss(found, errors),
        seen=[test for test in tests if test["p"] <= LEVEL],
        tests=len(tests),
        alone=_groups_of_ours_alone(ours, others),
        several_fits=np.isfinite(found.confidence).any(),
        sure=SURE,
        sure_pairs=int((np.triu(found.pairs, k=1) >= SURE).sum()),
        unsure=UNSURE,
        agreement=stability if found.count > 1 and np.isfinite(stability) else None,
        unplaced=[name for name, placed in zip(found.names, found.placed, strict=True) if not placed],
        ranking=_ranking(scores),
        not_tried={SAID[name]: why for name, why in found.left_out.items()},
        memory_is_long=found.facts["memory"] > block / 4,
        block=block,
        uncertain=uncertain[:5],
        constant=found.facts["left out"],
    )


def by_name(found: Found) -> dict[str, Method]:
    """Return all methods by the names that reports show, ours first."""
    return {"placecode": found.ours, **{SAID[name]: method for name, method in found.others.items()}}


def _scores(found: Found) -> pd.DataFrame:
    """Return the scores of all methods, ours in the first row; NaN where a method lacks a score."""
    records = {name: method.scores for name, method in by_name(found).items()}
    return pd.DataFrame.from_dict(records, orient="index").reindex(columns=SCORES).astype(float)


def _tests_of_others(others: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the tests of both measures of structure in other methods: ARI of modules, and nearest neighbours."""
    return [
        {"method": name, "score": score, "value": row[score], "p": row[f"{score}_p"]}
        for name, row in others.iterrows()
        for score in ("ari", "neighbor_agreement")
        if np.isfinite(row[f"{score}_p"])
    ]


def _groups_of_ours_alone(ours: pd.Series, others: pd.DataFrame) -> dict[str, Any] | None:
    """Return the scores for the sentence that only our modules match the known groups; None if that is not so.

    It is used only if no other method has p <= LEVEL on any measure.
    """
    aris, near = others["ari"].dropna(), others["neighbor_agreement_p"].dropna()
    if not (ours["ari"] >= STABLE and ours["ari_p"] <= LEVEL and aris.max() <= STABLE / 2):  # NaN: no such score
        return None
    scores = {"ari": ours["ari"], "p": ours["ari_p"], "low": aris.min(), "high": aris.max()}
    return {**scores, "methods": list(aris.index), "neighbors": list(near.index)}


def _missed(found: Found, errors: pd.Series) -> dict[str, Any] | None:
    """Return the method that explains at least MISSED more of the variance than our models; None if there is none."""
    share = 1 - errors.min() / found.mean_mse
    return {"method": errors.idxmin(), "share": share} if share >= max(found.explained, 0.0) + MISSED else None


def _linear_predictors_miss(found: Found, errors: pd.Series) -> bool:
    """Return whether no linear predictor explains more than 1 - BLIND of the variance that our models explain.

    It is False if our models explain 10% of the variance or less.
    """
    others = 1 - min([found.linear_mse, *errors]) / found.mean_mse
    return found.explained > 0.1 and others < (1 - BLIND) * found.explained


def _ranking(scores: pd.DataFrame) -> list[dict[str, Any]]:
    """Return, for each score that ours and another method have, the best methods (as shown) and the others."""
    ranking = []
    for score, (best_of, shape) in RANKED.items():
        known = scores[score].dropna()
        if "placecode" in known and len(known) > 1:
            best, shown = format(best_of(known), shape), {name: format(value, shape) for name, value in known.items()}
            first = [name for name, value in shown.items() if value == best]
            rest = {name: value for name, value in shown.items() if name not in first}
            ranking.append({"score": score, "first": first, "value": best, "rest": rest})
    return ranking
