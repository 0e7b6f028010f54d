"""Writes docs/reproduction.md and its figures from the committed runs: python results/reproduction.py

No number on that page is typed, those of the paper aside. A sentence that draws a conclusion is written together with
the condition under which it is true, and the script fails where a table no longer bears it out. A test compares the
page with the tables.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from latin_tables import (
    Findings,
    both_puzzles_table,
    claims_table,
    correlation_table,
    frozen_gaps,
    frozen_table,
    late_gains,
    long_table,
    movement_table,
    noise_gaps,
    noise_table,
    runs_table,
    sigma_and_accuracy,
    worth_table,
)
from wording import apart_from_zero, bounds, effect, grid, number, picture, say, spread, told

from placecode import figures
from placecode.analysis import stats
from placecode.analysis.stats import Interval, interval
from placecode.runs import Run
from placecode.studies import predictors, study_of
from placecode.studies.reading import accuracy, at_sigma, by_sigma, measured, of_encoding, paired

ROOT = Path(__file__).parents[1]
RUNS = {
    "lst-sigma": "the sweep over sigma: 20 sigmas x 15 seeds, and 2d-fixed models with and without dropout",
    "lst-sigma-drawn": "the same on puzzles of our own",
    "lst-sigma-frozen": "PEs that are never trained",
    "lst-sigma-4000": "3 sigmas x 5 seeds for as long as the paper trained",
    "lst-encodings": "every encoding x 15 seeds, with and without the authors' dropout",
    "lst-encodings-long": "2d-fixed for longer, since dropout makes training slow",
}
BEFORE, AFTER, BEYOND = (
    f"fixed sigma, {when}" for when in ("before training", "after training", "after, given before")
)
PICTURES = {
    "lst-sigma": ("accuracy", "relations", "fixed-sigma", "token-maps", "attention", "noise"),
    "lst-sigma-drawn": ("fixed-sigma",),
    "lst-sigma-4000": ("curves",),
    "lst-encodings": ("dropout", "encodings"),
    "lst-encodings-long": ("curves",),
}
"""Which figures of a run the page shows."""
PUBLISHED = (
    ("accuracy of the learned PE at sigma 0.2", "0.956", "lst-sigma-4000", "accuracy-at-0.2"),
    ("the same at epoch 200", "", "lst-sigma", "accuracy-at-0.2"),
    ("accuracy at sigma 2.0", "0.38", "lst-sigma-4000", "accuracy-at-2.0"),
    ("the same at epoch 200", "", "lst-sigma", "accuracy-at-2.0"),
    ("0.2 less 2.0", "0.58", "lst-sigma-4000", "small-sigma-generalizes"),
    ("the same at epoch 200", "", "lst-sigma", "small-sigma-generalizes"),
    (
        "training accuracy of all learned models (here: of the sigma where it is lowest)",
        "1.00",
        "lst-sigma",
        "all-fit-training",
    ),
    (
        "raw Procrustes distance to 2d-fixed against accuracy, over the settings",
        "-0.98",
        "lst-sigma",
        "procrustes-raw-over-sigmas",
    ),
    (
        "cosine of attention to that of 2d-fixed against accuracy, over the settings",
        "0.96",
        "lst-sigma",
        "attention-over-sigmas",
    ),
    (
        "noise on token embeddings hurts small sigma least: training puzzles, 0.2 less 2.0",
        "",
        "lst-sigma",
        "withstands-noise",
    ),
    ("the same on held-out puzzles", "", "lst-sigma", "withstands-noise-held-out"),
    ("accuracy at the end less that at epoch 200, sigma 0.2", "within 0.02", "lst-sigma-4000", "epoch-200-at-0.2"),
    ("the same at sigma 1.0", "within 0.02", "lst-sigma-4000", "epoch-200-at-1"),
    ("the same at sigma 2.0", "within 0.02", "lst-sigma-4000", "epoch-200-at-2"),
    (
        "learned at 0.2 less 2d-fixed, as published (the dropout in 2d-fixed alone)",
        "-0.021",
        "lst-encodings",
        "near-2d-fixed-as-published",
    ),
    ("learned at 0.2 less relative, as published (causal)", "0.036", "lst-encodings", "beats-relative-as-published"),
)
"""What the paper (or its reviewers' discussion, or the authors' logs) says: words, number, run, claim."""


def page(root: Path = ROOT) -> str:
    """The whole page, from the runs below `root`."""
    runs = {name: Run(root / "results" / name) for name in RUNS}
    findings = {name: {claim.id: claim.check(run) for claim in study_of(run).claims} for name, run in runs.items()}
    parts = [
        WORDS,
        *in_short(runs, findings),
        *made(runs),
        *figure_by_figure(findings, runs["lst-sigma"]),
        *dropout_doubt(runs, findings),
        *structure_doubt(runs, findings),
        *own_puzzles(runs, findings),
        *long_training(runs, findings),
        *all_claims(findings),
        *shortfalls(),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


WORDS = """\
# Experiment 1 reproduced: Latin squares

<!-- made by results/reproduction.py from the runs in results/; edit that file, not this one -->

What "Learning interpretable positional encodings in transformers depends on initialization" (arXiv 2406.08272) says
about Latin squares, held against our own runs of the published protocol with the published puzzles, ended at epoch 200
unless it says otherwise. Accuracy is that on the 108 held-out puzzles that people solved, unless it says otherwise.
Intervals are 95% over seeds: Student's t for means and paired differences, a bootstrap of seeds for correlations. A
claim's margin is declared in code, before its run save where its source says so: *reproduced* if the whole interval
lies beyond the margin, *not reproduced* if it falls wholly short of it, else *undecided*. `placecode claims
results/NAME` prints the verdicts of a run, `placecode report results/NAME` draws all its figures."""


def in_short(runs: dict[str, Run], findings: dict[str, Findings]) -> Iterator[str]:
    """What is true, what is an artefact, and where to read how we know."""
    found, own, long = (findings[name] for name in ("lst-sigma", "lst-sigma-drawn", "lst-sigma-4000"))
    run, still = runs["lst-sigma"], runs["lst-sigma-frozen"]
    gaps = frozen_gaps(run, still)
    moved = {name: by_how_much(runs[name], 0.2) for name in ("lst-sigma", "lst-sigma-4000")}
    ideal = [at_fixed(runs[name], "attention cosine to the ideal map") for name in ("lst-sigma", "lst-sigma-drawn")]
    yield "## In short"
    points = [
        say(
            all(each["small-sigma-generalizes"].verdict == "reproduced" for each in (found, own, long)),
            "**True**: sigma decides. Held-out accuracy at 0.2 less that at 2.0 is "
            f"{effect(found['small-sigma-generalizes'])} at epoch 200, {effect(long['small-sigma-generalizes'])} "
            f"after the published 4,000 epochs, and {effect(own['small-sigma-generalizes'])} on puzzles of our own.",
        ),
        say(
            max(max(abs(gap.low), abs(gap.high)) for gap in gaps.values()) < 0.1
            and not any(apart_from_zero(gap) for gap in gaps.values()),
            "**Not because of what the PE learns**: frozen at its random start, it does as well at every sigma "
            f"tried (trained less frozen at 0.2: {told(gaps[0.2], digits=3)}). Sigma sets the size of a random code "
            "beside the token embeddings, and the model learns to read it.",
        ),
        say(
            all(
                each[id].verdict == "reproduced"
                for each in (found, own, long)
                for id in ("pe-learns-rows-and-columns", "small-sigma-learns-more-of-it")
            ),
            "**True, but small**: training brings PEs of small sigma nearer to rows and columns. They hardly move: "
            f"at 0.2 by {100 * moved['lst-sigma']:.0f}% of their size in 200 epochs and "
            f"{100 * moved['lst-sigma-4000']:.0f}% in 4,000.",
        ),
        say(
            all(
                each["procrustes-raw-known-before"].verdict == each["attention-known-before"].verdict == "reproduced"
                and each["procrustes-raw-beyond-start"].verdict == "undecided"
                and each["procrustes-beyond-start"].verdict == "undecided"
                for each in (found, own)
            )
            and all(one.low > 0 for one in ideal),
            "**An artefact of size**: that the Procrustes distance, or the agreement of attention maps, predicts "
            "accuracy over the sigmas. Both do so before any training. Once sigma is held fixed, nothing that "
            "training adds to the PE was found to predict accuracy, on the published puzzles or on our own. That "
            f"trained attention goes to the row and column does, moderately: {told(ideal[0])} and {told(ideal[1])}.",
        ),
        say(
            all(each["withstands-noise"].verdict == "not reproduced" for each in (found, own, long)),
            "**Not so**: that small sigmas withstand noise better, where all sigmas know the answer without it.",
        ),
        *of_rivals(runs["lst-encodings"], findings["lst-encodings"]),
        say(
            rises(runs["lst-sigma-4000"])[0] == rises(runs["lst-sigma-4000"])[1],
            f"**Not settled at epoch 200**: all {rises(runs['lst-sigma-4000'])[1]} models that were trained for "
            "4,000 epochs got better after it. What is said here of other encodings is said of epoch 200.",
        ),
    ]
    yield "\n".join(f"- {point}" for point in points)


def by_how_much(run: Run, sigma: float) -> float:
    """How far the PEs of a sigma moved, as a share of their size."""
    return float(at_sigma(run, measured(run, "moved_relative", "start"), sigma).mean())


@functools.cache
def correlations(folder: Path) -> pd.DataFrame:
    """Every measure of a run against accuracy."""
    table = predictors.correlations(Run(folder))
    assert table is not None
    return table


def at_fixed(run: Run, measure: str) -> Interval:
    """A measure's correlation with accuracy at a fixed sigma."""
    table = correlations(run.path)
    row = table[(table["measure"] == measure) & (table["question"] == AFTER)].iloc[0]
    return Interval(row["value"], row["low"], row["high"])


def rises(run: Run) -> tuple[int, int]:
    """How many members of a long run are more accurate in the end than at epoch 200, and how many there are."""
    gain = late_gains(run)
    return int((gain > 0).sum()), len(gain)


def of_rivals(run: Run, found: Findings) -> Iterator[str]:
    """The learned PE beside the others, in short."""
    yield say(
        found["2d-fixed-beats-learned"].verdict == "not reproduced"
        and found["dropout-lifts-2d-fixed"].verdict == "reproduced",
        "**An artefact of dropout**: that 2d-fixed is the ceiling. The authors' code drops features of fixed "
        f"encodings alone, which is worth {effect(found['dropout-lifts-2d-fixed'])} to 2d-fixed. Compared alike, the "
        f"learned PE at 0.2 is better than 2d-fixed, by {effect(found['near-2d-fixed'])} without dropout.",
    )
    beaten = ("1d-fixed", "rotary", "none")
    yield say(
        all(found[f"beats-{name}"].verdict == "reproduced" for name in beaten)
        and found["beats-relative"].verdict == found["beats-random"].verdict == "undecided"
        and bool((of_encoding(run, "relative:axes=2", 0.0) > 0.97).all()),
        "**True in part**: that the learned PE beats the others. It beats 1d-fixed, rotary and none. No lead over "
        f"relative was found, {told(found['beats-relative'].found, digits=3)}; that over random vectors of sigma 1 "
        f"is {told(found['beats-random'].found, digits=3)}, and a learned PE of sigma 1 has none. Relative vectors "
        f"for rows and columns do better than all: {number(of_encoding(run, 'relative:axes=2', 0.0).mean())}.",
    )


def made(runs: dict[str, Run]) -> Iterator[str]:
    yield "## What was run"
    yield runs_table(runs, RUNS)
    gpus = sorted({str(run.environment.get("gpu")) for run in runs.values()})
    precisions = sorted({run.config["precision"] for run in runs.values()})
    lost = runs["lst-encodings"].members.query("state == 'diverged'")
    yield say(
        set(lost["options"]) == {'{"temperature": 0.01}'}
        and all((run.members["state"] == "done").all() for name, run in runs.items() if name != "lst-encodings"),
        f"All on one {' or '.join(gpus)}, precision {', '.join(precisions)}. No member is left out but those "
        f"{len(lost)} that diverged, all of causal-none at a temperature of 0.01.",
    )


def figure_by_figure(findings: dict[str, Findings], sweep: Run) -> Iterator[str]:
    yield "## What the paper says"
    rows = []
    for words, paper, run, claim in PUBLISHED:
        one = findings[run][claim]
        rows.append((words, paper, number(one.found.mean), bounds(one.found), one.verdict, run))
    yield grid(("statement", "paper", "ours", "95% interval", "verdict", "run"), rows)
    yield picture("lst-sigma", "accuracy", "Accuracy against sigma")
    found = findings["lst-sigma"]
    yield say(
        found["small-sigma-generalizes"].verdict == "reproduced",
        "**The main effect is there**: the same model with the same data generalizes at a small initial sigma and "
        "memorizes at a large one, by far more than the margin.",
    )
    gaps = noise_gaps(sweep)
    yield noise_table(gaps)
    held = list(gaps["held-out puzzles, sigma 0.2 less 2"].values())
    yield say(
        found["withstands-noise"].verdict == "not reproduced"
        and held[0].low > 0
        and not any(apart_from_zero(gap) for gap in held[3:])
        and gaps["held-out puzzles, sigma 0.2 less 1"][0.5].high < 0,
        "**Robustness to noise does not reproduce as a virtue of small sigmas.** On training puzzles, which all "
        "sigmas answer without noise, noise on the token embeddings hurts sigma 0.2 more than 2.0. On held-out "
        "puzzles 0.2 is ahead of 2.0 because it starts ahead, and no longer from a noise of 0.5 on; sigma 1 bears "
        "more than both. The noise is absolute: it may simply be large beside a small PE and small beside a large "
        "one. The paper's level is not known.",
    )
    yield picture("lst-sigma", "noise", "Accuracy under noise")


# ------------------------------------------------------------------------------------------------- the two doubts


def dropout_doubt(runs: dict[str, Run], findings: dict[str, Findings]) -> Iterator[str]:
    yield "## First doubt: how much of 2d-fixed's accuracy is the authors' dropout?"
    yield (
        "The authors' fixed encodings carry a dropout of 0.1 on the sum of embedding and PE, at every block, that "
        "is also on at evaluation; their learned encodings do not."
    )
    run, found = runs["lst-encodings"], findings["lst-encodings"]
    yield worth_table(run)
    yield picture("lst-encodings", "dropout", "What the dropout is worth to each encoding")
    lift, own, ahead, both = (
        found[id]
        for id in ("dropout-lifts-2d-fixed", "dropout-lifts-learned", "near-2d-fixed", "near-2d-fixed-both-dropout")
    )
    yield say(
        lift.verdict == own.verdict == "reproduced" and ahead.found.low > 0,
        f"**The dropout lifts 2d-fixed** by {effect(lift)}, and the learned PE by {effect(own)}. So the paper's "
        "yardstick is a regularized model, and its pupil is not. Compared alike, a learned PE of small sigma does "
        f"not come *near* the true encoding, it is *better* than it: by {effect(ahead)} without dropout. With it the "
        f"lead is {effect(both)}, and 2d-fixed still rises at the end.",
    )
    random = interval((of_encoding(run, "learned:sigma=1", 0.0) - of_encoding(run, "random:sigma=1", 0.0)).to_numpy())
    behind = interval((of_encoding(run, "sinusoid:axes=2", 0.0) - of_encoding(run, "random:sigma=1", 0.0)).to_numpy())
    yield say(
        max(abs(random.low), abs(random.high)) < 0.05,
        "**Learning a PE of sigma 1 adds nothing** to the random vectors that it starts from: learned less random, "
        f"the same vectors in both, is {told(random, digits=3)}.",
    )
    yield picture("lst-encodings", "encodings", "Every encoding, without dropout")
    yield say(
        bool((of_encoding(run, "relative:axes=2", 0.0) > 0.97).all())
        and of_encoding(run, "rotary:axes=2", 0.0).mean() > of_encoding(run, "learned:sigma=0.2", 0.0).mean()
        and all(of_encoding(run, text, 0.0, "train").max() < 0.6 for text in ("none", "alibi", "alibi:axes=2")),
        f"Relative vectors for rows and columns are best, {number(of_encoding(run, 'relative:axes=2', 0.0).min())} "
        "in the worst of seeds, and rotary for rows and columns comes next: here it pays to be told of the axes. "
        f"The 2d-fixed encoding is told of them too; less random vectors of sigma 1 it is {told(behind)}. ALiBi does "
        "no better than no encoding at all: with one head its slope is 1/256, too flat to tell tokens apart, and "
        "distance alone, the same in all directions, names no cell.",
    )
    longer = runs["lst-encodings-long"]
    plain, dropped = (of_encoding(longer, "sinusoid:axes=2", rate) for rate in (0.0, 0.1))
    yield (
        f"Dropout makes training slow: at epoch {run.config['fields']['epochs']} 2d-fixed was still rising with it. "
        f"At epoch {longer.config['fields']['epochs']}:"
    )
    yield worth_table(longer)
    yield picture("lst-encodings-long", "curves", "Learning curves with and without dropout")
    learned = findings["lst-sigma-4000"]["accuracy-at-0.2"].found
    yield say(
        findings["lst-encodings-long"]["dropout-lifts-2d-fixed"].verdict == "reproduced"
        and dropped.mean() > of_encoding(run, "sinusoid:axes=2", 0.1).mean()
        and plain.mean() < of_encoding(run, "learned:sigma=0.2", 0.0).mean()
        and learned.low > dropped.mean(),
        f"With dropout it now has {number(dropped.mean())}, near its published 0.977; without, longer training "
        f"hardly helps it, {number(plain.mean())}. A learned PE of sigma 0.2 that is trained as long as the paper "
        f"did has {spread(learned)} without any dropout.",
    )


def structure_doubt(runs: dict[str, Run], findings: dict[str, Findings]) -> Iterator[str]:
    run, found = runs["lst-sigma"], findings["lst-sigma"]
    yield "## Second doubt: does structure in the PE predict accuracy, or only its size?"
    yield from over_the_sigmas(run, found)
    yield from at_fixed_sigma(run, found)
    yield from how_far(run, runs["lst-sigma-4000"], found)
    yield from frozen(run, runs["lst-sigma-frozen"])


def over_the_sigmas(run: Run, found: Findings) -> Iterator[str]:
    control = stats.bootstrap(stats.over_settings, *sigma_and_accuracy(run))
    yield say(
        found["procrustes-raw-known-before"].verdict == found["attention-known-before"].verdict == "reproduced",
        "The raw Procrustes distance has the published correlation over the sigmas, "
        f"{effect(found['procrustes-raw-over-sigmas'])}. **It has it before training too, unchanged**: the distance "
        "grows with the norm of the PE, and the norm is sigma. The same holds for attention, "
        f"{effect(found['attention-over-sigmas'])}. Over the sigmas, whatever follows sigma predicts accuracy as "
        f"well as sigma itself does, {told(control)}.",
    )
    even, near = (
        {
            (sigma, when): at_sigma(run, measured(run, "attention_cosine", target, when), sigma).mean()
            for sigma in (0.1, 0.2, 2.0)
            for when in ("start", "end")
        }
        for target in ("even", "2d-fixed")
    )
    yield say(
        all(near[sigma, "end"] < near[sigma, "start"] for sigma in (0.1, 0.2, 2.0)),
        "In attention it is a matter of how peaked the maps are: untrained maps have a cosine to an even one of "
        f"{number(even[0.1, 'start'])} at sigma 0.1 and {number(even[2.0, 'start'])} at 2.0, and a peaked map is far "
        f"from any other. Training *lowers* the agreement with 2d-fixed models, from {number(near[0.2, 'start'])} to "
        f"{number(near[0.2, 'end'])} at sigma 0.2.",
    )
    yield picture("lst-sigma", "relations", "Measures against accuracy, before and after training")


def at_fixed_sigma(run: Run, found: Findings) -> Iterator[str]:
    yield "Once sigma is held fixed, and beyond the value before training:"
    table = correlations(run.path)
    yield correlation_table(table)
    yield picture("lst-sigma", "fixed-sigma", "Which measure predicts accuracy once sigma is held fixed")
    of_pe = table[~table["measure"].str.startswith("attention") & table["question"].str.contains("after")]
    widest = of_pe[["low", "high"]].abs().max().max()
    beyond = of_pe[of_pe["question"].str.contains("given")]
    yield say(
        not (of_pe["adjusted"] < 0.05).any()
        and bool(((beyond["low"] < 0) & (beyond["high"] > 0)).all())
        and found["attention-beyond-start"].verdict == "reproduced",
        f"**We found no structure of the PE that does**: none clears the correction for {table['measure'].nunique()} "
        f"measures, though correlations up to {widest:.1f} cannot be excluded, and what some have (rows and columns, "
        "by chance of the draw) they have before training; beyond that every interval holds zero. **Attention "
        "does**: among models of the same sigma, those whose trained attention lies nearer to that of 2d-fixed "
        f"models generalize better, {effect(found['attention-at-fixed-sigma'])}, and before training they do not "
        "show it. Part of that is how evenly attention is spread, which alone has "
        f"{adjusted(table, 'attention cosine to an even map')}; with the even part of the maps taken off, "
        f"{adjusted(table, 'attention correlation to the ideal map')} is left for the ideal map of rows and columns "
        f"(given its value before: {adjusted(table, 'attention correlation to the ideal map', BEYOND)}) and "
        f"{adjusted(table, 'attention correlation to 2d-fixed')} for 2d-fixed.",
    )
    yield picture("lst-sigma", "attention", "Attention maps after training")
    x, y = (each.to_numpy() for each in paired(run, "attention_cosine", "2d-fixed"))
    beyond_test = stats.bootstrap(stats.within_given, x, y, by_sigma(run, accuracy(run, "test")).to_numpy())
    yield say(
        not apart_from_zero(beyond_test),
        "Mind that this is still a correlation, over 15 seeds. Given a model's accuracy on test puzzles, attention "
        f"says little more about held-out ones, {told(beyond_test)}: it is a sign of skill, and need not be its "
        "cause.",
    )


def adjusted(table: pd.DataFrame, measure: str, question: str = AFTER) -> str:
    """What is known of a measure at a fixed sigma, in words."""
    row = table[(table["measure"] == measure) & (table["question"] == question)].iloc[0]
    return f"{row['value']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f}, adjusted p {row['adjusted']:.3f})"


def how_far(run: Run, long: Run, found: Findings) -> Iterator[str]:
    yield "How far the PEs go, and what they come to look like:"
    yield movement_table(run)
    moved = {sigma: by_how_much(run, sigma) for sigma in (0.2, 1.0)}
    later = {sigma: by_how_much(long, sigma) for sigma in (0.2, 1.0)}
    yield say(
        found["pe-learns-rows-and-columns"].verdict == found["small-sigma-learns-more-of-it"].verdict == "reproduced"
        and moved[0.2] < 0.1
        and moved[1.0] < 0.02
        and later[0.2] < 0.1
        and later[1.0] < 0.02,
        "**Training does bring the PE nearer to rows and columns, the more the smaller sigma**, as the paper says. "
        f"But by little: by epoch {run.config['fields']['epochs']} a PE of sigma 0.2 has moved by "
        f"{100 * moved[0.2]:.0f}% of its size and one of sigma 1 by {100 * moved[1.0]:.1f}%, by epoch 4,000 by "
        f"{100 * later[0.2]:.0f}% and {100 * later[1.0]:.1f}%; and accuracy is not highest where the PE has learned "
        "most (sigma 0.1).",
    )
    yield picture("lst-sigma", "token-maps", "PEs as maps, before and after training")


def frozen(run: Run, still: Run) -> Iterator[str]:
    """The sweep with PEs that are never trained."""
    yield "The same sweep with PEs frozen at their start:"
    gaps = frozen_gaps(run, still)
    yield frozen_table(run, still, gaps)
    widest = max(max(abs(gap.low), abs(gap.high)) for gap in gaps.values())
    yield say(
        widest < 0.1 and not any(apart_from_zero(gap) for gap in gaps.values()),
        "**Sigma decides as much when the PE cannot learn**: every difference is within its error, and none can be "
        f"larger than {widest:.2f}. What sigma sets is the size of a random code beside the token embeddings; no "
        "learned arrangement is needed for the effect, and at epoch 200 none is of measurable use.",
    )


# -------------------------------------------------------------------------------------------------- the other runs


def own_puzzles(runs: dict[str, Run], findings: dict[str, Findings]) -> Iterator[str]:
    published, own = findings["lst-sigma"], findings["lst-sigma-drawn"]
    yield "## The same on puzzles of our own"
    yield both_puzzles_table(published, own)
    judged = [id for id, found in published.items() if not found.note]
    same = [id for id in judged if published[id].verdict == own[id].verdict]
    yield f"{len(same)} of {len(judged)} verdicts are the same."
    yield picture("lst-sigma-drawn", "fixed-sigma", "Which measure predicts accuracy on our own puzzles")
    table = correlations(runs["lst-sigma-drawn"].path)
    structure = table[~table["measure"].str.startswith("attention")]
    before, beyond = (structure[structure["question"] == question] for question in (BEFORE, BEYOND))
    ideal = "attention cosine to the ideal map"
    yield say(
        published["small-sigma-generalizes"].verdict == own["small-sigma-generalizes"].verdict == "reproduced"
        and bool((before["adjusted"] < 0.05).any())
        and not (beyond["adjusted"] < 0.05).any()
        and own["attention-at-fixed-sigma"].verdict == "undecided",
        "The effect of sigma is there again. Accuracy at 0.2 is somewhat lower: other puzzles, drawn by the "
        "published rules, are learned from and asked. What differs is told at a fixed sigma. Here arrangement of "
        "the PE by rows and columns does predict accuracy after training, Procrustes "
        f"{told(own['procrustes-at-fixed-sigma'].found)}; but it did so **before training**, "
        f"{adjusted(table, 'Procrustes distance, scale-free', BEFORE)}, and beyond that nothing does: it is the luck "
        "of the draw, not what was learned. Agreement of attention with 2d-fixed models is not clear on these "
        f"puzzles, {effect(own['attention-at-fixed-sigma'])}; that with the ideal map is, {adjusted(table, ideal)}, "
        f"and given its value before, {adjusted(table, ideal, BEYOND)}.",
    )


def long_training(runs: dict[str, Run], findings: dict[str, Findings]) -> Iterator[str]:
    run, found = runs["lst-sigma-4000"], findings["lst-sigma-4000"]
    yield "## As long as the paper trained"
    yield long_table(run)
    yield picture("lst-sigma-4000", "curves", "Learning curves over 4,000 epochs")
    up, total = rises(run)
    best, middle = (at_sigma(run, accuracy(run), sigma) for sigma in (0.2, 1.0))
    yield say(
        up == total
        and not any(found[f"epoch-200-at-{sigma}"].verdict == "reproduced" for sigma in ("0.2", "1", "2"))
        and found["small-sigma-generalizes"].verdict == "reproduced",
        "**Accuracy is not what it was at epoch 200.** In the authors' logs it is, within 0.02. With 5 seeds each "
        f"sigma by itself is undecided, but all {up} of {total} models are better in the end, by "
        f"{told(interval(late_gains(run).groupby('seed').mean().to_numpy()))} over the seeds. The rise is slow, long "
        "after the training puzzles are known, and single models collapse for a moment on the way, on their "
        "training puzzles too. Why the authors' did not rise, we do not know. Sigma 2 gains little. Sigma 1 comes "
        f"close to 0.2: {told(interval((best - middle).to_numpy()))} is left between them.",
    )


def all_claims(findings: dict[str, Findings]) -> Iterator[str]:
    yield "## All claims"
    for name, found in findings.items():
        if not all(finding.note for finding in found.values()):  # else it is about something else
            yield f"`{name}`:\n\n{claims_table(found)}"


def shortfalls() -> Iterator[str]:
    yield "## What we could not do, and what to mind"
    points = [
        "The sweeps end at epoch 200, not 4,000: 300 models for 4,000 epochs would take some hours on one GPU. "
        "Accuracy still rises slowly by then (above), so the levels of single sigmas and encodings are likely below "
        "those of the published protocol; only 3 sigmas x 5 seeds of learned PEs were run to its end. Whether the "
        "ranking of encodings, or the equality of trained and frozen PEs, holds at epoch 4,000 was not tried.",
        "The paper's figures were compared by the numbers in its text and its reviews; the points of its plots are "
        "not published.",
        "Which blocks' PE the paper aligned, and how it averaged attention maps, is not known. Claims use all "
        "blocks side by side; the tables hold every block, the mean over blocks, and per-puzzle maps too.",
        "The level of noise on token embeddings is not published. Claims use the mean over all levels (0.1 to 2).",
        "The authors' relative and rotary encodings were rebuilt from a description of their code (causal; half of "
        "the features). The scale at which relative vectors start is not known; ours is 0.2.",
        "causal-none at a temperature of 0.01 makes attention nearly hard. At precision `high` its gradients are "
        "dominated by rounding, so its row says little about float32.",
        "Bootstrap intervals over 15 seeds are somewhat narrow (means: 91% coverage instead of 95%), and partial "
        "correlations leave a little of a strong common cause in (docstrings of `placecode.analysis.stats`).",
    ]
    yield "\n".join(f"- {point}" for point in points)


def draw(root: Path = ROOT, names: Sequence[str] = tuple(PICTURES)) -> None:
    """The figures that the page shows."""
    for name in names:
        run = Run(root / "results" / name)
        for shown in study_of(run).figures(run):
            if shown.name in PICTURES[name]:
                figures.save(shown.figure, root / "docs" / "images" / f"{name}-{shown.name}.png")


if __name__ == "__main__":
    (ROOT / "docs" / "reproduction.md").write_text(page())
    draw()
