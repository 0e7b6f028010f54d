"""The command `placecode fit FILE`, which learns a map of the columns (channels) of a table: similar ones are close."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from placecode.cli import display, flags
from placecode.cli.display import print_line
from placecode.cli.reporting import publish
from placecode.cli.run_options import add_run_options, execution_settings, stop_on_signals
from placecode.data.channel_files import read_labels, read_positions
from placecode.data.tables.files import MIN_CHANNELS, read_sheet
from placecode.errors import BadInput, value_of
from placecode.execution.estimate import estimate
from placecode.experiments.channels.table import TableExperiment
from placecode.fit.fitting import count_predictions, experiment_of_sheet, fit
from placecode.reports import wording
from placecode.reports.pages import fit_text
from placecode.reports.pages.registry import page_of
from placecode.runs.read import Run
from placecode.runs.write import explain_write_errors
from placecode.settings import declarations, settings_of

FILES = ("groups", "labels", "positions", "names", "key")
"""Settings of the experiment that say where data are read: a file or a column of the table (groups), files (labels,
positions, names), or the name of an array in the file (key)."""
MODEL_SETTINGS = [name for name in settings_of(TableExperiment) if name not in ("file", *FILES, "sigmas")]
"""Settings of the experiment that are not about the input. The sigmas have a shorter option, --sigma."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fit`: input, output, device, effort (how much to train), and settings of the models."""
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="table of samples (rows) x channels (columns): .csv, .tsv, .parquet, .npy, .npz, .mat or .h5",
    )
    add_run_options(parser, "runs/fit-NAME", ("device", "precision", "stack", "memory"))
    flags.add_settings(parser, TableExperiment, FILES)
    parser.add_argument(
        "--effort", default="auto", help="quick (minutes on two cores), thorough, or auto (thorough on a GPU)"
    )
    parser.add_argument(
        "--sigma",
        nargs="+",
        default=["auto"],
        metavar="SIGMA",
        help="initialization scales of the PE to choose from by validation error, or auto",
    )
    group = parser.add_argument_group("settings of the models", "The defaults depend on the effort.")
    flags.add_settings(group, TableExperiment, MODEL_SETTINGS)


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Run `placecode fit`: train models on the user's table, write the report and print the results. With --dry-run,
    only print the estimated time and memory."""
    execution = execution_settings(arguments)
    effort = TableExperiment.effort_on(execution.device, arguments.effort)
    out = arguments.out or Path("runs") / f"fit-{arguments.file.stem}"
    with _temporary_folder(out) as spool:
        experiment, label_names = _experiment(arguments, effort, spool)
        if arguments.dry_run:
            expected = estimate(experiment, execution)
            print_line(console, display.estimate_text(experiment, expected, execution))
            test_time = display.duration(expected.seconds_per_prediction * count_predictions(experiment))
            print_line(
                console, f"The comparison with chance takes about {test_time} more, plus the time of other methods."
            )
            return
        with stop_on_signals() as stopped, display.progress(console) as progress:
            result = fit(
                experiment,
                out,
                effort=effort,
                execution=execution,
                resume=arguments.resume,
                force=arguments.force,
                notify=progress,
                stop=stopped,
                announce=lambda step: print_line(console, f"{wording.capital(step)} ..."),
                label_names=label_names,
            )
    report = publish(page_of(experiment, Run(out)))
    for line in fit_text.sentences(result):
        print_line(console, line)
    print_line(console, f"Map: {out / 'map.csv'}")
    print_line(console, f"Report: {report}")


@contextlib.contextmanager
def _temporary_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder next to the output folder, for data that do not fit into memory.

    It is deleted afterwards. Raises BadInput if it cannot be created.
    """
    parent = next(folder for folder in (out.parent, *out.parent.parents) if folder.exists())
    if not parent.is_dir():
        raise BadInput(f"the output {out} must be a folder; {parent} is a file.")
    with explain_write_errors(out):
        folder = tempfile.TemporaryDirectory(prefix=".placecode-", dir=parent)
    with folder as spool:
        yield Path(spool)


def _experiment(arguments: argparse.Namespace, effort: str, spool: Path) -> tuple[TableExperiment, tuple[str, ...]]:
    """Read the table and the known groups and positions of its channels; return the experiment and the group names.

    The names are empty without --labels. Data that do not fit into memory are written to the folder `spool`.
    """
    files = flags.settings(arguments, TableExperiment, FILES)
    settings = flags.settings(arguments, TableExperiment, MODEL_SETTINGS)
    declared = declarations(TableExperiment)
    if arguments.sigma != ["auto"]:
        numbers = [number for word in arguments.sigma for number in word.split(",") if number]
        sigmas = tuple(value_of("sigma", number, float) for number in numbers)
        settings["sigmas"] = replace(declared["sigmas"], name="sigma").check(sigmas)
    for name, value in settings.items():
        declared[name].check(value)  # before the table is read
    sheet = read_sheet(
        arguments.file, key=files.get("key"), names=files.get("names"), groups=files.get("groups"), spool=spool
    )
    labels, label_names = read_labels(files["labels"], sheet.names) if "labels" in files else (None, ())
    positions = read_positions(files["positions"], sheet.names) if "positions" in files else None
    settings |= {"file": str(arguments.file), **files}
    return experiment_of_sheet(sheet, effort, settings, MIN_CHANNELS, labels, positions), label_names
