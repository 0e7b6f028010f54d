"""Write the report of a run, and reconstruct the command that repeats the run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from placecode.cli import flags
from placecode.execution.settings import DEFAULT_STACK_SIZE
from placecode.experiments import Experiment, OwnData
from placecode.reports import html, wording
from placecode.reports.html import comparison
from placecode.reports.pages.base import Page
from placecode.runs.read import Run


def publish(page: Page) -> Path:
    """Draw the figures of a finished run, write its report and return the path of the report."""
    sections = [
        html.Section(listing.title, tables=[html.tables.value_table(listing.caption, listing.columns, listing.rows)])
        for listing in page.listings()
    ]
    return html.write(
        figures=page.figures(),
        measures=page.measures,
        sections=sections,
        words=page.words(),
        channels=page.channels(),
        map_first=page.map_first,
        **_shared(page),
    )


def compared_run(page: Page) -> comparison.Part:
    """Return the part about one run (title, summary, claims ...) of a report that compares several runs."""
    return comparison.Part(**_shared(page))


def _shared(page: Page) -> dict[str, Any]:
    """Return what reports of one run and of several runs show about a run, by the name of the parameter."""
    experiment, run = page.experiment, page.run
    return {
        "run": run,
        "title": wording.capital(experiment.about),
        "lead": page.summary(),
        "command": command_of(run, experiment),
        "metric": experiment.metric,
        "claims": [finding.record() for finding in page.findings],
        "verdicts": page.verdicts(),
        "slider": page.slider(),
    }


def command_of(run: Run, experiment: Experiment) -> str:
    """Return the shell command that repeats a run: `placecode run` with --scale, or `placecode fit` with --effort.

    It sets the fields of the experiment that differ from the defaults at this scale or effort. No command can repeat
    the fit of an array that was passed in Python, so for such a run the command only writes the report again.
    """
    config = run.config
    device = ["--device", config["device"], "--precision", config["precision"]]
    if isinstance(experiment, OwnData):
        if not Path(experiment.file).suffix:  # fitted with LearnedPositions on an array; a file has a suffix
            return shlex.join(["placecode", "report", str(run.path)])
        channels = int(config["shape"]["tokens"])
        defaults = OwnData(**OwnData.sized(config["scale"], channels)).fields()
        sized = OwnData.sized(config["scale"], channels, learning_rate=experiment.learning_rate)
        defaults |= {"pe_learning_rate": sized["pe_learning_rate"], "file": experiment.file}
        words = ["placecode", "fit", experiment.file, *_changed(experiment, defaults)]
        return shlex.join([*words, "--effort", config["scale"], *device])
    defaults = type(experiment).from_scale(config["scale"]).fields()
    words = ["placecode", "run", run.experiment, "--scale", config["scale"], *_changed(experiment, defaults)]
    if config["members"] != f"0:{config['total']}":
        words += ["--members", config["members"]]
    words += device
    if config.get("plain"):
        words.append("--plain")
    if config["stack"] != DEFAULT_STACK_SIZE.get(config["device"]):
        words += ["--stack", str(config["stack"])]
    return shlex.join(words)


def _changed(experiment: Experiment, defaults: dict[str, Any]) -> list[str]:
    """Return the words of the command line that set the fields of an experiment that differ from these defaults."""
    words = []
    for name, value in experiment.fields().items():
        if value == defaults[name]:
            continue
        if isinstance(experiment, OwnData) and name == "sigmas":
            words += ["--sigma", *map(str, value)]
        elif isinstance(experiment, OwnData) and name == "seeds" and value == list(range(len(value))):
            words += ["--seeds", str(len(value))]
        else:
            words += flags.words_of(name, value)
    return words
