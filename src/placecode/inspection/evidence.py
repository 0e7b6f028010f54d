"""What our runs say of each initial scale, distilled: the settings that were studied, and an outcome for every sigma.

The file evidence.json travels with the package and is made from the tables by docs/pages/evidence.py. Outcomes are held
against two things: what a model reaches that has learned nothing, and what the best sigma of the same setting reaches.
Between them lies the gain; what another sigma lacks is a share of it, so that settings can be compared.

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
"""Or at most this, where the runs do not tell it from the best one."""
LEAST = 0.02
"""A setting has learned something if its best sigma gains at least this, and its interval lies beyond nothing."""


@dataclass(frozen=True)
class Point:
    """Members of one sigma."""

    sigma: float
    found: Interval
    """The outcome; a member that diverged counts as one that has learned nothing."""
    behind: Interval
    """By how much it is worse than the best sigma of the setting, seed by seed."""
    n: int
    diverged: int


@dataclass(frozen=True)
class Curve:
    """An outcome over the sigmas of a setting, rising."""

    name: str
    sign: int
    """1 where more is better, -1 where less is."""
    nothing: float
    """What a model reaches that has learned nothing."""
    points: tuple[Point, ...]

    @cached_property
    def best(self) -> Point:
        return max(self.points, key=lambda point: self.sign * point.found.mean)

    @cached_property
    def gain(self) -> float:
        """From nothing to the best sigma."""
        return self.sign * (self.best.found.mean - self.nothing)

    @property
    def learned(self) -> bool:
        """Whether there is a gain to speak of, beyond chance."""
        low, high = self.best.found.low, self.best.found.high
        surely = low > self.nothing if self.sign > 0 else high < self.nothing
        return self.gain >= LEAST and surely

    def at(self, sigma: float) -> float | None:
        """The outcome at a sigma."""
        return self._between(sigma, [point.found.mean for point in self.points])

    def lacks(self, sigma: float) -> Interval | None:
        """The share of the gain that a sigma lacks: 0 is as good as the best, 1 has learned nothing."""
        if sigma not in self._lacks:
            shares = ([point.behind[i] / self.gain for point in self.points] for i in range(3))
            bounds = [bound for each in shares if (bound := self._between(sigma, each)) is not None]
            self._lacks[sigma] = Interval(*bounds) if len(bounds) == 3 else None
        return self._lacks[sigma]

    @cached_property
    def _lacks(self) -> dict[float, Interval | None]:
        """What was asked before: a recommendation asks every curve for every sigma of its grid."""
        return {}

    def good(self, sigma: float) -> bool | None:
        """Whether it lacks next to nothing, or little that may be noise."""
        lacks = self.lacks(sigma)
        return None if lacks is None else lacks.mean <= (TOLERANCE if lacks.low > 0 else IN_NOISE)

    def _between(self, sigma: float, values: list[float]) -> float | None:
        """Between two sigmas on a straight line over log sigma; nothing is known beyond the first and the last."""
        sigmas = [point.sigma for point in self.points]
        if not sigmas[0] * (1 - 1e-9) <= sigma <= sigmas[-1] * (1 + 1e-9):
            return None
        return float(np.interp(math.log(sigma), np.log(sigmas), values))


@dataclass(frozen=True)
class Setting:
    """One kind of model on one task, at several sigmas."""

    run: str
    variant: str
    """What tells it from other settings of its run; empty if it is the only one."""
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
    structure: Curve | None
    """What the PE shows of the true arrangement, where one is known; a PE before training shows nothing."""

    @property
    def name(self) -> str:
        return f"{self.run}, {self.variant}" if self.variant else self.run

    def curve(self, goal: str) -> Curve | None:
        return self.outcome if goal == "accuracy" else self.structure


@cache
def settings() -> tuple[Setting, ...]:
    """All settings of the packaged evidence."""
    return tuple(parsed(record) for record in json.loads(FILE.read_text())["settings"])


def parsed(record: Mapping[str, Any]) -> Setting:
    """A setting from its record in the file."""
    curves = {name: None if record[name] is None else _curve(record[name]) for name in ("outcome", "structure")}
    return Setting(**{**record, **curves})


def _curve(record: Mapping[str, Any]) -> Curve:
    points = tuple(
        Point(each["sigma"], _interval(each["found"]), _interval(each["behind"]), each["n"], each["diverged"])
        for each in record["points"]
    )
    return Curve(record["name"], record["sign"], record["nothing"], points)


def _interval(values: list[float | None]) -> Interval:
    mean, low, high = (math.nan if value is None else value for value in values)
    return Interval(mean, low, high)
