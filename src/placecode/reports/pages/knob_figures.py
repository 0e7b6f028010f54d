"""The figures of studies that turn something beside sigma, each with what to look for in it."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.latin.effects import LARGE, SMALL
from placecode.experiments.reading import accuracy, by_seed, once
from placecode.reports import figures
from placecode.reports.pages.base import Shown
from placecode.reports.pages.latin_figures import run_name
from placecode.runs.read import Run, shape_of

Levels = Mapping[str, Mapping[str, Interval]]


def of_knob(run: Run, lines: pd.DataFrame, knob: str, beside: Levels | None = None) -> list[Shown]:
    """`lines` are the members with the panel and the line in which each is drawn."""
    name, single = run_name(run), once(lines)
    final = lines.assign(value=lines["member"].map(accuracy(run)))
    rows = run.metrics[(run.metrics["metric"] == "accuracy") & (run.metrics["condition"] == "all")]
    curves = rows[rows["split"] == "validation"][["member", "step", "value"]].merge(single, on="member")
    gained = worth(once(final))
    last = (
        "The last panel: accuracy at sigma 0.2 minus that at the largest sigma, seed by seed. " if len(gained) else ""
    )
    return [
        Shown(
            "accuracy",
            f"Accuracy against sigma: {knob}",
            f"Where the lines lie on each other, what is turned beside sigma makes no difference. {last}Bars are 95% "
            "intervals over seeds, cut at 0 and 1.",
            figures.accuracy_by_setting(final, name, knob, chance_by_panel(run, lines), gained, beside),
        ),
        Shown(
            "curves",
            "Learning curves on held-out puzzles",
            "A curve that still rises or falls at the end has not settled, and its setting cannot be ranked yet.",
            figures.curves_by_setting(curves, name, chance_by_panel(run, single)),
        ),
    ]


def chance_by_panel(run: Run, lines: pd.DataFrame) -> dict[str, float]:
    """What guessing gives in each panel: grids of another size have another number of symbols."""
    pairs = zip(lines["panel"], lines["data"], strict=True)
    return {str(panel): 1 / float(shape_of(run.config, data)["outputs"]) for panel, data in pairs}


def worth(final: pd.DataFrame) -> pd.DataFrame:
    """What a small sigma is worth over the largest one, by panel, line and seed; empty where there is none."""
    found = []
    for (panel, line), rows in final.groupby(["panel", "line"], sort=False):
        table = by_seed(rows)
        large = LARGE if LARGE in table.columns else float(rows["sigma"].max())
        if SMALL in table.columns and large > SMALL:
            for seed, value in (table[SMALL] - table[large]).dropna().items():
                found.append({"panel": panel, "line": line, "seed": seed, "value": value, "large": large})
    return pd.DataFrame(found, columns=["panel", "line", "seed", "value", "large"])


def levels_of(run: Run, references: pd.DataFrame) -> dict[str, dict[str, Interval]]:
    """Accuracy of the references by panel and line: levels to draw beside the lines over sigma."""
    values = references.assign(value=references["member"].map(accuracy(run)))
    levels: dict[str, dict[str, Interval]] = {}
    for (panel, line), rows in values.groupby(["panel", "line"], sort=False):
        levels.setdefault(str(panel), {})[str(line)] = stats.interval(rows["value"].to_numpy())
    return levels
