"""Draw the results of a benchmark: time and memory by number of models, and bars of all implementations.

>>> draw(json.loads(Path("results/bench/cpu.json").read_text())).keys()
dict_keys(['lst-quick-time', 'lst-quick-memory', 'lst-quick-peers', ...])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from placecode.bench.compare import OURS, Row, baseline, times_placecode
from placecode.bench.measure import disturbed
from placecode.bench.peers import STACKED
from placecode.reports.figures import base
from placecode.reports.figures.base import BLUE, GREEN, INK, MUTED, VERMILLION

PRECISIONS: dict[str, dict[str, Any]] = {
    "high": {"color": BLUE, "marker": "o", "linestyle": "-"},
    "tf32": {"color": GREEN, "marker": "h", "linestyle": (0, (3, 1, 1, 1))},
    "bf16": {"color": VERMILLION, "marker": "D", "linestyle": (0, (5, 2))},
    "highest": {"color": INK, "marker": "s", "linestyle": (0, (1, 1.4))},
}
MARKERS = {
    "loop-eager": "v",
    "loop-compiled": "^",
    "encoder-loop": ">",
    "authors": "*",
    "vmap": "P",
    "compiled-vmap": "s",
    "jax-vmap": "X",
}


def draw(result: dict[str, Any]) -> dict[str, Figure]:
    """Draw all figures of a benchmark; return them by file name without suffix.

    Rows that are too slow because other programs were running are left out. There are no figures for a case (model
    size) for which placecode was not measured.
    """
    figures = {}
    measured = [row for row in result["rows"] if row["us_per_model_step"] is not None and not disturbed(row)]
    for case in dict.fromkeys(row["case"] for row in result["rows"]):
        rows = [row for row in measured if row["case"] == case]
        ceilings = [row for row in result["ceilings"] if row["case"] == case and row["tflops"] is not None]
        ours = [row for row in rows if row["name"] == OURS]
        if not ours:
            continue
        about = f"{case} on {machine_name(result['environment'])}"
        if len({row["members"] for row in ours}) > 1:
            figures[file_name(case, "time")] = time_by_members(rows, ceilings, about)
            if all(row["peak_bytes"] is not None for row in ours):
                figures[file_name(case, "memory")] = memory_by_members(rows, about)
        if len(ours) < len(rows):
            figures[file_name(case, "peers")] = peers_beside(rows, ceilings, about)
    return figures


def file_name(case: str, kind: str) -> str:
    """Return the file name of a figure without its suffix, such as "lst-quick-time"."""
    return f"{case}-{kind}".replace(", ", "-").replace(" ", "-")


def machine_name(environment: dict[str, Any]) -> str:
    """Return a description of the machine: its GPU, or its CPU and number of cores."""
    if environment["gpu"]:
        return f"one {environment['gpu']}"
    return f"{environment['processor']}, {environment['cores']} cores"


def time_by_members(rows: Sequence[Row], ceilings: Sequence[Row], about: str) -> Figure:
    """Draw the time per model and step by number of models, with one colour per precision.

    placecode is drawn as lines, other implementations as points. A loop trains one model at a time, so it is a point at
    1. Dotted lines show the time of the matrix products alone (`ceilings`). `about` is a line of small print below the
    figure.
    """
    figure, (axes,) = base.panels(1, 1, (6.6, 4.4))
    counts = [row["members"] for row in rows]
    lowest = min((row["floor_us"] for row in ceilings), default=0.0)
    for precision, style in PRECISIONS.items():
        _line(axes, [row for row in rows if row["precision"] == precision], "us_per_model_step", style, precision)
        for floor in (row for row in ceilings if row["precision"] == precision):
            axes.axhline(floor["floor_us"], color=style["color"], linewidth=1.1, linestyle=(0, (1, 2)))
            below = len(ceilings) > 1 and floor["floor_us"] == lowest  # labels of close lines must not overlap
            text_style = {"color": style["color"], "fontsize": 7.5, "textcoords": "offset points"}
            text_style |= {"va": "top"} if below else {"va": "bottom"}
            axes.annotate("products alone", (min(counts), floor["floor_us"]), (4, -2 if below else 2), **text_style)
    for row in rows:
        if row["name"] != OURS:
            color = PRECISIONS.get(row["precision"], PRECISIONS["highest"])["color"]
            at = ([row["members"]], [row["us_per_model_step"]])
            axes.plot(*at, MARKERS.get(row["name"], "x"), color=color, markersize=6, mew=0.9, mfc="none")
    for name in dict.fromkeys(row["name"] for row in rows if row["name"] != OURS):  # colours are those of the lines
        axes.plot([], [], MARKERS.get(name, "x"), color=MUTED, mfc="none", label=name)
    _members_axis(axes, counts)
    _log_axis(axes, "microseconds per model and step")
    base.legend(figure)
    return base.write_below(figure, about)


def memory_by_members(rows: Sequence[Row], about: str) -> Figure:
    """Draw placecode's peak memory by number of models. Dotted lines: memory in proportion to the number of models."""
    figure, (axes,) = base.panels(1, 1, (6.6, 3.8))
    ours = [{**row, "mebibytes": row["peak_bytes"] / 2**20} for row in rows if row["name"] == OURS]
    for precision, style in PRECISIONS.items():
        in_precision = [row for row in ours if row["precision"] == precision]
        if in_precision:
            _line(axes, in_precision, "mebibytes", style, precision)
            last = max(in_precision, key=lambda row: row["members"])
            per_model = last["mebibytes"] / last["members"]
            ends = [min(row["members"] for row in in_precision), last["members"]]
            heights = [per_model * end for end in ends]
            axes.plot(ends, heights, color=style["color"], linewidth=1.1, linestyle=(0, (1, 2)))
    _members_axis(axes, [row["members"] for row in ours])
    _log_axis(axes, "peak memory, MiB")
    base.legend(figure)
    return base.write_below(figure, about, "dotted: in proportion to the members")


_PEERS_NOTE = (
    "white line: the matrix products alone; in brackets: times placecode's time, "
    "for peers that train many models at once at the same number of models"
)


def peers_beside(rows: Sequence[Row], ceilings: Sequence[Row], about: str) -> Figure:
    """Draw bars of the time per model and step, for placecode and for other implementations (peers).

    Numbers in brackets are times relative to placecode. A peer that trains many models at once has one bar, for the
    largest number of models at which placecode was also measured.
    """
    groups = [precision for precision in PRECISIONS if any(row["precision"] == precision for row in rows)]
    bars: list[tuple[str, Row, float | None]] = []
    for precision in groups:
        in_group = [row for row in rows if row["precision"] == precision]
        if precision == groups[0]:  # the authors' script has its own precision and is shown with the first
            in_group += [row for row in rows if row["precision"] not in PRECISIONS]
        stacked = {}
        for row in sorted(in_group, key=lambda row: int(row["members"])):
            if row["name"] in STACKED and (baseline(row, rows) is not None or row["name"] not in stacked):
                stacked[row["name"]] = row
        loops = [row for row in in_group if row["name"] not in (OURS, *STACKED)]
        peers = sorted((*stacked.values(), *loops), key=_micro)
        baselines = [baseline(row, rows) for row in peers]
        counts = {row["members"] for row in baselines if row is not None}
        ours = sorted((row for row in in_group if row["name"] == OURS), key=_micro)
        bars += [(precision, row, None) for row in ours if row["members"] in counts or row is ours[0]]
        bars += [(precision, row, times_placecode(row, rows)) for row in peers]
    figure, (axes,) = base.panels(1, 1, (6.6, 1.1 + 0.28 * len(bars)))
    names = []
    for at, (precision, row, ratio) in enumerate(bars):
        color = PRECISIONS[precision]["color"]
        is_ours = row["name"] == OURS
        axes.barh(at, row["us_per_model_step"], color=color, alpha=1.0 if is_ours else 0.4, height=0.72)
        text = f" {row['us_per_model_step']:,.0f}" + ("" if is_ours or ratio is None else f"  (x {ratio:.3g})")
        axes.text(row["us_per_model_step"], at, text, va="center", fontsize=8, color=INK)
        count = f"{row['members']} at once" if row["members"] > 1 else "one at a time"
        names.append(f"{row['name']}, {count}" + (f", {row['precision']}" if len(groups) > 1 else ""))
        floor = next((c["floor_us"] for c in ceilings if c["precision"] == precision), None)
        if is_ours and floor is not None:
            axes.plot([floor] * 2, [at - 0.36, at + 0.36], color="white", linewidth=1.4)
    axes.set_yticks(range(len(bars)), names)
    axes.invert_yaxis()
    lengths = [_micro(row) for _, row, _ in bars]
    if max(lengths) > 15 * min(lengths):
        axes.set_xscale("log")
        shortest = min([*lengths, *(row["floor_us"] for row in ceilings)])
        axes.set_xlim(shortest / 2, max(lengths) * 6)  # room for the numbers behind the bars
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, max(lengths) * 1.3)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    base.label(axes, x="microseconds per model and step")
    return base.write_below(figure, about, _PEERS_NOTE)


def _micro(row: Row) -> float:
    """Return the microseconds per model and step of a row."""
    return float(row["us_per_model_step"])


def _line(axes: Axes, rows: Sequence[Row], value: str, style: dict[str, Any], precision: str) -> None:
    """Draw the column `value` of placecode's rows, if there are any, as a line over the number of models."""
    ours = sorted((row for row in rows if row["name"] == OURS), key=lambda row: row["members"])
    if ours:
        points = ([row["members"] for row in ours], [row[value] for row in ours])
        axes.plot(*points, label=f"{OURS}, {precision}", linewidth=1.6, markersize=5, mew=0, **style)


def _members_axis(axes: Axes, counts: Sequence[int]) -> None:
    """Make the x axis logarithmic, with a tick at each number of models."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(counts))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    base.label(axes, x="models trained at once")


def _log_axis(axes: Axes, label: str) -> None:
    """Make the y axis logarithmic, with a label, ticks at 1, 2 and 5, and grid lines."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.6, high * 1.6)  # so that a round number is among the ticks even if values hardly differ
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    base.light_grid(axes)
    base.label(axes, y=label)
