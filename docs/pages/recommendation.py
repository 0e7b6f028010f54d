"""Writes docs/recommend.md and its figure from the packaged evidence: python docs/pages/recommendation.py

To be run after docs/pages/evidence.py. No number on that page is typed; conclusions are put together
from the numbers, or written with the condition under which they are true.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import pandas as pd
from recommendation_tables import FULL, full, in_common, learned, left_out, listed, mean, percent, studied
from wording import grid, picture, say

from placecode import cli
from placecode.inspection import evidence, recommend
from placecode.inspection.evidence import IN_NOISE, LEAST, TOLERANCE, Setting
from placecode.inspection.libraries import LIBRARIES
from placecode.inspection.recommend import DEFAULTS, ENOUGH, FAMILIES, GOALS, GRID, Asked
from placecode.reports import figures

ROOT = Path(__file__).parents[2]
TOKENS, WIDTHS = (16, 64, 256, 1024), (32, 64, 160, 512, 1024)
"""Sizes for which the page tells what is recommended."""
EXAMPLE = "placecode recommend --tokens 196 --width 768 --optimizer adamw --learning-rate 0.001 --layers 12"
SIZES = ((64, 64), (1024, 1024))
"""Tokens and width between which the figure draws scales that depend on them."""
PANELS = {"accuracy": "share of the best outcome", "map": "share of the best map"}


def page() -> str:
    """The whole page."""
    settings = evidence.settings()
    parts = [
        WORDS,
        *in_short(settings),
        *asking(),
        *by_size(),
        *libraries(),
        *rule(),
        *studied(settings),
        *left_out(settings),
        *limits(settings),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


WORDS = """\
# Which sigma to start with

<!-- made by docs/pages/recommendation.py from src/placecode/inspection/evidence.json; edit that script -->

Learned positions are drawn from N(0, sigma^2), and sigma decides what a model learns. `placecode recommend` says which
one to start with, from our own sweeps. This page says what that rests on, how well it works in settings that had no
say, and where common libraries start."""


# ----------------------------------------------------------------------------------------------------------- in short


def in_short(settings: Sequence[Setting]) -> Iterator[str]:
    yield "## In short"
    points = []
    for goal, words in (("accuracy", "To predict well"), ("map", "For a map of the tokens")):
        sigmas = sorted({recommend.recommend(Asked(n, d, "adam", goal=goal)).sigma for n in TOKENS for d in WIDTHS})
        said = f"{sigmas[0]:g}" if len(sigmas) == 1 else f"{sigmas[0]:g} to {sigmas[-1]:g}, by the size of the model"
        every = " That is the answer for every size in the table below." if len(sigmas) == 1 else ""
        points.append(f"**{words}, with Adam or AdamW: {said}.**{every}")
    points.append(smaller(settings))
    points.append(sgd(settings))
    points.append(
        "**Common defaults** lack, on average over the settings that reach so far, "
        + listed([f"{percent(mean)} at {name} ({count} settings)" for name, mean, count in on_average(settings)])
        + " of what the best sigma gains."
    )
    points.append(verdict(settings))
    yield "\n".join(f"- {point}" for point in points)


def smaller(settings: Sequence[Setting]) -> str:
    """Whether a map needs smaller sigmas, setting by setting."""
    maps = dict(learned(settings, "map"))
    both = [(maps[each].best.sigma, curve.best.sigma) for each, curve in learned(settings, "accuracy") if each in maps]
    less, more = sum(one < other for one, other in both), sum(one > other for one, other in both)
    return say(
        less > len(both) / 2 and more < less / 4,
        f"**A map needs smaller ones**: in {less} of {len(both)} settings the sigma of the best map is smaller than "
        f"that of the best outcome, in {len(both) - less - more} it is the same, in {more} larger.",
    )


def sgd(settings: Sequence[Setting]) -> str:
    tried = [each for each in settings if FAMILIES[each.optimizer] == "SGD"]
    told = [each for each, _ in learned(tried, "accuracy")]
    if not told:
        return (
            f"**SGD: no evidence.** None of the {len(tried)} settings that were studied with it has learned anything "
            "for sure; the command says so, and answers for Adam."
        )
    sigmas = sorted({recommend.recommend(Asked(n, d, "sgd"), settings).sigma for n in TOKENS for d in WIDTHS})
    said = f"{sigmas[0]:g}" if len(sigmas) == 1 else f"{sigmas[0]:g} to {sigmas[-1]:g}, by size"
    return f"**With SGD: {said}**, from the {len(told)} of {len(tried)} settings with it that have learned anything."


def on_average(settings: Sequence[Setting]) -> Iterator[tuple[str, float, int]]:
    for name in DEFAULTS:
        found = [
            lacks.mean
            for each, curve in learned(settings, "accuracy")
            if (lacks := curve.lacks(recommend.defaults(each.tokens, each.width)[name])) is not None
        ]
        yield name, sum(found) / len(found), len(found)


def verdict(settings: Sequence[Setting]) -> str:
    """What the rule is worth where nothing of the task was known, beside each default on the same settings."""
    one, whole = (list(recommend.held_out(settings, whole_task=task)) for task in (False, True))
    own, alone, own_full, alone_full = (
        percent(mean([each.lost["recommended"] for each in rows]), 1)
        for rows in (one, whole, *(list(recommend.held_out(full(settings), whole_task=task)) for task in (False, True)))
    )
    beside = {name: in_common(whole, name) for name in DEFAULTS}
    better = [name for name, (ours, theirs) in beside.items() if ours < theirs]
    worse = [name for name in DEFAULTS if name not in better]
    compared = [f"ahead of {listed(better)}"] if better else []
    compared += [f"behind {listed(worse)}"] if worse else []
    return (
        f"**How far to trust it**: in held-out settings the recommended sigma lacks {own} of the gain on "
        f"average ({own_full} on full sweeps alone, of {FULL} sigmas or more); where nothing of the same task was "
        f"known {alone} ({alone_full}), which is {' and '.join(compared)} on the settings that these reach. So it is a "
        "sigma to start with, not one to stop at."
    )


# --------------------------------------------------------------------------------------------------------- the answer


def asking() -> Iterator[str]:
    yield "## Ask"
    yield (
        "The sizes of your model, and its optimizer; learning rate and number of blocks are weighed too where they are "
        "given. `--goal map` asks for a PE that shows which tokens belong together, `--json` for an object."
    )
    yield f"```\n{EXAMPLE}\n```"
    yield f"```text\n{said(EXAMPLE)}\n```"
    yield (
        "The table shows the nearest settings: what the best sigma reached there, and what the recommended one and the "
        "defaults did; blank where that was not studied. The same from Python:"
    )
    yield (
        "```python\nfrom placecode.inspection.recommend import Asked, recommend, sentences\n\n"
        'answer = recommend(Asked(tokens=196, width=768, optimizer="adamw"))\n'
        "sigma, (low, high) = answer.sigma, answer.flat\nwhy = list(sentences(answer))\n```"
    )


def said(command: str) -> str:
    """What a command prints."""
    printed = io.StringIO()
    with patch.dict(os.environ, {"COLUMNS": "160"}), contextlib.redirect_stdout(printed):
        code = cli.main(shlex.split(command)[1:])
    if code != 0:
        raise SystemExit(f"{command} ended with {code}")
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines())


def by_size() -> Iterator[str]:
    yield "## By size"
    yield (
        "What is recommended with Adam or AdamW, and in brackets the sigmas around it that are good in most of the "
        "evidence."
    )
    for goal, words in (("accuracy", "To predict well"), ("map", "For a map of the tokens")):
        rows = []
        for tokens in TOKENS:
            answers = [recommend.recommend(Asked(tokens, width, "adam", goal=goal)) for width in WIDTHS]
            cells = [f"{each.sigma:g} ({each.flat[0]:g} to {each.flat[1]:g})" for each in answers]
            cells = [cell + ("*" if each.extrapolations() else "") for cell, each in zip(cells, answers, strict=True)]
            rows.append((f"{tokens:,}", *cells))
        yield f"{words}:"
        yield grid(("tokens", *(f"width {width:,}" for width in WIDTHS)), rows)
    yield "\\* beyond all that was studied by more than a factor of 2, in tokens or in width: an extrapolation."


# ---------------------------------------------------------------------------------------------------------- libraries


def libraries() -> Iterator[str]:
    yield "## Where libraries start"
    yield picture(
        "recommend",
        "scales",
        "Our curves, and the scales of libraries",
        "Above: what each sigma keeps of what the best sigma of its setting gains, in the outcome (accuracy or error "
        "on what was held out) and in what the PE shows of the true arrangement. Below: where libraries start. Lines "
        "between sigmas are straight, as the rule takes them.",
    )
    yield (
        "As read in the sources that are named. The scale is the standard deviation of what is really drawn: a normal "
        "that is cut at two of its own standard deviations keeps 0.88 of it, while bounds of -2 and 2 cut nothing of a "
        "normal of 0.02. d is the width, n the number of tokens. Most of these models add their positions once, at the "
        "input, beside embeddings of scales of their own: on our curves their scales are a place to look, not a result."
    )
    rows = [
        (
            each.name,
            each.table,
            each.distribution,
            each.formula,
            f"{each.sigma(64, 64):.3g}",
            f"{each.sigma(196, 768):.3g}",
            f"`{each.source}`",
        )
        for each in sorted(LIBRARIES, key=lambda each: -each.sigma(196, 768))
    ]
    header = ("library or model", "vectors", "drawn from", "sigma", "n 64, d 64", "n 196, d 768", "read in")
    yield grid(header, rows)


def drawn() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables of the figure."""
    curves = [
        (PANELS[goal], each.task, each.name, point.sigma, 1 - point.behind.mean / curve.gain)
        for goal in GOALS
        for each, curve in learned(evidence.settings(), goal)
        for point in curve.points
    ]
    marks = []
    for formula in dict.fromkeys(each.formula for each in LIBRARIES):
        users = [each for each in LIBRARIES if each.formula == formula]
        ends = sorted(users[0].sigma(*size) for size in SIZES)
        varies = "" if ends[0] == ends[1] else f" (n and d from {SIZES[0][1]:,} to {SIZES[1][1]:,})"
        marks.append((formula, f"{formula}{varies}: {'; '.join(each.name for each in users)}", *ends))
    marks.sort(key=lambda mark: -mark[3])
    return (
        pd.DataFrame(curves, columns=["panel", "task", "setting", "sigma", "share"]),
        pd.DataFrame(marks, columns=["formula", "names", "low", "high"]),
    )


# ----------------------------------------------------------------------------------------------- the rule, its grounds


def rule() -> Iterator[str]:
    yield "## The rule"
    yield "\n".join(
        f"- {point}"
        for point in (
            "**Gain.** What the best sigma of a setting reaches beyond a model that has learned nothing: chance in "
            "accuracy, 1 in error (what guessing the mean costs), and for maps what the PE shows before training. A "
            "setting has a say if its best sigma gains at least "
            f"{LEAST:g}, and the 95% interval of that sigma lies beyond nothing.",
            "**Lacks.** How much worse another sigma is, seed by seed, as a share of the gain. A member that diverged "
            "has learned nothing. Between two sigmas that were run, a straight line over log sigma; beyond the first "
            "and the last, nothing is known. A sweep of which the smallest sigma alone is good for a "
            f"map, and is above {GRID[0]:g}, has no say on maps: it was cut short where smaller ones may be better.",
            f"**Good.** Lacks at most {percent(TOLERANCE)}; or at most {percent(IN_NOISE)} where the 95% interval of "
            "the difference reaches zero. Seeds of one world (people on brains) are averaged first.",
            "**Near.** Settings are apart by the doublings of tokens and width between them, and of learning rate and "
            "blocks where these are asked for, added up. A task weighs half as much with every doubling to its nearest "
            "setting, and its settings share that by their own nearness. Adam and AdamW are one kind, SGD another: the "
            "other kind is asked only where one's own has learned nothing, and then that is said.",
            f"**Recommended.** Of {listed([f'{sigma:g}' for sigma in GRID])}, the sigma that is good in most of the "
            f"evidence by weight; of several the one that lacks least on average. At least {percent(ENOUGH)} of the "
            f"evidence must reach to it. The flat range around it is where {percent(ENOUGH)} or more is good.",
        )
    )
    yield (
        "Tolerance, weights and grid are in `placecode.inspection.evidence` and `placecode.inspection.recommend`. When "
        "they were set, curves were known; the losses on held-out settings were not. Sweeps that were cut short do not "
        "count for maps. That rule was added later, when sweeps that begin at 0.1 were seen to draw the answer to 0.1."
    )


def limits(settings: Sequence[Setting]) -> Iterator[str]:
    yield "## What this does not say"
    told = [each for each, _ in learned(settings, "accuracy")]
    every = sum(each.placement == "every" for each in told)
    post = sum(each.norm == "post" for each in told)
    spans = {name: sorted({getattr(each, name) for each in told}) for name in ("tokens", "width", "layers")}
    few = full(settings)
    sparse = [each for each in told if each not in few]
    inner = Counter(sigma for each in sparse for sigma in _sigmas(each)[1:-1])
    usual, times = inner.most_common(1)[0]
    alone = sorted({recommend.recommend(Asked(n, d, "adam"), few).sigma for n in TOKENS for d in WIDTHS})
    per_width = [recommend.defaults(each.tokens, each.width)["d^-1/2"] for each in told]
    points = [
        f"Of the {len(told)} settings {len(sparse)} were run at fewer than {FULL} sigmas, {times} of them with "
        f"{usual:g} between the smallest and the largest. What was run may turn out best, what lies between is a "
        f"straight line and may not: that favours {usual:g}. The full sweeps alone recommend "
        f"{listed([f'{sigma:g}' for sigma in alone])} at the sizes above.",
        f"At the widths that were studied d^-1/2 is {min(per_width):.3f} to {max(per_width):.3f}. How well it does "
        "there says nothing of widths at which it is far from that.",
        f"Beyond {spans['tokens'][0]} to {spans['tokens'][-1]} tokens, widths of {spans['width'][0]} to "
        f"{spans['width'][-1]} and {spans['layers'][0]} to {spans['layers'][-1]} blocks nothing was studied; the "
        "command answers, and says that it extrapolates where that is by more than a factor of 2.",
        f"Of the {len(told)} settings, {every} add the PE in every block and {post} have their norms after each sum.",
        "PEs hardly decay here. A strong weight decay on the PE alone made maps on Latin squares from sigmas up to 1 "
        "([beyond the paper](beyond.md)): another way to one.",
        "Tasks are ours: puzzles, and channels that are predicted from others. Language, and images at full size, are "
        "not among them.",
        f"The tasks are {len({each.task for each in told})}: too few to say how sure the averages over them are, and a "
        "setting more or less may change much of what a task loses. Many "
        "settings differ from another in one thing alone, so leaving one of them out is an easy test; leaving its task "
        "out is not.",
    ]
    yield "\n".join(f"- {point}" for point in points)


def _sigmas(setting: Setting) -> list[float]:
    return [point.sigma for point in setting.outcome.points]


if __name__ == "__main__":
    path = ROOT / "docs" / "recommend.md"
    path.write_text(page())
    runs = list(dict.fromkeys(each.run for each in evidence.settings()))
    figure = figures.scales(*drawn(), f"{runs[0]} and {len(runs) - 1} others")
    figures.save(figure, ROOT / "docs" / "images" / "recommend-scales.png")
    print(path)
