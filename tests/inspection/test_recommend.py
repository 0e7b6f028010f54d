"""`placecode recommend`: the recommended sigma, its evidence and its limits."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from placecode import cli
from placecode.analysis.stats import Interval
from placecode.inspection import evidence, libraries, recommend
from placecode.inspection.evidence import Curve, Point, Setting
from placecode.inspection.libraries import LIBRARIES
from placecode.inspection.recommend import GRID, ModelDescription

MODEL = ModelDescription(tokens=16, width=64, optimizer="adam")


def setting(good: float, task: str = "a", learned: bool = True, **fields: Any) -> Setting:
    """Return a setting in which the sigma `good` is best, and the whole gain is lost with sigmas far from it."""
    gaps = [min(1.0, abs(math.log10(sigma / good))) for sigma in GRID]
    null_outcome = 0.0 if learned else 1.0
    pairs = zip(GRID, gaps, strict=True)
    points = tuple(Point(sigma, Interval(*3 * (1 - gap,)), Interval(*3 * (gap,)), 5, 0) for sigma, gap in pairs)
    curve = Curve("accuracy", 1, null_outcome, points)
    usual: dict[str, Any] = {"run": task, "variant": "", "tokens": 16, "width": 64, "layers": 4, "heads": 1}
    usual |= {"norm": "post", "placement": "every", "optimizer": "adam", "learning_rate": 1e-3, "batch": 1, "steps": 1}
    return Setting(**{**usual, "task": task, "outcome": curve, "structure": curve, **fields})


@pytest.mark.parametrize(
    ("first", "second", "changes", "sigma"),
    [
        ({"tokens": 16}, {"tokens": 64}, {}, 0.05),
        ({"tokens": 16}, {"tokens": 64}, {"tokens": 128}, 1.0),
        # layers and rate count only where they are given
        ({"learning_rate": 1e-2}, {"layers": 2}, {"layers": 2}, 1.0),
        ({"learning_rate": 1e-2}, {"layers": 2}, {"learning_rate": 1e-2}, 0.05),
        # families of optimizers are kept apart
        ({}, {"tokens": 1024, "optimizer": "sgd"}, {}, 0.05),
        ({}, {"tokens": 1024, "optimizer": "sgd"}, {"optimizer": "adamw"}, 0.05),
        ({}, {"tokens": 1024, "optimizer": "sgd"}, {"optimizer": "sgd"}, 1.0),
        # a family in which nothing was learned is replaced by the other
        ({}, {"optimizer": "sgd", "learned": False}, {"optimizer": "sgd"}, 0.05),
    ],
)
def test_the_nearest_setting_decides(first: Any, second: Any, changes: dict[str, Any], sigma: float) -> None:
    """The first has its best sigma at 0.05, the second at 1."""
    settings = [setting(0.05, "a", **first), setting(1.0, "b", **second)]
    answer = recommend.recommend(dataclasses.replace(MODEL, **changes), settings)
    assert answer.sigma == sigma and answer.same_family == ("learned" not in second)


def test_weights_fall_with_the_distance_in_what_is_given() -> None:
    settings = [setting(0.05, "a", tokens=16, layers=4), setting(1.0, "b", tokens=64, layers=2)]
    near, far = recommend.weight_settings(MODEL, settings)
    assert (near.distance, far.distance) == (0, 2) and near.weight / far.weight == pytest.approx(4)


def test_many_settings_of_a_task_are_not_many_tasks() -> None:
    settings = [setting(0.05, "a"), *(setting(1.0, "b", tokens=17 + i) for i in range(8))]
    weighted = recommend.weight_settings(MODEL, settings)
    assert sum(item.weight for item in weighted) == pytest.approx(1)
    assert next(item.weight for item in weighted if item.setting.task == "a") > 0.5
    assert recommend.recommend(MODEL, settings).sigma == 0.05


def test_extrapolations_are_reported() -> None:
    model = ModelDescription(4096, 96, "adam", learning_rate=1e-6)
    answer = recommend.recommend(model, [setting(0.2), setting(0.2, "b", tokens=100)])
    assert answer.extrapolations() == {"tokens": (16, 100), "learning_rate": (1e-3, 1e-3)}
    assert sum(line.startswith("An extrapolation") for line in recommend.sentences(answer)) == 2
    assert not recommend.recommend(MODEL, [setting(0.2)]).extrapolations()


def test_a_sweep_without_small_sigmas_is_not_used_for_maps() -> None:
    near, far = setting(0.1, "a"), setting(0.01, "b", tokens=1024)
    half = dataclasses.replace(near.outcome, points=near.outcome.points[3:])  # from 0.1 on
    cut = dataclasses.replace(near, outcome=half, structure=half)
    flat = dataclasses.replace(half, points=(half.points[0], dataclasses.replace(half.points[0], sigma=0.2)))
    for_map = dataclasses.replace(MODEL, goal="map")
    assert recommend.recommend(for_map, [cut, far]).sigma == 0.01
    assert recommend.recommend(for_map, [cut]).sigma == 0.1  # there is nothing better
    assert recommend.recommend(MODEL, [cut, far]).sigma == 0.1
    assert recommend.best_is_smallest(cut, "map") and not recommend.best_is_smallest(cut, "accuracy")
    for structure in (near.structure, setting(0.01).structure, setting(0.1, learned=False).structure, None, flat):
        assert not recommend.best_is_smallest(dataclasses.replace(cut, structure=structure), "map")


def test_each_goal_uses_its_curve() -> None:
    mixed = dataclasses.replace(setting(0.5), structure=setting(0.02).outcome)
    answer = recommend.recommend(MODEL, [mixed])
    assert (answer.sigma, answer.best_for_other_goal.sigma) == (0.5, 0.02)
    assert answer.score_for_other_goal.mean_gain_lost == pytest.approx(1)  # a map is lost at 0.5
    assert recommend.recommend(dataclasses.replace(MODEL, goal="map"), [mixed]).sigma == 0.02


def test_a_held_out_setting_is_not_used() -> None:
    settings = [setting(0.2, "a"), setting(0.2, "a", tokens=32), setting(1.0, "b", tokens=256)]
    first, second, third = recommend.cross_validate(settings)
    assert (first.sigma, third.sigma) == (0.2, 0.2) and third.gain_lost["recommended"] == pytest.approx(math.log10(5))
    assert [result.sigma for result in recommend.cross_validate(settings, whole_task=True)] == [1.0, 1.0, 0.2]
    assert second.gain_lost["1"] == pytest.approx(math.log10(5)) and second.gain_lost["d^-1/2"] == pytest.approx(
        0.2, abs=0.02
    )


def test_the_packaged_evidence_has_an_answer_for_every_optimizer_and_goal() -> None:
    assert {setting.optimizer for setting in evidence.settings()} <= set(recommend.FAMILIES)
    for optimizer in recommend.FAMILIES:
        for goal in recommend.GOALS:
            for tokens, width in ((2, 1), (64, 128), (10**9, 10**9)):
                answer = recommend.recommend(ModelDescription(tokens, width, optimizer, 1e-3, 6, goal))
                assert answer.good_range[0] <= answer.sigma <= answer.good_range[1] and answer.sigma in GRID
                assert sum(item.weight for item in answer.weighted_settings) == pytest.approx(1)


def test_the_command_prints_sentences_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["recommend", "--tokens", "4096", "--width", "768", "--optimizer", "adamw"]) == 0
    answer = recommend.recommend(ModelDescription(4096, 768, "adamw"))
    assert capsys.readouterr().out.startswith(f"Start with sigma {answer.sigma:g}")
    words = ["recommend", "--tokens", "16", "--width", "100000000", "--optimizer", "sgd", "--layers", "2", "--json"]
    assert cli.main(words) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["model"]["layers"] == 2 and record["sigma"] in GRID
    assert record["defaults"]["d^-1/2"]["share_good"] is None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("tokens", "1"),
        ("tokens", "1" + 30 * "0"),
        ("width", "wide"),
        ("optimizer", "adagrad"),
        ("learning-rate", "nan"),
        ("layers", "0"),
        ("goal", "beauty"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"tokens": "16", "width": "64", "optimizer": "adam", option: value}
    assert cli.main(["recommend", *(word for name, text in options.items() for word in (f"--{name}", text))]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"{option.replace('-', '_')} must be" in error


def test_scales_of_libraries_are_those_of_their_distributions() -> None:
    by_name = {library.name: library for library in LIBRARIES}
    torch.manual_seed(0)
    drawn = {
        "PyTorch": torch.nn.Embedding(400, 256).weight,
        "timm": torch.nn.init.trunc_normal_(torch.empty(400, 256), std=0.02),
        "BERT": torch.nn.init.trunc_normal_(torch.empty(400, 256), std=0.02, a=-0.04, b=0.04),
        "DETR": torch.nn.init.uniform_(torch.empty(400, 256)),
        "KerasHub": torch.nn.init.xavier_uniform_(torch.empty(400, 256)),
        "x-transformers": torch.randn(400, 256) * 256**-0.5,
    }
    for name, table in drawn.items():
        assert by_name[name].sigma(400, 256) == pytest.approx(float(table.detach().std()), rel=0.01), name


def test_libraries_have_a_source_and_a_formula_that_is_true() -> None:
    assert len(LIBRARIES) >= 12 and len({library.name for library in LIBRARIES}) == len(LIBRARIES)
    for library in LIBRARIES:
        repository, path = library.source.split(" ")
        assert repository.count("/") == 1 and path.endswith(".py")
        formula = library.formula.replace("^", "**").replace("1/2", "(1/2)").replace("-(1/2)", "(-1/2)")
        assert eval(formula, {"d": 256, "n": 400}) == pytest.approx(library.sigma(400, 256), rel=2e-3), library.name
    assert set(recommend.DEFAULTS) <= {library.formula for library in LIBRARIES}


def test_the_truncated_standard_deviation_is_that_of_a_normal_cut_at_two() -> None:
    x = np.linspace(-2, 2, 20_001)
    density = np.exp(-(x**2) / 2)
    left = math.sqrt((x**2 * density).sum() / density.sum())
    assert left == pytest.approx(libraries.TRUNCATED_STD, abs=1e-4)
