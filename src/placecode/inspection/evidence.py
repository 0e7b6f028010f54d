"""Evidence from our runs: for each studied setting, the outcome at every initialization scale sigma.

The file evidence.json is part of the package. docs/pages/evidence.py generates it from the tables of the runs. To make
settings comparable, outcomes are expressed relative to the gain: the difference between the outcome of a model that has
learned nothing and the outcome at the best sigma of the setting. What another sigma lacks is given as a share of it.

>>> setting = settings()[0]
>>> setting.outcome.best.sigma, round(setting.outcome.lacks(2.0).mean, 2)
(0.4, 0.87)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from placecode.analysis.stats import Interval

FILE = Path(__file__).with_name("evidence.json")
TOLERANCE = 0.05
"""A sigma is good if it lacks at most this share of the gain."""
IN_NOISE = 0.1
"""Same threshold for a sigma that is not significantly worse than the best one."""
LEAST = 0.02
"""Minimum gain at which a setting counts as learned. Its interval must also exclude a gain of 0."""


@dataclass(frozen=True)
class Point:
    """Outcome at one sigma, over n members."""

    sigma: float
    found: Interval
    """The outcome over seeds. A member that diverged counts as one that has learned nothing."""
    behind: Interval
    """Difference to the best sigma of the setting, paired by seed; positive if worse."""
    n: int
    diverged: int


@dataclass(frozen=True)
class Curve:
    """Outcome of a setting as a function of sigma."""

    name: str
    sign: int
    """1 if higher is better, -1 if lower is better."""
    nothing: float
    """Outcome of a model that has learned nothing."""
    points: tuple[Point, ...]
    """Outcomes, by increasing sigma."""

    @cached_property
    def best(self) -> Point:
        """The point with the best mean outcome."""
        return max(self.points, key=lambda point: self.sign * point.found.mean)

    @cached_property
    def gain(self) -> float:
        """Difference between the best outcome and that of a model that has learned nothing."""
        return self.sign * (self.best.found.mean - self.nothing)

    @property
    def learned(self) -> bool:
        """Whether the gain is at least LEAST and significant."""
        low, high = self.best.found.low, self.best.found.high
        significant = low > self.nothing if self.sign > 0 else high < self.nothing
        return self.gain >= LEAST and significant

    def at(self, sigma: float) -> float | None:
        """Return the outcome at a sigma, interpolated; None outside the studied range."""
        return self._between(sigma, [point.found.mean for point in self.points])

    def lacks(self, sigma: float) -> Interval | None:
        """Return the share of the gain that a sigma lacks; None outside the studied range.

        It is 0 if the sigma is as good as the best one, 1 if nothing is learned.
        """
        if sigma not in self._lacks:
            shares = ([point.behind[i] / self.gain for point in self.points] for i in range(3))
            bounds = [bound for values in shares if (bound := self._between(sigma, values)) is not None]
            self._lacks[sigma] = Interval(*bounds) if len(bounds) == 3 else None
        return self._lacks[sigma]

    @cached_property
    def _lacks(self) -> dict[float, Interval | None]:
        """Cache of `lacks`, which is called for every sigma of the grid."""
        return {}

    def good(self, sigma: float) -> bool | None:
        """Return whether a sigma lacks at most TOLERANCE of the gain, or IN_NOISE if that is not significant."""
        lacks = self.lacks(sigma)
        return None if lacks is None else lacks.mean <= (TOLERANCE if lacks.low > 0 else IN_NOISE)

    def _between(self, sigma: float, values: list[float]) -> float | None:
        """Interpolate linearly over log sigma; None outside the studied range."""
        sigmas = [point.sigma for point in self.points]
        if not sigmas[0] * (1 - 1e-9) <= sigma <= sigmas[-1] * (1 + 1e-9):
            return None
        return float(np.interp(math.log(sigma), np.log(sigmas), values))


@dataclass(frozen=True)
class Setting:
    """One kind of model on one task, trained with several sigmas."""

    run: str
    variant: str
    """Distinguishes the setting from others of the run; empty if it is the only one."""
    task: str
    tokens: int
    width: int
    layers: int
    heads: int
    norm: str
    placement: str
    optimizer: str
    learning_rate: float
    batch: int
    steps: int
    outcome: Curve
    """Accuracy or error on held-out data."""
    structure: Curve | None
    """Agreement of the PE with the true arrangement of the tokens, if that is known."""

    @property
    def name(self) -> str:
        return f"{self.run}, {self.variant}" if self.variant else self.run

    def curve(self, goal: str) -> Curve | None:
        """Return the outcome for the goal "accuracy" and the structure for the goal "map"."""
        return self.outcome if goal == "accuracy" else self.structure


@cache
def settings() -> tuple[Setting, ...]:
    """Read all settings of evidence.json."""
    return tuple(parsed(record) for record in json.loads(FILE.read_text())["settings"])


def parsed(record: Mapping[str, Any]) -> Setting:
    """Build a setting from its record in evidence.json."""
    curves = {name: None if record[name] is None else _curve(record[name]) for name in ("outcome", "structure")}
    return Setting(**{**record, **curves})


def _curve(record: Mapping[str, Any]) -> Curve:
    points = tuple(
        Point(point["sigma"], _interval(point["found"]), _interval(point["behind"]), point["n"], point["diverged"])
        for point in record["points"]
    )
    return Curve(record["name"], record["sign"], record["nothing"], points)


def _interval(values: list[float | None]) -> Interval:
    """Build an interval from mean, low and high; None stands for NaN."""
    mean, low, high = (math.nan if value is None else value for value in values)
    return Interval(mean, low, high)
