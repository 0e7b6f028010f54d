"""Compare the speed of training on this machine with other implementations (peers): the command `placecode bench`.

>>> plan = Plan("cpu", cases=(CASES["lst-quick"],), members=(1, 8), peers=("loop-eager",))
>>> [row["us_per_model_step"] for row in run(plan)["rows"]]

Each row of a result has the time and memory of one implementation for one case (model size), precision and number of
models. The module `plan` lists the rows to measure. `cases` defines the models; `peers`, `jax_peer` and `authors` are
the other implementations. `measure` times them, `compare` defines which rows are compared, `profiling` measures the
time per GPU kernel, and `figures` draws the results. `write` saves a result as bench.json, bench.csv and images.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from placecode import files
from placecode.bench import authors, figures, profiling
from placecode.bench.cases import CASES, Case
from placecode.bench.compare import Row
from placecode.bench.measure import Job, disturbed, in_fresh_process, measure_ceiling, row_of, run_job
from placecode.bench.peers import PEERS, unavailable_reason
from placecode.bench.plan import Plan
from placecode.errors import BadInput, must_be
from placecode.execution.environment import describe_environment
from placecode.execution.settings import ExecutionSettings
from placecode.reports import figures as drawing


def run(plan: Plan, notify: Callable[[Row], None] = lambda row: None) -> dict[str, Any]:
    """Measure everything in a plan and return the result.

    The result is a dict with "rows", "ceilings" (throughput of the matrix products alone), "kernels" (time per kernel
    of placecode, on a GPU), "environment" and "calls" (the plan of this call of `run`, and when it started). Every row,
    ceiling and kernel says when its call started. Results of several calls can therefore be merged, and rows are still
    compared only with rows of the same call. Each row and ceiling is passed to `notify` as soon as it is measured.
    """
    rows: list[Row] = []
    ceilings: dict[tuple[Case, str], Row] = {}
    kernels: list[Row] = []
    about = environment(plan)
    call = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    results: dict[Job, dict[str, Any]] = {}
    for job in plan.jobs():
        key = (job.case, job.precision)
        if key not in ceilings:
            ceilings[key] = measure_ceiling(job)
            notify(ceilings[key])
        reason = unavailable_reason(job.name, job.device)
        equivalent = job_with_same_work(job)
        if equivalent not in results:
            results[equivalent] = {"note": reason} if reason else run_job(job)
        rows.append(row_of(job, results[equivalent], ceilings[key]["tflops"]))
        notify(rows[-1])
    if plan.authors is not None:
        job = Job(CASES["lst-paper"], "authors", 1, plan.device, "their own", plan.seconds)
        rows.append(row_of(job, authors.measure(plan.authors)))
        notify(rows[-1])
    if plan.device == "cuda":
        for job in plan.profiling_jobs():
            profile = in_fresh_process(job, profiling.profile)
            kernels += profile.get("kernels", [])
            if "note" in profile:
                notify(row_of(dataclasses.replace(job, name="profile"), profile))
    result: dict[str, Any] = {"rows": rows, "ceilings": list(ceilings.values()), "kernels": kernels}
    result = {kind: [{**row, "call": call} for row in table] for kind, table in result.items()}
    return result | {"environment": about, "calls": [{"call": call, "plan": plan.record(), "environment": about}]}


def job_with_same_work(job: Job) -> Job:
    """Return the job whose result is used for this one, so that two jobs that do the same work are measured once.

    Peers (other implementations) use TF32 at both precisions "high" and "tf32", so a peer's "high" job uses the result
    of its "tf32" job. All other jobs are returned unchanged.
    """
    return dataclasses.replace(job, precision="tf32") if job.name in PEERS and job.precision == "high" else job


def environment(plan: Plan) -> dict[str, Any]:
    """Return a description of the machine, its devices and the versions of packages, for bench.json."""
    execution = ExecutionSettings(plan.device)
    about = describe_environment(execution, execution.concurrency(1, 0)) | {"precision": ", ".join(plan.precisions)}
    for name in ("stack", "stacks at once", "threads per stack", "processes"):
        about.pop(name, None)
    if "jax-vmap" in plan.peers and not unavailable_reason("jax-vmap", plan.device):
        about["packages"] = {**about["packages"], "jax": importlib.metadata.version("jax")}
    return about | {"threads": torch.get_num_threads(), "processor": _processor()}


def _processor() -> str:
    """Return the name of the CPU as reported by the system, or else its architecture, such as "x86_64"."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def disturbance_note(result: dict[str, Any]) -> str:
    """Return a sentence on how many rows are too slow because other programs were running; "" if there are none."""
    rows = [*result["rows"], *result["ceilings"]]
    disturbed_rows = [row for row in rows if disturbed(row)]
    if not disturbed_rows:
        return ""
    most = max(row["others"] for row in disturbed_rows)
    return (
        f"Other programs worked on the cores (up to {most:.1f} of them) while {len(disturbed_rows)} of {len(rows)} "
        "rows, marked with *, were measured: those are too slow."
    )


def check_folder(folder: Path, force: bool) -> None:
    """Raise BadInput if `folder` is a file, or has a bench.json that must not be overwritten because `force` is False.

    It is called before anything is measured, so that no measurement is in vain.
    """
    if folder.exists() and not folder.is_dir():
        raise must_be("out", "a folder", str(folder))
    if (folder / "bench.json").exists() and not force:
        raise BadInput(f"{folder} has a bench.json already: name another folder with --out, or overwrite with --force.")


def write(result: dict[str, Any], folder: Path) -> list[Path]:
    """Write a result as bench.json, the rows also as bench.csv, and the figures; return the paths of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "bench.json", folder / "bench.csv"]
    files.write_json(paths[0], result)
    files.write_text(paths[1], pd.DataFrame(result["rows"]).to_csv(index=False))
    for name, figure in figures.draw(result).items():
        paths.append(folder / f"{name}.png")
        drawing.save(figure, paths[-1])
    return paths
