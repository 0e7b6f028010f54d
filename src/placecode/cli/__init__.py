"""The command line program `placecode`. This is the only package that prints.

    placecode run lst-sigma --scale quick --out runs/first

Exit codes: 0 for success, 1 for a failure, 2 for invalid input or a full disk (one sentence says what is wrong), 130 if
the user has stopped the command. A stopped `run` or `fit` is saved, and the option --resume continues it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from placecode import bench, experiments
from placecode.cli import display, doctor, fit, flags, recommend
from placecode.cli.bench_options import add_bench_options, plan_of
from placecode.cli.display import print_line
from placecode.cli.reporting import command_of, publish
from placecode.cli.run_options import add_run_options, execution_settings, stop_on_signals
from placecode.errors import BadInput, one_of, value_of
from placecode.execution import local
from placecode.execution.estimate import estimate
from placecode.execution.progress import Interrupted, WorkerFailed
from placecode.experiments import SCALES, experiment_of
from placecode.files import is_full_disk
from placecode.reports import html
from placecode.reports.html import comparison
from placecode.reports.pages.registry import page_of
from placecode.runs import merge
from placecode.runs import read as runs
from placecode.runs.read import Run, finished_run
from placecode.version import VERSION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `placecode` with these arguments, by default those of the command line, and return the exit code."""
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, 200)  # if output goes to a file, tables are not wrapped
    errors = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    argv = list(sys.argv[1:] if arguments is None else arguments)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: errors.print(f"placecode: {message}", style="yellow", markup=False)
        return _main(argv, console, errors)


def _main(argv: Sequence[str], console: Console, errors: Console) -> int:
    """Run the command in `argv` and return its exit code. Expected exceptions become messages on `errors` (stderr)."""
    can_resume = argv[:1] in (["run"], ["fit"])

    def fail(message: object, code: int) -> int:
        """Print an error message and return the exit code."""
        errors.print(f"placecode: {message}", style="red", markup=False)
        return code

    try:
        arguments = _parser(argv).parse_args(argv)
        return int(arguments.command(arguments, console) or 0)
    except BadInput as error:
        return fail(error, 2)
    except WorkerFailed as error:
        return fail(error, 1)
    except Interrupted:
        command = shlex.join([*(word for word in argv if word not in ("--force", "--resume")), "--resume"])
        errors.print(f"Stopped and saved. Continue with:\n  placecode {command}", markup=False)
        return 130
    except KeyboardInterrupt:
        errors.print("Stopped immediately." + (" --resume continues from the last checkpoint." if can_resume else ""))
        return 130
    except OSError as error:
        if not is_full_disk(error):
            return fail(error, 1)
        advice = "free some space and try again"
        if can_resume:
            advice = "finished members and the last checkpoint are kept: free some space and continue with --resume"
        return fail(f"the disk must have space for the results; it is full ({error.strerror}); {advice}.", 2)


class _Parser(argparse.ArgumentParser):
    """Argument parser that raises BadInput instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message[0].lower()}{message[1:]} (see '{self.prog} --help').")


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser of all commands. If `argv` is a `run` command, the settings of its experiment are options."""
    about = "Train transformers with learnable positional encodings (PEs), many at once, and analyse what the PEs learn"
    parser = _Parser(prog="placecode", description=f"{about}.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"placecode {VERSION}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    def add(
        name: str, help: str, command: Callable[..., int | None], aliases: Sequence[str] = ()
    ) -> argparse.ArgumentParser:
        """Add a command, which calls the function `command`, and return the parser of its arguments."""
        # abbreviations are off: --seed 3 would be read as --seeds 3, which means the seeds 0, 1 and 2
        subparser = commands.add_parser(
            name, aliases=aliases, help=help, description=help, formatter_class=_Formatter, allow_abbrev=False
        )
        subparser.set_defaults(command=command)
        return subparser

    add("experiments", "list the available experiments", _experiments, aliases=["studies"])  # its earlier name
    _run_arguments(add("run", "run an experiment and write a report", _run), argv)

    fit.add_arguments(add("fit", "learn a map of the channels (columns) of your own table", fit.run))
    recommend.add_arguments(add("recommend", "recommend an initialization scale sigma for a learned PE", recommend.run))

    command = add("merge", "merge runs of different members of an experiment (run with --members)", _merge)
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    command.add_argument("--out", type=Path, required=True, help="folder of the merged run")
    command.add_argument("--force", action="store_true", help="overwrite a run in the output folder")

    command = add(
        "slim", "make a small copy of a finished run: no weights, fewer metrics, arrays in half precision", _slim
    )
    command.add_argument("run", type=Path, metavar="RUN", help="run folder")
    command.add_argument("--out", type=Path, required=True, help="folder of the copy")
    command.add_argument("--seeds", metavar="A,B", help="copy the arrays of these seeds only (default: all seeds)")
    some_arrays = "copy arrays of these kinds only, such as pe_end, or pe_end:seed=0 for members with this value"
    command.add_argument("--arrays", metavar="A,B", help=some_arrays)
    command.add_argument("--force", action="store_true", help="overwrite a run in the output folder")

    command = add("report", "draw the figures and write the reports of finished runs again", _report)
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    help = "write one page that compares all runs, instead of one report per run"
    command.add_argument("--together", type=Path, metavar="FILE.html", help=help)

    command = add("claims", "show which claims finished runs support", _claims)
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    command.add_argument("--json", action="store_true", help="print JSON instead of tables")

    command = add("runs", "list the runs in a folder with their main results", _runs)
    command.add_argument("folder", nargs="?", type=Path, default=Path("runs"), metavar="DIR", help="folder to search")

    add_bench_options(add("bench", "time training on this machine and compare with other implementations", _bench))

    add("doctor", "check this machine: packages, devices, memory and disk", _doctor)
    return parser


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Help formatter that adds the default of each option to its help text, unless it is None or False."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False, argparse.SUPPRESS):
            return action.help
        return super()._get_help_string(action)


def _run_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the options of `run`: those for all experiments, and the settings of the experiment named in `argv`."""
    parser.add_argument(
        "experiment", action=_ExperimentName, metavar="EXPERIMENT", help=f"one of {', '.join(experiments.EXPERIMENTS)}"
    )
    parser.add_argument("--scale", default="quick", help="quick (minutes on a laptop) or paper (as published)")
    add_run_options(parser, "runs/EXPERIMENT-SCALE")
    parser.add_argument("--members", default=":", metavar="I:J", help="train only members I to J - 1; ':' trains all")
    if (name := _named_experiment(argv)) is not None:
        group = parser.add_argument_group(f"settings of {name}", "The defaults depend on the scale.")
        flags.add_settings(group, experiments.lookup(name))


class _ExperimentName(argparse.Action):
    """Argparse action that reports an unknown experiment, before argparse reports its options as unknown."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        experiments.lookup(values)
        namespace.experiment = values


def _named_experiment(argv: Sequence[str]) -> str | None:
    """Return the name of the experiment in the arguments of a `run` command, or None if there is none.

    A name that is the value of an option, as in `--out lst-sigma`, does not count. Other commands give None.
    """
    if argv[:1] != ["run"]:
        return None
    options = ("--scale", "--out", "--device", "--precision", "--stack", "--memory", "--workers", "--members")
    pairs = itertools.pairwise(argv)
    return next((word for previous, word in pairs if word in experiments.EXPERIMENTS and previous not in options), None)


# ------------------------------------------------------------------------------------------------------- commands


def _experiments(arguments: argparse.Namespace, console: Console) -> None:
    """Print the table of all experiments."""
    console.print(display.experiment_table(experiments.EXPERIMENTS.values()))
    print_line(
        console,
        "To run one: placecode run EXPERIMENT [--scale quick|paper]. For its settings: placecode run EXPERIMENT --help",
    )


def _run(arguments: argparse.Namespace, console: Console) -> None:
    """Run an experiment, write its report and print the results. With --dry-run, only estimate its time and memory."""
    if arguments.scale not in SCALES:
        raise one_of("scale", SCALES, arguments.scale)
    kind = experiments.lookup(arguments.experiment)
    experiment = kind.from_scale(arguments.scale, **flags.settings(arguments, kind))
    execution = execution_settings(arguments)
    out = arguments.out or Path("runs") / f"{experiment.name}-{arguments.scale}"
    if arguments.dry_run:
        expected = estimate(experiment, execution, arguments.members)
        print_line(console, display.estimate_text(experiment, expected, execution))
        return
    with stop_on_signals() as stopped, display.progress(console) as progress:
        run = local.execute(
            experiment,
            out,
            scale=arguments.scale,
            execution=execution,
            member_ranges=arguments.members,
            resume=arguments.resume,
            force=arguments.force,
            notify=progress,
            stop=stopped,
        )
    page = page_of(experiment, run)
    report = publish(page)
    console.print(display.results_table(run, experiment.metric))
    for line in page.sentences():
        print_line(console, line)
    if memory := display.memory_text(run):
        print_line(console, memory)
    print_line(console, f"Report: {report}")


def _merge(arguments: argparse.Namespace, console: Console) -> None:
    """Merge runs of different members (models) of an experiment, write the report, and print how many are missing."""
    experiment = experiment_of(Run(arguments.runs[0]))
    run = merge.merge(
        arguments.runs,
        arguments.out,
        arguments.force,
        experiment.compare,
        experiment.members(),
        lambda piece: experiment_of(piece).fields(),
    )
    missing = run.config["total"] - len(run.members)
    print_line(console, f"{len(run.members)} of {run.config['total']} members of {run.experiment} are in {run.path}.")
    if missing:
        print_line(console, f"Still missing: {missing}; merge again when all are available.")
    print_line(console, f"Report: {publish(page_of(experiment, run))}")


def _slim(arguments: argparse.Namespace, console: Console) -> None:
    """Write a copy of a finished run without weights and with arrays in half precision, and print its size."""
    seeds = None if arguments.seeds is None else [value_of("seeds", text, int) for text in arguments.seeds.split(",")]
    arrays = None if arguments.arrays is None else arguments.arrays.split(",")
    run = merge.slim(arguments.run, arguments.out, arguments.force, seeds, arrays)
    size = sum(file.stat().st_size for file in run.path.iterdir() if file.is_file())
    print_line(console, f"{run.path}: {size / 2**20:.1f} MiB.")


def _report(arguments: argparse.Namespace, console: Console) -> None:
    """Write the report of each run or, with --together, one page that compares all runs."""
    if arguments.together is not None:
        comparison.refuse(arguments.runs, arguments.together)
        pages = [page_of(experiment_of(run), run) for run in map(finished_run, arguments.runs)]
        commands = [command_of(page.run, page.experiment) for page in pages]
        print_line(console, f"Report: {comparison.write(pages, commands, arguments.together)}")
        return
    for run in [finished_run(path) for path in arguments.runs]:
        print_line(console, f"Report: {publish(page_of(experiment_of(run), run))}")


def _claims(arguments: argparse.Namespace, console: Console) -> None:
    """Check the claims (statements) about an experiment on each run, and print the verdicts as tables or JSON."""
    opened = [finished_run(path) for path in arguments.runs]
    findings_by_run = [(run, experiment_of(run).findings(run)) for run in opened]
    if arguments.json:
        records = [finding.record() for _, findings in findings_by_run for finding in findings]
        console.out(json.dumps(records, indent=2, allow_nan=False), highlight=False)
        return
    for run, findings in findings_by_run:
        if not findings:
            print_line(console, f"{run.path}: there are no claims about {run.experiment}.")
            continue
        print_line(console, f"{run.path}: {run.experiment}, {run.config['scale']} scale")
        console.print(display.claims_table(findings))
        if run.config["scale"] != "paper":
            print_line(console, html.tables.QUICK_SCALE_NOTE)


def _runs(arguments: argparse.Namespace, console: Console) -> None:
    """Print a table of all runs in a folder and its subfolders."""
    if not arguments.folder.is_dir():
        raise BadInput(f"{arguments.folder} must be a folder with runs; there is no such folder.")
    if runs_in_folder := runs.find_runs(arguments.folder):
        console.print(display.run_table(runs_in_folder))
    else:
        print_line(console, f"No runs in {arguments.folder}. Start one with: placecode run lst-sigma")


def _doctor(arguments: argparse.Namespace, console: Console) -> None:
    """Check the packages, devices, memory and disk of this machine, and print the results as a table."""
    console.print(display.doctor_table(doctor.run_checks()))


def _bench(arguments: argparse.Namespace, console: Console) -> int:
    """Run a benchmark, print and write the results, and return the exit code: 1 if placecode could not be timed."""
    plan = plan_of(arguments)
    if arguments.out is not None:
        bench.check_folder(arguments.out, arguments.force)
    progress = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    result = bench.run(plan, lambda row: progress.print(display.bench_line(row), markup=False))
    paths = [] if arguments.out is None else bench.write(result, arguments.out)
    if arguments.json:
        console.out(json.dumps(result, indent=2, allow_nan=False), highlight=False)
    else:
        for table in display.bench_tables(result):
            console.print(table)
        for line in filter(None, (display.BENCH_LEGEND, bench.disturbance_note(result))):
            print_line(console, line)
        if paths:
            print_line(console, f"Written to {arguments.out}: {', '.join(path.name for path in paths)}")
    timed = any(row["name"] == "placecode" and row["us_per_model_step"] is not None for row in result["rows"])
    return 0 if timed else 1
