"""lst-causal: the PE of every kind, and the accuracy after an exchange, compared with a direct computation."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.beyond import smallest

from placecode.encodings import sinusoid
from placecode.experiments.latin import interventions
from placecode.experiments.latin.causal import LstCausal
from placecode.experiments.latin.causal_effects import LATER_MANIPULATIONS, MANIPULATIONS
from placecode.experiments.reading import members_of
from placecode.models.encoder import Stack
from placecode.runs.read import Run
from placecode.tasks.base import Task
from placecode.training.trainer import stack_for

SIGMAS, SEEDS = (0.2, 2.0), (0, 1)
DONORS = tuple(itertools.product(SIGMAS, (1000, 1001)))
"""Sigma and seed of members 0 to 3."""
FREE = ("learned", "true, learned on", "rows and columns, learned on", "donor's, learned on", "donor")
FREE += ("master", "learned, by SGD")
"""Kinds that learn their PE; all others are frozen."""
CONTROLS = ("itself", "times 1", "shuffled with its cells")


@pytest.fixture(scope="module")
def run(beyond: Callable[[str], Run]) -> Run:
    return beyond("lst-causal")


@pytest.fixture(scope="module")
def experiment() -> LstCausal:
    return cast(LstCausal, smallest("lst-causal"))


@pytest.fixture(scope="module")
def task(experiment: LstCausal) -> Task:
    return experiment.task()


@pytest.fixture(scope="module")
def table(run: Run) -> pd.DataFrame:
    """Members, their kind, and their accuracy on held-out puzzles."""
    rows = run.metrics.query("split == 'ood' and condition == 'all' and metric == 'accuracy'")
    last = rows[rows["step"] == rows["step"].max()].set_index("member")["value"]
    return run.members.assign(kind=run.members["label"], accuracy=run.members["member"].map(last))


def of_kind(table: pd.DataFrame, kind: str) -> list[dict[Any, Any]]:
    members = table[table["kind"] == kind].to_dict("records")
    assert members
    return members


def size(pe: np.ndarray) -> float:
    return float(np.sqrt(np.mean(pe.astype(float) ** 2)))


def test_members_are_those_planned_in_their_order(table: pd.DataFrame) -> None:
    pairs = list(itertools.product(SIGMAS, SEEDS))
    expected: list[tuple[Any, ...]] = [("donor", *pair) for pair in DONORS]
    expected += [(kind, *pair) for kind in MANIPULATIONS for pair in pairs]
    single = {"frozen by its step size": 0.2, "2d-fixed as a start": 0.5**0.5, "2d-fixed": None, "no PE": None}
    for kind, sigma in single.items():
        expected += [(kind, sigma, seed) for seed in SEEDS]
    expected += [(kind, 0.2, seed) for kind in ("twin, frozen", TWIN_AGAIN) for seed in (2000, 2001)]
    expected += [("master", 0.05, seed) for seed in (3000, 3001)]
    expected += [(kind, *pair) for kind in LATER_MANIPULATIONS for pair in pairs]
    sigma = table["sigma"].astype(object).where(table["sigma"].notna(), None)
    assert list(zip(table["kind"], sigma, table["seed"], strict=True)) == expected
    assert (table["state"] == "done").all()


TWIN_AGAIN = "twin's own untrained one, transplanted"


def test_roles_of_members(table: pd.DataFrame) -> None:
    for kind, rows in table.groupby("kind"):
        swept = kind in (*MANIPULATIONS, *LATER_MANIPULATIONS)
        assert set(rows["role"]) == {"donor" if kind in ("donor", "master") else "swept" if swept else "control"}


def test_a_run_without_labels_gets_them_from_its_experiment(run: Run, tmp_path: Path) -> None:
    older = Run(shutil.copytree(run.path, tmp_path / "older"))
    older.members.drop(columns=["role", "label"]).to_parquet(older.path / "members.parquet")
    pd.testing.assert_frame_equal(members_of(Run(older.path)), run.members, check_like=True)


def test_donors_are_other_models_of_the_same_size(table: pd.DataFrame) -> None:
    heirs = table[table["donor"].notna() & (table["seed"] < 1000)]
    masters = table[table["kind"] == "master"].set_index("seed")
    assert (masters["optimizer"] == "sgd").all()
    of_masters = heirs[heirs["kind"].str.startswith("master's")]
    assert of_masters["donor"].tolist() == masters.loc[of_masters["seed"] + 3000, "member"].tolist()
    heirs = heirs.drop(of_masters.index)
    assert len(heirs) == 6 * len(DONORS) and len(of_masters) == 2 * len(DONORS)
    for row in heirs.to_dict("records"):
        sigma, seed = DONORS[row["donor"]]
        expected = {"donor's of 0.2 rescaled, frozen": 0.2, "donor's of 2.0 rescaled, frozen": 2.0}
        assert (sigma, seed) == (expected.get(row["kind"], row["sigma"]), row["seed"] + 1000)


def test_the_start_of_the_pe_of_every_kind(run: Run, table: pd.DataFrame, task: Task) -> None:
    assert task.positions is not None
    truth = np.broadcast_to(sinusoid(task.positions, 8), (2, 16, 8))

    def pe(number: int, when: str = "start") -> np.ndarray:
        return run.array(f"pe_{when}/{number}").astype(float)

    same_draw = {(row["sigma"], row["seed"]): row["member"] for row in of_kind(table, "learned")}
    for row in table.to_dict("records"):
        kind, start = row["kind"], pe(row["member"])
        donor = None if pd.isna(row["donor"]) else row["donor"]
        if kind in ("random, frozen", "frozen by its step size", "random, frozen, by SGD", "learned, by SGD"):
            np.testing.assert_array_equal(start, pe(same_draw[row["sigma"], row["seed"]]))  # the same draw
        elif kind == "true centred, frozen":
            assert abs(start.mean(axis=1)).max() < 1e-6 * row["sigma"]
            centred = truth - truth.mean(axis=1, keepdims=True)
            np.testing.assert_allclose(start, centred * row["sigma"] / size(centred), rtol=1e-4, atol=1e-6)
        elif kind.startswith("true"):
            np.testing.assert_allclose(start, truth * row["sigma"] / size(truth), rtol=1e-5, atol=1e-7)
        elif kind == "2d-fixed as a start" or kind == "2d-fixed":
            np.testing.assert_allclose(start, truth, rtol=1e-5, atol=1e-6)
        elif kind.startswith("rows and columns"):
            grid = start.reshape(2, 4, 4, 8)
            mixed = grid - grid[:, :1] - grid[:, :, :1] + grid[:, :1, :1]
            assert abs(mixed).max() < 1e-5 * row["sigma"] < 0.5 * size(start)  # what a row and a column give adds up
        elif kind == "no PE":
            assert not start.any()
        elif kind in ("untrained donor's, frozen", TWIN_AGAIN):
            np.testing.assert_array_equal(start, pe(donor))
        elif kind in ("donor's, frozen", "donor's, learned on"):
            np.testing.assert_array_equal(start, pe(donor, "end"))
            assert abs(start - pe(donor)).max() > 1e-3  # the donor has learned something
        elif kind.endswith("shuffled, frozen"):
            learned = pe(donor, "end")
            if kind.startswith("master's"):
                assert size(start) == pytest.approx(row["sigma"], rel=1e-6)
                learned = run.array(f"pe_end/{donor}") * np.float64(row["sigma"] / size(learned))
                learned = learned.astype(np.float32).astype(float)
            order = [int(np.flatnonzero((learned[0] == token).all(axis=1))[0]) for token in start[0]]
            assert sorted(order) == list(range(16)) != order
            np.testing.assert_array_equal(start, learned[:, order])
        elif "rescaled" in kind or kind == "master's, frozen":
            learned = pe(donor, "end")
            assert size(start) == pytest.approx(row["sigma"], rel=1e-6)
            np.testing.assert_allclose(start / size(start), learned / size(learned), rtol=0, atol=1e-6)
        else:
            assert kind in ("learned", "donor", "twin, frozen", "master")
            assert size(start) == pytest.approx(row["sigma"], rel=0.3)
    assert size(pe(same_draw[0.2, 0]) - pe(same_draw[0.2, 1])) > 0.1


def test_frozen_pes_end_where_they_start_and_the_others_do_not(run: Run, table: pd.DataFrame) -> None:
    for number, kind in zip(table["member"], table["kind"], strict=True):
        same = np.array_equal(run.array(f"pe_start/{number}"), run.array(f"pe_end/{number}"))
        assert same == (kind not in FREE), kind


@pytest.mark.parametrize(
    ("label", "same_label"),
    [("frozen by its step size", "random, frozen"), ("2d-fixed as a start", "2d-fixed"), (TWIN_AGAIN, "twin, frozen")],
)
def test_two_ways_to_one_pe_have_the_same_losses(run: Run, table: pd.DataFrame, label: str, same_label: str) -> None:
    rows = run.metrics.query("metric == 'loss' and condition == 'all'")
    losses = rows.set_index(["member", "step", "split"])["value"]
    for a in of_kind(table, label):
        (b,) = (b for b in of_kind(table, same_label) if b["seed"] == a["seed"] and b["sigma"] != 2.0)
        np.testing.assert_allclose(losses[a["member"]], losses[b["member"]], rtol=1e-4)


def with_exchange(run: Run, number: int) -> dict[str, float]:
    rows = run.analysis[(run.analysis["analysis"] == "accuracy_with") & (run.analysis["member"] == number)]
    assert set(rows["step"]) == {run.metrics["step"].max()} and set(rows["block"]) == {-1}
    assert not rows["target"].duplicated().any()
    return dict(zip(rows["target"], rows["value"], strict=True))


def test_controls_change_nothing_and_only_learned_pes_are_swapped(run: Run, table: pd.DataFrame) -> None:
    swaps = {"that of the other sigma", "that of the other sigma, own size", "another seed's"}
    for row in table.to_dict("records"):
        kind, accuracies = row["kind"], with_exchange(run, row["member"])
        unchanged = [*CONTROLS, *["its start"] * (kind not in FREE), *["nothing"] * (kind == "no PE")]
        assert {name: accuracies[name] for name in unchanged} == dict.fromkeys(unchanged, row["accuracy"]), kind
        assert set(accuracies) & swaps == (swaps if kind == "learned" else set())


def test_all_exchanges_but_controls_change_a_model_that_uses_positions(experiment: LstCausal, task: Task) -> None:
    """A model of large random weights depends on positions; one after a few steps does not."""
    stack = stack_for([experiment.spec(sigma=2.0, seed=seed) for seed in range(5)], task)
    stack.flat *= 3
    vectors = stack.encoding.vectors()
    assert vectors is not None and task.positions is not None
    order, ends = interventions.shuffled_order(16), vectors.detach().double().numpy()
    starts = ends + np.random.default_rng(0).normal(size=ends.shape)
    pairs = zip(starts, ends, strict=True)
    exchanges = [interventions.own_replacements(start, end, task.positions, order) for start, end in pairs]
    rows = pd.DataFrame(interventions.accuracy_rows(stack, task, exchanges, order))
    by_name = rows.pivot(index="target", columns="member", values="value")
    same = (by_name == by_name.loc["itself"]).all(axis="columns")
    assert set(same.index[same]) == set(CONTROLS) and len(same) == 12


def by_hand(model: Stack, task: Task, pe: np.ndarray, order: list[int] | None = None) -> float:
    """Return the OOD accuracy with another PE, without the functions under test."""
    vectors = model.encoding.vectors()
    assert vectors is not None
    before = vectors.detach().clone()
    vectors.data[0] = torch.from_numpy(np.ascontiguousarray(pe))
    held_out = task.splits["ood"]
    with torch.no_grad():
        answers = model(held_out.inputs if order is None else held_out.inputs[:, order])
    vectors.data.copy_(before)
    return float((answers.reshape(len(held_out), -1).argmax(1) == held_out.targets).float().mean())


def test_accuracies_with_another_pe_are_those_computed_by_hand(run: Run, table: pd.DataFrame, task: Task) -> None:
    learned = {(row["sigma"], row["seed"]): row["member"] for row in of_kind(table, "learned")}
    order = [*np.random.default_rng(0).permutation(15).tolist(), 15]
    assert task.positions is not None
    truth = np.broadcast_to(sinusoid(task.positions, 8), (2, 16, 8))

    def pe(sigma: float, seed: int, when: str = "end") -> np.ndarray:
        return run.array(f"pe_{when}/{learned[sigma, seed]}").astype(np.float32)

    for (sigma, seed), number in learned.items():
        model, end = run.load(number), pe(sigma, seed)
        other = pe(2.2 - sigma if sigma == 0.2 else 0.2, seed)
        pes = {
            "itself": end,
            "nothing": 0 * end,
            "its mean": np.stack([np.tile(block.mean(axis=0), (16, 1)) for block in end]),
            "its start": pe(sigma, seed, "start"),
            "shuffled": np.stack([block[order] for block in end]),
            "shuffled with its cells": np.stack([block[order] for block in end]),
            "the true one, own size": (truth / size(truth) * size(end)).astype(np.float32),
            **{f"times {factor:g}": np.float32(factor) * end for factor in (0.5, 0.8, 1, 1.25, 2)},
            "that of the other sigma": other,
            "that of the other sigma, own size": (other * (size(end) / size(other))).astype(np.float32),
            "another seed's": pe(sigma, 1 - seed),
        }
        accuracies = with_exchange(run, number)
        assert list(accuracies) == list(pes)
        for name, vectors in pes.items():
            cell_order = order if name == "shuffled with its cells" else None
            assert accuracies[name] == pytest.approx(by_hand(model, task, vectors, cell_order), abs=1e-6), name


def test_exchanges_change_neither_the_stack_nor_the_puzzles(experiment: LstCausal, task: Task) -> None:
    stack = stack_for([experiment.spec(sigma=sigma, seed=3) for sigma in SIGMAS], task)
    weights, inputs = stack.flat.detach().clone(), task.splits["ood"].inputs.clone()
    a, b = np.random.default_rng(0).normal(size=(2, 2, 16, 8))
    order = interventions.shuffled_order(16)
    rows = interventions.accuracy_rows(stack, task, [{"a": a, "shuffled with its cells": b}, {"b": b}], order)
    assert [(row["member"], row["target"]) for row in rows] == [(0, "a"), (0, "shuffled with its cells"), (1, "b")]
    assert torch.equal(stack.flat, weights) and torch.equal(task.splits["ood"].inputs, inputs)


def test_a_partner_that_is_missing_or_diverged_is_not_swapped(experiment: LstCausal, run: Run, task: Task) -> None:
    """A piece of an experiment has only some of the members."""
    (number,) = run.members.query("seed == 0 and sigma == 0.2 and start == 'normal' and learn")["member"][:1]
    arrays = {name: array for name, array in run.tensors("arrays.safetensors").items() if name.startswith("pe_")}

    def swapped(members: pd.DataFrame) -> list[str]:
        rows = experiment.measure_pe_swaps(run.load(number), task, [number], members, arrays)
        return [row["target"] for row in rows if row["target"].startswith(("that", "another"))]

    of_other_sigma = ["that of the other sigma", "that of the other sigma, own size"]
    learned = (run.members["start"] == "normal") & run.members["learn"] & (run.members["seed"] < 1000)
    large, other_seed = learned & (run.members["sigma"] == 2.0), learned & (run.members["seed"] == 1)
    diverged = run.members.assign(state=run.members["state"].mask(large, "diverged"))
    assert swapped(run.members) == [*of_other_sigma, "another seed's"]
    assert swapped(run.members[~large]) == swapped(diverged) == ["another seed's"]
    assert swapped(run.members[~other_seed]) == of_other_sigma
