"""Compute results of the committed runs of masked prediction with pandas, numpy and scipy, as a check of the package.

A world is a network, a draw of channels or a split of people. The world of a member is its seed modulo the number of
worlds, and intervals are over worlds.
"""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from helpers.made_up import student

from placecode import experiments
from placecode.runs.read import Run

ROOT = Path(__file__).parents[2] / "results"
CONFIGS = {path.parent.name: Run(path.parent).config for path in sorted(ROOT.glob("*/config.json"))}
PIXELS = [name for name, config in CONFIGS.items() if config["experiment"].startswith("pixels")]
MASKED = [name for name, config in CONFIGS.items() if "baseline_names" in config["fields"] and name not in PIXELS]
JUDGED = [name for name in MASKED if experiments.lookup(CONFIGS[name]["experiment"]).claims]
"""Runs of experiments that have claims."""
PICTURED = [name for name in MASKED if (ROOT / name / "arrays.safetensors").is_file()]  # runs with stored arrays
SWEEPS = {
    name: tuple(f"hidden {share:g}" for share in CONFIGS[name]["fields"]["eval_mask_ratios"])
    for name in MASKED
    if CONFIGS[name]["experiment"].endswith("-sigma")
}
"""Runs of sweeps over sigma, with their test conditions."""
SYNERGY = [name for name in MASKED if name.startswith("synergy")]
BRAINS = [name for name in MASKED if name.startswith("brain")]
TABLES = ("members", "metrics", "analysis", "baselines")
Effect = tuple[float, float, float]  # mean, lower and upper bound
ALL_BLOCKS = -1
NO_VECTORS = ("relative", "rotary", "alibi", "causal-none")
"""Encodings without one vector per channel, so that there is no PE to measure. (The PE of `none` is zero.)"""
ONE_DRAW = 1.1e-3  # tolerance of p-values of silhouettes: one of 1,000 draws may be so close that rounding decides


@functools.cache
def config(folder: Path) -> dict[str, Any]:
    """Read the config of a run."""
    return Run(folder).config


@functools.cache
def table(folder: Path, name: str) -> pd.DataFrame:
    """Read a table of a run."""
    return Run(folder).members if name == "members" else pd.read_parquet(folder / f"{name}.parquet")


def where(rows: pd.DataFrame, **columns: Any) -> pd.DataFrame:
    """Return the rows with these values in the columns of these names."""
    for name, value in columns.items():
        rows = rows[rows[name] == value]
    return rows


def finished(folder: Path) -> pd.DataFrame:
    """Return the members that did not diverge."""
    return where(table(folder, "members"), state="done")


def by_sigma(folder: Path, values: pd.Series) -> pd.DataFrame:
    """Return values by member as a table (sigmas, seeds), without members that diverged."""
    rows = finished(folder)
    return rows.assign(value=rows["member"].map(values)).pivot(index="sigma", columns="seed", values="value")


def error_of_members(folder: Path, condition: str, split: str = "test") -> pd.Series:
    """Return the error at the last step by member."""
    metrics = table(folder, "metrics")
    rows = where(metrics, metric="mse", condition=condition, split=split, step=metrics["step"].max())
    return rows.set_index("member")["value"]


def error(folder: Path, condition: str) -> pd.DataFrame:
    """Return the test error as a table (sigmas, seeds)."""
    return by_sigma(folder, error_of_members(folder, condition))


def of_members(folder: Path, analysis: str, target: str, start: bool = False) -> pd.Series:
    """Return an analysis by member, at the end or at the start of training."""
    step = 0 if start else config(folder)["fields"]["steps"]
    rows = where(table(folder, "analysis"), analysis=analysis, target=target, block=ALL_BLOCKS, step=step)
    return rows.set_index("member")["value"]


def measure(folder: Path, analysis: str, target: str, start: bool = False) -> pd.DataFrame:
    """Return an analysis as a table (sigmas, seeds)."""
    return by_sigma(folder, of_members(folder, analysis, target, start))


def worlds_of(folder: Path) -> int:
    """Return the number of worlds of a run."""
    return int(config(folder)["shape"]["worlds"])


def of_baseline(folder: Path, name: str, metric: str, condition: str, seeds: pd.Index) -> pd.Series:
    """Return the value of a baseline in the world of each seed."""
    rows = where(table(folder, "baselines"), baseline=name, metric=metric, condition=condition)
    by_world = rows.set_index("world")["value"]
    return pd.Series([by_world.loc[seed % worlds_of(folder)] for seed in seeds], index=seeds)


def over_worlds(folder: Path, by_seed: pd.Series) -> Effect:
    """Return mean and Student's interval over worlds, with the seeds of a world averaged. One world: over seeds."""
    values, worlds = by_seed.dropna(), worlds_of(folder)
    if worlds == 1:
        return student(values.to_numpy())
    return student(values.groupby(values.index % worlds).mean().to_numpy())


def parts_of(run: str) -> dict[str, dict[str, Any]]:
    """Return the records of a run's data sets by name."""
    task = CONFIGS[run]["task"]
    return dict(task["parts"]) if "parts" in task else {"": task}


def minus_linear(folder: Path, condition: str, sigma: float) -> Effect:
    """Return the error at a sigma minus that of the linear predictor."""
    errors = error(folder, condition).loc[sigma]
    return over_worlds(folder, errors - of_baseline(folder, "linear", "mse", condition, errors.index))


def cosines(pe: np.ndarray) -> np.ndarray:
    """Return cosine similarities (n, n) of the tokens of a PE (l, n, d): blocks concatenated, centred over tokens."""
    tokens = np.hstack(list(pe.astype(np.float64)))  # (n, l * d)
    tokens -= tokens.mean(axis=0)
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    return np.asarray(tokens @ tokens.T)


def nearest(similar: np.ndarray) -> np.ndarray:
    """Return the most similar other token (n,) of each token, from similarities (n, n)."""
    return np.asarray((similar - 9 * np.eye(len(similar))).argmax(axis=1))
