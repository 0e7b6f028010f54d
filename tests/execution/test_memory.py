"""Stacks are split by what memory allows, the split is kept, and a GPU that runs out is told in a sentence."""

from __future__ import annotations

import dataclasses
import doctest
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import torch

from placecode import cli, experiments
from placecode.cli import display
from placecode.errors import BadInput
from placecode.execution import checkpoints, local, memory, stacks
from placecode.execution.estimate import estimate
from placecode.execution.local import Interrupted, Where
from placecode.execution.memory import PROBE_SIZES, RESERVED_BYTES, SAFETY_FACTOR, PeakMemory, largest_stack
from placecode.execution.where import MIN_VALUES_FOR_THREADS
from placecode.experiments import Study
from placecode.experiments.latin.squares import LstSigma
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.runs import read as runs
from placecode.runs.merge import merge
from placecode.runs.read import Run
from placecode.training.running import Running
from placecode.training.trainer import Trainer

RESULTS = ("members.parquet", "metrics.parquet", "analysis.parquet", "summary.json", *runs.TENSORS)
MIB = 1 << 20


def tiny(**given: Any) -> Study:
    """lst-sigma in a second: 6 members of 1 small block on 54 puzzles, 4 steps an epoch."""
    options = {"sigmas": (0.1, 2.0), "seeds": (0, 1, 2), "epochs": 2, "evaluations": 2, "per_class": 20, "heldout": 9}
    options |= {"distance": 0.5, "width": 8, "heads": 2, "layers": 1, "batch": 16, "references": ()}
    return experiments.lookup("lst-sigma").at("quick", **{**options, **given})


def test_examples_in_the_module_hold() -> None:
    assert doctest.testmod(memory).failed == 0
    assert doctest.testmod(memory).attempted > 0


# How many fit


def stacks_of(
    base: float, each: float, evaluation: Callable[[int], float] = lambda n: 0.0, closing: float = 0.0
) -> tuple[Callable[..., PeakMemory], list[tuple[int, int]]]:
    """A measure for stacks that take so much, and the list of what it is asked to measure: (members, updates)."""
    asked: list[tuple[int, int]] = []

    def measure(count: int, updates: int = 5) -> PeakMemory:
        asked.append((count, updates))
        return PeakMemory(round(base + each * count), round(evaluation(count)), round(closing * count))

    return measure, asked


@pytest.mark.parametrize(
    ("base", "each", "most", "budget", "size"),
    [
        (100, 10, 128, 1e9, 128),  # all that are wanted
        (100, 10, 128, 100 + 10 * 60, 60),  # what does not grow counts once
        (100, 10, 128, 100 + 10 * 60 + 9, 60),
        (100, 10, 128, 100 + 10 * 61, 61),
        (0, 10, 128, 600, 60),
        (100, 10, 3, 1e9, 3),
        (100, 10, 128, 110, 1),
        (100, 10, 128, 109, 0),
        (100, 10, 128, -50, 0),
    ],
)
def test_as_many_as_fit(base: float, each: float, most: int, budget: float, size: int) -> None:
    measure, asked = stacks_of(base, each)
    found, cost = largest_stack(measure, most, budget * SAFETY_FACTOR)
    assert found == size
    assert [count for count, _ in asked] == list(PROBE_SIZES)
    assert (cost.base, cost.per_member) == (base, each)


def test_evaluation_in_portions_is_measured_before_members_are_given_up() -> None:
    """By the line of the probes evaluation would need 50 for each; in truth it never needs more than 300."""
    measure, asked = stacks_of(100, 10, evaluation=lambda n: min(50 * n, 300))
    found, cost = largest_stack(measure, 128, SAFETY_FACTOR * (100 + 10 * 80 + 300))
    assert asked == [(2, 5), (4, 5), (110, 0)]
    assert found == 80
    assert cost.total(80) == 100 + 800 + 300


def test_evaluation_that_does_grow_costs_members() -> None:
    measure, asked = stacks_of(0, 10, evaluation=lambda n: 10 * n)
    found, cost = largest_stack(measure, 128, SAFETY_FACTOR * 1000)
    assert asked[2:] == [(100, 0)]
    assert found == 50
    assert cost.total(50) == 1000


def test_what_the_results_need_counts_too() -> None:
    measure, _ = stacks_of(0, 10, closing=20)
    assert largest_stack(measure, 128, SAFETY_FACTOR * 1000)[0] == 50


def test_probes_that_do_not_fit_leave_one_or_none() -> None:
    def measure(fits: int, count: int, updates: int = 5) -> PeakMemory:
        if count > fits:
            raise torch.OutOfMemoryError
        return PeakMemory(100, 10, 0)

    assert largest_stack(lambda count: measure(1, count), 128, SAFETY_FACTOR * 110)[0] == 1
    assert largest_stack(lambda count: measure(3, count), 128, SAFETY_FACTOR * 110)[0] == 1
    assert largest_stack(lambda count: measure(1, count), 128, SAFETY_FACTOR * 109)[0] == 0  # more than may be used
    assert largest_stack(lambda count: measure(0, count), 128, SAFETY_FACTOR * 110)[0] == 0


# A GPU in words


class FakeGpu:
    """A meter for stacks on a CPU: 100 MiB, and for each member of a stack 1 MiB for each feature of its width."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, total: float, free: float | None = None) -> None:
        self.total, self.free = round(total * MIB), round((total if free is None else free) * MIB) + RESERVED_BYTES
        self.alive: WeakSet[Stack] = WeakSet()
        self.built: list[int] = []
        self.reset()
        for room in (memory, stacks):
            monkeypatch.setattr(room, "stack_for", self.stack_for)
        monkeypatch.setattr(memory, "meter_for", lambda where: self)

    def stack_for(self, members: list[Member], *rest: Any, **more: Any) -> Any:
        self.built.append(len(members))
        stack = local.stack_for(members, *rest, **more)
        self.alive.add(stack)
        self.most = max(self.most, self.now())
        return stack

    def now(self) -> int:
        return MIB * (100 + sum(len(stack.members) * stack.members[0].width for stack in self.alive))

    def available(self) -> int:
        return self.free

    def reset(self) -> None:
        self.most = self.now()

    def peak(self) -> int:
        return self.most

    def peak_reserved(self) -> int:
        return self.most


def budget_for(members: int, width: int = 8) -> float:
    """MiB that allow a stack of so many members."""
    return SAFETY_FACTOR * (100 + width * members)


def test_a_probe_really_trains_evaluates_and_analyses(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for kind, name in ((Trainer, "update"), (Trainer, "evaluate"), (LstSigma, "rehearse"), (LstSigma, "arrays")):
        usual = getattr(kind, name)

        def note(*given: Any, usual: Any = usual, name: str = name) -> Any:
            done.append(name)
            return usual(*given)

        monkeypatch.setattr(kind, name, note)

    class Meter(FakeGpu):
        def peak(self) -> int:
            return {0: 10, memory.PROBE_STEPS: 50, memory.PROBE_STEPS + 1: 30}.get(len(done), 70)

    study, meter = tiny(), Meter(monkeypatch, 1000)
    task = study.task()
    need = memory.probe(study, task, study.members()[:2], Where("cpu"), meter)
    assert done == [*["update"] * memory.PROBE_STEPS, "evaluate", "rehearse", "arrays"]
    assert need == PeakMemory(training=50, evaluation=30 - 10, closing=70)
    done.clear()
    memory.probe(study, task, study.members()[:2], Where("cpu"), meter, updates=0)
    assert done == ["evaluate", "rehearse", "arrays"]


def test_a_probe_leaves_room_for_a_checkpoint_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds one while it trains, and no longer."""
    state, update, evaluate = Trainer.state, Trainer.update, Trainer.evaluate
    copies: WeakSet[torch.Tensor] = WeakSet()
    held: dict[str, int] = {}

    def copied(trainer: Trainer) -> dict[str, torch.Tensor]:
        made = state(trainer)
        copies.update(made.values())
        return made

    def counted(name: str, usual: Any) -> Any:
        def count(trainer: Trainer) -> Any:
            held[name] = len(copies)
            return usual(trainer)

        return count

    monkeypatch.setattr(Trainer, "state", copied)
    monkeypatch.setattr(Trainer, "update", counted("training", update))
    monkeypatch.setattr(Trainer, "evaluate", counted("evaluation", evaluate))
    study = tiny()
    memory.probe(study, study.task(), study.members()[:2], Where("cpu"), FakeGpu(monkeypatch, 1000))
    arrays = ("flat", "optimizer.first", "optimizer.second", "runs", *Running.VECTORS)
    assert held == {"training": len(arrays), "evaluation": 0}


def split_of(members: list[Member], where: Where) -> memory.Split:
    return memory.split(tiny(), tiny().task(), members, range(len(members)), where.resolved())


def test_every_shape_gets_stacks_of_its_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu(monkeypatch, 1e6, free=budget_for(5, width=8))
    small, wide = Member(width=8, heads=2, batch=16), Member(width=16, heads=2, batch=16)
    members = [dataclasses.replace(kind, seed=seed) for seed in range(6) for kind in (small, wide)]
    found = split_of(members, Where("cpu"))
    assert found.parts == [[0, 2, 4], [6, 8, 10], [1, 3], [5, 7], [9, 11]]  # at most 5 small ones, or 2 wide ones
    assert found.costs is not None
    assert [round(cost.per_member) for cost in found.costs] == [8 * MIB] * 2 + [16 * MIB] * 3
    record = found.record(Where("cpu"))
    assert record["split"][:2] == ["0:1,2:3,4:5", "6:7,8:9,10:11"]
    assert record["memory"]["bytes needed"] == [124 * MIB] * 2 + [132 * MIB] * 3


def test_a_share_of_the_memory_and_no_more_than_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [Member(width=8, heads=2, batch=16, seed=seed) for seed in range(8)]
    FakeGpu(monkeypatch, 2 * budget_for(4))
    assert [len(part) for part in split_of(members, Where("cpu", memory=0.5)).parts] == [4, 4]
    assert [len(part) for part in split_of(members, Where("cpu", memory=1.0)).parts] == [8]
    FakeGpu(monkeypatch, 2 * budget_for(4), free=budget_for(3))
    assert [len(part) for part in split_of(members, Where("cpu", memory=0.5)).parts] == [3, 3, 2]


@pytest.mark.parametrize(("stack", "sizes"), [(2, [2] * 3), (5, [3] * 2), (600, [3] * 2)])
def test_a_stack_that_is_given_is_kept_to_where_memory_allows(
    monkeypatch: pytest.MonkeyPatch, stack: int, sizes: list[int]
) -> None:
    FakeGpu(monkeypatch, 1000, free=budget_for(4))
    members = [Member(width=8, heads=2, batch=16, seed=seed) for seed in range(6)]
    assert [len(part) for part in split_of(members, Where("cpu", stack=stack)).parts] == sizes


@pytest.mark.parametrize(("count", "workers", "sizes"), [(600, 1, [300] * 2), (300, 4, [75] * 4), (40, 4, [20] * 2)])
def test_more_gpus_get_smaller_stacks_down_to_what_pays(count: int, workers: int, sizes: list[int]) -> None:
    members = [Member(width=8, heads=2, seed=seed) for seed in range(count)]
    where = Where("cuda", workers=workers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "meter_for", lambda where: None)
        found = memory.split(tiny(), tiny().task(), members, range(count), where)
    assert [len(part) for part in found.parts] == sizes


def test_not_even_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    FakeGpu(monkeypatch, 2 * 1024, free=100)
    with pytest.raises(BadInput) as error:
        local.execute(tiny(), tmp_path / "run", where=Where("cpu"))
    assert str(error.value) == (
        "the GPU must have memory for at least one member of this study; it may use 100 MiB (0.8 of 2.0 GiB, of which "
        "1.1 GiB are free), which is too little."
    )
    assert list(tmp_path.iterdir()) == []


# Runs


def test_a_set_that_is_split_finishes_and_says_what_it_took(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = local.execute(tiny(), tmp_path / "whole", where=Where("cpu"))
    assert whole.environment["split"] == ["0:6"]
    assert "memory" not in whole.environment  # on a CPU nothing is made up
    assert display.memory_text(whole) is None
    FakeGpu(monkeypatch, 1000, free=budget_for(4))
    run = local.execute(tiny(), tmp_path / "run", where=Where("cpu"))
    assert run.environment["split"] == ["0:3", "3:6"]
    assert run.environment["memory"] == {
        **{"share": 0.8, "peak bytes": [124 * MIB] * 2, "bytes needed": [124 * MIB] * 2},
        "bytes per member": [8 * MIB] * 2,
    }
    assert run.config == whole.config  # what was asked for is the same
    said = "peak GPU memory 124 MiB, 41 MiB per member"
    assert display.memory_text(run) == f"Memory: largest stack of 3 members; {said}."
    log = (tmp_path / "run" / "log.txt").read_text()
    assert f" stack 1/2: {said}\n" in log and f" stack 2/2: {said}\n" in log
    inputs = tiny().task().splits["ood"].inputs
    for number in range(6):
        assert (run.load(number)(inputs) - whole.load(number)(inputs)).abs().max() < 1e-5


def test_a_run_keeps_its_split_whatever_is_free_when_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeGpu(monkeypatch, 1000, free=budget_for(4))
    whole = local.execute(tiny(), tmp_path / "whole", where=Where("cpu"))
    events = iter(range(100))
    with pytest.raises(Interrupted):
        local.execute(tiny(), tmp_path / "run", where=Where("cpu"), stop=lambda: next(events) >= 4)
    assert checkpoints.verify(tmp_path / "run" / "checkpoints", "stack-000") == 8
    shutil.copytree(tmp_path / "run", tmp_path / "crowded")

    gpu = FakeGpu(monkeypatch, 1000)
    run = local.execute(tiny(), tmp_path / "run", where=Where("cpu", memory=1.0), resume=True)
    assert gpu.built == [3, 3, 3]  # the second stack, and both for their results: nothing was measured
    for name in RESULTS:
        assert (run.path / name).read_bytes() == (whole.path / name).read_bytes(), name
    assert run.environment["split"] == ["0:3", "3:6"]
    assert run.environment["memory"]["peak bytes"] == [124 * MIB] * 2

    gpu.free = 123 * MIB
    with pytest.raises(BadInput) as error:
        local.execute(tiny(), tmp_path / "crowded", where=Where("cpu"), resume=True)
    assert str(error.value) == (
        "the GPU must have 124 MiB free for the stacks of this run; 123 MiB are free now: wait until other processes "
        "release memory, or start again with --force."
    )
    gpu.free = 124 * MIB
    assert local.execute(tiny(), tmp_path / "crowded", where=Where("cpu"), resume=True).summary == whole.summary


def test_pieces_from_machines_with_other_memory_merge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pieces = [tmp_path / "a", tmp_path / "b"]
    for path, cut, members in ((pieces[0], "0:4", 4), (pieces[1], "4:6", 1)):
        FakeGpu(monkeypatch, 1000, free=budget_for(members))
        local.execute(tiny(), path, where=Where("cpu"), chosen=cut)
    assert [Run(path).environment["split"] for path in pieces] == [["0:4"], ["4:5", "5:6"]]
    assert len(merge(pieces, tmp_path / "merged").members) == 6


def test_running_out_all_the_same_keeps_what_is_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = Where("cpu", stack=3)
    whole = local.execute(tiny(), tmp_path / "whole", where=where)
    usual = Trainer.update

    def update(trainer: Trainer) -> Any:
        if trainer.stack.members[0].sigma == 2.0 and trainer.step == 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return usual(trainer)

    def execute(study: Study, out: Path, **given: Any) -> Run:
        return local_execute(tiny(), out, where=where, resume=given["resume"])

    local_execute = local.execute
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", update)
        patch.setattr(local, "execute", execute)
        assert cli.main(["run", "lst-sigma", "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == (
        "placecode: the GPU must have memory for a stack of 3 members, but it ran out of memory; finished stacks and "
        "the last checkpoints are kept: continue with --resume, which keeps the stacks, when more memory is free, or "
        "start again with --force and a lower --memory or --stack.\n"
    )
    assert checkpoints.verify(tmp_path / "run" / "checkpoints", "stack-000") == 8
    run = local.execute(tiny(), tmp_path / "run", where=where, resume=True)
    for name in RESULTS:
        assert (run.path / name).read_bytes() == (whole.path / name).read_bytes(), name


def test_a_dry_run_plans_as_a_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu(monkeypatch, 1000, free=budget_for(4))
    found = estimate(tiny(), Where("cpu"))
    assert (found.members, found.stacks, found.largest, found.processes) == (6, 2, 3, 1)
    assert (found.bytes, found.bytes_per_member) == (124 * MIB, 8 * MIB)
    lines = display.estimate_text(tiny(), found, Where("cpu")).splitlines()
    assert lines[0].startswith("lst-sigma: 6 members in 2 stacks, 8 steps each, on cpu")
    assert lines[1].endswith("memory: 0.1 GiB.")
    assert lines[2] == "Each member needs 8 MiB of GPU memory; the largest stack has 3 members."


def test_workers_share_the_time_of_a_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = estimate(tiny(), Where("cpu", stack=2, workers=3))
    assert (found.stacks, found.processes, found.bytes_per_member) == (3, 3, None)
    text = display.estimate_text(tiny(), found, Where("cpu"))
    assert "8 steps each, on cpu, 3 worker processes, precision high." in text
    ticks = iter(range(100))
    monkeypatch.setattr("placecode.execution.estimate.time.perf_counter", lambda: next(ticks))  # 3 steps in a second
    one, three = (estimate(tiny(), Where("cpu", stack=2, workers=workers)) for workers in (1, 3))
    task = tiny().task()
    asked = sum(task.rows(name) for name in task.splits) * (len(tiny().evaluate_at(task)) + 2)
    assert one.answer == 1 / (2 * task.rows("train"))  # a second for all examples and both members
    assert one.seconds == pytest.approx(8 * 6 / 3 / 2 + 6 * asked * one.answer)  # steps, and answers at evaluation
    assert three.seconds == pytest.approx(one.seconds / 3)


# A real one


@pytest.mark.gpu
def test_a_set_that_exceeds_its_share_of_the_gpu_is_split_and_finishes(cuda: str, tmp_path: Path) -> None:
    study = tiny(width=64, layers=2, batch=64, per_class=200, seeds=(0, 1, 2, 3))
    task, where = study.task(), Where(cuda, "highest", workers=1)
    whole = local.execute(study, tmp_path / "whole", where=where)
    assert whole.environment["split"] == ["0:8"]
    meter = memory.meter_for(where.resolved())
    assert meter is not None
    with where.arithmetic():
        need = memory.probe(study, task, study.members()[:3], where, meter)
    share = 1.01 * SAFETY_FACTOR * (need.training + need.evaluation) / meter.total
    run = local.execute(study, tmp_path / "run", where=dataclasses.replace(where, memory=share))
    sizes = [len(runs.numbers_in(part, 8)) for part in run.environment["split"]]
    assert len(sizes) >= 2 and max(sizes) <= 5, sizes
    peaks = run.environment["memory"]["peak bytes"]
    most = whole.environment["memory"]["peak bytes"][0]
    assert all(0 < peak <= most for peak in peaks), (sizes, peaks, most)
    assert "MiB per member" in (display.memory_text(run) or "")
    inputs = task.splits["ood"].inputs
    for number in range(8):
        assert (run.load(number)(inputs) - whole.load(number)(inputs)).abs().max() < 1e-3
    assert (run.load(0)(inputs) - run.load(1)(inputs)).abs().max() > 1e-2  # members do differ
    assert json.loads((tmp_path / "run" / "config.json").read_text()) == whole.config


@pytest.mark.parametrize(
    ("threads", "count", "expected"), [(2, 15, 8), (2, 6, 3), (2, 1, 1), (2, 100, 8), (1, 6, 6), (4, 6, 2)]
)
def test_few_members_are_spread_over_the_cores(
    threads: int, count: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert Where("cpu").resolved().most_of(count, MIN_VALUES_FOR_THREADS) == expected
    assert Where("cpu").resolved().most_of(count, MIN_VALUES_FOR_THREADS - 1) == min(
        count, 8
    )  # small ones stay together
    assert Where("cpu", workers=2).resolved().most_of(8, 1) == 4  # processes do not wait for each other
    assert Where("cpu", stack=5).resolved().most_of(count, MIN_VALUES_FOR_THREADS) == 5  # as asked
