"""Size, way, dimension and map of a PE as mathematics: what must change them, what must not, and other formulas."""

from collections.abc import Callable

import numpy as np
import pytest
from helpers.planted import rotation
from scipy.optimize import minimize
from scipy.spatial.distance import pdist

from placecode.analysis.geometry import align_map, effective_dimension, mds, moved, norm

pytestmark = pytest.mark.filterwarnings("error")
GRID = np.stack(np.divmod(np.arange(16), 4), axis=-1) @ np.diag([2.0, 1.0])  # rows farther apart: no two axes alike
MEASURES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "norm": norm,
    "moved": lambda pe: moved(pe, 2 * pe).absolute,
    "relative": lambda pe: moved(pe, 2 * pe).relative,
    "dimension": effective_dimension,
    "stress": lambda pe: mds(pe, steps=30).stress,
    "places": lambda pe: mds(pe, steps=30).places[..., 0, 0],
}
measures = pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)


def test_norm_is_sigma_before_training(rng) -> None:
    assert norm([[3.0, 4.0], [0.0, 0.0]]) == pytest.approx(2.5) and norm(np.zeros((2, 3, 4))) == 0
    sigmas = np.array([0.1, 1.0, 2.0])
    pe = sigmas[:, None, None, None] * rng.normal(size=(3, 4, 16, 160))
    np.testing.assert_allclose(norm(pe), sigmas, rtol=0.03)
    assert norm(pe + 5)[0] > 4.9  # it is no standard deviation: what tokens share counts


def test_moved_is_the_distance_and_its_ratio_to_the_start(rng) -> None:
    start = rng.normal(size=(2, 3, 5, 4))
    way = moved(start, 3 * start)
    np.testing.assert_allclose(way.relative, 2)
    np.testing.assert_allclose(way.absolute, 2 * np.sqrt((start**2).sum(axis=(1, 2, 3))))
    np.testing.assert_array_equal(moved(start, start), np.zeros((2, 2)))
    back = moved(10 * start, start)
    np.testing.assert_allclose(moved(start, 10 * start).absolute, back.absolute)
    assert (moved(start, 10 * start).relative > 5 * back.relative).all()
    way = moved(np.zeros((3, 2)), np.ones((3, 2)))
    assert way.absolute == pytest.approx(np.sqrt(6)) and np.isnan(way.relative)


def test_effective_dimension_equals_that_of_the_covariance(rng) -> None:
    pe = rng.normal(size=(2, 3, 9, 4))
    side = np.concatenate(list(pe[1]), axis=-1)  # (n, l * d)
    values = np.linalg.eigvalsh(np.cov(side.T))
    assert effective_dimension(pe)[1] == pytest.approx(values.sum() ** 2 / (values**2).sum())
    assert effective_dimension([pe[0, 0]] * 2) == pytest.approx(float(effective_dimension(pe[0, 0])))  # equal blocks
    assert effective_dimension(pe[0]) > 1.3 * effective_dimension(pe[0, 0])


def test_mds_of_a_plane_is_exact(rng) -> None:
    pe = np.pad(GRID, [(0, 0), (0, 18)]) @ rotation(rng, 20) + rng.normal(size=20)
    places, stress = mds(pe)
    assert stress < 1e-9
    np.testing.assert_allclose(pdist(places), pdist(GRID), rtol=1e-8)
    assert mds(pe, axes=1).stress > 0.05  # the control: a grid is no line


def test_mds_descends_to_a_local_minimum(rng) -> None:
    pe = rng.normal(size=(12, 30))
    raw = [((pdist(mds(pe, steps=steps).places) - pdist(pe)) ** 2).sum() for steps in range(40)]
    assert (np.diff(raw) <= 1e-12).all() and raw[-1] < 0.95 * raw[0]

    def stress(flat: np.ndarray) -> float:
        return float(((pdist(flat.reshape(12, 2)) - pdist(pe)) ** 2).sum())

    places = mds(pe, steps=1000).places
    assert minimize(stress, places.ravel()).fun == pytest.approx(stress(places.ravel()), rel=1e-6)
    early = mds(pe, steps=1).places  # the control: this is not yet a minimum
    assert minimize(stress, early.ravel()).fun < 0.99 * stress(early.ravel())


@pytest.mark.parametrize("structure", [0.0, 1.0])
def test_mds_is_as_good_as_scikit_learns(structure, rng) -> None:
    """From noise to a grid in noise, against the best of five random starts; its formula on our places too."""
    manifold = pytest.importorskip("sklearn.manifold")
    pe = structure * GRID @ rng.normal(size=(2, 40)) + rng.normal(size=(16, 40))
    apart = np.linalg.norm(pe[:, None] - pe, axis=-1)
    options = {"n_components": 2, "normalized_stress": True, "eps": 0.0}
    best = min(manifold.smacof(apart, n_init=1, max_iter=300, random_state=i, **options)[1] for i in range(5))
    places, stress = mds(pe)
    assert stress < 1.03 * best
    again, same = manifold.smacof(apart, init=places, n_init=1, max_iter=1, **options)
    assert same == pytest.approx(float(stress), rel=1e-4)
    np.testing.assert_allclose(again, places, atol=0.02 * np.abs(places).max())


def test_mds_ignores_shift_rotation_and_order(rng) -> None:
    pe, order = 2 * GRID @ rng.normal(size=(2, 20)) + rng.normal(size=(16, 20)), rng.permutation(16)
    places, stress = mds(pe)
    rotated = mds(pe @ rotation(rng, 20) + 3)
    np.testing.assert_allclose(rotated.places, places, atol=1e-6)
    assert rotated.stress == pytest.approx(float(stress))
    np.testing.assert_allclose(mds(pe[order]).places, places[order], atol=1e-6)
    assert np.abs(mds(pe * rng.uniform(0, 2, size=20)).places - places).max() > 0.1  # the control
    for scale in (1e-30, 1e5):
        scaled = mds(scale * pe)
        np.testing.assert_allclose(scaled.places / scale, places, atol=1e-6)
        assert scaled.stress == pytest.approx(float(stress))


def test_mds_is_centred_with_the_widest_axis_first(rng) -> None:
    places = mds(rng.normal(size=(20, 2, 16, 30)), axes=3).places
    np.testing.assert_allclose(places.mean(axis=-2), 0, atol=1e-12)
    spread = np.swapaxes(places, -1, -2) @ places  # (e, axes, axes)
    widths = np.diagonal(spread, axis1=-2, axis2=-1)
    assert (np.diff(widths) < 0).all()
    np.testing.assert_allclose(spread - widths[..., None] * np.eye(3), 0, atol=1e-8 * widths.max())
    assert (places.max(axis=-2) >= 0.99999 * -places.min(axis=-2)).all()  # the farthest token is on the positive side


def test_rounding_does_not_mirror_mds(rng) -> None:
    """The ends of a line are equally far out; turning it must not decide which of them is positive."""
    line = np.arange(5.0)[:, None]
    for _ in range(20):
        result = mds(line @ rotation(rng, 3)[:1]).places
        np.testing.assert_allclose(result, np.column_stack([[2, 1, 0, -1, -2], np.zeros(5)]), atol=1e-6)


def test_axes_beyond_the_dimension_are_zero() -> None:
    places, stress = mds([[0.0], [3.0]], axes=3)
    np.testing.assert_allclose(places, [[1.5, 0, 0], [-1.5, 0, 0]], atol=1e-6)
    assert stress < 1e-9


def test_turned_recovers_a_rotation_and_keeps_distances(rng) -> None:
    places, onto = rng.normal(size=(2, 9, 2))
    mirrored = (onto - [3.0, -1.0]) @ rotation(rng, 2) * [1, -1]
    np.testing.assert_allclose(align_map(mirrored, onto), onto - onto.mean(0), atol=1e-12)
    lies = align_map(places, onto)
    np.testing.assert_allclose(pdist(lies), pdist(places))
    assert np.linalg.norm(lies - onto) > 1  # no rotation makes an unrelated map fit
    assert np.linalg.norm(lies - (onto - onto.mean(0))) <= np.linalg.norm(places - places.mean(0) - onto + onto.mean(0))
    assert np.isnan(align_map(np.full((9, 2), np.nan), onto)).all()


@measures
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_diverged_entry_is_nan_and_the_others_are_not(measure, bad, rng) -> None:
    pe = rng.normal(size=(2, 3, 4, 6, 5))
    pe[0, 1, 1, 2, 3] = bad
    result = measure(pe)
    assert result.shape == (2, 3) and np.isnan(result[0, 1]) and np.isnan(result).sum() == 1
    assert result[1, 2] == pytest.approx(float(measure(pe[1, 2])), rel=1e-6)
    assert measure(pe[0, 0, 0]) == pytest.approx(float(measure(pe[0, 0, :1])))


@pytest.mark.parametrize("measure", [effective_dimension, lambda pe: mds(pe).stress, lambda pe: mds(pe).places[0, 0]])
@pytest.mark.parametrize("pe", [np.full((6, 3), 0.1), np.zeros((6, 3)), np.ones((1, 3))], ids=["same", "zero", "one"])
def test_equal_tokens_have_no_dimension_and_no_map(measure, pe) -> None:
    assert np.isnan(measure(pe))
