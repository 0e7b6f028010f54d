"""The command `placecode recommend`: which sigma to start a learned PE with, and why."""

from __future__ import annotations

import argparse
import json

from rich.console import Console
from rich.table import Table

from placecode.errors import value_of
from placecode.inspection import recommend
from placecode.inspection.recommend import FAMILIES, GOALS, Asked, Recommendation

NEAREST = 6
"""Settings that are shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `recommend`: the model that is about to be trained."""
    parser.add_argument("--tokens", required=True, metavar="N", help="tokens of a sequence")
    parser.add_argument("--width", required=True, metavar="D", help="features per token")
    parser.add_argument("--optimizer", required=True, help=f"one of {', '.join(FAMILIES)}")
    parser.add_argument("--learning-rate", metavar="R", help="step size, if it is known")
    parser.add_argument("--layers", metavar="L", help="transformer blocks, if they are known")
    parser.add_argument(
        "--goal", default=GOALS[0], help="accuracy, or map: a PE that shows which tokens belong together"
    )
    parser.add_argument("--json", action="store_true", help="print an object instead of sentences")


def run(given: argparse.Namespace, console: Console) -> None:
    """Recommend, and say why."""
    asked = Asked(
        tokens=value_of("tokens", given.tokens, int),
        width=value_of("width", given.width, int),
        optimizer=given.optimizer,
        learning_rate=None if given.learning_rate is None else value_of("learning_rate", given.learning_rate, float),
        layers=None if given.layers is None else value_of("layers", given.layers, int),
        goal=given.goal,
    )
    answer = recommend.recommend(asked)
    if given.json:
        console.print(json.dumps(answer.record(), indent=2, allow_nan=False), markup=False, soft_wrap=True)
        return
    for line in recommend.sentences(answer):
        console.print(line, markup=False, soft_wrap=True)
    console.print(nearest_table(answer))


def nearest_table(answer: Recommendation) -> Table:
    """The nearest settings: what the best sigma reached there, the recommended one, and the defaults."""
    sigmas = {f"{answer.sigma:g}": answer.sigma}
    sigmas |= {f"{vote.sigma:.2g}": vote.sigma for vote in answer.defaults.values()}
    table = Table(title=f"The nearest settings, and their outcomes by sigma (apart: in doublings of {_sizes(answer)})")
    for name in ("setting", "tokens", "width", "optimizer", "rate", "apart", "outcome", "best", *sigmas):
        words = name in ("setting", "optimizer", "outcome")
        table.add_column(name, justify="left" if words else "right", overflow="fold")
    for each in answer.seen[:NEAREST]:
        setting, curve = each.setting, each.setting.curve(answer.asked.goal)
        assert curve is not None
        reached = [curve.at(sigma) for sigma in sigmas.values()]
        table.add_row(
            setting.name,
            *(str(setting.tokens), str(setting.width), setting.optimizer, f"{setting.learning_rate:g}"),
            f"{each.apart:.1f}",
            curve.name,
            f"{curve.best.found.mean:.3f} at {curve.best.sigma:g}",
            *("" if value is None else f"{value:.3f}" for value in reached),
        )
    return table


def _sizes(answer: Recommendation) -> str:
    *names, last = (name.replace("_", " ") for name in answer.asked.sizes())
    return f"{', '.join(names)} and {last}"
