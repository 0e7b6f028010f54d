"""Which initial scale to start a learned PE with, from what was studied.

Settings are weighed by how near they are to what is asked for. The recommended sigma is the one that is good in most of
them; the answer says where it was seen, how far that is, and what common defaults do there.

>>> answer = recommend(Asked(tokens=64, width=128, optimizer="adam"))
>>> answer.sigma in GRID
True
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from placecode.inspection import evidence
from placecode.inspection.evidence import IN_NOISE, TOLERANCE, Setting
from placecode.inspection.libraries import LIBRARIES
from placecode.validation import choice, real_number, whole_number

GOALS = ("accuracy", "map")
"""To predict well; or a PE that shows what belongs together."""
FAMILIES = {"adam": "Adam", "adamw": "Adam", "sgd": "SGD"}
"""Optimizers, and which of them are of one kind: evidence on one kind says nothing of the other."""
GRID = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0)
"""The sigmas to choose from: those of our sweeps."""
DEFAULTS = ("0.02", "1", "d^-1/2")
"""What most libraries start with, by their formulas."""
ENOUGH = 0.5
"""The share of the evidence, by weight, that must know a sigma, and in which it must be good to be called so."""
FAR = 1.0
"""Beyond what was studied by more doublings than this is called an extrapolation."""
MOST = 10**9
"""The most tokens, features or blocks that anybody may ask about."""


@dataclass(frozen=True)
class Asked:
    """The model that somebody is about to train."""

    tokens: int
    width: int
    optimizer: str
    learning_rate: float | None = None
    layers: int | None = None
    goal: str = "accuracy"

    def __post_init__(self) -> None:
        whole_number("tokens", self.tokens, 2, MOST)
        whole_number("width", self.width, 1, MOST)
        choice("optimizer", self.optimizer, FAMILIES)
        if self.learning_rate is not None:
            real_number("learning_rate", self.learning_rate, above=0)
        if self.layers is not None:
            whole_number("layers", self.layers, 1, MOST)
        choice("goal", self.goal, GOALS)

    def sizes(self) -> dict[str, float]:
        """What nearness is measured in, as far as it is given."""
        named = {name: getattr(self, name) for name in ("tokens", "width", "layers", "learning_rate")}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class Seen:
    """A setting that was studied, with how much it has to say."""

    setting: Setting
    apart: float
    """How far it is, in doublings: of tokens, of width, and of layers and rate where these are given, added up."""
    weight: float
    """Its share of all evidence."""


@dataclass(frozen=True)
class Vote:
    """What the evidence says of one sigma."""

    sigma: float
    known: float
    """The share of the evidence, by weight, that reaches to this sigma."""
    good: float
    """The share of that in which it is good; NaN where nothing is known."""
    lacks: float
    """What it lacks there on average, as a share of what the best sigma gains over having learned nothing."""

    def record(self) -> dict[str, float | None]:
        return {name: None if math.isnan(value) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Recommendation:
    """A sigma to start with, and why."""

    asked: Asked
    vote: Vote
    flat: tuple[float, float]
    """Around it: the sigmas that are good in most of the evidence."""
    seen: tuple[Seen, ...]
    """All settings that had a say, the nearest first."""
    defaults: dict[str, Vote]
    """What others start with, by formula."""
    price: Vote
    """What the recommended sigma does to the other goal."""
    other: Vote
    """What would be recommended for the other goal."""
    own_kind: bool
    """Whether any setting with this kind of optimizer has learned anything; if not, the others were asked."""

    @property
    def sigma(self) -> float:
        return self.vote.sigma

    def extrapolations(self) -> dict[str, tuple[float, float]]:
        """Which of the given sizes lie beyond what was studied, and the least and the most that was."""
        found = {}
        for name, value in self.asked.sizes().items():
            values = [getattr(each.setting, name) for each in self.seen]
            low, high = min(values), max(values)
            if max(_doublings(low, value), _doublings(value, high)) > FAR:
                found[name] = (low, high)
        return found

    def record(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "sigma": self.sigma,
            "flat": list(self.flat),
            "asked": asdict(self.asked),
            **{name: getattr(self, name).record() for name in ("vote", "price", "other")},
            "defaults": {name: vote.record() for name, vote in self.defaults.items()},
            "own_kind": self.own_kind,
            "extrapolations": {name: list(values) for name, values in self.extrapolations().items()},
            "settings": [{"name": each.setting.name, "apart": each.apart, "weight": each.weight} for each in self.seen],
        }


def recommend(asked: Asked, settings: Sequence[Setting] | None = None) -> Recommendation:
    """A sigma for what is asked, from the packaged evidence or from these settings."""
    known = evidence.settings() if settings is None else settings
    seen, own_kind = _asked(asked, asked.goal, known)
    (beside,) = (goal for goal in GOALS if goal != asked.goal)
    seen_beside, _ = _asked(asked, beside, known)
    best, flat = _chosen(seen, asked.goal)
    return Recommendation(
        asked,
        best,
        flat,
        seen,
        {name: vote(sigma, seen, asked.goal) for name, sigma in defaults(asked.tokens, asked.width).items()},
        vote(best.sigma, seen_beside, beside),
        _chosen(seen_beside, beside)[0],
        own_kind,
    )


def defaults(tokens: int, width: int) -> dict[str, float]:
    """What most libraries start a model of this size with."""
    return {each.formula: each.sigma(tokens, width) for name in DEFAULTS for each in LIBRARIES if each.formula == name}


def weighed(asked: Asked, settings: Sequence[Setting]) -> tuple[Seen, ...]:
    """The settings, the nearest first. A task weighs half as much with every doubling to its nearest setting, and its
    settings share that by their own nearness: many settings of one task are not many tasks."""
    sizes = asked.sizes()
    apart = [sum(abs(_doublings(getattr(each, name), value)) for name, value in sizes.items()) for each in settings]
    near = [2.0 ** (min(apart) - far) for far in apart]
    total: dict[str, float] = {}
    loudest: dict[str, float] = {}
    for each, own in zip(settings, near, strict=True):
        total[each.task] = total.get(each.task, 0.0) + own
        loudest[each.task] = max(loudest.get(each.task, 0.0), own)
    whole = sum(loudest.values())
    seen = [
        Seen(each, far, loudest[each.task] * own / total[each.task] / whole)
        for each, far, own in zip(settings, apart, near, strict=True)
        if own > 0
    ]
    return tuple(sorted(seen, key=lambda each: each.apart))


def vote(sigma: float, seen: Sequence[Seen], goal: str) -> Vote:
    """What all settings together say of a sigma."""
    known = good = lacking = 0.0
    for each in seen:
        curve = each.setting.curve(goal)
        lacks = None if curve is None else curve.lacks(sigma)
        if curve is not None and lacks is not None:
            known += each.weight
            good += each.weight * bool(curve.good(sigma))
            lacking += each.weight * lacks.mean
    return Vote(sigma, known, *((good / known, lacking / known) if known else (math.nan, math.nan)))


def cut_short(setting: Setting, goal: str) -> bool:
    """Whether the smallest sigma of the sweep alone is good for a map, although smaller ones are to be had: it cannot
    tell which."""
    curve = setting.curve(goal)
    if goal != "map" or curve is None or not curve.learned:
        return False
    first, *others = (point.sigma for point in curve.points)
    return curve.best.sigma == first > GRID[0] and not any(map(curve.good, others))


def _asked(asked: Asked, goal: str, settings: Sequence[Setting]) -> tuple[tuple[Seen, ...], bool]:
    """The settings that have something to say, and whether they are of the kind of optimizer that is asked for."""
    told = [each for each in settings if (curve := each.curve(goal)) is not None and curve.learned]
    told = [each for each in told if not cut_short(each, goal)] or told
    own = [each for each in told if FAMILIES[each.optimizer] == FAMILIES[asked.optimizer]]
    return weighed(asked, own or told), bool(own)


def _chosen(seen: Sequence[Seen], goal: str) -> tuple[Vote, tuple[float, float]]:
    """The sigma that is good in most of the evidence, of several the one that lacks least; and how far around it a
    sigma is good in most."""
    votes = [vote(sigma, seen, goal) for sigma in GRID]
    best = max((each for each in votes if each.known >= ENOUGH), key=lambda each: (round(each.good, 6), -each.lacks))
    here = votes.index(best)

    def last(others: Sequence[Vote]) -> float:
        found = best.sigma
        for each in others:
            if each.known < ENOUGH or each.good < ENOUGH:
                break
            found = each.sigma
        return found

    return best, (last(votes[:here][::-1]), last(votes[here + 1 :]))


def _doublings(more: float, less: float) -> float:
    """How many times `less` must be doubled to be `more`; whole numbers may be of any size."""
    return math.log2(more) - math.log2(less)


# ---------------------------------------------------------------------------------------------------------- in words


def sentences(answer: Recommendation) -> Iterator[str]:
    """The recommendation, its grounds and its limits."""
    asked, best, kind = answer.asked, answer.vote, FAMILIES[answer.asked.optimizer]
    purpose = "to predict well" if asked.goal == "accuracy" else "for a map of the tokens"
    yield f"Start with sigma {best.sigma:g}, {purpose}: draw every number of the PE from N(0, {best.sigma:g}^2)."
    if not answer.own_kind:
        other = next(each for each in FAMILIES.values() if each != kind)
        yield (
            f"No setting that was studied with {kind} has learned anything for sure, so this is what holds with "
            f"{other}: no evidence on {kind}, of which the good sigmas may be others."
        )
    low, high = answer.flat
    around = f"all from {low:g} to {high:g} are in most of it" if low < high else "none next to it is in most of it"
    yield f"It is good in {_percent(best.good)} of the evidence, weighed by how near that is; {around}."
    yield (
        f"Good: lacks at most {_percent(TOLERANCE)} of the gain, {_percent(IN_NOISE)} where that may be noise; the "
        "gain is what the best sigma of a setting reaches beyond a model that has learned nothing. "
        f"{best.sigma:g} lacks {_percent(best.lacks)} on average."
    )
    if all(vote(sigma, answer.seen, asked.goal).known < ENOUGH for sigma in GRID if sigma < best.sigma):
        yield "Smaller ones were hardly studied: they may do as well, or better."
    yield from _where(answer)
    for name, (least, most) in answer.extrapolations().items():
        value, words = asked.sizes()[name], name.replace("_", " ")
        yield (
            f"An extrapolation: {words} {value:,} lies beyond all that was studied, {least:,} to {most:,}; there is no "
            "evidence there."
        )
    for name, default in answer.defaults.items():
        yield _default(name, default)
    yield _beside(answer)


def _where(answer: Recommendation) -> Iterator[str]:
    settings = [each.setting for each in answer.seen]
    tasks = sorted({each.task for each in settings})
    spans = [
        f"{_span(getattr(each, field) for each in settings)} {words}"
        for field, words in (("tokens", "tokens"), ("width", "features"), ("layers", "blocks"))
    ]
    count = sum(each.placement == "every" for each in settings)
    kinds = f"{len(tasks)} task{'s' if len(tasks) > 1 else ''}"
    yield f"Seen in {len(settings)} settings of {kinds} ({', '.join(tasks)}): {', '.join(spans)}."
    if count == len(settings):
        yield "In all of them the PE is added in every block; to add it once, at the input, is another case."
    else:
        yield f"In {count} of them the PE is added in every block, in the others once, at the input."


def _default(name: str, default: Vote) -> str:
    users = [each.name for each in LIBRARIES if each.formula == name]
    said = f"{users[0]} and {len(users) - 1} others" if len(users) > 1 else users[0]
    value = name if f"{default.sigma:g}" == name else f"{name} = {default.sigma:.3g}"
    if math.isnan(default.good):
        return f"The default {value} ({said}) lies beyond all that was studied."
    reach = "" if default.known > 0.995 else f" that reaches there ({_percent(default.known)})"
    return (
        f"The default {value} ({said}) is good in {_percent(default.good)} of the evidence{reach}, and lacks "
        f"{_percent(default.lacks)} of the gain on average."
    )


def _beside(answer: Recommendation) -> str:
    """What the sigma means for the other goal."""
    map_too = answer.asked.goal == "accuracy"
    what = "a map of the tokens, which needs the PE itself to be learned" if map_too else "predicting well"
    if answer.other.sigma == answer.sigma:
        return f"For {what}, the same sigma is recommended."
    price = answer.price.lacks
    lacks = "" if math.isnan(price) else f"; {answer.sigma:g} lacks {_percent(price)} of the gain in that"
    return f"For {what}, {answer.other.sigma:g} is recommended (--goal {GOALS[map_too]}){lacks}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _span(values: Iterator[int]) -> str:
    known = sorted(set(values))
    return f"{known[0]}" if len(known) == 1 else f"{known[0]} to {known[-1]}"


# --------------------------------------------------------------------------------------------------- leave one out


@dataclass(frozen=True)
class HeldOut:
    """A held-out setting: what is lost in it, as a share of its gain, by each way to choose."""

    setting: Setting
    sigma: float
    """What the others recommend."""
    lost: dict[str, float | None]
    """None where the setting does not reach to that sigma."""


def held_out(settings: Sequence[Setting], goal: str = "accuracy", whole_task: bool = False) -> Iterator[HeldOut]:
    """For every setting that has learned something, what the others would have recommended; `whole_task` leaves all
    settings of its task out: so it is for a task that nobody has studied."""
    for each in settings:
        curve = each.curve(goal)
        if curve is None or not curve.learned:
            continue
        others = [other for other in settings if other is not each and not (whole_task and other.task == each.task)]
        asked = Asked(each.tokens, each.width, each.optimizer, each.learning_rate, each.layers, goal)
        sigma = recommend(asked, others).sigma
        ways = {"recommended": sigma, **defaults(each.tokens, each.width)}
        lost = {name: None if (found := curve.lacks(value)) is None else found.mean for name, value in ways.items()}
        yield HeldOut(each, sigma, lost)
