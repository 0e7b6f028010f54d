"""The page of lst-causal: whether the PE is cause or trace, and what the answer rests on."""

from __future__ import annotations

import contextlib
import math

import pandas as pd

from placecode.experiments.claims import FAILS, UNDECIDED, Finding, NotInRun, direction_text
from placecode.experiments.latin import interventions
from placecode.experiments.latin.causal_claims import CLAIMS, CONTROL
from placecode.experiments.latin.causal_effects import LEARNED
from placecode.experiments.latin.effects import LARGE, SMALL
from placecode.experiments.reading import accuracy, done, measured
from placecode.reports import figures
from placecode.reports.pages import knobs
from placecode.reports.pages.base import Shown
from placecode.reports.pages.knobs import in_words, lost, unsettled_words
from placecode.reports.pages.latin_figures import chance_of, run_name
from placecode.runs.read import Run

LINES = (
    *("random, frozen", "learned", "donor's, frozen", "rows and columns, frozen", "true, frozen", "master's, frozen"),
)
"""Kinds that are drawn against size; the others differ from one of them in a single thing, and are in the rows."""
ROWS = {
    "size-spoils-a-learned-pe": ("size", "a learned PE (of 0.2): small less large"),
    "size-mends-a-learned-pe": ("size", "a learned PE (of 2.0): small less large"),
    "size-spoils-what-masters-learned": ("size", "a master's PE: small less large"),
    "sgd-minds-size": ("size", "a PE learned by SGD: small less large"),
    "training-the-pe-is-not-needed": ("arrangement", "learned, less frozen at random"),
    "transplant-helps": ("arrangement", "a donor's learned PE, less its untrained one"),
    "arrangement-of-the-transplant-helps": ("arrangement", "a donor's PE, less the same with cells shuffled"),
    "what-masters-learned-helps": ("arrangement", "a master's PE, less the same with cells shuffled"),
    "what-masters-learned-beats-random": ("arrangement", "a master's PE, less random"),
    "sgd-needs-a-learned-pe": ("arrangement", "by SGD: learned, less frozen at random"),
    "rows-and-columns-help": ("arrangement", "rows and columns, less random"),
    "2d-fixed-helps": ("arrangement", "2d-fixed, less random"),
    "centring-helps-2d-fixed": ("arrangement", "2d-fixed less its mean, less 2d-fixed"),
    "centred-2d-fixed-beats-random": ("arrangement", "2d-fixed less its mean, less random"),
    "starting-at-the-truth-helps": ("arrangement", "learned from 2d-fixed, less from random"),
    "rows-and-columns-rescue-a-large-size": ("arrangement", "rows and columns, less random, at size 2.0"),
    "control-freezing": ("must do nothing", "frozen by a step size of zero"),
    "control-starting-at-the-truth": ("must do nothing", "2d-fixed given as a start"),
    "control-transplant": ("must do nothing", "one's own untrained PE transplanted"),
    "control-transplant-of-another": ("must do nothing", "another's untrained PE transplanted"),
    "control-rescaling-a-donor": ("must do nothing", "rescaled to the size it has"),
}
"""Effects on models that are trained with a manipulated PE: their group, and their name in the figure."""
CONTROLS = (interventions.ITSELF, interventions.times(1.0), interventions.WITH_CELLS)
EXCHANGES = (
    *(interventions.NOTHING, interventions.MEAN, interventions.SHUFFLED, interventions.TRUE, interventions.START),
    *(interventions.OTHER_SEED, interventions.OTHER_SIGMA, interventions.OTHER_SIGMA_SIZED),
    *(interventions.times(factor) for factor in interventions.FACTORS if factor != 1),
    *CONTROLS,
)


def figures_of_causes(run: Run, lines: pd.DataFrame) -> list[Shown]:
    name, chance = run_name(run), chance_of(run)
    found = {claim.id: claim.check(run) for claim in CLAIMS}
    final = lines.assign(value=lines["member"].map(accuracy(run)))
    drawn = final[final["line"].isin(LINES)]
    return [
        Shown(
            "causes",
            "Cause or trace",
            "Left: held-out accuracy against the size of the PE, by what the PE is. Where lines lie on each other, "
            "size decides, whatever the arrangement. Middle: what each manipulation before training adds to "
            "accuracy, those of arrangement as means over the sizes 0.1 to 0.5. Right: what trained models of sigma "
            "0.2 and 2.0 lose when their PE is exchanged afterwards. Donors are models trained as usual; "
            "masters, trained by SGD from a tiny start, have PEs that have learned rows and columns. Hollow: controls, "
            "which must lie on zero.",
            figures.causes(drawn, LINES, _effects(found), _losses(run), CONTROLS, name, chance),
        ),
        *knobs.figures_of_knob(run, _in_panels(lines), "what the PE is"),
    ]


def _effects(found: dict[str, Finding]) -> pd.DataFrame:
    rows = [
        {
            **{"group": group, "name": words, "mean": found[id].found.mean, "low": found[id].found.low},
            **{"high": found[id].found.high, "control": found[id].claim.remark == CONTROL},
        }
        for id, (group, words) in ROWS.items()
        if math.isfinite(found[id].found.mean)  # else the run does not have it
    ]
    return pd.DataFrame(rows, columns=["group", "name", "mean", "low", "high", "control"])


def _losses(run: Run) -> pd.DataFrame:
    """By sigma, exchange and seed, what learned models lose."""
    members = done(run)
    members = members[members["label"] == LEARNED]
    members = members[members["sigma"].isin([SMALL, LARGE])]
    own, rows = accuracy(run), []
    for name in EXCHANGES:
        with contextlib.suppress(NotInRun):  # a piece of the study need not have it
            values = own - measured(run, interventions.ACCURACY_WITH, name)
            table = members.assign(name=name, value=members["member"].map(values))
            rows.append(table[["sigma", "seed", "name", "value"]].dropna())
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=["sigma", "seed", "name", "value"])


def _in_panels(lines: pd.DataFrame) -> pd.DataFrame:
    """All kinds, a few to a panel."""
    whose = {
        **dict.fromkeys(("learned", "random, frozen"), "own"),
        **dict.fromkeys(("true, frozen", "true, learned on"), "the truth"),
        **{f"rows and columns, {how}": "the truth" for how in ("frozen", "learned on")},
        **{f"donor's of {sigma} rescaled, frozen": "a donor's, rescaled" for sigma in ("0.2", "2.0")},
        **dict.fromkeys(("master's, frozen", "master's shuffled, frozen"), "a master's, rescaled"),
        "true centred, frozen": "the truth",
        **dict.fromkeys(("learned, by SGD", "random, frozen, by SGD"), "by SGD"),
    }
    return lines.assign(panel=[whose.get(line, "a donor's") for line in lines["line"]])


ARRANGEMENT = (
    *("transplant-helps", "arrangement-of-the-transplant-helps", "masters-learned", "what-masters-learned-helps"),
    *("rows-and-columns-help", "2d-fixed-helps", "centring-helps-2d-fixed", "starting-at-the-truth-helps"),
)
SIZE = ("size-spoils-a-learned-pe", "size-mends-a-learned-pe", "size-spoils-what-masters-learned", "sgd-minds-size")


def sentences_on_causes(run: Run, lines: pd.DataFrame) -> list[str]:
    found = {claim.id: claim.check(run) for claim in CLAIMS}
    return [
        *_controls(found),
        *(_told(found[id], "Size") for id in SIZE),
        *(_told(found[id], "Arrangement") for id in ARRANGEMENT),
        *unsettled_words(run, lines),
        *lost(run),
    ]


def _told(finding: Finding, what: str) -> str:
    verdict = direction_text(finding).capitalize()
    number = f", {in_words(finding.found)}" if finding.found.mean == finding.found.mean else f" ({finding.note})"
    return f"{what}. {finding.claim.statement} {verdict}{number}."


def _controls(found: dict[str, Finding]) -> list[str]:
    """Whether the controls did nothing: before anything else is believed."""
    controls = [finding for finding in found.values() if finding.claim.remark == CONTROL]
    failed = [finding.claim.id for finding in controls if finding.direction == FAILS]
    open_ = [finding.claim.id for finding in controls if finding.direction == UNDECIDED]
    told = f"Of {len(controls)} controls, which must do nothing, {len(controls) - len(failed) - len(open_)} do nothing"
    parts = [f"{words}: {', '.join(names)}" for names, words in ((failed, "not so"), (open_, "undecided")) if names]
    return [f"{told}{'; ' + '; '.join(parts) if parts else ''}."]
