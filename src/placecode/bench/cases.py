"""What is trained in a benchmark: models of given sizes on made-up data, and how many products a step of them takes.

>>> flops(CASES["lst-paper"]) / 1e9  # of one model and step
12.35...

The sizes of the Latin squares are read from the study, so that they never drift from what `placecode run` trains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from placecode.experiments.latin.squares import LstSigma
from placecode.models.member import Member, grid
from placecode.tasks.base import Split, Task
from placecode.training.trainer import steps_per_epoch

EPOCH = 64
"""Batches of an epoch, all of them full. The paper's epoch has as many, the last of them smaller."""
SETTLED = 200
"""Epochs after which the mean accuracies of the paper's models no longer change."""


@dataclass(frozen=True)
class Case:
    """The sizes of a model and its batch. A `model` in models per hour is `steps_per_model` steps."""

    name: str
    width: int
    tokens: int
    layers: int
    heads: int
    expansion: int
    batch: int
    features: int
    outputs: int
    readout: str
    steps_per_model: int
    learning_rate: float = 1e-4

    def members(self, count: int) -> list[Member]:
        """So many members of these sizes, with the paper's learned PE and Adam."""
        names = {field.name for field in dataclasses.fields(Member)} & self.sizes().keys()
        return grid(Member(**{name: getattr(self, name) for name in names}), seed=range(count))

    def sizes(self) -> dict[str, Any]:
        """Everything but the name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "name"}

    def resized(self, **sizes: int) -> Case:
        """The same with other sizes, and so under another name."""
        other = dataclasses.replace(self, **sizes)  # type: ignore[arg-type]
        changed = [f"{name} {value}" for name, value in sizes.items() if value != getattr(self, name)]
        return dataclasses.replace(other, name=", ".join([self.name, *changed]))

    @property
    def values(self) -> int:
        """Features of all tokens of a batch."""
        return self.batch * self.tokens * self.width

    def queries(self, block: int) -> int:
        """Tokens that a block computes: all, but in the last block only the one that is read."""
        return 1 if self.readout == "last" and block == self.layers - 1 else self.tokens


def _latin_squares(name: str, scale: str, epochs: int | None = None) -> Case:
    study = LstSigma.at(scale)
    sizes = {name: getattr(study, name) for name in ("width", "layers", "heads", "expansion", "batch")}
    # a tenth of the puzzles of each of the three classes is for testing
    steps = steps_per_epoch(3 * round(0.9 * study.per_class), study.batch) * (epochs or study.epochs)
    order = study.order
    return Case(
        name, **sizes, tokens=order**2, features=order + 1, outputs=order, readout="last", steps_per_model=steps
    )


def _masked(name: str, tokens: int, steps: int) -> Case:
    """Masked prediction, as for the nodes of a network and the regions of a brain: a value and whether it is hidden."""
    sizes = {"width": 64, "layers": 4, "heads": 1, "expansion": 4, "batch": 32, "features": 2, "outputs": 1}
    return Case(name, **sizes, tokens=tokens, readout="token", steps_per_model=steps)


CASES = {
    case.name: case
    for case in (
        _latin_squares("lst-paper", "paper", SETTLED),
        _latin_squares("lst-quick", "quick"),
        _masked("tokens-100", 100, 4_000),
        _masked("tokens-360", 360, 50_000),
    )
}
USUAL_CASES = {"cpu": ("lst-quick", "lst-paper"), "cuda": ("lst-paper",)}
"""What is measured on a device unless cases are named."""
USUAL_MEMBERS = {
    "cpu": {"lst-paper": (1, 2, 8), "lst-quick": (1, 2, 4, 8, 16), "tokens-100": (1, 4), "tokens-360": (1, 2)},
    "cuda": {
        **{"lst-paper": tuple(2**i for i in range(10)), "lst-quick": tuple(2**i for i in range(10))},
        **{"tokens-100": (64,), "tokens-360": (64,)},
    },
}
"""How many models placecode trains at once on a device, unless the numbers are given."""
USUAL_PEER_MEMBERS = {"cpu": (8,), "cuda": (1, 16, 128)}
"""Those of them at which stacked peers are measured too, since compiling takes long; all, if none of these is usual."""


class Synthetic(Task):
    """Numbers without meaning, of the sizes of a case: time and memory do not ask what the data say."""

    name = "synthetic"

    def __init__(self, case: Case, batches: int = EPOCH, seed: int = 0) -> None:
        self.readout, self.outputs = case.readout, case.outputs
        generator = torch.Generator().manual_seed(seed)
        count = batches * case.batch
        inputs = torch.randn(count, case.tokens, case.features, generator=generator)
        if case.readout == "token":
            targets = torch.randn(count, case.tokens, case.outputs, generator=generator)
        else:
            targets = torch.randint(case.outputs, (count,), generator=generator)
        self.splits = {"train": Split(inputs, targets)}

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean error of each member, (e,): cross-entropy, or the square where every token has an answer."""
        if self.readout == "token":
            return (outputs - targets).square().flatten(1).mean(1)
        losses = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
        return losses.view(targets.shape).mean(1)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {}


@dataclass(frozen=True)
class Product:
    """A linear layer of one model: (rows, inputs) times (inputs, outputs)."""

    rows: int
    inputs: int
    outputs: int

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.inputs * self.outputs


def linear_layers(case: Case) -> Iterator[Product]:
    """The linear layers of one model, the embedding first."""
    every, d, hidden = case.batch * case.tokens, case.width, case.expansion * case.width
    yield Product(every, case.features, d)
    for block in range(case.layers):
        asked = case.batch * case.queries(block)
        if asked == every:
            yield Product(every, d, 3 * d)
        else:
            yield Product(asked, d, d)
            yield Product(every, d, 2 * d)
        yield Product(asked, d, d)
        yield Product(asked, d, hidden)
        yield Product(asked, hidden, d)
    yield Product(case.batch * (case.tokens if case.readout == "token" else 1), d, case.outputs)


def flops(case: Case) -> int:
    """Floating-point operations of the matrix products of one model and step, a multiplication and an addition each.

    The backward pass of a product is two products of its size, one for each factor; the embedding's input needs none.
    """
    layers = list(linear_layers(case))
    scores = sum(2 * case.batch * case.queries(block) * case.tokens * case.width for block in range(case.layers))
    return 3 * (sum(layer.flops for layer in layers) + 2 * scores) - layers[0].flops
