"""The encoder: parity with plain torch modules, the start of the weights, capture, dropout, and which members stack."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from placecode import encodings
from placecode.errors import BadInput
from placecode.models.encoder import ALIGNMENT, Stack, plan_stacks
from placecode.models.member import Member
from placecode.training.trainer import Trainer, evaluate

POSITIONS = np.stack(np.divmod(np.arange(6), 3), axis=1).astype(float)


def stack_of(members: list[Member], readout: str = "last", dtype: torch.dtype = torch.float64, **more) -> Stack:
    return Stack(members, tokens=6, features=3, outputs=4, readout=readout, positions=POSITIONS, dtype=dtype, **more)


def small(**fields: object) -> Member:
    return Member(**{"width": 8, "layers": 2, "heads": 2, "sigma": 0.5, "expansion": 3, **fields})


def inputs(members: int = 1, batch: int = 5, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(members, batch, 6, 3, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def shaken(stack: Stack) -> Stack:
    """The stack with other weights than at the start, so that biases and norms matter too."""
    generator = torch.Generator().manual_seed(1)
    for view in stack.views(stack.flat):
        view += 0.1 * torch.randn(view.shape, generator=generator, dtype=torch.float64).to(view)
    return stack


class PlainBlock(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int, pre: bool) -> None:
        super().__init__()
        self.pre = pre
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width), nn.GELU())

    def attend(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]

    def forward(self, x: Tensor) -> Tensor:
        if self.pre:
            x = x + self.attend(self.norm_1(x))
            return x + self.mlp(self.norm_2(x))
        x = self.norm_1(x + self.attend(x))
        return self.norm_2(x + self.mlp(x))


class PlainModel(nn.Module):
    """The paper's model with torch's own modules, one model, all tokens in every block."""

    def __init__(self, member: Member, readout: str) -> None:
        super().__init__()
        self.readout = readout
        self.embedding = nn.Linear(3, member.width)
        hidden = member.expansion * member.width
        self.blocks = nn.ModuleList(
            PlainBlock(member.width, member.heads, hidden, member.norm == "pre") for _ in range(member.layers)
        )
        self.pe = nn.Parameter(torch.zeros(member.layers, 6, member.width))
        self.final_norm = nn.LayerNorm(member.width) if member.norm == "pre" else nn.Identity()
        self.answer = nn.Linear(member.width, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        for block, pe in zip(self.blocks, self.pe, strict=True):
            x = block(x + pe)
        x = self.final_norm(x)
        if self.readout != "token":
            x = x[:, -1] if self.readout == "last" else x.mean(dim=1)
        return self.answer(x)


def twins(stack: Stack, model: PlainModel) -> list[tuple[nn.Parameter, nn.Parameter, bool]]:
    """Parameters of the plain model, those of the stack, and whether the latter are transposed."""
    pairs = [(model.pe, stack.encoding.table, False)]
    linears = [(model.embedding, stack.embedding), (model.answer, stack.answer)]
    norms = [(model.final_norm, stack.final_norm)] if stack.final_norm is not None else []
    for plain, ours in zip(model.blocks, stack.blocks, strict=True):
        pairs.append((plain.attention.in_proj_weight, ours.attention.projection.weight, True))
        pairs.append((plain.attention.in_proj_bias, ours.attention.projection.bias, False))
        linears += [(plain.attention.out_proj, ours.attention.out), (plain.mlp[0], ours.up), (plain.mlp[2], ours.down)]
        norms += [(plain.norm_1, ours.norm_1), (plain.norm_2, ours.norm_2)]
    for plain, ours in linears:
        pairs += [(plain.weight, ours.weight, not ours.flipped), (plain.bias, ours.bias, False)]
    for plain, ours in norms:
        pairs += [(plain.weight, ours.scale, False), (plain.bias, ours.shift, False)]
    return pairs


def plain_twin(stack: Stack, i: int) -> PlainModel:
    model = PlainModel(stack.members[i], stack.readout).to(stack.flat.device, stack.flat.dtype)
    pairs = twins(stack, model)
    assert len(pairs) == len(list(model.parameters()))
    with torch.no_grad():
        for theirs, ours, transposed in pairs:
            theirs.copy_(ours[i].mT if transposed else ours[i])
    return model


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("readout", ["last", "mean", "token"])
def test_parity_with_torchs_own_modules(heads, norm, readout, device) -> None:
    """Outputs and gradients of every member, weights copied: to 1e-10 in float64."""
    members = [small(heads=heads, norm=norm, seed=seed, sigma=1.0) for seed in range(2)]
    stack = shaken(stack_of(members, readout, device=device))
    x = inputs(2).to(device)
    outputs = stack(x)
    weights = torch.linspace(-1, 1, outputs[0].numel(), dtype=torch.float64, device=device).view_as(outputs[0])
    (outputs * weights).square().sum().backward()
    for i in range(2):
        model = plain_twin(stack, i)
        expected = model(x[i])
        torch.testing.assert_close(outputs[i], expected, rtol=0, atol=1e-10)
        (expected * weights).square().sum().backward()
        for theirs, ours, transposed in twins(stack, model):
            found = ours.grad[i].mT if transposed else ours.grad[i]
            torch.testing.assert_close(found, theirs.grad, rtol=0, atol=1e-10)


def test_parity_would_notice_a_wrong_model() -> None:
    """The negative twin: without the PE of the second block, or with a block's norms elsewhere, outputs differ."""
    stack = shaken(stack_of([small(sigma=1.0)]))
    x, model = inputs(), plain_twin(stack, 0)
    right = model(x[0])
    with torch.no_grad():
        model.pe[1] = 0
    assert (model(x[0]) - right).abs().max() > 1e-3
    model = plain_twin(stack, 0)
    model.blocks[1].pre = True
    assert (model(x[0]) - right).abs().max() > 1e-3


GAINS = (1.0, 0.01, 30.0)


@pytest.mark.parametrize("readout", ["last", "mean", "token"])
def test_a_gain_multiplies_outputs_and_gradients(readout) -> None:
    """Against the same members without: of a loss that is linear in the outputs, every gradient is so many times as
    large. Also as captured, with noise, alone and in a copy of another precision."""
    plain = shaken(stack_of([small(seed=seed) for seed in range(3)], readout))
    ours = stack_of([small(seed=seed, gain=gain) for seed, gain in enumerate(GAINS)], readout)
    ours.flat.copy_(plain.flat)
    gains, x = torch.tensor(GAINS, dtype=torch.float64), inputs(3)
    outputs, expected = ours(x), plain(x)
    column = gains.view(-1, *[1] * (expected.dim() - 1))
    torch.testing.assert_close(outputs, column * expected, rtol=1e-12, atol=0)
    assert torch.equal(outputs[0], expected[0])
    found, reference = torch.empty_like(ours.flat), torch.empty_like(ours.flat)
    ours.gradients(outputs.sum(), out=found)
    plain.gradients(expected.sum(), out=reference)
    torch.testing.assert_close(found, gains[:, None] * reference, rtol=1e-9, atol=1e-14)
    noise = torch.ones(3, 5, 6, 8, dtype=torch.float64)
    torch.testing.assert_close(ours.with_noise(x, noise), column * plain.with_noise(x, noise), rtol=1e-12, atol=0)
    torch.testing.assert_close(ours.capture(x, "output")["output"], outputs.detach(), rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(ours.member(2)(x[2]), outputs[2], rtol=1e-9, atol=0)
    torch.testing.assert_close(copy.deepcopy(ours).float()(x.float()).double(), outputs, rtol=1e-4, atol=1e-5)


def test_where_all_gains_are_1_nothing_is_multiplied() -> None:
    outputs = torch.zeros(2, 5, 4)
    assert stack_of([small(), small(seed=1, gain=1)]).amplified(outputs) is outputs
    assert stack_of([small(), small(gain=2.0)]).amplified(outputs) is not outputs


def test_gradients_are_laid_out_as_flat() -> None:
    stack = shaken(stack_of([small(seed=seed) for seed in range(2)]))
    x, out = inputs(2), torch.full_like(stack.flat, torch.nan)
    stack.gradients(stack(x).square().sum(), out=out)
    stack(x).square().sum().backward()
    own = [p for name, p in stack.named_parameters() if not name.startswith("encoding.")]
    assert [id(p) for p in stack.ordered] == [id(p) for p in [*own, *stack.encoding.parameters()]]
    for p, value, gradient in zip(stack.ordered, stack.views(stack.flat), stack.views(out), strict=True):
        torch.testing.assert_close(gradient, p.grad, rtol=0, atol=0)
        torch.testing.assert_close(value, p.data, rtol=0, atol=0)
        assert (value.data_ptr() - stack.flat.data_ptr()) // 8 % ALIGNMENT == 0
    first = next(iter(stack.encoding.parameters()))
    assert first.data_ptr() == stack.flat[:, stack.encoding_columns :].data_ptr()
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


def test_a_move_that_moves_nothing_leaves_a_trainer_in_charge(tiny_task) -> None:
    stack = Stack([small(batch=8)], tokens=6, features=3, outputs=3)
    trainer = Trainer(stack, tiny_task, steps=1)
    stack.to("cpu")
    before = stack.embedding.weight.clone()
    trainer.update()
    assert not torch.equal(stack.embedding.weight, before)


def test_state_dict_reaches_flat() -> None:
    one, other = shaken(stack_of([small()])), stack_of([small(seed=1)])
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.flat, other.flat)


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
        plan_stacks([small()], most=0)
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
    seen, expected = stack.capture(x, "*"), stack(x)
    torch.testing.assert_close(seen["output"], expected, rtol=0, atol=1e-12)
    parts = [f"{part}.{i}" for i in range(2) for part in ("input", "attention", "block")]
    assert set(seen) == {"embedding", "output", *parts}
    for i in range(2):
        assert seen[f"attention.{i}"].shape == (2, 5, 2, 6, 6) and (seen[f"attention.{i}"] >= 0).all()
        torch.testing.assert_close(seen[f"attention.{i}"].sum(-1), torch.ones(2, 5, 2, 6, dtype=torch.float64))
        assert seen[f"block.{i}"].shape == (2, 5, 6, 8)
    found = stack.with_noise(x, torch.zeros(2, 5, 6, 8, dtype=torch.float64))
    assert not found.requires_grad
    torch.testing.assert_close(found, expected.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", encodings.names())
@pytest.mark.parametrize("heads", [1, 2])
def test_long_sequences_are_evaluated_by_fused_attention_with_the_same_outputs(name, heads) -> None:
    """Where the encoding does nothing to the scores. The reference is the plain way, which never takes it."""
    tokens, fused = 70, 0

    def counted(*given: Tensor) -> Tensor:
        nonlocal fused
        fused += 1
        return functional(*given)

    members = [small(encoding=name, heads=heads, seed=seed) for seed in (0, 1)]
    shape = {"tokens": tokens, "features": 3, "outputs": 4, "readout": "token", "dtype": torch.float64}
    places = np.stack(np.divmod(np.arange(tokens), 7), axis=1).astype(float)
    stack, plain = (shaken(Stack(members, **shape, positions=places, fast=fast)) for fast in (None, False))
    x = torch.randn(2, 3, tokens, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    functional = torch.nn.functional.scaled_dot_product_attention
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr("torch.nn.functional.scaled_dot_product_attention", counted)
        found = stack(x)
        times = fused
        expected, captured = plain(x), stack.capture(x, "output")["output"]
        alone = stack.member(1)(x[1])
    acts_inside = name in ("causal-none", "relative", "alibi")
    assert times == (0 if acts_inside else 2)
    assert fused == 2 * times  # the plain way and what is captured are as they were; a member alone is not
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    assert torch.equal(expected, captured)
    assert torch.allclose(alone, found[1], rtol=0, atol=1e-13)


def test_gradients_of_the_pruned_path_equal_those_of_the_full_one() -> None:
    stack = shaken(stack_of([small()]))
    fast, full = torch.empty_like(stack.flat), torch.empty_like(stack.flat)
    stack.gradients(stack(inputs()).square().sum(), out=fast)
    stack.gradients(stack._forward(inputs(), None, lambda name, value: None).square().sum(), out=full)
    torch.testing.assert_close(fast, full, rtol=0, atol=1e-12)


def test_captured_attention_is_that_of_torch() -> None:
    stack = shaken(stack_of([small()]))
    seen, model = stack.capture(inputs(), "attention.0", "input.0"), plain_twin(stack, 0)
    x = seen["input.0"][0]
    expected = model.blocks[0].attention(x, x, x, average_attn_weights=False)[1]
    torch.testing.assert_close(seen["attention.0"][0], expected, rtol=0, atol=1e-12)
    stack = stack_of([small(layers=3)])
    assert sorted(stack.capture(inputs()[0], "block.[02]", "output")) == ["block.0", "block.2", "output"]
    assert stack.capture(inputs(), "nothing") == {}
    assert not any(value.requires_grad for value in stack.capture(inputs(), "*").values())


DROPPING = {"dropout": 0.3, "dropout_at_evaluation": True}


@pytest.mark.parametrize("fields", [{}, DROPPING])
def test_capture_in_portions_is_that_of_all_examples(fields) -> None:
    """Where features are dropped at evaluation, a mask belongs to an example, whatever comes with it."""
    stack, x = shaken(stack_of([small(seed=seed, **fields) for seed in range(2)])), inputs(2)
    whole = stack.capture(x, "*")
    parts = [stack.capture(x[:, :2], "*"), stack.capture(x[:, 2:], "*", first_row=2)]
    for name, value in whole.items():
        torch.testing.assert_close(torch.cat([part[name] for part in parts], dim=1), value, rtol=0, atol=1e-12)
    astray = stack.capture(x[:, 2:], "output")["output"]
    assert ((astray - whole["output"][:, 2:]).abs().max() > 1e-3) == bool(fields)


@pytest.mark.parametrize("fields", [{}, DROPPING])
def test_noise_is_added_to_the_embeddings(fields) -> None:
    """A shift of all embeddings is a shift of the embedding's bias; and noise on one example leaves the others."""
    members = [small(seed=seed, **fields) for seed in range(2)]
    stack, x = shaken(stack_of(members)), inputs(2)
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


def test_initial_weights_follow_torchs_defaults() -> None:
    member = Member(width=32, layers=2, heads=4, expansion=4)
    stack = Stack([member, Member(width=32, layers=2, heads=4, seed=1)], tokens=16, features=20, outputs=50)
    bounds = {"embedding": 20**-0.5, "answer": 32**-0.5}
    for i in range(2):
        bounds |= {f"blocks.{i}.up": 32**-0.5, f"blocks.{i}.down": 128**-0.5, f"blocks.{i}.attention.out": 32**-0.5}
        bounds[f"blocks.{i}.attention.projection"] = (6 / (32 + 3 * 32)) ** 0.5  # Xavier, all three as one matrix
    found = dict(stack.named_parameters())
    for name, bound in bounds.items():
        for part in ("weight", "bias"):
            values = found.pop(f"{name}.{part}").detach()
            if part == "bias" and "attention" in name:
                assert not values.any()
                continue
            assert values.abs().max() <= bound
            if values.numel() >= 400:
                assert values.abs().max() > 0.99 * bound
                assert abs(values.var() / (bound**2 / 3) - 1) < 4 * (0.8 / values.numel()) ** 0.5
            assert not torch.equal(values[0], values[1])
    assert (found.pop("encoding.table") != 0).all()
    for name, values in found.items():  # layer norms
        assert (values == (1 if name.endswith("scale") else 0)).all(), name


def test_initial_weights_are_distributed_as_torchs_own() -> None:
    """The same moments as fresh torch modules, parameter by parameter."""
    torch.manual_seed(0)
    member = Member(width=32, layers=1, heads=4)
    stack = Stack([member], tokens=6, features=3, outputs=4, dtype=torch.float64)
    model = PlainModel(member, "last").double()
    for theirs, ours, _ in twins(stack, model)[1:]:
        assert ours[0].numel() == theirs.numel()
        assert ours.std(correction=0).item() == pytest.approx(theirs.std(correction=0).item(), rel=0.4, abs=1e-12)
        assert ours.abs().max().item() == pytest.approx(theirs.abs().max().item(), rel=0.25, abs=1e-12)


def test_equal_seeds_start_from_equal_weights_whatever_the_encoding() -> None:
    def weights(name: str, seed: int) -> Tensor:
        stack = stack_of([small(encoding=name, seed=seed)])
        return stack.flat[:, : stack.encoding_columns]

    for name in encodings.names():
        assert torch.equal(weights(name, 0), weights("none", 0))
        assert not torch.equal(weights(name, 1), weights(name, 0))
    together, alone = stack_of([small(seed=seed) for seed in (3, 1, 2)]), stack_of([small(seed=1)])
    assert torch.equal(together.flat[1], alone.flat[0])
    assert torch.equal(stack_of([small(seed=1)], dtype=torch.float32).flat, alone.flat.float())


def test_additive_encodings_share_a_stack() -> None:
    sines = [small(encoding="sinusoid", options={"axes": axes}) for axes in (1, 2)]
    learned = [small(), small(learn=False), small(start=np.ones((6, 8)))]
    members = [small(encoding="none"), *sines, small(encoding="random", sigma=1.0), *learned]
    assert plan_stacks(members, most=10) == [list(range(7))]
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
    assert plan_stacks(members, most=10) == [[0], [1]]


def test_members_that_differ_otherwise_stack() -> None:
    rates = {"learning_rate": 1.0, "pe_learning_rate": 0.5, "weight_decay": 0.1, "pe_weight_decay": 0.2}
    members = [small(), small(seed=1, sigma=2.0, gain=3.0, clip=1.0, momentum=0.0, beta1=0.5, **rates)]
    assert plan_stacks(members, most=10) == [[0, 1]]
    stack_of(members)
    for fraction, plan in ((0.5, [[0], [1]]), (1.0, [[0, 1]])):  # 1 is the default
        members = [small(encoding="rotary"), small(encoding="rotary", options={"fraction": fraction})]
        assert plan_stacks(members, most=10) == plan


def test_plan_stacks_keeps_order_and_evens_sizes() -> None:
    members = [small(encoding=name, seed=seed) for seed in range(5) for name in ("learned", "rotary")]
    plan = plan_stacks(members, most=3)
    assert plan == [[0, 2, 4], [6, 8], [1, 3, 5], [7, 9]]
    assert all(type(i) is int for part in plan for i in part)
    assert plan_stacks(members, most=1) == [[i] for i in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)]
    assert plan_stacks([], most=3) == []
    sizes = [len(part) for part in plan_stacks([small(seed=seed) for seed in range(100)], most=30)]
    assert sizes == [25] * 4


class TestDropout:
    @staticmethod
    def block_inputs(stack: Stack, x: Tensor, step: int | None, **more: int) -> dict[str, Tensor]:
        """What the blocks read, and what it was before dropout for the first of them."""
        seen: dict[str, Tensor] = {}
        with torch.no_grad():
            stack._forward(x, step, seen.__setitem__, **more)
            seen["sum"] = stack.encoding.add(seen["embedding"], 0)
        return seen

    def test_a_share_is_dropped_and_the_rest_scaled(self) -> None:
        rates = (0.1, 0.5)
        stack = stack_of([small(dropout=rate) for rate in rates])
        seen = self.block_inputs(stack, inputs(2, batch=400), step=0)
        for i, rate in enumerate(rates):
            ratio = seen["input.0"][i] / seen["sum"][i]
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
        full = dropping._forward(x, 3, lambda name, value: None)  # the pruned path drops what the full one drops
        torch.testing.assert_close(dropping(x, step=3), full, rtol=0, atol=1e-12)

    def test_masks_change_with_step_block_example_and_seed(self) -> None:
        stack, x = stack_of([small(dropout=0.5), small(dropout=0.5, seed=1)]), inputs(2)
        seen = [self.block_inputs(stack, x, step) for step in (0, 1)]
        masks = torch.stack([torch.stack([part["input.0"], part["input.1"]]) == 0 for part in seen])
        different = masks.flatten(0, 3)  # (step, block, member, example) -> (40, n, d)
        for one, other in itertools.combinations(different, 2):
            assert not torch.equal(one, other)
        for one, other in itertools.combinations(masks.flatten(0, 2), 2):
            assert 0.3 < (one == other).double().mean() < 0.7  # independent halves agree on half

    def test_members_draw_independently_of_their_neighbours(self) -> None:
        members = [small(dropout=rate, seed=seed) for seed, rate in enumerate((0.1, 0.5, 0.3))]
        stack, x = stack_of(members), inputs(3)
        for i, member in enumerate(members):
            torch.testing.assert_close(stack_of([member])(x[i], step=4), stack(x, step=4)[i], rtol=0, atol=1e-12)

    def test_at_evaluation_it_is_fixed_by_the_seed(self) -> None:
        stack, x = stack_of([small(dropout=0.5, dropout_at_evaluation=True)]), inputs()
        assert torch.equal(stack(x), stack(x))
        assert not torch.equal(stack(x), stack_of([small()])(x))
        evaluation = self.block_inputs(stack, x, step=None)["input.0"] == 0
        for step in range(3):  # and is none of the masks of training
            assert not torch.equal(self.block_inputs(stack, x, step=step)["input.0"] == 0, evaluation)

    @pytest.mark.parametrize("values", [1, 500])
    def test_evaluation_with_dropout_does_not_depend_on_the_portions(self, values, tiny_task, monkeypatch) -> None:
        members = [small(dropout=0.5, dropout_at_evaluation=True, seed=seed) for seed in range(2)]
        stack = Stack(members, tokens=6, features=3, outputs=3, dtype=torch.float64)
        task = tiny_task.to("cpu", torch.float64)
        whole = evaluate(stack, task, "train")
        monkeypatch.setattr("placecode.training.trainer.EVALUATION_VALUES", values)
        for key, found in evaluate(stack, task, "train").items():
            assert found == pytest.approx(whole[key], abs=1e-12)

    def test_gradients_pass_through_what_is_kept_alone(self) -> None:
        stack = stack_of([small(dropout=0.5, layers=1)], readout="mean")
        kept = self.block_inputs(stack, inputs(batch=1), step=0)["input.0"][0, 0] != 0  # (n, d)
        stack(inputs(batch=1), step=0).square().sum().backward()
        assert torch.equal(stack.encoding.table.grad[0, 0] != 0, kept)
