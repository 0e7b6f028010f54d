"""Sentences on runs of lst-sigma and lst-encodings: which members they are about, and their numbers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from helpers.made_up import STRANGE, made_up

from placecode.experiments.latin.squares import LstEncodings, LstSigma
from placecode.models.member import Member
from placecode.reports.pages.latin_words import of_encodings, of_sigmas


def sigma_run(values: dict[float, list[float]], lost: Collection[tuple[float, int]] = ()) -> Any:
    """OOD accuracies by sigma, one for each seed; the references have others, and lost members absurd ones."""
    seeds = tuple(range(len(next(iter(values.values())))))

    def accuracy(member: Member) -> float:
        if member.encoding != "learned":
            return 0.777
        return 99.0 if (member.sigma, member.seed) in lost else values[float(member.sigma or 0)][member.seed]

    study = LstSigma.at("paper", sigmas=tuple(values), seeds=seeds, epochs=3)
    return made_up(study, accuracy, diverged=lambda m: (m.sigma, m.seed) in lost)


def test_lost_members_are_left_out_and_counted_among_all() -> None:
    small, large, lost = of_sigmas(sigma_run({0.2: [0.9, 0.9], 2.0: [0.3, 0.4]}, lost={(0.2, 0), (2.0, 1)}))
    assert small.startswith(f"sigma = 0.2: train 1.000, test {STRANGE:.3f}, ood 0.900 (mean of 1 seed).")
    assert large.startswith(f"sigma = 2: train 1.000, test {STRANGE:.3f}, ood 0.300 (mean of 1 seed).")
    assert "generalizes" in small and "memorizes" in large
    assert lost.startswith("2 of 8 members diverged")  # with 2 x 2 references; no seed is left at both sigmas
    _, large, lost = of_sigmas(sigma_run({0.2: [0.9], 2.0: [0.3]}, lost={(2.0, 0)}))
    assert large.startswith("sigma = 2: no member finished") and lost.startswith("1 of 4 members diverged")


def test_references_are_no_sigma() -> None:
    run = sigma_run({0.2: [0.9], 2.0: [0.3]})
    assert len(of_sigmas(run)) == 3
    run.members = run.members[run.members["encoding"] != "learned"]
    (sentence,) = of_sigmas(run)
    assert "only references" in sentence


def test_encodings_are_grouped_by_what_they_learned_the_best_first() -> None:
    texts = ("learned:sigma=0.2", "learned:sigma=1", "sinusoid:axes=2", "rotary:fraction=0.5")
    values = {("learned", 0.2): 0.9, ("learned", 1): 0.58, ("sinusoid", None): 0.96, ("rotary", None): 0.4}
    run = made_up(
        LstEncodings.at("paper", encodings=texts, dropouts=(0.0,), seeds=(0, 1), epochs=3),
        lambda m: values[m.encoding, m.sigma] + (0.01 if m.seed else -0.01),
        train=lambda m: 0.9 if m.encoding == "rotary" else 1.0,
    )
    sigma = "\N{GREEK SMALL LETTER SIGMA}"
    expected = [
        ("generalize to", f"2d-fixed (0.960); learned, {sigma} 0.2 (0.900)."),
        ("in part", f"learned, {sigma} 1 (0.580)."),
        ("not fitted", "rotary, fraction 0.5 (0.400)."),
    ]
    for sentence, (kind, encodings) in zip(of_encodings(run)[:-1], expected, strict=True):
        assert kind in sentence and sentence.endswith(f": {encodings}")


def test_an_encoding_whose_members_all_diverged_is_named() -> None:
    run = made_up(
        LstEncodings.at("paper", encodings=("none", "alibi", "rotary"), dropouts=(0.0,), seeds=(0, 1, 2), epochs=3),
        lambda m: 0.3 if m.encoding == "none" else 0.4,
        diverged=lambda m: m.encoding == "alibi" or (m.encoding == "none" and m.seed == 2),
    )
    memorize, diverged, _, lost = of_encodings(run)
    assert memorize.endswith(": rotary (0.400); NoPE (0.300).") and diverged.endswith("all diverged: alibi.")
    assert lost.startswith("4 of 9 members")
