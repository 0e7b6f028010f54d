"""The page of studies on Latin squares that vary something else beside sigma."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from placecode.analysis import stats
from placecode.analysis.stats import Interval
from placecode.experiments.latin.effects import LARGE, SMALL
from placecode.experiments.reading import STILL, accuracy, by_seed, done, late_change, once
from placecode.reports import figures
from placecode.reports.pages.base import Shown
from placecode.reports.pages.latin_figures import run_name
from placecode.runs.read import Run, shape_of

Levels = Mapping[str, Mapping[str, Interval]]


def figures_of_knob(run: Run, lines: pd.DataFrame, knob: str, beside: Levels | None = None) -> list[Shown]:
    """`lines` are the members with the panel and the line in which each is drawn."""
    name, single = run_name(run), once(lines)
    final = lines.assign(value=lines["member"].map(accuracy(run)))
    rows = run.metrics[(run.metrics["metric"] == "accuracy") & (run.metrics["condition"] == "all")]
    curves = rows[rows["split"] == "ood"][["member", "step", "value"]].merge(single, on="member")
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


MOST = 6
"""Settings that have not settled, of which each is named in a report."""


def called(panel: str, line: str) -> str:
    return f"{panel}, {line}" if panel else line


def sentences_on_knob(run: Run, lines: pd.DataFrame) -> list[str]:
    """A sentence for every line: where accuracy is highest, and what it is at both ends of sigma."""
    told = []
    table = once(lines).assign(value=lambda rows: rows["member"].map(accuracy(run)))
    for (panel, line), rows in table.groupby(["panel", "line"], sort=False):
        means = rows.groupby("sigma")["value"].mean()
        few, many = (f"{means[sigma]:.3f} at sigma {sigma:g}" for sigma in (means.index.min(), means.index.max()))
        best = f"highest at sigma {means.idxmax():g} ({means.max():.3f})"
        ends = f"{few}, {many}; {best}" if len(means) > 1 else few
        told.append(f"{_capital(called(str(panel), str(line)))}: held-out accuracy {ends}.")
    return [*told, *unsettled_words(run, lines), *lost(run)]


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def settling(run: Run, lines: pd.DataFrame) -> pd.DataFrame:
    """By how much the mean accuracy of each setting (a line, at a sigma) has changed over the last quarter of
    training; 2d-fixed models, which have no sigma, are settings too where no line shows them."""
    shown, finished = once(lines), done(run)
    fixed = finished[finished["encoding"] == "sinusoid"]
    table = pd.concat([shown, fixed.assign(panel="", line=fixed["label"])]) if len(fixed) else shown
    table = table.assign(value=table["member"].map(late_change(run)))
    return table.groupby(["panel", "line", "sigma"], sort=False, dropna=False)["value"].mean().reset_index()


def unsettled(run: Run, lines: pd.DataFrame) -> pd.DataFrame:
    """Settings (panel, line, sigma) whose mean accuracy has changed by more than STILL, with that change."""
    return _unsettled(settling(run, lines))


def _unsettled(means: pd.DataFrame) -> pd.DataFrame:
    return means[means["value"].abs() > STILL + 1e-9].reset_index(drop=True)


def unsettled_words(run: Run, lines: pd.DataFrame, most: int = MOST) -> list[str]:
    """Whose curves have not settled, in a sentence that names so many of them."""
    means = settling(run, lines)
    found, total = _unsettled(means), len(means)
    rule = f"held-out accuracy changed by more than {STILL:g} over the last quarter of training"
    if found.empty:
        return [f"All curves have settled: in none of {total} settings the mean {rule}."]
    widest = found.reindex(found["value"].abs().sort_values(ascending=False).index)
    named = "; ".join(
        called(row["panel"], row["line"])
        + (f", sigma {row['sigma']:g}" if row["sigma"] == row["sigma"] else "")
        + f" ({row['value']:+.2f})"
        for row in widest.head(most).to_dict("records")
    )
    more = f"; and {len(found) - most} more" if len(found) > most else ""
    return [f"Not settled, {len(found)} of {total} settings, where the mean {rule}: {named}{more}."]


def lost(run: Run) -> list[str]:
    gone = int((run.members["state"] == "diverged").sum())
    return [f"{gone} of {len(run.members)} members diverged and are left out of the means."] if gone else []


def in_words(found: Interval) -> str:
    """A difference with its interval: "+0.12 (+0.05 to +0.19)"; without one where seeds are too few."""
    bounds = f" ({found.low:+.2f} to {found.high:+.2f})" if np.isfinite(found.low) else ""
    return f"{found.mean:+.2f}{bounds}"
