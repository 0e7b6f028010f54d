"""Encodings as short texts: parsing, names, and lookup in a table of members."""

from typing import Any

import pytest
from helpers.refusal import refused

from placecode.experiments.latin.squares import LstEncodings
from placecode.experiments.specs import SIGMA, encoding_label, parse_encoding, parse_option, with_encoding_names
from placecode.models.member import Member
from placecode.runs.tables import member_table


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
def test_options_are_numbers_if_they_can_be_parsed(text: str, pair: tuple[str, Any]) -> None:
    assert parse_option(text) == pair
    assert type(parse_option(text)[1]) is type(pair[1])


@pytest.mark.parametrize(
    ("text", "encoding", "sigma", "options"),
    [
        ("learned", "learned", 0.2, {}),
        ("relative:axes=2:sigma=1", "relative", 1, {"axes": 2}),
        ("relative:causal=1", "relative", 0.2, {"causal": 1}),
        ("sinusoid", "sinusoid", None, {}),
        ("rotary:fraction=0.5:axes=2", "rotary", None, {"fraction": 0.5, "axes": 2}),
        ("causal-none:temperature=0.01", "causal-none", None, {"temperature": 0.01}),
    ],
)
def test_a_text_gives_the_fields_of_a_member(text: str, encoding: str, sigma: float | None, options: Any) -> None:
    assert parse_encoding(text) == {"encoding": encoding, "sigma": sigma, "options": options}
    Member(**parse_encoding(text))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("sinusoid:sigma=1", "sigma"),
        ("learned:sigma=big", "sigma"),
        ("learned:sigma", "options"),
        ("learned:=2", "options"),
        ("sinusoid:axes=2:", "options"),
        ("", "encoding"),
        ("lerned", "encoding"),
        (":axes=2", "encoding"),
    ],
)
def test_bad_texts_are_refused(text: str, name: str) -> None:
    assert refused(lambda: Member(**parse_encoding(text))).name == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("learned", f"learned, {SIGMA} 0.2"),
        ("random:sigma=0.2", f"random, {SIGMA} 0.2"),
        ("sinusoid", "1d-fixed"),
        ("sinusoid:axes=2", "2d-fixed"),
        ("sinusoid:axes=2:base=100", "2d-fixed, base 100"),
        ("none", "NoPE"),
        ("relative", "relative"),
        ("relative:sigma=1", f"relative, {SIGMA} 1"),
        ("relative:axes=2", "relative 2-D"),
        ("relative:causal=1", "relative, causal"),
        ("rotary:fraction=0.5", "rotary, fraction 0.5"),
        ("causal-none:temperature=0.01", "NoPE with a causal mask, temperature 0.01"),
    ],
)
def test_labels_name_encoding_axes_and_options(text: str, name: str) -> None:
    fields = parse_encoding(text)
    member = Member(**fields)
    assert encoding_label(member.encoding, member.sigma, member.options) == encoding_label(**fields) == name
    assert with_encoding_names(member_table([7], [member]))["name"].tolist() == [name]


def test_labels_of_lst_encodings_differ_and_select_their_members() -> None:
    experiment = LstEncodings.from_scale("paper", seeds=(0, 1))
    members = experiment.members()
    table = member_table(range(len(members)), members)
    names = with_encoding_names(table).drop_duplicates(["name", "encoding", "options", "sigma"])["name"]
    assert len(set(names)) == len(names) == len(experiment.encodings) == 19
    numbers = []
    for text in experiment.encodings:
        for rate in experiment.dropouts:
            same = (table["label"] == encoding_label(**parse_encoding(text))) & (table["dropout"] == rate)
            of_setting = table.loc[same, "member"].tolist()
            assert len(of_setting) == 2
            numbers += of_setting
    assert numbers == list(range(len(members)))  # in the order of the experiment
