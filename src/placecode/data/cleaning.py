"""Cleaning of one recording: detrending, a band of frequencies, confounds and the global signal.

Every function takes one recording (T, n) of one person, so that nothing passes from one recording into another. The
steps and their order are those of nilearn's `signal.clean`, with which a test compares them; scipy is enough to run
them. The global signal is removed together with the confounds.

>>> line = np.arange(60.0)[:, None] * [[1.0, -2.0]] + 5
>>> bool(np.abs(detrend(line)).max() < 1e-9)
True
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from placecode.errors import must_be

Array = npt.NDArray[np.float64]
FILTER_ORDER = 5
"""Order of the Butterworth filter, as in nilearn. It runs forwards and backwards, so that phases stay."""


def detrend(values: npt.ArrayLike) -> Array:
    """Subtract the mean and the straight line of best fit from every column.

    Parameters
    ----------
    values : array_like, shape (T, n)

    Returns
    -------
    ndarray, shape (T, n)
    """
    from scipy import signal

    return np.asarray(signal.detrend(np.asarray(values, dtype=np.float64), axis=0))


def bandpass(values: npt.ArrayLike, low: float | None, high: float | None, tr: float) -> Array:
    """Keep the frequencies from `low` to `high` of every column.

    Parameters
    ----------
    values : array_like, shape (T, n)
    low, high : float or None
        Limits of the band in Hz; None for no limit on that side.
    tr : float
        Repetition time, the seconds from one time point to the next.

    Returns
    -------
    ndarray, shape (T, n)
    """
    from scipy import signal

    check_band(low, high, tr)
    raw = np.asarray(values, dtype=np.float64)
    nyquist = 0.5 / tr
    if high is not None and high >= nyquist:  # nothing lies above it
        high = None
    if low is None and high is None:
        return raw.copy()
    limits = [limit for limit in (low, high) if limit is not None]
    kind = "band" if len(limits) == 2 else "high" if high is None else "low"
    sections = signal.butter(FILTER_ORDER, limits if len(limits) == 2 else limits[0], kind, output="sos", fs=1 / tr)
    return np.asarray(signal.sosfiltfilt(sections, raw, axis=0))


def check_band(low: float | None, high: float | None, tr: float | None) -> None:
    """Refuse a band of frequencies that these time points cannot have."""
    if low is None and high is None:
        return
    if tr is None or not tr > 0:
        raise must_be("tr", "the repetition time in seconds where low or high is given", tr)
    if not 0 < (low or 1e-9) < (high or 0.5 / tr) <= 0.5 / tr:
        raise must_be("low and high", f"frequencies in Hz, the lower first, up to {0.5 / tr:g}", (low, high))


def regress_out(values: npt.ArrayLike, confounds: npt.ArrayLike) -> Array:
    """Subtract from every column what the confounds explain by least squares; its mean stays.

    Parameters
    ----------
    values : array_like, shape (T, n)
    confounds : array_like, shape (T, k)
        A constant column has no effect.

    Returns
    -------
    ndarray, shape (T, n)
        Has no correlation with any of the confounds.
    """
    from scipy import linalg

    raw, given = np.asarray(values, dtype=np.float64), np.asarray(confounds, dtype=np.float64)
    centred = given - given.mean(axis=0)
    spread = centred.std(axis=0)
    varies = spread > 1e-9 * np.abs(given).max(axis=0, initial=0.0)
    if not varies.any():
        return raw.copy()
    basis, triangle, _ = linalg.qr(centred[:, varies] / spread[varies], mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    basis = basis[:, size > 1e-12 * size[0]]  # confounds that are sums of others add nothing
    return np.asarray(raw - basis @ (basis.T @ raw))


def clean(
    values: npt.ArrayLike,
    *,
    linear_trend: bool = False,
    low: float | None = None,
    high: float | None = None,
    tr: float | None = None,
    confounds: npt.ArrayLike | None = None,
    global_signal: bool = False,
) -> Array:
    """Clean one recording: trend, band, then confounds and global signal together.

    Parameters
    ----------
    values : array_like, shape (T, n)
    linear_trend : bool
        Subtract a straight line from every region, and from every confound.
    low, high : float or None
        Band of frequencies that is kept, in Hz, of regions and confounds.
    tr : float or None
        Repetition time in seconds; needed with `low` or `high`.
    confounds : array_like, shape (T, k), or None
        Regressed out of every region.
    global_signal : bool
        Regress out the mean over regions too, taken after trend and band.

    Returns
    -------
    ndarray, shape (T, n)
    """
    check_band(low, high, tr)

    def filtered(array: npt.ArrayLike) -> Array:
        found = np.asarray(array, dtype=np.float64)
        if linear_trend:
            found = detrend(found)
        if low is not None or high is not None:
            assert tr is not None
            found = bandpass(found, low, high, tr)
        return found

    found = filtered(values)
    removed = [] if confounds is None else [filtered(confounds)]
    if global_signal:
        removed.append(found.mean(axis=1, keepdims=True))
    return regress_out(found, np.concatenate(removed, axis=1)) if removed else found
