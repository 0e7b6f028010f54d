"""LearnedPositions passes the checks of scikit-learn, and its attributes, predictions and scores are right."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.made_up_own import same, table, tiny
from helpers.refusal import refused
from sklearn.utils.estimator_checks import parametrize_with_checks

from placecode import LearnedPositions
from placecode.errors import BadInput
from placecode.experiments.channels import fit_result
from placecode.runs.read import Run


@parametrize_with_checks([tiny()])
def test_checks_of_sklearn(estimator, check) -> None:
    """scikit-learn skips its check of the array API unless it is enabled."""
    check(estimator)


@pytest.fixture(scope="module")
def pairs() -> np.ndarray:
    """Eight channels: 0 and 1 in meters and millimeters, 2 and 3 likewise, ..."""
    rng = np.random.default_rng(0)
    source = rng.normal(size=(400, 4)).repeat(2, axis=1) + 0.1 * rng.normal(size=(400, 8))
    return np.asarray(source * np.tile([1.0, 1000.0], 4) + np.tile([5.0, -300.0], 4))


@pytest.fixture(scope="module")
def learned(pairs: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> LearnedPositions:
    models = {"sigma": [0.05, 0.2], "steps": 400, "width": 16, "batch": 32, "n_seeds": 2, "learning_rate": 5e-3}
    return tiny(**models, n_draws=39, folder=tmp_path_factory.mktemp("fits") / "run").fit(pairs)


def test_structure_is_found_and_its_map_is_true(learned) -> None:
    assert learned.verdict_ == "structure found" and learned.p_value_ == 1 / 40
    assert learned.neighbors_.shape == (8, 4)
    assert (learned.neighbors_[:, 0] == np.arange(8) + np.tile([1, -1], 4)).all()  # each has found its copy
    assert learned.sigma_ in (0.05, 0.2) and [row["sigma"] for row in learned.sigmas_] == [0.05, 0.2]
    assert learned.scores_["heldout_mse"] < 0.8 * learned.scores_["mean_mse"]
    assert learned.scores_["linear_mse"] < 0.5 and set(learned.baselines_) == {"correlation", "pca", "graphical lasso"}
    assert Run(learned.folder).finished and fit_result.read(Path(learned.folder)).verdict == learned.verdict_


def test_a_copy_is_predicted_in_its_unit(learned) -> None:
    rng = np.random.default_rng(9)
    new = rng.normal(size=(100, 4)).repeat(2, axis=1) * np.tile([1.0, 1000.0], 4) + np.tile([5.0, -300.0], 4)
    guess = learned.transform(new)
    assert guess.shape == (100, 8)
    for channel in range(8):
        assert np.corrcoef(guess[:, channel], new[:, channel])[0, 1] > 0.8
    assert guess[:, 1].std() > 200 and guess[:, 0].std() < 2
    np.testing.assert_allclose(guess[:, 1].mean(), new[:, 1].mean(), atol=100)


def test_a_large_offset_changes_nothing_but_the_unit(tmp_path) -> None:
    """This holds although float32 cannot represent 100000000.5. Predictions are in the units of the table."""
    values = table()
    away = values + np.array([0, 1e8, 0, -1e9, 0, 0])
    named = pd.DataFrame(away, columns=list("abcdef"))
    named.to_csv(tmp_path / "t.csv", index=False)
    plain = tiny(steps=3).fit(values)
    for data in (away, named, tmp_path / "t.csv"):
        fitted = tiny(steps=3).fit(data)
        np.testing.assert_allclose(fitted.embedding_, plain.embedding_, atol=1e-4)
        np.testing.assert_allclose(fitted.transform(data) - (away - values)[0], plain.transform(values), atol=1e-3)
        assert fitted.score(data) == pytest.approx(plain.score(values), abs=1e-4)
    with pytest.raises(BadInput, match=r"^X must be finite numbers"):
        plain.transform(np.where(np.arange(6) == 2, 1e39, values))


def test_a_prediction_does_not_use_the_predicted_value(learned, pairs) -> None:
    changed = pairs[:20].copy()
    changed[:, 3] = 1e6
    np.testing.assert_allclose(learned.transform(changed)[:, 3], learned.transform(pairs[:20])[:, 3], rtol=1e-5)
    assert not np.allclose(learned.transform(changed)[:, 2], learned.transform(pairs[:20])[:, 2])


def test_the_score_is_high_if_channels_predict_each_other(learned, pairs) -> None:
    assert learned.score(pairs) > 0.5
    shuffled = np.stack([np.random.default_rng(i).permutation(pairs[:, i]) for i in range(8)], axis=1)
    assert learned.score(shuffled) < 0.1
    assert abs(tiny(steps=200, learning_rate=5e-3).fit(table(400)).score(table(400, seed=1))) < 0.1


def test_missing_values_are_predicted_from_the_rest(learned, pairs) -> None:
    holes = pairs[:50].copy()
    holes[::2, 1], holes[::3, 4] = np.nan, np.nan
    guess = learned.transform(holes)
    assert np.isfinite(guess).all() and np.isfinite(learned.score(holes))
    alone = np.arange(50)[(np.arange(50) % 2 == 0) & (np.arange(50) % 3 > 0)]
    complete = learned.transform(pairs[:50])  # a prediction does not use the predicted value, so it may be missing
    np.testing.assert_allclose(guess[alone, 1], complete[alone, 1], rtol=1e-5)


def test_masked_values_are_missing_values(learned, pairs) -> None:
    masked = np.ma.masked_array(table(), np.random.default_rng(1).random((150, 6)) < 0.1)
    masked.data[masked.mask] = 1e6
    from_mask, from_nan = tiny().fit(masked), tiny().fit(np.ma.filled(masked, np.nan))
    same(from_mask, from_nan)
    assert not np.array_equal(from_mask.embedding_, tiny().fit(masked.data).embedding_)
    integers = np.ma.masked_greater((table() * 100).astype(np.int64), 150)  # integers cannot be NaN
    same(tiny().fit(integers), tiny().fit(integers.astype(float).filled(np.nan)))
    masked_rows = np.ma.masked_array(pairs[:50], np.tile(np.arange(8) == 3, (50, 1)))
    holes = masked_rows.filled(np.nan)
    np.testing.assert_array_equal(learned.transform(masked_rows), learned.transform(holes))
    assert learned.score(masked_rows) == learned.score(holes) != learned.score(pairs[:50])


@pytest.mark.parametrize("channels", [2, 3])
def test_two_channels_are_enough(channels) -> None:
    fitted = tiny().fit(table(channels=channels))
    assert fitted.map_.shape == (channels, 2) and (fitted.map_3d_ is None) == (channels == 2)
    assert fitted.modules_.tolist() == [-1] * channels  # nothing is learned in a step


def test_a_single_model_has_no_confidence() -> None:
    fitted = tiny(n_halves=0).fit(table())
    assert np.isnan(fitted.confidence_["channels"]).all() and np.isnan(fitted.confidence_["pairs"]).all()


def test_a_random_state_decides_all_that_is_drawn() -> None:
    values = table()
    first, repeated, reseeded = (tiny(random_state=state).fit(values) for state in (3, 3, 4))
    same(first, repeated)
    assert not np.array_equal(first.embedding_, reseeded.embedding_)
    same(*(tiny(random_state=np.random.RandomState(5)).fit(values) for _ in range(2)))
    assert tiny(random_state=None).fit(values).map_.shape == (6, 2)


MINIMUM = {"n_seeds": 1, "n_halves": 0, "steps": 1, "batch": 1, "width": 1, "layers": 1, "neighbors": 1, "n_draws": 19}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, wrong) for name, least in MINIMUM.items() for wrong in (least - 1, 20.5)),
        *(("sigma", wrong) for wrong in ("small", None, [], -1, [0.1, 0.1])),
        *(("mask_ratio", wrong) for wrong in (1, "some", None)),
        *(("learning_rate", -1), ("effort", "huge"), ("device", "tpu"), ("random_state", -1)),
    ],
)
def test_wrong_parameters_are_refused_by_name(name, value) -> None:
    error = refused(tiny(**{name: value}).fit, table())
    assert error.name in (name, f"{name}s") and error.given == value
