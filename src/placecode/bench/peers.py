"""Peers: other implementations of the same training, as a careful user would write them in torch or JAX.

All keep the data on the device, use a fused Adam, and compute no unnecessary products. Tests check that every peer has
the same losses as placecode's `Stack`, step by step, from the same initial weights.

A peer has `step()`, which runs one training step and returns a loss per model without waiting for the device; `models`,
the number of models trained per step; and `finish()`, which waits for the device. `PEERS` lists all peers.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from placecode.bench.cases import Case
from placecode.models.blocks import Linear
from placecode.models.encoder import Stack
from placecode.tasks.base import Task

Weights = dict[str, Tensor]
"""Weights of one model by parameter name of `Plain`. Linear layers have weights (outputs, inputs), as in torch."""


def weights_of(stack: Stack, index: int) -> Weights:
    """Return copies of the weights of member `index` of a stack, with the names and layout of `Weights`."""
    renamed = {}
    for name, value in stack.named_parameters():
        weight = value[index].detach().clone()
        if name.endswith(".weight"):
            layer = stack.get_submodule(name.removesuffix(".weight"))
            assert isinstance(layer, Linear)
            weight = layer.matrix[index].detach().T.contiguous()  # torch stores (out, in)
        name = name.replace("attention.", "").removeprefix("encoding.")
        renamed[name.replace(".scale", ".weight").replace(".shift", ".bias")] = weight
    return renamed


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute attention by two products and a softmax. Under vmap, torch's fused kernel would run model by model."""
    weights: Tensor = ((q * q.shape[-1] ** -0.5) @ k.mT).softmax(-1)
    return weights @ v


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Function that computes attention from queries, keys and values, (batch, heads, tokens, features of a head)."""


class PlainBlock(nn.Module):
    """Transformer block: LN(x + attention), then LN(x + MLP), with GELU after both linear layers of the MLP.

    With `last_only`, only the output of the last token is computed.
    """

    def __init__(self, case: Case, last_only: bool, attend: Attend) -> None:
        super().__init__()
        d, hidden = case.width, case.expansion * case.width
        self.heads, self.last_only, self.attend = case.heads, last_only, attend
        self.projection, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.norm_1, self.norm_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, hidden), nn.Linear(hidden, d)

    def forward(self, x: Tensor) -> Tensor:  # (b, n, d) -> (b, m, d)
        d, (weight, bias) = x.shape[-1], (self.projection.weight, self.projection.bias)
        if self.last_only:
            queried = x[:, -1:]
            q = F.linear(queried, weight[:d], bias[:d])
            k, v = F.linear(x, weight[d:], bias[d:]).chunk(2, dim=-1)
        else:
            queried = x
            q, k, v = self.projection(x).chunk(3, dim=-1)
        q, k, v = (part.view(*part.shape[:2], self.heads, -1).transpose(1, 2) for part in (q, k, v))  # (b, h, n, c)
        mixed = self.attend(q, k, v).transpose(1, 2).flatten(2)
        x = self.norm_1(queried + self.out(mixed))
        return self.norm_2(x + F.gelu(self.down(F.gelu(self.up(x)))))  # type: ignore[no-any-return]


class Plain(nn.Module):
    """The paper's transformer, written for a single model. It adds its learned PE (`table`) in every block."""

    def __init__(self, case: Case, attend: Attend = F.scaled_dot_product_attention) -> None:
        super().__init__()
        self.case = case
        self.embedding = nn.Linear(case.features, case.width)
        self.table = nn.Parameter(torch.empty(case.layers, case.tokens, case.width))
        self.blocks = nn.ModuleList(self.block(case, number, attend) for number in range(case.layers))
        self.answer = nn.Linear(case.width, case.outputs)

    def block(self, case: Case, number: int, attend: Attend) -> nn.Module:
        """Return a new transformer block. `number` is the index of the block in the model."""
        return PlainBlock(case, case.queries(number) < case.tokens, attend)

    def forward(self, x: Tensor) -> Tensor:  # (b, n, f) -> (b, o) or (b, n, o)
        x = self.embedding(x)
        for pe, block in zip(self.table, self.blocks, strict=True):
            x = block(x + pe)
        return self.answer(x if self.case.readout == "token" else x[:, -1])  # type: ignore[no-any-return]

    @staticmethod
    def renamed_weights(weights: Weights) -> Weights:
        """Rename `weights`, which have the parameter names of `Plain`, to the parameter names of this class."""
        return weights


class Encoder(Plain):
    """Model made of the layers of `nn.TransformerEncoder`, with the PE added before each layer.

    It differs from the paper's model in two ways that torch's layer does not support: GELU is applied once, after the
    first linear layer of the MLP, and the last block computes all tokens although only one is read out.
    """

    def block(self, case: Case, number: int, attend: Attend) -> nn.Module:
        d, hidden = case.width, case.expansion * case.width
        return nn.TransformerEncoderLayer(d, case.heads, hidden, dropout=0.0, activation="gelu", batch_first=True)

    @staticmethod
    def renamed_weights(weights: Weights) -> Weights:
        torch_names = {"projection.weight": "self_attn.in_proj_weight", "projection.bias": "self_attn.in_proj_bias"}
        torch_names |= {"out.": "self_attn.out_proj.", "norm_": "norm", "up.": "linear1.", "down.": "linear2."}
        renamed = {}
        for name, value in weights.items():
            for plain_name, torch_name in torch_names.items():
                name = name.replace(f".{plain_name}", f".{torch_name}")
            renamed[name] = value
        return renamed


def build_model(
    model: type[Plain], case: Case, weights: Weights, device: str, attend: Attend = F.scaled_dot_product_attention
) -> nn.Module:
    """Return a model of class `model` on the device, with copies of the initial weights."""
    with torch.device("meta"):  # to skip the random initialization
        module = model(case, attend)
    copies = {name: value.to(device, copy=True) for name, value in model.renamed_weights(weights).items()}
    module.load_state_dict(copies, assign=True)
    return module


class Peer:
    """Base class of peers. It keeps the data on the device, and draws a new random order of the examples every epoch.

    `initial` has the initial weights of each model. With `bf16`, the forward pass uses autocast to bfloat16.
    """

    note = ""
    """Remark that is shown in the table of results, for example if a CUDA graph could not be used."""

    def __init__(self, case: Case, task: Task, initial: Sequence[Weights], device: str, bf16: bool) -> None:
        self.case, self.device, self.bf16, self.models = case, device, bf16, len(initial)
        data = task.splits["train"].to(device, torch.float32)
        self.inputs, self.targets = data.inputs, data.targets
        self.generator = torch.Generator(device).manual_seed(0)
        self.batch_index = 0

    def rows(self) -> Tensor:
        """Return the indices of the examples in the next batch of each model, (models, batch)."""
        examples, start = len(self.inputs), self.batch_index * self.case.batch
        if start == 0:
            self.order = torch.rand(self.models, examples, generator=self.generator, device=self.device).argsort(1)
        self.batch_index = (self.batch_index + 1) % (examples // self.case.batch)
        return self.order[:, start : start + self.case.batch]

    def autocast(self) -> torch.autocast:
        """Return a context in which products are computed in bfloat16 if `bf16` is set."""
        return torch.autocast(self.device, torch.bfloat16, enabled=self.bf16)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of one model: squared error if every token is read out, else cross-entropy."""
        if self.case.readout == "token":
            return F.mse_loss(outputs, targets)
        return F.cross_entropy(outputs, targets)

    def adam(self, parameters: Sequence[Tensor]) -> torch.optim.Adam:
        """Return a fused Adam optimizer of `parameters`."""
        return torch.optim.Adam(parameters, lr=self.case.learning_rate, fused=True)

    def step(self) -> Tensor:
        """Start one training step of all models and return their losses, (models,), without waiting for the device."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait until the device has finished its work."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def peak_bytes(self) -> int | None:
        """Return the peak memory in bytes if the peer allocates GPU memory without torch; otherwise None."""
        return None


class Loop(Peer):
    """Peer that trains one model after the other, as in a loop over models.

    A step trains a single model, which starts from the first weights in `initial`. With `compiled`, torch.compile is
    used, which makes CUDA graphs on a GPU and C++ code on a CPU.
    """

    def __init__(
        self,
        case: Case,
        task: Task,
        initial: Sequence[Weights],
        device: str,
        bf16: bool,
        model: type[Plain] = Plain,
        compiled: bool = False,
    ) -> None:
        super().__init__(case, task, initial[:1], device, bf16)
        self.model = build_model(model, case, initial[0], device)
        self.optimizer = self.adam(list(self.model.parameters()))
        self.forward: Callable[[Tensor, Tensor], Tensor] = lambda x, y: self.loss(self.model(x), y)
        if compiled:
            mode = "reduce-overhead" if device == "cuda" else "default"
            self.forward = torch.compile(self.forward, mode=mode)

    def step(self) -> Tensor:
        rows = self.rows()[0]
        self.optimizer.zero_grad(set_to_none=True)  # before the forward pass, so that captured graphs reuse the memory
        with self.autocast():
            loss = self.forward(self.inputs[rows], self.targets[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()[None]


class Vmap(Peer):
    """Peer that trains all models at once with torch.func: it maps the gradient of one model over stacked weights."""

    def __init__(self, case: Case, task: Task, initial: Sequence[Weights], device: str, bf16: bool) -> None:
        super().__init__(case, task, initial, device, bf16)
        with torch.device("meta"):
            model = Plain(case, plain_attention)
        self.weights = {
            name: torch.stack([weights[name] for weights in initial]).to(device).requires_grad_() for name in initial[0]
        }
        self.optimizer = self.adam(list(self.weights.values()))

        def loss(weights: Weights, inputs: Tensor, targets: Tensor) -> Tensor:
            with self.autocast():
                return self.loss(functional_call(model, weights, (inputs,)), targets)

        self.gradients = vmap(grad_and_value(loss))

    def step(self) -> Tensor:
        return self.update(self.rows())

    def update(self, rows: Tensor) -> Tensor:
        """Run one training step on the examples with these indices, (models, batch); return the losses, (models,)."""
        with torch.no_grad():  # grad_and_value computes the gradients; a second autograd graph would waste memory
            gradients, losses = self.gradients(self.weights, self.inputs[rows], self.targets[rows])
        for name, weight in self.weights.items():
            weight.grad = gradients[name]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        result: Tensor = losses
        return result


class CompiledVmap(Vmap):
    """`Vmap` with torch.compile. On a GPU the whole step, including Adam, is one CUDA graph.

    torch.compile generates code for the gradients of all models. Adam remains torch's fused kernel: it already reads
    and writes every value once, and generated code could not fuse it with the matrix products that give the gradients.
    The mode of torch.compile is the default, since the CUDA graph covers what "reduce-overhead" would add;
    "max-autotune" compiles for many minutes.
    """

    WARM_UP_STEPS = 3
    """Number of training steps before the CUDA graph is captured. The first step compiles."""

    def __init__(self, case: Case, task: Task, initial: Sequence[Weights], device: str, bf16: bool) -> None:
        super().__init__(case, task, initial, device, bf16)
        self.gradients = torch.compile(self.gradients, mode="default")
        self.graph: torch.cuda.CUDAGraph | None = None
        self.steps_taken = 0

    def adam(self, parameters: Sequence[Tensor]) -> torch.optim.Adam:
        # "capturable" keeps the step count on the GPU, which a CUDA graph requires
        rate, on_gpu = self.case.learning_rate, self.device == "cuda"
        return torch.optim.Adam(parameters, lr=rate, fused=True, capturable=on_gpu)

    def step(self) -> Tensor:
        rows = self.rows()
        self.steps_taken += 1
        if self.device == "cuda" and self.steps_taken > self.WARM_UP_STEPS and not self.note:
            if self.graph is None:
                self.capture(rows)
            if self.graph is not None:
                self.graph_rows.copy_(rows)
                self.graph.replay()
                return self.graph_losses
        return self.update(rows)

    def capture(self, rows: Tensor) -> None:
        """Capture a training step as a CUDA graph. `rows`, (models, batch), has the shape of the indices of a batch.

        Capturing does not execute the step, so a failure has no effect except that `note` is set.
        """
        self.graph_rows = rows.clone()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()  # the graph has private memory, which would otherwise double the reserved memory
        try:
            with torch.cuda.graph(graph):
                self.graph_losses = self.update(self.graph_rows)
            self.graph = graph
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.note = f"Measured without a CUDA graph, which failed: {str(error).splitlines()[0][:120]}"


def jax_vmap(*arguments: Any) -> Peer:
    """Return a peer that trains all models at once with JAX, by vmap over the models in one jitted step."""
    from placecode.bench.jax_peer import JaxVmap  # imported here because jax is not a dependency

    return JaxVmap(*arguments)


PEERS: dict[str, Callable[..., Peer]] = {
    "loop-eager": Loop,
    "loop-compiled": partial(Loop, compiled=True),
    "encoder-loop": partial(Loop, model=Encoder),
    "vmap": Vmap,
    "compiled-vmap": CompiledVmap,
    "jax-vmap": jax_vmap,
}
"""Constructors of all peers, by name."""
STACKED = ("vmap", "compiled-vmap", "jax-vmap")
"""Peers that train many models at once, as placecode does. The others train one model at a time."""
COMPILED = ("loop-compiled", "compiled-vmap")
"""Peers that use torch.compile."""


def unavailable_reason(name: str, device: str) -> str:
    """Return the reason why a peer cannot be measured on this machine, or "" if it can be measured.

    A peer is another implementation of the training that the benchmark compares with. `name` is a key of `PEERS`.
    """
    if name == "jax-vmap" and importlib.util.find_spec("jax") is None:
        return "jax is not installed"
    if name in COMPILED and device == "cpu" and shutil.which(os.environ.get("CXX", "g++")) is None:
        return "torch.compile needs a C++ compiler, and none was found"
    return ""
