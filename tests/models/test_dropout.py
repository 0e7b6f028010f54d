"""Dropout: its rate, and masks that depend on seed, step, block and example only."""

import itertools

import torch
from helpers.small_stacks import inputs, small, stack_of
from torch import Tensor

from placecode.models.encoder import Stack


class TestDropout:
    @staticmethod
    def block_inputs(stack: Stack, x: Tensor, step: int | None) -> dict[str, Tensor]:
        """What the blocks read, and what it was before dropout for the first of them."""
        values: dict[str, Tensor] = {}
        with torch.no_grad():
            stack._forward(x, step, values.__setitem__, 0)
            values["sum"] = stack.encoding.add(values["embedding"], 0)
        return values

    def test_a_share_is_dropped_and_the_rest_scaled(self) -> None:
        rates = (0.1, 0.5)
        stack = stack_of([small(dropout=rate) for rate in rates])
        values = self.block_inputs(stack, inputs(2, batch=400), step=0)
        for i, rate in enumerate(rates):
            ratio = values["input.0"][i] / values["sum"][i]
            dropped = ratio == 0
            torch.testing.assert_close(ratio[~dropped], torch.full_like(ratio[~dropped], 1 / (1 - rate)))
            assert abs(dropped.double().mean() - rate) < 4 * (rate * (1 - rate) / dropped.numel()) ** 0.5

    def test_off_by_default_and_at_evaluation(self) -> None:
        x = inputs()
        plain, dropping = stack_of([small()]), stack_of([small(dropout=0.5)])
        assert torch.equal(plain(x, step=3), plain(x)) and torch.equal(dropping(x), plain(x))
        assert not torch.equal(dropping(x, step=3), plain(x))
        assert torch.equal(dropping(x, step=7), dropping(x, step=torch.tensor(7)))  # the same step, the same mask
        assert not torch.equal(dropping(x, step=7), dropping(x, step=8))
        full = dropping._forward(x, 3, lambda name, value: None, 0)  # the pruned path drops what the full one drops
        torch.testing.assert_close(dropping(x, step=3), full, rtol=0, atol=1e-12)

    def test_masks_change_with_step_block_example_and_seed(self) -> None:
        stack, x = stack_of([small(dropout=0.5), small(dropout=0.5, seed=1)]), inputs(2)
        by_step = [self.block_inputs(stack, x, step) for step in (0, 1)]
        masks = torch.stack([torch.stack([part["input.0"], part["input.1"]]) == 0 for part in by_step])
        different = masks.flatten(0, 3)  # (step, block, member, example) -> (40, n, d)
        for first, second in itertools.combinations(different, 2):
            assert not torch.equal(first, second)
        for first, second in itertools.combinations(masks.flatten(0, 2), 2):
            assert 0.3 < (first == second).double().mean() < 0.7  # independent halves agree on half

    def test_members_draw_independently_of_their_neighbours(self) -> None:
        members = [small(dropout=rate, seed=seed) for seed, rate in enumerate((0.1, 0.5, 0.3))]
        stack, x = stack_of(members), inputs(3)
        for i, member in enumerate(members):
            torch.testing.assert_close(stack_of([member])(x[i], step=4), stack(x, step=4)[i], rtol=0, atol=1e-12)

    def test_at_evaluation_it_is_fixed_by_the_seed(self) -> None:
        stack, x = stack_of([small(dropout=0.5, dropout_at_evaluation=True)]), inputs()
        assert torch.equal(stack(x), stack(x)) and not torch.equal(stack(x), stack_of([small()])(x))
        evaluation = self.block_inputs(stack, x, step=None)["input.0"] == 0
        for step in range(3):  # and is none of the masks of training
            assert not torch.equal(self.block_inputs(stack, x, step=step)["input.0"] == 0, evaluation)
