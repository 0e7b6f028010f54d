"""The section of docs/reproduction.md on lst-slingshot: a loss with one log-softmax, and one with two."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from latin_tables import Findings
from wording import effect, grid, mean, picture, say, spread, told

from placecode.experiments.claims import UNDECIDED
from placecode.experiments.latin.training_claims import EARLY, late_gain
from placecode.experiments.reading import accuracy, swept
from placecode.reports.pages.training_words import spikes
from placecode.runs.read import Run

SIGMAS = (0.2, 1.0, 2.0)
KINDS = {
    "two log-softmax": ("log_softmax=2", True),
    "one log-softmax": ("log_softmax=1", True),
    "one log-softmax, PE frozen": ("log_softmax=1", False),
}
PUZZLES = 108
"""Held-out puzzles."""
PAUSE = 100
"""Epochs with a loss of 0 after which the other runs stop a model."""


def section(run: Run, highest: Run, found: Findings) -> Iterator[str]:
    """The table, the figures, and what they show."""
    fields = run.config["fields"]
    yield "## One log-softmax or two"
    yield (
        f"The same models with either loss, for {fields['epochs']:,} epochs without stopping, "
        f"{len(fields['seeds'])} seeds. *Spikes* counts how often the training loss rose above 0.0001 after it had "
        "been below 0.00001."
    )
    yield _table(run)
    for sigma in SIGMAS:
        yield picture(
            *("lst-slingshot", f"slingshots-{sigma:g}", f"One log-softmax or two, sigma {sigma:g}"),
            "Thin lines are single seeds.",
        )
    after, spiked = after_rest(run), spikes(run)
    two, one = members(run, "two log-softmax"), [*members(run, "one log-softmax"), *frozen_members(run)]
    settled = [name for name in found if name.startswith("settled-by")]
    puzzles = (after[two].abs() * PUZZLES).round()
    yield say(
        bool(after[two].notna().all())
        and sorted(puzzles)[-2:] == [0, 2]
        and not spiked[members(run, "two log-softmax", 0.2, 1.0)].any(),
        f"**With two log-softmax training comes to rest.** In all {len(two)} models the training loss becomes exactly "
        f"0 and stays there. From {PAUSE} epochs later until the end, accuracy changes in none of them but one, by 2 "
        f"of {PUZZLES} puzzles. So the models of the other runs, which stop at that point, would have gained nothing "
        "by training on.",
    )
    yield say(
        all(found[name].direction == UNDECIDED for name in settled),
        f"After epoch {EARLY} accuracy changes by {effect(found['settled-by-200-at-0.2'])} at sigma 0.2, "
        f"{effect(found['settled-by-200-at-1'])} at 1 and {effect(found['settled-by-200-at-2'])} at 2. The authors' "
        "logs stay within 0.02; with 5 seeds our intervals are too wide to tell.",
    )
    early = late_gain(run)[[*members(run, "one log-softmax", 0.2, 1.0), *frozen_members(run, 0.2, 1.0)]]
    raised = [f"slingshots-raise-{kind}-at-{sigma:g}" for kind in ("accuracy", "frozen") for sigma in SIGMAS]
    yield say(
        bool((spiked[one] >= 2).all()) and all(found[name].direction == UNDECIDED for name in raised),
        f"**With one, the loss spikes again and again**: at least twice in each of the {len(one)} models, first at "
        f"epoch {first_spikes(run)[one].min()} to {first_spikes(run)[one].max():,}. Before each spike the mean of the "
        "logits drifts away from 0, as [explained above](#beside-the-authors-accuracies).",
    )
    yield say(
        bool((early >= 0).all()) and all(found[name].direction == UNDECIDED for name in raised),
        f"**Accuracy tends to rise with the spikes at sigma 0.2 and 1; with 5 seeds this is not certain.** None of the "
        f"{len(early)} models there ends below its accuracy at epoch {EARLY}, and the mean gain is "
        f"{early.mean():.2f}. The gain with one log-softmax minus that with two is "
        f"{effect(found['slingshots-raise-accuracy-at-0.2'])} at 0.2, "
        f"{effect(found['slingshots-raise-accuracy-at-1'])} at 1 and "
        f"{effect(found['slingshots-raise-accuracy-at-2'])} at 2: every interval includes 0. With frozen PEs the gain "
        f"is as large ({effect(found['slingshots-raise-frozen-at-1'])} at sigma 1), so it does not come from what the "
        "PE learns.",
    )
    gains, counts, first = late_gain(highest), spikes(highest), first_spikes(highest)
    yield say(
        bool((gains > 0).all() and (counts > 0).all()) and highest.config["precision"] == "highest",
        f"**Rounding of the loss, not of the products, makes the spikes**: in true float32 (precision `highest`, "
        f"{len(gains)} models at sigma 0.2 and 1, {highest.config['fields']['epochs']} epochs) the loss spikes too, "
        f"first at epoch {first.min()} to {first.max()}, and accuracy ends {gains.min():.2f} to {gains.max():.2f} "
        f"above that at epoch {EARLY}.",
    )


def members(run: Run, kind: str, *sigmas: float) -> list[int]:
    """The members of one kind, at these sigmas or at all."""
    data, learn = KINDS[kind]
    rows = swept(run)
    rows = rows[(rows["data"] == data) & (rows["learn"] == learn) & rows["sigma"].isin(sigmas or SIGMAS)]
    return [int(member) for member in rows["member"]]


def frozen_members(run: Run, *sigmas: float) -> list[int]:
    return members(run, "one log-softmax, PE frozen", *sigmas)


def losses(run: Run) -> pd.DataFrame:
    """The training loss by epoch and member."""
    rows = run.metrics[(run.metrics["split"] == "train") & (run.metrics["metric"] == "loss")]
    table = rows[rows["condition"] == "all"].pivot(index="step", columns="member", values="value").sort_index()
    return table.set_axis(table.index // per_epoch(run))


def first_spikes(run: Run) -> pd.Series:
    """The epoch of the first evaluation at which the loss had risen again, by member; -1 if never."""
    found = {}
    for member, values in losses(run).items():
        low = (values < 1e-5).cummax()
        risen = values.index[low.shift(fill_value=False) & (values > 1e-4)]
        found[member] = int(risen[0]) if len(risen) else -1
    return pd.Series(found)


def after_rest(run: Run) -> pd.Series:
    """Accuracy at the end minus that PAUSE epochs after the last loss above 0, by member; NaN without such a pause."""
    table, end = losses(run), accuracy(run)
    found = {}
    for member, values in table.items():
        quiet = table.index[table.index >= values.index[values > 0].max() + PAUSE]
        at_rest = accuracy(run, step=int(quiet[0]) * per_epoch(run))[member] if len(quiet) else float("nan")
        found[member] = end[member] - at_rest
    return pd.Series(found)


def _table(run: Run) -> str:
    early, end, spiked = accuracy(run, step=EARLY * per_epoch(run)), accuracy(run), spikes(run)
    rows = []
    for sigma in SIGMAS:
        for kind in KINDS:
            own = members(run, kind, sigma)
            counts = sorted(spiked[own])
            rows.append(
                (
                    f"{sigma:g}",
                    kind,
                    spread(mean(early[own])),
                    spread(mean(end[own])),
                    told(mean(end[own] - early[own]), digits=3),
                    f"{counts[0]} to {counts[-1]}",
                )
            )
    heads = ("sigma", "loss", f"accuracy at epoch {EARLY}", "at the end", "change", "spikes per model")
    return grid(heads, rows)


def per_epoch(run: Run) -> int:
    """Training steps of an epoch."""
    return int(run.metrics["step"].max()) // int(run.config["fields"]["epochs"])
