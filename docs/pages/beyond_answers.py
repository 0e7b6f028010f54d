"""The questions of docs/beyond.md, each with its run: the answers are in `beyond_causes`, `beyond_knobs` and
`beyond_training`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import beyond_causes as causes
import beyond_knobs as knobs
import beyond_training as training
from latin_tables import Findings

from placecode.runs.read import Run


@dataclass(frozen=True)
class Answer:
    """A question, its answer in a sentence, what more there is to say, and the figures that show it."""

    question: str
    short: Callable[[Run, Findings], str]
    long: Callable[[Run, Findings], Iterator[str]]
    figures: tuple[str, ...] = ("accuracy",)
    also: tuple[str, ...] = ()
    """Further runs that it rests on."""


ANSWERS: dict[str, Answer] = {
    "lst-causal": Answer(
        "Is the learned PE the cause of generalization, or its trace?",
        causes.causal_short,
        causes.causal_long,
        figures=("causes",),
    ),
    "lst-optimizer": Answer(
        "Does Adam dip at small sigmas where SGD does not?",
        causes.optimizer_short,
        causes.optimizer_long,
        also=("lst-optimizer-large",),
    ),
    "lst-heads": Answer("Do more attention heads hurt?", knobs.heads_short, knobs.heads_long),
    "lst-depth": Answer("Does the effect of sigma need many blocks?", knobs.depth_short, knobs.depth_long),
    "lst-width": Answer("Does the best sigma depend on width?", knobs.width_short, knobs.width_long),
    "lst-decay": Answer(
        "Does weight decay close the gap between a learned PE and 2d-fixed?",
        training.decay_short,
        training.decay_long,
        also=("lst-decay-fresh",),
    ),
    "lst-placement": Answer(
        "Does the PE have to be added in every block?", knobs.placement_short, knobs.placement_long
    ),
    "lst-gain": Answer(
        "Does the gain of the outputs, the other knob of lazy and rich learning, do what sigma does?",
        training.gain_short,
        training.gain_long,
        also=("lst-gain-quick", "lst-gain-quick-rates"),
    ),
    "lst-data": Answer(
        "Does the effect of sigma depend on the number of training puzzles?", knobs.data_short, knobs.data_long
    ),
    "lst-size": Answer("Can a learned PE be carried over to larger grids?", knobs.size_short, knobs.size_long),
}
