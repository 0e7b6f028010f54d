"""What is true of a fit; the sentences are in templates/fit.j2."""

from __future__ import annotations

from typing import Any

import numpy as np

from placecode.experiments.channels.own_results import LEVEL, Found, Method
from placecode.reports import wording
from placecode.reports.pages.dials import Verdict
from placecode.tasks.splits import BLOCKS

SURE, UNSURE = 0.9, 0.3
"""Confidence from which on two channels are called neighbours; mean confidence below which a map is not reliable."""
STABLE = 0.5
"""ARI, between fits or with known groups, below which modules are not reliable."""
BLIND = 0.9
"""Linear predictors miss the structure if they explain at least this share less of the variance than our models."""
MISSED = 0.1
"""Share of the variance that another method must explain beyond our models before a sentence says so."""
SAID = {"correlation": "correlation + MDS", "pca": "PCA", "graphical lasso": "graphical lasso", "umap": "UMAP"}
"""Names of the other methods."""
RANKED = {
    "heldout_mse": (min, ".3f"),
    "procrustes_r2": (max, ".2f"),
    "neighbor_agreement": (max, ".2f"),
    "ari": (max, ".2f"),
}
"""Scores by which methods are ranked: which end is best, and the format."""


def sentences(found: Found) -> list[str]:
    """All sentences: the verdict, how certain it is, which method did best, and what to look at."""
    words = _words(found)
    order = ("headline", "unlearned", "certainty", "unplaced_channels", "best", "left_out", "sigma", "care", "data")
    return [sentence for name in order for sentence in words[name]]


def in_short(found: Found) -> list[str]:
    """The sentences below the verdict at the top of a report."""
    words = _words(found)
    compared = [*words["best"], *words["left_out"]][:2]
    return [*words["unlearned"], *words["certainty"], *words["unplaced_channels"], *compared, *words["care"]]


def verdict(found: Found) -> Verdict:
    """The first sentence under a badge."""
    unsure = np.isfinite(found.confidence).any() and found.mean_confidence < UNSURE
    kind = "not found" if not found.found else "unsure" if unsure else "found"
    return Verdict(kind, headline(found))


def headline(found: Found) -> str:
    """The first sentence: whether there is structure, how strong it is, and whether other methods see it.

    It says that no pairwise method sees the structure only if all of this holds:

    - Our modules match the known groups: their ARI is at least STABLE, with p <= LEVEL.
    - Every other method is at chance on every measure of structure that the table of methods shows: p > LEVEL for the
      ARI of its modules and for its nearest neighbours, and an ARI of at most STABLE / 2.
    - Linear predictors miss it: none explains more than 1 - BLIND of the variance that our models explain.

    If any other method has p <= LEVEL on either measure, the sentence says which method sees what instead.
    """
    return _words(found)["headline"][0]


def _words(found: Found) -> dict[str, list[str]]:
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
    """All methods by the names that reports show, ours first."""
    return {"placecode": found.ours, **{SAID[name]: method for name, method in found.others.items()}}


def _has(method: Method, score: str) -> bool:
    return score in method.scores and method.scores[score] is not None and np.isfinite(method.scores[score])


def _seen_by_others(found: Found) -> tuple[list[dict[str, Any]], int]:
    """What other methods see with p <= LEVEL, and the number of tests, over both measures of structure."""
    tests: list[dict[str, Any]] = [
        {"method": SAID[name], "score": score, "value": method.scores[score], "p": method.scores[f"{score}_p"]}
        for name, method in found.others.items()
        for score in ("ari", "neighbor_agreement")
        if _has(method, f"{score}_p")
    ]
    return [test for test in tests if test["p"] <= LEVEL], len(tests)


def _groups_of_ours_alone(found: Found) -> dict[str, Any] | None:
    """Our modules match the known groups and those of no other method do; None if that is not so.

    Used only if no other method has p <= LEVEL on any measure.
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
    """The method that explains what our models do not; None if there is none."""
    errors = _errors(found)
    if not errors:
        return None
    best = min(errors, key=lambda name: errors[name])
    share = 1 - errors[best] / found.mean_mse
    return None if share < max(found.explained, 0.0) + MISSED else {"method": best, "share": share}


def _linear_predictors_miss(found: Found) -> bool:
    """Whether no linear predictor explains more than 1 - BLIND of the variance that our models explain."""
    others = 1 - min([found.linear_mse, *_errors(found).values()]) / found.mean_mse
    return found.explained > 0.1 and others < (1 - BLIND) * found.explained


def _errors(found: Found) -> dict[str, float]:
    """The held-out error of every other method that has one."""
    return {
        SAID[name]: method.scores["heldout_mse"] for name, method in found.others.items() if _has(method, "heldout_mse")
    }


def _ranking(found: Found) -> list[dict[str, Any]]:
    """For each score, the best methods (equal as they are shown) and the rest; only where ours can be compared."""
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
