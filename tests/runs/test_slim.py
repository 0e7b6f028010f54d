"""Small copies of runs, and runs that are merged from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from placecode import cli, experiments
from placecode.errors import BadInput
from placecode.execution import local
from placecode.experiments import Study
from placecode.runs.merge import MOVEMENT, merge, slim
from placecode.runs.read import Run


def tiny(**given: Any) -> Study:
    options = {"sigmas": (0.1, 2.0), "seeds": (0, 1, 2), "epochs": 2, "evaluations": 2, "per_class": 20, "heldout": 9}
    options |= {"distance": 0.5, "width": 8, "heads": 2, "layers": 1, "batch": 16, "references": (0.0,)}
    return experiments.lookup("lst-sigma").at("quick", **{**options, **given})


CUTS = ("0:2,3:5,6:8", "2:3,5:6,8:9")
"""Seeds 0 and 1 of both sigmas and of 2d-fixed, and seed 2."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return local.execute(tiny(), tmp_path_factory.mktemp("slim") / "whole", where=local.Where("cpu", stack=3))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pieces")
    for number, cut in enumerate(CUTS):
        local.execute(tiny(), folder / str(number), where=local.Where("cpu", stack=1), chosen=cut)
    return sorted(folder.iterdir())


def test_a_small_copy_has_all_tables_and_rounded_arrays(whole: Run, tmp_path: Path) -> None:
    copy = slim(whole.path, tmp_path / "copy")
    assert {path.name for path in copy.path.iterdir()} == {
        *("config.json", "environment.json", "members.parquet", "metrics.parquet", "analysis.parquet"),
        *("summary.json", "arrays.safetensors"),
    }
    for name in ("members", "metrics", "analysis"):
        pd.testing.assert_frame_equal(getattr(copy, name), getattr(whole, name))
    assert (copy.summary, copy.config) == (whole.summary, whole.config)
    full, half = (load_file(run.path / "arrays.safetensors") for run in (whole, copy))
    assert full.keys() == half.keys()
    for name, array in half.items():
        assert array.dtype == np.float16
        assert array.astype(float) == pytest.approx(full[name].astype(float), rel=1e-3, abs=1e-7)
    assert copy.environment == {**whole.environment, "slimmed": "no weights; arrays in float16"}
    with pytest.raises(BadInput, match="its weights were not kept"):
        copy.load(0)


def test_arrays_of_some_seeds_can_be_kept_alone(whole: Run, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    assert cli.main(["slim", str(whole.path), "--out", str(out), "--seeds", "1"]) == 0
    copy = Run(out)
    assert copy.environment["slimmed"] == "no weights; arrays in float16, of seed 1 alone"
    pd.testing.assert_frame_equal(copy.metrics, whole.metrics)
    kept = {int(name.split("/")[1]) for name in load_file(out / "arrays.safetensors")}
    assert kept == set(whole.members.loc[whole.members["seed"] == 1, "member"])
    with pytest.raises(BadInput, match="seeds must be seeds of the run's members") as error:
        slim(whole.path, tmp_path / "other", seeds=[1, 9])
    assert (error.value.name, error.value.given) == ("seeds", [9]) and not (tmp_path / "other").exists()


def test_the_command_says_how_large_it_is(whole: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "copy"
    assert cli.main(["slim", str(whole.path), "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 0.")
    assert cli.main(["slim", str(whole.path), "--out", str(out)]) == 2  # it is there already
    assert cli.main(["slim", str(whole.path), "--out", str(whole.path), "--force"]) == 2
    assert whole.finished


def test_bad_input_leaves_nothing(whole: Run, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        slim(tmp_path / "nowhere", tmp_path / "copy")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.json").write_text((whole.path / "config.json").read_text())
    with pytest.raises(BadInput, match="not finished"):
        slim(tmp_path / "begun", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def measured(run: Run, names: tuple[str, ...] | None = None) -> pd.Series:
    rows = run.analysis if names is None else run.analysis[run.analysis["analysis"].isin(names)]
    return rows.set_index(["member", "step", "block", "analysis", "target"])["value"].sort_index()


def test_small_pieces_merge_to_what_full_ones_give(pieces: list[Path], tmp_path: Path) -> None:
    """How far PEs moved is kept as it was; what takes other members is computed from all that are there now."""
    full = merge(pieces, tmp_path / "full", compare=tiny().compare)
    small = [slim(path, tmp_path / f"small-{path.name}").path for path in pieces]
    merged = merge(small, tmp_path / "merged", compare=tiny().compare)
    assert measured(merged, MOVEMENT).equals(measured(full, MOVEMENT))
    one, two = measured(merged), measured(full)
    assert one.index.equals(two.index)
    np.testing.assert_allclose(one.to_numpy(), two.to_numpy(), atol=2e-3)
    agreement = measured(merged, ("agreement",))
    assert len(agreement) == 9 and agreement.notna().all()  # with the seeds of the other piece
    assert measured(Run(small[1]), ("agreement",)).isna().all()
    assert "slimmed" in merged.environment and not (merged.path / "weights.safetensors").exists()


def test_full_and_small_pieces_have_no_weights_together(pieces: list[Path], tmp_path: Path) -> None:
    small = slim(pieces[1], tmp_path / "small").path
    merged = merge([pieces[0], small], tmp_path / "merged", compare=tiny().compare)
    assert "slimmed" in merged.environment
    with pytest.raises(BadInput, match="its weights were not kept"):
        merged.load(0)


def test_how_each_member_ended_is_in_the_table(tmp_path: Path) -> None:
    study = tiny(sigmas=(0.2,), seeds=(0, 1), references=(), epochs=60, learning_rate=0.0, cooldown=0.0)
    run = local.execute(study, tmp_path / "settled", where=local.Where("cpu"))
    assert run.members["settled_epoch"].tolist() == [
        26,
        26,
    ]  # the second look: epochs have 4 steps, and 52 are 13 epochs
    assert run.members["rested_epoch"].tolist() == [-1, -1] and run.members["diverged_by"].tolist() == ["", ""]
    assert run.metrics["step"].max() == 60 * 4
    wild = tiny(sigmas=(0.2,), seeds=(0, 1), references=(), learning_rate=1e30, optimizer="sgd", cooldown=0.0)
    run = local.execute(wild, tmp_path / "wild", where=local.Where("cpu"))
    assert (run.members["state"] == "diverged").all()
    assert set(run.members["diverged_by"]) <= {"loss", "gradient", "parameters"}
