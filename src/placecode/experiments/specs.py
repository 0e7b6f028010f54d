"""Parse short texts of encodings, such as "learned:sigma=0.2" or "sinusoid:axes=2", and name encodings in figures."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from placecode.encodings import lookup
from placecode.errors import must_be

SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
DEFAULT_SIGMA = 0.2
"""The sigma (initial scale) that `parse_encoding` gives to encodings with random initial values, unless the text sets
it."""
ALWAYS_WITH_SIGMA = ("learned", "random")
"""Encodings whose name in figures always includes sigma. Other names include it only if it is not DEFAULT_SIGMA."""
ENCODING_NAMES = {"none": "NoPE", "causal-none": "NoPE with a causal mask"}
"""Encodings that have another name in figures than on the command line."""


def parse_option(text: str) -> tuple[str, Any]:
    """Parse a text NAME=VALUE into a pair. The value is a number if it can be read as one."""
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise must_be("options", "NAME=VALUE, such as axes=2", text)
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return name, number(value)
    return name, value


def parse_encoding(text: str) -> dict[str, Any]:
    """Parse a text into fields of a `Member`: encoding, sigma (None if initial values are not random) and options.

    >>> parse_encoding("random:sigma=1")
    {'encoding': 'random', 'sigma': 1, 'options': {}}
    """
    name, *rest = text.split(":")
    options = dict(parse_option(part) for part in rest)
    uses_sigma = lookup(name).uses_sigma
    if "sigma" in options and not uses_sigma:
        raise must_be(
            "sigma", f"left out for the encoding {name}, which has no random initial values", options["sigma"]
        )
    sigma = options.pop("sigma", DEFAULT_SIGMA) if uses_sigma else None
    return {"encoding": name, "sigma": sigma, "options": options}


def encoding_label(encoding: str, sigma: float | None, options: Mapping[str, Any]) -> str:
    """Return the name of an encoding in figures and tables.

    >>> encoding_label("sinusoid", None, {"axes": 2}), encoding_label("rotary", None, {"fraction": 0.5})
    ('2d-fixed', 'rotary, fraction 0.5')
    """
    others = dict(options)
    axes = others.pop("axes", 1)
    name = ENCODING_NAMES.get(encoding, encoding)
    parts = [f"{axes}d-fixed" if encoding == "sinusoid" else name + (f" {axes}-D" if axes != 1 else "")]
    if lookup(encoding).uses_sigma and (encoding in ALWAYS_WITH_SIGMA or sigma != DEFAULT_SIGMA):
        parts.append(f"{SIGMA} {sigma:g}")
    switches = {name for name, default in lookup(encoding).defaults.items() if isinstance(default, bool)}
    for name, value in others.items():
        if name in switches:
            parts += [name] if value else []
        else:
            parts.append(f"{name} {value}")
    return ", ".join(parts)


def with_encoding_names(members: pd.DataFrame) -> pd.DataFrame:
    """Return a table of members with one more column, `name`: the name of the encoding in figures."""
    rows = zip(members["encoding"], members["sigma"], members["options"], strict=True)
    return members.assign(name=[encoding_label(name, sigma, json.loads(options)) for name, sigma, options in rows])


DisplaySetting = tuple[str, str]
"""The name and the value of a setting as figures show them. The name is empty if the value is clear without it."""


def display_setting(field: str, value: Any) -> DisplaySetting:
    """Return the name and the value of a setting for figures.

    >>> display_setting("train", 10000), display_setting("mask_ratio", 0.15), display_setting("optimizer", "sgd")
    (('samples', '10,000'), ('hidden in training', '15%'), ('', 'sgd'))
    """
    if field == "mask_ratio":
        return "hidden in training", f"{100 * value:.12g}%"
    name = {"train": "samples", "data": "", "optimizer": ""}.get(field, field.replace("_", " "))
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return name, f"{value:,.12g}" if number else str(value)


def format_setting(setting: DisplaySetting) -> str:
    """Return the name and value of a setting as one text for figures. A percentage comes before the name.

    >>> format_setting(("samples", "10,000")), format_setting(("hidden in training", "15%"))
    ('samples 10,000', '15% hidden in training')
    """
    return " ".join(setting[::-1] if setting[1].endswith("%") else setting).strip()
