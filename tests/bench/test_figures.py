"""The figures of a benchmark show the measured rows and nothing else."""

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from placecode.bench import figures
from placecode.bench.cases import CASES
from placecode.bench.measure import Job, row_of
from placecode.reports import figures as drawing

pytestmark = pytest.mark.filterwarnings("error")


def row(name: str, members: int, precision: str, micro: float | None, peak: int | None = 2**20) -> dict[str, Any]:
    job = Job(CASES["lst-paper"], name, members, "cuda", precision, 1.0)
    return row_of(job, {"us_per_model_step": micro, "peak_bytes": peak, "steps": 5}, 200.0)


@pytest.fixture
def result() -> dict[str, Any]:
    """A made-up benchmark of a GPU."""
    rows = []
    for i, precision in enumerate(("high", "bf16")):
        rows += [row("placecode", 2**k, precision, 1000 / 2 ** min(k, 3) / (i + 1), 2**20 * 2**k) for k in range(6)]
        rows += [row("loop-eager", 1, precision, 10_000.0), row("vmap", 32, precision, 1_300.0)]
    rows += [row("jax-vmap", 32, "high", None), row("authors", 1, "their own", 18_900.0)]
    ceilings = [
        {"case": "lst-paper", "precision": "high", "tflops": 200.0, "floor_us": 60.0},
        {"case": "lst-paper", "precision": "bf16", "tflops": None, "floor_us": None},
    ]
    return {"rows": rows, "ceilings": ceilings, "environment": {"gpu": "a $GPU$", "processor": "", "cores": 1}}


def words(figure: Figure) -> str:
    texts = [text.get_text() for axes in figure.axes for text in (*axes.texts, *axes.get_yticklabels())]
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return "\n".join([*texts, *legends, figure.get_supxlabel()])


def test_time_is_drawn_as_measured_with_its_floor(result) -> None:
    figure = figures.draw(result)["lst-paper-time"]
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    for precision in ("high", "bf16"):
        ours = [r for r in result["rows"] if r["name"] == "placecode" and r["precision"] == precision]
        line = lines[f"placecode, {precision}"]
        assert list(line.get_xdata()) == [r["members"] for r in ours]
        assert list(line.get_ydata()) == [r["us_per_model_step"] for r in ours]
    floors = [line for line in axes.lines if set(np.asarray(line.get_ydata())) == {60.0}]
    assert len(floors) == 1  # that of bf16 is not known
    points = [tuple(np.ravel(line.get_xydata())) for line in axes.lines if len(line.get_xdata()) == 1]
    assert sorted(points) == [(1, 10_000), (1, 10_000), (1, 18_900), (32, 1300), (32, 1300)]
    assert "jax-vmap" not in words(figure)
    assert {"loop-eager", "vmap", "authors"} < set(words(figure).split("\n"))


def test_bars_of_peers_and_of_placecode_at_its_fastest(result) -> None:
    figure = figures.draw(result)["lst-paper-peers"]
    (axes,) = figure.axes
    widths = sorted(bar.get_width() for bar in axes.patches)
    # placecode at its fastest and at the number of models of vmap; its other rows are not bars
    assert widths == [62.5, 62.5, 125, 125, 1300, 1300, 10_000, 10_000, 18_900]
    assert "10,000  (x 80)" in words(figure) and "10,000  (x 160)" in words(figure)


def test_what_was_not_measured_is_not_drawn_and_the_rest_can_be_written(result, tmp_path) -> None:
    complete = figures.draw(result)
    assert len(complete) == 3
    for entry in result["rows"]:
        if entry["name"] == "placecode":
            entry["us_per_model_step"] = None
    assert figures.draw(result) == {} and figures.draw({**result, "rows": []}) == {}
    alone = {**result, "rows": [row("placecode", 1, "highest", 5.0)], "ceilings": []}
    assert figures.draw(alone) == {}
    pair = {**alone, "rows": [*alone["rows"], row("placecode", 3, "highest", 4.0)]}
    assert set(figures.draw(pair)) == {"lst-paper-time", "lst-paper-memory"}
    for drawn in (figures.draw(pair), complete):
        for name, figure in drawn.items():
            drawing.save(figure, tmp_path / f"{name}.png")
            assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_rows_that_were_disturbed_are_not_drawn(result) -> None:
    for entry in result["rows"]:
        entry |= {"device": "cpu", "others": 1.0 if entry["name"] == "vmap" else 0.0}
    assert "vmap" not in words(figures.draw(result)["lst-paper-peers"])
    assert "vmap" not in words(figures.draw(result)["lst-paper-time"])
