"""What lst-causal shows, in plain sentences, which are true whatever it shows."""

from __future__ import annotations

import pandas as pd

from placecode.experiments.claims import FAILS, UNDECIDED, Finding, direction_text
from placecode.experiments.latin.causal_claims import CLAIMS, CONTROL
from placecode.reports.pages.knob_words import in_words, lost, unsettled_words
from placecode.runs.read import Run

ARRANGEMENT = (
    *("transplant-helps", "arrangement-of-the-transplant-helps", "masters-learned", "what-masters-learned-helps"),
    *("rows-and-columns-help", "2d-fixed-helps", "centring-helps-2d-fixed", "starting-at-the-truth-helps"),
)
SIZE = ("size-spoils-a-learned-pe", "size-mends-a-learned-pe", "size-spoils-what-masters-learned", "sgd-minds-size")


def of_causes(run: Run, lines: pd.DataFrame) -> list[str]:
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
