"""What is said of a fit is what was found, whatever that is: by fits that are made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.made_up_own import made_up, scored

from placecode.experiments.channels.own_results import Found
from placecode.reports.pages.own_figures import listings
from placecode.reports.pages.own_words import headline, in_short, sentences, verdict

BLIND = {"heldout_mse": 0.97}


def test_structure_that_was_found() -> None:
    found = made_up()
    assert headline(found) == (
        "Structure found: the other channels explain 75% of the variance of a hidden channel (p = 0.005; held-out "
        "error 0.250, against 1.000 for guessing the mean and 0.375 for a linear predictor)."
    )
    assert sentences(found)[0] == headline(found)
    assert (verdict(found).kind, verdict(found).sentence) == ("found", headline(found))


NOBODY = {"heldout_mse": 1.01}


def test_structure_that_was_not_found() -> None:
    found = scored(made_up(p_value=0.31, heldout_mse=1.02, linear_mse=1.01), {}, NOBODY)
    assert headline(found) == (
        "No structure found: the models predict hidden channels no better than they do after the channels are shifted "
        "against each other (p = 0.31; held-out error 1.020, against 1.000 for guessing the mean and 1.010 for a "
        "linear predictor); the map below is not to be read."
    )
    assert verdict(found).kind == "not found"
    assert not any("Look at the map" in line or "confidence" in line for line in sentences(found))


def test_structure_that_only_others_find_is_said_to_be_there() -> None:
    found = made_up(p_value=0.31, heldout_mse=1.02)
    said = (
        "while correlation + MDS explains 62% of the variance of a hidden channel: train longer (more steps), or read "
        "that method's map, not the one below."
    )
    assert found.verdict == "no structure found"
    assert headline(found).startswith("No structure found by these models, though there is some: the models predict")
    assert headline(found).endswith(said)
    little = made_up(heldout_mse=0.99)  # they have learned next to nothing
    assert (
        "These models have not learned all there is: correlation + MDS explains 62% of the variance of a hidden "
        "channel: train longer (more steps), or read that method's map."
    ) in sentences(little)
    assert not any("have not learned all" in line for line in sentences(made_up(heldout_mse=0.47)))


def test_channels_predicted_worse_than_by_their_means_are_no_structure_however_small_p_is() -> None:
    found = scored(made_up(p_value=0.005, heldout_mse=1.02, linear_mse=1.01), {}, NOBODY)
    assert (found.found, found.verdict, verdict(found).kind) == (False, "no structure found", "not found")
    assert headline(found) == (
        "No structure found: hidden channels are predicted worse than by guessing their means (held-out error 1.020, "
        "against 1.000 for guessing the mean and 1.010 for a linear predictor; p = 0.005 against shifted channels); "
        "the map below is not to be read."
    )
    assert not any("Look at the map" in line for line in sentences(found))
    assert made_up(p_value=0.05, heldout_mse=0.99).found and not made_up(p_value=0.051, heldout_mse=0.99).found


def test_channels_without_a_place_are_named() -> None:
    own = made_up()

    def without(count: int, **given: Any) -> Found:
        lost = np.arange(8) < count
        told = replace(own.ours, labels=np.where(lost, -1, own.ours.labels))
        return made_up(ours=told, confidence=np.where(lost, 0, own.confidence), **given)

    two = sentences(without(2))
    assert (
        "2 channels have no more to do with the others than chance may bring, in these 2,400 test samples, and so no "
        "module and no place that can be trusted (grey on the map): c1, c2."
    ) in two
    assert any(line.startswith("The 6 channels that have a place fall into 2 modules") for line in two)
    assert any(f"mean confidence of {own.confidence[2:].mean():.2f} " in line for line in two)  # of those that have one
    assert not any("least sure" in line for line in two)
    assert any(line.startswith("1 channel has no more to do with the others") for line in in_short(without(1)))
    none = sentences(without(8))
    assert "No single channel surely has to do with the others: there is something, but no map to be trusted." in none
    assert not any("mean confidence" in line or "do not agree on a map" in line for line in none)
    for found in (own, without(8, p_value=0.3)):  # all have a place; nothing was found, which is said already
        assert not any("no more to do with" in line for line in sentences(found))


def test_of_many_channels_without_a_place_the_first_are_named() -> None:
    lost = made_up(12)
    lost = replace(lost, ours=replace(lost.ours, labels=np.where(np.arange(12) < 10, -1, 0)))
    assert any(line.endswith(": c1, c2, c3, c4, c5, c6, c7, c8 and 2 more.") for line in sentences(lost))


def test_a_map_that_fits_do_not_agree_on() -> None:
    found = made_up(confidence=np.full(8, 0.1), stability={2: 0.2})
    assert verdict(found).kind == "unsure"
    said = " ".join(sentences(found))
    assert "That is little: the models use what channels have in common, but do not agree on a map of them." in said
    assert (
        "The 8 channels fall into 2 modules, with which those of a fit that had no part in them agree with an ARI of "
        "0.20 (0 = chance, 1 = the same)."
    ) in said
    assert "least sure of their place: c1, c2, c3, c4, c5." in said
    sure = " ".join(sentences(made_up()))
    assert "That is little" not in sure and "do not rely" not in sure and "least sure" not in sure
    assert "mean confidence of 0.77 (0 = random, 1 = the same); 1 pair of channels" in sure


OURS = {"ari": 0.96, "ari_p": 0.005, "neighbor_agreement": 1.0, "neighbor_agreement_p": 0.005}
CHANCE = {"ari": 0.02, "ari_p": 0.4, "neighbor_agreement": 0.1, "neighbor_agreement_p": 0.6}
ALONE, IN_PART, NOT_LINEAR = (
    f"Structure found that {words}: "
    for words in (
        "no pairwise method beside it sees",
        "linear predictors miss, but other methods see in part",
        "linear predictors miss",
    )
)


def planted(ours: dict[str, float], others: dict[str, float], **by_method: dict[str, Any]) -> Found:
    """A fit of structure that linear predictors miss; all other methods have these scores, and some of them more."""
    found = scored(made_up(linear_mse=0.98), ours, others | BLIND)
    changed = {
        name: replace(method, scores={**method.scores, **by_method.get(name, {})})
        for name, method in found.others.items()
    }
    return replace(found, others=changed)


def test_groups_that_no_pairwise_method_sees() -> None:
    said = headline(planted(OURS, CHANCE))
    assert said.startswith(
        f"{ALONE}its modules match the known groups (ARI 0.96, p = 0.005), while those of correlation + MDS, PCA and "
        "UMAP are at chance (ARI 0.02 to 0.02), and so are the nearest neighbours of correlation + MDS, PCA and UMAP "
        "(all p > 0.05); the other channels explain 75% of the variance of a hidden channel (p = 0.005; "
    )
    predicted = scored(made_up(linear_mse=0.98), OURS, CHANCE)  # PCA explains half of the variance
    assert headline(predicted).startswith("Structure found: ")


@pytest.mark.parametrize("score", ["ari", "neighbor_agreement"])
@pytest.mark.parametrize("name", ["correlation", "pca", "umap"])
@pytest.mark.parametrize(("p", "start"), [(0.005, IN_PART), (0.05, IN_PART), (0.055, ALONE), (None, ALONE)])
def test_one_method_at_p_005_on_any_measure_of_the_table_decides(
    score: str, name: str, p: float | None, start: str
) -> None:
    """p of None: the method could not be tested on this measure."""
    found = planted(OURS, CHANCE, **{name: {f"{score}_p": p, score: None if p is None else 0.2}})
    assert headline(found).startswith(start)
    assert verdict(found).sentence == sentences(found)[0] == headline(found)


def test_what_other_methods_see_is_said_with_the_numbers_of_the_table() -> None:
    found = planted(OURS, CHANCE, correlation={"neighbor_agreement": 0.4, "neighbor_agreement_p": 0.04})
    found = replace(
        found, others={**found.others, "pca": planted({}, CHANCE | {"ari": 0.2, "ari_p": 0.01}).others["pca"]}
    )
    assert headline(found).startswith(
        f"{IN_PART}correlation + MDS sees true neighbours (share 0.40, p = 0.04) and PCA sees the groups (ARI 0.20, "
        "p = 0.01) (p <= 0.05 in 2 of 6 tests); the other channels explain 75% "
    )
    table = next(each for each in listings(found) if each.title == "Beside other methods")
    column = {name: place for place, name in enumerate(table.columns)}
    shown = {row[0]: row for row in table.rows}
    assert shown["correlation + MDS"][column["p of the neighbours"]] == 0.04
    assert shown["PCA"][column["p of the ARI"]] == 0.01


def test_a_method_without_neighbours_is_not_said_to_have_any() -> None:
    found = planted(OURS, CHANCE, pca={"neighbor_agreement": None, "neighbor_agreement_p": None})
    assert "and so are the nearest neighbours of correlation + MDS and UMAP (all p > 0.05)" in headline(found)
    groups = {name: value for name, value in CHANCE.items() if name.startswith("ari")}
    assert "nearest neighbours" not in headline(planted(OURS, groups))


@pytest.mark.parametrize(
    ("ours", "others"),
    [
        (OURS, CHANCE | {"ari": 0.3}),  # with few channels p may be large all the same
        (OURS | {"ari": 0.4}, CHANCE),  # our modules do not match well
        (OURS | {"ari_p": 0.2}, CHANCE),  # or match by chance
        (OURS | {"ari": None, "ari_p": None}, CHANCE),
        ({}, {}),
    ],
)
def test_our_modules_must_match_and_those_of_others_must_not(ours: dict[str, Any], others: dict[str, float]) -> None:
    said = f"{NOT_LINEAR}the other channels explain 75% of the variance of a hidden channel"
    assert headline(planted(ours, others)).startswith(said)
    linear = scored(made_up(), ours, others)
    assert headline(linear).startswith("Structure found: the other channels explain 75%")


def test_no_method_is_called_blind_where_none_was_compared() -> None:
    found = planted(OURS, CHANCE)
    assert headline(replace(found, others={})).startswith(NOT_LINEAR)


def test_a_baseline_that_wins_is_named_first() -> None:
    found = scored(
        made_up(heldout_mse=0.4),
        {"heldout_mse": 0.4, "procrustes_r2": 0.5, "neighbor_agreement": 0.8, "ari": 0.3, "ari_p": 0.2},
        {"procrustes_r2": 0.75, "neighbor_agreement": 0.5, "ari": 0.3, "ari_p": 0.2},
    )
    said = sentences(found)
    assert "Lowest error on held-out samples: correlation + MDS, 0.375; placecode 0.400, PCA 0.500." in said
    assert (
        "Map nearest to the known positions (Procrustes R2): correlation + MDS, PCA and UMAP, 0.75; placecode 0.50."
        in said
    )
    assert (
        "Nearest channel is a true neighbour most often: placecode, 0.80; correlation + MDS 0.50, PCA 0.50, UMAP 0.50."
        in said
    )
    assert "Modules nearest to the known groups (ARI): placecode, correlation + MDS, PCA and UMAP, 0.30." in said
    assert "graphical lasso was left out: it did not converge." in said
    assert in_short(found)[2:4] == said[3:5]


def test_ours_is_named_first_where_it_wins() -> None:
    assert "Lowest error on held-out samples: placecode, 0.250; correlation + MDS 0.375, PCA 0.500." in sentences(
        made_up()
    )


def test_what_was_lost_is_said() -> None:
    facts = {"samples": 12_000, "channels": 8, "left out": 3, "train": 7_200, "test": 2_400, "diverged": 1, "memory": 0}
    last = sentences(made_up(facts=facts))[-1]
    assert last == (
        "12,000 samples of 8 channels: 7,200 to learn from, 2,400 for the numbers above, the rest to choose sigma and "
        "gaps between blocks; 3 channels that do not vary were left out; 1 model diverged and was left out."
    )
    assert sentences(made_up())[-1].endswith("gaps between blocks.")


def test_every_sentence_ends_with_a_full_stop_and_none_has_a_nan() -> None:
    for found in (
        made_up(),
        made_up(p_value=0.5),
        made_up(confidence=np.full(8, np.nan), pairs=np.full((8, 8), np.nan), stability={}),
        scored(made_up(), {"procrustes_r2": float("nan"), "ari": 1.0, "ari_p": 0.01}, CHANCE),
    ):
        for line in [*sentences(found), *in_short(found), verdict(found).sentence]:
            assert line.endswith(".") and "nan" not in line.lower() and "None" not in line


def test_channels_that_drift_are_warned_of() -> None:
    facts = {"samples": 2_000, "channels": 8, "left out": 0, "train": 1_200, "test": 400, "diverged": 0, "memory": 26}
    (line,) = [line for line in sentences(made_up(facts=facts)) if "drift" in line]
    assert line.startswith(
        "The channels remember their past for 26 samples or more, which is long for blocks or groups"
    )
    assert " of 100: " in line
    assert not any("drift" in line for line in sentences(made_up(facts={**facts, "piece": 200})))
    single = made_up(facts=facts, confidence=np.full(8, np.nan))
    assert line in sentences(single)
    assert not any("drift" in line for line in sentences(made_up(facts={**facts, "memory": 25})))
