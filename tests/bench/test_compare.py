"""A row is compared with placecode at the same case, precision, call and, for stacked peers, number of models."""

from typing import Any

import pytest

from placecode.bench.cases import CASES
from placecode.bench.compare import compared_with, times_memory, times_placecode
from placecode.bench.measure import Job, row_of


def row(name: str, members: int, micro: float | None, peak: int | None = None, **columns: Any) -> dict[str, Any]:
    case, precision = columns.pop("case", "lst-paper"), columns.pop("precision", "high")
    job = Job(CASES[case], name, members, "cuda", precision, 1.0)
    return row_of(job, {"us_per_model_step": micro, "peak_bytes": peak}) | {"call": "first", **columns}


ROWS = [
    row("placecode", 1, 900.0),
    row("placecode", 16, 200.0, 2**20),
    row("placecode", 128, 100.0, 2**24),
    row("placecode", 16, 50.0, precision="bf16"),
    row("placecode", 16, 25.0, case="lst-quick"),
    row("placecode", 16, 10.0, call="second"),
    row("placecode", 512, None),
]


@pytest.mark.parametrize(
    ("peer", "ratio", "words"),
    [
        (row("compiled-vmap", 16, 400.0), 2.0, "16 models"),
        (row("compiled-vmap", 128, 400.0), 4.0, "128 models"),
        (row("vmap", 1, 1800.0), 2.0, "1 model"),
        (row("jax-vmap", 16, 400.0, precision="bf16"), 8.0, "16 models"),
        (row("loop-eager", 1, 5000.0), 50.0, "fastest (128 models)"),
        (row("encoder-loop", 1, 5000.0, precision="bf16"), 100.0, "fastest (16 models)"),
        (row("placecode", 1, 900.0), 9.0, "fastest (128 models)"),
        (row("authors", 1, 5000.0, precision="their own"), 50.0, "fastest (128 models)"),
        (row("vmap", 32, 400.0), None, "-"),  # placecode was not measured with 32
        (row("vmap", 16, 400.0, precision="tf32"), None, "-"),
        (row("vmap", 16, 400.0, call="third"), None, "-"),
        (row("vmap", 16, 400.0, call="second"), 40.0, "16 models"),
        (row("vmap", 16, None), None, "16 models"),
        (row("vmap", 512, 400.0), None, "-"),
    ],
)
def test_the_baseline_did_the_same(peer, ratio, words) -> None:
    assert times_placecode(peer, [*ROWS, peer]) == ratio and compared_with(peer, [*ROWS, peer]) == words


def test_memory_is_compared_at_the_same_number_of_models() -> None:
    assert times_memory(row("compiled-vmap", 128, 1.0, 2**25), ROWS) == 2.0
    assert times_memory(row("compiled-vmap", 16, 1.0, 2**25), ROWS) == 32.0
    assert times_memory(row("compiled-vmap", 1, 1.0, 2**25), ROWS) is None  # placecode's is not known
    assert times_memory(row("compiled-vmap", 16, 1.0), ROWS) is None


def test_tables_that_record_no_calls_are_one_call() -> None:
    rows = [{name: value for name, value in entry.items() if name != "call"} for entry in ROWS[:3]]
    peer = row("vmap", 16, 400.0)
    del peer["call"]
    assert times_placecode(peer, rows) == 2.0
