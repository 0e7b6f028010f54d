"""Compute the numbers of the sections of docs/reproduction.md that compare settings other than sigma on channels.

These are encodings, shares of hidden channels, window length, noise, number of nodes and optimizers. The main sweeps
over sigma are in channels.py and synergy.py. Models predict hidden channels from the others; the error is the mean
squared error in test data. Structure in a PE is how often the nearest token is in the same cluster (networks), is the
mirror region (brains) or is in the same group (synergy). For other terms see tables.py.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import pandas as pd
import tables
from synergy import models, tally, tally_by, tally_table
from tables import (
    Findings,
    MeasureKey,
    Numbers,
    Runs,
    change,
    gap_by_seed,
    minus_linear,
)
from templating import grid, number

from placecode.analysis.stats import Interval
from placecode.experiments.channels.claims import (
    MIRROR,
    NEIGHBOURS,
    SHIFTED_CONDITION,
    TRAINED_CONDITION,
    error,
)
from placecode.experiments.reading import (
    analysis_values,
    at_sigma,
    baseline,
    baseline_by_seed,
    chance_levels,
    finished_members,
    interval_at_sigma,
    interval_over_worlds,
    select,
    sigma_difference,
)
from placecode.experiments.specs import with_encoding_names
from placecode.reports.figures import SIGMA
from placecode.runs.read import Run

ENCODINGS = {
    "network": ("network-encodings", TRAINED_CONDITION, NEIGHBOURS),
    "brain": ("brain-encodings", TRAINED_CONDITION, MIRROR),
    "synergy": ("synergy-encodings", "hidden 0.3", NEIGHBOURS),
}
"""By kind of data: the run with all encodings, the test condition (as many channels hidden as in training), and the
measure of structure."""
LEARNED, LEARNED_LARGE = f"learned, {SIGMA} 0.2", f"learned, {SIGMA} 1"
RANDOM, RANDOM_LARGE = f"random, {SIGMA} 0.2", f"random, {SIGMA} 1"
"""Names of encodings with sigma 0.2, and with sigma 1."""
WITHOUT_POSITION = ("NoPE", "alibi", "NoPE with a causal mask")
"""Encodings that add no position to a token: NoPE, ALiBi, and NoPE with a causal mask."""
SHARES = (0.15, 0.5, 0.75, 0.9)
"""Shares of hidden regions in training and in test."""
SIGMAS = (0.01, 0.2, 2.0)
FEWER = "hidden 0.15"
"""The test condition with 15% of the nodes hidden."""


def encodings(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compare all encodings on simulated networks, brains and synergy (groups that correlations cannot detect)."""
    syn, brain, sweep = (runs[name] for name in ("synergy-encodings", "brain-encodings", "synergy-sigma"))
    gaps = {what: partial(encoding_gap, runs[name], share) for what, (name, share, _) in ENCODINGS.items()}
    errors = error(syn, "hidden 0.3")
    frozen_small = select(syn, errors, name=RANDOM)
    query = "encoding == 'learned' and sigma == 0.2 and seed < 5"
    return {
        "table": encodings_table(runs),
        "without_position": WITHOUT_POSITION,
        "frozen_minus_learned": {what: gap_of(RANDOM_LARGE, LEARNED_LARGE) for what, gap_of in gaps.items()},
        "large_minus_small": {what: gaps[what](LEARNED_LARGE, LEARNED) for what in ("network", "brain")},
        "behind": {
            what: {name: gap_of(name, LEARNED) for name in ("relative", "rotary")} for what, gap_of in gaps.items()
        },
        "without_position_minus_learned": [
            gap_of(name, LEARNED) for gap_of in gaps.values() for name in WITHOUT_POSITION
        ],
        "without_position_near_mean": all(
            interval_over_worlds(runs[run], select(runs[run], error(runs[run], share), name=name)).mean > 0.95
            for run, share, _ in (ENCODINGS["network"], ENCODINGS["synergy"])
            for name in WITHOUT_POSITION
        ),
        "random_large_minus_small": gaps["synergy"](RANDOM_LARGE, RANDOM),
        "random_minus_learned": gaps["synergy"](RANDOM, LEARNED),
        "fixed": interval_over_worlds(syn, select(syn, errors, name="1d-fixed")).mean,
        "random_near": interval_over_worlds(syn, select(syn, analysis_values(syn, *NEIGHBOURS), name=RANDOM)).mean,
        "in_sweep": tally(models(sweep).query(query)),
        "here": tally(models(syn).query(query)),
        "in_size": tally(models(runs["synergy-size"]).query("channels == 30 and samples == 50000")),
        "random_minus_sweep": interval_over_worlds(
            syn, (frozen_small - at_sigma(sweep, error(sweep, "hidden 0.3"), 0.2)).dropna()
        ),
        "fixed_mirrors": interval_over_worlds(
            brain, select(brain, analysis_values(brain, *MIRROR), name="1d-fixed")
        ).mean,
    }


def encodings_table(runs: Runs) -> str:
    """Return a table of mean error and structure by encoding, on networks, brains and synergy; learned PEs first."""
    encodings: dict[str, str] = {}
    columns = []
    for name, share, measure in ENCODINGS.values():
        run = runs[name]
        members = with_encoding_names(finished_members(run))
        for values in (error(run, share), analysis_values(run, *measure)):
            columns.append(members["member"].map(values).groupby(members["name"]).mean())
        encodings |= dict(zip(members["name"], members["encoding"], strict=True))
    rows = [
        (
            name.replace(SIGMA, "sigma"),
            *(number(means.get(name, math.nan)) for means in columns),
        )
        for name in sorted(encodings, key=lambda name: encodings[name] != "learned")
    ]
    header = [words for what in ENCODINGS for words in (f"{what}: error", f"{what}: nearest")]
    return grid(("encoding", *header), rows)


def encoding_gap(run: Run, condition: str, encoding: str, reference: str) -> Interval:
    """Return the error in a test condition with an encoding minus that with `reference`, paired by seed."""
    errors = error(run, condition)
    return interval_over_worlds(run, select(run, errors, name=encoding) - select(run, errors, name=reference))


def hidden_shares(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compare models of brains that are trained and tested with 15 to 90% of the regions hidden."""
    run = runs["brain-mask"]
    values = {tested: error(run, f"hidden {tested:g}") for tested in SHARES}
    errors = {
        (trained, tested, sigma): select(run, values[tested], mask_ratio=trained, sigma=sigma)
        for trained, tested, sigma in product(SHARES, SHARES, SIGMAS)
    }

    def between(trained: float, tested: float, sigma: float = 0.01, reference: float = 2.0) -> Interval:
        """Return the error at a sigma minus that at the sigma `reference`, with these shares hidden."""
        return interval_over_worlds(run, errors[trained, tested, sigma] - errors[trained, tested, reference])

    means = {
        trained: {
            tested: {s: interval_over_worlds(run, errors[trained, tested, s]).mean for s in SIGMAS} for tested in SHARES
        }
        for trained in SHARES
    }
    linear_by_seed = {s: baseline_by_seed(run, "linear", "mse", f"hidden {s:g}") for s in SHARES}
    linear = {share: float(baseline(run, "linear", "mse", f"hidden {share:g}").mean()) for share in SHARES}
    rows = []
    for trained, sigma in product(SHARES, SIGMAS):
        mirrors = interval_over_worlds(
            run, select(run, analysis_values(run, *MIRROR), mask_ratio=trained, sigma=sigma)
        ).mean
        cells = (number(means[trained][tested][sigma]) for tested in SHARES)
        rows.append((f"{trained:.0%}", f"{sigma:g}", number(mirrors), *cells))
    rows.append(("", "linear predictor", "", *map(number, linear.values())))
    header = ("hidden in training", "sigma", "nearest region is the mirror region")
    return {
        "table": grid((*header, *(f"error, {share:.0%} hidden" for share in SHARES)), rows),
        "chance": tables.chance(run, MIRROR),
        "means": means,
        "linear": linear,
        "to_fewer_from_90": {tested: between(0.9, tested) for tested in (0.15, 0.5, 0.75)},
        "to_15": {trained: between(trained, 0.15) for trained in (0.5, 0.75)},
        "as_trained": [between(share, share) for share in SHARES],
        "to_more": [between(trained, 0.9) for trained in (0.15, 0.5, 0.75)],
        "minus_best": [between(share, share, sigma, 0.2) for share in SHARES for sigma in (0.01, 2.0)],
        "minus_linear": [
            interval_over_worlds(run, errors[share, share, 0.2] - linear_by_seed[share]) for share in SHARES
        ],
        "middle_below_small": all(
            by_sigma[0.2] < by_sigma[0.01] for by_tested in means.values() for by_sigma in by_tested.values()
        ),
    }


def windows(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compare tokens that hold five time points with tokens that hold one."""
    clusters: dict[MeasureKey, str] = {
        NEIGHBOURS: "nearest node in the same cluster",
        ("ari", "labels"): "ARI of k-means",
    }
    mirrors = {MIRROR: "nearest region is the mirror region"}
    one = {"network": runs["network-sigma"], "brain": runs["brain-sigma"]}
    five = {"network": runs["network-sigma-window"], "brain": runs["brain-sigma-window"]}
    near = {
        what: analysis_values(run, *NEIGHBOURS) for what, run in (("one", one["network"]), ("five", five["network"]))
    }
    net, brain = five["network"], five["brain"]

    def leads(run: Run, sigma: float) -> pd.Series:
        """Return, by seed, by how much sigma 0.2 is better: the error at another sigma minus that at 0.2."""
        return gap_by_seed(run, error(run, TRAINED_CONDITION), sigma, 0.2)

    return {
        "tables": {
            what: tables.twins_table(one[what], five[what], measures, "window", "time points")
            for what, measures in (("network", clusters), ("brain", mirrors))
        },
        "near_change": {s: change(one["network"], net, near["one"], near["five"], s) for s in (0.01, 0.2)},
        "lead": {
            what: {s: sigma_difference(run, error(run, TRAINED_CONDITION), s, 0.2) for s in (0.01, 2.0)}
            for what, run in five.items()
        },
        "lead_growth": {
            what: {s: interval_over_worlds(run, leads(run, s) - leads(one[what], s).loc[:4]) for s in (0.01, 2.0)}
            for what, run in five.items()
        },
        "small_minus_large": sigma_difference(net, error(net, SHIFTED_CONDITION), 0.01, 2.0),
        "behind_linear": interval_over_worlds(net, minus_linear(net, 0.2, TRAINED_CONDITION)),
        "behind_linear_one": interval_over_worlds(net, minus_linear(one["network"], 0.2, TRAINED_CONDITION).loc[:4]),
        "brain_minus_linear": {
            share: interval_over_worlds(brain, minus_linear(brain, 0.2, condition))
            for share, condition in (("half", TRAINED_CONDITION), ("most", SHIFTED_CONDITION))
        },
        "linear_one": float(baseline(one["brain"], "linear", "mse", TRAINED_CONDITION).mean()),
        "linear_five": float(baseline(brain, "linear", "mse", TRAINED_CONDITION).mean()),
        "clusters": {s: interval_at_sigma(net, near["five"], s).mean for s in (0.01, 2.0)},
        "mirrors": {s: interval_at_sigma(brain, analysis_values(brain, *MIRROR), s).mean for s in (0.01, 2.0)},
    }


def small_models(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compute the effects of noise, number of nodes, share of hidden nodes and optimizer, with small models."""
    noise, size = runs["network-noise-quick"], runs["network-size-quick"]
    few_hidden, most_hidden = runs["network-sigma-hidden-15"], runs["network-sigma-hidden-90"]
    rates, larger = runs["synergy-optimizer-quick"], runs["synergy-optimizer-quick-sgd"]
    chances = [chance_levels(part)[NEIGHBOURS] for part in size.config["task"]["parts"].values()]
    nodes = {s: {n: nearest(size, s, f"nodes={n}") for n in (25, 50, 100)} for s in (0.01, 0.5)}
    shares = (FEWER, TRAINED_CONDITION, SHIFTED_CONDITION)
    trained = {few_hidden: "15%", most_hidden: "90%"}
    means = {
        words: {
            sigma: [interval_at_sigma(run, last_errors(run, share), sigma).mean for share in shares] for sigma in SIGMAS
        }
        for run, words in trained.items()
    }
    rows = [
        (
            words,
            f"{s:g}",
            number(interval_at_sigma(run, analysis_values(run, *NEIGHBOURS), s).mean),
            *map(number, means[words][s]),
        )
        for run, words in trained.items()
        for s in SIGMAS
    ]
    header = ("hidden in training", "sigma", "nearest node in the same cluster")
    slow, fast = (tally_by(models(run), "optimizer", "learning_rate", "sigma") for run in (rates, larger))
    return {
        "chance": (min(chances), max(chances)),
        "noise_table": by_data_table(noise, "noise", "noise"),
        "size_table": by_data_table(size, "nodes", "tokens"),
        "near_by_noise": {level: nearest(noise, 0.01, f"noise={level}").mean() for level in ("0.1", "0.3", "1", "3")},
        "fc_by_noise": {level: baseline(noise, "fc", *NEIGHBOURS, f"noise={level}").mean() for level in ("1", "3")},
        "near_by_nodes": {s: {n: values.mean() for n, values in by_nodes.items()} for s, by_nodes in nodes.items()},
        "near_growth": {s: interval_over_worlds(size, by_nodes[100] - by_nodes[50]) for s, by_nodes in nodes.items()},
        "shares_table": grid((*header, "error, 15% hidden", "error, 50% hidden", "error, 90% hidden"), rows),
        "small_minus_large": {
            words: {
                tested: {s: sigma_difference(run, last_errors(run, tested), s, 2.0) for s in (0.01, 0.2)}
                for tested in shares
            }
            for run, words in trained.items()
        },
        "FEWER": FEWER,
        "MORE": SHIFTED_CONDITION,
        "middle_below_small": all(
            middle < small
            for by_sigma in means.values()
            for middle, small in zip(by_sigma[0.2], by_sigma[0.01], strict=True)
        ),
        "optimizer_table": tally_table(("optimizer", "step size", "sigma"), slow | fast),
        "optimizers": slow,
        "sgd": fast,
        "large_sigma_finds_none": all(tallied.ready == 0 for (_, _, s), tallied in (slow | fast).items() if s == 2.0),
        "sgd_learns_nothing": all(tallied.error > 0.98 for (name, _, _), tallied in slow.items() if name == "sgd"),
        "diverged": larger.members[larger.members["state"] == "diverged"]["learning_rate"].value_counts(),
        "least": rates.config["task"]["best_mse"]["hidden 0.3"],
        "data": rates.config["fields"],
    }


def last_errors(run: Run, condition: str) -> pd.Series:
    """Return the last error in a test condition by member. Unlike `error`, it allows any share hidden in training."""
    rows = run.metrics[(run.metrics["split"] == "test") & (run.metrics["condition"] == condition)]
    return pd.Series(rows[rows["step"] == rows["step"].max()].set_index("member")["value"])


def nearest(run: Run, sigma: float, data: str) -> pd.Series:
    """Return the share of nodes whose nearest node is in the same cluster, by seed, at a sigma and on a data set."""
    return select(run, analysis_values(run, *NEIGHBOURS), sigma=sigma, data=data)


def by_data_table(run: Run, header: str, field: str) -> str:
    """Return a table of structure and errors by data set and sigma, with a row for the baselines of each data set.

    The baselines are correlation (structure) and the linear predictor (errors). `field` is the entry of the data sets'
    records in which they differ, and `header` is its column header.
    """
    rows = []
    columns = [
        analysis_values(run, *NEIGHBOURS),
        *(last_errors(run, c) for c in (TRAINED_CONDITION, SHIFTED_CONDITION)),
    ]
    for data, record in run.config["task"]["parts"].items():
        value = f"{record[field]:g}"
        for sigma in sorted(finished_members(run).query("data == @data")["sigma"].unique()):
            means = (number(select(run, column, sigma=sigma, data=data).mean()) for column in columns)
            rows.append((value, f"sigma {sigma:g}", *means))
        baselines = [
            ("fc", *NEIGHBOURS),
            *(("linear", "mse", share) for share in (TRAINED_CONDITION, SHIFTED_CONDITION)),
        ]
        means = (number(baseline(run, *key, data).mean()) for key in baselines)
        rows.append((value, "correlation; linear predictor", *means))
    return grid((header, "", "nearest node in the same cluster", "error, 50% hidden", "error, 90% hidden"), rows)
