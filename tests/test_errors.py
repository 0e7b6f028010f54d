"""The sentences for what cannot be used."""

from __future__ import annotations

import doctest

from placecode import errors


def test_the_examples_of_the_docstrings_hold() -> None:
    found = doctest.testmod(errors)
    assert found.failed == 0 and found.attempted > 3
