"""Members are split into stacks as GPU memory allows, a resumed run keeps the split, and errors say what to do."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import torch
from helpers.training.tiny_runs import assert_same, stop_run, tiny

from placecode.errors import BadInput
from placecode.execution import checkpoints, local, memory, settings
from placecode.execution.estimate import estimate
from placecode.execution.memory import PROBE_SIZES, SAFETY_FACTOR, PeakMemory, largest_stack
from placecode.execution.settings import ExecutionSettings
from placecode.experiments import Experiment
from placecode.experiments.latin.squares import LstSigma
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.runs.read import parse_ranges
from placecode.training.active_stack import ActiveStack
from placecode.training.trainer import Trainer

MIB = 1 << 20
CPU = ExecutionSettings("cpu")


def six(**settings: Any) -> Experiment:
    """Return the tiny experiment with 6 members and 8 steps."""
    return tiny(**{"seeds": (0, 1, 2), "epochs": 2, "evaluations": 2, **settings})


Measured = tuple[Callable[..., PeakMemory], list[tuple[int, int]]]


def measured(base: float, per_member: float, evaluation: Any = lambda n: 0.0, closing: int = 0) -> Measured:
    """Return a function for `largest_stack` that simulates stacks of this memory, and its calls, (members, updates)."""
    calls: list[tuple[int, int]] = []

    def measure(count: int, updates: int = 5) -> PeakMemory:
        calls.append((count, updates))
        return PeakMemory(round(base + per_member * count), round(evaluation(count)), round(closing * count))

    return measure, calls


@pytest.mark.parametrize(
    ("base", "per_member", "limit", "budget", "size"),
    [
        (100, 10, 128, 1e9, 128),
        (100, 10, 128, 100 + 10 * 60, 60),  # `base` counts once per stack
        (100, 10, 3, 1e9, 3),
        (100, 10, 128, 110, 1),
        (100, 10, 128, 109, 0),
    ],
)
def test_the_largest_stack_that_fits(base: float, per_member: float, limit: int, budget: float, size: int) -> None:
    measure, calls = measured(base, per_member)
    result, cost = largest_stack(measure, limit, budget * SAFETY_FACTOR)
    assert result == size
    assert [count for count, _ in calls] == list(PROBE_SIZES)
    assert (cost.base, cost.per_member) == (base, per_member)


@pytest.mark.parametrize(
    ("measure", "budget", "probe", "size", "total"),
    [
        # the probes predict 50 bytes per member, but evaluation batches of limited size need at most 300
        (measured(100, 10, evaluation=lambda n: min(50 * n, 300)), 100 + 10 * 80 + 300, (110, 0), 80, 1200),
        (measured(0, 10, evaluation=lambda n: 10 * n), 1000, (100, 0), 50, 1000),
    ],
)
def test_evaluation_is_measured_before_the_stack_is_made_smaller(
    measure: Measured, budget: float, probe: tuple[int, int], size: int, total: int
) -> None:
    result, cost = largest_stack(measure[0], 128, SAFETY_FACTOR * budget)
    assert measure[1] == [(2, 5), (4, 5), probe]
    assert (result, cost.total(size)) == (size, total)


@pytest.mark.parametrize(("fits", "budget", "size"), [(1, 110, 1), (3, 110, 1), (1, 109, 0), (0, 110, 0)])
def test_if_the_probes_do_not_fit_a_single_member_is_tried(fits: int, budget: int, size: int) -> None:
    def measure(count: int, updates: int = 5) -> PeakMemory:
        if count > fits:
            raise torch.OutOfMemoryError
        return PeakMemory(100, 10, 0)

    assert largest_stack(measure, 128, SAFETY_FACTOR * budget)[0] == size


class FakeGpu:
    """Replace `GpuMemoryMeter` for stacks on a CPU. They use 100 MiB, and 1 MiB per feature of every member."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, total: float, free: float | None = None) -> None:
        self.total = round(total * MIB)
        self.free = round((total if free is None else free) * MIB) + memory.RESERVED_BYTES
        self.alive: WeakSet[Stack] = WeakSet()
        self.built: list[int] = []
        self.reset()
        monkeypatch.setattr(settings, "stack_for", self.stack_for)
        monkeypatch.setattr(memory, "meter_for", lambda execution: self)

    def stack_for(self, members: list[Member], *arguments: Any, **keywords: Any) -> Any:
        self.built.append(len(members))
        stack = local.stack_for(members, *arguments, **keywords)
        self.alive.add(stack)
        self.peak_bytes = max(self.peak_bytes, self.now())
        return stack

    def now(self) -> int:
        return MIB * (100 + sum(len(stack.members) * stack.members[0].width for stack in self.alive))

    def available(self) -> int:
        return self.free

    def reset(self) -> None:
        self.peak_bytes = self.now()

    def peak(self) -> int:
        return self.peak_bytes

    def peak_reserved(self) -> int:
        return self.peak_bytes


def budget_for(members: int, width: int = 8) -> float:
    """Return the memory in MiB with which a stack of this many members fits."""
    return SAFETY_FACTOR * (100 + width * members)


def test_a_probe_trains_evaluates_analyses_and_holds_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    copies: WeakSet[torch.Tensor] = WeakSet()
    state = Trainer.state

    def recorded_state(trainer: Trainer) -> dict[str, torch.Tensor]:
        result = state(trainer)
        copies.update(result.values())
        return result

    monkeypatch.setattr(Trainer, "state", recorded_state)
    for kind, name in ((Trainer, "update"), (Trainer, "evaluate"), (LstSigma, "trial_analysis"), (LstSigma, "arrays")):
        original = getattr(kind, name)

        def recorded_call(*arguments: Any, original: Any = original, name: str = name) -> Any:
            calls.append((name, len(copies)))
            return original(*arguments)

        monkeypatch.setattr(kind, name, recorded_call)

    class Meter(FakeGpu):
        def peak(self) -> int:
            return {0: 10, memory.PROBE_STEPS: 50, memory.PROBE_STEPS + 1: 30}.get(len(calls), 70)

    experiment, meter = six(), Meter(monkeypatch, 1000)
    task = experiment.task()
    peaks = memory.probe(experiment, task, experiment.members()[:2], CPU, meter)
    arrays = len(("flat", "optimizer.first", "optimizer.second", "runs", *ActiveStack.STATUS_VECTORS))
    after = [("evaluate", 0), ("trial_analysis", 0), ("arrays", 0)]
    assert calls == [("update", arrays)] * memory.PROBE_STEPS + after
    assert peaks == PeakMemory(training=50, evaluation=30 - 10, analysis=70)
    calls.clear()
    memory.probe(experiment, task, experiment.members()[:2], CPU, meter, updates=0)
    assert calls == after


def plan_of(members: list[Member], execution: ExecutionSettings) -> memory.StackPlan:
    return memory.stack_plan(six(), six().task(), members, range(len(members)), execution)


def sizes_of(count: int, execution: ExecutionSettings) -> list[int]:
    members = [Member(width=8, heads=2, batch=16, seed=seed) for seed in range(count)]
    return [len(stack) for stack in plan_of(members, execution).stacks]


def test_every_shape_has_a_stack_size(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu(monkeypatch, 1e6, free=budget_for(5, width=8))
    plan = plan_of([Member(width=width, heads=2, batch=16, seed=seed) for seed in range(6) for width in (8, 16)], CPU)
    assert plan.stacks == [[0, 2, 4], [6, 8, 10], [1, 3], [5, 7], [9, 11]]  # at most 5 narrow or 2 wide members
    record = plan.record(CPU)
    assert record["split"][:2] == ["0:1,2:3,4:5", "6:7,8:9,10:11"]
    assert record["memory"]["bytes per member"] == [8 * MIB] * 2 + [16 * MIB] * 3
    assert record["memory"]["bytes needed"] == [124 * MIB] * 2 + [132 * MIB] * 3


def test_a_share_of_the_memory_and_at_most_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu(monkeypatch, 2 * budget_for(4))
    half, all_memory = (ExecutionSettings("cpu", memory=share) for share in (0.5, 1.0))
    assert sizes_of(8, half) == [4, 4] and sizes_of(8, all_memory) == [8]
    FakeGpu(monkeypatch, 2 * budget_for(4), free=budget_for(3))
    assert sizes_of(8, half) == [3, 3, 2]


@pytest.mark.parametrize(("stack", "sizes"), [(2, [2] * 3), (5, [3] * 2), (600, [3] * 2)])
def test_stack_is_an_upper_limit(monkeypatch: pytest.MonkeyPatch, stack: int, sizes: list[int]) -> None:
    FakeGpu(monkeypatch, 1000, free=budget_for(4))
    assert sizes_of(6, ExecutionSettings("cpu", stack=stack)) == sizes


@pytest.mark.parametrize(("count", "workers", "sizes"), [(600, 1, [300] * 2), (300, 4, [75] * 4), (40, 4, [20] * 2)])
def test_more_gpus_get_smaller_stacks_down_to_a_minimum(
    monkeypatch: pytest.MonkeyPatch, count: int, workers: int, sizes: list[int]
) -> None:
    members = [Member(width=8, heads=2, seed=seed) for seed in range(count)]
    monkeypatch.setattr(memory, "meter_for", lambda execution: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: workers)
    plan = memory.stack_plan(six(), six().task(), members, range(count), ExecutionSettings("cuda", workers=workers))
    assert [len(stack) for stack in plan.stacks] == sizes


def test_no_room_for_a_single_member(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    FakeGpu(monkeypatch, 2 * 1024, free=100)
    with pytest.raises(BadInput, match=r"may use 100 MiB \(0\.8 of 2\.0 GiB, of which 1\.1 GiB are free\)"):
        local.execute(six(), tmp_path / "run", execution=CPU)
    assert list(tmp_path.iterdir()) == []


def test_a_split_run_records_the_memory_of_its_estimate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    complete = local.execute(six(), tmp_path / "complete", execution=CPU)
    assert complete.environment["split"] == ["0:6"]
    assert "memory" not in complete.environment  # unknown on a CPU
    FakeGpu(monkeypatch, 1000, free=budget_for(4))
    run = local.execute(six(), tmp_path / "run", execution=CPU)
    assert run.environment["split"] == ["0:3", "3:6"]
    needed = [124 * MIB] * 2
    expected = {"share": 0.8, "peak bytes": needed, "bytes needed": needed, "bytes per member": [8 * MIB] * 2}
    assert run.environment["memory"] == expected
    assert run.config == complete.config
    estimated = estimate(six(), CPU)
    assert (estimated.members, estimated.stacks, estimated.largest_stack_size, estimated.steps) == (6, 2, 3, 8)
    assert (estimated.bytes, estimated.bytes_per_member) == (124 * MIB, 8 * MIB)


def test_a_resumed_run_keeps_its_split_whatever_memory_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    FakeGpu(monkeypatch, 1000, free=budget_for(4))
    complete = local.execute(six(), tmp_path / "complete", execution=CPU)
    stop_run(six(), tmp_path / "run", CPU, 5)
    assert checkpoints.verify(tmp_path / "run" / "checkpoints", "stack-000") == 8
    shutil.copytree(tmp_path / "run", tmp_path / "crowded")

    gpu = FakeGpu(monkeypatch, 1000)
    run = local.execute(six(), tmp_path / "run", execution=ExecutionSettings("cpu", memory=1.0), resume=True)
    assert gpu.built == [3, 3, 3]  # the second stack, and both for their analyses: nothing was measured
    assert_same(run.path, complete.path)
    assert run.environment["split"] == ["0:3", "3:6"] and run.environment["memory"]["peak bytes"] == [124 * MIB] * 2

    gpu.free = 123 * MIB
    with pytest.raises(BadInput, match="must have 124 MiB free for the stacks of this run; 123 MiB are free now"):
        local.execute(six(), tmp_path / "crowded", execution=CPU, resume=True)
    gpu.free = 124 * MIB
    assert local.execute(six(), tmp_path / "crowded", execution=CPU, resume=True).summary == complete.summary


def test_a_run_that_is_out_of_memory_keeps_finished_stacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    execution, original = ExecutionSettings("cpu", stack=3), Trainer.update
    complete = local.execute(six(), tmp_path / "complete", execution=execution)

    def update(trainer: Trainer) -> Any:
        if trainer.stack.members[0].sigma == 2.0 and trainer.step == 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return original(trainer)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", update)
        with pytest.raises(BadInput, match=r"a stack of 3 members, but it ran out of memory; .* --resume"):
            local.execute(six(), tmp_path / "run", execution=execution)
    assert checkpoints.verify(tmp_path / "run" / "checkpoints", "stack-000") == 8
    assert_same(local.execute(six(), tmp_path / "run", execution=execution, resume=True).path, complete.path)


def test_an_estimate_divides_the_time_by_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(100))
    monkeypatch.setattr("placecode.execution.estimate.time.perf_counter", lambda: next(ticks))  # 3 steps take a second
    single, triple = (estimate(six(), ExecutionSettings("cpu", stack=2, workers=workers)) for workers in (1, 3))
    assert (triple.stacks, triple.processes, triple.bytes_per_member) == (3, 3, None)
    task = six().task()
    answers = sum(task.row_count(name) for name in task.splits) * (len(six().evaluate_at(task)) + 2)
    # a second for all examples and both members
    assert single.seconds_per_prediction == 1 / (2 * task.row_count("train"))
    # steps and evaluations
    assert single.seconds == pytest.approx(8 * 6 / 3 / 2 + 6 * answers * single.seconds_per_prediction)
    assert triple.seconds == pytest.approx(single.seconds / 3)


@pytest.mark.gpu
def test_a_run_that_exceeds_its_share_of_a_real_gpu_is_split(cuda: str, tmp_path: Path) -> None:
    experiment = six(width=64, layers=2, batch=64, per_class=200, seeds=(0, 1, 2, 3))
    task, execution = experiment.task(), ExecutionSettings(cuda, "highest", workers=1)
    complete = local.execute(experiment, tmp_path / "complete", execution=execution)
    assert complete.environment["split"] == ["0:8"]
    meter = memory.meter_for(execution)
    assert meter is not None
    with execution.arithmetic():
        peaks = memory.probe(experiment, task, experiment.members()[:3], execution, meter)
    share = 1.01 * SAFETY_FACTOR * (peaks.training + peaks.evaluation) / meter.total
    run = local.execute(experiment, tmp_path / "run", execution=dataclasses.replace(execution, memory=share))
    sizes = [len(parse_ranges(part, 8)) for part in run.environment["split"]]
    assert len(sizes) >= 2 and max(sizes) <= 5, sizes
    complete_peak = complete.environment["memory"]["peak bytes"][0]
    assert all(0 < peak <= complete_peak for peak in run.environment["memory"]["peak bytes"])
    inputs = task.splits["ood"].inputs
    for number in range(8):
        assert (run.load(number)(inputs) - complete.load(number)(inputs)).abs().max() < 1e-3
    assert (run.load(0)(inputs) - run.load(1)(inputs)).abs().max() > 1e-2  # members differ
    assert json.loads((tmp_path / "run" / "config.json").read_text()) == complete.config
