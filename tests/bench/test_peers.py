"""Every peer does the same work: from the weights of a stack of placecode, it has the same losses at each step."""

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placecode.bench import peers
from placecode.bench.cases import Case, Synthetic
from placecode.bench.peers import PEERS, CompiledVmap, Peer, weights_of
from placecode.training.trainer import Trainer, stack_for

LAST = Case("tiny", 16, 6, 3, 2, 2, 8, 5, 4, "last", 10, learning_rate=1e-2)
TOKEN = dataclasses.replace(LAST, readout="token", outputs=1, heads=1)
STEPS = 6
MEMBERS = 3


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let torch.compile trace models without generating code; return the list of its modes."""
    modes, usual = list[str](), torch.compile

    def compile(model: Any, mode: str) -> Any:
        modes.append(mode)
        return usual(model, backend="aot_eager")

    monkeypatch.setattr(torch, "compile", compile)
    return modes


def losses_of(peer: Peer) -> Tensor:
    """Return the losses of STEPS steps, (steps, models)."""
    return torch.stack([torch.tensor([float(loss) for loss in peer.step()]) for _ in range(STEPS)])


def both(name: str, case: Case, bf16: bool = False) -> tuple[Tensor, Tensor]:
    """Return the losses of placecode and of a peer from the same weights. One batch has all data, in any order."""
    task = Synthetic(case, batches=1)
    stack = stack_for(case.members(MEMBERS), task)
    peer = PEERS[name](case, task, [weights_of(stack, i) for i in range(MEMBERS)], "cpu", bf16)
    theirs = losses_of(peer)
    peer.finish()
    trainer = Trainer(stack, task, STEPS)
    ours = torch.stack([trainer.update() for _ in range(STEPS)])
    assert theirs.shape == (STEPS, peer.models)
    return ours[:, : peer.models], theirs


def skip_without(name: str) -> None:
    if reason := peers.unavailable_reason(name, "cpu"):
        pytest.skip(reason)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize(
    ("name", "case"),
    [(name, LAST) for name in PEERS if name != "encoder-loop"] + [(name, TOKEN) for name in ("loop-eager", "vmap")],
)
def test_a_peer_has_the_losses_of_our_stack(name, case) -> None:
    skip_without(name)
    ours, theirs = both(name, case)
    assert (ours[-1] < ours[0] - 0.1).all()  # something was learned, so the optimizers are compared too
    assert len({round(loss, 3) for loss in ours[0].tolist()}) == ours.shape[1]  # and members differ
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)


@pytest.mark.parametrize("bf16", [False, True], ids=["tf32", "bf16"])
def test_compiled_and_captured_step_has_the_losses_of_vmap(bf16, cuda) -> None:
    """With the real compiler, and more steps than the warm-up, so that most are replays of the CUDA graph."""
    task = Synthetic(LAST, batches=1)
    stack = stack_for(LAST.members(MEMBERS), task)
    starts = [weights_of(stack, i) for i in range(MEMBERS)]
    losses = {}
    for name in ("vmap", "compiled-vmap"):
        peer = PEERS[name](LAST, task, starts, cuda, bf16)
        losses[name] = losses_of(peer)
        assert peer.note == ""
    assert isinstance(peer, CompiledVmap) and peer.graph is not None
    assert (losses["vmap"][-1] < losses["vmap"][0] - 0.1).all()
    torch.testing.assert_close(losses["compiled-vmap"], losses["vmap"], rtol=0, atol=0.1 if bf16 else 1e-4)


def test_vmap_keeps_no_second_graph_for_autograd() -> None:
    """Gradients of gradients are not needed, and their graph would hold every activation."""
    task = Synthetic(LAST, batches=1)
    peer = PEERS["vmap"](LAST, task, [weights_of(stack_for(LAST.members(1), task), 0)] * 2, "cpu", False)
    assert not peer.step().requires_grad


def test_a_compiled_peer_without_a_compiler_has_a_reason(monkeypatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    for name in peers.COMPILED:
        assert peers.unavailable_reason(name, "cpu") == "torch.compile needs a C++ compiler, and none was found"
        assert peers.unavailable_reason(name, "cuda") == ""  # there Triton finds a compiler, or says why not
    assert peers.unavailable_reason("vmap", "cpu") == ""


@pytest.mark.parametrize("case", [LAST, TOKEN], ids=["last", "token"])
def test_encoder_of_torch_differs_only_in_one_gelu(case, monkeypatch) -> None:
    ours, theirs = both("encoder-loop", case)
    assert (theirs - ours).abs().max() > 1e-3
    usual = nn.TransformerEncoderLayer._ff_block
    monkeypatch.setattr(nn.TransformerEncoderLayer, "_ff_block", lambda layer, x: F.gelu(usual(layer, x)))
    ours, theirs = both("encoder-loop", case)
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("name", ["loop-eager", "encoder-loop", "vmap", "jax-vmap"])
def test_bf16_is_near_and_not_the_same(name) -> None:
    skip_without(name)
    _, exact = both(name, LAST)
    _, lower = both(name, LAST, bf16=True)
    assert 0 < (exact - lower).abs().max() < 0.1


def test_every_epoch_has_a_new_order_of_all_rows() -> None:
    task = Synthetic(LAST, batches=3)
    peer = PEERS["vmap"](LAST, task, [weights_of(stack_for(LAST.members(1), task), 0)] * 2, "cpu", False)
    first, second = (torch.cat([peer.rows() for _ in range(3)], dim=1) for _ in range(2))
    for order in (first, second):
        assert torch.equal(order.sort(1).values, torch.arange(24).expand(2, -1))
    assert not torch.equal(first, second) and not torch.equal(first[0], first[1])
