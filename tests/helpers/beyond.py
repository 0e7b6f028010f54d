"""The experiments beyond the paper on Latin squares, small enough to run in less than a second."""

from typing import Any

from placecode import experiments
from placecode.experiments.latin.knobs import KnobExperiment

SMALLEST: dict[str, Any] = {"per_class": 20, "heldout": 6, "distance": 0.5, "batch": 16, "learning_rate": 1e-2}
SMALLEST |= {"epochs": 2, "evaluations": 2, "seeds": (0, 1), "sigmas": (0.2, 2.0)}
SMALLEST |= {"width": 8, "layers": 1, "heads": 2, "expansion": 1}
"""Settings with which an experiment trains in less than a second."""
SWEPT: dict[str, dict[str, Any]] = {
    "lst-causal": {"layers": 2, "heldout": 60},
    "lst-optimizer": {"sigmas": (0.01, 0.2), "rates": (1e-3, 1e-2), "sgd_rates": (0.1,), "pe_rates": (0.1, 10.0)},
    "lst-heads": {"head_counts": (1, 2, 4)},
    "lst-depth": {"depths": (2, 1)},
    "lst-width": {"widths": (8, 16)},
    "lst-decay": {"decays": (1.0, 3.0)},
    "lst-placement": {"layers": 2},
    "lst-gain": {"gains": (0.1, 1.0, 10.0)},
    "lst-data": {"samples": (18, 54)},
    "lst-size": {},
}
"""The values that each experiment sweeps, with as few members as possible."""


def smallest(name: str, **changes: Any) -> KnobExperiment:
    """Return the experiment of this name at the smallest size."""
    cls = experiments.EXPERIMENTS[name]
    assert issubclass(cls, KnobExperiment)
    settings = {**SMALLEST, **SWEPT[name], **changes}
    return cls.from_scale("quick", **{field: value for field, value in settings.items() if field not in cls.swept_by})
