"""Write docs/performance.md and its figures from the committed tables: python docs/pages/performance.py

The words are in docs/pages/templates/performance*.md.j2. Results come from results/bench/*.json, one file per machine,
which benchmarks/merge.py makes from the bench.json of one or more calls of `placecode bench --out DIR`, and from runs
of the same members in several precisions. A test compares the page with the tables.

A case is a model with its data. A peer is another implementation of the same training; a stacked peer trains many
models at once, a loop trains one at a time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from templating import ROOT, render_page

from placecode import files
from placecode.analysis.stats import interval
from placecode.bench import disturbance_note, figures
from placecode.bench.compare import baseline, compared_with, times_memory, times_placecode
from placecode.bench.measure import disturbed
from placecode.bench.peers import STACKED
from placecode.bench.profiling import kernel_group
from placecode.experiments.reading import accuracy, by_sigma
from placecode.reports import figures as drawing
from placecode.runs.read import Run

IN_TF32 = "lst-sigma-tf32"
OTHERS = {"high": "lst-sigma-200", "bf16": "lst-sigma-bf16", "TF32 again": "lst-sigma-tf32-again"}
"""Runs of the same seeds that are compared with IN_TF32. The last one differs only in how its kernels round."""
STRONGEST, LEADING_CASE = "compiled-vmap", "lst-paper"
"""The strongest peer, as an expert would write it, and the case with which the page begins."""

Row = dict[str, Any]
"""One row of a bench.json: the time and memory of one implementation."""


def page(root: Path = ROOT) -> str:
    """Return the text of the whole page, from the tables below `root`."""
    results = tables(root)
    return render_page(
        "performance.md.j2",
        strongest=STRONGEST,
        lead=lead(results),
        machines=[machine(name, result) for name, result in results.items()],
        precisions=[precision(root, label, name) for label, name in OTHERS.items()],
        cell=cell,
        mebibytes=mebibytes,
    )


def tables(root: Path) -> dict[str, Any]:
    """Read the committed benchmarks, and return them by name, those of GPUs first."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted((root / "results" / "bench").glob("*.json"))}
    return dict(sorted(results.items(), key=lambda item: item[1]["environment"]["device"] != "cuda"))


def cell(value: float | None, specification: str) -> str:
    """Format a number by a format specification of Python; return a dash for None."""
    return "-" if value is None else format(value, specification)


def mebibytes(row: Row) -> str:
    """Return the peak memory of a row in MiB as text; a dash if it is unknown."""
    return cell(None if row["peak_bytes"] is None else row["peak_bytes"] / 2**20, ",.0f")


def compared(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a case, each with the row of placecode that it is compared with, and the ratios to it."""
    return [
        row
        | {
            "baseline": baseline(row, rows),
            "compared_with": compared_with(row, rows),
            "ratio": times_placecode(row, rows),
            "memory_ratio": times_memory(row, rows),
            "disturbed": disturbed(row),
        }
        for row in rows
    ]


def lead(results: dict[str, Any]) -> dict[str, Any] | None:
    """Compare placecode with the strongest peer on the first GPU where both were measured; None if there is none."""
    for result in results.values():
        rows = compared([row for row in result["rows"] if row["case"] == LEADING_CASE and row["device"] == "cuda"])
        peers = [row for row in rows if row["name"] == STRONGEST and row["ratio"] is not None]
        if peers:
            precisions = list(dict.fromkeys(row["precision"] for row in peers))
            in_precisions = Counter(models for models, _ in {(row["members"], row["precision"]) for row in peers})
            models = max(in_precisions, key=lambda models: (in_precisions[models], models))
            chosen = [row for row in peers if row["members"] == models]
            ratios = {name: [(row[name], row["precision"]) for row in chosen] for name in ("ratio", "memory_ratio")}
            return {
                "place": figures.machine_name(result["environment"]),
                "models": models,
                "times": ratios["ratio"],
                "memory": [pair for pair in ratios["memory_ratio"] if pair[0] is not None],
                "peers": sorted(peers, key=lambda row: (-row["members"], precisions.index(row["precision"]))),
                "notes": list(dict.fromkeys(row["note"] for row in peers if row["note"])),
            }
    return None


# -------------------------------------------------------------------------------------------------------- one machine


def machine(name: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of one machine."""
    return {
        "name": name,
        "place": figures.machine_name(result["environment"]),
        "versions": versions(result["environment"]),
        "calls": [call_of(call, result["rows"]) for call in result.get("calls", [])],
        "disturbance": disturbance_note(result),
        "cases": list(cases(name, result)),
    }


def versions(environment: dict[str, Any]) -> str:
    """Return a text on the versions of the code and its libraries, and the number of threads."""
    code = f"placecode {environment['placecode']}" + (f" ({environment['git']})" if environment["git"] else "")
    libraries = f"torch {environment['packages']['torch']}, Python {environment['python']}"
    return f"{code}, {libraries}; {environment['threads']} threads on {environment['cores']} cores"


def call_of(call: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """Return when the benchmark was called, its versions, and the cases and precisions that this call measured."""
    measured: dict[str, list[str]] = {}
    for row in rows:
        if row["call"] == call["call"] and row["precision"] not in measured.setdefault(row["case"], []):
            measured[row["case"]].append(row["precision"])
    return {"cases": measured, "versions": versions(call["environment"]), "time": call["call"]}


def cases(name: str, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield, for each case, its sizes, rows, comparisons, growth, profiles, figures and the throughput of products."""
    drawn = figures.draw(result)
    for case in dict.fromkeys(row["case"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["case"] == case]
        undisturbed = compared([row for row in rows if not disturbed(row)])
        ceilings = [row for row in result["ceilings"] if row["case"] == case and row["tflops"] is not None]
        files_of = {kind: figures.file_name(case, kind) for kind in ("time", "memory", "peers")}
        yield rows[0] | {
            "name": case,
            "ceilings": [row | {"disturbed": disturbed(row)} for row in ceilings],
            "rows": compared(rows),
            "comparisons": list(comparisons(undisturbed)),
            "growth": list(growth(undisturbed)),
            "profiles": list(profiles([row for row in result.get("kernels", []) if row["case"] == case])),
            "figures": [(kind, f"bench-{name}-{file}.png") for kind, file in files_of.items() if file in drawn],
        }


def comparisons(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield, for each precision, how peers compare with placecode.

    These are stacked peers at their largest number of models, and loops. `single_share` is the time of placecode for a
    single model, relative to that of a compiled loop; None if either is unknown.
    """
    for precision in dict.fromkeys(row["precision"] for row in rows if row["name"] == "placecode"):
        measured = [row for row in rows if row["precision"] == precision and row["ratio"] is not None]
        stacked = [row for row in measured if row["name"] in STACKED]
        models = max((row["members"] for row in stacked), default=0)
        single = [row for row in measured if row["name"] == "placecode" and row["members"] == 1]
        compiled = [row for row in measured if row["name"] == "loop-compiled"]
        share = single[0]["us_per_model_step"] / compiled[0]["us_per_model_step"] if single and compiled else None
        yield {
            "precision": precision,
            "stacked": [row for row in stacked if row["members"] == models],
            "loops": [row for row in measured if row["name"] in ("loop-eager", "loop-compiled")],
            "single_share": share,
        }


def growth(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield how time and memory of placecode grow where the number of members doubles."""
    ours = [row for row in rows if row["name"] == "placecode" and row["us_per_model_step"] is not None]
    by_members = {(row["precision"], row["members"]): row for row in reversed(ours)}
    for row in ours:
        if half := by_members.get((row["precision"], row["members"] / 2)):
            with_memory = row["peak_bytes"] is not None and half["peak_bytes"]
            yield row | {
                "time": 2 * row["us_per_model_step"] / half["us_per_model_step"],
                "memory": row["peak_bytes"] / half["peak_bytes"] if with_memory else None,
                "mebibytes": row["peak_bytes"] / row["members"] / 2**20 if with_memory else None,
            }


def profiles(kernels: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield, for each precision, the time of a step by kind of kernel."""
    for precision in dict.fromkeys(row["precision"] for row in kernels):
        rows = [row for row in kernels if row["precision"] == precision]
        table = pd.DataFrame(rows).assign(kind=[kernel_group(row["kernel"]) for row in rows])
        kinds = table.groupby("kind", sort=False)[["calls", "us_per_model_step"]].sum()
        kinds = kinds[kinds["us_per_model_step"] > 0].sort_values("us_per_model_step", ascending=False, kind="stable")
        total = table["us_per_model_step"].sum()
        yield {
            "precision": precision,
            "members": rows[0]["members"],
            "total": total,
            "launched": table["calls"].sum(),
            "kinds": [(kind, launched, time, time / total) for kind, launched, time in kinds.itertuples()],
        }


# --------------------------------------------------------------------------------------------------------- precisions


def precision(root: Path, label: str, name: str) -> dict[str, Any]:
    """Compare accuracy by sigma in another precision and in TF32; "epochs" is None if either run does not exist."""
    entry = {"label": label, "run": name, "reference": IN_TF32, "epochs": None}
    folders = [root / "results" / folder for folder in (IN_TF32, name)]
    if not all((folder / "config.json").is_file() for folder in folders):
        return entry
    runs = [Run(folder) for folder in folders]
    tf32, other = (by_sigma(run, accuracy(run)).stack() for run in runs)
    rows = [
        (sigma, len(pairs), *pairs.mean(), interval(pairs["after"] - pairs["before"]))
        for sigma, pairs in pd.DataFrame({"before": tf32, "after": other}).dropna().groupby("sigma")
    ]
    return entry | {"epochs": runs[0].config["fields"]["epochs"], "rows": rows}


def main() -> None:
    """Write the page, and replace its figures."""
    files.write_text(ROOT / "docs" / "performance.md", page())
    images = ROOT / "docs" / "images"
    for image in images.glob("bench-*.png"):
        image.unlink()
    for name, result in tables(ROOT).items():
        for kind, figure in figures.draw(result).items():
            drawing.save(figure, images / f"bench-{name}-{kind}.png")


if __name__ == "__main__":
    main()
