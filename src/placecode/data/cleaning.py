"""Cleaning of a brain recording: detrending, band-pass filtering, regression of confounds and of the global signal.

A recording is an array of T time points of n regions, (T, n). Each person's recording is cleaned independently of the
others. The steps and their order are those of nilearn's `signal.clean`. nilearn itself is not needed, but tests compare
the results with it. The global signal (mean over regions) is removed together with the confounds.

A linear trend is removed completely:

>>> line = np.arange(60.0)[:, None] * [[1.0, -2.0]] + 5
>>> bool(np.abs(clean(line, detrend=True)).max() < 1e-9)
True
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placecode.arrays import Array
from placecode.errors import must_be

FILTER_ORDER = 5
"""Order of the Butterworth filter, as in nilearn. It is applied forwards and backwards, so phases do not change."""


def bandpass(values: npt.ArrayLike, low: float | None, high: float | None, tr: float) -> Array:
    """Return `values`, (T, n), with a band-pass filter applied to every column.

    `low` and `high` are the cut-off frequencies in Hz, None for no limit. `tr` is the time between two rows in seconds.
    """
    from scipy import signal

    check_band(low, high, tr)
    raw = np.asarray(values, dtype=np.float64)
    nyquist = 0.5 / tr
    if high is not None and high >= nyquist:  # no frequencies are above it
        high = None
    limits = [limit for limit in (low, high) if limit is not None]
    if not limits:
        return raw.copy()
    kind = "band" if len(limits) == 2 else "high" if high is None else "low"
    sections = signal.butter(FILTER_ORDER, limits if len(limits) == 2 else limits[0], kind, output="sos", fs=1 / tr)
    return np.asarray(signal.sosfiltfilt(sections, raw, axis=0))


def check_band(low: float | None, high: float | None, tr: float | None) -> None:
    """Raise `BadInput` unless 0 < low < high <= 0.5 / tr, where 0.5 / tr is the highest frequency in the recording.

    `low` or `high` may be None, for no limit. `tr`, the repetition time in seconds, is required unless both are None.
    """
    if low is None and high is None:
        return
    if tr is None or not tr > 0:
        raise must_be("tr", "the repetition time in seconds where low or high is given", tr)
    highest = 0.5 / tr if high is None else high
    if not (low is None or 0 < low < highest) or not 0 < highest <= 0.5 / tr:
        raise must_be("low and high", f"frequencies in Hz, the lower first, up to {0.5 / tr:g}", (low, high))


def regress_out(values: npt.ArrayLike, confounds: npt.ArrayLike) -> Array:
    """Return `values`, (T, n), without what a linear regression on the `confounds`, (T, k), explains of each column.

    The means of the columns do not change. The result is uncorrelated with the confounds. A constant confound has no
    effect.
    """
    from scipy import linalg

    raw, regressors = np.asarray(values, dtype=np.float64), np.asarray(confounds, dtype=np.float64)
    centred = regressors - regressors.mean(axis=0)
    spread = centred.std(axis=0)
    varies = spread > 1e-9 * np.abs(regressors).max(axis=0, initial=0.0)
    if not varies.any():
        return raw.copy()
    basis, triangle, _ = linalg.qr(centred[:, varies] / spread[varies], mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    basis = basis[:, size > 1e-12 * size[0]]  # drop confounds that are linear combinations of others
    return np.asarray(raw - basis @ (basis.T @ raw))


def clean(
    values: npt.ArrayLike,
    *,
    detrend: bool = False,
    low: float | None = None,
    high: float | None = None,
    tr: float | None = None,
    confounds: npt.ArrayLike | None = None,
    global_signal: bool = False,
) -> Array:
    """Clean a recording, (T, n): detrend, filter, then regress out confounds and the global signal. Each is optional.

    Confounds, (T, k), are detrended and filtered like the regions before they are regressed out. The global signal is
    the mean over the detrended and filtered regions. `low` and `high` are the cut-off frequencies of the filter in Hz.
    They require `tr`, the repetition time in seconds.
    """
    from scipy import signal

    check_band(low, high, tr)

    def filtered(array: npt.ArrayLike) -> Array:
        result = np.asarray(array, dtype=np.float64)
        if detrend:
            result = np.asarray(signal.detrend(result, axis=0))
        if low is not None or high is not None:
            assert tr is not None
            result = bandpass(result, low, high, tr)
        return result

    regions = filtered(values)
    regressors = [] if confounds is None else [filtered(confounds)]
    if global_signal:
        regressors.append(regions.mean(axis=1, keepdims=True))
    return regress_out(regions, np.concatenate(regressors, axis=1)) if regressors else regions
