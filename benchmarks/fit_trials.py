"""Test `placecode fit` on simulated tables: false alarms in noise, calibration of confidence, recovery of groups.

    python benchmarks/fit_trials.py noise --trials 100 --processes 2
    python benchmarks/fit_trials.py known --trials 5
    python benchmarks/fit_trials.py tables --out somewhere

The first two write tables into results/fits/, from which docs/how-to/own-data.md takes its numbers. Each trial draws a
new table, with its number as the seed. No trial is left out. The last command writes the tables of
results/fits/network, synergy and synergy-30, with the labels of their channels.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from placecode import LearnedPositions
from placecode.analysis.places import neighbors_in_space
from placecode.execution.settings import ExecutionSettings
from placecode.experiments.channels.table import TableExperiment
from placecode.files import write_bytes
from placecode.fit.fitting import fit
from placecode.tasks.network import Network
from placecode.tasks.synergy import Synergy
from placecode.tasks.table import table_tasks as split_table

OUT = Path(__file__).parents[1] / "results" / "fits"
NOISE_STEPS = 200
"""Number of training steps of the noise trials: enough to learn any structure of so few channels."""


# --------------------------------------------------------------------------------------------------------- tables

World = tuple[np.ndarray, np.ndarray | None, np.ndarray]
"""Values (T, n), groups of the channels (n,) or None, and which channels are true neighbours (n, n)."""


def noise(seed: int, kind: str) -> np.ndarray:
    """Draw 500 samples of 20 independent channels, white or (`kind="slow"`) with an autocorrelation of 0.9."""
    values = np.random.default_rng(seed).normal(size=(500, 20))
    if kind == "slow":
        for t in range(1, len(values)):
            values[t] += 0.9 * values[t - 1]
    return values


def field(seed: int) -> World:
    """Draw 2,000 samples of a smooth random field on a grid of 8 x 8, with noise. Neighbours are adjacent cells."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.divmod(np.arange(64), 8), axis=1)
    distance = np.linalg.norm(grid[:, None] - grid, axis=-1)
    root = np.linalg.cholesky(np.exp(-((distance / 1.5) ** 2) / 2) + 1e-6 * np.eye(64))
    values = rng.normal(size=(2_000, 64)) @ root.T + 0.3 * rng.normal(size=(2_000, 64))
    order = rng.permutation(64)
    return values[:, order], None, neighbors_in_space(grid[order])


def network(seed: int) -> World:
    """Simulate a nonlinear network of 50 nodes in 5 clusters. Neighbours are nodes of the same cluster."""
    task = Network(nodes=50, train=5_000, test=500, shuffled=True, seed=seed)
    return _values(task), task.labels, _same_group(task.labels)


def synergy(seed: int) -> World:
    """Draw 15 channels in groups of three, each the product of the other two.

    Neighbours are channels of the same group.
    """
    task = Synergy(groups=5, train=20_000, test=500, shuffled=True, seed=seed)
    return _values(task), task.labels, _same_group(task.labels)


def write_tables(out: Path) -> None:
    """Write a network of 100 nodes, and synergy with 15 and with 30 channels, with the channels in random order."""
    worlds: dict[str, Network | Synergy] = {
        "network": Network(train=10_000, test=1_000, shuffled=True),
        "synergy": Synergy(groups=5, train=20_000, test=500, shuffled=True),
        "synergy-30": Synergy(groups=10, train=50_000, test=500, shuffled=True),
    }
    for name, task in worlds.items():
        assert task.labels is not None
        labels = pd.DataFrame({"name": task.token_names, "label": task.labels})
        write_bytes(out / f"{name}-labels.csv", labels.to_csv(index=False).encode())
        table = pd.DataFrame(_values(task), columns=list(task.token_names))
        write_bytes(out / f"{name}.parquet", table.to_parquet(index=False))


def _values(task: Network | Synergy) -> np.ndarray:
    """Return the samples of all splits (T, n)."""
    return np.concatenate([split.inputs[0].numpy() for split in task.splits.values()])


def _same_group(labels: Any) -> np.ndarray:
    """Return which pairs of different channels are in the same group (n, n)."""
    return np.asarray((labels[:, None] == labels) & ~np.eye(len(labels), dtype=bool))


WORLDS: dict[str, Callable[[int], World]] = {
    "field": field,
    "network": network,
    "synergy": synergy,
}
"""Functions that draw a table with known structure from a seed."""
STEPS = {"field": 1500, "network": 1500, "synergy": 3000}
"""Number of training steps for each kind of table."""
STRUCTURE = ("ari", "ari_p", "neighbor_agreement", "neighbor_agreement_p")
"""Scores against known groups that a trial records for each method."""


# --------------------------------------------------------------------------------------------------------- trials


Tables = dict[str, list[dict[str, Any]]]
"""Rows to add to each output table, by the name of its file."""


def noise_trial(trial: int, kind: str) -> Tables:
    """Fit a table of noise, and return a row with the p-value, the verdict and the scores."""
    estimator = LearnedPositions(random_state=trial, steps=NOISE_STEPS, device="cpu", effort="quick")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = estimator.fit(noise(trial, kind).astype(np.float32))
    row = {"kind": kind, "trial": trial, "p_value": fitted.p_value_, "verdict": fitted.verdict_, "sigma": fitted.sigma_}
    return {"noise": [{**row, **fitted.scores_}]}


def known_trial(trial: int, kind: str) -> Tables:
    """Fit a table with known structure, and return rows for calibration.csv and groups.csv.

    The rows of calibration.csv count pairs of channels, and true neighbours among them, by the confidence of the pair.
    Those of groups.csv have, for every method, the scores of its modules and neighbours against the known groups.
    """
    values, labels, near = WORLDS[kind](trial)
    parts = split_table(values.astype(np.float32), labels=labels, seed=trial)
    settings = TableExperiment.settings_for_effort("quick", values.shape[1], steps=STEPS[kind])
    experiment = TableExperiment(tables=parts, file="array", data_seed=trial, **settings)
    with tempfile.TemporaryDirectory() as folder:
        result = fit(experiment, Path(folder) / "run", execution=ExecutionSettings("cpu"))
    upper = np.triu_indices(len(near), k=1)
    pairs = pd.DataFrame({"confidence": result.pairs[upper], "neighbors": near[upper]})
    bins = pd.cut(pairs["confidence"], [-0.001, 0.1, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0])
    counts = pairs.groupby(bins, observed=False)["neighbors"].agg(["size", "sum"])
    calibration = [
        {
            "kind": kind,
            "trial": trial,
            "from": max(float(interval.left), 0.0),
            "to": float(interval.right),
            "pairs": int(row["size"]),
            "neighbors": int(row["sum"]),
        }
        for interval, row in counts.iterrows()
    ]
    scores = {"kind": kind, "trial": trial, "p_value": result.p_value, "sigma": result.sigma}
    for name, method in {"placecode": result.ours, **result.others}.items():
        scores |= {f"{name} {score}": method.scores.get(score) for score in STRUCTURE}
    return {"calibration": calibration, "groups": [] if labels is None else [scores]}


Job = Callable[[int, str], Tables]
"""A function from the number of a trial and the kind of table to the rows it adds."""


def run(job: Job, kinds: Sequence[str], trials: int, processes: int) -> Iterator[Tables]:
    """Run all trials of every kind in worker processes of one thread each, and yield their rows as they finish."""
    with ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        jobs = [pool.submit(job, trial, kind) for trial in range(trials) for kind in kinds]
        for done in as_completed(jobs):
            yield done.result()


JOBS: dict[str, tuple[Job, tuple[str, ...]]] = {
    "noise": (noise_trial, ("white", "slow")),
    "known": (known_trial, tuple(WORLDS)),
}
"""What each command runs, and on which kinds of tables."""


def main() -> None:
    """Run the trials, and write all rows so far after each of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=[*JOBS, "tables"])
    parser.add_argument("--trials", type=int, default=100, help="number of trials of each kind of table")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the tables")
    args = parser.parse_args()
    args.out.mkdir(exist_ok=True)
    if args.what == "tables":
        return write_tables(args.out)
    job, kinds = JOBS[args.what]
    tables: Tables = {}
    for result in run(job, kinds, args.trials, args.processes):
        for name, rows in result.items():
            tables.setdefault(name, []).extend(rows)
            if rows:
                table = pd.DataFrame(tables[name]).sort_values(["kind", "trial"], kind="stable")
                write_bytes(args.out / f"{name}.csv", table.to_csv(index=False).encode())


if __name__ == "__main__":
    main()
