"""Compute what is between the matrix products of a training step on a CPU (GELU, layer norm, attention), and Adam.

`Kernels` implements GELU, layer norm and attention in plain torch. `CompiledKernels` computes the same in C++, in one
pass over memory, and also Adam, whose torch version is in `training.optimizers`. Its source, kernels.cpp, is compiled
with the installed C++ compiler on first use, which takes seconds, and cached. Without a compiler, torch is used.

Unless stated otherwise, arrays have shape (members, rows, features), with one row per token of each example. Biases,
scales and shifts have shape (members, features). Functions return nothing: they write results to arrays among their
arguments. A name that starts with d, such as `dx`, is a gradient. Backward functions may overwrite their inputs. In
other shapes: e members, b examples, n tokens, d features, h heads.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import secrets
import subprocess
import threading
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from placecode.data.puzzle_files import cache_folder

LANES = 16
"""Number of floats that kernels.cpp processes at once (a SIMD vector)."""
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fopenmp")
"""Options of the C++ compiler."""

Parts = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values, each (members, rows, features). They may be slices of an array with more features."""


class Kernels:
    """GELU, layer norm and attention in plain torch: the reference for `CompiledKernels`."""

    name = "torch"

    def gelu(self, y: Tensor, x: Tensor, bias: Tensor) -> None:
        """Compute gelu(x + bias) and write it to y."""
        y.copy_(F.gelu(x + bias[:, None]))

    def gelu_backward(self, x: Tensor, dy: Tensor, bias: Tensor, dbias: Tensor) -> None:
        """Compute the backward pass of `gelu` from the gradient `dy` of its result y.

        Overwrite `dy` with the gradient of x, and write the gradient of the bias to `dbias`. Also overwrite x with
        gelu(x + bias), which the caller needs next.
        """
        inner = x + bias[:, None]
        dy.copy_(torch.ops.aten.gelu_backward(dy, inner))
        x.copy_(F.gelu(inner))
        torch.sum(dy, 1, out=dbias)

    def norm(
        self, y: Tensor, normalized: Tensor, inverse_std: Tensor, x: Tensor, branch: Tensor, bias: Tensor,
        scale: Tensor, shift: Tensor, gelu: bool,
    ) -> None:  # fmt: skip
        """Compute the layer norm of x + f(branch + bias) and write it to y. If `gelu`, f is GELU, otherwise the
        identity.

        Also write to `normalized` the normalized values before scale and shift, and to `inverse_std`, (members, rows),
        one divided by the standard deviation of each row. The backward pass needs both.
        """
        inner = branch + bias[:, None]
        total = x + (F.gelu(inner) if gelu else inner)
        values, _, factors = torch.native_layer_norm(total, total.shape[-1:], None, None, 1e-5)
        normalized.copy_(values)
        inverse_std.copy_(factors[..., 0])
        torch.addcmul(shift[:, None], normalized, scale[:, None], out=y)

    def norm_backward(
        self, dx: Tensor, branch: Tensor, dy: Tensor, normalized: Tensor, inverse_std: Tensor, bias: Tensor,
        scale: Tensor, dscale: Tensor, dshift: Tensor, dbias: Tensor, gelu: bool,
    ) -> None:  # fmt: skip
        """Compute the backward pass of `norm` from the gradient `dy` of its result y.

        Write the gradients of x, scale, shift and bias to `dx`, `dscale`, `dshift` and `dbias`. If `gelu` is true,
        overwrite `branch` with the gradient of `branch`. Otherwise this gradient equals `dx`, and `branch` does not
        change.
        """
        torch.sum(dy * normalized, 1, out=dscale)
        torch.sum(dy, 1, out=dshift)
        g = dy * scale[:, None]
        g = g - g.mean(-1, keepdim=True) - normalized * (g * normalized).mean(-1, keepdim=True)
        torch.mul(g, inverse_std[..., None], out=dx)
        if gelu:
            branch.copy_(torch.ops.aten.gelu_backward(dx, branch + bias[:, None]))
        torch.sum(branch if gelu else dx, 1, out=dbias)

    def attend(self, mixed: Tensor, weights: Tensor, parts: Parts, bias: Tensor) -> None:
        """Compute attention from `parts`, the queries, keys and values. `bias` is added to the queries.

        Write to `mixed`, (members, rows, features), the attention-weighted mean of the values for each query. Write the
        attention weights to `weights`, (e, b, h, n keys, n queries). The last axis of `weights` may be longer than n;
        the rest is padding.
        """
        q, k, v = (_by_head(part, weights) for part in (parts[0] + bias[:, None], *parts[1:]))
        n, c = q.shape[-2:]
        weights[..., :n] = ((q * c**-0.5) @ k.mT).softmax(-1).mT
        _by_head(mixed, weights).copy_(weights[..., :n].mT @ v)

    def attend_backward(
        self, into: Parts, dmixed: Tensor, weights: Tensor, parts: Parts, bias: Tensor, residual: bool
    ) -> None:
        """Compute the backward pass of `attend` from the gradient `dmixed` of its result `mixed`.

        Write the gradients of queries, keys and values to the three arrays `into`. The array for the keys may be
        `dmixed` itself. If `residual` is true, the keys are also the input of the block, and the caller adds `mixed` to
        this input. The gradient through this sum equals `dmixed`, and is added to the gradient of the keys.
        """
        q, k, v, g = (_by_head(part, weights) for part in (parts[0] + bias[:, None], *parts[1:], dmixed))
        dq, dk, dv = (_by_head(part, weights) for part in into)
        n, c = q.shape[-2:]
        w = weights[..., :n]  # (keys, queries)
        dw = v @ g.mT
        ds = w * (dw - (w * dw).sum(-2, keepdim=True)) * c**-0.5
        dq.copy_(ds.mT @ k)
        dv.copy_(w @ g)
        dk.copy_(ds @ q + g if residual else ds @ q)

    def attend_one(self, means: Tensor, weights: Tensor, query: Tensor, x: Tensor) -> None:
        """Compute attention with one query per example and head. The tokens x, (e, b, n, d), are both keys and values.

        The scores are the products of `query`, (e, h, b, d), with the tokens; `query` already includes their scale.
        Write the attention weights to `weights`, (e, b, h, n), and the attention-weighted means of the tokens to
        `means`, (e, h, b, d).
        """
        weights.copy_((query.transpose(1, 2) @ x.mT).softmax(-1))
        means.copy_((weights @ x).transpose(1, 2))

    def attend_one_backward(
        self, dx: Tensor, dquery: Tensor, dmeans: Tensor, weights: Tensor, query: Tensor, x: Tensor
    ) -> None:
        """Write to `dx` and `dquery` the gradients of x and `query` in `attend_one`, given the gradient of `means`."""
        g, q = dmeans.transpose(1, 2), query.transpose(1, 2)  # (e, b, h, d)
        dw = g @ x.mT
        ds = weights * (dw - (weights * dw).sum(-1, keepdim=True))
        dquery.copy_((ds @ x).transpose(1, 2))
        torch.add(weights.mT @ g, ds.mT @ q, out=dx)


def _by_head(x: Tensor, weights: Tensor) -> Tensor:
    """Return a view of x, (e, b n, d), in which examples, heads and tokens have separate axes: (e, b, h, n, d / h).

    The numbers b, h and n are those of the attention weights, (e, b, h, n, ...).
    """
    e, b, h, n = weights.shape[:4]
    return x.view(e, b, n, h, -1).transpose(2, 3)


class CompiledKernels(Kernels):
    """The operations of `Kernels`, and Adam, in C++ for float32. `path` is the library compiled from kernels.cpp."""

    name = "compiled"

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))

        def function(name: str, arrays: int, numbers: int) -> ctypes._NamedFuncPointer:
            pointer = library[name]
            pointer.argtypes, pointer.restype = [ctypes.c_void_p] * arrays + [ctypes.c_long] * numbers, None
            return pointer

        self._gelu, self._gelu_backward = function("gelu", 3, 4), function("gelu_backward", 4, 4)
        self._norm, self._norm_backward = function("norm", 8, 6), function("norm_backward", 10, 6)
        self._attend, self._attend_backward = function("attend", 6, 9), function("attend_backward", 9, 10)
        self._attend_one, self._attend_one_backward = (
            function("attend_one", 4, 5),
            function("attend_one_backward", 6, 5),
        )
        self._adam = function("adam", 5, 3)

    def gelu(self, y: Tensor, x: Tensor, bias: Tensor) -> None:
        self._gelu(*_pointers(y, x, bias), *x.shape, bias.stride(0))

    def gelu_backward(self, x: Tensor, dy: Tensor, bias: Tensor, dbias: Tensor) -> None:
        self._gelu_backward(*_pointers(x, dy, bias, dbias), *x.shape, bias.stride(0))

    def norm(
        self, y: Tensor, normalized: Tensor, inverse_std: Tensor, x: Tensor, branch: Tensor, bias: Tensor,
        scale: Tensor, shift: Tensor, gelu: bool,
    ) -> None:  # fmt: skip
        arrays = _pointers(y, normalized, inverse_std, x, branch, bias, scale, shift)
        self._norm(*arrays, *x.shape, bias.stride(0), scale.stride(0), gelu)

    def norm_backward(
        self, dx: Tensor, branch: Tensor, dy: Tensor, normalized: Tensor, inverse_std: Tensor, bias: Tensor,
        scale: Tensor, dscale: Tensor, dshift: Tensor, dbias: Tensor, gelu: bool,
    ) -> None:  # fmt: skip
        arrays = _pointers(dx, branch, dy, normalized, inverse_std, bias, scale, dscale, dshift, dbias)
        self._norm_backward(*arrays, *dx.shape, bias.stride(0), scale.stride(0), gelu)

    def attend(self, mixed: Tensor, weights: Tensor, parts: Parts, bias: Tensor) -> None:
        self._attend(*_pointers(mixed, weights, *parts, bias), *_sizes(weights, parts, bias))

    def attend_backward(
        self, into: Parts, dmixed: Tensor, weights: Tensor, parts: Parts, bias: Tensor, residual: bool
    ) -> None:
        arrays = _pointers(*into, dmixed, weights, *parts, bias)
        self._attend_backward(*arrays, *_sizes(weights, parts, bias), residual)

    def attend_one(self, means: Tensor, weights: Tensor, query: Tensor, x: Tensor) -> None:
        e, b, n, d = x.shape
        self._attend_one(*_pointers(means, weights, query, x), e, b, n, query.shape[1], d)

    def attend_one_backward(
        self, dx: Tensor, dquery: Tensor, dmeans: Tensor, weights: Tensor, query: Tensor, x: Tensor
    ) -> None:
        e, b, n, d = x.shape
        self._attend_one_backward(*_pointers(dx, dquery, dmeans, weights, query, x), e, b, n, query.shape[1], d)

    def adam(
        self, flat: Tensor, gradient: Tensor, first: Tensor, second: Tensor, settings: Tensor, encoding_columns: int
    ) -> None:
        """Update the parameters `flat`, (members, parameters), and both moments in place by one step of Adam.

        `first` and `second` are the running means of the gradient and of its square. `settings`, (members, 7), has
        beta1, beta2, the bias corrections 1 - beta1^t and sqrt(1 - beta2^t), epsilon, the learning rate of the weights,
        and that of the PE. The PE is in the columns from `encoding_columns` on.
        """
        self._adam(*_pointers(flat, gradient, first, second, settings), *flat.shape, encoding_columns)


def _pointers(*arrays: Tensor) -> list[int]:
    """Return the memory addresses of arrays, as arguments of a C++ function."""
    return [array.data_ptr() for array in arrays]


def _sizes(weights: Tensor, parts: Parts, bias: Tensor) -> list[int]:
    """Return the integers that the C++ functions of attention take after the pointers.

    They are the numbers of members, examples, tokens, heads and features per head, then strides: between rows of the
    queries, of the keys and of the values, and between the biases of two members.
    """
    e, b, h, n = weights.shape[:4]
    return [e, b, n, h, parts[0].shape[-1] // h, *(part.stride(1) for part in parts), bias.stride(0)]


_lock = threading.Lock()


def kernels_for(array: Tensor) -> Kernels:
    """Return the fastest kernels for arrays like `array`: compiled ones for float32 on a CPU, if possible."""
    compiled = None
    if array.dtype == torch.float32 and array.device.type == "cpu":
        with _lock:  # several stacks may start at the same time
            compiled = _compiled()
    return compiled or Kernels()


@functools.cache
def _compiled() -> CompiledKernels | None:
    """Compile kernels.cpp, unless it is in the cache, and load it.

    Return None if there is no suitable compiler or the cache is not writable.
    """
    compiler, source = os.environ.get("CXX", "g++"), Path(__file__).with_name("kernels.cpp")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        # the name depends on what -march=native means on this machine, because machines may share a home folder
        expansion = _output(compiler, *FLAGS, "-###", "-E", "-x", "c++", os.devnull)
        name = hashlib.sha256(source.read_bytes() + expansion).hexdigest()[:16]
        path = cache_folder() / f"kernels-{name}.so"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
            try:
                _output(compiler, *FLAGS, "-fPIC", "-shared", str(source), "-o", str(temporary))
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
        return CompiledKernels(path)
    return None


def _output(*command: str) -> bytes:
    """Run a command and return what it prints. Raise CalledProcessError if it fails."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300).stdout
