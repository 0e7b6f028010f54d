"""Results of several calls are merged; rows of one case and precision come from one call."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.scripts import load

from placecode.bench.cases import CASES
from placecode.bench.measure import Job, row_of
from placecode.errors import BadInput

ROOT = Path(__file__).parents[2]
merge = load(ROOT / "benchmarks" / "merge.py")


def table(call: str | None, micro: float | None, *groups: tuple[str, str], gpu: str = "G") -> dict[str, Any]:
    """Return a benchmark of these cases and precisions, in which every row has the same time."""
    about = {"device": "cuda", "gpu": gpu, "processor": "p", "git": call}
    mark = {} if call is None else {"call": call}
    rows, ceilings, kernels = [], [], []
    for case, precision in groups:
        for name in ("placecode", "compiled-vmap"):
            rows.append(row_of(Job(CASES[case], name, 16, "cuda", precision, 1.0), {"us_per_model_step": micro}) | mark)
        ceilings.append({"case": case, "precision": precision, "tflops": micro} | mark)
        kernels.append({"case": case, "precision": precision, "us_per_model_step": micro} | mark)
    result = {"rows": rows, "ceilings": ceilings, "kernels": kernels, "environment": about}
    return result if call is None else result | {"calls": [{"call": call, "plan": {}, "environment": about}]}


def contents(result: dict[str, Any], kind: str, value: str) -> list[tuple[Any, ...]]:
    return [(row["case"], row["precision"], row["call"], row[value]) for row in result[kind]]


def test_a_case_and_precision_is_replaced_as_a_whole() -> None:
    old = table(None, 1.0, ("lst-paper", "high"), ("lst-paper", "bf16"), ("tokens-100", "high"))
    result = merge.merged(old, table("a", 2.0, ("lst-paper", "tf32"), ("lst-paper", "high")))
    expected = [
        ("lst-paper", "high", "a", 2.0),
        ("lst-paper", "bf16", merge.UNRECORDED, 1.0),
        ("lst-paper", "tf32", "a", 2.0),
        ("tokens-100", "high", merge.UNRECORDED, 1.0),
    ]
    assert contents(result, "ceilings", "tflops") == expected
    assert contents(result, "kernels", "us_per_model_step") == expected
    assert contents(result, "rows", "us_per_model_step") == [row for row in expected for _ in range(2)]
    assert [call["call"] for call in result["calls"]] == [merge.UNRECORDED, "a"]
    assert [call["environment"]["git"] for call in result["calls"]] == [None, "a"]
    assert result["environment"]["git"] == "a" and result["environment"]["precision"] == "high, bf16, tf32"


def test_a_table_merged_with_itself_is_the_same() -> None:
    first = table("a", 1.0, ("lst-paper", "high"), ("lst-paper", "bf16"))
    merged_twice = merge.merged(first, first)
    for name in ("rows", "ceilings", "kernels", "calls"):
        assert merged_twice[name] == first[name]


def test_tables_of_two_machines_or_without_times_are_refused() -> None:
    first = table("a", 1.0, ("lst-paper", "high"))
    with pytest.raises(BadInput, match="must be of one machine; their gpu is G and H"):
        merge.merged(first, table("b", 1.0, ("lst-paper", "high"), gpu="H"))
    with pytest.raises(BadInput, match="no time of placecode for lst-paper in precision bf16"):
        merge.merged(first, table("b", None, ("lst-paper", "bf16")))


def test_the_script_makes_and_changes_a_file(tmp_path, capsys) -> None:
    paths = [tmp_path / f"{name}.json" for name in ("target", "first", "second")]
    paths[1].write_text(json.dumps(table("a", 1.0, ("lst-paper", "high"))))
    paths[2].write_text(json.dumps(table("b", 2.0, ("lst-paper", "bf16"))))
    merge.main([str(path) for path in paths[:2]])
    merge.main([str(paths[0]), str(paths[2])])
    assert [call["call"] for call in json.loads(paths[0].read_text())["calls"]] == ["a", "b"]
    assert capsys.readouterr().out.splitlines()[-1].endswith("4 rows of 2 calls")
    with pytest.raises(SystemExit, match="usage"):
        merge.main(["one.json"])


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "bench").glob("*.json")), ids=lambda path: path.stem)
def test_committed_rows_of_a_case_and_precision_are_of_one_call(path) -> None:
    result = merge.with_calls(json.loads(path.read_text()))
    calls: dict[tuple[str, str], set[str]] = {}
    for kind in merge.TABLES:
        for row in result[kind]:
            calls.setdefault((row["case"], row["precision"]), set()).add(row["call"])
    assert all(len(names) == 1 for names in calls.values()), calls
    assert set().union(*calls.values()) == {call["call"] for call in result["calls"]}
