"""`placecode bench`: what it prints, writes and refuses."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from placecode import bench, cli
from placecode.bench import measure
from placecode.bench.cases import CASES
from placecode.bench.compare import times_placecode
from placecode.bench.measure import Job
from placecode.bench.plan import Plan

TINY = ["bench", "--device", "cpu", "--case", "lst-quick", "--width", "8", "--layers", "1", "--batch", "4"]


@pytest.fixture(autouse=True)
def _in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_result_is_the_same_as_json_on_stdout_and_in_the_files(tmp_path, monkeypatch, capsys) -> None:
    """Rows are measured in this process; only the test of Ctrl-C starts processes."""
    monkeypatch.setattr(measure, "in_fresh_process", measure.measure)
    words = [*TINY, "--members", "1,3", "--peer-members", "3", "--peers", "vmap", "--steps", "1", "--seconds", "0.01"]
    assert cli.main([*words, "--json", "--out", "out"]) == 0
    stdout, stderr = capsys.readouterr()
    result = json.loads(stdout)
    assert json.loads((tmp_path / "out" / "bench.json").read_text()) == result
    with open(tmp_path / "out" / "bench.csv") as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["placecode", "placecode", "vmap"]
    measured = [(row["name"], row["members"]) for row in result["rows"]]
    assert measured == [("placecode", 1), ("placecode", 3), ("vmap", 3)]
    progress = [line for line in stderr.splitlines() if line.startswith("lst-quick, ")]
    assert len(progress) == 4  # the ceiling and three rows; a process that runs for long may have no new peak to draw
    (call,), (ceiling,) = result["calls"], result["ceilings"]
    assert call["plan"]["members"] == [1, 3] and call["environment"] == result["environment"]
    assert ceiling["tflops"] > 0 and ceiling["floor_us"] > 0 and ceiling["call"] == call["call"]
    for row in result["rows"]:
        assert (row["device"], row["precision"], row["width"], row["tokens"]) == ("cpu", "high", 8, 16)
        assert row["us_per_model_step"] > 0 and row["tflops"] > 0 and row["steps"] == 5 and row["note"] == ""
        assert (row["call"], row["ceiling_tflops"]) == (call["call"], ceiling["tflops"])
    assert result["environment"]["packages"]["torch"] == torch.__version__


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Every job takes 100 microseconds for placecode, and 1,000 for a peer; returns the jobs."""
    jobs: list[Job] = []

    def result_of(job: Job) -> dict[str, Any]:
        jobs.append(job)
        return {"us_per_model_step": 100.0 if job.name == "placecode" else 1000.0, "steps": 5, "peak_bytes": 2**20}

    monkeypatch.setattr(bench, "run_job", result_of)
    ceiling = {"name": "ceiling", "case": "", "device": "cpu", "precision": "", "tflops": 1.0, "others": None}
    monkeypatch.setattr(bench, "measure_ceiling", lambda job: ceiling)
    reasons = {"jax-vmap": "jax is not installed"}
    monkeypatch.setattr(bench, "unavailable_reason", lambda name, device: reasons.get(name, ""))
    return jobs


def test_printed_table_has_ratios_and_reasons(measured, capsys) -> None:
    assert cli.main(["bench", "--device", "cpu", "--case", "lst-quick"]) == 0
    out, _ = capsys.readouterr()
    (line,) = [line for line in out.splitlines() if "loop-eager" in line]
    cells = [cell.strip() for cell in line.strip("│").split("│")]
    assert (cells[0], cells[1], cells[2], cells[-3], cells[-2]) == ("loop-eager", "1", "1,000", "1", "10")
    assert "jax is not installed" in out and "Written" not in out


def test_stacked_peers_are_measured_at_the_numbers_of_placecode() -> None:
    """Stacked peers use the default numbers for peers, all numbers if none of these applies, or the chosen ones."""

    def counts(plan: Plan) -> dict[str, list[int]]:
        return {name: [job.members for job in plan.jobs() if job.name == name] for name in ("compiled-vmap", "vmap")}

    usual = {(job.case.name, job.precision) for job in Plan("cuda").jobs()}
    assert usual == {("lst-paper", "high"), ("lst-paper", "bf16")}
    cases = {"cases": (CASES["lst-paper"],), "precisions": ("bf16",)}
    assert counts(Plan("cuda", **cases)) == {"compiled-vmap": [1, 16, 128], "vmap": [1, 16, 128]}
    assert counts(Plan("cuda", **{**cases, "cases": (CASES["tokens-360"],)})) == {"compiled-vmap": [64], "vmap": [64]}
    assert counts(Plan("cuda", **cases, members=(2, 4))) == {"compiled-vmap": [2, 4], "vmap": [2, 4]}
    few = Plan("cuda", **cases, members=(2, 4, 8), peer_members=(4,))
    assert counts(few) == {"compiled-vmap": [4], "vmap": [4]}
    assert [job.members for job in few.jobs() if job.name == "placecode"] == [2, 4, 8]
    assert [job.members for job in few.jobs() if job.name == "loop-eager"] == [1]


def test_a_peer_is_timed_once_for_precisions_that_it_does_not_distinguish(measured) -> None:
    plan = Plan("cpu", (CASES["lst-quick"],), ("high", "tf32", "bf16"), (1,), peers=("vmap", "loop-eager"))
    rows = bench.run(plan)["rows"]
    assert len(rows) == 9 and all(row["us_per_model_step"] for row in rows)
    timed = [(job.name, job.precision) for job in measured]
    ours = [("placecode", precision) for precision in ("high", "tf32", "bf16")]
    assert sorted(timed) == sorted([*ours, *product(("vmap", "loop-eager"), ("high", "bf16"))])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--case", "all"], {"lst-quick", "lst-paper", "tokens-100", "tokens-360"}),
        (["--case", "tokens-100,lst-quick"], {"tokens-100", "lst-quick"}),
        (["--case", "lst-quick", "--tokens", "9", "--batch", "16"], {"lst-quick, tokens 9"}),
    ],
)
def test_cases_are_chosen(measured, words, expected) -> None:
    assert cli.main(["bench", "--device", "cpu", "--peers", "none", *words]) == 0
    assert {job.case.name for job in measured} == expected and {job.name for job in measured} == {"placecode"}


def test_lists_and_limits_are_passed_on(measured) -> None:
    words = ["--members", "3,5,3", "--precision", "highest,bf16", "--peers", "vmap", "--seconds", "0.5", "--steps", "7"]
    assert cli.main(["bench", "--device", "cpu", "--case", "lst-quick", *words]) == 0
    assert [(job.name, job.members, job.precision) for job in measured] == [
        (name, members, precision)
        for precision in ("highest", "bf16")
        for name, members in (("placecode", 3), ("placecode", 5), ("vmap", 3), ("vmap", 5))
    ]
    assert {(job.seconds, job.steps) for job in measured} == {(0.5, 7)}


def test_nothing_measured_is_a_failure(monkeypatch, measured, capsys) -> None:
    monkeypatch.setattr(bench, "run_job", lambda job: {"note": "out of memory"})
    assert cli.main([*TINY, "--peers", "none"]) == 1 and "out of memory" in capsys.readouterr().out


def test_the_authors_script_is_compared_with_the_first_precision(monkeypatch, measured, capsys) -> None:
    monkeypatch.setattr(bench.authors, "measure", lambda text: {"us_per_model_step": 20_000.0, "steps": 128})
    words = ["--case", "lst-paper", "--peers", "none", "--authors", f"{sys.executable} train.py {{epochs}}", "--json"]
    assert cli.main(["bench", "--device", "cpu", *words]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert (rows[-1]["name"], rows[-1]["members"], rows[-1]["us_per_model_step"]) == ("authors", 1, 20_000.0)
    assert times_placecode(rows[-1], rows) == 200


REFUSED = {"case": ["--case lst", "--case ,"], "peers": ["--peers keras"], "precision": ["--precision fp8"]}
REFUSED |= {"members": ["--members 4,-1", "--members many"], "device": ["--device tpu"], "out": ["--out file"]}
REFUSED |= {"peer_members": ["--members 4,8 --peer-members 2", "--peer-members 8"], "width": ["--width 0"]}
REFUSED |= {"heads": ["--case lst-quick --width 12"], "seconds": ["--seconds nan"], "steps": ["--steps 0"]}
REFUSED["authors"] = ["--authors python3", "--authors=", "--authors nobody-has-this-{steps}"]
REFUSED["authors"] += ["--authors python3'{steps}", f"--case lst-quick --authors {sys.executable}\xa0{{steps}}"]


@pytest.mark.parametrize(("name", "words"), [(name, words) for name in REFUSED for words in REFUSED[name]])
def test_bad_input_is_refused_by_name(capsys, words, name) -> None:
    Path("file").touch()
    assert cli.main(["bench", "--device", "cpu", *(word.replace("\xa0", " ") for word in words.split(" "))]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"placecode: {name} must ") and err.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused(capsys) -> None:
    assert cli.main(["bench", "--device", "cuda"]) == 2
    assert "torch sees no CUDA device here" in capsys.readouterr().err


def test_files_of_a_benchmark_are_overwritten_only_with_force(tmp_path, measured) -> None:
    words = [*TINY, "--peers", "vmap", "--members", "1,2", "--out", "new/folder"]
    assert cli.main(words) == 0
    names = [f"lst-quick-width-8-layers-1-batch-4-{kind}.png" for kind in ("time", "memory", "peers")]
    assert {path.name for path in (tmp_path / "new/folder").iterdir()} == {"bench.json", "bench.csv", *names}
    (tmp_path / "new/folder/bench.json").write_text("old")
    assert cli.main(words) == 2 and cli.main([*words, "--force"]) == 0
    assert json.loads((tmp_path / "new/folder/bench.json").read_text())["rows"]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_ctrl_c_ends_all_processes_and_leaves_nothing(tmp_path) -> None:
    words = [*TINY, "--members", "1", "--peers", "none", "--seconds", "100", "--out", "out"]
    command, pipe = [sys.executable, "-m", "placecode.cli", *words], subprocess.PIPE
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    try:
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)
    finally:
        signal.signal(signal.SIGINT, before)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while len(children.read_text().split()) < 2:  # one that tracks resources, and one that measures
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)  # comes when the last process has let go of the pipes
    assert process.returncode == 130 and (out, err.splitlines()[-1]) == ("", "Stopped immediately.")
    assert "Traceback" not in err and list(tmp_path.iterdir()) == []
