"""Cleaning a recording: known answers, and nilearn's."""

import numpy as np
import pytest

from placecode.data.cleaning import bandpass, clean, regress_out

TR = 2.0
TIMES = np.arange(400)


def wave(frequency: float) -> np.ndarray:
    return np.sin(2 * np.pi * frequency * TR * TIMES)[:, None]


def recording(seed: int = 0, regions: int = 6) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(405, regions))
    return 50 + sum(noise[lag : lag + 400] for lag in range(5)) + 0.02 * TIMES[:, None]


def test_a_band_up_to_the_nyquist_frequency_changes_nothing() -> None:
    both = wave(0.005) + wave(0.15)
    assert np.array_equal(bandpass(both, None, 0.25, TR), both)


def test_confounds_are_regressed_out() -> None:
    raw, motion = recording(), np.random.default_rng(5).normal(size=(400, 2))
    mixed = raw + motion @ np.ones((2, 6))
    cleaned = regress_out(mixed, np.hstack([motion, motion.sum(axis=1, keepdims=True), np.full((400, 1), 7.0)]))
    assert np.abs(np.corrcoef(cleaned.T, motion.T)[:6, 6:]).max() < 1e-9
    np.testing.assert_allclose(cleaned.mean(axis=0), mixed.mean(axis=0))
    np.testing.assert_array_equal(regress_out(raw, np.full((400, 1), 7.0)), raw)


def test_the_global_signal_is_removed_and_others_stay() -> None:
    shared, separate = wave(0.03), clean(recording(1, 5), detrend=True)  # a trend would be shared too
    raw = separate + 5 * shared
    mean = raw.mean(axis=1)
    cleaned = clean(raw, global_signal=True)
    assert min(np.corrcoef(region, mean)[0, 1] for region in raw.T) > 0.5
    assert max(abs(np.corrcoef(region, mean)[0, 1]) for region in cleaned.T) < 1e-9
    np.testing.assert_allclose(cleaned.mean(axis=1), raw.mean(), atol=1e-9)  # the mean over regions no longer moves
    assert min(np.corrcoef(cleaned[:, i], separate[:, i])[0, 1] for i in range(5)) > 0.6


def test_the_global_signal_is_removed_after_trend_and_band() -> None:
    options = {"detrend": True, "low": 0.01, "high": 0.1, "tr": TR}
    first = clean(recording(), **options)  # type: ignore[arg-type]
    expected = regress_out(first, first.mean(axis=1, keepdims=True))
    np.testing.assert_allclose(clean(recording(), global_signal=True, **options), expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("trend", [False, True])
@pytest.mark.parametrize("band", [(None, None), (0.01, 0.1), (0.01, None), (None, 0.1)])
@pytest.mark.parametrize("with_confounds", [False, True])
def test_cleaning_equals_nilearns(trend, band, with_confounds) -> None:
    signal = pytest.importorskip("nilearn.signal")
    confounds = np.random.default_rng(3).normal(size=(400, 3)) + 0.01 * TIMES[:, None] if with_confounds else None
    how = {"filter": "butterworth" if band != (None, None) else False, "low_pass": band[1], "high_pass": band[0]}
    theirs = signal.clean(recording(), detrend=trend, standardize=None, confounds=confounds, t_r=TR, **how)
    ours = clean(recording(), detrend=trend, low=band[0], high=band[1], tr=TR, confounds=confounds)
    np.testing.assert_allclose(ours, theirs, atol=1e-8)
