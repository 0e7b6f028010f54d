"""The command `placecode fit FILE`: learn a map of the channels of a table."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from placecode.cli import display, flags
from placecode.data.tables.files import CHANNELS, read_labels, read_positions, read_sheet
from placecode.errors import BadInput, must_be, value_of
from placecode.execution import local
from placecode.execution.estimate import estimate
from placecode.experiments.channels.own import OwnData
from placecode.files import is_full_disk
from placecode.fit.fitting import count_predictions, fit, study_of_sheet
from placecode.reports.pages import own_words
from placecode.runs.read import Run

FILES = ("groups", "labels", "positions", "names", "key")
"""Settings of the study that name a file, a column or a table to read."""
SPECIAL_FIELDS = ("file", *FILES, "sigmas", "seeds")
"""Fields of the study whose options are added by `add_arguments`, not by `flags.add_settings`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fit`: input, output, effort and device, then every setting of the models."""
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="table of samples (rows) x channels (columns): .csv, .tsv, .parquet, .npy, .npz, .mat or .h5",
    )
    parser.add_argument("--out", type=Path, help="run folder (default: runs/fit-NAME)")
    parser.add_argument("--groups", help="group of each sample, such as its subject or day: a column name or a file")
    parser.add_argument("--labels", metavar="FILE", help="known groups of the channels: a CSV file with name,label")
    parser.add_argument(
        "--positions", metavar="FILE", help="known positions of the channels: a CSV file with name,x,y or name,x,y,z"
    )
    parser.add_argument("--names", metavar="FILE", help="names of the channels: a text file with one name per line")
    parser.add_argument("--key", help="name of the array in a .npz, .mat or .h5 file")
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
    parser.add_argument(
        "--seeds", metavar="N", help="seeds of the models trained on all training samples: a number, or a list a,b,c"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--precision",
        default="high",
        help="precision of matrix products on a GPU: high (float16 inputs), tf32 or highest (float32); or bf16, which "
        "also works on a CPU",
    )
    parser.add_argument("--stack", metavar="N", help="maximum number of models to train together")
    parser.add_argument(
        "--memory", default=str(local.DEFAULT_MEMORY_SHARE), metavar="SHARE", help="maximum share of GPU memory to use"
    )
    parser.add_argument("--resume", action="store_true", help="continue an unfinished fit in the output folder")
    parser.add_argument("--force", action="store_true", help="overwrite a fit in the output folder")
    parser.add_argument("--dry-run", action="store_true", help="estimate time and memory without fitting")
    group = parser.add_argument_group("settings of the models", "The defaults depend on the effort.")
    flags.add_settings(group, OwnData, SPECIAL_FIELDS)


def run(
    arguments: argparse.Namespace,
    console: Console,
    stopping: Callable[[], Any],
    publish: Callable[[Run], Path],
) -> int:
    """Run the command `fit` and print the results.

    Parameters
    ----------
    arguments : Namespace
        Parsed arguments.
    console : Console
        Console to print on.
    stopping : callable
        Returns a context manager whose function returns True when the user has asked to stop.
    publish : callable
        Writes the report of a run and returns its path.

    Returns
    -------
    int
        The exit code.
    """
    if arguments.resume and arguments.force:
        raise BadInput(
            "--resume and --force must not be used together: one keeps the earlier fit, the other deletes it."
        )
    stack = None if arguments.stack is None else value_of("stack", arguments.stack, int)
    share = value_of("memory", arguments.memory, float)
    where = local.Where(arguments.device, arguments.precision, stack, share).resolved()
    effort = OwnData.effort_on(where.device, arguments.effort)
    out = arguments.out or Path("runs") / f"fit-{arguments.file.stem}"
    with _temporary_folder(out) as spool:
        study, label_names = _study(arguments, effort, spool)
        if arguments.dry_run:
            expected = estimate(study, where, ":")
            console.print(display.estimate_text(study, expected, where), markup=False, soft_wrap=True)
            test_time = display.duration(expected.answer * count_predictions(study))
            console.print(f"The comparison with chance takes about {test_time} more, plus the time of other methods.")
            return 0
        with stopping() as stopped, display.progress(console) as progress:
            result = fit(
                study,
                out,
                effort=effort,
                where=where,
                resume=arguments.resume,
                force=arguments.force,
                notify=progress,
                stop=stopped,
                tell=lambda text: console.print(f"{text[0].upper()}{text[1:]} ...", markup=False),
                label_names=label_names,
            )
    page = publish(Run(out))
    for line in own_words.sentences(result):
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"Map: {out / 'map.csv'}", markup=False, soft_wrap=True)
    console.print(f"Report: {page}", markup=False, soft_wrap=True)
    return 0


@contextlib.contextmanager
def _temporary_folder(out: Path) -> Iterator[Path]:
    """Context manager for a temporary folder next to the output, for data that do not fit into memory."""
    parent = out.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise BadInput(f"the output {out} must be a folder; {parent} is a file.")
    try:
        folder = tempfile.TemporaryDirectory(prefix=".placecode-", dir=parent)
    except OSError as error:
        if is_full_disk(error):
            raise
        raise BadInput(f"the output folder {out} must be writable; it is not ({error.strerror}).") from error
    with folder as spool:
        yield Path(spool)


def _study(arguments: argparse.Namespace, effort: str, spool: Path) -> tuple[OwnData, tuple[str, ...]]:
    """Read the table and what is known about its channels; return the study and the names of the known groups."""
    sheet = read_sheet(arguments.file, key=arguments.key, names=arguments.names, groups=arguments.groups, spool=spool)
    labels, label_names = (None, ()) if arguments.labels is None else read_labels(arguments.labels, sheet.names)
    positions = None if arguments.positions is None else read_positions(arguments.positions, sheet.names)
    settings = flags.settings(arguments, OwnData, SPECIAL_FIELDS)
    if settings.get("data_seed", 0) < 0:
        raise must_be("data_seed", "a whole number of at least 0", settings["data_seed"])
    settings["file"] = str(arguments.file)
    settings |= {name: str(getattr(arguments, name)) for name in FILES if getattr(arguments, name) is not None}
    if arguments.sigma != ["auto"]:
        words = [part for word in arguments.sigma for part in word.split(",") if part]
        settings["sigmas"] = tuple(value_of("sigma", word, float) for word in words)
    if arguments.seeds is not None:
        listed = [value_of("seeds", part, int) for part in arguments.seeds.split(",") if part]
        if not listed or min(listed) < ("," not in arguments.seeds):
            raise must_be("seeds", "a number of seeds of at least 1, or a list a,b,c", arguments.seeds)
        settings["seeds"] = tuple(listed) if "," in arguments.seeds else tuple(range(listed[0]))
    return study_of_sheet(sheet, effort, settings, CHANNELS, labels, positions), label_names


def command_of(run: Run, study: OwnData) -> list[str]:
    """Return the words of the command that repeats a fit, with the settings that differ from the defaults.

    Parameters
    ----------
    run : Run
        The fit.
    study : OwnData
        Its study.

    Returns
    -------
    list of str
        The words of the command.
    """
    if not Path(study.file).suffix:  # fitted with LearnedPositions on an array, not on a file
        return ["placecode", "report", str(run.path)]
    words = ["placecode", "fit", study.file]
    channels = int(run.config["shape"]["tokens"])
    defaults = OwnData(**OwnData.sized(run.config["scale"], channels)).fields()
    with_rate = OwnData.sized(run.config["scale"], channels, learning_rate=study.learning_rate)
    defaults["pe_learning_rate"] = with_rate["pe_learning_rate"]
    for name, value in study.fields().items():
        if name == "file" or value == defaults[name]:
            continue
        if name == "sigmas":
            words += ["--sigma", *map(str, _as_sequence(value))]
        elif name == "seeds":
            is_range = list(value) == list(range(len(value)))
            words += ["--seeds", str(len(value)) if is_range else ",".join(map(str, value))]
        else:
            words += flags.words_of(name, value)
    return [
        *words,
        "--effort",
        run.config["scale"],
        "--device",
        run.config["device"],
        "--precision",
        run.config["precision"],
    ]


def _as_sequence(value: Any) -> Sequence[Any]:
    """Return a list or tuple unchanged, and another value as a list of one."""
    return value if isinstance(value, (list, tuple)) else [value]
