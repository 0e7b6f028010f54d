"""Masked prediction of simulated synergistic groups: channels that are independent in pairs but dependent together.

By default values are -1 or 1 plus noise. Without the noise, each channel of a group of three is the product of the
other two, and each channel of a group of four is the product of the other three. Any two channels of a group (any three
in a group of four) are independent. Correlation, partial correlation and pairwise mutual information therefore cannot
detect the groups.

>>> task = Synergy(groups=2, train=1_000, test=100)
>>> task.labels.tolist(), {name: tuple(split.inputs.shape) for name, split in task.splits.items()}
([0, 0, 0, 1, 1, 1], {'train': (1, 1000, 6), 'test': (1, 100, 6)})
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from placecode.settings import Settings, setting
from placecode.tasks.masked import Masked, masked_count
from placecode.tasks.simulated import MIN_TRAINING_SAMPLES, channel_order, split_seed, standardized_splits

VALUES = ("sign", "gaussian")  # kinds of values of the channels, see `Synergy`
SIZES = (3, 4)  # numbers of channels that a group may have
POINTS = np.arange(-6, 6.01, 0.25)
"""Points for numerical integration over standard normal noise. More points do not change the digits that are
reported."""


@dataclass(frozen=True, kw_only=True)
class SynergySettings(Settings):
    """Settings of simulated synergistic channels."""

    groups: int = setting(10, "groups of channels; each channel is the product of the others of its group", least=1)
    group_size: int = setting(3, "channels of a group, 3 or 4", choices=SIZES)
    sizes: tuple[int, ...] = setting((), "the sizes of the groups, if they differ", choices=SIZES)
    values: str = setting(
        "sign", "values of a channel: sign (1 or -1), or gaussian with signs that follow the product", choices=VALUES
    )
    noise: float = setting(0.1, "standard deviation of the normal noise on every channel", least=0)
    correlated: int = setting(0, "additional groups of pairwise correlated channels", least=0)
    correlation: float = setting(0.5, "correlation of any two channels of such a group, before noise", above=0, below=1)
    distractors: int = setting(0, "additional channels that are independent of all others", least=0)
    train: int = setting(50_000, "samples to train on", least=MIN_TRAINING_SAMPLES)
    test: int = setting(2_000, "held-out samples", least=1)
    shuffled: bool = setting(False, "channels in random order; else group by group, which a fixed encoding could use")


class Synergy(Masked):
    """Masked prediction of synergistic groups of channels, with independent samples.

    Data are standardized with the mean and standard deviation of the training samples.

    Parameters
    ----------
    eval_mask_ratios : sequence of float
        Fractions of hidden channels at evaluation.
    worlds : int
        Number of independent realizations of the data. Seed s of a member uses world s modulo this number.
    seed : int
        Seed of the data, of the order of the channels, and of the hidden channels at evaluation.
    **settings
        Fields of `SynergySettings`.

    Attributes
    ----------
    labels : ndarray of int, shape (n,)
        Number of the group of each channel, counted from 0, or -1 for distractors. Synergistic groups are counted
        first, then correlated groups. Labels are equal in all worlds.
    kinds : ndarray of str, shape (n,)
        "product" (in a synergistic group), "correlated" or "distractor", for each channel.

    Notes
    -----
    If the setting `values` is "gaussian", only the sign of a channel is the product of other channels. If
    its magnitude were a product too, a large value would imply large factors, which pairwise measures detect. The sign
    of a normal number is independent of its magnitude. With independent magnitudes, the channels of any proper subset
    of a group are therefore exactly independent, and every channel is exactly normal.
    """

    name = "synergy"
    settings_class = SynergySettings

    def __init__(
        self, eval_mask_ratios: Sequence[float] = (0.3, 0.5), worlds: int = 1, seed: int = 0, **settings: Any
    ) -> None:
        chosen = SynergySettings(**settings)
        sizes = chosen.sizes or (chosen.group_size,) * chosen.groups
        order_seed, world_seeds = split_seed(worlds, seed)
        self.options = {name: value for name, value in vars(chosen).items() if name not in ("groups", "train", "test")}
        self.options["sizes"] = [int(size) for size in sizes]

        counts = {
            "product": list(sizes),
            "correlated": [chosen.group_size] * chosen.correlated,
            "distractor": [1] * chosen.distractors,
        }
        blocks = [(kind, size) for kind, kind_sizes in counts.items() for size in kind_sizes]
        columns = channel_order(sum(size for _, size in blocks), chosen.shuffled, order_seed)
        parts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        for world_seed in world_seeds:
            for part, child, count in zip(parts, world_seed.spawn(2), (chosen.train, chosen.test), strict=True):
                rng = np.random.default_rng(child)
                samples = draw(rng, count, blocks, chosen.values, chosen.correlation, chosen.noise)
                part.append(samples[:, columns])
        train_samples, test_samples = (np.stack(part) for part in parts)
        super().__init__(standardized_splits(train_samples, test_samples), 1, eval_mask_ratios, seed)

        group_sizes = [size for _, size in blocks]
        self.kinds = np.repeat([kind for kind, _ in blocks], group_sizes)[columns]
        groups = np.repeat(np.arange(len(blocks)), group_sizes)[columns]
        self.labels = np.where(self.kinds == "distractor", -1, groups)
        self.token_names = tuple(f"channel {channel + 1}" for channel in range(len(columns)))
        self.blocks = tuple(blocks)

    def best_mse(self, ratio: float) -> float:
        """Return the mean squared error of the best possible predictor of hidden channels.

        Parameters
        ----------
        ratio : float
            Fraction of hidden channels.

        Returns
        -------
        float
            In units of the variance of a channel, as the metric "mse".

        Examples
        --------
        >>> round(Synergy(train=100, test=10).best_mse(0.3), 3)
        0.488
        """
        values, noise, correlation = (self.options[name] for name in ("values", "noise", "correlation"))
        return best_error(self.blocks, masked_count(ratio, self.tokens), values, correlation, noise)

    def describe(self) -> dict[str, Any]:
        """Return the description by the base class, and the best possible error for each fraction of hidden
        channels."""
        best = {name: self.best_mse(ratio) for name, ratio in zip(self.conditions, self.eval_mask_ratios, strict=True)}
        return {**super().describe(), "best_mse": best}


def draw(
    rng: np.random.Generator,
    count: int,
    blocks: Sequence[tuple[str, int]],
    values: str = "sign",
    correlation: float = 0.5,
    noise: float = 0.1,
) -> np.ndarray:
    """Draw `count` independent samples of n channels in groups, (count, n).

    `blocks` has the kind ("product", "correlated" or "distractor") and the size of each group, in the order of the
    channels. The other parameters are fields of `SynergySettings`.
    """
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
    """Draw independent random signs, -1 or 1, (count, size)."""
    return rng.integers(2, size=(count, size)) * 2.0 - 1


def draw_correlated(rng: np.random.Generator, count: int, size: int, values: str, correlation: float) -> np.ndarray:
    """Draw samples of `size` channels, (count, size). Any two of them have this `correlation`, due to a common cause.

    `values` is "sign" or "gaussian".
    """
    if values == "gaussian":
        cause, independent = rng.standard_normal((count, 1)), rng.standard_normal((count, size))
        return math.sqrt(correlation) * cause + math.sqrt(1 - correlation) * independent
    agree = rng.random((count, size)) < (1 + math.sqrt(correlation)) / 2
    return draw_signs(rng, count, 1) * np.where(agree, 1.0, -1.0)


def best_error(
    blocks: Sequence[tuple[str, int]], hidden: int, values: str = "sign", correlation: float = 0.5, noise: float = 0.1
) -> float:
    """Return the mean squared error of the best possible predictor, in units of the variance of a channel.

    `blocks` has the kind and size of each group, as in `draw`, and `hidden` is the number of hidden channels, which are
    chosen at random. The variance of a channel is 1 + noise^2. A hidden channel can be predicted only from the visible
    channels of its group, whose number has a hypergeometric distribution. In a synergistic group, all other channels
    must be visible. For example, with 30 channels in groups of 3 and 9 hidden channels, the probability of this is
    21/29 * 20/28 = 0.517. The error is then 1 - 0.517 without noise, and little more with a noise of 0.1.

    >>> round(best_error([("product", 3)] * 10, 9), 3)
    0.488
    """
    tokens = sum(size for _, size in blocks)
    total = 0.0
    for (kind, size), groups in {block: blocks.count(block) for block in blocks}.items():
        for visible in range(size):
            hidden_elsewhere = hidden - 1 - (size - 1 - visible)  # number of hidden channels in other groups
            if hidden_elsewhere < 0:
                continue
            combinations = math.comb(size - 1, visible) * math.comb(tokens - size, hidden_elsewhere)
            probability = combinations / math.comb(tokens - 1, hidden - 1)
            explained = explained_variance(kind, size, visible, values, correlation, noise)
            total += groups * size / tokens * probability * explained
    return 1 - total / (1 + noise**2)


def explained_variance(kind: str, size: int, visible: int, values: str, correlation: float, noise: float) -> float:
    """Return the variance of a hidden channel that can be explained by `visible` other channels of its group.

    This is the variance of the mean of the channel conditional on the values of the visible channels. `kind` and `size`
    describe the group, as in `draw`. The other parameters are fields of `SynergySettings`.
    """
    if kind == "product":
        if visible < size - 1:
            return 0.0
        # the conditional mean of the sign is the product of the conditional means of the signs of the other channels;
        # the magnitude of a standard normal number has the mean sqrt(2 / pi)
        scale = 2 / math.pi if values == "gaussian" else 1.0
        return scale * certainty(values, noise) ** visible
    if kind == "distractor" or visible == 0:
        return 0.0
    if values == "gaussian":
        return visible * correlation**2 / (1 + noise**2 + (visible - 1) * correlation)
    # signs: the visible channels are independent given the common cause, so their log odds for a cause of +1 add up;
    # the result is the average over all their values if the cause is +1
    agreement = math.sqrt(correlation)
    means, weight = zip(*(_sign_means(sign, noise) for sign in (1, -1)), strict=True)
    evidence = np.arctanh(agreement * np.concatenate(means))
    weights = np.concatenate([weight[0] * (1 + agreement) / 2, weight[1] * (1 - agreement) / 2])
    total, probability = evidence, weights
    for _ in range(visible - 1):
        total, probability = np.add.outer(total, evidence), np.multiply.outer(probability, weights)
    return correlation * float((np.tanh(total) * probability).sum())


def certainty(values: str, noise: float) -> float:
    """Return how well the noisy value of a channel determines its sign: the variance of E[sign | noisy value].

    It is 1 if the noisy value determines the sign, as without noise, and close to 0 if noise is strong. `values` and
    `noise` are fields of `SynergySettings`.

    >>> certainty("sign", 0.0), round(certainty("sign", 1.0), 3), round(certainty("gaussian", 0.1), 3)
    (1.0, 0.55, 0.91)
    """
    if values == "gaussian":  # the conditional mean is 2 Phi(c y) - 1; its expected square is an orthant probability
        return 2 / math.pi * math.asin(1 / (1 + noise**2))
    means, weights = _sign_means(1, noise)
    return float((means * weights).sum())  # for a fair sign s with conditional mean m, E[m^2] = E[m s]


def _sign_means(sign: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return E[sign | value] and the probability of the value given the true `sign` (1 or -1), both (k,), for k noisy
    values.

    The values are `sign` plus `noise` times each of the `POINTS`, a grid that stands for a standard normal variable.
    """
    if noise == 0:
        return np.array([float(sign)]), np.ones(1)
    weights = np.exp(-(POINTS**2) / 2)
    return np.tanh((sign + noise * POINTS) / noise**2), weights / weights.sum()
