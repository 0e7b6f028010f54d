"""Operations between the matrix products of a training step on a CPU.

`Kernels` implements them in torch, as a reference. `Compiled` does the same in one pass over memory. Its source,
kernels.cpp, is compiled once with the installed C++ compiler (g++, seconds) and cached. Without a compiler, torch is
used.

Arrays have shape (e, rows, features), with one row per example and token. Biases, scales and shifts have shape
(e, features). Results are written to the first arguments. Backward functions overwrite inputs that are no longer
needed.
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
"""Number of floats of a SIMD vector in kernels.cpp."""
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fopenmp")

Parts = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values, each (e, rows, d). They may be slices of longer rows."""


class Kernels:
    """Reference implementation in torch."""

    name = "torch"

    def gelu(self, y: Tensor, x: Tensor, bias: Tensor) -> None:
        """Compute y = gelu(x + bias)."""
        y.copy_(F.gelu(x + bias[:, None]))

    def gelu_back(self, x: Tensor, dy: Tensor, bias: Tensor, dbias: Tensor) -> None:
        """Overwrite `dy` with the gradient of x, `dbias` with that of the bias, and x with gelu(x + bias)."""
        inner = x + bias[:, None]
        dy.copy_(torch.ops.aten.gelu_backward(dy, inner))
        x.copy_(F.gelu(inner))
        torch.sum(dy, 1, out=dbias)

    def norm(
        self, y: Tensor, unit: Tensor, inverse: Tensor, x: Tensor, branch: Tensor, bias: Tensor, scale: Tensor,
        shift: Tensor, gelu: bool,
    ) -> None:  # fmt: skip
        """Compute y = layer norm of x + f(branch + bias), where f is gelu or the identity. `unit` is y before scale and
        shift, and `inverse`, (e, rows), the inverse standard deviation."""
        inner = branch + bias[:, None]
        total = x + (F.gelu(inner) if gelu else inner)
        normal, _, by = torch.native_layer_norm(total, total.shape[-1:], None, None, 1e-5)
        unit.copy_(normal)
        inverse.copy_(by[..., 0])
        torch.addcmul(shift[:, None], unit, scale[:, None], out=y)

    def norm_back(
        self, dx: Tensor, branch: Tensor, dy: Tensor, unit: Tensor, inverse: Tensor, bias: Tensor, scale: Tensor,
        dscale: Tensor, dshift: Tensor, dbias: Tensor, gelu: bool,
    ) -> None:  # fmt: skip
        """Compute the gradient of x and of the parameters. With gelu, `branch` is overwritten with its gradient.
        Otherwise its gradient equals that of x."""
        torch.sum(dy * unit, 1, out=dscale)
        torch.sum(dy, 1, out=dshift)
        g = dy * scale[:, None]
        g = g - g.mean(-1, keepdim=True) - unit * (g * unit).mean(-1, keepdim=True)
        torch.mul(g, inverse[..., None], out=dx)
        if gelu:
            branch.copy_(torch.ops.aten.gelu_backward(dx, branch + bias[:, None]))
        torch.sum(branch if gelu else dx, 1, out=dbias)

    def attend(self, mixed: Tensor, weights: Tensor, parts: Parts, bias: Tensor) -> None:
        """Compute attention from queries + bias, keys and values. `mixed`, (e, rows, d), are the weighted values, and
        `weights`, (e, b, h, n, n or more), the attention weights with keys in rows and queries in columns."""
        q, k, v = (_by_head(part, weights) for part in (parts[0] + bias[:, None], *parts[1:]))
        n, c = q.shape[-2:]
        weights[..., :n] = ((q * c**-0.5) @ k.mT).softmax(-1).mT
        _by_head(mixed, weights).copy_(weights[..., :n].mT @ v)

    def attend_back(
        self, into: Parts, dmixed: Tensor, weights: Tensor, parts: Parts, bias: Tensor, residual: bool
    ) -> None:
        """Compute the gradients of queries, keys and values from that of `mixed`. With `residual`, the keys are the
        tokens to which `mixed` is added, so their gradient includes `dmixed`, and may be stored in its memory."""
        q, k, v, g = (_by_head(part, weights) for part in (parts[0] + bias[:, None], *parts[1:], dmixed))
        dq, dk, dv = (_by_head(part, weights) for part in into)
        n, c = q.shape[-2:]
        w = weights[..., :n]  # (keys, queries)
        dw = v @ g.mT
        ds = w * (dw - (w * dw).sum(-2, keepdim=True)) * c**-0.5
        dq.copy_(ds.mT @ k)
        dv.copy_(w @ g)
        dk.copy_(ds @ q + g if residual else ds @ q)

    def look(self, seen: Tensor, weights: Tensor, query: Tensor, x: Tensor) -> None:
        """Compute attention of one query per head, (e, h, b, d), over the tokens x, (e, b, n, d): `weights`,
        (e, b, h, n), and the weighted mean of the tokens, `seen`, with the shape of `query`."""
        weights.copy_((query.transpose(1, 2) @ x.mT).softmax(-1))
        seen.copy_((weights @ x).transpose(1, 2))

    def look_back(self, dx: Tensor, dquery: Tensor, dseen: Tensor, weights: Tensor, query: Tensor, x: Tensor) -> None:
        """Compute the gradients of x and of `query` from that of `seen`."""
        g, q = dseen.transpose(1, 2), query.transpose(1, 2)  # (e, b, h, d)
        dw = g @ x.mT
        ds = weights * (dw - (weights * dw).sum(-1, keepdim=True))
        dquery.copy_((ds @ x).transpose(1, 2))
        torch.add(weights.mT @ g, ds.mT @ q, out=dx)


def _by_head(x: Tensor, weights: Tensor) -> Tensor:
    """Return a view (e, b, h, n, c) of (e, rows, d)."""
    e, b, h, n = weights.shape[:4]
    return x.view(e, b, n, h, -1).transpose(2, 3)


class Compiled(Kernels):
    """Implementation for float32 in kernels.cpp, loaded from the shared library `path`."""

    name = "compiled"

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))

        def function(name: str, arrays: int, numbers: int) -> ctypes._NamedFuncPointer:
            pointer = library[name]
            pointer.argtypes, pointer.restype = [ctypes.c_void_p] * arrays + [ctypes.c_long] * numbers, None
            return pointer

        self._gelu, self._gelu_back = function("gelu", 3, 4), function("gelu_back", 4, 4)
        self._norm, self._norm_back = function("norm", 8, 6), function("norm_back", 10, 6)
        self._attend, self._attend_back = function("attend", 6, 9), function("attend_back", 9, 10)
        self._look, self._look_back = function("look", 4, 5), function("look_back", 6, 5)
        self._adam = function("adam", 5, 3)

    def gelu(self, y: Tensor, x: Tensor, bias: Tensor) -> None:
        self._gelu(*_pointers(y, x, bias), *x.shape, bias.stride(0))

    def gelu_back(self, x: Tensor, dy: Tensor, bias: Tensor, dbias: Tensor) -> None:
        self._gelu_back(*_pointers(x, dy, bias, dbias), *x.shape, bias.stride(0))

    def norm(
        self, y: Tensor, unit: Tensor, inverse: Tensor, x: Tensor, branch: Tensor, bias: Tensor, scale: Tensor,
        shift: Tensor, gelu: bool,
    ) -> None:  # fmt: skip
        arrays = _pointers(y, unit, inverse, x, branch, bias, scale, shift)
        self._norm(*arrays, *x.shape, bias.stride(0), scale.stride(0), gelu)

    def norm_back(
        self, dx: Tensor, branch: Tensor, dy: Tensor, unit: Tensor, inverse: Tensor, bias: Tensor, scale: Tensor,
        dscale: Tensor, dshift: Tensor, dbias: Tensor, gelu: bool,
    ) -> None:  # fmt: skip
        arrays = _pointers(dx, branch, dy, unit, inverse, bias, scale, dscale, dshift, dbias)
        self._norm_back(*arrays, *dx.shape, bias.stride(0), scale.stride(0), gelu)

    def attend(self, mixed: Tensor, weights: Tensor, parts: Parts, bias: Tensor) -> None:
        self._attend(*_pointers(mixed, weights, *parts, bias), *_sizes(weights, parts, bias))

    def attend_back(
        self, into: Parts, dmixed: Tensor, weights: Tensor, parts: Parts, bias: Tensor, residual: bool
    ) -> None:
        arrays = _pointers(*into, dmixed, weights, *parts, bias)
        self._attend_back(*arrays, *_sizes(weights, parts, bias), residual)

    def look(self, seen: Tensor, weights: Tensor, query: Tensor, x: Tensor) -> None:
        e, b, n, d = x.shape
        self._look(*_pointers(seen, weights, query, x), e, b, n, query.shape[1], d)

    def look_back(self, dx: Tensor, dquery: Tensor, dseen: Tensor, weights: Tensor, query: Tensor, x: Tensor) -> None:
        e, b, n, d = x.shape
        self._look_back(*_pointers(dx, dquery, dseen, weights, query, x), e, b, n, query.shape[1], d)

    def adam(
        self, flat: Tensor, gradient: Tensor, first: Tensor, second: Tensor, settings: Tensor, encoding_columns: int
    ) -> None:
        """Apply one step of Adam to flat arrays (e, P). `settings`, (e, 7), are beta1, beta2, their bias corrections
        1 - beta1^t and sqrt(1 - beta2^t), epsilon, the learning rate, and that of the columns from
        `encoding_columns`."""
        self._adam(*_pointers(flat, gradient, first, second, settings), *flat.shape, encoding_columns)


def _pointers(*arrays: Tensor) -> list[int]:
    return [array.data_ptr() for array in arrays]


def _sizes(weights: Tensor, parts: Parts, bias: Tensor) -> list[int]:
    """Return members, examples, tokens, heads and features per head, then the strides of rows and biases."""
    e, b, h, n = weights.shape[:4]
    return [e, b, n, h, parts[0].shape[-1] // h, *(part.stride(1) for part in parts), bias.stride(0)]


_lock = threading.Lock()


def kernels_for(array: Tensor) -> Kernels:
    """Return the fastest available kernels for the dtype and device of an array."""
    compiled = None
    if array.dtype == torch.float32 and array.device.type == "cpu":
        with _lock:  # several stacks may start at the same time
            compiled = _compiled()
    return compiled or Kernels()


@functools.cache
def _compiled() -> Compiled | None:
    """Return the compiled kernels, or None without a suitable compiler or a writable cache."""
    compiler, source = os.environ.get("CXX", "g++"), Path(__file__).with_name("kernels.cpp")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        # the name depends on the expansion of -march=native, because several machines may share a home folder
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
        return Compiled(path)
    return None


def _output(*command: str) -> bytes:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300).stdout
