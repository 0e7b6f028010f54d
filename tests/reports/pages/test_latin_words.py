"""What the studies on Latin squares say of a run in sentences: true whatever it shows, and of the members they name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from helpers.made_up import STRANGE, made_up

from placecode.experiments.latin.squares import LstEncodings, LstSigma
from placecode.models.member import Member
from placecode.reports.pages.latin_words import of_encodings, of_sigmas

DOES = "It has fitted its training puzzles and generalizes to puzzles unlike them."
DOES_NOT = "It has fitted its training puzzles and fails on puzzles unlike them: it memorizes."
DIVERGED = "no member finished; all diverged."
TEST = f"test {STRANGE:.3f}"


def sigma_run(values: dict[float, list[float]], lost: Collection[tuple[float, int]] = ()) -> Any:
    """Held-out accuracies by sigma, one for each seed; the references have others, and lost members absurd ones."""
    seeds = tuple(range(len(next(iter(values.values())))))

    def accuracy(member: Member) -> float:
        if member.encoding != "learned":
            return 0.777
        return 99.0 if (member.sigma, member.seed) in lost else values[float(member.sigma or 0)][member.seed]

    study = LstSigma.at("paper", sigmas=tuple(values), seeds=seeds, epochs=3)
    return made_up(study, accuracy, diverged=lambda m: (m.sigma, m.seed) in lost)


# lst-sigma


def test_lost_members_are_left_out_and_counted_among_all() -> None:
    lines = of_sigmas(sigma_run({0.2: [0.9, 0.9], 2.0: [0.3, 0.4]}, lost={(0.2, 0), (2.0, 1)}))
    assert lines == [
        f"sigma = 0.2: train 1.000, {TEST}, ood 0.900 (mean of 1 seed). {DOES}",
        f"sigma = 2: train 1.000, {TEST}, ood 0.300 (mean of 1 seed). {DOES_NOT}",
        "2 of 8 members diverged and are left out of the means.",  # with 2 x 2 references; no seed is left at both ends
    ]
    lines = of_sigmas(sigma_run({0.2: [0.9], 2.0: [0.3]}, lost={(2.0, 0)}))
    assert lines[1:] == [f"sigma = 2: {DIVERGED}", "1 of 4 members diverged and are left out of the means."]


def test_references_are_no_sigma() -> None:
    run = sigma_run({0.2: [0.9], 2.0: [0.3]})
    assert len(of_sigmas(run)) == 3
    run.members = run.members[run.members["encoding"] != "learned"]
    assert of_sigmas(run) == ["The run holds references alone, and no member of the sweep over sigma."]


# lst-encodings


def test_encodings_that_did_alike_are_told_together_the_best_first() -> None:
    texts = ("learned:sigma=0.2", "learned:sigma=1", "sinusoid:axes=2", "rotary:fraction=0.5")
    values = {("learned", 0.2): 0.9, ("learned", 1): 0.58, ("sinusoid", None): 0.96, ("rotary", None): 0.4}
    run = made_up(
        LstEncodings.at("paper", encodings=texts, seeds=(0, 1), epochs=3),
        lambda m: values[m.encoding, m.sigma] - m.dropout + (0.01 if m.seed else -0.01),
        train=lambda m: 0.9 if m.encoding == "rotary" else 1.0,
    )
    sigma = "\N{GREEK SMALL LETTER SIGMA}"
    not_yet = "have not fitted their training puzzles yet, so can be said neither to generalize nor to memorize"
    assert of_encodings(run) == [
        "Without dropout, these generalize to puzzles unlike their training puzzles: 2d-fixed (0.960); "
        f"learned, {sigma} 0.2 (0.900).",
        f"Without dropout, these generalize in part: learned, {sigma} 1 (0.580).",
        f"Without dropout, these {not_yet}: rotary, fraction 0.5 (0.400).",
        "With dropout 0.1, these generalize to puzzles unlike their training puzzles: 2d-fixed (0.860).",
        f"With dropout 0.1, these generalize in part: learned, {sigma} 0.2 (0.800).",
        f"With dropout 0.1, these memorize their training puzzles and fail on others: learned, {sigma} 1 (0.480).",
        f"With dropout 0.1, these {not_yet}: rotary, fraction 0.5 (0.300).",
        "In brackets: OOD accuracy, mean of 2 seeds.",
    ]


def test_an_encoding_of_which_nothing_is_left_is_still_named() -> None:
    run = made_up(
        LstEncodings.at("paper", encodings=("none", "alibi", "rotary"), dropouts=(0.0,), seeds=(0, 1, 2), epochs=3),
        lambda m: 0.3 if m.encoding == "none" else 0.4,
        diverged=lambda m: m.encoding == "alibi" or (m.encoding == "none" and m.seed == 2),
    )
    assert of_encodings(run) == [
        "Without dropout, these memorize their training puzzles and fail on others: rotary (0.400); none (0.300).",
        "Without dropout, these have no member that finished; all diverged: alibi.",
        "In brackets: OOD accuracy, mean of 2 to 3 seeds.",
        "4 of 9 members diverged and are left out of the means.",
    ]
    run.members["state"] = "diverged"
    assert of_encodings(run) == [
        "Without dropout, these have no member that finished; all diverged: alibi; none; rotary.",
        "9 of 9 members diverged and are left out of the means.",
    ]
