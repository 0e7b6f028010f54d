"""Compute the numbers and conditions of docs/beyond.md, by their names in templates/beyond: a function per experiment.

Accuracy is that on OOD puzzles unless a split is named. RSA measures how well similarities in a PE show which cells
share a row or column. `columns` select members by their values in the table of members.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tables import Findings, findings_of
from templating import directions, grid

from placecode.analysis.stats import interval
from placecode.encodings import sinusoid
from placecode.experiments.claims import FAILS, HOLDS
from placecode.experiments.latin import causal_claims, causal_effects, interventions, knob_claims, optimizer_claims
from placecode.experiments.latin.effects import SMALL_SIGMAS
from placecode.experiments.latin.knob_claims import (
    EQUAL_MARGIN,
    MIN_FITTED_ACCURACY,
    accuracy_difference,
    columns_of_gain,
    ood_accuracy,
    sigma_effect,
)
from placecode.experiments.latin.optimizer_claims import TINY_SIGMAS, decay_fields, fixed_2d_values
from placecode.experiments.reading import (
    MAX_SETTLED_CHANGE,
    accuracy,
    analysis_values,
    early_accuracy,
    late_change,
    mean_over_sigmas,
)
from placecode.runs.read import Run

RESULTS = Path(__file__).parents[2] / "results"
SIGMAS = (0.1, 0.2, 0.5, 1.0, 2.0)
"""The sigmas that the experiments share."""
LEARNED_LEVEL, LOST_LEVEL = 0.9, 0.5
"""A model has learned its training puzzles if its training accuracy was above the first value, and has lost them again
if that accuracy is at most the second in the end."""
MARGINS = {
    "equal": EQUAL_MARGIN,
    "fitted": MIN_FITTED_ACCURACY,
    "still": MAX_SETTLED_CHANGE,
    "learned_level": LEARNED_LEVEL,
    "lost_level": LOST_LEVEL,
}
"""Thresholds by the names that the templates use."""
Facts = dict[str, Any]
"""Numbers and conditions by their names in a template."""
Kinds = Mapping[str, Mapping[str, Any]]
"""Names of kinds of members, each with the values of the columns that select them."""


def means(run: Run, kinds: Kinds, values: pd.Series) -> dict[str, list[float]]:
    """Return, for each kind of member, the means over seeds of `values` (by member) at each of SIGMAS."""
    return {
        name: [mean_over_sigmas(run, values, [s], **columns).mean() for s in SIGMAS] for name, columns in kinds.items()
    }


def means_table(head: str, rows: Mapping[str, Sequence[float]], digits: int = 3) -> str:
    """Return the result of `means` as a Markdown table; `head` is the header of its first column."""
    lines = [(name, *(f"{value:.{digits}f}" for value in values)) for name, values in rows.items()]
    return grid((head, *(f"sigma {sigma:g}" for sigma in SIGMAS)), lines)


def unsettled(run: Run, sigmas: Sequence[float], **columns: Any) -> bool:
    """Return whether mean accuracy changed by more than MAX_SETTLED_CHANGE in the last quarter of training at every
    given sigma."""
    changes = late_change(run)
    return all(abs(mean_over_sigmas(run, changes, [sigma], **columns).mean()) > MAX_SETTLED_CHANGE for sigma in sigmas)


# ------------------------------------------------------------------------------------------------ causes, optimizers


def shared_part() -> float:
    """Return the share of the squared size of 2d-fixed that lies in its mean over cells."""
    pe = sinusoid(np.stack(np.divmod(np.arange(16.0), 4), axis=1), 160)
    return float((pe.mean(axis=0) ** 2).sum() / (pe**2).sum(axis=1).mean())


def controls(claims: Findings) -> Facts:
    """Compute which controls hold: manipulations of the PE that must not change accuracy, apart from rounding. One of
    them, a transplant of another seed's PE, depends on chance."""
    controls = {id: finding for id, finding in claims.items() if finding.claim.remark == causal_claims.CONTROL}
    certain = [id for id in controls if id != "control-transplant-of-another"]
    exact = [id for id in certain if controls[id].effect.low == controls[id].effect.high == 0]
    return {
        "no_control_fails": not any(finding.direction == FAILS for finding in controls.values()),
        "certain_controls_hold": directions(controls, HOLDS, *certain),
        "exact_controls": len(exact),
        "inexact_controls": [id for id in certain if id not in exact],
    }


def causal(run: Run) -> Facts:
    """Compute the effects of manipulating the PE before and after training."""
    by_kind, difference = causal_effects.manipulation_values, causal_effects.manipulation_difference
    rsa, sizes = analysis_values(run, "rsa", "relation"), SMALL_SIGMAS
    moved = analysis_values(run, "moved_relative", "start")
    exchanges = {"seed": interventions.OTHER_SEED, "nothing": interventions.NOTHING, "start": interventions.START}
    return {
        "axes_rsa": by_kind(run, "rows and columns, frozen", [0.2], rsa).mean(),
        "learned_rsa": by_kind(run, "learned", [0.2], rsa).mean(),
        "sgd_rsa": [by_kind(run, "learned, by SGD", [sigma], rsa).mean() for sigma in sizes],
        "moved": by_kind(run, "learned", [0.2], moved).mean(),
        "axes_at_one": difference("rows and columns, frozen", "random, frozen", [1.0], run),
        "wrong_order": difference("master's shuffled, frozen", "random, frozen", sizes, run),
        "centring": {s: difference("true centred, frozen", "true, frozen", [s], run) for s in (0.1, 0.5, 2.0)},
        "sgd_frozen": by_kind(run, "random, frozen, by SGD", sizes).mean(),
        "sgd_training_at_two": by_kind(run, "learned, by SGD", [2.0], accuracy(run, "train")).mean(),
        "fixed_by_size": causal_effects.size_effect("true, frozen", run),
        "centred_by_size": causal_effects.size_effect("true centred, frozen", run),
        "lost_with": {key: causal_effects.swap_effect("learned", [0.2], name, run) for key, name in exchanges.items()},
        "shared_part": shared_part(),
    }


def optimizer(run: Run) -> Facts:
    """Compare Adam and SGD at each sigma: their accuracy, and what their PEs have learned."""
    adam, sgd = (optimizer_claims.default_columns(name, run) for name in ("adam", "sgd"))
    best = {"optimizer": "sgd", "learning_rate": 0.03}
    pilot = pd.read_csv(RESULTS / "lst-optimizer" / "pilot.csv")
    large = Run(RESULTS / "lst-optimizer-large")
    learned = list(pilot.loc[pilot["train"] > MIN_FITTED_ACCURACY, "learning_rate"])
    rsa, sigmas = analysis_values(run, "rsa", "relation"), (*TINY_SIGMAS, 1.0)
    kinds = {
        "slow_pe": {**adam, "pe_learning_rate": 0.1 * adam["learning_rate"]},
        "adam": adam,
        "fast_pe": {**adam, "pe_learning_rate": 10 * adam["learning_rate"]},
        "sgd": sgd,
    }
    return {
        "dip": {
            sigma: interval(ood_accuracy(run, [0.2], **adam) - ood_accuracy(run, [sigma], **adam))
            for sigma in TINY_SIGMAS
        },
        "pilot_rates": list(pilot["learning_rate"]),
        "pilot_learned": learned,
        "lowest": min(float(ood_accuracy(run, [sigma], **best).mean()) for sigma in run.config["fields"]["sigmas"]),
        "worth": {rate: interval(sigma_effect(run, {**best, "learning_rate": rate}, 1.0)) for rate in (0.003, 0.03)},
        "at_two": {rate: interval(ood_accuracy(large, [2.0], **{**best, "learning_rate": rate})) for rate in learned},
        "training_at_two": mean_over_sigmas(large, accuracy(large, "train"), [2.0], **best).mean(),
        "shown_sigmas": sigmas,
        "rsa": {
            key: [mean_over_sigmas(run, rsa, [s], **columns).mean() for s in sigmas] for key, columns in kinds.items()
        },
        "accuracy": {key: [ood_accuracy(run, [s], **columns).mean() for s in sigmas] for key, columns in kinds.items()},
        "tiny_rsa": {key: mean_over_sigmas(run, rsa, TINY_SIGMAS, **kinds[key]).mean() for key in ("adam", "sgd")},
    }


# ------------------------------------------------------------------------------------------------ shape of the model


def depth(run: Run) -> Facts:
    """Compute accuracy, and the effect of sigma on it, by number of blocks."""
    depths, train = run.config["fields"]["depths"], accuracy(run, "train")
    training = {layers: mean_over_sigmas(run, train, [0.2], layers=layers).mean() for layers in depths}
    return {
        "training": training,
        "unfitted": [layers for layers, value in training.items() if value <= MIN_FITTED_ACCURACY],
        "worth": {layers: interval(sigma_effect(run, {"layers": layers})) for layers in depths},
        "at_one": accuracy_difference({"layers": 6}, {"layers": 2}, [1.0], run),
        "means": means(run, {str(layers): {"layers": layers} for layers in depths}, accuracy(run)),
    }


def width(run: Run) -> Facts:
    """Compute accuracy, and the effect of sigma on it, by width."""
    widths, train = run.config["fields"]["widths"], accuracy(run, "train")
    best = {width: max(ood_accuracy(run, [sigma], width=width).mean() for sigma in SIGMAS) for width in widths}
    training = {width: mean_over_sigmas(run, train, [2.0], width=width).mean() for width in widths}
    return {
        "most_behind": max(best[width] - ood_accuracy(run, [0.2], width=width).mean() for width in widths),
        "over_one": {width: interval(sigma_effect(run, {"width": width}, 1.0)) for width in widths},
        "narrow_unsettled": unsettled(run, SIGMAS[:4], width=32),
        "training_at_two": training,
        "fitted_at_two": [width for width, value in training.items() if value > MIN_FITTED_ACCURACY],
        "highest_bound_at_two": max(interval(ood_accuracy(run, [2.0], width=width)).low for width in widths),
        "means": means(run, {str(width): {"width": width} for width in widths}, accuracy(run)),
    }


def placement(run: Run) -> Facts:
    """Compute accuracy at sigma 0.2 minus that at 2.0 if the PE is added in every block, and if only at the input."""
    return {"worth": {name: interval(sigma_effect(run, {"placement": name})) for name in ("every", "input")}}


# -------------------------------------------------------------------------------------------------- puzzles and grids


def data(run: Run) -> Facts:
    """Compute accuracy by number of training puzzles."""
    counts, test, train = run.config["fields"]["samples"], accuracy(run, "test"), accuracy(run, "train")
    kinds = {f"{count:,}": {"data": f"puzzles={count}"} for count in counts}
    few = [interval(ood_accuracy(run, [sigma], **kinds["1,000"])) for sigma in SIGMAS]
    return {
        "some": interval(sigma_effect(run, kinds["4,000"])),
        "alike": interval(
            mean_over_sigmas(run, test, [0.2], **kinds["500"]) - mean_over_sigmas(run, test, [2.0], **kinds["500"])
        ),
        "few_are_near_chance": all(accuracies.low < 0.3 and accuracies.high < 0.35 for accuracies in few),
        "least_training": min(mean_over_sigmas(run, train, [0.2], **columns).mean() for columns in kinds.values()),
        "means": means(run, kinds, accuracy(run)),
        "means_alike": means(run, kinds, test),
    }


def size(run: Run) -> Facts:
    """Compare PEs on larger grids that start at random with those that start from PEs of smaller grids."""
    fresh, resized, shuffled = knob_claims.RANDOM_START, knob_claims.RESIZED, knob_claims.SHUFFLED
    small = {"data": "order=4", "start": "normal", "optimizer": "adam"}
    rsa, nearest = (analysis_values(run, name, "relation", when="start") for name in ("rsa", "neighbor_agreement"))
    donors = run.members[run.members["optimizer"] == "sgd"]["member"].map(analysis_values(run, "rsa", "relation"))
    kinds = {"small": small, "fresh": fresh, "resized": resized, "shuffled": shuffled}
    parts = run.config["task"]["parts"]
    return {
        "worth_small": interval(sigma_effect(run, small)),
        "smallest": accuracy_difference(resized, fresh, [0.1], run),
        "others": accuracy_difference(resized, fresh, [0.2, 0.5], run),
        "best": [max(ood_accuracy(run, [sigma], **columns).mean() for sigma in SIGMAS) for columns in (resized, fresh)],
        "donors": donors,
        "resized_rsa": mean_over_sigmas(run, rsa, [0.2], **resized).mean(),
        "shuffled_rsa": mean_over_sigmas(run, rsa, [0.2], **shuffled).mean(),
        "near_shuffled": mean_over_sigmas(run, nearest, [0.2], **shuffled).mean(),
        "near_random": mean_over_sigmas(run, nearest, [0.2], **fresh).mean(),
        "early": accuracy_difference(resized, shuffled, SMALL_SIGMAS, run, early_accuracy),
        "large_grids": parts["order=5"],
        "small_grids": parts["order=4"],
        "puzzles": {split: sum(counts.values()) for split, counts in parts["order=5"]["counts"].items()},
        "means": means(run, kinds, accuracy(run)),
    }


# ------------------------------------------------------------------------------------------------------ weight decay


def collapsed(run: Run, **columns: Any) -> dict[str, int]:
    """Count the members with these columns, those that learned the training puzzles, and those that lost them again."""
    rows = run.metrics[(run.metrics["split"] == "train") & (run.metrics["condition"] == "all")]
    curves = rows[rows["metric"] == "accuracy"].pivot(index="member", columns="step", values="value")
    members = run.members[(run.members[list(columns)] == pd.Series(columns)).all(axis=1)]["member"]
    curves = curves.loc[members]
    learned = curves.max(axis=1) > LEARNED_LEVEL
    lost = learned & ~(curves.iloc[:, -1] > LOST_LEVEL)
    return {"learned": int(learned.sum()), "lost": int(lost.sum()), "members": len(members)}


def decay(run: Run) -> Facts:
    """Compare weight decay on all weights, on all but the PE, and on the PE alone; and a decay of 1 on fresh seeds."""
    kinds: dict[str, dict[str, float]] = {"none": decay_fields("all", 0.0)}
    kinds |= {
        f"{part} {amount}": decay_fields(part, float(amount)) for amount in (1, 3) for part in ("all", "rest", "pe")
    }
    rsa, alone, none = analysis_values(run, "rsa", "relation"), kinds["pe 3"], kinds["none"]
    end = ood_accuracy(run, [0.1], **alone)
    before = mean_over_sigmas(run, accuracy(run) - late_change(run), [0.1], **alone)
    steps = int(run.metrics["step"].max())
    return decay_on_fresh_seeds() | {
        "late_change": {amount: fixed_2d_values(run, amount, late_change(run)).mean() for amount in (0.0, 1.0, 3.0)},
        "collapsed": {name: collapsed(run, encoding="learned", **columns) for name, columns in kinds.items()},
        "collapsed_small": collapsed(run, sigma=0.2, **kinds["all 3"]),
        "smallest": mean_over_sigmas(run, analysis_values(run, "norm", ""), [0.2], **alone).mean(),
        "all_done": (run.members["state"] == "done").all(),
        "map_with": interval(mean_over_sigmas(run, rsa, SIGMAS[:4], **alone)),
        "map_without": interval(mean_over_sigmas(run, rsa, SIGMAS[:4], **none)),
        "mild_rsa": [mean_over_sigmas(run, rsa, [sigma], **kinds["pe 1"]).mean() for sigma in SIGMAS[:4]],
        "added": {sigma: accuracy_difference(alone, none, [sigma], run) for sigma in (0.5, 1.0)},
        "large_sigmas_unsettled": unsettled(run, [1.0, 2.0], **alone),
        "dropped": int((end < 0.9).sum()),
        "dropped_to": end.min(),
        "dropped_from": before[end.idxmin()],
        "shrinks_to": math.exp(-3.0 * run.config["fields"]["learning_rate"] * steps),
        "means": means(run, kinds, accuracy(run)),
        "rsa_means": means(run, kinds, rsa),
    }


def decay_on_fresh_seeds() -> Facts:
    """Check the claims on a weight decay of 1 with seeds that were not used to choose it."""
    run = Run(RESULTS / "lst-decay-fresh")
    ends, training = (fixed_2d_values(run, 1.0, values) for values in (accuracy(run), accuracy(run, "train")))
    changes = late_change(run).groupby(run.members.set_index("member")["weight_decay"]).mean()
    rsa = analysis_values(run, "rsa", "relation")
    rsa_with, rsa_without = (mean_over_sigmas(run, rsa, [0.2], **decay_fields("all", amount)) for amount in (1.0, 0.0))
    return {
        "fresh": findings_of(run),
        "fresh_name": run.path.name,
        "fresh_fields": run.config["fields"],
        "fresh_largest_change": max(abs(changes)),
        "lowest_fixed": ends.sort_values().iloc[:2].tolist(),
        "lowest_fixed_training": training.min(),
        "same_seed_is_lowest": training.idxmin() == ends.idxmin(),
        "gap_without_lowest": interval(optimizer_claims.gap_to_2d_fixed(run, 1.0).drop(ends.idxmin())),
        "fresh_rsa_with": rsa_with,
        "fresh_rsa_without": interval(rsa_without),
    }


# -------------------------------------------------------------------------------------------------------------- gain


def gain(run: Run) -> Facts:
    """Compare gains (factors of the outputs), at one step size and with the step size divided by the gain."""
    moved, train = analysis_values(run, "weights_moved", "start"), accuracy(run, "train")
    gains = run.config["fields"]["gains"]
    kinds = [
        columns_of_gain(gain, divided, run) for divided in (False, True) for gain in gains if gain != 1 or not divided
    ]
    usual = [columns_of_gain(gain, False, run) for gain in (0.1, 1.0, 10.0)]
    rich, plain, lazy = (columns_of_gain(gain, True, run) for gain in (0.1, 1.0, 10.0))
    of_rich = run.members[(run.members["output_gain"] == 0.1) & (run.members["learning_rate"] == rich["learning_rate"])]
    values = of_rich["member"].map(accuracy(run)).round(6)
    return small_models_by_gain() | {
        "further": interval(
            mean_over_sigmas(run, moved, None, **usual[0]) - mean_over_sigmas(run, moved, None, **usual[-1])
        ),
        "at_two": [ood_accuracy(run, [2.0], **columns).mean() for columns in usual],
        "least_training": min(mean_over_sigmas(run, train, [s], **columns).mean() for columns in usual for s in SIGMAS),
        "rich_training": max(mean_over_sigmas(run, train, [sigma], **rich).mean() for sigma in SIGMAS),
        "lazy_training": max(mean_over_sigmas(run, train, [sigma], **lazy).mean() for sigma in SIGMAS),
        "lazy_unsettled": unsettled(run, SIGMAS[:4], **lazy),
        "rich_rate": rich["learning_rate"],
        "rich_members": len(of_rich),
        "rich_alike": int((values == values.mode().iloc[0]).sum()),
        "rows": [
            columns
            | {
                "moved": mean_over_sigmas(run, moved, None, **columns).mean(),
                "train": mean_over_sigmas(run, train, None, **columns).mean(),
                "held_out": ood_accuracy(run, None, **columns).mean(),
                "worth": [interval(sigma_effect(run, columns, large)) for large in (1.0, 2.0)],
            }
            for columns in kinds
        ],
        "lazy_worth": [interval(sigma_effect(run, lazy, large)) for large in (1.0, 2.0)],
        "usual_worth": [interval(sigma_effect(run, plain, large)) for large in (1.0, 2.0)],
        "lazy_training_at_one": mean_over_sigmas(run, train, [1.0], **lazy).mean(),
    }


def small_models_by_gain() -> Facts:
    """Compare small models whose step size is divided by the gain with models that have that step size and no gain."""
    run, rates = (Run(RESULTS / f"lst-gain-quick{name}") for name in ("", "-rates"))
    small, _, large = ({"learning_rate": rate} for rate in sorted(rates.config["fields"]["rates"]))
    train, by_gain = accuracy(run, "train"), columns_of_gain(3.0, True, run)
    with_gain, with_rate = ood_accuracy(run, [0.2], **by_gain), ood_accuracy(rates, [0.2], **small)
    usual = ood_accuracy(run, [0.2], **columns_of_gain(1.0, False, run))
    return {
        "quick_with_gain": interval(with_gain),
        "quick_with_rate": interval(with_rate),
        "quick_usual": interval(usual),
        "quick_difference": interval(with_gain - with_rate),
        "quick_usual_ahead": interval(usual - with_gain),
        "quick_training": mean_over_sigmas(run, train, [0.2], **by_gain).mean(),
        "quick_too_large": mean_over_sigmas(run, train, [0.2], **columns_of_gain(0.3, True, run)).mean(),
        "quick_too_large_alone": mean_over_sigmas(rates, accuracy(rates, "train"), [0.2], **large).mean(),
        "quick_gains": knob_claims.gain_difference(0.3, 3.0, False, [0.2], run),
        "same_step_size": math.isclose(by_gain["learning_rate"], small["learning_rate"]),
    }


# ---------------------------------------------------------------------------------------------------------- rounding


def rounding(runs: Mapping[str, Run]) -> Facts:
    """Compute how much the accuracy of members with the same settings and seeds differs between two runs."""
    heads, causal_run = runs["lst-heads"], runs["lst-causal"]
    sigmas, by_kind = heads.config["fields"]["sigmas"], causal_effects.manipulation_values
    by_sgd = {"optimizer": "sgd", "learning_rate": causal_run.config["fields"]["sgd_rate"]}
    gaps = {
        sigma: interval(ood_accuracy(heads, [sigma], heads=1) - by_kind(causal_run, "learned", [sigma]))
        for sigma in sigmas
    }
    sgd_gaps = [
        float((ood_accuracy(runs["lst-optimizer"], [s], **by_sgd) - by_kind(causal_run, "learned, by SGD", [s])).mean())
        for s in sigmas
        if s < 2
    ]
    usual = {"lst-heads": {"heads": 1}, "lst-depth": {"layers": 4}, "lst-width": {"width": 160}}
    usual |= {"lst-placement": {"placement": "every"}, "lst-data": {"data": "puzzles=8100"}}
    same = [[list(ood_accuracy(runs[name], [sigma], **columns)) for sigma in sigmas] for name, columns in usual.items()]
    return {
        "gap_at_two": gaps[2.0],
        "largest_gap_below_two": max(abs(gap.mean) for sigma, gap in gaps.items() if sigma < 2),
        "largest_sgd_gap": max(map(abs, sgd_gaps)),
        "usual_models_are_the_same": all(values == same[0] for values in same),
    }
