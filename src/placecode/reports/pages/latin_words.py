"""The findings of the studies on Latin squares in plain sentences, which are true whatever a run shows."""

from __future__ import annotations

import numpy as np
import pandas as pd

from placecode.analysis.stats import interval
from placecode.experiments.reading import dials, final_accuracy, in_sweep, members_of, swept
from placecode.runs.read import Run

FITTED = 0.95
"""A model that has not reached this accuracy on its training puzzles has not learned them yet."""
GENERALIZES, MEMORIZES = 0.85, 0.5
"""OOD accuracy of a fitted model from which on it generalizes, and up to which it only memorizes."""


def of_sigmas(run: Run) -> list[str]:
    """What the run shows, in sentences that are true whatever it shows."""
    if not in_sweep(run).any():
        return ["The run holds references alone, and no member of the sweep over sigma.", *_lost(run)]
    table = final_accuracy(run, swept(run))
    lines = []
    for sigma in dict.fromkeys(dials(run)):
        lines.append(f"sigma = {sigma:g}: {_numbers(table[table['sigma'] == sigma])}")
    small, large = dials(run)
    pair = table[table["split"] == "ood"].pivot(index="seed", columns="sigma", values="value")
    if small != large and {small, large} <= set(pair.columns):
        mean, low, high = interval((pair[small] - pair[large]).to_numpy())
        bounds = f" (95% interval over seeds {low:.2f} to {high:.2f})" if np.isfinite(low) else ""
        if np.isfinite(mean):  # else no seed finished at both
            lines.append(f"OOD accuracy at sigma {small:g} minus that at sigma {large:g} is {mean:.2f}{bounds}.")
    return [*lines, *_lost(run)]


def _numbers(table: pd.DataFrame) -> str:
    """The accuracies of one setting and what they mean."""
    by_split = {split: group["value"].to_numpy() for split, group in table.groupby("split")}
    if not by_split:
        return "no member finished; all diverged."
    train, ood, count = by_split["train"].mean(), by_split["ood"].mean(), len(by_split["train"])
    numbers = f"train {train:.3f}, test {by_split['test'].mean():.3f}, ood {ood:.3f}"
    return f"{numbers} (mean of {count} seed{'s' if count > 1 else ''}). {verdict(train, ood)}"


def _lost(run: Run) -> list[str]:
    lost = int((run.members["state"] == "diverged").sum())
    return [f"{lost} of {len(run.members)} members diverged and are left out of the means."] if lost else []


def verdict(train: float, ood: float) -> str:
    """What a pair of accuracies means. Only a model that has fitted its training data can be said to memorize."""
    return {
        "unfitted": "It has not fitted its training puzzles yet, so it can be said neither to generalize nor to "
        "memorize.",
        "general": "It has fitted its training puzzles and generalizes to puzzles unlike them.",
        "part": "It has fitted its training puzzles and generalizes in part.",
        "rote": "It has fitted its training puzzles and fails on puzzles unlike them: it memorizes.",
    }[_kind(train, ood)]


def _kind(train: float, ood: float) -> str:
    if train < FITTED:
        return "unfitted"
    return "general" if ood >= GENERALIZES else "rote" if ood <= MEMORIZES else "part"


TOGETHER = {
    "general": "generalize to puzzles unlike their training puzzles",
    "part": "generalize in part",
    "rote": "memorize their training puzzles and fail on others",
    "unfitted": "have not fitted their training puzzles yet, so can be said neither to generalize nor to memorize",
    "lost": "have no member that finished; all diverged",
}


def of_encodings(run: Run) -> list[str]:
    """What the run shows of its encodings, those that did alike together, the most accurate first."""
    members = members_of(run)
    members = members.assign(name=members["label"])
    table = final_accuracy(run, members[members["state"] == "done"])
    means = table.groupby(["dropout", "name", "split"])["value"].mean()
    seeds = table[table["split"] == "ood"].groupby(["dropout", "name"]).size()
    lines = []
    for rate in sorted(members["dropout"].unique()):
        alike: dict[str, list[tuple[float, str]]] = {kind: [] for kind in TOGETHER}
        for name in dict.fromkeys(members.loc[members["dropout"] == rate, "name"]):
            if (rate, name) not in seeds:
                alike["lost"].append((0.0, name))
                continue
            own = means[rate, name]
            alike[_kind(own["train"], own["ood"])].append((-own["ood"], f"{name} ({own['ood']:.3f})"))
        start = f"With dropout {rate:g}" if rate else "Without dropout"
        for kind, words in TOGETHER.items():
            if alike[kind]:
                lines.append(f"{start}, these {words}: {'; '.join(text for _, text in sorted(alike[kind]))}.")
    if len(seeds):
        few, many = seeds.min(), seeds.max()
        count = f"{many} seed{'s' if many > 1 else ''}" if few == many else f"{few} to {many} seeds"
        lines.append(f"In brackets: OOD accuracy, mean of {count}.")
    return [*lines, *_lost(run)]
