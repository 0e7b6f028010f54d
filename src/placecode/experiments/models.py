"""What studies that train the paper's model share: its settings, and how they become members."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from placecode.errors import must_be
from placecode.experiments.base import Study, setting
from placecode.models.member import Member
from placecode.validation import real_number, whole_number


@dataclass(frozen=True)
class ModelStudy(Study):
    """The model, how it is trained, and with which seeds."""

    seeds: tuple[int, ...] = setting(tuple(range(15)), "seeds of each setting: a number of them, or a list a,b,c")
    evaluations: int = setting(40, "how many times all splits are evaluated on the way")
    data_seed: int = setting(0, "seed of the data")
    placement: str = setting("every", "where the encoding acts: in every block, or at the input only")
    width: int = setting(160, "features per token")
    layers: int = setting(4, "transformer blocks")
    heads: int = setting(1, "attention heads")
    expansion: int = setting(4, "hidden units of the MLP, as a multiple of the width")
    norm: str = setting("post", "layer norm after (post) or before (pre) attention and MLP")
    output_gain: float = setting(1.0, "what outputs are multiplied by: large makes learning lazy, small rich")
    optimizer: str = setting("adam", "adam, adamw or sgd")
    learning_rate: float = setting(1e-4, "step size")
    pe_learning_rate: float | None = setting(None, "step size of the PE, where it is to differ")
    weight_decay: float = setting(0.0, "weight decay")
    pe_weight_decay: float | None = setting(None, "weight decay of the PE, where it is to differ")
    clip: float | None = setting(None, "largest norm of a member's gradient")
    cooldown: float = setting(0.0, "share of the steps, at the end, over which the step size falls to zero")
    momentum: float = setting(0.9, "momentum of sgd")
    beta1: float = setting(0.9, "memory of adam's first moment")
    beta2: float = setting(0.999, "memory of adam's second moment")
    epsilon: float = setting(1e-8, "what adam adds to the root of its second moment")
    batch: int = setting(128, "examples per step")

    def __post_init__(self) -> None:
        self._all_different("seeds")
        self._whole("evaluations", 1)
        self._whole("data_seed", 0)
        real_number("output_gain", self.output_gain, above=0)

    def _whole(self, name: str, least: int) -> None:
        whole_number(name, getattr(self, name), least)

    def _all_different(self, name: str, least: int = 1) -> None:
        values = getattr(self, name)
        if len(values) < least:
            raise must_be(name, "at least one", list(values))
        if len(set(values)) < len(values):
            raise must_be(name, "all different", list(values))

    def spec(self, **given: Any) -> Member:
        """A member with the settings of the study, and these on top."""
        names = [each.name for each in fields(self) if each.name in Member.__dataclass_fields__]
        shared = {name: getattr(self, name) for name in names}
        # a study's own `gain` would be something else: what a simulated network has at its nodes
        return Member(**{**shared, "gain": self.output_gain, **given})
