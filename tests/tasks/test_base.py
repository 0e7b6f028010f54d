"""What every task inherits from `Task`, and what all simulated data have in common."""

import json
from itertools import combinations

import pytest
import torch

from placecode.settings import settings_of
from placecode.tasks.network import Network
from placecode.tasks.pixels import Pixels
from placecode.tasks.synergy import Synergy


@pytest.mark.parametrize("readout", ["last", "token"])
@pytest.mark.parametrize("count", [1, 15, 100])
def test_first_keeps_the_first_examples_of_every_split(make_task, readout, count) -> None:
    task = make_task(readout=readout)
    few = task.first(count)
    for name, split in task.splits.items():
        short = few.splits[name]
        assert len(short) == min(count, len(split))
        assert torch.equal(short.inputs, split.inputs[:count]) and torch.equal(short.targets, split.targets[:count])
        assert short.conditions == split.conditions[:count]
    assert (few.tokens, few.features, few.outputs, few.readout) == (6, 3, task.outputs, readout)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 22, "test": 10}  # unchanged


SIMULATED = {
    Network: {"nodes": 20, "clusters": 2, "lag": 2, "gap": 7, "train": 300, "test": 100},
    Synergy: {"groups": 3, "distractors": 1, "train": 300, "test": 100},
    Pixels: {"size": 4, "stride": 3, "train": 300, "test": 100},
}
simulated = pytest.mark.parametrize(("kind", "options"), SIMULATED.items(), ids=[kind.name for kind in SIMULATED])


@simulated
def test_data_of_a_world_do_not_depend_on_the_number_of_worlds(kind, options) -> None:
    single, triple, other_seed = kind(**options), kind(**options, worlds=3), kind(**options, worlds=3, seed=2)
    assert kind(**options, worlds=3).describe() == triple.describe() != other_seed.describe()
    for split in ("train", "test"):
        assert torch.equal(single.splits[split].inputs[0], triple.splits[split].inputs[0])
        pool = [*triple.splits[split].inputs, *other_seed.splits[split].inputs]
        assert all((a != b).double().mean() > 0.9 for a, b in combinations(pool, 2))


@simulated
def test_scale_is_that_of_the_training_samples(kind, options) -> None:
    (train,), (test,) = (kind(**options).splits[split].inputs for split in ("train", "test"))
    assert train.mean(0).abs().max() < 1e-3 and (train.std(0, correction=0) - 1).abs().max() < 1e-3
    assert test.mean(0).abs().max() > 0.01 and (test.std(0, correction=0) - 1).abs().max() > 0.01


@simulated
def test_describe_records_every_option(kind, options) -> None:
    task, through_sizes = kind(**options), {"nodes", "clusters", "groups"}
    record = json.loads(json.dumps(task.describe()))
    assert record["counts"] == {"train": 300, "test": 100}
    names = {"eval_mask_ratios", "worlds", "seed", *settings_of(kind.settings_class)}
    assert names - through_sizes - {"train", "test"} <= set(record)
    assert task.to("cpu", torch.float32).describe() == task.describe()
    if task.positions is not None:
        assert record["positions"] == task.positions.tolist()
