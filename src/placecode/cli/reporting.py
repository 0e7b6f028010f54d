"""Write the report of a run, and find the command that repeats the run."""

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
    """Draw the figures of a finished run and write its report.

    Parameters
    ----------
    run : Run
        A finished run.

    Returns
    -------
    Path
        The report.
    """
    study = study_of(run)
    page = page_of(study, run)
    return html.write(
        run,
        _title(study),
        page.summary(),
        page.figures(),
        command_of(run, study),
        metric=study.metric,
        measures=page.measures,
        claims=[finding.record() for finding in study.findings(run)],
        sections=[
            html.Section(listing.title, tables=[html.tables.listed(listing.caption, listing.columns, listing.rows)])
            for listing in page.listings()
        ],
        words=page.words(),
        verdicts=page.verdicts(),
        dial=page.dial(),
        channels=page.channels(),
        map_first=page.map_first,
    )


def command_of(run: Run, study: Study) -> str:
    """Return the command that repeats a run, with the settings that differ from the defaults of its scale.

    Parameters
    ----------
    run : Run
        The run.
    study : Study
        Its study.

    Returns
    -------
    str
        The command, quoted for a shell.
    """
    if isinstance(study, OwnData):
        return shlex.join(fit.command_of(run, study))
    words = ["placecode", "run", run.study, "--scale", run.config["scale"]]
    defaults = type(study).at(run.config["scale"]).fields()
    for name, value in study.fields().items():
        if value == defaults[name]:
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
    """Collect what a page that compares several runs shows about one of them.

    Parameters
    ----------
    run : Run
        A finished run.

    Returns
    -------
    Part
        The part of the page.
    """
    study = study_of(run)
    page = page_of(study, run)
    return together.Part(
        run,
        _title(study),
        page.summary(),
        command_of(run, study),
        study.metric,
        claims=[finding.record() for finding in study.findings(run)],
        verdicts=page.verdicts(),
        dial=page.dial(),
    )


def _title(study: Study) -> str:
    """Return the description of a study with a capital letter."""
    return study.about[0].upper() + study.about[1:]
