"""The comparison of two commits in tests/unchanged.py finds the numbers that differ, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import save_file
from unchanged import differences, page_numbers, run_digests, table_digests


def metrics(split: str = "ood", last_bit: bool = False) -> pd.DataFrame:
    rows = [(member, step, split, "all", "accuracy", 0.1 * member + step) for member in (0, 1) for step in (0, 10)]
    table = pd.DataFrame(rows, columns=["member", "step", "split", "condition", "metric", "value"])
    if last_bit:
        table.loc[3, "value"] = np.nextafter(table.loc[3, "value"], np.inf)
    return table


def digests(path: Path, table: pd.DataFrame) -> dict[str, str]:
    table.to_parquet(path)
    return table_digests(path, ("split", "metric"))


def test_the_order_of_rows_and_the_old_name_of_a_split_make_no_difference(tmp_path: Path) -> None:
    first = digests(tmp_path / "a.parquet", metrics())
    assert list(first) == ["ood accuracy"] and first["ood accuracy"].startswith("4 values ")
    assert first == digests(tmp_path / "b.parquet", metrics("validation"))
    assert first == digests(tmp_path / "c.parquet", metrics().sample(frac=1, random_state=0))


def test_a_last_bit_makes_a_difference(tmp_path: Path) -> None:
    first, second = (digests(tmp_path / "a.parquet", metrics(last_bit=changed)) for changed in (False, True))
    (line,) = differences({"train": first}, {"train": second})
    assert line.startswith("train: ood accuracy: 4 values ")


def test_weights_are_compared_bit_for_bit(tmp_path: Path) -> None:
    metrics().to_parquet(tmp_path / "metrics.parquet")
    weights = []
    for value in (1.0, 1.0, np.nextafter(np.float32(1), np.float32(2))):
        save_file({"0": np.full(3, value, np.float32)}, tmp_path / "weights.safetensors")
        weights.append(run_digests(tmp_path)["weights"])
    assert weights[0] == weights[1] != weights[2]


def test_words_of_a_page_may_change_and_its_numbers_may_not(tmp_path: Path) -> None:
    pages = ["Accuracy is 0.94 (0.90 to 0.97), `--epochs 200`.", "It is 0.94, from 0.90 to 0.97."]
    pages.append("It is 0.95, 0.90 to 0.97.")
    numbers = []
    for text in pages:
        (tmp_path / "page.md").write_text(text)
        numbers.append(page_numbers(tmp_path / "page.md"))
    assert numbers[0] == numbers[1] == ["0.90", "0.94", "0.97"]
    assert not list(differences({"page x": numbers[0]}, {"page x": numbers[1]}))
    (line,) = differences({"page x": numbers[0]}, {"page x": numbers[2]})
    assert line == "page x: 1 numbers gone ['0.94'], 1 new ['0.95']"


def test_entries_of_only_one_record_are_named() -> None:
    lines = list(differences({"claims": {"a": [1.0], "b": [2.0]}}, {"claims": {"a": [1.0], "c": [2.0]}}))
    assert lines == ["claims: b is only in BASE", "claims: c is only in this checkout"]
