"""Made-up things that move, whose truth is known: a dial and a map of channels, as a study of one's own table gives."""

from __future__ import annotations

import numpy as np

from placecode.reports.pages.dials import Channels, Dial, Stop

EVIL = "<img src=x onerror=alert(1)>"
"""A name that must stay a name."""
SIGMAS = (0.01, 0.1, 1.0)


def names(count: int) -> list[str]:
    """The second is evil, and one is a part of others."""
    return [f"channel {i}" if i != 1 else EVIL for i in range(count)]


LONG = "a name of ninety letters " + "x" * 65
FORMULA = "$x^2$ and more"


def crowded() -> tuple[Dial, Channels]:
    """Channels in three heaps, whose names would hide each other; one name is long, and one looks like a formula."""
    said = [LONG, FORMULA, *(f"Channel {i}" for i in range(2, 30))]
    heaps = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.0]])[np.arange(30) % 3]
    places = heaps + np.random.default_rng(2).normal(size=(30, 2)) * 0.02
    stops = [Stop(f"{s:g}", s, {"mse, test": (s, np.nan, np.nan)}, np.eye(30), places * s) for s in (0.5, 1.0)]
    turning = Dial(said, None, [], stops, {"mse, test": "error (mse)"})
    return turning, Channels(said, places, modules=np.arange(30) % 3, columns={"confidence": [np.nan] * 30})


def dial(count: int, groups: int, sigmas: tuple[float, ...] = SIGMAS, attention: bool = False) -> Dial:
    """Blocks that fade as sigma grows; the error grows by what is easy to read."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, groups, count)
    stops = []
    for place, sigma in enumerate(sigmas):
        noise = rng.uniform(-0.2, 0.2, (count, count))
        similar = (codes[:, None] == codes) * (0.9 - 0.4 * place) + (noise + noise.T) / 2
        np.fill_diagonal(similar, 1.0)
        looks = rng.dirichlet(np.ones(count), count) if attention else None
        values = {
            "mse, test": (0.5 + sigma, 0.4 + sigma, 0.6 + sigma),
            "same group": (0.9 - 0.1 * place, np.nan, np.nan),
        }
        stops.append(Stop(f"{sigma:g}", sigma, values, similar, rng.normal(size=(count, 2)), looks))
    said = {"mse, test": "error (mse)", "same group": "share of channels"}
    return Dial(names(count), codes, [f"group {i + 1}" for i in range(groups)], stops, said, note="Made up.")


def channels(count: int, modules: int = 4, space: bool = True) -> Channels:
    rng = np.random.default_rng(1)
    codes = rng.integers(-1, modules, count)
    centres = rng.normal(size=(modules + 1, 3)) * 2
    places = centres[codes] + rng.normal(size=(count, 3)) * 0.4
    away = np.linalg.norm(places[:, None] - places, axis=-1)
    near = np.argsort(away, axis=1, kind="stable")[:, 1:6]
    sure = np.sort(rng.uniform(0, 1, (count, 5)), axis=1)[:, ::-1]
    neighbors = [list(zip(map(int, own), map(float, bars), strict=True)) for own, bars in zip(near, sure, strict=True)]
    columns = {
        "confidence of place": list(rng.uniform(0, 1, count)),
        "kind": ["unit" if i % 2 else "" for i in range(count)],
    }
    edges = [(i, int(near[i, 0]), 0.5) for i in range(count)]
    deep = places if space else None
    return Channels(names(count), places[:, :2], deep, codes, (), columns, neighbors, edges, "A map that was made up.")
