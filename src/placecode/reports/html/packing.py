"""Encode the data of interactive plots (the sigma slider and the map of channels) as compact JSON for an HTML page.

Matrices become bytes, and positions on maps 16-bit integers, in base64; `unpacked` in plots.js decodes them. A byte
resolves 1/127 of the scale, which is finer than a screen shows. A matrix of more than 250 channels is averaged over
blocks of neighbouring channels, ordered by group, since a screen has too few pixels for single channels.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from placecode.arrays import Array
from placecode.reports.pages.interactive import ChannelMap, SigmaSlider

MAX_ROWS = 250
"""Maximum number of rows and columns of a matrix on a page."""
STEPS, FINE = 127, 30000
"""Number of integer steps from 0 to the end of the scale, for matrices and for positions. plots.js has the same."""


def as_script(content: object) -> str:
    """Return values as JSON text that is safe inside a script element. Numbers that are not finite become null."""
    text = json.dumps(_json_value(content), allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def slider(content: SigmaSlider) -> dict[str, Any]:
    """Return the content of a sigma slider as values for JSON, which slider.js reads.

    "positions" has one entry per sigma. The rows and columns of the matrices are the channels in "order", averaged over
    blocks of "block_size" channels.
    """
    order = sort_by_group(content.groups, len(content.names)) if content.order is None else content.order
    size = max(1, math.ceil(len(order) / MAX_ROWS))
    similarities = [
        None if position.similarity is None else block_means(position.similarity, order, size)
        for position in content.positions
    ]
    attentions = [
        None if position.attention is None else block_means(position.attention, order, size)
        for position in content.positions
    ]
    width = math.ceil(len(order) / size)
    shown = ~np.eye(width, dtype=bool) if width > 1 else np.ones((1, 1), dtype=bool)  # the diagonal would dominate
    similarity_scale = _scale([matrix[shown] for matrix in similarities if matrix is not None])
    attention_scale = _scale([matrix for matrix in attentions if matrix is not None])
    places_scale = _scale([position.places for position in content.positions if position.places is not None])
    return {
        "names": list(content.names),
        "groups": None if content.groups is None else content.groups.tolist(),
        "group_names": list(content.group_names),
        "order": order.tolist(),
        "block_size": size,
        "first": content.first,
        "curves": {name: asdict(curve) for name, curve in content.curves.items()},
        "scales": {"similarity": similarity_scale, "attention": attention_scale, "places": places_scale},
        "positions": [
            {
                "label": position.label,
                "sigma": position.sigma,
                "measures": {name: list(position.measures[name]) for name in content.curves},
                "similarity": packed(similarity, similarity_scale),
                "attention": packed(attention, attention_scale),
                "places": packed(position.places, places_scale, FINE),
            }
            for position, similarity, attention in zip(content.positions, similarities, attentions, strict=True)
        ],
    }


def channel_map(content: ChannelMap) -> dict[str, Any]:
    """Return the content of the map of channels as values for JSON, which channels.js reads."""
    scale2, scale3 = _scale([content.places]), _scale([] if content.places3 is None else [content.places3])
    return {
        "names": list(content.names),
        "modules": None if content.modules is None else content.modules.tolist(),
        "module_names": list(content.module_names),
        "grouping": group_term(content),
        "columns": {name: list(values) for name, values in content.columns.items()},
        "neighbors": [[[int(other), confidence] for other, confidence in pairs] for pairs in content.neighbors],
        "edges": None if content.edges is None else [[int(i), int(j), float(w)] for i, j, w in content.edges],
        "scales": {"places": scale2, "places3": scale3},
        "places": packed(content.places, scale2, FINE),
        "places3": packed(content.places3, scale3, FINE),
    }


def group_term(content: ChannelMap) -> str:
    """Return the term for a set of channels: "group" if groups are known and named, "module" if they were detected."""
    return "group" if content.module_names else "module"


def sort_by_group(groups: npt.NDArray[np.int64] | None, count: int) -> npt.NDArray[np.int64]:
    """Return the indices of `count` channels, sorted by group. Channels without a group (-1) are last. If `groups` is
    None, the order is unchanged."""
    codes = np.zeros(count) if groups is None else groups
    return np.lexsort((codes, codes < 0))


def block_means(matrix: Array, order: npt.NDArray[np.int64], size: int) -> Array:
    """Reorder the rows and columns of a matrix (n, n), and return its means over blocks of size x size, (k, k).

    The last blocks may be smaller.

    >>> block_means(np.arange(9.0).reshape(3, 3), np.array([0, 1, 2]), 2).tolist()
    [[2.0, 3.5], [6.5, 8.0]]
    """
    starts = np.arange(0, len(order), size)
    sizes = np.diff([*starts, len(order)])
    sums = np.add.reduceat(np.add.reduceat(matrix[np.ix_(order, order)], starts, axis=0), starts, axis=1)
    return np.asarray(sums / np.outer(sizes, sizes))


def packed(values: Array | None, scale: float, steps: int = STEPS) -> str | None:
    """Return values as unsigned integers in base64, or None if `values` is None.

    Integers have 8 bits if `steps` is `STEPS`, and otherwise 16 bits (little endian). Values from -scale to scale
    become 1 to 2 * steps + 1, values beyond are clipped, and values that are not finite become 0.
    """
    if values is None:
        return None
    numbers = np.rint(np.clip(np.nan_to_num(values / scale), -1, 1) * steps) + steps + 1
    integers = np.where(np.isfinite(values), numbers, 0)
    return base64.b64encode(integers.astype("<u1" if steps == STEPS else "<u2").tobytes()).decode()


def _scale(arrays: Sequence[Array]) -> float:
    """Return the largest absolute value of the arrays, or 1 if all values are 0 or missing."""
    sizes = [np.abs(values[np.isfinite(values)]).max(initial=0.0) for values in arrays]
    return float(max(sizes, default=0.0)) or 1.0


def _json_value(content: Any) -> Any:
    """Return nested values as types that JSON supports. Numbers that are not finite become None."""
    if isinstance(content, dict):
        return {str(name): _json_value(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_json_value(value) for value in content]
    if isinstance(content, np.generic):
        content = content.item()
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    return content if content is None or isinstance(content, (str, int, bool)) else str(content)
