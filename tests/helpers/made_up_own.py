"""Make up the result of a fit, to test its sentences, tables and figures; and small tables for real fits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from placecode import LearnedPositions
from placecode.analysis.alignment import token_similarity
from placecode.experiments.channels.fit_result import FitResult, Method


def method(n: int = 8, groups: int = 2, seed: int = 0, **scores: float) -> Method:
    """Return a made-up method with n channels in groups."""
    rng = np.random.default_rng(seed)
    pe = rng.normal(size=(n, 4)) + 3 * np.eye(4)[np.arange(n) % groups % 4]
    maps = {axes: rng.normal(size=(n, axes)) for axes in (2, 3)}
    return Method(token_similarity(pe[None]), maps, np.arange(n) % groups, scores)


def made_up(n: int = 8, groups: int = 2, **fields: Any) -> FitResult:
    """Return a made-up fit that found structure with confidence, better than other methods; `given` replaces fields."""
    rng = np.random.default_rng(1)
    pairs = np.triu((rng.random((n, n)) * 0.8), k=1)
    pairs[0, 1] = 0.9  # just enough to count as sure
    facts = {"samples": 12_000, "channels": n, "left out": 0, "train": 7_200, "test": 2_400, "diverged": 0, "memory": 0}
    defaults: dict[str, Any] = {
        "names": tuple(f"c{i + 1}" for i in range(n)),
        "sigma": 0.05,
        "why": "sigma 0.05 was chosen: it did.",
        "sigmas": [
            {"sigma": 0.05, "error": 0.4, "standard_error": 0.02, "stability": 0.9},
            {"sigma": 0.2, "error": 0.5, "standard_error": 0.03, "stability": float("nan")},
        ],
        "p_value": 0.005,
        "heldout_mse": 0.25,
        "linear_mse": 0.375,
        "mean_mse": 1.0,
        "ours": method(n, groups, heldout_mse=0.25),
        "embedding": rng.normal(size=(n, 5)),
        "neighbors": np.stack([(np.arange(n) + k) % n for k in (1, 2)], axis=1),
        "confidence": np.linspace(0.94, 0.6, n),
        "pairs": pairs + pairs.T,
        "stability": {k: 0.8 if k == groups else 0.25 for k in range(2, groups + 3)},
        "others": {
            "correlation": method(n, 3, 1, heldout_mse=0.375),
            "pca": method(n, 2, 2, heldout_mse=0.5),
            "umap": method(n, 2, 3),
        },
        "left_out": {"graphical lasso": "left out: it did not converge"},
        "data_summary": facts,
    }
    return FitResult(**{**defaults, **fields})


def scored(result: FitResult, ours: dict[str, float], others: dict[str, float]) -> FitResult:
    """Return the fit with these scores added to ours and to those of the others."""
    return replace(
        result,
        ours=replace(result.ours, scores={**result.ours.scores, **ours}),
        others={name: replace(method, scores={**method.scores, **others}) for name, method in result.others.items()},
    )


# Fits by LearnedPositions

TINY: dict[str, Any] = {"sigma": 0.05, "steps": 1, "width": 8, "layers": 1, "n_seeds": 1, "n_halves": 1, "n_draws": 19}


def tiny(**parameters: Any) -> LearnedPositions:
    """Return an estimator that fits in a moment."""
    return LearnedPositions(**{**TINY, "device": "cpu", **parameters})


def table(samples: int = 150, channels: int = 6, seed: int = 0) -> np.ndarray:
    """Return a table of noise."""
    return np.random.default_rng(seed).normal(size=(samples, channels))


def frame(samples: int = 150) -> pd.DataFrame:
    """Return a table with columns of numbers, a category, true or false, and people."""
    rng = np.random.default_rng(0)
    result = pd.DataFrame(table(samples, 5), columns=list("abcde"))
    result.insert(2, "wind", rng.choice(np.array(["west", "east", " north ", None], dtype=object), samples))
    result["dry"] = pd.Series(rng.random(samples) < 0.5).map({True: "True", False: "False"})
    result["who"] = [f"p{i * 6 // samples}" for i in range(samples)]
    return result


def same(a: LearnedPositions, b: LearnedPositions) -> None:
    """Assert that two fits have the same results."""
    np.testing.assert_array_equal(a.embedding_, b.embedding_)
    np.testing.assert_array_equal(a.map_, b.map_)
    assert a.p_value_ == b.p_value_ and a.scores_ == b.scores_
