"""Make up runs on Latin squares with known values, and compute the statistics of claims a second time.

Nothing here uses the package's reading or statistics, since tests compare them with these results.
"""

import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from placecode.experiments import Experiment, lookup
from placecode.experiments.claims import Claim, Finding
from placecode.models.member import Member
from placecode.runs.tables import TrainingOutcome, member_table

STEPS_PER_EPOCH = 2  # steps per epoch of the made-up runs
STRANGE = 0.123
"""The value of rows that must never be read: other steps, other metrics, other blocks, single conditions."""
Value = Callable[[Member], float]


def made_up(
    experiment: Experiment,
    accuracy: Value,
    *,
    train: Value = lambda member: 1.0,
    early: Value | None = None,
    epoch: int = 200,
    analyses: Mapping[tuple[str, str], tuple[Value | None, Value]] | None = None,
    diverged: Callable[[Member], bool] = lambda member: False,
) -> Any:
    """Return a run with the members of an experiment and the values that these functions give for each member.

    `early` is the accuracy at an `epoch` before the last. `analyses` have a function for the start (or None) and for
    the end.
    """
    members, epochs = experiment.members(), int(experiment.fields()["epochs"])
    last = epochs * STEPS_PER_EPOCH
    metrics, rows = [], []
    for number, member in enumerate(members):
        by_split = {"train": train(member), "test": STRANGE, "ood": accuracy(member)}
        for split, value in by_split.items():
            metrics.append((number, 0, split, "all", "accuracy", STRANGE))
            metrics.append((number, last, split, "all", "accuracy", value))
            metrics.append((number, last, split, "Binary", "accuracy", STRANGE))
            metrics.append((number, last, split, "all", "loss", STRANGE))
            if early is not None:
                metrics.append((number, epoch * STEPS_PER_EPOCH, split, "all", "accuracy", early(member)))
        for (analysis, target), (start, end) in (analyses or {}).items():
            for step, of in ((0, start), (last, end)):
                if of is not None:
                    rows.append((number, step, -1, analysis, target, of(member)))
                    rows.append((number, step, 0, analysis, target, STRANGE))
    config = {"format": 1, "experiment": experiment.name, "scale": "paper", "fields": experiment.fields(), "task": {}}
    config |= {"precision": "high", "device": "cpu", "stack": 8, "members": f"0:{len(members)}", "total": len(members)}
    cells = [[float(row), float(column)] for row in range(4) for column in range(4)]
    config |= {"shape": {"tokens": 16, "features": 5, "outputs": 4, "readout": "last", "positions": cells}}
    outcomes = [TrainingOutcome(5 if diverged(m) else -1) for m in members]
    return SimpleNamespace(
        path=Path("made-up"),
        experiment=experiment.name,
        config=json.loads(json.dumps(config)),
        members=member_table(range(len(members)), members, outcomes),
        metrics=pd.DataFrame(metrics, columns=["member", "step", "split", "condition", "metric", "value"]),
        analysis=pd.DataFrame(rows, columns=["member", "step", "block", "analysis", "target", "value"]),
    )


def noisy(value: float, member: Member, salt: str = "") -> float:
    """Add a residual of the member, and a larger one of its seed: differences must be taken seed by seed."""
    residual = np.random.default_rng(zlib.crc32(f"{salt}{member}".encode())).normal() * 0.001
    return value + 0.1 * (member.seed % 1000) + float(residual)


def findings(run: Any, claims: Iterable[Claim] | None = None) -> dict[str, Finding]:
    """Return the findings of claims on a run by the id of the claim; by default of all claims of its experiment."""
    return {claim.id: claim.check(run) for claim in (lookup(run.experiment).claims if claims is None else claims)}


def save(run: Any, path: Path) -> Path:
    """Write a made-up run to a folder, and return its path."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(run.config))
    (path / "environment.json").write_text("{}")
    for name in ("members", "metrics", "analysis"):
        getattr(run, name).to_parquet(path / f"{name}.parquet")
    (path / "summary.json").write_text(json.dumps({"experiment": run.experiment, "step": 0, "rows": []}))
    return path


def student(values: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Return mean and 95% interval of Student's t, by scipy."""
    bounds = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    return float(np.mean(values)), float(bounds.low), float(bounds.high)


def over_sigmas(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's correlation of the means by sigma of two tables (sigmas, seeds).

    Means are rounded to float32, so that those which differ only by rounding are ties.
    """
    means = [values.mean(axis=1).astype(np.float32) for values in (x, y)]
    return math.nan if min(map(np.ptp, means)) == 0 else float(stats.spearmanr(*means).statistic)


def within_sigma(x: np.ndarray, y: np.ndarray, covariate: np.ndarray | None = None) -> float:
    """Return the correlation of the ranks of members among the seeds of their sigma, from tables (sigmas, seeds).

    If there is a covariate, a linear fit to its ranks is subtracted first.
    """
    a, b, *rest = (
        (ranks := stats.rankdata(values, axis=1)) - ranks.mean(axis=1, keepdims=True)
        for values in ([x, y] if covariate is None else [x, y, covariate])
    )
    for line in rest:
        size = (line**2).sum(axis=1, keepdims=True)
        a, b = (ranks - line * (ranks * line).sum(axis=1, keepdims=True) / np.maximum(size, 1e-9) for ranks in (a, b))
    return math.nan if min(np.abs(a).max(), np.abs(b).max()) < 1e-6 else float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def effect_of(record: Mapping[str, Any]) -> list[float | None]:
    """Return the effect in the record of a claim, with its bounds."""
    return [record[name] for name in ("effect", "low", "high")]


def direction(low: float | None, high: float | None, margin: float, way: str) -> str:
    """Return the direction of a claim whose interval has these bounds."""
    if low is None or high is None:
        return "undecided"
    sides = {"above": (low > margin, high < margin), "below": (high < margin, low > margin)}
    sides["within"] = (max(abs(low), abs(high)) < margin, low > margin or high < -margin)
    beyond, short = sides[way]
    return "holds" if beyond else "fails" if short else "undecided"
