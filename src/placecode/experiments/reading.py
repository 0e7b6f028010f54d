"""Read values of a finished run for claims and figures, and compare them.

The effect that a claim is about is computed in three steps. `accuracy`, `analysis_values` and similar functions return
a value of each member (model). `select`, `at_sigma` and `mean_over_sigmas` return the values of some members, as a
series indexed by seed. For channels, `interval_over_worlds` turns such a series, or the difference of two, into a mean
with its interval over data sets (called worlds). For Latin squares, `difference` in `latin/effects.py` returns the mean
difference of two series with its interval over seeds.

>>> values = accuracy(run)
>>> gain = at_sigma(run, values, 0.2) - at_sigma(run, values, 2.0)
>>> interval_over_worlds(run, gain)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from placecode.analysis import stats
from placecode.analysis.alignment import ALL_BLOCKS
from placecode.analysis.places import neighbors_in_space
from placecode.analysis.stats import Interval
from placecode.experiments.claims import NotInRun
from placecode.experiments.measures import MeasureKey
from placecode.experiments.specs import encoding_label, parse_encoding, with_encoding_names
from placecode.runs.read import Run
from placecode.runs.tables import set_roles_and_labels

Columns = Mapping[str, Any]
"""Column values that select members, such as {"heads": 4}, by the name of the column in the table of members."""
ValuesFunction = Callable[[Run], pd.Series]
"""A function that returns a value of each member of a run, such as its accuracy, indexed by member."""
LAST_QUARTER = 0.75
"""Fraction of the training after which its last quarter begins."""
MAX_SETTLED_CHANGE = 0.02
"""If a mean accuracy changes by at most this late in training, it counts as settled."""


def members_of(run: Run) -> pd.DataFrame:
    """Return the table of the members of a run, with the columns role and label. Older runs lack them. There, they are
    taken from the members of the experiment, which are in the same order."""
    if "label" not in run.members:
        from placecode.experiments import experiment_of

        set_roles_and_labels(run.members, experiment_of(run).members())
    return run.members


def finished_members(run: Run) -> pd.DataFrame:
    """Return the table of the members of a run that finished, that is, did not diverge."""
    members = members_of(run)
    rows: pd.DataFrame = members[members["state"] == "done"]
    return rows


def is_swept(run: Run) -> pd.Series:
    """Return whether each member of a run belongs to its sweep over sigma, as a boolean column. Members with the role
    reference, donor or control do not, nor do members whose encoding is not the setting `encoding` of the run."""
    members = members_of(run)
    swept = (members["role"] == "swept") & members["sigma"].notna()
    return pd.Series(swept & (members["encoding"] == run.config["fields"].get("encoding", "learned")))


def sweep_members(run: Run) -> pd.DataFrame:
    """Return the table of the members of the sweep over sigma that did not diverge."""
    members: pd.DataFrame = finished_members(run)
    return members[is_swept(run).loc[members.index]]


def _accuracies(run: Run) -> pd.DataFrame:
    """Return the rows of the metrics table with the accuracy over all examples, for all steps and splits."""
    rows: pd.DataFrame = run.metrics[(run.metrics["metric"] == "accuracy") & (run.metrics["condition"] == "all")]
    return rows


def accuracy(run: Run, split: str = "ood", step: int | None = None) -> pd.Series:
    """Return the accuracy on a split, indexed by member, at `step` (None: the last step). Raise NotInRun if the run
    does not have it."""
    rows = _accuracies(run)
    rows = rows[(rows["split"] == split) & (rows["step"] == (rows["step"].max() if step is None else step))]
    if rows.empty:
        raise NotInRun(f"the run has no {split} accuracy" + ("" if step is None else f" at step {step}"))
    return rows.set_index("member")["value"]


def first_epoch(run: Run, level: float, split: str = "train") -> pd.Series:
    """Return the epoch at which each member first reaches the accuracy `level` on a split, indexed by member.

    Epochs between evaluations are interpolated linearly. A member that never reaches the level gets the last epoch.
    """
    rows = _accuracies(run)
    rows = rows[rows["split"] == split]
    if rows.empty:
        raise NotInRun(f"the run has no {split} accuracy")
    table = rows.pivot(index="member", columns="step", values="value").sort_index(axis="columns")
    steps = table.columns.to_numpy(dtype=float)
    reached = [_crossing(steps, values, level) for values in table.to_numpy(dtype=float)]
    epochs = np.array(reached) * run.config["fields"]["epochs"] / steps[-1]
    return pd.Series(epochs, index=table.index)


def _crossing(steps: np.ndarray, values: np.ndarray, level: float) -> float:
    """Return the step at which `values` first reach `level`, interpolated linearly; the last step if they never do."""
    above = np.flatnonzero(values >= level)
    if len(above) == 0 or above[0] == 0:
        return float(steps[-1] if len(above) == 0 else steps[0])
    after, before = above[0], above[0] - 1
    weight = (level - values[before]) / (values[after] - values[before])
    return float(steps[before] + weight * (steps[after] - steps[before]))


def analysis_values(run: Run, analysis: str, target: str, when: str = "end", block: int = ALL_BLOCKS) -> pd.Series:
    """Return the values of the analysis table with this analysis, target and block, indexed by member. They are from
    before (`when` is "start") or after training ("end"). Raise NotInRun if the run does not have them."""
    rows = run.analysis[(run.analysis["analysis"] == analysis) & (run.analysis["target"] == target)]
    rows = rows[(rows["block"] == block) & (rows["step"] == (0 if when == "start" else run.analysis["step"].max()))]
    if rows.empty:
        raise NotInRun(f"the run has no {analysis} ({target})")
    return rows.set_index("member")["value"]


def analysis_gain(run: Run, analysis: str, target: str) -> pd.Series:
    """Return `analysis_values` after training minus those before training, indexed by member."""
    return analysis_values(run, analysis, target) - analysis_values(run, analysis, target, "start")


def by_sigma(run: Run, values: pd.Series) -> pd.DataFrame:
    """Return the values of the members of the sweep over sigma as a table (sigmas, seeds). `values` is indexed by
    member."""
    rows = sweep_members(run).assign(value=lambda table: table["member"].map(values))
    return rows.pivot(index="sigma", columns="seed", values="value")


def at_sigma(run: Run, values: pd.Series, sigma: float) -> pd.Series:
    """Return the values of the members with this sigma, indexed by seed. `values` is indexed by member. Raise NotInRun
    if the run does not have this sigma."""
    table = by_sigma(run, values)
    if sigma not in table.index:
        raise NotInRun(f"the run has no finished members with sigma {sigma:g}")
    return pd.Series(table.loc[sigma])


def select(run: Run, values: pd.Series, which: str = "members", **columns: Any) -> pd.Series:
    """Return the values of the finished members with these column values, indexed by seed.

    `values` is indexed by member. `columns` selects the members: sigma=0.2 selects those with 0.2 in the column sigma,
    sigma=None those without a sigma, and name="2d-fixed" those whose encoding has this name in figures. If there are
    none, raise NotInRun. Its message is "the run has no finished", followed by `which`.
    """
    rows = _with_columns(finished_members(run), columns)
    if rows.empty:
        raise NotInRun(f"the run has no finished {which}")
    return rows.set_index("seed")["member"].map(values).sort_index()


def _with_columns(rows: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Return the rows of a table of members that have these column values. None stands for a missing value. The column
    `name` is the name of the encoding in figures."""
    if "name" in columns:
        rows = with_encoding_names(rows)
    for name, value in columns.items():
        rows = rows[rows[name].isna() if value is None else rows[name] == value]
    return rows


def encoding_accuracy(run: Run, text: str, dropout: float, split: str = "ood") -> pd.Series:
    """Return the final accuracy, by seed, of the members with this dropout and with the encoding `text`, such as
    "sinusoid:axes=2". Raise NotInRun if there are none."""
    name = encoding_label(**parse_encoding(text))
    return select(run, accuracy(run, split), f"members {text} with dropout {dropout:g}", name=name, dropout=dropout)


def mean_over_sigmas(run: Run, values: pd.Series, sigmas: Sequence[float] | None = None, **columns: Any) -> pd.Series:
    """Return the mean over sigmas of the values of some members of the sweep, indexed by seed.

    `values` is indexed by member. `columns` selects the members, as in `select`. The mean is over those of `sigmas`
    that the run sweeps (None: over all that it sweeps). Seeds that lack a finished member at one of these sigmas are
    left out. Raise NotInRun if one of these sigmas has no finished members.
    """
    rows = _with_columns(sweep_members(run), columns)
    selected = swept_sigmas(run, run.config["fields"]["sigmas"] if sigmas is None else sigmas)
    table = by_seed(rows.assign(value=rows["member"].map(values)))
    if missing := [sigma for sigma in selected if sigma not in table.columns]:
        words = ", ".join(f"{name.replace('_', ' ')} {'not set' if v is None else v}" for name, v in columns.items())
        selection = f" and {words}" if words else ""
        raise NotInRun(f"the run has no finished members with sigma {missing[0]:g}{selection}")
    return pd.Series(table[selected].dropna().mean(axis="columns"))


def by_seed(rows: pd.DataFrame) -> pd.DataFrame:
    """Average the column `value` over the rows with the same seed and sigma, and return a table (seeds, sigmas)."""
    return rows.dropna(subset=["value"]).groupby(["seed", "sigma"])["value"].mean().unstack("sigma")


def swept_sigmas(run: Run, sigmas: Sequence[float]) -> list[float]:
    """Return those of `sigmas` that the run sweeps (small runs sweep fewer). If it sweeps none of them, return
    `sigmas`."""
    return [sigma for sigma in sigmas if sigma in run.config["fields"]["sigmas"]] or list(sigmas)


def first_quarter(epochs: int) -> int:
    """Return the number of the epoch that ends the first quarter of the training."""
    return max(1, round(epochs / 4))


def early_accuracy(run: Run) -> pd.Series:
    """Return the OOD accuracy after the first quarter of the training, by member."""
    epochs, last = run.config["fields"]["epochs"], int(run.metrics["step"].max())
    return accuracy(run, step=last // epochs * first_quarter(epochs))


def late_change(run: Run, split: str = "ood") -> pd.Series:
    """Return the change of the accuracy on a split in the last quarter of the training, by member."""
    steps = run.metrics["step"].unique()
    before = steps[steps <= LAST_QUARTER * steps.max()].max()
    return accuracy(run, split) - accuracy(run, split, int(before))


def final_accuracy(run: Run, members: pd.DataFrame) -> pd.DataFrame:
    """Return a table with a row for each of these members and each split. It has the columns of `members`, `split`, and
    `value`, the accuracy at the last step."""
    rows = _accuracies(run)
    rows = rows[rows["step"] == run.metrics["step"].max()]
    joined: pd.DataFrame = rows[["member", "split", "value"]].merge(members, on="member")
    return joined


def measure_and_accuracy(run: Run, analysis: str, target: str, when: str = "end") -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two tables (sigmas, seeds): the values of an analysis before or after training (`when` is "start" or
    "end"), and the final OOD accuracy. Raise NotInRun if some sigmas lack the analysis."""
    values, accuracies = by_sigma(run, analysis_values(run, analysis, target, when)), by_sigma(run, accuracy(run))
    if not (values.isna() | accuracies.isna()).all(axis="columns").equals(accuracies.isna().all(axis="columns")):
        raise NotInRun(f"the run has {analysis} ({target}) of a part of its sigmas only")  # in a run merged from parts
    return values, accuracies


def interval_over_worlds(run: Run, values: pd.Series) -> Interval:
    """Return the mean of `values`, which is indexed by seed, with its interval over worlds. A world is a data set: a
    simulated one, or one split of the people. Seed s uses world s modulo the number of worlds. Seeds of one world are
    averaged first. With a single world, the interval is over seeds."""
    finished, worlds = values.dropna(), run.config["shape"]["worlds"]
    if finished.empty:
        raise NotInRun("the run has no seed that finished at all that is compared")
    if worlds > 1:
        finished = finished.groupby(finished.index.to_numpy() % worlds).mean()
    return stats.interval(finished)


def interval_at_sigma(run: Run, values: pd.Series, sigma: float) -> Interval:
    """Return the mean of `values`, indexed by member, over the members with one sigma. The interval is that of
    `interval_over_worlds`."""
    return interval_over_worlds(run, at_sigma(run, values, sigma))


def sigma_difference(run: Run, values: pd.Series, a: float, b: float) -> Interval:
    """Return the mean of `values`, indexed by member, at sigma `a` minus the mean at sigma `b`. The interval is that of
    `interval_over_worlds`."""
    return interval_over_worlds(run, at_sigma(run, values, a) - at_sigma(run, values, b))


def baseline(
    run: Run, name: str, metric: str, condition: str, data: str | None = None, what: str | None = None
) -> pd.Series:
    """Return the results of another method (a baseline, such as a linear predictor) on the same data, indexed by world.
    A world is a data set: a simulated one, or one split of the people.

    Parameters
    ----------
    name : str
        Name of the method.
    metric, condition : str
        What to return, such as "mse" and "hidden 0.5" for the error on test data with half of the channels hidden, or
        "modularity" and "labels" for a measure of structure in the data and what it is compared with.
    data : str, optional
        Value of `Member.data`. Must be given if the experiment has several of them.
    what : str, optional
        Word for the results in the error message if the run has none. By default the metric.
    """
    rows = run.baselines
    rows = rows[(rows["baseline"] == name) & (rows["metric"] == metric) & (rows["condition"] == condition)]
    rows = rows[rows["split"].isin(["test", "analysis"]) & ((rows["data"] == data) | (data is None))]
    if rows.empty:
        raise NotInRun(f"the run has no {what or metric} of the baseline {name}")
    return rows.set_index("world")["value"]


def baseline_by_seed(run: Run, name: str, metric: str, condition: str) -> pd.Series:
    """Return `baseline` indexed by seed: the value for the world (data set) that members with this seed use."""
    by_world, seeds = baseline(run, name, metric, condition), pd.Index(sorted(run.members["seed"].unique()))
    return pd.Series((seeds % run.config["shape"]["worlds"]).to_series(seeds).map(by_world))


def contrast_sigmas(run: Run) -> tuple[float, float]:
    """Return the two sigmas that figures show side by side: 0.2 (the smallest if 0.2 is missing) and the largest."""
    sigmas = sorted(run.members.loc[is_swept(run), "sigma"].unique())
    return (0.2 if 0.2 in sigmas else sigmas[0]), sigmas[-1]


def chance_levels(task: Mapping[str, Any]) -> dict[MeasureKey, float]:
    """Return the values of measures of PEs on channels that are expected by chance, by (analysis, target). Measures
    without a known chance level are left out. `task` is the entry "task" in config.json of the run."""
    chance: dict[MeasureKey, float] = {("ari", "labels"): 0.0, ("fc_correlation", "fc"): 0.0}
    if task.get("labels") is not None:
        labels = pd.Series(task["labels"])
        sizes = labels[labels >= 0].map(labels.value_counts())
        chance["neighbor_agreement", "labels"] = float(((sizes - 1) / (len(labels) - 1)).mean())
    if task.get("positions") is not None:
        near = neighbors_in_space(task["positions"])  # (n, n), boolean
        chance["neighbor_agreement", "positions"] = float(near.sum() / (len(near) * (len(near) - 1)))
    if "tokens" in task:
        chance["mirror_agreement", "partner"] = 1 / (task["tokens"] - 1)
    return chance


def drop_repeated_lines(lines: pd.DataFrame) -> pd.DataFrame:
    """Return a table from `Experiment.lines` with only the first of the rows that show a member in several panels.
    `panel` becomes empty if several panels show the same line of the member."""
    panels = lines.groupby(["member", "line"])["panel"].transform("nunique")
    return lines.assign(panel=lines["panel"].where(panels == 1, "")).drop_duplicates("member")
