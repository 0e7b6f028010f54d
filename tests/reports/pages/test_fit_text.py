"""Sentences on a fit follow from what was found: checked on made-up results."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.made_up_own import made_up, scored

from placecode.experiments.channels.fit_result import FitResult
from placecode.reports.pages.fit_text import headline, lead, sentences, verdict

NO_OTHER = {"heldout_mse": 1.01}
"""Other methods predict nothing."""


def about(result: FitResult, words: str) -> list[str]:
    """The sentences with these words."""
    return [sentence for sentence in sentences(result) if words in sentence]


def test_structure_that_was_found() -> None:
    result = made_up()
    for number in ("75% ", "p = 0.005", "held-out error 0.250", "1.000 for guessing", "0.375 for a linear"):
        assert number in headline(result)
    assert (verdict(result).kind, verdict(result).sentence) == ("found", headline(result))
    assert sentences(result)[0] == headline(result)


@pytest.mark.parametrize(("p_value", "heldout_mse"), [(0.31, 0.99), (0.005, 1.02), (0.051, 0.99)])
def test_structure_that_was_not_found(p_value: float, heldout_mse: float) -> None:
    """An error above that of the means is no structure however small p is."""
    result = scored(made_up(p_value=p_value, heldout_mse=heldout_mse, linear_mse=1.01), {}, NO_OTHER)
    assert headline(result).startswith("No structure found:") and f"p = {p_value:g}" in headline(result)
    assert (result.has_structure, result.verdict, verdict(result).kind) == (False, "no structure found", "not found")
    assert not about(result, "Look at the map") and not about(result, "confidence")
    assert made_up(p_value=0.05, heldout_mse=0.99).has_structure  # the limit


def test_channels_without_a_place_are_named() -> None:
    whole = made_up()

    def without(count: int, **changes: Any) -> FitResult:
        lost = np.arange(8) < count
        ours = replace(whole.ours, labels=np.where(lost, -1, whole.ours.labels))
        return made_up(ours=ours, confidence=np.where(lost, 0, whole.confidence), **changes)

    (line,) = about(without(2), "grey on the map")
    assert line.startswith("2 channels are ") and line.endswith(": c1, c2.")
    assert about(without(2), f"mean confidence of {whole.confidence[2:].mean():.2f} ")  # of those that have a position
    assert about(without(8), "no reliable map") and not about(without(8), "mean confidence")
    for result in (whole, without(8, p_value=0.3)):
        assert not about(result, "grey on the map")


def test_a_map_that_fits_do_not_agree_on() -> None:
    result = made_up(confidence=np.full(8, 0.1), stability={2: 0.2})
    assert verdict(result).kind == "unsure" and about(result, "least certain positions: c1, c2, c3, c4, c5.")
    assert not about(made_up(), "least certain") and about(made_up(), "mean confidence of 0.77 ")
    assert about(made_up(confidence=np.full(8, np.nan)), "Only one model was trained")


OURS = {"ari": 0.96, "ari_p": 0.005, "neighbor_agreement": 1.0, "neighbor_agreement_p": 0.005}
CHANCE = {"ari": 0.02, "ari_p": 0.4, "neighbor_agreement": 0.1, "neighbor_agreement_p": 0.6}
ALONE = "Structure found that no pairwise method beside it sees: "
IN_PART = "Structure found that linear predictors miss, but other methods see in part: "
NOT_LINEAR = "Structure found that linear predictors miss: "


def planted(ours: dict[str, float], others: dict[str, float], **by_method: dict[str, Any]) -> FitResult:
    """A fit of structure that linear predictors miss; all other methods have these scores, and some of them more."""
    result = scored(made_up(linear_mse=0.98), ours, others | {"heldout_mse": 0.97})
    scores = {name: {**method.scores, **by_method.get(name, {})} for name, method in result.others.items()}
    return replace(result, others={name: replace(result.others[name], scores=scores[name]) for name in scores})


def test_groups_that_no_pairwise_method_sees() -> None:
    first = headline(planted(OURS, CHANCE))
    assert first.startswith(f"{ALONE}its modules match the known groups (ARI 0.96, p = 0.005)")
    predicted = scored(made_up(linear_mse=0.98), OURS, CHANCE)  # PCA explains half of the variance
    assert headline(predicted).startswith("Structure found: ")


@pytest.mark.parametrize("score", ["ari", "neighbor_agreement"])
@pytest.mark.parametrize("name", ["correlation", "pca", "umap"])
@pytest.mark.parametrize(("p", "start"), [(0.005, IN_PART), (0.05, IN_PART), (0.055, ALONE), (None, ALONE)])
def test_one_method_at_p_005_on_any_measure_decides(score: str, name: str, p: float | None, start: str) -> None:
    """p of None: the method could not be tested on this measure."""
    result = planted(OURS, CHANCE, **{name: {f"{score}_p": p, score: None if p is None else 0.2}})
    assert headline(result).startswith(start)


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
    assert headline(planted(ours, others)).startswith(f"{NOT_LINEAR}the other channels explain 75%")
    assert headline(scored(made_up(), ours, others)).startswith("Structure found: the other channels explain 75%")


def test_no_method_is_called_blind_where_none_was_compared() -> None:
    assert headline(replace(planted(OURS, CHANCE), others={})).startswith(NOT_LINEAR)


def test_no_sentence_has_a_missing_value() -> None:
    lost = made_up(confidence=np.full(8, np.nan), pairs=np.full((8, 8), np.nan), stability={})
    for result in (lost, scored(made_up(), {"procrustes_r2": float("nan"), "ari": 1.0, "ari_p": 0.01}, CHANCE)):
        for line in [*sentences(result), *lead(result), verdict(result).sentence]:
            assert line.endswith(".") and "nan" not in line.lower() and "None" not in line
