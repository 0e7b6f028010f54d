"""What a fit found, as it is written into its run folder and read back: `fit.json`, `fit.safetensors`, and for people
`map.csv`."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open

from placecode.errors import BadInput
from placecode.files import write_json, write_tensors, write_text

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

FOUND, NOT_FOUND = "structure found", "no structure found"
LEVEL = 0.05
"""The p-value from which on chance is not ruled out."""
SCORES = ("heldout_mse", "procrustes_r2", "neighbor_agreement", "neighbor_agreement_p", "ari", "ari_p")
"""What is told of every method, where it can be; _p: how often channels in random order do as well."""


@dataclass(frozen=True)
class Method:
    """A map of the channels by one method, ours or another: `similarity` (n, n), `maps` (n, 2) and (n, 3), `labels`
    (n,), and its `scores`, those of SCORES that can be told."""

    similarity: Array
    maps: Mapping[int, Array]
    labels: Labels
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Found:
    """All that a fit has to say."""

    names: tuple[str, ...]
    sigma: float
    why: str
    """Why this sigma, in a sentence."""
    sigmas: Sequence[Mapping[str, float]]
    """Of every sigma: error, standard_error, stability."""
    p_value: float
    heldout_mse: float
    linear_mse: float
    mean_mse: float
    """The error of guessing the mean of every channel."""
    ours: Method
    embedding: Array
    neighbors: Labels
    """The nearest channels of each, (n, k)."""
    confidence: Array
    """Of each channel, (n,)."""
    pairs: Array
    """Of every two channels, (n, n)."""
    stability: Mapping[int, float]
    """Of the modules, by their number."""
    others: Mapping[str, Method] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Methods that were not tried, and why."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Samples, channels that are left out, and the like."""
    positions: Array | None = None
    labels: Labels | None = None
    label_names: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        """Whether true channels are predicted better than shifted ones, and better than by their means."""
        return self.p_value <= LEVEL and self.heldout_mse < self.mean_mse

    @property
    def verdict(self) -> str:
        return FOUND if self.found else NOT_FOUND

    @property
    def placed(self) -> npt.NDArray[np.bool_]:
        """The channels that others tell anything of, (n,): the rest have no place on the map."""
        return np.asarray(self.ours.labels >= 0)

    @property
    def count(self) -> int:
        """How many modules there are; 1 where the fits agree on no division, 0 where no channel has a place."""
        return int(self.ours.labels.max()) + 1

    @property
    def mean_confidence(self) -> float:
        """How surely the channels that have a place lie there, in the mean; 0 where none has."""
        known = self.confidence[self.placed]
        return float(np.nanmean(known)) if np.isfinite(known).any() else 0.0

    @property
    def explained(self) -> float:
        """Share of the variance of a hidden channel that the others explain: 1 minus error / error of the mean."""
        return 1 - self.heldout_mse / self.mean_mse

    def summary(self) -> dict[str, Any]:
        """What summary.json says of a fit, ours first and then the same of every other method."""
        told = {
            "verdict": self.verdict,
            "p_value": self.p_value,
            "sigma": self.sigma,
            "why": self.why,
            "heldout_mse": self.heldout_mse,
            "linear_mse": self.linear_mse,
            "mean_mse": self.mean_mse,
            "modules": self.count,
            "modules_agreement": self.stability.get(self.count),
            "confidence": self.mean_confidence if np.isfinite(self.confidence).any() else None,
            **{name: self.ours.scores[name] for name in SCORES[1:] if name in self.ours.scores},
        }
        rest = {name: dict(method.scores) for name, method in self.others.items()}
        whole: dict[str, Any] = _no_nan({**told, "baselines": rest, "left_out": dict(self.left_out)})
        return whole

    def surely(self) -> tuple[Array, Array]:
        """The confidence of channels and of pairs, NaN for channels that have no place."""
        both = self.placed[:, None] & self.placed
        return np.where(self.placed, self.confidence, np.nan), np.where(both, self.pairs, np.nan)

    def table(self) -> pd.DataFrame:
        """A row for every channel: where it lies, in which module, how surely, and who is next to it."""
        columns: dict[str, Any] = {"name": self.names}
        for axes, places in sorted(self.ours.maps.items()):
            columns |= {f"{axis}{'' if axes == 2 else '_3d'}": places[:, i] for i, axis in enumerate("xyz"[:axes])}
        module = pd.array(self.ours.labels + 1, dtype="Int64")
        module[self.ours.labels < 0] = pd.NA
        sure, pairs = self.surely()
        columns |= {"module": module, "confidence": sure}
        for place in range(self.neighbors.shape[1]):
            own = self.neighbors[:, place]
            columns[f"neighbor_{place + 1}"] = [self.names[i] for i in own]
            columns[f"neighbor_{place + 1}_confidence"] = pairs[np.arange(len(own)), own]
        if self.labels is not None:
            columns["label"] = ["" if i < 0 else self.label_names[i] for i in self.labels]
        return pd.DataFrame(columns)


EXACT = ("confidence", "pairs")
"""Arrays that words count by a threshold: in float32, what is read back would fall on its other side."""
PLAIN = ("sigma", "why", "p_value", "heldout_mse", "linear_mse", "mean_mse")


def write(found: Found, path: Path) -> None:
    """Write what was found into a run folder: the arrays first, then the words, then the table for people."""
    arrays = {"embedding": found.embedding, "neighbors": found.neighbors, "confidence": found.confidence}
    arrays |= {"pairs": found.pairs}
    for name, known in (("positions", found.positions), ("labels", found.labels)):
        if known is not None:
            arrays[name] = known
    for name, method in {"ours": found.ours, **found.others}.items():
        arrays |= {f"{name}/similarity": method.similarity, f"{name}/labels": method.labels}
        arrays |= {f"{name}/map{axes}": places for axes, places in method.maps.items()}
    tensors = {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in arrays.items()}
    small = {
        name: each.float() if each.is_floating_point() and name not in EXACT else each for name, each in tensors.items()
    }
    write_tensors(path / "fit.safetensors", small)
    told = {name: getattr(found, name) for name in PLAIN}
    told |= {"names": found.names, "sigmas": [dict(row) for row in found.sigmas], "left_out": dict(found.left_out)}
    told |= {"stability": {str(k): v for k, v in found.stability.items()}, "facts": dict(found.facts)}
    told |= {"label_names": found.label_names}
    told["scores"] = {name: dict(method.scores) for name, method in {"ours": found.ours, **found.others}.items()}
    write_json(path / "fit.json", _no_nan(told))
    text = io.StringIO()
    found.table().to_csv(text, index=False, float_format="%.6g", lineterminator="\n")
    write_text(path / "map.csv", text.getvalue())


def read(path: Path) -> Found:
    """What `write` wrote."""
    try:
        told = json.loads((path / "fit.json").read_text())
        with safe_open(path / "fit.safetensors", framework="numpy") as file:
            arrays = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError) as error:
        raise BadInput(f"{path} must hold a finished fit, with fit.json and fit.safetensors; it does not.") from error
    wide: dict[str, Any] = {
        name: each.astype(np.float64) if each.dtype.kind == "f" else each for name, each in arrays.items()
    }
    methods = {
        name: Method(
            wide[f"{name}/similarity"],
            {axes: wide[f"{name}/map{axes}"] for axes in (2, 3) if f"{name}/map{axes}" in wide},
            wide[f"{name}/labels"],
            scores,
        )
        for name, scores in told["scores"].items()
    }
    return Found(
        **{name: told[name] for name in PLAIN},
        names=tuple(told["names"]),
        sigmas=told["sigmas"],
        ours=methods.pop("ours"),
        embedding=wide["embedding"],
        neighbors=wide["neighbors"],
        confidence=wide["confidence"],
        pairs=wide["pairs"],
        stability={int(k): float("nan") if v is None else v for k, v in told["stability"].items()},
        others=methods,
        left_out=told["left_out"],
        facts=told["facts"],
        positions=wide.get("positions"),
        labels=wide.get("labels"),
        label_names=tuple(told["label_names"]),
    )


def _no_nan(value: Any) -> Any:
    """JSON knows no NaN: what could not be told is null."""
    if isinstance(value, Mapping):
        return {name: _no_nan(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_no_nan(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
