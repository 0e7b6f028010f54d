"""Describe the answers of models (members): confidence, errors by token, and agreement between members.

Arrays have one row per member and one column per example, (e, b). The answers of a member that diverged are NaN. Its
results are then NaN, and the results of other members are not affected.

>>> answers = np.array([[0, 1, 2, 3], [0, 1, 2, 0], [3, 3, 3, 0]])  # (e, b)
>>> agreement_with_others(answers, ["a", "a", "b"])
array([0.75, 0.75,  nan])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from placecode.arrays import Array
from placecode.errors import must_be


def confidence(probabilities: npt.ArrayLike) -> Array:
    """Return the probability of the most likely of o answers to each example, (..., b, o) -> (..., b)."""
    return np.asarray(np.asarray(probabilities, dtype=np.float64).max(axis=-1))


def by_condition(values: npt.ArrayLike, conditions: Sequence[str]) -> dict[str, Array]:
    """Return the mean of values over each subset of the examples, such as each class of puzzles.

    Parameters
    ----------
    values : array-like, shape (..., b)
        One value per example.
    conditions : sequence of str
        Name of the subset to which each of the b examples belongs.

    Returns
    -------
    dict of str to ndarray, shape (...)
        The mean over each subset by name, in the order in which the names first appear.
    """
    table = np.asarray(values, dtype=np.float64)
    names = np.asarray(conditions, dtype=object)
    if table.ndim < 1 or names.shape != table.shape[-1:]:
        raise must_be("conditions", f"one name for each example of values {table.shape}", names.shape)
    return {name: np.asarray(table[..., names == name].mean(axis=-1)) for name in dict.fromkeys(conditions)}


def agreement(answers: npt.ArrayLike) -> Array:
    """Return, for every two members, the fraction of examples to which they give the same answer, correct or not.

    Parameters
    ----------
    answers : array-like, shape (e, b)
        Answer of each member to each example, as a number.

    Returns
    -------
    ndarray, shape (e, e)
        Symmetric. NaN for members that diverged.
    """
    table = np.asarray(answers, dtype=np.float64)
    if table.ndim != 2:
        raise must_be("answers", "an array (members, examples)", table.shape)
    diverged = np.isnan(table).any(axis=-1, keepdims=True)  # (e, 1)
    equal = np.zeros((len(table), len(table)))
    for answer in np.unique(table[np.isfinite(table)]):  # one product per answer needs no (e, e, b) array
        chosen = (table == answer).astype(np.float64)
        equal += chosen @ chosen.T
    return np.where(diverged | diverged.T, np.nan, equal / table.shape[-1])


def agreement_with_others(answers: npt.ArrayLike, groups: Sequence[object] | npt.NDArray[np.generic]) -> Array:
    """Return, for each member, its mean `agreement` with the other members of its group.

    The agreement of two members is the fraction of examples to which they give the same answer. If members of a group
    differ only in their seed, the mean shows how much the answers depend on the seed.

    Parameters
    ----------
    answers : array-like, shape (e, b)
        Answer of each member to each example, as a number.
    groups : sequence, length e
        Group of each member, any label.

    Returns
    -------
    ndarray, shape (e,)
        The mean excludes members that diverged. NaN for a member that diverged, or if no other member of its group is
        left.
    """
    equal = agreement(answers)
    group = np.asarray(groups)
    if group.shape != equal.shape[:1]:
        raise must_be("groups", f"one for each of {len(equal)} members", group.shape)
    others = (group[:, None] == group) & ~np.eye(len(group), dtype=bool) & ~np.isnan(equal)
    count = others.sum(axis=-1)
    return np.asarray(np.where(others, equal, 0.0).sum(axis=-1) / np.where(count == 0, np.nan, count))


def error_rate(right: npt.ArrayLike, places: npt.ArrayLike, tokens: int) -> Array:
    """Return, for each token, the fraction of wrong answers to the examples that ask for this token (the target token).

    Parameters
    ----------
    right : array-like, shape (..., b)
        1 for correct answers, 0 for errors.
    places : array-like of int, shape (b,)
        Index of the target token of each example.
    tokens : int
        Number of tokens.

    Returns
    -------
    ndarray, shape (..., tokens)
        NaN for tokens that are never the target.
    """
    correct, target = np.asarray(right, dtype=np.float64), np.asarray(places)
    if correct.ndim < 1 or target.shape != correct.shape[-1:]:
        raise must_be("places", f"one for each example of right {correct.shape}", target.shape)
    if ((target < 0) | (target >= tokens)).any():
        raise must_be("places", f"tokens from 0 to {tokens - 1}", sorted(set(target.tolist())))
    one_hot = (target[:, None] == np.arange(tokens)).astype(np.float64)  # (b, tokens)
    count = one_hot.sum(axis=0)
    return np.asarray((1 - correct) @ one_hot / np.where(count == 0, np.nan, count))
