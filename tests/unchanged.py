"""Check that a change of the code changes no number: python tests/unchanged.py BASE

Runs the same commands with the source of the commit BASE and with that of this checkout, one after the other on this
machine, and compares:

- training: every experiment for a few steps, and the demo in full; metrics, analyses and weights, bit for bit;
- committed runs: the summary and the effect and interval of every claim, computed anew from their tables;
- pages that are made from committed runs: the numbers on them. Words may change.

The record of BASE is kept in build/unchanged/ and used again. `make unchanged BASE=...` does the same. Names in tables
may change between the two, such as that of a split: `RENAMED` lists them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "build" / "unchanged"
RENAMED = {"validation": "ood"}
"""Old names in tables, and their current names."""
PAGES = ("reproduction.md", "beyond.md", "recommend.md", "performance.md")
DEMO = "lst-sigma --scale quick"
SHORT = {
    "lst": "--seeds 1 --epochs 1",
    **dict.fromkeys(("network", "synergy", "pixels", "brain"), "--seeds 1 --steps 20"),
}
"""Settings that train for a few steps, by the first part of an experiment's name."""
OTHER_PATHS = ("lst-encodings --seeds 1 --epochs 1 --plain", "lst-sigma --seeds 1 --epochs 1 --precision highest")
"""Runs that train with other implementations or precisions."""
NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")
Numbers = dict[str, Any]
"""Numbers, or digests of them, by name."""


def placecode(tree: Path, *words: str) -> str:
    """Run a placecode command with the code of this tree, and return what it prints."""
    return python(tree, "import sys; from placecode.cli import main; sys.exit(main())", *words)


def python(tree: Path, code: str, *words: str) -> str:
    """Run Python code that imports the package of this tree, and return what it prints. RuntimeError if it fails."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", code, *words]
    result = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(words)}, in {tree}: {result.stderr.strip()[-2000:]}")
    return result.stdout


def current(name: str) -> str:
    """Return a name with each part replaced by its current name."""
    return " ".join(RENAMED.get(part, part) for part in name.split(" "))


def digest(*parts: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def table_digests(path: Path, names: Sequence[str]) -> Numbers:
    """Return a digest of the values of a table for each combination of values in the columns `names`.

    It does not depend on the order of the rows.
    """
    table = pd.read_parquet(path)
    texts = [name for name in table.columns if name != "value" and not pd.api.types.is_numeric_dtype(table[name])]
    for name in texts:
        table[name] = [current(str(text)) for text in table[name]]
    order = [name for name in ("member", "step", "block", *sorted(texts)) if name in table.columns]
    digests = {}
    for key, rows in table.groupby(list(names), sort=True, dropna=False):
        values = rows.sort_values(order, kind="stable")["value"].to_numpy(dtype=np.float64)
        digests[" ".join(map(str, key))] = f"{len(values)} values {digest(values.tobytes())[:16]}"
    return digests


def run_digests(folder: Path) -> Numbers:
    """Return digests of the metrics, analyses and weights in a run folder."""
    tables = {"metrics": ("split", "metric")}
    if (folder / "analysis.parquet").is_file():
        tables["analysis"] = ("analysis", "target")
    digests = {
        f"{table} {key}": value
        for table, columns in tables.items()
        for key, value in table_digests(folder / f"{table}.parquet", columns).items()
    }
    if (path := folder / "weights.safetensors").is_file():
        tensors = sorted(load_file(path).items())
        digests["weights"] = digest(*(name.encode() + values.tobytes() for name, values in tensors))[:16]
    return digests


def training_digests(tree: Path, words: str) -> Numbers:
    """Train with the code of this tree, and return the digests of the run. `words` are those after `placecode run`."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            placecode(tree, "run", *words.split(), "--device", "cpu", "--out", f"{folder}/run")
        except RuntimeError as error:
            if "is not installed" in str(error):
                return {"skipped": "a package for this experiment is not installed"}
            raise
        return run_digests(Path(folder) / "run")


def trainings(tree: Path) -> list[str]:
    """Return the runs that are compared, as the words after `placecode run`."""
    listed = placecode(tree, "studies")  # the earlier name of "experiments", which both know
    names = dict.fromkeys(re.findall(rf"\b((?:{'|'.join(SHORT)})-[a-z]+)\b", listed))
    if not names:
        raise RuntimeError(f"{tree} has no experiments")
    return [DEMO, *(f"{name} {SHORT[name.split('-')[0]]}" for name in names), *OTHER_PATHS]


SUMMARIES = """
import json, sys
from pathlib import Path
try:
    from placecode.runs.read import Run
    from placecode.runs.summary import summarize
except ImportError:  # before placecode.runs was a package
    from placecode.runs import Run, summarize
for path in map(Path, sys.argv[1:]):
    run = Run(path)
    baselines = run.baselines if (path / "baselines.parquet").is_file() else None
    summary = summarize("", run.members, run.metrics, run.analysis, baselines)
    print(json.dumps([path.name, summary["rows"]]))
"""
"""Code that prints the summary of each run folder as a line of JSON."""
STATISTICS = ("n", "diverged", "mean", "std")
"""Columns of a summary that are compared."""


def summary_digests(tree: Path, runs: Sequence[Path]) -> Numbers:
    """Summarize committed runs again, and return a digest of all rows of each; names that may change are left out."""
    digests = {}
    for line in python(tree, SUMMARIES, *map(str, runs)).splitlines():
        name, rows = json.loads(line)
        compared = [
            [current(f"{row['split']} {row['condition']} {row['metric']}"), *(row[key] for key in STATISTICS)]
            for row in rows
        ]
        digests[name] = f"{len(rows)} rows {digest(json.dumps(sorted(compared, key=json.dumps)).encode())[:16]}"
    return digests


def claim_effects(tree: Path, runs: Sequence[Path]) -> Numbers:
    """Check the claims of committed runs again, and return effect and interval of each."""
    records = json.loads(placecode(tree, "claims", *map(str, runs), "--json"))
    return {
        f"{Path(record['run']).name} {record['id']}": [record[name] for name in ("effect", "low", "high")]
        for record in records
    }


def page_numbers(path: Path) -> list[str]:
    """Return the numbers on a page, sorted as text, without those in commands and links."""
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", re.sub(r"```.*?```", " ", path.read_text(), flags=re.DOTALL))
    return sorted(NUMBER.findall(text))


def committed(tree: Path) -> list[Path]:
    """Return the folders of all committed runs."""
    return sorted(path.parent for path in (tree / "results").rglob("config.json"))


def records(tree: Path) -> Iterator[tuple[str, Any]]:
    """Yield everything that must not change, by name."""
    runs = committed(tree)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        trained = {words: pool.submit(training_digests, tree, words) for words in trainings(tree)}
        for words, result in trained.items():
            yield f"train {words}", result.result()
    yield "summaries", summary_digests(tree, runs)
    yield "claims", claim_effects(tree, [run for run in runs if run.parent.name == "results"])
    for page in PAGES:
        yield f"page {page}", page_numbers(tree / "docs" / page)


def records_of_commit(commit: str) -> Numbers:
    """Return the records of a commit, from build/unchanged/ or made in a temporary checkout of it."""
    full = subprocess.run(
        ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    file = RECORDS / f"{full}.json"
    if not file.is_file():
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            subprocess.run(["git", "worktree", "add", "--detach", "--quiet", str(tree), full], cwd=ROOT, check=True)
            try:
                RECORDS.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(dict(_with_progress(records(tree), f"{full[:8]}: "))))
            finally:
                subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    return dict(json.loads(file.read_text()))


def _with_progress(items: Iterator[tuple[str, Any]], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the items, and print the name of each."""
    for name, value in items:
        print(f"{prefix}{name}", flush=True)
        yield name, value


def differences(before: Any, after: Any, name: str = "") -> Iterator[str]:
    """Yield a sentence on each difference between two records; nothing if they are equal. `name` is that of both."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            full = f"{name}: {key}" if name else key
            if key not in after or key not in before:
                yield f"{full} is only in {'BASE' if key in before else 'this checkout'}"
            else:
                yield from differences(before[key], after[key], full)
    elif before != after:
        if name.startswith("page"):
            gone, new = Counter(before) - Counter(after), Counter(after) - Counter(before)
            yield f"{name}: {gone.total()} numbers gone {list(gone)[:12]}, {new.total()} new {list(new)[:12]}"
        else:
            yield f"{name}: {str(before)[:120]} became {str(after)[:120]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE", help="the commit to compare with")
    base = parser.parse_args().base
    before = records_of_commit(base)
    after = json.loads(json.dumps(dict(_with_progress(records(ROOT), "now: "))))
    changes = list(differences(before, after))
    if skipped := [name for name, value in after.items() if isinstance(value, dict) and "skipped" in value]:
        print(f"Not compared, since a package for them is not installed: {', '.join(skipped)}.")
    print("\n".join(changes) if changes else f"Unchanged since {base}: {len(before)} records.")
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
