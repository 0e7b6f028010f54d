"""Models and random data for benchmarks, and the number of floating-point operations of a training step.

>>> flops(CASES["lst-paper"]) / 1e9  # for one step of one model
12.35...

The sizes of the cases "lst-paper" and "lst-quick" are read from the experiment lst-sigma, so that a benchmark trains
the same models as `placecode run lst-sigma`.
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

BATCHES_PER_EPOCH = 64
"""Number of batches per epoch, all of full size. The paper's epoch also has 64, but its last batch is smaller."""
EPOCHS_PER_MODEL = 200
"""Number of epochs that count as training one model in the column "models per hour" of lst-paper. The mean accuracies
of the paper's models no longer change after this number of epochs."""


@dataclass(frozen=True)
class Case:
    """Sizes of a model and its batch.

    `expansion` is the hidden width of the MLP relative to `width`. `features` and `outputs` are the numbers of inputs
    and outputs per token. `readout` is "last" if the model predicts from its last token alone, and "token" if it
    predicts from every token. `steps_per_model` steps count as training one model in the column "models per hour".
    """

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
        """Return `count` members (models to train) of these sizes and different seeds, with the paper's PE and Adam."""
        names = {field.name for field in dataclasses.fields(Member)} & self.sizes().keys()
        return grid(Member(**{name: getattr(self, name) for name in names}), seed=range(count))

    def sizes(self) -> dict[str, Any]:
        """Return all fields except the name, by name of the field."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "name"}

    def resized(self, **sizes: int) -> Case:
        """Return a copy of the case with other sizes, which are added to the name, as in "lst-paper, width 64"."""
        changed = [f"{name} {value}" for name, value in sizes.items() if value != getattr(self, name)]
        return dataclasses.replace(self, name=", ".join([self.name, *changed]), **sizes)  # type: ignore[arg-type]

    @property
    def values(self) -> int:
        """Number of values in the output of a layer for one batch: batch x tokens x width."""
        return self.batch * self.tokens * self.width

    def queries(self, block: int) -> int:
        """Return how many tokens block number `block` computes: all, or 1 in the last block if `readout` is "last"."""
        return 1 if self.readout == "last" and block == self.layers - 1 else self.tokens


def _latin_squares(name: str, scale: str, epochs: int | None = None) -> Case:
    """Return a case with the sizes of the experiment lst-sigma. `epochs` replaces the experiment's number of epochs."""
    experiment = LstSigma.from_scale(scale)
    sizes = {name: getattr(experiment, name) for name in ("width", "layers", "heads", "expansion", "batch")}
    # a tenth of the puzzles of each of the three classes is held out
    steps = steps_per_epoch(3 * round(0.9 * experiment.per_class), experiment.batch) * (epochs or experiment.epochs)
    order = experiment.order
    return Case(
        name, **sizes, tokens=order**2, features=order + 1, outputs=order, readout="last", steps_per_model=steps
    )


def _masked(name: str, tokens: int, steps: int) -> Case:
    """Return a case for masked prediction. A token has two features: a value, and a mark that is 1 if it is hidden."""
    sizes = {"width": 64, "layers": 4, "heads": 1, "expansion": 4, "batch": 32, "features": 2, "outputs": 1}
    return Case(name, **sizes, tokens=tokens, readout="token", steps_per_model=steps)


CASES = {
    case.name: case
    for case in (
        _latin_squares("lst-paper", "paper", EPOCHS_PER_MODEL),
        _latin_squares("lst-quick", "quick"),
        _masked("tokens-100", 100, 4_000),
        _masked("tokens-360", 360, 50_000),
    )
}
"""All cases by name."""
USUAL_CASES = {"cpu": ("lst-quick", "lst-paper"), "cuda": ("lst-paper",)}
"""Default cases by device."""
USUAL_MEMBERS = {
    "cpu": {"lst-paper": (1, 2, 8), "lst-quick": (1, 2, 4, 8, 16), "tokens-100": (1, 4), "tokens-360": (1, 2)},
    "cuda": {
        "lst-paper": tuple(2**i for i in range(10)),
        "lst-quick": tuple(2**i for i in range(10)),
        "tokens-100": (64,),
        "tokens-360": (64,),
    },
}
"""Default numbers of models that placecode trains at once, by device and case."""
USUAL_PEER_MEMBERS = {"cpu": (8,), "cuda": (1, 16, 128)}
"""Default numbers of models, by device, at which peers that train many models at once are measured. They are few,
because compilation is slow. If placecode is measured at none of them, peers are measured at its numbers of models."""


class Synthetic(Task):
    """Task with random data in the shapes of a case. The time and memory of training do not depend on the data."""

    name = "synthetic"

    def __init__(self, case: Case, batches: int = BATCHES_PER_EPOCH) -> None:
        self.readout, self.outputs = case.readout, case.outputs
        generator = torch.Generator().manual_seed(0)
        count = batches * case.batch
        inputs = torch.randn(count, case.tokens, case.features, generator=generator)
        if case.readout == "token":
            targets = torch.randn(count, case.tokens, case.outputs, generator=generator)
        else:
            targets = torch.randint(case.outputs, (count,), generator=generator)
        self.splits = {"train": Split(inputs, targets)}

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return each member's mean loss, (members,): squared error if every token is predicted, else cross-entropy."""
        if self.readout == "token":
            return (outputs - targets).square().flatten(1).mean(1)
        losses = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
        return losses.view(targets.shape).mean(1)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {}


@dataclass(frozen=True)
class Product:
    """Matrix product of a linear layer: (rows, inputs) times (inputs, outputs)."""

    rows: int
    inputs: int
    outputs: int

    @property
    def flops(self) -> int:
        """Number of floating-point operations of the product."""
        return 2 * self.rows * self.inputs * self.outputs


def linear_layers(case: Case) -> Iterator[Product]:
    """Yield the matrix products of the linear layers of one model in the forward pass, the embedding first."""
    rows, d, hidden = case.batch * case.tokens, case.width, case.expansion * case.width
    yield Product(rows, case.features, d)
    for block in range(case.layers):
        queries = case.batch * case.queries(block)
        if queries == rows:
            yield Product(rows, d, 3 * d)
        else:
            yield Product(queries, d, d)
            yield Product(rows, d, 2 * d)
        yield Product(queries, d, d)
        yield Product(queries, d, hidden)
        yield Product(queries, hidden, d)
    yield Product(case.batch * (case.tokens if case.readout == "token" else 1), d, case.outputs)


def flops(case: Case) -> int:
    """Return the number of floating-point operations of all matrix products in one training step of one model.

    A multiplication and an addition count as two. The backward pass of a product consists of two products of the same
    size, one per factor, except that the input of the embedding needs no gradient.
    """
    layers = list(linear_layers(case))
    scores = sum(2 * case.batch * case.queries(block) * case.tokens * case.width for block in range(case.layers))
    return 3 * (sum(layer.flops for layer in layers) + 2 * scores) - layers[0].flops
