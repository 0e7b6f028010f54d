"""Measurements of members do not depend on their neighbours, and equal a direct computation."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from placecode.analysis import alignment, geometry, modules
from placecode.analysis.robustness import tolerance
from placecode.analysis.targets import related, targets
from placecode.experiments import measures
from placecode.experiments.latin.squares import LstSigma
from placecode.models.encoder import Stack
from placecode.models.member import Member
from placecode.tasks.latin_squares import LatinSquares
from placecode.training import trainer as training
from placecode.training.trainer import Trainer, evaluate, stack_for

SMALL: dict[str, Any] = {"width": 8, "layers": 2, "heads": 2, "batch": 16}
DROPPING: dict[str, Any] = {"dropout": 0.1, "dropout_at_evaluation": True}
KEYS = ["member", "block", "analysis", "target"]


@pytest.fixture(scope="module")
def task() -> LatinSquares:
    return LstSigma.from_scale("quick", per_class=20, heldout=9, distance=0.5).task()


def members(count: int = 3, **fields: Any) -> list[Member]:
    return [Member(**{**SMALL, "sigma": 0.2 + i, "seed": i, **fields}) for i in range(count)]


@pytest.fixture(scope="module", params=[{}, DROPPING], ids=["whole", "dropping"])
def trained(request: pytest.FixtureRequest, task: LatinSquares) -> Stack:
    """Return three members that have learned something, so that noise matters; no test changes them."""
    stack = stack_for(members(learning_rate=0.01, cooldown=0.3, **request.param), task)
    for _ in Trainer(stack, task, steps=200).run():
        pass
    return stack


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch, task: LatinSquares) -> Callable[[Stack, int], None]:
    """Return a function that limits the examples of a forward pass of a stack."""

    def at_most(stack: Stack, examples: int) -> None:
        values = examples * len(stack.members) * task.tokens * stack.members[0].width
        monkeypatch.setattr(training, "MAX_EVALUATION_VALUES", values)
        assert len(training.portions(stack, task, examples)) == 1
        assert len(training.portions(stack, task, examples + 1)) == 2

    return at_most


@pytest.fixture
def noises(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Return the list of all noise that stacks get, in order."""
    drawn: list[Tensor] = []
    plain = Stack.with_noise

    def note(self: Stack, x: Tensor, noise: Tensor, first_row: int = 0) -> Tensor:
        drawn.append(noise)
        return plain(self, x, noise, first_row)

    monkeypatch.setattr(Stack, "with_noise", note)
    return drawn


def test_noisy_accuracy_is_the_same_alone_and_in_portions(task: LatinSquares, trained: Stack, limit: Any) -> None:
    levels = (0.0, 0.3, 2.0)
    together = measures.noisy_accuracy(trained, task, "train", levels)
    assert together[0.0] == evaluate(trained, task, "train")["all", "accuracy"]
    means = [np.mean(together[level]) for level in levels]
    assert means[0] > means[1] > means[2]
    for i in range(3):
        alone = measures.noisy_accuracy(trained.member(i), task, "train", levels)
        assert alone == {level: [together[level][i]] for level in levels}
    for examples in (1, 53):
        limit(trained, examples)
        assert measures.noisy_accuracy(trained, task, "train", levels) == together


def test_only_the_first_examples_get_noise(
    task: LatinSquares, trained: Stack, noises: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_all = measures.noisy_accuracy(trained, task, "train", (0.3,))
    monkeypatch.setattr(measures, "NOISY_EXAMPLES", 7)
    accuracies = measures.noisy_accuracy(trained, task, "train", (0.3,))
    assert accuracies == measures.noisy_accuracy(trained, task.first(7), "train", (0.3,)) != on_all
    assert [noise.shape[1] for noise in noises] == [54, 7, 7]
    assert torch.equal(noises[0][:, :7], noises[1])


def test_noise_is_the_same_for_members_of_a_seed_and_differs_by_example(task: LatinSquares, noises: Any) -> None:
    stack = stack_for([*members(2), dataclasses.replace(members(1)[0], sigma=2.0)], task)  # seeds 0, 1, 0
    measures.noisy_accuracy(stack, task, "train", (1.0, 2.0))
    unit, double = noises
    assert unit.shape == (3, 54, 16, 8)
    assert torch.equal(unit[0], unit[2]) and torch.equal(double, 2 * unit)
    assert abs(unit.std().item() - 1) < 0.02 and abs(unit.mean().item()) < 0.02
    assert torch.corrcoef(torch.stack([unit[0].flatten(), unit[1].flatten()]))[0, 1].abs() < 0.05  # another seed
    assert torch.corrcoef(unit[0].flatten(1)).fill_diagonal_(0).abs().max() < 0.5  # another example
    measures.noisy_accuracy(stack, task, "ood", (1.0,))
    pair = torch.stack([noises[-1][0].flatten(), unit[0, :9].flatten()])
    assert torch.corrcoef(pair)[0, 1].abs() < 0.1  # another split


def test_rows_of_robustness_name_split_and_level(task: LatinSquares, trained: Stack) -> None:
    rows = measures.robustness_measures(trained, task, (2.0, 0.5))  # in any order
    values = {(row["member"], row["analysis"], row["target"]): row["value"] for row in rows}
    assert len(values) == len(rows) == 3 * 2 * (3 + 1)
    for split in ("train", "ood"):
        direct = measures.noisy_accuracy(trained, task, split, (0.0, 0.5, 2.0))
        for member in range(3):
            accuracy = [values[member, "noise_accuracy", f"{split} {level:g}"] for level in (0, 0.5, 2)]
            assert accuracy == [direct[level][member] for level in (0.0, 0.5, 2.0)]
            expected = tolerance([accuracy], [0, 0.5, 2], chance=0.25)[0]
            actual = values[member, "noise_tolerance", split]
            assert actual == pytest.approx(np.nan if np.isinf(expected) else expected, nan_ok=True)


def test_probabilities_sum_to_one_and_answer_as_evaluated(task: LatinSquares, trained: Stack, limit: Any) -> None:
    for split in ("train", "ood"):
        answers = measures.probabilities(trained, task, split)
        data = task.splits[split]
        assert answers.shape == (3, len(data), 4) and (answers.sum(-1) - 1).abs().max() < 1e-6
        correct = (answers.argmax(-1) == data.targets).double().mean(1)
        assert correct.tolist() == evaluate(trained, task, split)["all", "accuracy"]
        loss = -answers.gather(2, data.targets.expand(3, -1)[..., None]).log().mean((1, 2))
        assert np.allclose(loss, evaluate(trained, task, split)["all", "loss"], atol=1e-5)
    limit(trained, 4)
    assert (measures.probabilities(trained, task) - answers).abs().max() < 1e-6


def test_behaviour_has_confidence_by_class_and_errors_by_cell(task: LatinSquares, trained: Stack) -> None:
    data = task.splits["ood"]
    cells = data.inputs[:, :, -1].argmax(1).tolist()
    table = pd.DataFrame(measures.behaviour_measures(trained, task, cells))
    assert not table.duplicated(KEYS).any()
    answers = measures.probabilities(trained, task).numpy()
    values = table.set_index(["member", "analysis", "target"])["value"]
    for member in range(3):
        confidence, wrong = answers[member].max(-1), answers[member].argmax(-1) != data.targets.numpy()
        assert values[member, "confidence", "all"] == pytest.approx(confidence.mean())
        for name in set(data.conditions):
            of_class = np.array(data.conditions) == name
            assert values[member, "confidence", name] == pytest.approx(confidence[of_class].mean())
        for token, name in enumerate(task.token_names):
            at_cell = np.array(cells) == token
            rate = values[member, "error_rate", name]
            assert rate == pytest.approx(wrong[at_cell].mean()) if at_cell.any() else np.isnan(rate)


def test_attention_maps_are_means_of_captured_ones(task: LatinSquares, trained: Stack) -> None:
    mean, by_example = measures.attention_maps(trained, task)
    assert mean.shape == (3, 2, 2, 16, 16)  # (e, l, h, n, n)
    assert by_example.shape == (3, 9, 2, 16, 16)  # (e, b, l, n, n)
    assert by_example.dtype == torch.float16
    assert (mean.sum(-1) - 1).abs().max() < 1e-5
    assert (by_example.double().sum(-1) - 1).abs().max() < 2e-3
    assert (by_example.double().mean(1) - mean.double().mean(2)).abs().max() < 1e-3
    captured = trained.capture(task.splits["ood"].inputs.expand(3, -1, -1, -1), "attention.*")
    for block in range(2):
        assert (mean[:, block] - captured[f"attention.{block}"].mean(1)).abs().max() < 1e-6
        assert (by_example[:, :, block].float() - captured[f"attention.{block}"].mean(2)).abs().max() < 1e-3


def test_attention_maps_do_not_depend_on_portions(task: LatinSquares, trained: Stack, limit: Any) -> None:
    """Where features are dropped at evaluation, a mask belongs to an example."""
    limit(trained, 1)
    alone, alone_by_example = measures.attention_maps(trained, task)
    limit(trained, 9)
    mean, by_example = measures.attention_maps(trained, task)
    assert (mean - alone).abs().max() < 1e-6
    assert (by_example.double() - alone_by_example.double()).abs().max() < 1e-3
    few, _ = measures.attention_maps(trained, task, most=5)
    assert (few.mean(2) - by_example[:, :5].float().mean(1)).abs().max() < 1e-3 and (few - mean).abs().max() > 1e-4


def test_maps_and_probabilities_under_autocast_are_the_same_to_rounding(task: LatinSquares, limit: Any) -> None:
    stack = stack_for(members(), task)
    limit(stack, 1)
    (mean, by_example), answers = measures.attention_maps(stack, task), measures.probabilities(stack, task)
    with torch.autocast("cpu", torch.bfloat16):
        rough, rough_by_example = measures.attention_maps(stack, task)
        rough_answers = measures.probabilities(stack, task)
    assert (rough.dtype, rough_by_example.dtype, rough_answers.dtype) == (torch.float32, torch.float16, torch.float32)
    for actual, exact in ((rough, mean), (rough_by_example, by_example), (rough_answers, answers)):
        assert (actual.double() - exact.double()).abs().max() < 0.05
    assert (rough_answers.sum(-1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize("trained", [DROPPING], indirect=True, ids=["dropping"])
def test_without_dropout_is_the_accuracy_of_the_same_weights(task: LatinSquares, trained: Stack) -> None:
    rows = measures.accuracy_without_dropout(trained, task)
    accuracies = {(row["member"], row["target"]): row["value"] for row in rows}
    stack = stack_for(members(), task)
    stack.flat.copy_(trained.flat)
    for split in ("train", "test", "ood"):
        assert [accuracies[member, split] for member in range(3)] == evaluate(stack, task, split)["all", "accuracy"]
    assert len(accuracies) == 9
    assert [accuracies[member, "train"] for member in range(3)] != evaluate(trained, task, "train")["all", "accuracy"]


@pytest.mark.parametrize("drops", [{}, {"dropout": 0.5}, {"dropout_at_evaluation": True}])
def test_accuracy_without_dropout_is_left_out_where_nothing_is_dropped(task: LatinSquares, drops: Any) -> None:
    assert measures.accuracy_without_dropout(stack_for(members(**drops), task), task) == []


def test_arrangement_is_that_of_the_analyses_of_the_vectors(task: LatinSquares) -> None:
    stack = stack_for(members(), task)
    values = {tuple(row[key] for key in KEYS): row["value"] for row in measures.pe_measures(stack, task)}
    pe = stack.encoding.vectors().detach().double().numpy()
    row, column = task.positions.T.astype(int)
    for member in range(3):
        vectors = pe[member]
        views = {-1: vectors, -2: vectors.mean(0, keepdims=True), 0: vectors[:1], 1: vectors[1:]}
        for block, view in views.items():
            assert values[member, block, "norm", ""] == pytest.approx(np.sqrt((view**2).mean()))
            assert values[member, block, "effective_dimension", ""] == pytest.approx(geometry.effective_dimension(view))
            for name, target in targets(task.positions, 8).items():
                tokens = alignment.side_by_side(view)
                for analysis, value in {
                    "procrustes_raw": alignment.procrustes_raw(tokens, np.concatenate([target] * len(view), axis=1)),
                    "procrustes": alignment.procrustes(tokens, target),
                    "rsa": alignment.rsa(view, target),
                    "cka": alignment.cka(view, target),
                }.items():
                    assert values[member, block, analysis, name] == pytest.approx(float(value)), (analysis, name, block)
            agreement = modules.related_neighbor_agreement(alignment.token_similarity(view), related(task.positions))
            assert values[member, block, "neighbor_agreement", "relation"] == pytest.approx(float(agreement))
            assert values[member, block, "probe", "row"] == pytest.approx(float(alignment.probe(view, row, column)))
            assert values[member, block, "probe", "column"] == pytest.approx(float(alignment.probe(view, column, row)))
        for name, target in targets(task.positions, 8).items():
            null = alignment.procrustes_test(vectors, target)
            assert values[member, -1, "procrustes_z", name] == pytest.approx(float(null.z))
            assert values[member, -1, "procrustes_p", name] == float(null.p)
        assert values[member, -1, "mds_stress", ""] == pytest.approx(float(geometry.mds(vectors).stress))


def test_without_vectors_or_positions_there_is_no_alignment(task: LatinSquares, make_task: Any) -> None:
    for encoding in ("rotary", "alibi", "relative", "causal-none"):
        assert measures.pe_measures(stack_for(members(encoding=encoding), task), task) == []
    nowhere = make_task()
    nowhere.positions = None
    table = pd.DataFrame(measures.pe_measures(stack_for(members(), nowhere), nowhere))
    assert set(table["analysis"]) == {"norm", "effective_dimension", "mds_stress"}


def test_the_outline_is_a_part_of_the_arrangement_to_the_last_bit(task: LatinSquares) -> None:
    stack = stack_for(members(), task)
    arrangement = {tuple(row[key] for key in KEYS): row["value"] for row in measures.pe_measures(stack, task)}
    outline = {tuple(row[key] for key in KEYS): row["value"] for row in measures.main_pe_measures(stack, task)}
    named = [("norm", ""), ("procrustes", "2d-fixed"), ("rsa", "2d-fixed"), ("rsa", "relation")]
    assert set(outline) == {(i, -1, *name) for i in range(3) for name in (*named, ("neighbor_agreement", "relation"))}
    assert outline == {key: arrangement[key] for key in outline}


def test_a_member_that_diverged_is_nan_and_its_neighbours_are_not(task: LatinSquares) -> None:
    stack = stack_for(members(), task)
    before = pd.DataFrame(measures.pe_measures(stack, task))
    stack.flat[1].fill_(torch.nan)
    after = pd.DataFrame(measures.pe_measures(stack, task))
    assert after.loc[after["member"] == 1, "value"].isna().all()
    others = after["member"] != 1
    assert np.allclose(after.loc[others, "value"], before.loc[others, "value"], equal_nan=True)
