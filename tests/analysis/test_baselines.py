"""Predictors as mathematics: what theory says of a Gaussian, what no linear guess can know, and another solution."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from placecode.analysis.baselines import Linear, Pca, Predictor, Ridge, Trees, errors, hide, mse
from placecode.errors import BadInput
from placecode.tasks.masked import Masked, join_recordings, masked_count

MAKERS: dict[str, Callable[[], Predictor]] = {
    "linear": Linear,
    "pca": Pca,
    "ridge": lambda: Ridge(examples=2000),
    "trees": lambda: Trees(examples=1000, trees=8),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def covariance(rng, n: int) -> np.ndarray:
    """Of three factors that all channels share, and noise of their own."""
    loadings = rng.normal(size=(n, 3))
    return np.asarray(loadings @ loadings.T + np.diag(rng.uniform(0.5, 1.5, n)))


def gaussian(rng, sigma: np.ndarray, samples: int) -> np.ndarray:
    return np.asarray(rng.multivariate_normal(np.linspace(-2, 2, len(sigma)), sigma, samples, method="cholesky"))


def solved(mean: np.ndarray, sigma: np.ndarray, values: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """The conditional mean, one question after the other."""
    result = values.copy()
    for row, marks in zip(result, hidden, strict=True):
        visible = ~marks
        weights = np.linalg.solve(sigma[np.ix_(visible, visible)], sigma[np.ix_(visible, marks)])
        row[marks] = mean[marks] + (row[visible] - mean[visible]) @ weights
    return result


def left_over(sigma: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """The variance that no predictor can take away, mean over the hidden channels of each question."""
    left = []
    for marks in hidden:
        inside = np.linalg.inv(sigma)[np.ix_(marks, marks)]  # the precision of the hidden given the visible
        left.append(np.diag(np.linalg.inv(inside)).mean())
    return np.array(left)


def test_hide_hides_as_many_channels_as_the_task(rng) -> None:
    for channels in (2, 5, 100):
        for share in (0.01, 0.3, 0.5, 0.9, 0.99):
            marks = hide(50, channels, share, rng)
            assert (marks.sum(axis=1) == masked_count(share, channels)).all()
    marks = hide(20_000, 10, 0.3, rng)
    np.testing.assert_allclose(marks.mean(axis=0), 0.3, atol=0.015)
    marks = hide(20_000, 10, 0.3, rng, always=4)
    assert marks[:, 4].all() and (marks.sum(axis=1) == 3).all()
    np.testing.assert_allclose(np.delete(marks, 4, axis=1).mean(axis=0), 2 / 9, atol=0.015)


@pytest.mark.parametrize("window", [1, 3])
def test_errors_equal_the_metric_of_the_task(window, rng) -> None:
    guess, values = rng.normal(size=(2, 6, 5, window))
    hidden = hide(6, 5, 0.5, rng)
    hidden[2, :4] = True  # questions that hide more count no more than others
    task = Masked({"train": join_recordings([rng.normal(size=(20, 5))], window)}, window)
    targets = np.concatenate([values, hidden[..., None]], axis=-1)
    expected = task.metrics(torch.from_numpy(guess)[None], torch.from_numpy(targets)[None])["mse"][0].numpy()
    np.testing.assert_allclose(errors(guess, values, hidden), expected)
    assert mse(guess, values, hidden) == pytest.approx(expected.mean())
    if window == 1:
        assert mse(guess[..., 0], values[..., 0], hidden) == pytest.approx(expected.mean())


def test_samples_that_hide_nothing_are_left_out(rng) -> None:
    hidden = np.array([[True, False], [False, False]])
    np.testing.assert_array_equal(errors([[1.0, 9.0], [9.0, 9.0]], np.zeros((2, 2)), hidden), [1.0, np.nan])
    assert mse([[1.0, 9.0], [9.0, 9.0]], np.zeros((2, 2)), hidden) == 1
    train = gaussian(rng, covariance(rng, 5), 200)
    result = Linear().fit(train).predict(train[:2], np.array([[True] * 5, [False] * 5]))
    np.testing.assert_allclose(result, [train.mean(axis=0), train[1]])  # nothing visible, nothing hidden


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("window", [1, 4])
def test_linear_is_the_conditional_mean(share, window, rng) -> None:
    train, questions = gaussian(rng, covariance(rng, 20), 500), gaussian(rng, covariance(rng, 20), 60)
    hidden = hide(60, 20 // window, share, rng)
    hidden[:3] = hide(3, 20 // window, 0.5, rng)  # sizes mixed
    expected = solved(train.mean(axis=0), np.cov(train.T), questions, hidden.repeat(window, axis=1))
    train, questions, expected = (values.reshape(-1, 20 // window, window) for values in (train, questions, expected))
    np.testing.assert_allclose(Linear(ridge=0).fit(train).predict(questions, hidden), expected, atol=1e-8)
    np.testing.assert_allclose(Linear().fit(train).predict(questions, hidden), expected, atol=1e-3)


def test_no_predictor_beats_the_conditional_mean(rng) -> None:
    sigma = covariance(rng, 8)
    train, questions, hidden = gaussian(rng, sigma, 20_000), gaussian(rng, sigma, 4000), hide(4000, 8, 0.5, rng)
    oracle = errors(solved(np.linspace(-2, 2, 8), sigma, questions, hidden), questions, hidden)
    allowed = left_over(sigma, hidden)
    spread = oracle.std() / np.sqrt(len(oracle))
    assert abs(mse(Linear().fit(train).predict(questions, hidden), questions, hidden) - allowed.mean()) < 3 * spread
    for name, make in MAKERS.items():
        more = errors(make().fit(train, seed=1).predict(questions, hidden), questions, hidden) - oracle
        assert more.mean() > -3 * more.std() / np.sqrt(len(more)), name
        assert more.mean() < (0.01 if name in ("linear", "pca") else 1.0), name
    blind = errors(np.broadcast_to(train.mean(axis=0), questions.shape), questions, hidden)
    assert blind.mean() > 1.5 * oracle.mean()  # the control: there was something to know


@pytest.mark.filterwarnings("error")
def test_collinear_channels_need_a_ridge(rng) -> None:
    train = rng.normal(size=(100, 1)) * np.ones(4)
    hidden = np.array([[True, False, False, False]])
    np.testing.assert_allclose(Linear().fit(train).predict(train[:1], hidden), train[:1], atol=1e-5)
    with pytest.raises(BadInput, match="ridge must be larger"):
        Linear(ridge=0).fit(train).predict(train[:1], hidden)


def test_pca_of_full_rank_is_linear(rng) -> None:
    train = gaussian(rng, covariance(rng, 10), 1000)
    hidden = hide(50, 10, 0.5, rng)
    linear = Linear(ridge=0).fit(train).predict(train[:50], hidden)
    np.testing.assert_allclose(Pca(9).fit(train).predict(train[:50], hidden), linear, atol=1e-8)
    assert np.abs(Pca(1).fit(train).predict(train[:50], hidden) - linear).max() > 0.1  # the control


def test_pca_beats_linear_on_few_samples(rng) -> None:
    loadings = rng.normal(size=(30, 2))
    sigma = loadings @ loadings.T + np.eye(30)
    train, questions, hidden = gaussian(rng, sigma, 50), gaussian(rng, sigma, 500), hide(500, 30, 0.5, rng)
    pca = Pca().fit(train)
    assert 1 < pca.components_ < 6
    linear = mse(Linear().fit(train).predict(questions, hidden), questions, hidden)
    few = mse(pca.predict(questions, hidden), questions, hidden)
    assert few < 0.8 * linear and few < 1.3 * left_over(sigma, hidden).mean()


def test_ridge_is_least_squares_at_its_share_of_hidden_channels(rng) -> None:
    """Against least squares on fresh questions; and fitted with few hidden, it does worse where many are."""
    sigma = 0.9 + 0.1 * np.eye(8)
    train, questions = gaussian(rng, sigma, 10_000), gaussian(rng, sigma, 4000)
    hidden = hide(4000, 8, 0.5, rng)
    result = Ridge(10_000).fit(train, share=0.5).predict(questions, hidden)
    rows = hidden[:, 2]
    x = np.column_stack([np.where(hidden, 0, questions - train.mean(axis=0)), hidden, np.ones(4000)])[rows]
    best = x @ np.linalg.lstsq(x, questions[rows, 2])[0]
    assert ((result[rows, 2] - questions[rows, 2]) ** 2).mean() < 1.03 * ((best - questions[rows, 2]) ** 2).mean()
    fitted_with_few_hidden = Ridge(10_000).fit(train, share=0.1).predict(questions, hidden)
    assert mse(fitted_with_few_hidden, questions, hidden) > 1.1 * mse(result, questions, hidden)


def test_trees_predict_a_product_and_linear_methods_do_not(rng) -> None:
    values = rng.choice([-1.0, 1.0], size=(6000, 5))
    values[:, 2] = values[:, 0] * values[:, 1]
    values += 0.1 * rng.normal(size=values.shape)
    train, questions = values[:5000], values[5000:]
    hidden = np.zeros(questions.shape, bool)
    hidden[:, 2] = True
    trees = Trees(examples=4000, channels=[2]).fit(train, share=0.2)
    assert mse(trees.predict(questions, hidden), questions, hidden) < 0.1
    for blind in (Linear(), Pca(), Ridge(2000)):
        assert mse(blind.fit(train, share=0.2).predict(questions, hidden), questions, hidden) > 0.95
    hidden[:, 0] = True  # the control: one factor alone says nothing
    trees = Trees(examples=4000, channels=[2]).fit(train, share=0.4)
    assert mse(np.where([0, 0, 1, 0, 0], trees.predict(questions, hidden), 0), questions, hidden) > 0.9


def test_trees_of_some_channels_are_nan_elsewhere(rng) -> None:
    train, hidden = gaussian(rng, covariance(rng, 5), 500), hide(40, 5, 0.5, rng)
    guess = Trees(500, 5, channels=[1, 3]).fit(train).predict(train[:40], hidden)
    np.testing.assert_array_equal(np.isnan(guess), hidden & ~np.isin(np.arange(5), [1, 3]))


@every
def test_predictions_ignore_hidden_values_and_units(make, rng) -> None:
    train, hidden = gaussian(rng, covariance(rng, 5), 300), hide(40, 5, 0.5, rng)
    result = make().fit(train, seed=3).predict(train[:40], hidden)
    np.testing.assert_array_equal(result[~hidden], train[:40][~hidden])
    again = make().fit(train, seed=3).predict(np.where(hidden, np.nan, train[:40]), hidden)
    np.testing.assert_array_equal(again, result)
    units, zero = 2.0 ** np.array([5.0, 0, -3, 1, 2]), np.array([1.0, 0, 2, -4, 8])
    scaled = make().fit(train * units + zero, seed=3).predict(train[:40] * units + zero, hidden)
    close = np.isclose((scaled - zero) / units, result, atol=1e-6)
    assert close.mean() > 0.98  # trees cut at values, and rounding may move a value over a cut
