"""The GPU implementation against float64: as accurate as the reference, for every encoding and shape."""

from __future__ import annotations

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

FLOOR = 2e-7
"""Relative error that is always accepted. Steps of float32 are 1.2e-7."""
DRAWS = {"cpu": 12, "cuda": 48}
"""Number of input batches for the error of the reference. On a few examples, rounding errors are a matter of chance."""


def errors_of_both(
    device: str, batch: int = 2, training: bool = True, **options: Any
) -> tuple[dict[str, float], dict[str, float]]:
    """Errors of the fast and of the plain implementation against float64, with the same weights and inputs.

    They are pooled over input batches by root mean square. The interpreter is slow: there, the fast one has one batch,
    and the error of the plain one is the maximum.
    """
    exact = stack_of(device, **options, fast=False, dtype=torch.float64)
    pooled_errors: list[dict[str, float]] = []
    for fast, draws in ((True, 1 if device == "cpu" else DRAWS[device]), (False, DRAWS[device])):
        stack = stack_of(device, **options, fast=fast)
        exact.flat.copy_(stack.flat)
        errors_by_draw: list[dict[str, float]] = []
        for seed in range(draws):
            x = inputs_of(stack, batch, seed)
            call = {"step": seed} if training else {"first_row": seed}
            errors_by_draw.append(errors_of(outcome(stack, x, **call), outcome(exact, x.double(), **call)))
        pool = max if device == "cpu" else _root_mean_square
        pooled_errors.append({name: pool([errors[name] for errors in errors_by_draw]) for name in errors_by_draw[0]})
    return pooled_errors[0], pooled_errors[1]


def _root_mean_square(values: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def assert_accurate(device: str, **options: Any) -> None:
    """The errors of the loss and of every gradient are at most twice those of the plain implementation."""
    fast, plain = errors_of_both(device, **options)
    assert plain["loss"] < 1e-5  # otherwise the comparison would mean nothing
    assert not {name: (fast[name], plain[name]) for name in plain if not fast[name] <= 2 * plain[name] + FLOOR}


# ---- as accurate as the plain path -----------------------------------------------------------------------------------


AUTHORS = [("relative", {"causal": True}), ("causal-none", {"temperature": 0.01})]
"""Encodings with the options of the authors' code; rotary's is among the other shapes."""


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in encodings.names()), *AUTHORS], ids=str)
class TestEveryEncoding:
    def test_one_head_the_last_token(self, name: str, options: dict[str, Any], kernel_device) -> None:
        assert_accurate(kernel_device, encoding=name, options=options, heads=1)

    def test_two_heads_all_tokens_and_dropout(self, name: str, options: dict[str, Any], kernel_device) -> None:
        fields = {"encoding": name, "options": options, "heads": 2}
        assert_accurate(kernel_device, **fields, readout="token", dropout=0.3, batch=1)

    def test_norm_before_the_branches(self, name: str, options: dict[str, Any], kernel_device) -> None:
        assert_accurate(kernel_device, encoding=name, options=options, heads=2, norm="pre", dropout=0.3)


def test_attention_is_fused_if_queries_and_keys_do_not_change(kernel_device) -> None:
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
def test_other_shapes(fields: dict[str, Any], kernel_device) -> None:
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
def test_more_tokens_than_a_tile_holds(
    fields: dict[str, Any], widest: int, kernel_device, small_tiles, monkeypatch
) -> None:
    """Sequences are too long for one tile, and heads of more than `widest` features too wide for `long_attention`."""
    monkeypatch.setattr(attention, "MAX_TILE_TOKENS", 4)
    monkeypatch.setattr(long_attention, "MAX_HEAD_FEATURES", widest)
    assert_accurate(kernel_device, **{"tokens": 21, "batch": 1, "members": 1, **fields})


class Odd(Encoding):
    """An encoding with a gain for every feature, which masks the previous token."""

    def __init__(self, members: Any, layout: Any) -> None:
        super().__init__(members, layout)
        self.gain = nn.Parameter(torch.ones(len(members), members[0].width, dtype=torch.float64))
        self.slope = nn.Parameter(torch.ones(len(members), 1, dtype=torch.float64))

    def add(self, x: Tensor, block: int) -> Tensor:
        return x * self.gain[:, None, None]

    def mask(self, n: int, at: slice = ALL) -> Tensor:
        token = torch.arange(n, device=self.gain.device)
        return (token[:, None] - token != 1)[at]


class OddTurns(Odd):
    """An encoding that also changes queries."""

    def rotate(self, q: Tensor, k: Tensor, block: int = 0, at: slice = ALL) -> tuple[Tensor, Tensor]:
        return q.roll(1, -1), k


class OddScores(Odd):
    """An encoding that also adds a learned slope to the scores."""

    def bias(self, q: Tensor, block: int = 0, at: slice = ALL) -> Tensor:
        token = torch.arange(self.tokens, device=q.device).to(q.dtype)
        return self.slope[:, None, None, None] * (token - token[:, None])[at]


@pytest.mark.parametrize(("kind", "heads"), [(Odd, 1), (Odd, 2), (OddTurns, 2), (OddScores, 1)])
def test_user_defined_encodings(kind: type[Encoding], heads: int, kernel_device, monkeypatch) -> None:
    monkeypatch.setattr(encodings, "_REGISTRY", {**encodings._REGISTRY, "odd": kind})
    assert_accurate(kernel_device, encoding="odd", heads=heads, batch=1)


@pytest.mark.parametrize("mistake", ["epsilon", "precision", "pe"])
def test_small_mistakes_are_detected(mistake: str, kernel_device, monkeypatch) -> None:
    """The mistakes are another epsilon in the norms, rounded products, or a PE with an error of 1e-5."""
    norm, sizes = rows.norm, {"heads": 2, "members": 1, "batch": 1}
    if mistake == "epsilon":
        monkeypatch.setattr(rows, "EPSILON", 1.1e-5)
    elif mistake == "precision":
        monkeypatch.setattr(attention, "exactness", lambda x: "tf32")
    else:
        shift = lambda pe: None if pe is None else pe + 1e-5  # noqa: E731
        monkeypatch.setattr(rows, "norm", lambda *args: norm(*args[:5], shift(args[5]), args[6]))
    with pytest.raises(AssertionError):
        assert_accurate(kernel_device, **sizes)


@pytest.mark.parametrize(
    ("heads", "name", "options"),
    [(1, "learned", {}), (2, "learned", {}), (1, "rotary", {}), *((2, *kind) for kind in AUTHORS)],
    ids=str,
)
def test_the_gradient_of_a_key_bias_is_zero(heads: int, name: str, options: dict[str, Any], kernel_device) -> None:
    """It is exactly zero unless keys are rotated, since the bias adds the same number to all scores of a query."""
    stack = stack_of(kernel_device, heads=heads, encoding=name, options=options, members=1)
    gradients = outcome(stack, inputs_of(stack), step=0)
    for i in range(2):
        query, key, value = gradients[f"blocks.{i}.attention.projection.bias"].chunk(3, 1)
        assert key.abs().max() > 1e-4 if name == "rotary" else (key == 0).all()
        assert query.abs().max() > 1e-4 and value.abs().max() > 1e-4


@pytest.mark.parametrize("fields", [{"heads": 1, "gains": (0.3, 3.0)}, {"heads": 2, "readout": "token"}], ids=str)
def test_bfloat16_is_as_exact_as_the_plain_path_in_bfloat16(fields: dict[str, Any], kernel_device) -> None:
    """There is a margin for Triton's interpreter, which truncates where a GPU rounds."""
    with torch.autocast(kernel_device, torch.bfloat16, cache_enabled=False):
        fast, plain = errors_of_both(kernel_device, **fields)
    assert max(plain.values()) > 1e-3  # products are really in bfloat16
    assert not {name: (fast[name], plain[name]) for name in plain if not fast[name] <= 2 * plain[name] + 0.02}


# ---- where gradients go ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"heads": 1}, {"heads": 2, "features": 19}, {"encoding": "rotary"}], ids=str)
def test_gradients_are_written_to_their_destination(fields: dict[str, Any], kernel_device) -> None:
    """Gradients of all matrices of blocks are written directly to the sink. Its gaps stay zero."""
    stack = stack_of(kernel_device, **fields, members=1)
    x, sink = inputs_of(stack, 1), torch.full_like(stack.flat, torch.nan)
    stack.sink = sink
    gradients = torch.autograd.grad(losses_of(stack, x).sum(), stack.ordered)
    names, matrices = {id(p): name for name, p in stack.named_parameters()}, 0
    for p, gradient, destination in zip(stack.ordered, gradients, stack.views(sink), strict=True):
        if names[id(p)].startswith("blocks") and p.dim() == 3:
            assert gradient.data_ptr() == destination.data_ptr() and gradient.stride() == destination.stride()
            matrices += 1
    assert matrices == 4 * 2
    stack.gradients(losses_of(stack, x).sum(), out=sink)
    used = torch.zeros_like(sink)
    for view in stack.views(used):
        view.fill_(1)
    assert (used == 0).any() and (sink[used == 0] == 0).all() and sink.isfinite().all()
    stack.sink = None  # without destinations, gradients are the same
    losses_of(stack, x).sum().backward()
    for p, view in zip(stack.ordered, stack.views(sink), strict=True):
        torch.testing.assert_close(p.grad, view, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("features", [3, 19])
def test_inputs_have_gradients_too(features: int, kernel_device) -> None:
    gradients = []
    for fast in (True, False):
        stack = stack_of(kernel_device, features=features, fast=fast, members=1)
        x = inputs_of(stack).requires_grad_()
        gradients.append(torch.autograd.grad(losses_of(stack, x).sum(), x)[0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-5, atol=1e-6)
    assert gradients[1].abs().max() > 1e-2


# ---- which path -----------------------------------------------------------------------------------------------------


def test_a_single_member_and_fewer_tokens(kernel_device) -> None:
    fast, plain = (stack_of(kernel_device, fast=is_fast) for is_fast in (True, False))
    x = inputs_of(plain)
    torch.testing.assert_close(fast.member(1)(x[1]), plain(x)[1], rtol=0, atol=1e-5)
    assert fast.member(1).fast and not plain.member(1).fast
    torch.testing.assert_close(fast(x[:, :, :3]), plain(x[:, :, :3]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["learned", "alibi"])
def test_capture_takes_the_plain_path_and_agrees(name: str, kernel_device, monkeypatch) -> None:
    stack = stack_of(kernel_device, encoding=name, heads=2, gains=(1.0, 3.0))
    x = inputs_of(stack)
    outputs = stack(x)
    monkeypatch.setattr("placecode.compute.gpu.forward.forward", lambda *_: pytest.fail("capture took the fast path"))
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


def test_a_move_to_the_cpu_leaves_the_fast_path(cuda: str, monkeypatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    stack = stack_of(cuda, fast=None)
    assert stack.fast
    x = inputs_of(stack)
    outputs = stack(x).cpu()
    stack.cpu()
    assert not stack.fast
    torch.testing.assert_close(stack(x.cpu()), outputs, rtol=0, atol=1e-5)


def test_a_cpu_takes_the_plain_path_by_default() -> None:
    assert not stack_of("cpu", fast=None).fast


def test_what_the_fast_path_needs(kernel_device, monkeypatch) -> None:
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
