"""Write src/placecode/inspection/evidence.json, the evidence of `placecode recommend`, from the committed runs:

    python docs/pages/evidence.py && python docs/pages/recommendation.py

The file is a list of settings. A setting is one kind of model on one task, with its results at each sigma. To add a
run, add its name to RUNS. Every kind of member that was trained at three sigmas or more becomes a setting.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from templating import ROOT

from placecode.analysis.stats import Interval, interval
from placecode.experiments.claims import NotInRun
from placecode.experiments.reading import analysis_values, is_swept
from placecode.inspection.evidence import FILE
from placecode.models.member import NON_SETTING_COLUMNS
from placecode.runs.read import Run

RUNS = (
    "lst-sigma",
    "lst-sigma-drawn",
    "lst-frozen",
    "lst-optimizer",
    "lst-heads",
    "lst-depth",
    "lst-width",
    "lst-placement",
    "lst-data",
    "lst-size",
    "network-sigma",
    "network-sigma-50000",
    "network-sigma-window",
    "network-sigma-hidden-15",
    "network-sigma-hidden-90",
    "network-size-quick",
    "network-noise-quick",
    "synergy-sigma",
    "synergy-sigma-512",
    "synergy-optimizer-quick",
    "synergy-optimizer-quick-sgd",
    "pixels-sigma",
    "pixels-sigma-digits",
    "brain-sigma",
    "brain-sigma-50000",
    "brain-sigma-window",
    "brain-mask",
)
"""Sweeps over sigma with learned PEs. The run "demo" is left out, since its size was chosen by its results."""
MIN_SIGMAS = 3
"""Smallest number of sigmas of a setting."""
STRUCTURE = {
    ("neighbor_agreement", "labels"): "nearest channel in the same group",
    ("mirror_agreement", "partner"): "nearest region is the mirror region",
    ("neighbor_agreement", "positions"): "nearest pixel is next to it",
    ("neighbor_agreement", "relation"): "nearest cell in the same row or column",
}
"""Measures of how much of the true arrangement a PE shows, by (analysis, target). The first that a run has is used."""
IGNORED_COLUMNS = ("sigma", "encoding", "options", "start", "learn", *NON_SETTING_COLUMNS)
"""Columns of the table of members that do not distinguish settings."""
NAMED_FIELDS = ("data", "optimizer", "learning_rate", "width", "layers", "heads", "placement", "mask_ratio")
"""Fields in the name of a setting if they vary in its run. Others are only if their value is not the most common."""
EPSILON = 1e-8
"""The usual epsilon of Adam; members with another one are left out."""
RECORDED_FIELDS = ("width", "layers", "heads", "norm", "placement", "optimizer", "learning_rate", "batch")
"""Fields of the members that the evidence records."""


def evidence() -> str:
    """Return the text of the whole file, with one line per setting. Settings that two runs share are listed once."""
    records: list[dict[str, Any]] = []
    for name in RUNS:
        outcomes = [record["outcome"] for record in records]
        records += [record for record in settings(Run(ROOT / "results" / name)) if record["outcome"] not in outcomes]
    lines = ",\n".join(json.dumps(record, allow_nan=False, default=lambda number: number.item()) for record in records)
    return f'{{"settings": [\n{lines}\n]}}\n'


def settings(run: Run) -> Iterator[dict[str, Any]]:
    """Yield a record for each setting of a run that has enough sigmas."""
    members = run.members[is_swept(run) & run.members["learn"] & (run.members["start"] == "normal")]
    members = members[members["pe_learning_rate"].isna() & (members["epsilon"] == EPSILON)]  # usual settings only
    columns = [name for name in members.columns if name not in IGNORED_COLUMNS]
    varied = [name for name in columns if len(members[name].astype(str).unique()) > 1]
    names = distinguishing(members, varied)
    rare = {name: set(members[name]) - set(members[name].mode(dropna=False)) for name in names}
    for _, rows in members.groupby(varied or "learn", sort=False, dropna=False):  # "learn" is true of all: one group
        if rows["sigma"].nunique() < MIN_SIGMAS:
            continue
        first = rows.iloc[0]
        shape = run.config.get("shapes", {}).get(first.get("data", ""), run.config["shape"])
        steps = run.metrics[run.metrics["member"].isin(rows["member"])]["step"].max()
        yield {
            "run": run.path.name,
            "variant": ", ".join(
                str(first[name]) if name == "data" else f"{name.replace('_', ' ')} {first[name]}"
                for name in names
                if name in NAMED_FIELDS or first[name] in rare[name]
            ),
            "task": run.config["task"]["task"],
            "tokens": shape["tokens"],
            **{name: first[name] for name in RECORDED_FIELDS},
            "steps": int(steps),
            "outcome": outcome(run, rows, shape),
            "structure": structure(run, rows, shape),
        }


def distinguishing(members: pd.DataFrame, varied: list[str]) -> list[str]:
    """Return the `varied` fields that together distinguish all settings, without those that follow from the others."""
    names = list(varied)
    for name in reversed(varied):
        others = [other for other in names if other != name]
        if others and len(members[others].drop_duplicates()) == len(members[varied].drop_duplicates()):
            names = others
    return names


def outcome(run: Run, rows: pd.DataFrame, shape: dict[str, Any]) -> dict[str, Any]:
    """Return the record of the main outcome by sigma: held-out (OOD) accuracy or, for channels, test error.

    The error is that with as many channels hidden as in training. It is 1 if the mean is predicted.
    """
    values = run.metrics[run.metrics["member"].isin(rows["member"])]
    values = values[values["step"] == values["step"].max()].set_index("member")
    accuracies = values.query("metric == 'accuracy' and condition == 'all' and split == 'ood'")["value"]
    if len(accuracies):
        return curve("held-out accuracy", 1, 1 / shape["outputs"], rows, accuracies, shape)
    errors = values[values["condition"] == f"hidden {rows['mask_ratio'].iloc[0]:g}"]
    return curve("test error", -1, 1.0, rows, errors.query("metric == 'mse' and split == 'test'")["value"], shape)


def structure(run: Run, rows: pd.DataFrame, shape: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record of how much of the true arrangement PEs show, by sigma; None if the run has no such measure.

    The PEs before training give the value of a model that has learned nothing.
    """
    for measure, words in STRUCTURE.items():
        with contextlib.suppress(NotInRun):
            before, after = (analysis_values(run, *measure, when) for when in ("start", "end"))
            return curve(words, 1, float(before.reindex(rows["member"]).mean()), rows, after, shape)
    return None


def curve(
    name: str, sign: int, null_outcome: float, rows: pd.DataFrame, values: pd.Series, shape: dict[str, Any]
) -> dict[str, Any]:
    """Return the record of one outcome by sigma, as `Curve` reads it. `values` are by member; `rows` are the members.

    `sign` is 1 if high values are good and -1 if low ones are. `null_outcome` is the value of a model that has learned
    nothing. Members that diverged get this value.
    """
    outcomes = rows["member"].map(values).where(rows["state"] == "done", null_outcome)
    table = rows.assign(value=outcomes).pivot(index="sigma", columns="seed", values="value")
    means = sign * table.mean(axis="columns")
    best = table.loc[means.idxmax()]
    diverged = rows[rows["state"] != "done"]["sigma"].value_counts()
    points = [
        {
            "sigma": float(str(sigma)),
            "outcome_interval": rounded(world_interval(by_seed, shape)),
            "gap_interval": rounded(world_interval(sign * (best - by_seed), shape)),
            "n": int(by_seed.notna().sum()),
            "diverged": int(diverged.get(sigma, 0)),
        }
        for sigma, by_seed in table.iterrows()
    ]
    return {"name": name, "sign": sign, "null_outcome": rounded([null_outcome])[0], "points": points}


def world_interval(values: pd.Series, shape: dict[str, Any]) -> Interval:
    """Return the mean of values by seed with its interval. Seeds that share a world (one simulated data set, or one
    split of the people) are averaged first, as for claims."""
    worlds = shape.get("worlds", 1)
    by_seed = values.dropna()
    by_world = by_seed.groupby(by_seed.index.to_numpy() % worlds).mean() if worlds > 1 else by_seed
    return interval(by_world)


def rounded(values: Iterable[float]) -> list[float | None]:
    """Return numbers with five decimals for JSON, with None for NaN and without negative zeros."""
    return [None if math.isnan(value) else round(value, 5) + 0.0 for value in values]


if __name__ == "__main__":
    FILE.write_text(evidence())
    print(FILE)
