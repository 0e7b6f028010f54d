"""Measurements that compare members with each other, and each with its start."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from placecode.analysis import attention
from placecode.experiments import measures
from placecode.models.member import Member
from placecode.runs.tables import TrainingOutcome, member_table

KEYS = ["member", "block", "analysis", "target"]
PLACES = np.stack(np.divmod(np.arange(4), 2), axis=1)
FIXED = Member("sinusoid", sigma=None, options={"axes": 2}, label="2d-fixed")
DROPPED = dataclasses.replace(FIXED, dropout=0.1, dropout_at_evaluation=True)


def with_arrays(specs: list[Member], diverged: tuple[int, ...] = ()) -> tuple[pd.DataFrame, dict[str, Tensor]]:
    """A table of members and made-up arrays of them: 2 blocks, 3 heads, 4 tokens, 5 examples, 3 answers."""
    rng = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=rng).softmax(-1)

    outcomes = [TrainingOutcome(3 if i in diverged else -1) for i in range(len(specs))]
    arrays = {}
    for number in range(len(specs)):
        for moment in ("start", "end"):
            arrays[f"pe_{moment}/{number}"] = draw(2, 4, 6)
            arrays[f"attention_{moment}/{number}"] = draw(2, 3, 4, 4)
            arrays[f"probabilities_{moment}/{number}"] = draw(5, 3)
            arrays[f"attention_each_{moment}/{number}"] = draw(5, 2, 4, 4).half()
    return member_table(range(len(specs)), specs, outcomes), arrays


def across(table: pd.DataFrame, arrays: dict[str, Tensor]) -> pd.DataFrame:
    """The rows by member, step, block, analysis and target."""
    rows = pd.DataFrame(measures.compare_members(table, arrays, {"": PLACES}, 9))
    assert not rows.duplicated(["step", *KEYS]).any()
    return rows


def value(rows: pd.DataFrame, member: int, step: int, block: int, analysis: str, target: str) -> float:
    keys = rows[["member", "step", "block", "analysis", "target"]].apply(tuple, axis=1)
    (result,) = rows.loc[keys == (member, step, block, analysis, target), "value"]
    return float(result)


def heads_averaged(arrays: dict[str, Tensor], name: str) -> np.ndarray:
    return arrays[name].double().mean(1).numpy()


@pytest.mark.parametrize(("moment", "step"), [("start", 0), ("end", 9)])
def test_references_leave_out_the_member_itself(moment: str, step: int) -> None:
    """Member 0 is beside the mean of all references, a reference beside that of the others; those after training."""
    table, arrays = with_arrays([Member(), *(dataclasses.replace(FIXED, seed=seed) for seed in range(3))])
    rows = across(table, arrays)
    for number, others in ((0, [1, 2, 3]), (1, [2, 3]), (3, [1, 2])):
        maps = heads_averaged(arrays, f"attention_{moment}/{number}")
        mean = np.mean([heads_averaged(arrays, f"attention_end/{other}") for other in others], axis=0)
        for name, measure in (("cosine", attention.cosine), ("correlation", attention.correlation)):
            for block in range(2):
                actual = value(rows, number, step, block, f"attention_{name}", "2d-fixed")
                assert actual == pytest.approx(float(measure(maps[block], mean[block])))
            expected = measure(np.concatenate(list(maps)), np.concatenate(list(mean)))  # (l * n, n)
            assert value(rows, number, step, -1, f"attention_{name}", "2d-fixed") == pytest.approx(float(expected))
        by_example = arrays[f"attention_each_{moment}/{number}"].double().numpy()
        mean_by_example = np.mean([arrays[f"attention_each_end/{other}"].double().numpy() for other in others], axis=0)
        cosines = attention.cosine(by_example, mean_by_example)  # (b, l)
        assert value(rows, number, step, 1, "attention_cosine_each", "2d-fixed") == pytest.approx(cosines[:, 1].mean())
        assert value(rows, number, step, -1, "attention_cosine_each", "2d-fixed") == pytest.approx(cosines.mean())


def test_attention_is_compared_with_the_ideal_and_the_even_map() -> None:
    table, arrays = with_arrays([Member(), FIXED])
    rows = across(table, arrays)
    ideal = attention.ideal_map(PLACES)
    for number in (0, 1):
        maps = heads_averaged(arrays, f"attention_end/{number}")
        cosine = float(attention.cosine(maps[1], ideal))
        assert value(rows, number, 9, 1, "attention_cosine", "ideal") == pytest.approx(cosine)
        by_example = attention.cosine(arrays[f"attention_each_end/{number}"].double().numpy(), ideal)
        assert value(rows, number, 9, -1, "attention_cosine_each", "ideal") == pytest.approx(by_example.mean())
        even = maps[1].mean() * maps[1].size / np.linalg.norm(maps[1]) / maps[1].shape[0]
        assert value(rows, number, 9, 1, "attention_cosine", "even") == pytest.approx(even)
    constant = rows[rows["target"] == "even"]
    assert set(constant["analysis"]) == {"attention_cosine"}  # a correlation with a constant is undefined
    assert set(rows.loc[rows["target"] == "2d-fixed", "member"]) == {0}  # the reference has no other reference


def test_kinds_of_references_are_kept_apart() -> None:
    table, arrays = with_arrays([Member(), FIXED, DROPPED, Member("sinusoid", sigma=None)])
    assert measures.reference_members(table) == {"2d-fixed": [1], "2d-fixed, dropout 0.1": [2]}
    rows = across(table, arrays)
    for target, others in (("2d-fixed", {0, 2, 3}), ("2d-fixed, dropout 0.1", {0, 1, 3})):
        assert set(rows.loc[rows["target"] == target, "member"]) == others
    maps, reference = (heads_averaged(arrays, f"attention_end/{number}") for number in (0, 2))
    cosine = value(rows, 0, 9, 0, "attention_cosine", "2d-fixed, dropout 0.1")
    assert cosine == pytest.approx(float(attention.cosine(maps[0], reference[0])))


def test_members_on_different_data_are_not_compared() -> None:
    """Even if the data have one shape. Results on a data set do not depend on other data sets."""
    kinds = itertools.product((Member(), FIXED), ("a", "b"), (0, 1))
    table, arrays = with_arrays([dataclasses.replace(member, seed=seed, data=data) for member, data, seed in kinds])
    rows = pd.DataFrame(measures.compare_members(table, arrays, {"a": PLACES, "b": PLACES[::-1]}, 9))
    assert set(rows.loc[rows["target"] == "2d-fixed", "member"]) == set(range(8))
    for data, places in (("a", PLACES), ("b", PLACES[::-1])):
        on_data = table[table["data"] == data]
        alone = pd.DataFrame(measures.compare_members(on_data, arrays, {data: places}, 9))
        alone = alone.set_index(["step", *KEYS])["value"]
        among = rows[rows["member"].isin(on_data["member"])].set_index(["step", *KEYS])["value"]
        pd.testing.assert_series_equal(among[alone.index], alone, check_exact=True)
        assert len(among) == len(alone)


def test_members_that_diverged_are_no_references() -> None:
    specs = [Member(), *(dataclasses.replace(FIXED, seed=seed) for seed in range(3))]
    table, arrays = with_arrays(specs, diverged=(2,))
    for name in ("attention_end/2", "attention_each_end/2"):
        arrays[name] = torch.full_like(arrays[name], torch.nan)
    assert measures.reference_members(table) == {"2d-fixed": [1, 3]}
    rows = across(table, arrays)
    named = rows[(rows["target"] == "2d-fixed") & (rows["step"] == 9)]
    assert (named["value"].isna() == (named["member"] == 2)).all()  # it is measured, but no reference


def test_movement_is_the_distance_from_the_start() -> None:
    table, arrays = with_arrays([Member(), Member(sigma=1.0), Member("rotary", sigma=None)])
    arrays["pe_end/0"] = arrays["pe_start/0"].clone()
    for moment in ("start", "end"):
        del arrays[f"pe_{moment}/2"]
    rows = across(table, arrays)
    for name in ("moved", "moved_relative"):
        assert value(rows, 0, 9, -1, name, "start") == 0
    start, end = (arrays[f"pe_{moment}/1"].double() for moment in ("start", "end"))
    assert value(rows, 1, 9, -1, "moved", "start") == pytest.approx((end - start).norm().item())
    relative = ((end - start).norm() / start.norm()).item()
    assert value(rows, 1, 9, -1, "moved_relative", "start") == pytest.approx(relative)
    moved = rows[rows["analysis"].isin(["moved", "moved_relative"])]
    assert set(moved["member"]) == {0, 1} and set(moved["step"]) == {9}


def test_agreement_is_with_the_other_seeds_of_a_setting() -> None:
    specs = [*(Member(sigma=0.1, seed=seed) for seed in range(3)), Member(sigma=2.0), Member(sigma=2.0, seed=1)]
    specs += [FIXED, dataclasses.replace(FIXED, seed=1), dataclasses.replace(DROPPED, seed=1)]
    table, arrays = with_arrays(specs, diverged=(2,))
    answers = {0: [0, 1, 2, 0, 1], 1: [0, 1, 2, 2, 2], 2: [0] * 5, 3: [1] * 5, 4: [1] * 5, 5: [0] * 5, 6: [2] * 5}
    for number, classes in answers.items():
        arrays[f"probabilities_end/{number}"] = torch.eye(3)[classes]
    rows = across(table, arrays)
    rows = rows[rows["analysis"] == "agreement"].set_index("member")
    assert set(rows["target"]) == {"other seeds"} and set(rows["step"]) == {9}
    expected = {0: 0.6, 1: 0.6, 3: 1.0, 4: 1.0, 5: 0.0, 6: 0.0, 7: np.nan}  # 2 diverged, 7 is alone in its setting
    assert rows["value"].to_dict() == pytest.approx(expected, nan_ok=True)
