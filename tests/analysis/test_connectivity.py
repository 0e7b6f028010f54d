"""Connectivity: planted links are found, and measures equal theory and scikit-learn."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from placecode.analysis import connectivity
from placecode.analysis.connectivity import correlation, mutual_information, partial_correlation, spectral_clusters

measures = pytest.mark.parametrize("measure", [correlation, mutual_information, partial_correlation])


def off(matrix: np.ndarray) -> np.ndarray:
    return matrix[np.triu_indices(len(matrix), k=1)]


def clustered(rng, samples: int = 3000, clusters: int = 3, size: int = 4, noise: float = 1.5) -> np.ndarray:
    shared = rng.normal(size=(samples, clusters)).repeat(size, axis=1)
    return np.asarray(shared + noise * rng.normal(size=shared.shape))


@measures
def test_measures_ignore_units_and_follow_the_order_of_channels(measure, rng) -> None:
    values, order = clustered(rng, 500), rng.permutation(12)
    result = measure(values)
    np.testing.assert_allclose(measure(values[:, order]), result[np.ix_(order, order)], atol=1e-4)
    np.testing.assert_allclose(measure(values * np.geomspace(0.01, 100, 12) + 5), result, atol=1e-4)
    np.testing.assert_array_equal(result, result.T)
    assert np.abs(measure(rng.permuted(values, axis=0)) - result).max() > 0.03  # the control


@pytest.mark.parametrize("measure", [correlation, mutual_information])
def test_several_recordings_are_averaged(measure, rng) -> None:
    first, second = clustered(rng, 300), 5 + clustered(rng, 500)
    expected = (measure(first) + measure(second)) / 2
    np.testing.assert_allclose(measure([first, second]), expected)
    np.testing.assert_allclose(measure(np.stack([first, second[:300]])), (measure(first) + measure(second[:300])) / 2)
    assert np.abs(measure(np.concatenate([first, second])) - expected).max() > 0.1  # the control: levels are no link


@pytest.mark.parametrize("agreement", [0.5, 0.6, 0.9])
def test_information_equals_theory(agreement, rng) -> None:
    """log 2 - H(agreement) in nats, exactly; equal values share a bin, however many bins there are."""
    first = rng.choice([-1.0, 1.0], size=20_000)
    values = np.column_stack([first, np.where(rng.random(20_000) < agreement, first, -first)])
    p = np.array([agreement, 1 - agreement])
    for bins in (None, 2, 5):
        assert mutual_information(values, bins)[0, 1] == pytest.approx(np.log(2) + (p * np.log(p)).sum(), abs=0.01)
    values = rng.multivariate_normal([0, 0], [[1, agreement], [agreement, 1]], 20_000)
    theory = -np.log(1 - agreement**2) / 2
    assert 0.8 * theory < mutual_information(values)[0, 1] < 1.02 * theory  # bins can only lose


@pytest.mark.parametrize("samples", [100, 1000])
def test_independent_channels_have_none_on_average(samples, rng) -> None:
    result = off(mutual_information(rng.normal(size=(samples, 60))))
    assert abs(result.mean()) < 0.1 * result.std()
    assert result.min() < 0  # it is not cut at 0, which would make chance look like something


def test_information_uses_the_order_of_values_and_may_count_in_pieces(rng, monkeypatch) -> None:
    values = clustered(rng, 400)
    result = mutual_information(values)
    np.testing.assert_allclose(mutual_information(np.exp(values)), result)
    np.testing.assert_allclose(mutual_information(-values), result, atol=0.02)
    np.testing.assert_allclose(np.diag(result), np.log(4), rtol=1e-3)  # sqrt(400 / 20) bins
    monkeypatch.setattr(connectivity, "CHUNK", 33)
    np.testing.assert_allclose(mutual_information(values), result, atol=1e-12)


def test_partial_correlation_equals_theory(rng) -> None:
    loadings = rng.normal(size=(6, 2))
    sigma = loadings @ loadings.T + np.eye(6)
    inverse = np.linalg.inv(sigma)
    theory = -inverse / np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))
    values = rng.multivariate_normal(np.zeros(6), sigma, 50_000)
    np.testing.assert_allclose(off(partial_correlation(values)), off(theory), atol=0.06)
    halves = partial_correlation([values[:25_000], values[25_000:]])
    np.testing.assert_allclose(halves, partial_correlation(values), atol=0.06)


@pytest.mark.parametrize("penalty", [0.02, 0.1, 0.3])
def test_sparse_inverse_equals_scikit_learns(penalty, rng) -> None:
    covariance = pytest.importorskip("sklearn.covariance")
    matrix = correlation(clustered(rng, 200))
    expected = covariance.graphical_lasso(matrix, penalty, tol=1e-8, enet_tol=1e-8, max_iter=1000)[1]
    result = connectivity._sparse_inverse(matrix, penalty, 2000)
    assert result is not None
    np.testing.assert_allclose(result, expected, atol=2e-4)
    again = connectivity._sparse_inverse(matrix, penalty, 2000, start=np.linalg.inv(matrix))
    np.testing.assert_allclose(again, result, atol=2e-4)  # wherever it starts


@pytest.mark.filterwarnings("error")
def test_partial_correlation_of_fewer_samples_than_channels(rng) -> None:
    result = partial_correlation(clustered(rng, 40, clusters=3, size=20))
    same = squareform(pdist(np.arange(60)[:, None] // 20)) == 0
    assert result[same & ~np.eye(60, dtype=bool)].mean() > 5 * abs(result[~same].mean())


def test_without_convergence_the_inverse_is_ledoit_wolfs(rng) -> None:
    covariance = pytest.importorskip("sklearn.covariance")
    values = clustered(rng, 300)
    with pytest.warns(UserWarning, match="12 channels has not converged"):
        result = partial_correlation(values, steps=1)
    standard = (values - values.mean(axis=0)) / values.std(axis=0)
    inverse = covariance.LedoitWolf().fit(standard).precision_
    expected = -inverse / np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))
    np.testing.assert_allclose(off(result), off(expected))
    assert (np.diag(result) == 1).all() and (result != 0).all()


def test_loadings_reproduce_the_correlation(rng) -> None:
    values = clustered(rng, 500)
    np.testing.assert_allclose(correlation(values), np.corrcoef(values.T), atol=1e-12)
    loadings = connectivity.pca_embedding(values, 12)
    np.testing.assert_allclose(loadings @ loadings.T, correlation(values), atol=1e-12)
    np.testing.assert_array_equal(connectivity.pca_embedding(values, 3), loadings[:, :3])
    _, axes = np.linalg.eigh(np.corrcoef(values.T))
    scores = (values - values.mean(axis=0)) / values.std(axis=0) @ axes[:, -1]
    expected = [np.corrcoef(scores, values[:, i])[0, 1] for i in range(12)]
    np.testing.assert_allclose(np.abs(loadings[:, 0]), np.abs(expected))
    assert (loadings.max(axis=0) >= -0.99999 * loadings.min(axis=0)).all()


def test_mds_reproduces_the_distances(rng) -> None:
    matrix = correlation(rng.normal(size=(100, 5)))
    apart = squareform(pdist(connectivity.mds_embedding(matrix, 4)))
    np.testing.assert_allclose(apart, np.sqrt(2 - 2 * matrix), atol=0.01)
    same = squareform(pdist(np.arange(12)[:, None] // 4)) == 0
    apart = squareform(pdist(connectivity.mds_embedding(correlation(clustered(rng, noise=0.5)), 2)))
    assert apart[same].max() < 0.8 * apart[~same].min()
    places = connectivity.mds_embedding(partial_correlation(clustered(rng)), 2)  # with negative eigenvalues
    apart = squareform(pdist(places))
    assert apart[same].mean() < 0.7 * apart[~same].mean()


@pytest.mark.filterwarnings("error")
def test_spectral_clusters_are_the_planted_ones(rng) -> None:
    order = rng.permutation(12)
    values, same = clustered(rng)[:, order], order[:, None] // 4 == order // 4
    for matrix in (correlation(values), mutual_information(values), partial_correlation(values)):
        labels = spectral_clusters(matrix, 3, seed=1)
        assert sorted(set(labels.tolist())) == [0, 1, 2]
        np.testing.assert_array_equal(labels[:, None] == labels, same)
    labels = spectral_clusters(correlation(rng.permuted(values, axis=0)), 3, seed=1)  # the control
    assert ((labels[:, None] == labels) != same).any()
    signs = np.array([1, 1, 1, -1, -1, -1])  # opposite channels are not similar
    labels = spectral_clusters(0.5 * np.outer(signs, signs) + 0.5 * np.eye(6), 2)
    np.testing.assert_array_equal(labels == labels[0], signs == 1)
    assert spectral_clusters(np.eye(6), 2).shape == (6,)
