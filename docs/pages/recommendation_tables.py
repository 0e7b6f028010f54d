"""The tables of docs/recommend.md: the settings that were studied, and what is lost in held-out ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from wording import grid

from placecode.inspection import recommend
from placecode.inspection.evidence import IN_NOISE, TOLERANCE, Curve, Setting
from placecode.inspection.recommend import DEFAULTS, HeldOut

FULL = 6
"""From so many sigmas on a sweep is called full."""


def percent(share: float, digits: int = 0) -> str:
    return "" if math.isnan(share) else f"{100 * share:.{digits}f}%"


def listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def learned(settings: Sequence[Setting], goal: str) -> list[tuple[Setting, Curve]]:
    curves = [(each, each.curve(goal)) for each in settings]
    return [(each, curve) for each, curve in curves if curve is not None and curve.learned]


def mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else math.nan


def in_common(rows: Sequence[HeldOut], name: str) -> tuple[float, float]:
    """What is lost on average by the recommended sigma and by another way, where both are known."""
    both = [each.lost for each in rows if each.lost[name] is not None and each.lost["recommended"] is not None]
    return mean([lost["recommended"] for lost in both]), mean([lost[name] for lost in both])


def studied(settings: Sequence[Setting]) -> Iterator[str]:
    yield "## The evidence"
    told = [each for each, _ in learned(settings, "accuracy")]
    yield (
        f"{len(settings)} settings of {len({each.run for each in settings})} runs, each at three sigmas or more; "
        f"{len(told)} of them have learned something. Commands and machines: `results/README.md`. Sigmas in "
        "bold are the best ones, those beside them the others that are good; both were picked on the numbers that are "
        "shown, so the best one is a little flattered."
    )
    rows = []
    for each in settings:
        cells = [each.name, each.task, f"{each.tokens}", f"{each.width}", f"{each.layers}", f"{each.heads}"]
        cells += [f"{each.optimizer} {each.learning_rate:g}", f"{each.steps:,}"]
        cells.append(f"{max(point.n for point in each.outcome.points)}")
        rows.append((*cells, *_told(each.outcome), *_told(each.structure, recommend.cut_short(each, "map"))))
    header = ("setting", "task", "tokens", "width", "blocks", "heads", "optimizer, rate", "steps", "seeds")
    yield grid((*header, "outcome of the best", "good sigmas", "map of the best", "good sigmas for a map"), rows)
    names: dict[str, list[str]] = {}
    for each in settings:
        if each.structure is not None and each.task not in names.setdefault(each.structure.name, []):
            names[each.structure.name].append(each.task)
    yield "Maps are measured by: " + "; ".join(f"{name} ({listed(tasks)})" for name, tasks in names.items()) + "."


def _told(curve: Curve | None, cut: bool = False) -> tuple[str, str]:
    if curve is None:
        return "", ""
    best = curve.best
    reached = f"{best.found.mean:.3f} (nothing: {curve.nothing:.3f})"
    if not curve.learned:
        return reached, "nothing learned for sure"
    if cut:
        return reached, f"**{best.sigma:g}**, where it was cut short"
    good = [point.sigma for point in curve.points if curve.good(point.sigma)]
    return reached, ", ".join(f"**{sigma:g}**" if sigma == best.sigma else f"{sigma:g}" for sigma in good)


# ------------------------------------------------------------------------------------------------------ leave one out


def left_out(settings: Sequence[Setting]) -> Iterator[str]:
    yield "## Held-out settings"
    yield (
        "Each setting is left out in turn, the others recommend a sigma for it, and what it lacks there is what would "
        "have been lost: a share of the gain, 0 at best. Beside it, what is lost by always taking a default. Not every "
        "setting reaches to every sigma, so the last column has the recommended sigma on the same settings."
    )
    few = full(settings)
    for goal, words, known in (
        ("accuracy", "Outcome", settings),
        ("accuracy", f"Outcome, full sweeps alone ({FULL} sigmas or more)", few),
        ("map", "Map", settings),
    ):
        for whole, left in ((False, "one setting left out"), (True, "all settings of its task left out")):
            rows = list(recommend.held_out(known, goal, whole))
            yield f"{words}, {left} ({len(rows)} settings of {len({each.setting.task for each in rows})} tasks):"
            header = ("way to choose", "settings", "lost, mean", "mean of tasks", "worst", f"over {percent(TOLERANCE)}")
            yield grid((*header, "recommended on these"), [_way(rows, name) for name in ("recommended", *DEFAULTS)])
    yield conclusion(settings)
    yield "Setting by setting, the outcome, as recommended by the others and by the settings of other tasks alone:"
    one, whole = (list(recommend.held_out(settings, whole_task=task)) for task in (False, True))
    rows = [
        (
            each.setting.name,
            f"{each.setting.outcome.best.sigma:g}",
            *(f"{which.sigma:g}: {_lost(which.lost['recommended'])}" for which in (each, other)),
            *(_lost(each.lost[name]) for name in DEFAULTS),
        )
        for each, other in zip(one, whole, strict=True)
    ]
    header = ("setting", "best sigma", "recommended: lost", "by other tasks: lost")
    yield grid((*header, *(f"lost at {name}" for name in DEFAULTS)), rows)


def full(settings: Sequence[Setting]) -> list[Setting]:
    return [each for each in settings if len(each.outcome.points) >= FULL]


def _way(rows: Sequence[HeldOut], name: str) -> tuple[str, ...]:
    known = [(each.setting.task, lost) for each in rows if (lost := each.lost[name]) is not None]
    values = [lost for _, lost in known]
    tasks = [mean([lost for task, lost in known if task == each]) for each in dict.fromkeys(task for task, _ in known)]
    beyond = sum(lost > TOLERANCE for lost in values)
    return (
        name if name == "recommended" else f"always {name}",
        f"{len(values)}",
        percent(mean(values), 1),
        percent(mean(tasks), 1),
        percent(max(values, default=math.nan)),
        f"{beyond} of {len(values)}",
        "" if name == "recommended" else percent(in_common(rows, name)[0], 1),
    )


def _lost(share: float | None) -> str:
    return "not studied" if share is None else percent(share)


def conclusion(settings: Sequence[Setting]) -> str:
    """Where the rule fails worst if it knows nothing of a task."""
    rows = list(recommend.held_out(settings, whole_task=True))
    worst = max(rows, key=lambda each: each.lost["recommended"] or 0.0)
    tasks = {each.setting.task for each in rows}
    by_task = {
        task: mean([each.lost["recommended"] for each in rows if each.setting.task == task]) for task in sorted(tasks)
    }
    hard = [f"{task} {percent(lost, 1)}" for task, lost in by_task.items() if not math.isnan(lost)]
    lacks = worst.setting.outcome.lacks(worst.sigma)
    assert lacks is not None
    cliff = (
        ": curves that are flat on most tasks may fall off a cliff on another, and settings of other tasks cannot tell "
        "where"
    )
    noise = f", which may be noise ({percent(lacks.low)} to {percent(lacks.high)})"
    tail = "" if lacks.mean <= IN_NOISE else cliff if lacks.low > 0 else noise
    return (
        f"Without its task, what is lost is {listed(hard)}. The worst is `{worst.setting.name}`, where {worst.sigma:g} "
        f"is recommended and {percent(lacks.mean)} of the gain is lost{tail}."
    )
