"""The command `placecode recommend`, which recommends an initialization scale sigma for a learned PE."""

from __future__ import annotations

import argparse
import json

from rich.console import Console
from rich.table import Table

from placecode.cli import flags
from placecode.cli.display import print_line
from placecode.inspection import recommend
from placecode.inspection.recommend import ModelDescription, Recommendation
from placecode.reports import wording

MAX_SETTINGS_SHOWN = 6
"""Maximum number of rows of `nearest_table`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `recommend`, which describe the model to be trained."""
    flags.add_settings(parser, ModelDescription, show_defaults=True)
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Print the recommended sigma and the studied settings that it is based on, as text or JSON."""
    recommendation = recommend.recommend(ModelDescription(**flags.settings(arguments, ModelDescription)))
    if arguments.json:
        print_line(console, json.dumps(recommendation.record(), indent=2, allow_nan=False))
        return
    for line in recommend.sentences(recommendation):
        print_line(console, line)
    console.print(nearest_table(recommendation))


def nearest_table(recommendation: Recommendation) -> Table:
    """Return a table of the studied settings (kinds of model and task) nearest to the user's model, with results.

    The sigmas are the best one of the setting, the recommended one, and the defaults of common libraries.
    """
    sigmas = {f"{recommendation.sigma:g}": recommendation.sigma}
    sigmas |= {f"{score.sigma:.2g}": score.sigma for score in recommendation.defaults.values()}
    sizes = wording.listed([name.replace("_", " ") for name in recommendation.model.sizes()])
    table = Table(title=f"The nearest settings, and their outcomes by sigma (distance: in doublings of {sizes})")
    for name in ("setting", "tokens", "width", "optimizer", "rate", "distance", "outcome", "best", *sigmas):
        is_text = name in ("setting", "optimizer", "outcome")
        table.add_column(name, justify="left" if is_text else "right", overflow="fold")
    for item in recommendation.weighted_settings[:MAX_SETTINGS_SHOWN]:
        setting, curve = item.setting, item.setting.curve(recommendation.model.goal)
        assert curve is not None
        outcomes = [curve.at(sigma) for sigma in sigmas.values()]
        table.add_row(
            setting.name,
            str(setting.tokens),
            str(setting.width),
            setting.optimizer,
            f"{setting.learning_rate:g}",
            f"{item.distance:.1f}",
            curve.name,
            f"{curve.best.outcome_interval.mean:.3f} at {curve.best.sigma:g}",
            *("" if value is None else f"{value:.3f}" for value in outcomes),
        )
    return table
