"""Draw one example of each figure, to test what must hold for all of them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from helpers.figure_reading import SPLITS, made_up, tables
from matplotlib.figure import Figure

from placecode.reports import figures

MOMENTS, SIGMAS = ("start", "end"), (0.1, 0.5, 2.0)


class Example(NamedTuple):
    """How to draw a figure from a table, and the columns of the table.

    `columns` takes a name and returns the labels in each column, some of which have that name. `values` are the columns
    of numbers.
    """

    draw: Callable[[pd.DataFrame, str], Figure]
    columns: Callable[[str], dict[str, Sequence[Any]]]
    values: tuple[str, ...] = ("value",)

    def table(self, seeds: int, name: str) -> pd.DataFrame:
        """Return the table of the example, with this number of seeds."""
        return made_up(self.columns(name), seeds, self.values)


def effects(name: str = "a", seeds: int = 3) -> pd.DataFrame:
    """Return a table of effects: one that is known, one of a control, and one that is NaN.

    With one seed, bounds are NaN.
    """
    rows = [("size", name, 0.3, 0.2, 0.4, False), (name, "b", 0.01, -0.1, 0.1, True)]
    rows.append((name, "c", np.nan, np.nan, np.nan, False))
    table = pd.DataFrame(rows, columns=["group", "name", "mean", "low", "high", "control"])
    return table if seeds > 1 else table.assign(low=np.nan, high=np.nan)


def losses(name: str = "a", seeds: int = 3) -> pd.DataFrame:
    """Return a table of accuracy lost by exchanges of the PE."""
    return made_up({"sigma": (0.2, 2.0), "name": [name, "itself"]}, seeds)


def _causes(table: pd.DataFrame, run_name: str) -> Figure:
    name, seeds = str(next(iter(table["line"]), "a")), 1 if len(table) == 2 * len(SIGMAS) else 3
    return figures.causes(table, [name, "b"], effects(name, seeds), losses(name, seeds), ["itself"], run_name)


TABLES = {
    "relation_panels": Example(
        figures.relation_panels,
        lambda name: {"measure": [name, "b"], "moment": MOMENTS, "sigma": SIGMAS},
        ("value", "accuracy"),
    ),
    "before_and_after": Example(
        figures.before_and_after, lambda name: {"measure": [name, "b"], "moment": MOMENTS, "sigma": SIGMAS}
    ),
    "noise_curves": Example(
        figures.noise_curves, lambda name: {"split": ["ood", name], "sigma": SIGMAS, "level": (0, 0.5, 1.0)}
    ),
    "conditions_by_sigma": Example(
        figures.conditions_by_sigma,
        lambda name: {"condition": [name, "b"], "sigma": SIGMAS},
        ("accuracy", "confidence"),
    ),
    "effect_of_dropout": Example(
        figures.effect_of_dropout, lambda name: {"name": [name, "b"], "dropout": (0.0, 0.1), "split": SPLITS}
    ),
    "curves_by_name": Example(
        figures.curves_by_name, lambda name: {"name": [name, "b"], "dropout": (0.0, 0.1), "step": (0, 10, 20)}
    ),
    "accuracy_by_name": Example(figures.accuracy_by_name, lambda name: {"name": [name, "b"], "split": SPLITS}),
    "accuracy_by_setting": Example(
        lambda table, run: figures.accuracy_by_setting(table, run, "knob"),
        lambda name: {"panel": ["", name], "line": [name, "b"], "sigma": SIGMAS},
    ),
    "curves_by_setting": Example(
        figures.curves_by_setting,
        lambda name: {"panel": [name, "b"], "line": [name], "sigma": SIGMAS, "step": (0, 10, 20)},
    ),
    "causes": Example(_causes, lambda name: {"line": [name, "b"], "sigma": SIGMAS}),
    "heatmap_by_settings": Example(
        lambda table, run: figures.heatmap_by_settings(table, run, "a", "b", run, {"a": run, "b": "b"}),
        lambda name: {"a": (1, 2), "b": [name, "c"]},
    ),
}
"""The figures that are drawn from a table with a row per seed."""


def correlations(name: str = "a") -> pd.DataFrame:
    """Return the table of a forest plot, with two measures and two questions."""
    rows = [
        (name, "over", -0.9, -1.0, -0.7, 0.001),
        ("b", "over", 0.2, -0.1, 0.5, 0.3),
        (name, "within", 0.1, -0.2, 0.3, np.nan),
        ("b", "within", 0.4, 0.2, 0.6, 0.049),
    ]
    return pd.DataFrame(rows, columns=["measure", "question", "value", "low", "high", "adjusted"])


def starts(name: str = "a") -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of the figure of initial scales: curves of two settings, and libraries."""
    rows = [("outcome", name, f"{name} {i}", sigma, 0.5) for i in range(2) for sigma in SIGMAS]
    return (
        pd.DataFrame(rows, columns=["panel", "task", "setting", "sigma", "share"]),
        pd.DataFrame([("1", name, 1.0, 1.0), ("d^-1/2", "b", 0.03, 0.1)], columns=["formula", "names", "low", "high"]),
    )


def all_figures(name: str) -> list[Figure]:
    """Draw all figures of this module, with this name for the run and for whatever else has a name."""
    grid = np.array([[0, 0], [0, 1], [1, 0], [1, 1.0]])
    return [
        figures.accuracy_by_sigma(*tables(), name),
        figures.learning_curves(*tables(), name),
        figures.similarity_maps(np.eye(4), (np.eye(4),) * 2, (np.eye(4),) * 2, [name] * 4, name, (name,) * 3, 2),
        figures.attention_maps([(name, np.ones((2, 4, 4)) / 4)], name, 2),
        figures.token_maps([(name, grid, 0.1)], [(0, 1)], [name[:9]] * 4, name),
        figures.error_maps([(name, np.eye(2))], name),
        figures.similarity_by_sigma({name: np.eye(6)}, np.array([1, -1, 0, 1, 0, 0]), name, np.eye(6), "last", name),
        figures.forest(correlations(name), name),
        figures.default_scales(*starts(name), name),
        *(example.draw(example.table(2, name), name) for example in TABLES.values()),
    ]
