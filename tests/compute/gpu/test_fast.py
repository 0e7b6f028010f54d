"""The GPU implementation against float64: as accurate as the reference, for every encoding and shape."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="the kernels need Triton")

from helpers.training.both_ways import errors_of, inputs_of, losses_of, outcome, stack_of

from placecode import encodings
from placecode.compute.gpu import kernels
from placecode.compute.gpu.forward import _is_fused
from placecode.compute.gpu.kernels import attention, long_attention, rows
from placecode.encodings import ALL, Encoding
from placecode.errors import BadInput

pytestmark = pytest.mark.usefixtures("exact_products", "bfloat16_products")

FLOOR = 2e-7  # a relative error that counts as none; steps of float32 are 1.2e-7
DRAWS = {"cpu": 12, "cuda": 48}
"""Number of input batches for the error of the reference. On a few examples, rounding errors are a matter of chance."""


def errors_of_both(device, batch=2, training=True, **more) -> tuple[dict[str, float], dict[str, float]]:
    """Errors of the fast and of the plain implementation against float64, with the same weights and inputs. They are
    pooled over input batches by root mean square. The interpreter is slow: there, the fast one has one batch, and the
    error of the plain one is the maximum."""
    exact = stack_of(device, **more, fast=False, dtype=torch.float64)
    both: list[dict[str, float]] = []
    for fast, draws in ((True, 1 if device == "cpu" else DRAWS[device]), (False, DRAWS[device])):
        stack = stack_of(device, **more, fast=fast)
        exact.flat.copy_(stack.flat)
        result: list[dict[str, float]] = []
        for seed in range(draws):
            x = inputs_of(stack, batch, seed)
            call = {"step": seed} if training else {"first_row": seed}
            result.append(errors_of(outcome(stack, x, **call), outcome(exact, x.double(), **call)))
        pooled = max if device == "cpu" else lambda values: float(np.sqrt(np.mean(np.square(values))))
        both.append({name: pooled([errors[name] for errors in result]) for name in result[0]})
    return both[0], both[1]


def assert_accurate(device: str, **more: Any) -> None:
    """The errors of the loss and of every gradient are at most twice those of the plain implementation."""
    fast, plain = errors_of_both(device, **more)
    assert plain["loss"] < 1e-5  # there is something to agree on
    assert not {name: (fast[name], plain[name]) for name in plain if not fast[name] <= 2 * plain[name] + FLOOR}


AUTHORS = [("relative", {"causal": True}), ("causal-none", {"temperature": 0.01})]
"""Encodings with the options of the authors' code; rotary's is among the other shapes."""


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in encodings.names()), *AUTHORS], ids=str)
class TestEveryEncoding:
    def test_one_head_the_last_token(self, name, options, kernel_device) -> None:
        assert_accurate(kernel_device, encoding=name, options=options, heads=1)

    def test_two_heads_all_tokens_and_dropout(self, name, options, kernel_device) -> None:
        fields = {"encoding": name, "options": options, "heads": 2}
        assert_accurate(kernel_device, **fields, readout="token", dropout=0.3, batch=1)

    def test_norm_before_the_branches(self, name, options, kernel_device) -> None:
        assert_accurate(kernel_device, encoding=name, options=options, heads=2, norm="pre", dropout=0.3)


def test_attention_is_fused_where_queries_and_keys_stay_as_they_are(kernel_device) -> None:
    for name, options, fused in (
        ("causal-none", {}, True),
        ("causal-none", {"temperature": 1}, True),
        ("causal-none", {"temperature": 0.01}, False),
        ("rotary", {}, False),
        ("relative", {}, True),
        ("alibi", {}, True),
    ):
        stack = stack_of(kernel_device, encoding=name, options=options)
        assert _is_fused(stack.encoding, heads=1, tokens=5, width=6) == fused
    assert not _is_fused(stack_of(kernel_device, encoding="relative").encoding, heads=2, tokens=5, width=6)


@pytest.mark.parametrize(
    "fields",
    [
        {"readout": "mean", "heads": 3, "width": 15, "layers": 1, "encoding": "alibi"},
        {"readout": "mean", "heads": 1, "width": 7, "tokens": 17, "batch": 1},
        {"heads": 2, "width": 10, "tokens": 17, "batch": 1, "encoding": "causal-none"},
        {"tokens": 1, "readout": "mean", "layers": 1, "members": 1},
        {"tokens": 1, "heads": 2, "batch": 1},
        {"features": 19, "layers": 1},
        {"features": 19, "norm": "pre"},
        {"features": 1, "placement": "input", "readout": "token", "batch": 1, "gains": (0.3, 3.0)},
        {"placement": "input", "encoding": "relative", "gains": (0.3, 3.0)},
        {"placement": "input", "encoding": "alibi", "heads": 2, "batch": 1},
        {"placement": "input", "norm": "pre"},
        {"dropout": 0.3, "training": False, "layers": 1},
        {"dropout": 0.3, "dropout_at_evaluation": True, "training": False, "batch": 1},
        {"dropout": 0.3, "dropout_at_evaluation": True, "training": False, "norm": "pre", "readout": "mean"},
        {"encoding": "rotary", "options": {"axes": 2, "fraction": 0.7}, "width": 12, "heads": 2, "readout": "mean"},
        {"encoding": "relative", "options": {"axes": 2, "max_distance": 1}, "batch": 1},
    ],
    ids=str,
)
def test_other_shapes_are_as_exact(fields, kernel_device) -> None:
    assert_accurate(kernel_device, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"encoding": "learned", "heads": 1, "readout": "token"},
        {"encoding": "causal-none", "heads": 1},
        {"encoding": "alibi", "heads": 2, "layers": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("widest", [128, 2], ids=["by a kernel", "by torch"])
def test_more_tokens_than_a_tile_holds(fields, widest, kernel_device, small_tiles, monkeypatch) -> None:
    """Sequences that are too long for one tile, and heads that are too wide for several."""
    monkeypatch.setattr(attention, "LONGEST", 4)
    monkeypatch.setattr(long_attention, "WIDEST", widest)
    assert_accurate(kernel_device, **{"tokens": 21, "batch": 1, "members": 1, **fields})


class Odd(Encoding):
    """A gain for every feature, and the previous token is masked."""

    def __init__(self, members: Any, layout: Any) -> None:
        super().__init__(members, layout)
        self.gain = nn.Parameter(torch.ones(len(members), members[0].width, dtype=torch.float64))
        self.slope = nn.Parameter(torch.ones(len(members), 1, dtype=torch.float64))

    def add(self, x: Tensor, block: int) -> Tensor:
        return x * self.gain[:, None, None]

    def mask(self, n: int, at: slice = ALL) -> Tensor:
        place = torch.arange(n, device=self.gain.device)
        return (place[:, None] - place != 1)[at]


class OddTurns(Odd):
    """Queries turned too."""

    def rotate(self, q: Tensor, k: Tensor, block: int = 0, at: slice = ALL) -> tuple[Tensor, Tensor]:
        return q.roll(1, -1), k


class OddScores(Odd):
    """A learned slope on the scores too."""

    def bias(self, q: Tensor, block: int = 0, at: slice = ALL) -> Tensor:
        place = torch.arange(self.tokens, device=q.device).to(q.dtype)
        return self.slope[:, None, None, None] * (place - place[:, None])[at]


@pytest.mark.parametrize(("kind", "heads"), [(Odd, 1), (Odd, 2), (OddTurns, 2), (OddScores, 1)])
def test_user_defined_encodings(kind, heads, kernel_device, monkeypatch) -> None:
    monkeypatch.setattr(encodings, "_REGISTRY", {**encodings._REGISTRY, "odd": kind})
    assert_accurate(kernel_device, encoding="odd", heads=heads, batch=1)


@pytest.mark.parametrize("spoil", ["epsilon", "precision", "pe"])
def test_small_mistakes_are_detected(spoil, kernel_device, monkeypatch) -> None:
    """The negative twin: another epsilon in the norms, rounded products, or a PE with an error of 1e-5."""
    norm, sizes = rows.norm, {"heads": 2, "members": 1, "batch": 1}
    if spoil == "epsilon":
        monkeypatch.setattr(rows, "EPSILON", 1.1e-5)
    elif spoil == "precision":
        monkeypatch.setattr(attention, "exactness", lambda x: "tf32")
    else:
        moved = lambda pe: None if pe is None else pe + 1e-5  # noqa: E731
        monkeypatch.setattr(rows, "norm", lambda *arguments: norm(*arguments[:5], moved(arguments[5]), arguments[6]))
    with pytest.raises(AssertionError):
        assert_accurate(kernel_device, **sizes)


@pytest.mark.parametrize(
    ("heads", "name", "options"),
    [(1, "learned", {}), (2, "learned", {}), (1, "rotary", {}), *((2, *kind) for kind in AUTHORS)],
    ids=str,
)
def test_the_gradient_of_a_key_bias_is_zero(heads, name, options, kernel_device) -> None:
    """Exactly, not up to rounding, unless keys are rotated: it adds the same to all scores of a query."""
    stack = stack_of(kernel_device, heads=heads, encoding=name, options=options, members=1)
    result = outcome(stack, inputs_of(stack), step=0)
    for i in range(2):
        query, key, value = result[f"blocks.{i}.attention.projection.bias"].chunk(3, 1)
        assert key.abs().max() > 1e-4 if name == "rotary" else (key == 0).all()
        assert query.abs().max() > 1e-4 and value.abs().max() > 1e-4


@pytest.mark.parametrize("fields", [{"heads": 1, "gains": (0.3, 3.0)}, {"heads": 2, "readout": "token"}], ids=str)
def test_bfloat16_is_as_exact_as_the_plain_path_in_bfloat16(fields, kernel_device) -> None:
    """With a margin for Triton's interpreter, which truncates where a GPU rounds."""
    with torch.autocast(kernel_device, torch.bfloat16, cache_enabled=False):
        fast, plain = errors_of_both(kernel_device, **fields)
    assert max(plain.values()) > 1e-3  # it is bfloat16
    assert not {name: (fast[name], plain[name]) for name in plain if not fast[name] <= 2 * plain[name] + 0.02}


@pytest.mark.parametrize("fields", [{"heads": 1}, {"heads": 2, "features": 19}, {"encoding": "rotary"}], ids=str)
def test_gradients_are_written_to_their_destination(fields, kernel_device) -> None:
    """The products write those of all matrices in blocks directly into the sink. Gaps stay zero."""
    stack = stack_of(kernel_device, **fields, members=1)
    x, sink = inputs_of(stack, 1), torch.full_like(stack.flat, torch.nan)
    stack.sink = sink
    result = torch.autograd.grad(losses_of(stack, x).sum(), stack.ordered)
    names, matrices = {id(p): name for name, p in stack.named_parameters()}, 0
    for p, new, place in zip(stack.ordered, result, stack.views(sink), strict=True):
        if names[id(p)].startswith("blocks") and p.dim() == 3:
            assert new.data_ptr() == place.data_ptr() and new.stride() == place.stride()
            matrices += 1
    assert matrices == 4 * 2
    stack.gradients(losses_of(stack, x).sum(), out=sink)
    used = torch.zeros_like(sink)
    for view in stack.views(used):
        view.fill_(1)
    assert (used == 0).any() and (sink[used == 0] == 0).all() and sink.isfinite().all()
    stack.sink = None  # without destinations they are the same
    losses_of(stack, x).sum().backward()
    for p, view in zip(stack.ordered, stack.views(sink), strict=True):
        torch.testing.assert_close(p.grad, view, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("features", [3, 19])
def test_inputs_have_gradients_too(features, kernel_device) -> None:
    result = []
    for fast in (True, False):
        stack = stack_of(kernel_device, features=features, fast=fast, members=1)
        x = inputs_of(stack).requires_grad_()
        result.append(torch.autograd.grad(losses_of(stack, x).sum(), x)[0])
    torch.testing.assert_close(result[0], result[1], rtol=1e-5, atol=1e-6)
    assert result[1].abs().max() > 1e-2


def test_a_member_alone_and_fewer_tokens_agree_with_the_plain_path(kernel_device) -> None:
    fast, plain = (stack_of(kernel_device, fast=way) for way in (True, False))
    x = inputs_of(plain)
    torch.testing.assert_close(fast.member(1)(x[1]), plain(x)[1], rtol=0, atol=1e-5)
    assert fast.member(1).fast and not plain.member(1).fast
    torch.testing.assert_close(fast(x[:, :, :3]), plain(x[:, :, :3]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["learned", "alibi"])
def test_capture_takes_the_plain_path_and_agrees(name, kernel_device, monkeypatch) -> None:
    stack = stack_of(kernel_device, encoding=name, heads=2, gains=(1.0, 3.0))
    x = inputs_of(stack)
    outputs = stack(x)
    failing = lambda *arguments: pytest.fail("capture took the fast path")  # noqa: E731
    monkeypatch.setattr("placecode.compute.gpu.forward.forward", failing)
    captured = stack.capture(x, "*")
    torch.testing.assert_close(captured["output"], outputs, rtol=0, atol=1e-5)
    assert captured["attention.1"].shape == (2, 2, 2, 5, 5)
    with pytest.raises(pytest.fail.Exception, match="took the fast path"):
        stack(x)


def test_a_move_to_float64_leaves_the_fast_path(kernel_device) -> None:
    stack = stack_of(kernel_device)
    x = inputs_of(stack)
    single = stack(x)
    stack.double()
    assert not stack.fast
    torch.testing.assert_close(stack(x.double()).float(), single, rtol=0, atol=1e-5)


def test_a_move_to_the_cpu_leaves_the_fast_path(cuda, monkeypatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    stack = stack_of(cuda, fast=None)
    assert stack.fast
    x = inputs_of(stack)
    there = stack(x).cpu()
    stack.cpu()
    assert not stack.fast
    torch.testing.assert_close(stack(x.cpu()), there, rtol=0, atol=1e-5)


def test_unless_asked_for_a_cpu_takes_the_plain_path() -> None:
    assert not stack_of("cpu", fast=None).fast


def test_the_fast_path_needs_float32_triton_and_a_device(kernel_device, monkeypatch) -> None:
    needs = r"^the fast path must have float32 parameters, Triton and a CUDA device; one is missing here\.$"
    for dtype in (torch.float64, torch.bfloat16):
        with pytest.raises(BadInput, match=needs):
            stack_of(kernel_device, dtype=dtype)
    with monkeypatch.context() as patch:
        patch.delenv("TRITON_INTERPRET", raising=False)
        with pytest.raises(BadInput, match=needs):
            stack_of("cpu")
        assert kernels.available(torch.device("cuda"))
    assert stack_of(kernel_device).fast
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=needs):
        stack_of(kernel_device)
    assert not stack_of(kernel_device, fast=None).fast
