"""What the paper says about Latin squares, and what we doubt about it, as claims on lst-sigma and lst-encodings.

Margins follow one rule each, set before the runs: half of the published difference where one is published; for two that
are said to be about equal, five points of accuracy (two where the authors' logs say so); 0.9 for a correlation over the
sigmas that is published as nearly perfect; and none, that is zero, for "better at all" and for "predicts at all". The
accuracies 0.93 and 0.5 of single settings were expected beforehand. When the margins were set, the accuracies of an
earlier run of the same members (results/lst-sigma-200) were known; those of claims marked as LATER were set after the
first run of lst-sigma, whose verdict on them is no test, and before all others. Members of a seed share their initial
weights and data, so every interval is over seeds. Claims on lst-sigma are about PEs that are learned, without dropout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.claims import Claim, NotInRun
from placecode.runs import Run
from placecode.studies.reading import accuracy, at_sigma, by_sigma, measured, of_encoding, paired

PAPER = "arXiv 2406.08272"
OURS = "this project's doubt"
LATER = f"{OURS}; margin set after the first run"
SMALL, LARGE = 0.2, 2.0
"""The paper's best and its largest sigma: fixed here, not chosen by what a run shows."""
EARLY = 200
"""The epoch by which, the authors' logs say, accuracy is what it is at the end; always evaluated."""
ATTENTION = "2d-fixed"
"""The reference of attention agreement: the 2d-fixed members of the run without dropout."""

Table = np.ndarray


def difference(a: pd.Series, b: pd.Series) -> Interval:
    """The mean difference of two settings, paired by seed, with Student's t interval."""
    pairs = (a - b).dropna()
    if pairs.empty:
        raise NotInRun("the run has no seed that finished at both settings")
    return stats.interval(pairs.to_numpy())


# -------------------------------------------------------------------------------------------------- lst-sigma


def small_against_large(run: Run) -> Interval:
    values = accuracy(run)
    return difference(at_sigma(run, values, SMALL), at_sigma(run, values, LARGE))


def mean_at(sigma: float, run: Run) -> Interval:
    return stats.interval(at_sigma(run, accuracy(run), sigma).to_numpy())


def lowest_on_train(run: Run) -> Interval:
    """The mean training accuracy of the sigma at which it is lowest."""
    table = by_sigma(run, accuracy(run, "train"))
    lost = [sigma for sigma in run.config["fields"]["sigmas"] if sigma not in table.index]
    if lost:  # it cannot be said of every sigma
        raise NotInRun(f"the run has no finished members with sigma {lost[0]:g}")

    def lowest(values: Table) -> Table:
        """(draws, sigmas, seeds) -> (draws,): NaN where none of a sigma's finished seeds was drawn."""
        count, kept = (~np.isnan(values)).sum(axis=-1), np.nan_to_num(values).sum(axis=-1)
        means = np.divide(kept, count, out=np.full_like(kept, np.nan), where=count > 0)
        return np.asarray(means.min(axis=-1))

    return stats.bootstrap(lowest, table.to_numpy())


def _tables(run: Run, analysis: str, target: str, when: str = "end") -> tuple[Table, Table]:
    x, y = paired(run, analysis, target, when)
    if len(x) < 3:
        raise NotInRun(f"the run has {len(x)} sigmas; a correlation over them takes 3")
    return x.to_numpy(), y.to_numpy()


def over_sigmas(analysis: str, target: str, run: Run) -> Interval:
    """Rank correlation, over the sigmas, of the mean measure with the mean accuracy."""
    return stats.bootstrap(stats.over_settings, *_tables(run, analysis, target))


def gained_by_training(analysis: str, target: str, run: Run) -> Interval:
    """By how much the correlation over the sigmas is stronger after training than before it."""
    after, y = _tables(run, analysis, target)
    before, _ = _tables(run, analysis, target, "start")

    def gain(x: Table, start: Table, y: Table) -> Table:
        return np.abs(stats.over_settings(x, y)) - np.abs(stats.over_settings(start, y))

    return stats.bootstrap(gain, after, before, y)


def within_sigma(analysis: str, target: str, run: Run) -> Interval:
    """Rank correlation of measure and accuracy at a fixed sigma, pooled over the sigmas."""
    return stats.bootstrap(stats.within, *_tables(run, analysis, target))


def beyond_start(analysis: str, target: str, run: Run) -> Interval:
    """The same, once the measure's value before training is accounted for."""
    after, y = _tables(run, analysis, target)
    before, _ = _tables(run, analysis, target, "start")
    return stats.bootstrap(stats.within_given, after, y, before)


def learned_arrangement(sigma: float, against: float | None, run: Run) -> Interval:
    """By how much training raised the PE's RSA with the relation of rows and columns; less that at another sigma."""
    gain = measured(run, "rsa", "relation") - measured(run, "rsa", "relation", "start")
    own = at_sigma(run, gain, sigma)
    return stats.interval(own.to_numpy()) if against is None else difference(own, at_sigma(run, gain, against))


def under_noise(split: str, run: Run) -> Interval:
    """Accuracy under noise, the mean over all levels, at the small sigma less that at the large one."""
    levels = run.config["fields"]["noise"]
    if not levels:
        raise NotInRun("the run was not tested under noise")
    mean = sum(measured(run, "noise_accuracy", f"{split} {level:g}") for level in levels) / len(levels)
    assert isinstance(mean, pd.Series)
    return difference(at_sigma(run, mean, SMALL), at_sigma(run, mean, LARGE))


def after_early(sigma: float, run: Run) -> Interval:
    """Accuracy at the end less that at epoch 200, at one sigma."""
    epochs, last = run.config["fields"]["epochs"], int(run.metrics["step"].max())
    if epochs <= EARLY:
        raise NotInRun(f"the run ends at epoch {epochs}")
    early = accuracy(run, step=last // epochs * EARLY)
    return difference(at_sigma(run, accuracy(run), sigma), at_sigma(run, early, sigma))


def _predicts(
    name: str, words: str, analysis: str, target: str, *, sign: int, source: str, published: str = ""
) -> list[Claim]:
    """Three questions to a measure: over the sigmas, at a fixed sigma, and beyond what it was before training."""
    way = "above" if sign > 0 else "below"
    ask: Sequence[tuple[str, str, Callable[..., Interval], float, str]] = (
        (f"{name}-over-sigmas", f"{words} predicts accuracy over the sigmas{published}", over_sigmas, 0.9, source),
        (f"{name}-at-fixed-sigma", f"{words} predicts accuracy at a fixed sigma", within_sigma, 0.0, OURS),
        (
            f"{name}-beyond-start",
            f"{words} predicts accuracy at a fixed sigma beyond its own value before training",
            beyond_start,
            0.0,
            OURS,
        ),
    )
    return [
        Claim(id, f"{statement}.", source, sign * margin + 0.0, partial(measure, analysis, target), way)
        for id, statement, measure, margin, source in ask
    ]


def of_learned(measure: Callable[[Run], Interval], run: Run) -> Interval:
    """The measure, of a run that it is about."""
    fields = run.config["fields"]
    if fields["encoding"] != "learned" or not fields["learn"] or fields["dropout"]:
        raise NotInRun("the PEs of the run are not learned, or not without dropout")
    return measure(run)


_SIGMA: tuple[Claim, ...] = (
    Claim(
        "small-sigma-generalizes",
        "Held-out accuracy is higher at sigma 0.2 than at 2.0 (published: 0.956 and 0.38).",
        PAPER,
        0.288,
        small_against_large,
    ),
    Claim("accuracy-at-0.2", "Sigma 0.2 reaches 0.93 on held-out puzzles.", PAPER, 0.93, partial(mean_at, SMALL)),
    Claim("accuracy-at-2.0", "Sigma 2.0 stays below 0.5.", PAPER, 0.5, partial(mean_at, LARGE), "below"),
    Claim("all-fit-training", "Every sigma reaches 100% (0.99) on its training puzzles.", PAPER, 0.99, lowest_on_train),
    *_predicts(
        "procrustes-raw",
        "The raw Procrustes distance to 2d-fixed",
        "procrustes_raw",
        "2d-fixed",
        sign=-1,
        source=PAPER,
        published=" (published: -0.98)",
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
        LATER,
        0.05,
        partial(gained_by_training, "procrustes_raw", "2d-fixed"),
        "within",
    ),
    *_predicts(
        "procrustes",
        "The Procrustes distance free of place and scale",
        "procrustes",
        "2d-fixed",
        sign=-1,
        source=OURS,
    ),
    Claim(
        "pe-learns-rows-and-columns",
        "Training brings the PE nearer to rows and columns at sigma 0.2 (rank correlation of similarities).",
        LATER,
        0.0,
        partial(learned_arrangement, SMALL, None),
    ),
    Claim(
        "small-sigma-learns-more-of-it",
        "It does so more at sigma 0.2 than at 2.0.",
        LATER,
        0.0,
        partial(learned_arrangement, SMALL, LARGE),
    ),
    *_predicts(
        "attention",
        "Cosine similarity of attention to that of 2d-fixed models",
        "attention_cosine",
        ATTENTION,
        sign=1,
        source=PAPER,
        published=" (published: 0.96)",
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
        LATER,
        0.05,
        partial(gained_by_training, "attention_cosine", ATTENTION),
        "within",
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
        partial(under_noise, "validation"),
    ),
    *(
        Claim(
            f"epoch-200-at-{sigma:g}",
            f"Accuracy at epoch 200 is that at the end, at sigma {sigma:g}.",
            "the authors' logs",
            0.02,
            partial(after_early, sigma),
            "within",
        )
        for sigma in (0.2, 1.0, 2.0)
    ),
)

SIGMA = tuple(replace(claim, measure=partial(of_learned, claim.measure)) for claim in _SIGMA)


# ----------------------------------------------------------------------------------------------- lst-encodings

LEARNED, TRUE = "learned:sigma=0.2", "sinusoid:axes=2"
RIVALS = {
    "1d-fixed": ("sinusoid", "sinusoid", 0.1),
    "relative": ("relative", "relative:causal=1", 0.0),
    "rotary": ("rotary", "rotary:fraction=0.5", 0.0),
    "random": ("random:sigma=1", "random:sigma=1", 0.1),
    "none": ("none", "none", 0.0),
    "causal-none": ("causal-none", "causal-none:temperature=0.01", 0.0),
}
"""By name: the encoding as it should be, and as in the authors' code, with the dropout it has there."""


def against(text: str, dropout: float, own: float, run: Run) -> Interval:
    """Accuracy of the learned PE (with dropout `own`) less that of an encoding."""
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
    Claim("all-fit-training", "The learned PE reaches 100% on its training puzzles.", PAPER, 0.99, on_train),
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
            ),
        )
    ),
)
