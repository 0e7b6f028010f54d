"""Recommend an initialization scale sigma for a learned positional encoding (PE), from settings that were studied.

A studied setting is a kind of model trained on a task with several sigmas (see `placecode.inspection.evidence`, also
for when a sigma is good). Settings are weighted by their similarity to the model to be trained. The recommended sigma
is the one that is good in the largest share of the settings, by weight. The result also lists the settings, their
distance from the model, and how well defaults of common libraries did in them.

>>> recommendation = recommend(ModelDescription(tokens=64, width=128, optimizer="adam"))
>>> recommendation.sigma in GRID
True
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from placecode.inspection import evidence
from placecode.inspection.evidence import MAX_INSIGNIFICANT_LOSS, MAX_SIGNIFICANT_LOSS, Setting
from placecode.inspection.libraries import LIBRARIES, SCALES
from placecode.reports import wording
from placecode.settings import REQUIRED, Settings, setting

GOALS = ("accuracy", "map")
"""What sigma is chosen for: accurate predictions, or a PE that shows which tokens belong together."""
FAMILIES = {"adam": "Adam", "adamw": "Adam", "sgd": "SGD"}
"""Family of each optimizer. Evidence from one family does not apply to the other."""
GRID = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0)
"""Sigmas that can be recommended. They are values from our sweeps."""
DEFAULTS = ("0.02", "1", "d^-1/2")
"""Formulas of the default sigmas of most libraries, as in `placecode.inspection.libraries`."""
MIN_SHARE = 0.5
"""A sigma is only recommended if the studied range of at least this share of the settings, by weight, includes it. A
neighbouring sigma belongs to the good range if this holds for it too, and if it is good in at least this share of the
settings that include it."""
MAX_DOUBLINGS = 1.0
"""A recommendation is an extrapolation if a size of the model is more than this many doublings outside the studied
range."""
MAX_SIZE = 10**9
"""Maximum accepted number of tokens, features or blocks."""


@dataclass(frozen=True)
class ModelDescription(Settings):
    """Description of the model to be trained, for which a sigma is recommended."""

    tokens: int = setting(REQUIRED, "number of tokens per sequence", least=2, most=MAX_SIZE)
    width: int = setting(REQUIRED, "number of features per token", least=1, most=MAX_SIZE)
    optimizer: str = setting(REQUIRED, f"one of {', '.join(FAMILIES)}", choices=FAMILIES)
    learning_rate: float | None = setting(None, "learning rate, if known", above=0)
    layers: int | None = setting(None, "number of transformer blocks, if known", least=1, most=MAX_SIZE)
    goal: str = setting("accuracy", "accuracy, or map for a PE that shows which tokens belong together", choices=GOALS)

    def sizes(self) -> dict[str, float]:
        """Return those of tokens, width, layers and learning rate that are known, by name. `weight_settings` compares
        them."""
        sizes = {name: getattr(self, name) for name in ("tokens", "width", "layers", "learning_rate")}
        return {name: value for name, value in sizes.items() if value is not None}


@dataclass(frozen=True)
class WeightedSetting:
    """A studied setting (kind of model and task), with its distance from the user's model, and its weight.

    The sizes of a model are its width, its number of layers and so on (`ModelDescription.sizes`). `distance` is the
    number of doublings or halvings that lead from the sizes of the user's model to those of the setting, summed over
    the sizes. All weights sum to 1.
    """

    setting: Setting
    distance: float
    weight: float


@dataclass(frozen=True)
class SigmaScore:
    """How well one sigma did in the studied settings (kinds of model and task). A setting that is more similar to the
    user's model has a larger weight."""

    sigma: float
    coverage: float
    """Share of the settings, by weight, whose studied range includes the sigma."""
    share_good: float
    """Share of the settings counted in `coverage`, by weight, in which the sigma is good; NaN if there are none."""
    mean_gain_lost: float
    """Weighted mean, over the same settings, of the share of the gain that is lost with this sigma instead of the best
    one (see `Curve.gain_lost`); NaN if there are none."""

    def record(self) -> dict[str, float | None]:
        """Return the fields as a dict, with None for NaN."""
        return {name: None if math.isnan(value) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Recommendation:
    """A recommended sigma and the evidence for it."""

    model: ModelDescription
    score: SigmaScore
    """The recommended sigma, and how well it did in the studied settings."""
    good_range: tuple[float, float]
    """Range (lowest, highest) around the recommended sigma in which all sigmas are good in most settings, by weight."""
    weighted_settings: tuple[WeightedSetting, ...]
    """Settings that the recommendation is based on, the nearest first."""
    defaults: dict[str, SigmaScore]
    """How well the default sigmas of libraries did, by formula (see `DEFAULTS`)."""
    score_for_other_goal: SigmaScore
    """How well the recommended sigma did for the other goal."""
    best_for_other_goal: SigmaScore
    """The sigma that would be recommended for the other goal, and how well it did for that goal."""
    same_family: bool
    """Whether the settings have an optimizer of the same family as the model. If not, no studied models with such an
    optimizer have learned."""

    @property
    def sigma(self) -> float:
        """The recommended sigma."""
        return self.score.sigma

    def extrapolations(self) -> dict[str, tuple[float, float]]:
        """Return the sizes of the model that are far outside the studied range, with this range (lowest, highest)."""
        ranges = {}
        for name, value in self.model.sizes().items():
            values = [getattr(item.setting, name) for item in self.weighted_settings]
            low, high = min(values), max(values)
            if max(_doublings(low, value), _doublings(value, high)) > MAX_DOUBLINGS:
                ranges[name] = (low, high)
        return ranges

    def record(self) -> dict[str, Any]:
        """Return the recommendation as a dict that can be written as JSON."""
        return {
            "sigma": self.sigma,
            "good_range": list(self.good_range),
            "model": asdict(self.model),
            "score": self.score.record(),
            "score_for_other_goal": self.score_for_other_goal.record(),
            "best_for_other_goal": self.best_for_other_goal.record(),
            "defaults": {formula: score.record() for formula, score in self.defaults.items()},
            "same_family": self.same_family,
            "extrapolations": {name: list(values) for name, values in self.extrapolations().items()},
            "settings": [
                {"name": item.setting.name, "distance": item.distance, "weight": item.weight}
                for item in self.weighted_settings
            ],
        }


def recommend(model: ModelDescription, settings: Sequence[Setting] | None = None) -> Recommendation:
    """Recommend a sigma for a model from studies of other models (`settings`), by default those in evidence.json."""
    settings = evidence.settings() if settings is None else settings
    weighted, same_family = _relevant_settings(model, model.goal, settings)
    (other_goal,) = (goal for goal in GOALS if goal != model.goal)
    weighted_for_other, _ = _relevant_settings(model, other_goal, settings)
    best, good_range = _best_sigma(weighted, model.goal)
    default_sigmas = defaults(model.tokens, model.width)
    return Recommendation(
        model=model,
        score=best,
        good_range=good_range,
        weighted_settings=weighted,
        defaults={formula: score_sigma(sigma, weighted, model.goal) for formula, sigma in default_sigmas.items()},
        score_for_other_goal=score_sigma(best.sigma, weighted_for_other, other_goal),
        best_for_other_goal=_best_sigma(weighted_for_other, other_goal)[0],
        same_family=same_family,
    )


def defaults(tokens: int, width: int) -> dict[str, float]:
    """Return the default sigmas of most libraries for a model with these sizes, by formula (see `DEFAULTS`)."""
    return {formula: SCALES[formula](tokens, width) for formula in DEFAULTS}


def weight_settings(model: ModelDescription, settings: Sequence[Setting]) -> tuple[WeightedSetting, ...]:
    """Return studied settings with their distances from the model and their weights, the nearest setting first.

    The distance of a setting is the number of doublings between its sizes and those of the model, summed over sizes.
    The weight of a task halves with every doubling between the model and the task's nearest setting. The settings of a
    task share this weight, the nearest having most, so that a task does not count more if it has many settings.
    """
    sizes = model.sizes()
    distances = [
        sum(abs(_doublings(getattr(setting, name), value)) for name, value in sizes.items()) for setting in settings
    ]
    nearness = [2.0 ** (min(distances) - distance) for distance in distances]
    by_task: dict[str, list[float]] = {}
    for studied, near in zip(settings, nearness, strict=True):
        by_task.setdefault(studied.task, []).append(near)
    sum_of_tasks = sum(max(values) for values in by_task.values())
    weighted = []
    for studied, distance, near in zip(settings, distances, nearness, strict=True):
        if near > 0:
            of_task = by_task[studied.task]
            weighted.append(WeightedSetting(studied, distance, max(of_task) * near / sum(of_task) / sum_of_tasks))
    return tuple(sorted(weighted, key=lambda item: item.distance))


def score_sigma(sigma: float, weighted: Sequence[WeightedSetting], goal: str) -> SigmaScore:
    """Return how well a sigma did for a goal, "accuracy" or "map".

    Means are weighted, and taken over the settings whose studied range includes the sigma.
    """
    covered = good = lost = 0.0
    for item in weighted:
        curve = item.setting.curve(goal)
        if curve is not None and (gain_lost := curve.gain_lost(sigma)) is not None:
            covered += item.weight
            good += item.weight * bool(curve.good(sigma))
            lost += item.weight * gain_lost.mean
    if not covered:
        return SigmaScore(sigma, 0.0, math.nan, math.nan)
    return SigmaScore(sigma, covered, good / covered, lost / covered)


def best_is_smallest(setting: Setting, goal: str) -> bool:
    """Return whether, for the goal "map", only the smallest studied sigma of a setting is good, but GRID goes lower.

    If so, even smaller sigmas may be better, and the setting does not show which sigma is best. The result is False for
    the goal "accuracy", and if the models have not learned.
    """
    curve = setting.curve(goal)
    if goal != "map" or curve is None or not curve.learned:
        return False
    first, *others = (point.sigma for point in curve.points)
    return curve.best.sigma == first > GRID[0] and not any(map(curve.good, others))


def _relevant_settings(
    model: ModelDescription, goal: str, settings: Sequence[Setting]
) -> tuple[tuple[WeightedSetting, ...], bool]:
    """Select and weight the settings to base a recommendation on; return them, and whether the optimizer matches.

    Only settings whose models have learned are used. If possible, settings that do not show which sigma is best (see
    `best_is_smallest`) and then those with an optimizer of the other family are left out.
    """
    learned = [setting for setting in settings if (curve := setting.curve(goal)) is not None and curve.learned]
    learned = [setting for setting in learned if not best_is_smallest(setting, goal)] or learned
    same_family = [setting for setting in learned if FAMILIES[setting.optimizer] == FAMILIES[model.optimizer]]
    return weight_settings(model, same_family or learned), bool(same_family)


def _best_sigma(weighted: Sequence[WeightedSetting], goal: str) -> tuple[SigmaScore, tuple[float, float]]:
    """Return the score of the best sigma of GRID, and the lowest and highest sigma of the good range around it.

    The best sigma is good in the largest share of the settings, by weight. Among several such sigmas, it is the one
    with the smallest mean loss of gain.
    """
    scores = [score_sigma(sigma, weighted, goal) for sigma in GRID]
    covered = [score for score in scores if score.coverage >= MIN_SHARE]
    best = max(covered, key=lambda score: (round(score.share_good, 6), -score.mean_gain_lost))
    place = scores.index(best)
    below, above = (
        list(takewhile(lambda score: score.coverage >= MIN_SHARE and score.share_good >= MIN_SHARE, neighbors))
        for neighbors in (scores[:place][::-1], scores[place + 1 :])
    )
    return best, ([best, *below][-1].sigma, [best, *above][-1].sigma)


def _doublings(more: float, less: float) -> float:
    """Return log2(more / less), computed as a difference of logarithms so that large integers do not overflow."""
    return math.log2(more) - math.log2(less)


def sentences(recommendation: Recommendation) -> list[str]:
    """Return sentences that describe a recommendation, the evidence for it and its limits, from recommend.j2."""
    model, family = recommendation.model, FAMILIES[recommendation.model.optimizer]
    settings = [item.setting for item in recommendation.weighted_settings]
    smaller = [sigma for sigma in GRID if sigma < recommendation.sigma]
    scores_of_smaller = [score_sigma(sigma, recommendation.weighted_settings, model.goal) for sigma in smaller]
    template = wording.environment(Path(__file__).parent).get_template("recommend.j2")
    text = template.render(
        recommendation=recommendation,
        model=model,
        family=family,
        other_family=next(other for other in FAMILIES.values() if other != family),
        settings=settings,
        tasks=sorted({setting.task for setting in settings}),
        in_every_block=sum(setting.placement == "every" for setting in settings),
        smaller_are_unknown=all(score.coverage < MIN_SHARE for score in scores_of_smaller),
        users={name: [library.name for library in LIBRARIES if library.formula == name] for name in DEFAULTS},
        max_significant_loss=MAX_SIGNIFICANT_LOSS,
        max_insignificant_loss=MAX_INSIGNIFICANT_LOSS,
    )
    return wording.paragraphs(text)


@dataclass(frozen=True)
class HeldOutResult:
    """Result of cross-validating the recommendation on one held-out setting."""

    setting: Setting
    sigma: float
    """Sigma recommended from the other settings."""
    gain_lost: dict[str, float | None]
    """Share of the setting's gain that is lost (see `Curve.gain_lost`) with the recommended sigma ("recommended") and
    with each default sigma (by formula); None if that sigma is outside the studied range."""


def cross_validate(
    settings: Sequence[Setting], goal: str = "accuracy", whole_task: bool = False
) -> Iterator[HeldOutResult]:
    """Cross-validate the recommendation: for every studied setting, recommend a sigma from the other settings.

    With `whole_task`, all settings of the same task are held out too, as if the task had not been studied. Settings
    whose models have not learned are skipped. Yields one result per setting that is not skipped.
    """
    for studied in settings:
        curve = studied.curve(goal)
        if curve is None or not curve.learned:
            continue
        remaining = [
            other for other in settings if other is not studied and not (whole_task and other.task == studied.task)
        ]
        model = ModelDescription(
            studied.tokens, studied.width, studied.optimizer, studied.learning_rate, studied.layers, goal
        )
        recommended = recommend(model, remaining).sigma
        candidates = {"recommended": recommended, **defaults(studied.tokens, studied.width)}
        intervals = {name: curve.gain_lost(sigma) for name, sigma in candidates.items()}
        gain_lost = {name: None if interval is None else interval.mean for name, interval in intervals.items()}
        yield HeldOutResult(studied, recommended, gain_lost)
