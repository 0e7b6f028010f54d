"""Encodings as short texts: "learned:sigma=0.2", "sinusoid:axes=2"; and the names under which they are shown."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from placecode.encodings import lookup
from placecode.errors import must_be
from placecode.models.member import Member

SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
PLAIN_SIGMA = 0.2
"""Of encodings that draw their start, where none is given."""
TURNED = ("learned", "random")
"""Encodings whose sigma is always named."""


def option(text: str) -> tuple[str, Any]:
    """NAME=VALUE as a pair; the value is a number where it reads as one."""
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise must_be("options", "NAME=VALUE, such as axes=2", text)
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return name, kind(value)
    return name, value


def encoding_spec(text: str) -> dict[str, Any]:
    """The fields of a member behind a text: its encoding, sigma (None where it draws nothing) and options.

    >>> encoding_spec("random:sigma=1")
    {'encoding': 'random', 'sigma': 1, 'options': {}}
    """
    name, *rest = text.split(":")
    options = dict(option(part) for part in rest)
    uses_sigma = lookup(name).uses_sigma
    if "sigma" in options and not uses_sigma:
        raise must_be("sigma", f"left out for the encoding {name}, which draws nothing", options["sigma"])
    sigma = options.pop("sigma", PLAIN_SIGMA) if uses_sigma else None
    return {"encoding": name, "sigma": sigma, "options": options}


def encoding_label(encoding: str, sigma: float | None, options: Mapping[str, Any]) -> str:
    """Name of an encoding in legends.

    >>> encoding_label("sinusoid", None, {"axes": 2}), encoding_label("rotary", None, {"fraction": 0.5})
    ('2d-fixed', 'rotary, fraction 0.5')
    """
    rest = dict(options)
    axes = rest.pop("axes", 1)
    parts = [f"{axes}d-fixed" if encoding == "sinusoid" else encoding + (f" {axes}-D" if axes != 1 else "")]
    if lookup(encoding).uses_sigma and (encoding in TURNED or sigma != PLAIN_SIGMA):
        parts.append(f"{SIGMA} {sigma:g}")
    switches = {name for name, usual in lookup(encoding).defaults.items() if isinstance(usual, bool)}
    for name, value in rest.items():
        if name in switches:
            parts += [name] if value else []
        else:
            parts.append(f"{name} {value}")
    return ", ".join(parts)


def label_of(member: Member) -> str:
    """The name of a member's encoding."""
    return encoding_label(member.encoding, member.sigma, member.options)


def named(members: pd.DataFrame) -> pd.DataFrame:
    """A table of members with one more column, `name`: what figures call their encoding."""
    rows = zip(members["encoding"], members["sigma"], members["options"], strict=True)
    return members.assign(name=[encoding_label(name, sigma, json.loads(options)) for name, sigma, options in rows])


OTHERWISE = ("data", "hidden", "ramp", "optimizer", "learning_rate", "batch", "width", "pe")
"""What else members of one encoding and one sigma may differ in."""


def differing(members: pd.DataFrame, swept: Sequence[str] = ()) -> pd.DataFrame:
    """A table of members with its `name`s and two more columns: `setting`, in what else they differ, seeds aside, empty
    where in nothing; and `parts`, the same thing by thing. `swept` are further fields to look at."""
    table = named(members).assign(pe=[whose_pe(start, learn) for start, learn in _started(members)])
    rows = table.to_dict("records")
    names = [name for name in dict.fromkeys((*OTHERWISE, *swept)) if name in table]
    told = {name: [_parts(name, row[name]) for row in rows] for name in names}
    parts = [tuple(part for each in own for part in each) for own in zip(*told.values(), strict=True)]
    known = {place for place, each in enumerate(zip(*parts, strict=False)) if len(set(each)) > 1}
    parts = [tuple(part for place, part in enumerate(own) if place in known) for own in parts]
    return table.assign(
        setting=[", ".join(map(worded, own)) for own in parts], parts=pd.Series(parts, index=table.index, dtype=object)
    )


Part = tuple[str, str]
"""What differs, and its value; no name where the value tells it."""


def _parts(name: str, value: Any) -> list[Part]:
    """
    >>> _parts("data", "groups=5 samples=10000"), _parts("hidden", 0.15), _parts("optimizer", "sgd")
    ([('groups', '5'), ('samples', '10,000')], [('hidden in training', '15%')], [('', 'sgd')])
    """
    if name == "data" and re.fullmatch(r"(\w+=[\d.]+ ?)+", value):
        return [(word, f"{float(number):,.12g}") for word, number in (each.split("=") for each in value.split())]
    if name == "hidden":
        return [("hidden in training", f"{100 * value:.12g}%")]
    if name in ("data", "optimizer", "pe"):
        return [("", str(value))]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return [(name.replace("_", " "), f"{value:,.12g}" if number else str(value))]


def data_in_words(data: str) -> str:
    return ", ".join(map(worded, _parts("data", data)))


def worded(part: Part) -> str:
    """
    >>> worded(("samples", "10,000")), worded(("hidden in training", "15%")), worded(("", "sgd"))
    ('samples 10,000', '15% hidden in training', 'sgd')
    """
    return " ".join(part[::-1] if part[1].endswith("%") else part).strip()


def _started(members: pd.DataFrame) -> Iterator[tuple[str, bool]]:
    yield from zip(members["start"].astype(str), members["learn"].astype(bool), strict=True)


WHOSE = {
    "true": "true arrangement",
    "centred": "true arrangement, centred",
    "axes": "random rows and columns",
    "taken": "another's PE",
    "shuffled": "another's PE shuffled",
    "before": "another's PE before training",
    "sized": "another's PE before training, at its size after it",
    "rescaled": "another's PE rescaled",
    "rescaled-shuffled": "another's PE shuffled and rescaled",
    "resized": "another's PE resized",
    "resized-shuffled": "another's PE shuffled and resized",
}
"""PEs that are neither drawn token by token nor zero, by their start."""


def whose_pe(start: str, learn: bool) -> str:
    """Where a member's PE came from, and whether it was trained.

    >>> whose_pe("taken", False), whose_pe("true", True), whose_pe("normal", True)
    ("another's PE, frozen", 'true arrangement, trained on', 'own PE')
    """
    whose = WHOSE.get(start)
    if whose is None:
        return "own PE" if learn else "random PE, frozen"
    return f"{whose}, {'trained on' if learn else 'frozen'}"
