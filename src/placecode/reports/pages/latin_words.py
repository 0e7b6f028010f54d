"""Sentences in the reports of lst-sigma and lst-encodings: do models generalize, memorize or fail to fit?

This module computes the numbers; the sentences are in templates/lst-sigma.j2 and templates/lst-encodings.j2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from placecode.analysis.stats import interval
from placecode.experiments.reading import contrast_sigmas, final_accuracy, is_swept, members_of, sweep_members
from placecode.experiments.specs import with_encoding_names
from placecode.reports import wording
from placecode.reports.pages.base import counts
from placecode.runs.read import Run

FITTED = 0.95
"""Accuracy on training puzzles from which on a model counts as having learned them."""
GENERALIZES, MEMORIZES = 0.85, 0.5
"""OOD accuracies of a fitted model: it generalizes from the first on, and only memorizes up to the second."""
LINE_STYLES = ("generalizes", "partly", "memorizes", "not fitted", "diverged")
"""What models have learned, from best to worst."""


def of_sigmas(run: Run) -> list[str]:
    """Return sentences on accuracy at the small and the large sigma, what it means, and the difference between them."""
    settings: list[dict[str, Any]] = []
    small = large = difference = None
    if is_swept(run).any():
        table = final_accuracy(run, sweep_members(run))
        small, large = contrast_sigmas(run)
        for sigma in dict.fromkeys((small, large)):
            means = table[table["sigma"] == sigma].groupby("split")["value"].mean()
            seeds = int(((table["sigma"] == sigma) & (table["split"] == "train")).sum())
            kind = kind_of(means["train"], means["ood"]) if seeds else "diverged"
            settings.append({"sigma": sigma, "kind": kind, "seeds": seeds, **means})
        by_seed = table[table["split"] == "ood"].pivot(index="seed", columns="sigma", values="value")
        if small != large and {small, large} <= set(by_seed.columns):
            paired = interval((by_seed[small] - by_seed[large]).to_numpy())
            difference = paired if np.isfinite(paired.mean) else None  # NaN if no seed finished at both
    return wording.sentences(
        "lst-sigma", settings=settings, small=small, large=large, difference=difference, **counts(run)
    )


def kind_of(train: float, ood: float) -> str:
    """Return which of LINE_STYLES a pair of accuracies means. Only a fitted model can generalize or memorize."""
    if train < FITTED:
        return "not fitted"
    return "generalizes" if ood >= GENERALIZES else "memorizes" if ood <= MEMORIZES else "partly"


def of_encodings(run: Run) -> list[str]:
    """Return sentences that list the encodings by dropout and by what they learned, the most accurate first."""
    members = with_encoding_names(members_of(run))
    table = final_accuracy(run, members[members["state"] == "done"])
    means = table.groupby(["dropout", "name", "split"])["value"].mean()
    seeds = table[table["split"] == "ood"].groupby(["dropout", "name"]).size()
    groups = []
    for rate in sorted(members["dropout"].unique()):
        by_kind: dict[str, list[tuple[str, float | None]]] = {kind: [] for kind in LINE_STYLES}
        for name in dict.fromkeys(members.loc[members["dropout"] == rate, "name"]):
            if (rate, name) in seeds:
                ood = float(means[rate, name, "ood"])
                by_kind[kind_of(means[rate, name, "train"], ood)].append((name, ood))
            else:
                by_kind["diverged"].append((name, None))
        for kind, encodings in by_kind.items():
            if encodings:
                ordered = sorted(encodings, key=lambda pair: (-(pair[1] or 0.0), pair[0]))
                groups.append({"dropout": rate, "kind": kind, "encodings": ordered})
    fewest, most = (int(seeds.min()), int(seeds.max())) if len(seeds) else (0, 0)
    return wording.sentences("lst-encodings", groups=groups, fewest_seeds=fewest, most_seeds=most, **counts(run))
