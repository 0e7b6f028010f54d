"""The committed runs on shuffled pixels: measures and claims computed again, and the numbers of the page on them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import committed_masked as runs
from helpers.made_up import effect_of
from safetensors.numpy import load_file

NEXT_TO = ("neighbor_agreement", "positions")
PIXELS = {"pixels-sigma": 100, "pixels-sigma-digits": 50}
"""The number of pixels of each run; of the digits, those that vary."""
PAGE = (runs.ROOT.parent / "docs/how-to/pixels.md").read_text()


def adjacent_share(similarity: np.ndarray, positions: np.ndarray) -> float:
    """Return the share of pixels whose most similar pixel is next to it on the grid."""
    distance = np.abs(positions - positions[runs.nearest(similarity)]).sum(axis=-1)
    return float((distance == 1).mean())


@pytest.mark.parametrize("run", PIXELS)
def test_measures_follow_from_the_stored_pes(run: str) -> None:
    """PEs of seed 0 are stored in half precision, so a near tie may be decided differently."""
    folder = runs.ROOT / run
    arrays = load_file(folder / "arrays.safetensors")
    positions = np.array(runs.CONFIGS[run]["shape"]["positions"], dtype=np.float64)
    assert len(np.unique(positions, axis=0)) == len(positions) == PIXELS[run]
    recorded = runs.of_members(folder, *NEXT_TO)
    members = runs.where(runs.finished(folder), seed=0)["member"]
    assert len(members) == 11
    for number in members:
        recomputed = adjacent_share(runs.cosines(arrays[f"pe_end/{number}"]), positions)
        assert recomputed == pytest.approx(recorded[number], abs=2.1 / PIXELS[run])
    connectivity = runs.where(runs.table(folder, "baselines"), baseline="fc", metric=NEXT_TO[0])
    for world, value in connectivity.set_index("world")["value"].items():
        recomputed = adjacent_share(arrays[f"fc/{world}"].astype(np.float64), positions)
        assert recomputed == pytest.approx(value, abs=2.1 / PIXELS[run])


@pytest.mark.parametrize("run", PIXELS)
def test_claims_match_values_by_hand(run: str, claims_of: Callable[[Path], dict[str, dict[str, Any]]]) -> None:
    folder = runs.ROOT / run
    claims = claims_of(folder)
    near = runs.measure(folder, *NEXT_TO)
    correlation = runs.of_baseline(folder, "fc", *NEXT_TO, near.columns)
    effects = {
        "grid-falls-with-sigma": runs.over_worlds(folder, near.loc[0.01] - near.loc[2.0]),
        "correlation-does-as-well": runs.over_worlds(folder, near.loc[0.01] - correlation),
        "linear-predicts-better": runs.minus_linear(folder, "hidden 0.5", 0.01),
    }
    assert set(claims) == set(effects)
    for id, effect in effects.items():
        assert effect_of(claims[id]) == pytest.approx(effect, abs=1e-9), id


@pytest.mark.parametrize(("run", "column"), [("pixels-sigma", 1), ("pixels-sigma-digits", 2)])
def test_page_has_the_numbers_of_the_runs(run: str, column: int) -> None:
    rows = {cells[0]: cells for line in PAGE.splitlines() if len(cells := re.split(r" *\| *", line.strip("| "))) == 3}
    near = runs.measure(runs.ROOT / run, *NEXT_TO)
    for sigma in ("0.01", "0.05", "0.2", "2"):
        mean, low, high = runs.over_worlds(runs.ROOT / run, near.loc[float(sigma)])
        written = [float(number) for number in re.findall(r"\d\.\d+", rows[sigma][column])]
        assert written == pytest.approx([mean, low, min(high, 1.0)], abs=0.0051)
    correlation = runs.where(runs.table(runs.ROOT / run, "baselines"), baseline="fc", metric=NEXT_TO[0])["value"]
    assert float(rows["plain correlation"][column]) == pytest.approx(correlation.mean(), abs=0.0051)


def test_page_has_the_errors_of_the_runs() -> None:
    def linear(run: str) -> float:
        rows = runs.where(runs.table(runs.ROOT / run, "baselines"), baseline="linear", metric="mse")
        return float(runs.where(rows, condition="hidden 0.5")["value"].mean())

    photos, digits = (runs.error(runs.ROOT / run, "hidden 0.5").mean(axis=1) for run in PIXELS)
    page = PAGE.replace("\n  ", " ")
    assert f"{photos.loc[0.01]:.3f} at sigma 0.01, {photos.loc[0.5]:.3f} at 0.5, {photos.loc[2.0]:.3f} at 2," in page
    assert f"an error of {linear('pixels-sigma'):.3f}." in page
    assert digits.idxmin() == 0.5
    assert f"sigma 0.5 ({digits.loc[0.5]:.3f} compared with {linear('pixels-sigma-digits'):.3f})" in page
