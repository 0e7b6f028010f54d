"""The command `placecode fit FILE`: a map of the channels of a table."""

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
from placecode.fit.fitting import answers, fit
from placecode.reports.pages import own_words
from placecode.runs.read import Run
from placecode.tasks.table import PARTS, tables

FILES = ("groups", "labels", "positions", "names", "key")
"""Settings of the study that say where something is to be read."""
OWN = ("file", *FILES, "sigmas", "seeds")
"""Fields of the study that have a flag of their own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `fit`: what to read, where to write, how hard to try; then every setting of the models."""
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="samples x channels: .csv, .tsv, .parquet, .npy, .npz, .mat, .h5"
    )
    parser.add_argument("--out", type=Path, help="run folder (default: runs/fit-NAME)")
    parser.add_argument("--groups", help="group (person, day) of each sample: a column of the table, or a file")
    parser.add_argument("--labels", metavar="FILE", help="known groups of the channels, a CSV with name,label")
    parser.add_argument(
        "--positions", metavar="FILE", help="known places of the channels, a CSV with name,x,y or name,x,y,z"
    )
    parser.add_argument("--names", metavar="FILE", help="names of the channels, one a line")
    parser.add_argument("--key", help="which table of a .npz, .mat or .h5 file")
    parser.add_argument(
        "--effort", default="auto", help="quick (minutes on two cores), thorough, or auto: by the device"
    )
    parser.add_argument(
        "--sigma", nargs="+", default=["auto"], metavar="SIGMA", help="initial scales to choose from, or auto"
    )
    parser.add_argument(
        "--seeds", metavar="N", help="seeds that learn from all training samples: a number of them, or a list a,b,c"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--precision", default="high", help="of products on a GPU: high, tf32, highest; bf16 anywhere")
    parser.add_argument("--stack", metavar="N", help="most models to train together")
    parser.add_argument(
        "--memory", default=str(local.DEFAULT_MEMORY_SHARE), metavar="SHARE", help="share of a GPU's memory to use"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the fit in the folder, if there is one")
    parser.add_argument("--force", action="store_true", help="overwrite a fit in the folder")
    parser.add_argument("--dry-run", action="store_true", help="only say what would run, and what it would take")
    flags.add_settings(parser.add_argument_group("settings of the models", "Defaults suit the effort."), OwnData, OWN)


def run(
    given: argparse.Namespace,
    console: Console,
    stopping: Callable[[], Any],
    publish: Callable[[Run], Path],
) -> int:
    """Read, fit, and say what was found."""
    if given.resume and given.force:
        raise BadInput(
            "--resume and --force must not be given together: one keeps the earlier fit, the other drops it."
        )
    stack = None if given.stack is None else value_of("stack", given.stack, int)
    share = value_of("memory", given.memory, float)
    where = local.Where(given.device, given.precision, stack, share).resolved()
    effort = OwnData.effort_on(where.device, given.effort)
    out = given.out or Path("runs") / f"fit-{given.file.stem}"
    with _room(out) as spool:
        study, label_names = _study(given, effort, spool)
        if given.dry_run:
            expected = estimate(study, where, ":")
            console.print(display.estimate_text(study, expected, where), markup=False, soft_wrap=True)
            then = display.duration(expected.answer * answers(study))
            console.print(f"Then about {then} to hold it against chance, and what the other methods take.")
            return 0
        with stopping() as stopped, display.progress(console) as progress:
            found = fit(
                study,
                out,
                effort=effort,
                where=where,
                resume=given.resume,
                force=given.force,
                notify=progress,
                stop=stopped,
                tell=lambda what: console.print(f"{what[0].upper()}{what[1:]} ...", markup=False),
                label_names=label_names,
            )
    page = publish(Run(out))
    for line in own_words.sentences(found):
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"Map: {out / 'map.csv'}", markup=False, soft_wrap=True)
    console.print(f"Report: {page}", markup=False, soft_wrap=True)
    return 0


@contextlib.contextmanager
def _room(out: Path) -> Iterator[Path]:
    """A folder beside the output, for what is too large for memory; `BadInput` where nothing can be written."""
    beside = out.parent
    while not beside.exists():
        beside = beside.parent
    if not beside.is_dir():
        raise BadInput(f"the output {out} must be a folder; {beside} is a file.")
    try:
        folder = tempfile.TemporaryDirectory(prefix=".placecode-", dir=beside)
    except OSError as error:
        if is_full_disk(error):
            raise
        raise BadInput(f"the output folder {out} must be writable; it is not ({error.strerror}).") from error
    with folder as spool:
        yield Path(spool)


def _study(given: argparse.Namespace, effort: str, spool: Path) -> tuple[OwnData, tuple[str, ...]]:
    """The study of a table, with what is known of its channels; and the names of known groups."""
    sheet = read_sheet(given.file, key=given.key, names=given.names, groups=given.groups, spool=spool)
    labels, label_names = (None, ()) if given.labels is None else read_labels(given.labels, sheet.names)
    positions = None if given.positions is None else read_positions(given.positions, sheet.names)
    own = flags.settings(given, OwnData, OWN)
    seed, hidden = own.get("data_seed", 0), own.get("hidden", OwnData.hidden)
    if seed < 0:
        raise must_be("data_seed", "a whole number of at least 0", seed)
    made = tables(
        sheet.values,
        names=sheet.names,
        categories=sheet.categories,
        groups=sheet.groups,
        labels=labels,
        positions=positions,
        ratios=(hidden,),
        seed=seed,
    )
    channels = made[PARTS[0]].tokens
    if channels < CHANNELS:
        raise must_be(str(given.file), f"a table in which at least {CHANNELS} channels vary", channels)
    own |= {name: str(getattr(given, name)) for name in FILES if getattr(given, name) is not None}
    if given.sigma != ["auto"]:
        own["sigmas"] = tuple(
            value_of("sigma", part, float) for word in given.sigma for part in word.split(",") if part
        )
    if given.seeds is not None:
        listed = [value_of("seeds", part, int) for part in given.seeds.split(",") if part]
        if not listed or min(listed) < ("," not in given.seeds):
            raise must_be("seeds", "a number of seeds of at least 1, or a list a,b,c", given.seeds)
        own["seeds"] = tuple(listed) if "," in given.seeds else tuple(range(listed[0]))
    study = OwnData(tables=made, file=str(given.file), **OwnData.sized(effort, channels, **own))
    return study, label_names


def command_of(run: Run, study: OwnData) -> list[str]:
    """The words that make a fit again: what differs from what would be taken anyway."""
    if not Path(study.file).suffix:  # an array, which LearnedPositions was given
        return ["placecode", "report", str(run.path)]
    words = ["placecode", "fit", study.file]
    channels = int(run.config["shape"]["tokens"])
    usual = OwnData(**OwnData.sized(run.config["scale"], channels)).fields()
    with_rate = OwnData.sized(run.config["scale"], channels, learning_rate=study.learning_rate)
    usual["pe_learning_rate"] = with_rate["pe_learning_rate"]
    for name, value in study.fields().items():
        if name == "file" or value == usual[name]:
            continue
        if name == "sigmas":
            words += ["--sigma", *map(str, _plain(value))]
        elif name == "seeds":
            counted = list(value) == list(range(len(value)))
            words += ["--seeds", str(len(value)) if counted else ",".join(map(str, value))]
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


def _plain(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]
