"""Sentences on experiments of Latin squares: their members and numbers, and which settings have settled."""

import itertools
import math
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.beyond import smallest
from helpers.made_up import STRANGE, made_up, student

from placecode import experiments
from placecode.experiments import reading
from placecode.experiments.claims import NotInRun
from placecode.experiments.latin.squares import LstEncodings, LstSigma
from placecode.models.member import Member
from placecode.reports.pages.knobs import reference_accuracies, settling, sigma_effects
from placecode.reports.pages.registry import page_of


def sentences(run: Any) -> list[str]:
    return page_of(experiments.experiment_of(run), run).sentences()


def sigma_run(values: dict[float, list[float]], lost: Collection[tuple[float, int]] = ()) -> Any:
    """OOD accuracies by sigma, one for each seed; the references have others, and lost members absurd ones."""
    seeds = tuple(range(len(next(iter(values.values())))))

    def accuracy(member: Member) -> float:
        if member.encoding != "learned":
            return 0.777
        return 99.0 if (member.sigma, member.seed) in lost else values[float(member.sigma or 0)][member.seed]

    experiment = LstSigma.from_scale("paper", sigmas=tuple(values), seeds=seeds, epochs=3)
    return made_up(experiment, accuracy, diverged=lambda m: (m.sigma, m.seed) in lost)


def test_lost_members_are_left_out_and_counted_among_all() -> None:
    small, large, lost = sentences(sigma_run({0.2: [0.9, 0.9], 2.0: [0.3, 0.4]}, lost={(0.2, 0), (2.0, 1)}))
    assert small.startswith(f"sigma = 0.2: train 1.000, test {STRANGE:.3f}, ood 0.900 (mean of 1 seed).")
    assert large.startswith(f"sigma = 2: train 1.000, test {STRANGE:.3f}, ood 0.300 (mean of 1 seed).")
    assert "generalizes" in small and "memorizes" in large
    assert lost.startswith("2 of 8 members diverged")  # with 2 x 2 references; no seed is left at both sigmas
    _, large, lost = sentences(sigma_run({0.2: [0.9], 2.0: [0.3]}, lost={(2.0, 0)}))
    assert large.startswith("sigma = 2: no member finished") and lost.startswith("1 of 4 members diverged")


def test_references_are_no_sigma() -> None:
    run = sigma_run({0.2: [0.9], 2.0: [0.3]})
    assert len(sentences(run)) == 3
    run.members = run.members[run.members["encoding"] != "learned"]
    (sentence,) = sentences(run)
    assert "only references" in sentence


def test_encodings_are_grouped_by_what_they_learned_the_best_first() -> None:
    texts = ("learned:sigma=0.2", "learned:sigma=1", "sinusoid:axes=2", "rotary:fraction=0.5")
    values = {("learned", 0.2): 0.9, ("learned", 1): 0.58, ("sinusoid", None): 0.96, ("rotary", None): 0.4}
    run = made_up(
        LstEncodings.from_scale("paper", encodings=texts, dropouts=(0.0,), seeds=(0, 1), epochs=3),
        lambda m: values[m.encoding, m.sigma] + (0.01 if m.seed else -0.01),
        train=lambda m: 0.9 if m.encoding == "rotary" else 1.0,
    )
    sigma = "\N{GREEK SMALL LETTER SIGMA}"
    expected = [
        ("generalize to", f"2d-fixed (0.960); learned, {sigma} 0.2 (0.900)."),
        ("in part", f"learned, {sigma} 1 (0.580)."),
        ("not fitted", "rotary, fraction 0.5 (0.400)."),
    ]
    for sentence, (kind, encodings) in zip(sentences(run)[:-1], expected, strict=True):
        assert kind in sentence and sentence.endswith(f": {encodings}")


def test_an_encoding_whose_members_all_diverged_is_named() -> None:
    fields = {"encodings": ("none", "alibi", "rotary"), "dropouts": (0.0,), "seeds": (0, 1, 2), "epochs": 3}
    run = made_up(
        LstEncodings.from_scale("paper", **fields),
        lambda m: 0.3 if m.encoding == "none" else 0.4,
        diverged=lambda m: m.encoding == "alibi" or (m.encoding == "none" and m.seed == 2),
    )
    memorize, diverged, _, lost = sentences(run)
    assert memorize.endswith(": rotary (0.400); NoPE (0.300).") and diverged.endswith("all diverged: alibi.")
    assert lost.startswith("4 of 9 members")


SIGMAS = (0.2, 2.0)


def small(name: str, **swept: Any) -> Any:
    """Return an experiment of 8 epochs with two sigmas and two seeds."""
    return experiments.EXPERIMENTS[name].from_scale("paper", sigmas=SIGMAS, seeds=(0, 1), epochs=8, **swept)


def heads(changes: dict[tuple[int, float], float], diverged: Any = lambda m: False, epoch: int = 6) -> Any:
    """A run of 8 epochs in which settings (heads, sigma) change by so much after this epoch, seeds by more and less."""

    def change(m: Member) -> float:
        return changes.get((m.heads, m.sigma or 0), 0.0) + (0.3 if m.seed else -0.3)

    experiment = small("lst-heads", head_counts=(1, 2, 4))
    return made_up(experiment, lambda m: 0.5, early=lambda m: 0.5 - change(m), epoch=epoch, diverged=diverged)


def test_settings_that_change_by_more_than_the_threshold_have_not_settled() -> None:
    run = heads({(1, 0.2): 0.02, (2, 0.2): 0.021, (4, 2.0): -0.05})
    unsettled = settling(run, experiments.experiment_of(run).lines(run))["unsettled"]
    assert [(setting["name"], setting["sigma"]) for setting in unsettled] == [("4 heads", 2.0), ("2 heads", 0.2)]
    assert [setting["value"] for setting in unsettled] == pytest.approx([-0.05, 0.021])
    assert sentences(run)[-1].startswith("Not settled: 2 of 6 settings")


def test_models_without_a_sigma_may_not_have_settled_either() -> None:
    early = lambda m: 0.5 - 0.1 * (m.encoding == "sinusoid" and m.weight_decay > 0)  # noqa: E731
    run = made_up(small("lst-decay", decays=(1.0,)), lambda m: 0.5, early=early, epoch=6)
    assert sentences(run)[-1].startswith("Not settled: 1 of 10 settings")  # 4 kinds of decay at 2 sigmas, 2 of 2d-fixed
    assert sentences(run)[-1].endswith(": 2d-fixed, weight decay 1 (+0.10).")


def test_a_change_before_the_last_quarter_is_none() -> None:
    """The last evaluation that is no later than its beginning counts."""
    run = heads({(1, 0.2): 0.4}, epoch=7)  # within it; before it only that of the start is left
    assert reading.late_change(run).tolist() == pytest.approx([0.5 - 0.123] * 12)
    run = heads({(1, 0.2): 0.4}, epoch=5)
    assert reading.late_change(run).iloc[:2].tolist() == pytest.approx([0.1, 0.7])


def test_members_that_diverged_are_no_change() -> None:
    run = heads(dict.fromkeys(itertools.product((1, 2, 4), SIGMAS), 9.0), diverged=lambda m: m.heads == 4)
    assert sentences(run)[-2].startswith("Not settled: 4 of 4 settings")
    assert sentences(run)[-1].startswith("4 of 12 members diverged")


@pytest.mark.parametrize(("epochs", "first", "last"), [(1, 1, 1), (2, 1, 2), (6, 2, 4), (40, 10, 30), (200, 50, 150)])
def test_the_quarters_are_evaluated(epochs: int, first: int, last: int) -> None:
    assert reading.first_quarter(epochs) == first
    task: Any = SimpleNamespace(splits={"train": range(54)})  # four batches of 16
    for evaluations in (1, 4):
        steps = smallest("lst-heads", epochs=epochs, evaluations=evaluations).evaluate_at(task)
        assert {4 * first, 4 * last, 4 * epochs} <= set(steps)
        assert steps == sorted(set(steps)) and steps[0] > 0 and steps[-1] == 4 * epochs


def test_early_accuracy_is_that_after_the_first_quarter() -> None:
    assert reading.early_accuracy(heads({(1, 0.2): 0.1}, epoch=2)).iloc[:3].tolist() == pytest.approx([0.7, 0.1, 0.8])
    with pytest.raises(NotInRun, match=r"^the run has no ood accuracy at step 4$"):
        reading.early_accuracy(heads({}, epoch=3))


def test_sigmas_that_a_run_does_not_go_through_are_left_out_unless_it_goes_through_none() -> None:
    run = heads({})
    assert reading.swept_sigmas(run, (0.1, 0.2, 0.5)) == [0.2]
    assert reading.swept_sigmas(run, (0.1, 0.5)) == [0.1, 0.5]  # and is then missing
    with pytest.raises(NotInRun, match=r"^the run has no finished members with sigma 0\.1$"):
        reading.mean_over_sigmas(run, reading.early_accuracy(heads({}, epoch=2)), (0.1, 0.5))


def test_what_a_small_sigma_is_worth_is_a_difference_within_a_seed() -> None:
    run = heads({}, diverged=lambda m: m.heads == 2 and m.sigma == 2.0 and m.seed == 1)
    lines = experiments.experiment_of(run).lines(run)
    final = lines.assign(value=lines["seed"] + lines["heads"] * (lines["sigma"] == 0.2))
    gains = sigma_effects(final)
    assert list(zip(gains["line"], gains["seed"], gains["value"], strict=True)) == [
        *(("1 head", 0, 1.0), ("1 head", 1, 1.0), ("2 heads", 0, 2.0), ("4 heads", 0, 4.0), ("4 heads", 1, 4.0))
    ]
    assert set(gains["large"]) == {2.0}
    assert sigma_effects(final[final["sigma"] == 0.2]).empty and list(sigma_effects(final.iloc[:0])) == list(gains)


def test_levels_of_2d_fixed_are_means_of_their_panel() -> None:
    experiment = small("lst-decay", decays=(0.1, 1.0))
    run = made_up(
        experiment,
        lambda m: 9.0 if m.encoding == "learned" else 0.4 + m.weight_decay / 10 + 0.02 * m.seed,
        diverged=lambda m: m.encoding == "sinusoid" and m.weight_decay == 1.0 and m.seed == 1,
    )
    by_panel = reference_accuracies(run, experiment.lines_of_role(run, "reference"))
    none, same = "2d-fixed, no decay", "2d-fixed, with the same decay"
    means = {panel: {name: level.mean for name, level in levels.items()} for panel, levels in by_panel.items()}
    assert means["decay 0.1"] == pytest.approx({none: 0.41, same: 0.42})
    assert means["decay 1"] == pytest.approx({none: 0.41, same: 0.5})
    assert by_panel["decay 1"][none] == pytest.approx(student([0.4, 0.42]))
    assert math.isnan(by_panel["decay 1"][same].low)  # one seed


def test_members_in_several_panels_are_kept_once() -> None:
    experiment = small("lst-decay", decays=(0.1, 1.0))
    lines = experiment.lines(made_up(experiment, lambda m: 0.5))
    single = reading.drop_repeated_lines(lines)
    assert lines["member"].duplicated().any() and not single["member"].duplicated().any()
    assert set(single["member"]) == set(lines["member"])
