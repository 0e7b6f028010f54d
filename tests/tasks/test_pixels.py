"""Shuffled pixels: the grid that is to be found, what is held out, and that no order or world gives it away."""

import sys
from typing import Any

import numpy as np
import pytest

from placecode.analysis.modules import related_neighbor_agreement
from placecode.analysis.places import neighbors_in_space
from placecode.errors import BadInput
from placecode.tasks import pixels
from placecode.tasks.pixels import Photos, Pixels, sample_table

DIGITS: dict[str, Any] = {"source": "digits", "train": 1_400, "test": 397}


def data(task: Pixels, split: str = "train") -> np.ndarray:
    return task.splits[split].inputs.numpy()


@pytest.fixture(scope="module")
def task() -> Pixels:
    return Pixels(train=2_000, test=300, worlds=2)


def test_every_cell_of_the_grid_is_one_channel(task) -> None:
    assert (task.tokens, task.features, task.worlds, task.window, task.eval_mask_ratios) == (100, 2, 2, 1, (0.5, 0.9))
    cells = task.positions @ [10, 1]
    assert sorted(cells.tolist()) == list(range(100)) and cells.tolist() != sorted(cells.tolist())
    assert task.labels is None
    for name, (row, column) in zip(task.token_names, task.positions, strict=True):
        assert name == f"pixel {int(row)},{int(column)}"


def test_the_most_correlated_pixels_are_neighbours(task) -> None:
    """Channels that are close on the grid are correlated, so the data contain the grid."""
    neighbors = neighbors_in_space(task.positions)
    assert neighbors.sum() == 2 * 2 * 9 * 10
    correlations = np.stack([np.corrcoef(world.T) for world in data(task)])
    assert related_neighbor_agreement(correlations, neighbors).min() > 0.97
    order = np.random.default_rng(0).permutation(100)
    assert related_neighbor_agreement(correlations[:, order][..., order], neighbors).max() < 0.15


def test_pixels_in_order_are_the_same_pixels(task) -> None:
    plain = Pixels(train=2_000, test=300, worlds=2, shuffled=False)
    cells = (task.positions @ [10, 1]).astype(int)
    assert (plain.positions @ [10, 1]).tolist() == list(range(100))
    np.testing.assert_array_equal(data(plain)[..., cells], data(task))


def test_digits_leave_out_pixels_that_hardly_vary() -> None:
    task = Pixels(**DIGITS, worlds=2)
    assert "size" not in task.describe()  # it does not apply
    left_out = set(range(64)) - set((task.positions @ [8, 1]).astype(int).tolist())
    raw = pixels.digits()
    for cell in range(64):
        assert (cell in left_out) == (np.bincount(raw[:, cell].astype(int)).max() > 0.95 * len(raw))
    assert np.isfinite(data(task)).all() and np.abs(data(task)).max() < 30
    train, test = pixels.Digits(np.arange(1_797.0)[:, None] * np.ones(64)).split(np.random.default_rng(0), 1_400, 397)
    assert sorted([*train[:, 0], *test[:, 0]]) == list(range(1_797))


def coded(width: int = 64, height: int = 40) -> np.ndarray:
    """Return a picture in which the value of each pixel is its index."""
    return np.arange(height * width, dtype=np.float64).reshape(height, width)


def test_a_patch_has_every_stride_th_pixel_row_by_row() -> None:
    patches = Photos([coded()], 3, 2).draw(np.random.default_rng(0), [np.ones(64, dtype=bool)], 300)
    offsets = 2 * np.add.outer(64 * np.arange(3), np.arange(3)).ravel()
    np.testing.assert_array_equal(patches - patches[:, :1], np.tile(offsets, (300, 1)))


def test_no_column_is_in_both_splits_and_no_patch_crosses() -> None:
    source = Photos([coded(), coded() + 1e6], 3, 2)
    for seed in range(5):
        train, test = source.split(np.random.default_rng(seed), 2_000, 500)
        for number in (0, 1):
            patches = [part[(part[:, 0] >= 1e6) == bool(number)] - 1e6 * number for part in (train, test)]
            assert len(patches[0]) > 800 and len(patches[1]) > 150
            spans = [{int(c) + i for c in part[:, 0] % 64 for i in range(5)} for part in patches]
            assert not spans[0] & spans[1]
            assert len(spans[0]) > 40 and len(spans[1]) == 16  # two of eight strips of 8 columns


def test_patches_of_different_strips_share_no_pixel() -> None:
    """If the columns of a picture have different grey values, a patch shows its position."""
    ramps = [np.tile(np.arange(640) / 640 + shift, (427, 1)) for shift in (0.0, 1.0)]
    values, strips = Photos(ramps, 10, 4).by_strip(np.random.default_rng(0), 1_000)
    assert values.shape == (1_000, 100) and len(np.unique(strips)) == 16
    assert ((values * 640).round().astype(int) // 80 == strips[:, None]).all()


def test_the_table_has_the_pixels_of_the_task() -> None:
    values, names, positions, strips = sample_table(samples=500)
    task = Pixels(train=400, test=100)
    assert values.shape == (500, 100) and 0 <= values.min() < values.max() <= 1 and strips.shape == (500,)
    assert names == task.token_names
    np.testing.assert_array_equal(positions, task.positions)
    again = sample_table(samples=500)
    assert (again[0] == values).all() and (again[3] == strips).all()
    assert (sample_table(samples=500, seed=1)[0] != values).any()
    digits, _, _, parts = sample_table(source="digits", samples=500)
    assert digits.shape[0] == 500 and len(np.unique(parts)) == 8


@pytest.mark.parametrize(("missing", "source"), [("PIL", "photos"), ("sklearn", "photos"), ("sklearn", "digits")])
def test_a_missing_package_is_refused(missing, source, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadInput, match="pip install"):
        Pixels(source=source)
