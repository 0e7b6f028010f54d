"""Rotary encoding, pinned to multiplication by complex numbers and to what it is for: scores of relative position."""

import numpy as np
import pytest
import torch
from torch import Tensor

from placecode import encodings

GRID = np.stack(np.divmod(np.arange(12), 4), axis=1).astype(float)  # 3 x 4


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def rotary(tokens: int, width: int, **options: object):
    return encodings.make("rotary", tokens, width, dtype=torch.float64, **options)


def by_complex_numbers(x: np.ndarray, coordinate: np.ndarray, base: float = 10000.0) -> np.ndarray:
    """x (..., n, r): the pair (2i, 2i + 1) as a complex number times exp(j * place * base^(-2i / r))."""
    turned = np.empty_like(x)
    r = x.shape[-1]
    for i in range(r // 2):
        pair = x[..., 2 * i] + 1j * x[..., 2 * i + 1]
        pair = pair * np.exp(1j * coordinate * base ** (-2 * i / r))
        turned[..., 2 * i], turned[..., 2 * i + 1] = pair.real, pair.imag
    return turned


@pytest.mark.parametrize(("heads", "base"), [(1, 10000.0), (2, 10000.0), (2, 50.0)])
def test_equals_multiplication_by_complex_numbers(heads, base) -> None:
    pe = rotary(12, 16, heads=heads, base=base)
    q, k = drawn(2, 3, heads, 12, 16 // heads)
    for result, plain in zip(pe(q, k), (q, k), strict=True):
        expected = by_complex_numbers(plain.numpy(), np.arange(12.0), base)
        np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-12)
        assert torch.equal(result[..., 0, :], plain[..., 0, :])  # the first token is not rotated, the others are
        assert not torch.isclose(result[..., 1:, :2], plain[..., 1:, :2]).any()
    assert torch.equal(pe(q[..., :5, :], k)[0], pe(q, k)[0][..., :5, :])  # shorter sequences
    assert not list(pe.parameters())


@pytest.mark.parametrize(("axes", "offsets"), [(1, 23), (2, 5 * 7)])
def test_scores_depend_on_relative_position_alone(axes, offsets) -> None:
    """The same content at every place: the score of two tokens depends on their offset, and on nothing else."""
    q, k = rotary(12, 16, positions=GRID, axes=axes)(*drawn(2, 1, 1, 1, 16).expand(2, 1, 1, 12, 16))
    scores, places = (q @ k.mT)[0, 0], GRID if axes == 2 else np.arange(12)[:, None]
    by_offset: dict[tuple[float, ...], float] = {}
    for i, j in np.ndindex(12, 12):
        offset = tuple(places[j] - places[i])
        assert scores[i, j].item() == pytest.approx(by_offset.setdefault(offset, scores[i, j].item()), abs=1e-12)
    assert len({round(score, 9) for score in by_offset.values()}) == len(by_offset) == offsets


def test_axial_2d_gives_each_axis_its_half() -> None:
    pe = rotary(12, 16, heads=2, positions=GRID, axes=2)
    q = drawn(3, 2, 12, 8)
    result, _ = pe(q, q)
    for axis, part in enumerate((slice(0, 4), slice(4, 8))):
        expected = by_complex_numbers(q[..., part].numpy(), GRID[:, axis])
        np.testing.assert_allclose(result[..., part].numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("width", "fraction", "turned"), [(16, 0.5, 8), (16, 1.0, 16), (16, 0.3, 4), (100, 0.58, 58)])
def test_a_fraction_is_turned_and_the_rest_left_alone(width, fraction, turned) -> None:
    q = drawn(1, 1, 12, width)
    result, _ = rotary(12, width, fraction=fraction)(q, q)
    expected = by_complex_numbers(q[..., :turned].numpy(), np.arange(12.0))
    np.testing.assert_allclose(result[..., :turned].numpy(), expected, rtol=0, atol=1e-12)
    assert torch.equal(result[..., turned:], q[..., turned:])


@pytest.mark.parametrize(("width", "axes", "turned"), [(7, 1, 6), (14, 2, 12), (5, 2, 4)])
def test_features_that_make_no_pair_are_left_alone(width, axes, turned) -> None:
    q = drawn(1, 1, 12, width)
    result, _ = rotary(12, width, positions=GRID, axes=axes)(q, q)
    assert torch.equal(result[..., turned:], q[..., turned:])
    inside = slice(5, 8)  # neither row 0 nor column 0
    assert not torch.isclose(result[..., inside, :turned:2], q[..., inside, :turned:2], rtol=0, atol=1e-12).any()
