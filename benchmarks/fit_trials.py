"""What fits promise, tried on simulated tables: is nothing found where nothing is, are neighbours as sure as is said,
are groups found?

    python benchmarks/fit_trials.py noise --trials 100 --processes 2
    python benchmarks/fit_trials.py known --trials 5
    python benchmarks/fit_trials.py tables --out somewhere

The first two write tables into results/fits/, from which docs/how-to/own-data.md takes its numbers. A trial is
a table drawn anew from its number as the seed; none is left out. The last one writes the tables of
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

from placecode.analysis.places import neighbors_in_space
from placecode.execution.local import Where
from placecode.experiments.channels.own import OwnData
from placecode.files import write_bytes
from placecode.fit.fitting import fit
from placecode.tasks.network import Network
from placecode.tasks.synergy import Synergy
from placecode.tasks.table import tables

OUT = Path(__file__).parents[1] / "results" / "fits"
SMALL: dict[str, Any] = {"steps": 200, "device": "cpu", "effort": "quick"}
"""How the models of a trial with noise are trained: long enough to learn what there is to learn of so few channels."""


# ----------------------------------------------------------------------------------------------------- the tables

World = tuple[np.ndarray, np.ndarray | None, np.ndarray]
"""Values (T, n), the groups of the channels (n,) where there are any, and which are neighbours (n, n)."""


def noise(seed: int, kind: str) -> np.ndarray:
    """20 channels that have nothing to do with each other, 500 samples: white, or each remembering its own past."""
    values = np.random.default_rng(seed).normal(size=(500, 20))
    if kind == "slow":
        for t in range(1, len(values)):
            values[t] += 0.9 * values[t - 1]
    return values


def field(seed: int) -> World:
    """A smooth random field on a grid of 8 x 8, 2,000 samples, with noise; neighbours are adjacent cells."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.divmod(np.arange(64), 8), axis=1)
    apart = np.linalg.norm(grid[:, None] - grid, axis=-1)
    root = np.linalg.cholesky(np.exp(-((apart / 1.5) ** 2) / 2) + 1e-6 * np.eye(64))
    values = rng.normal(size=(2_000, 64)) @ root.T + 0.3 * rng.normal(size=(2_000, 64))
    order = rng.permutation(64)
    return values[:, order], None, neighbors_in_space(grid[order])


def network(seed: int) -> World:
    """A nonlinear network of 50 nodes in 5 clusters; neighbours are nodes of a cluster."""
    task = Network(nodes=50, train=5_000, test=500, shuffled=True, seed=seed)
    return _all(task), task.labels, _together(task.labels)


def synergy(seed: int) -> World:
    """15 channels in groups of three, each the product of the two others; neighbours are channels of a group."""
    task = Synergy(groups=5, train=20_000, test=500, shuffled=True, seed=seed)
    return _all(task), task.labels, _together(task.labels)


def write_tables(out: Path) -> None:
    """A network of 100 nodes, and synergy of 15 and of 30 channels, channels in random order."""
    worlds: dict[str, Network | Synergy] = {
        "network": Network(train=10_000, test=1_000, shuffled=True),
        "synergy": Synergy(groups=5, train=20_000, test=500, shuffled=True),
        "synergy-30": Synergy(groups=10, train=50_000, test=500, shuffled=True),
    }
    for name, task in worlds.items():
        assert task.labels is not None
        labels = pd.DataFrame({"name": task.token_names, "label": task.labels})
        write_bytes(out / f"{name}-labels.csv", labels.to_csv(index=False).encode())
        table = pd.DataFrame(_all(task), columns=list(task.token_names))
        write_bytes(out / f"{name}.parquet", table.to_parquet(index=False))


def _all(task: Network | Synergy) -> np.ndarray:
    return np.concatenate([split.inputs[0].numpy() for split in task.splits.values()])


def _together(labels: Any) -> np.ndarray:
    return np.asarray((labels[:, None] == labels) & ~np.eye(len(labels), dtype=bool))


WORLDS: dict[str, Callable[[int], World]] = {
    "field": field,
    "network": network,
    "synergy": synergy,
}
STEPS = {"field": 1500, "network": 1500, "synergy": 3000}
STRUCTURE = ("ari", "ari_p", "neighbor_agreement", "neighbor_agreement_p")
"""Scores of a method against known groups that a trial records."""


# ----------------------------------------------------------------------------------------------------- the trials


Tables = dict[str, list[dict[str, Any]]]
"""Rows for each of the tables that a trial adds to."""


def of_noise(trial: int, kind: str) -> Tables:
    fitted = _fitted(noise(trial, kind), random_state=trial, **SMALL)
    row = {"kind": kind, "trial": trial, "p_value": fitted.p_value_, "verdict": fitted.verdict_, "sigma": fitted.sigma_}
    return {"noise": [{**row, **fitted.scores_}]}


def of_known(trial: int, kind: str) -> Tables:
    """Every two channels of a table: how surely they are called neighbours, and whether they are. And how well the
    modules and nearest neighbours of every method match known groups, with p-values."""
    import torch

    torch.set_num_threads(1)
    values, labels, near = WORLDS[kind](trial)
    made = tables(values.astype(np.float32), labels=labels, seed=trial)
    settings = OwnData.sized("quick", values.shape[1], steps=STEPS[kind])
    study = OwnData(tables=made, file="array", data_seed=trial, **settings)
    with tempfile.TemporaryDirectory() as room:
        found = fit(study, Path(room) / "run", where=Where("cpu"))
    own = {"kind": kind, "trial": trial, "p_value": found.p_value, "sigma": found.sigma}
    pairs = np.triu_indices(len(near), k=1)
    told = pd.DataFrame({"confidence": found.pairs[pairs], "neighbors": near[pairs]})
    bins = pd.cut(told["confidence"], [-0.001, 0.1, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0])
    counts = told.groupby(bins, observed=False)["neighbors"].agg(["size", "sum"])
    calibration = [
        {
            **{"kind": kind, "trial": trial, "from": max(float(part.left), 0.0), "to": float(part.right)},
            **{"pairs": int(row["size"]), "neighbors": int(row["sum"])},
        }
        for part, row in counts.iterrows()
    ]
    for name, method in {"placecode": found.ours, **found.others}.items():
        own |= {f"{name} {score}": method.scores.get(score) for score in STRUCTURE}
    return {"calibration": calibration, "groups": [] if labels is None else [own]}


def _fitted(values: np.ndarray, **settings: Any) -> Any:
    import torch

    from placecode import LearnedPositions

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LearnedPositions(**settings).fit(values.astype(np.float32))


Job = Callable[[int, str], Tables]


def run(job: Job, kinds: Sequence[str], trials: int, processes: int) -> Iterator[Tables]:
    """All trials of every kind, in processes of their own, as they are done."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(job, trial, kind) for trial in range(trials) for kind in kinds]
        for done in as_completed(jobs):
            yield done.result()


JOBS: dict[str, tuple[Job, tuple[str, ...]]] = {
    "noise": (of_noise, ("white", "slow")),
    "known": (of_known, tuple(WORLDS)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=[*JOBS, "tables"])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    given.out.mkdir(exist_ok=True)
    if given.what == "tables":
        return write_tables(given.out)
    job, kinds = JOBS[given.what]
    rows: Tables = {}
    for found in run(job, kinds, given.trials, given.processes):
        for name, own in found.items():
            rows.setdefault(name, []).extend(own)
            if own:
                table = pd.DataFrame(rows[name]).sort_values(["kind", "trial"], kind="stable")
                write_bytes(given.out / f"{name}.csv", table.to_csv(index=False).encode())


if __name__ == "__main__":
    main()
