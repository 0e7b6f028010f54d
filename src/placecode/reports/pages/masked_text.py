"""Sentences in the reports of masked prediction: does training bring related channels together, how large are errors?

This module computes the numbers; the sentences are in templates/masked.j2 and templates/masked-verdicts.j2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from placecode.analysis.stats import interval
from placecode.experiments import experiment_of
from placecode.experiments.channels.masked import MaskedExperiment
from placecode.experiments.claims import NotInRun
from placecode.experiments.measures import MeasureKey
from placecode.experiments.reading import analysis_values, interval_over_worlds
from placecode.experiments.specs import format_setting, with_encoding_names
from placecode.reports import wording
from placecode.reports.figures.channels import final_errors
from placecode.reports.pages.base import counts
from placecode.reports.pages.interactive import Verdict, clipped
from placecode.runs.read import Run

MEASURES: tuple[MeasureKey, ...] = (
    ("neighbor_agreement", "labels"),
    ("mirror_agreement", "partner"),
    ("neighbor_agreement", "positions"),
)
"""Measures (analysis, target) that are shares of channels whose nearest channel in the PE is related to them."""
PAIRWISE = {
    "fc": "correlation",
    "mutual information": "mutual information",
    "partial correlation": "partial correlation",
}
"""Baselines that compare channels pair by pair, and how sentences name them."""


def verdicts(run: Run) -> list[Verdict]:
    """Return, for each measure that the run has, a verdict on whether training brought related channels together.

    The sentence says in how many settings the 95% interval of the gain (after minus before training) is above 0. The
    badge is "found" if that holds in all settings, "found in part" if in some, "not found" if in none, and "unsure" if
    no setting has an interval.
    """
    gains, kinds = [], []
    for measure, before, after, members in _measured(run, _labelled(run)):
        gained = members.assign(value=after - before).dropna(subset=["value"])
        lows = [
            interval_over_worlds(run, rows.set_index("seed")["value"]).low
            for _, rows in gained.groupby("label", sort=False)
        ]
        if not lows:
            continue
        above_zero, finite = sum(low > 0 for low in lows), sum(low == low for low in lows)
        in_all_or_some = "found" if above_zero == len(lows) else "found in part" if above_zero else "not found"
        kinds.append(in_all_or_some if finite else "unsure")
        gains.append({"measure": measure, "sure": above_zero, "settings": len(lows)})
    sentences = wording.sentences("masked-verdicts", gains=gains)
    return [Verdict(kind, sentence) for kind, sentence in zip(kinds, sentences, strict=True)]


def sections(run: Run) -> dict[str, list[str]]:
    """Return the sentences of templates/masked.j2 by the name of their section, such as "linear"."""
    members = _labelled(run)
    return wording.sections(
        "masked",
        settings=[_setting(run, str(name), rows) for name, rows in members.groupby("label", sort=False)],
        others=[_others(run, data) for data in dict.fromkeys(run.baselines["data"])],
        worlds=run.config["shape"]["worlds"],
        seeds=run.members["seed"].nunique(),
        ranges=_ranges(run, members),
        **counts(run),
    )


def with_settings(run: Run) -> pd.DataFrame:
    """Return the table of members with three more columns: `name`, the name of the encoding; `parts`, a list of pairs
    (name, value) of the swept settings other than encoding and sigma; and `setting`, the same list as text."""
    experiment = experiment_of(run)
    assert isinstance(experiment, MaskedExperiment)
    planned = experiment.members()
    parts = [experiment.parts(planned[number]) for number in run.members["member"]]
    settings = [", ".join(map(format_setting, row)) for row in parts]
    return with_encoding_names(run.members).assign(
        setting=settings, parts=pd.Series(parts, index=run.members.index, dtype=object)
    )


def _labelled(run: Run) -> pd.DataFrame:
    """Return the table of `with_settings` with a column `label`: the name of the encoding and the setting as text."""
    members = with_settings(run)
    rows = zip(members["name"], members["setting"], strict=True)
    return members.assign(label=[", ".join(filter(None, words)) for words in rows])


def _measured(run: Run, members: pd.DataFrame) -> Iterator[tuple[MeasureKey, pd.Series, pd.Series, pd.DataFrame]]:
    """Yield (measure, values before training, values after it, finished members) for each measure that the run has.

    `members` is a table of members. The values have one entry per finished member.
    """
    done = members[members["state"] == "done"]
    for measure in MEASURES:
        try:
            before, after = (done["member"].map(analysis_values(run, *measure, when)) for when in ("start", "end"))
        except NotInRun:
            continue
        yield measure, before, after, done


def _setting(run: Run, name: str, members: pd.DataFrame) -> dict[str, Any]:
    """Return what the template needs on one setting: its name, structure before and after training, and errors."""
    structure = []
    for measure, before, after, _ in _measured(run, members):
        if after.notna().any():
            final = clipped(interval(after))
            structure.append({"measure": measure, "before": before.dropna().to_numpy().mean(), "after": final})
    done = members.loc[members["state"] == "done", "member"]
    rows = final_errors(run.metrics)
    errors = rows[rows["member"].isin(done)].groupby("condition", sort=False)["value"].mean()
    return {"name": name, "finished": len(done) > 0, "structure": structure, "errors": errors}


def _others(run: Run, data: str) -> dict[str, Any]:
    """Return what the template needs on a data set: its description, the errors of linear prediction by condition, and
    the values of `PAIRWISE` baselines by measure."""
    rows = run.baselines[run.baselines["data"] == data]
    means = rows.groupby(["metric", "condition", "baseline"], sort=False)["value"].mean().dropna()
    pairwise = {
        measure: {text: means[*measure, name] for name, text in PAIRWISE.items() if (*measure, name) in means}
        for measure in MEASURES
    }
    linear = rows[(rows["baseline"] == "linear") & (rows["metric"] == "mse")]
    return {
        "data": experiment_of(run).describe_data(data),
        "linear": dict(linear.groupby("condition", sort=False)["value"].mean()),
        "pairwise": {measure: shares for measure, shares in pairwise.items() if shares},
    }


def _ranges(run: Run, members: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Return a dict with the lists "structure" and "errors". An entry has the lowest and the highest mean over seeds of
    one measure or test error, and the settings that have them."""
    one_encoding = members["name"].nunique() == 1 and (members["setting"] != "").all()
    label = "setting" if one_encoding else "label"  # do not repeat an encoding that all settings have in common

    def means(rows: pd.DataFrame, values: pd.Series) -> pd.Series:
        """Return the mean of `values` for each setting. Settings without values are left out."""
        return pd.Series(values.groupby(rows[label], sort=False).mean().dropna())

    def ends(values: pd.Series) -> dict[str, Any]:
        """Return the lowest and the highest value, and the settings that have them."""
        return {"low": values.min(), "lowest": values.idxmin(), "high": values.max(), "highest": values.idxmax()}

    structure = []
    for measure, before, after, done in _measured(run, members):
        if after.notna().any():
            earlier, later = 100 * means(done, before), means(done, after)
            span = (earlier.min(), earlier.max())
            structure.append({"measure": measure, "settings": len(later), "before": span, **ends(later)})
    done = members[members["state"] == "done"]
    errors = []
    for condition, rows in final_errors(run.metrics).groupby("condition", sort=False):
        by_setting = means(done, done["member"].map(rows.set_index("member")["value"]))
        linear = run.baselines[(run.baselines["baseline"] == "linear") & (run.baselines["condition"] == condition)]
        best = linear[linear["metric"] == "mse"].groupby("data", sort=False)["value"].mean()
        if len(by_setting):
            by_linear = (best.min(), best.max()) if len(best) else None
            errors.append({"condition": condition, "linear": by_linear, **ends(by_setting)})
    return {"structure": structure, "errors": errors}
