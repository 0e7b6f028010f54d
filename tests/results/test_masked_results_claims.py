"""Effects of the claims on the committed runs of masked prediction, computed again from their tables."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers import committed_masked as runs
from helpers.made_up import effect_of, student


def between(folder: Path, values: pd.DataFrame, small: float, large: float) -> runs.Effect:
    return runs.over_worlds(folder, values.loc[small] - values.loc[large])


def small_minus_large(folder: Path, condition: str) -> runs.Effect:
    errors = runs.error(folder, condition)
    return runs.over_worlds(folder, errors[errors.index <= 0.5].mean() - errors[errors.index > 0.5].mean())


def minus_correlation(folder: Path, metric: str, target: str, sigma: float, name: str = "fc") -> runs.Effect:
    learned = runs.measure(folder, metric, target).loc[sigma]
    return runs.over_worlds(folder, learned - runs.of_baseline(folder, name, metric, target, learned.index))


def beyond_chance(folder: Path, name: str) -> runs.Effect:
    """Return how often the nearest channel by a baseline is in the same group, minus how often a random channel is."""
    labels = runs.config(folder)["task"]["labels"]
    chance = sum(labels.count(label) - 1 for label in labels) / len(labels) / (len(labels) - 1)
    rows = runs.where(runs.table(folder, "baselines"), baseline=name, metric="neighbor_agreement")
    if rows.empty:
        raise KeyError(name)
    return student((rows["value"] - chance).fillna(0.0).tolist())  # NaN: the baseline links no channels


def by_hand_network(at: Path) -> dict[str, Callable[[], runs.Effect]]:
    clusters = ("neighbor_agreement", "labels")
    gains = runs.measure(at, *clusters) - runs.measure(at, *clusters, start=True)
    return {
        "small-sigma-shows-clusters": lambda: runs.over_worlds(at, runs.measure(at, *clusters).loc[0.01]),
        "large-sigma-shows-none": lambda: runs.over_worlds(at, runs.measure(at, *clusters).loc[2.0]),
        "clusters-fall-with-sigma": lambda: between(at, runs.measure(at, *clusters), 0.01, 2.0),
        "clusters-are-learned": lambda: runs.over_worlds(at, gains.loc[0.01]),
        "modularity-falls-with-sigma": lambda: between(at, runs.measure(at, "modularity", "labels"), 0.01, 2.0),
        "small-sigma-predicts-better": lambda: small_minus_large(at, "hidden 0.5"),
        "small-sigma-predicts-better-shifted": lambda: small_minus_large(at, "hidden 0.9"),
        "error-hardly-moves": lambda: between(at, runs.error(at, "hidden 0.5"), 0.01, 2.0),
        "beats-linear": lambda: runs.minus_linear(at, "hidden 0.5", 0.2),
        "beats-correlation": lambda: minus_correlation(at, *clusters, 0.01),
    }


def by_hand_synergy(at: Path) -> dict[str, Callable[[], runs.Effect]]:
    groups = ("neighbor_agreement", "labels")
    least = runs.config(at)["task"]["best_mse"]["hidden 0.3"]
    return {
        "groups-are-found": lambda: runs.over_worlds(at, runs.measure(at, *groups).loc[0.2]),
        "large-sigma-finds-none": lambda: runs.over_worlds(at, runs.measure(at, *groups).loc[2.0]),
        "error-is-the-least-possible": lambda: runs.over_worlds(at, runs.error(at, "hidden 0.3").loc[0.2] - least),
        "error-hangs-on-sigma": lambda: between(at, runs.error(at, "hidden 0.3"), 0.2, 2.0),
        "blind-fc": lambda: beyond_chance(at, "fc"),
        "blind-mutual-information": lambda: beyond_chance(at, "mutual information"),
        "blind-partial-correlation": lambda: beyond_chance(at, "partial correlation"),
    }


def by_hand_brain(at: Path) -> dict[str, Callable[[], runs.Effect]]:
    mirror = ("mirror_agreement", "partner")
    return {
        "small-sigma-shows-mirrors": lambda: runs.over_worlds(at, runs.measure(at, *mirror).loc[0.01]),
        "large-sigma-shows-none": lambda: runs.over_worlds(at, runs.measure(at, *mirror).loc[2.0]),
        "connectivity-falls-with-sigma": lambda: between(at, runs.measure(at, "fc_correlation", "fc"), 0.01, 2.0),
        "modularity-falls-with-sigma": lambda: between(at, runs.measure(at, "modularity", "best"), 0.01, 2.0),
        "small-sigma-predicts-better": lambda: small_minus_large(at, "hidden 0.5"),
        "small-sigma-predicts-better-shifted": lambda: small_minus_large(at, "hidden 0.9"),
        "beats-linear": lambda: runs.minus_linear(at, "hidden 0.5", 0.2),
        "beats-correlation": lambda: minus_correlation(at, *mirror, 0.01),
        **{
            f"{target}-{name}-falls-with-sigma": partial(known_networks_fall, at, name, target)
            for name in ("modularity", "segregation")
            for target in ("yeo7", "cole-anticevic")
        },
        "beats-connectivity-on-networks": lambda: minus_correlation(at, "modularity", "yeo7", 0.01, "centred fc"),
    }


def known_networks_fall(at: Path, name: str, target: str) -> runs.Effect:
    values = runs.measure(at, name, target)
    if values.isna().all(axis=None):
        raise KeyError(target)
    return between(at, values, 0.01, 2.0)


def by_hand_transfer(at: Path) -> dict[str, Callable[[], runs.Effect]]:
    def second_half(sigma: float, start: str, learn: bool, values: pd.Series) -> pd.Series:
        rows = runs.where(runs.finished(at), data="second half", sigma=sigma, start=start, learn=learn)
        if rows.empty:
            raise KeyError((sigma, start, learn))
        return rows.set_index("seed")["member"].map(values)

    def minus(kind: tuple[float, str, bool], reference: tuple[float, str, bool]) -> runs.Effect:
        errors = runs.error_of_members(at, "hidden 0.5")
        return runs.over_worlds(at, second_half(*kind, errors) - second_half(*reference, errors))

    def stability_falls() -> runs.Effect:
        values = runs.of_members(at, "stability", "other data")
        small, large = (second_half(sigma, "normal", True, values) for sigma in (0.01, 2.0))
        return runs.over_worlds(at, small - large)

    return {
        "another-half-serves-as-well": lambda: minus((0.01, "donor", False), (0.01, "normal", True)),
        "another-half-beats-shuffled": lambda: minus((0.01, "donor", False), (0.01, "shuffled", False)),
        "another-half-beats-random": lambda: minus((0.01, "donor", False), (0.5, "normal", False)),
        "large-sigma-has-nothing-to-give": lambda: minus((2.0, "shuffled", False), (2.0, "donor", False)),
        "halves-agree": stability_falls,
    }


def by_hand_preprocessing(at: Path) -> dict[str, Callable[[], runs.Effect]]:
    """Effects in the variant with the lowest lower bound. An interval is over splits of the people."""

    def falls(analysis: str, target: str) -> runs.Effect:
        values, effects = runs.of_members(at, analysis, target), []
        for variant, shape in runs.config(at)["shapes"].items():
            rows = runs.where(runs.finished(at), data=variant)
            rows = rows.assign(value=rows["member"].map(values), split=rows["seed"] % shape["worlds"])
            means = rows.groupby(["sigma", "split"])["value"].mean().unstack("split")
            effects.append(student(means.loc[0.01] - means.loc[2.0]))
        return min(effects, key=lambda effect: effect[1])

    return {
        "yeo7-modularity-falls": lambda: falls("modularity", "yeo7"),
        "cole-anticevic-modularity-falls": lambda: falls("modularity", "cole-anticevic"),
        "yeo7-segregation-falls": lambda: falls("segregation", "yeo7"),
        "mirrors-fall": lambda: falls("mirror_agreement", "partner"),
    }


BY_HAND: dict[str, Callable[[Path], dict[str, Callable[[], runs.Effect]]]] = {
    "network-sigma": by_hand_network,
    "synergy-sigma": by_hand_synergy,
    "brain-sigma": by_hand_brain,
    "brain-transfer": by_hand_transfer,
    "brain-preprocessing": by_hand_preprocessing,
}
BETTER = ("small-sigma-predicts-better", "small-sigma-predicts-better-shifted")
ANOTHER_HALF = ("serves-as-well", "beats-shuffled", "beats-random")
OF_ERRORS = {
    "network-sigma": {*BETTER, "error-hardly-moves", "beats-linear"},
    "synergy-sigma": {"error-is-the-least-possible", "error-hangs-on-sigma"},
    "brain-sigma": {*BETTER, "beats-linear"},
    "brain-transfer": {*(f"another-half-{end}" for end in ANOTHER_HALF), "large-sigma-has-nothing-to-give"},
    "brain-preprocessing": set(),
}
"""Claims on errors. They are about models that were trained with the usual share of channels hidden."""


def by_hand(folder: Path) -> dict[str, runs.Effect | None]:
    """Return the effect of every claim with its interval, or None if the tables do not have what the claim is about."""
    experiment, trained = runs.config(folder)["experiment"], runs.config(folder)["fields"]["mask_ratio"]
    undecided = OF_ERRORS[experiment] if trained != (0.3 if experiment == "synergy-sigma" else 0.5) else set()

    def if_any(effect: Callable[[], runs.Effect]) -> runs.Effect | None:
        try:
            return effect()
        except KeyError:
            return None

    return {id: None if id in undecided else if_any(effect) for id, effect in BY_HAND[experiment](folder).items()}


def test_runs_with_claims_are_all_checked() -> None:
    assert {*runs.SWEEPS, "brain-transfer", "brain-preprocessing"} == set(runs.JUDGED)
    assert {runs.CONFIGS[run]["experiment"] for run in runs.JUDGED} == set(BY_HAND) == set(OF_ERRORS)
    assert len(runs.SWEEPS) >= 8 and {*runs.MASKED} - {*runs.PICTURED} == {"brain-transfer"}


@pytest.mark.parametrize("run", runs.JUDGED)
def test_claims_match_values_by_hand(run: str, claims_of: Callable[[Path], dict[str, dict[str, Any]]]) -> None:
    claims, expected = claims_of(runs.ROOT / run), by_hand(runs.ROOT / run)
    assert set(claims) == set(expected)
    for id, effect in expected.items():
        actual, note = effect_of(claims[id]), claims[id]["note"]
        if effect is None:
            assert actual == [None, None, None] and note, id
        else:
            assert actual == pytest.approx(effect, abs=1e-9) and note == "", id
