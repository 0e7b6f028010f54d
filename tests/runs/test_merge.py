"""Runs that are merged from pieces of an experiment, and small copies of runs."""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.folders import contents, same_files
from helpers.refusal import refused
from helpers.training.tiny_runs import RESULTS, tiny
from safetensors.numpy import load_file

from placecode import cli
from placecode.errors import BadInput
from placecode.execution import local
from placecode.execution.settings import ExecutionSettings
from placecode.experiments import Experiment
from placecode.files import write_table, write_tensors
from placecode.runs import write as folders
from placecode.runs.merge import FIT_FILES, MOVEMENT, merge, slim
from placecode.runs.read import Run

TWO_STACKS = ExecutionSettings("cpu", stack=2)
KEYS = ["member", "step", "block", "analysis", "target"]


def run_pieces(experiment: Experiment, folder: Path, *cuts: str) -> list[Path]:
    """Run members of an experiment in several runs."""
    return [local.execute(experiment, folder / cut[0], execution=TWO_STACKS, member_ranges=cut).path for cut in cuts]


@pytest.fixture(scope="module")
def pieces(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The members of the whole run in two runs."""
    return run_pieces(experiment, tmp_path_factory.mktemp("pieces"), "0:2", "2:4")


def analyses(run: Run, names: tuple[str, ...] | None = None) -> pd.Series:
    rows = run.analysis if names is None else run.analysis[run.analysis["analysis"].isin(names)]
    return rows.set_index(KEYS)["value"].sort_index()


def test_merged_pieces_have_the_bytes_of_the_whole_run(run: Run, pieces: list[Path], tmp_path: Path) -> None:
    merged = merge(pieces[::-1], tmp_path / "merged")
    assert same_files(merged.path, run.path, *RESULTS)
    assert merged.config == run.config and merged.finished
    assert set(merged.environment["pieces"]) == {f"{i}, {path.name}" for i, path in enumerate(pieces[::-1])}
    assert torch.equal(merged.load(3).flat, run.load(3).flat) and not (merged.path / "checkpoints").exists()


def analysis_of(**values: float) -> pd.DataFrame:
    """Return a table of analyses with these names, all of member 0."""
    rows = [[0, 8, -1, name, "", value] for name, value in values.items()]
    return pd.DataFrame(rows, columns=[*KEYS, "value"])


def test_rows_replace_those_of_the_same_name_in_their_place() -> None:
    nan = float("nan")
    before, rows = analysis_of(a=1.0, b=2.0, c=nan), analysis_of(d=9.0, b=nan, c=9.0).to_dict("records")
    pd.testing.assert_frame_equal(folders.with_rows(before, rows), analysis_of(a=1.0, b=nan, c=9.0, d=9.0))
    pd.testing.assert_frame_equal(before, analysis_of(a=1.0, b=2.0, c=nan))
    pd.testing.assert_frame_equal(folders.with_rows(before, []), before)
    assert folders.with_rows(before[:0], rows)["value"].tolist()[0] == 9.0


@pytest.mark.parametrize("change", [{"member": 1}, {"step": 0}, {"block": 0}, {"analysis": "A"}, {"target": "grid"}])
def test_rows_that_differ_in_a_key_are_added(change: dict[str, Any]) -> None:
    (row,) = analysis_of(a=9.0).to_dict("records")
    assert folders.with_rows(analysis_of(a=1.0), [{**row, **change}])["value"].tolist() == [1.0, 9.0]


def test_analyses_that_need_several_members_are_computed_again(tmp_path: Path) -> None:
    """Attention is compared with references, which only one piece has, and answers are compared between seeds."""
    experiment = tiny(references=(0.0,), epochs=1, evaluations=1)
    single = local.execute(experiment, tmp_path / "whole", execution=TWO_STACKS)
    pieces = run_pieces(experiment, tmp_path, "4:6", "1:4", "0:1")
    targets = [set(Run(path).analysis.query("analysis == 'attention_cosine'")["target"]) for path in pieces]
    assert targets == [{"ideal", "even", "2d-fixed"}, {"ideal", "even"}, {"ideal", "even"}]
    assert analyses(Run(pieces[2]), ("agreement",)).isna().all()
    merged = merge(pieces, tmp_path / "merged", compare=experiment.compare)
    expected, result = analyses(single), analyses(merged)
    # maps of single puzzles are not kept, so analyses that need those of two pieces are missing
    missing = expected.index.difference(result.index)
    assert {(key[3], key[4]) for key in missing} == {("attention_cosine_each", "2d-fixed")}
    assert {key[0] for key in missing} == {0, 1, 2, 3}
    pd.testing.assert_series_equal(result, expected.drop(missing), rtol=0, atol=1e-5)  # rounding differs between stacks
    assert analyses(merged, ("agreement",)).notna().all()
    cosines = result.xs(("attention_cosine", "2d-fixed"), level=("analysis", "target"))
    assert set(cosines.index.get_level_values("member")) == set(range(6))
    summary = {(row["sigma"], row["metric"], row["condition"]): row["mean"] for row in merged.summary}
    assert summary[0.1, "attention_cosine", "2d-fixed"] == pytest.approx(cosines.loc[[0, 1], 4, -1].mean(), abs=1e-12)
    alone = merge(pieces, tmp_path / "alone")  # without the analyses of several members
    assert "2d-fixed" not in set(alone.analysis.query("analysis == 'attention_cosine' and member < 4")["target"])


def assert_rejected(text: str, paths: list[Path], out: Path, **options: Any) -> None:
    """Assert that merging fails with this text and changes no file."""
    before, existed = [contents(path) for path in paths], out.exists()
    with pytest.raises(BadInput, match=text):
        merge(paths, out, **options)
    assert [contents(path) for path in paths] == before and out.exists() == existed


def test_runs_that_cannot_be_merged(run: Run, pieces: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert_rejected("at least 2 runs; got 1", pieces[:1], out)
    assert_rejected("more than one holds member 0", [pieces[0], pieces[0]], out)
    assert_rejected("more than one holds member 0", [pieces[0], run.path], out)
    assert_rejected("must be a run folder", [pieces[0], tmp_path / "none"], out)
    changed = Path(shutil.copytree(pieces[1], tmp_path / "other"))
    config = (changed / "config.json").read_text()
    (changed / "config.json").write_text(config.replace('"learning_rate": 0.0023', '"learning_rate": 0.5'))
    assert_rejected("learning_rate was 0.0023, now 0.5", [pieces[0], changed], out)
    (changed / "summary.json").unlink()
    assert_rejected("the run is not finished", [pieces[0], changed], out)


@pytest.mark.parametrize("name", ["metrics.parquet", "arrays.safetensors", "weights.safetensors", "environment.json"])
def test_a_damaged_piece_leaves_no_merged_run(pieces: list[Path], tmp_path: Path, name: str) -> None:
    damaged = Path(shutil.copytree(pieces[1], tmp_path / "damaged"))
    (damaged / name).write_bytes(b"{}x")
    assert_rejected(str(damaged / name), [pieces[0], damaged], tmp_path / "out")


@pytest.mark.parametrize("force", [False, True])
def test_a_piece_cannot_be_the_output(pieces: list[Path], tmp_path: Path, force: bool) -> None:
    """With --force, clearing the output first would lose the piece."""
    first = Path(shutil.copytree(pieces[0], tmp_path / "first"))
    (tmp_path / "link").symlink_to(first)
    for out in (first, tmp_path / "link"):
        assert_rejected("must be none of the merged runs", [first, pieces[1]], out, force=force)


def test_an_existing_run_is_overwritten_with_force_only(run: Run, pieces: list[Path], copy: Path) -> None:
    (copy / "summary.json").write_text("{}")
    assert_rejected("it holds a finished run of lst-sigma", pieces, copy)
    assert merge(pieces, copy, force=True).summary == run.summary


def test_a_merge_that_fails_leaves_nothing(pieces: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "write_table", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        merge(pieces, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


BY_CONDITION = "; metrics of single conditions at the first and last evaluation alone"


def test_a_small_copy_has_the_summary_fewer_metrics_and_rounded_arrays(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    command = ["slim", str(run.path), "--out", str(out)]
    assert (cli.main(command), cli.main(command)) == (0, 2)  # it exists already
    copy = Run(out)
    files = {*RESULTS, "config.json", "environment.json"} - {"weights.safetensors"}
    assert {path.name for path in out.iterdir()} == files
    for name in ("members", "analysis"):
        pd.testing.assert_frame_equal(getattr(copy, name), getattr(run, name))
    ends = run.metrics["step"].isin([run.metrics["step"].min(), run.metrics["step"].max()])
    expected = run.metrics[ends | (run.metrics["condition"] == "all")].reset_index(drop=True)
    pd.testing.assert_frame_equal(copy.metrics, expected)
    assert len(expected) < len(run.metrics) and expected["step"].nunique() == run.metrics["step"].nunique() > 2
    assert [[*row.items()] for row in copy.summary] == [[*row.items()] for row in run.summary]  # and in this order
    assert (out / "summary.json").stat().st_size < (run.path / "summary.json").stat().st_size
    assert copy.config == run.config
    full, half = (load_file(path / "arrays.safetensors") for path in (run.path, out))
    assert full.keys() == half.keys()
    for name, array in half.items():
        assert array.dtype == np.float16
        assert array.astype(float) == pytest.approx(full[name].astype(float), rel=1e-3, abs=1e-7)
    assert copy.environment == {**run.environment, "slimmed": f"no weights; arrays in float16{BY_CONDITION}"}
    with pytest.raises(BadInput, match="its weights were not kept"):
        copy.load(0)


def test_a_copy_with_the_arrays_of_some_seeds_and_kinds(run: Run, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert cli.main(["slim", str(run.path), "--out", str(first), "--seeds", "1"]) == 0
    arrays = set(load_file(first / "arrays.safetensors"))
    assert {int(name.split("/")[1]) for name in arrays} == set(run.members.loc[run.members["seed"] == 1, "member"])
    assert cli.main(["slim", str(first), "--out", str(second), "--arrays", "pe_end,attention_end"]) == 0
    expected = {name for name in arrays if name.startswith(("pe_end/", "attention_end/"))}
    assert set(load_file(second / "arrays.safetensors")) == expected and expected
    before = f"no weights; arrays in float16, of seed 1 alone{BY_CONDITION}"
    assert Run(first).environment["slimmed"] == before
    assert Run(second).environment["slimmed"] == f"{before}; pe_end, attention_end alone"


def test_a_copy_with_the_arrays_of_members_with_some_values(run: Run, tmp_path: Path) -> None:
    selectors = ["attention_end:seed=1", "attention_end:sigma=2", "pe_end", "pe_start:encoding=learned"]
    of = run.members.set_index("member")
    attention = {f"attention_end/{i}" for i in of.index[(of["seed"] == 1) | (of["sigma"] == 2)]}
    pes = {f"pe_{when}/{i}" for i in of.index for when in ("start", "end")}
    assert 0 < len(attention) < len(of)
    copy = slim(run.path, tmp_path / "copy", arrays=selectors)
    assert set(load_file(copy.path / "arrays.safetensors")) == attention | pes
    assert f"; {', '.join(selectors)} alone" in copy.environment["slimmed"]


def test_former_names_select_arrays(run: Run, tmp_path: Path) -> None:
    first, second = (
        slim(run.path, tmp_path / column, arrays=[f"pe_end:{column}=1"]).path for column in ("gain", "output_gain")
    )
    assert same_files(first, second, "arrays.safetensors")


def test_a_copy_of_a_copy_leaves_out_nothing_more(run: Run, tmp_path: Path) -> None:
    first = slim(run.path, tmp_path / "first")
    second = slim(first.path, tmp_path / "second")
    assert same_files(first.path, second.path, *(path.name for path in first.path.iterdir()))


def test_a_copy_of_a_run_without_arrays(copy: Path, tmp_path: Path) -> None:
    (copy / "arrays.safetensors").unlink()
    small = slim(copy, tmp_path / "small")
    assert not (small.path / "arrays.safetensors").exists() and not small.has_array("pe_end/0")
    assert small.environment["slimmed"] == f"no weights; no arrays{BY_CONDITION}"


def test_metrics_of_conditions_are_kept_where_none_is_over_all_examples(copy: Path, tmp_path: Path) -> None:
    """They are also kept at the first and last evaluation of each member; a diverged member has fewer evaluations."""
    metrics = Run(copy).metrics
    first, middle, last = metrics["step"].unique()
    shorter = metrics[(metrics["member"] != 1) | (metrics["step"] != last)]
    written = shorter[(shorter["split"] != "test") | (shorter["condition"] != "all")].reset_index(drop=True)
    write_table(copy / "metrics.parquet", written)
    result = slim(copy, tmp_path / "small").metrics
    lost = (written["split"] != "test") & (written["condition"] != "all")
    lost &= (written["step"] == middle) & (written["member"] != 1)
    pd.testing.assert_frame_equal(result, written[~lost].reset_index(drop=True))
    assert lost.sum() > 0 and first < middle < last


def test_a_copy_of_a_fit_has_all_that_its_map_needs(tmp_path: Path) -> None:
    fit = Run(shutil.copytree(Path(__file__).parents[2] / "results" / "fits" / "synergy", tmp_path / "fit"))
    write_tensors(fit.path / "arrays.safetensors", {**fit.tensors("arrays.safetensors"), "pe_start/0": torch.ones(2)})
    copy = slim(fit.path, tmp_path / "copy")
    assert same_files(copy.path, fit.path, *FIT_FILES)
    full, copied = (load_file(run.path / "arrays.safetensors") for run in (fit, copy))
    assert set(copied) == {name for name in full if "_end/" in name}
    assert all(np.array_equal(values, full[name]) and values.dtype == np.float32 for name, values in copied.items())
    assert copy.environment["slimmed"] == "no weights; no arrays from before training"
    summary, copied_summary = (json.loads((run.path / "summary.json").read_text()) for run in (fit, copy))
    assert {**summary, "rows": fit.summary} == {**copied_summary, "rows": copy.summary} and "verdict" in summary


UNKNOWN = ("pe", "pe_end:seed=7", "pe_end:age=1", "pe_end:seed")


@pytest.mark.parametrize(
    ("choice", "name", "unknown"),
    [
        ({"seeds": [1, 9]}, "seeds", [9]),
        *(({"arrays": ["pe_end", text]}, "arrays", text) for text in UNKNOWN),
    ],
)
def test_unknown_seeds_and_arrays_are_refused(run: Run, tmp_path: Path, choice: Any, name: str, unknown: Any) -> None:
    error = refused(slim, run.path, tmp_path / "copy", **choice)
    assert (error.name, error.given) == (name, unknown) and not (tmp_path / "copy").exists()


def test_runs_that_cannot_be_copied(run: Run, copy: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="it is the same"):
        slim(run.path, run.path, force=True)
    assert run.finished
    with pytest.raises(BadInput, match="must be a run folder"):
        slim(tmp_path / "nowhere", tmp_path / "small")
    (copy / "summary.json").unlink()
    with pytest.raises(BadInput, match="not finished"):
        slim(copy, tmp_path / "small")
    assert not (tmp_path / "small").exists()


def test_small_copies_merge_to_the_same_analyses(experiment: Experiment, tmp_path: Path) -> None:
    """The distances that PEs moved are kept; analyses of several members are computed from the rounded arrays."""
    pieces = run_pieces(experiment, tmp_path, "0:1,2:3", "1:2,3:4")
    full = merge(pieces, tmp_path / "full", compare=experiment.compare)
    small = [slim(path, tmp_path / f"small-{path.name}").path for path in pieces]
    merged = merge(small, tmp_path / "merged", compare=experiment.compare)
    assert analyses(merged, MOVEMENT).equals(analyses(full, MOVEMENT))
    assert analyses(merged).index.equals(analyses(full).index)
    np.testing.assert_allclose(analyses(merged), analyses(full), atol=2e-3)
    assert analyses(merged, ("agreement",)).notna().all()  # with the seeds of the other piece
    assert analyses(Run(small[1]), ("agreement",)).isna().all()
    for run in (merged, merge([pieces[0], small[1]], tmp_path / "mixed", compare=experiment.compare)):
        assert "slimmed" in run.environment and not (run.path / "weights.safetensors").exists()
