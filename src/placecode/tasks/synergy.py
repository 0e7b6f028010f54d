"""Synergy: channels in hidden groups whose members are independent of each other two by two, and yet decide each other.

In a group of three each channel is the product of the two others, in a group of four of the three others. Whoever looks
at two channels of a group (of four: at three) sees independent noise; only all of them together betray the group. So
correlation, partial correlation and pairwise mutual information are blind to what there is to find.

>>> task = Synergy(groups=2, train=1_000, test=100)
>>> task.labels.tolist(), {name: tuple(split.inputs.shape) for name, split in task.splits.items()}
([0, 0, 0, 1, 1, 1], {'train': (1, 1000, 6), 'test': (1, 100, 6)})
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from placecode.errors import must_be
from placecode.tasks.masked import Masked, hidden_of, recordings
from placecode.tasks.network import LEAST_TIMES, standardize
from placecode.validation import choice, flag, is_whole, real_number, whole_number

VALUES = ("sign", "gaussian")
SIZES = (3, 4)
POINTS = np.arange(-6, 6.01, 0.25)
"""Where integrals over standard normal noise are taken; more points change no digit that is told."""


class Synergy(Masked):
    """`groups` of `group_size` channels (3 or 4; or of these `sizes`, mixed), `train` and `test` independent samples.

    Values are signs, or "gaussian": standard normal numbers whose signs follow the rule and whose magnitudes are
    independent. (The product of two normal numbers would not do: where it is large, so are its factors, and a pairwise
    measure sees that. The sign of a normal number says nothing of its magnitude; so with independent magnitudes any
    proper subset of a group is exactly independent, and every channel exactly normal.) Normal `noise` is added to all.

    Beside them there may be `correlated` groups of `group_size` channels, with a `correlation` of any two of a group
    before the noise, which every pairwise measure finds, and `distractors`, channels independent of all others. All are
    standardized by the mean and standard deviation of the training samples. Groups are neighbours in the order of the
    channels, of which a fixed positional encoding can make use, unless they are `shuffled`.

    `labels` (n,) number the groups, first those of products, then the correlated ones; distractors have -1, no group.
    `kinds` (n,) tell "product", "correlated" and "distractor" apart. Both are the same in all `worlds`.
    """

    name = "synergy"

    def __init__(
        self,
        groups: int = 10,
        group_size: int = 3,
        sizes: Sequence[int] | None = None,
        values: str = "sign",
        noise: float = 0.1,
        correlated: int = 0,
        correlation: float = 0.5,
        distractors: int = 0,
        train: int = 50_000,
        test: int = 2_000,
        ratios: Sequence[float] = (0.3, 0.5),
        shuffled: bool = False,
        worlds: int = 1,
        seed: int = 0,
    ) -> None:
        whole_number("groups", groups, 1)
        if not is_whole(group_size) or group_size not in SIZES:
            raise must_be("group_size", "3 or 4", group_size)
        if sizes is None:
            sizes = (group_size,) * groups
        elif not isinstance(sizes, Sequence) or not sizes or not all(is_whole(s) and s in SIZES for s in sizes):
            raise must_be("sizes", "one or more of 3 and 4, the size of each group", sizes)
        choice("values", values, VALUES)
        real_number("noise", noise, least=0)
        real_number("correlation", correlation, above=0, below=1)
        for name, value, least in (
            ("correlated", correlated, 0),
            ("distractors", distractors, 0),
            ("train", train, LEAST_TIMES),
            ("test", test, 1),
            ("worlds", worlds, 1),
            ("seed", seed, 0),
        ):
            whole_number(name, value, least)
        flag("shuffled", shuffled)

        counts = {"product": list(sizes), "correlated": [group_size] * correlated, "distractor": [1] * distractors}
        blocks = [(kind, size) for kind, each in counts.items() for size in each]
        order, data = np.random.SeedSequence(seed).spawn(2)
        columns = np.arange(sum(size for _, size in blocks))
        if shuffled:
            columns = np.random.default_rng(order).permutation(columns)
        parts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        for stream in data.spawn(worlds):  # world k is the same however many there are
            for part, child, count in zip(parts, stream.spawn(2), (train, test), strict=True):
                drawn = draw(np.random.default_rng(child), count, blocks, values, correlation, noise)
                part.append(drawn[:, columns])
        made = zip(("train", "test"), standardize(*(np.stack(part) for part in parts)), strict=True)
        super().__init__({name: recordings([part]) for name, part in made}, 1, ratios, seed)

        labels = [
            -1 if kind == "distractor" else group for group, (kind, size) in enumerate(blocks) for _ in range(size)
        ]
        self.labels = np.array(labels)[columns]
        self.kinds = np.array([kind for kind, size in blocks for _ in range(size)])[columns]
        self.token_names = tuple(f"channel {channel + 1}" for channel in range(len(columns)))
        self.blocks = tuple(blocks)
        self.options: dict[str, Any] = {
            "sizes": [int(size) for size in sizes],
            "group_size": int(group_size),
            "values": values,
            "noise": float(noise),
            "correlated": int(correlated),
            "correlation": float(correlation),
            "distractors": int(distractors),
            "shuffled": shuffled,
        }

    def best_mse(self, ratio: float) -> float:
        """The least error that anyone can reach, on average, with this share of the channels hidden.

        >>> round(Synergy(train=100, test=10).best_mse(0.3), 3)
        0.488
        """
        values, noise, correlation = (self.options[name] for name in ("values", "noise", "correlation"))
        return best_error(self.blocks, hidden_of(ratio, self.tokens), values, correlation, noise)

    def describe(self) -> dict[str, Any]:
        best = {name: self.best_mse(ratio) for name, ratio in zip(self.conditions, self.ratios, strict=True)}
        return {**super().describe(), **self.options, "best_mse": best}


def draw(
    rng: np.random.Generator,
    count: int,
    blocks: Sequence[tuple[str, int]],
    values: str = "sign",
    correlation: float = 0.5,
    noise: float = 0.1,
) -> np.ndarray:
    """Samples (count, n) of groups of channels, each given by its kind and its size."""
    parts = []
    for kind, size in blocks:
        if kind == "correlated":
            part = draw_correlated(rng, count, size, values, correlation)
        else:
            part = draw_signs(rng, count, size)
            if kind == "product":
                part[:, -1] = part[:, :-1].prod(axis=1)
            if values == "gaussian":
                part *= np.abs(rng.standard_normal(part.shape))
        parts.append(part)
    clean = np.concatenate(parts, axis=1)
    return clean + noise * rng.standard_normal(clean.shape)


def draw_signs(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    return rng.integers(2, size=(count, size)) * 2.0 - 1


def draw_correlated(rng: np.random.Generator, count: int, size: int, values: str, correlation: float) -> np.ndarray:
    """Channels (count, size) that follow one common cause, any two of them with this correlation."""
    if values == "gaussian":
        cause, own = rng.standard_normal((count, 1)), rng.standard_normal((count, size))
        return math.sqrt(correlation) * cause + math.sqrt(1 - correlation) * own
    agree = rng.random((count, size)) < (1 + math.sqrt(correlation)) / 2
    return draw_signs(rng, count, 1) * np.where(agree, 1.0, -1.0)


def best_error(
    blocks: Sequence[tuple[str, int]], hidden: int, values: str = "sign", correlation: float = 0.5, noise: float = 0.1
) -> float:
    """The mean squared error of the best predictor when `hidden` of all channels are, in units of a channel's variance.

    A channel's variance is 1 + noise^2. What can be known of a hidden channel hangs on how many others of its group are
    visible, a hypergeometric number: of a product all must be. With 30 channels in groups of 3 and 9 hidden these are
    both visible with probability 21/29 * 20/28 = 0.517, and little is lost to a noise of 0.1:

    >>> round(best_error([("product", 3)] * 10, 9), 3)
    0.488
    """
    tokens = sum(size for _, size in blocks)
    known = 0.0
    for (kind, size), groups in {block: blocks.count(block) for block in blocks}.items():
        for visible in range(size):
            away = hidden - 1 - (size - 1 - visible)  # of the other hidden channels, those of other groups
            if away < 0:
                continue
            ways = math.comb(size - 1, visible) * math.comb(tokens - size, away)
            chance = ways / math.comb(tokens - 1, hidden - 1)
            known += groups * size / tokens * chance * explained(kind, size, visible, values, correlation, noise)
    return 1 - known / (1 + noise**2)


def explained(kind: str, size: int, visible: int, values: str, correlation: float, noise: float) -> float:
    """The variance of a hidden channel that `visible` others of its group explain: that of its conditional mean."""
    if kind == "product":
        if visible < size - 1:
            return 0.0
        # the mean of a sign given noisy values is the product of their means; a normal number has E|x| = sqrt(2 / pi)
        scale = 2 / math.pi if values == "gaussian" else 1.0
        return scale * certainty(values, noise) ** visible
    if kind == "distractor" or visible == 0:
        return 0.0
    if values == "gaussian":
        return visible * correlation**2 / (1 + noise**2 + (visible - 1) * correlation)
    # signs: add up the evidence of all visible ones for the common cause, over all they may show if the cause is +1
    share = math.sqrt(correlation)
    shown, weight = zip(*(_shown(sign, noise) for sign in (1, -1)), strict=True)
    evidence = np.arctanh(share * np.concatenate(shown))
    weights = np.concatenate([weight[0] * (1 + share) / 2, weight[1] * (1 - share) / 2])
    total, chance = evidence, weights
    for _ in range(visible - 1):
        total, chance = np.add.outer(total, evidence), np.multiply.outer(chance, weights)
    return correlation * float((np.tanh(total) * chance).sum())


def certainty(values: str, noise: float) -> float:
    """How well a noisy value tells the sign of the true one: the variance of the sign's mean given what is seen.

    >>> certainty("sign", 0.0), round(certainty("sign", 1.0), 3), round(certainty("gaussian", 0.1), 3)
    (1.0, 0.55, 0.91)
    """
    if values == "gaussian":  # the mean is 2 Phi(y / ...) - 1, and its square is an orthant of two normal numbers
        return 2 / math.pi * math.asin(1 / (1 + noise**2))
    means, weights = _shown(1, noise)
    return float((means * weights).sum())  # of a fair sign s and its mean m given y: E[m^2] = E[m s]


def _shown(sign: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """The mean of a sign given its noisy value, for all values that this sign may show, and their probabilities."""
    if noise == 0:
        return np.array([float(sign)]), np.ones(1)
    weights = np.exp(-(POINTS**2) / 2)
    return np.tanh((sign + noise * POINTS) / noise**2), weights / weights.sum()
