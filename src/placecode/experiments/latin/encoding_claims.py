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
EncodingAndDropout = tuple[str, float]
"""An encoding as a text for `parse_encoding`, and a dropout. They select members of lst-encodings."""
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


def encoding_difference(a: EncodingAndDropout, b: EncodingAndDropout, run: Run) -> Interval:
    """Return the mean OOD accuracy of members with the encoding and dropout `a` minus that of members with `b`, with
    its interval over seeds."""
    return difference(encoding_accuracy(run, *a), encoding_accuracy(run, *b))


def _beats(name: str, usual: str, published: str, dropout: float) -> list[Claim]:
    """Return two claims that the learned PE beats the encoding `name`: in its usual definition without dropout, and as
    in the authors' code (`published`) with `dropout`."""
    words = ENCODING_NAMES.get(name, name)
    return [
        paper_claim(
            f"beats-{name}",
            f"The learned PE at sigma 0.2 beats {words}, both without dropout.",
            partial(encoding_difference, (LEARNED, 0.0), (usual, 0.0)),
        ),
        paper_claim(
            f"beats-{name}-as-published",
            f"It beats {words} as in the authors' code ({published}, dropout {dropout:g}).",
            partial(encoding_difference, (LEARNED, 0.0), (published, dropout)),
            published=PUBLISHED_LEADS.get(name),
            tolerance=0.001 if name in PUBLISHED_LEADS else None,
        ),
    ]


ENCODING_CLAIMS: tuple[Claim, ...] = (
    paper_claim(
        "near-2d-fixed-as-published",
        "The learned PE at sigma 0.2 comes within 0.05 of 2d-fixed, which has the authors' dropout (published: 0.956 "
        "and 0.977).",
        partial(encoding_difference, (LEARNED, 0.0), (FIXED_2D, 0.1)),
        -0.05,
        published=-0.021,
        tolerance=0.001,
    ),
    our_claim(
        "near-2d-fixed",
        "It comes within 0.05 of 2d-fixed, both without dropout.",
        partial(encoding_difference, (LEARNED, 0.0), (FIXED_2D, 0.0)),
        -0.05,
    ),
    our_claim(
        "near-2d-fixed-both-dropout",
        "It comes within 0.05 of 2d-fixed, both with the dropout.",
        partial(encoding_difference, (LEARNED, 0.1), (FIXED_2D, 0.1)),
        -0.05,
    ),
    paper_claim(
        "2d-fixed-beats-learned",
        "2d-fixed is more accurate than the learned PE, both without dropout.",
        partial(encoding_difference, (FIXED_2D, 0.0), (LEARNED, 0.0)),
    ),
    our_claim(
        "dropout-lifts-2d-fixed",
        "The authors' dropout makes 2d-fixed more accurate on held-out puzzles.",
        partial(encoding_difference, (FIXED_2D, 0.1), (FIXED_2D, 0.0)),
    ),
    our_claim(
        "dropout-lifts-learned",
        "The same dropout makes the learned PE at sigma 0.2 more accurate.",
        partial(encoding_difference, (LEARNED, 0.1), (LEARNED, 0.0)),
    ),
    paper_claim(
        "all-fit-training",
        "The learned PE reaches 100% on its training puzzles.",
        lambda run: stats.interval(encoding_accuracy(run, LEARNED, 0.0, "train")),
        0.99,
        published=1.0,
        tolerance=0.005,
    ),
    *(claim for name, rival in COMPARED_ENCODINGS.items() for claim in _beats(name, *rival)),
)
"""All claims on the experiment lst-encodings."""
