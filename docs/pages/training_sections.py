"""The section of docs/reproduction.md on lst-frozen: is learning the PE needed, and where?"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from latin_tables import Findings
from wording import effect, grid, mean, number, picture, plain, say, spread, told

from placecode.analysis.stats import Interval
from placecode.experiments.claims import FAILS, HOLDS, UNDECIDED
from placecode.experiments.latin.training import KINDS, kind_of
from placecode.experiments.reading import accuracy, measured, swept
from placecode.runs.read import Run

LEARNED, FROZEN, SIZED, AT_INPUT = KINDS
SMALL, LARGE, TINY = 0.2, 2.0, 0.01


def in_short(run: Run, found: Findings) -> Iterator[str]:
    """The section in a few sentences."""
    same, alone = found["learning-is-not-needed"], found["input-alone-shrinks-the-effect"]
    yield say(
        same.direction == HOLDS,
        "**Not because of what the PE learns**: frozen at its random start it shows about the same effect. From sigma "
        f"0.1 to 2, accuracy with a learned PE minus that with a frozen one is {told(same.found, digits=3)} "
        f"({len(run.config['fields']['seeds'])} seeds; about equal was declared as within {same.claim.margin:g}). Our "
        "interpretation: sigma sets the size of a random code beside the token embeddings, and the model learns to "
        "read it.",
    )
    tiny = mean(of_kind(run, LEARNED, SMALL) - of_kind(run, LEARNED, TINY))
    yield say(
        tiny.low > 0
        and all(of_kind(run, LEARNED, sigma).mean() > 0.9 for sigma in (0.1, 0.2, 0.5))
        and max(of_kind(run, LEARNED, sigma).mean() for sigma in (0.01, 0.05, 1.0)) < 0.9,
        f"**Too small a sigma hurts as well**: accuracy at {TINY:g} is lower than at {SMALL:g} by {plain(tiny)}. The "
        "best sigmas lie in between, at about 0.1 to 0.5.",
    )
    yield say(
        alone.direction == HOLDS and mean(of_kind(run, AT_INPUT, SMALL) - of_kind(run, AT_INPUT, TINY)).low > 0,
        "**The effect is much smaller with the PE at the input alone**, as in most models in use; the paper adds it in "
        f"every block. Accuracy at {SMALL:g} minus that at {LARGE:g} shrinks from "
        f"{told(mean(worth_of_sigma(run, LEARNED)))} to {told(mean(worth_of_sigma(run, AT_INPUT)))}. A very small "
        "sigma hurts there too.",
    )
    faster = found["large-sigma-trains-faster"].found
    yield say(
        found["large-sigma-trains-faster"].direction == found["tiny-sigma-stalls"].direction == FAILS
        and of_kind(run, LEARNED, TINY, accuracy(run, "train")).min() == 1,
        "**Not reproduced**: that large sigmas train faster, or that training stalls at tiny ones. Sigma 2 needs "
        f"{faster.mean:.0f} epochs ({faster.low:.0f} to {faster.high:.0f}) more than 0.2 to reach 99% on its training "
        f"puzzles, and {TINY:g} reaches 100% in the end.",
    )


def frozen(run: Run, found: Findings) -> Iterator[str]:
    yield "## Is learning the PE needed?"
    yield (
        "The same models with learned PEs, with PEs frozen at their random start, with frozen random vectors of the "
        "size that the learned PE of the same seed ends with, and with learned PEs that are added at the input alone. "
        f"Sigma goes down to {TINY:g} here; {len(run.config['fields']['seeds'])} seeds, the authors' loss."
    )
    yield frozen_table(run)
    yield picture(
        *("lst-frozen", "accuracy", "Learned and frozen PEs over sigma"),
        "Where the lines of learned and frozen PEs lie on each other, learning the PE is not needed. Bars are 95% "
        "intervals over 5 seeds, cut at 0 and 1; in the table they are not cut, and may exceed 1.",
    )
    same, tiny = found["learning-is-not-needed"], found[f"learning-helps-at-{TINY:g}"]
    larger = mean(worth_of_sigma(run, LEARNED) - worth_of_sigma(run, FROZEN))
    yield say(
        same.direction == HOLDS and tiny.direction == found["learning-helps-at-0.05"].direction == UNDECIDED,
        "**From sigma 0.1 on, learning the PE is not needed**: learned minus frozen is "
        f"{told(same.found, digits=3)}, the mean over these sigmas. The effect of sigma (accuracy at {SMALL:g} minus "
        f"that at {LARGE:g}) is {told(mean(worth_of_sigma(run, LEARNED)))} with learned and "
        f"{told(mean(worth_of_sigma(run, FROZEN)))} with frozen PEs, a difference of {told(larger)}. Below 0.1 "
        f"learned PEs do better by their means, {effect(tiny)} at {TINY:g} and "
        f"{effect(found['learning-helps-at-0.05'])} at 0.05; with 5 seeds neither is sure.",
    )
    sized = found[f"size-is-what-is-learned-at-{TINY:g}"]
    size = of_kind(run, LEARNED, TINY, measured(run, "norm", "")).mean()
    yield say(
        sized.direction == FAILS and sized.found.low > 0 and 0.04 < size < 0.05,
        f"**At sigma {TINY:g}, frozen random vectors of the learned PE's final size are more accurate than the "
        f"learned PE**, by {effect(sized)}; PEs frozen at sigma 0.05, about as large, have "
        f"{number(of_kind(run, FROZEN, 0.05).mean())}. The learned PE ends at a size of {size:.3f} but starts at "
        f"{TINY:g}, so what hurts may be the small start, and not what is learned. We had asked whether the two are "
        "about equal (within 0.05). They are not.",
    )
    alone = found["input-alone-shrinks-the-effect"]
    yield say(
        alone.direction == HOLDS and mean(of_kind(run, AT_INPUT, SMALL) - of_kind(run, AT_INPUT, TINY)).low > 0,
        "**Added at the input alone**, as in most models in use, the effect of sigma is "
        f"{told(mean(worth_of_sigma(run, AT_INPUT)))} instead of {told(mean(worth_of_sigma(run, LEARNED)))}: it is "
        f"smaller by {plain(alone.found)}. A very small sigma hurts there too.",
    )
    stalls, faster = found["tiny-sigma-stalls"], found["large-sigma-trains-faster"]
    going = run.members[run.members["rested_epoch"] < 0]
    worst = accuracy(run, "train").min()
    yield say(
        stalls.direction == faster.direction == FAILS and worst > 0.99,
        "**Training neither stalls at a tiny sigma nor is faster at a large one**: the final training accuracy at "
        f"{TINY:g} minus that at {SMALL:g} is {told(stalls.found, digits=3)}, and sigma {LARGE:g} reaches 99% on its "
        f"training puzzles later than {SMALL:g}, by {faster.found.mean:.0f} epochs ({faster.found.low:.0f} to "
        f"{faster.found.high:.0f}). {len(run.members) - len(going)} of {len(run.members)} models stopped before epoch "
        f"{run.config['fields']['epochs']:,}, since their training loss had been exactly 0 for "
        f"{run.config['fields']['rest']} epochs; the others ran to the end, where the lowest training accuracy is "
        f"{number(worst)}.",
    )


def of_kind(run: Run, kind: str, sigma: float, values: pd.Series | None = None) -> pd.Series:
    """Accuracy on held-out puzzles, or other values by member, by seed of one kind of PE."""
    rows = swept(run)
    wanted = [row["sigma"] == sigma and kind_of(dict(row)) == kind for _, row in rows.iterrows()]
    rows = rows[wanted]
    return rows.set_index("seed")["member"].map(accuracy(run) if values is None else values)


def worth_of_sigma(run: Run, kind: str) -> pd.Series:
    """Accuracy at sigma 0.2 minus that at 2.0, by seed."""
    return of_kind(run, kind, SMALL) - of_kind(run, kind, LARGE)


def learned_minus_frozen(run: Run) -> dict[float, Interval]:
    return {
        sigma: mean(of_kind(run, LEARNED, sigma) - of_kind(run, FROZEN, sigma))
        for sigma in run.config["fields"]["sigmas"]
    }


def frozen_table(run: Run) -> str:
    rows = [
        (f"{sigma:g}", *(spread(mean(of_kind(run, kind, sigma))) for kind in KINDS), told(gap, digits=3))
        for sigma, gap in learned_minus_frozen(run).items()
    ]
    return grid(("sigma", *KINDS, "learned minus frozen"), rows)
