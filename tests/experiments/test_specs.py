"""Encodings as short texts: parsing, names, and lookup in a table of members."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from placecode.errors import BadInput
from placecode.experiments import specs
from placecode.experiments.latin.squares import LstEncodings
from placecode.experiments.specs import (
    SIGMA,
    encoding_label,
    encoding_spec,
    label_of,
    named,
    option,
)
from placecode.models.member import Member
from placecode.runs.read import member_table


def test_examples_in_the_module_hold() -> None:
    assert doctest.testmod(specs).failed == 0
    assert doctest.testmod(specs).attempted > 0


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("axes=2", ("axes", 2)),
        ("fraction=0.5", ("fraction", 0.5)),
        ("base=1e4", ("base", 10000.0)),
        ("distance=manhattan", ("distance", "manhattan")),
        ("a=b=c", ("a", "b=c")),
        ("causal=-1", ("causal", -1)),
    ],
)
def test_options_are_numbers_where_they_read_as_such(text: str, pair: tuple[str, Any]) -> None:
    assert option(text) == pair
    assert type(option(text)[1]) is type(pair[1])


@pytest.mark.parametrize(
    ("text", "encoding", "sigma", "options"),
    [
        ("learned", "learned", 0.2, {}),
        ("learned:sigma=2", "learned", 2, {}),
        ("random:sigma=0.5", "random", 0.5, {}),
        ("relative:axes=2:sigma=1", "relative", 1, {"axes": 2}),
        ("relative:causal=1", "relative", 0.2, {"causal": 1}),
        ("sinusoid", "sinusoid", None, {}),
        ("sinusoid:axes=2", "sinusoid", None, {"axes": 2}),
        ("none", "none", None, {}),
        ("rotary:fraction=0.5:axes=2", "rotary", None, {"fraction": 0.5, "axes": 2}),
        ("alibi", "alibi", None, {}),
        ("causal-none:temperature=0.01", "causal-none", None, {"temperature": 0.01}),
    ],
)
def test_a_text_gives_the_fields_of_a_member(
    text: str, encoding: str, sigma: float | None, options: dict[str, Any]
) -> None:
    assert encoding_spec(text) == {"encoding": encoding, "sigma": sigma, "options": options}
    Member(**encoding_spec(text))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("sinusoid:sigma=1", "sigma"),
        ("rotary:sigma=0.2", "sigma"),
        ("learned:sigma=big", "sigma"),
        ("learned:sigma", "options"),
        ("learned:=2", "options"),
        ("learned:axes=", "options"),
        ("sinusoid:axes=2:", "options"),
        ("", "encoding"),
        ("lerned", "encoding"),
        (":axes=2", "encoding"),
    ],
)
def test_bad_texts_are_refused(text: str, name: str) -> None:
    with pytest.raises(BadInput) as error:
        Member(**encoding_spec(text))
    assert error.value.name == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("learned", f"learned, {SIGMA} 0.2"),
        ("learned:sigma=1", f"learned, {SIGMA} 1"),
        ("random:sigma=0.2", f"random, {SIGMA} 0.2"),
        ("sinusoid", "1d-fixed"),
        ("sinusoid:axes=2", "2d-fixed"),
        ("sinusoid:axes=2:base=100", "2d-fixed, base 100"),
        ("none", "NoPE"),
        ("relative", "relative"),
        ("relative:sigma=1", f"relative, {SIGMA} 1"),
        ("relative:axes=2", "relative 2-D"),
        ("relative:causal=1", "relative, causal"),
        ("rotary:axes=2", "rotary 2-D"),
        ("rotary:fraction=0.5", "rotary, fraction 0.5"),
        ("alibi:axes=2", "alibi 2-D"),
        ("causal-none:temperature=0.01", "NoPE with a causal mask, temperature 0.01"),
    ],
)
def test_encodings_are_shown_under_a_name_that_says_what_they_are(text: str, name: str) -> None:
    member = Member(**encoding_spec(text))
    assert label_of(member) == encoding_label(**encoding_spec(text)) == name
    (found,) = named(member_table([7], [member]))["name"]
    assert found == name


def test_no_two_encodings_of_the_study_share_a_name_and_each_finds_its_own_members() -> None:
    study = LstEncodings.at("paper", seeds=(0, 1))
    members = study.members()
    table = member_table(range(len(members)), members)
    names = named(table).drop_duplicates(["name", "encoding", "options", "sigma"])["name"]
    assert len(set(names)) == len(names) == len(study.encodings) == 19
    numbers = []
    for text in study.encodings:
        for rate in study.dropouts:
            same = (table["label"] == encoding_label(**encoding_spec(text))) & (table["dropout"] == rate)
            found = table.loc[same, "member"].tolist()
            assert len(found) == 2
            numbers += found
    assert numbers == list(range(len(members)))  # in the order of the study
