"""Device, precision, and the distribution of stacks over processes and threads."""

import dataclasses

import pytest
import torch
from helpers.refusal import refused

from placecode.compute.gpu import kernels
from placecode.errors import BadInput
from placecode.execution.settings import DEFAULT_STACK_SIZE, MIN_VALUES_FOR_THREADS, Concurrency, ExecutionSettings


def test_missing_settings_are_filled_in() -> None:
    auto = ExecutionSettings()
    assert auto.device == ("cuda" if torch.cuda.is_available() else "cpu")
    assert auto.stack is None and auto.max_stack_size == DEFAULT_STACK_SIZE[auto.device]
    assert auto.max_processes == max(1, torch.cuda.device_count())
    assert dataclasses.replace(auto, workers=1).max_processes == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("device", "tpu"), ("precision", "double"), ("stack", 0), ("workers", 0), ("memory", 0.0), ("memory", 1.5)],
)
def test_invalid_settings_are_rejected(name: str, value: object) -> None:
    error = refused(dataclasses.replace, ExecutionSettings("cpu"), **{name: value})
    assert (error.name, error.given) == (name, value)


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)


@pytest.mark.usefixtures("four_gpus")
def test_every_visible_gpu_gets_a_worker() -> None:
    auto = ExecutionSettings()
    assert (auto.device, auto.max_processes) == ("cuda", 4) and ExecutionSettings(workers=2).max_processes == 2
    assert ExecutionSettings("cpu").max_processes == 1
    with pytest.raises(BadInput, match="visible GPUs, 4; got 5"):
        ExecutionSettings("cuda", workers=5)


def test_precision_is_restored_after_use() -> None:
    ones, before = torch.ones(2, 2), torch.get_float32_matmul_precision()
    with ExecutionSettings("cpu", "bf16").arithmetic():
        assert (ones @ ones).dtype == torch.bfloat16
    with ExecutionSettings("cpu", "highest").arithmetic():
        assert (ones @ ones).dtype == torch.float32
    with ExecutionSettings("cpu", "tf32").arithmetic():
        assert not kernels._float16_allowed
    assert torch.get_float32_matmul_precision() == before and kernels._float16_allowed


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(
    ("device", "workers", "threads", "stacks", "expected"),
    [
        ("cpu", None, 1, 3, Concurrency(1, 1, 1)),
        ("cpu", None, 2, 3, Concurrency(1, 2, 1)),
        ("cpu", None, 2, 1, Concurrency(1, 1, 2)),
        ("cpu", None, 8, 3, Concurrency(1, 3, 2)),
        ("cpu", 2, 8, 3, Concurrency(2, 1, 4)),
        ("cpu", 4, 2, 3, Concurrency(3, 1, 1)),
        ("cuda", 1, 8, 3, Concurrency(1, 1, 8)),
        ("cuda", 4, 8, 9, Concurrency(4, 1, 2)),
    ],
)
def test_concurrency(
    monkeypatch: pytest.MonkeyPatch, device: str, workers: int | None, threads: int, stacks: int, expected: Concurrency
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    execution = ExecutionSettings(device, workers=workers)
    assert execution.concurrency(stacks, MIN_VALUES_FOR_THREADS) == expected
    small = dataclasses.replace(expected, threads_per_stack=1) if device == "cpu" else expected
    assert execution.concurrency(stacks, MIN_VALUES_FOR_THREADS - 1) == small


@pytest.mark.parametrize(
    ("threads", "count", "expected"), [(2, 15, 8), (2, 6, 3), (2, 1, 1), (2, 100, 8), (1, 6, 6), (4, 6, 2)]
)
def test_few_large_members_are_spread_over_the_cores(
    threads: int, count: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert ExecutionSettings("cpu").parallel_stack_size(count, MIN_VALUES_FOR_THREADS) == expected
    small = ExecutionSettings("cpu").parallel_stack_size(count, MIN_VALUES_FOR_THREADS - 1)
    assert small == min(count, 8)  # small ones stay together
    assert ExecutionSettings("cpu", workers=2).parallel_stack_size(8, 1) == 4  # processes do not wait for each other
    assert ExecutionSettings("cpu", stack=5).parallel_stack_size(count, MIN_VALUES_FOR_THREADS) == 5
