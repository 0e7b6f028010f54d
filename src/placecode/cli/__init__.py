"""The command line. The only package that prints; bad input is one sentence and exit code 2.

    placecode run lst-sigma --scale quick --out runs/first

Exit codes: 0 done, 1 failed, 2 bad input, 130 stopped by the user (the run is saved).
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from placecode import bench, experiments
from placecode.cli import display, doctor, fit, flags, recommend
from placecode.cli.reporting import compared, publish
from placecode.errors import BadInput, one_of, value_of
from placecode.execution import local
from placecode.execution.estimate import estimate
from placecode.experiments import SCALES, study_of
from placecode.files import is_full_disk
from placecode.reports import html
from placecode.reports.html import together
from placecode.reports.pages.registry import page_of
from placecode.runs import read as runs
from placecode.runs import write as folders
from placecode.runs.read import Run
from placecode.version import VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, 200)  # a file has no edge; tables take what they need of it
    errors = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    words = list(sys.argv[1:] if arguments is None else arguments)
    with warnings.catch_warnings():
        warnings.showwarning = partial(_said, errors)
        return _main(words, console, errors)


def _said(errors: Console, message: Warning | str, *_: object) -> None:
    """A warning as a sentence."""
    errors.print(f"placecode: {message}", style="yellow", markup=False)


def _main(words: Sequence[str], console: Console, errors: Console) -> int:
    try:
        parser = _parser(words)
        given = parser.parse_args(words)
        return int(given.command(given, console) or 0)
    except BadInput as error:
        errors.print(f"placecode: {error}", style="red", markup=False)
        return 2
    except local.Interrupted:
        again = [word for word in words if word not in ("--force", "--resume")]
        errors.print(f"Stopped and saved. Go on with:\n  placecode {shlex.join([*again, '--resume'])}", markup=False)
        return 130
    except local.WorkerFailed as error:
        errors.print(f"placecode: {error}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        errors.print(
            "Stopped at once."
            + (" --resume goes on from the last checkpoint." if words[:1] in (["run"], ["fit"]) else "")
        )
        return 130
    except OSError as error:
        full = is_full_disk(error)
        what = str(error)
        if full:
            rest = "free some space and try again"
            if words[:1] in (["run"], ["fit"]):
                rest = "finished members and the last checkpoint are kept: free some space and go on with --resume"
            what = f"the disk must have room for the results; it is full ({error.strerror}); {rest}."
        errors.print(f"placecode: {what}", style="red", markup=False)
        return 2 if full else 1


class _Parser(argparse.ArgumentParser):
    """argparse, with errors as our sentences."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message[0].lower()}{message[1:]} (see '{self.prog} --help').")


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    about = "Learn where tokens live: learnable positional encodings."
    parser = _Parser(prog="placecode", description=about, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"placecode {VERSION}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    def add(name: str, help: str, command: Callable[..., int | None]) -> argparse.ArgumentParser:
        # no abbreviations: --seed 3 would pass for --seeds 3, the seeds 0, 1 and 2
        added = commands.add_parser(name, help=help, description=help, formatter_class=_Formatter, allow_abbrev=False)
        added.set_defaults(command=command)
        return added

    add("studies", "list the studies", _studies)
    _run_arguments(add("run", "run a study", _run), words)

    fit.add_arguments(add("fit", "make a map of the channels of a table of your own", _fit))

    recommend.add_arguments(add("recommend", "say which sigma to start a learned PE with, and why", recommend.run))

    command = add("merge", "make one run of the pieces of a study (made with --members)", _merge)
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    command.add_argument("--out", type=Path, required=True, help="folder of the merged run")
    command.add_argument("--force", action="store_true", help="overwrite a run in the output folder")

    command = add("slim", "make a small copy of a finished run: no weights, arrays in half precision", _slim)
    command.add_argument("run", type=Path, metavar="RUN", help="run folder")
    command.add_argument("--out", type=Path, required=True, help="folder of the copy")
    command.add_argument("--seeds", metavar="A,B", help="keep arrays of these seeds only (default: of all)")
    command.add_argument("--force", action="store_true", help="overwrite a run in the output folder")

    command = add("report", "draw the figures and write the report of finished runs anew", _report)
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    command.add_argument(
        "--together", type=Path, metavar="FILE.html", help="one page with all of them side by side, and no other"
    )

    command = add("claims", "say which claims finished runs support", _claims)
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    command.add_argument("--json", action="store_true", help="print a list of objects instead of tables")

    command = add("runs", "list the runs in a folder, with their main numbers side by side", _runs)
    command.add_argument("folder", nargs="?", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")

    bench.add_options(add("bench", "time training on this machine, beside the same work done by others", _bench))

    add("doctor", "say what this machine has and what is missing for what", _doctor)
    return parser


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Help with defaults, but not where there is none to tell."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False, argparse.SUPPRESS):
            return action.help
        return super()._get_help_string(action)


def _run_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """The arguments of `run`: those of every study, and the fields of the study that is named."""
    parser.add_argument("study", action=_StudyName, metavar="STUDY", help=f"one of {', '.join(experiments.STUDIES)}")
    parser.add_argument("--scale", default="quick", help="quick (minutes on a laptop) or paper (as published)")
    parser.add_argument("--out", type=Path, help="run folder (default: runs/STUDY-SCALE)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--precision",
        default="high",
        help="of products on a GPU: high (ten bits, in float16), tf32 (ten bits), highest (float32); bf16 anywhere",
    )
    stacks = ", ".join(f"{most} on {device}" for device, most in local.DEFAULT_STACK_SIZE.items())
    parser.add_argument(
        "--stack", metavar="N", help=f"most members to train together, if memory allows (default: {stacks})"
    )
    parser.add_argument(
        "--memory",
        default=str(local.DEFAULT_MEMORY_SHARE),
        metavar="SHARE",
        help="share of a GPU's memory that may be used",
    )
    parser.add_argument("--workers", metavar="N", help="processes that train (default: one for each visible GPU)")
    parser.add_argument("--plain", action="store_true", help="compute without fast kernels (slow, to check them by)")
    parser.add_argument("--members", default=":", metavar="I:J", help="only the members from I to J - 1 (default: all)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the folder, if there is one")
    parser.add_argument("--force", action="store_true", help="overwrite a run in the folder")
    parser.add_argument("--dry-run", action="store_true", help="only say what would run, and what it would take")
    named = _named_study(words)
    if named is None:
        return
    study = experiments.lookup(named)
    group = parser.add_argument_group(f"settings of {named}", "Defaults are those of the scale.")
    flags.add_settings(group, study)


class _StudyName(argparse.Action):
    """The name of a study, refused before any of its settings are."""

    def __call__(self, parser: Any, given: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        experiments.lookup(values)
        given.study = values


def _named_study(words: Sequence[str]) -> str | None:
    """The study that a `run` names: the first such word that is no value of an option."""
    if words[:1] != ["run"]:
        return None
    options = ("--scale", "--out", "--device", "--precision", "--stack", "--memory", "--workers", "--members")
    pairs = itertools.pairwise(words)
    return next((word for before, word in pairs if word in experiments.STUDIES and before not in options), None)


# ------------------------------------------------------------------------------------------------------- commands


def _studies(given: argparse.Namespace, console: Console) -> None:
    console.print(display.study_table(experiments.STUDIES.values()))
    line = "Run one with: placecode run STUDY [--scale quick|paper]; its settings: placecode run STUDY --help"
    console.print(line, markup=False, soft_wrap=True)


def _run(given: argparse.Namespace, console: Console) -> int:
    if given.scale not in SCALES:
        raise one_of("scale", SCALES, given.scale)
    if given.resume and given.force:
        raise BadInput(
            "--resume and --force must not be given together: one keeps the earlier run, the other drops it."
        )
    kind = experiments.lookup(given.study)
    study = kind.at(given.scale, **flags.settings(given, kind))
    stack, workers = (
        None if text is None else value_of(name, text, int)
        for name, text in (("stack", given.stack), ("workers", given.workers))
    )
    share = value_of("memory", given.memory, float)
    where = local.Where(given.device, given.precision, stack, share, workers, given.plain).resolved()
    out = given.out or Path("runs") / f"{study.name}-{given.scale}"
    if given.dry_run:
        found = estimate(study, where, given.members)
        console.print(display.estimate_text(study, found, where), markup=False, soft_wrap=True)
        return 0
    with _stop_on_signals() as stopped, display.progress(console) as progress:
        run = local.execute(
            study,
            out,
            scale=given.scale,
            where=where,
            chosen=given.members,
            resume=given.resume,
            force=given.force,
            notify=progress,
            stop=stopped,
        )
    written = publish(run)
    console.print(display.results_table(run, study.metric))
    for line in page_of(study, run).words():
        console.print(line, markup=False, soft_wrap=True)
    if said := display.memory_text(run):
        console.print(said, markup=False, soft_wrap=True)
    console.print(f"Report: {written}", markup=False, soft_wrap=True)
    return 0


def _fit(given: argparse.Namespace, console: Console) -> int:
    return fit.run(given, console, _stop_on_signals, publish)


@contextmanager
def _stop_on_signals() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and a polite kill ask the run to save and stop; a second one stops at once."""
    asked = False

    def ask(number: int, frame: types.FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _merge(given: argparse.Namespace, console: Console) -> None:
    compare = study_of(Run(given.runs[0])).compare
    run = folders.merge(given.runs, given.out, given.force, compare)
    missing = run.config["total"] - len(run.members)
    console.print(
        f"{len(run.members)} of {run.config['total']} members of {run.study} are in {run.path}.", markup=False
    )
    if missing:
        console.print(f"Still missing: {missing}; merge again when all are there.")
    console.print(f"Report: {publish(run)}", markup=False, soft_wrap=True)


def _slim(given: argparse.Namespace, console: Console) -> None:
    seeds = None if given.seeds is None else [value_of("seeds", each, int) for each in given.seeds.split(",")]
    run = folders.slim(given.run, given.out, given.force, seeds)
    size = sum(file.stat().st_size for file in run.path.iterdir() if file.is_file())
    console.print(f"{run.path}: {size / 2**20:.1f} MiB.", markup=False, soft_wrap=True)


def _report(given: argparse.Namespace, console: Console) -> None:
    if given.together is not None:
        together.refuse(given.runs, given.together)
        page = together.write([compared(run) for run in _finished(given.runs)], given.together)
        console.print(f"Report: {page}", markup=False, soft_wrap=True)
        return
    for run in _finished(given.runs):
        console.print(f"Report: {publish(run)}", markup=False, soft_wrap=True)


def _finished(paths: Sequence[Path]) -> list[Run]:
    found = [Run(path) for path in paths]
    for run in found:
        if not run.finished:
            raise BadInput(runs.unfinished(run.path, "summary.json"))
    return found


def _claims(given: argparse.Namespace, console: Console) -> None:
    found = [(run, [claim.check(run) for claim in study_of(run).claims]) for run in _finished(given.runs)]
    if given.json:
        records = [finding.record() for _, findings in found for finding in findings]
        console.out(json.dumps(records, indent=2, allow_nan=False), highlight=False)
        return
    for run, findings in found:
        if not findings:
            console.print(f"{run.path}: no claim is about {run.study}.", markup=False, soft_wrap=True)
            continue
        console.print(f"{run.path}: {run.study}, {run.config['scale']} scale", markup=False, soft_wrap=True)
        console.print(display.claims_table(findings))
        if run.config["scale"] != "paper":
            console.print(html.tables.NO_TEST, markup=False, soft_wrap=True)


def _runs(given: argparse.Namespace, console: Console) -> None:
    if not given.folder.is_dir():
        raise BadInput(f"{given.folder} must be a folder with runs; there is no such folder.")
    found = runs.find(given.folder)
    if not found:
        console.print(f"No runs in {given.folder}. Start one with: placecode run lst-sigma", markup=False)
        return
    console.print(display.run_table(found))


def _doctor(given: argparse.Namespace, console: Console) -> None:
    console.print(display.doctor_table(doctor.examine()))


def _bench(given: argparse.Namespace, console: Console) -> int:
    plan = bench.plan_of(given)
    if given.out is not None:
        bench.check_folder(given.out, given.force)
    progress = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    result = bench.run(plan, lambda row: progress.print(display.bench_line(row), markup=False))
    written = [] if given.out is None else bench.write(result, given.out)
    if given.json:
        console.out(json.dumps(result, indent=2, allow_nan=False), highlight=False)
    else:
        for table in display.bench_tables(result):
            console.print(table)
        for line in (display.BENCH_WORDS, bench.disturbance(result)):
            if line:
                console.print(line, markup=False, soft_wrap=True)
        if written:
            names = ", ".join(path.name for path in written)
            console.print(f"Written to {given.out}: {names}", markup=False, soft_wrap=True)
    timed = any(row["name"] == "placecode" and row["us_per_model_step"] is not None for row in result["rows"])
    return 0 if timed else 1
