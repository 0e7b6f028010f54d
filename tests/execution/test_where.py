"""Device, precision, and the distribution of stacks over processes and threads."""

import dataclasses

import pytest
import torch

from placecode.compute.gpu import kernels
from placecode.errors import BadInput
from placecode.execution.where import DEFAULT_STACK_SIZE, MIN_VALUES_FOR_THREADS, Crew, Where


def test_missing_settings_are_filled_in() -> None:
    auto = Where().resolved()
    assert auto.device == ("cuda" if torch.cuda.is_available() else "cpu")
    assert auto.stack is None and auto.max_stack_size == DEFAULT_STACK_SIZE[auto.device]
    assert auto.workers == max(1, torch.cuda.device_count())
    assert Where("cpu", "bf16", 3).resolved() == Where("cpu", "bf16", 3, workers=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("device", "tpu"), ("precision", "double"), ("stack", 0), ("workers", 0), ("memory", 0.0), ("memory", 1.5)],
)
def test_invalid_settings_are_rejected(name: str, value: object) -> None:
    with pytest.raises(BadInput) as error:
        dataclasses.replace(Where("cpu"), **{name: value}).resolved()
    assert (error.value.name, error.value.given) == (name, value)


def test_every_visible_gpu_gets_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert Where().resolved() == Where("cuda", workers=4) and Where(workers=2).resolved().workers == 2
    assert Where("cpu").resolved().workers == 1
    with pytest.raises(BadInput, match="visible GPUs, 4; got 5"):
        Where("cuda", workers=5).resolved()


def test_precision_is_restored_after_use() -> None:
    before = torch.get_float32_matmul_precision(), kernels.HALVES
    ones = torch.ones(2, 2)
    with Where("cpu", "bf16").arithmetic():
        assert (ones @ ones).dtype == torch.bfloat16
    with Where("cpu", "highest").arithmetic():
        assert (ones @ ones).dtype == torch.float32
    with Where("cpu", "tf32").arithmetic():
        assert not kernels.HALVES
    assert (torch.get_float32_matmul_precision(), kernels.HALVES) == before


@pytest.mark.parametrize(
    ("where", "threads", "stacks", "expected"),
    [
        (Where("cpu"), 1, 3, Crew(1, 1, 1)),
        (Where("cpu"), 2, 3, Crew(1, 2, 1)),
        (Where("cpu"), 2, 1, Crew(1, 1, 2)),
        (Where("cpu"), 8, 3, Crew(1, 3, 2)),
        (Where("cpu", workers=2), 8, 3, Crew(2, 1, 4)),
        (Where("cpu", workers=4), 2, 3, Crew(3, 1, 1)),
        (Where("cuda", workers=1), 8, 3, Crew(1, 1, 8)),
        (Where("cuda", workers=4), 8, 9, Crew(4, 1, 2)),
    ],
)
def test_crew(monkeypatch: pytest.MonkeyPatch, where: Where, threads: int, stacks: int, expected: Crew) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert where.crew(stacks, MIN_VALUES_FOR_THREADS) == expected
    small = dataclasses.replace(expected, threads=1) if where.device == "cpu" else expected  # one thread per member
    assert where.crew(stacks, MIN_VALUES_FOR_THREADS - 1) == small


@pytest.mark.parametrize(
    ("threads", "count", "expected"), [(2, 15, 8), (2, 6, 3), (2, 1, 1), (2, 100, 8), (1, 6, 6), (4, 6, 2)]
)
def test_few_large_members_are_spread_over_the_cores(
    threads: int, count: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert Where("cpu").stack_size_for(count, MIN_VALUES_FOR_THREADS) == expected
    assert Where("cpu").stack_size_for(count, MIN_VALUES_FOR_THREADS - 1) == min(count, 8)  # small ones stay together
    assert Where("cpu", workers=2).stack_size_for(8, 1) == 4  # processes do not wait for each other
    assert Where("cpu", stack=5).stack_size_for(count, MIN_VALUES_FOR_THREADS) == 5
