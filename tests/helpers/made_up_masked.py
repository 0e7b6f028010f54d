"""Make up runs of masked prediction with known values."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from placecode.experiments.base import Experiment
from placecode.models.member import Member
from placecode.runs.tables import TrainingOutcome, member_table, no_baselines

LAST = 10
STRANGE = 0.123  # the value of rows that must never be read: other steps, other splits, other blocks
LABELS = [0, 0, 0, 1, 1, 1]
Value = Callable[[Member], float]


def made_up(
    experiment: Experiment,
    errors: Mapping[str, Value],
    analyses: Mapping[tuple[str, str], tuple[Value, Value]],
    baselines: Mapping[tuple[str, str, str, str], Mapping[int, float]] | None = None,
    diverged: Callable[[Member], bool] = lambda member: False,
    **task: Any,
) -> Any:
    """Return a run with the members of an experiment and the values that these functions give for each member.

    These are test errors by condition, and analyses before and after training. `baselines` are values by world for each
    (name, split, condition, metric); `task` are further entries of the record of the data.
    """
    members = experiment.members()
    metrics, rows, others = [], [], []
    for number, member in enumerate(members):
        for condition, of in errors.items():
            for step, split in ((0, "test"), (LAST, "train")):
                metrics.append((number, step, split, condition, "mse", STRANGE))
            metrics.append((number, LAST, "test", condition, "mse", of(member)))
        for (analysis, target), (start, end) in analyses.items():
            rows.append((number, 0, -1, analysis, target, start(member)))
            rows.append((number, LAST, -1, analysis, target, end(member)))
            rows.append((number, LAST, 0, analysis, target, STRANGE))
    for (name, split, condition, metric), values in (baselines or {}).items():
        others += [("", world, name, split, condition, metric, value) for world, value in values.items()]
    config = {"experiment": experiment.name, "scale": "paper", "fields": experiment.fields()}
    config["task"] = {"task": experiment.task_class.name, "labels": LABELS, "tokens": len(LABELS), **task}
    worlds = task.get("worlds", 1 + max(member.seed for member in members))  # one for each seed
    config["shape"] = {"worlds": worlds, "positions": None}
    outcomes = [TrainingOutcome(3 if diverged(member) else -1) for member in members]
    return SimpleNamespace(
        path=Path("made-up"),
        experiment=experiment.name,
        config=config,
        members=member_table(range(len(members)), members, outcomes),
        metrics=pd.DataFrame(metrics, columns=["member", "step", "split", "condition", "metric", "value"]),
        analysis=pd.DataFrame(rows, columns=["member", "step", "block", "analysis", "target", "value"]),
        baselines=pd.DataFrame(others, columns=list(no_baselines().columns)),
        has_array=lambda name: name.startswith("pe_"),
        array=lambda name: np.random.default_rng(int(name.split("/")[1])).normal(size=(2, len(LABELS), 4)),
    )
