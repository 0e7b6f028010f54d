"""Executing a study: the same twice, as if never interrupted, and untouched by members that diverge."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from placecode import experiments
from placecode.compute.gpu import kernels
from placecode.errors import BadInput
from placecode.execution import checkpoints, environment, local, stacks
from placecode.execution.estimate import estimate
from placecode.execution.local import Event, Interrupted, Where
from placecode.execution.where import MIN_VALUES_FOR_THREADS, Crew
from placecode.experiments import Study
from placecode.experiments.latin.squares import LstSigma
from placecode.models.member import Member
from placecode.runs import read as runs
from placecode.runs.read import Run
from placecode.training.trainer import Progress, Trainer, stack_for

RESULTS = ("members.parquet", "metrics.parquet", "analysis.parquet", "summary.json", *runs.TENSORS)
"""The files that hold numbers: the same study gives the same bytes."""
TWO_STACKS = Where("cpu", stack=2)


def tiny(**given: Any) -> Study:
    """lst-sigma in a second: 4 members of 1 small block on 54 puzzles, 4 steps an epoch."""
    options = {"sigmas": (0.1, 2.0), "seeds": (0, 1), "epochs": 3, "evaluations": 3, "per_class": 20, "heldout": 9}
    options |= {"distance": 0.5, "width": 8, "heads": 2, "layers": 1, "batch": 16, "references": ()}
    return experiments.lookup("lst-sigma").at("quick", **{**options, **given})


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The tiny study in two stacks of two, run without a break; no test changes it."""
    return local.execute(tiny(), tmp_path_factory.mktemp("runs") / "unbroken", where=TWO_STACKS)


def assert_same(found: Path, wanted: Path) -> None:
    for name in RESULTS:
        assert (found / name).read_bytes() == (wanted / name).read_bytes(), f"{name} differs"
    left = {path.name for path in found.iterdir()} - {"figures", "report.html"}
    assert left == {*RESULTS, "config.json", "environment.json", "log.txt"}


# The same twice


def test_the_same_study_gives_the_same_bytes(unbroken: Run, tmp_path: Path) -> None:
    assert_same(local.execute(tiny(), tmp_path / "again", where=TWO_STACKS).path, unbroken.path)


def test_another_seed_gives_other_numbers(unbroken: Run, tmp_path: Path) -> None:
    other = local.execute(tiny(seeds=(2, 3)), tmp_path / "other", where=TWO_STACKS)
    assert (other.path / "weights.safetensors").read_bytes() != (unbroken.path / "weights.safetensors").read_bytes()


@pytest.mark.parametrize("stack", [1, 3, 4])
def test_another_stack_split_gives_the_same_outputs_to_rounding(unbroken: Run, tmp_path: Path, stack: int) -> None:
    other = local.execute(tiny(), tmp_path / "other", where=Where("cpu", stack=stack))
    inputs = tiny().task().splits["ood"].inputs
    for number in range(4):
        assert (other.load(number)(inputs) - unbroken.load(number)(inputs)).abs().max() < 1e-5
    assert other.members.equals(unbroken.members)
    assert other.metrics.drop(columns="value").equals(unbroken.metrics.drop(columns="value"))
    losses = [run.metrics.query("metric == 'loss'")["value"].to_numpy() for run in (other, unbroken)]
    assert np.abs(losses[0] - losses[1]).max() < 1e-5


def test_a_cut_trains_the_members_it_names(unbroken: Run, tmp_path: Path) -> None:
    run = local.execute(tiny(), tmp_path / "cut", where=TWO_STACKS, chosen="2:4")
    assert run.members["member"].tolist() == [2, 3]
    assert (run.config["members"], run.config["total"]) == ("2:4", 4)
    assert set(run.arrays("pe_end")) == {2, 3}
    for number in (2, 3):
        assert torch.equal(run.load(number).flat, unbroken.load(number).flat)
    with pytest.raises(BadInput, match=r"member must be a member of .*, 2 to 3; got 0"):
        run.load(0)


@pytest.mark.parametrize(
    ("encoding", "has_vectors"), [("rotary", False), ("sinusoid", True), ("none", True), ("alibi", False)]
)
def test_every_kind_of_encoding_leaves_a_whole_run(tmp_path: Path, encoding: str, has_vectors: bool) -> None:
    run = local.execute(tiny(encoding=encoding, epochs=1, sigmas=(0.2,)), tmp_path / "run")
    assert bool(run.arrays("pe_end")) == has_vectors
    assert list(run.analysis.columns) == ["member", "step", "block", "analysis", "target", "value"]
    named = set(run.analysis["analysis"])
    assert ({"norm", "procrustes", "procrustes_z", "rsa", "moved"} <= named) == has_vectors
    assert {"confidence", "error_rate", "noise_accuracy", "agreement", "attention_cosine"} <= named  # of every encoding
    assert not run.analysis.duplicated(["member", "step", "block", "analysis", "target"]).any()
    rows = [row for row in run.summary if row["split"] == "ood" and row["condition"] == "all"]
    assert [row["sigma"] for row in rows] == [None, None]
    assert [row["n"] for row in rows] == [2, 2]
    json.dumps(run.summary, allow_nan=False)


# Interrupted


@pytest.mark.parametrize("event", [0, 1, 3, 4, 7])
def test_stopped_at_any_event_and_resumed_it_is_as_if_never_stopped(unbroken: Run, tmp_path: Path, event: int) -> None:
    """Two stacks of four evaluations each: event 0 is before the first step, 3 and 7 are after the last of a stack."""
    out, seen = tmp_path / "run", list[Event]()
    with pytest.raises(Interrupted):
        local.execute(tiny(), out, where=TWO_STACKS, notify=seen.append, stop=lambda: len(seen) > event)
    assert len(seen) == event + 1
    assert not Run(out).finished
    saved = checkpoints.load(out / "checkpoints", f"stack-{event // 4:03d}")
    assert saved is not None
    assert saved[0] == seen[-1].progress.step
    assert_same(local.execute(tiny(), out, where=TWO_STACKS, resume=True).path, unbroken.path)


def test_stopped_at_every_event_in_turn(unbroken: Run, tmp_path: Path) -> None:
    out, rounds = tmp_path / "run", 0
    while not (out / "summary.json").exists():
        rounds += 1
        asked = list[Event]()

        def stop(asked: list[Event] = asked) -> bool:
            return any(event.progress.rows for event in asked)

        try:
            local.execute(tiny(), out, where=TWO_STACKS, resume=True, notify=asked.append, stop=stop)
        except Interrupted:
            assert rounds < 20
    assert rounds == 9  # 2 stacks x 4 evaluations, and the last to put all together
    assert_same(out, unbroken.path)
    log = (out / "log.txt").read_text()
    assert log.count("stopped and saved") == 8
    assert (log.count("started"), log.count("resumed")) == (1, 8)


def test_finished_stacks_are_not_trained_again(unbroken: Run, tmp_path: Path) -> None:
    out, seen = tmp_path / "run", list[Event]()
    with pytest.raises(Interrupted):
        local.execute(tiny(), out, where=TWO_STACKS, notify=seen.append, stop=lambda: len(seen) > 5)
    again = list[Event]()
    local.execute(tiny(), out, where=TWO_STACKS, resume=True, notify=again.append)
    assert [(event.stack, event.progress.step) for event in again if event.stack == 0] == [(0, 12)]
    assert [event.progress.step for event in again if event.stack == 1] == [8, 12]


def test_resuming_a_finished_run_changes_nothing(unbroken: Run, tmp_path: Path) -> None:
    out = Path(shutil.copytree(unbroken.path, tmp_path / "run"))
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.iterdir()}
    seen = list[Event]()
    run = local.execute(tiny(), out, where=TWO_STACKS, resume=True, notify=seen.append)
    assert run.summary == unbroken.summary
    assert seen == []
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.iterdir()} == before


def test_the_plain_way_gives_the_same_to_rounding(unbroken: Run, tmp_path: Path) -> None:
    where = dataclasses.replace(TWO_STACKS, plain=True)
    run = local.execute(tiny(), tmp_path / "run", where=where)
    assert run.config["plain"] and not unbroken.config["plain"]
    ours, plain = (
        each.metrics.sort_values(["member", "step", "split", "condition", "metric"]) for each in (unbroken, run)
    )
    np.testing.assert_allclose(ours["value"], plain["value"], atol=1e-4)
    assert not np.array_equal(ours["value"], plain["value"])  # another way it was


class AtOnce:
    """An executor that does not wait for another thread to begin."""

    def __init__(self, workers: int) -> None: ...

    def submit(self, work: Any, *given: Any) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(work(*given))
        return done

    def shutdown(self) -> None: ...


def test_checkpoints_take_a_small_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock of our own: a state takes 10 seconds, a step 1; so the next one waits until it is 3% of the time."""
    now, saved = [0.0], list[float]()
    monkeypatch.setattr(stacks.time, "monotonic", lambda: now[0])

    class Slow(Trainer):
        def run(self, seconds: float = 0.0) -> Iterator[Progress]:
            for step in range(1000):
                now[0] += 1
                self.step = step
                yield Progress(step, 0.0)
            self.step = self.steps

        def state(self) -> dict[str, Tensor]:
            saved.append(now[0])
            now[0] += 10
            return {}

    monkeypatch.setattr(checkpoints, "save", lambda *given: None)
    monkeypatch.setattr(stacks, "Trainer", Slow)
    monkeypatch.setattr(stacks, "ThreadPoolExecutor", AtOnce)
    study = tiny()
    task = study.task()
    stacks.train(
        study, task, study.members()[:1], local.Where("cpu"), tmp_path, 0, lambda _: None, lambda: False
    )
    assert saved[0] == 31
    assert len(saved) == 3 and all(10 / 0.03 < gap - 10 < 10 / 0.03 + 2 for gap in np.diff(saved))


def test_checkpoints_keep_the_disk_busy_for_a_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(stacks.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(stacks, "ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr(checkpoints, "save", lambda *given: now.__setitem__(0, now[0] + 30))
    with stacks.Saver(tmp_path, "stack") as saver:
        saver.save(1, {}, pd.DataFrame())
        for when, expected in ((130.0, False), (229.0, False), (231.0, True)):
            now[0] = when
            assert saver.ready() == expected


def test_checkpoints_are_written_beside_training_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, written = threading.Event(), list[int]()

    def save(folder: Path, name: str, step: int, *rest: Any) -> None:
        assert go.wait(60)
        if step == 3:
            raise OSError("no room")
        written.append(step)

    monkeypatch.setattr(checkpoints, "save", save)
    with stacks.Saver(tmp_path, "stack") as saver:
        assert saver.ready()
        saver.save(1, {}, pd.DataFrame())
        assert not saver.ready() and not written  # training goes on meanwhile
        go.set()
        saver.save(2, {}, pd.DataFrame())  # waits for the first
        assert written[0] == 1
    assert written == [1, 2]

    def fail(*steps: int) -> None:
        with stacks.Saver(tmp_path, "stack") as saver:
            for step in steps:
                saver.save(step, {}, pd.DataFrame())

    for steps in ((3,), (3, 4)):
        with pytest.raises(OSError, match="no room"):
            fail(*steps)
    assert 4 not in written


def test_a_checkpoint_is_of_the_moment_it_was_taken(tmp_path: Path, device: str) -> None:
    """A GPU still has work to do when its copy is asked for, and goes on meanwhile."""
    state = torch.zeros(1000, 1000, device=device)
    with stacks.Saver(tmp_path, "stack") as saver:
        for step in range(1, 4):
            for _ in range(200):
                state += 1
            saver.save(step, {"state": state.clone()}, pd.DataFrame())
            for _ in range(200):
                state += 1
            saver.wait()
            found = checkpoints.load(tmp_path, "stack")
            assert found is not None and found[0] == step
            assert found[1]["state"].device.type == "cpu"
            assert (found[1]["state"] == 400 * step - 200).all()


def test_checkpoints_on_the_way_change_nothing(unbroken: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(stacks, "SHARE_FOR_CHECKPOINTS", float("inf"))
    monkeypatch.setattr(stacks, "SHARE_FOR_WRITING", float("inf"))
    monkeypatch.setattr(stacks, "ThreadPoolExecutor", AtOnce)
    saved = list[int]()
    save = checkpoints.save

    def count(folder: Path, name: str, step: int, *rest: Any) -> None:
        saved.append(step)
        save(folder, name, step, *rest)

    monkeypatch.setattr(checkpoints, "save", count)
    assert_same(local.execute(tiny(), tmp_path / "run", where=TWO_STACKS).path, unbroken.path)
    assert {0, 4, 8, 12} <= set(saved)
    assert len(saved) == len(set(saved)) * 2  # never the same step twice: a kill between its files would be damage


KILLER = """
    # Runs a study in processes that are killed, one after the other, until one of them gets to the end.
    import os, random, signal, sys, time, traceback
    from pathlib import Path
    import torch
    torch.set_num_threads(1)
    from placecode import experiments
    from placecode.execution import local, stacks

    out, how, study = Path(sys.argv[1]), sys.argv[2], experiments.lookup("lst-sigma").at("quick", **eval(sys.argv[3]))
    stacks.SECONDS_BETWEEN_CHECKPOINTS, stacks.SHARE_FOR_CHECKPOINTS, stacks.SHARE_FOR_WRITING = 0.05, 1e9, 1e9
    chance = random.Random(0)

    def die_at_a_write(count, before):
        # at that one of the calls that put files in place, before or after it
        left = [count]
        def deadly(usual):
            def call(*arguments, **named):
                left[0] -= 1
                if left[0] == 0 and before:
                    os.kill(os.getpid(), signal.SIGKILL)
                found = usual(*arguments, **named)
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return found
            return call
        for name in ("fsync", "replace", "unlink"):
            setattr(os, name, deadly(getattr(os, name)))

    task = study.task()  # drawn once, and cached
    killed = 0
    while not (out / "summary.json").exists():
        moment = chance.uniform(0, float(sys.argv[4]) * (0.2 + 0.02 * killed))
        write, before = chance.randint(1, 6 + killed), chance.random() < 0.5
        child = os.fork()
        if child == 0:
            try:
                if how == "write":
                    die_at_a_write(write, before)
                local.execute(study, out, where=local.Where("cpu", stack=2), resume=True)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        if how == "time":
            time.sleep(moment)
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 1:
            sys.exit("a process failed by itself")
        killed += status == -signal.SIGKILL
        for path in out.rglob("*") if out.exists() else ():  # half-written files have other names
            if path.suffix == ".json":
                import json; json.loads(path.read_text())
            elif path.suffix == ".parquet":
                import pandas; pandas.read_parquet(path)
            elif path.suffix == ".safetensors":
                import safetensors.torch; safetensors.torch.load_file(path)
        if killed > 100:
            sys.exit("no end in sight")
    local.execute(study, out, where=local.Where("cpu", stack=2), resume=True)  # the last kill may have left checkpoints
    print(killed)
"""
LONGER = {"epochs": 40, "evaluations": 10, "sigmas": (0.1, 2.0), "seeds": (0, 1), "per_class": 20, "heldout": 9}
LONGER |= {"distance": 0.5, "width": 16, "heads": 2, "layers": 2, "batch": 16, "cooldown": 0.25, "references": ()}


def python(*arguments: str, **named: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, **named)


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A run of a second or two, without a break, and the seconds that it took."""
    path, study = tmp_path_factory.mktemp("runs") / "longer", experiments.lookup("lst-sigma").at("quick", **LONGER)
    study.task()
    begin = time.monotonic()
    local.execute(study, path, where=TWO_STACKS)
    return path, time.monotonic() - begin


@pytest.mark.parametrize(("how", "least"), [("time", 4), ("write", 6)])
def test_killed_again_and_again_and_resumed_it_ends_with_the_same_bytes(
    longer: tuple[Path, float], tmp_path: Path, how: str, least: int
) -> None:
    """SIGKILL at random moments, and at random writes; the numbers and the weights are those of the unbroken run."""
    out = tmp_path / "run"
    done = python("-c", textwrap.dedent(KILLER), str(out), how, repr(LONGER), str(longer[1]), timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= least  # so often killed, in truth
    assert_same(out, longer[0])


# A full disk


def fail_from(count: int) -> Callable[[int], None]:
    """An os.fsync for a disk that is full from the count-th file on."""
    usual, left = os.fsync, [count]

    def fsync(number: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        usual(number)

    return fsync


WRITES = 14
"""Files of the tiny study: config, environment, 3 for each of 2 stacks, 6 results."""


def test_the_number_of_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", fail_from(WRITES))
    local.execute(tiny(), tmp_path / "enough", where=TWO_STACKS)
    monkeypatch.setattr(os, "fsync", fail_from(WRITES - 1))
    with pytest.raises(OSError, match="No space left"):
        local.execute(tiny(), tmp_path / "one too few", where=TWO_STACKS)


@pytest.mark.parametrize("count", range(WRITES))
def test_a_disk_that_fills_up_loses_no_finished_member(
    unbroken: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail_from(count))
        with pytest.raises(OSError, match="No space left"):
            local.execute(tiny(), out, where=TWO_STACKS)
    kept = [checkpoints.verify(out / "checkpoints", f"stack-{stack:03d}") for stack in (0, 1)]
    assert kept == [12 if count >= 5 else None, 12 if count >= 8 else None]
    assert not list(out.rglob("*.part"))
    assert count > 0 or not out.exists()
    assert not (out / "summary.json").exists()
    seen = list[Event]()
    run = local.execute(tiny(), out, where=TWO_STACKS, resume=True, notify=seen.append)
    assert_same(run.path, unbroken.path)
    trained = {event.stack for event in seen if event.progress.rows}
    assert trained == {stack for stack in (0, 1) if kept[stack] is None}


# Members that diverge


@pytest.fixture
def with_a_wild_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """Member 1 of 4 gets a rate at which nothing stays finite."""
    usual = LstSigma.members

    def members(study: LstSigma) -> list[Member]:
        found = usual(study)
        found[1] = Member.from_record({**found[1].record(), "learning_rate": 1e30})
        return found

    monkeypatch.setattr(LstSigma, "members", members)


@pytest.mark.usefixtures("with_a_wild_member")
def test_a_member_that_diverges_is_marked_and_counted_and_touches_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tiny(optimizer="sgd", learning_rate=0.01, cooldown=0.0)
    wild = local.execute(study, tmp_path / "wild", where=Where("cpu", stack=4))
    monkeypatch.undo()
    tame = local.execute(study, tmp_path / "tame", where=Where("cpu", stack=4))

    assert wild.members["state"].tolist() == ["done", "diverged", "done", "done"]
    at = wild.members["diverged_at"].tolist()
    assert at[0] == at[2] == at[3] == -1
    assert 1 <= at[1] <= 3
    assert tame.members["state"].tolist() == ["done"] * 4

    for number in (0, 2, 3):  # bit for bit
        assert torch.equal(wild.load(number).flat, tame.load(number).flat)
        rows = [run.metrics[run.metrics["member"] == number].reset_index(drop=True) for run in (wild, tame)]
        pd.testing.assert_frame_equal(*rows, check_exact=True)
    kept = [row for row in wild.summary if row["split"] == "train" and row["condition"] == "all"]
    assert len({row["learning_rate"] for row in kept}) == 2  # it varies, so it is a column
    wild_rows = [row for row in kept if row["learning_rate"] == 1e30]
    assert [(row["n"], row["diverged"], row["mean"], row["std"]) for row in wild_rows] == [(0, 1, None, None)] * 2
    assert all(row["n"] in (1, 2) and row["diverged"] == 0 for row in kept if row["learning_rate"] != 1e30)


def test_divergent_seeds_leave_a_mean_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, but the wild member differs in nothing that the summary could tell: only its state takes it out."""
    usual = stacks.stack_for

    def poisoned(members: list[Member], *rest: Any, **named: Any) -> Any:
        stack = usual(members, *rest, **named)
        if len(members) == 4:
            stack.flat[1, 3] = float("nan")
        return stack

    monkeypatch.setattr(stacks, "stack_for", poisoned)
    run = local.execute(tiny(), tmp_path / "run", where=Where("cpu", stack=4))
    assert run.members["diverged_at"].tolist() == [-1, 1, -1, -1]
    rows = [row for row in run.summary if (row["split"], row["condition"], row["metric"]) == ("test", "all", "loss")]
    assert [(row["sigma"], row["n"], row["diverged"]) for row in rows] == [(0.1, 1, 1), (2.0, 2, 0)]
    final = run.metrics.query("step == 12 and split == 'test' and condition == 'all' and metric == 'loss'")
    assert rows[0]["mean"] == final.set_index("member").loc[0, "value"]
    json.dumps(run.summary, allow_nan=False)


@pytest.mark.usefixtures("with_a_wild_member")
def test_outputs_that_are_not_finite_at_the_last_step_are_a_divergence_too(tmp_path: Path) -> None:
    """After one step of a wild rate the weights are still finite, and there is no next step whose loss would tell."""
    study = tiny(optimizer="sgd", learning_rate=0.01, cooldown=0.0, epochs=1, batch=64)
    run = local.execute(study, tmp_path / "run", where=Where("cpu", stack=4))
    assert np.isfinite(run.load(1).flat.numpy()).all()
    assert run.members["state"].tolist() == ["done", "diverged", "done", "done"]
    assert run.members["diverged_at"].tolist() == [-1, 1, -1, -1]


@pytest.mark.usefixtures("with_a_wild_member")
def test_a_divergence_outlasts_an_interruption(tmp_path: Path) -> None:
    study, seen = tiny(optimizer="sgd", learning_rate=0.01, cooldown=0.0), list[Event]()
    whole = local.execute(study, tmp_path / "whole", where=Where("cpu", stack=4))
    with pytest.raises(Interrupted):
        local.execute(
            study, tmp_path / "run", where=Where("cpu", stack=4), notify=seen.append, stop=lambda: len(seen) == 2
        )
    assert_same(local.execute(study, tmp_path / "run", where=Where("cpu", stack=4), resume=True).path, whole.path)


# Where it runs, and what it would take


def test_where_is_settled_and_checked() -> None:
    auto = Where().resolved()
    assert auto.device == ("cuda" if torch.cuda.is_available() else "cpu")
    assert auto.stack is None
    assert auto.most == local.DEFAULT_STACK_SIZE[auto.device]
    assert auto.workers == max(1, torch.cuda.device_count())
    assert Where("cpu", "bf16", 3).resolved() == Where("cpu", "bf16", 3, workers=1)
    assert Where("cpu", "bf16", 3).most == 3
    for where, said in (
        (Where("tpu"), "device must be one of auto, cpu, cuda; got 'tpu'."),
        (Where("cpu", "double"), "precision must be one of high, tf32, highest, bf16; got 'double'."),
        (Where("cpu", stack=0), "stack must be a whole number of at least 1; got 0."),
        (Where("cpu", workers=0), "workers must be a whole number of at least 1; got 0."),
        (Where("cpu", memory=0.0), "memory must be a share of the GPU's memory above 0 and at most 1; got 0.0."),
        (Where("cpu", memory=1.5), "memory must be a share of the GPU's memory above 0 and at most 1; got 1.5."),
    ):
        with pytest.raises(BadInput) as error:
            where.resolved()
        assert str(error.value) == said


def test_arithmetic_is_put_back_after_use() -> None:
    before = torch.get_float32_matmul_precision(), kernels.HALVES
    one = torch.ones(2, 2)
    with Where("cpu", "bf16").arithmetic():
        assert (one @ one).dtype == torch.bfloat16
    assert (one @ one).dtype == torch.float32
    with Where("cpu", "highest").arithmetic():
        assert (one @ one).dtype == torch.float32
    with Where("cpu", "tf32").arithmetic():
        assert not kernels.HALVES
    assert (torch.get_float32_matmul_precision(), kernels.HALVES) == before


def test_lower_precision_is_recorded_and_gives_other_digits(unbroken: Run, tmp_path: Path) -> None:
    run = local.execute(tiny(), tmp_path / "run", where=Where("cpu", "bf16", 2))
    assert run.config["precision"] == run.environment["precision"] == "bf16"
    weights = run.load(0).flat
    assert weights.dtype == torch.float32
    difference = (weights - unbroken.load(0).flat).abs().max()
    assert 0 < difference < 0.05


def test_estimate_counts_members_stacks_and_steps_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = estimate(tiny(), TWO_STACKS)
    assert (found.members, found.stacks, found.steps) == (4, 2, 12)
    assert 0 < found.seconds < 60
    assert found.bytes > 2**20
    assert estimate(tiny(), TWO_STACKS, "0:1").members == 1
    assert list(tmp_path.iterdir()) == []


def test_a_study_that_cannot_be_analysed_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="width must be at least 3 for a sinusoid of 2 axes; got 2"):
        local.execute(tiny(width=2), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_the_state_of_the_code_is_not_that_of_a_checkout_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# Side by side


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("where", "threads", "stacks", "wanted"),
    [
        (Where("cpu"), 1, 3, Crew(1, 1, 1)),
        (Where("cpu"), 2, 3, Crew(1, 2, 1)),
        (Where("cpu"), 2, 1, Crew(1, 1, 2)),
        (Where("cpu"), 8, 2, Crew(1, 2, 4)),
        (Where("cpu"), 8, 3, Crew(1, 3, 2)),
        (Where("cpu", workers=2), 8, 3, Crew(2, 1, 4)),
        (Where("cpu", workers=4), 2, 3, Crew(3, 1, 1)),
        (Where("cpu", workers=4), 2, 1, Crew(1, 1, 2)),
        (Where("cuda", workers=1), 8, 3, Crew(1, 1, 8)),
        (Where("cuda", workers=4), 8, 9, Crew(4, 1, 2)),
    ],
)
def test_crew(monkeypatch: pytest.MonkeyPatch, where: Where, threads: int, stacks: int, wanted: Crew) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert where.crew(stacks, MIN_VALUES_FOR_THREADS) == wanted
    small = (
        dataclasses.replace(wanted, threads=1) if where.device == "cpu" else wanted
    )  # small members take a thread each
    assert where.crew(stacks, MIN_VALUES_FOR_THREADS - 1) == small


def test_every_visible_gpu_gets_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert Where().resolved() == Where("cuda", workers=4)
    assert Where(workers=2).resolved().workers == 2
    assert Where("cpu").resolved().workers == 1
    with pytest.raises(BadInput) as error:
        Where("cuda", workers=5).resolved()
    assert str(error.value) == "workers must be at most the number of visible GPUs, 4; got 5."


@pytest.mark.usefixtures("two_threads")
def test_stacks_side_by_side_give_the_bytes_of_one_after_the_other(unbroken: Run, tmp_path: Path) -> None:
    seen: list[int] = []
    threads: set[int] = set()

    def note(event: local.Event) -> None:
        seen.append(event.stack)
        threads.add(threading.get_ident())

    assert_same(local.execute(tiny(), tmp_path / "run", where=TWO_STACKS, notify=note).path, unbroken.path)
    assert set(seen) == {0, 1}
    assert len(threads) == 2 and threading.get_ident() not in threads
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_stopping_saves_the_stacks_side_by_side(unbroken: Run, tmp_path: Path) -> None:
    events = iter(range(100))
    with pytest.raises(local.Interrupted):
        local.execute(tiny(), tmp_path / "run", where=TWO_STACKS, stop=lambda: next(events) >= 2)
    local.execute(tiny(), tmp_path / "run", where=TWO_STACKS, resume=True)
    assert_same(tmp_path / "run", unbroken.path)


@pytest.mark.usefixtures("two_threads")
def test_a_stack_that_fails_stops_its_neighbour_and_names_the_cause(
    unbroken: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(event: local.Event) -> None:
        if event.stack == 1 and event.progress.step:
            raise OSError(errno.ENOSPC, "no room")

    epochs = 5000  # so many that the neighbour cannot be done by then, however busy the machine is
    with pytest.raises(OSError, match="no room"):
        local.execute(tiny(epochs=epochs), tmp_path / "long", where=TWO_STACKS, notify=fail)
    state = json.loads((tmp_path / "long/checkpoints/stack-000.json").read_text())
    assert state["step"] < epochs * 4  # it was told to stop, and saved
    with pytest.raises(OSError, match="no room"):
        local.execute(tiny(), tmp_path / "run", where=TWO_STACKS, notify=fail)
    local.execute(tiny(), tmp_path / "run", where=TWO_STACKS, resume=True)
    assert_same(tmp_path / "run", unbroken.path)


# Precision


def test_bf16_sees_the_weights_of_now_and_not_of_the_start() -> None:
    """Autocast must not keep the first cast of a weight while the optimizer moves it."""
    task, where = tiny().task(), Where("cpu", precision="bf16").resolved()
    trainer = Trainer(stack_for(tiny(learning_rate=0.01).members(), task), task, 40)
    inputs = task.splits["ood"].inputs.expand(4, -1, -1, -1)
    with where.arithmetic(), torch.no_grad():
        before = trainer.stack(inputs)
        with torch.enable_grad():
            for _ in range(40):
                trainer.update()
        within = trainer.stack(inputs)
    with where.arithmetic(), torch.no_grad():
        afresh = trainer.stack(inputs)
    assert torch.equal(within, afresh)
    assert (within - before).abs().max() > 0.1


def test_bf16_stopped_and_resumed_is_as_if_never_stopped(tmp_path: Path) -> None:
    where, events = Where("cpu", precision="bf16", stack=2), iter(range(100))
    whole = local.execute(tiny(), tmp_path / "whole", where=where)
    with pytest.raises(Interrupted):
        local.execute(tiny(), tmp_path / "run", where=where, stop=lambda: next(events) >= 1)
    local.execute(tiny(), tmp_path / "run", where=where, resume=True)
    assert_same(tmp_path / "run", whole.path)


def test_a_run_goes_on_with_the_threads_it_began_with(tmp_path: Path, unbroken: Run) -> None:
    events = iter(range(100))
    with pytest.raises(Interrupted):
        local.execute(tiny(), tmp_path / "run", where=TWO_STACKS, stop=lambda: next(events) >= 1)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        run = local.execute(tiny(), tmp_path / "run", where=TWO_STACKS, resume=True)
    finally:
        torch.set_num_threads(before)
    assert run.environment["threads per stack"] == 1
    assert_same(run.path, unbroken.path)
