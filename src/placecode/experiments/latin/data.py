"""Experiments beyond the paper on Latin squares: fewer puzzles or larger grids, at several sigmas (scales of the PE).

lst-data trains on fewer puzzles, for the same number of steps. Can a small sigma make up for fewer puzzles? lst-size
trains on larger grids. Some of these models start from PEs that were learned on smaller grids and resized: can a
learned PE be moved to another number of tokens? Is it a better start than a random PE of the same size, or than the
same PE with its cells shuffled before it is resized?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from placecode.data.puzzles import CLASSES
from placecode.errors import must_be
from placecode.experiments.latin import knob_claims
from placecode.experiments.latin.knobs import (
    DONOR_SEED_OFFSET,
    QUICK_KNOB,
    DonorExperiment,
    KnobExperiment,
    PanelLine,
    Variant,
)
from placecode.experiments.latin.squares import FIXED_2D_FIELDS
from placecode.experiments.sweeps import data_name
from placecode.models.member import Member, grid
from placecode.settings import setting, sweep_over
from placecode.tasks.base import Task
from placecode.training.trainer import steps_per_epoch


@dataclass(frozen=True)
class LstData(KnobExperiment):
    """Vary the number of training puzzles and sigma, with the same number of training steps (experiment lst-data)."""

    name = "lst-data"
    about = "Latin squares: number of training puzzles against sigma"
    claims = knob_claims.DATA_CLAIMS
    swept_by = {"train": "samples"}
    knob = "training puzzles"

    samples: tuple[int, ...] = sweep_over((500, 1000, 2000, 4000, 8100), "training puzzles")
    epochs: int = setting(200, "passes over the largest set of training puzzles; smaller sets have more passes")

    scales = {"paper": {}, "quick": {**QUICK_KNOB, "samples": (500, 1500, 5400)}}

    def data_sets(self) -> dict[str, dict[str, int]]:
        return {data_name({"puzzles": count}): {"train": count} for count in self.samples}

    def task(self) -> Task:
        available = len(self.make_task().splits["train"])
        if not len(CLASSES) <= min(self.samples) <= max(self.samples) <= available:
            raise must_be("samples", f"whole numbers from {len(CLASSES)} to {available}", list(self.samples))
        return super().task()

    def per_epoch(self, task: Task) -> int:
        """Return the number of steps of an epoch of the largest data set. It is used for all data sets."""
        return steps_per_epoch(max(self.samples), self.batch)

    def variants(self) -> list[Variant]:
        return [
            Variant(f"{count:,} puzzles", {"data": data})
            for count, data in zip(self.samples, self.data_sets(), strict=True)
        ]


RANDOM, FIXED = "random start", "2d-fixed"
"""Names of two lines in the figure of lst-size: learned PEs with random initial values, and the encoding 2d-fixed."""


@dataclass(frozen=True)
class LstSize(DonorExperiment):
    """Train on larger grids, also with PEs that start from ones learned on smaller grids (experiment lst-size)."""

    name = "lst-size"
    about = "Latin squares: larger grids, and a PE learned on 4 x 4, resized, as a start for 5 x 5"
    claims = knob_claims.SIZE_CLAIMS
    swept_by = {"order": "from_order and to_order"}
    knob = "how the PE starts"

    puzzles: str | None = setting(None, "folder with the puzzles of the smaller grids; by default they are drawn")
    from_order: int = setting(4, "rows and columns of the smaller grids")
    to_order: int = setting(5, "rows and columns of the larger grids")
    donor_sigma: float = setting(0.05, "initial scale of the PEs that are learned on smaller grids and resized")
    donor_rate: float = setting(0.03, "learning rate of sgd for these PEs")

    scales = {"paper": {}, "quick": QUICK_KNOB}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.from_order < self.to_order:
            raise must_be("to_order", f"above from_order, which is {self.from_order}", self.to_order)

    def data_sets(self) -> dict[str, dict[str, Any]]:
        small, large = ({"order": order} for order in (self.from_order, self.to_order))
        return {data_name(small): small, data_name(large): {**large, "puzzles": None}}

    def per_epoch(self, task: Task) -> int:
        """Return the number of steps of an epoch on drawn puzzles. It is used for both grid sizes."""
        return steps_per_epoch(len(CLASSES) * (self.per_class - max(1, round(0.1 * self.per_class))), self.batch)

    def plan(self) -> list[Member]:
        """Return models with a random initial PE on both grids, donors on the smaller grid, models on the larger grid
        that start from the donors' resized PEs (as they are, or shuffled), and 2d-fixed models on both grids. Donors
        are trained by SGD from a tiny initial PE, so that it learns the arrangement."""
        small, large = self.data_sets()
        members = []
        names = {small: self._grids(self.from_order), large: self._grids(self.to_order)}
        for data, grids in names.items():
            members += self.over_sigmas(self.sigmas, data=data, label=f"{RANDOM}, {grids}")
        first = len(members)
        donors = {(sigma, seed): first + i for sigma in self.sigmas for i, seed in enumerate(self.seeds)}
        by_sgd = {"optimizer": "sgd", "learning_rate": self.donor_rate, "sigma": self.donor_sigma}
        donor = self.spec(data=small, role="donor", label=f"donor on {names[small]}", **by_sgd)
        members += grid(donor, seed=[seed + DONOR_SEED_OFFSET for seed in self.seeds])
        for start, line in self._transplants().items():
            members += self.with_donors(donors, data=large, start=start, label=f"{line}, {names[large]}")
        for data, grids in names.items():
            fixed = self.spec(**FIXED_2D_FIELDS, role="reference", data=data, label=f"{FIXED}, {grids}")
            members += grid(fixed, seed=self.seeds)
        return members

    def panel_lines(self) -> dict[str, Sequence[PanelLine]]:
        """Return the panel and line of the figure that show the members with each label. Each grid size has a panel."""
        small, large = (self._grids(order) for order in (self.from_order, self.to_order))
        pairs = [(small, RANDOM), (small, FIXED), (large, RANDOM), (large, FIXED)]
        pairs += [(large, line) for line in self._transplants().values()]
        return {f"{line}, {panel}": [(panel, line)] for panel, line in pairs}

    def _transplants(self) -> dict[str, str]:
        """Return the two values of `Member.start` for a donor's resized PE, mapped to names of lines in figures."""
        small = f"{self.from_order} x {self.from_order}"
        return {"resized": f"learned on {small}, resized", "resized-shuffled": f"learned on {small}, shuffled, resized"}

    def _grids(self, order: int) -> str:
        """Return the name of grids with `order` rows in labels, such as "4 x 4 grids"."""
        return f"{order} x {order} grids"
