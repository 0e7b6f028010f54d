"""Draw the results of `placecode fit`: a map of the channels (columns) of a user's table, other maps, choice of sigma.

>>> figure = channels_on_map(places, names, labels, confidence, "my fit")
>>> figure = maps_by_method({"placecode": places, "PCA": loadings}, labels, "my fit", positions)
>>> figure = sigma_choice(table, 0.05, "my fit")
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from placecode.analysis.geometry import align_map
from placecode.arrays import AnyArray
from placecode.reports.figures import base
from placecode.reports.figures.base import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    PURPLE,
    SIGMA,
    SMALL,
    VERMILLION,
)

COLORS = (BLUE, ORANGE, GREEN, PURPLE, VERMILLION, "#56B4E9", "#F0E442")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "p")
"""Markers of modules (groups of similar channels). Seven colours and eight markers distinguish 56 modules; in
greyscale, markers distinguish 8."""
MAX_NAMES = 60
"""Maximum number of channels for which a map shows their names."""
MIN_LABEL_DISTANCE, MAX_SHARED_NAMES = 0.03, 6
"""Channels closer than MIN_LABEL_DISTANCE times the map's extent share a label of at most MAX_SHARED_NAMES names."""
MAX_MODULES = 14
"""Maximum number of modules for which a legend is drawn."""


def channels_on_map(
    places: AnyArray,
    names: Sequence[str],
    labels: AnyArray,
    confidence: AnyArray,
    run_name: str,
    edges: Sequence[tuple[int, int, float]] = (),
) -> Figure:
    """Draw a map of channels at `places` (n, 2), coloured by module.

    `labels` (n,) are the modules (groups of channels that the fit found), -1 for none. Channels with a low `confidence`
    (n,) in their position, from 0 to 1, are pale. An edge (channel, channel, confidence) is drawn as a line between two
    channels that are neighbours with this confidence.
    """
    figure, (axes,) = base.panels(1, 1, (7.2, 6.2))
    _frame(axes)
    if not np.isfinite(places).all():
        base.write_empty_note(axes)
        places, names, labels, confidence, edges = places[:0], (), labels[:0], confidence[:0], ()
    if edges:
        lines = [places[[first, second]] for first, second, _ in edges]
        axes.add_collection(LineCollection(lines, colors=MUTED, linewidths=0.7, alpha=0.5, zorder=1))
    shade = np.where(np.isfinite(confidence), 0.25 + 0.75 * np.clip(confidence, 0, 1), 1.0)
    _modules(axes, places, labels, shade, 36 if len(places) <= 200 else 14)
    if 0 < len(names) <= MAX_NAMES:
        for (x, y), text in _named_places(places, names):
            at: base.Style = {"xytext": (5, 0), "textcoords": "offset points", "fontsize": SMALL - 1, "color": INK}
            axes.annotate(text, (x, y), parse_math=False, va="center", **at)
    count = int(labels.max(initial=0)) + 1
    if 1 < count <= MAX_MODULES:
        styles = enumerate(map(_style, range(count)), 1)
        handles = [
            Line2D([], [], linestyle="none", marker=marker, color=color, markeredgecolor=PAPER, label=f"module {i}")
            for i, (color, marker) in styles
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=7, frameon=False, fontsize=8, labelcolor=INK)
    least = min((math.floor(100 * value + 1e-9) for *_, value in edges), default=0)
    joined = f" · lines: neighbours with a confidence of {least}% or more" if edges else ""
    note = f"units are arbitrary, and so is the orientation · pale: unsure of its place{joined}"
    return base.small_print(figure, run_name, note)


def maps_by_method(
    maps: Mapping[str, AnyArray],
    labels: Mapping[str, AnyArray],
    run_name: str,
    positions: AnyArray | None = None,
    notes: Mapping[str, str] | None = None,
    colored: str = "modules that the method found",
) -> Figure:
    """Draw the maps (n, 2) that several methods make, each rotated onto the first one.

    `maps`, `labels` and `notes` (texts below the titles) have one entry per method. Colours show the `labels` (n,), and
    `colored` says in the small print what the labels are. If the true `positions` (n, 2) are known, colours show these
    instead, and they are drawn as the first map.
    """
    panels = {**({} if positions is None else {"known positions": positions}), **maps}
    figure, drawn = base.panel_grid(len(panels), 3, (2.6, 2.7), sharey=False)
    target = next(iter(panels.values()))
    for axes, (name, places) in zip(drawn, panels.items(), strict=False):
        _frame(axes)
        base.title(axes, name, (notes or {}).get(name, ""), width=40)
        if not np.isfinite(places).all():
            base.write_empty_note(axes)
            continue
        aligned = align_map(_standardized(places), _standardized(target))
        if positions is None:
            _modules(axes, aligned, labels[name], np.ones(len(aligned)), 16)
        else:
            axes.scatter(aligned[:, 0], aligned[:, 1], c=_position_colors(positions), s=16, linewidths=0)
    colors = "colour: true place" if positions is not None else f"colour and marker: {colored}"
    note = f"{colors} · every map is turned onto the first one and scaled for display"
    return base.small_print(figure, run_name, note)


def sigma_choice(table: Sequence[Mapping[str, float]], chosen: float, run_name: str) -> Figure:
    """Draw the validation error and the agreement between fits by sigma, and mark the chosen sigma.

    `table` is `placecode.fit.choice.Choice.table`, with a row per sigma that was tried.
    """
    sigmas = np.array([row["sigma"] for row in table])
    labels = {"error": "validation error", "stability": "agreement between fits"}
    figure, panels = base.panels(1, 2, (7.2, 3.1), sharey=False)
    for axes, (name, label) in zip(panels, labels.items(), strict=True):
        values = np.array([np.nan if row[name] is None else row[name] for row in table], dtype=float)
        spread = np.array([row["standard_error"] for row in table]) if name == "error" else None
        axes.plot(sigmas, values, color=MUTED, linewidth=1, zorder=1)
        base.errorbars(axes, sigmas, values, yerr=spread, color=BLUE, marker="o", markersize=5)
        axes.plot([chosen], values[sigmas == chosen], "o", markersize=11, mfc="none", mec=VERMILLION, mew=1.6)
        base.sigma_axis(axes, sigmas)
        base.light_grid(axes)
        base.label(axes, f"initial scale {SIGMA}", label)
    best = min(table, key=lambda row: row["error"])
    panels[0].axhline(best["error"] + best["standard_error"], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    bars = "bars: one standard error over blocks of samples"
    dashes = "dashes: the lowest error plus one standard error, above which no sigma is taken"
    return base.small_print(figure, run_name, f"ring: the chosen {SIGMA} · {bars} · {dashes}")


def _named_places(places: AnyArray, names: Sequence[str]) -> list[tuple[tuple[float, float], str]]:
    """Return the position and the text of each label. Channels that nearly coincide share a label."""
    extent = float(np.ptp(places, axis=0).max()) or 1.0
    groups: list[list[int]] = []
    for i, place in enumerate(places):
        near = [group for group in groups if np.linalg.norm(places[group[0]] - place) < MIN_LABEL_DISTANCE * extent]
        if near:
            near[0].append(i)
        else:
            groups.append([i])
    texts = []
    for group in groups:
        listed = [base.short(names[i], 20) for i in group[:MAX_SHARED_NAMES]]
        more = [f"and {len(group) - MAX_SHARED_NAMES} more"] if len(group) > MAX_SHARED_NAMES else []
        middle = places[group].mean(axis=0)
        texts.append(((float(places[group, 0].max()), float(middle[1])), "\n".join(listed + more)))
    return texts


def _frame(axes: Axes) -> None:
    """Set up the panel of a map: equal scales on both axes, no ticks and no border."""
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="datalim")  # "box" would move the title out of the figure
    axes.spines[:].set_visible(False)
    axes.margins(0.08)


def _modules(axes: Axes, places: AnyArray, labels: AnyArray, shade: AnyArray, size: float) -> None:
    """Draw channels as markers of area `size`, coloured by module (`labels`). `shade` (n,) is the opacity, 0 to 1."""
    for module in np.unique(labels):
        in_module = labels == module
        color, marker = _style(int(module))
        x, y = places[in_module].T
        axes.scatter(x, y, c=color, marker=marker, s=size, alpha=shade[in_module], linewidths=0, zorder=2)


def _style(module: int) -> tuple[str, str]:
    """Return the colour and the marker of a module; a grey dot for -1 (no module)."""
    if module < 0:
        return MUTED, "."
    return COLORS[module % len(COLORS)], MARKERS[module % len(MARKERS)]


def _standardized(places: AnyArray) -> AnyArray:
    """Return positions (n, 2), centred and scaled to a root mean square distance of 1 from the centre."""
    centred = places - places.mean(axis=0)
    size = np.linalg.norm(centred) / np.sqrt(len(places))
    return np.asarray(centred / (size or 1.0))


def _position_colors(positions: AnyArray) -> AnyArray:
    """Return a colour (n, 3) for every position (n, 2): bluer along the first axis, more orange along the second."""
    flat = positions[:, :2] - positions[:, :2].min(axis=0)
    share = flat / np.where(flat.max(axis=0) > 0, flat.max(axis=0), 1.0)
    red, green, blue = 0.15 + 0.75 * share[:, 1], 0.35 + 0.1 * share.sum(axis=1), 0.2 + 0.65 * share[:, 0]
    return np.stack([red, green, blue], axis=1)
