"""Write docs/beyond.md and its figures from the committed runs: python docs/pages/beyond.py

The words are in docs/pages/templates/beyond.md.j2 and, for each experiment, in docs/pages/templates/beyond/NAME.md.j2;
the numbers come from beyond_facts.py. A test compares the page with the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import beyond_facts as facts
from tables import Findings, claims_table, findings_of, provenance
from templating import ROOT, render_blocks, render_page

from placecode.experiments import experiment_of
from placecode.reports import figures
from placecode.reports.pages import knobs
from placecode.reports.pages.base import ReportFigure
from placecode.reports.pages.registry import page_of
from placecode.reports.wording import sentences
from placecode.runs.read import Run

FACTS: dict[str, Callable[[Run], dict[str, Any]]] = {
    "lst-causal": facts.causal,
    "lst-optimizer": facts.optimizer,
    "lst-heads": lambda run: {},  # its template needs only the claims
    "lst-depth": facts.depth,
    "lst-width": facts.width,
    "lst-decay": facts.decay,
    "lst-placement": facts.placement,
    "lst-gain": facts.gain,
    "lst-data": facts.data,
    "lst-size": facts.size,
}
"""The experiments in the order of the page, each with the function that computes its numbers."""
FURTHER_RUNS = {
    "lst-optimizer": ("lst-optimizer-large",),
    "lst-decay": ("lst-decay-fresh",),
    "lst-gain": ("lst-gain-quick", "lst-gain-quick-rates"),
}
"""Other runs that the section of an experiment uses."""


def page() -> str:
    """Return the text of the whole page."""
    runs = {name: Run(ROOT / "results" / name) for name in FACTS}
    return render_page(
        "beyond.md.j2",
        sections=[section(name, run) for name, run in runs.items()],
        runs=[table_row(Run(ROOT / "results" / run)) for name in runs for run in (name, *FURTHER_RUNS.get(name, ()))],
        **facts.rounding(runs),
    )


def section(name: str, run: Run) -> dict[str, Any]:
    """Return what the page shows of one experiment: its words, figure, claims, and settings that have not settled."""
    findings = findings_of(run)
    settling = knobs.settling(run, experiment_of(run).lines(run), most=len(run.members))
    return {
        "name": name,
        "words": words(name, run, findings),
        "figure": figure_of(run),
        "claims": claims_table(findings),
        "not_in_run": [finding for finding in findings.values() if finding.note],
        "unsettled": " ".join(sentences("settled", **settling)),
    }


def words(name: str, run: Run, findings: Findings) -> Any:
    """Render the template of an experiment, and return its blocks: the question, and its answer in short and at length.

    Raises SystemExit if a claim of the run does not support a sentence.
    """
    return render_blocks(
        f"beyond/{name}.md.j2",
        claims=findings,
        fields=run.config["fields"],
        claims_table=claims_table,
        means_table=facts.means_table,
        **facts.MARGINS,
        **facts.controls(findings),
        **FACTS[name](run),
    )


def figure_of(run: Run) -> ReportFigure:
    """Return the figure in the section of an experiment: the first of its report."""
    return page_of(experiment_of(run), run).figures()[0]


def table_row(run: Run) -> dict[str, Any]:
    """Return how a run was made, and which of its data sets we generated ourselves."""
    parts = run.config["task"].get("parts", {})
    return provenance(run) | {"drawn": [name for name, part in parts.items() if part["source"] == "drawn"]}


def draw() -> None:
    """Draw the figures of the page into docs/images."""
    for name in FACTS:
        first = figure_of(Run(ROOT / "results" / name))
        figures.save(first.figure, ROOT / "docs" / "images" / f"beyond-{name}-{first.name}.png")


if __name__ == "__main__":
    (ROOT / "docs" / "beyond.md").write_text(page())
    draw()
