"""Experiments beyond the paper on Latin squares that sweep a knob: one more setting, crossed with sigma (the initial
scale of the PE).

lst-heads, lst-depth, lst-width: does the shape of the model change which sigmas generalize? lst-placement: does the PE
have to be added in every block? lst-gain: a factor of the logits, which makes training more lazy (weights move little)
or more rich, as sigma may do. lst-decay: weight decay on all weights, on all but the PE, or on the PE alone; does it
help? lst-optimizer: optimizers, learning rates, also of the PE alone, and Adam's epsilon, down to tiny sigmas.

The figure of accuracy against sigma has a line for each value of the knob. If the lines coincide, the effect of sigma
does not depend on the knob. The last panel shows this effect: accuracy at sigma 0.2 minus that at the largest sigma.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
from torch import Tensor

from placecode.errors import must_be
from placecode.experiments import measures
from placecode.experiments.latin import knob_claims, optimizer_claims
from placecode.experiments.latin.optimizer_claims import DECAYED_WEIGHTS, decay_fields, default_rate
from placecode.experiments.latin.squares import FIXED_2D_FIELDS, QUICK, LatinExperiment
from placecode.experiments.reading import LAST_QUARTER, finished_members, first_quarter
from placecode.models.encoder import Stack
from placecode.models.member import Member, grid
from placecode.runs.read import Run
from placecode.settings import sweep_over
from placecode.tasks.base import Task

SIGMAS = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Sigmas that these experiments sweep by default."""
PanelLine = tuple[str, str]
"""The title of a panel in the figure of accuracy against sigma, and the name of a line in this panel."""


@dataclass(frozen=True)
class Variant:
    """One value of the knob, with its label and the fields of its members. `panel_lines` has the panels and lines that
    show it, if the figure of accuracy against sigma has several panels."""

    label: str
    fields: Mapping[str, Any]
    panel_lines: Sequence[PanelLine] = ()


QUICK_KNOB: dict[str, Any] = {**QUICK, "seeds": (0, 1), "epochs": 40, "sigmas": (0.2, 2.0), "evaluations": 4}
"""Settings of experiments with a knob at the scale "quick": two sigmas, two seeds."""


@dataclass(frozen=True)
class KnobExperiment(LatinExperiment):
    """Base class of experiments on Latin squares that sweep a knob: one more setting besides sigma."""

    seeds: tuple[int, ...] = tuple(range(5))
    epochs: int = 200
    evaluations: int = 20
    noise: tuple[float, ...] = ()
    sigmas: tuple[float, ...] = sweep_over(SIGMAS, "initial scales of the PE")

    temporary_arrays = ()
    knob: ClassVar[str]
    """Name of the knob, used as the title of the legend in figures."""

    def variants(self) -> Sequence[Variant]:
        """Return one variant for each value of the knob. Each is trained with every sigma."""
        return ()

    def references(self) -> Sequence[Variant]:
        """Return the variants of the reference models. They have the encoding 2d-fixed and therefore no sigma."""
        return ()

    def plan(self) -> list[Member]:
        """Return the members with a sigma, sorted by variant, sigma and seed, then the references by variant and
        seed."""
        members = []
        for variant in self.variants():
            members += self.over_sigmas(self.sigmas, **variant.fields, label=variant.label)
        for variant in self.references():
            fixed = self.spec(**FIXED_2D_FIELDS, **variant.fields, role="reference", label=variant.label)
            members += grid(fixed, seed=self.seeds)
        return members

    def with_donors(self, donors: Mapping[Any, int], **fields: Any) -> list[Member]:
        """Return one member for each sigma and seed. It starts with the PE of another member, its donor. `donors` maps
        pairs (sigma, seed) to the index of the donor in the plan. `fields` are other fields, equal for all members."""
        return [
            self.spec(sigma=sigma, seed=seed, donor=donors[sigma, seed], **fields)
            for sigma in self.sigmas
            for seed in self.seeds
        ]

    def panel_lines(self) -> dict[str, Sequence[PanelLine]]:
        """Return where figures show the members with each label: pairs (panel, line), by label. Members with a label
        that is left out are one line, with the label as its name, in an untitled panel."""
        variants = (*self.variants(), *self.references())
        return {variant.label: variant.panel_lines for variant in variants if variant.panel_lines}

    def lines(self, run: Run) -> pd.DataFrame:
        """Return the finished members with the role "swept" as rows with the columns `panel` and `line`. A member has
        one row for each panel and line that shows it."""
        if self.sweep:  # one panel, with a line for each label
            return super().lines(run).assign(line=lambda rows: rows["label"])
        return self.lines_of_role(run, "swept")

    def lines_of_role(self, run: Run, role: str) -> pd.DataFrame:
        """Return the finished members with this role, with a row for each panel and line that shows a member."""
        table, panel_lines = finished_members(run), self.panel_lines()
        rows = [
            {**row, "panel": panel, "line": line}
            for row in table[table["role"] == role].to_dict("records")
            for panel, line in panel_lines.get(row["label"], [("", row["label"])])
        ]
        return pd.DataFrame(rows, columns=[*table.columns, "panel", "line"])

    def evaluate_at(self, task: Task) -> list[int]:
        """Return the steps of `LatinExperiment.evaluate_at`, the end of the first quarter of training (to compare the
        speed of learning), and the start of the last quarter (to see whether accuracy has settled)."""
        epochs = (first_quarter(self.epochs), round(LAST_QUARTER * self.epochs))
        return sorted({*super().evaluate_at(task), *(epoch * self.per_epoch(task) for epoch in epochs)} - {0})

    def analyse(self, stack: Stack, task: Task) -> list[dict[str, Any]]:
        return [
            *measures.main_pe_measures(stack, task),
            *measures.weight_change(stack, task),
            *measures.robustness_measures(stack, task, self.noise, self.block_noise),
        ]

    def trial_analysis(self, stack: Stack, task: Task) -> None:
        self.analyse(stack, task)

    def arrays(self, stack: Stack, task: Task) -> dict[str, Tensor]:
        return {}


DONOR_SEED_OFFSET = 1000
"""Offset from the seed of a model to the seed of its donor, in a `DonorExperiment`. (lst-causal also has donors with
other offsets.)"""


@dataclass(frozen=True)
class DonorExperiment(KnobExperiment):
    """Base class of experiments on Latin squares in which some members start with the PE of another one, the donor."""

    seeds: tuple[int, ...] = sweep_over(
        tuple(range(5)),
        f"seeds of the models, below {DONOR_SEED_OFFSET}; the seed of a donor is larger by {DONOR_SEED_OFFSET}",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(self.seeds) >= DONOR_SEED_OFFSET:
            raise must_be("seeds", f"below {DONOR_SEED_OFFSET}, where the seeds of the donors begin", list(self.seeds))


@dataclass(frozen=True)
class FieldExperiment(KnobExperiment):
    """Base class of experiments on Latin squares whose knob is a single field, the only key of `swept_by`."""

    def variants(self) -> list[Variant]:
        ((field, values),) = self.swept_by.items()
        return [Variant(self.label(value), {field: value}) for value in getattr(self, values)]

    def label(self, value: Any) -> str:
        """Return the label of one value of the field."""
        raise NotImplementedError


@dataclass(frozen=True)
class LstHeads(FieldExperiment):
    """Vary the number of attention heads and sigma (experiment lst-heads)."""

    name = "lst-heads"
    about = "Latin squares: number of attention heads against sigma"
    claims = knob_claims.HEADS_CLAIMS
    swept_by = {"heads": "head_counts"}
    knob = "attention heads"

    head_counts: tuple[int, ...] = sweep_over((1, 2, 4), "attention heads")

    scales = {"paper": {}, "quick": {**QUICK_KNOB, "head_counts": (1, 8)}}

    def label(self, value: Any) -> str:
        return f"{value} head{'s' if value > 1 else ''}"


@dataclass(frozen=True)
class LstDepth(FieldExperiment):
    """Vary the number of transformer blocks and sigma (experiment lst-depth)."""

    name = "lst-depth"
    about = "Latin squares: number of transformer blocks against sigma"
    claims = knob_claims.DEPTH_CLAIMS
    swept_by = {"layers": "depths"}
    knob = "transformer blocks"

    depths: tuple[int, ...] = sweep_over((1, 2, 3, 4, 5, 6), "transformer blocks")

    scales = {"paper": {}, "quick": {**QUICK_KNOB, "depths": (1, 2, 3)}}

    def label(self, value: Any) -> str:
        return f"{value} block{'s' if value > 1 else ''}"


@dataclass(frozen=True)
class LstWidth(FieldExperiment):
    """Vary the number of features per token and sigma (experiment lst-width)."""

    name = "lst-width"
    about = "Latin squares: width of the model against sigma"
    claims = knob_claims.WIDTH_CLAIMS
    swept_by = {"width": "widths"}
    knob = "features per token"

    widths: tuple[int, ...] = sweep_over((32, 64, 160, 320), "features per token")

    scales = {"paper": {}, "quick": {**QUICK_KNOB, "widths": (16, 32, 64)}}

    def label(self, value: Any) -> str:
        return f"width {value}"


@dataclass(frozen=True)
class LstPlacement(FieldExperiment):
    """Compare PEs that are added in every block or at the input alone, at several sigmas (experiment lst-placement)."""

    name = "lst-placement"
    about = "Latin squares: the PE in every block or at the input alone, against sigma"
    claims = knob_claims.PLACEMENT_CLAIMS
    swept_by = {"placement": "placements"}
    knob = "where the PE is added"

    placements: tuple[str, ...] = sweep_over(("every", "input"), "where the encoding acts: every (block), input")

    scales = {"paper": {}, "quick": QUICK_KNOB}

    def label(self, value: Any) -> str:
        return {"every": "every block", "input": "input alone"}.get(value, str(value))


@dataclass(frozen=True)
class LstGain(KnobExperiment):
    """Vary the gain, a constant factor of the model's logits, and sigma (experiment lst-gain)."""

    name = "lst-gain"
    about = "Latin squares: gain of the outputs, another control of lazy and rich learning, against sigma"
    claims = knob_claims.GAIN_CLAIMS
    swept_by = {"output_gain": "gains"}
    knob = "gain of the outputs"

    gains: tuple[float, ...] = sweep_over(
        (0.1, 1.0, 10.0),
        "factors of the outputs, with the usual learning rate and with it divided by the factor",
        above=0,
    )

    scales = {"paper": {}, "quick": QUICK_KNOB}

    def variants(self) -> list[Variant]:
        """Return two variants for each gain: with the usual learning rate, and with this rate divided by the gain. They
        are equal for a gain of 1, which has one variant. Adam's steps do not depend on the gain. Weights therefore move
        less at a large gain only if the rate is divided."""
        same, divided = "one step size", "step size divided by the gain"
        same_rate, divided_rate = [], []
        for gain in self.gains:
            line = f"gain {gain:g}"
            panel_lines = [(same, line)]
            if gain == 1:
                panel_lines.append((divided, line))
            else:
                fields = {"output_gain": gain, "learning_rate": self.learning_rate / gain}
                divided_rate.append(Variant(f"{line}, {divided}", fields, [(divided, line)]))
            same_rate.append(Variant(line, {"output_gain": gain}, panel_lines))
        return [*same_rate, *divided_rate]


@dataclass(frozen=True)
class LstDecay(KnobExperiment):
    """Vary the weight decay, the weights that it is applied to, and sigma (experiment lst-decay)."""

    name = "lst-decay"
    about = "Latin squares: weight decay on all weights, on all but the PE, on the PE alone, against sigma"
    claims = optimizer_claims.DECAY_CLAIMS
    swept_by = {"weight_decay": "decays", "pe_weight_decay": "decays and decayed_weights"}
    knob = "what decays"

    optimizer: str = "adamw"
    decays: tuple[float, ...] = sweep_over((1.0, 3.0), "weight decays; 0 is always included", above=0)
    decayed_weights: tuple[str, ...] = sweep_over(
        ("all", "rest", "pe"), "what decays: all, rest (all but the PE), pe", choices=DECAYED_WEIGHTS
    )

    scales = {"paper": {}, "quick": {**QUICK_KNOB, "decays": (0.05,)}}

    def variants(self) -> list[Variant]:
        """Return one variant without decay, and one for each decay and choice of weights. Each decay has a panel."""
        panels = {amount: f"decay {amount:g}" for amount in self.decays}
        no_decay = [(panel, "no decay") for panel in panels.values()]
        lines = {"all": "all weights", "rest": "all but the PE", "pe": "the PE alone"}
        return [
            Variant("no decay", decay_fields("all", 0.0), no_decay),
            *(
                Variant(f"{panel} on {lines[part]}", decay_fields(part, amount), [(panel, lines[part])])
                for amount, panel in panels.items()
                for part in self.decayed_weights
            ),
        ]

    def references(self) -> list[Variant]:
        """Return the variants of 2d-fixed models: no decay, and each decay on all weights but the PE (it is fixed)."""
        panels = {amount: [(f"decay {amount:g}", "2d-fixed, with the same decay")] for amount in self.decays}
        panels[0.0] = [(f"decay {amount:g}", "2d-fixed, no decay") for amount in self.decays]
        return [
            Variant(f"2d-fixed, weight decay {amount:g}", decay_fields("all", amount), panels[amount])
            for amount in (0.0, *self.decays)
        ]


@dataclass(frozen=True)
class LstOptimizer(KnobExperiment):
    """Compare optimizers, learning rates and epsilons of Adam, down to very small sigmas (experiment lst-optimizer)."""

    name = "lst-optimizer"
    about = "Latin squares: optimizer and step sizes against sigma, from 0.01 on"
    claims = optimizer_claims.OPTIMIZER_CLAIMS
    swept_by = {
        "optimizer": "optimizers",
        "learning_rate": "rates and sgd_rates",
        "pe_learning_rate": "pe_rates",
        "epsilon": "epsilons",
    }
    knob = "step size"

    sigmas: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
    optimizers: tuple[str, ...] = sweep_over(
        ("adam", "adamw", "sgd"), "the optimizers; adamw has a weight decay of 0.01 unless one is set"
    )
    rates: tuple[float, ...] = sweep_over((3e-5, 1e-4, 3e-4), "learning rates of adam and adamw; the middle is usual")
    sgd_rates: tuple[float, ...] = sweep_over((0.003, 0.01, 0.03), "learning rates of sgd; the middle one is usual")
    pe_rates: tuple[float, ...] = sweep_over(
        (0.1, 10.0), "learning rates of the PE with adam, as multiples of the usual one", count_at_least=0
    )
    epsilons: tuple[float, ...] = sweep_over(
        (1e-6, 1e-4), "epsilons of adam at its usual learning rate, besides 1e-8", count_at_least=0
    )

    scales = {
        "paper": {},
        "quick": {
            **QUICK_KNOB,
            "sigmas": (0.01, 0.2),
            "optimizers": ("adam", "sgd"),
            "rates": (2.3e-3,),
            "sgd_rates": (0.1,),
            "epsilons": (1e-4,),
            "pe_rates": (0.1,),
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, included in (("pe_rates", 1.0), ("epsilons", self.epsilon)):
            if included in getattr(self, name):
                raise must_be(name, f"other than {included:g}, which is always included", list(getattr(self, name)))

    def variants(self) -> list[Variant]:
        """Return one variant for each optimizer and learning rate, then Adam with other learning rates of the PE, then
        Adam with other epsilons. Each optimizer has a panel. The variants with other rates of the PE share a panel, and
        so do those with other epsilons. Both of these panels also show Adam with the usual settings."""
        names = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
        adam_rate = default_rate(self.rates)
        adam = {"optimizer": "adam", "learning_rate": adam_rate}
        pe_panel, epsilon_panel = "Adam, PE apart", "Adam, epsilon"
        variants = []
        for optimizer in self.optimizers:
            name = names.get(optimizer, optimizer)
            for rate in self.sgd_rates if optimizer == "sgd" else self.rates:
                line = f"step size {rate:g}"
                panel_lines = [(name, line)]
                if optimizer == "adam" and rate == adam_rate:
                    panel_lines += [(pe_panel, "PE's step size x 1")] if self.pe_rates else []
                    panel_lines += [(epsilon_panel, f"epsilon {self.epsilon:g}")] if self.epsilons else []
                decay = self.weight_decay or (0.01 if optimizer == "adamw" else 0.0)  # adamw without decay is adam
                fields = {"optimizer": optimizer, "learning_rate": rate, "weight_decay": decay}
                variants.append(Variant(f"{name}, {line}", fields, panel_lines))
        if "adam" in self.optimizers:
            for factor in self.pe_rates:
                line, fields = f"PE's step size x {factor:g}", {**adam, "pe_learning_rate": factor * adam_rate}
                variants.append(Variant(f"Adam, {line}", fields, [(pe_panel, line)]))
            for epsilon in self.epsilons:
                line, fields = f"epsilon {epsilon:g}", {**adam, "epsilon": epsilon}
                variants.append(Variant(f"Adam, {line}", fields, [(epsilon_panel, line)]))
        return variants
