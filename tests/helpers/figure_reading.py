"""Make up runs to draw, and read back from a matplotlib figure what was drawn."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import stats

from placecode.reports.figures.base import PAPER

SPLITS = ("train", "test", "ood")
STEPS = (0, 10, 20)


def tables(
    sigmas: Sequence[float | None] = (0.2, 1.0, 2.0),
    seeds: int = 3,
    encodings: Sequence[tuple[str, str]] = (("learned", "{}"),),
    diverged: Sequence[int] = (),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return members and metrics of a made-up run.

    `encodings` are (name, options); only "learned" has sigmas. `diverged` are numbers of members.
    """
    rng = np.random.default_rng(0)
    members, metrics = [], []
    for encoding, options in encodings:
        for sigma, seed in itertools.product(sigmas if encoding == "learned" else [None], range(seeds)):
            number = len(members)
            state = "diverged" if number in diverged else "done"
            label = encoding if sigma is None else f"{encoding}, sigma {sigma:g}"
            spec = {"encoding": encoding, "sigma": sigma, "seed": seed, "options": options, "width": 8}
            spec |= {"role": "swept", "label": label}
            members.append({"member": number, **spec, "state": state, "diverged_at": 10 if number in diverged else -1})
            for step, split, condition in itertools.product(STEPS, SPLITS, ("all", "Binary")):
                value = rng.uniform(0.4, 1.0) if number not in diverged else np.nan
                metrics.append((number, step, split, condition, "accuracy", value))
                metrics.append((number, step, split, condition, "loss", 99.0))
    columns = ["member", "step", "split", "condition", "metric", "value"]
    return pd.DataFrame(members), pd.DataFrame(metrics, columns=columns)


def words(figure: Figure) -> str:
    """Return all texts of a figure."""
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def made_up(columns: dict[str, Sequence[Any]], seeds: int = 4, values: Sequence[str] = ("value",)) -> pd.DataFrame:
    """Return a table with a row for each combination of the columns and each seed, and values between 0.3 and 0.7."""
    rng = np.random.default_rng(len(columns))
    table = pd.DataFrame(list(itertools.product(*columns.values(), range(seeds))), columns=[*columns, "seed"])
    return table.assign(**{value: rng.uniform(0.3, 0.7, len(table)) for value in values})


def of(table: pd.DataFrame, value: str = "value", **columns: Any) -> np.ndarray:
    """Return the finite values of the rows with these columns, picked one by one."""
    rows = [row for row in table.to_dict("records") if all(row[name] == expected for name, expected in columns.items())]
    return np.array([row[value] for row in rows if np.isfinite(row[value])])


def mean_and_bounds(values: np.ndarray, clip: bool = True) -> tuple[float, float, float]:
    """Return mean and 95% t interval by scipy, clipped to 0 and 1 unless `clip` is False."""
    low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
    return float(values.mean()), *((max(float(low), 0.0), min(float(high), 1.0)) if clip else (float(low), float(high)))


class Points(NamedTuple):
    """Points with error bars: positions, ends of the bars along x and y (k, 2) or None, and look of the markers."""

    x: np.ndarray
    y: np.ndarray
    x_bars: np.ndarray | None
    y_bars: np.ndarray | None
    hollow: bool
    marker: str
    color: str


def points(axes: Axes) -> dict[str, Points]:
    """Return all points with error bars in a panel, by their label."""
    result = {}
    for container in axes.containers:
        assert isinstance(container, ErrorbarContainer)
        line, _, bars = container.lines
        ends: list[np.ndarray | None] = [None, None]
        for bar, along in zip(bars, [i for i in (0, 1) if (container.has_xerr, container.has_yerr)[i]], strict=True):
            assert isinstance(bar, LineCollection)
            ends[along] = np.array([segment[:, along] for segment in bar.get_segments()])
        hollow = to_hex(line.get_markerfacecolor()) == PAPER and line.get_markeredgewidth() > 0
        style = (hollow, str(line.get_marker()), to_hex(line.get_color()))
        x, y = np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)
        result[str(container.get_label())] = Points(x, y, ends[0], ends[1], *style)
    return result


def assert_means(marks: Points, values: Sequence[np.ndarray], clip: bool = True) -> None:
    """Assert that marks are the means of these values of seeds, with one array per mark, and bars their intervals."""
    means, bars = (marks.x, marks.x_bars) if marks.y_bars is None else (marks.y, marks.y_bars)
    assert bars is not None
    for mean, bar, seeds in zip(means, bars, values, strict=True):
        np.testing.assert_allclose([mean, *bar], mean_and_bounds(seeds, clip))


def assert_curve(line: Any, band: Any, values: dict[int, np.ndarray], clip: bool = True) -> None:
    """Assert that a line goes through the means of these values by step, and that a band is their interval."""
    corners = band.get_paths()[0].vertices
    assert list(line.get_xdata()) == list(values)
    for mean, (step, seeds) in zip(line.get_ydata(), values.items(), strict=True):
        ends = corners[corners[:, 0] == step, 1]
        np.testing.assert_allclose([mean, ends.min(), ends.max()], mean_and_bounds(seeds, clip))


def rows_of(axes: Axes) -> list[str]:
    """Return the names of the rows of a panel, from the top."""
    return [" ".join(tick.get_text().split()) for tick in axes.get_yticklabels()]


def levels(axes: Axes) -> dict[str, float]:
    """Return where the lines of baselines lie in a panel, by name."""
    lines = [line for line in axes.lines if not line.get_clip_on()]
    return {str(line.get_label()): float(np.unique(np.asarray(line.get_ydata())).item()) for line in lines}


def chance_lines(axes: Axes) -> list[Any]:
    """Return the lines of a panel that show the level of chance."""
    return [line for line in axes.lines if line.get_label() == "chance"]


def assert_inside(figure: Figure) -> None:
    """Assert that everything in a figure lies within its edges."""
    figure.draw_without_rendering()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert box.x0 > -0.02 and box.y0 > -0.02, words(figure)
    assert box.x1 < width + 0.02 and box.y1 < height + 0.02, words(figure)


def contrasts(axes: Axes) -> list[float]:
    """Return WCAG's contrast between every text on an image and the cell behind it."""

    def light(color: Any) -> float:
        rgb = np.asarray(color[:3], dtype=float)
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05

    (image,) = axes.images
    cells = image.to_rgba(image.get_array())
    places = [(round(y), round(x)) for x, y in (text.get_position() for text in axes.texts)]
    pairs = [(light(to_rgb(text.get_color())), light(cells[at])) for text, at in zip(axes.texts, places, strict=True)]
    return [max(pair) / min(pair) for pair in pairs]
