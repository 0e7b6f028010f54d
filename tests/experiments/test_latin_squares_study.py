"""lst-sigma and lst-encodings: settings, members, sentences and figures."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from placecode import cli
from placecode.analysis.alignment import similarity
from placecode.encodings import sinusoid
from placecode.errors import BadInput
from placecode.execution import local
from placecode.experiments.latin.squares import LstEncodings, LstSigma
from placecode.experiments.measures import arrangement
from placecode.experiments.reading import dials, final_accuracy, swept
from placecode.experiments.specs import encoding_spec
from placecode.models.member import Member
from placecode.reports import figures
from placecode.reports.pages.latin_words import kind_of, of_sigmas
from placecode.reports.pages.registry import page_of
from placecode.runs.read import End, member_table
from placecode.tasks.latin_squares import LatinSquares
from placecode.training.trainer import stack_for

TINY: dict[str, Any] = {
    "per_class": 20,
    "heldout": 9,
    "distance": 0.5,
    "width": 8,
    "heads": 2,
    "layers": 2,
    "batch": 16,
}


@pytest.fixture(scope="module")
def task() -> LatinSquares:
    return LstSigma.at("quick", **TINY).task()


# Scales


def test_paper_is_the_published_protocol() -> None:
    study = LstSigma.at("paper")
    assert study.sigmas == tuple(round(i / 10, 1) for i in range(1, 21))
    assert study.seeds == tuple(range(15))
    assert study.epochs == 4000
    assert (study.width, study.layers, study.heads, study.expansion) == (160, 4, 1, 4)
    assert (study.optimizer, study.learning_rate, study.batch) == ("adam", 1e-4, 128)
    assert (study.weight_decay, study.clip, study.cooldown, study.dropout) == (0.0, None, 0.0, 0.0)
    assert (study.encoding, study.start, study.placement, study.norm) == ("learned", "normal", "every", "post")
    assert (study.order, study.per_class, study.heldout, study.distance) == (4, 3000, 108, 0.8)
    assert study.references == (0.0, 0.1)
    assert len(study.members()) == 330  # 20 sigmas and 2 kinds of 2d-fixed, 15 seeds each
    assert (study.log_softmax, study.rest, study.block_noise) == (2, 100, (0.2,))
    assert study == LstSigma(rest=100, block_noise=(0.2,))  # else the defaults of the fields


def test_what_is_given_wins_over_the_scale() -> None:
    assert LstSigma.at("quick", epochs=7).epochs == 7
    assert LstSigma.at("quick", epochs=7).width == LstSigma.at("quick").width
    with pytest.raises(BadInput) as error:
        LstSigma.at("huge")
    assert str(error.value) == "scale must be one of quick, paper; got 'huge'."


def test_every_field_of_a_member_that_the_study_has_reaches_its_members() -> None:
    given: dict[str, Any] = {"encoding": "random", "start": "uniform", "placement": "input", "width": 24, "layers": 3}
    given |= {"heads": 4, "expansion": 3, "norm": "pre", "dropout": 0.1, "dropout_at_evaluation": True, "batch": 7}
    given |= {"optimizer": "adamw", "learning_rate": 0.5, "pe_learning_rate": 0.25, "weight_decay": 0.01, "clip": 1.0}
    given |= {"pe_weight_decay": 0.02}
    given |= {"cooldown": 0.5, "learn": False, "momentum": 0.5, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-6}
    study = LstSigma.at("quick", **given, sigmas=(0.3, 0.7), seeds=(4, 9), references=())
    members = study.members()
    assert [(member.sigma, member.seed) for member in members] == [(0.3, 4), (0.3, 9), (0.7, 4), (0.7, 9)]
    for member in members:
        assert {name: getattr(member, name) for name in given} == given
    shared = set(Member.__dataclass_fields__) & set(LstSigma.__dataclass_fields__)
    assert shared - {"options"} == set(given)  # so that a new field is not forgotten here


@pytest.mark.parametrize(
    ("given", "name", "rule"),
    [
        ({"sigmas": ()}, "sigmas", "at least one"),
        ({"encoding": "rotary", "sigmas": (0.1, 0.2)}, "sigmas", "a single one for the encoding rotary"),
        ({"start": "zero", "sigmas": (0.1, 0.2)}, "sigmas", "a single one for the start zero"),
        ({"output_gain": 0.0}, "output_gain", "a number above 0"),
        ({"output_gain": float("inf")}, "output_gain", "a number above 0"),
        ({"seeds": ()}, "seeds", "at least one"),
        ({"epochs": 0}, "epochs", "a whole number of at least 1"),
        ({"evaluations": 0}, "evaluations", "a whole number of at least 1"),
        ({"data_seed": -1}, "data_seed", "a whole number of at least 0"),
        ({"noise": (0.5, 0.0)}, "noise", "positive numbers"),
        ({"noise": (float("inf"),)}, "noise", "positive numbers"),
        ({"noise": (float("nan"),)}, "noise", "positive numbers"),
    ],
)
def test_bad_settings_are_refused(given: dict[str, Any], name: str, rule: str) -> None:
    with pytest.raises(BadInput) as error:
        LstSigma.at("quick", **given)
    assert error.value.name == name and error.value.rule.startswith(rule)


@pytest.mark.parametrize("epochs", [1, 2, 5, 70, 4000])
@pytest.mark.parametrize("evaluations", [1, 2, 8, 40, 100])
def test_evaluations_fall_on_whole_epochs_within_the_run(task: LatinSquares, epochs: int, evaluations: int) -> None:
    study = LstSigma.at("quick", **TINY, epochs=epochs, evaluations=evaluations)
    steps = study.evaluate_at(task)
    assert steps == sorted(set(steps))
    assert steps[-1] == study.training_steps(task) == epochs * 4
    assert all(0 < step <= study.training_steps(task) and step % 4 == 0 for step in steps)
    early = epochs > 200  # epoch 200 is evaluated besides
    assert 1 <= len(steps) <= evaluations + early
    assert (200 * 4 in steps) or not early
    gaps = np.diff([0, *steps])
    assert gaps[0] <= gaps[-1] or epochs < evaluations  # closer together at the start


def test_references_are_2d_fixed_models_behind_the_sweep_with_its_other_settings() -> None:
    given: dict[str, Any] = {"start": "uniform", "learn": False, "options": (), "clip": 1.0, "optimizer": "adamw"}
    study = LstSigma.at("quick", **TINY, **given, sigmas=(0.2, 2.0), seeds=(3, 5), dropout=0.4, references=(0.0, 0.1))
    *sweep, a, b, c, d = study.members()
    assert [(member.sigma, member.seed) for member in sweep] == [(0.2, 3), (0.2, 5), (2.0, 3), (2.0, 5)]
    assert {(member.dropout, member.start, member.learn) for member in sweep} == {(0.4, "uniform", False)}
    for member, seed, rate in ((a, 3, 0.0), (b, 5, 0.0), (c, 3, 0.1), (d, 5, 0.1)):
        assert (member.encoding, dict(member.options), member.sigma) == ("sinusoid", {"axes": 2}, None)
        assert (member.seed, member.dropout, member.dropout_at_evaluation) == (seed, rate, rate > 0)
        assert (member.width, member.clip, member.optimizer) == (8, 1.0, "adamw")
    assert study.members()[:4] == dataclasses.replace(study, references=()).members()


def test_nothing_given_on_the_command_line_means_no_references() -> None:
    words = ["run", "lst-sigma", "--scale", "paper", "--references", ""]
    given = cli.flags.settings(cli._parser(words).parse_args(words), LstSigma)
    assert given == {"references": ()}
    assert len(LstSigma.at("paper", **given).members()) == 300


def test_epoch_200_is_always_evaluated(task: LatinSquares) -> None:
    for kind in (LstSigma, LstEncodings):
        for epochs, there in ((4000, True), (201, True), (200, True), (199, False)):
            study = kind.at("quick", **TINY, epochs=epochs, evaluations=1)
            assert (200 * 4 in study.evaluate_at(task)) == there
            assert study.evaluate_at(task)[-1] == epochs * 4


# lst-encodings


def test_all_encodings_at_paper_scale() -> None:
    """Encoding by encoding, first without and then with dropout, the seeds of each together."""
    study = LstEncodings.at("paper")
    members = study.members()
    assert len(study.encodings) == 19
    assert len(members) == len(set(members)) == 570
    assert (study.epochs, study.rest, study.dropout_epochs) == (1000, 100, 200)
    wanted = [(text, rate, seed) for text in study.encodings for rate in (0.0, 0.1) for seed in range(15)]
    for member, (text, rate, seed) in zip(members, wanted, strict=True):
        spec = encoding_spec(text)
        assert (member.encoding, member.sigma, dict(member.options)) == tuple(spec.values())
        assert (member.dropout, member.dropout_at_evaluation, member.seed) == (rate, rate > 0, seed)
        short = rate > 0 and text not in ("learned:sigma=0.2", "sinusoid:axes=2")
        assert member.last_epoch == (200 if short else None)
        assert (member.width, member.layers, member.heads, member.batch) == (160, 4, 1, 128)
        assert (member.start, member.learn, member.placement) == ("normal", True, "every")
    sweep = LstSigma.at("paper").members()
    shared = [member for member in members if member in set(sweep)]
    assert len(shared) == 4 * 15  # sigmas 0.2 and 1, and the two kinds of 2d-fixed, are those of lst-sigma


def test_dropout_at_training_alone_reaches_the_members() -> None:
    study = LstEncodings.at("quick", dropout_at_evaluation=False, dropouts=(0.3,), seeds=(4,))
    assert {(member.dropout, member.dropout_at_evaluation, member.seed) for member in study.members()} == {
        (0.3, False, 4)
    }


@pytest.mark.parametrize(
    ("given", "name", "rule"),
    [
        ({"encodings": ()}, "encodings", "at least one"),
        ({"encodings": ("learned", "learned:sigma=0.2")}, "encodings", "all different"),
        ({"encodings": ("none:sigma=1",)}, "sigma", "left out for the encoding none"),
        ({"encodings": ("learned:0.2",)}, "options", "NAME=VALUE"),
        ({"encodings": ("lerned",)}, "encoding", "one of"),
        ({"dropouts": ()}, "dropouts", "at least one"),
    ],
)
def test_bad_encodings_are_refused(given: dict[str, Any], name: str, rule: str) -> None:
    with pytest.raises(BadInput) as error:
        LstEncodings.at("quick", **given)
    assert error.value.name == name and error.value.rule.startswith(rule)


def test_a_run_of_encodings_has_its_words_figures_and_claims(tmp_path: Path) -> None:
    texts = ("learned:sigma=0.2", "sinusoid:axes=2", "rotary", "relative:causal=1", "causal-none:temperature=0.01")
    study = LstEncodings.at("quick", **TINY, encodings=texts, seeds=(0, 1), epochs=1, evaluations=1, noise=(0.5,))
    run = local.execute(study, tmp_path / "run")
    assert len(run.members) == 20
    assert [each.name for each in page_of(study, run).figures()] == ["dropout", "encodings", "curves"]
    words = page_of(study, run).words()
    names = ["learned, \N{GREEK SMALL LETTER SIGMA} 0.2", "2d-fixed", "rotary", "relative, causal"]
    names += ["NoPE with a causal mask, temperature 0.01"]
    for start in ("Without dropout, these ", "With dropout 0.1, these "):
        told = " ".join(line for line in words if line.startswith(start))
        assert all(told.count(f" {name} (0.") == 1 for name in names)
    assert words[-1] == "In brackets: OOD accuracy, mean of 2 seeds."
    found = {claim.id: claim.check(run) for claim in study.claims}
    assert np.isfinite(found["near-2d-fixed"].found.mean)
    assert found["beats-none"].note.endswith("members none with dropout 0")
    cost = run.analysis[run.analysis["analysis"] == "accuracy_without_dropout"]
    assert set(cost["member"]) == set(run.members.loc[run.members["dropout"] > 0, "member"])


# Analyses and arrays


def test_the_sinusoid_of_the_grid_is_the_target_itself(task: LatinSquares) -> None:
    member = Member("sinusoid", width=8, layers=2, heads=2, options={"axes": 2})
    table = pd.DataFrame(arrangement(stack_for([member], task), task))
    rows = table[table["target"] == "2d-fixed"].set_index(["block", "analysis"])["value"]
    for block in (-1, -2, 0, 1):
        assert rows[block, "procrustes"] == pytest.approx(0, abs=1e-6)
        assert rows[block, "procrustes_raw"] == pytest.approx(0, abs=1e-5)
        assert rows[block, "rsa"] == pytest.approx(1)
        assert rows[block, "cka"] == pytest.approx(1)
    assert rows[-1, "procrustes_p"] == 1 / 200


# Words


class FakeRun(SimpleNamespace):
    """A run with the accuracies that are given: {sigma: [(train, test, ood) or None for diverged, per seed]}."""

    def __init__(self, accuracies: dict[float, list[tuple[float, float, float] | None]]) -> None:
        members, values = [], []
        for sigma, seeds in accuracies.items():
            for seed, found in enumerate(seeds):
                members.append(Member(sigma=sigma, seed=seed))
                values.append(found)
        table = member_table(range(len(members)), members, [End(-1 if found else 5) for found in values])
        rows = []
        for number, found in enumerate(values):
            for split, value in zip(("train", "test", "ood"), found or (0.9, 0.9, 0.9), strict=True):
                row = {"member": number, "step": 10, "split": split, "condition": "all", "metric": "accuracy"}
                rows += [
                    {**row, "value": value},
                    {**row, "step": 0, "value": 0.3},
                    {**row, "metric": "loss", "value": 7.0},
                ]
                rows += [{**row, "condition": "Binary", "value": 0.123}]
        config = {"shape": {"outputs": 4}, "fields": {"encoding": "learned"}}
        super().__init__(members=table, metrics=pd.DataFrame(rows), config=config)


NOT_YET, GENERALIZES, MEMORIZES, PARTLY = "not fitted", "generalizes", "memorizes", "partly"


@pytest.mark.parametrize(
    ("train", "ood", "kind"),
    [
        (0.94, 0.30, NOT_YET),
        (0.94, 0.94, NOT_YET),  # good on ood too, and yet not learned to the end
        (0.25, 0.25, NOT_YET),
        (0.95, 0.85, GENERALIZES),
        (1.00, 0.99, GENERALIZES),
        (0.95, 0.84, PARTLY),
        (0.99, 0.63, PARTLY),
        (0.99, 0.50, MEMORIZES),
        (1.00, 0.25, MEMORIZES),
        (1.00, 0.00, MEMORIZES),
    ],
)
def test_only_a_model_that_has_fitted_can_memorize(train: float, ood: float, kind: str) -> None:
    assert kind_of(train, ood) == kind


def test_findings_tell_both_ends_and_the_difference() -> None:
    run = FakeRun(
        {
            0.1: [(0.5, 0.5, 0.5)] * 3,
            0.2: [(1.0, 0.98, 0.9), (0.99, 0.98, 0.95), (1.0, 0.97, 0.94)],
            2.0: [(1.0, 0.6, 0.4), (0.98, 0.6, 0.45), (0.99, 0.5, 0.35)],
        }
    )
    assert dials(run) == (0.2, 2.0)
    small, large, difference = of_sigmas(run)
    assert small.startswith("sigma = 0.2: train 0.997, test 0.977, ood 0.930 (mean of 3 seeds).")
    assert large.startswith("sigma = 2: train 0.990, test 0.567, ood 0.400 (mean of 3 seeds).")
    assert GENERALIZES in small and MEMORIZES in large
    assert difference.endswith(" is 0.53 (95% interval over seeds 0.40 to 0.66).")


def test_findings_do_not_say_what_did_not_happen() -> None:
    """The small sigma behind the large one, and neither fitted."""
    *settings, difference = of_sigmas(FakeRun({0.5: [(0.5, 0.5, 0.3)], 1.0: [(0.6, 0.5, 0.5)]}))
    assert all("has not fitted" in sentence for sentence in settings)
    assert difference.endswith(" is -0.20.")


def test_findings_leave_out_members_that_diverged_and_say_so() -> None:
    small, large, lost = of_sigmas(FakeRun({0.2: [(1.0, 1.0, 1.0), None], 2.0: [None, (1.0, 0.5, 0.3)]}))
    assert "ood 1.000 (mean of 1 seed)" in small and "ood 0.300 (mean of 1 seed)" in large
    assert lost.startswith("2 of 4 members diverged")  # and no seed is there at both sigmas to compare
    alone, lost = of_sigmas(FakeRun({0.2: [None]}))
    assert alone.startswith("sigma = 0.2: no member finished") and lost.startswith("1 of 1 members diverged")


def test_one_sigma_is_told_once() -> None:
    assert len(of_sigmas(FakeRun({0.7: [(1.0, 1.0, 1.0)] * 2}))) == 1


def test_final_accuracy_is_of_the_last_step_and_all_puzzles() -> None:
    run = FakeRun({0.2: [(1.0, 0.9, 0.8), None], 2.0: [(0.7, 0.6, 0.5)]})
    table = final_accuracy(run, swept(run))
    assert table[["sigma", "seed", "split", "value"]].to_dict("list") == {
        "sigma": [0.2] * 3 + [2.0] * 3,
        "seed": [0] * 6,
        "split": ["train", "test", "ood"] * 2,
        "value": [1.0, 0.9, 0.8, 0.7, 0.6, 0.5],
    }


# Figures


def test_figures_show_the_sigmas_that_they_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = LstSigma.at("quick", **TINY, epochs=1, evaluations=1, sigmas=(0.2, 1.0, 2.0), seeds=(0, 1))
    run = local.execute(study, tmp_path / "run")
    # as if the first seed of 0.2 and every seed of 2.0 had diverged
    run.members.loc[run.members["member"].isin([0, 4, 5]), "state"] = "diverged"
    asked: list[Any] = []
    draw = figures.similarity_maps
    monkeypatch.setattr(figures, "similarity_maps", lambda *given, **more: asked.append(given) or draw(*given, **more))
    assert "similarity" in [each.name for each in page_of(study, run).figures()]
    true, small, large, names, name, titles = asked[0]
    assert np.array_equal(small[0], similarity(run.array("pe_start/1")))
    assert np.array_equal(small[1], similarity(run.array("pe_end/1")))
    assert np.array_equal(large[1], similarity(run.array("pe_end/4")))  # of that sigma, whatever has become of it
    assert titles == (f"{figures.SIGMA} = 0.2", f"{figures.SIGMA} = 2, diverged", "true arrangement")
    assert names[0] == "r1c1"
    assert names[-1] == "r4c4"
    assert name == "run (lst-sigma, quick scale)"
    assert true.shape == (16, 16)
    row, column, other = true[0, 1], true[0, 4], true[0, 10]
    assert row > other  # neighbours are more alike than cells apart
    assert column > other


PICTURES = ["similarity", "token-maps", "geometry", "attention", "noise", "classes", "errors"]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"sigmas": (0.2, 1.0, 2.0), "noise": ()}, ["accuracy", "curves", "relations", *PICTURES]),
        ({"sigmas": (0.2,), "encoding": "rotary"}, ["accuracy", "curves", *PICTURES[3:]]),
        ({"sigmas": (0.2,), "encoding": "sinusoid", "references": (0.0, 0.1)}, ["accuracy", "curves", *PICTURES]),
    ],
)
def test_all_figures_are_drawn_and_say_what_to_look_at(tmp_path: Path, given: dict[str, Any], names: list[str]) -> None:
    study = LstSigma.at("quick", **TINY, epochs=1, evaluations=1, seeds=(0,), **given)
    run = local.execute(study, tmp_path / "run")
    shown = page_of(study, run).figures()
    assert [each.name for each in shown] == [name for name in names if name != "noise" or study.noise]
    assert all(each.title and each.caption and each.figure.axes for each in shown)
    assert page_of(study, run).words()[0].startswith("sigma = 0.2: ")  # whatever the references are


def test_a_piece_with_the_references_alone_is_told_as_such(tmp_path: Path) -> None:
    study = LstSigma.at("quick", **TINY, epochs=1, evaluations=1, sigmas=(0.2,), seeds=(0, 1))
    run = local.execute(study, tmp_path / "run", chosen="2:4")
    assert [each.name for each in page_of(study, run).figures()] == ["accuracy", "curves"]
    (sentence,) = page_of(study, run).words()
    assert "only references" in sentence
    assert {claim.check(run).direction for claim in study.claims} == {"undecided"}


def test_options_of_the_encoding_reach_the_members() -> None:
    given = {"encoding": "sinusoid", "sigmas": (0.2,), "options": ("axes=2", "base=100.5")}
    study = LstSigma.at("quick", **given, references=())
    assert {(member.options["axes"], member.options["base"]) for member in study.members()} == {(2, 100.5)}
    study = LstSigma.at("quick", encoding="alibi", sigmas=(0.2,), options=("distance=manhattan",))
    assert study.members()[0].options["distance"] == "manhattan"
    with pytest.raises(BadInput, match=r"^options must be NAME=VALUE, such as axes=2; got 'axes'\.$"):
        LstSigma.at("quick", options=("axes",)).members()


def test_blocks_that_are_turned_each_in_its_own_way_are_all_aligned() -> None:
    """Averaged over blocks first, their distance would be far from zero."""
    task = LatinSquares(per_class=20, heldout=9, distance=0.5)
    truth = sinusoid(task.positions, 8)
    turns = [np.linalg.qr(np.random.default_rng(i).normal(size=(8, 8)))[0] for i in range(3)]
    table = np.stack([truth @ turn for turn in turns])
    stack = stack_for([Member(width=8, layers=3, heads=2, start=table)], task, dtype=torch.float64)
    rows = {(row["block"], row["analysis"], row["target"]): row["value"] for row in arrangement(stack, task)}
    for block in (-1, 0, 1, 2):
        assert rows[block, "procrustes_raw", "2d-fixed"] == pytest.approx(0, abs=1e-6)
        assert rows[block, "procrustes", "2d-fixed"] == pytest.approx(0, abs=1e-6)
    assert rows[-2, "procrustes_raw", "2d-fixed"] > 1  # of the mean over blocks
    assert np.linalg.norm(table.mean(0)) < 0.9 * np.linalg.norm(truth)


def test_the_page_describes_the_quick_scale_as_it_is() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs/latin-squares.md").read_text().split())
    quick = LstSigma.at("quick")
    assert f"{quick.layers} blocks of width {quick.width} with {quick.heads} heads" in page
    assert f"{quick.per_class:,} puzzles per class" in page
    assert f"{quick.epochs} epochs at a rate of {quick.learning_rate:g}" in page
    assert quick.cooldown == 0.25 and "cooldown over the last quarter" in page
