"""Fixtures of all tests: one thread, a separate cache, the available devices, and a tiny task."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from typing import Any

for library in ("OMP", "OPENBLAS", "MKL"):  # read when the libraries are loaded, also by workers
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run in Triton's interpreter; read when they are imported

from helpers.small_runs import beyond as beyond
from helpers.small_runs import rates_run as rates_run
from helpers.small_runs import sigmas_run as sigmas_run

from placecode.compute.gpu import kernels
from placecode.tasks.base import Split, Task


class GridTask(Task):
    """A tiny task: which column of a small grid has the largest sum? Tokens are cells, in row-major order.

    `inputs` (N, rows * columns, 3) are noise; a model knows the column of a cell only by its position. With
    `readout="token"` the targets are numbers (N, n, 1): for each cell, the mean of its column. The splits are "train"
    (not a multiple of 4, so that the last batch is smaller) and "test". The condition of an example is "clear" or
    "near", by the margin of the largest sum.
    """

    name = "grid"

    def __init__(
        self, rows: int = 2, columns: int = 3, readout: str = "last", train: int = 22, test: int = 10, seed: int = 0
    ) -> None:
        self.readout, self.outputs = readout, 1 if readout == "token" else columns
        cells = torch.arange(rows * columns)
        self.positions = torch.stack([cells // columns, cells % columns], dim=1).double().numpy()
        self.labels = (cells % columns).numpy()
        self.token_names = tuple(f"r{int(r) + 1}c{int(c) + 1}" for r, c in self.positions)
        rng = np.random.default_rng(seed)
        self.splits = {"train": self._split(rng, train), "test": self._split(rng, test)}

    def _split(self, rng: np.random.Generator, count: int) -> Split:
        inputs = torch.from_numpy(rng.normal(size=(count, len(self.labels), 3)))
        sums = torch.zeros(count, int(self.labels.max()) + 1, dtype=torch.float64)
        sums.index_add_(1, torch.from_numpy(self.labels), inputs[:, :, 0])
        first, second = sums.topk(2, dim=1).values.T
        conditions = tuple("clear" if gap > 1 else "near" for gap in (first - second).tolist())
        targets = sums.argmax(1)
        if self.readout == "token":
            targets = sums[:, torch.from_numpy(self.labels), None] * sums.shape[1] / len(self.labels)
        return Split(inputs, targets, conditions)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._losses(outputs, targets).mean(1)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        if self.readout == "token":
            return {"mse": self._losses(outputs, targets)}
        right = (outputs.argmax(-1) == targets).to(outputs.dtype)
        return {"accuracy": right, "loss": self._losses(outputs, targets)}

    def _losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.readout == "token":
            return (outputs - targets).square().flatten(2).mean(2)
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)

    def describe(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for split in self.splits.values():
            digest.update(split.inputs.double().cpu().numpy().tobytes())
        counts = {name: len(split) for name, split in self.splits.items()}
        return {"task": self.name, "readout": self.readout, "counts": counts, "sha256": digest.hexdigest()}


@pytest.fixture(scope="session", autouse=True)
def _one_thread_and_own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use one thread, so that numbers do not depend on the machine's cores, and a cache apart from the user's."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        if "PLACECODE_CACHE" not in os.environ:
            patch.setenv("PLACECODE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def make_task() -> type[GridTask]:
    """Return the class of the tiny task, for tests that need another size or read-out."""
    return GridTask


@pytest.fixture(scope="session")
def tiny_task() -> GridTask:
    """Return the tiny task with 2 x 3 cells and 22 training examples.

    Tasks are never changed, so all tests share it.
    """
    return GridTask()


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_cuda])])
def device(request: pytest.FixtureRequest) -> str:
    """Return each device in turn on which a test must pass; the GPU is skipped if there is none."""
    return str(request.param)


@pytest.fixture(params=[pytest.param("cuda", marks=[pytest.mark.gpu, needs_cuda])])
def cuda(request: pytest.FixtureRequest) -> str:
    """Return the GPU, for tests that need one; they are skipped if there is none."""
    return str(request.param)


@pytest.fixture(scope="session")
def _language_patched_once() -> Iterator[None]:
    """Speed up Triton's interpreter, which patches its language again for each call of a function within a kernel.

    Here it is patched only if it is not patched already.
    """
    language = pytest.importorskip("triton.language", reason="the kernels need Triton")
    interpreter = pytest.importorskip("triton.runtime.interpreter", reason="the kernels need Triton")
    plain = interpreter._patch_lang

    @functools.cache
    def modules_used_by(function: Any) -> list[Any]:
        """Return the language modules that a function uses."""
        values = function.__globals__.values()
        return [module for module in (language, language.core) if any(module is value for value in values)]

    def patch_lang(function: Any) -> Any:
        """Patch the language and return what undoes it; return None, which no caller uses, if it is patched already."""
        if any(language.core.is_builtin(module.load) for module in (language, *modules_used_by(function))):
            return plain(function)
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", patch_lang)
        yield


@pytest.fixture
def kernel_device(device: str, _language_patched_once: None) -> str:
    """Return each device on which the kernels can run here: a GPU, or the CPU in Triton's interpreter."""
    pytest.importorskip("triton", reason="the kernels need Triton")
    if not kernels.available(torch.device(device)):
        pytest.skip("on a CPU the kernels run in Triton's interpreter alone: set TRITON_INTERPRET=1")
    return device


@pytest.fixture
def exact_products() -> Iterator[None]:
    """Use true float32 in matrix products, on the CPU and on a GPU."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def bfloat16_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convert bfloat16 to float32 before products in Triton's interpreter, which would multiply bits as integers."""
    interpreter = pytest.importorskip("triton.runtime.interpreter", reason="the kernels need Triton")
    kinds, plain = pytest.importorskip("triton.language"), interpreter.InterpreterBuilder.create_dot

    def widened(handle: Any) -> Any:
        if handle.dtype != kinds.bfloat16:
            return handle
        return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), kinds.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return plain(self, widened(a), widened(b), *rest)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, int]]:
    """Make the tiles of long attention so small that short sequences need several of them, and several units."""
    from placecode.compute.gpu.kernels import long_attention

    sizes = {"forward": (16, 32), "queries": (32, 16), "keys": (16, 16)}
    tiles = {
        name: {"QUERIES": queries, "KEYS": keys, "num_warps": 4, "num_stages": 1}
        for name, (queries, keys) in sizes.items()
    }
    monkeypatch.setattr(long_attention, "LAUNCH", tiles)
    monkeypatch.setattr(long_attention, "TOKENS_PER_UNIT", 32)
    return tiles
