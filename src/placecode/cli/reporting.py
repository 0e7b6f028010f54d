"""Write the report of a run, and reconstruct the command that repeats the run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from placecode.cli import flags
from placecode.execution.settings import DEFAULT_STACK_SIZE
from placecode.experiments import Experiment, TableExperiment
from placecode.reports import html
from placecode.reports.pages.base import Page
from placecode.runs.read import Run


def publish(page: Page) -> Path:
    """Draw the figures of a finished run, write its report as an HTML file, and return the path of this file."""
    return html.write(page, command_of(page.run, page.experiment))


def command_of(run: Run, experiment: Experiment) -> str:
    """Return the shell command that repeats a run: `placecode run` with --scale, or `placecode fit` with --effort.

    It sets the fields of the experiment that differ from the defaults at this scale or effort. A fit of an array in
    Python cannot be repeated from a shell. For such a run, the command is `placecode report`, which only writes the
    report again.
    """
    config = run.config
    device = ["--device", config["device"], "--precision", config["precision"]]
    if isinstance(experiment, TableExperiment):
        if not Path(experiment.file).suffix:  # fitted with LearnedPositions on an array; a file has a suffix
            return shlex.join(["placecode", "report", str(run.path)])
        channels = int(config["shape"]["tokens"])
        defaults = TableExperiment(**TableExperiment.settings_for_effort(config["scale"], channels)).fields()
        sized = TableExperiment.settings_for_effort(config["scale"], channels, learning_rate=experiment.learning_rate)
        defaults |= {"pe_learning_rate": sized["pe_learning_rate"], "file": experiment.file}
        argv = ["placecode", "fit", experiment.file, *_changed(experiment, defaults)]
        return shlex.join([*argv, "--effort", config["scale"], *device])
    defaults = type(experiment).from_scale(config["scale"]).fields()
    argv = ["placecode", "run", run.experiment, "--scale", config["scale"], *_changed(experiment, defaults)]
    if config["members"] != f"0:{config['total']}":
        argv += ["--members", config["members"]]
    argv += device
    if config.get("plain"):
        argv.append("--plain")
    if config["stack"] != DEFAULT_STACK_SIZE.get(config["device"]):
        argv += ["--stack", str(config["stack"])]
    return shlex.join(argv)


def _changed(experiment: Experiment, defaults: dict[str, Any]) -> list[str]:
    """Return the command line arguments that set those fields of an experiment that differ from `defaults`."""
    argv = []
    for name, value in experiment.fields().items():
        if value == defaults[name]:
            continue
        if isinstance(experiment, TableExperiment) and name == "sigmas":
            argv += ["--sigma", *map(str, value)]
        elif isinstance(experiment, TableExperiment) and name == "seeds" and value == list(range(len(value))):
            argv += ["--seeds", str(len(value))]
        else:
            argv += flags.arguments_of(name, value)
    return argv
