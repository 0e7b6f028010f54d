"""What the paper says about encodings side by side, and what we doubt about it, as claims on lst-encodings.

Margins and tolerances are by the rules of `latin_claims`.
"""

from __future__ import annotations

from functools import partial

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.claims import OURS, PAPER, Claim
from placecode.experiments.latin.effects import difference
from placecode.experiments.reading import of_encoding
from placecode.runs.read import Run

LEARNED, TRUE = "learned:sigma=0.2", "sinusoid:axes=2"
RIVALS = {
    "1d-fixed": ("sinusoid", "sinusoid", 0.1),
    "relative": ("relative", "relative:causal=1:sigma=1", 0.0),
    "rotary": ("rotary", "rotary:fraction=0.5", 0.0),
    "random": ("random:sigma=1", "random:sigma=1", 0.1),
    "none": ("none", "none", 0.0),
    "causal-none": ("causal-none", "causal-none:temperature=0.01", 0.0),
}
"""By name: the encoding as it should be, and as in the authors' code, with the dropout it has there."""
PUBLISHED_LEADS = {"relative": 0.036}
"""By how much the learned PE at sigma 0.2 is more accurate than others in the paper: 0.956 and 0.920."""


def against(text: str, dropout: float, own: float, run: Run) -> Interval:
    """Accuracy of the learned PE (with dropout `own`) minus that of another encoding."""
    return difference(of_encoding(run, LEARNED, own), of_encoding(run, text, dropout))


def worth_of_dropout(text: str, run: Run) -> Interval:
    return difference(of_encoding(run, text, 0.1), of_encoding(run, text, 0.0))


def on_train(run: Run) -> Interval:
    return stats.interval(of_encoding(run, LEARNED, 0.0, "train").to_numpy())


ENCODINGS: tuple[Claim, ...] = (
    Claim(
        "near-2d-fixed-as-published",
        "The learned PE at sigma 0.2 comes within 0.05 of 2d-fixed, which has the authors' dropout (published: 0.956 "
        "and 0.977).",
        PAPER,
        -0.05,
        partial(against, TRUE, 0.1, 0.0),
        published=-0.021,
        tolerance=0.001,
    ),
    Claim(
        "near-2d-fixed",
        "It comes within 0.05 of 2d-fixed, both without dropout.",
        OURS,
        -0.05,
        partial(against, TRUE, 0.0, 0.0),
    ),
    Claim(
        "near-2d-fixed-both-dropout",
        "It comes within 0.05 of 2d-fixed, both with the dropout.",
        OURS,
        -0.05,
        partial(against, TRUE, 0.1, 0.1),
    ),
    Claim(
        "2d-fixed-beats-learned",
        "2d-fixed is more accurate than the learned PE, both without dropout.",
        PAPER,
        0.0,
        lambda run: difference(of_encoding(run, TRUE, 0.0), of_encoding(run, LEARNED, 0.0)),
    ),
    Claim(
        "dropout-lifts-2d-fixed",
        "The authors' dropout makes 2d-fixed more accurate on held-out puzzles.",
        OURS,
        0.0,
        partial(worth_of_dropout, TRUE),
    ),
    Claim(
        "dropout-lifts-learned",
        "The same dropout makes the learned PE at sigma 0.2 more accurate.",
        OURS,
        0.0,
        partial(worth_of_dropout, LEARNED),
    ),
    Claim(
        "all-fit-training",
        "The learned PE reaches 100% on its training puzzles.",
        PAPER,
        0.99,
        on_train,
        published=1.0,
        tolerance=0.005,
    ),
    *(
        claim
        for name, (clean, published, dropout) in RIVALS.items()
        for claim in (
            Claim(
                f"beats-{name}",
                f"The learned PE at sigma 0.2 beats {name}, both without dropout.",
                PAPER,
                0.0,
                partial(against, clean, 0.0, 0.0),
            ),
            Claim(
                f"beats-{name}-as-published",
                f"It beats {name} as in the authors' code ({published}, dropout {dropout:g}).",
                PAPER,
                0.0,
                partial(against, published, dropout, 0.0),
                published=PUBLISHED_LEADS.get(name),
                tolerance=0.001 if name in PUBLISHED_LEADS else None,
            ),
        )
    ),
)
