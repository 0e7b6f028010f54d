"""Compute the numbers of the sections of docs/reproduction.md on networks and brains.

These are the sweeps over sigma, the preprocessing of brains, and PEs that were learned from other people. The sections
that compare other settings, such as encodings and optimizers, are in channel_settings.py. For the terms see tables.py.
"""

from __future__ import annotations

import pandas as pd
import tables
from tables import (
    Findings,
    MeasureKey,
    Numbers,
    Runs,
    best_sigma,
    chance,
    change,
    gap_by_seed,
    minus_linear,
)
from templating import columns_table, directions, grid, number, plain, signed

from placecode.experiments.channels import brain_networks
from placecode.experiments.channels.brain_networks import (
    LARGE,
    MIRROR,
    SMALL,
    by_split,
    connectivity_values,
    sigma_effect_in_variant,
    variants,
)
from placecode.experiments.channels.claims import NEIGHBOURS, SHIFTED_CONDITION, TRAINED_CONDITION, error
from placecode.experiments.claims import HOLDS
from placecode.experiments.reading import (
    analysis_values,
    baseline,
    by_sigma,
    finished_members,
    interval_at_sigma,
    interval_over_worlds,
    select,
    sigma_difference,
)
from placecode.runs.read import Run

SHARES = dict(zip(("half", "most"), tables.CONDITIONS, strict=True))
"""Test conditions by their names in the templates: half of the channels are hidden, as in training, or most of them."""
CLUSTERS: dict[MeasureKey, str] = {
    NEIGHBOURS: "nearest node in the same cluster",
    ("modularity", "labels"): "signed modularity Q",
    ("ari", "labels"): "ARI of k-means",
}
"""Measures of structure on networks, with their column headers."""
REGIONS: dict[MeasureKey, str] = {
    MIRROR: "nearest region is the mirror region",
    ("modularity", "best"): "Q of the best partition",
    ("fc_correlation", "fc"): "correlation with connectivity",
    ("coordinate_agreement", "positions"): "regions farther away than the most similar one",
    ("stability", "other seeds"): "similarity to PEs of other seeds, same people",
}
"""Measures of structure on brains, with their column headers."""
ATLASES = ("yeo7", "cole-anticevic")
NETWORKS: list[MeasureKey] = [(name, atlas) for name in ("modularity", "segregation") for atlas in ATLASES]
"""Measures of known brain networks, as (analysis, atlas)."""
YEO = NETWORKS[0]
PEOPLE = {
    "its own": ("normal", True),
    "of other people, frozen": ("donor", False),
    "of other people, trained further": ("donor", True),
    "of other people, regions shuffled, frozen": ("shuffled", False),
    "random, frozen": ("normal", False),
}
"""Kinds of PE in the run brain-transfer: where the PE comes from (the field `start`), and whether it is trained."""


def networks(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compute the numbers of the section on networks with known clusters."""
    run, long = runs["network-sigma"], runs["network-sigma-50000"]
    q, ari, near = (
        analysis_values(run, *measure) for measure in (("modularity", "labels"), ("ari", "labels"), NEIGHBOURS)
    )
    best = {share: best_sigma(run, condition) for share, condition in SHARES.items()}
    ends = (0.01, 0.2, 2.0)
    return {
        "findings_long": findings["network-sigma-50000"],
        "tokens": run.config["task"]["tokens"],
        "chance": chance(run, NEIGHBOURS),
        "table": tables.sigma_table(run, CLUSTERS, ("neighbor_agreement_p", "labels")),
        "baselines": tables.baseline_table(run, CLUSTERS, (TRAINED_CONDITION, SHIFTED_CONDITION)),
        "long_table": tables.twins_table(run, long, CLUSTERS, "steps", "steps"),
        "most_modular": float(str(by_sigma(run, q).mean(axis="columns").idxmax())),
        "modularity_gap": sigma_difference(run, q, 0.1, 0.01),
        "ari_gap": sigma_difference(run, ari, 0.1, 0.2),
        "modules": {
            s: interval_at_sigma(run, analysis_values(run, "modules", "best"), s).mean for s in (0.01, 0.1, 0.2)
        },
        "near_at_start": interval_at_sigma(run, analysis_values(run, *NEIGHBOURS, "start"), 0.01).mean,
        "best": best,
        "above_best": {
            share: {s: sigma_difference(run, error(run, condition), s, best[share]) for s in (0.01, 2.0)}
            for share, condition in SHARES.items()
        },
        "linear_is_best": linear_is_best(run),
        "error_change": {
            share: {s: change(run, long, error(run, condition), error(long, condition), s) for s in ends}
            for share, condition in SHARES.items()
        },
        "ari_change": {s: change(run, long, ari, analysis_values(long, "ari", "labels"), s) for s in (0.01, 0.2)},
        "near_change": change(run, long, near, analysis_values(long, *NEIGHBOURS), 0.01),
    }


def linear_is_best(run: Run) -> bool:
    """Return whether no baseline has a lower error than the linear predictor, apart from rounding, in shared worlds."""
    rows = run.baselines
    rows = rows[
        (rows["split"] == "test")
        & (rows["metric"] == "mse")
        & rows["condition"].isin((TRAINED_CONDITION, SHIFTED_CONDITION))
    ]
    table = rows.pivot(index=["world", "condition"], columns="baseline", values="value")
    gaps = table.sub(table["linear"], axis="index").groupby("condition").mean()
    return bool((gaps > -0.001).all(axis=None))


def brains(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compute the numbers of the section on recordings of five people."""
    run, long = runs["brain-sigma"], runs["brain-sigma-50000"]
    stability = analysis_values(run, "stability", "other seeds")
    by_seed = minus_linear(run, 0.5, TRAINED_CONDITION)
    leads = pd.Series(by_seed.groupby(by_seed.index.to_numpy() % run.config["shape"]["worlds"]).mean())
    world = int(leads.to_numpy().argmin())
    held_out = {s: error_by_step(long, "test", s) for s in (0.01, 0.2)}
    training = {share: error_by_step(long, "train", 0.2, condition) for share, condition in SHARES.items()}
    best, last = held_out[0.2].idxmin(), int(long.metrics["step"].max())
    short_gap, long_gap = (
        gap_by_seed(either, error(either, TRAINED_CONDITION), 0.01, 0.2)[list(range(5))] for either in (run, long)
    )
    twins = {MIRROR: REGIONS[MIRROR], ("fc_correlation", "fc"): "with connectivity"}
    return {
        "findings_long": findings["brain-sigma-50000"],
        "chance": chance(run, MIRROR),
        "table": tables.sigma_table(run, REGIONS, ("mirror_agreement_smooth_p", "partner")),
        "networks_table": tables.networks_table(run),
        "baselines": tables.baseline_table(run, {MIRROR: REGIONS[MIRROR]}, (TRAINED_CONDITION, SHIFTED_CONDITION)),
        "long_table": tables.twins_table(run, long, twins, "steps", "steps"),
        "labelled": brain_networks.network_coverage_text(run),
        "modularity_at_start": interval_at_sigma(run, analysis_values(run, "modularity", "best", "start"), 2.0).mean,
        "stability": {s: interval_at_sigma(run, stability, s).mean for s in (0.01, 2.0)},
        "best": {share: best_sigma(run, condition) for share, condition in SHARES.items()},
        "small_minus_middle": {share: sigma_difference(run, error(run, c), 0.01, 0.5) for share, c in SHARES.items()},
        "linear_ahead_at_every_sigma": all(
            interval_over_worlds(run, minus_linear(run, sigma, SHIFTED_CONDITION)).mean > 0
            for sigma in run.members["sigma"].unique()
        ),
        "leads": sorted(leads),
        "one_large_lead": bool((leads.drop(world) > -0.05).all()) and bool(leads.min() < -0.1),
        "person": run.config["task"]["people"]["test"][world][0],
        "ridge": float(baseline(run, "ridge", "mse", TRAINED_CONDITION).loc[world]),
        "linear": float(baseline(run, "linear", "mse", TRAINED_CONDITION).loc[world]),
        "lowest": {s: (int(values.idxmin()), float(values.min())) for s, values in held_out.items()},
        "last": last,
        "training_falls": training["half"][last] < training["half"][best],
        "training_rises_with_most_hidden": training["most"][last] > training["most"][best],
        "gap_change": interval_over_worlds(long, long_gap - short_gap),
        "long_gap": {
            share: sigma_difference(long, error(long, condition), 0.01, 0.2) for share, condition in SHARES.items()
        },
        "best_long_most": best_sigma(long, SHIFTED_CONDITION),
    }


def error_by_step(run: Run, split: str, sigma: float, condition: str = TRAINED_CONDITION) -> pd.Series:
    """Return the mean error over the seeds of a sigma, by training step. `split` is "train" or "test"."""
    rows = run.metrics[(run.metrics["split"] == split) & (run.metrics["condition"] == condition)]
    rows = rows[rows["member"].isin(finished_members(run).query("sigma == @sigma")["member"])]
    return pd.Series(rows.groupby("step")["value"].mean())


def preprocessing(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compute the numbers of the section on known brain networks in recordings that are preprocessed in six ways."""
    run, by_id = runs["brain-preprocessing"], findings["brain-preprocessing"]
    unprocessed, *_, everything, fewer = variants(run)
    differences = {
        m: {name: sigma_effect_in_variant(run, name, m) for name in variants(run)} for m in (*NETWORKS, MIRROR)
    }
    yeo, mirror = ({name: difference.mean for name, difference in differences[m].items()} for m in (YEO, MIRROR))
    tests = {
        sigma: [significant_models(run, m, p, sigma) for m in NETWORKS for p in ("_p", "_smooth_p")]
        for sigma in (SMALL, 0.1, LARGE)
    }
    at_small, at_large = [*tests[SMALL], *tests[0.1]], tests[LARGE]
    return {
        "all_hold": directions(by_id, HOLDS, *by_id),
        "seeds": len(run.config["fields"]["seeds"]),
        "small": SMALL,
        "large": LARGE,
        "networks_table": preprocessing_table(run, YEO),
        "mirrors_table": preprocessing_table(run, MIRROR),
        "most_significant_at_small": all(low / total > 0.8 for low, total in at_small),
        "few_significant_at_large": all(low / total < 0.25 for low, total in at_large),
        "least_at_small": min(low for low, _ in at_small),
        "models": at_small[0][1],
        "at_large": [low for low, _ in at_large],
        "yeo_below_connectivity": below_connectivity(run, YEO),
        "all_below_connectivity": all(below_connectivity(run, measure) for measure in NETWORKS),
        "all_differences": [interval for by_variant in differences.values() for interval in by_variant.values()],
        "unprocessed": unprocessed,
        "everything": everything,
        "fewer": fewer,
        "yeo": yeo,
        "mirror": mirror,
        "yeo_order": sorted(yeo, key=yeo.__getitem__),
        "mirror_order": sorted(mirror, key=mirror.__getitem__),
    }


def preprocessing_table(run: Run, measure: MeasureKey) -> str:
    """Return a table of a measure by variant of the preprocessing: in PEs by sigma, and in functional connectivity."""
    values, names = analysis_values(run, *measure), variants(run)
    columns = {brain_networks.VARIANT_MEASURES[measure]: names}
    for sigma in run.config["fields"]["sigmas"]:
        columns[f"sigma {sigma:g}"] = [number(by_split(run, name, values, sigma).mean()) for name in names]
    columns[f"{SMALL:g} minus {LARGE:g}"] = [signed(sigma_effect_in_variant(run, name, measure)) for name in names]
    levels = [pd.Series(connectivity_values(run, name, measure), dtype=float) for name in names]
    return columns_table(columns | {"functional connectivity": [number(level.mean()) for level in levels]})


def significant_models(run: Run, measure: MeasureKey, suffix: str, sigma: float) -> tuple[int, int]:
    """Return how many models of a sigma have p <= 0.05 in a test of a measure, and how many models there are.

    `suffix` is that of the test in the name of the analysis: "_p" or "_smooth_p", see docs/masked.md.
    """
    analysis, target = measure
    p_values = select(run, analysis_values(run, f"{analysis}{suffix}", target), sigma=sigma)
    return int((p_values <= 0.05).sum()), len(p_values)


def below_connectivity(run: Run, measure: MeasureKey) -> bool:
    """Return whether the mean of a measure at the small sigma is below that of connectivity in every variant."""
    values = analysis_values(run, *measure)
    levels = {variant: connectivity_values(run, variant, measure) for variant in variants(run)}
    return all(by_split(run, name, values, SMALL).mean() < sum(level) / len(level) for name, level in levels.items())


def transfer(runs: Runs, findings: dict[str, Findings]) -> Numbers:
    """Compute the numbers of the section on PEs learned from other people."""
    run = runs["brain-transfer"]
    sigmas = sorted(run.members["sigma"].unique())
    half, most = error(run, TRAINED_CONDITION), error(run, SHIFTED_CONDITION)

    def second(values: pd.Series, sigma: float, start: str, learn: bool = False) -> pd.Series:
        """Return values by seed of models trained on the second half of the people; for the kind of PE see PEOPLE."""
        return select(run, values, data="second half", sigma=sigma, start=start, learn=learn)

    rows = [
        (words, *(plain(interval_over_worlds(run, second(half, sigma, *kind)), 3) for sigma in sigmas))
        for words, kind in PEOPLE.items()
    ]
    similar = analysis_values(run, "stability", "other data")
    return {
        "table": grid(("PE", *(f"sigma {sigma:g}" for sigma in sigmas)), rows),
        "donor_minus_random": interval_over_worlds(run, second(half, 0.1, "donor") - second(half, 0.5, "normal")),
        "with_most_hidden": [
            interval_over_worlds(run, second(most, 0.01, "donor") - second(most, 0.01, "shuffled")),
            interval_over_worlds(run, second(most, 0.1, "donor") - second(most, 0.5, "normal")),
        ],
        "similarity": {
            sigma: interval_over_worlds(run, second(similar, sigma, "normal", True)) for sigma in (0.01, 2.0)
        },
    }
