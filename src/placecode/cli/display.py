"""What the command line shows: progress with the remaining time, tables of results, and estimates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from placecode.analysis.stats import half_width
from placecode.bench.compare import compared_with, times_placecode
from placecode.bench.measure import disturbed
from placecode.cli.doctor import Check
from placecode.errors import BadInput
from placecode.execution.estimate import Estimate
from placecode.execution.memory import describe_peak, format_bytes
from placecode.execution.progress import Event
from placecode.execution.settings import ExecutionSettings
from placecode.experiments import Experiment, TableExperiment, claims
from placecode.experiments.claims import Finding
from placecode.experiments.specs import ENCODING_NAMES
from placecode.reports.html import tables
from placecode.runs.read import Run, parse_ranges
from placecode.runs.source import commits_text
from placecode.tasks.table import DATA_SETS

SECONDS_BETWEEN_LINES = 10.0
"""Minimum time between two lines of progress. Lines with the results of an evaluation are always printed."""


def print_line(console: Console, text: str) -> None:
    """Print a text unchanged: square brackets are not read as markup, and long lines are not wrapped."""
    console.print(text, markup=False, soft_wrap=True)


@contextmanager
def progress(console: Console) -> Iterator[Callable[[Event], None]]:
    """Yield a callback that shows the progress of a run: as a bar on a terminal, otherwise as lines of text."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"))
    with Progress(*columns, TimeRemainingColumn(), TextColumn("{task.fields[news]}"), console=console) as bars:
        task = bars.add_task("preparing", total=None, news="")
        last_means, done = "", _StepCounter()

        def show(event: Event) -> None:
            nonlocal last_means
            last_means = event.means() or last_means
            stacks = f", stack {event.stack + 1} of {event.stacks}" if event.stacks > 1 else ""
            bars.update(
                task,
                description=f"{_counted(event.members, 'member')}{stacks}",
                total=event.steps * event.stacks,
                completed=done.update(event),
                news="  ".join(part for part in (_loss(event), event.stopped(), last_means) if part),
            )

        yield show


class _StepCounter:
    """Counter of the training steps of all stacks (models trained together). Several stacks may train concurrently."""

    def __init__(self) -> None:
        self.steps: dict[int, int] = {}
        self.resumed_steps = 0
        """Number of steps done before the run was resumed. They are left out when the remaining time is estimated."""

    def update(self, event: Event) -> int:
        """Record the step of the stack in an event, and return the sum of the steps of all stacks so far."""
        previous = self.steps.get(event.stack, 0)
        self.steps[event.stack] = event.progress.step
        if not _loss(event):  # an event without a loss reports steps that were not trained in this process
            self.resumed_steps += event.progress.step - previous
        return sum(self.steps.values())


class _Lines:
    """Callback that prints a line of text at every evaluation, and otherwise every SECONDS_BETWEEN_LINES seconds."""

    def __init__(self, console: Console) -> None:
        self.console, self.begin, self.last, self.counter = console, time.monotonic(), 0.0, _StepCounter()

    def __call__(self, event: Event) -> None:
        now, total = time.monotonic(), event.steps * event.stacks
        if not self.counter.steps:
            self.begin = now
        done = self.counter.update(event)
        trained, means = done - self.counter.resumed_steps, event.means()
        if not means and now - self.last < SECONDS_BETWEEN_LINES:
            return
        remaining = (now - self.begin) / trained * (total - done) if trained else None
        self.last = now
        parts = [f"stack {event.stack + 1}/{event.stacks}"] if event.stacks > 1 else []
        parts += [f"step {event.progress.step}/{event.steps}", _loss(event), event.stopped(), means]
        parts += [] if remaining is None else [f"{duration(remaining)} left"]
        print_line(self.console, "  ".join(part for part in parts if part))


def _loss(event: Event) -> str:
    """Return the training loss in an event as text, such as "loss 0.123", or "" if the event has no loss."""
    return "" if np.isnan(event.progress.loss) else f"loss {event.progress.loss:.3f}"


def results_table(run: Run, metric: str = "accuracy") -> Table:
    """Return a table of a metric at the end of training, averaged over seeds. There is one row per setting (such as one
    sigma) or baseline.

    There is one column per split. If the metric was only averaged per condition (such as "hidden 0.5"), there is one
    column for each condition of each held-out split.
    """
    pooled = any(row["metric"] == metric and row["condition"] == "all" for row in run.summary)
    keys, places, results = tables.by_setting(run.summary, metric, pooled)
    columns = {key: [_short(setting[i]) for setting, _ in results] for i, key in enumerate(keys)}
    columns = {key: cells for key, cells in columns.items() if set(cells) != {"-"}}
    for place in places:
        name = place[0] if pooled else ", ".join(place)
        columns[name] = [_mean(rows.get(place), 2 if pooled else 3) for _, rows in results]
    table = Table(
        title=f"{tables.metric_title(metric)}, mean ± 95% interval over seeds ({run.experiment}, {run.config['scale']})"
    )
    for name in (*columns, "seeds", "diverged"):
        table.add_column(name.replace("_", " "), justify="right")
    for (_, rows), *cells in zip(results, *columns.values(), strict=True):
        table.add_row(*cells, *map(str, tables.counts(rows)))
    return table


def _short(value: object) -> str:
    """Format the value of a setting, such as "0.1"; a dash for None."""
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else ENCODING_NAMES.get(str(value), str(value))


def _mean(row: Mapping[str, Any] | None, digits: int = 2) -> str:
    """Format the mean in a summary row and the half-width of its 95% interval, as "0.95 ± 0.03"; "-" without a mean."""
    if row is None or row["mean"] is None:
        return "-"
    half = half_width(row["std"], row["n"]) if row["std"] is not None else np.nan
    return f"{row['mean']:.{digits}f}" + ("" if np.isnan(half) else f" ± {half:.{digits}f}")


def claims_table(findings: Sequence[Finding]) -> Table:
    """Return a table of claims with two verdicts: does the effect have the stated sign, and the published size?"""
    title = "Claims: effect and 95% interval over seeds"
    table = Table(title=title, caption=claims.HOW_TO_READ, caption_justify="left")
    table.add_column("claim", no_wrap=True)  # so that ids can be copied
    for column in ("label", "direction", "number (published)"):
        table.add_column(column)
    for column in ("effect", "95% interval", "margin"):
        table.add_column(column, justify="right")
    table.add_column("statement")
    colors = {claims.HOLDS: "green", claims.FAILS: "red", claims.MATCH: "green", claims.NO_MATCH: "red"}
    for finding in findings:
        claim, interval = finding.claim, finding.effect
        effect = "-" if np.isnan(interval.mean) else f"{interval.mean:+.3f}"
        bounds = "-" if np.isnan(interval.low) else f"{interval.low:+.3f} to {interval.high:+.3f}"
        sign = {"above": ">", "below": "<", "within": "±"}[claim.way]
        notes = "".join(f" ({note})" for note in (claim.remark, finding.note) if note)
        table.add_row(
            claim.id,
            claim.label,
            Text(claims.direction_text(finding), colors.get(finding.direction, "yellow")),
            Text(claims.number_text(finding), colors.get(finding.number, "")),
            effect,
            bounds,
            f"{sign} {claim.margin:g}",
            escape(claim.statement + notes),
        )
    return table


def experiment_table(experiments: Iterable[type[Experiment]]) -> Table:
    """Return a table of experiments: name, what it shows, and number of members (models) with `--scale quick` and
    `--scale paper`."""
    table = Table("experiment", "what it shows", "members, quick", "members, paper")
    for experiment in experiments:
        counts = [str(len(experiment.from_scale(scale).members())) for scale in ("quick", "paper")]
        table.add_row(experiment.name, experiment.about, *counts)
    return table


def run_table(runs: Sequence[Run]) -> Table:
    """Return a table with one row per run: experiment, state, commit of the code, and held-out accuracy or error for up
    to five sigmas."""
    columns = ("run", "experiment", "scale", "members", "state", "device", "source")
    table = Table(*columns, "held-out accuracy or error, by sigma")
    for run in runs:
        size = f"{run.config['members']} of {run.config['total']}"
        try:
            state, numbers = _outcome(run) if run.finished else ("unfinished", "")
        except BadInput as error:
            state, numbers = "damaged", str(error)
        about = (run.experiment, run.config["scale"], size, state, run.config["device"], _source(run))
        table.add_row(escape(str(run.path)), *about, escape(numbers))
    return table


def _source(run: Run) -> str:
    """Return a text that names the commits whose code produced a run, or "-" if environment.json cannot be read."""
    try:
        return commits_text(run.environment)
    except BadInput:  # environment.json is missing or damaged
        return "-"


def _outcome(run: Run) -> tuple[str, str]:
    """Return the state of a finished run, such as "done, 2 diverged", and its held-out accuracy or error as text.

    The text has the results of up to five settings, evenly spaced, labelled by sigma (or by encoding). It is empty if
    the run has no such results, or if errors cannot be labelled, because settings share an encoding and sigma.
    """
    diverged = int((run.members["state"] == "diverged").sum())
    measures, encodings = (("ood", "accuracy"), ("test", "mse")), set(run.members["encoding"])
    rows = [row for row in run.summary if (row["split"], row["metric"]) in measures and row["mean"] is not None]
    rows = [row for row in rows if row["encoding"] in encodings]  # all but the baselines
    if (
        run.experiment == TableExperiment.name
    ):  # models trained on half of the samples only serve to estimate confidence
        rows = [row for row in rows if row.get("data", DATA_SETS[0]) == DATA_SETS[0]]
    shares = list(run.members["mask_ratio"].unique()) if "mask_ratio" in run.members else []
    trained_condition = f"hidden {shares[0]:g}" if len(shares) == 1 else ""
    rows = [row for row in rows if row["condition"] in ("all", trained_condition)]
    are_errors = bool(rows) and rows[0]["metric"] == "mse"
    if are_errors and len({(row["encoding"], row["sigma"]) for row in rows}) < len(rows):
        rows = []
    rows = [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, 5).round().astype(int))] if rows else []
    names = [_short(row["encoding"]) if row["sigma"] is None else f"{row['sigma']:g}" for row in rows]
    numbers = "  ".join(f"{name}: {row['mean']:.2f}" for name, row in zip(names, rows, strict=True))
    if rows and are_errors:
        numbers = f"{100 * shares[0]:g}% hidden: {numbers}"
    return ("done" if not diverged else f"done, {diverged} diverged"), numbers


def estimate_text(experiment: Experiment, expected: Estimate, execution: ExecutionSettings) -> str:
    """Return a few lines of text on the estimated time and memory of a run."""
    processes = f", {expected.processes} worker processes" if expected.processes > 1 else ""
    lines = [
        f"{experiment.name}: {_counted(expected.members, 'member')} in {_counted(expected.stacks, 'stack')}, "
        f"{expected.steps} steps each, on {execution.device}{processes}, precision {execution.precision}.",
        f"Estimated time for training: {duration(expected.seconds)}; memory: {expected.bytes / 2**30:.1f} GiB.",
    ]
    if experiment.zero_loss_patience:
        lines.append(
            f"The time is an upper limit: a member stops once its training loss has been exactly 0 for "
            f"{experiment.zero_loss_patience} epochs."
        )
    if expected.bytes_per_member is not None:
        per_member, largest = format_bytes(expected.bytes_per_member), _counted(expected.largest_stack_size, "member")
        lines.append(f"Each member needs {per_member} of GPU memory; the largest stack has {largest}.")
    return "\n".join(lines)


def memory_text(run: Run) -> str | None:
    """Return a sentence on the largest peak GPU memory of any stack (models trained together) of a run. Return None if
    it was not measured (on a CPU)."""
    peaks = run.environment.get("memory", {}).get("peak bytes", [])
    sizes = [len(parse_ranges(part, run.config["total"])) for part in run.environment.get("split", [])]
    measured = [(peak, size) for peak, size in zip(peaks, sizes, strict=False) if peak is not None]
    if not measured:
        return None
    peak, size = max(measured)
    return f"Memory: largest stack of {_counted(size, 'member')}; {describe_peak(peak, size)}."


def _counted(count: int, word: str) -> str:
    """Return a number with a noun in singular or plural, such as "2 stacks"."""
    return f"{count} {word}" + ("" if count == 1 else "s")


def duration(seconds: float) -> str:
    """Format a number of seconds as seconds, minutes or hours.

    >>> duration(42), duration(200), duration(9000)
    ('42 seconds', '3 minutes', '2.5 hours')
    """
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def doctor_table(checks: Sequence[Check]) -> Table:
    """Return a table of the checks of `placecode doctor`, each marked with "ok" if it passed."""
    table = Table("", "item", "status")
    for check in checks:
        table.add_row("[green]ok[/]" if check.passed else "[yellow]--[/]", escape(check.item), escape(check.status))
    return table


BENCH_LEGEND = (
    "us: microseconds per model and step; ceiling: throughput of torch.bmm on the products of the linear layers; "
    "x: time relative to placecode. Implementations that train many models at once are compared with placecode at the "
    "same number of models, loops over models with placecode at its fastest."
)


def bench_line(row: dict[str, Any]) -> str:
    """Return a line of text on one result of a benchmark: the time or throughput, or the reason why there is none."""
    label = f"{row['case']}, {row['precision']}: {row['name']}"
    if row["name"] == "ceiling":
        value = "" if row["tflops"] is None else f"{row['tflops']:.3g} TFLOP/s"
    else:
        label += f", {_counted(row['members'], 'model')}"
        value = "" if row["us_per_model_step"] is None else f"{row['us_per_model_step']:,.0f} us"
    return f"{label}: {value or row['note']}"


def bench_tables(result: dict[str, Any]) -> Iterator[Table]:
    """Yield one table of benchmark results for each combination of case (kind of model) and precision."""
    rows = result["rows"]
    for case, precision in dict.fromkeys((row["case"], row["precision"]) for row in rows):
        table = Table(title=f"{case}, precision {precision}, on {result['environment']['device']}")
        columns = ("", "models at once", "us", "models per hour", "TFLOP/s", "of ceiling", "peak MiB", "x")
        for column in (*columns, "compared with"):
            table.add_column(column, justify="right" if column else "left")
        for row in rows:
            if (row["case"], row["precision"]) == (case, precision):
                cells = (
                    (row["us_per_model_step"], "{:,.0f}"),
                    (row["models_per_hour"], "{:,.3g}"),
                    (row["tflops"], "{:.3g}"),
                    (row["share_of_ceiling"], "{:.0%}"),
                    (None if row["peak_bytes"] is None else row["peak_bytes"] / 2**20, "{:,.0f}"),
                    (times_placecode(row, rows), "{:.3g}"),
                )
                texts = ["-" if value is None else form.format(value) for value, form in cells]
                texts.append(compared_with(row, rows))
                table.add_row(row["name"] + (" *" if disturbed(row) else ""), str(row["members"]), *texts)
                if row["note"]:
                    table.add_row(f"  [dim]{escape(row['note'])}[/]")
        yield table
