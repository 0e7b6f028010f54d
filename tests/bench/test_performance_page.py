"""docs/performance.md follows from the committed results, and the script describes any results correctly."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.scripts import load
from scipy import stats

from placecode.bench.cases import CASES, flops, linear_layers
from placecode.bench.measure import Job, row_of
from placecode.execution import local
from placecode.execution.settings import ExecutionSettings
from placecode.experiments.latin.squares import LstSigma

ROOT = Path(__file__).parents[2]


performance = load(ROOT / "docs" / "pages" / "performance.py")


def test_the_committed_page_is_what_the_tables_give() -> None:
    assert (ROOT / "docs" / "performance.md").read_text() == performance.page(), "run python docs/pages/performance.py"
    assert list((ROOT / "results" / "bench").glob("*.json"))


def test_every_figure_of_the_page_is_there_and_is_shown() -> None:
    shown = set(re.findall(r"\(images/(bench-[^)]+)\)", (ROOT / "docs" / "performance.md").read_text()))
    assert shown == {path.name for path in (ROOT / "docs" / "images").glob("bench-*.png")}


def test_the_numbers_of_the_readme_are_right() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    paper = CASES["lst-paper"]
    linear = 3 * sum(layer.flops for layer in linear_layers(paper))
    assert f"{flops(paper) / 1e9:.2f} GFLOP, {linear / 1e9:.2f} of them" in text.replace("\n  ", " ")
    for name, case in CASES.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        if name.startswith("tokens"):
            assert f"{case.tokens} tokens" in line and f"{case.steps_per_model:,} steps" in line


def row(name: str, members: int, micro: float | None, peak: int | None = None) -> dict[str, Any]:
    job = Job(CASES["lst-paper"], name, members, "cuda", "high", 1.0)
    return row_of(job, {"us_per_model_step": micro, "peak_bytes": peak, "note": "" if micro else "why"}, 200.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with one table: 1, 64, 128 and 256 members, 100 microseconds each from 64 on."""
    rows = [row("placecode", 1, 2000.0, 2**24), row("placecode", 64, 100.0, 2**30), row("placecode", 128, 100.0, 2**31)]
    rows += [row("placecode", 256, 110.0, 3 * 2**31), row("loop-compiled", 1, 2500.0), row("loop-eager", 1, 12_000.0)]
    rows += [row("jax-vmap", 32, None)]
    packages = {"torch": "2.x"}
    about = {"device": "cuda", "gpu": "Some GPU", "placecode": "1", "git": None, "python": "3", "packages": packages}
    about |= {"threads": 2, "cores": 4, "processor": "p"}
    ceilings = [{"case": "lst-paper", "device": "cuda", "precision": "high", "members": 128, "tflops": 200.0}]
    ceilings[0] |= {"floor_us": 61.75, "others": None}
    (tmp_path / "results" / "bench").mkdir(parents=True)
    text = json.dumps({"rows": rows, "ceilings": ceilings, "environment": about})
    (tmp_path / "results" / "bench" / "gpu.json").write_text(text)
    return tmp_path


def test_the_page_says_what_is_in_the_table(root) -> None:
    page = performance.page(root)
    assert "## On one Some GPU" in page and "200 TFLOP/s in high (at best 62 us)" in page
    assert "| placecode | high | 64 | 100 | 2,812 | 124 | 62% | 1,024 | 1 | fastest (64 models) |" in page
    assert "| loop-compiled | high | 1 | 2,500 | 112 | 4.94 | 2% | - | 25 | fastest (64 models) |" in page
    assert "| jax-vmap (why) | high | 32 | - | - | - | - | - | - | - |" in page
    assert "64 models at once is 25 times as fast as loop-compiled and 120 times as fast as loop-eager" in page
    assert "with a single model it takes 0.80 of the compiled loop's time" in page
    assert "| high | 128 | 2.00 | 2.00 | 16.0 |" in page and "| high | 256 | 2.20 | 3.00 | 24.0 |" in page
    doubled = page.split("when the number of members doubles")[1].split("##")[0]
    assert "| high | 64 |" not in doubled  # 32 were not measured
    assert "images/bench-gpu-lst-paper-time.png" in page
    assert "### bf16 against TF32\n\nNot measured yet.\n" in page


def test_precisions_are_compared_seed_by_seed(root) -> None:
    """Two runs with the same seeds are compared; a seed that only one run has is left out."""
    small = {"per_class": 20, "heldout": 9, "distance": 0.5, "width": 8, "heads": 2, "layers": 1, "batch": 16}
    runs = []
    names = {"high": performance.IN_TF32, "bf16": performance.OTHERS["bf16"]}
    for precision, seeds in (("high", (0, 1, 2)), ("bf16", (0, 1, 2, 3))):
        experiment = LstSigma.from_scale("quick", sigmas=(0.2, 1.0, 2.0), seeds=seeds, epochs=3, evaluations=1, **small)
        execution = ExecutionSettings("cpu", precision, 12)
        runs.append(local.execute(experiment, root / "results" / names[precision], execution=execution))
    section = performance.page(root).partition("## Does the precision change what is learned?")[2]
    for sigma in (0.2, 1.0, 2.0):
        values = []
        for run in runs:
            final = run.metrics.query("step == step.max() and split == 'ood' and condition == 'all'")
            final = final[final["metric"] == "accuracy"].merge(run.members[["member", "sigma", "seed"]], on="member")
            final = final[(final["sigma"] == sigma) & (final["seed"] < 3)].sort_values("seed")
            values.append(final["value"].to_numpy())
        difference = values[1] - values[0]
        half = stats.t.ppf(0.975, 2) * difference.std(ddof=1) / np.sqrt(3)
        cells = f"{values[0].mean():.3f} | {values[1].mean():.3f} | {difference.mean():+.3f}"
        bounds = f"{difference.mean() - half:+.3f} to {difference.mean() + half:+.3f}"
        assert f"| {sigma:g} | 3 | {cells} | {bounds} |" in section
    assert "3 epochs" in section and section.count("Not measured yet.") == len(performance.OTHERS) - 1
