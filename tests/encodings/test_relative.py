"""Encodings on the scores, pinned to loops over pairs of tokens and to the published slopes."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from placecode import encodings
from placecode.encodings import ALL, Layout
from placecode.encodings.relative import slopes_for
from placecode.models.encoder import Stack
from placecode.models.member import Member

GRID = np.stack(np.divmod(np.arange(6), 3), axis=1).astype(float)  # 2 x 3


def queries(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def shaken(encoding: str, **options: object) -> Stack:
    """A stack of one member, its biases no longer zero."""
    member = Member(encoding, 1.0, width=8, layers=2, heads=2, options=options)
    stack = Stack([member], tokens=6, features=3, outputs=2, readout="token", dtype=torch.float64)
    stack.flat += 0.3 * torch.randn(stack.flat.shape, generator=torch.Generator().manual_seed(1))
    return stack


def check_causal_attention(stack: Stack, score: Callable[[np.ndarray, np.ndarray, int, int], float]) -> None:
    """Captured attention is, token by token, exp(score) over its sum up to the token itself.

    `score(q, k, block, offset)` is of a query and a key, (c,) each, `offset` tokens apart: that of the key minus that
    of the query.
    """
    x = queries(3, 6, 3)
    seen = {name: value[0].numpy() for name, value in stack.capture(x, "input.*", "attention.*").items()}
    for block in range(2):
        layer = stack.blocks[block].attention.projection
        projected = seen[f"input.{block}"] @ layer.matrix[0].detach().numpy() + layer.bias[0].detach().numpy()
        q, k, _ = projected.reshape(3, 6, 3, 2, 4).transpose(2, 0, 3, 1, 4)  # each (b, h, n, c)
        for b, h, i in np.ndindex(3, 2, 6):
            raised = [math.exp(score(q[b, h, i], k[b, h, j], block, j - i)) for j in range(i + 1)]
            expected = [*(each / sum(raised) for each in raised), *[0.0] * (5 - i)]
            np.testing.assert_allclose(seen[f"attention.{block}"][b, h, i], expected, rtol=0, atol=1e-12)


class TestRelative:
    @staticmethod
    def by_loops(q: Tensor, a: dict[int, Tensor], reach: int) -> Tensor:
        """a[clip(j - i)] . q / sqrt(c) for all pairs, one sequence and one head: q (n, c) -> (n, n)."""
        n, c = q.shape
        bias = torch.empty(n, n, dtype=torch.float64)
        for i, j in np.ndindex(n, n):
            bias[i, j] = (a[max(-reach, min(reach, j - i))] * q[i]).sum() / math.sqrt(c)
        return bias

    @pytest.mark.parametrize("max_distance", [None, 1, 3, 100])
    def test_equals_a_loop_over_pairs(self, max_distance) -> None:
        n, heads, width, layers = 5, 2, 8, 2
        reach = n - 1 if max_distance is None else max_distance
        pe = encodings.make(
            "relative", n, width, heads=heads, layers=layers, sigma=1.0, dtype=torch.float64, max_distance=max_distance
        )
        assert pe.table.shape == (1, layers, 2 * reach + 1, width // heads)
        q = queries(3, heads, n, width // heads)
        for block in range(layers):
            vectors = {offset: pe.table[0, block, offset + reach] for offset in range(-reach, reach + 1)}
            found = pe.bias(q, block)
            for b in range(3):
                for h in range(heads):
                    torch.testing.assert_close(found[b, h], self.by_loops(q[b, h], vectors, reach), rtol=0, atol=1e-12)

    def test_offsets_are_told_apart_up_to_the_largest(self) -> None:
        q = torch.ones(1, 1, 6, 8, dtype=torch.float64)
        whole, clipped = (
            encodings.make("relative", 6, 8, sigma=1.0, dtype=torch.float64, max_distance=most).bias(q)[0, 0]
            for most in (None, 2)
        )
        assert not torch.isclose(whole[1, 2], whole[2, 1])
        torch.testing.assert_close(whole[0, 1], whole[2, 3])  # the same offset
        torch.testing.assert_close(clipped[0, 2:], clipped[0, 2].expand(4), rtol=0, atol=1e-12)
        assert not torch.isclose(clipped[0, 1], clipped[0, 2])
        assert not torch.isclose(whole[0, 2], whole[0, 3])

    @pytest.mark.parametrize("max_distance", [None, 1])
    def test_two_axes_sum_a_vector_for_each_axis(self, max_distance) -> None:
        options = {"axes": 2, "max_distance": max_distance}
        pe = encodings.make("relative", 6, 8, sigma=1.0, positions=GRID, dtype=torch.float64, **options)
        reach = 2 if max_distance is None else max_distance
        rows, columns = pe.table[0, 0].split(2 * reach + 1)
        q = queries(1, 1, 6, 8)
        found = pe.bias(q)[0, 0]
        for i, j in np.ndindex(6, 6):
            down, right = (int(np.clip(step, -reach, reach)) + reach for step in GRID[j] - GRID[i])
            expected = (rows[down] + columns[right]) @ q[0, 0, i] / math.sqrt(8)
            torch.testing.assert_close(found[i, j], expected, rtol=0, atol=1e-12)

    def test_heads_share_the_vectors_and_members_do_not(self) -> None:
        members = [Member("relative", 1.0, seed, width=8, heads=2, layers=1) for seed in range(2)]
        pe = encodings.build(members, Layout(4))
        q = queries(1, 1, 1, 4, 4).expand(2, 3, 2, 4, 4)  # the same query everywhere
        bias = pe.bias(q)
        torch.testing.assert_close(bias[:, :, 0], bias[:, :, 1])
        assert not torch.isclose(bias[0], bias[1]).any()

    def test_sigma_is_the_standard_deviation(self) -> None:
        table = encodings.make("relative", 100, 64, sigma=0.3, dtype=torch.float64).table
        assert abs(table.std().item() / 0.3 - 1) < 4 * (1 / (2 * table.numel())) ** 0.5
        assert encodings.make("relative", 1, 4).bias(queries(2, 1, 1, 4).float()).shape == (2, 1, 1, 1)

    def test_causal_attention_equals_a_loop_over_the_tokens_before(self) -> None:
        stack = shaken("relative", causal=True)
        a = stack.encoding.table[0].detach().numpy()  # (l, r, c), offset 0 in the middle
        check_causal_attention(stack, lambda q, k, block, offset: q @ (k + a[block, 5 + offset]) / 2)

    def test_the_loop_tells_both_directions_and_other_vectors_apart(self) -> None:
        a = shaken("relative").encoding.table[0].detach().numpy()
        with pytest.raises(AssertionError):
            check_causal_attention(shaken("relative"), lambda q, k, block, offset: q @ (k + a[block, 5 + offset]) / 2)
        with pytest.raises(AssertionError):
            check_causal_attention(
                shaken("relative", causal=True), lambda q, k, block, offset: q @ (k + a[block, 4 + offset]) / 2
            )

    def test_causal_is_on_or_off(self) -> None:
        seen = encodings.make("causal-none", 4, 8).mask(4)
        assert all(torch.equal(encodings.make("relative", 4, 8, causal=on).mask(4), seen) for on in (True, 1))
        assert all(encodings.make("relative", 4, 8, causal=off).mask(4) is None for off in (False, 0))

    def test_causal_never_uses_the_vectors_of_later_keys(self) -> None:
        stack = shaken("relative", causal=True)
        stack(queries(3, 6, 3)).square().sum().backward()
        gradient = stack.encoding.table.grad  # (e, l, r, c)
        assert (gradient[:, :, 6:] == 0).all()
        assert (gradient[:, :, :6].abs().amax(-1) > 1e-9).all()


class TestAlibi:
    PUBLISHED_8 = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256)

    @staticmethod
    def published(heads: int) -> list[float]:
        """The recipe of the paper's own code, `get_slopes`."""

        def power_of_2(n: int) -> list[float]:
            start = 2 ** (-(2 ** -(math.log2(n) - 3)))
            return [start * start**i for i in range(n)]

        if math.log2(heads).is_integer():
            return power_of_2(heads)
        closest = 2 ** math.floor(math.log2(heads))
        return power_of_2(closest) + TestAlibi.published(2 * closest)[0::2][: heads - closest]

    def test_the_published_slopes_for_8_heads(self) -> None:
        assert tuple(slopes_for(8).tolist()) == self.PUBLISHED_8
        assert slopes_for(4, 4.0).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16]  # another steepness

    @pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 6, 7, 12, 16, 20])
    def test_the_published_recipe_for_other_numbers_of_heads(self, heads) -> None:
        np.testing.assert_allclose(slopes_for(heads).numpy(), self.published(heads), rtol=1e-12)

    @pytest.mark.parametrize("tokens", [5, 60])
    def test_bidirectional_and_exact(self, tokens) -> None:
        pe = encodings.make("alibi", tokens, 16, heads=8, dtype=torch.float64)
        bias = pe.bias(queries(2, 8, tokens, 2))
        distance = abs(torch.arange(tokens)[:, None] - torch.arange(tokens))
        assert torch.equal(bias, -torch.tensor(self.PUBLISHED_8, dtype=torch.float64)[:, None, None] * distance)
        assert not list(pe.parameters())

    @pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
    def test_two_axes(self, distance) -> None:
        pe = encodings.make("alibi", 6, 8, heads=2, positions=GRID, dtype=torch.float64, axes=2, distance=distance)
        steps = abs(GRID[:, None] - GRID)
        apart = np.hypot(*steps.T) if distance == "euclidean" else steps.sum(-1)
        expected = [-slope * apart for slope in (1 / 16, 1 / 256)]
        np.testing.assert_allclose(pe.bias(queries(1, 2, 6, 4)).numpy(), expected, rtol=0, atol=1e-15)


class TestCausalNone:
    def test_the_mask_is_lower_triangular(self) -> None:
        assert torch.equal(encodings.make("causal-none", 5, 8).mask(5), torch.ones(5, 5).tril().bool())

    @staticmethod
    def influence(encoding: str, **options: object) -> np.ndarray:
        """(n, n): whether the output of token i changes with the input of token j, through the whole encoder."""
        member = Member(encoding, 1.0, width=8, layers=3, heads=2, options=options)
        stack = Stack([member], tokens=6, features=3, outputs=2, readout="token", dtype=torch.float64)
        x = queries(2, 6, 3)
        changed = np.empty((6, 6), dtype=bool)
        for j in range(6):
            other = x.clone()
            other[:, j] += 1
            changed[:, j] = (stack(x) - stack(other)).detach().abs().amax(dim=(0, 2)) > 0
        return changed

    def test_a_token_does_not_see_later_ones(self) -> None:
        earlier = np.tril(np.ones((6, 6), dtype=bool))
        assert (self.influence("causal-none") == earlier).all()
        assert (self.influence("causal-none", temperature=0.5) == earlier).all()
        assert (self.influence("relative", causal=1) == earlier).all()

    @pytest.mark.parametrize("encoding", ["none", "learned", "relative", "rotary", "alibi"])
    def test_with_any_other_encoding_all_see_all(self, encoding) -> None:
        assert self.influence(encoding).all()

    @pytest.mark.parametrize("temperature", [1, 0.01, 3.5])
    def test_attention_equals_a_softmax_of_the_scores_over_the_temperature(self, temperature) -> None:
        stack = shaken("causal-none", temperature=temperature)
        check_causal_attention(stack, lambda q, k, block, offset: q @ k / 2 / temperature)
        with pytest.raises(AssertionError):
            check_causal_attention(stack, lambda q, k, block, offset: q @ k / 2 / (1.01 * temperature))

    def test_heat_evens_attention_out_and_cold_leaves_one_token(self) -> None:
        x = queries(3, 6, 3)
        hot, cold = (shaken("causal-none", temperature=t).capture(x, "attention.0") for t in (1e9, 1e-9))
        even = torch.ones(6, 6, dtype=torch.float64).tril() / torch.arange(1, 7)[:, None]
        torch.testing.assert_close(hot["attention.0"], even.expand(1, 3, 2, 6, 6), rtol=0, atol=1e-6)
        torch.testing.assert_close(cold["attention.0"].amax(-1), torch.ones(1, 3, 2, 6, dtype=torch.float64))

    def test_no_temperature_changes_no_bit(self) -> None:
        q, k = queries(2, 3, 2, 6, 4)
        plain = encodings.make("causal-none", 6, 8, heads=2, temperature=1)
        assert all(one is other for one, other in zip(plain.rotate(q, k), (q, k), strict=True))
        assert plain.rotated == ()

    def test_a_key_bias_counts_for_nothing_at_any_temperature(self) -> None:
        for temperature in (1.0, 0.1):
            stack = shaken("causal-none", temperature=temperature)
            stack(queries(3, 6, 3)).square().sum().backward()
            for block in stack.blocks:
                query, key, value = block.attention.projection.bias.grad.chunk(3, 1)
                assert (key == 0).all() and query.abs().max() > 1e-6 and value.abs().max() > 1e-6


@pytest.mark.parametrize("name", ["relative", "alibi"])
def test_a_drop_in_reads_fewer_tokens_than_it_knows(name) -> None:
    pe, q = encodings.make(name, tokens=9, width=8, heads=2, sigma=1.0), torch.randn(3, 2, 9, 4)
    few, whole = pe.bias(q[:, :, :5]).expand(3, 2, 5, 5), pe.bias(q).expand(3, 2, 9, 9)
    assert torch.allclose(few, whole[:, :, :5, :5], atol=1e-6)


@pytest.mark.parametrize("name", ["relative", "rotary", "alibi", "causal-none"])
def test_placement_input_acts_in_the_first_block_alone(name) -> None:
    """With the encoding in the first block only, a stack equals one whose later blocks know no position."""

    def stack(encoding: str, placement: str) -> Stack:
        member = Member(encoding, sigma=1.0, width=8, heads=2, layers=2, placement=placement)
        return Stack([member], tokens=6, features=3, outputs=2, readout="token", dtype=torch.float64)

    x = torch.randn(5, 6, 3, dtype=torch.float64)
    seen, everywhere, nowhere = (
        stack(*given).capture(x, "*") for given in ((name, "input"), (name, "every"), ("none", "every"))
    )
    assert torch.equal(seen["block.0"], everywhere["block.0"]) and not torch.equal(seen["block.0"], nowhere["block.0"])
    plain = stack("none", "every")
    assert torch.equal(plain.blocks[1](seen["input.1"], plain.encoding, 1, ALL, None), seen["block.1"])
    assert not torch.equal(seen["block.1"], everywhere["block.1"])
