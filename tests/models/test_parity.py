"""Parity of a stack with torch's own modules, and the initial weights."""

import pytest
import torch
from helpers.small_stacks import inputs, shaken, small, stack_of
from torch import Tensor, nn

from placecode import encodings
from placecode.models.encoder import Stack
from placecode.models.member import Member


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
            result = ours.grad[i].mT if transposed else ours.grad[i]
            torch.testing.assert_close(result, theirs.grad, rtol=0, atol=1e-10)


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


def test_captured_attention_is_that_of_torch() -> None:
    stack = shaken(stack_of([small()]))
    captured, model = stack.capture(inputs(), "attention.0", "input.0"), plain_twin(stack, 0)
    x = captured["input.0"][0]
    expected = model.blocks[0].attention(x, x, x, average_attn_weights=False)[1]
    torch.testing.assert_close(captured["attention.0"][0], expected, rtol=0, atol=1e-12)
    stack = stack_of([small(layers=3)])
    assert sorted(stack.capture(inputs()[0], "block.[02]", "output")) == ["block.0", "block.2", "output"]
    assert stack.capture(inputs(), "nothing") == {}
    assert not any(value.requires_grad for value in stack.capture(inputs(), "*").values())


def test_initial_weights_follow_torchs_defaults() -> None:
    member = Member(width=32, layers=2, heads=4, expansion=4)
    stack = Stack([member, Member(width=32, layers=2, heads=4, seed=1)], tokens=16, features=20, outputs=50)
    bounds = {"embedding": 20**-0.5, "answer": 32**-0.5}
    for i in range(2):
        bounds |= {f"blocks.{i}.up": 32**-0.5, f"blocks.{i}.down": 128**-0.5, f"blocks.{i}.attention.out": 32**-0.5}
        bounds[f"blocks.{i}.attention.projection"] = (6 / (32 + 3 * 32)) ** 0.5  # Xavier, all three as one matrix
    result = dict(stack.named_parameters())
    for name, bound in bounds.items():
        for part in ("weight", "bias"):
            values = result.pop(f"{name}.{part}").detach()
            if part == "bias" and "attention" in name:
                assert not values.any()
                continue
            assert values.abs().max() <= bound
            if values.numel() >= 400:
                assert values.abs().max() > 0.99 * bound
                assert abs(values.var() / (bound**2 / 3) - 1) < 4 * (0.8 / values.numel()) ** 0.5
            assert not torch.equal(values[0], values[1])
    assert (result.pop("encoding.table") != 0).all()
    for name, values in result.items():  # layer norms
        assert (values == (1 if name.endswith("scale") else 0)).all(), name


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
