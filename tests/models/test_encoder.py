"""The encoder: gain, the flat layout, capture, noise, and which members can be stacked."""

import copy

import numpy as np
import pytest
import torch
from helpers.small_stacks import inputs, shaken, small, stack_of
from torch import Tensor

from placecode import encodings
from placecode.errors import BadInput
from placecode.models.encoder import ALIGNMENT, Stack, plan_stacks
from placecode.training.trainer import Trainer

GAINS = (1.0, 0.01, 30.0)


@pytest.mark.parametrize("readout", ["last", "mean", "token"])
def test_a_gain_multiplies_outputs_and_gradients(readout) -> None:
    """Against the same members without: of a loss that is linear in the outputs, every gradient is so many times as
    large. Also as captured, with noise, alone and in a copy of another precision."""
    plain = shaken(stack_of([small(seed=seed) for seed in range(3)], readout))
    ours = stack_of([small(seed=seed, output_gain=gain) for seed, gain in enumerate(GAINS)], readout)
    ours.flat.copy_(plain.flat)
    gains, x = torch.tensor(GAINS, dtype=torch.float64), inputs(3)
    outputs, expected = ours(x), plain(x)
    column = gains.view(-1, *[1] * (expected.dim() - 1))
    torch.testing.assert_close(outputs, column * expected, rtol=1e-12, atol=0)
    assert torch.equal(outputs[0], expected[0])
    result, reference = torch.empty_like(ours.flat), torch.empty_like(ours.flat)
    ours.gradients(outputs.sum(), out=result)
    plain.gradients(expected.sum(), out=reference)
    torch.testing.assert_close(result, gains[:, None] * reference, rtol=1e-9, atol=1e-14)
    noise = torch.ones(3, 5, 6, 8, dtype=torch.float64)
    torch.testing.assert_close(ours.with_noise(x, noise), column * plain.with_noise(x, noise), rtol=1e-12, atol=0)
    torch.testing.assert_close(ours.capture(x, "output")["output"], outputs.detach(), rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(ours.member(2)(x[2]), outputs[2], rtol=1e-9, atol=0)
    torch.testing.assert_close(copy.deepcopy(ours).float()(x.float()).double(), outputs, rtol=1e-4, atol=1e-5)


def test_gradients_are_laid_out_as_flat() -> None:
    stack = shaken(stack_of([small(seed=seed) for seed in range(2)]))
    x, out = inputs(2), torch.full_like(stack.flat, torch.nan)
    stack.gradients(stack(x).square().sum(), out=out)
    stack(x).square().sum().backward()
    rest = [p for name, p in stack.named_parameters() if not name.startswith("encoding.")]
    assert [id(p) for p in stack.ordered] == [id(p) for p in [*rest, *stack.encoding.parameters()]]
    for p, value, gradient in zip(stack.ordered, stack.views(stack.flat), stack.views(out), strict=True):
        torch.testing.assert_close(gradient, p.grad, rtol=0, atol=0)
        torch.testing.assert_close(value, p.data, rtol=0, atol=0)
        assert (value.data_ptr() - stack.flat.data_ptr()) // 8 % ALIGNMENT == 0
    assert next(iter(stack.encoding.parameters())).data_ptr() == stack.flat[:, stack.encoding_columns :].data_ptr()
    stack = stack_of([small()])
    between = torch.zeros_like(stack.flat)
    for view in stack.views(between):
        view.fill_(1)
    assert (between == 0).any() and (stack.flat[between == 0] == 0).all()


@pytest.mark.parametrize(
    "move",
    [lambda s: s, lambda s: s.float(), lambda s: s.float().double(), copy.deepcopy, lambda s: s.to("cpu")],
    ids=["as built", "float", "float and back", "deepcopy", "to the same"],
)
def test_parameters_stay_views_of_flat(move) -> None:
    original = stack_of([small(seed=seed) for seed in range(2)])
    before = original.flat.clone()
    stack = move(original)
    assert all(p.dtype == stack.flat.dtype for p in stack.parameters())
    torch.testing.assert_close(stack.flat.double(), before, rtol=0, atol=1e-6)
    stack.flat.zero_()
    assert not any(p.any() for p in stack.parameters())
    assert move is not copy.deepcopy or torch.equal(original.flat, before)  # a copy is independent
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter += 1
    assert all((view == 1).all() for view in stack.views(stack.flat))


def test_a_state_dict_and_a_trainer_reach_flat(tiny_task) -> None:
    source, target = shaken(stack_of([small()])), stack_of([small(seed=1)])
    target.load_state_dict(source.state_dict())
    assert torch.equal(source.flat, target.flat)
    stack = Stack([small(batch=8)], tokens=6, features=3, outputs=3)
    trainer = Trainer(stack, tiny_task, steps=1)
    stack.to("cpu")  # which moves nothing, so the trainer still updates the parameters
    before = stack.embedding.weight.clone()
    trainer.update()
    assert not torch.equal(stack.embedding.weight, before)


@pytest.mark.parametrize("name", encodings.names())
def test_member_gives_the_same_outputs_and_is_independent(name) -> None:
    members = [small(encoding=name, seed=seed, dropout=0.2, dropout_at_evaluation=True) for seed in range(3)]
    stack, x = shaken(stack_of(members)), inputs(3)
    together = stack(x)
    for i in (0, 2, -1):
        single = stack.member(i)
        assert single.members == (members[i],)
        torch.testing.assert_close(single(x[i]), together[i], rtol=0, atol=1e-12)
        torch.testing.assert_close(single(x[i][None]), together[i][None], rtol=0, atol=1e-12)
        single.flat.zero_()
    assert torch.equal(stack(x), together)
    with pytest.raises(IndexError):
        stack.member(3)


def test_bad_input_is_refused() -> None:
    pair, single, noise = stack_of([small(), small(seed=1)]), stack_of([small()]), torch.zeros(2, 5, 6, 8)
    for bad in (inputs(1)[0], inputs(3), inputs(2)[..., :2], inputs(2)[0, 0]):
        for call in (pair, lambda x: pair.capture(x, "*"), lambda x: pair.with_noise(x, noise)):
            with pytest.raises(BadInput, match=r"^inputs must be an array \(2 members, batch, tokens, 3 features\); g"):
                call(bad)
    with pytest.raises(BadInput, match=r"or \(batch, tokens, 3 features\); got \(6, 3\)\.$"):
        single(inputs()[0, 0])
    with pytest.raises(BadInput, match="the largest stack must be a whole number of at least 1"):
        plan_stacks([small()], max_size=0)
    with pytest.raises(BadInput, match="a stack must have at least one member"):
        stack_of([])
    with pytest.raises(BadInput, match="readout must be one of last, mean, token"):
        stack_of([small()], readout="first")


@pytest.mark.parametrize("name", encodings.names())
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("readout", ["last", "mean", "token"])
def test_capture_and_no_noise_are_the_plain_forward(name, norm, readout) -> None:
    """With "last" the forward computes one token in the last block: the pruned path equals the full one."""
    stack = shaken(stack_of([small(encoding=name, seed=seed, norm=norm) for seed in range(2)], readout))
    x = inputs(2)
    captured, expected = stack.capture(x, "*"), stack(x)
    torch.testing.assert_close(captured["output"], expected, rtol=0, atol=1e-12)
    parts = [f"{part}.{i}" for i in range(2) for part in ("input", "attention", "block")]
    assert set(captured) == {"embedding", "output", *parts}
    for i in range(2):
        assert captured[f"attention.{i}"].shape == (2, 5, 2, 6, 6) and (captured[f"attention.{i}"] >= 0).all()
        torch.testing.assert_close(captured[f"attention.{i}"].sum(-1), torch.ones(2, 5, 2, 6, dtype=torch.float64))
        assert captured[f"block.{i}"].shape == (2, 5, 6, 8)
    result = stack.with_noise(x, torch.zeros(2, 5, 6, 8, dtype=torch.float64))
    assert not result.requires_grad
    torch.testing.assert_close(result, expected.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", encodings.names())
@pytest.mark.parametrize("heads", [1, 2])
def test_long_sequences_are_evaluated_by_fused_attention_with_the_same_outputs(name, heads) -> None:
    """Where the encoding does nothing to the scores. The reference is the plain way, which never takes it."""
    tokens, fused = 70, 0

    def counted(*arguments: Tensor) -> Tensor:
        nonlocal fused
        fused += 1
        return functional(*arguments)

    members = [small(encoding=name, heads=heads, seed=seed) for seed in (0, 1)]
    shape = {"tokens": tokens, "features": 3, "outputs": 4, "readout": "token", "dtype": torch.float64}
    places = np.stack(np.divmod(np.arange(tokens), 7), axis=1).astype(float)
    stack, plain = (shaken(Stack(members, **shape, positions=places, fast=fast)) for fast in (None, False))
    x = torch.randn(2, 3, tokens, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    functional = torch.nn.functional.scaled_dot_product_attention
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr("torch.nn.functional.scaled_dot_product_attention", counted)
        result = stack(x)
        times = fused
        expected, captured = plain(x), stack.capture(x, "output")["output"]
        alone = stack.member(1)(x[1])
    assert times == (0 if name in ("causal-none", "relative", "alibi") else 2)
    assert fused == 2 * times  # the plain way and what is captured are as they were; a member alone is not
    assert torch.allclose(result, expected, rtol=0, atol=1e-12) and torch.equal(expected, captured)
    assert torch.allclose(alone, result[1], rtol=0, atol=1e-13)


DROPPING = {"dropout": 0.3, "dropout_at_evaluation": True}


@pytest.mark.parametrize("fields", [{}, DROPPING])
def test_capture_in_portions_is_that_of_all_examples(fields) -> None:
    """Where features are dropped at evaluation, a mask belongs to an example, whatever comes with it."""
    stack, x = shaken(stack_of([small(seed=seed, **fields) for seed in range(2)])), inputs(2)
    full = stack.capture(x, "*")
    parts = [stack.capture(x[:, :2], "*"), stack.capture(x[:, 2:], "*", first_row=2)]
    for name, value in full.items():
        torch.testing.assert_close(torch.cat([part[name] for part in parts], dim=1), value, rtol=0, atol=1e-12)
    astray = stack.capture(x[:, 2:], "output")["output"]
    assert ((astray - full["output"][:, 2:]).abs().max() > 1e-3) == bool(fields)


@pytest.mark.parametrize("fields", [{}, DROPPING])
def test_noise_is_added_to_the_embeddings(fields) -> None:
    """A shift of all embeddings is a shift of the embedding's bias; and noise on one example leaves the others."""
    stack, x = shaken(stack_of([small(seed=seed, **fields) for seed in range(2)])), inputs(2)
    plain, shift = stack(x), torch.linspace(-1, 1, 8, dtype=torch.float64)
    moved = stack.with_noise(x, shift.expand(2, 5, 6, 8))
    assert (moved - plain).abs().amax((1, 2)).min() > 1e-2
    twin = copy.deepcopy(stack)
    twin.embedding.bias.data += shift
    torch.testing.assert_close(moved, twin(x), rtol=0, atol=1e-12)
    noise = torch.zeros(2, 5, 6, 8, dtype=torch.float64)
    noise[1, 3, 2] = 1  # one token of one example of one member
    changed = (stack.with_noise(x, noise) - plain).abs().amax(-1) > 1e-6
    assert changed.nonzero().tolist() == [[1, 3]]
    noise = torch.randn(2, 5, 6, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    parts = [stack.with_noise(x[:, :2], noise[:, :2]), stack.with_noise(x[:, 2:], noise[:, 2:], first_row=2)]
    torch.testing.assert_close(torch.cat(parts, dim=1), stack.with_noise(x, noise), rtol=0, atol=1e-12)


def test_additive_encodings_share_a_stack() -> None:
    sines = [small(encoding="sinusoid", options={"axes": axes}) for axes in (1, 2)]
    learned = [small(), small(learn=False), small(start=np.ones((6, 8)))]
    members = [small(encoding="none"), *sines, small(encoding="random", sigma=1.0), *learned]
    assert plan_stacks(members, max_size=10) == [list(range(7))]
    stack, x = shaken(stack_of(members)), inputs(7)
    assert stack.encoding.learns.tolist() == [False, False, False, False, True, False, True]
    for i in range(7):
        alone = stack_of([members[i]])
        alone.flat.copy_(stack.flat[i])
        torch.testing.assert_close(alone(x[i]), stack(x)[i], rtol=0, atol=1e-12)


DIFFERENT = {"width": 16, "layers": 1, "heads": 1, "expansion": 4, "norm": "pre", "placement": "input"}
DIFFERENT |= {"optimizer": "sgd", "batch": 64, "dropout": 0.1, "encoding": "rotary", "data": "other"}


@pytest.mark.parametrize("field", DIFFERENT)
def test_members_of_different_shape_are_refused(field) -> None:
    members = [small(), small(**{field: DIFFERENT[field]})]
    with pytest.raises(BadInput, match=r"^members of a stack must have the same shape and encoding family"):
        stack_of(members)
    assert plan_stacks(members, max_size=10) == [[0], [1]]


def test_members_that_differ_otherwise_stack() -> None:
    rates = {"learning_rate": 1.0, "pe_learning_rate": 0.5, "weight_decay": 0.1, "pe_weight_decay": 0.2}
    members = [small(), small(seed=1, sigma=2.0, output_gain=3.0, clip=1.0, momentum=0.0, beta1=0.5, **rates)]
    assert plan_stacks(members, max_size=10) == [[0, 1]]
    stack_of(members)
    for fraction, plan in ((0.5, [[0], [1]]), (1.0, [[0, 1]])):  # 1 is the default
        members = [small(encoding="rotary"), small(encoding="rotary", options={"fraction": fraction})]
        assert plan_stacks(members, max_size=10) == plan


def test_plan_stacks_keeps_order_and_evens_sizes() -> None:
    members = [small(encoding=name, seed=seed) for seed in range(5) for name in ("learned", "rotary")]
    plan = plan_stacks(members, max_size=3)
    assert plan == [[0, 2, 4], [6, 8], [1, 3, 5], [7, 9]] and all(type(i) is int for part in plan for i in part)
    assert plan_stacks(members, max_size=1) == [[i] for i in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)]
    assert plan_stacks([], max_size=3) == []
    assert [len(part) for part in plan_stacks([small(seed=seed) for seed in range(100)], max_size=30)] == [25] * 4
