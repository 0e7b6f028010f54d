"""What members answer: how surely, to which puzzles wrongly, and whether two of them answer alike.

Answers, probabilities and hits have the examples on an axis b, members and other axes before it. NaN stands for what a
diverged member would have answered: it makes that member's results NaN and leaves all others as they are.

>>> answers = np.array([[0, 1, 2, 3], [0, 1, 2, 0], [3, 3, 3, 0]])  # (e, b)
>>> agreement_with_others(answers, ["a", "a", "b"])
array([0.75, 0.75,  nan])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from placecode.errors import must_be

Array = npt.NDArray[np.float64]


def confidence(probabilities: npt.ArrayLike) -> Array:
    """The probability of the likeliest answer, (..., b, o) -> (..., b)."""
    return np.asarray(np.asarray(probabilities, dtype=np.float64).max(axis=-1))


def by_condition(values: npt.ArrayLike, conditions: Sequence[str]) -> dict[str, Array]:
    """Mean over the examples of each condition, (..., b) and b names -> (...) per name, in order of appearance."""
    table = np.asarray(values, dtype=np.float64)
    names = np.asarray(conditions, dtype=object)
    if table.ndim < 1 or names.shape != table.shape[-1:]:
        raise must_be("conditions", f"one name for each example of values {table.shape}", names.shape)
    return {name: np.asarray(table[..., names == name].mean(axis=-1)) for name in dict.fromkeys(conditions)}


def agreement(answers: npt.ArrayLike) -> Array:
    """Share of the examples that two members answer alike, rightly or not, (e, b) -> (e, e)."""
    given = np.asarray(answers, dtype=np.float64)
    if given.ndim != 2:
        raise must_be("answers", "an array (members, examples)", given.shape)
    diverged = np.isnan(given).any(axis=-1, keepdims=True)  # (e, 1)
    alike = np.zeros((len(given), len(given)))
    for answer in np.unique(given[np.isfinite(given)]):  # a product for each answer, to hold no (e, e, b) in memory
        chosen = (given == answer).astype(np.float64)
        alike += chosen @ chosen.T
    return np.where(diverged | diverged.T, np.nan, alike / given.shape[-1])


def agreement_with_others(answers: npt.ArrayLike, groups: Sequence[object] | npt.NDArray[np.generic]) -> Array:
    """Mean agreement of each member with the others of its group, (e, b) and e groups -> (e,); NaN where it is alone.

    With the seeds of one setting as a group: do they all come to the same answers, or each to its own? Others that
    diverged are left out.
    """
    alike = agreement(answers)
    group = np.asarray(groups)
    if group.shape != alike.shape[:1]:
        raise must_be("groups", f"one for each of {len(alike)} members", group.shape)
    others = (group[:, None] == group) & ~np.eye(len(group), dtype=bool) & ~np.isnan(alike)
    count = others.sum(axis=-1)
    return np.asarray(np.where(others, alike, 0.0).sum(axis=-1) / np.where(count == 0, np.nan, count))


def error_rate(right: npt.ArrayLike, places: npt.ArrayLike, tokens: int) -> Array:
    """Share of wrong answers by the token asked for, (..., b) and (b,) -> (..., tokens); NaN where it never was."""
    hits, asked = np.asarray(right, dtype=np.float64), np.asarray(places)
    if hits.ndim < 1 or asked.shape != hits.shape[-1:]:
        raise must_be("places", f"one for each example of right {hits.shape}", asked.shape)
    if ((asked < 0) | (asked >= tokens)).any():
        raise must_be("places", f"tokens from 0 to {tokens - 1}", sorted(set(asked.tolist())))
    at = (asked[:, None] == np.arange(tokens)).astype(np.float64)  # (b, tokens)
    count = at.sum(axis=0)
    return np.asarray((1 - hits) @ at / np.where(count == 0, np.nan, count))
