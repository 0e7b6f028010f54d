"""Means over seeds of every setting of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from placecode.encodings import lookup
from placecode.models.member import varied
from placecode.runs.read import spec_of


def summarize(
    study: str,
    members: pd.DataFrame,
    metrics: pd.DataFrame,
    analysis: pd.DataFrame,
    baselines: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Summarize the metrics and analyses at the final step for each kind of member.

    Members of one kind differ in their seed only. Members that diverged are counted and excluded from the means. A
    baseline appears as the encoding "baseline:NAME"; its mean is over worlds. Returns the content of summary.json. Its
    rows have the fields of the kind of member, split, condition, metric, mean, std (ddof=1), n (number of seeds) and
    diverged (number of diverged members).
    """
    specs = [spec_of(row) for _, row in members.iterrows()]
    names = ["encoding", "sigma", *(name for name in varied(specs) if name not in ("encoding", "sigma"))]
    by_number = dict(zip(members["member"], specs, strict=True))
    origin_sigmas = [by_number[spec.origin].sigma if spec.origin in by_number else None for spec in specs]
    pairs = list(zip(specs, origin_sigmas, strict=True))
    if any(spec.origin in by_number and sigma != spec.sigma for spec, sigma in pairs):
        names.append("origin_sigma")  # otherwise it equals sigma
    kinds = []
    for spec, sigma in pairs:
        values = {**spec.record(), **spec.options, "origin_sigma": sigma}
        values["sigma"] = spec.sigma if lookup(spec.encoding).uses_sigma else None
        kinds.append({name: values.get(name) for name in names})
    kind_of = {number: json.dumps(kind) for number, kind in zip(members["member"], kinds, strict=True)}
    diverged = members.loc[members["state"] == "diverged", "member"]
    diverged_counts = pd.Series([kind_of[number] for number in diverged], dtype=object).value_counts()

    measured = metrics[metrics["step"] == metrics["step"].max()]
    analysed = analysis[(analysis["step"] == analysis["step"].max()) & (analysis["block"] == -1)]
    analysed = analysed.assign(split="analysis", condition=analysed["target"].replace("", "all"))
    analysed = analysed.rename(columns={"analysis": "metric"})
    values = pd.concat([measured, analysed[list(measured.columns)]], ignore_index=True)
    values = values.assign(kind=values["member"].map(kind_of))
    alive = ~values["member"].isin(set(diverged))
    rows = []
    for (kind, split, condition, metric), group in values.groupby(["kind", "split", "condition", "metric"], sort=False):
        row = {**json.loads(kind), "split": split, "condition": condition, "metric": metric}
        statistics = _statistics(group.loc[alive[group.index], "value"])
        rows.append({**row, **statistics, "diverged": int(diverged_counts.get(kind, 0))})
    if baselines is not None:
        rows += _baseline_rows(baselines, names)
    return {"study": study, "step": int(metrics["step"].max()), "rows": rows}


def _baseline_rows(baselines: pd.DataFrame, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Summarize baselines over worlds, with the same fields as the rows of members."""
    keys = ["data", "baseline", "split", "condition", "metric"]
    for (data, name, split, condition, metric), group in baselines.groupby(keys, sort=False):
        fields = {"encoding": f"baseline:{name}", "data": data}
        row = {
            **{field: fields.get(field) for field in names},
            "split": split,
            "condition": condition,
            "metric": metric,
        }
        yield {**row, **_statistics(group["value"]), "diverged": 0}


def _statistics(values: pd.Series) -> dict[str, Any]:
    finite = values.dropna()
    return {
        "mean": float(finite.mean()) if len(finite) else None,
        "std": float(finite.std(ddof=1)) if len(finite) > 1 else None,
        "n": len(finite),
    }
