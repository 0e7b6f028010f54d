"""Rotary encoding, pinned to multiplication by complex numbers and to what it is for: scores of relative position."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from placecode import encodings
from placecode.errors import BadInput

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
    for found, plain in zip(pe(q, k), (q, k), strict=True):
        expected = by_complex_numbers(plain.numpy(), np.arange(12.0), base)
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)


def test_the_first_token_is_not_turned_and_the_others_are() -> None:
    q = drawn(1, 1, 12, 16)
    turned, _ = rotary(12, 16)(q, q)
    assert torch.equal(turned[..., 0, :], q[..., 0, :])
    assert not torch.isclose(turned[..., 1:, :2], q[..., 1:, :2]).any()


def test_norms_are_preserved() -> None:
    q = drawn(2, 1, 12, 16)
    turned, _ = rotary(12, 16)(q, q)
    torch.testing.assert_close(turned.norm(dim=-1), q.norm(dim=-1), rtol=1e-12, atol=0)


def test_scores_depend_on_relative_position_alone() -> None:
    """The same content at every place: the score of (i, j) is that of (i + 1, j + 1), but not that of (i, j + 1)."""
    pe = rotary(12, 16)
    q, k = drawn(2, 1, 1, 1, 16).expand(2, 1, 1, 12, 16)
    q, k = pe(q, k)
    scores = (q @ k.mT)[0, 0]
    torch.testing.assert_close(scores[1:, 1:], scores[:-1, :-1], rtol=0, atol=1e-12)
    assert not torch.isclose(scores[:, 1:], scores[:, :-1]).any()


def test_scores_on_a_grid_depend_on_the_offset_alone() -> None:
    pe = rotary(12, 16, positions=GRID, axes=2)
    q, k = drawn(2, 1, 1, 1, 16).expand(2, 1, 1, 12, 16)
    q, k = pe(q, k)
    scores = (q @ k.mT)[0, 0]
    by_offset: dict[tuple[float, ...], float] = {}
    for i in range(12):
        for j in range(12):
            offset = tuple(GRID[j] - GRID[i])
            assert scores[i, j].item() == pytest.approx(by_offset.setdefault(offset, scores[i, j].item()), abs=1e-12)
    assert len({round(score, 9) for score in by_offset.values()}) == len(by_offset) == 5 * 7


def test_axial_2d_gives_each_axis_its_half() -> None:
    pe = rotary(12, 16, heads=2, positions=GRID, axes=2)
    q = drawn(3, 2, 12, 8)
    found, _ = pe(q, q)
    for axis, part in enumerate((slice(0, 4), slice(4, 8))):
        expected = by_complex_numbers(q[..., part].numpy(), GRID[:, axis])
        np.testing.assert_allclose(found[..., part].numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("width", "fraction", "turned"), [(16, 0.5, 8), (16, 1.0, 16), (16, 0.3, 4), (100, 0.58, 58)])
def test_a_fraction_is_turned_and_the_rest_left_alone(width, fraction, turned) -> None:
    q = drawn(1, 1, 12, width)
    found, _ = rotary(12, width, fraction=fraction)(q, q)
    expected = by_complex_numbers(q[..., :turned].numpy(), np.arange(12.0))
    np.testing.assert_allclose(found[..., :turned].numpy(), expected, rtol=0, atol=1e-12)
    assert torch.equal(found[..., turned:], q[..., turned:])


@pytest.mark.parametrize(("width", "axes", "turned"), [(7, 1, 6), (14, 2, 12), (5, 2, 4)])
def test_features_that_make_no_pair_are_left_alone(width, axes, turned) -> None:
    q = drawn(1, 1, 12, width)
    found, _ = rotary(12, width, positions=GRID, axes=axes)(q, q)
    assert torch.equal(found[..., turned:], q[..., turned:])
    inside = slice(5, 8)  # neither row 0 nor column 0
    assert not torch.isclose(found[..., inside, :turned:2], q[..., inside, :turned:2], rtol=0, atol=1e-12).any()


def test_shorter_sequences_and_longer_ones() -> None:
    pe, q = rotary(12, 8), drawn(1, 1, 12, 8)
    assert torch.equal(pe(q[..., :5, :], q)[0], pe(q, q)[0][..., :5, :])
    with pytest.raises(BadInput, match=r"^q and k must have at most 12 tokens; got 13 and 12\.$"):
        pe(drawn(1, 1, 13, 8), q)


@pytest.mark.parametrize("fraction", [0, -0.5, 1.5, "half", float("nan")])
def test_fraction_must_be_a_share(fraction) -> None:
    with pytest.raises(BadInput, match=r"^fraction must be a number above 0 and at most 1; got "):
        rotary(4, 8, fraction=fraction)


def test_a_head_too_small_to_turn_is_refused() -> None:
    with pytest.raises(BadInput, match=r"must turn at least 4 features of a head; got heads of 3 features\.$"):
        rotary(12, 6, heads=2, positions=GRID, axes=2)
    with pytest.raises(BadInput, match=r"^base must be a number above 0"):
        rotary(12, 6, base=0)


def test_it_has_no_parameters() -> None:
    assert not list(rotary(4, 8).parameters())
