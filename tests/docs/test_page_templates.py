"""Templates of pages: a sentence needs its condition, and a name that is not there is an error."""

from __future__ import annotations

import math
from pathlib import Path

import jinja2
import pytest
from helpers.scripts import load

from placecode.analysis.stats import Interval

templates = load(Path(__file__).parents[2] / "docs" / "pages" / "templating.py")
SENTENCE = "{% call say(low > 0) %}\nSmall sigmas\ndo better, {{ low | fmt('.2f') }}.\n{% endcall %}\nNext."


def rendered(text: str, **context: object) -> str:
    return str(templates.environment(trim=True).from_string(text).render(context))


def test_a_sentence_is_written_on_one_line_if_its_condition_is_true() -> None:
    assert rendered(SENTENCE, low=0.123) == "Small sigmas do better, 0.12.\nNext."


def test_a_sentence_is_refused_if_its_condition_is_false() -> None:
    with pytest.raises(SystemExit, match="the tables no longer say so; write anew: Small sigmas do better"):
        rendered(SENTENCE, low=-0.1)


@pytest.mark.parametrize("condition", [[0.0], "no", 1, None])
def test_a_condition_that_is_no_boolean_is_an_error(condition: object) -> None:
    """A list that is not empty counts as true: its sentence could never be refused."""
    with pytest.raises(TypeError, match="a condition must be a boolean"):
        rendered("{% call say(condition) %}So it is.{% endcall %}", condition=condition)


def test_a_name_that_is_not_there_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        rendered(SENTENCE)


def test_lists_and_numbers() -> None:
    text = "{% for name in names %}{{ joint(loop) }}{{ name }}{% endfor %}"
    for names in (["a"], ["a", "b"], ["a", "b", "c"]):
        assert rendered(text, names=names) == templates.listed(names)
    assert templates.listed(["a", "b", "c"]) == "a, b and c"
    assert [templates.share(value) for value in (0.125, math.nan)] == ["12%", ""]
    difference = Interval(0.5, -0.25, 1.25)
    assert rendered("{{ x | signed }}; {{ x | plain(1) }}", x=difference) == "+0.50 (-0.25 to +1.25); 0.5 (-0.2 to 1.2)"
