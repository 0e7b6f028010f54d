"""Compute the content of summary.json: means over seeds of metrics and analyses, for every setting of a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from placecode.analysis.alignment import ALL_BLOCKS
from placecode.encodings import lookup
from placecode.models.member import varied
from placecode.runs.read import MEASURE, STATISTICS
from placecode.runs.tables import spec_of


def summarize(
    experiment: str,
    members: pd.DataFrame,
    metrics: pd.DataFrame,
    analysis: pd.DataFrame,
    baselines: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Average metrics and analyses at the last step over members that differ only in their seed.

    Returns the content of summary.json: the name of the experiment, the last step and `rows`. A row has the encoding,
    sigma and other fields in which members of the run differ, then split, condition, metric, mean, std (ddof=1), n
    (number of averaged values) and diverged (number of diverged members, which are excluded from the mean). In rows of
    analyses, split is "analysis", condition the target, and metric the name of the analysis; only block -1 (all blocks)
    is included. In rows of baselines (other methods on the same data), the encoding is "baseline:NAME", and the mean is
    over worlds (realizations of the data, `Task.worlds`).
    """
    specs = [spec_of(row) for _, row in members.iterrows()]
    names = ["encoding", "sigma", *(name for name in varied(specs) if name not in ("encoding", "sigma"))]
    by_number = dict(zip(members["member"], specs, strict=True))
    donor_sigmas = [by_number[spec.donor].sigma if spec.donor in by_number else None for spec in specs]
    pairs = list(zip(specs, donor_sigmas, strict=True))
    if any(spec.donor in by_number and sigma != spec.sigma for spec, sigma in pairs):
        names.append("donor_sigma")  # otherwise it equals sigma
    setting_of = {}
    for number, (spec, sigma) in zip(members["member"], pairs, strict=True):
        values = {**spec.record(), **spec.options, "donor_sigma": sigma}
        values["sigma"] = spec.sigma if lookup(spec.encoding).uses_sigma else None
        setting_of[number] = json.dumps({name: values.get(name) for name in names})
    diverged = members.loc[members["state"] == "diverged", "member"]
    diverged_counts = Counter(setting_of[number] for number in diverged)

    measured = metrics[metrics["step"] == metrics["step"].max()]
    analysed = analysis[(analysis["step"] == analysis["step"].max()) & (analysis["block"] == ALL_BLOCKS)]
    analysed = analysed.assign(split="analysis", condition=analysed["target"].replace("", "all"))
    analysed = analysed.rename(columns={"analysis": "metric"})
    values = pd.concat([measured, analysed[list(measured.columns)]], ignore_index=True)
    values["setting"] = values["member"].map(setting_of)
    values["value"] = values["value"].mask(values["member"].isin(set(diverged)))  # NaN: not in the mean
    rows = []
    for (setting, split, condition, metric), group in values.groupby(["setting", *MEASURE], sort=False):
        row = {**json.loads(setting), "split": split, "condition": condition, "metric": metric}
        rows.append({**row, **_statistics(group["value"]), "diverged": diverged_counts[setting]})
    if baselines is not None:
        rows += _baseline_rows(baselines, names)
    return {"experiment": experiment, "step": int(metrics["step"].max()), "rows": rows}


def compact(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rows of a summary in a form that takes less space. `Run.summary` restores the rows.

    The result has three lists. `measures` has each combination of split, condition and metric once, and `settings` each
    combination of the fields of members, such as sigma. `values` has a list for each row: index in `settings`, index in
    `measures`, mean, std, n and diverged.
    """
    settings: dict[str, int] = {}
    measures: dict[str, int] = {}
    values = []
    for row in rows:
        setting = json.dumps({name: value for name, value in row.items() if name not in (*MEASURE, *STATISTICS)})
        measure = json.dumps({name: row[name] for name in MEASURE})
        indices = settings.setdefault(setting, len(settings)), measures.setdefault(measure, len(measures))
        values.append([*indices, *(row[name] for name in STATISTICS)])
    return {"settings": [*map(json.loads, settings)], "measures": [*map(json.loads, measures)], "values": values}


def _baseline_rows(baselines: pd.DataFrame, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield one row for each data set, baseline, split, condition and metric, with mean and standard deviation over
    worlds (the data of one seed each). `names` are the fields of members that the rows of other results have."""
    keys = ["data", "baseline", "split", "condition", "metric"]
    for (data, name, split, condition, metric), group in baselines.groupby(keys, sort=False):
        fields = {"encoding": f"baseline:{name}", "data": data}
        row = {field: fields.get(field) for field in names}
        row |= {"split": split, "condition": condition, "metric": metric}
        yield {**row, **_statistics(group["value"]), "diverged": 0}


def _statistics(values: pd.Series) -> dict[str, Any]:
    """Return mean, std and number (n) of the values that are not NaN. Mean and std are None for too few values."""
    finite = values.dropna()
    return {
        "mean": float(finite.mean()) if len(finite) else None,
        "std": float(finite.std(ddof=1)) if len(finite) > 1 else None,
        "n": len(finite),
    }
