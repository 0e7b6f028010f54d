"""lst-causal: is the learned PE the cause of generalization, or only a result of it?

Every manipulation of the PE is made at every size (root mean square) of the PE, in models with the same seeds. The
sizes are the sigmas of the experiment. Before training, the PE is set to random values, to the true arrangement (rows
and columns), or to the PE of a donor: another trained model with other weights, data order and random numbers. The PE
is then frozen or trained further. This separates arrangement from size: a learned PE can be rescaled, or its cells
shuffled. After training, the PE of a model is removed, reset to its start, exchanged for that of another sigma or seed,
or rescaled, with all other weights unchanged.

If the learned arrangement is a cause, a new model must do better with it than with the untrained PE of the same donor.
If size is a cause, a learned PE must become useless when it is made large. Donors that are trained by Adam hardly learn
an arrangement, so a second kind of donor is trained by SGD from a tiny start (labelled "master"). Every manipulation
has a control that must have no effect: look at these first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from placecode.errors import must_be
from placecode.experiments.latin import causal_claims, interventions
from placecode.experiments.latin.causal_effects import (
    BY_RATE,
    DONOR,
    FIXED,
    LATER_MANIPULATIONS,
    LEARNED,
    MANIPULATIONS,
    NONE,
    SGD_DONOR,
    TRUE_START,
    TWIN,
    TWIN_AGAIN,
)
from placecode.experiments.latin.effects import LARGE, SMALL
from placecode.experiments.latin.knobs import DONOR_SEED_OFFSET, QUICK_KNOB, SIGMAS, DonorExperiment
from placecode.experiments.latin.squares import FIXED_2D_FIELDS
from placecode.models.encoder import Stack
from placecode.models.member import Member, grid
from placecode.settings import setting, sweep_over
from placecode.tasks.base import Task

TWIN_SEED_OFFSET, SGD_DONOR_SEED_OFFSET = 2000, 3000
"""Offsets from the seeds of the experiment to the seeds of twins, and to those of donors that are trained by SGD. Twins
are controls: two models with the same seed, one of which gets the untrained PE of the other."""
TRUE_SIZE = 0.5**0.5
"""The root mean square of sines and cosines. A PE of this size with `start` "true" is the same as 2d-fixed."""


@dataclass(frozen=True)
class LstCausal(DonorExperiment):
    """Compare models whose PE is copied, frozen, rescaled, shuffled, exchanged or removed (experiment lst-causal)."""

    name = "lst-causal"
    about = "Latin squares: is the learned PE the cause of generalization, or only a result of it?"
    claims = causal_claims.CAUSAL_CLAIMS
    knob = "the PE"

    sigmas: tuple[float, ...] = sweep_over(SIGMAS, "sizes of the PE; must include 0.2 and 2.0, which are exchanged")
    sgd_rate: float = setting(0.03, "learning rate of members that are trained by sgd")
    sgd_donor_sigma: float = setting(0.05, "initial scale of the PEs of donors that are trained by sgd")

    scales = {"paper": {}, "quick": {**QUICK_KNOB, "epochs": 25}}

    def __post_init__(self) -> None:
        super().__post_init__()
        if missing := [sigma for sigma in (SMALL, LARGE) if sigma not in self.sigmas]:
            rule = f"some with {missing[0]:g} among them: PEs are exchanged between these"
            raise must_be("sigmas", rule, list(self.sigmas))

    def plan(self) -> list[Member]:
        """Return the donors that are trained by Adam, the members with `MANIPULATIONS`, the controls (twins last), the
        donors that are trained by SGD, and the members with `LATER_MANIPULATIONS`, in this order."""

        def seeds(offset: int) -> list[int]:
            return [seed + offset for seed in self.seeds]

        def controls(label: str, offset: int = 0, **fields: Any) -> list[Member]:
            return grid(self.spec(role="control", label=label, **fields), seed=seeds(offset))

        members = grid(self.spec(role="donor", label=DONOR), sigma=self.sigmas, seed=seeds(DONOR_SEED_OFFSET))
        donors: dict[Any, int] = {(donor.sigma, donor.seed - DONOR_SEED_OFFSET): i for i, donor in enumerate(members)}
        for label, fields in MANIPULATIONS.items():
            members += self._manipulated(label, fields, donors)
        members += controls(BY_RATE, sigma=SMALL, pe_learning_rate=0.0)
        members += controls(TRUE_START, sigma=TRUE_SIZE, start="true", learn=False)
        members += controls(FIXED, **FIXED_2D_FIELDS)
        members += controls(NONE, encoding="none", sigma=None)
        first_twin = len(members)
        members += controls(TWIN, TWIN_SEED_OFFSET, sigma=SMALL, learn=False)
        fields = {"start": "donor-untrained", "learn": False, "role": "control", "label": TWIN_AGAIN}
        again = self.spec(sigma=SMALL, donor=first_twin, **fields)
        members += [replace(again, seed=seed, donor=first_twin + i) for i, seed in enumerate(seeds(TWIN_SEED_OFFSET))]
        by_sgd = {"optimizer": "sgd", "learning_rate": self.sgd_rate}
        donors |= {(SGD_DONOR, seed): len(members) + i for i, seed in enumerate(self.seeds)}
        donor = self.spec(sigma=self.sgd_donor_sigma, role="donor", label=SGD_DONOR, **by_sgd)
        members += grid(donor, seed=seeds(SGD_DONOR_SEED_OFFSET))
        for label, fields in LATER_MANIPULATIONS.items():
            members += self._manipulated(label, {**fields, **(by_sgd if "optimizer" in fields else {})}, donors)
        return members

    def _manipulated(self, label: str, fields: Mapping[str, Any], donors: Mapping[Any, int]) -> list[Member]:
        """Return the members with one manipulation of the PE, at all sizes. `label` and `fields` are an item of
        `MANIPULATIONS`. `donors` maps pairs (sigma, seed) or (SGD_DONOR, seed) to the index of the donor in the plan.
        """
        member_fields = {name: value for name, value in fields.items() if name != "donor"}
        if "donor" not in fields:
            return self.over_sigmas(self.sigmas, label=label, **member_fields)
        donor_of = {
            (sigma, seed): donors[sigma if fields["donor"] == "own" else fields["donor"], seed]
            for sigma in self.sigmas
            for seed in self.seeds
        }
        return self.with_donors(donor_of, label=label, **member_fields)

    def measure_pe_swaps(
        self, stack: Stack, task: Task, numbers: Sequence[int], members: pd.DataFrame, arrays: Mapping[str, Tensor]
    ) -> list[dict[str, Any]]:
        """Return the OOD accuracy of each trained member with each replacement of its PE.

        All members get the replacements of `interventions.own_replacements`. Members without a manipulation (LEARNED)
        also get the PEs of other members: the one with the next seed and, for sigma 0.2, the one with sigma 2.0, or the
        reverse.
        """
        assert task.positions is not None
        order = interventions.shuffled_order(task.tokens)
        rows: dict[Any, dict[Any, Any]] = {row["member"]: row for row in members.to_dict("records")}
        learned = {
            (row["sigma"], row["seed"]): number
            for number, row in rows.items()
            if row["label"] == LEARNED and row["state"] == "done"
        }

        def pe(number: Any, when: str = "end") -> np.ndarray:
            return np.asarray(arrays[f"pe_{when}/{number}"].double().numpy())

        replacements = []
        for number in numbers:
            end, row = pe(number), rows[number]
            pes = interventions.own_replacements(pe(number, "start"), end, task.positions, order)
            if row["label"] == LEARNED:
                other_sigma = learned.get(({SMALL: LARGE, LARGE: SMALL}.get(row["sigma"]), row["seed"]))
                if other_sigma is not None:
                    pes[interventions.OTHER_SIGMA] = pe(other_sigma)
                    pes[interventions.OTHER_SIGMA_SIZED] = interventions.rescaled_like(pe(other_sigma), end)
                next_seed = self.seeds[(self.seeds.index(row["seed"]) + 1) % len(self.seeds)]
                other_seed = learned.get((row["sigma"], next_seed))
                if other_seed is not None and len(self.seeds) > 1:
                    pes[interventions.OTHER_SEED] = pe(other_seed)
            replacements.append(pes)
        return interventions.accuracy_rows(stack, task, replacements, order)
