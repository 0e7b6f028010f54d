"""lst-causal: is the learned PE the cause of generalization, or its trace?

Every manipulation is made at every size (sigma) of the PE, in models of the same seeds. Before training: the PE starts
at random, at the true arrangement, or is one that another model has learned (a donor, of other weights, data order and
draws); it is frozen there, or learned on. So arrangement and size come apart: a learned PE is brought to another size,
or its cells are put in random order. After training: the PE of a model is taken away, put back to its start, swapped
with that of another sigma or seed, made larger or smaller, all other weights as they are.

What to look for: if the learned arrangement is a cause, a fresh model must do better with it than with the untrained
PE of the same donor. If size is one, a learned PE must lose its worth when it is made large. And every manipulation has
a control that must do nothing: the first place to look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from placecode.errors import must_be
from placecode.experiments.base import setting
from placecode.experiments.latin import causal_claims, interventions
from placecode.experiments.latin.causal_effects import (
    BY_RATE,
    DONOR,
    DONORS,
    FIXED,
    KINDS,
    LATER_KINDS,
    LEARNED,
    MASTER,
    MASTERS,
    NONE,
    TRUE_SIZE,
    TRUE_START,
    TWIN,
    TWIN_AGAIN,
    TWINS,
)
from placecode.experiments.latin.effects import LARGE, SMALL
from placecode.experiments.latin.knobs import SIGMAS, SMALLER, KnobStudy, Variant
from placecode.models.encoder import Stack
from placecode.models.member import Member, grid
from placecode.tasks.base import Task


@dataclass(frozen=True)
class LstCausal(KnobStudy):
    """Start at, freeze, transplant, rescale, shuffle, swap and ablate the PE."""

    name = "lst-causal"
    about = "Latin squares: is the learned PE the cause of generalization, or its trace?"
    claims = causal_claims.CLAIMS
    knob = "the PE"
    exchanges = True

    sigmas: tuple[float, ...] = setting(SIGMAS, "sizes of the PE; 0.2 and 2.0, which are swapped, among them")
    seeds: tuple[int, ...] = setting(
        tuple(range(5)), f"seeds of the models, below {DONORS}; the donor of each has {DONORS} more"
    )

    sgd_rate: float = setting(0.03, "step size of what is trained by sgd")
    master_sigma: float = setting(0.05, "initial scale of the PEs of donors that are trained by sgd")

    scales = {"paper": {}, "quick": {**SMALLER, "epochs": 25}}

    def __post_init__(self) -> None:
        super().__post_init__()
        if missing := [sigma for sigma in (SMALL, LARGE) if sigma not in self.sigmas]:
            raise must_be(
                "sigmas", f"some with {missing[0]:g} among them: PEs are swapped between these", list(self.sigmas)
            )
        if max(self.seeds) >= DONORS:
            raise must_be("seeds", f"below {DONORS}: those above are the donors'", list(self.seeds))

    def plan(self) -> list[Member]:
        """First the donors; then, kind by kind, sigma by sigma, the models of the study's seeds; the controls, those of
        transplants last; and the kinds that were asked for later, with donors of their own."""
        donors = grid(
            self.spec(role="donor", label=DONOR), sigma=self.sigmas, seed=[seed + DONORS for seed in self.seeds]
        )
        origin = {(member.sigma, member.seed - DONORS): number for number, member in enumerate(donors)}

        def at(sigma: float, seed: int, label: str, given: Mapping[str, Any]) -> Member:
            rest = dict(given)
            source = rest.pop("donor", None)
            if source is not None:
                rest["origin"] = origin[sigma if source == "own" else source, seed]
            return self.spec(sigma=sigma, seed=seed, label=label, **rest)

        members = [
            *donors,
            *(
                at(sigma, seed, label, fields)
                for label, fields in KINDS.items()
                for sigma in self.sigmas
                for seed in self.seeds
            ),
        ]
        controls: dict[str, dict[str, Any]] = {
            BY_RATE: {"sigma": SMALL, "pe_learning_rate": 0.0},
            TRUE_START: {"sigma": TRUE_SIZE, "start": "true", "learn": False},
            FIXED: {"encoding": "sinusoid", "options": {"axes": 2}, "sigma": None},
            NONE: {"encoding": "none", "sigma": None},
        }
        members += [
            self.spec(seed=seed, role="control", label=label, **fields)
            for label, fields in controls.items()
            for seed in self.seeds
        ]
        seeds, first = [seed + TWINS for seed in self.seeds], len(members)
        again = {"start": "before", "learn": False, "sigma": SMALL, "role": "control", "label": TWIN_AGAIN}
        members += [self.spec(seed=seed, sigma=SMALL, learn=False, role="control", label=TWIN) for seed in seeds]
        members += [self.spec(seed=seed, origin=first + place, **again) for place, seed in enumerate(seeds)]
        by_sgd = {"optimizer": "sgd", "learning_rate": self.sgd_rate}
        origin |= {(MASTERS, seed): len(members) + place for place, seed in enumerate(self.seeds)}
        master = self.spec(sigma=self.master_sigma, role="donor", label=MASTER, **by_sgd)
        members += [replace(master, seed=seed + MASTERS) for seed in self.seeds]
        return [
            *members,
            *(
                at(sigma, seed, label, {**fields, **(by_sgd if "optimizer" in fields else {})})
                for label, fields in LATER_KINDS.items()
                for sigma in self.sigmas
                for seed in self.seeds
            ),
        ]

    def exchange(
        self, stack: Stack, task: Task, numbers: Sequence[int], members: pd.DataFrame, arrays: Mapping[str, Tensor]
    ) -> list[dict[str, Any]]:
        assert task.positions is not None
        order = interventions.order_of(task.tokens)
        known: dict[Any, dict[Any, Any]] = {row["member"]: row for row in members.to_dict("records")}
        learned = {
            (row["sigma"], row["seed"]): number
            for number, row in known.items()
            if row["label"] == LEARNED and row["state"] == "done"
        }

        def pe(number: Any, when: str = "end") -> np.ndarray:
            return np.asarray(arrays[f"pe_{when}/{number}"].double().numpy())

        exchanges = []
        for number in numbers:
            own, row = pe(number), known[number]
            each = interventions.within_member(pe(number, "start"), own, task.positions, order)
            others = {SMALL: LARGE, LARGE: SMALL}
            if row["label"] == LEARNED:
                swapped = learned.get((others.get(row["sigma"]), row["seed"]))
                if swapped is not None:
                    each[interventions.OTHER_SIGMA] = pe(swapped)
                    each[interventions.OTHER_SIGMA_SIZED] = interventions.sized(pe(swapped), own)
                neighbour = learned.get((row["sigma"], self._next(row["seed"])))
                if neighbour is not None and len(self.seeds) > 1:
                    each[interventions.OTHER_SEED] = pe(neighbour)
            exchanges.append(each)
        return interventions.accuracies(stack, task, exchanges, order)

    def _next(self, seed: int) -> int:
        return self.seeds[(self.seeds.index(seed) + 1) % len(self.seeds)]

    def variants(self) -> list[Variant]:
        return [Variant(label, fields) for label, fields in {**KINDS, **LATER_KINDS}.items()]
