"""Claims on the experiment lst-encodings: what the paper says about other encodings, and our questions about it.

Margins and tolerances follow the rules of `latin.claims`. "The authors" are those of the paper (Ito et al.).
"""

from __future__ import annotations

from functools import partial

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.claims import Claim, our_claim, paper_claim
from placecode.experiments.latin.effects import difference
from placecode.experiments.reading import encoding_accuracy
from placecode.experiments.specs import ENCODING_NAMES
from placecode.runs.read import Run

LEARNED, FIXED_2D = "learned:sigma=0.2", "sinusoid:axes=2"
"""The learned PE at sigma 0.2 and 2d-fixed, as texts for `parse_encoding`."""
COMPARED_ENCODINGS = {
    "1d-fixed": ("sinusoid", "sinusoid", 0.1),
    "relative": ("relative", "relative:causal=1:sigma=1", 0.0),
    "rotary": ("rotary", "rotary:fraction=0.5", 0.0),
    "random": ("random:sigma=1", "random:sigma=1", 0.1),
    "none": ("none", "none", 0.0),
    "causal-none": ("causal-none", "causal-none:temperature=0.01", 0.0),
}
"""Encodings that the learned PE is compared with, by name. Each has three values: the encoding in its usual definition
and as in the authors' code (texts for `parse_encoding`), and the dropout it has in their code."""
PUBLISHED_LEADS = {"relative": 0.036}
"""Published accuracy of the learned PE at sigma 0.2 minus that of another encoding (0.956 - 0.920 for relative)."""


def lead_over(text: str, dropout: float, learned_dropout: float, run: Run) -> Interval:
    """Return the OOD accuracy of the learned PE at sigma 0.2, with `learned_dropout`, minus that of another encoding
    with `dropout`. `text` names the other encoding, such as "sinusoid:axes=2"."""
    return difference(encoding_accuracy(run, LEARNED, learned_dropout), encoding_accuracy(run, text, dropout))


def dropout_effect(text: str, run: Run) -> Interval:
    """Return the OOD accuracy of an encoding, named as in `lead_over`, with dropout 0.1 minus that without dropout."""
    return difference(encoding_accuracy(run, text, 0.1), encoding_accuracy(run, text, 0.0))


def learned_training_accuracy(run: Run) -> Interval:
    """Return the training accuracy of the learned PE at sigma 0.2, without dropout."""
    return stats.interval(encoding_accuracy(run, LEARNED, 0.0, "train").to_numpy())


def _beats(name: str, usual: str, published: str, dropout: float) -> list[Claim]:
    """Return two claims that the learned PE beats the encoding `name`: in its usual definition without dropout, and as
    in the authors' code (`published`) with `dropout`."""
    words = ENCODING_NAMES.get(name, name)
    return [
        paper_claim(
            f"beats-{name}",
            f"The learned PE at sigma 0.2 beats {words}, both without dropout.",
            partial(lead_over, usual, 0.0, 0.0),
        ),
        paper_claim(
            f"beats-{name}-as-published",
            f"It beats {words} as in the authors' code ({published}, dropout {dropout:g}).",
            partial(lead_over, published, dropout, 0.0),
            published=PUBLISHED_LEADS.get(name),
            tolerance=0.001 if name in PUBLISHED_LEADS else None,
        ),
    ]


ENCODING_CLAIMS: tuple[Claim, ...] = (
    paper_claim(
        "near-2d-fixed-as-published",
        "The learned PE at sigma 0.2 comes within 0.05 of 2d-fixed, which has the authors' dropout (published: 0.956 "
        "and 0.977).",
        partial(lead_over, FIXED_2D, 0.1, 0.0),
        -0.05,
        published=-0.021,
        tolerance=0.001,
    ),
    our_claim(
        "near-2d-fixed",
        "It comes within 0.05 of 2d-fixed, both without dropout.",
        partial(lead_over, FIXED_2D, 0.0, 0.0),
        -0.05,
    ),
    our_claim(
        "near-2d-fixed-both-dropout",
        "It comes within 0.05 of 2d-fixed, both with the dropout.",
        partial(lead_over, FIXED_2D, 0.1, 0.1),
        -0.05,
    ),
    paper_claim(
        "2d-fixed-beats-learned",
        "2d-fixed is more accurate than the learned PE, both without dropout.",
        lambda run: difference(encoding_accuracy(run, FIXED_2D, 0.0), encoding_accuracy(run, LEARNED, 0.0)),
    ),
    our_claim(
        "dropout-lifts-2d-fixed",
        "The authors' dropout makes 2d-fixed more accurate on held-out puzzles.",
        partial(dropout_effect, FIXED_2D),
    ),
    our_claim(
        "dropout-lifts-learned",
        "The same dropout makes the learned PE at sigma 0.2 more accurate.",
        partial(dropout_effect, LEARNED),
    ),
    paper_claim(
        "all-fit-training",
        "The learned PE reaches 100% on its training puzzles.",
        learned_training_accuracy,
        0.99,
        published=1.0,
        tolerance=0.005,
    ),
    *(claim for name, rival in COMPARED_ENCODINGS.items() for claim in _beats(name, *rival)),
)
"""All claims on the experiment lst-encodings."""
