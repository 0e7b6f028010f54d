"""Writes src/placecode/inspection/evidence.json, the evidence of `placecode recommend`, from the committed runs:

    python docs/pages/evidence.py && python docs/pages/recommendation.py

To add a run, add its name to RUNS. Every kind of member that was trained at three sigmas or more becomes a setting.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from placecode.analysis.stats import Interval, interval
from placecode.experiments.reading import in_sweep
from placecode.inspection.evidence import FILE
from placecode.models.member import AUXILIARY
from placecode.runs.read import Run

ROOT = Path(__file__).parents[2]
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
"""Sweeps over sigma with learned PEs. The demo is left out: its scale was chosen on its own results."""
LEAST_SIGMAS = 3
STRUCTURE = {
    ("neighbor_agreement", "labels"): "nearest channel in the same group",
    ("mirror_agreement", "partner"): "nearest region is the mirror region",
    ("neighbor_agreement", "positions"): "nearest pixel is next to it",
    ("neighbor_agreement", "relation"): "nearest cell in the same row or column",
}
"""Measures of what a PE shows of the true arrangement: analysis, target and description. The first in a run counts."""
NOT_SPEC = ("sigma", "encoding", "options", "start", "learn", *AUXILIARY)
"""Columns that do not distinguish the settings of a sweep."""
MAIN = ("data", "optimizer", "learning_rate", "width", "layers", "heads", "placement", "hidden")
"""Fields in the name of a setting wherever they differ between settings; others only where their value is unusual."""
EPSILON = 1e-8
KEPT = ("width", "layers", "heads", "norm", "placement", "optimizer", "learning_rate", "batch")


def evidence(root: Path = ROOT) -> str:
    """The whole file, one line per setting. Members that two runs share (one of sizes, one of noise) count once."""
    records: list[dict[str, Any]] = []
    for name in RUNS:
        known = [record["outcome"] for record in records]
        records += [record for record in settings(Run(root / "results" / name)) if record["outcome"] not in known]
    lines = ",\n".join(json.dumps(record, allow_nan=False) for record in records)
    return f'{{"settings": [\n{lines}\n]}}\n'


def settings(run: Run) -> Iterator[dict[str, Any]]:
    """The settings of a run as records."""
    members = run.members[in_sweep(run) & run.members["learn"] & (run.members["start"] == "normal")]
    members = members[members["pe_learning_rate"].isna() & (members["epsilon"] == EPSILON)]  # as nearly everyone trains
    columns = [name for name in members.columns if name not in NOT_SPEC]
    varied = [name for name in columns if len(members[name].astype(str).unique()) > 1]
    names = needed(members, varied)
    rare = {name: set(members[name]) - set(members[name].mode(dropna=False)) for name in names}
    for _, rows in members.groupby(varied, sort=False, dropna=False) if varied else [((), members)]:
        if rows["sigma"].nunique() < LEAST_SIGMAS:
            continue
        first = rows.iloc[0]
        shape = run.config.get("shapes", {}).get(first.get("data", ""), run.config["shape"])
        steps = run.metrics[run.metrics["member"].isin(rows["member"])]["step"].max()
        yield {
            "run": run.path.name,
            "variant": ", ".join(
                _named(name, first[name]) for name in names if name in MAIN or first[name] in rare[name]
            ),
            "task": run.config["task"]["task"],
            "tokens": shape["tokens"],
            **{name: _plain(first[name]) for name in KEPT},
            "steps": int(steps),
            "outcome": outcome(run, rows, shape),
            "structure": structure(run, rows, shape),
        }


def needed(members: pd.DataFrame, varied: list[str]) -> list[str]:
    """The fields that distinguish all settings. Later ones are dropped where they follow from the others, as the
    weight decay does from the optimizer."""
    kept = list(varied)
    for name in reversed(varied):
        others = [other for other in kept if other != name]
        if others and len(members[others].drop_duplicates()) == len(members[varied].drop_duplicates()):
            kept = others
    return kept


def _named(name: str, value: Any) -> str:
    return str(value) if name == "data" else f"{name.replace('_', ' ')} {_plain(value)}"


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def outcome(run: Run, rows: pd.DataFrame, shape: dict[str, Any]) -> dict[str, Any]:
    """Held-out accuracy; or the test error with as many hidden as in training, where predicting the mean gives 1."""
    values = run.metrics[run.metrics["member"].isin(rows["member"])]
    values = values[values["step"] == values["step"].max()]
    right = values[(values["metric"] == "accuracy") & (values["condition"] == "all") & (values["split"] == "ood")]
    if len(right):
        found = right.set_index("member")["value"]
        return curve("held-out accuracy", 1, 1 / shape["outputs"], rows, found, shape)
    condition = f"hidden {rows['hidden'].iloc[0]:g}"
    errors = values[(values["metric"] == "mse") & (values["condition"] == condition) & (values["split"] == "test")]
    return curve("test error", -1, 1.0, rows, errors.set_index("member")["value"], shape)


def structure(run: Run, rows: pd.DataFrame, shape: dict[str, Any]) -> dict[str, Any] | None:
    """What PEs show of the true arrangement after training, with what they show before it as chance."""
    table = run.analysis[run.analysis["member"].isin(rows["member"]) & (run.analysis["block"] == -1)]
    for (analysis, target), words in STRUCTURE.items():
        measures = table[(table["analysis"] == analysis) & (table["target"] == target)]
        before, after = (
            measures[measures["step"] == step].set_index("member")["value"] for step in (0, measures["step"].max())
        )
        if len(measures):
            return curve(words, 1, float(before.mean()), rows, after, shape)
    return None


def curve(
    name: str, sign: int, nothing: float, rows: pd.DataFrame, values: pd.Series, shape: dict[str, Any]
) -> dict[str, Any]:
    """An outcome by sigma. Members that diverged count as having learned nothing."""
    found = rows["member"].map(values).where(rows["state"] == "done", nothing)
    table = rows.assign(value=found).pivot(index="sigma", columns="seed", values="value")
    means = sign * table.mean(axis="columns")
    best = table.loc[means.idxmax()]
    lost = rows[rows["state"] != "done"]["sigma"].value_counts()
    points = [
        {
            "sigma": float(str(sigma)),
            "found": _rounded(over(by_seed, shape)),
            "behind": _rounded(over(sign * (best - by_seed), shape)),
            "n": int(by_seed.notna().sum()),
            "diverged": int(lost.get(sigma, 0)),
        }
        for sigma, by_seed in table.iterrows()
    ]
    return {"name": name, "sign": sign, "nothing": _round(nothing), "points": points}


def over(values: pd.Series, shape: dict[str, Any]) -> Interval:
    """The mean with its interval over seeds; seeds of one world are averaged first, as claims do."""
    worlds = shape.get("worlds", 1)
    kept = values.dropna()
    if worlds > 1:
        kept = kept.groupby(kept.index.to_numpy() % worlds).mean()
    return interval(kept.to_numpy())


def _rounded(found: Interval) -> list[float | None]:
    return [None if math.isnan(value) else _round(value) for value in found]


def _round(value: float) -> float:
    return round(value, 5) + 0.0  # no negative zero


if __name__ == "__main__":
    FILE.write_text(evidence())
    print(FILE)
