"""Templates of pages: a sentence is refused if its condition is false; undefined names; formats of numbers."""

import math
from pathlib import Path

import jinja2
import pytest
from helpers.scripts import load

from placecode.analysis.stats import Interval

templating = load(Path(__file__).parents[2] / "docs" / "pages" / "templating.py")
SENTENCE = "{% call say(low > 0) %}\nSmall sigmas\ndo better, {{ low | fmt('.2f') }}.\n{% endcall %}"


def rendered(text: str, trim: bool = False, **context: object) -> str:
    return str(templating.environment(trim).from_string(text).render(context))


def test_a_sentence_is_written_on_one_line_if_its_condition_is_true() -> None:
    assert rendered(SENTENCE, low=0.123) == "Small sigmas do better, 0.12."
    assert rendered(SENTENCE + "\nNext.", trim=True, low=0.123) == "Small sigmas do better, 0.12.\nNext."


def test_a_sentence_is_refused_if_its_condition_is_false() -> None:
    with pytest.raises(SystemExit, match="the tables no longer say so; write anew: Small sigmas do better"):
        rendered(SENTENCE, low=-0.1)


@pytest.mark.parametrize("condition", [[0.0], "no", 1, None])
def test_a_condition_that_is_not_a_boolean_is_an_error(condition: object) -> None:
    """A list that is not empty counts as true, so its sentence would never be refused."""
    with pytest.raises(TypeError, match="a condition must be a boolean"):
        rendered("{% call say(condition) %}So it is.{% endcall %}", condition=condition)


def test_an_undefined_name_is_an_error() -> None:
    for text in (SENTENCE, "{% call say(finding.direction == HOLDS) %}It is so.{% endcall %}"):
        with pytest.raises(jinja2.UndefinedError):
            rendered(text, finding={})


def test_conditions_on_several_intervals() -> None:
    low, middle, high = Interval(-0.5, -0.6, -0.4), Interval(0.0, -0.1, 0.1), Interval(0.5, 0.4, 0.6)
    assert templating.above(0, [high, high]) and not templating.above(0, [high, middle])
    assert templating.below(0, [low, low]) and not templating.below(0, [low, middle])
    assert templating.include_zero([middle, middle])
    assert not templating.include_zero([middle, high]) and not templating.include_zero([low])


def test_lines_of_a_template_are_joined_and_tables_are_kept() -> None:
    text = "# Title\n\none\ntwo\n\n\n- a\n  b\n- c\n\n| x |\n|---|\n| 1 |\n"
    assert templating.unwrap(text) == "# Title\n\none two\n\n- a b\n- c\n\n| x |\n|---|\n| 1 |\n"


@pytest.mark.parametrize(
    ("text", "value", "result"),
    [
        ("{{ x | percent }}", Interval(0.25, 0.2, 0.304), "25% (20 to 30%)"),
        ("{{ x | signed }}", Interval(-0.0214, -0.1, 0.0571), "-0.02 (-0.10 to +0.06)"),
        ("{{ x | signed }}", Interval(0.5, math.nan, math.nan), "+0.50"),  # one seed
        ("{{ x | plain(1) }}", Interval(0.5, -0.25, 1.25), "0.5 (-0.2 to 1.2)"),
        ("{{ x | bounds }}", Interval(0.5, math.nan, math.nan), ""),
        ("{{ x | share }}", 0.125, "12%"),
        ("{{ x | share }}", math.nan, ""),
        ("{{ x | counted('seed') }}", 1, "1 seed"),
        ("{{ x | counted('seed') }}", 1200, "1,200 seeds"),
    ],
)
def test_numbers(text: str, value: object, result: str) -> None:
    assert rendered(text, x=value) == result


def test_lists_and_tables() -> None:
    text = "{% for name in names %}{{ list_separator(loop) }}{{ name }}{% endfor %}"
    for names, result in ((["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")):
        assert rendered(text, names=names) == rendered("{{ names | listed }}", names=names) == result
    assert templating.grid(("a", "b"), [("1", "2"), ("3", "")]) == "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 |  |"
