"""What the paper says about Latin squares, and what we doubt about it, as claims on lst-sigma.

Margins of direction follow one rule each: half of the published difference where one is published; for two that are
said to be about equal, five points of accuracy (two where the authors' logs say so); and none, that is zero, for
"better at all" and for "predicts at all". The accuracies 0.93 and 0.5 of single settings were expected beforehand.

Margins were declared again before the new runs with the authors' loss. Correlations over the sigmas, two of them
published as nearly perfect, had a margin of 0.9 until then. It is now zero, the sign, since the published number has a
verdict of its own. All earlier runs of lst-sigma were known by then. Claims with the remark LATER got their margins
after the first run of lst-sigma, whose verdict on them is no test.

The tolerance of a published number is what its rounding allows: half a unit of its last digit, or twice that for the
difference of two. Members of a seed share their initial weights and data, so every interval is over seeds. Claims on
lst-sigma are about PEs that are learned, without dropout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from placecode.analysis.stats import Interval
from placecode.experiments.claims import OURS, PAPER, Claim, NotInRun
from placecode.experiments.latin.effects import (
    ATTENTION,
    AUTHORS_MEANS,
    LARGE,
    SMALL,
    after_early,
    beyond_start,
    gained_by_training,
    largest_gap,
    later_at_large,
    learned_arrangement,
    lowest_on_train,
    mean_at,
    mean_gap,
    over_sigmas,
    small_against_large,
    stalled,
    under_noise,
    within_sigma,
)
from placecode.runs.read import Run

LATER = "margin set after the first run"
LOGS = "from the authors' logs"
STALL = 0.01
"""Training accuracy that a model must lack for its training to have stalled."""


# -------------------------------------------------------------------------------------------------- lst-sigma


def _predicts(
    name: str, words: str, analysis: str, target: str, *, sign: int, label: str, published: float | None = None
) -> list[Claim]:
    """Three questions to a measure: over the sigmas, at a fixed sigma, and beyond what it was before training."""
    ask: Sequence[tuple[str, str, Callable[..., Interval], str, float | None]] = (
        ("over-sigmas", "over the sigmas", over_sigmas, label, published),
        ("at-fixed-sigma", "at a fixed sigma", within_sigma, OURS, None),
        ("beyond-start", "at a fixed sigma beyond its own value before training", beyond_start, OURS, None),
    )
    return [
        Claim(
            f"{name}-{id}",
            f"{words} predicts accuracy {question}.",
            whose,
            0.0,
            partial(measure, analysis, target),
            "above" if sign > 0 else "below",
            published=value,
            tolerance=None if value is None else 0.005,
        )
        for id, question, measure, whose, value in ask
    ]


def of_learned(measure: Callable[[Run], Interval], run: Run) -> Interval:
    """The measure, of a run that it is about."""
    fields = run.config["fields"]
    if fields["encoding"] != "learned" or not fields["learn"] or fields["dropout"]:
        raise NotInRun("the PEs of the run are not learned, or not without dropout")
    return measure(run)


TRAINING: tuple[Claim, ...] = (
    Claim(
        "large-sigma-trains-faster",
        "Large sigma (2.0) reaches 99% training accuracy earlier than 0.2, in epochs; models that never reach it count "
        "as the last epoch.",
        PAPER,
        0.0,
        later_at_large,
        "below",
    ),
    Claim(
        "tiny-sigma-stalls",
        "Training stalls at a very small sigma (the smallest of the run, 0.05 or less): final training accuracy is "
        "lower than at 0.2 by more than 0.01.",
        PAPER,
        -STALL,
        stalled,
        "below",
    ),
)
"""How fast models train: for every run with a sweep of learned PEs."""

_SIGMA: tuple[Claim, ...] = (
    Claim(
        "small-sigma-generalizes",
        "Held-out accuracy is higher at sigma 0.2 than at 2.0 (published: 0.956 and 0.38).",
        PAPER,
        0.288,
        small_against_large,
        published=0.579,
        tolerance=0.001,
    ),
    Claim(
        "accuracy-at-0.2",
        "Sigma 0.2 reaches 0.93 on held-out puzzles.",
        PAPER,
        0.93,
        partial(mean_at, SMALL),
        published=AUTHORS_MEANS[SMALL],
        tolerance=0.0005,
    ),
    Claim(
        "accuracy-at-2.0",
        "Sigma 2.0 stays below 0.5.",
        PAPER,
        0.5,
        partial(mean_at, LARGE),
        "below",
        published=AUTHORS_MEANS[LARGE],
        tolerance=0.0005,
    ),
    Claim(
        "sigma-curve",
        "Mean absolute difference between our mean accuracies and the authors' at the 20 sigmas is below 0.025.",
        PAPER,
        0.025,
        mean_gap,
        "below",
        published=0.0,
        tolerance=0.025,
        remark=LOGS,
    ),
    Claim(
        "sigma-curve-largest-gap",
        "The largest of these differences is below 3 standard errors, the authors' spread taken equal to ours.",
        PAPER,
        3.0,
        largest_gap,
        "below",
        remark=LOGS,
    ),
    Claim(
        "all-fit-training",
        "Every sigma reaches 100% (0.99) on its training puzzles.",
        PAPER,
        0.99,
        lowest_on_train,
        published=1.0,
        tolerance=0.005,
    ),
    *TRAINING,
    *_predicts(
        "procrustes-raw",
        "The raw Procrustes distance to 2d-fixed",
        "procrustes_raw",
        "2d-fixed",
        sign=-1,
        label=PAPER,
        published=-0.98,
    ),
    Claim(
        "procrustes-raw-learned",
        "The raw distance predicts accuracy over the sigmas better after training than before it.",
        OURS,
        0.0,
        partial(gained_by_training, "procrustes_raw", "2d-fixed"),
    ),
    Claim(
        "procrustes-raw-known-before",
        "The raw distance predicts accuracy over the sigmas as well before training as after it.",
        OURS,
        0.05,
        partial(gained_by_training, "procrustes_raw", "2d-fixed"),
        "within",
        remark=LATER,
    ),
    *_predicts(
        "procrustes",
        "The Procrustes distance free of place and scale",
        "procrustes",
        "2d-fixed",
        sign=-1,
        label=OURS,
    ),
    Claim(
        "pe-learns-rows-and-columns",
        "Training brings the PE nearer to rows and columns at sigma 0.2 (rank correlation of similarities).",
        OURS,
        0.0,
        partial(learned_arrangement, SMALL, None),
        remark=LATER,
    ),
    Claim(
        "small-sigma-learns-more-of-it",
        "It does so more at sigma 0.2 than at 2.0.",
        OURS,
        0.0,
        partial(learned_arrangement, SMALL, LARGE),
        remark=LATER,
    ),
    *_predicts(
        "attention",
        "Cosine similarity of attention to that of 2d-fixed models",
        "attention_cosine",
        ATTENTION,
        sign=1,
        label=PAPER,
        published=0.96,
    ),
    Claim(
        "attention-learned",
        "Attention agreement predicts accuracy over the sigmas better after training than before it.",
        OURS,
        0.0,
        partial(gained_by_training, "attention_cosine", ATTENTION),
    ),
    Claim(
        "attention-known-before",
        "Attention agreement predicts accuracy over the sigmas as well before training as after it.",
        OURS,
        0.05,
        partial(gained_by_training, "attention_cosine", ATTENTION),
        "within",
        remark=LATER,
    ),
    Claim(
        "withstands-noise",
        "Under noise on the token embeddings, sigma 0.2 keeps more accuracy than 2.0 on training puzzles, which both "
        "answer without noise.",
        OURS,
        0.0,
        partial(under_noise, "train"),
    ),
    Claim(
        "withstands-noise-held-out",
        "Under noise on the token embeddings, sigma 0.2 has a higher accuracy than 2.0 on held-out puzzles.",
        PAPER,
        0.0,
        partial(under_noise, "ood"),
    ),
    *(
        Claim(
            f"epoch-200-at-{sigma:g}",
            f"Accuracy at epoch 200 is that at the end, at sigma {sigma:g}.",
            PAPER,
            0.02,
            partial(after_early, sigma),
            "within",
            remark=LOGS,
        )
        for sigma in (0.2, 1.0, 2.0)
    ),
)

SIGMA = tuple(replace(claim, measure=partial(of_learned, claim.measure)) for claim in _SIGMA)
