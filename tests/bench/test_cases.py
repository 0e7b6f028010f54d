"""Models of benchmarks have the sizes of the experiments, and their operations are counted correctly."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from placecode.bench.cases import CASES, Case, Synthetic, flops, linear_layers
from placecode.bench.peers import Plain, build_model, plain_attention, weights_of
from placecode.experiments.latin.squares import LstSigma
from placecode.tasks.latin_squares import LatinSquares
from placecode.training.trainer import stack_for, steps_per_epoch

TINY = Case("tiny", 16, 6, 3, 2, 2, 8, 5, 4, "last", 10)
TOKEN = dataclasses.replace(TINY, readout="token", outputs=1, expansion=3)
SHAPES = {"last": TINY, "token": TOKEN, "one block": TINY.resized(layers=1), "one token": TINY.resized(tokens=1)}


def counted(case: Case, model: type[Plain]) -> int:
    """Return the number of floating-point operations of a step, counted by torch."""
    task = Synthetic(case, batches=1)
    module = build_model(model, case, weights_of(stack_for(case.members(1), task), 0), "cpu", plain_attention)
    data = task.splits["train"]
    with FlopCounterMode(display=False) as counter:
        task.loss(module(data.inputs)[None], data.targets[None]).sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
def test_flops_are_those_that_torch_counts(case) -> None:
    assert flops(case) == counted(case, Plain)


def test_flops_of_the_papers_model() -> None:
    """Its linear layers have 12.1 GFLOP. Attention adds little at 16 tokens, and is half of the total at 360."""
    linear = {name: 3 * sum(layer.flops for layer in linear_layers(case)) for name, case in CASES.items()}
    assert linear["lst-paper"] == pytest.approx(12.1e9, rel=0.01)
    assert flops(CASES["lst-paper"]) == pytest.approx(12.35e9, rel=0.001)
    assert flops(CASES["tokens-360"]) == pytest.approx(2 * linear["tokens-360"], rel=0.1)


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_latin_squares_have_the_sizes_of_the_experiment(scale) -> None:
    case, experiment = CASES[f"lst-{scale}"], LstSigma.from_scale(scale)
    (member, spec) = case.members(1)[0], experiment.members()[0]
    for name in ("width", "layers", "heads", "expansion", "batch", "optimizer", "encoding", "norm"):
        assert getattr(member, name) == getattr(spec, name)
    small = LatinSquares(per_class=20, heldout=9, distance=0.5)
    for name in ("tokens", "features", "outputs", "readout"):
        assert getattr(small, name) == getattr(case, name)
    assert len(small.splits["train"]) == 3 * round(0.9 * 20)  # as the number of steps assumes
    epochs = 200 if scale == "paper" else experiment.epochs
    assert case.steps_per_model == epochs * steps_per_epoch(3 * round(0.9 * experiment.per_class), experiment.batch)
    assert CASES["lst-paper"].steps_per_model == 12_800


@pytest.mark.parametrize("case", [TINY, TOKEN], ids=["last", "token"])
def test_data_are_the_same_every_time_and_the_loss_is_each_members_own(case) -> None:
    task, again = Synthetic(case, batches=2), Synthetic(case, batches=2)
    data = task.splits["train"]
    assert len(data) == 2 * case.batch and torch.equal(data.inputs, again.splits["train"].inputs)
    outputs = torch.randn(3, *([16, 6, 1] if case.readout == "token" else [16, 4]))
    losses = task.loss(outputs, data.targets.expand(3, *data.targets.shape))
    loss_of_member = F.mse_loss if case.readout == "token" else F.cross_entropy
    torch.testing.assert_close(losses, torch.stack([loss_of_member(output, data.targets) for output in outputs]))
