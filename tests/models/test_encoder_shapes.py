"""The encoder in any shape: width, depth, heads, tokens, read-out and encoding drawn at random."""

import pytest
import torch
import torch.nn.functional as F

from placecode import encodings
from placecode.models.encoder import Stack
from placecode.models.member import Member

hypothesis = pytest.importorskip("hypothesis", reason="shapes are drawn by hypothesis, and it is not installed")
st = hypothesis.strategies


@hypothesis.settings(max_examples=25, deadline=None, derandomize=True)
@hypothesis.given(
    heads=st.integers(1, 3),
    head_width=st.sampled_from([2, 3, 5]),
    layers=st.integers(1, 3),
    tokens=st.integers(1, 7),
    features=st.integers(1, 4),
    outputs=st.integers(1, 4),
    batch=st.integers(1, 4),
    count=st.integers(1, 3),
    norm=st.sampled_from(["post", "pre"]),
    placement=st.sampled_from(["every", "input"]),
    readout=st.sampled_from(["last", "mean", "token"]),
    name=st.sampled_from(encodings.names()),
)
def test_any_width_depth_heads_and_tokens(
    heads, head_width, layers, tokens, features, outputs, batch, count, norm, placement, readout, name
) -> None:
    shape = {"width": heads * head_width, "heads": heads, "layers": layers, "norm": norm, "placement": placement}
    members = [Member(name, 0.5, seed, **shape) for seed in range(count)]
    stack = Stack(members, tokens=tokens, features=features, outputs=outputs, readout=readout, dtype=torch.float64)
    x = torch.randn(count, batch, tokens, features, dtype=torch.float64)
    found, gradient = stack(x), torch.full_like(stack.flat, torch.nan)
    assert found.shape == ((count, batch, tokens, outputs) if readout == "token" else (count, batch, outputs))
    stack.gradients(F.softplus(found).sum(), out=gradient)
    assert gradient.isfinite().all()
    torch.testing.assert_close(stack.member(count - 1)(x[-1]), found[-1], rtol=0, atol=1e-10)
    torch.testing.assert_close(stack.capture(x, "output")["output"], found, rtol=0, atol=1e-10)
