"""Members that start from another's learned PE: when they are trained, from what, and what becomes of the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from placecode.errors import BadInput
from placecode.execution import local, origins
from placecode.execution.local import Event, Interrupted, Where
from placecode.experiments.channels import structure
from placecode.experiments.channels.brain import BrainTransfer
from placecode.models.member import Member
from placecode.runs.read import Run
from placecode.tasks.base import Task

CPU = Where("cpu", stack=4)
TABLES = ("metrics.parquet", "analysis.parquet", "members.parquet", "summary.json", "arrays.safetensors")
SEEDS, KINDS = 2, 6


@pytest.fixture(scope="module", autouse=True)
def _few_draws() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "DRAWS", 5)
        patch.setattr(structure, "SLOW_DRAWS", 5)
        yield


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    for person in range(5):
        noise = np.random.default_rng(person).normal(size=(64, 9))
        np.save(folder / f"p{person}.npy", np.stack([noise[lag : lag + 60] for lag in range(4)]).sum(axis=0))
    return folder


def study(people: Path, **given: Any) -> BrainTransfer:
    settings: dict[str, Any] = {
        **{"people": str(people), "orientation": "time-region", "folds": 1, "sigmas": (0.1,), "seeds": (0, 1)},
        **{"steps": 6, "evaluations": 2, "width": 8, "layers": 2, "heads": 1, "batch": 4, "against": ("linear",)},
    }
    return BrainTransfer.at("quick", **{**settings, **given})


@pytest.fixture(scope="module")
def whole(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return local.execute(study(people), tmp_path_factory.mktemp("run") / "whole", where=CPU)


def pe(run: Run, when: str, number: int) -> np.ndarray:
    return run.array(f"pe_{when}/{number}")


def test_they_start_where_the_other_ended(whole: Run) -> None:
    table = whole.members
    heirs = table[table["origin"].notna()]
    assert heirs["start"].tolist() == ["taken"] * 4 + ["shuffled"] * 2 and heirs["origin"].tolist() == [0, 1] * 3
    for row in heirs.to_dict("records"):
        begun, given = pe(whole, "start", row["member"]), pe(whole, "end", row["origin"])
        parent = table.loc[table["member"] == row["origin"]].iloc[0]
        assert parent["seed"] == row["seed"] and parent["data"] == "first half" and row["data"] == "second half"
        assert not np.array_equal(given, pe(whole, "start", row["origin"]))  # it has learned something
        if row["start"] == "taken":
            np.testing.assert_array_equal(begun, given)
        else:
            order = [int(np.flatnonzero((given[0] == token).all(axis=1))[0]) for token in begun[0]]
            assert sorted(order) == list(range(9)) and order != list(range(9))
            np.testing.assert_array_equal(begun, given[:, order])  # the same order in every block
        frozen = np.array_equal(begun, pe(whole, "end", row["member"]))
        assert frozen == (not row["learn"])


def test_the_rest_of_the_model_is_the_seed_s_own(whole: Run) -> None:
    """Weights before training are those of the member that learns its own PE on the same data."""
    own, heir = (whole.load(number) for number in (2, 4))
    assert own.members[0].seed == heir.members[0].seed == 0
    first = whole.metrics[(whole.metrics["step"] == 0) & (whole.metrics["split"] == "train")]
    values = first.set_index(["member", "condition"])["value"]
    assert values[2, "hidden 0.5"] != values[4, "hidden 0.5"]  # another PE
    assert abs(values[2, "hidden 0.5"] - values[4, "hidden 0.5"]) < 0.5


@pytest.mark.parametrize("event", [1, 4, 8, 11])
def test_stopped_and_resumed_it_is_as_if_never_stopped(people: Path, whole: Run, tmp_path: Path, event: int) -> None:
    seen: list[Event] = []
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        local.execute(study(people), out, where=CPU, notify=seen.append, stop=lambda: len(seen) >= event)
    again = local.execute(study(people), out, where=CPU, resume=True)
    for name in TABLES:
        assert (again.path / name).read_bytes() == (whole.path / name).read_bytes(), name


@pytest.mark.usefixtures("soon")
def test_in_two_processes_it_is_the_same(people: Path, whole: Run, tmp_path: Path) -> None:
    two = local.execute(study(people), tmp_path / "two", where=replace(CPU, workers=2))
    found, wanted = (load_file(run.path / "arrays.safetensors") for run in (two, whole))
    assert found.keys() == wanted.keys()
    for name, each in wanted.items():
        np.testing.assert_array_equal(found[name], each, err_msg=name)


def test_one_whose_origin_diverged_has_diverged(people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = BrainTransfer.members

    def members(self: BrainTransfer) -> list[Member]:
        found = usual(self)
        found[1] = replace(found[1], learning_rate=1e30, optimizer="sgd")
        return found

    monkeypatch.setattr(BrainTransfer, "members", members)
    run = local.execute(study(people), tmp_path / "wild", where=CPU)
    lost = run.members[run.members["state"] == "diverged"]
    assert lost["member"].tolist() == [1, 5, 7, 9] and lost["diverged_at"].tolist()[1:] == [0, 0, 0]
    assert (run.members["state"] == "done").sum() == SEEDS * KINDS - 4


def test_a_piece_must_hold_those_from_whom_others_start(people: Path, whole: Run, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        local.execute(study(people), tmp_path / "part", where=CPU, chosen="4:8")
    text = "the members must include the origins of all members; 0:2 are missing."
    assert str(refused.value) == text and not (tmp_path / "part").exists()
    part = local.execute(study(people), tmp_path / "part", where=CPU, chosen="1:2,5:6")
    np.testing.assert_array_equal(pe(part, "start", 5), pe(whole, "start", 5))


def test_origins_that_cannot_be(tiny_task: Task) -> None:
    first = Member()
    heir = Member(start="taken", origin=0)
    origins.check([first, heir], [0, 1], tiny_task)
    for members in ([first, heir, Member(start="taken", origin=1)], [first, heir, Member(start="shuffled", origin=7)]):
        with pytest.raises(BadInput, match=r"the origin of member 2 must be .* no origin itself; got [17]\."):
            origins.check(members, [0, 1, 2], tiny_task)


def test_what_has_no_pe_neither_gives_nor_takes_one(tiny_task: Task) -> None:
    with pytest.raises(
        BadInput, match=r"^member 0 must have a learned PE to be the origin of another member; got rotary\.$"
    ):
        origins.check([Member(encoding="rotary"), Member(start="taken", origin=0)], [0, 1], tiny_task)
    with pytest.raises(
        BadInput, match=r"^member 1 must have a learned PE to start from another member's PE; got none\.$"
    ):
        origins.check([Member(), Member(encoding="none", start="taken", origin=0)], [0, 1], tiny_task)
