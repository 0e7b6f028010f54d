"""Options that a task cannot have are refused, with the name of the option and the value."""

import math
from typing import Any

import numpy as np
import pytest
from helpers.refusal import refused

from placecode.tasks.latin_squares import LatinSquares
from placecode.tasks.masked import Masked, join_recordings
from placecode.tasks.network import Network
from placecode.tasks.pixels import Pixels, sample_table
from placecode.tasks.synergy import Synergy


def masked(**options: Any) -> Masked:
    return Masked({"train": join_recordings([np.zeros((40, 6))])}, **options)


SIMULATED: dict[str, list[Any]] = {"test": [0], "worlds": [0], "seed": [-1], "shuffled": [1, "yes"]}
LATIN: dict[str, list[Any]] = {"order": [3, 4.0], "seed": [-1, "a"], "heldout": [0, 100, True], "per_class": [1]}
LATIN |= {"distance": [1.0, -0.1, math.nan], "log_softmax": [3, 1.0]}
NETWORK: dict[str, list[Any]] = {"nodes": [3, 10.0], "clusters": [1, 51], "sizes": [5], "lag": [0]}
NETWORK |= {"density_within": [0], "density_between": [1.1], "strength_within": [-1], "strength_between": ["a"]}
NETWORK |= {"gain": [math.inf], "noise": [math.nan, True], "nonlinearity": ["sin"], "window": [0], "train": [2]}
NETWORK |= {"burn_in": [-1], "gap": [0.5]}
SYNERGY: dict[str, list[Any]] = {"groups": [0], "group_size": [5, 3.0], "sizes": [3], "values": ["signs"]}
SYNERGY |= {"noise": [-0.1], "correlated": [-1], "correlation": [1, "a"], "distractors": [1.5], "train": [1]}
PIXELS: dict[str, list[Any]] = {"source": ["faces"], "size": [1], "stride": [0], "train": [9]}
BAD: dict[Any, dict[str, list[Any]]] = {
    LatinSquares: LATIN,
    Network: NETWORK | SIMULATED,
    Synergy: SYNERGY | SIMULATED,
    Pixels: PIXELS | SIMULATED,
    sample_table: {"samples": [19], "source": ["faces"]},
    masked: {"window": [0], "eval_mask_ratios": [(), (0.5, 0.5)]},
}


@pytest.mark.parametrize(
    ("make", "option", "value"),
    [(make, option, value) for make, options in BAD.items() for option, values in options.items() for value in values],
)
def test_bad_options_are_refused(make, option, value) -> None:
    error = refused(make, **{option: value})
    assert error.name == option and error.given is value


@pytest.mark.parametrize(
    ("make", "options", "name", "value"),
    [
        (LatinSquares, {"train": 82, "heldout": 9, "per_class": 30}, "train", 82),
        (LatinSquares, {"train": 3.0, "heldout": 9, "per_class": 30}, "train", 3.0),
        (masked, {"eval_mask_ratios": (1.0,)}, "the share of hidden channels", 1.0),
        (Network, {"sizes": (50, 49)}, "sizes", (50, 49)),
        (Network, {"sizes": (99, 1)}, "sizes", 1),
        (Synergy, {"sizes": (3, 2)}, "sizes", 2),
        (Pixels, {"size": 21, "stride": 4}, "size and stride", (21, 4)),
        (Pixels, {"source": "digits"}, "train and test", (20_000, 2_000)),
    ],
)
def test_options_that_do_not_go_together_are_refused(make, options, name, value) -> None:
    error = refused(make, **options)
    assert (error.name, error.given) == (name, value)
