"""Merge the tables of several calls of `placecode bench` on one machine into one file.

    python benchmarks/merge.py results/bench/h200.json bench-paper/bench.json bench-tokens/bench.json

The first file is updated, or created. Each of the others replaces the rows, ceilings and kernels of the cases and
precisions that it measured. So placecode and its peers in one case and precision always come from one call. Every row
names its call; "calls" says when each was made, what it measured, and with which versions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from placecode import files
from placecode.errors import BadInput

TABLES = ("rows", "ceilings", "kernels")
"""Entries of a bench.json that are lists of rows."""
UNRECORDED = "not recorded"
"""The name of the call for rows measured before calls were recorded."""

Result = dict[str, Any]
"""The contents of a bench.json."""


def with_calls(result: Result) -> Result:
    """Return the result with a call for every row; rows without one get the call `UNRECORDED`."""
    if "calls" in result:
        return result
    tables = {kind: [{**row, "call": UNRECORDED} for row in result.get(kind, [])] for kind in TABLES}
    call = {"call": UNRECORDED, "plan": None, "environment": result["environment"]}
    return {**result, **tables, "calls": [call]}


def merged(old: Result, new: Result) -> Result:
    """Return `old` with the cases and precisions of `new` replaced by those of `new`.

    Raises BadInput if the two are of different machines, or if `new` lacks the time of placecode where it replaces
    rows.
    """
    old, new = with_calls(old), with_calls(new)
    for name in ("device", "gpu", "processor"):
        first, second = (result["environment"].get(name) for result in (old, new))
        if first != second:
            raise BadInput(f"tables to merge must be of one machine; their {name} is {first} and {second}.")
    replaced = _groups(new)
    measured = {_group(row) for row in new["rows"] if row["name"] == "placecode" and row["us_per_model_step"]}
    for case, precision in replaced:
        if (case, precision) not in measured and precision != "their own":
            raise BadInput(f"a table to merge has no time of placecode for {case} in precision {precision}.")
    result: Result = {}
    order = list(dict.fromkeys((*_groups(old), *replaced)))
    cases = list(dict.fromkeys(case for case, _ in order))
    for kind in TABLES:
        rows = [row for row in old[kind] if _group(row) not in replaced] + new[kind]
        result[kind] = sorted(rows, key=lambda row: (cases.index(row["case"]), order.index(_group(row))))
    used = {row["call"] for kind in TABLES for row in result[kind]}
    calls = {call["call"]: call for call in (*old["calls"], *new["calls"])}
    precisions = dict.fromkeys(row["precision"] for row in result["ceilings"])
    result["environment"] = new["environment"] | {"precision": ", ".join(precisions)}
    result["calls"] = [call for name, call in calls.items() if name in used]
    return result


def _group(row: dict[str, Any]) -> tuple[str, str]:
    """Return case and precision of a row. All rows with the same pair are replaced together."""
    return row["case"], row["precision"]


def _groups(result: Result) -> list[tuple[str, str]]:
    """Return the pairs of case and precision of all rows, each once."""
    return list(dict.fromkeys(_group(row) for kind in TABLES for row in result[kind]))


def main(arguments: Sequence[str]) -> None:
    if len(arguments) < 2:
        sys.exit("usage: python benchmarks/merge.py TABLE.json NEW.json [NEW.json ...]")
    target, *others = map(Path, arguments)
    results = [json.loads(path.read_text()) for path in ([target] if target.exists() else []) + others]
    result = with_calls(results[0])
    for other in results[1:]:
        try:
            result = merged(result, other)
        except BadInput as error:
            sys.exit(str(error))
    files.write_json(target, result)
    print(f"{target}: {len(result['rows'])} rows of {len(result['calls'])} calls")


if __name__ == "__main__":
    main(sys.argv[1:])
