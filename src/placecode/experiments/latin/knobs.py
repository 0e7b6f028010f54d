"""Beyond the paper on Latin squares: something else is turned beside sigma, every value of it at every sigma.

lst-heads, lst-depth, lst-width: does the shape of the model move the sigmas that generalize? lst-placement: does the PE
have to be added in every block? lst-gain: the outputs multiplied by a number, the other knob of lazy and rich learning.
lst-decay: weight decay on all weights, on all but the PE, on the PE alone; does it close the gap to 2d-fixed?
lst-optimizer: optimizers and step sizes down to very small sigmas; a step size of the PE's own; Adam's epsilon.
`latin_data` has those that turn the puzzles.

What to look for in each: do the curves over sigma lie on each other? Then sigma does its work by itself. Where they
come apart, the last panel says by how much: accuracy at sigma 0.2 minus that at 2.0, for each value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
from torch import Tensor

from placecode.errors import must_be
from placecode.experiments import measures
from placecode.experiments.base import setting
from placecode.experiments.latin import knob_claims, optimizer_claims
from placecode.experiments.latin.squares import QUICK, LatinStudy
from placecode.experiments.reading import LAST_QUARTER, done, first_quarter
from placecode.models.encoder import Stack
from placecode.models.member import Member, grid
from placecode.runs.read import Run
from placecode.tasks.base import Task

SIGMAS = (0.1, 0.2, 0.5, 1.0, 2.0)
Place = tuple[str, str]
"""A panel of the figure over sigma, and a line in it."""


@dataclass(frozen=True)
class Variant:
    """One setting that is crossed with sigma: its label, the fields of its members, and where it is drawn."""

    label: str
    fields: Mapping[str, Any]
    drawn: Sequence[Place] = ()

    @property
    def places(self) -> Sequence[Place]:
        """Panels and lines; a single panel with the label as the line unless given."""
        return self.drawn or [("", self.label)]


SMALLER: dict[str, Any] = {**QUICK, "seeds": (0, 1), "epochs": 40, "sigmas": (0.2, 2.0), "evaluations": 4}
"""The quick scale of all of these studies: two sigmas, two seeds."""


@dataclass(frozen=True)
class KnobStudy(LatinStudy):
    """What studies that turn something beside sigma share."""

    seeds: tuple[int, ...] = setting(tuple(range(5)), "seeds of each setting: a number of them, or a list a,b,c")
    epochs: int = setting(200, "passes over the training puzzles")
    evaluations: int = setting(20, "how many times all splits are evaluated on the way")
    noise: tuple[float, ...] = setting(
        (), "noise on token embeddings under which accuracy is tested; none unless given"
    )
    sigmas: tuple[float, ...] = setting(SIGMAS, "initial scales of the PE")

    passing = ()
    knob: ClassVar[str]
    """What is varied, as the title of a legend."""
    turned: ClassVar[tuple[str, ...]] = ()
    """Fields that list the values. A value given twice would count its seeds twice, so it is refused."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("sigmas", *self.turned):
            self._all_different(name)

    def variants(self) -> Sequence[Variant]:
        """The settings that are crossed with sigma, the usual one among them."""
        raise NotImplementedError

    def references(self) -> Sequence[Variant]:
        """Models to compare with, which have no sigma."""
        return ()

    def plan(self) -> list[Member]:
        """Setting by setting, sigma by sigma, the seeds of each together; then the references, likewise."""
        fixed = {"encoding": "sinusoid", "options": {"axes": 2}, "sigma": None, "role": "reference"}
        return [
            *(
                member
                for variant in self.variants()
                for member in grid(self.spec(**variant.fields, label=variant.label), sigma=self.sigmas, seed=self.seeds)
            ),
            *(
                member
                for variant in self.references()
                for member in grid(self.spec(**fixed, **variant.fields, label=variant.label), seed=self.seeds)
            ),
        ]

    def places(self) -> dict[str, Sequence[Place]]:
        """Panels and lines in which members are drawn, by label."""
        return {variant.label: variant.places for variant in (*self.variants(), *self.references())}

    def lines(self, run: Run) -> pd.DataFrame:
        """The finished members of the sweep with the columns `panel` and `line`, a row for each panel."""
        if self.sweep:  # in one panel, by all that tells them apart
            return super().lines(run).assign(line=lambda rows: rows["label"])
        return self._drawn(run, "swept")

    def reference_lines(self, run: Run) -> pd.DataFrame:
        """The same of the references."""
        return self._drawn(run, "reference")

    def _drawn(self, run: Run, role: str) -> pd.DataFrame:
        table, places = done(run), self.places()
        rows = table[table["role"] == role].to_dict("records")
        drawn = [{**row, "panel": panel, "line": line} for row in rows for panel, line in places.get(row["label"], ())]
        return pd.DataFrame(drawn, columns=[*table.columns, "panel", "line"])

    def evaluate_at(self, task: Task) -> list[int]:
        """As always; after the first quarter, where what is faster shows; and before the last, in which what still
        changes has not settled."""
        epochs = (first_quarter(self.epochs), round(LAST_QUARTER * self.epochs))
        return sorted({*super().evaluate_at(task), *(epoch * self.per_epoch(task) for epoch in epochs)} - {0})

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        return [
            *measures.outline(stack, task),
            *measures.movement(stack, task),
            *measures.robustness(stack, task, self.noise, self.block_noise),
        ]

    def rehearse(self, stack: Stack, task: Task) -> None:
        self.analyse(stack, task)

    def arrays(self, stack: Stack, task: Task) -> dict[str, Tensor]:
        return {}


@dataclass(frozen=True)
class LstHeads(KnobStudy):
    """Attention heads against sigma."""

    name = "lst-heads"
    about = "Latin squares: number of attention heads against sigma"
    claims = knob_claims.HEADS
    instead = {"heads": "many"}
    knob = "attention heads"
    turned = ("many",)

    many: tuple[int, ...] = setting((1, 2, 4), "attention heads")

    scales = {"paper": {}, "quick": {**SMALLER, "many": (1, 8)}}

    def variants(self) -> list[Variant]:
        return [Variant(f"{heads} head{'s' if heads > 1 else ''}", {"heads": heads}) for heads in self.many]


@dataclass(frozen=True)
class LstDepth(KnobStudy):
    """Transformer blocks against sigma."""

    name = "lst-depth"
    about = "Latin squares: number of transformer blocks against sigma"
    claims = knob_claims.DEPTH
    instead = {"layers": "depths"}
    knob = "transformer blocks"
    turned = ("depths",)

    depths: tuple[int, ...] = setting((1, 2, 3, 4, 5, 6), "transformer blocks")

    scales = {"paper": {}, "quick": {**SMALLER, "depths": (1, 2, 3)}}

    def variants(self) -> list[Variant]:
        return [Variant(f"{layers} block{'s' if layers > 1 else ''}", {"layers": layers}) for layers in self.depths]


@dataclass(frozen=True)
class LstWidth(KnobStudy):
    """Features per token against sigma."""

    name = "lst-width"
    about = "Latin squares: width of the model against sigma"
    claims = knob_claims.WIDTH
    instead = {"width": "widths"}
    knob = "features per token"
    turned = ("widths",)

    widths: tuple[int, ...] = setting((32, 64, 160, 320), "features per token")

    scales = {"paper": {}, "quick": {**SMALLER, "widths": (16, 32, 64)}}

    def variants(self) -> list[Variant]:
        return [Variant(f"width {width}", {"width": width}) for width in self.widths]


@dataclass(frozen=True)
class LstPlacement(KnobStudy):
    """The PE in every block, or at the input alone, against sigma."""

    name = "lst-placement"
    about = "Latin squares: the PE in every block or at the input alone, against sigma"
    claims = knob_claims.PLACEMENT
    instead = {"placement": "placements"}
    knob = "where the PE is added"
    turned = ("placements",)

    placements: tuple[str, ...] = setting(("every", "input"), "where the encoding acts: every (block), input")

    scales = {"paper": {}, "quick": SMALLER}

    def variants(self) -> list[Variant]:
        names = {"every": "every block", "input": "input alone"}
        return [Variant(names.get(where, where), {"placement": where}) for where in self.placements]


@dataclass(frozen=True)
class LstGain(KnobStudy):
    """The gain of the outputs against sigma."""

    name = "lst-gain"
    about = "Latin squares: gain of the outputs, the other knob of lazy and rich learning, against sigma"
    claims = knob_claims.GAIN
    instead = {"output_gain": "gains"}
    knob = "gain of the outputs"
    turned = ("gains",)

    gains: tuple[float, ...] = setting(
        (0.1, 1.0, 10.0),
        "what the outputs of the model are multiplied by: with the usual step size, and with it divided by that",
    )

    scales = {"paper": {}, "quick": SMALLER}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not min(self.gains) > 0:
            raise must_be("gains", "numbers above 0", list(self.gains))

    def variants(self) -> list[Variant]:
        """The length of Adam's steps does not depend on the gain: weights move less only with another step size."""
        same, divided = "one step size", "step size divided by the gain"
        usual, slower = [], []
        for gain in self.gains:
            line = f"gain {gain:g}"
            usual.append(
                Variant(line, {"gain": gain}, [(same, line), (divided, line)] if gain == 1 else [(same, line)])
            )
            if gain != 1:
                fields = {"gain": gain, "learning_rate": self.learning_rate / gain}
                slower.append(Variant(f"{line}, {divided}", fields, [(divided, line)]))
        return [*usual, *slower]


@dataclass(frozen=True)
class LstDecay(KnobStudy):
    """Weight decay, and on what, against sigma."""

    name = "lst-decay"
    about = "Latin squares: weight decay on all weights, on all but the PE, on the PE alone, against sigma"
    claims = optimizer_claims.DECAY
    instead = {"weight_decay": "decays", "pe_weight_decay": "decays and parts"}
    knob = "what decays"
    turned = ("decays", "parts")

    optimizer: str = setting("adamw", "adam, adamw or sgd")
    decays: tuple[float, ...] = setting((1.0, 3.0), "weight decays, besides none")
    parts: tuple[str, ...] = setting(("all", "rest", "pe"), "what decays: all, rest (all but the PE), pe")

    scales = {"paper": {}, "quick": {**SMALLER, "decays": (0.05,)}}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not min(self.decays) > 0:
            raise must_be("decays", "numbers above 0; none is always gone through too", list(self.decays))
        for part in self.parts:
            if part not in optimizer_claims.DECAYING:
                raise must_be("parts", f"of {', '.join(optimizer_claims.DECAYING)}", part)

    def variants(self) -> list[Variant]:
        lines = {"all": "all weights", "rest": "all but the PE", "pe": "the PE alone"}
        none = {"weight_decay": 0.0, "pe_weight_decay": 0.0}
        decaying = [
            Variant(
                f"decay {amount:g} on {lines[part]}",
                optimizer_claims.decaying(part, amount),
                [(f"decay {amount:g}", lines[part])],
            )
            for amount in self.decays
            for part in self.parts
        ]
        return [Variant("no decay", none, [(f"decay {amount:g}", "no decay") for amount in self.decays]), *decaying]

    def references(self) -> list[Variant]:
        """2d-fixed models without decay, and with each decay on all weights (their PE is fixed)."""
        return [
            Variant(
                f"2d-fixed, weight decay {amount:g}",
                {"weight_decay": amount, "pe_weight_decay": amount},
                [(f"decay {amount:g}", "2d-fixed, with the same decay")]
                if amount
                else [(f"decay {each:g}", "2d-fixed, no decay") for each in self.decays],
            )
            for amount in (0.0, *self.decays)
        ]


@dataclass(frozen=True)
class LstOptimizer(KnobStudy):
    """Optimizers, their step sizes, a step size of the PE's own, and Adam's epsilon, down to very small sigmas."""

    name = "lst-optimizer"
    about = "Latin squares: optimizer and step sizes against sigma, from 0.01 on"
    claims = optimizer_claims.OPTIMIZER
    instead = {
        **{"optimizer": "optimizers", "learning_rate": "rates and sgd_rates", "pe_learning_rate": "pe_rates"},
        "epsilon": "epsilons",
    }
    knob = "step size"
    turned = ("optimizers", "rates", "sgd_rates")

    sigmas: tuple[float, ...] = setting((0.01, 0.05, 0.1, 0.2, 0.5, 1.0), "initial scales of the PE")
    optimizers: tuple[str, ...] = setting(
        ("adam", "adamw", "sgd"), "the optimizers; adamw with a weight decay of 0.01 unless one is given"
    )
    rates: tuple[float, ...] = setting((3e-5, 1e-4, 3e-4), "step sizes of adam and adamw; the middle one is the usual")
    sgd_rates: tuple[float, ...] = setting((0.003, 0.01, 0.03), "step sizes of sgd; the middle one is the usual")
    pe_rates: tuple[float, ...] = setting(
        (0.1, 10.0), "step sizes of the PE alone, with adam at its usual one, as multiples of that"
    )
    epsilons: tuple[float, ...] = setting((1e-6, 1e-4), "epsilons of adam at its usual step size, besides 1e-8")

    scales = {
        "paper": {},
        "quick": {
            **{**SMALLER, "sigmas": (0.01, 0.2)},
            **{"optimizers": ("adam", "sgd"), "rates": (2.3e-3,), "sgd_rates": (0.1,), "epsilons": (1e-4,)},
            "pe_rates": (0.1,),
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, usual in (("pe_rates", 1.0), ("epsilons", self.epsilon)):
            values = getattr(self, name)
            self._all_different(name, least=0)
            if usual in values:
                raise must_be(name, f"other than {usual:g}, which is always gone through too", list(values))

    def variants(self) -> list[Variant]:
        """Adam at its usual step size is in three panels, since epsilon and the PE's step size vary from there."""
        names = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
        middle = optimizer_claims.middle(self.rates)
        usual, apart, epsilons = {"optimizer": "adam", "learning_rate": middle}, "Adam, PE apart", "Adam, epsilon"
        variants = []
        for optimizer in self.optimizers:
            for rate in self.sgd_rates if optimizer == "sgd" else self.rates:
                line = f"step size {rate:g}"
                drawn = [(names.get(optimizer, optimizer), line)]
                if optimizer == "adam" and rate == middle:
                    drawn += [(apart, "PE's step size x 1")] * bool(self.pe_rates)
                    drawn += [(epsilons, f"epsilon {self.epsilon:g}")] * bool(self.epsilons)
                decay = self.weight_decay or (0.01 if optimizer == "adamw" else 0.0)  # without, adamw is adam
                fields = {"optimizer": optimizer, "learning_rate": rate, "weight_decay": decay}
                variants.append(Variant(f"{names.get(optimizer, optimizer)}, {line}", fields, drawn))
        if "adam" in self.optimizers:
            for factor in self.pe_rates:
                line = f"PE's step size x {factor:g}"
                variants.append(
                    Variant(f"Adam, {line}", {**usual, "pe_learning_rate": factor * middle}, [(apart, line)])
                )
            for epsilon in self.epsilons:
                line = f"epsilon {epsilon:g}"
                variants.append(Variant(f"Adam, {line}", {**usual, "epsilon": epsilon}, [(epsilons, line)]))
        return variants
