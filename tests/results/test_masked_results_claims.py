"""Effects of the claims on the committed runs of masked prediction, computed again from their tables."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.committed_masked import (
    CONFIGS,
    JUDGED,
    MASKED,
    PICTURED,
    ROOT,
    SWEEPS,
    Effect,
    config,
    error,
    error_of_members,
    finished,
    measure,
    minus_linear,
    of_baseline,
    of_members,
    over_worlds,
    table,
    where,
)
from helpers.made_up import student

NETWORKS = ("yeo7", "cole-anticevic")


def between(folder: Path, values: pd.DataFrame, small: float, large: float) -> Effect:
    return over_worlds(folder, values.loc[small] - values.loc[large])


def small_minus_large(folder: Path, condition: str) -> Effect:
    errors = error(folder, condition)
    return over_worlds(folder, errors[errors.index <= 0.5].mean() - errors[errors.index > 0.5].mean())


def minus_correlation(folder: Path, metric: str, target: str, sigma: float) -> Effect:
    learned = measure(folder, metric, target).loc[sigma]
    return over_worlds(folder, learned - of_baseline(folder, "fc", metric, target, learned.index))


def beyond_chance(folder: Path, name: str) -> Effect:
    """Return how often the nearest channel by a baseline is in the same group, minus how often a random channel is."""
    labels = config(folder)["task"]["labels"]
    same = [sum(a == b for b in labels) - 1 for a in labels]
    chance = sum(same) / len(labels) / (len(labels) - 1)
    rows = where(table(folder, "baselines"), baseline=name, metric="neighbor_agreement")
    if rows.empty:
        raise KeyError(name)
    return student((rows["value"] - chance).fillna(0.0).tolist())  # NaN: the baseline links no channels


def by_hand_network(at: Path) -> dict[str, Callable[[], Effect]]:
    clusters = ("neighbor_agreement", "labels")
    return {
        "small-sigma-shows-clusters": lambda: over_worlds(at, measure(at, *clusters).loc[0.01]),
        "large-sigma-shows-none": lambda: over_worlds(at, measure(at, *clusters).loc[2.0]),
        "clusters-fall-with-sigma": lambda: between(at, measure(at, *clusters), 0.01, 2.0),
        "clusters-are-learned": lambda: over_worlds(
            at, measure(at, *clusters).loc[0.01] - measure(at, *clusters, start=True).loc[0.01]
        ),
        "modularity-falls-with-sigma": lambda: between(at, measure(at, "modularity", "labels"), 0.01, 2.0),
        "small-sigma-predicts-better": lambda: small_minus_large(at, "hidden 0.5"),
        "small-sigma-predicts-better-shifted": lambda: small_minus_large(at, "hidden 0.9"),
        "error-hardly-moves": lambda: between(at, error(at, "hidden 0.5"), 0.01, 2.0),
        "beats-linear": lambda: minus_linear(at, "hidden 0.5", 0.2),
        "beats-correlation": lambda: minus_correlation(at, *clusters, 0.01),
    }


def by_hand_synergy(at: Path) -> dict[str, Callable[[], Effect]]:
    groups = ("neighbor_agreement", "labels")
    least = config(at)["task"]["best_mse"]["hidden 0.3"]
    return {
        "groups-are-found": lambda: over_worlds(at, measure(at, *groups).loc[0.2]),
        "large-sigma-finds-none": lambda: over_worlds(at, measure(at, *groups).loc[2.0]),
        "error-is-the-least-possible": lambda: over_worlds(at, error(at, "hidden 0.3").loc[0.2] - least),
        "error-hangs-on-sigma": lambda: between(at, error(at, "hidden 0.3"), 0.2, 2.0),
        "blind-fc": lambda: beyond_chance(at, "fc"),
        "blind-mutual-information": lambda: beyond_chance(at, "mutual information"),
        "blind-partial-correlation": lambda: beyond_chance(at, "partial correlation"),
    }


def by_hand_brain(at: Path) -> dict[str, Callable[[], Effect]]:
    mirror = ("mirror_agreement", "partner")
    return {
        "small-sigma-shows-mirrors": lambda: over_worlds(at, measure(at, *mirror).loc[0.01]),
        "large-sigma-shows-none": lambda: over_worlds(at, measure(at, *mirror).loc[2.0]),
        "connectivity-falls-with-sigma": lambda: between(at, measure(at, "fc_correlation", "fc"), 0.01, 2.0),
        "modularity-falls-with-sigma": lambda: between(at, measure(at, "modularity", "best"), 0.01, 2.0),
        "small-sigma-predicts-better": lambda: small_minus_large(at, "hidden 0.5"),
        "small-sigma-predicts-better-shifted": lambda: small_minus_large(at, "hidden 0.9"),
        "beats-linear": lambda: minus_linear(at, "hidden 0.5", 0.2),
        "beats-correlation": lambda: minus_correlation(at, *mirror, 0.01),
        **{
            f"{target}-{name}-falls-with-sigma": partial(known_networks_fall, at, name, target)
            for name in ("modularity", "segregation")
            for target in NETWORKS
        },
        "beats-connectivity-on-networks": lambda: over_worlds(
            at,
            measure(at, "modularity", "yeo7").loc[0.01]
            - of_baseline(at, "centred fc", "modularity", "yeo7", measure(at, "modularity", "yeo7").columns),
        ),
    }


def known_networks_fall(at: Path, name: str, target: str) -> Effect:
    values = measure(at, name, target)
    if values.isna().all(axis=None):
        raise KeyError(target)
    return between(at, values, 0.01, 2.0)


def by_hand_transfer(at: Path) -> dict[str, Callable[[], Effect]]:
    def second_half(sigma: float, start: str, learn: bool, values: pd.Series) -> pd.Series:
        rows = where(finished(at), data="second half", sigma=sigma, start=start, learn=learn)
        if rows.empty:
            raise KeyError((sigma, start, learn))
        return rows.set_index("seed")["member"].map(values)

    def minus(kind: tuple[float, str, bool], reference: tuple[float, str, bool]) -> Effect:
        errors = error_of_members(at, "hidden 0.5")
        return over_worlds(at, second_half(*kind, errors) - second_half(*reference, errors))

    def stability_falls() -> Effect:
        values = of_members(at, "stability", "other data")
        small, large = (second_half(sigma, "normal", True, values) for sigma in (0.01, 2.0))
        return over_worlds(at, small - large)

    return {
        "another-half-serves-as-well": lambda: minus((0.01, "donor", False), (0.01, "normal", True)),
        "another-half-beats-shuffled": lambda: minus((0.01, "donor", False), (0.01, "shuffled", False)),
        "another-half-beats-random": lambda: minus((0.01, "donor", False), (0.5, "normal", False)),
        "large-sigma-has-nothing-to-give": lambda: minus((2.0, "shuffled", False), (2.0, "donor", False)),
        "halves-agree": stability_falls,
    }


def by_hand_preprocessing(at: Path) -> dict[str, Callable[[], Effect]]:
    """Effects in the variant with the lowest lower bound. An interval is over splits of the people."""

    def falls(analysis: str, target: str) -> Effect:
        values, effects = of_members(at, analysis, target), []
        for variant, shape in config(at)["shapes"].items():
            rows = where(finished(at), data=variant)
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


BY_HAND: dict[str, Callable[[Path], dict[str, Callable[[], Effect]]]] = {
    "network-sigma": by_hand_network,
    "synergy-sigma": by_hand_synergy,
    "brain-sigma": by_hand_brain,
    "brain-transfer": by_hand_transfer,
    "brain-preprocessing": by_hand_preprocessing,
}


OF_ERRORS = {
    "network-sigma": {
        *("small-sigma-predicts-better", "small-sigma-predicts-better-shifted", "error-hardly-moves", "beats-linear")
    },
    "synergy-sigma": {"error-is-the-least-possible", "error-hangs-on-sigma"},
    "brain-sigma": {"small-sigma-predicts-better", "small-sigma-predicts-better-shifted", "beats-linear"},
    "brain-transfer": {
        *("another-half-serves-as-well", "another-half-beats-shuffled", "another-half-beats-random"),
        "large-sigma-has-nothing-to-give",
    },
    "brain-preprocessing": set(),
}
"""Claims on errors. They are about models that were trained with the usual share of channels hidden."""


def by_hand(folder: Path) -> dict[str, Effect | None]:
    """Return the effect of every claim with its interval, or None if the tables do not have what the claim is about."""
    experiment, trained = config(folder)["experiment"], config(folder)["fields"]["mask_ratio"]
    undecided = OF_ERRORS[experiment] if trained != (0.3 if experiment == "synergy-sigma" else 0.5) else set()

    def if_any(effect: Callable[[], Effect]) -> Effect | None:
        try:
            return effect()
        except KeyError:
            return None

    return {id: None if id in undecided else if_any(effect) for id, effect in BY_HAND[experiment](folder).items()}


def test_runs_with_claims_are_all_checked() -> None:
    assert {*SWEEPS, "brain-transfer", "brain-preprocessing"} == set(JUDGED)
    assert {CONFIGS[run]["experiment"] for run in JUDGED} == set(BY_HAND) == set(OF_ERRORS)
    assert len(SWEEPS) >= 8 and {*MASKED} - {*PICTURED} == {"brain-transfer"}


@pytest.mark.parametrize("run", JUDGED)
def test_claims_match_values_by_hand(run: str, claims_of: Callable[[Path], dict[str, dict[str, Any]]]) -> None:
    claims, expected = claims_of(ROOT / run), by_hand(ROOT / run)
    assert set(claims) == set(expected)
    for id, effect in expected.items():
        record = claims[id]
        actual = [record[name] for name in ("effect", "low", "high")]
        if effect is None:
            assert actual == [None, None, None] and record["note"], id
        else:
            assert actual == pytest.approx(effect, abs=1e-9) and record["note"] == "", id
