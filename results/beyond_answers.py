"""The questions of docs/beyond.md and their answers, each written with the condition under which it is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from latin_tables import Findings
from wording import effect, flipped, grid, plain, say, told

from placecode.analysis.stats import Interval, interval
from placecode.claims import NOT_REPRODUCED, REPRODUCED, UNDECIDED
from placecode.encodings import sinusoid
from placecode.runs import Run
from placecode.studies import causal_claims, interventions, optimizer_claims
from placecode.studies.knob_claims import FITTED, of, worth
from placecode.studies.reading import measured, where

HERE = Path(__file__).parent
HOLDS, FAILS = REPRODUCED, NOT_REPRODUCED


@dataclass(frozen=True)
class Answer:
    """A question, its answer in a sentence, what more there is to say, and the figures that show it."""

    question: str
    short: Callable[[Run, Findings], str]
    long: Callable[[Run, Findings], Iterator[str]]
    figures: tuple[str, ...]


def verdicts(found: Findings, wanted: str, *ids: str) -> bool:
    """Whether all of these claims have this verdict."""
    return all(found[id].verdict == wanted for id in ids)


def shared_part() -> float:
    """The share of the squared size of 2d-fixed that lies in the mean over cells."""
    pe = sinusoid(np.stack(np.divmod(np.arange(16.0), 4), axis=1), 160)
    return float((pe.mean(axis=0) ** 2).sum() / (pe**2).sum(axis=1).mean())


def mean(values: pd.Series) -> Interval:
    return interval(values.dropna().to_numpy())


# ------------------------------------------------------------------------------------------------------- lst-causal


def causal_short(run: Run, found: Findings) -> str:
    return say(
        verdicts(found, HOLDS, "size-spoils-a-learned-pe", "size-mends-a-learned-pe", "what-masters-learned-helps")
        and verdicts(found, HOLDS, "training-the-pe-is-not-needed")
        and found["sgd-needs-a-learned-pe"].found.high < 0.02
        and not any(each.verdict == FAILS for each in found.values() if each.claim.source == causal_claims.CONTROL),
        "What decides is the size of the PE, whatever has been learned in it: given to a fresh model and frozen, one "
        f"learned at sigma 0.2 loses {plain(found['size-spoils-a-learned-pe'].found)} of accuracy when it is made as "
        f"large as 2.0, and one learned at 2.0 gains {plain(found['size-mends-a-learned-pe'].found)} when it is made "
        "as small as 0.2. At the same size, a learned arrangement is a cause, a smaller one "
        f"({effect(found['what-masters-learned-helps'])} over the same with its cells in random order); but it is not "
        "needed: PEs frozen at a small random start do as well as learned ones, with Adam and with SGD.",
    )


def causal_long(run: Run, found: Findings) -> Iterator[str]:
    rsa, moved = measured(run, "rsa", "relation"), measured(run, "moved_relative", "start")
    axes, learned = (causal_claims.of(run, kind, [0.2], rsa).mean() for kind in ("rows and columns, frozen", "learned"))
    at_one = causal_claims.between("rows and columns, frozen", "random, frozen", [1.0], run)
    disturbed = causal_claims.between("master's shuffled, frozen", "random, frozen", causal_claims.SMALLS, run)
    yield say(
        disturbed.mean < -0.03
        and verdicts(found, HOLDS, "masters-learned", "what-masters-learned-helps", "rows-and-columns-help")
        and verdicts(found, UNDECIDED, "what-masters-learned-beats-random", "what-masters-learned-helps-at-1.0")
        and found["rows-and-columns-speed-up"].verdict == HOLDS,
        "**A learned arrangement is a cause.** Models trained by SGD from a tiny start (here called masters) learn "
        f"rows and columns: the similarities of their PEs have an RSA of {plain(found['masters-learned'].found)} with "
        "the relation of cells. Brought to a size of 0.1 to 0.5, frozen, and given to a fresh model, such a PE does "
        f"better than the same with its cells in random order, {effect(found['what-masters-learned-helps'])}; at size "
        f"1.0 that is undecided, {effect(found['what-masters-learned-helps-at-1.0'])}. Over a random PE of the same "
        f"size it is undecided too, {effect(found['what-masters-learned-beats-random'])}: a wrong arrangement costs "
        f"something as well, {told(disturbed)} for the shuffled one. A PE made of a random vector "
        f"for each row and each column (RSA {axes:.2f}) does better than a random one, "
        f"{effect(found['rows-and-columns-help'])}, {told(at_one)} at size 1, and so it does after a quarter of the "
        f"training, {effect(found['rows-and-columns-speed-up'])}.",
    )
    by_sgd = causal_claims.of(run, "learned, by SGD", causal_claims.SMALLS, rsa).mean()
    shift = causal_claims.of(run, "learned", [0.2], moved).mean()
    yield say(
        shift < 0.1 and learned < 0.4 and found["transplant-helps"].found.high < causal_claims.EQUAL,
        "**It is not needed, and where Adam learned it was hardly there.** By epoch 200 Adam at the published step "
        f"size has moved a PE of sigma 0.2 by {100 * shift:.0f}% of its size (RSA {learned:.2f}), which adds "
        f"{effect(found['transplant-helps'])} over the same PE before training. A learned PE does as well as a random "
        f"one that is frozen, {effect(found['training-the-pe-is-not-needed'])}. By SGD (step size "
        f"{run.config['fields']['sgd_rate']:g}), too, {effect(found['sgd-needs-a-learned-pe'])}, where learned PEs end "
        f"at an RSA of {by_sgd:.2f} over the same sizes: what they have learned is then a trace.",
    )
    yield say(
        verdicts(found, HOLDS, "sgd-minds-size")
        and found["size-spoils-what-masters-learned"].found.low > 0
        and verdicts(found, FAILS, "rows-and-columns-rescue-a-large-size"),
        "**Size comes first, for any arrangement and either optimizer.** By SGD, size 0.2 is worth "
        f"{plain(found['sgd-minds-size'].found)} over 2.0. A master's PE loses "
        f"{plain(found['size-spoils-what-masters-learned'].found)} when it is made as large as 2.0, and at that size "
        f"rows and columns add {effect(found['rows-and-columns-rescue-a-large-size'])} over a random PE.",
    )
    yield say(
        verdicts(found, FAILS, "2d-fixed-helps")
        and verdicts(found, HOLDS, "centring-helps-2d-fixed")
        and abs(found["centred-2d-fixed-beats-random"].found.mean) < causal_claims.EQUAL,
        "**2d-fixed is no better than random, once its mean is taken out, and worse before.** At the same root mean "
        f"square it does worse than a random PE, {effect(found['2d-fixed-helps'])}. But {100 * shared_part():.0f}% of "
        "its squared size is a vector that all cells share, so that what tells its cells apart is much smaller than "
        f"its size. Less that vector it gains {effect(found['centring-helps-2d-fixed'])}, and does as a random one "
        f"does, {effect(found['centred-2d-fixed-beats-random'])}.",
    )
    lost = {
        name: causal_claims.exchanged("learned", [0.2], name, run)
        for name in (interventions.OTHER_SEED, interventions.NOTHING, interventions.START)
    }
    yield say(
        verdicts(found, HOLDS, "a-trained-model-needs-its-own-pe", "a-trained-model-needs-what-its-pe-learned")
        and lost[interventions.START].high < 0.1,
        "**A trained model needs its own PE, and little of what that has learned.** At sigma 0.2 it loses "
        f"{plain(lost[interventions.OTHER_SEED])} with the PE of another seed, as much as with none, "
        f"{plain(lost[interventions.NOTHING])}; with the PE as it was before training it loses "
        f"{plain(lost[interventions.START])}, and "
        f"{plain(found['a-trained-model-needs-what-its-pe-learned'].found)} over sigma 0.1 and 0.2. The weights have "
        "learned to read one random code.",
    )
    controls = {id: each for id, each in found.items() if each.claim.source == causal_claims.CONTROL}
    open_ = controls.pop("control-transplant-of-another")
    inexact = [id for id, each in controls.items() if not each.found.low == each.found.high == 0]
    yield say(
        verdicts(controls, HOLDS, *controls)
        and inexact == ["control-transplant", "control-rescaling-a-donor"]
        and open_.verdict == UNDECIDED
        and open_.found.low < 0 < open_.found.high,
        f"**Controls.** What must do nothing does nothing: {len(controls) - len(inexact)} controls are exact, one's "
        f"own untrained PE by way of a transplant makes {effect(controls['control-transplant'])}, and a donor's PE "
        f"rescaled to the size it has {effect(controls['control-rescaling-a-donor'])}: rounding, as these train in "
        "other company. One more is a matter of chance, and too noisy with 5 seeds to be sure of within 0.05: an "
        f"untrained PE of another seed in place of one's own, {effect(open_)}.",
    )


# ---------------------------------------------------------------------------------------------------- lst-optimizer


def dips_of_adam(run: Run) -> dict[float, Interval]:
    """What Adam loses at each tiny sigma against 0.2."""
    plain_adam = optimizer_claims.usual("adam", run)
    return {
        sigma: mean(of(run, [0.2], **plain_adam) - of(run, [sigma], **plain_adam)) for sigma in optimizer_claims.TINY
    }


def optimizer_short(run: Run, found: Findings) -> str:
    by_sigma = dips_of_adam(run)
    return say(
        verdicts(
            found, HOLDS, "adam-dips", "sgd-does-not-dip", "adam-dips-more-than-sgd", "sgd-beats-adam-at-tiny-sigma"
        )
        and by_sigma[0.01].low > 0
        and by_sigma[0.1].low < 0,
        "Yes, as the paper says: from sigma 0.2 to those below (mean over 0.01, 0.05 and 0.1) Adam loses "
        f"{plain(found['adam-dips'].found)}, most of it at 0.01 ({plain(by_sigma[0.01])}) and none for sure at 0.1 "
        f"({plain(by_sigma[0.1])}); SGD with momentum loses {plain(found['sgd-does-not-dip'].found)}, and is ahead "
        f"there by {plain(found['sgd-beats-adam-at-tiny-sigma'].found)}.",
    )


def optimizer_long(run: Run, found: Findings) -> Iterator[str]:
    pilot = pd.read_csv(HERE / "lst-optimizer" / "pilot.csv")
    tried = ", ".join(f"{rate:g}" for rate in pilot["learning_rate"])
    trained = pilot.loc[pilot["train"] > FITTED, "learning_rate"]
    best = {"optimizer": "sgd", "learning_rate": 0.03}
    sigmas = run.config["fields"]["sigmas"]
    lowest = min(float(of(run, [sigma], **best).mean()) for sigma in sigmas)
    slow, usual = (mean(worth(run, {"optimizer": "sgd", "learning_rate": rate}, 1.0)) for rate in (0.003, 0.03))
    large = Run(HERE / "lst-optimizer-large")
    at_two = {rate: mean(of(large, [2.0], optimizer="sgd", learning_rate=rate)) for rate in trained}
    yield say(
        list(trained) == run.config["fields"]["sgd_rates"]
        and lowest > 0.98
        and slow.low > 0
        and abs(usual.mean) < 0.02
        and max(each.mean for each in at_two.values()) < 0.5,
        "**With a large enough step size, SGD does not mind sigma up to 1.** At 0.03 it ends at "
        f"{lowest:.3f} or above at every sigma from {sigmas[0]:g} to {sigmas[-1]:g}; what sigma 0.2 is worth over 1 is "
        f"{told(slow)} at a step size of 0.003 and {told(usual, 3)} at 0.03. But at sigma 2 it ends at "
        f"{plain(at_two[0.03])}, and no step size does well there (at most "
        f"{plain(max(at_two.values()))}, `results/lst-optimizer-large`). With Adam, too, sigma 0.2 is worth less at "
        f"larger step sizes (figure). Step sizes of SGD were taken from a pilot on one other seed: {tried} were tried, "
        "and the three that learned the training puzzles are in the study (`results/lst-optimizer/pilot.csv`).",
    )
    yield learned_arrangements(run)
    yield say(
        verdicts(found, FAILS, "fast-pe-harms-adam")
        and found["fast-pe-harms-adam"].found.low > 0
        and found["slow-pe-mends-adam"].verdict != HOLDS
        and found["epsilon-mends-adam"].verdict == UNDECIDED,
        "**A PE that learns faster mends Adam's dip.** We had expected the opposite: that its steps, which do not "
        "shrink with the gradient, shake a tiny PE. But a PE with ten times the step size of the rest adds "
        f"{effect(found['fast-pe-harms-adam'])} at those sigmas, one with a tenth "
        f"{effect(found['slow-pe-mends-adam'])}. A large epsilon is undecided, {effect(found['epsilon-mends-adam'])}.",
    )


def learned_arrangements(run: Run) -> str:
    """What the PEs of each optimizer have become at the tiny sigmas, beside accuracy."""
    rsa, usual = measured(run, "rsa", "relation"), optimizer_claims.usual("adam", run)
    kinds = {
        "Adam, a tenth of the step size for the PE": {**usual, "pe_learning_rate": 0.1 * usual["learning_rate"]},
        "Adam": usual,
        "Adam, ten times the step size for the PE": {**usual, "pe_learning_rate": 10 * usual["learning_rate"]},
        "SGD": optimizer_claims.usual("sgd", run),
    }
    rows = [
        (
            name,
            *(f"{where(run, rsa, [sigma], **columns).mean():.2f}" for sigma in (*optimizer_claims.TINY, 1.0)),
            *(f"{of(run, [sigma], **columns).mean():.3f}" for sigma in (*optimizer_claims.TINY, 1.0)),
        )
        for name, columns in kinds.items()
    ]
    by_adam, by_sgd = (where(run, rsa, optimizer_claims.TINY, **kinds[name]).mean() for name in ("Adam", "SGD"))
    head = [f"{what} at {sigma:g}" for what in ("RSA", "accuracy") for sigma in (*optimizer_claims.TINY, 1.0)]
    return say(
        by_sgd > 0.6 > 0.4 > by_adam,
        "**SGD does learn the arrangement from a tiny start, and Adam does not.** RSA of the PEs with the relation of "
        f"rows and columns at the end (means over seeds), beside accuracy:\n\n{grid(('', *head), rows)}\n\nWhether "
        "the arrangement is the reason for the accuracy this table cannot tell: at sigma 1 SGD generalizes without it.",
    )


# -------------------------------------------------------------------------------------------------------- the shape


def heads_short(run: Run, found: Findings) -> str:
    return say(
        verdicts(found, HOLDS, "4-heads-hurt", "4-heads-hurt-at-0.2"),
        f"More heads hurt, as the paper says: 4 heads lose {plain(found['4-heads-hurt'].found)} against one over the "
        f"sigmas, {plain(found['4-heads-hurt-at-0.2'].found)} at 0.2. For 2 heads it is "
        + ("sure too" if found["2-heads-hurt"].verdict == HOLDS else "likely, but not sure with 5 seeds")
        + f", {effect(found['2-heads-hurt'])}.",
    )


def heads_long(run: Run, found: Findings) -> Iterator[str]:
    yield say(
        verdicts(found, HOLDS, "small-sigma-at-every-heads"),
        "The effect of sigma is there with any number of heads: where it is smallest, 0.2 is worth "
        f"{plain(found['small-sigma-at-every-heads'].found)} over 2.0.",
    )


def placement_short(run: Run, found: Findings) -> str:
    return say(
        verdicts(found, HOLDS, "input-alone-is-enough", "every-block-makes-sigma-matter"),
        "No; and that it is makes sigma matter so much. At sigma 0.2 a PE at the input alone does as well "
        f"({effect(found['input-alone-is-enough'])}); but sigma 0.2 is worth "
        f"{plain(found['every-block-makes-sigma-matter'].found)} more over 2.0 where the PE is added in every block.",
    )


def placement_long(run: Run, found: Findings) -> Iterator[str]:
    every, once = (mean(worth(run, {"placement": where})) for where in ("every", "input"))
    yield (
        f"In every block, 0.2 less 2.0 is {told(every)}; at the input alone {told(once)}. Common models add their PE "
        "once: for them a large sigma costs less than the paper's model suggests."
    )


# ----------------------------------------------------------------------------------------------------- weight decay


def ends(found: Interval) -> str:
    return f"{found.mean:.2f} ({found.low:.2f} to {min(1.0, found.high):.2f})"


def collapsed(run: Run, **columns: Any) -> tuple[int, int]:
    """How many members had learned the training puzzles and lost them again, or diverged; and of how many."""
    rows = run.metrics[(run.metrics["split"] == "train") & (run.metrics["condition"] == "all")]
    curves = rows[rows["metric"] == "accuracy"].pivot(index="member", columns="step", values="value")
    lost = (curves.max(axis=1) > 0.9) & ~(curves.iloc[:, -1] > 0.5)
    own = run.members[(run.members[list(columns)] == pd.Series(columns)).all(axis=1)]
    gone = own["member"].map(lost) | (own["state"] != "done")
    return int(gone.sum()), len(own)


def decay_short(run: Run, found: Findings) -> str:
    without, mild = (mean(optimizer_claims.gap_to_truth(run, amount)) for amount in (0.0, 1.0))
    both = [
        mean(of(run, [0.2], **optimizer_claims.decaying("all", 1.0))),
        mean(optimizer_claims.true_positions(run, 1.0)),
    ]
    return say(
        verdicts(found, FAILS, "decay-reaches-0.97")
        and verdicts(found, UNDECIDED, "decay-matches-2d-fixed", "decay-closes-the-gap", "there-is-a-gap-to-close")
        and both[0].low > 0.97
        and max(map(abs, mild)) < optimizer_claims.EQUAL,
        "Not with a decay of 3, for which the claims were declared: it undoes training. With a decay of 1 both end "
        f"near the published 0.99, the learned PE at sigma 0.2 at {ends(both[0])} and 2d-fixed at {ends(both[1])}, a "
        f"gap of {told(mild)}; but this decay was singled out after the run, and the gap it closes is another than the "
        f"paper's: by epoch 200 without decay 2d-fixed is not ahead, {told(without)}.",
    )


def decay_long(run: Run, found: Findings) -> Iterator[str]:
    gone, of_all = collapsed(run, sigma=0.2, weight_decay=3.0, pe_weight_decay=3.0)
    none, of_none = collapsed(run, weight_decay=0.0, encoding="learned")
    yield say(
        gone > of_all / 2 and none == 0,
        f"**A decay of 3 on all weights undoes training.** {gone} of {of_all} models at sigma 0.2 had learned the "
        "training puzzles and lost them again, or diverged, when their weights had become small; of those whose "
        f"weights do not decay, none of {of_none}. There it costs {plain(flipped(found['decay-on-all-lifts'].found))} "
        "of accuracy.",
    )
    sigmas, base = (0.1, 0.2, 0.5, 1.0, 2.0), optimizer_claims.decaying("all", 0.0)
    kinds = {
        "none": base,
        "1, all weights": optimizer_claims.decaying("all", 1.0),
        "1, all but the PE": optimizer_claims.decaying("rest", 1.0),
        "1, the PE alone": optimizer_claims.decaying("pe", 1.0),
        "3, the PE alone": optimizer_claims.decaying("pe", 3.0),
    }
    rows = [
        (name, *(f"{of(run, [sigma], **columns).mean():.3f}" for sigma in sigmas)) for name, columns in kinds.items()
    ]
    alone = mean(of(run, [0.2, 0.5], **kinds["3, the PE alone"]) - of(run, [0.2, 0.5], **base))
    rescued = found["decay-on-pe-rescues-large-sigma"].found
    yield say(
        alone.low > 0 and rescued.low > 0,
        "**Decay of the PE alone helps most, and at large sigmas above all.** A decay of 3 that spares the other "
        f"weights adds {told(alone)} over sigma 0.2 and 0.5, and {told(rescued)} at 2.0: it is a way from a large PE "
        "to a small one. Held-out accuracy (means over seeds), by what decays:\n\n"
        + grid(("decay", *(f"sigma {sigma:g}" for sigma in sigmas)), rows),
    )


# ------------------------------------------------------------------------------------------------- training puzzles


def data_short(run: Run, found: Findings) -> str:
    few, some = (mean(worth(run, {"data": f"puzzles={count}"})) for count in (1000, 4000))
    return say(
        verdicts(found, HOLDS, "more-puzzles-help") and max(map(abs, few)) < 0.2 and some.low > 0,
        "It shows where there are enough puzzles to generalize from at all: with 4,000 a small sigma is worth "
        f"{plain(some)} over 2.0, with 1,000 nothing is learned that holds elsewhere, at any sigma "
        f"({told(few)}). From 1,000 to 8,100 puzzles sigma 0.2 gains {plain(found['more-puzzles-help'].found)}.",
    )


def data_long(run: Run, found: Findings) -> Iterator[str]:
    sigmas, counts = (0.1, 0.2, 0.5, 1.0, 2.0), run.config["fields"]["samples"]
    rows = [
        (f"{count:,}", *(f"{of(run, [sigma], data=f'puzzles={count}').mean():.3f}" for sigma in sigmas))
        for count in counts
    ]
    yield (
        "All numbers of puzzles are trained for the same number of steps, and are learned by heart at sigma 0.2. All "
        "seeds get the same puzzles, so that intervals do not tell what other puzzles would change. "
        "Held-out accuracy (means over seeds):\n\n"
        + grid(("training puzzles", *(f"sigma {sigma:g}" for sigma in sigmas)), rows)
    )
    yield say(
        verdicts(found, UNDECIDED, "more-puzzles-do-not-replace-sigma"),
        "We had thought that a quarter of the puzzles at sigma 0.2 would do better than all of them at 2.0. That is "
        f"undecided, {effect(found['more-puzzles-do-not-replace-sigma'])}.",
    )


ANSWERS: dict[str, Answer] = {
    "lst-causal": Answer(
        "Is the learned PE the cause of generalization, or its trace?", causal_short, causal_long, ("causes",)
    ),
    "lst-optimizer": Answer(
        "Does Adam dip at small sigmas where SGD does not?", optimizer_short, optimizer_long, ("accuracy",)
    ),
    "lst-heads": Answer("Do more attention heads hurt?", heads_short, heads_long, ("accuracy",)),
    "lst-decay": Answer(
        "Does weight decay close the gap between a learned PE and 2d-fixed?", decay_short, decay_long, ("accuracy",)
    ),
    "lst-placement": Answer(
        "Does the PE have to be added in every block?", placement_short, placement_long, ("accuracy",)
    ),
    "lst-data": Answer(
        "Does the effect of sigma depend on the number of training puzzles?", data_short, data_long, ("accuracy",)
    ),
}
