"""The contract of encodings, over the whole registry: shapes, independence of members, and use in anyone's model."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from placecode import encodings
from placecode.encodings import ALL, Additive, Encoding, Layout
from placecode.encodings.additive import Learned
from placecode.errors import BadInput
from placecode.models.encoder import ALIGNMENT, Stack, plan_stacks
from placecode.models.member import Member
from placecode.training.trainer import Trainer, stack_for

TOKENS, WIDTH, HEADS, LAYERS, BATCH = 6, 8, 2, 2, 3
POSITIONS = np.stack(np.divmod(np.arange(TOKENS), 3), axis=1).astype(float)
LAST = slice(TOKENS - 1, TOKENS)
LEARNABLE = {"learned", "relative"}
AUTHORS = {"relative": {"causal": True}, "rotary": {"fraction": 0.5}, "causal-none": {"temperature": 0.01}}
"""Options by which an encoding becomes that of the authors' code."""
KINDS = [*((name, {}) for name in encodings.names()), *AUTHORS.items()]
each_kind = pytest.mark.parametrize(("name", "options"), KINDS, ids=str)


def members_of(name: str, count: int, **fields: object) -> list[Member]:
    shape = {"width": WIDTH, "heads": HEADS, "layers": LAYERS, "sigma": 0.5}
    return [Member(encoding=name, seed=seed, **shape, **fields) for seed in range(count)]


def encoding_of(name: str, count: int = 1, **fields: object) -> Encoding:
    return encodings.build(members_of(name, count, **fields), Layout(TOKENS, POSITIONS)).double()


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def queries_and_keys(count: int) -> tuple[Tensor, Tensor]:
    both = drawn(2, count, BATCH, HEADS, TOKENS, WIDTH // HEADS)
    return both[0], both[1]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, type[Encoding]]:
    """The registry, as it was again after the test."""
    monkeypatch.setattr(encodings, "_REGISTRY", dict(encodings._REGISTRY))
    return encodings._REGISTRY


@each_kind
@pytest.mark.parametrize("at", [LAST, slice(0, 1), slice(2, 4)], ids=["last", "first", "some"])
def test_some_positions_are_the_rows_of_all_positions(name, options, at) -> None:
    encoding = encoding_of(name, 2, options=options)
    x, (q, k), scores = drawn(2, BATCH, TOKENS, WIDTH), queries_and_keys(2), (2, BATCH, HEADS, TOKENS, TOKENS)
    few = q[..., at, :]
    for block in range(LAYERS):
        assert encoding.add(x, block).shape == x.shape
        (some_q, some_k), (all_q, all_k) = encoding.rotate(few, k, block, at), encoding.rotate(q, k, block)
        torch.testing.assert_close(some_q, all_q[..., at, :], rtol=0, atol=1e-14)
        torch.testing.assert_close(some_k, all_k, rtol=0, atol=1e-14)
        if (bias := encoding.bias(q, block)) is not None:
            assert torch.broadcast_shapes(bias.shape, scores) == scores and bias.shape[-2:] == scores[-2:]
            torch.testing.assert_close(encoding.bias(few, block, at), bias[..., at, :], rtol=0, atol=1e-14)
    if (allowed := encoding.mask(TOKENS)) is not None:
        assert torch.equal(encoding.mask(TOKENS, at), allowed[at]) and allowed.dtype == torch.bool
        assert allowed.any(1).all()  # a query that sees nothing would give NaN
    vectors = encoding.vectors()
    assert vectors is None or vectors.shape == (2, LAYERS, TOKENS, WIDTH)


@each_kind
def test_an_encoding_says_what_it_does_to_queries_and_keys(name, options) -> None:
    """The ways of computing go by it: what is not named there stays bit for bit, the rest does not."""
    encoding, before = encoding_of(name, 2, options=options), queries_and_keys(2)
    for what, original, rotated in zip(("queries", "keys"), before, encoding.rotate(*before, 1), strict=True):
        assert torch.equal(original, rotated) == (what not in encoding.rotated)


@each_kind
def test_a_members_parameters_touch_its_own_outputs_alone(name, options) -> None:
    shape = {"tokens": TOKENS, "features": 3, "outputs": 2, "positions": POSITIONS}
    stack = Stack(members_of(name, 3, options=options), **shape, dtype=torch.float64)
    gradient = torch.full_like(stack.flat, torch.nan)
    stack.gradients(stack(drawn(3, BATCH, TOKENS, 3))[1].square().sum(), out=gradient)
    assert (gradient[[0, 2]] == 0).all() and gradient[1].any() and gradient.isfinite().all()


class PlainModel(nn.Module):
    """Somebody's own model in plain PyTorch, one block of attention, with a PE from here."""

    def __init__(self, pe: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.pe, self.embed, self.project = pe, nn.Linear(3, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.answer = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:  # (b, n, 3)
        x = self.embed(x)
        if isinstance(self.pe, Additive):
            x = self.pe(x)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.project(x).chunk(3, dim=-1))
        q, k = self.pe.rotate(q, k)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if (bias := self.pe.bias(q)) is not None:
            assert bias.shape[-3:] == scores.shape[-3:]
            scores = scores + bias
        if (allowed := self.pe.mask(x.shape[1])) is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)
        return self.answer((x + mixed)[:, -1])


@each_kind
def test_drop_in_use_in_a_plain_model(name, options, tiny_task) -> None:
    pe = encodings.make(name, TOKENS, WIDTH, heads=HEADS, sigma=0.5, positions=POSITIONS, **options)
    model = PlainModel(pe)
    data = tiny_task.splits["train"].to("cpu", torch.float32)
    before = {key: value.clone() for key, value in pe.named_parameters()}
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
    losses = []
    for _ in range(15):
        loss = nn.functional.cross_entropy(model(data.inputs), data.targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    for key, value in pe.named_parameters():
        assert (not torch.equal(value, before[key])) == (name in LEARNABLE)
    frozen = encodings.make(name, TOKENS, WIDTH, heads=HEADS, learn=False, **options)
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


@each_kind
def test_moves_to_another_dtype_and_device(name, options, device) -> None:
    pe = encodings.make(name, TOKENS, WIDTH, heads=HEADS, **options)
    assert all(parameter.dtype == torch.float32 for parameter in pe.parameters())
    exact = encodings.make(name, TOKENS, WIDTH, heads=HEADS, dtype=torch.float64, **options)
    for dtype, within in ((torch.float32, 1e-6), (torch.float64, 1e-6), (torch.bfloat16, 0.1)):
        moved = pe.to(device, dtype)
        q, k = (t[0].to(device, dtype) for t in queries_and_keys(1))
        x = drawn(1, BATCH, TOKENS, WIDTH).to(device, dtype)
        result, expected = [moved.add(x, 0)], [exact.add(x.double().cpu(), 0)]
        if (bias := moved.bias(q)) is not None:
            result.append(bias)
            expected.append(exact.bias(q.double().cpu()))
        for actual, reference in zip(result, expected, strict=True):
            torch.testing.assert_close(actual.double().cpu(), reference, rtol=within, atol=within)
        assert all(part.dtype == dtype and part.device.type == device for part in (*result, *moved.rotate(q, k)))
        if (allowed := moved.mask(TOKENS)) is not None:
            assert allowed.device.type == device


class TestRegister:
    def test_an_own_encoding_trains_in_a_stack(self, registry, tiny_task) -> None:
        @encodings.register("gain")
        class Gain(Encoding):
            """Scales the last token's input; and has a parameter that nothing uses."""

            defaults = {"size": 1.0}

            def __init__(self, members, layout) -> None:
                super().__init__(members, layout)
                self.gain = nn.Parameter(torch.ones(len(members), WIDTH) * dict(self.settings(members[0]))["size"])
                self.idle = nn.Parameter(torch.ones(len(members), 1))

            def add(self, x: Tensor, block: int) -> Tensor:
                return x * self.gain[:, None, None]

        assert "gain" in encodings.names()
        members = members_of("gain", 2, options={"size": 2.0}, learning_rate=0.01, batch=8)
        stack = stack_for(members, tiny_task, dtype=torch.float64)
        assert isinstance(stack.encoding, Gain)
        trainer = Trainer(stack, tiny_task, steps=3)
        for _ in range(3):
            trainer.update()
        assert (stack.encoding.gain != 2).all() and (stack.encoding.idle == 1).all()
        assert trainer.outcome()["alive"].all()
        assert [p.shape for p in stack.ordered[-2:]] == [p.shape for p in stack.encoding.parameters()]
        assert stack.encoding_columns == stack.flat.shape[1] - 2 * ALIGNMENT

    def test_a_kind_of_the_additive_family_joins_the_others_in_a_stack(self, registry) -> None:
        @encodings.register("ones")
        class Ones(Additive):
            @classmethod
            def start(cls, member, layout, shape):
                return np.ones(shape)

        stack = Stack([*members_of("ones", 1), *members_of("learned", 1)], tokens=TOKENS, features=3, outputs=2)
        assert (stack.encoding.vectors()[0] == 1).all() and stack.encoding.learns.tolist() == [False, True]

    def test_a_kind_of_the_additive_family_with_its_own_hook_is_not_ignored(self, registry) -> None:
        @encodings.register("doubled")
        class Doubled(Learned):
            def add(self, x: Tensor, block: int) -> Tensor:
                return super().add(super().add(x, block), block)

        doubled, learned = members_of("doubled", 1)[0], members_of("learned", 1)[0]
        assert len(plan_stacks([doubled, learned], max_size=10)) == 2
        pe = encodings.make("doubled", TOKENS, WIDTH)
        zero = torch.zeros(BATCH, TOKENS, WIDTH)
        torch.testing.assert_close(pe(zero), 2 * encodings.make("learned", TOKENS, WIDTH)(zero))

    def test_an_overridden_rotation_of_causal_none_is_not_ignored(self, registry) -> None:
        @encodings.register("upside-down")
        class UpsideDown(encodings.lookup("causal-none")):
            def rotate(self, q: Tensor, k: Tensor, block: int = 0, at: slice = ALL) -> tuple[Tensor, Tensor]:
                return -q, -k

        assert encoding_of("upside-down").rotated == encoding_of("rotary").rotated == ("queries", "keys")

    def test_a_taken_name_is_refused_except_for_the_same_class(self, registry) -> None:
        rotary = encodings.lookup("rotary")
        with pytest.raises(BadInput, match=r"^the encoding name 'rotary' must be new; it is taken by Rotary\.$"):
            encodings.register("rotary")(Encoding)
        assert encodings.register("rotary")(rotary) is rotary is encodings.lookup("rotary")

    def test_an_installed_plugin_is_found_by_its_entry_point(self, registry, monkeypatch) -> None:
        class Plugged(Encoding):
            pass

        point = SimpleNamespace(name="plugged", load=lambda: Plugged)
        monkeypatch.setattr(encodings, "entry_points", lambda group: [point] * (group == "placecode.encodings"))
        assert encodings.lookup("plugged") is Plugged and "plugged" in encodings.names()
