"""Which figures a run of masked prediction shows, and what to look for in each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from placecode import figures
from placecode.analysis import modules
from placecode.runs import Run
from placecode.studies.base import Shown
from placecode.studies.latin_figures import run_name
from placecode.studies.specs import named

Measure = tuple[str, str]
SHOWN: dict[Measure, str] = {
    ("neighbor_agreement", "labels"): "nearest channel in same group",
    ("mirror_agreement", "partner"): "nearest region is the mirror",
    ("modularity", "labels"): "signed modularity Q",
    ("ari", "labels"): "adjusted Rand index",
    ("modularity", "best"): "Q of the best partition",
    ("fc_correlation", "fc"): "correlation with connectivity",
}
MOST = 3
"""Measures side by side."""
SETTINGS = ("data", "hidden", "optimizer", "learning_rate")
"""What else members of one sigma may differ in."""


def of_run(run: Run) -> list[Shown]:
    """By what the run varies: sigma alone, the encoding, or two settings at once."""
    members = named(run.members)
    more = [name for name in SETTINGS if name in members and members[name].nunique(dropna=False) > 1]
    if more:
        return _settings(run, members, more)
    if members["encoding"].nunique() > 1:
        return _encodings(run, members)
    return [*_sigmas(run, members), *_similarities(run)]


def measures_in(run: Run) -> list[Measure]:
    """The first measures of structure that the run has."""
    known = set(zip(run.analysis["analysis"], run.analysis["target"], strict=True))
    return [measure for measure in SHOWN if measure in known][:MOST]


def chance_of(run: Run) -> dict[Measure, float]:
    """What chance gives, where that is a number."""
    chance: dict[Measure, float] = {("ari", "labels"): 0.0, ("fc_correlation", "fc"): 0.0}
    task = run.config["task"]
    if task.get("labels") is not None:
        labels = pd.Series(task["labels"])
        sizes = labels[labels >= 0].map(labels.value_counts())
        chance["neighbor_agreement", "labels"] = float(((sizes - 1) / (len(labels) - 1)).mean())
    if "tokens" in task:
        chance["mirror_agreement", "partner"] = 1 / (task["tokens"] - 1)
    return chance


def _sigmas(run: Run, members: pd.DataFrame) -> list[Shown]:
    name, wanted = run_name(run), measures_in(run)
    best = run.config["task"].get("best_mse")
    shown = [
        Shown(
            "structure",
            "Structure of the PE against sigma",
            "Do channels that belong together lie together, and did training bring them there? Hollow: before "
            "training. Lines: what pairwise measures of the same data find without any model.",
            figures.structure_by_sigma(
                members, run.analysis, run.baselines, name, wanted, chance=chance_of(run), labels=SHOWN
            ),
        )
    ]
    shown += [
        Shown(
            "error",
            "Error against sigma",
            "Held-out error at the share of hidden channels that members were trained with, and at others. Lines: "
            "predictors that know nothing of transformers; the linear one is the best of its kind.",
            figures.error_by_sigma(members, run.metrics, run.baselines, name, best=best),
        ),
        Shown(
            "curves",
            "Learning curves",
            "A curve that still falls at the end has not settled.",
            figures.error_curves(members, run.metrics, name),
        ),
    ]
    return shown if wanted else shown[1:]


def _similarities(run: Run) -> list[Shown]:
    """PEs of one seed at several sigmas, channels sorted by group."""
    rows = run.members[(run.members["state"] == "done") & run.members["sigma"].notna()]
    rows = rows[rows["seed"] == rows["seed"].min()].sort_values("sigma")
    rows = rows[[run.has_array(f"pe_end/{number}") for number in rows["member"]]]
    if rows.empty:
        return []
    kept = rows.iloc[np.unique(np.linspace(0, len(rows) - 1, 4).round().astype(int))]
    maps = {
        f"{figures.SIGMA} = {sigma:g}": modules.similarities(run.array(f"pe_end/{number}").astype(np.float64))[-1]
        for number, sigma in zip(kept["member"], kept["sigma"], strict=True)
    }
    labels = run.config["task"].get("labels")
    found = modules.best_partition(next(iter(maps.values()))) if labels is None else np.array(labels)
    sorted_by = "groups that were found at the smallest sigma" if labels is None else "true groups"
    return [
        Shown(
            "similarity",
            "Similarity of PEs",
            f"Cosine similarity of the channels' PEs after training, sorted by {sorted_by}: do blocks appear as sigma "
            "falls?",
            figures.similarity_by_sigma(maps, found, run_name(run), note=f"seed {int(kept['seed'].iloc[0])}"),
        )
    ]


def _encodings(run: Run, members: pd.DataFrame) -> list[Shown]:
    return [
        Shown(
            "encodings",
            "Every encoding",
            "Held-out error and structure side by side: an encoding may predict well and show nothing.",
            figures.measure_by_name(
                members,
                run.analysis,
                run.metrics,
                run_name(run),
                measures_in(run)[:1],
                run.baselines,
                chance_of(run),
                SHOWN,
            ),
        )
    ]


def _settings(run: Run, members: pd.DataFrame, more: Sequence[str]) -> list[Shown]:
    """Sigma, or the share hidden at evaluation, against what else was varied."""
    name, shown = run_name(run), []
    words = ["; ".join(_worded(key, row[key]) for key in more) for row in members.to_dict("records")]
    members = members.assign(setting=words)
    last = run.metrics[(run.metrics["step"] == run.metrics["step"].max()) & (run.metrics["split"] == "test")]
    errors = last[["member", "condition", "value"]].merge(members[members["state"] == "done"], on="member")
    shown.append(
        Shown(
            "errors",
            "Held-out error",
            "Error by setting and sigma, a map for each share of hidden channels.",
            figures.heatmap_by_settings(
                errors, name, "setting", "sigma", "held-out error", {"sigma": figures.SIGMA}, "condition"
            ),
        )
    )
    for measure in measures_in(run)[:1]:
        rows = run.analysis[(run.analysis["step"] == run.analysis["step"].max()) & (run.analysis["block"] == -1)]
        rows = rows[(rows["analysis"] == measure[0]) & (rows["target"] == measure[1])]
        table = rows[["member", "value"]].merge(members[members["state"] == "done"], on="member")
        shown.append(
            Shown(
                "structure",
                SHOWN[measure].capitalize(),
                "Structure of the PE after training, by setting and sigma.",
                figures.heatmap_by_settings(table, name, "setting", "sigma", SHOWN[measure], {"sigma": figures.SIGMA}),
            )
        )
    return shown


def _worded(name: str, value: object) -> str:
    return str(value) if name in ("data", "optimizer") else f"{name.replace('_', ' ')} {value:g}"
