"""Write docs/recommend.md and its figure: python docs/pages/recommendation.py, after docs/pages/evidence.py

The evidence is a list of settings. A setting is one kind of model on one task, trained with several sigmas. Its curve
for a goal is the outcome by sigma: accuracy or error for the goal "accuracy", structure in the PE for the goal "map".
Its gain is how much better the best sigma is than a model that has learned nothing. The loss of another sigma is the
share of the gain that is lost with it.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pandas as pd
from templating import ROOT, render_page

from placecode import cli
from placecode.inspection import evidence, recommend
from placecode.inspection.evidence import MAX_INSIGNIFICANT_LOSS, MAX_SIGNIFICANT_LOSS, MIN_GAIN, Curve, Setting
from placecode.inspection.libraries import LIBRARIES
from placecode.inspection.recommend import (
    DEFAULTS,
    FAMILIES,
    GOALS,
    GRID,
    MIN_SHARE,
    HeldOutResult,
    ModelDescription,
    Recommendation,
)
from placecode.reports import figures

TOKENS, WIDTHS = (16, 64, 256, 1024), (32, 64, 160, 512, 1024)
"""Numbers of tokens and widths for which the page shows the recommended sigma."""
EXAMPLE = "placecode recommend --tokens 196 --width 768 --optimizer adamw --learning-rate 0.001 --layers 12"
FULL_SWEEP = 6
"""Smallest number of sigmas with which a setting counts as a full sweep."""
SIZES = ((64, 64), (1024, 1024))
"""The smallest and the largest (tokens, width) for which the figure draws a library's initial scale."""
PANELS = {"accuracy": "share of the best outcome", "map": "share of the best map"}
"""Titles of the panels of the figure, by goal."""


def page(settings: Sequence[Setting] | None = None) -> str:
    """Return the text of the whole page, from these settings (None: those of the packaged evidence.json)."""
    settings = evidence.settings() if settings is None else settings
    constants = {"grid": GRID, "min_gain": MIN_GAIN, "min_share": MIN_SHARE}
    constants |= {"max_significant_loss": MAX_SIGNIFICANT_LOSS, "max_insignificant_loss": MAX_INSIGNIFICANT_LOSS}
    return render_page(
        "recommend.md.j2",
        **constants,
        **recommended(settings),
        **evidence_facts(settings),
        **cross_validation_facts(settings),
        defaults=DEFAULTS,
        example={"command": EXAMPLE, "printed": printed(EXAMPLE)},
        full_sweep=FULL_SWEEP,
        libraries=sorted(LIBRARIES, key=lambda library: -library.sigma(196, 768)),
        widths=WIDTHS,
    )


def printed(command: str) -> str:
    """Run a placecode command, and return what it prints."""
    text = io.StringIO()
    with patch.dict(os.environ, {"COLUMNS": "160"}), contextlib.redirect_stdout(text):
        code = cli.main(shlex.split(command)[1:])
    if code != 0:
        raise SystemExit(f"{command} ended with {code}")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def learned(settings: Sequence[Setting], goal: str) -> dict[Setting, Curve]:
    """Return the curves for a goal, by setting, of the settings whose models learned something."""
    curves = {setting: setting.curve(goal) for setting in settings}
    return {setting: curve for setting, curve in curves.items() if curve is not None and curve.learned}


def full(settings: Sequence[Setting]) -> list[Setting]:
    """Return the settings that were run at FULL_SWEEP sigmas or more."""
    return [setting for setting in settings if len(setting.outcome.points) >= FULL_SWEEP]


# ------------------------------------------------------------------------------------------- recommended sigmas


def recommended(settings: Sequence[Setting]) -> dict[str, Any]:
    """Compute the recommended sigmas by size of the model: for each goal, with SGD, and from full sweeps alone."""
    by_size = {goal: answers(settings, "adam", goal) for goal in GOALS}
    by_sgd = [setting for setting in settings if FAMILIES[setting.optimizer] == "SGD"]
    sigmas = {goal: sigmas_of(answers) for goal, answers in by_size.items()}
    sigmas |= {"sgd": sigmas_of(answers(settings, "sgd")), "full": sigmas_of(answers(full(settings), "adam"))}
    return {
        "by_size": by_size,
        "sigmas": sigmas,
        "sgd": {"settings": len(by_sgd), "learned": len(learned(by_sgd, "accuracy"))},
    }


def answers(settings: Sequence[Setting], optimizer: str, goal: str = "accuracy") -> dict[int, list[Recommendation]]:
    """Return the recommendations for each number of tokens, as a list with one for each of WIDTHS."""
    return {
        tokens: [
            recommend.recommend(ModelDescription(tokens, width, optimizer, goal=goal), settings) for width in WIDTHS
        ]
        for tokens in TOKENS
    }


def sigmas_of(by_tokens: dict[int, list[Recommendation]]) -> list[float]:
    """Return the sigmas that are recommended at any size, sorted."""
    return sorted({answer.sigma for row in by_tokens.values() for answer in row})


# ------------------------------------------------------------------------------------------------- evidence


def evidence_facts(settings: Sequence[Setting]) -> dict[str, Any]:
    """Describe the settings, and compute their best sigmas and the losses of default sigmas."""
    outcomes, maps = (learned(settings, goal) for goal in GOALS)
    best = [(maps[setting].best.sigma, curve.best.sigma) for setting, curve in outcomes.items() if setting in maps]
    sparse = [setting for setting in outcomes if setting not in full(settings)]
    inner = Counter(point.sigma for setting in sparse for point in setting.outcome.points[1:-1])
    usual, times = inner.most_common(1)[0]
    with_map = [(setting.structure.name, setting.task) for setting in settings if setting.structure is not None]
    defaults = [recommend.defaults(setting.tokens, setting.width) for setting in outcomes]
    losses = pd.DataFrame(
        {name: loss.mean for name, sigma in sigmas.items() if (loss := curve.gain_lost(sigma)) is not None}
        for sigmas, curve in zip(defaults, outcomes.values(), strict=True)
    )
    return {
        "settings": settings,
        "runs": len({setting.run for setting in settings}),
        "outcomes": len(outcomes),
        "tasks": len({setting.task for setting in outcomes}),
        "both": len(best),
        "map_smaller": sum(of_map < of_outcome for of_map, of_outcome in best),
        "map_larger": sum(of_map > of_outcome for of_map, of_outcome in best),
        "default_losses": [(name, losses[name].mean(), losses[name].count()) for name in DEFAULTS],
        "best_is_smallest": recommend.best_is_smallest,
        "map_measures": {
            name: list(dict.fromkeys(task for measure, task in with_map if measure == name)) for name, _ in with_map
        },
        "sparse": len(sparse),
        "usual": {"sigma": usual, "settings": times},
        "per_width": [sigmas["d^-1/2"] for sigmas in defaults],
        "span": {name: [getattr(setting, name) for setting in outcomes] for name in ("tokens", "width", "layers")},
        "every_block": sum(setting.placement == "every" for setting in outcomes),
        "post_norm": sum(setting.norm == "post" for setting in outcomes),
    }


# ------------------------------------------------------------------------------------------------- held-out settings


def cross_validation_facts(settings: Sequence[Setting]) -> dict[str, Any]:
    """Compute the loss of the recommended sigma if a setting, or its whole task, is held out."""
    kinds = {"outcome": ("accuracy", settings), "full": ("accuracy", full(settings)), "map": ("map", settings)}
    rows = {
        (name, left_out): list(recommend.cross_validate(of_kind, goal, left_out == "task"))
        for name, (goal, of_kind) in kinds.items()
        for left_out in ("setting", "task")
    }
    by_setting, by_task = rows["outcome", "setting"], rows["outcome", "task"]
    means = {"setting": by_setting, "task": by_task}
    means |= {f"{left_out}_full": rows["full", left_out] for left_out in ("setting", "task")}
    better = [name for name in DEFAULTS if (pair := in_common(by_task, name))[0] < pair[1]]
    worst = max(by_task, key=lambda row: row.gain_lost["recommended"] or 0.0)
    return {
        "losses": {key: losses(held_out) for key, held_out in rows.items()},
        "mean_loss": {name: lost(held_out)["recommended"].mean() for name, held_out in means.items()},
        "better": better,
        "worse": [name for name in DEFAULTS if name not in better],
        "loss_by_task": lost(by_task).groupby("task")["recommended"].mean().dropna().to_dict(),
        "worst": {
            "name": worst.setting.name,
            "sigma": worst.sigma,
            "gain_lost": worst.setting.outcome.gain_lost(worst.sigma),
        },
        "held_out_pairs": list(zip(by_setting, by_task, strict=True)),
    }


def lost(rows: Sequence[HeldOutResult]) -> pd.DataFrame:
    """Return a table of held-out settings: their task, and the losses of the recommended sigma and of each default."""
    table = pd.DataFrame([row.gain_lost for row in rows], dtype=float)
    return table.assign(task=[row.setting.task for row in rows])


def losses(rows: Sequence[HeldOutResult]) -> dict[str, Any]:
    """Summarize the losses of the recommended sigma and of each default over these held-out settings."""
    table, ways = lost(rows), []
    for name in ("recommended", *DEFAULTS):
        values = table[name].dropna()
        ways.append(
            {
                "name": name,
                "settings": len(values),
                "mean": values.mean(),
                "mean_of_tasks": values.groupby(table["task"]).mean().mean(),
                "worst": values.max(),
                "over": (values > MAX_SIGNIFICANT_LOSS).sum(),
                "recommended": in_common(rows, name)[0],
            }
        )
    return {"settings": len(rows), "tasks": table["task"].nunique(), "ways": ways}


def in_common(rows: Sequence[HeldOutResult], name: str) -> tuple[float, float]:
    """Return the mean losses of the recommended sigma and of a default, over the settings in which both are known."""
    both = lost(rows).dropna(subset=["recommended", name])
    return both["recommended"].mean(), both[name].mean()


# --------------------------------------------------------------------------------------------------------- figure


def figure_tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the two tables of the figure: our curves as shares of the gain, and the initial scales of libraries."""
    curves = [
        (PANELS[goal], setting.task, setting.name, point.sigma, 1 - point.gap_interval.mean / curve.gain)
        for goal in GOALS
        for setting, curve in learned(evidence.settings(), goal).items()
        for point in curve.points
    ]
    marks = []
    for formula in dict.fromkeys(library.formula for library in LIBRARIES):
        users = [library for library in LIBRARIES if library.formula == formula]
        low, high = sorted(users[0].sigma(*size) for size in SIZES)
        sizes = "" if low == high else f" (n and d from {SIZES[0][1]:,} to {SIZES[1][1]:,})"
        marks.append((formula, f"{formula}{sizes}: {'; '.join(library.name for library in users)}", low, high))
    marks.sort(key=lambda mark: -mark[3])
    return (
        pd.DataFrame(curves, columns=["panel", "task", "setting", "sigma", "share"]),
        pd.DataFrame(marks, columns=["formula", "names", "low", "high"]),
    )


if __name__ == "__main__":
    path = ROOT / "docs" / "recommend.md"
    path.write_text(page())
    runs = list(dict.fromkeys(setting.run for setting in evidence.settings()))
    figure = figures.default_scales(*figure_tables(), f"{runs[0]} and {len(runs) - 1} others")
    figures.save(figure, ROOT / "docs" / "images" / "recommend-scales.png")
    print(path)
