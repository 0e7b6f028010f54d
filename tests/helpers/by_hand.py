"""Compute the effects of the claims beyond the paper a second time, by explicit loops over members and sigmas.

Tests compare them with those of the package. `KNOBS` has effects that are weighted sums of mean accuracies of members
with certain columns. `BETWEEN`, `SIZES` and `EXCHANGED` are about manipulations of the PE in lst-causal.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from placecode.experiments.reading import members_of

Term = tuple[float, Sequence[float] | None, dict[str, Any]]
"""A weight, the sigmas to average over (None for all of the run), and the columns that select the members."""
TINY, ALL, SMALLS = (0.01, 0.05, 0.1), None, (0.1, 0.2, 0.5)


def contrast(sigmas: Sequence[float] | None, a: dict[str, Any], b: dict[str, Any]) -> list[Term]:
    """Return the terms of the accuracy of `one` minus that of `other`."""
    return [(1, sigmas, a), (-1, sigmas, b)]


def sigma_effect(columns: dict[str, Any], large: float = 2.0) -> list[Term]:
    """Return the terms of the accuracy at sigma 0.2 minus that at a large sigma."""
    return [(1, (0.2,), columns), (-1, (large,), columns)]


def negated(terms: list[Term]) -> list[Term]:
    """Return the terms with opposite signs."""
    return [(-weight, *rest) for weight, *rest in terms]  # type: ignore[misc]


def with_decay(rest: float, pe: float) -> dict[str, Any]:
    """Return the columns of learned PEs with these weight decays of the other weights and of the PE."""
    return {"encoding": "learned", "weight_decay": rest, "pe_weight_decay": pe}


def fixed_term(amount: float) -> Term:
    """Return the term of 2d-fixed with this weight decay."""
    return 1, (), {"encoding": "sinusoid", "weight_decay": amount}


def with_optimizer(**columns: Any) -> dict[str, Any]:
    """Return the columns of the usual optimizer settings, with changes."""
    return {**{"optimizer": "adam", "learning_rate": 1e-4, "pe_learning_rate": None, "epsilon": 1e-8}, **columns}


def with_start(start: str) -> dict[str, Any]:
    """Return the columns of learned PEs on grids of order 5 with this start."""
    return {"encoding": "learned", "data": "order=5", "start": start}


SGD = with_optimizer(optimizer="sgd", learning_rate=0.01)


def dip(columns: dict[str, Any]) -> list[Term]:
    """Return the terms of the accuracy at sigma 0.2 minus that at tiny sigmas."""
    return [(1, (0.2,), columns), (-1, TINY, columns)]


def gap(amount: float) -> list[Term]:
    """Return the terms of the accuracy of 2d-fixed minus that of the learned PE, with this weight decay."""
    return [fixed_term(amount), (-1, (0.2,), with_decay(amount, amount))]


def decay_terms(amount: float) -> dict[str, list[Term]]:
    """Return the terms of each claim on weight decay, for this amount of decay."""
    every, rest, pe, none = (with_decay(*pair) for pair in ((amount, amount), (amount, 0), (0, amount), (0, 0)))
    return {
        "decay-matches-2d-fixed": gap(amount),
        "there-is-a-gap-to-close": gap(0.0),
        "decay-reaches-0.97": [(1, (0.2,), every)],
        "decay-lifts-2d-fixed": [fixed_term(amount), (-1, *fixed_term(0.0)[1:])],
        "decay-on-all-lifts": contrast([0.2], every, none),
        "decay-on-rest-lifts": contrast([0.2], rest, none),
        "decay-on-pe-lifts": contrast([0.2], pe, none),
        "decay-on-pe-rescues-large-sigma": contrast([2.0], pe, none),
    }


RATE = 1e-4  # the usual learning rate


def with_gain(gain: float) -> dict[str, Any]:
    """Return the columns of members with this gain and the learning rate divided by it."""
    return {"output_gain": gain, "learning_rate": RATE / gain}


SAME: tuple[dict[str, Any], ...] = tuple({"output_gain": gain, "learning_rate": RATE} for gain in (0.1, 10.0))
"""Columns of members with a small and a large gain and the same learning rate."""
KNOBS: dict[str, dict[str, list[Term]]] = {
    "lst-heads": {
        "2-heads-hurt": contrast(ALL, {"heads": 1}, {"heads": 2}),
        "4-heads-hurt": contrast(ALL, {"heads": 1}, {"heads": 4}),
        "4-heads-hurt-at-0.2": contrast([0.2], {"heads": 1}, {"heads": 4}),
    },
    "lst-depth": {
        "depth-helps": contrast([0.2], {"layers": 6}, {"layers": 2}),
        "depth-sharpens-sigma": [*sigma_effect({"layers": 6}), *negated(sigma_effect({"layers": 2}))],
    },
    "lst-width": {
        "width-leaves-sigma-alone": [*sigma_effect({"width": 320}, 1.0), *negated(sigma_effect({"width": 64}, 1.0))],
        "width-helps": contrast(ALL, {"width": 320}, {"width": 64}),
    },
    "lst-placement": {
        "input-alone-is-enough": contrast([0.2], {"placement": "input"}, {"placement": "every"}),
        "every-block-makes-sigma-matter": [
            *sigma_effect({"placement": "every"}),
            *negated(sigma_effect({"placement": "input"})),
        ],
    },
    "lst-gain": {
        "small-gain-generalizes": contrast(None, with_gain(0.1), with_gain(10.0)),
        "small-gain-rescues-large-sigma": contrast([2.0], with_gain(0.1), with_gain(1.0)),
        "large-gain-spoils-small-sigma": contrast([0.2], with_gain(1.0), with_gain(10.0)),
        "small-gain-generalizes-at-one-step-size": contrast(None, *SAME),
    },
    "lst-decay": decay_terms(3.0),
    "lst-data": {
        "more-puzzles-help": contrast([0.2], {"data": "puzzles=8100"}, {"data": "puzzles=1000"}),
        "more-puzzles-do-not-replace-sigma": [
            (1, (0.2,), {"data": "puzzles=2000"}),
            (-1, (2.0,), {"data": "puzzles=8100"}),
        ],
    },
    "lst-size": {
        "small-sigma-on-larger-grids": sigma_effect(with_start("normal")),
        "resized-start-helps": contrast(SMALLS, with_start("resized"), with_start("normal")),
        "resized-start-speeds-up": contrast(SMALLS, with_start("resized"), with_start("normal")),
        "arrangement-of-resized-start-helps": contrast(SMALLS, with_start("resized"), with_start("resized-shuffled")),
    },
    "lst-optimizer": {
        "adam-dips": dip(with_optimizer()),
        "sgd-does-not-dip": dip(SGD),
        "adam-dips-more-than-sgd": [*dip(with_optimizer()), *negated(dip(SGD))],
        "sgd-beats-adam-at-tiny-sigma": contrast(TINY, SGD, with_optimizer()),
        "slow-pe-mends-adam": contrast(TINY, with_optimizer(pe_learning_rate=0.1 * 1e-4), with_optimizer()),
        "fast-pe-harms-adam": contrast(TINY, with_optimizer(pe_learning_rate=10.0 * 1e-4), with_optimizer()),
        "epsilon-mends-adam": contrast(TINY, with_optimizer(epsilon=1e-4), with_optimizer()),
    },
}
"""The terms of each claim, by experiment."""


def accuracies(run: Any, step: int) -> dict[int, float]:
    """Return the OOD accuracy at a step by member."""
    rows = run.metrics[(run.metrics["step"] == step) & (run.metrics["split"] == "ood")]
    rows = rows[(rows["condition"] == "all") & (rows["metric"] == "accuracy")]
    return dict(zip(rows["member"], rows["value"], strict=True))


def knob_effect(run: Any, terms: list[Term], step: int) -> np.ndarray:
    """Return the effect of each seed for which all members of the terms have finished."""
    accuracy_of, records = accuracies(run, step), run.members[run.members["state"] == "done"].to_dict("records")

    def accuracies_at(seed: int, sigma: float | None, columns: dict[str, Any]) -> list[float]:
        return [
            accuracy_of[row["member"]]
            for row in records
            if row["seed"] == seed
            and (row["sigma"] == sigma or (sigma is None and row["sigma"] != row["sigma"]))
            and all(row[name] == value or (value is None and row[name] != row[name]) for name, value in columns.items())
        ]

    result = []
    for seed in run.config["fields"]["seeds"]:
        values = []
        for _, sigmas, columns in terms:
            listed = run.config["fields"]["sigmas"] if sigmas is None else sigmas or [None]
            values.append([accuracies_at(seed, sigma, columns) for sigma in listed])
        if all(len(cell) == 1 for cells in values for cell in cells):
            means = [np.mean(cells) for cells in values]
            result.append(sum(weight * mean for (weight, *_), mean in zip(terms, means, strict=True)))
    return np.array(result)


def gaps(run: Any, amount: float, step: int) -> pd.Series:
    """Return the accuracy of 2d-fixed minus that of the learned PE at sigma 0.2, by seed, where both finished."""
    accuracy_of, rows = accuracies(run, step), run.members[run.members["state"] == "done"]
    rows = rows[rows["weight_decay"] == amount]
    fixed = rows[rows["encoding"] == "sinusoid"].set_index("seed")["member"].map(accuracy_of)
    learned = rows[(rows["encoding"] == "learned") & (rows["sigma"] == 0.2) & (rows["pe_weight_decay"] == amount)]
    return pd.Series(fixed - learned.set_index("seed")["member"].map(accuracy_of)).dropna()


def moved(run: Any, columns: dict[str, Any], step: int) -> pd.Series:
    """Return how far the weights moved, averaged over sigmas, by seed; only for seeds that finished at all sigmas."""
    rows = run.analysis[(run.analysis["analysis"] == "weights_moved") & (run.analysis["target"] == "start")]
    rows = rows[(rows["block"] == -1) & (rows["step"] == step)].merge(run.members, on="member")
    rows = rows[rows["state"] == "done"]
    for name, value in columns.items():
        rows = rows[rows[name] == value]
    table = rows.pivot(index="seed", columns="sigma", values="value")
    assert table.empty or len(table.columns) == len(run.config["fields"]["sigmas"])
    return table.dropna().mean(axis=1)


def knob_effects(run: Any, name: str, step: int, early: int) -> dict[str, np.ndarray]:
    """Return the effects of the claims of an experiment, except those on every value of a setting.

    `early` is the step after a quarter of the training.
    """
    strongest = max(run.config["fields"].get("decays", [0.0]))
    terms_of = decay_terms(strongest) if name == "lst-decay" else KNOBS[name]
    steps = {"resized-start-speeds-up": early}
    result = {id: knob_effect(run, terms, steps.get(id, step)) for id, terms in terms_of.items()}
    if name == "lst-gain":
        further = (moved(run, with_gain(0.1), step) - moved(run, with_gain(10.0), step)).dropna()
        result["gain-makes-weights-move"] = further.to_numpy()
    if name == "lst-decay":
        without, decayed = (gaps(run, amount, step).abs() for amount in (0.0, strongest))
        result["decay-closes-the-gap"] = (without - decayed).dropna().to_numpy()
    return result


BETWEEN: dict[str, tuple[str, str, Sequence[float]]] = {
    "training-the-pe-is-not-needed": ("learned", "random, frozen", SMALLS),
    "transplant-helps": ("donor's, frozen", "untrained donor's, frozen", SMALLS),
    "transplant-speeds-up": ("donor's, frozen", "untrained donor's, frozen", SMALLS),
    "arrangement-of-the-transplant-helps": ("donor's, frozen", "donor's shuffled, frozen", SMALLS),
    "rows-and-columns-help": ("rows and columns, frozen", "random, frozen", SMALLS),
    "rows-and-columns-speed-up": ("rows and columns, frozen", "random, frozen", SMALLS),
    "2d-fixed-helps": ("true, frozen", "random, frozen", SMALLS),
    "starting-at-the-truth-helps": ("true, learned on", "learned", SMALLS),
    "what-masters-learned-helps": ("master's, frozen", "master's shuffled, frozen", SMALLS),
    "what-masters-learned-helps-at-1.0": ("master's, frozen", "master's shuffled, frozen", [1.0]),
    "what-masters-learned-beats-random": ("master's, frozen", "random, frozen", SMALLS),
    "centring-helps-2d-fixed": ("true centred, frozen", "true, frozen", SMALLS),
    "centred-2d-fixed-beats-random": ("true centred, frozen", "random, frozen", SMALLS),
    "sgd-needs-a-learned-pe": ("learned, by SGD", "random, frozen, by SGD", SMALLS),
    "rows-and-columns-rescue-a-large-size": ("rows and columns, frozen", "random, frozen", [2.0]),
    "control-freezing": ("frozen by its step size", "random, frozen", [0.2]),
    "control-starting-at-the-truth": ("2d-fixed as a start", "2d-fixed", ()),
    "control-transplant": ("twin's own untrained one, transplanted", "twin, frozen", ()),
    "control-transplant-of-another": ("untrained donor's, frozen", "random, frozen", SMALLS),
    "control-rescaling-a-donor": ("donor's of 0.2 rescaled, frozen", "donor's, frozen", [0.2]),
}
"""Two kinds of members to compare, and the sizes to average over; no sizes for kinds of a single size."""
SIZES = {
    "size-spoils-a-learned-pe": "donor's of 0.2 rescaled, frozen",
    "size-mends-a-learned-pe": "donor's of 2.0 rescaled, frozen",
    "size-spoils-what-masters-learned": "master's, frozen",
    "sgd-minds-size": "learned, by SGD",
}
"""Kinds whose accuracy is compared between a small and a large size."""
EXCHANGED: dict[str, tuple[str, Sequence[float], str]] = {
    "a-trained-model-needs-what-its-pe-learned": ("learned", (0.1, 0.2), "its start"),
    "a-trained-model-needs-its-own-pe": ("learned", (0.2,), "another seed's"),
    "swapped-small-for-large": ("learned", (0.2,), "that of the other sigma"),
    "swapped-large-for-small": ("learned", (2.0,), "that of the other sigma"),
    "control-shuffling": ("learned", SMALLS, "shuffled with its cells"),
    "control-swapping": ("learned", SMALLS, "itself"),
    "control-rescaling": ("learned", SMALLS, "times 1"),
    "control-putting-back": ("random, frozen", SMALLS, "its start"),
    "control-ablating": ("no PE", (), "nothing"),
}
"""A kind of member, its sizes, and what its PE is exchanged for after training."""


def of_kind(run: Any, kind: str, sigmas: Sequence[float], values: Mapping[int, float]) -> dict[int, float]:
    """Return the mean over sizes by seed, for seeds that have all of them."""
    result: dict[int, list[float]] = {}
    for row in members_of(run).to_dict("records"):
        if row["label"] == kind and row["state"] == "done" and (not sigmas or row["sigma"] in sigmas):
            result.setdefault(row["seed"], []).append(values[row["member"]])
    return {seed: float(np.mean(values)) for seed, values in result.items() if len(values) == max(1, len(sigmas))}


def causal_effects(run: Any, step: int, early: int) -> dict[str, np.ndarray]:
    """Return the effects of all claims of lst-causal, by seed; `early` is the step after a quarter of the training."""
    last_values, early_values = accuracies(run, step), accuracies(run, early)

    def differences(a: dict[int, float], b: dict[int, float]) -> np.ndarray:
        return np.array([a[seed] - b[seed] for seed in a if seed in b])

    result = {}
    for id, (a, b, sigmas) in BETWEEN.items():
        values = early_values if id.endswith(("speeds-up", "speed-up")) else last_values
        sizes = () if a == "frozen by its step size" else sigmas
        result[id] = differences(of_kind(run, a, sizes, values), of_kind(run, b, sigmas, values))
    for id, kind in SIZES.items():
        result[id] = differences(of_kind(run, kind, [0.2], last_values), of_kind(run, kind, [2.0], last_values))
    for id, (kind, sigmas, name) in EXCHANGED.items():
        rows = run.analysis[(run.analysis["target"] == name) & (run.analysis["block"] == -1)]
        rows = rows[(rows["analysis"] == "accuracy_with") & (rows["step"] == step)]
        swapped = dict(zip(rows["member"], rows["value"], strict=True))
        result[id] = differences(of_kind(run, kind, sigmas, last_values), of_kind(run, kind, sigmas, swapped))
    rows = run.analysis[(run.analysis["analysis"] == "rsa") & (run.analysis["target"] == "relation")]
    rows = rows[(rows["block"] == -1) & (rows["step"] == step)]
    arranged = of_kind(run, "master", (), dict(zip(rows["member"], rows["value"], strict=True)))
    result["masters-learned"] = np.array(list(arranged.values()))
    return result
