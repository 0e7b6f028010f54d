"""Members that start from the PE of a member on another grid of tokens."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.training.tiny_runs import assert_same
from helpers.training.two_orders import FIVE, FOUR, HEIRS, TwoOrders

from placecode.analysis import attention
from placecode.encodings.tables import resized
from placecode.errors import BadInput
from placecode.execution import donors, local
from placecode.execution.progress import Event, Interrupted
from placecode.execution.settings import ExecutionSettings
from placecode.models.member import DONOR_STARTS, Member
from placecode.reports.pages import interactive
from placecode.runs.read import Run
from placecode.tasks.base import Task

CPU = ExecutionSettings("cpu", stack=4)
SEEDS = 2


@pytest.fixture(scope="module")
def task() -> Task:
    return TwoOrders.from_scale("quick").task()


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return local.execute(TwoOrders.from_scale("quick"), tmp_path_factory.mktemp("run") / "complete", execution=CPU)


def places(order: int) -> np.ndarray:
    return np.stack(np.divmod(np.arange(order**2), order), axis=1).astype(float)


def size(pe: np.ndarray) -> float:
    return float(np.sqrt((pe.astype(float) ** 2).mean()))


def test_initial_pes_are_computed_from_those_of_the_donors(complete: Run) -> None:
    heirs = complete.members[complete.members["donor"].notna()].to_dict("records")
    assert [(row["data"], row["start"], row["sigma"]) for row in heirs[::SEEDS]] == list(HEIRS)
    assert (complete.members["state"] == "done").all()
    for row in heirs:
        start, learned = complete.array(f"pe_start/{row['donor']}"), complete.array(f"pe_end/{row['donor']}")
        assert abs(learned - start).max() > 0.01
        order = np.random.default_rng(row["seed"]).permutation(16)
        unscaled = {
            "donor-untrained": start,
            "rescaled": learned,
            "shuffled": learned[:, order],
            "resized": resized(learned, places(4), places(5 if row["data"] == FIVE else 4)),
            "resized-shuffled": resized(learned[:, order], places(4), places(5)),
        }[row["start"]]
        pe = complete.array(f"pe_start/{row['member']}")
        np.testing.assert_array_equal(pe, complete.array(f"pe_end/{row['member']}"))  # frozen
        if row["start"] in ("donor-untrained", "shuffled"):
            np.testing.assert_array_equal(pe, unscaled)
        else:
            assert size(pe) == pytest.approx(row["sigma"], rel=1e-6)
            np.testing.assert_allclose(pe / size(pe), unscaled / size(unscaled), rtol=0, atol=1e-6)


def test_a_loaded_member_has_the_shape_of_its_data(complete: Run, task: Task) -> None:
    for number, data in ((0, FOUR), (3, FIVE), (17, FIVE)):
        assert complete.member(number).data == data
        inputs = task.for_data_set(data).splits["ood"].inputs
        probabilities = complete.load(number)(inputs).softmax(-1).detach().numpy()
        np.testing.assert_allclose(probabilities, complete.array(f"probabilities_end/{number}"), rtol=0, atol=1e-5)


def test_members_are_compared_with_those_on_the_same_data(complete: Run) -> None:
    members = complete.members
    rows = complete.analysis.set_index(["analysis", "target", "step", "block", "member"])["value"]
    assert not rows.index.duplicated().any()
    end = int(complete.analysis["step"].max())
    maps = {n: array.astype(float).mean(1) for n, array in complete.arrays("attention_end").items()}  # (l, n, n)
    answers = {n: array.argmax(-1) for n, array in complete.arrays("probabilities_end").items()}
    for order, data in ((4, FOUR), (5, FIVE)):
        same_data = members[members["data"] == data]
        fixed = same_data.loc[same_data["encoding"] == "sinusoid", "member"].tolist()
        assert len(fixed) == SEEDS
        for number in same_data["member"]:
            references = {
                "ideal": np.broadcast_to(attention.ideal_map(places(order)), maps[number].shape),
                "2d-fixed": np.mean([maps[other] for other in fixed if other != number], axis=0),
            }
            for target, reference in references.items():
                values = [rows["attention_cosine", target, end, block, number] for block in (0, 1)]
                np.testing.assert_allclose(values, attention.cosine(maps[number], reference), rtol=1e-6)
        for _, group in same_data.groupby(["encoding", "start", "sigma"], dropna=False):
            numbers = group["member"].tolist()
            values = [rows["agreement", "other seeds", end, -1, number] for number in numbers]
            agreement = np.nan if len(numbers) == 1 else (answers[numbers[0]] == answers[numbers[1]]).mean()
            np.testing.assert_allclose(values, agreement)


def test_tokens_have_the_names_of_their_order(complete: Run) -> None:
    members = complete.members
    for data, order in ((FOUR, 4), (FIVE, 5)):
        names, rows, row_names = interactive.named_channels(complete, members[members["data"] == data])
        assert len(names) == order**2 and rows is not None and len(row_names) == order


def test_a_run_that_is_stopped_while_members_with_resized_pes_train(complete: Run, tmp_path: Path) -> None:
    events: list[Event] = []
    experiment = TwoOrders.from_scale("quick")

    def stop() -> bool:
        return any(event.stack >= 4 and event.progress.step for event in events)  # the last two of six stacks

    with pytest.raises(Interrupted):
        local.execute(experiment, tmp_path / "run", execution=CPU, notify=events.append, stop=stop)
    assert_same(local.execute(experiment, tmp_path / "run", execution=CPU, resume=True).path, complete.path)


def test_donors_that_diverge_or_do_not_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that start from the PE before training are not affected. A PE of zeros is not rescaled."""
    wild = {"learning_rate": 1e30, "optimizer": "sgd"}

    def members(self: TwoOrders) -> list[Member]:
        kinds = (wild, {"encoding": "random"}, {"start": "zero", "learn": False})
        first = [self.spec(data=FOUR, **fields) for fields in kinds]
        heirs = (("donor-untrained", 0), ("rescaled", 0), ("donor-untrained", 1), ("rescaled", 2))
        return [*first, *(self.spec(start=start, donor=donor, data=FOUR) for start, donor in heirs)]

    monkeypatch.setattr(TwoOrders, "members", members)
    run = local.execute(TwoOrders.from_scale("quick", epochs=1), tmp_path / "run", execution=CPU)
    diverged = run.members[run.members["state"] == "diverged"]
    assert diverged["member"].tolist() == [0, 4] and diverged["diverged_at"].tolist()[1] == 0
    for heir, donor in ((3, 0), (5, 1), (6, 2)):
        np.testing.assert_array_equal(run.array(f"pe_start/{heir}"), run.array(f"pe_start/{donor}"))
    assert not run.array("pe_start/6").any() and run.array("pe_end/6").any()


def check(task: Task, **fields: object) -> None:
    first = Member(width=8, layers=2, data=FOUR)
    donors.check([first, replace(first, **{"donor": 0, **fields})], [0, 1], task)


@pytest.mark.parametrize("start", sorted(DONOR_STARTS))
def test_pes_of_another_shape_are_rejected(task: Task, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("width", 16), ("layers", 3), ("placement", "input")):
        with pytest.raises(BadInput, match=f"member 1 must have the {name} of its donor 0, .* got {value}"):
            check(task, start=start, **{name: value})
    if not start.startswith("resized"):
        with pytest.raises(BadInput, match=r"the number of tokens of its donor 0, 16, .* got 25"):
            check(task, start=start, data=FIVE)
        return
    for data, owner in ((FIVE, "the member"), (FOUR, "its donor 0")):
        with monkeypatch.context() as patch:
            patch.setattr(task.for_data_set(data), "positions", None)
            with pytest.raises(BadInput, match=f"the tokens of {owner} are not on one"):
                check(task, start=start, data=FIVE)
