"""The command line. This is the only package that prints. Invalid input gives one sentence and exit code 2.

    placecode run lst-sigma --scale quick --out runs/first

Exit codes: 0 success, 1 failure, 2 invalid input, 130 stopped by the user (the run is saved).
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
from placecode.runs import merge
from placecode.runs import read as runs
from placecode.runs.read import Run
from placecode.version import VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Arguments of the command line; by default those of the process.

    Returns
    -------
    int
        The exit code.
    """
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, 200)  # tables in files need not be wrapped
    errors = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    words = list(sys.argv[1:] if arguments is None else arguments)
    with warnings.catch_warnings():
        warnings.showwarning = partial(_print_warning, errors)
        return _main(words, console, errors)


def _print_warning(errors: Console, message: Warning | str, *_: object) -> None:
    """Print a warning without its source line."""
    errors.print(f"placecode: {message}", style="yellow", markup=False)


def _main(words: Sequence[str], console: Console, errors: Console) -> int:
    """Parse the arguments, run the command, and turn exceptions into messages and exit codes."""
    try:
        parser = _parser(words)
        arguments = parser.parse_args(words)
        return int(arguments.command(arguments, console) or 0)
    except BadInput as error:
        errors.print(f"placecode: {error}", style="red", markup=False)
        return 2
    except local.Interrupted:
        kept_words = [word for word in words if word not in ("--force", "--resume")]
        command = shlex.join([*kept_words, "--resume"])
        errors.print(f"Stopped and saved. Continue with:\n  placecode {command}", markup=False)
        return 130
    except local.WorkerFailed as error:
        errors.print(f"placecode: {error}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        errors.print(
            "Stopped immediately."
            + (" --resume continues from the last checkpoint." if words[:1] in (["run"], ["fit"]) else "")
        )
        return 130
    except OSError as error:
        full = is_full_disk(error)
        message = str(error)
        if full:
            advice = "free some space and try again"
            if words[:1] in (["run"], ["fit"]):
                advice = "finished members and the last checkpoint are kept: free some space and continue with --resume"
            message = f"the disk must have space for the results; it is full ({error.strerror}); {advice}."
        errors.print(f"placecode: {message}", style="red", markup=False)
        return 2 if full else 1


class _Parser(argparse.ArgumentParser):
    """Argument parser that raises BadInput instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message[0].lower()}{message[1:]} (see '{self.prog} --help').")


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    about = (
        "Train transformers with learnable positional encodings (PEs), many at once, and analyse what the PEs learn."
    )
    parser = _Parser(prog="placecode", description=about, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"placecode {VERSION}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    def add(name: str, help: str, command: Callable[..., int | None]) -> argparse.ArgumentParser:
        # no abbreviations: --seed 3 would be read as --seeds 3, the seeds 0, 1 and 2
        added = commands.add_parser(name, help=help, description=help, formatter_class=_Formatter, allow_abbrev=False)
        added.set_defaults(command=command)
        return added

    add("studies", "list the available studies", _studies)
    _run_arguments(add("run", "run a study and write a report", _run), words)

    fit.add_arguments(add("fit", "learn a map of the channels (columns) of your own table", _fit))

    recommend.add_arguments(add("recommend", "recommend an initialization scale sigma for a learned PE", recommend.run))

    command = add("merge", "merge runs of different members of a study (run with --members)", _merge)
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    command.add_argument("--out", type=Path, required=True, help="folder of the merged run")
    command.add_argument("--force", action="store_true", help="overwrite a run in the output folder")

    command = add("slim", "make a small copy of a finished run: no weights, arrays in half precision", _slim)
    command.add_argument("run", type=Path, metavar="RUN", help="run folder")
    command.add_argument("--out", type=Path, required=True, help="folder of the copy")
    command.add_argument("--seeds", metavar="A,B", help="copy the arrays of these seeds only (default: all seeds)")
    command.add_argument("--force", action="store_true", help="overwrite a run in the output folder")

    command = add("report", "draw the figures and write the reports of finished runs again", _report)
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    command.add_argument(
        "--together",
        type=Path,
        metavar="FILE.html",
        help="write one page that compares all runs, instead of one report per run",
    )

    command = add("claims", "show which claims finished runs support", _claims)
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    command.add_argument("--json", action="store_true", help="print JSON instead of tables")

    command = add("runs", "list the runs in a folder with their main results", _runs)
    command.add_argument("folder", nargs="?", type=Path, default=Path("runs"), metavar="DIR", help="folder to search")

    bench.add_options(add("bench", "time training on this machine and compare with other implementations", _bench))

    add("doctor", "check this machine: packages, devices, memory and disk", _doctor)
    return parser


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Help formatter that shows defaults, except None and False."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False, argparse.SUPPRESS):
            return action.help
        return super()._get_help_string(action)


def _run_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the arguments of `run`: those of every study, and the settings of the study named on the command line."""
    parser.add_argument("study", action=_StudyName, metavar="STUDY", help=f"one of {', '.join(experiments.STUDIES)}")
    parser.add_argument("--scale", default="quick", help="quick (minutes on a laptop) or paper (as published)")
    parser.add_argument("--out", type=Path, help="run folder (default: runs/STUDY-SCALE)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--precision",
        default="high",
        help="precision of matrix products on a GPU: high (float16 inputs), tf32 or highest (float32); or bf16, which "
        "also works on a CPU",
    )
    sizes = ", ".join(f"{size} on {device}" for device, size in local.DEFAULT_STACK_SIZE.items())
    parser.add_argument(
        "--stack",
        metavar="N",
        help=f"maximum number of members to train together; memory may allow fewer (default: {sizes})",
    )
    parser.add_argument(
        "--memory", default=str(local.DEFAULT_MEMORY_SHARE), metavar="SHARE", help="maximum share of GPU memory to use"
    )
    parser.add_argument("--workers", metavar="N", help="number of training processes (default: one per visible GPU)")
    parser.add_argument("--plain", action="store_true", help="use the slow reference implementation, without kernels")
    parser.add_argument("--members", default=":", metavar="I:J", help="train only members I to J - 1; ':' trains all")
    parser.add_argument("--resume", action="store_true", help="continue an unfinished run in the output folder")
    parser.add_argument("--force", action="store_true", help="overwrite a run in the output folder")
    parser.add_argument("--dry-run", action="store_true", help="estimate time and memory without running the study")
    name = _named_study(words)
    if name is None:
        return
    study = experiments.lookup(name)
    group = parser.add_argument_group(f"settings of {name}", "The defaults depend on the scale.")
    flags.add_settings(group, study)


class _StudyName(argparse.Action):
    """Check the name of the study first, so that an unknown study is reported before its unknown settings."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        experiments.lookup(values)
        namespace.study = values


def _named_study(words: Sequence[str]) -> str | None:
    """Find the study of a `run` command: the first name of a study that is not the value of an option."""
    if words[:1] != ["run"]:
        return None
    options = ("--scale", "--out", "--device", "--precision", "--stack", "--memory", "--workers", "--members")
    pairs = itertools.pairwise(words)
    return next((word for previous, word in pairs if word in experiments.STUDIES and previous not in options), None)


# ------------------------------------------------------------------------------------------------------- commands


def _studies(arguments: argparse.Namespace, console: Console) -> None:
    """Print the available studies."""
    console.print(display.study_table(experiments.STUDIES.values()))
    line = "To run a study: placecode run STUDY [--scale quick|paper]. For its settings: placecode run STUDY --help"
    console.print(line, markup=False, soft_wrap=True)


def _run(arguments: argparse.Namespace, console: Console) -> int:
    """Run a study, or estimate its time and memory, and print the results."""
    if arguments.scale not in SCALES:
        raise one_of("scale", SCALES, arguments.scale)
    if arguments.resume and arguments.force:
        raise BadInput(
            "--resume and --force must not be used together: one keeps the earlier run, the other deletes it."
        )
    kind = experiments.lookup(arguments.study)
    study = kind.at(arguments.scale, **flags.settings(arguments, kind))
    stack, workers = (
        None if text is None else value_of(name, text, int)
        for name, text in (("stack", arguments.stack), ("workers", arguments.workers))
    )
    share = value_of("memory", arguments.memory, float)
    where = local.Where(arguments.device, arguments.precision, stack, share, workers, arguments.plain).resolved()
    out = arguments.out or Path("runs") / f"{study.name}-{arguments.scale}"
    if arguments.dry_run:
        expected = estimate(study, where, arguments.members)
        console.print(display.estimate_text(study, expected, where), markup=False, soft_wrap=True)
        return 0
    with _stop_on_signals() as stopped, display.progress(console) as progress:
        run = local.execute(
            study,
            out,
            scale=arguments.scale,
            where=where,
            chosen=arguments.members,
            resume=arguments.resume,
            force=arguments.force,
            notify=progress,
            stop=stopped,
        )
    report = publish(run)
    console.print(display.results_table(run, study.metric))
    for line in page_of(study, run).words():
        console.print(line, markup=False, soft_wrap=True)
    if memory := display.memory_text(run):
        console.print(memory, markup=False, soft_wrap=True)
    console.print(f"Report: {report}", markup=False, soft_wrap=True)
    return 0


def _fit(arguments: argparse.Namespace, console: Console) -> int:
    """Fit a table."""
    return fit.run(arguments, console, _stop_on_signals, publish)


@contextmanager
def _stop_on_signals() -> Iterator[Callable[[], bool]]:
    """Context manager whose function returns True after SIGINT or SIGTERM. A second signal stops immediately."""
    stopped = False

    def handle(number: int, frame: types.FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        signal.signal(number, signal.default_int_handler)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _merge(arguments: argparse.Namespace, console: Console) -> None:
    """Merge runs and write the report."""
    study = study_of(Run(arguments.runs[0]))
    run = merge.merge(arguments.runs, arguments.out, arguments.force, study.compare, study.members())
    missing = run.config["total"] - len(run.members)
    console.print(
        f"{len(run.members)} of {run.config['total']} members of {run.study} are in {run.path}.", markup=False
    )
    if missing:
        console.print(f"Still missing: {missing}; merge again when all are available.")
    console.print(f"Report: {publish(run)}", markup=False, soft_wrap=True)


def _slim(arguments: argparse.Namespace, console: Console) -> None:
    """Copy a run without its weights."""
    seeds = None if arguments.seeds is None else [value_of("seeds", text, int) for text in arguments.seeds.split(",")]
    run = merge.slim(arguments.run, arguments.out, arguments.force, seeds)
    size = sum(file.stat().st_size for file in run.path.iterdir() if file.is_file())
    console.print(f"{run.path}: {size / 2**20:.1f} MiB.", markup=False, soft_wrap=True)


def _report(arguments: argparse.Namespace, console: Console) -> None:
    """Write the report of each run, or one page that compares them."""
    if arguments.together is not None:
        together.refuse(arguments.runs, arguments.together)
        page = together.write([compared(run) for run in _finished(arguments.runs)], arguments.together)
        console.print(f"Report: {page}", markup=False, soft_wrap=True)
        return
    for run in _finished(arguments.runs):
        console.print(f"Report: {publish(run)}", markup=False, soft_wrap=True)


def _finished(paths: Sequence[Path]) -> list[Run]:
    """Open runs; BadInput if one is not finished."""
    opened = [Run(path) for path in paths]
    for run in opened:
        if not run.finished:
            raise BadInput(runs.unfinished(run.path, "summary.json"))
    return opened


def _claims(arguments: argparse.Namespace, console: Console) -> None:
    """Check the claims about each run and print the results."""
    checked = [(run, study_of(run).findings(run)) for run in _finished(arguments.runs)]
    if arguments.json:
        records = [finding.record() for _, findings in checked for finding in findings]
        console.out(json.dumps(records, indent=2, allow_nan=False), highlight=False)
        return
    for run, findings in checked:
        if not findings:
            console.print(f"{run.path}: there are no claims about {run.study}.", markup=False, soft_wrap=True)
            continue
        console.print(f"{run.path}: {run.study}, {run.config['scale']} scale", markup=False, soft_wrap=True)
        console.print(display.claims_table(findings))
        if run.config["scale"] != "paper":
            console.print(html.tables.NO_TEST, markup=False, soft_wrap=True)


def _runs(arguments: argparse.Namespace, console: Console) -> None:
    """Print a table of the runs in a folder."""
    if not arguments.folder.is_dir():
        raise BadInput(f"{arguments.folder} must be a folder with runs; there is no such folder.")
    listed = runs.find(arguments.folder)
    if not listed:
        console.print(f"No runs in {arguments.folder}. Start one with: placecode run lst-sigma", markup=False)
        return
    console.print(display.run_table(listed))


def _doctor(arguments: argparse.Namespace, console: Console) -> None:
    """Print what is available on this machine."""
    console.print(display.doctor_table(doctor.examine()))


def _bench(arguments: argparse.Namespace, console: Console) -> int:
    """Run a benchmark and print or write its results; the exit code is 1 if placecode could not be timed."""
    plan = bench.plan_of(arguments)
    if arguments.out is not None:
        bench.check_folder(arguments.out, arguments.force)
    progress = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    result = bench.run(plan, lambda row: progress.print(display.bench_line(row), markup=False))
    written = [] if arguments.out is None else bench.write(result, arguments.out)
    if arguments.json:
        console.out(json.dumps(result, indent=2, allow_nan=False), highlight=False)
    else:
        for table in display.bench_tables(result):
            console.print(table)
        for line in (display.BENCH_LEGEND, bench.disturbance(result)):
            if line:
                console.print(line, markup=False, soft_wrap=True)
        if written:
            names = ", ".join(path.name for path in written)
            console.print(f"Written to {arguments.out}: {names}", markup=False, soft_wrap=True)
    timed = any(row["name"] == "placecode" and row["us_per_model_step"] is not None for row in result["rows"])
    return 0 if timed else 1
