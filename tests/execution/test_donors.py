"""Members that start from the learned PE of another member."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.training.tiny_runs import assert_same

from placecode.errors import BadInput
from placecode.execution import donors, local
from placecode.execution.settings import ExecutionSettings
from placecode.experiments.channels import structure
from placecode.experiments.channels.brain import BrainTransfer
from placecode.models.member import Member
from placecode.runs.read import Run
from placecode.tasks.base import Task

CPU = ExecutionSettings("cpu", stack=4)


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


def experiment(people: Path) -> BrainTransfer:
    data: dict[str, Any] = {"people": str(people), "orientation": "time-region", "folds": 1}
    data["baseline_names"] = ("linear",)
    training: dict[str, Any] = {"sigmas": (0.1,), "seeds": (0, 1), "steps": 6, "evaluations": 2, "batch": 4}
    return BrainTransfer.from_scale("quick", **data, **training, width=8, layers=2, heads=1)


@pytest.fixture(scope="module")
def complete(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return local.execute(experiment(people), tmp_path_factory.mktemp("run") / "complete", execution=CPU)


def pe(run: Run, when: str, number: int) -> np.ndarray:
    return run.array(f"pe_{when}/{number}")


def test_initial_pes_are_those_that_the_donors_learned(complete: Run) -> None:
    table = complete.members
    heirs = table[table["donor"].notna()]
    assert heirs["start"].tolist() == ["donor"] * 4 + ["shuffled"] * 2 and heirs["donor"].tolist() == [0, 1] * 3
    for row in heirs.to_dict("records"):
        start, learned = pe(complete, "start", row["member"]), pe(complete, "end", row["donor"])
        parent = table.loc[table["member"] == row["donor"]].iloc[0]
        assert parent["seed"] == row["seed"] and parent["data"] == "first half" and row["data"] == "second half"
        assert not np.array_equal(learned, pe(complete, "start", row["donor"]))  # it has learned something
        if row["start"] == "donor":
            np.testing.assert_array_equal(start, learned)
        else:
            order = [int(np.flatnonzero((learned[0] == token).all(axis=1))[0]) for token in start[0]]
            assert sorted(order) == list(range(9)) and order != list(range(9))
            np.testing.assert_array_equal(start, learned[:, order])  # the same order in every block
        assert np.array_equal(start, pe(complete, "end", row["member"])) == (not row["learn"])


@pytest.mark.usefixtures("quick_workers")
def test_two_processes_give_the_same_bytes(people: Path, complete: Run, tmp_path: Path) -> None:
    run = local.execute(experiment(people), tmp_path / "two", execution=replace(CPU, workers=2))
    assert_same(run.path, complete.path)


def test_chosen_members_must_include_their_donors(people: Path, complete: Run, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="must include the donors of all members; 0:2 are missing"):
        local.execute(experiment(people), tmp_path / "part", execution=CPU, member_ranges="4:8")
    assert not (tmp_path / "part").exists()
    part = local.execute(experiment(people), tmp_path / "part", execution=CPU, member_ranges="1:2,5:6")
    np.testing.assert_array_equal(pe(part, "start", 5), pe(complete, "start", 5))


FIRST, HEIR = Member(), Member(start="donor", donor=0)


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ([FIRST, HEIR, Member(start="donor", donor=1)], "donor of member 2 must be .* without a donor; got 1"),
        ([FIRST, HEIR, Member(start="shuffled", donor=7)], "donor of member 2 must be .* without a donor; got 7"),
        ([Member(encoding="rotary"), HEIR], "member 0 must have a learned PE to be the donor"),
        ([FIRST, Member(encoding="none", start="donor", donor=0)], "member 1 must have a learned PE to start from"),
    ],
)
def test_donors_that_are_rejected(tiny_task: Task, members: list[Member], text: str) -> None:
    donors.check([FIRST, HEIR], [0, 1], tiny_task)
    with pytest.raises(BadInput, match=text):
        donors.check(members, range(len(members)), tiny_task)
