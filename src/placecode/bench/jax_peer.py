"""The training step of placecode in JAX, for benchmarks: the step of one model, vmapped over all models and jitted.

Adam is written here too. The module needs jax, which is not a dependency; only `peers.jax_vmap` imports it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # otherwise jax reserves most of the GPU memory

import jax
import jax.numpy as jnp

from placecode.bench.cases import Case
from placecode.bench.peers import Peer, Weights
from placecode.tasks.base import Task

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
"""Constants of Adam."""

Arrays = dict[str, Any]
"""Weights of a model by name."""


def product(x: Any, weight: Any, bf16: bool) -> Any:
    """Return x times weight: in bfloat16 if `bf16`, as in torch's autocast, or in the default precision of jax."""
    if bf16:
        x, weight = x.astype(jnp.bfloat16), weight.astype(jnp.bfloat16)
    return x @ weight


def forward(weights: Arrays, x: Any, case: Case, bf16: bool) -> Any:
    """Return the outputs of one model for inputs x of shape (batch, tokens, features).

    They are (batch, tokens, outputs) if the model predicts from every token, and (batch, outputs) if from the last one.
    """
    times = partial(product, bf16=bf16)

    def linear(x: Any, name: str, part: slice = slice(None)) -> Any:
        result = times(x, weights[f"{name}.weight"][part].T)
        return result + weights[f"{name}.bias"][part].astype(result.dtype)

    def norm(x: Any, name: str) -> Any:
        x = x.astype(jnp.float32)
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
        return centred * scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def heads(x: Any) -> Any:
        return x.reshape(*x.shape[:2], case.heads, -1).swapaxes(1, 2)  # (b, h, n, c)

    gelu = partial(jax.nn.gelu, approximate=False)
    d = case.width
    x = linear(x, "embedding")
    for i in range(case.layers):
        x, name = x + weights["table"][i], f"blocks.{i}"
        queried = x[:, -case.queries(i) :]
        q = heads(linear(queried, f"{name}.projection", slice(d)))
        k, v = (heads(part) for part in jnp.split(linear(x, f"{name}.projection", slice(d, None)), 2, axis=-1))
        scores = times(q * q.shape[-1] ** -0.5, k.swapaxes(-1, -2))
        mixed = times(jax.nn.softmax(scores.astype(jnp.float32), axis=-1), v)
        mixed = mixed.swapaxes(1, 2).reshape(queried.shape)
        x = norm(queried + linear(mixed, f"{name}.out"), f"{name}.norm_1")
        x = norm(x + gelu(linear(gelu(linear(x, f"{name}.up")), f"{name}.down")), f"{name}.norm_2")
    return linear(x if case.readout == "token" else x[:, -1], "answer").astype(jnp.float32)


def loss_of(weights: Arrays, inputs: Any, targets: Any, case: Case, bf16: bool) -> Any:
    """Return the mean loss of one model: squared error if every token is read out, else cross-entropy."""
    outputs = forward(weights, inputs, case, bf16)
    if case.readout == "token":
        return jnp.square(outputs - targets).mean()
    right = jnp.take_along_axis(jax.nn.log_softmax(outputs), targets[:, None], axis=1)
    return -right.mean()


def adam(weight: Any, gradient: Any, first: Any, second: Any, count: Any, rate: float) -> tuple[Any, Any, Any]:
    """Return the updated weight, first moment and second moment of one array after a step of Adam.

    `count` is the number of the step, from 1, and `rate` the learning rate.
    """
    first = BETA1 * first + (1 - BETA1) * gradient
    second = BETA2 * second + (1 - BETA2) * jnp.square(gradient)
    scale = jnp.sqrt(second / (1 - BETA2**count)) + EPSILON
    return weight - rate / (1 - BETA1**count) * first / scale, first, second


@partial(jax.jit, static_argnames=("case", "bf16"), donate_argnames=("state",))
def train(state: Any, data: Any, order: Any, batch_index: Any, case: Case, bf16: bool) -> tuple[Any, Any]:
    """Run one training step of all models; return the new state and the losses, (models,).

    `state` has the weights, both moments of Adam and the number of steps, and `data` the inputs and targets of all
    examples. `order` (models, examples) is the order in which each model takes the examples, and `batch_index` the
    index of the batch in this order.
    """
    weights, first, second, count = state
    rows = jax.lax.dynamic_slice_in_dim(order, batch_index * case.batch, case.batch, axis=1)  # (e, b)
    inputs, targets = (array[rows] for array in data)
    losses, gradients = jax.vmap(jax.value_and_grad(partial(loss_of, case=case, bf16=bf16)))(weights, inputs, targets)
    count = count + 1
    updated = {
        name: adam(weights[name], gradients[name], first[name], second[name], count, case.learning_rate)
        for name in weights
    }
    new = tuple({name: parts[i] for name, parts in updated.items()} for i in range(3))
    return (*new, count), losses


@partial(jax.jit, static_argnames=("examples", "models"))
def draw_order(key: Any, examples: int, models: int) -> Any:
    """Draw a random order of the examples for each model, (models, examples)."""
    return jnp.argsort(jax.random.uniform(key, (models, examples)), axis=1)


class JaxVmap(Peer):
    """Peer that trains all models at once with JAX; see `peers.jax_vmap`."""

    def __init__(self, case: Case, task: Task, initial: Sequence[Weights], device: str, bf16: bool) -> None:
        super().__init__(case, task, initial, "cpu", bf16)
        self.at = jax.devices("gpu" if device == "cuda" else "cpu")[0]

        def moved(tensor: Tensor) -> Any:
            return jax.device_put(tensor.detach().cpu().numpy(), self.at)

        self.data = (moved(self.inputs), moved(self.targets if case.readout == "token" else self.targets.int()))
        weights = {name: moved(torch.stack([weights[name] for weights in initial])) for name in initial[0]}
        zeros = [{name: jnp.zeros_like(value) for name, value in weights.items()} for _ in range(2)]
        self.state: Any = (weights, *zeros, jax.device_put(0, self.at))
        self.key = jax.random.key(0)
        # the names that jax has for the precisions that torch calls highest and high
        exact = torch.get_float32_matmul_precision() == "highest"
        self.precision = "highest" if exact else "tensorfloat32"
        self.last: Any = None

    def step(self) -> Any:
        with jax.default_matmul_precision(self.precision), jax.default_device(self.at):
            if self.batch_index == 0:
                self.key, key = jax.random.split(self.key)
                self.shuffled = draw_order(key, len(self.inputs), self.models)
            self.state, self.last = train(self.state, self.data, self.shuffled, self.batch_index, self.case, self.bf16)
        self.batch_index = (self.batch_index + 1) % (len(self.inputs) // self.case.batch)
        return self.last

    def finish(self) -> None:
        jax.block_until_ready((self.state, self.last))

    def peak_bytes(self) -> int | None:
        stats = self.at.memory_stats() if self.at.platform != "cpu" else None
        return None if stats is None else int(stats["peak_bytes_in_use"])
