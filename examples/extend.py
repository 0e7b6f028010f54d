"""Add an encoding, a task, a measure and an experiment of your own, then run it: python examples/extend.py [FOLDER]

The experiment asks whether a PE with smaller initial values at later tokens still learns the order of a sequence. It
trains 16 small models at once, in seconds on a CPU. The PE is added in every block. CONTRIBUTING.md says where each
part belongs in placecode.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from placecode import Member, Run, Stack, encodings, grid
from placecode.encodings.additive import Learned
from placecode.execution.local import execute
from placecode.experiments import measures
from placecode.experiments.models import ModelExperiment
from placecode.settings import setting
from placecode.tasks.base import Split, Task


# 1. An encoding: a table with other initial values. The contract tests run over every registered encoding.
@encodings.register("fading")
class Fading(Learned):
    """Learned PE whose initial scale decreases with the position: sigma / (i + 1) for token i."""

    @classmethod
    def start(cls, member: Member, layout: encodings.Layout, shape: tuple[int, int, int]) -> np.ndarray:
        return super().start(member, layout, shape) / (1 + np.arange(layout.tokens))[:, None]


# 2. A task: data, loss and metrics, independent of the model.
class Order(Task):
    """Two tokens of a sequence are marked A and B: does A come before B?"""

    name, readout, outputs = "order", "mean", 2

    def __init__(self, tokens: int = 8, seed: int = 0) -> None:
        pairs = np.array([(a, b) for a in range(tokens) for b in range(tokens) if a != b])
        pairs = np.random.default_rng(seed).permutation(pairs)
        inputs = np.zeros((len(pairs), tokens, 3))
        inputs[..., 0] = 1  # unmarked
        for mark in (1, 2):
            inputs[np.arange(len(pairs)), pairs[:, mark - 1]] = np.eye(3)[mark]
        before = torch.from_numpy((pairs[:, 0] < pairs[:, 1]).astype(np.int64))
        train = len(pairs) * 3 // 4
        parts = {"train": slice(train), "test": slice(train, None)}
        self.splits = {name: Split(torch.tensor(inputs[part]), before[part]) for name, part in parts.items()}
        self.positions = np.arange(tokens, dtype=float)[:, None]
        self.seed = seed

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.metrics(outputs, targets)["loss"].mean(1)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        losses = cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        return {"accuracy": (outputs.argmax(-1) == targets).to(outputs.dtype), "loss": losses}

    def describe(self) -> dict[str, Any]:
        return {"task": self.name, "tokens": self.tokens, "seed": self.seed}


# 3. A measure: arrays in, arrays out.
def step_ratio(pe: np.ndarray) -> np.ndarray:
    """Return the mean distance of neighbouring tokens divided by that of all pairs, (...), for PEs (..., n, d).

    It is small if the tokens lie on a line, in order.
    """
    distance = np.linalg.norm(pe[..., :, None, :] - pe[..., None, :, :], axis=-1)
    n = pe.shape[-2]
    neighbours = np.diagonal(distance, 1, -2, -1).mean(-1)
    return neighbours / (distance.sum((-2, -1)) / (n * (n - 1)))


# 4. An experiment: a task, members and measurements. Every field becomes a flag and is recorded.
@dataclass(frozen=True)
class OrderSigma(ModelExperiment):
    """The order of a sequence, over the initial scale of the PE."""

    name = "order-sigma"
    about = "order of a sequence: accuracy against sigma"

    sigmas: tuple[float, ...] = setting((0.1, 1.0), "initial scales of the PE")
    encoding: str = setting("fading", "encoding")
    steps: int = setting(400, "training steps")

    scales = {"paper": {}, "quick": {"seeds": (0, 1), "width": 16, "layers": 1, "batch": 14, "learning_rate": 3e-3}}

    def task(self) -> Task:
        return Order(seed=self.data_seed)

    def plan(self) -> list[Member]:
        return grid(self.spec(), sigma=self.sigmas, seed=self.seeds)

    def training_steps(self, task: Task) -> int:
        return self.steps

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        pe = stack.encoding.vectors().detach().double().cpu().numpy()  # (e, l, n, d)
        return measures.analysis_rows("step_ratio", step_ratio(pe[:, 0]))


def main(out: Path) -> Run:
    # `sweep` crosses the experiment with any further field, as `--sweep` does on the command line
    experiment = OrderSigma.from_scale("quick", sweep=("heads=1,2", "learning_rate=0.003,0.001"))
    run = execute(experiment, out, force=True)
    accuracy = run.metrics.query(
        "split == 'test' and metric == 'accuracy' and condition == 'all' and step == step.max()"
    )
    ratio = run.analysis.query("analysis == 'step_ratio' and step == step.max()")
    table = run.members.merge(accuracy[["member", "value"]]).merge(
        ratio[["member", "value"]], on="member", suffixes=("", "_ratio")
    )
    means = table.groupby(["sigma", "heads", "learning_rate"])[["value", "value_ratio"]].mean()
    sys.stdout.write(means.rename(columns={"value": "test accuracy", "value_ratio": "step ratio"}).to_string() + "\n")
    return run


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "order-sigma")
