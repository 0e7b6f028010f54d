"""The command `placecode recommend`, which recommends an initialization scale sigma for a learned PE."""

from __future__ import annotations

import argparse
import json

from rich.console import Console
from rich.table import Table

from placecode.cli.display import print_line
from placecode.errors import value_of
from placecode.inspection import recommend
from placecode.inspection.recommend import FAMILIES, GOALS, ModelDescription, Recommendation
from placecode.reports import wording

MAX_SETTINGS_SHOWN = 6
"""Maximum number of rows of `nearest_table`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `recommend`, which describe the model to be trained."""
    parser.add_argument("--tokens", required=True, metavar="N", help="number of tokens per sequence")
    parser.add_argument("--width", required=True, metavar="D", help="number of features per token")
    parser.add_argument("--optimizer", required=True, help=f"one of {', '.join(FAMILIES)}")
    parser.add_argument("--learning-rate", metavar="R", help="learning rate, if known")
    parser.add_argument("--layers", metavar="L", help="number of transformer blocks, if known")
    parser.add_argument(
        "--goal", default=GOALS[0], help="accuracy, or map for a PE that shows which tokens belong together"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Print the recommended sigma and the studied settings that it is based on, as text or JSON."""
    rate = arguments.learning_rate
    model = ModelDescription(
        tokens=value_of("tokens", arguments.tokens, int),
        width=value_of("width", arguments.width, int),
        optimizer=arguments.optimizer,
        learning_rate=None if rate is None else value_of("learning_rate", rate, float),
        layers=None if arguments.layers is None else value_of("layers", arguments.layers, int),
        goal=arguments.goal,
    )
    recommendation = recommend.recommend(model)
    if arguments.json:
        print_line(console, json.dumps(recommendation.record(), indent=2, allow_nan=False))
        return
    for line in recommend.sentences(recommendation):
        print_line(console, line)
    console.print(nearest_table(recommendation))


def nearest_table(recommendation: Recommendation) -> Table:
    """Return a table of the studied settings nearest to the user's model, with their results for several sigmas.

    These are the best sigma of the setting, the recommended sigma, and the defaults of common libraries.
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
