"""Write the report of a run, and the command that makes it again."""

from __future__ import annotations

import shlex
from pathlib import Path

from placecode.cli import fit, flags
from placecode.execution import local
from placecode.experiments import OwnData, Study, study_of
from placecode.reports import html
from placecode.reports.html import together
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run


def publish(run: Run) -> Path:
    """Draw the figures of a finished run and write its report; returns the report's path."""
    study = study_of(run)
    page = page_of(study, run)
    return html.write(
        run,
        _titled(study),
        page.summary(),
        page.figures(),
        command_of(run, study),
        metric=study.metric,
        measures=page.measures,
        claims=[claim.check(run).record() for claim in study.claims],
        sections=[
            html.Section(each.title, tables=[html.tables.listed(each.caption, each.columns, each.rows)])
            for each in page.listings()
        ],
        words=page.words(),
        verdicts=page.verdicts(),
        dial=page.dial(),
        channels=page.channels(),
        map_first=page.map_first,
    )


def command_of(run: Run, study: Study) -> str:
    """The command that makes the run again: what differs from the defaults of its scale."""
    if isinstance(study, OwnData):
        return shlex.join(fit.command_of(run, study))
    words = ["placecode", "run", run.study, "--scale", run.config["scale"]]
    usual = type(study).at(run.config["scale"]).fields()
    for name, value in study.fields().items():
        if value == usual[name]:
            continue
        words += flags.words_of(name, value)
    if run.config["members"] != f"0:{run.config['total']}":
        words += ["--members", run.config["members"]]
    words += ["--device", run.config["device"], "--precision", run.config["precision"]]
    if run.config.get("plain"):
        words.append("--plain")
    if run.config["stack"] != local.DEFAULT_STACK_SIZE.get(run.config["device"]):
        words += ["--stack", str(run.config["stack"])]
    return shlex.join(words)


def compared(run: Run) -> together.Part:
    """A run as one of several on a page."""
    study = study_of(run)
    page = page_of(study, run)
    return together.Part(
        run,
        _titled(study),
        page.summary(),
        command_of(run, study),
        study.metric,
        claims=[claim.check(run).record() for claim in study.claims],
        verdicts=page.verdicts(),
        dial=page.dial(),
    )


def _titled(study: Study) -> str:
    return study.about[0].upper() + study.about[1:]
