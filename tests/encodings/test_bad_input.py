"""Encodings refuse options, starts and shapes that do not fit."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers.refusal import refused

from placecode import encodings
from placecode.encodings import Layout, sinusoid
from placecode.encodings.tables import is_grid, resized
from placecode.models.encoder import Stack, plan_stacks
from placecode.models.member import Member

GRID = np.stack(np.divmod(np.arange(16), 4), axis=1).astype(float)
AXES = ("sinusoid", "relative", "rotary", "alibi")
NO_GRIDS = [GRID[:15], GRID[:4], np.arange(16.0)[:, None], np.concatenate([GRID[:15], GRID[:1]]), np.zeros((8, 3))]


def make(name: str, tokens: int = 16, width: int = 8, **options: object) -> Callable[[], object]:
    return lambda: encodings.make(name, tokens, width, **options)


def build(tokens: int = 16, positions: np.ndarray | None = None, **fields: object) -> Callable[[], object]:
    return lambda: encodings.build([Member(width=8, layers=2, **fields)], Layout(tokens, positions))


CASES: dict[str, list[Callable[[], object]]] = {
    "width must be at least 5 for a sinusoid of 3 axes": [lambda: sinusoid(np.zeros((2, 3)), 4)],
    "base must be a number above 0": [
        *(make("sinusoid", base=base) for base in (0, -1.0, math.nan, "e", True)),
        make("rotary", base=0),
    ],
    "sigma must be a number of at least 0 for the encoding learned": [
        build(sigma=None),
        *(build(positions=GRID, sigma=None, start=start) for start in ("true", "axes")),
    ],
    "tokens with known positions": [build(start=start) for start in ("true", "axes")],
    "start must be normal, uniform or zero": [
        *(make(name, start="true") for name in ("relative", "sinusoid", "none", "rotary")),
        make("relative", start=np.zeros((16, 8))),
    ],
    "start must be an array of shape (3, 8) or (2, 3, 8)": [
        build(3, start=np.zeros(shape)) for shape in ((3, 9), (4, 8), (3, 3, 8), (1, 3, 8), (8, 3))
    ],
    "x must have at most 6 tokens": [lambda: encodings.make("learned", 6, 8)(torch.zeros(1, 7, 8))],
    "q must have at most 9 tokens": [
        lambda name=name: encodings.make(name, 9, 8).bias(torch.zeros(1, 1, 10, 8)) for name in ("relative", "alibi")
    ],
    "q and k must have at most 12 tokens; got 13 and 12": [
        lambda: encodings.make("rotary", 12, 8)(torch.zeros(1, 1, 13, 8), torch.zeros(1, 1, 12, 8))
    ],
    "max_distance must be": [make("relative", max_distance=0)],
    "causal must be True or False": [make("relative", causal=value) for value in ("yes", 2, -1, 1.0, None)],
    "relative positions must be whole numbers": [make("relative", positions=GRID / 2, axes=2)],
    "distance must be one of euclidean, manhattan": [make("alibi", distance="cosine")],
    "steepness must be a number above 0": [make("alibi", steepness=0)],
    "temperature must be a number above 0": [
        make("causal-none", temperature=value) for value in (0, -0.01, "cold", True, None, math.nan, math.inf)
    ],
    "fraction must be a number above 0 and at most 1": [
        make("rotary", fraction=value) for value in (0, -0.5, 1.5, "half", math.nan)
    ],
    "must turn at least 4 features of a head; got heads of 3": [
        make("rotary", width=6, heads=2, positions=GRID, axes=2)
    ],
    "axes must be a whole number of at least 1": [
        make(name, positions=GRID, axes=axes) for name in AXES for axes in (0, 1.0, "2", True, -1)
    ],
    "got 3, but they have true positions with 2": [make(name, positions=GRID, axes=3) for name in AXES],
    "got 2, but they have no known positions": [make(name, axes=2) for name in AXES],
    "positions must be an array (16 tokens": [
        make("learned", positions=positions) for positions in (GRID[:5], GRID[:, 0])
    ],
    f"encoding must be one of {', '.join(encodings.names())}; got 'sinusoidal'": [
        make("sinusoidal"),
        lambda: Stack([Member(encoding="sinusoidal")], tokens=16, features=3, outputs=2),
    ],
    "onto must be a full grid": [lambda bad=bad: resized(np.zeros((1, 16, 3)), GRID, bad) for bad in NO_GRIDS],
    "positions must be a full grid": [
        lambda bad=bad: resized(np.zeros((1, len(bad), 3)), bad, GRID) for bad in NO_GRIDS
    ],
}


@pytest.mark.parametrize(("words", "calls"), CASES.items(), ids=list(CASES))
def test_bad_input_is_refused(words, calls) -> None:
    for call in calls:
        assert words in str(refused(call))


@pytest.mark.parametrize("name", encodings.names())
def test_unknown_options_are_refused_and_known_ones_listed(name) -> None:
    member = Member(encoding=name, options={"wobble": 1})
    for call in (
        make(name, wobble=1),
        lambda: plan_stacks([member], max_size=10),
        lambda: Stack([member], tokens=6, features=3, outputs=2),
    ):
        error = refused(call)
        assert error.name == f"an option of the encoding {name}" and error.given == "wobble"
        assert all(option in error.allowed for option in encodings.lookup(name).defaults)


def test_only_full_grids_are_grids() -> None:
    assert is_grid(GRID) and not is_grid(None) and not any(map(is_grid, NO_GRIDS))
