"""Templates of reports: sentences are paragraphs, captions are all in use, and an undefined name is an error."""

from pathlib import Path

import jinja2
import pytest

from placecode.reports import wording

PAGES = wording.TEMPLATES.parent


def test_every_caption_and_template_is_used() -> None:
    source = "".join(path.read_text() for path in PAGES.glob("*.py"))
    for page, captions in wording._captions().items():
        for name in captions:
            assert f'"{page}.{name}"' in source
    templates = "".join(path.read_text() for path in wording.TEMPLATES.glob("*.j2"))
    for path in wording.TEMPLATES.glob("*.j2"):
        assert f'"{path.stem}"' in source or f'"{path.name}"' in templates


def test_every_template_is_part_of_the_package() -> None:
    settings = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    for path in wording.TEMPLATES.iterdir():
        assert f"reports/pages/templates/*{path.suffix}" in settings


def test_paragraphs_are_sentences_on_one_line() -> None:
    assert wording.paragraphs("\none\n two\n\n\n three\n") == ["one two", "three"]
    assert wording.sentences("diverged", diverged=0, total=3) == []
    (sentence,) = wording.sentences("diverged", diverged=1, total=3)
    assert sentence.startswith("1 of 3 members diverged")


def test_an_undefined_name_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        wording.sentences("diverged", total=3)
    with pytest.raises(jinja2.UndefinedError):
        wording.caption("knob.accuracy", knob="heads")
