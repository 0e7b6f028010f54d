"""Read evidence.json: how well models in committed runs did at each initialization scale (sigma) of their learned PE.

The file is part of the package; docs/pages/evidence.py generates it from the tables of the runs. A setting is one kind
of model on one task, trained at several sigmas. Its gain is the difference in accuracy or error between the best sigma
and a model that has learned nothing. With another sigma a share of this gain is lost: 0 if it does as well as the best
sigma, 1 if it does no better than a model that has learned nothing. These shares can be compared between settings.

>>> setting = settings()[0]
>>> setting.outcome.best.sigma, round(setting.outcome.gain_lost(2.0).mean, 2)
(0.4, 0.79)
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
MAX_SIGNIFICANT_LOSS = 0.05
"""A sigma that is significantly worse than the best one is good if at most this share of the gain is lost."""
MAX_INSIGNIFICANT_LOSS = 0.1
"""A sigma that is not significantly worse than the best one is good if at most this share of the gain is lost."""
MIN_GAIN = 0.02
"""Models of a setting count as having learned if its gain (see the top of this file) is at least this, and its 95%
interval over seeds lies above 0."""
INTERVALS = ("outcome_interval", "gap_interval")
"""Fields of a `Point` that are intervals."""


@dataclass(frozen=True)
class Point:
    """Outcome (accuracy, error or agreement) of the `n` models trained with one sigma; `diverged` of them diverged."""

    sigma: float
    outcome_interval: Interval
    """Mean outcome and its interval over seeds. A model that diverged counts as one that has learned nothing."""
    gap_interval: Interval
    """How much worse the outcome is than with the best sigma: mean difference, paired by seed, and its interval."""
    n: int
    diverged: int


@dataclass(frozen=True)
class Curve:
    """Outcome of one kind of model on one task, by sigma. `name` says what is measured, such as "held-out accuracy"."""

    name: str
    sign: int
    """1 if higher is better, -1 if lower is better."""
    null_outcome: float
    """Outcome of a model that has learned nothing."""
    points: tuple[Point, ...]
    """One point per sigma, in increasing order of sigma."""

    @cached_property
    def best(self) -> Point:
        """The point (sigma and its outcome) with the best mean outcome."""
        return max(self.points, key=lambda point: self.sign * point.outcome_interval.mean)

    @cached_property
    def gain(self) -> float:
        """Difference between the best mean outcome and the outcome of a model that has learned nothing."""
        return self.sign * (self.best.outcome_interval.mean - self.null_outcome)

    @property
    def learned(self) -> bool:
        """Whether models at the best sigma have learned: the gain is at least MIN_GAIN and significantly above 0."""
        low, high = self.best.outcome_interval.low, self.best.outcome_interval.high
        significant = low > self.null_outcome if self.sign > 0 else high < self.null_outcome
        return self.gain >= MIN_GAIN and significant

    def at(self, sigma: float) -> float | None:
        """Return the mean outcome at a sigma, interpolated between studied sigmas, or None outside their range."""
        return self._between(sigma, [point.outcome_interval.mean for point in self.points])

    def gain_lost(self, sigma: float) -> Interval | None:
        """Return the share of the gain that is lost with a sigma, with its interval, or None outside the studied range.

        The share is 0 if the sigma is as good as the best one, and 1 if nothing is learned with it.
        """
        if sigma not in self._gain_lost:
            shares = ([point.gap_interval[i] / self.gain for point in self.points] for i in range(3))
            bounds = [bound for values in shares if (bound := self._between(sigma, values)) is not None]
            self._gain_lost[sigma] = Interval(*bounds) if len(bounds) == 3 else None
        return self._gain_lost[sigma]

    @cached_property
    def _gain_lost(self) -> dict[float, Interval | None]:
        """Results of `gain_lost` by sigma, stored because it is called many times for each sigma of the grid."""
        return {}

    def good(self, sigma: float) -> bool | None:
        """Return whether at most a small share of the gain is lost with a sigma, or None outside the studied range.

        The limit is MAX_SIGNIFICANT_LOSS if the sigma is significantly worse than the best one, otherwise
        MAX_INSIGNIFICANT_LOSS.
        """
        gain_lost = self.gain_lost(sigma)
        if gain_lost is None:
            return None
        return gain_lost.mean <= (MAX_SIGNIFICANT_LOSS if gain_lost.low > 0 else MAX_INSIGNIFICANT_LOSS)

    def _between(self, sigma: float, values: list[float]) -> float | None:
        """Interpolate `values`, one per point, linearly over log sigma; return None outside the studied range."""
        sigmas = [point.sigma for point in self.points]
        if not sigmas[0] * (1 - 1e-9) <= sigma <= sigmas[-1] * (1 + 1e-9):
            return None
        return float(np.interp(math.log(sigma), np.log(sigmas), values))


@dataclass(frozen=True)
class Setting:
    """One kind of model on one task, trained with several sigmas."""

    run: str
    variant: str
    """Text that distinguishes the setting from others of the same run; empty if it is the only one."""
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
    """Accuracy or error on held-out data, by sigma."""
    structure: Curve | None
    """Agreement of the PE with the true arrangement of the tokens, by sigma; None if the arrangement is not known."""

    @property
    def name(self) -> str:
        """Name of the run, followed by the variant if there is one."""
        return f"{self.run}, {self.variant}" if self.variant else self.run

    def curve(self, goal: str) -> Curve | None:
        """Return the curve to optimize for a goal.

        For "accuracy" it is `outcome`: accuracy or error by sigma. For "map" it is `structure`: agreement of the PE
        with the true arrangement by sigma, which is None if that arrangement is not known.
        """
        return self.outcome if goal == "accuracy" else self.structure


@cache
def settings() -> tuple[Setting, ...]:
    """Return the settings of evidence.json: the results of each kind of model on each task. The file is read once."""
    return tuple(parsed(record) for record in json.loads(FILE.read_text())["settings"])


def parsed(record: Mapping[str, Any]) -> Setting:
    """Build a setting from its record in evidence.json, a dict. A number that is None becomes NaN."""
    curves = {}
    for name in ("outcome", "structure"):
        if (curve := record[name]) is not None:
            points = [
                point | {key: Interval(*(math.nan if x is None else x for x in point[key])) for key in INTERVALS}
                for point in curve["points"]
            ]
            curves[name] = Curve(**{**curve, "points": tuple(Point(**point) for point in points)})
    return Setting(**{**record, **curves})
