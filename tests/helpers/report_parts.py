"""Make up the parts of a report (run, sigma slider, map of channels) with known values, and parse a report's HTML."""

import itertools
from collections.abc import Sequence
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from placecode.reports import html as report
from placecode.reports.figures import accuracy_by_sigma, base
from placecode.reports.pages.base import ReportFigure
from placecode.reports.pages.interactive import ChannelMap, Curve, SigmaSlider, SliderPosition

EVIL = "<img src=x onerror=alert(1)>"  # a name of a channel that would run as code if the report did not escape it
SIGMAS = (0.01, 0.1, 1.0)


def names(count: int) -> list[str]:
    """Return names of channels. The second one is EVIL; "channel 2" is a part of "channel 20"."""
    return [f"channel {i}" if i != 1 else EVIL for i in range(count)]


LONG = "a name of ninety letters " + "x" * 65


def crowded() -> tuple[SigmaSlider, ChannelMap]:
    """Return a slider and a map with channels in three clusters, so close that their names would hide each other.

    One name is long, and one looks like a formula.
    """
    labels = [LONG, "$x^2$ and more", *(f"Channel {i}" for i in range(2, 30))]
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.0]])[np.arange(30) % 3]
    places = centres + np.random.default_rng(2).normal(size=(30, 2)) * 0.02
    errors = {sigma: {"mse, test": (sigma, np.nan, np.nan)} for sigma in (0.5, 1.0)}
    positions = [SliderPosition(f"{s:g}", s, errors[s], np.eye(30), places * s) for s in errors]
    turning = SigmaSlider(labels, None, [], positions, {"mse, test": Curve("error (mse)", "test", "test")})
    return turning, ChannelMap(labels, places, modules=np.arange(30) % 3, columns={"confidence": [np.nan] * 30})


def slider(count: int, groups: int, sigmas: tuple[float, ...] = SIGMAS, attention: bool = False) -> SigmaSlider:
    """Return a slider in which blocks of similar channels fade as sigma grows, and the error is 0.5 + sigma."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, groups, count)
    positions = []
    for place, sigma in enumerate(sigmas):
        noise = rng.uniform(-0.2, 0.2, (count, count))
        similarity = (codes[:, None] == codes) * (0.9 - 0.4 * place) + (noise + noise.T) / 2
        np.fill_diagonal(similarity, 1.0)
        attended = rng.dirichlet(np.ones(count), count) if attention else None
        values = {"mse, test": (0.5 + sigma, 0.4 + sigma, 0.6 + sigma)}
        values["same group"] = (0.9 - 0.1 * place, np.nan, np.nan)
        positions.append(SliderPosition(f"{sigma:g}", sigma, values, similarity, rng.normal(size=(count, 2)), attended))
    curves = {"mse, test": Curve("error (mse)", "test", "test"), "same group": Curve("share of channels", "same group")}
    group_names = [f"group {i + 1}" for i in range(groups)]
    return SigmaSlider(names(count), codes, group_names, positions, curves, note="Made up.")


def channels(count: int, modules: int = 4, space: bool = True) -> ChannelMap:
    """Return a map of channels with modules, neighbours, columns and edges, and with a third dimension if `space`."""
    rng = np.random.default_rng(1)
    codes = rng.integers(-1, modules, count)
    centres = rng.normal(size=(modules + 1, 3)) * 2
    places = centres[codes] + rng.normal(size=(count, 3)) * 0.4
    nearest = np.argsort(np.linalg.norm(places[:, None] - places, axis=-1), axis=1, kind="stable")[:, 1:6]
    confidences = np.sort(rng.uniform(0, 1, (count, 5)), axis=1)[:, ::-1]
    rows = zip(nearest.tolist(), confidences.tolist(), strict=True)
    neighbors = [list(zip(numbers, values, strict=True)) for numbers, values in rows]
    columns: dict[str, list[Any]] = {"confidence of place": list(rng.uniform(0, 1, count))}
    columns["kind"] = ["unit" if i % 2 else "" for i in range(count)]
    edges = [(i, int(nearest[i, 0]), 0.5) for i in range(count)]
    deep = places if space else None
    return ChannelMap(names(count), places[:, :2], deep, codes, (), columns, neighbors, edges, "A made-up map.")


# ----------------------------------------------------------------------------------------------------- runs and pages

SPLITS = ("train", "test", "ood")
CLASSES = ("Binary", "Ternary", "Quaternary")
DASH = "\N{EN DASH}"
VOID = {"meta", "link", "br", "img", "input", "hr", "base"}
CLAIM: dict[str, Any] = {"statement": "It is so.", "label": "paper", "remark": "", "note": "", "published": None}
CLAIM |= {"direction": "holds", "direction_text": "reproduced", "number": "", "number_text": "-"}
CLAIM |= {"effect": 0.7, "low": 0.6, "high": 0.8, "margin": 0.5, "way": "above"}
"""The record of a claim that holds."""
UNTESTED = {**CLAIM, "effect": None, "direction": "undecided", "direction_text": "undecided"}


def make(
    folder: Path, sigmas: tuple[float, ...] = (0.2, 2.0), seeds: int = 3, diverged: tuple[int, ...] = ()
) -> SimpleNamespace:
    """Return a made-up run with the fields of a real one."""
    rng = np.random.default_rng(0)
    members, metrics, analysis = [], [], []
    for number, (sigma, seed) in enumerate(itertools.product(sigmas, range(seeds))):
        state = "diverged" if number in diverged else "done"
        spec = {"encoding": "learned", "sigma": sigma, "seed": seed, "options": "{}"}
        members.append({"member": number, **spec, "state": state, "diverged_at": -1})
        for step, split, condition in itertools.product((0, 9), SPLITS, ("all", *CLASSES)):
            metrics.append((number, step, split, condition, "accuracy", rng.uniform(0.3, 1)))
        for step, name in itertools.product((0, 9), ("procrustes", "procrustes_raw", "rsa")):
            value = rng.normal(60, 5) if name == "procrustes_raw" else rng.uniform(-1, 1)
            analysis.append((number, step, -1, name, "2d-fixed", value))
            analysis.append((number, step, 0, name, "2d-fixed", 777.0))  # of one block; a page must not show it
    fields = {"sigmas": list(sigmas), "epochs": 120, "puzzles": None, "learning_rate": 1e-4, "resume": True}
    config = {"format": 1, "experiment": "lst-sigma", "scale": "quick", "fields": fields, "precision": "high"}
    config |= {"device": "cpu", "members": f"0:{len(members)}", "total": len(members)}
    config |= {"task": {"counts": {"train": 8100, "ood": 108}, "source": "drawn", "sha256": "ab" * 32}}
    versions = {"torch": "2.13.0", "numpy": "2.4.6"}
    run = SimpleNamespace(
        path=folder,
        config=config,
        environment={"versions": versions, "device": "cpu", "threads": 2, "precision": "high"},
        members=pd.DataFrame(members),
        metrics=pd.DataFrame(metrics, columns=["member", "step", "split", "condition", "metric", "value"]),
        analysis=pd.DataFrame(analysis, columns=["member", "step", "block", "analysis", "target", "value"]),
    )
    last = run.metrics[run.metrics["step"] == 9].merge(run.members[["member", "sigma"]], on="member")
    run.summary = []
    for (sigma, split, condition), group in last.groupby(["sigma", "split", "condition"]):
        values = group.loc[~group["member"].isin(diverged), "value"]
        row = {"encoding": "learned", "sigma": sigma, "split": split, "condition": condition, "metric": "accuracy"}
        row |= {"mean": values.mean() if len(values) else None, "std": values.std() if len(values) > 1 else None}
        run.summary.append({**row, "n": len(values), "diverged": len(group) - len(values)})
    return run


def shown(run: SimpleNamespace, name: str, title: str, caption: str) -> ReportFigure:
    """Return a figure with this name, title and caption."""
    return ReportFigure(name, title, caption, accuracy_by_sigma(run.members, run.metrics, run.path.name))


def made_up_page(
    run: Any,
    title: str = "A title",
    lead: Sequence[str] = ("One.", "Two."),
    metric: str = "accuracy",
    claims: Sequence[dict[str, Any]] = (),
    **content: Any,
) -> Any:
    """Return a page with made-up texts. `content` has what its other methods return, by their names."""
    methods = {"figures": [], "sentences": lead, "verdicts": [], "listings": [], "slider": None, "channel_map": None}
    methods |= {"lead": lead, **content}
    return SimpleNamespace(
        run=run,
        title=title,
        metric=metric,
        measures=None,
        map_first=False,
        findings=[SimpleNamespace(record=partial(dict, claim)) for claim in claims],
        **{name: partial(lambda value: value, value) for name, value in methods.items()},
    )


def report_of(run: Any, command: str = "placecode run lst-sigma", **content: Any) -> str:
    """Return the HTML of a report with made-up texts; `content` is that of `made_up_page`."""
    page = made_up_page(run, **content)
    return report.render(page, command, page.figures())


class Page(HTMLParser):
    """Parser of a page, which asserts that tags are closed in order.

    It collects tags, tables (as lists of rows of text) and the text of the page.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[dict[str, Any]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append({"caption": "", "rows": []})
        if tag == "tr":
            self.tables[-1]["rows"].append([])
        if tag in ("td", "th"):
            self.tables[-1]["rows"][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data
        if "caption" in self.open:
            self.tables[-1]["caption"] += data
        elif "td" in self.open or ("th" in self.open and "table" in self.open):
            self.tables[-1]["rows"][-1][-1] += data

    def table(self, start: str) -> list[list[str]]:
        """Return the rows of the only table whose caption begins with `start`."""
        (result,) = [table["rows"] for table in self.tables if table["caption"].startswith(start)]
        rows: list[list[str]] = result
        return rows


def plus_minus(values: np.ndarray, decimals: int = 3) -> str:
    """Return the mean and half the width of its 95% interval as a report writes them."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return f"{values.mean():.{decimals}f} ± {half:.{decimals}f}".replace("-", "\N{MINUS SIGN}")


def figure_of_size(name: str, wide: float, high: float) -> ReportFigure:
    figure, (axes,) = base.panels(1, 1, (wide, high))
    axes.plot([0, 1])
    return ReportFigure(name, name, "Look.", figure)
