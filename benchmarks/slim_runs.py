"""Replace run folders by small copies of themselves: python benchmarks/slim_runs.py results/*

The options are those of `placecode slim`. Files that are not part of a run stay, and folders that are not run folders
are not changed. A run is changed only if the summary and the verdicts on the claims of its copy are the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from placecode.errors import BadInput
from placecode.experiments import EXPERIMENTS, experiment_of
from placecode.runs.merge import slim
from placecode.runs.read import Run


def slim_in_place(path: Path, seeds: Sequence[int] | None = None, arrays: Sequence[str] | None = None) -> int:
    """Replace the files of a run by those of its small copy, and return by how many bytes it shrank.

    Raise BadInput if a summary or a verdict on a claim of the copy is not that of the run.
    """
    before = _size(path)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".slim-") as folder:
        copy = slim(path, Path(folder) / path.name, seeds=seeds, arrays=arrays)
        if _results(copy) != _results(Run(path)):
            raise BadInput(f"the small copy of {path} must have the same results; its summary or claims differ.")
        (path / "weights.safetensors").unlink(missing_ok=True)
        for file in copy.path.iterdir():
            file.replace(path / file.name)
    return before - _size(path)


def _results(run: Run) -> str:
    """Return the summary of a run and the verdicts on its claims as text, in which missing values are equal."""
    findings = experiment_of(run).findings(run) if run.experiment in EXPERIMENTS else []
    return repr((run.summary, [{**finding.record(), "run": ""} for finding in findings]))


def _size(path: Path) -> int:
    """Return the number of bytes of the files in a folder."""
    return sum(file.stat().st_size for file in path.iterdir() if file.is_file())


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    parser.add_argument("--seeds", metavar="A,B", help="keep the arrays of these seeds only")
    parser.add_argument("--arrays", metavar="A,B", help="keep arrays of these kinds only")
    options = parser.parse_args(arguments)
    seeds = None if options.seeds is None else [int(seed) for seed in options.seeds.split(",")]
    arrays = None if options.arrays is None else options.arrays.split(",")
    for path in options.runs:
        if (path / "config.json").is_file():
            sys.stdout.write(f"{path} is {slim_in_place(path, seeds, arrays):,} bytes smaller\n")


if __name__ == "__main__":
    main(sys.argv[1:])
