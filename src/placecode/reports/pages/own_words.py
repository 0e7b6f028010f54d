"""Sentences in the report of `placecode fit`: is there structure in the table, how certain is it, which method is best?

This module computes the numbers and conditions; the sentences are in templates/fit.j2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

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
    seen, tests = _seen_by_others(found)
    stability = found.stability.get(found.count, float("nan"))
    by_confidence = np.argsort(found.confidence, kind="stable")
    uncertain = [found.names[i] for i in by_confidence if found.placed[i] and found.confidence[i] < STABLE]
    block = found.facts.get("piece", found.facts["samples"] // BLOCKS)
    return wording.sections(
        "fit",
        found=found,
        level=LEVEL,
        missed=_missed(found),
        linear_predictors_miss=_linear_predictors_miss(found),
        seen=seen,
        tests=tests,
        alone=_groups_of_ours_alone(found),
        several_fits=np.isfinite(found.confidence).any(),
        sure=SURE,
        sure_pairs=int((np.triu(found.pairs, k=1) >= SURE).sum()),
        unsure=UNSURE,
        agreement=stability if found.count > 1 and np.isfinite(stability) else None,
        unplaced=[name for name, placed in zip(found.names, found.placed, strict=True) if not placed],
        ranking=_ranking(found),
        not_tried={SAID[name]: why for name, why in found.left_out.items()},
        memory_is_long=found.facts["memory"] > block / 4,
        block=block,
        uncertain=uncertain[:5],
        constant=found.facts["left out"],
    )


def by_name(found: Found) -> dict[str, Method]:
    """Return all methods by the names that reports show, ours first."""
    return {"placecode": found.ours, **{SAID[name]: method for name, method in found.others.items()}}


def _has(method: Method, score: str) -> bool:
    """Return whether a method has a finite value of a score."""
    return score in method.scores and method.scores[score] is not None and np.isfinite(method.scores[score])


def _seen_by_others(found: Found) -> tuple[list[dict[str, Any]], int]:
    """Return the tests in which other methods see structure (p <= LEVEL), and the number of all tests.

    Both measures of structure are tested: the ARI of the modules, and the nearest neighbours.
    """
    tests: list[dict[str, Any]] = [
        {"method": SAID[name], "score": score, "value": method.scores[score], "p": method.scores[f"{score}_p"]}
        for name, method in found.others.items()
        for score in ("ari", "neighbor_agreement")
        if _has(method, f"{score}_p")
    ]
    return [test for test in tests if test["p"] <= LEVEL], len(tests)


def _groups_of_ours_alone(found: Found) -> dict[str, Any] | None:
    """Return the scores for the sentence that only our modules match the known groups; None if that is not so.

    It is used only if no other method has p <= LEVEL on any measure.
    """
    ours = found.ours
    aris = {SAID[name]: method.scores["ari"] for name, method in found.others.items() if _has(method, "ari")}
    if not _has(ours, "ari") or ours.scores["ari"] < STABLE or ours.scores["ari_p"] > LEVEL or not aris:
        return None
    low, high = min(aris.values()), max(aris.values())
    near = [SAID[name] for name, method in found.others.items() if _has(method, "neighbor_agreement_p")]
    scores = {"ari": ours.scores["ari"], "p": ours.scores["ari_p"], "low": low, "high": high}
    return None if high > STABLE / 2 else {**scores, "methods": list(aris), "neighbors": near}


def _missed(found: Found) -> dict[str, Any] | None:
    """Return the method that explains at least MISSED more of the variance than our models; None if there is none."""
    errors = _errors(found)
    if not errors:
        return None
    best = min(errors, key=lambda name: errors[name])
    share = 1 - errors[best] / found.mean_mse
    return None if share < max(found.explained, 0.0) + MISSED else {"method": best, "share": share}


def _linear_predictors_miss(found: Found) -> bool:
    """Return whether no linear predictor explains more than 1 - BLIND of the variance that our models explain.

    It is False if our models explain 10% of the variance or less.
    """
    others = 1 - min([found.linear_mse, *_errors(found).values()]) / found.mean_mse
    return found.explained > 0.1 and others < (1 - BLIND) * found.explained


def _errors(found: Found) -> dict[str, float]:
    """Return the held-out error of every other method that has one."""
    return {
        SAID[name]: method.scores["heldout_mse"] for name, method in found.others.items() if _has(method, "heldout_mse")
    }


def _ranking(found: Found) -> list[dict[str, Any]]:
    """Return, for each score that our method and another one have, the best methods and the values of the rest.

    Several methods are best if their values are equal as they are shown.
    """
    ranking = []
    for score, (best_of, shape) in RANKED.items():
        known = {name: method.scores[score] for name, method in by_name(found).items() if _has(method, score)}
        if "placecode" not in known or len(known) < 2:
            continue
        best = format(best_of(known.values()), shape)
        shown = {name: format(value, shape) for name, value in known.items()}
        first = [name for name, value in shown.items() if value == best]
        rest = {name: value for name, value in shown.items() if name not in first}
        ranking.append({"score": score, "first": first, "value": best, "rest": rest})
    return ranking
