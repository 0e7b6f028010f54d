"""lst-sigma and lst-encodings: settings, members and figures."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.made_up import made_up
from helpers.refusal import refused

from placecode.execution import local
from placecode.experiments.claims import NotInRun
from placecode.experiments.latin.squares import LstEncodings, LstSigma
from placecode.experiments.reading import accuracy, contrast_sigmas, final_accuracy, select, sweep_members
from placecode.experiments.specs import parse_encoding
from placecode.models.member import Member
from placecode.reports.pages.latin import outcome
from placecode.reports.pages.registry import page_of
from placecode.tasks.latin_squares import LatinSquares

TINY: dict[str, Any] = {"per_class": 20, "heldout": 9, "distance": 0.5}
TINY |= {"width": 8, "heads": 2, "layers": 2, "batch": 16}


@pytest.fixture(scope="module")
def task() -> LatinSquares:
    return LstSigma.from_scale("quick", **TINY).task()


def test_paper_is_the_published_protocol() -> None:
    experiment = LstSigma.from_scale("paper")
    assert experiment.sigmas == tuple(round(i / 10, 1) for i in range(1, 21))
    assert experiment.seeds == tuple(range(15))
    assert experiment.epochs == 4000
    assert (experiment.width, experiment.layers, experiment.heads, experiment.expansion) == (160, 4, 1, 4)
    assert (experiment.optimizer, experiment.learning_rate, experiment.batch) == ("adam", 1e-4, 128)
    assert (experiment.weight_decay, experiment.clip, experiment.cooldown, experiment.dropout) == (0.0, None, 0.0, 0.0)
    published = {"encoding": "learned", "start": "normal", "placement": "every", "norm": "post"}
    assert published.items() <= experiment.fields().items()
    assert (experiment.order, experiment.per_class, experiment.heldout, experiment.distance) == (4, 3000, 108, 0.8)
    assert experiment.references == (0.0, 0.1)
    assert len(experiment.members()) == 330  # 20 sigmas and 2 kinds of 2d-fixed, 15 seeds each
    assert len(dataclasses.replace(experiment, references=()).members()) == 300
    assert (experiment.log_softmax, experiment.zero_loss_patience, experiment.block_noise) == (2, 100, (0.2,))
    assert experiment == LstSigma(zero_loss_patience=100, block_noise=(0.2,))  # else the defaults of the fields


def test_fields_win_over_the_scale() -> None:
    assert LstSigma.from_scale("quick", epochs=7) == dataclasses.replace(LstSigma.from_scale("quick"), epochs=7)
    error = refused(LstSigma.from_scale, "huge")
    assert (error.name, error.given) == ("scale", "huge")


def test_every_field_that_experiment_and_member_share_reaches_the_members() -> None:
    fields: dict[str, Any] = {"encoding": "random", "start": "uniform", "placement": "input", "width": 24, "layers": 3}
    fields |= {"heads": 4, "expansion": 3, "norm": "pre", "dropout": 0.1, "dropout_at_evaluation": True, "batch": 7}
    fields |= {"optimizer": "adamw", "learning_rate": 0.5, "pe_learning_rate": 0.25, "weight_decay": 0.01, "clip": 1.0}
    fields |= {"pe_weight_decay": 0.02, "output_gain": 1.5}
    fields |= {"cooldown": 0.5, "learn": False, "momentum": 0.5, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-6}
    members = LstSigma.from_scale("quick", **fields, sigmas=(0.3, 0.7), seeds=(4, 9), references=()).members()
    assert [(member.sigma, member.seed) for member in members] == [(0.3, 4), (0.3, 9), (0.7, 4), (0.7, 9)]
    for member in members:
        assert {name: getattr(member, name) for name in fields} == fields
    shared = set(Member.__dataclass_fields__) & set(LstSigma.__dataclass_fields__)
    assert shared - {"options"} == set(fields)  # so that a new field is not forgotten here


@pytest.mark.parametrize(
    ("experiment", "fields", "name", "rule"),
    [
        (LstSigma, {"sigmas": ()}, "sigmas", "at least one"),
        (LstSigma, {"encoding": "rotary", "sigmas": (0.1, 0.2)}, "sigmas", "a single one for the encoding rotary"),
        (LstSigma, {"start": "zero", "sigmas": (0.1, 0.2)}, "sigmas", "a single one for the start zero"),
        (LstSigma, {"output_gain": 0.0}, "output_gain", "a number above 0"),
        (LstSigma, {"output_gain": float("inf")}, "output_gain", "a number above 0"),
        (LstSigma, {"seeds": ()}, "seeds", "at least one"),
        (LstSigma, {"epochs": 0}, "epochs", "a whole number of at least 1"),
        (LstSigma, {"evaluations": 0}, "evaluations", "a whole number of at least 1"),
        (LstSigma, {"data_seed": -1}, "data_seed", "a whole number of at least 0"),
        (LstSigma, {"noise": (0.5, 0.0)}, "noise", "a number above 0"),
        (LstSigma, {"noise": (float("nan"),)}, "noise", "a number above 0"),
        (LstEncodings, {"encodings": ()}, "encodings", "at least one"),
        (LstEncodings, {"encodings": ("learned", "learned:sigma=0.2")}, "encodings", "all different"),
        (LstEncodings, {"encodings": ("none:sigma=1",)}, "sigma", "left out for the encoding none"),
        (LstEncodings, {"encodings": ("learned:0.2",)}, "options", "NAME=VALUE"),
        (LstEncodings, {"encodings": ("lerned",)}, "encoding", "one of"),
        (LstEncodings, {"dropouts": ()}, "dropouts", "at least one"),
    ],
)
def test_bad_settings_are_refused(experiment: Any, fields: dict[str, Any], name: str, rule: str) -> None:
    error = refused(experiment.from_scale, "quick", **fields)
    assert error.name == name and error.allowed.startswith(rule)


@pytest.mark.parametrize("experiment", [LstSigma, LstEncodings])
@pytest.mark.parametrize("epochs", [1, 5, 199, 200, 201, 4000])
@pytest.mark.parametrize("evaluations", [1, 8, 100])
def test_steps_of_evaluations(task: LatinSquares, experiment: Any, epochs: int, evaluations: int) -> None:
    """They are after whole epochs, one of them after epoch 200."""
    small = experiment.from_scale("quick", **TINY, epochs=epochs, evaluations=evaluations)
    steps = small.evaluate_at(task)
    assert steps == sorted(set(steps)) and all(step > 0 and step % 4 == 0 for step in steps)
    assert steps[-1] == small.training_steps(task) == epochs * 4
    assert len(steps) <= evaluations + (epochs > 200)
    assert (200 * 4 in steps) or epochs < 200
    gaps = np.diff([0, *steps])
    assert gaps[0] <= gaps[-1] or epochs < evaluations or epochs == 201  # closer together at the start


def test_references_are_2d_fixed_models_with_the_other_settings_of_the_sweep() -> None:
    fields: dict[str, Any] = {"start": "uniform", "learn": False, "options": (), "clip": 1.0, "optimizer": "adamw"}
    fields |= {"sigmas": (0.2, 2.0), "seeds": (3, 5), "dropout": 0.4, "references": (0.0, 0.1)}
    experiment = LstSigma.from_scale("quick", **TINY, **fields)
    *sweep, a, b, c, d = experiment.members()
    assert [(member.sigma, member.seed) for member in sweep] == [(0.2, 3), (0.2, 5), (2.0, 3), (2.0, 5)]
    assert {(member.dropout, member.start, member.learn) for member in sweep} == {(0.4, "uniform", False)}
    for member, seed, rate in ((a, 3, 0.0), (b, 5, 0.0), (c, 3, 0.1), (d, 5, 0.1)):
        assert (member.encoding, dict(member.options), member.sigma) == ("sinusoid", {"axes": 2}, None)
        assert (member.seed, member.dropout, member.dropout_at_evaluation) == (seed, rate, rate > 0)
        assert (member.width, member.clip, member.optimizer) == (8, 1.0, "adamw")
    assert experiment.members()[:4] == dataclasses.replace(experiment, references=()).members()


def test_all_encodings_at_paper_scale() -> None:
    """Encoding by encoding, first without and then with dropout, the seeds of each together."""
    experiment = LstEncodings.from_scale("paper")
    members = experiment.members()
    assert len(experiment.encodings) == 19
    assert len(members) == len(set(members)) == 570
    assert (experiment.epochs, experiment.zero_loss_patience, experiment.dropout_epochs) == (1000, 100, 200)
    settings = [(text, rate, seed) for text in experiment.encodings for rate in (0.0, 0.1) for seed in range(15)]
    for member, (text, rate, seed) in zip(members, settings, strict=True):
        assert (member.encoding, member.sigma, dict(member.options)) == tuple(parse_encoding(text).values())
        assert (member.dropout, member.dropout_at_evaluation, member.seed) == (rate, rate > 0, seed)
        has_fewer_epochs = rate > 0 and text not in ("learned:sigma=0.2", "sinusoid:axes=2")
        assert member.last_epoch == (200 if has_fewer_epochs else None)
        assert (member.width, member.layers, member.heads, member.batch) == (160, 4, 1, 128)
        assert (member.start, member.learn, member.placement) == ("normal", True, "every")
    sweep = LstSigma.from_scale("paper").members()
    shared = [member for member in members if member in set(sweep)]
    assert len(shared) == 4 * 15  # sigmas 0.2 and 1, and the two kinds of 2d-fixed, are those of lst-sigma


def test_dropout_at_training_alone_reaches_the_members() -> None:
    members = LstEncodings.from_scale("quick", dropout_at_evaluation=False, dropouts=(0.3,), seeds=(4,)).members()
    assert {(member.dropout, member.dropout_at_evaluation, member.seed) for member in members} == {(0.3, False, 4)}


def test_a_run_of_encodings_has_its_figures_and_claims(tmp_path: Path) -> None:
    texts = ("learned:sigma=0.2", "sinusoid:axes=2", "rotary", "relative:causal=1", "causal-none:temperature=0.01")
    fields = {"encodings": texts, "seeds": (0, 1), "epochs": 1, "evaluations": 1, "noise": (0.5,)}
    experiment = LstEncodings.from_scale("quick", **TINY, **fields)
    run = local.execute(experiment, tmp_path / "run")
    assert len(run.members) == 20
    assert [shown.name for shown in page_of(experiment, run).figures()] == ["dropout", "encodings", "curves"]
    findings = {claim.id: claim.check(run) for claim in experiment.claims}
    assert np.isfinite(findings["near-2d-fixed"].effect.mean) and findings["beats-none"].note
    cost = run.analysis[run.analysis["analysis"] == "accuracy_without_dropout"]
    assert set(cost["member"]) == set(run.members.loc[run.members["dropout"] > 0, "member"])


NOT_YET, GENERALIZES, MEMORIZES, PARTLY = "not fitted", "generalizes", "memorizes", "partly"


@pytest.mark.parametrize(
    ("train", "ood", "learned"),
    [
        (0.94, 0.30, NOT_YET),
        (0.94, 0.94, NOT_YET),  # good on ood too, and yet not learned to the end
        (0.95, 0.85, GENERALIZES),
        (0.95, 0.84, PARTLY),
        (0.99, 0.50, MEMORIZES),
        (1.00, 0.00, MEMORIZES),
    ],
)
def test_only_a_model_that_fits_its_training_puzzles_can_memorize(train: float, ood: float, learned: str) -> None:
    assert outcome(train, ood) == learned


def test_final_accuracy_is_of_the_last_step_and_all_puzzles_of_finished_members() -> None:
    experiment = LstSigma.from_scale("paper", sigmas=(0.1, 0.2, 2.0), seeds=(0, 1), epochs=5, references=())
    train = {0.1: 0.5, 0.2: 0.99, 2.0: 0.99}
    ood = lambda m: 0.5 + 0.1 * m.sigma  # noqa: E731
    run = made_up(experiment, ood, train=lambda m: train[m.sigma], diverged=lambda m: m.seed == 1)
    table = final_accuracy(run, sweep_members(run)).set_index(["split", "sigma"])
    assert (table["seed"] == 0).all()
    assert table.loc["ood", "value"].to_dict() == pytest.approx({0.1: 0.51, 0.2: 0.52, 2.0: 0.7})
    assert table.loc["train", "value"].to_dict() == train
    assert contrast_sigmas(run) == (0.2, 2.0)  # 0.2 if the run has it, and the largest


def test_members_are_selected_by_their_columns_and_by_the_name_of_their_encoding() -> None:
    experiment = LstSigma.from_scale("paper", sigmas=(0.2, 2.0), seeds=(3, 0), epochs=5)
    run = made_up(experiment, lambda m: m.seed + (m.sigma or 0.5), diverged=lambda m: (m.sigma, m.seed) == (2.0, 0))
    values = accuracy(run)
    assert select(run, values, sigma=0.2).to_dict() == {0: 0.2, 3: 3.2}
    assert select(run, values, sigma=2.0, role="swept").to_dict() == {3: 5.0}
    for columns in ({"sigma": None}, {"name": "2d-fixed"}):
        assert select(run, values, **columns, dropout=0.0).to_dict() == {0: 0.5, 3: 3.5}
    with pytest.raises(NotInRun, match=r"^the run has no finished members with NoPE$"):
        select(run, values, "members with NoPE", name="NoPE")


PICTURES = ["similarity", "token-maps", "geometry", "attention", "noise", "classes", "errors"]


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"sigmas": (0.2, 1.0, 2.0), "noise": ()}, ["accuracy", "curves", "relations", *PICTURES]),
        ({"sigmas": (0.2,), "encoding": "rotary"}, ["accuracy", "curves", *PICTURES[3:]]),
    ],
)
def test_a_run_has_the_figures_of_its_encoding(tmp_path: Path, fields: dict[str, Any], names: list[str]) -> None:
    experiment = LstSigma.from_scale("quick", **TINY, epochs=1, evaluations=1, seeds=(0,), **fields)
    page = page_of(experiment, local.execute(experiment, tmp_path / "run"))
    assert [shown.name for shown in page.figures()] == [name for name in names if name != "noise" or experiment.noise]


def test_a_piece_with_references_alone_decides_nothing(tmp_path: Path) -> None:
    experiment = LstSigma.from_scale("quick", **TINY, epochs=1, evaluations=1, sigmas=(0.2,), seeds=(0, 1))
    run = local.execute(experiment, tmp_path / "run", member_ranges="2:4")
    assert [shown.name for shown in page_of(experiment, run).figures()] == ["accuracy", "curves"]
    assert len(page_of(experiment, run).sentences()) == 1
    assert {claim.check(run).direction for claim in experiment.claims} == {"undecided"}


def test_options_of_the_encoding_reach_the_members() -> None:
    fields = {"encoding": "sinusoid", "sigmas": (0.2,), "options": ("axes=2", "base=100.5")}
    experiment = LstSigma.from_scale("quick", **fields, references=())
    assert {(member.options["axes"], member.options["base"]) for member in experiment.members()} == {(2, 100.5)}
    experiment = LstSigma.from_scale("quick", encoding="alibi", sigmas=(0.2,), options=("distance=manhattan",))
    assert experiment.members()[0].options["distance"] == "manhattan"
    error = refused(LstSigma.from_scale("quick", options=("axes",)).members)
    assert (error.name, error.given) == ("options", "axes")


def test_the_documentation_describes_the_quick_scale() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs/latin-squares.md").read_text().split())
    quick = LstSigma.from_scale("quick")
    assert f"{quick.layers} blocks of width {quick.width} with {quick.heads} heads" in page
    assert f"{quick.per_class:,} puzzles per class" in page
    assert f"{quick.epochs} epochs at a rate of {quick.learning_rate:g}" in page
    assert quick.cooldown == 0.25 and "cooldown over the last quarter" in page
