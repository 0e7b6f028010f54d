"""Execution of an experiment: reproducible, independent of the stacks, and members that diverge do not affect
others."""

import dataclasses
import errno
import json
import math
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.training.tiny_runs import assert_same, stop_run, tiny

from placecode.errors import BadInput
from placecode.execution import environment, local
from placecode.execution.progress import Event, Log, Reporter
from placecode.execution.settings import ExecutionSettings
from placecode.experiments import lookup
from placecode.experiments.latin.squares import LstSigma
from placecode.models.member import Member
from placecode.runs.read import Run
from placecode.training.trainer import Progress, Trainer, stack_for

TWO_STACKS, ONE_STACK = ExecutionSettings("cpu", stack=2), ExecutionSettings("cpu", stack=4)


@pytest.mark.parametrize("encodings", [("sinusoid:axes=2", "sinusoid"), ("sinusoid", "sinusoid:axes=2")])
def test_every_encoding_is_checked_with_its_options(encodings: tuple[str, ...]) -> None:
    """The nodes of a network have no positions in two dimensions."""
    settings = {"width": 8, "layers": 1, "nodes": 10, "clusters": 2, "train": 100, "test": 20, "seeds": (0,)}
    experiment = lookup("network-encodings").from_scale("quick", **settings, encodings=encodings)
    with pytest.raises(BadInput, match="they have no known positions"):
        local.check(experiment, experiment.task(), experiment.members())


def test_another_stack_split_gives_the_same_outputs_to_rounding(unbroken: Run, tmp_path: Path) -> None:
    other = local.execute(tiny(), tmp_path / "other", execution=ExecutionSettings("cpu", stack=3))
    inputs = tiny().task().splits["ood"].inputs
    for number in range(4):
        assert (other.load(number)(inputs) - unbroken.load(number)(inputs)).abs().max() < 1e-5
    assert other.members.equals(unbroken.members)
    assert other.metrics.drop(columns="value").equals(unbroken.metrics.drop(columns="value"))
    losses = [run.metrics.query("metric == 'loss'")["value"].to_numpy() for run in (other, unbroken)]
    assert np.abs(losses[0] - losses[1]).max() < 1e-5


def test_the_same_experiment_gives_the_same_bytes_and_other_seeds_do_not(unbroken: Run, tmp_path: Path) -> None:
    assert_same(local.execute(tiny(), tmp_path / "again", execution=TWO_STACKS).path, unbroken.path)
    other = local.execute(tiny(seeds=(2, 3)), tmp_path / "other", execution=TWO_STACKS)
    assert (other.path / "weights.safetensors").read_bytes() != (unbroken.path / "weights.safetensors").read_bytes()


def test_chosen_members_are_trained_as_in_the_complete_run(unbroken: Run, tmp_path: Path) -> None:
    run = local.execute(tiny(), tmp_path / "part", execution=TWO_STACKS, member_ranges="2:4")
    assert run.members["member"].tolist() == [2, 3]
    assert (run.config["members"], run.config["total"]) == ("2:4", 4) and set(run.arrays("pe_end")) == {2, 3}
    for number in (2, 3):
        assert torch.equal(run.load(number).flat, unbroken.load(number).flat)
    with pytest.raises(BadInput, match="2 to 3; got 0"):
        run.load(0)


@pytest.mark.parametrize(("encoding", "has_vectors"), [("rotary", False), ("none", True)])
def test_runs_of_every_kind_of_encoding_are_complete(tmp_path: Path, encoding: str, has_vectors: bool) -> None:
    run = local.execute(tiny(encoding=encoding, epochs=1, sigmas=(0.2,)), tmp_path / "run")
    assert bool(run.arrays("pe_end")) == has_vectors
    assert list(run.analysis.columns) == ["member", "step", "block", "analysis", "target", "value"]
    names = set(run.analysis["analysis"])
    assert ({"norm", "procrustes", "procrustes_z", "rsa", "moved"} <= names) == has_vectors
    assert {"confidence", "error_rate", "noise_accuracy", "agreement", "attention_cosine"} <= names
    assert not run.analysis.duplicated(["member", "step", "block", "analysis", "target"]).any()
    rows = [row for row in run.summary if row["split"] == "ood" and row["condition"] == "all"]
    assert [(row["sigma"], row["n"]) for row in rows] == [(None, 2)] * 2
    json.dumps(run.summary, allow_nan=False)


def test_the_reference_implementation_gives_the_same_to_rounding(unbroken: Run, tmp_path: Path) -> None:
    run = local.execute(tiny(), tmp_path / "run", execution=dataclasses.replace(TWO_STACKS, plain=True))
    assert run.config["plain"] and not unbroken.config["plain"]
    keys = ["member", "step", "split", "condition", "metric"]
    fast, plain = (table.sort_values(keys)["value"] for table in (unbroken.metrics, run.metrics))
    np.testing.assert_allclose(fast, plain, atol=1e-4)
    assert not np.array_equal(fast, plain)  # the implementations differ


@pytest.fixture
def diverging_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give member 1 of 4 a learning rate with which it diverges."""
    original = LstSigma.members

    def members(experiment: LstSigma) -> list[Member]:
        first, second, *others = original(experiment)
        return [first, dataclasses.replace(second, learning_rate=1e30), *others]

    monkeypatch.setattr(LstSigma, "members", members)


SGD: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.01, "cooldown": 0.0}


@pytest.mark.usefixtures("diverging_member")
def test_a_diverging_member_is_counted_and_changes_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = tiny(**SGD)
    run = local.execute(experiment, tmp_path / "run", execution=ONE_STACK)
    stop_run(experiment, tmp_path / "resumed", ONE_STACK, 2)
    assert_same(local.execute(experiment, tmp_path / "resumed", execution=ONE_STACK, resume=True).path, run.path)
    monkeypatch.undo()
    without = local.execute(experiment, tmp_path / "without", execution=ONE_STACK)

    assert run.members["state"].tolist() == ["done", "diverged", "done", "done"]
    steps = run.members["diverged_at"].tolist()
    assert steps[0] == steps[2] == steps[3] == -1 and 1 <= steps[1] <= 3
    assert without.members["state"].tolist() == ["done"] * 4
    for number in (0, 2, 3):  # bit for bit
        assert torch.equal(run.load(number).flat, without.load(number).flat)
        rows = [other.metrics[other.metrics["member"] == number].reset_index(drop=True) for other in (run, without)]
        pd.testing.assert_frame_equal(*rows, check_exact=True)
    summary = [row for row in run.summary if row["split"] == "train" and row["condition"] == "all"]
    diverged = [row for row in summary if row["learning_rate"] == 1e30]
    assert [(row["n"], row["diverged"], row["mean"], row["std"]) for row in diverged] == [(0, 1, None, None)] * 2
    assert all(row["n"] in (1, 2) and row["diverged"] == 0 for row in summary if row["learning_rate"] != 1e30)


@pytest.mark.usefixtures("diverging_member")
def test_outputs_that_are_not_finite_at_the_last_step_count_as_divergence(tmp_path: Path) -> None:
    """After one step with the huge rate the weights are still finite, and there is no next loss."""
    run = local.execute(tiny(**SGD, epochs=1, batch=64), tmp_path / "run", execution=ONE_STACK)
    assert np.isfinite(run.load(1).flat.numpy()).all()
    assert run.members["diverged_at"].tolist() == [-1, 1, -1, -1]
    assert run.members["diverged_by"].tolist() == ["", "evaluation", "", ""]


def test_members_that_settle_are_recorded(tmp_path: Path) -> None:
    """Checks are 52 steps or 13 epochs apart; at the second one parameters are equal."""
    run = local.execute(tiny(sigmas=(0.2,), epochs=60, learning_rate=0.0, cooldown=0.0), tmp_path / "run")
    assert run.members["settled_epoch"].tolist() == [26, 26]
    assert run.members["zero_loss_epoch"].tolist() == [-1, -1] and run.members["diverged_by"].tolist() == ["", ""]
    assert run.metrics["step"].max() == 60 * 4


def test_an_experiment_that_cannot_be_analysed_fails_before_training(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="width must be at least 3"):
        local.execute(tiny(width=2), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_git_state_is_not_that_of_another_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("git") is None:
        pytest.skip("needs git")
    package = tmp_path / "site-packages"
    package.mkdir()
    (package / "environment.py").touch()
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "x"], check=True)
    monkeypatch.setattr(environment, "__file__", str(package / "environment.py"))
    assert environment._git_state() is None
    subprocess.run([*git, "add", "."], check=True)
    assert environment._git_state() is not None
    monkeypatch.setenv("PATH", "")
    assert environment._git_state() is None


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_concurrent_stacks_give_the_bytes_of_sequential_ones(unbroken: Run, tmp_path: Path) -> None:
    threads: dict[int, int] = {}

    def note(event: Event) -> None:
        threads[event.stack] = threading.get_ident()

    assert_same(local.execute(tiny(), tmp_path / "run", execution=TWO_STACKS, notify=note).path, unbroken.path)
    assert len({threading.get_ident(), *threads.values()}) == 3 and torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_a_stack_that_fails_stops_the_other_and_its_error_is_raised(unbroken: Run, tmp_path: Path) -> None:
    def fail(event: Event) -> None:
        if event.stack == 1 and event.progress.step:
            raise OSError(errno.ENOSPC, "no room")

    epochs = 2000  # the other stack must not finish before this one fails
    with pytest.raises(OSError, match="no room"):
        local.execute(tiny(epochs=epochs), tmp_path / "long", execution=TWO_STACKS, notify=fail)
    assert json.loads((tmp_path / "long/checkpoints/stack-000.json").read_text())["step"] < epochs * 4
    with pytest.raises(OSError, match="no room"):
        local.execute(tiny(), tmp_path / "run", execution=TWO_STACKS, notify=fail)
    assert_same(local.execute(tiny(), tmp_path / "run", execution=TWO_STACKS, resume=True).path, unbroken.path)


def test_a_resumed_run_keeps_its_number_of_threads(tmp_path: Path, unbroken: Run) -> None:
    stop_run(tiny(), tmp_path / "run", TWO_STACKS, 2)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        run = local.execute(tiny(), tmp_path / "run", execution=TWO_STACKS, resume=True)
    finally:
        torch.set_num_threads(before)
    assert run.environment["threads per stack"] == 1
    assert_same(run.path, unbroken.path)


def test_bf16_uses_current_weights() -> None:
    """Autocast must not keep the first cast of a weight while the optimizer changes it."""
    task, execution = tiny().task(), ExecutionSettings("cpu", precision="bf16")
    trainer = Trainer(stack_for(tiny(learning_rate=0.01).members(), task), task, 40)
    inputs = task.splits["ood"].inputs.expand(4, -1, -1, -1)
    with execution.arithmetic(), torch.no_grad():
        before = trainer.stack(inputs)
        with torch.enable_grad():
            for _ in range(40):
                trainer.update()
        during = trainer.stack(inputs)
    with execution.arithmetic(), torch.no_grad():
        afterwards = trainer.stack(inputs)
    assert torch.equal(during, afterwards) and (during - before).abs().max() > 0.1


def test_bf16_is_recorded_rounds_differently_and_can_be_resumed(unbroken: Run, tmp_path: Path) -> None:
    execution = ExecutionSettings("cpu", "bf16", stack=2)
    run = local.execute(tiny(), tmp_path / "run", execution=execution)
    assert run.config["precision"] == run.environment["precision"] == "bf16"
    weights = run.load(0).flat
    assert weights.dtype == torch.float32 and 0 < (weights - unbroken.load(0).flat).abs().max() < 0.05
    stop_run(tiny(), tmp_path / "resumed", execution, 2)
    assert_same(local.execute(tiny(), tmp_path / "resumed", execution=execution, resume=True).path, run.path)


Row = dict[str, Any]


def row(member: int, split: str, condition: str, value: float, metric: str = "mse") -> Row:
    return {"member": member, "step": 10, "split": split, "condition": condition, "metric": metric, "value": value}


def means(rows: list[Row]) -> str:
    return Event(0, 1, 2, Progress(10, 0.5, tuple(rows)), 100).means()


ROWS = [row(m, split, "hidden 0.5", x + 0.2 * m) for m in (0, 1) for split, x in (("train", 0.1), ("test", 0.3))]
POOLED = [row(m, split, "all", 0.5 + 0.1 * m) for m in (0, 1) for split in ("train", "test")]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([], ""),
        (ROWS, "mse train (hidden 0.5) 0.20, test (hidden 0.5) 0.40"),
        ([*ROWS[:1], row(0, "train", "hidden 0.9", 0.9)], "mse train (hidden 0.5) 0.10, train (hidden 0.9) 0.90"),
        ([*ROWS, row(0, "test", "hidden 0.5", 9.0, "loss")], "mse train (hidden 0.5) 0.20, test (hidden 0.5) 0.40"),
        ([*POOLED, *ROWS], "mse train 0.55, test 0.55"),
        ([row(0, "test", "all", 0.25), row(1, "test", "all", math.nan)], "mse test 0.25"),  # NaN: the member diverged
        ([row(0, "test", "all", math.nan)], "mse test -"),
    ],
)
def test_means_over_members(rows: list[Row], text: str) -> None:
    """Means are of the first metric, by split, and by condition if conditions are not pooled."""
    assert means(rows) == text


def test_the_log_has_a_line_for_every_evaluation_and_the_callback_gets_every_event(tmp_path: Path) -> None:
    events: list[Event] = []
    report = Reporter([2, 1], 100, events.append, Log(tmp_path / "log.txt"))
    report(0, Progress(0, math.nan, tuple(ROWS)))
    report(0, Progress(10, 0.5, ()))
    report(1, Progress(100, 0.25, (row(0, "test", "hidden 0.5", 0.75),)))
    lines = [line[20:] for line in (tmp_path / "log.txt").read_text().splitlines()]  # after the time
    assert lines == [
        f"stack 1/2, step 0/100: {means(ROWS)}",
        "stack 2/2, step 100/100: loss 0.2500; mse test (hidden 0.5) 0.75",
    ]
    summary = [(event.stack, event.stacks, event.members, event.progress.step) for event in events]
    assert summary == [(0, 2, 2, 0), (0, 2, 2, 10), (1, 2, 1, 100)]
