"""The result of `placecode fit`, and its files in the run folder: `fit.json`, `fit.safetensors` and the table
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

from placecode.analysis.modules import Labels
from placecode.arrays import Array
from placecode.errors import BadInput
from placecode.files import write_json, write_tensors, write_text

FOUND, NOT_FOUND = "structure found", "no structure found"
SIGNIFICANCE_LEVEL = 0.05
"""Largest p value that counts as structure."""
SCORES = ("heldout_mse", "procrustes_r2", "neighbor_agreement", "neighbor_agreement_p", "ari", "ari_p")
"""Names of the scores that a method may have. Names ending in _p are p values, from channels in random order."""


@dataclass(frozen=True)
class Method:
    """The result of one method, such as our models or PCA, for n channels.

    `similarity` has shape (n, n). `maps` has positions of the channels by number of axes: (n, 2) for 2, and (n, 3) for
    3. `labels`, (n,), has the module (group of similar channels) of each channel, or -1 for none. `scores` are by name,
    see `SCORES`.
    """

    similarity: Array
    maps: Mapping[int, Array]
    labels: Labels
    scores: Mapping[str, float]


@dataclass(frozen=True)
class FitResult:
    """The result of a fit of a table with n channels: their map, modules (groups of similar channels), neighbours and
    confidence, the test against chance, and maps by other methods."""

    names: tuple[str, ...]
    sigma: float
    why: str
    """The reason for this sigma, in a sentence."""
    sigmas: Sequence[Mapping[str, float]]
    """A row for each sigma that was tried, with the keys sigma, error, standard_error and stability."""
    p_value: float  # of the permutation test whether the channels depend on each other
    heldout_mse: float  # error of the models on hidden channels of the test samples
    linear_mse: float  # error of a linear prediction
    mean_mse: float
    """Error of a prediction of every channel by its mean."""
    ours: Method  # map, modules and scores of the models
    embedding: Array  # mean PE of the models trained on all samples, rotated onto each other, (n, axes)
    neighbors: Labels
    """The nearest channels of each channel, (n, k), nearest first."""
    confidence: Array
    """Confidence in the position of each channel, (n,)."""
    pairs: Array
    """Confidence that two channels are neighbours, (n, n)."""
    stability: Mapping[int, float]
    """Agreement of the modules between fits (adjusted Rand index: 1 if equal, 0 at chance), by number of modules."""
    others: Mapping[str, Method] = field(default_factory=dict)  # results of other methods, by name
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Other methods that were not used, and why."""
    data_summary: Mapping[str, Any] = field(default_factory=dict)
    """Number of samples, excluded channels, and the like."""
    positions: Array | None = None  # known positions of the channels, (n, 2) or (n, 3)
    labels: Labels | None = None  # known group of each channel, (n,), as an index into `label_names`
    label_names: tuple[str, ...] = ()

    @property
    def has_structure(self) -> bool:
        """Whether the fit found structure: the models predict the table better than copies of it in which channels are
        shifted against each other (`p_value`), and better than the mean of each channel does."""
        return self.p_value <= SIGNIFICANCE_LEVEL and self.heldout_mse < self.mean_mse

    @property
    def verdict(self) -> str:
        """The verdict in words: FOUND if `has_structure` is True, otherwise NOT_FOUND."""
        return FOUND if self.has_structure else NOT_FOUND

    @property
    def on_map(self) -> npt.NDArray[np.bool_]:
        """Mask (n,) of the channels that have a position on the map: other channels predict them, or they help to
        predict others. It is all False if no structure was found, or for fewer than two such channels."""
        return np.asarray(self.ours.labels >= 0)

    @property
    def module_count(self) -> int:
        """Number of modules. It is 1 if the fits agree on no division, and 0 if no channel has a position on the
        map."""
        return int(self.ours.labels.max()) + 1

    @property
    def mean_confidence(self) -> float:
        """Mean confidence of the channels with a position on the map. It is 0 if there are none or it is unknown."""
        placed = self.confidence[self.on_map]
        return float(np.nanmean(placed)) if np.isfinite(placed).any() else 0.0

    @property
    def explained(self) -> float:
        """Share of the variance of a hidden channel that the other channels explain: 1 - `heldout_mse` / `mean_mse`."""
        return 1 - self.heldout_mse / self.mean_mse

    def summary(self) -> dict[str, Any]:
        """Return what a fit adds to summary.json of its run: the verdict and the scores of our models, the scores of
        the other methods ("baselines"), and why some of these were left out."""
        ours = {
            "verdict": self.verdict,
            "p_value": self.p_value,
            "sigma": self.sigma,
            "why": self.why,
            "heldout_mse": self.heldout_mse,
            "linear_mse": self.linear_mse,
            "mean_mse": self.mean_mse,
            "modules": self.module_count,
            "modules_agreement": self.stability.get(self.module_count),
            "confidence": self.mean_confidence if np.isfinite(self.confidence).any() else None,
            **{name: self.ours.scores[name] for name in SCORES[1:] if name in self.ours.scores},
        }
        others = {name: dict(method.scores) for name, method in self.others.items()}
        summary: dict[str, Any] = _no_nan({**ours, "baselines": others, "left_out": dict(self.left_out)})
        return summary

    def confidences(self) -> tuple[Array, Array]:
        """Return the confidence in the position of each channel, (n,), and the confidence that two channels are
        neighbours, (n, n), from 0 to 1. Both are NaN for channels that are not on the map."""
        both_placed = self.on_map[:, None] & self.on_map
        return np.where(self.on_map, self.confidence, np.nan), np.where(both_placed, self.pairs, np.nan)

    def table(self) -> pd.DataFrame:
        """Return a table with one row per channel: its position, module, confidence and neighbours. It becomes
        `map.csv`."""
        columns: dict[str, Any] = {"name": self.names}
        for axes, places in sorted(self.ours.maps.items()):
            columns |= {f"{axis}{'' if axes == 2 else '_3d'}": places[:, i] for i, axis in enumerate("xyz"[:axes])}
        module = pd.array(self.ours.labels + 1, dtype="Int64")
        module[self.ours.labels < 0] = pd.NA
        confidence, pairs = self.confidences()
        columns |= {"module": module, "confidence": confidence}
        for rank, neighbors in enumerate(self.neighbors.T, start=1):
            columns[f"neighbor_{rank}"] = [self.names[i] for i in neighbors]
            columns[f"neighbor_{rank}_confidence"] = pairs[np.arange(len(neighbors)), neighbors]
        if self.labels is not None:
            columns["label"] = ["" if i < 0 else self.label_names[i] for i in self.labels]
        return pd.DataFrame(columns)


EXACT = ("confidence", "pairs")
"""Arrays that are written in float64, because reports compare them with thresholds that rounding could cross."""
PLAIN = ("sigma", "why", "p_value", "heldout_mse", "linear_mse", "mean_mse")
"""Fields that are written to `fit.json` as they are."""


def write(result: FitResult, path: Path) -> None:
    """Write the result of a fit into a run folder: arrays (fit.safetensors), numbers (fit.json), and a table with one
    row per channel for spreadsheets (map.csv)."""
    names = ("embedding", "neighbors", "confidence", "pairs", "positions", "labels")
    arrays = {name: getattr(result, name) for name in names if getattr(result, name) is not None}
    methods = {"ours": result.ours, **result.others}
    for name, method in methods.items():
        arrays |= {f"{name}/similarity": method.similarity, f"{name}/labels": method.labels}
        arrays |= {f"{name}/map{axes}": places for axes, places in method.maps.items()}
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and name not in EXACT:
            tensors[name] = tensor.float()
    write_tensors(path / "fit.safetensors", tensors)
    record = {
        **{name: getattr(result, name) for name in PLAIN},
        "names": result.names,
        "sigmas": [dict(row) for row in result.sigmas],
        "left_out": dict(result.left_out),
        "stability": {str(k): v for k, v in result.stability.items()},
        "facts": dict(result.data_summary),
        "label_names": result.label_names,
        "scores": {name: dict(method.scores) for name, method in methods.items()},
    }
    write_json(path / "fit.json", _no_nan(record))
    text = io.StringIO()
    result.table().to_csv(text, index=False, float_format="%.6g", lineterminator="\n")
    write_text(path / "map.csv", text.getvalue())


def read(path: Path) -> FitResult:
    """Read the result that `write` wrote into a run folder. Raise `BadInput` if its files are missing or broken."""
    try:
        record = json.loads((path / "fit.json").read_text())
        with safe_open(path / "fit.safetensors", framework="numpy") as file:
            arrays = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError) as error:
        raise BadInput(f"{path} must hold a finished fit, with fit.json and fit.safetensors; it does not.") from error
    wide: dict[str, Any] = {
        name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in arrays.items()
    }
    methods = {
        name: Method(
            wide[f"{name}/similarity"],
            {axes: wide[f"{name}/map{axes}"] for axes in (2, 3) if f"{name}/map{axes}" in wide},
            wide[f"{name}/labels"],
            scores,
        )
        for name, scores in record["scores"].items()
    }
    return FitResult(
        **{name: record[name] for name in PLAIN},
        names=tuple(record["names"]),
        sigmas=record["sigmas"],
        ours=methods.pop("ours"),
        embedding=wide["embedding"],
        neighbors=wide["neighbors"],
        confidence=wide["confidence"],
        pairs=wide["pairs"],
        stability={int(k): float("nan") if v is None else v for k, v in record["stability"].items()},
        others=methods,
        left_out=record["left_out"],
        data_summary=record["facts"],
        positions=wide.get("positions"),
        labels=wide.get("labels"),
        label_names=tuple(record["label_names"]),
    )


def _no_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None in nested values."""
    if isinstance(value, Mapping):
        return {name: _no_nan(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_no_nan(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
