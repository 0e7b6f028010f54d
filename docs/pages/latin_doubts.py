"""The two doubts of docs/reproduction.md: what the dropout is worth; whether structure in the PE predicts accuracy."""

from __future__ import annotations

from collections.abc import Iterator

from latin_tables import (
    AFTER,
    BEFORE,
    BEYOND,
    Findings,
    answer,
    by_how_much,
    correlation_table,
    correlations,
    learned_beside,
    movement_table,
    of_pe,
    sigma_and_accuracy,
    significant,
    way_gone,
    with_and_without,
    worth_table,
    yardstick_table,
)
from wording import apart_from_zero, effect, number, picture, say, told

from placecode.analysis import stats
from placecode.analysis.stats import Interval, interval
from placecode.experiments.claims import HOLDS
from placecode.experiments.reading import accuracy, at_sigma, by_sigma, measured, of_encoding, paired
from placecode.runs.read import Run

IDEAL = "attention correlation to the ideal map"


def against(run: Run, a: str, b: str, dropout: float = 0.0) -> Interval:
    """One encoding less another, paired by seed."""
    return interval((of_encoding(run, a, dropout) - of_encoding(run, b, dropout)).dropna().to_numpy())


# --------------------------------------------------------------------------------------------------------- dropout


def dropout_doubt(runs: dict[str, Run], findings: dict[str, Findings]) -> Iterator[str]:
    yield "## First doubt: how much of 2d-fixed's accuracy is the authors' dropout?"
    yield (
        "The authors' fixed encodings carry a dropout of 0.1 on the sum of embedding and PE, at every block, that "
        "is also on at evaluation; their learned encodings do not."
    )
    run, found = runs["lst-encodings"], findings["lst-encodings"]
    yield worth_table(run)
    yield (
        "Where members diverged, means are over the seeds that are left, and the worth is over those that are left "
        "in both. Intervals of Student's t may reach beyond 1."
    )
    yield picture(
        *("lst-encodings", "dropout", "What the dropout is worth to each encoding"),
        "Of the paper three accuracies are known: learned and causal relative without dropout, 2d-fixed with it.",
    )
    yield from yardstick(runs, findings)
    yield from of_encodings(run, found)


def yardstick(runs: dict[str, Run], findings: dict[str, Findings]) -> Iterator[str]:
    """2d-fixed beside the learned PE."""
    run, found, longer = runs["lst-encodings"], findings["lst-encodings"], runs["lst-encodings-long"]
    beside = {name: runs[name] for name in ("lst-encodings", "lst-sigma-drawn")}
    yield "The true arrangement beside the learned one, in both runs that have it with and without the dropout:"
    yield yardstick_table(beside)
    own = [learned_beside(run) - with_and_without(run, "2d-fixed", accuracy(run))[1] for run in beside.values()]
    as_published = [interval(gap.to_numpy()) for gap in own]
    lift, alike = found["dropout-lifts-2d-fixed"], found["near-2d-fixed-both-dropout"]
    sizes = measured(runs["lst-sigma"], "norm", "")
    true, small = with_and_without(runs["lst-sigma"], "2d-fixed", sizes)[0], at_sigma(runs["lst-sigma"], sizes, 0.2)
    yield say(
        lift.direction == found["dropout-lifts-learned"].direction == HOLDS
        and found["near-2d-fixed"].found.low > 0
        and not apart_from_zero(alike.found)
        and not apart_from_zero(as_published[0])
        and as_published[1].high < 0,
        f"**The dropout lifts 2d-fixed** by {effect(lift)}, and the learned PE by "
        f"{effect(found['dropout-lifts-learned'])}. So the paper's yardstick is a regularized model, and its pupil "
        f"is not. Without dropout a learned PE of sigma 0.2 leads, by {effect(found['near-2d-fixed'])}; with dropout "
        f"in both the lead is {effect(alike)}, which may be none. As the paper compares them, the order is open on "
        "its puzzles, and on ours it is the paper's. Mind that 2d-fixed has an amplitude of its own (root mean "
        f"square {true.mean():.2f}, against {small.mean():.2f}), and this page says that size matters: other "
        "amplitudes were not tried.",
    )
    plain, dropped = (of_encoding(longer, "sinusoid:axes=2", rate) for rate in (0.0, 0.1))
    later = interval((plain - of_encoding(run, "sinusoid:axes=2", 0.0)).to_numpy())
    yield (
        f"Dropout makes training slow: at epoch {run.config['fields']['epochs']} 2d-fixed was still rising with it. "
        f"At epoch {longer.config['fields']['epochs']}:"
    )
    yield worth_table(longer)
    yield picture(
        *("lst-encodings-long", "curves", "Learning curves of 2d-fixed with and without dropout"),
        "An epoch is 64 steps; epoch 200 is step 12,800.",
    )
    yield say(
        findings["lst-encodings-long"]["dropout-lifts-2d-fixed"].direction == HOLDS
        and dropped.mean() > of_encoding(run, "sinusoid:axes=2", 0.1).mean()
        and later.mean < 0.05,
        f"With dropout it now has {number(dropped.mean())}, near its published 0.977; without, "
        f"{number(plain.mean())}, {told(later, digits=3)} more than at epoch 200. It was not trained for longer.",
    )


def of_encodings(run: Run, found: Findings) -> Iterator[str]:
    """The others."""
    yield picture(
        *("lst-encodings", "encodings", "Every encoding, without dropout"),
        "One that cannot tell cells apart does not even fit its training puzzles.",
    )
    random = against(run, "learned:sigma=1", "random:sigma=1")
    yield say(
        max(abs(random.low), abs(random.high)) < 0.02,
        "**Learning a PE of sigma 1 was not found to add** to the random vectors that it starts from: learned less "
        f"random, the same vectors in both, is {told(random, digits=3)}.",
    )
    two, next_to = "relative:axes=2", "rotary:axes=2"
    first, second = against(run, two, next_to), against(run, next_to, "learned:sigma=0.2")
    ahead = against(run, two, "learned:sigma=0.2")
    behind = against(run, "sinusoid:axes=2", "random:sigma=1")
    with_dropout = against(run, "learned:sigma=0.2", "relative", 0.1)
    yield say(
        ahead.low > 0
        and not apart_from_zero(first)
        and not apart_from_zero(second)
        and not apart_from_zero(behind)
        and with_dropout.low > 0
        and not apart_from_zero(found["beats-relative"].found)
        and all(of_encoding(run, text, 0.0, "train").max() < 0.6 for text in ("none", "alibi", "alibi:axes=2")),
        "Relative vectors for rows and columns are the best by their mean, "
        f"{number(of_encoding(run, two, 0.0).min())} in the worst of seeds: {told(ahead)} ahead of the learned PE of "
        f"sigma 0.2, not surely ahead of rotary for rows and columns, {told(first)}, which is not surely ahead of "
        f"the learned one, {told(second)}. To be told of the axes is not enough: so is 2d-fixed, which less random "
        f"vectors of sigma 1 is {told(behind)}. Over plain relative vectors the learned PE has no lead that we found "
        f"without dropout, {told(found['beats-relative'].found, digits=3)}, and one of {told(with_dropout)} with "
        "dropout in both. ALiBi does no better than no encoding at all: with one head its slope is 1/256, too flat "
        "to tell tokens apart, and distance alone, the same in all directions, names no cell.",
    )


# ------------------------------------------------------------------------------------------------------- structure


def structure_doubt(runs: dict[str, Run], findings: dict[str, Findings]) -> Iterator[str]:
    run, found = runs["lst-sigma"], findings["lst-sigma"]
    yield "## Second doubt: does structure in the PE predict accuracy, or only its size?"
    yield from over_the_sigmas(run, found)
    yield from at_fixed_sigma(run, runs["lst-sigma-drawn"], found)
    yield from how_far(run, found)


def over_the_sigmas(run: Run, found: Findings) -> Iterator[str]:
    control = stats.bootstrap(stats.over_settings, *sigma_and_accuracy(run))
    start = {sigma: at_sigma(run, measured(run, "procrustes", "2d-fixed", "start"), sigma) for sigma in (0.1, 2.0)}
    yield say(
        found["procrustes-raw-known-before"].direction == found["attention-known-before"].direction == HOLDS
        and float((start[0.1] - start[2.0]).abs().max()) < 1e-5,
        "The raw Procrustes distance correlates with accuracy over the sigmas as published, "
        f"{effect(found['procrustes-raw-over-sigmas'])}. **It does before training too, unchanged**: the distance "
        "grows with the norm of the PE, and the norm is sigma. The same holds for attention, "
        f"{effect(found['attention-over-sigmas'])}. Over the sigmas, whatever follows sigma predicts accuracy as "
        f"well as sigma itself does, {told(control)}. Measures without scale are the same at every sigma before "
        f"training; they come to correlate by training ({effect(found['procrustes-over-sigmas'])} for the distance), "
        "since small PEs are the ones that it can move, and again they go with sigma.",
    )
    even, near, shape = (
        {
            (sigma, when): at_sigma(run, measured(run, analysis, target, when), sigma)
            for sigma in (0.1, 0.2, 2.0)
            for when in ("start", "end")
        }
        for analysis, target in (
            *(("attention_cosine", "even"), ("attention_cosine", "2d-fixed")),
            ("attention_correlation", "2d-fixed"),
        )
    )
    change = interval((shape[0.2, "end"] - shape[0.2, "start"]).to_numpy())
    yield say(
        all(near[sigma, "end"].mean() < near[sigma, "start"].mean() for sigma in (0.1, 0.2, 2.0))
        and not apart_from_zero(change),
        "In attention it is a matter of how peaked the maps are: untrained maps have a cosine to an even one of "
        f"{number(even[0.1, 'start'].mean())} at sigma 0.1 and {number(even[2.0, 'start'].mean())} at 2.0, and a "
        "peaked map is far from any other. Training *lowers* the cosine with (trained) 2d-fixed models, from "
        f"{number(near[0.2, 'start'].mean())} to {number(near[0.2, 'end'].mean())} at sigma 0.2, since maps get less "
        f"even; with the even part taken off (a correlation) it changes by {told(change)}.",
    )
    yield picture(
        *("lst-sigma", "relations", "Measures against accuracy, over the sigmas"),
        "Filled: after training. Hollow: before, against the accuracy in the end.",
    )


def at_fixed_sigma(run: Run, own: Run, found: Findings) -> Iterator[str]:
    yield "Once sigma is held fixed, and beyond the value before training:"
    yield correlation_table(correlations(run.path))
    yield picture(
        *("lst-sigma", "fixed-sigma", "Which measure predicts accuracy once sigma is held fixed"),
        "All sigmas pooled. On the left the sigmas count as independent points, which they are not.",
    )
    lucky = significant(own, BEFORE)
    yield say(
        not significant(run, AFTER)
        and not significant(run, BEYOND)
        and not significant(own, BEYOND)
        and len(lucky) > 3
        and significant(own, AFTER) <= lucky,
        "**On the published puzzles no structure of the PE was found to predict accuracy.** On puzzles of our own "
        f"(next section) {len(lucky)} of {len(of_pe(own))} measures of the PE do, among them the distance to rows and "
        "columns; but they do **before training**, and the very same draws of the PE do not on the published puzzles: "
        "a random start that happens to favour some puzzles, or chance. **What training adds to the PE predicts "
        "nothing that we found, on either.** The test is weak, though: training changes the arrangement noticeably "
        "at the smallest sigmas alone, and only there can it tell models apart.",
    )
    yield say(
        found["attention-beyond-start"].direction == HOLDS and IDEAL in significant(run, AFTER, of_attention=True),
        "**Attention does**: among models of the same sigma, those whose trained attention lies nearer to that of "
        f"2d-fixed models generalize better, {effect(found['attention-at-fixed-sigma'])}, and before training they "
        "do not show it. Part of that is how evenly attention is spread, which alone has "
        f"{answer(run, 'attention cosine to an even map')}; with the even part of the maps taken off, "
        f"{answer(run, IDEAL)} is left for the ideal map of rows and columns (given its value before: "
        f"{answer(run, IDEAL, BEYOND)}) and {answer(run, 'attention correlation to 2d-fixed')} for 2d-fixed.",
    )
    yield picture(
        *("lst-sigma", "attention", "Attention maps after training"),
        "One seed for each sigma; 2d-fixed is the mean of 15, which makes it smoother. Its blocks attend to rows "
        "and columns only faintly.",
    )
    x, y = (each.to_numpy() for each in paired(run, "attention_cosine", "2d-fixed"))
    beyond_test = stats.bootstrap(stats.within_given, x, y, by_sigma(run, accuracy(run, "test")).to_numpy())
    yield say(
        not apart_from_zero(beyond_test),
        "Mind that this is still a correlation, over 15 seeds. Given a model's accuracy on test puzzles, attention "
        f"was not found to say more about held-out ones, {told(beyond_test)}: it is a sign of skill, and need not be "
        "its cause.",
    )


def how_far(run: Run, found: Findings) -> Iterator[str]:
    yield "How far the PEs go, and what they come to look like:"
    yield movement_table(run)
    moved = {sigma: by_how_much(run, sigma) for sigma in (0.1, 0.2, 1.0)}
    gone = {sigma: way_gone(run, sigma, run) for sigma in moved}
    smallest = interval((at_sigma(run, accuracy(run), 0.1) - at_sigma(run, accuracy(run), 0.2)).to_numpy())
    yield say(
        found["pe-learns-rows-and-columns"].direction == found["small-sigma-learns-more-of-it"].direction == HOLDS
        and moved[0.2] < 0.1
        and gone[0.1] > 0.3
        and smallest.low < 0,
        "**Training does bring the PE nearer to rows and columns, the more the smaller sigma**, as the paper says. "
        f"In the end a PE of sigma 0.1 has moved by {100 * moved[0.1]:.0f}% of its "
        f"size, one of 0.2 by {100 * moved[0.2]:.0f}% and one of 1 by {100 * moved[1.0]:.1f}%; of the way to "
        f"2d-fixed, by RSA with same row or column, that is {100 * gone[0.1]:.0f}%, {100 * gone[0.2]:.0f}% and "
        f"{100 * gone[1.0]:.0f}%. Where the PE has learned most, accuracy is not seen to be higher: 0.1 minus 0.2 is "
        f"{told(smallest, digits=3)}.",
    )
    yield picture(
        *("lst-sigma", "token-maps", "PEs as maps, before and after training"),
        "One seed. In two dimensions little of a random code can be shown (stress), nor what small changes do to it.",
    )
