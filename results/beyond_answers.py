"""The questions of docs/beyond.md and their answers, each written with the condition under which it is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from latin_tables import Findings
from wording import effect, grid, plain, say, told

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
    moved = causal_claims.of(run, "learned", [0.2], measured(run, "moved_relative", "start")).mean()
    return say(
        verdicts(found, HOLDS, "size-spoils-a-learned-pe", "size-mends-a-learned-pe", "training-the-pe-is-not-needed")
        and found["transplant-helps"].found.high < causal_claims.EQUAL
        and found["transplant-helps"].verdict != HOLDS
        and moved < 0.1
        and not any(each.verdict == FAILS for each in found.values() if each.claim.source == causal_claims.CONTROL),
        "With Adam at the published step size it is neither by epoch 200: its size decides. Given to a fresh model and "
        f"frozen, a PE learned at sigma 0.2 loses {plain(found['size-spoils-a-learned-pe'].found)} of accuracy when it "
        f"is made as large as 2.0, and one learned at 2.0 gains {plain(found['size-mends-a-learned-pe'].found)} when "
        f"it is made as small as 0.2, while what was learned in it adds {effect(found['transplant-helps'])} over the "
        f"same PE before training. But it has learned little by then: at sigma 0.2 it moved by {100 * moved:.0f}% of "
        "its size.",
    )


def causal_long(run: Run, found: Findings) -> Iterator[str]:
    rsa = measured(run, "rsa", "relation")
    axes, learned = (causal_claims.of(run, kind, [0.2], rsa).mean() for kind in ("rows and columns, frozen", "learned"))
    at_one = causal_claims.between("rows and columns, frozen", "random, frozen", [1.0], run)
    small = causal_claims.between("true, frozen", "random, frozen", [0.1], run)
    later = causal_claims.between("true, frozen", "random, frozen", [0.2, 0.5], run)
    yield say(
        verdicts(found, HOLDS, "rows-and-columns-help")
        and verdicts(found, FAILS, "rows-and-columns-rescue-a-large-size", "2d-fixed-helps"),
        "**An arrangement can be a cause.** A PE made of a random vector for each row and each column does better than "
        f"a random one of the same size, {effect(found['rows-and-columns-help'])} over the sizes 0.1 to 0.5 and "
        f"{told(at_one)} at 1, also after a quarter of the training, {effect(found['rows-and-columns-speed-up'])}. Its "
        f"similarities have an RSA of {axes:.2f} with the relation of cells; those that Adam has learned at sigma 0.2 "
        f"have {learned:.2f} by then. At size 2.0 it adds {effect(found['rows-and-columns-rescue-a-large-size'])}, "
        f"where a small size is worth {plain(found['size-mends-a-learned-pe'].found)}.",
    )
    yield say(
        small.high < later.low,
        "**2d-fixed is another case.** At the same root mean square it does worse than a random PE, "
        f"{effect(found['2d-fixed-helps'])}, most of it at the smallest size, {told(small)} at 0.1 and {told(later)} "
        f"over 0.2 and 0.5. But {100 * shared_part():.0f}% of its squared size is a vector that all cells share, and "
        "it is the same in every block: what tells its cells apart is much smaller than its size.",
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
    open_ = found["control-transplant-of-another"]
    yield say(
        verdicts(
            found,
            HOLDS,
            *("control-freezing", "control-starting-at-the-truth", "control-shuffling", "control-swapping"),
            *("control-rescaling", "control-rescaling-a-donor", "control-putting-back", "control-ablating"),
        )
        and open_.verdict == UNDECIDED
        and open_.found.low < 0 < open_.found.high,
        "**Controls.** What must do nothing does nothing: the exchanges of trained models are exact, and so are the "
        "two ways to freeze and the two ways to start at 2d-fixed. One is a matter of chance, and too noisy with 5 "
        f"seeds to be sure of within 0.05: an untrained PE of another seed in place of one's own, {effect(open_)}.",
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
    yield say(
        list(trained) == run.config["fields"]["sgd_rates"]
        and lowest > 0.98
        and slow.low > 0
        and abs(usual.mean) < 0.02,
        "**With a large enough step size, SGD hardly knows sigma.** At 0.03 it ends at "
        f"{lowest:.3f} or above at every sigma from {sigmas[0]:g} to {sigmas[-1]:g}; what sigma 0.2 is worth over 1 is "
        f"{told(slow)} at a step size of 0.003 and {told(usual, 3)} at 0.03. With Adam, too, it is worth less at "
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


ANSWERS: dict[str, Answer] = {
    "lst-causal": Answer(
        "Is the learned PE the cause of generalization, or its trace?", causal_short, causal_long, ("causes",)
    ),
    "lst-optimizer": Answer(
        "Does Adam dip at small sigmas where SGD does not?", optimizer_short, optimizer_long, ("accuracy",)
    ),
    "lst-heads": Answer("Do more attention heads hurt?", heads_short, heads_long, ("accuracy",)),
    "lst-placement": Answer(
        "Does the PE have to be added in every block?", placement_short, placement_long, ("accuracy",)
    ),
}
