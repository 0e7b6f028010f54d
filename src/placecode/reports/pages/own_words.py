"""The findings of a fit in sentences. Each is written together with the condition under which it is true."""

from __future__ import annotations

import numpy as np

from placecode.experiments.channels.own_results import LEVEL, Found, Method
from placecode.reports.pages.dials import Verdict
from placecode.tasks.splits import BLOCKS

SURE, UNSURE = 0.9, 0.3
"""Confidence from which on two channels are called neighbours; mean confidence below which a map is not to be read."""
STABLE = 0.5
"""ARI, between fits or with known groups, below which modules are not reliable."""
BLIND = 0.9
"""Linear predictors miss the structure if they explain at least this share less of the variance than our models."""
MISSED = 0.1
"""Share of the variance that another method must explain beyond our models before a sentence says so."""
SAID = {"correlation": "correlation + MDS", "pca": "PCA", "graphical lasso": "graphical lasso", "umap": "UMAP"}


def sentences(found: Found) -> list[str]:
    """All sentences: the verdict, how certain it is, which method did best, and what to look at."""
    return [
        headline(found),
        *_unlearned(found),
        *_certainty(found),
        *_unplaced(found),
        *_best(found),
        _sigma(found),
        *_care(found),
        _data(found),
    ]


def in_short(found: Found) -> list[str]:
    """The sentences below the verdict at the top of a report."""
    return [*_unlearned(found), *_certainty(found), *_unplaced(found), *_best(found)[:2], *_care(found)]


def verdict(found: Found) -> Verdict:
    """The first sentence under a badge."""
    if not found.found:
        return Verdict("not found", headline(found))
    unsure = np.isfinite(found.confidence).any() and found.mean_confidence < UNSURE
    return Verdict("unsure" if unsure else "found", headline(found))


def headline(found: Found) -> str:
    """The first sentence: whether there is structure, how strong it is, and whether other methods see it.

    It says that no pairwise method sees the structure only if all of this holds:

    - Our modules match the known groups: their ARI is at least STABLE, with p <= LEVEL.
    - Every other method is at chance on every measure of structure that the table of methods shows: p > LEVEL for the
      ARI of its modules and for its nearest neighbours, and an ARI of at most STABLE / 2.
    - Linear predictors miss it: none explains more than 1 - BLIND of the variance that our models explain.

    If any other method has p <= LEVEL on either measure, the sentence says which method sees what instead.
    """
    errors = (
        f"held-out error {found.heldout_mse:.3f}, against {found.mean_mse:.3f} for guessing the mean and "
        f"{found.linear_mse:.3f} for a linear predictor"
    )
    if not found.found:
        how = (
            f"hidden channels are predicted worse than by guessing their means ({errors}; p = {found.p_value:.3g} "
            "against shifted channels)"
            if found.p_value <= LEVEL
            else "the models predict hidden channels no better than they do after the channels are shifted against "
            f"each other (p = {found.p_value:.3g}; {errors})"
        )
        if missed := _missed(found):
            return (
                f"No structure found by these models, though there is some: {how}, while {missed}, not the one below."
            )
        return f"No structure found: {how}; the map below is not to be read."
    strength = (
        f"the other channels explain {_percent(found.explained)} of the variance of a hidden channel "
        f"(p = {found.p_value:.3g}; {errors})"
    )
    if not _linear_predictors_miss(found):
        return f"Structure found: {strength}."
    seen, tests = _seen_by_others(found)
    if seen:
        return (
            "Structure found that linear predictors miss, but other methods see in part: "
            f"{_listed(seen)} (p <= {LEVEL:g} in {len(seen)} of {tests} tests); {strength}."
        )
    if groups := _groups_of_ours_alone(found):
        return f"Structure found that no pairwise method beside it sees: {groups}; {strength}."
    return f"Structure found that linear predictors miss: {strength}."


def _seen_by_others(found: Found) -> tuple[list[str], int]:
    """What other methods see with p <= LEVEL, in words, and the number of tests, over both measures of structure."""
    seen, tests = [], 0
    for name, method in found.others.items():
        for score, words in (
            ("ari", "the groups (ARI {:.2f}"),
            ("neighbor_agreement", "true neighbours (share {:.2f}"),
        ):
            if _has(method, f"{score}_p"):
                tests += 1
                if (p := method.scores[f"{score}_p"]) <= LEVEL:
                    seen.append(f"{SAID[name]} sees {words.format(method.scores[score])}, p = {p:.3g})")
    return seen, tests


def _groups_of_ours_alone(found: Found) -> str:
    """That our modules match the known groups and those of no other method do; empty if that is not so.

    To be called only if no other method has p <= LEVEL on any measure.
    """
    ours = found.ours
    if not _has(ours, "ari") or ours.scores["ari"] < STABLE or ours.scores["ari_p"] > LEVEL:
        return ""
    aris = {SAID[name]: method.scores["ari"] for name, method in found.others.items() if _has(method, "ari")}
    if not aris or max(aris.values()) > STABLE / 2:
        return ""
    near = [SAID[name] for name, method in found.others.items() if _has(method, "neighbor_agreement_p")]
    also = f", and so are the nearest neighbours of {_listed(near)}" if near else ""
    return (
        f"its modules match the known groups (ARI {ours.scores['ari']:.2f}, p = {ours.scores['ari_p']:.3g}), while "
        f"those of {_listed(list(aris))} are at chance (ARI {min(aris.values()):.2f} to {max(aris.values()):.2f})"
        f"{also} (all p > {LEVEL:g})"
    )


def _missed(found: Found) -> str:
    """Which method explains what our models do not, and what to do then; empty if there is none."""
    errors = _errors(found)
    best = min(errors, key=lambda name: errors[name], default="")
    share = 1 - errors[best] / found.mean_mse if errors else 0.0
    if share < max(found.explained, 0.0) + MISSED:
        return ""
    return (
        f"{best} explains {_percent(share)} of the variance of a hidden channel: train longer (more steps), or read "
        "that method's map"
    )


def _linear_predictors_miss(found: Found) -> bool:
    """Whether no linear predictor explains more than 1 - BLIND of the variance that our models explain."""
    others = 1 - min([found.linear_mse, *_errors(found).values()]) / found.mean_mse
    return found.explained > 0.1 and others < (1 - BLIND) * found.explained


def _unlearned(found: Found) -> list[str]:
    """That another method explains more, although our models have learned something."""
    missed = _missed(found) if found.found else ""
    return [f"These models have not learned all there is: {missed}."] if missed else []


def _errors(found: Found) -> dict[str, float]:
    """The held-out error of every other method that has one."""
    return {
        SAID[name]: method.scores["heldout_mse"] for name, method in found.others.items() if _has(method, "heldout_mse")
    }


def _certainty(found: Found) -> list[str]:
    """How far fits from other seeds and other halves of the data agree; empty if nothing was found."""
    if not np.isfinite(found.confidence).any():
        return ["A single model was trained, so that nothing can be said of how sure its map is."]
    if not found.found:
        return []
    if not found.placed.any():
        return ["No single channel surely has to do with the others: there is something, but no map to be trusted."]
    mean, count = found.mean_confidence, int(found.placed.sum())
    sure = int((np.triu(found.pairs, k=1) >= SURE).sum())
    lines = [
        f"Fits from other seeds and other halves of the samples put the channels in the same places with a mean "
        f"confidence of {mean:.2f} (0 = random, 1 = the same); {sure} {'pair' if sure == 1 else 'pairs'} of channels "
        f"are neighbours with a confidence of {_percent(SURE)} or more."
    ]
    if mean < UNSURE:
        lines.append("That is little: the models use what channels have in common, but do not agree on a map of them.")
    groups = found.count
    stability = found.stability.get(groups, float("nan"))
    if groups > 1 and np.isfinite(stability):
        lines.append(
            f"The {count} channels{' that have a place' if count < len(found.names) else ''} fall into {groups} "
            f"modules, with which those of a fit that had no part in them agree with an ARI of {stability:.2f} (0 = "
            "chance, 1 = the same)."
        )
    elif found.stability:
        lines.append("The fits agree on no division into modules.")
    return lines


def _unplaced(found: Found) -> list[str]:
    """The channels of which the others tell nothing."""
    rest = [name for name, placed in zip(found.names, found.placed, strict=True) if not placed]
    if not rest or not found.found:
        return []
    more = f" and {len(rest) - 8} more" if len(rest) > 8 else ""
    which, have = ("1 channel", "has") if len(rest) == 1 else (f"{len(rest)} channels", "have")
    return [
        f"{which} {have} no more to do with the others than chance may bring, in these {found.facts['test']:,} test "
        f"samples, and so no module and no place that can be trusted (grey on the map): {', '.join(rest[:8])}{more}."
    ]


def _best(found: Found) -> list[str]:
    """Which method did best on what was held out, and against what is known: ours or another."""
    methods = {"placecode": found.ours, **{SAID[name]: method for name, method in found.others.items()}}
    lines = []
    ways = (
        ("heldout_mse", "Lowest error on held-out samples", min, "{:.3f}"),
        ("procrustes_r2", "Map nearest to the known positions (Procrustes R2)", max, "{:.2f}"),
        ("neighbor_agreement", "Nearest channel is a true neighbour most often", max, "{:.2f}"),
        ("ari", "Modules nearest to the known groups (ARI)", max, "{:.2f}"),
    )
    for score, words, extreme, shape in ways:
        known = {name: method.scores[score] for name, method in methods.items() if _has(method, score)}
        if "placecode" not in known or len(known) < 2:
            continue
        best = extreme(known.values())
        first = [name for name, value in known.items() if shape.format(value) == shape.format(best)]
        rest = [f"{name} {shape.format(value)}" for name, value in known.items() if name not in first]
        beside = f"; {', '.join(rest)}" if rest else ""
        lines.append(f"{words}: {_listed(first)}, {shape.format(best)}{beside}.")
    for name, why in found.left_out.items():
        lines.append(f"{SAID[name]} was {why}.")
    return lines


def _has(method: Method, score: str) -> bool:
    return score in method.scores and method.scores[score] is not None and np.isfinite(method.scores[score])


def _sigma(found: Found) -> str:
    return f"{found.why[0].upper()}{found.why[1:]}"


def _care(found: Found) -> list[str]:
    """What to look at, and where to be careful."""
    if not found.found:
        return []
    order = np.argsort(found.confidence, kind="stable")
    weak = [found.names[i] for i in order if found.placed[i] and found.confidence[i] < STABLE][:5]
    facts = found.facts
    long = facts.get("piece", facts["samples"] // BLOCKS)
    slow = facts["memory"] > long / 4
    drift = (
        f"The channels remember their past for {facts['memory']} samples or more, which is long for blocks or "
        f"groups of {long}: slow drifts that channels share by chance may pass for structure, so take the "
        "p-value with caution; a longer recording, or the differences between samples, would tell."
    )
    line = "Look at the map first, then search a channel to see its neighbours and how sure they are"
    look = f"{line}; least sure of their place: {', '.join(weak)}." if weak else f"{line}."
    return [*([drift] if slow else []), look]


def _data(found: Found) -> str:
    facts = found.facts
    constant, diverged = facts["left out"], facts["diverged"]
    out = "; 1 channel that does not vary was left out" if constant == 1 else ""
    out = f"; {constant} channels that do not vary were left out" if constant > 1 else out
    lost = "; 1 model diverged and was left out" if diverged == 1 else ""
    lost = f"; {diverged} models diverged and were left out" if diverged > 1 else lost
    return (
        f"{facts['samples']:,} samples of {facts['channels']} channels: {facts['train']:,} to learn from, "
        f"{facts['test']:,} for the numbers above, the rest to choose sigma and gaps between blocks{out}{lost}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
