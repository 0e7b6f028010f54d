"""The committed runs on shuffled pixels: measures and claims computed again, and the numbers of the page on them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.committed_masked import (
    CONFIGS,
    ROOT,
    cosines,
    error,
    finished,
    measure,
    minus_linear,
    nearest,
    of_baseline,
    of_members,
    over_worlds,
    table,
    where,
)
from safetensors.numpy import load_file

NEXT_TO = ("neighbor_agreement", "positions")
PAGE = (ROOT.parent / "docs/how-to/pixels.md").read_text()


def adjacent_share(similarity: np.ndarray, positions: np.ndarray) -> float:
    """Return the share of pixels whose most similar pixel is next to it on the grid."""
    distance = np.abs(positions - positions[nearest(similarity)]).sum(axis=-1)
    return float((distance == 1).mean())


@pytest.mark.parametrize("run", ["pixels-sigma", "pixels-sigma-digits"])
def test_measures_follow_from_the_stored_pes(run: str) -> None:
    """PEs of seed 0 are stored in half precision, so a near tie may be decided differently."""
    arrays = load_file(ROOT / run / "arrays.safetensors")
    positions = np.array(CONFIGS[run]["shape"]["positions"], dtype=np.float64)
    pixels = len(np.unique(positions, axis=0))
    assert (
        pixels == len(positions) == {"pixels-sigma": 100, "pixels-sigma-digits": 50}[run]
    )  # of the digits, those that vary
    recorded = of_members(ROOT / run, *NEXT_TO)
    members = where(finished(ROOT / run), seed=0)["member"]
    assert len(members) == 11
    for number in members:
        recomputed = adjacent_share(cosines(arrays[f"pe_end/{number}"]), positions)
        assert recomputed == pytest.approx(recorded[number], abs=2.1 / pixels)
    connectivity = where(table(ROOT / run, "baselines"), baseline="fc", metric=NEXT_TO[0]).set_index("world")["value"]
    for world, value in connectivity.items():
        recomputed = adjacent_share(arrays[f"fc/{world}"].astype(np.float64), positions)
        assert recomputed == pytest.approx(value, abs=2.1 / pixels)


@pytest.mark.parametrize("run", ["pixels-sigma", "pixels-sigma-digits"])
def test_claims_match_values_by_hand(run: str, claims_of: Callable[[Path], dict[str, dict[str, Any]]]) -> None:
    folder = ROOT / run
    claims = claims_of(folder)
    near = measure(folder, *NEXT_TO)
    correlation = of_baseline(folder, "fc", *NEXT_TO, near.columns)
    effects = {
        "grid-falls-with-sigma": over_worlds(folder, near.loc[0.01] - near.loc[2.0]),
        "correlation-does-as-well": over_worlds(folder, near.loc[0.01] - correlation),
        "linear-predicts-better": minus_linear(folder, "hidden 0.5", 0.01),
    }
    assert set(claims) == set(effects)
    for id, effect in effects.items():
        assert [claims[id][name] for name in ("effect", "low", "high")] == pytest.approx(effect, abs=1e-9), id


@pytest.mark.parametrize(("run", "column"), [("pixels-sigma", 1), ("pixels-sigma-digits", 2)])
def test_page_has_the_numbers_of_the_runs(run: str, column: int) -> None:
    rows = {cells[0]: cells for line in PAGE.splitlines() if len(cells := re.split(r" *\| *", line.strip("| "))) == 3}
    near = measure(ROOT / run, *NEXT_TO)
    for sigma in ("0.01", "0.05", "0.2", "2"):
        mean, low, high = over_worlds(ROOT / run, near.loc[float(sigma)])
        written = [float(number) for number in re.findall(r"\d\.\d+", rows[sigma][column])]
        assert written == pytest.approx([mean, low, min(high, 1.0)], abs=0.0051)
    correlation = where(table(ROOT / run, "baselines"), baseline="fc", metric=NEXT_TO[0])["value"]
    assert float(rows["plain correlation"][column]) == pytest.approx(correlation.mean(), abs=0.0051)


def test_page_has_the_errors_of_the_runs() -> None:
    def linear(run: str) -> float:
        rows = where(table(ROOT / run, "baselines"), baseline="linear", metric="mse", condition="hidden 0.5")
        return float(rows["value"].mean())

    photos, digits = (error(ROOT / run, "hidden 0.5").mean(axis=1) for run in ("pixels-sigma", "pixels-sigma-digits"))
    page = PAGE.replace("\n  ", " ")
    assert f"{photos.loc[0.01]:.3f} at sigma 0.01, {photos.loc[0.5]:.3f} at 0.5, {photos.loc[2.0]:.3f} at 2," in page
    assert f"an error of {linear('pixels-sigma'):.3f}." in page
    assert digits.idxmin() == 0.5
    assert f"sigma 0.5 ({digits.loc[0.5]:.3f} compared with {linear('pixels-sigma-digits'):.3f})" in page
