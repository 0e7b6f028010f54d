"""Time and memory of training steps: the median round is reported, and a failure becomes a note."""

import dataclasses
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from placecode import bench
from placecode.bench import authors, measure
from placecode.bench.cases import Case, Synthetic, flops
from placecode.bench.measure import ROUNDS, Candidate, Job, Placecode, Products
from placecode.execution.settings import DEFAULT_STACK_SIZE
from placecode.training.trainer import Trainer, stack_for

TINY = Case("tiny", 8, 4, 2, 1, 2, 4, 3, 2, "last", 100)


def job(name: str = "placecode", members: int = 2, steps: int | None = None, case: Case = TINY) -> Job:
    return Job(case, name, members, "cpu", "high", 1.0, steps)


class Clockwork(Candidate):
    """An implementation whose steps take a fixed time on a simulated clock."""

    models = 4

    def __init__(self, slow: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.runs, self.slow = 0.0, list[int](), slow
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def run(self, steps: int) -> None:
        self.runs.append(steps)
        self.now += steps * (5.0 if len(self.runs) == self.slow else 0.01)


def test_the_median_round_counts_and_the_warm_up_does_not(monkeypatch) -> None:
    for slow in (1, 30):  # the very first step, and a round
        candidate = Clockwork(slow, monkeypatch)
        result = measure.time_steps(candidate, job())
        assert result["us_per_model_step"] == pytest.approx(10_000 / candidate.models)
        assert candidate.runs[-ROUNDS:] == [20] * ROUNDS  # a second, shared out
        assert result["steps"] == 20 * ROUNDS and slow <= len(candidate.runs)


def test_a_round_is_never_longer_than_an_epoch_nor_empty(monkeypatch) -> None:
    candidate = Clockwork(0, monkeypatch)
    measure.time_steps(candidate, Job(TINY, "x", 1, "cpu", "high", 1000.0))
    assert candidate.runs[-1] == 64
    measure.time_steps(candidate, Job(TINY, "x", 1, "cpu", "high", 1e-6))
    assert candidate.runs[-1] == 1 and measure.time_steps(candidate, job(steps=3))["steps"] == 3 * ROUNDS


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("two_threads")
def test_placecode_is_timed_in_the_stacks_and_threads_of_a_run() -> None:
    """Stacks and threads are those of `placecode run`, and each trainer has done its steps."""
    candidate = Placecode(job(members=2 * DEFAULT_STACK_SIZE["cpu"]))
    assert [len(trainer.stack.members) for trainer in candidate.trainers] == [DEFAULT_STACK_SIZE["cpu"]] * 2
    concurrency = job().execution.concurrency(2, TINY.values)
    expected = (concurrency.concurrent_stacks, concurrency.threads_per_stack)
    assert (candidate.pool._max_workers, candidate.threads) == expected
    candidate.run(3)
    candidate.run(1)
    task = Synthetic(TINY)
    alone = Trainer(stack_for(TINY.members(1), task), task, 4)
    for _ in range(4):
        alone.update()
    assert [trainer.step for trainer in candidate.trainers] == [4, 4]
    torch.testing.assert_close(candidate.trainers[0].stack.flat[0], alone.stack.flat[0], rtol=0, atol=1e-5)


def test_the_ceiling_holds_all_products_of_the_linear_layers() -> None:
    candidate = Products(job("ceiling"))
    assert candidate.flops() == flops(TINY) - 3 * 4 * 4 * 4 * 8 * (4 + 1)  # attention
    candidate.run(1)


def test_work_of_others_is_that_of_the_machine_minus_ours(monkeypatch) -> None:
    stat = "cpu  100 20 30 999 999 4 5 6 77 77\ncpu0 1 1 1 1 1 1 1 1 1 1\n"  # neither idle nor waiting is work
    monkeypatch.setattr(Path, "read_text", lambda path: stat)
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    monkeypatch.setattr(time, "process_time", lambda: 0.5)
    assert measure._other_cpu_seconds() == pytest.approx(1.65 - 0.5)
    monkeypatch.setattr(Path, "read_text", lambda path: "something else")
    assert measure._other_cpu_seconds() is None


def test_rows_that_were_disturbed_are_counted() -> None:
    quiet = measure.row_of(job(), {"others": 0.05})
    assert bench.disturbance_note({"rows": [quiet, measure.row_of(job(), {})], "ceilings": []}) == ""
    loud = [measure.row_of(job(), {"others": cores}) for cores in (0.5, 1.26)]
    assert "2 of 4 rows" in bench.disturbance_note({"rows": [quiet, *loud], "ceilings": [quiet]})
    assert bench.disturbance_note({"rows": [{**row, "device": "cuda"} for row in loud], "ceilings": []}) == ""


def test_a_row_says_what_follows_from_its_time() -> None:
    row = measure.row_of(job(), {"us_per_model_step": 200.0, "steps": 5, "peak_bytes": 7}, ceiling=1e-3)
    assert row["tflops"] == pytest.approx(flops(TINY) / 200e-6 / 1e12)
    assert row["share_of_ceiling"] == pytest.approx(row["tflops"] / 1e-3)
    assert row["models_per_hour"] == pytest.approx(3600 / (100 * 200e-6))
    assert (row["case"], row["width"], row["tokens"], row["layers"], row["batch"]) == ("tiny", 8, 4, 2, 4)
    empty = measure.row_of(job(), {"note": "why"})
    assert empty.keys() == row.keys() and empty["note"] == "why"
    assert [empty[name] for name in ("us_per_model_step", "tflops", "peak_bytes", "models_per_hour")] == [None] * 4


def test_a_failure_in_a_fresh_process_is_a_note() -> None:
    assert measure.in_fresh_process(job("nobody")) == {"note": "KeyError: 'nobody'"}


def test_more_members_hold_more_memory() -> None:
    wide = TINY.resized(width=64, batch=64, tokens=16)
    small, large = (measure.in_fresh_process(job(members=count, steps=1, case=wide))["peak_bytes"] for count in (1, 8))
    assert large > small + 2 * 2**20


def fake_runs(monkeypatch: pytest.MonkeyPatch, start: float, epoch: float) -> list[list[str]]:
    """Simulate commands on a simulated clock; the last word of a command is its number of epochs."""
    now, commands = [0.0], list[list[str]]()

    def run(words: list[str], **rest: object) -> subprocess.CompletedProcess[bytes]:
        commands.append(words)
        now[0] += start + epoch * int(words[-1])
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return commands


def test_a_command_is_timed_by_the_difference_of_two_runs(monkeypatch) -> None:
    commands = fake_runs(monkeypatch, start=10.0, epoch=6.4)
    result = authors.measure("train 'a b' --steps={steps} --other {x} {epochs}")
    assert result == {"us_per_model_step": pytest.approx(100_000), "steps": 128}
    assert commands[0] == ["train", "a b", "--steps=64", "--other", "{x}", "1"]
    assert commands[1] == ["train", "a b", "--steps=192", "--other", "{x}", "3"]


def test_a_command_that_fails_or_does_not_train_longer_is_a_note(monkeypatch) -> None:
    command = f"{shlex.quote(sys.executable)} -c 'raise SystemExit({{steps}} // 64 + 2)'"
    assert authors.measure(command) == {"note": "the command ended with the code 3"}
    fake_runs(monkeypatch, start=10.0, epoch=0.0)
    assert authors.measure("train {epochs}") == {"note": "the command took no longer for more steps"}


def test_the_fastest_of_three_processes_counts_on_a_cpu(monkeypatch) -> None:
    def run(device: str, results: list[dict[str, Any]]) -> tuple[dict[str, Any], int]:
        remaining = list(results)
        monkeypatch.setattr(measure, "in_fresh_process", lambda job: remaining.pop(0))
        return measure.run_job(dataclasses.replace(job(), device=device)), len(results) - len(remaining)

    slow, fast, failed = {"us_per_model_step": 3.0}, {"us_per_model_step": 2.0}, {"note": "why"}
    assert run("cpu", [slow, fast, slow]) == (fast, 3) and run("cpu", [slow, failed, slow]) == (slow, 3)
    assert run("cpu", [failed, fast, fast]) == (failed, 1)  # what fails once need not fail three times
    assert run("cuda", [slow, fast, fast]) == (slow, 1)
