"""What moves on a page, small enough to travel in it: matrices as bytes, places as short numbers, both in base64.

A byte holds a similarity to 1/127 of the scale, which is finer than a screen shows. Matrices of many channels are
averaged over blocks of neighbours in the order of their groups: a screen has not more pixels than that either.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from placecode.reports.html.contracts import Array, Atlas, Turning

MOST = 250
"""Rows and columns of a matrix on a page, at most."""
STEPS, FINE = 127, 30000
"""Steps between zero and the end of the scale: of a matrix, of places."""


def as_script(content: object) -> str:
    """JSON that can stand in a script element of a page, whatever texts are in it; NaN is null."""
    text = json.dumps(_plain(content), allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def dial(content: Turning) -> dict[str, Any]:
    """A dial as plain values. Channels of matrices are in the order `order`, averaged in blocks `each` long."""
    order = in_groups(content.groups, len(content.names)) if content.order is None else content.order
    each = max(1, math.ceil(len(order) / MOST))
    similar = [None if stop.similarity is None else blocks(stop.similarity, order, each) for stop in content.stops]
    looks = [None if stop.attention is None else blocks(stop.attention, order, each) for stop in content.stops]
    similar_scale = _scale([_off_diagonal(matrix) for matrix in similar if matrix is not None])
    looks_scale = _scale([matrix for matrix in looks if matrix is not None])
    places_scale = _scale([stop.places for stop in content.stops if stop.places is not None])
    return {
        "names": list(content.names),
        "groups": None if content.groups is None else content.groups.tolist(),
        "group_names": list(content.group_names),
        "order": order.tolist(),
        "each": each,
        "first": content.first,
        "measures": dict(content.measure_names),
        "scales": {"similarity": similar_scale, "attention": looks_scale, "places": places_scale},
        "stops": [
            {
                "label": stop.label,
                "sigma": stop.sigma,
                "measures": {name: list(stop.measures[name]) for name in content.measure_names},
                "similarity": packed(own, similar_scale),
                "attention": packed(seen, looks_scale),
                "places": packed(stop.places, places_scale, FINE),
            }
            for stop, own, seen in zip(content.stops, similar, looks, strict=True)
        ],
    }


def atlas(content: Atlas) -> dict[str, Any]:
    """Channels as plain values."""
    flat, deep = _scale([content.places]), _scale([] if content.places3 is None else [content.places3])
    return {
        "names": list(content.names),
        "modules": None if content.modules is None else content.modules.tolist(),
        "module_names": list(content.module_names),
        "grouping": grouping(content),
        "columns": {name: list(values) for name, values in content.columns.items()},
        "neighbors": [[[int(other), sure] for other, sure in own] for own in content.neighbors],
        "edges": None if content.edges is None else [[int(i), int(j), float(w)] for i, j, w in content.edges],
        "scales": {"places": flat, "places3": deep},
        "places": packed(content.places, flat, FINE),
        "places3": packed(content.places3, deep, FINE),
    }


def grouping(content: Atlas) -> str:
    """What a set of channels is called: a module, which was found, or a group, which has a name."""
    return "group" if content.module_names else "module"


def in_groups(groups: npt.NDArray[np.int64] | None, count: int) -> npt.NDArray[np.int64]:
    """The channels group by group, in their own order within each; those without a group last."""
    if groups is None:
        return np.arange(count)
    last = np.where(groups < 0, groups.max(initial=0) + 1, groups)
    return np.argsort(last, kind="stable")


def blocks(matrix: Array, order: npt.NDArray[np.int64], each: int) -> Array:
    """A matrix (n, n) in an order, averaged over blocks of `each` x `each`; the last ones may be smaller.

    >>> blocks(np.arange(9.0).reshape(3, 3), np.array([0, 1, 2]), 2).tolist()
    [[2.0, 3.5], [6.5, 8.0]]
    """
    starts = np.arange(0, len(order), each)
    sizes = np.diff([*starts, len(order)])
    sums = np.add.reduceat(np.add.reduceat(matrix[np.ix_(order, order)], starts, axis=0), starts, axis=1)
    return np.asarray(sums / np.outer(sizes, sizes))


def packed(values: Array | None, scale: float, steps: int = STEPS) -> str | None:
    """Whole numbers from -steps to steps, shifted to be positive, in base64: bytes, or pairs of them, low end first;
    0 is what is missing."""
    if values is None:
        return None
    numbers = np.rint(np.clip(np.nan_to_num(values / scale), -1, 1) * steps) + steps + 1
    whole = np.where(np.isfinite(values), numbers, 0)
    return base64.b64encode(whole.astype("<u1" if steps == STEPS else "<u2").tobytes()).decode()


def _scale(arrays: Sequence[Array]) -> float:
    """The largest size of any finite value; 1 where there is none."""
    sizes = [np.abs(values[np.isfinite(values)]).max(initial=0.0) for values in arrays]
    return float(max(sizes, default=0.0)) or 1.0


def _off_diagonal(matrix: Array) -> Array:
    """What every channel has with itself would set the scale of all."""
    return matrix[~np.eye(len(matrix), dtype=bool)] if len(matrix) > 1 else matrix


def _plain(content: Any) -> Any:
    if isinstance(content, dict):
        return {str(name): _plain(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(value) for value in content]
    if isinstance(content, np.generic):
        content = content.item()
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    return content if content is None or isinstance(content, (str, int, bool)) else str(content)
