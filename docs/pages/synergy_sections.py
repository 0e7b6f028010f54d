"""The section of docs/reproduction.md on structure that no correlation can see. `masked_sections.py` puts it in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from latin_tables import Findings
from masked_tables import Runs, baseline_table, chance, mean_error, model, of_baseline, paired
from synergy_tables import CONDITION, NEAR_ENOUGH, at, by, models, tally, tally_table, tests_of_others, tried_table
from wording import grid, number, picture, say, spread, told

from placecode.experiments.channels.claims import NEIGHBOURS, error, over
from placecode.experiments.claims import HOLDS, UNDECIDED
from placecode.experiments.reading import at_sigma, chance_in, done, measured
from placecode.runs.read import Run

RUNS = {
    "synergy-sigma": "30 channels in groups of three that no pairwise measure can see: 11 sigmas x 15 seeds",
    "synergy-sigma-512": "6 sigmas x 15 seeds of it with a larger batch",
    "synergy-size": "15 to 120 such channels, 10,000 to 250,000 samples x 3 seeds",
    "synergy-size-60": "60 channels: batch, step size and samples x 3 seeds",
    "synergy-size-60-long": "60 channels, the smaller batch for four times as long",
    "synergy-size-60-ramps": "60 channels, the smaller batch, with fewer hidden at first",
    "synergy-size-60-shares": "60 channels, the smaller batch, with more or fewer hidden",
    "synergy-size-60-widths": "60 channels, the smaller batch, models of other widths",
}
PICTURES = {"synergy-sigma": ("structure", "error"), "synergy-size": ("structure",)}
BLIND = ("fc", "mutual-information", "partial-correlation")
STRUCTURE = {
    NEIGHBOURS: "nearest channel in the same group",
    ("modularity", "labels"): "signed modularity Q",
    ("ari", "labels"): "ARI of k-means",
}
"""Measures of structure that the tables show; "at chance" is said of methods that are so on all of them."""
CAPTION = "Hollow: before training. Lines that end in a mark: what others find in the same data without any model."


def in_short(runs: Runs, findings: dict[str, Findings]) -> Iterator[str]:
    found, small, large = findings["synergy-sigma"], at(runs["synergy-sigma"], 0.2), at(runs["synergy-sigma"], 2.0)
    best = at(runs["synergy-sigma-512"], 0.05)
    yield say(
        (small.ready, small.total, large.ready) == (14, 15, 0)
        and found["large-sigma-finds-none"].direction == found["error-hangs-on-sigma"].direction == HOLDS
        and small.fewest > 0.9
        and best.ready == best.total == 15
        and best.fewest == 1
        and all(found[f"blind-{name}"].direction == HOLDS for name in BLIND)
        and tests_of_others(runs["synergy-sigma"], STRUCTURE).at_chance,
        f"**On groups that correlations cannot detect, sigma decides what is found**: at 0.2, {small} models find the "
        "groups and reach the least possible error within 12,000 steps; at 2.0 none does; every pairwise method stays "
        f"at chance. With batches of 512, at sigma 0.05, {best} find every group.",
    )


def synergy(runs: Runs, findings: dict[str, Findings]) -> Iterator[str]:
    yield "## One of our own: structure that no correlation can see"
    yield from sweep(runs, findings)
    yield from growth(runs)
    yield from sixty(runs)


def sweep(runs: Runs, findings: dict[str, Findings]) -> Iterator[str]:
    run, found = runs["synergy-sigma"], findings["synergy-sigma"]
    first, second = run.config["task"]["best_mse"]
    best, other = run.config["task"]["best_mse"].values()
    yield (
        "30 channels in ten hidden groups of three, each the product of the two others (signs, 0.1 noise): any two "
        f"are independent. Every seed has its own draw of 50,000 samples, 30% hidden in training. {model(run)} The "
        f"least error that anyone can expect is {number(best)} with 30% hidden and {number(other)} with 50%; on "
        "2,000 held-out samples, the same questions for all, it may come out some thousandths lower."
    )
    sigmas = sorted(done(run)["sigma"].unique())
    tallies = {sigma: at(run, sigma) for sigma in sigmas}
    rows = []
    for sigma, reached in tallies.items():
        cells = [spread(over(run, at_sigma(run, measured(run, *each), sigma))) for each in STRUCTURE]
        errors = [spread(over(run, at_sigma(run, error(run, each), sigma))) for each in (first, second)]
        rows.append((f"{sigma:g}", *cells, *errors, str(reached), f"{reached.step:,}" if reached.step else ""))
    header = ("sigma", *STRUCTURE.values(), "error, 30% hidden", "error, 50% hidden", "at the least error")
    yield grid((*header, "by step (median of those)"), rows)
    yield (
        f"Chance for the nearest channel: {chance(run, NEIGHBOURS):.2f}. At the least error: within 0.02 of it at "
        "the end. By step: of the 20 evaluations the first at which they were."
    )
    yield picture("synergy-sigma", "structure", "Groups found against sigma", CAPTION)
    some, ready = tallies[0.2], {sigma: each.ready for sigma, each in tallies.items()}
    drops = [paired(run, first, 0.2, other) for other in (2.0, 0.3)]
    yield say(
        (some.ready, some.total) == (14, 15)
        and some.fewest > 0.9
        and tallies[0.7].fewest < 0.5
        and all(each.high < 0 for each in drops)
        and falling(run, 0.01) >= 4
        and found["groups-are-found"].direction == found["error-is-the-least-possible"].direction == UNDECIDED
        and found["error-hangs-on-sigma"].direction == HOLDS
        and [ready[sigma] for sigma in (0.01, 0.02, 0.05, 0.1)] == [8, 12, 13, 13]
        and [ready[sigma] for sigma in (0.3, 0.5, 0.7, 1.0, 1.5, 2.0)] == [4, 0, 1, 0, 0, 0],
        f"**Sigma decides what is found**: at 0.2, {some} models find all groups, or nearly, and reach the least "
        "possible error within 12,000 steps; one is stuck, so the claims about means (90% of the neighbours, error "
        f"within 0.02) are undecided. The error at 0.2 less that at 2.0 is {told(drops[0])}, less that at 0.3 "
        f"{told(drops[1])}. Smaller sigmas get there later, 0.01 less often within these steps ({ready[0.01]} of "
        f"{some.total}; of the others most were still falling); 0.02 to 0.1 ({ready[0.02]} to {ready[0.1]}) are not "
        f"told apart from 0.2. Of larger ones {ready[0.3]} do at 0.3, and {ready[0.7]} at 0.7, with hardly a group "
        "in its PE; none at 0.5, 1.0, 1.5 or 2.0, though up to 1.0 they learn part of it. (Models find all groups "
        "or few, so the counts say more than means with intervals, some of which pass 1.)",
    )
    yield picture("synergy-sigma", "error", "Error against sigma", "The star is the least that anyone can expect.")
    yield baseline_table(run, STRUCTURE, (first, second))
    trees, tests = mean_error(run, "trees", first), tests_of_others(run, STRUCTURE)
    yield say(
        all(found[f"blind-{name}"].direction == HOLDS for name in BLIND)
        and tests.at_chance
        and over(run, of_baseline(run, "spectral", "ari", "labels")).low < 0
        and best + 0.1 < trees < 0.8,
        "Every pairwise method, and what is built on one (MDS, spectral clusters), is at chance. p is at most 0.05 in "
        f"{tests.low} of {tests.total} tests of the nearest channel, Q and ARI; {tests.expected:.0f} are expected by "
        "chance. The graphical lasso finds a link in only one world, and no linear predictor is better than guessing "
        f"the mean. Boosted trees, which can multiply, reach an error of {number(trees)}, but give no groups.",
    )
    yield from larger_batch(runs, findings)


def larger_batch(runs: Runs, findings: dict[str, Findings]) -> Iterator[str]:
    run = runs["synergy-sigma-512"]
    found = by(models(run), "sigma")
    yield "The same with batches of 512 instead of 128, at as many steps:"
    yield tally_table(("sigma",), found)
    early = {sigma: lost_again(run, sigma) for sigma in (0.1, 0.2)}
    before = by(models(runs["synergy-sigma"]), "sigma")
    moved = {sigma: at_sigma(run, measured(run, "moved_relative", "start"), sigma).mean() for sigma in (0.3, 2.0)}
    yield say(
        [found[sigma,].ready for sigma in (0.05, 0.1, 0.2, 0.3, 0.5, 2.0)] == [15, 14, 14, 13, 6, 0]
        and [found[sigma,].ever for sigma in (0.05, 0.1, 0.2)] == [15, 15, 15]
        and found[0.05,].fewest == 1
        and found[0.2,].step < found[0.1,].step < found[0.05,].step
        and found[0.5,].near < 0.5
        and early[0.1].near == 1,
        f"**All {found[0.05,].total} models reach the least error at 0.05, 0.1 and 0.2.** At 0.05 all stay, and find "
        f"every group. At 0.2 one leaves it after step {early[0.2].step:,} and ends at {number(early[0.2].error)}; "
        f"at 0.1 one does after step {early[0.1].step:,}, falls back to guessing for a while, and ends at "
        f"{number(early[0.1].error)}, with all its neighbours still right: a map may be right where the error is "
        "bad. And the reverse: at 0.3 and 0.5 models come to the least error whose PEs show but part of the groups. "
        f"The larger batch moves the bound for the error more (0.3: from {before[0.3,].ready} to {found[0.3,].ready} "
        f"of 15) than that for the map (from {number(before[0.3,].near)} to {number(found[0.3,].near)} of the "
        "neighbours). Smaller sigmas are slower; whether they are surer, 15, 14 and 14 do not tell. A PE of 2.0 "
        f"moves by {moved[2.0]:.0%} of its size, one of 0.3 by {moved[0.3]:.0%}: the model reads a random code "
        "rather than change it.",
    )


class Lost(NamedTuple):
    """A model that was at the least error and is not in the end."""

    step: int
    """The last evaluation at which it was."""
    error: float
    near: float


def lost_again(run: Run, sigma: float) -> Lost:
    """The one model of a sigma that left the least error again."""
    rows = models(run).query("sigma == @sigma and not ready and step == step")
    assert len(rows) == 1
    own = rows.iloc[0]
    curve = run.metrics[(run.metrics["member"] == own["member"]) & (run.metrics["condition"] == CONDITION)]
    there = curve[(curve["split"] == "test") & (curve["value"] < own["least"] + NEAR_ENOUGH)]
    return Lost(int(there["step"].max()), float(own["error"]), float(own["near"]))


def falling(run: Run, sigma: float) -> int:
    """How many models of a sigma that are not at the least error had an error that still fell by 0.02 or more at the
    last evaluation."""
    members = models(run).query("sigma == @sigma and not ready")["member"]
    rows = run.metrics[(run.metrics["split"] == "test") & (run.metrics["condition"] == CONDITION)]
    curves = rows[rows["member"].isin(members)].pivot(index="member", columns="step", values="value")
    return int((curves.iloc[:, -2] - curves.iloc[:, -1] >= 0.02).sum())


def growth(runs: Runs) -> Iterator[str]:
    run = runs["synergy-size"]
    rows = models(run)
    found, sizes = by(rows, "channels", "samples"), by(rows, "channels")
    yield "### How it grows with the number of channels"
    yield (
        f"Sigma 0.2. {model_with_512(runs)} Twice as many channels are four times as many pairs of others, one of "
        "which is the right one."
    )
    yield tally_table(("channels", "samples"), found)
    rest = rows.groupby("channels")["least"].first()
    told_of = run.config["task"]["parts"].values()
    chances = {len(part["labels"]): chance_in(part)[NEIGHBOURS] for part in told_of}
    yield (
        "By step: of the 40 evaluations the first at which they were at the least error, median of those that were. "
        f"The least error is {', '.join(number(each) for each in rest)} for 15 to 120 channels, chance for the "
        f"nearest channel {', '.join(f'{each:.2f}' for each in chances.values())}."
    )
    steps = [tally.step for tally in sizes.values()][:3]
    slow = [int(own["step"].fillna(math.inf).median()) for _, own in rows.query("channels < 120").groupby("channels")]
    ratios = [[later / sooner for sooner, later in pairwise(each)] for each in (steps, slow)]
    enough = [found[channels, 10_000].ready for channels in (15, 30, 60, 120)]
    yield say(
        enough == [3, 3, 1, 0]
        and [found[60, samples].ready for samples in (50_000, 250_000)] == [3, 2]
        and sizes[120,].ever == 0
        and all(3 < ratio < 8 for each in ratios for ratio in each),
        "**Steps grow about as the pairs do, or faster**: those that reach the least error do so after "
        f"{', '.join(f'{step:,}' for step in steps)} steps for 15, 30 and 60 channels (medians of "
        f"{', '.join(str(sizes[size,].ever) for size in (15, 30, 60))} models of 9; {ratios[0][0]:.1f} and "
        f"{ratios[0][1]:.1f} times as many for twice the channels). Counting the others as later than all, it is "
        f"{', '.join(f'{step:,}' for step in slow)}: {ratios[1][0]:.1f} and {ratios[1][1]:.1f} times. By that, 120 "
        f"channels would take some {round(steps[2] * ratios[0][1] / 1000) * 1000:,} steps or far more; none had its "
        "groups within 20,000, and more were not tried. **Of samples nothing can be said but that 10,000 are "
        "enough** for 15 and 30 channels: for 60, one of three models makes do with them, three with 50,000, two "
        "with 250,000; and of 120 channels those with 10,000 had come farthest.",
    )
    yield picture(
        *("synergy-size", "structure", "Groups found by channels and samples"),
        "Mean over 3 seeds; a group is three channels. Where the interval is wide, one or two of three found them.",
    )


def model_with_512(runs: Runs) -> str:
    fields = runs["synergy-size"].config["fields"]
    assert fields["batches"] == [512] and fields["rates"] == [1e-3] and fields["widths"] == [64]
    return f"Width 64, {fields['layers']} blocks, a step size of 0.001, batches of 512, {fields['steps']:,} steps."


def sixty(runs: Runs) -> Iterator[str]:
    run = runs["synergy-size-60"]
    yield "### 60 channels: what it takes"
    found = by(models(run), "batch", "learning_rate", "samples", "sigma")
    yield tally_table(("batch", "step size", "samples", "sigma"), found)
    least = float(models(run)["least"].iloc[0])
    yield (
        f"15,000 steps. The least error is {number(least)}; chance for the nearest channel "
        f"{chance(run, NEIGHBOURS):.2f}."
    )
    small = [found[128, 1e-3, samples, sigma] for sigma in (0.1, 0.2) for samples in (50_000, 250_000)]
    pairs = [
        (found[512, rate, 50_000, sigma].ready, found[512, rate, 250_000, sigma].ready)
        for sigma in (0.1, 0.2)
        for rate in (3e-4, 1e-3)
    ]
    yield say(
        found[512, 1e-3, 50_000, 0.2].ready == found[512, 3e-4, 50_000, 0.2].ready == 3
        and all(each.error > 0.99 for each in small)
        and all(0.9 < found[128, 3e-4, samples, 0.2].error < 0.95 for samples in (50_000, 250_000))
        and pairs == [(1, 1), (1, 2), (3, 3), (3, 2)],
        "**512 does it where 128 does not**, within 15,000 steps: at sigma 0.2 and with 50,000 samples all three "
        "models reach the least possible error, at either step size. With 128 and a step size of 0.001, which "
        "solves 30 channels, nothing is learned; at 0.0003, sigma 0.2, errors were falling when training ended. "
        "Whether more samples help cannot be told from three seeds. At the smaller step size the error is as low, "
        "but the PE, all blocks side by side, shows the groups less: a low error does not tell that the map is "
        "right.",
    )
    yield "What else was tried with batches of 128, a step size of 0.001, sigma 0.2 and 50,000 samples, 3 seeds each:"
    tried = (
        ("as above", "synergy-size-60-ramps", "ramp == 0"),
        ("60,000 steps instead of 15,000", "synergy-size-60-long", "sigma == 0.2"),
        ("one channel hidden at first, growing to 30% by step 5,000", "synergy-size-60-ramps", "ramp == 5000"),
        ("the same by step 10,000", "synergy-size-60-ramps", "ramp == 10000"),
        ("10% hidden in training", "synergy-size-60-shares", "hidden == 0.1"),
        ("20% hidden in training", "synergy-size-60-shares", "hidden == 0.2"),
        ("50% hidden in training", "synergy-size-60-shares", "hidden == 0.5"),
        ("width 32 instead of 64", "synergy-size-60-widths", "width == 32"),
        ("width 128", "synergy-size-60-widths", "width == 128"),
    )
    yield tried_table(runs, tried)
    tallies = [tally(models(runs[name]).query(which)) for _, name, which in tried]
    yield say(
        all(each.ready == 0 and each.error > 0.98 for each in tallies),
        "**None of it helps** (one model of width 32 finds a group). 60,000 steps of 128 see as many examples as "
        "15,000 of 512: at this step size it is not how many examples are seen, but how many go into a step. Nor "
        "does a curriculum help, few hidden channels first. A smaller step size for longer may do as well as a "
        "larger batch; it was not tried, nor any of this with 512. All of it was tried after the runs above were "
        "known.",
    )
