"""What `placecode claims` says of the committed runs of masked prediction is what their tables hold."""

from __future__ import annotations

import json
import math
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
    OLDER,
    PICTURED,
    ROOT,
    SWEEPS,
    TABLES,
    Effect,
    config,
    error,
    error_of_members,
    finished,
    less_linear,
    measure,
    of_baseline,
    of_members,
    over_worlds,
    table,
    where,
)
from helpers.made_up import direction, student

from placecode import cli

NETWORKS = ("yeo7", "cole-anticevic")


def between(folder: Path, values: pd.DataFrame, small: float, large: float) -> Effect:
    return over_worlds(folder, values.loc[small] - values.loc[large])


def small_less_large(folder: Path, condition: str) -> Effect:
    errors = error(folder, condition)
    return over_worlds(folder, errors[errors.index <= 0.5].mean() - errors[errors.index > 0.5].mean())


def less_correlation(folder: Path, metric: str, target: str, sigma: float) -> Effect:
    own = measure(folder, metric, target).loc[sigma]
    return over_worlds(folder, own - of_baseline(folder, "fc", metric, target, own.index))


def beyond_chance(folder: Path, name: str) -> Effect:
    """How often a baseline's nearest channel is of the same group, less how often any other channel is."""
    labels = config(folder)["task"]["labels"]
    same = [sum(a == b for b in labels) - 1 for a in labels]
    chance = sum(same) / len(labels) / (len(labels) - 1)
    rows = where(table(folder, "baselines"), baseline=name, metric="neighbor_agreement")
    if rows.empty:
        raise KeyError(name)
    return student(
        [0.0 if math.isnan(value) else value - chance for value in rows["value"]]
    )  # NaN: sees no link at all


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
        "small-sigma-predicts-better": lambda: small_less_large(at, "hidden 0.5"),
        "small-sigma-predicts-better-shifted": lambda: small_less_large(at, "hidden 0.9"),
        "error-hardly-moves": lambda: between(at, error(at, "hidden 0.5"), 0.01, 2.0),
        "beats-linear": lambda: less_linear(at, "hidden 0.5", 0.2),
        "beats-correlation": lambda: less_correlation(at, *clusters, 0.01),
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
        "small-sigma-predicts-better": lambda: small_less_large(at, "hidden 0.5"),
        "small-sigma-predicts-better-shifted": lambda: small_less_large(at, "hidden 0.9"),
        "beats-linear": lambda: less_linear(at, "hidden 0.5", 0.2),
        "beats-correlation": lambda: less_correlation(at, *mirror, 0.01),
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


ON_NETWORKS = {
    **{f"{target}-modularity-falls-with-sigma": f"the run has no modularity ({target})" for target in NETWORKS},
    **{f"{target}-segregation-falls-with-sigma": f"the run has no segregation ({target})" for target in NETWORKS},
    "beats-connectivity-on-networks": "the run has no modularity of the baseline centred fc",
}


def before_networks(run: str) -> dict[str, str]:
    """Claims that a run on brains from before networks were known cannot be asked, with the reason."""
    older = run.startswith("brain-sigma") and "partitions" not in CONFIGS[run]["task"]
    return ON_NETWORKS if older else {}


def by_hand_transfer(at: Path) -> dict[str, Callable[[], Effect]]:
    def second_half(sigma: float, start: str, learn: bool, values: pd.Series) -> pd.Series:
        kept = where(finished(at), data="second half", sigma=sigma, start=start, learn=learn)
        if kept.empty:
            raise KeyError((sigma, start, learn))
        return kept.assign(value=kept["member"].map(values)).set_index("seed")["value"]

    def less(one: tuple[float, str, bool], other: tuple[float, str, bool]) -> Effect:
        errors = error_of_members(at, "hidden 0.5")
        return over_worlds(at, second_half(*one, errors) - second_half(*other, errors))

    def alike() -> Effect:
        values = of_members(at, "stability", "other data")
        small, large = (second_half(sigma, "normal", True, values) for sigma in (0.01, 2.0))
        return over_worlds(at, small - large)

    return {
        "another-half-serves-as-well": lambda: less((0.01, "taken", False), (0.01, "normal", True)),
        "another-half-beats-shuffled": lambda: less((0.01, "taken", False), (0.01, "shuffled", False)),
        "another-half-beats-random": lambda: less((0.01, "taken", False), (0.5, "normal", False)),
        "large-sigma-has-nothing-to-give": lambda: less((2.0, "shuffled", False), (2.0, "taken", False)),
        "halves-agree": alike,
    }


def by_hand_preprocessing(at: Path) -> dict[str, Callable[[], Effect]]:
    """Of all variants the one with the lowest lower limit; an interval is over splits of the people."""

    def falls(analysis: str, target: str) -> Effect:
        values, effects = of_members(at, analysis, target), []
        for variant, shape in config(at)["shapes"].items():
            kept = where(finished(at), data=variant)
            kept = kept.assign(value=kept["member"].map(values), split=kept["seed"] % shape["worlds"])
            means = kept.groupby(["sigma", "split"])["value"].mean().unstack("split")
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
        *("small-sigma-predicts-better", "small-sigma-predicts-better-shifted", "error-hardly-moves", "beats-linear"),
    },
    "synergy-sigma": {"error-is-the-least-possible", "error-hangs-on-sigma"},
    "brain-sigma": {"small-sigma-predicts-better", "small-sigma-predicts-better-shifted", "beats-linear"},
    "brain-transfer": {
        *("another-half-serves-as-well", "another-half-beats-shuffled", "another-half-beats-random"),
        "large-sigma-has-nothing-to-give",
    },
    "brain-preprocessing": set(),
}
"""Claims on errors: asked of models alone that were trained with the usual share hidden, which they speak of."""


def by_hand(folder: Path) -> dict[str, Effect | None]:
    """Every claim's effect with its interval; None where the tables do not have what it is about."""
    study, trained = config(folder)["study"], config(folder)["fields"]["hidden"]
    mute = OF_ERRORS[study] if trained != (0.3 if study == "synergy-sigma" else 0.5) else set()

    def asked(effect: Callable[[], Effect]) -> Effect | None:
        try:
            return effect()
        except KeyError:
            return None

    return {id: None if id in mute else asked(effect) for id, effect in BY_HAND[study](folder).items()}


UNASKED: dict[str, dict[str, str]] = {
    "synergy-sigma-512": {
        f"blind-{name.replace(' ', '-')}": f"the run has no structure of the baseline {name}"
        for name in ("mutual information", "partial correlation")
    },
    **{
        f"network-sigma-hidden-{100 * share:g}": dict.fromkeys(
            OF_ERRORS["network-sigma"], f"members were trained with {share:g} hidden, and not with 0.5"
        )
        for share in (0.15, 0.9)
    },
}
"""The claims that cannot be asked of a run, and the reason that is given; of all others, all can be."""


def said_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    """What `placecode claims FOLDER --json` says, by the id of the claim."""
    assert cli.main(["claims", str(folder), "--json"]) == 0, capsys.readouterr().err
    records = json.loads(capsys.readouterr().out)
    found = {record["id"]: record for record in records}
    assert len(found) == len(records)
    return found


def assert_agrees(said: dict[str, dict[str, Any]], folder: Path) -> dict[str, str]:
    """The claims that could not be asked, each with the reason that is given."""
    found = by_hand(folder)
    assert set(said) == set(found)
    for id, effect in found.items():
        told = [said[id][name] for name in ("effect", "low", "high")]
        if effect is None:
            assert told == [None, None, None], id
            assert said[id]["note"], id
            assert said[id]["direction"] == "undecided", id
            continue
        assert told == pytest.approx(effect, abs=1e-9), id
        assert said[id]["note"] == "", id
        assert said[id]["direction"] == direction(*effect[1:], said[id]["margin"], said[id]["way"]), id
    return {id: said[id]["note"] for id, effect in found.items() if effect is None}


def copied(folder: Path, to: Path, **changed: Any) -> Path:
    """A copy of a run with other tables, or another config."""
    to.mkdir()
    for name in TABLES:
        changed.get(name, table(folder, name)).to_parquet(to / f"{name}.parquet")
    (to / "config.json").write_text(json.dumps(changed.get("config", config(folder))))
    for name in ("environment.json", "summary.json"):
        (to / name).write_bytes((folder / name).read_bytes())
    return to


def test_the_runs_that_are_judged_are_there() -> None:
    """So that the tests below compare something."""
    assert {
        *("network-sigma", "network-sigma-50000", "network-sigma-window", "synergy-sigma", "synergy-sigma-512"),
        *("brain-sigma", "brain-sigma-50000", "brain-sigma-window"),
    } <= set(SWEEPS)
    assert {
        *("network-encodings", "brain-encodings", "synergy-encodings", "brain-mask", "brain-transfer"),
        *("network-noise-quick", "network-size-quick", "synergy-size"),
        *(f"synergy-size-60{what}" for what in ("", "-long", "-ramps", "-shares", "-widths")),
        *OLDER,
    } <= set(MASKED)
    assert {*SWEEPS, "brain-transfer", "brain-preprocessing"} == set(JUDGED)
    assert {*MASKED} - {*PICTURED} == {"brain-transfer"}
    assert {CONFIGS[run]["study"] for run in JUDGED} == set(BY_HAND) == set(OF_ERRORS)


def test_the_run_with_batches_of_512_differs_in_that_and_has_fewer_sigmas_and_baselines() -> None:
    one, two = (CONFIGS[run]["fields"] for run in ("synergy-sigma", "synergy-sigma-512"))
    assert {name for name in one if one[name] != two[name]} == {"batch", "sigmas", "against"} and set(one) == set(two)
    assert (one["batch"], two["batch"]) == (128, 512)
    assert two["sigmas"] == [0.05, 0.1, 0.2, 0.3, 0.5, 2.0] and two["against"] == ["linear", "fc"]


@pytest.mark.parametrize("run", JUDGED)
def test_claims_are_as_computed_by_hand(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert assert_agrees(said_of(ROOT / run, capsys), ROOT / run) == {**UNASKED.get(run, {}), **before_networks(run)}


@pytest.mark.parametrize("run", [run for run in MASKED if run not in JUDGED])
def test_a_study_without_claims_says_none(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said_of(ROOT / run, capsys) == {}


@pytest.mark.parametrize(
    ("run", "sigma", "name", "mute"),
    [
        (
            "network-sigma",
            0.01,
            "linear",
            {
                *("small-sigma-shows-clusters", "clusters-fall-with-sigma", "clusters-are-learned"),
                *("modularity-falls-with-sigma", "error-hardly-moves", "beats-linear", "beats-correlation"),
            },
        ),
        (
            "synergy-sigma",
            0.2,
            "fc",
            {"groups-are-found", "error-is-the-least-possible", "error-hangs-on-sigma", "blind-fc"},
        ),
        (
            "brain-sigma",
            2.0,
            "fc",
            {
                *("large-sigma-shows-none", "connectivity-falls-with-sigma", "modularity-falls-with-sigma"),
                "beats-correlation",
            },
        ),
        ("brain-transfer", 2.0, "fc", {"large-sigma-has-nothing-to-give", "halves-agree"}),
    ],
)
def test_a_claim_that_cannot_be_asked_says_so(
    run: str, sigma: float, name: str, mute: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sigma and a baseline are taken away."""
    members, baselines = table(ROOT / run, "members"), table(ROOT / run, "baselines")
    kept = {"members": members[members["sigma"] != sigma], "baselines": baselines[baselines["baseline"] != name]}
    copy = copied(ROOT / run, tmp_path / "less", **kept)
    if run == "brain-sigma":  # at a sigma that is gone nothing is higher or lower
        mute = mute | {id for id in ON_NETWORKS if id.endswith("falls-with-sigma")} | set(before_networks(run))
    assert set(assert_agrees(said_of(copy, capsys), copy)) == mute


@pytest.mark.parametrize("run", ["network-sigma", "synergy-sigma", "brain-sigma", "brain-transfer"])
def test_errors_are_not_judged_where_another_share_was_hidden_in_training(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = config(ROOT / run)
    usual, other = told["fields"]["ratios"]
    assert told["fields"]["hidden"] == usual
    copy = copied(ROOT / run, tmp_path / "other", config={**told, "fields": {**told["fields"], "hidden": other}})
    reason = f"members were trained with {other:g} hidden, and not with {usual:g}"
    expected = dict.fromkeys(OF_ERRORS[told["study"]], reason)
    assert assert_agrees(said_of(copy, capsys), copy) == {**expected, **before_networks(run)}


@pytest.mark.parametrize("run", ["network-sigma", "brain-sigma", "brain-transfer"])
def test_members_that_diverged_are_left_out_with_their_partners(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members = table(ROOT / run, "members").copy()
    members.loc[members["seed"].isin([3, 7]) & members["sigma"].isin([0.01, 0.2]), "state"] = "diverged"
    copy = copied(ROOT / run, tmp_path / "diverged", members=members)
    assert assert_agrees(said_of(copy, capsys), copy) == before_networks(run)
    id = next(iter(by_hand(copy)))
    assert by_hand(copy)[id] != pytest.approx(by_hand(ROOT / run)[id], abs=1e-6)


def test_one_world_has_intervals_over_seeds_and_several_have_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = ROOT / "brain-sigma"
    known = config(real)
    one = copied(real, tmp_path / "one", config={**known, "shape": {**known["shape"], "worlds": 1}})
    said, alone = said_of(real, capsys), said_of(one, capsys)
    assert_agrees(alone, one)
    mirrors = student(measure(real, "mirror_agreement", "partner").loc[0.01].to_numpy())
    for record, same in ((alone, True), (said, False)):
        bounds = [record["small-sigma-shows-mirrors"][name] for name in ("low", "high")]
        assert (bounds == pytest.approx(mirrors[1:], abs=1e-9)) == same
