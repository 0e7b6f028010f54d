"""The run folder: every file says what the design says, numbers agree with each other, and nothing is lost or mixed."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import placecode
from placecode import cli, experiments
from placecode.errors import BadInput
from placecode.execution import local
from placecode.experiments import Study
from placecode.models.member import Member
from placecode.runs import read as runs
from placecode.runs import write as folders
from placecode.runs.merge import merge
from placecode.runs.read import End, Run, member_table, numbers_in, ranges
from placecode.runs.summary import summarize
from placecode.runs.write import Folder
from placecode.tasks.base import Task

RESULTS = ("members.parquet", "metrics.parquet", "analysis.parquet", "summary.json", *runs.TENSORS)
"""The files that hold numbers: the same study gives the same bytes."""


def tiny(**given: Any) -> Study:
    """lst-sigma in a second: 4 members of 1 small block on 54 puzzles."""
    options = {"sigmas": (0.1, 2.0), "seeds": (0, 1), "epochs": 2, "evaluations": 2, "per_class": 20, "heldout": 9}
    options |= {"distance": 0.5, "width": 8, "heads": 2, "layers": 1, "batch": 16, "references": ()}
    return experiments.lookup("lst-sigma").at("quick", **{**options, **given})


@pytest.fixture(scope="module")
def study() -> Study:
    return tiny()


@pytest.fixture(scope="module")
def task(study: Study) -> Task:
    return study.task()


@pytest.fixture(scope="module")
def run(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run, which no test changes. Two stacks of two members."""
    return local.execute(study, tmp_path_factory.mktemp("runs") / "whole", where=local.Where("cpu", stack=2))


@pytest.fixture(scope="module")
def pieces(study: Study, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same members in two runs."""
    folder = tmp_path_factory.mktemp("pieces")
    where = local.Where("cpu", stack=2)
    for cut in ("0:2", "2:4"):
        local.execute(study, folder / cut.replace(":", "-"), where=where, chosen=cut)
    return sorted(folder.iterdir())


@pytest.fixture
def copy(run: Run, tmp_path: Path) -> Path:
    """A copy of the finished run, to be damaged."""
    return Path(shutil.copytree(run.path, tmp_path / "copy"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# What is in the folder


def test_all_files_of_the_design_are_there_and_nothing_temporary(run: Run) -> None:
    own = {"config.json", "environment.json", "log.txt", *RESULTS}
    assert {path.name for path in run.path.iterdir()} == own
    assert own <= set(runs.FILES)


def test_config_holds_every_field_and_what_loading_a_member_needs(run: Run, study: Study, task: Task) -> None:
    config = json.loads((run.path / "config.json").read_text())
    assert config["format"] == 3
    assert (config["study"], config["scale"], config["members"], config["total"]) == ("lst-sigma", "quick", "0:4", 4)
    assert (config["device"], config["precision"], config["stack"]) == ("cpu", "high", 2)
    fields = {name: list(v) if isinstance(v := getattr(study, name), tuple) else v for name in study.fields()}
    assert config["fields"] == fields
    assert {"sigmas", "log_softmax", "rest", "learning_rate"} <= fields.keys()
    assert config["shape"]["positions"] == task.positions.tolist()
    assert config["task"]["sha256"] == task.describe()["sha256"]
    assert type(study)(**{k: tuple(v) if isinstance(v, list) else v for k, v in config["fields"].items()}) == study


def test_environment_says_versions_device_threads_precision_and_stacks(run: Run) -> None:
    found = run.environment
    assert found["packages"]["torch"] == torch.__version__
    assert found["packages"]["numpy"] == np.__version__
    assert found["placecode"] == placecode.version.VERSION
    assert (found["device"], found["precision"], found["stack"]) == ("cpu", "high", 2)
    assert found["threads per stack"] * found["stacks at once"] == torch.get_num_threads()
    assert {"python", "system", "git", "cores"} <= set(found)


def test_members_table_has_a_row_for_each_spec_and_its_state(run: Run, study: Study) -> None:
    assert run.members["member"].tolist() == [0, 1, 2, 3]
    assert run.members["state"].tolist() == ["done"] * 4
    assert run.members["diverged_at"].tolist() == [-1] * 4
    assert [run.member(i) for i in range(4)] == study.members()
    assert run.members["pe_weight_decay"].dtype == np.float64  # pieces of a study have the same columns


def test_metrics_table_has_every_split_condition_and_evaluation(run: Run, study: Study, task: Task) -> None:
    table = run.metrics
    assert list(table.columns) == ["member", "step", "split", "condition", "metric", "value"]
    assert set(table["step"]) == {0, *study.evaluate_at(task), 8}
    assert set(table["split"]) == {"train", "test", "ood"}
    assert set(table["condition"]) == {"all", "Binary", "Ternary", "Quaternary"}
    assert set(table["metric"]) == {"accuracy", "loss"}
    whole = len(set(table["step"])) * 4 * 3 * 4 * 2
    assert len(table) == whole
    assert not table.duplicated(["member", "step", "split", "condition", "metric"]).any()
    assert table["value"].notna().all()
    assert table.sort_values(["member", "step"], kind="stable").equals(table)


def test_analysis_table_has_before_and_after_for_each_block_and_for_all(run: Run) -> None:
    table = run.analysis
    assert list(table.columns) == ["member", "step", "block", "analysis", "target", "value"]
    assert set(table["step"]) == {0, 8}
    assert set(table["block"]) == {-2, -1, 0}
    assert not table.duplicated(["member", "step", "block", "analysis", "target"]).any()
    aligned = table[table["target"] == "2d-fixed"]
    each = {"procrustes", "procrustes_raw", "rsa", "cka"}
    for block in (-2, -1, 0):
        of_block = aligned[aligned["block"] == block]
        assert set(of_block["analysis"]) == (each if block != -1 else {*each, "procrustes_z", "procrustes_p"})
        assert len(of_block) == 4 * 2 * len(set(of_block["analysis"]))
    table = aligned[aligned["analysis"] != "procrustes_p"]
    before, after = (table[table["step"] == step].reset_index()["value"] for step in (0, 8))
    assert (before != after).all()  # training moves every PE


def test_summary_is_what_the_metrics_give_when_computed_by_hand(run: Run) -> None:
    rows = json.loads((run.path / "summary.json").read_text())["rows"]
    measured = [row for row in rows if row["split"] != "analysis"]
    assert len(measured) == 2 * 3 * 4 * 2
    sigma_of = dict(zip(run.members["member"], run.members["sigma"], strict=True))
    final = run.metrics[run.metrics["step"] == 8].to_dict("records")
    for row in measured:
        key = (row["split"], row["condition"], row["metric"])
        values = [
            each["value"]
            for each in final
            if (each["split"], each["condition"], each["metric"]) == key and sigma_of[each["member"]] == row["sigma"]
        ]
        assert row["n"] == len(values) == 2
        assert row["mean"] == pytest.approx(statistics.mean(values), abs=1e-12)
        assert row["std"] == pytest.approx(statistics.stdev(values), abs=1e-12)  # n - 1 below the fraction
        assert row["diverged"] == 0
        assert row["encoding"] == "learned"
    assert json.loads((run.path / "summary.json").read_text())["step"] == 8


def test_summary_has_the_analyses_of_the_end_with_all_blocks_together(run: Run) -> None:
    """With their target as the condition, or "all" where they have none."""
    analysed = [row for row in run.summary if row["split"] == "analysis"]
    rows = {(row["sigma"], row["metric"], row["condition"]): row for row in analysed}
    assert len(rows) == len(analysed)  # no two targets under one name
    table = run.analysis[(run.analysis["step"] == 8) & (run.analysis["block"] == -1)]
    pairs = set(zip(table["analysis"], table["target"], strict=True))
    assert {("rsa", "2d-fixed"), ("rsa", "grid"), ("norm", ""), ("probe", "row"), ("agreement", "other seeds")} <= pairs
    assert set(rows) == {(sigma, name, target or "all") for sigma in (0.1, 2.0) for name, target in pairs}
    for name, target in (("rsa", "2d-fixed"), ("rsa", "grid"), ("norm", "")):
        chosen = table[(table["analysis"] == name) & (table["target"] == target) & table["member"].isin([0, 1])]
        assert len(chosen) == 2
        value = rows[0.1, name, target or "all"]
        assert value["mean"] == pytest.approx(chosen["value"].mean(), abs=1e-12)


def test_arrays_are_those_of_the_members(run: Run, study: Study, task: Task) -> None:
    model = run.load(2)
    assert np.array_equal(run.array("pe_end/2"), model.encoding.vectors()[0].detach().numpy())
    fresh = placecode.training.trainer.stack_for([study.members()[2]], task)
    assert np.array_equal(run.array("pe_start/2"), fresh.encoding.vectors()[0].detach().numpy())
    assert run.array("pe_start/2").shape == (1, 16, 8)
    assert abs(run.array("pe_start/2").std() - 2.0) < 0.3
    for moment, stack in (("start", fresh), ("end", model)):
        maps = run.arrays(f"attention_{moment}")
        assert list(maps) == [0, 1, 2, 3]
        assert maps[2].shape == (1, 2, 16, 16)  # (l, h, n, n)
        assert np.allclose(maps[2].sum(-1), 1, atol=1e-5)
        seen = stack.capture(task.splits["ood"].inputs, "attention.0")["attention.0"]
        assert np.abs(maps[2][0] - seen[0].mean(0).numpy()).max() < 1e-6
        shares = stack(task.splits["ood"].inputs).softmax(-1).detach().numpy()
        assert np.abs(run.array(f"probabilities_{moment}/2") - shares).max() < 1e-6
        assert not run.arrays(f"attention_each_{moment}")  # too large to keep
    assert set(run.arrays("pe_end")) == {0, 1, 2, 3}
    assert run.arrays("no such kind") == {}
    assert {kind: run.has_array(f"{kind}/2") for kind in ("pe_end", "attention_start", "attention_each_end")} == {
        **{"pe_end": True, "attention_start": True, "attention_each_end": False}
    }
    assert not run.has_array("pe_end/4")
    assert not run.has_array("pe_end")


def test_log_tells_start_evaluations_and_end(run: Run) -> None:
    lines = (run.path / "log.txt").read_text().splitlines()
    assert "started: lst-sigma, 4 members" in lines[0]
    assert "stack 2/2, step 8/8: loss" in lines[-2]
    assert lines[-1].endswith("finished")
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in lines)


@pytest.mark.parametrize("number", [0, 3])
def test_a_member_is_loaded_in_two_lines_and_answers_as_recorded(run: Run, task: Task, number: int) -> None:
    model = Run(run.path).load(number)
    answers = model(task.splits["ood"].inputs).argmax(-1)
    right = (answers == task.splits["ood"].targets).double().mean().item()
    table = run.metrics.query("split == 'ood' and condition == 'all' and metric == 'accuracy' and step == 8")
    assert right == table.set_index("member").loc[number, "value"]  # exactly
    loss = torch.nn.functional.cross_entropy(model(task.splits["ood"].inputs), task.splits["ood"].targets).item()
    table = run.metrics.query("split == 'ood' and condition == 'all' and metric == 'loss' and step == 8")
    assert loss == pytest.approx(table.set_index("member").loc[number, "value"], abs=1e-6)


def test_another_members_weights_would_not_have_done(run: Run, task: Task) -> None:
    outputs = [run.load(number)(task.splits["ood"].inputs) for number in range(4)]
    assert all((outputs[0] - other).abs().max() > 1e-3 for other in outputs[1:])


@pytest.mark.parametrize("number", [-1, 4])
def test_a_member_that_is_not_there_is_refused(run: Run, number: int) -> None:
    with pytest.raises(BadInput) as error:
        run.load(number)
    assert str(error.value) == f"member must be a member of {run.path}, 0 to 3; got {number}."


# Summaries of other runs than this


def metrics_of(values: dict[int, float]) -> pd.DataFrame:
    rows = [{"member": m, "step": 9, "split": "ood", "condition": "all"} for m in values]
    table = pd.DataFrame(rows).assign(metric="accuracy", value=list(values.values()))
    return pd.concat([table.assign(step=0, value=0.25), table], ignore_index=True)


NO_ANALYSIS = pd.DataFrame([], columns=["member", "step", "block", "analysis", "target", "value"])


def test_members_that_diverged_are_counted_and_left_out() -> None:
    members = [Member(sigma=sigma, seed=seed) for sigma in (0.1, 2.0) for seed in range(3)]
    table = member_table(range(6), members, [End(at) for at in (-1, 7, -1, 2, 2, 3)])
    assert table["state"].tolist() == ["done", "diverged", "done", *["diverged"] * 3]
    values = {0: 0.5, 1: float("nan"), 2: 0.9, 3: 0.1, 4: float("nan"), 5: 0.3}
    small, large = summarize("s", table, metrics_of(values), NO_ANALYSIS)["rows"]
    assert (small["sigma"], small["n"], small["diverged"]) == (0.1, 2, 1)
    assert small["mean"] == pytest.approx(0.7)
    assert small["std"] == pytest.approx(statistics.stdev([0.5, 0.9]))
    assert (large["sigma"], large["n"], large["diverged"], large["mean"], large["std"]) == (2.0, 0, 3, None, None)


def test_one_seed_has_a_mean_and_no_standard_deviation() -> None:
    (row,) = summarize("s", member_table([0], [Member()]), metrics_of({0: 0.5}), NO_ANALYSIS)["rows"]
    assert (row["mean"], row["std"], row["n"]) == (0.5, None, 1)


def test_sigma_is_null_for_encodings_that_do_not_use_it_and_varied_fields_have_columns() -> None:
    members = [Member("sinusoid", sigma=0.2), Member("learned", sigma=0.2), Member("learned", sigma=0.2, width=32)]
    table = member_table(range(3), members)
    rows = summarize("s", table, metrics_of({0: 0.1, 1: 0.2, 2: 0.3}), NO_ANALYSIS)["rows"]
    assert [(row["encoding"], row["sigma"], row["width"], row["mean"]) for row in rows] == [
        ("sinusoid", None, 160, 0.1),
        ("learned", 0.2, 160, 0.2),
        ("learned", 0.2, 32, 0.3),
    ]
    keys = {"encoding", "sigma", "width", "split", "condition", "metric", "mean", "std", "n", "diverged"}
    assert set(rows[0]) == keys  # what does not vary has no column
    json.dumps(rows, allow_nan=False)


def test_options_of_encodings_tell_kinds_apart_too() -> None:
    members = [Member("sinusoid", options={"axes": axes}) for axes in (1, 2)]
    rows = summarize("s", member_table(range(2), members), metrics_of({0: 0.1, 1: 0.2}), NO_ANALYSIS)["rows"]
    assert [(row["axes"], row["mean"], row["n"]) for row in rows] == [(1, 0.1, 1), (2, 0.2, 1)]


def test_members_that_start_from_others_are_told_apart_by_the_sigma_of_these() -> None:
    """Rescaled to one sigma, they differ in nothing else but in where they come from."""
    origins = [Member(sigma=sigma, seed=seed) for sigma in (0.2, 2.0) for seed in (0, 1)]
    heirs = [Member(sigma=0.2, seed=i % 2, start="rescaled", origin=i, learn=False) for i in range(4)]
    table, values = member_table(range(8), [*origins, *heirs]), {i: i / 10 for i in range(8)}
    rows = summarize("s", table, metrics_of(values), NO_ANALYSIS)["rows"]
    assert [(row["start"], row["sigma"], row["origin_sigma"], row["n"], round(row["mean"], 9)) for row in rows] == [
        ("normal", 0.2, None, 2, 0.05),
        ("normal", 2.0, None, 2, 0.25),
        ("rescaled", 0.2, 0.2, 2, 0.45),
        ("rescaled", 0.2, 2.0, 2, 0.65),
    ]


def test_the_sigma_of_an_origin_has_no_column_where_it_says_nothing_more() -> None:
    own = [Member(sigma=0.2), Member(sigma=2.0)]
    heirs = [Member(sigma=sigma, start="taken", origin=i) for i, sigma in enumerate((0.2, 2.0))]
    for members in (own, [*own, *heirs]):
        table = member_table(range(len(members)), members)
        rows = summarize("s", table, metrics_of(dict.fromkeys(range(len(members)), 0.5)), NO_ANALYSIS)["rows"]
        assert len(rows) == len(members) and not any("origin_sigma" in row for row in rows)


def test_members_come_back_from_their_table(tmp_path: Path) -> None:
    members = [
        Member("learned", sigma=0.1, clip=1.0, pe_learning_rate=None, start="uniform", learn=False, gain=0.5),
        Member("learned", sigma=0.1, weight_decay=0.1, pe_weight_decay=0.0),
        Member("sinusoid", sigma=None, options={"axes": 2, "base": 100.0}, dropout=0.1, dropout_at_evaluation=True),
    ]
    member_table([3, 8, 9], members).to_parquet(tmp_path / "members.parquet")
    table = pd.read_parquet(tmp_path / "members.parquet")
    assert [runs.spec_of(row) for _, row in table.iterrows()] == members


def test_a_run_of_before_there_were_some_settings_is_read_with_their_defaults(
    copy: Path, run: Run, study: Study
) -> None:
    config = json.loads((copy / "config.json").read_text())
    del config["fields"]["output_gain"], config["fields"]["pe_weight_decay"]
    (copy / "config.json").write_text(json.dumps(config))
    run.members.drop(columns=["gain", "pe_weight_decay"]).to_parquet(copy / "members.parquet")
    older = Run(copy)
    assert experiments.study_of(older) == study and older.member(3) == run.member(3)
    assert torch.equal(older.load(3).flat, run.load(3).flat)


# Merging


def test_merged_pieces_are_the_whole_run_bit_for_bit(run: Run, pieces: list[Path], tmp_path: Path) -> None:
    merged = merge(pieces[::-1], tmp_path / "merged")
    for name in RESULTS:
        assert (merged.path / name).read_bytes() == (run.path / name).read_bytes(), name
    assert merged.config == run.config
    assert set(merged.environment["pieces"]) == {f"{i}, {path.name}" for i, path in enumerate(pieces[::-1])}
    assert merged.finished
    assert torch.equal(merged.load(3).flat, run.load(3).flat)
    assert not (merged.path / "checkpoints").exists()


def test_pieces_in_other_stacks_agree_to_rounding(run: Run, study: Study, task: Task, tmp_path: Path) -> None:
    for cut in ("0:1", "1:4"):
        local.execute(study, tmp_path / cut[0], where=local.Where("cpu", stack=2), chosen=cut)
    merged = merge([tmp_path / "0", tmp_path / "1"], tmp_path / "merged")
    inputs = task.splits["test"].inputs
    for number in range(4):
        assert (merged.load(number)(inputs) - run.load(number)(inputs)).abs().max() < 1e-5
    assert merged.metrics.drop(columns="value").equals(run.metrics.drop(columns="value"))


def test_a_piece_from_before_members_had_a_column_merges(run: Run, pieces: list[Path], tmp_path: Path) -> None:
    path = pieces[0] / "members.parquet"
    pd.read_parquet(path).drop(columns=["gain", "pe_weight_decay", "origin"]).to_parquet(path, index=False)
    merged = merge(pieces, tmp_path / "merged")
    pd.testing.assert_frame_equal(merged.members[list(run.members)], run.members)
    assert merged.summary == run.summary


def test_some_of_the_members_can_be_merged_and_say_which(pieces: list[Path], study: Study, tmp_path: Path) -> None:
    local.execute(study, tmp_path / "last", where=local.Where("cpu", stack=2), chosen="3:4")
    merged = merge([tmp_path / "last", pieces[0]], tmp_path / "merged")
    assert merged.config["members"] == "0:2,3:4"
    assert merged.members["member"].tolist() == [0, 1, 3]


def analysis_of(**values: float) -> pd.DataFrame:
    """A table with an analysis for each name, all of member 0."""
    spec = {"member": 0, "step": 8, "block": -1}
    rows = [{**spec, "analysis": name, "target": "", "value": value} for name, value in values.items()]
    return pd.DataFrame(rows, columns=list(NO_ANALYSIS.columns))


def test_rows_replace_those_of_the_same_name_in_their_place() -> None:
    before = analysis_of(a=1.0, b=2.0, c=float("nan"))
    rows = [{"member": 0, "step": 8, "block": -1, "analysis": name, "target": "", "value": 9.0} for name in "dbc"]
    rows[1]["value"] = float("nan")  # even where it could not be told any more
    after = folders.with_rows(before, rows)
    pd.testing.assert_frame_equal(after, analysis_of(a=1.0, b=float("nan"), c=9.0, d=9.0))
    assert before["value"].tolist()[:2] == [1.0, 2.0]
    pd.testing.assert_frame_equal(folders.with_rows(before, []), before)
    assert folders.with_rows(NO_ANALYSIS, rows)["value"].tolist()[0] == 9.0


@pytest.mark.parametrize("other", [{"member": 1}, {"step": 0}, {"block": 0}, {"analysis": "A"}, {"target": "grid"}])
def test_rows_of_another_name_stand_beside(other: dict[str, Any]) -> None:
    row = {"member": 0, "step": 8, "block": -1, "analysis": "a", "target": "", "value": 9.0}
    assert folders.with_rows(analysis_of(a=1.0), [{**row, **other}])["value"].tolist() == [1.0, 9.0]
    assert folders.with_rows(analysis_of(a=1.0), [row])["value"].tolist() == [9.0]


def test_merged_pieces_are_compared_as_the_whole_run_is(tmp_path: Path) -> None:
    """Attention is held against references that only one of the pieces has, and answers against seeds of another."""
    study, where = tiny(references=(0.0,), sigmas=(0.1, 2.0)), local.Where("cpu", stack=2)
    whole = local.execute(study, tmp_path / "whole", where=where)
    for cut in ("0:2", "2:4", "4:6"):
        local.execute(study, tmp_path / cut[0], where=where, chosen=cut)
    pieces = [tmp_path / name for name in "420"]
    targets = [set(Run(path).analysis.query("analysis == 'attention_cosine'")["target"]) for path in pieces]
    assert targets == [{"ideal", "even", "2d-fixed"}, {"ideal", "even"}, {"ideal", "even"}]
    merged = merge(pieces, tmp_path / "merged", compare=study.compare)
    keys = ["member", "step", "block", "analysis", "target"]
    wanted, found = (run.analysis.set_index(keys)["value"].sort_index() for run in (whole, merged))
    assert not found.index.duplicated().any()
    # maps of single puzzles are not kept, so what takes those of two pieces cannot be told
    lost = wanted.index.difference(found.index)
    assert {(key[3], key[4]) for key in lost} == {("attention_cosine_each", "2d-fixed")}
    assert {key[0] for key in lost} == {0, 1, 2, 3}
    pd.testing.assert_series_equal(found, wanted.drop(lost), check_exact=True)
    told = found.xs(("attention_cosine", "2d-fixed"), level=("analysis", "target"))
    assert set(told.index.get_level_values("member")) == set(range(6))

    summary = {(row["sigma"], row["metric"], row["condition"]): row["mean"] for row in merged.summary}
    assert summary[0.1, "attention_cosine", "2d-fixed"] == pytest.approx(told.loc[[0, 1], 8, -1].mean(), abs=1e-12)
    alone = merge(pieces, tmp_path / "alone")  # without a study to compare them
    assert "2d-fixed" not in set(alone.analysis.query("analysis == 'attention_cosine' and member < 4")["target"])


def test_seeds_of_several_pieces_agree_once_merged(tmp_path: Path) -> None:
    study, where = tiny(sigmas=(0.1,), seeds=(0, 1, 2), epochs=1), local.Where("cpu", stack=1)
    whole = local.execute(study, tmp_path / "whole", where=where)
    for cut in ("0:1", "1:3"):
        local.execute(study, tmp_path / cut[0], where=where, chosen=cut)
    pieces = [tmp_path / "0", tmp_path / "1"]
    agreement = [Run(path).analysis.query("analysis == 'agreement'")["value"].tolist() for path in pieces]
    assert np.isnan(agreement[0]).all()
    merged = merge(pieces, tmp_path / "merged", compare=study.compare)
    assert merged.analysis.query("analysis == 'agreement'")["value"].notna().all()
    for name in RESULTS:
        assert (merged.path / name).read_bytes() == (whole.path / name).read_bytes(), name


def refused(paths: list[Path], out: Path, **given: Any) -> str:
    before = {path: contents(path) for path in paths}
    there = out.exists()
    with pytest.raises(BadInput) as error:
        merge(paths, out, **given)
    assert {path: contents(path) for path in paths} == before
    assert out.exists() == there
    return str(error.value)


def test_merging_refuses_what_would_mix_results(run: Run, pieces: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert refused(pieces[:1], out) == "merge must be given at least 2 runs; got 1."
    twice = "merged runs must hold different members; more than one holds member 0."
    assert refused([pieces[0], pieces[0]], out) == twice
    assert refused([pieces[0], run.path], out) == twice
    other = local.execute(tiny(learning_rate=0.5), tmp_path / "other", where=local.Where("cpu", stack=2), chosen="2:4")
    assert refused([pieces[0], other.path], out) == (
        f"merged runs must be pieces of one study; {pieces[0]} and {other.path} differ: "
        "learning_rate was 0.0023, now 0.5."
    )
    unfinished = Path(shutil.copytree(pieces[1], tmp_path / "unfinished"))
    (unfinished / "summary.json").unlink()
    assert refused([pieces[0], unfinished], out) == (
        f"{unfinished} has no summary.json: the run is not finished; "
        f"continue it with 'placecode run ... --out {unfinished} --resume'."
    )
    assert refused([pieces[0], tmp_path / "none"], out) == (
        f"{tmp_path / 'none'} must be a run folder, one with a config.json; there is none."
    )


@pytest.mark.parametrize("name", ["metrics.parquet", "arrays.safetensors", "weights.safetensors", "environment.json"])
def test_a_damaged_piece_leaves_no_merged_run(pieces: list[Path], tmp_path: Path, name: str) -> None:
    damaged = Path(shutil.copytree(pieces[1], tmp_path / "damaged"))
    (damaged / name).write_bytes(b"{}x")
    assert str(damaged / name) in refused([pieces[0], damaged], tmp_path / "out")


@pytest.mark.parametrize("force", [False, True])
def test_a_piece_is_never_the_output(pieces: list[Path], tmp_path: Path, force: bool) -> None:
    """With --force, clearing the output first would lose the piece."""
    first = Path(shutil.copytree(pieces[0], tmp_path / "first"))
    sentence = f"the output folder {first} must be none of the merged runs; it is one of them."
    assert refused([first, pieces[1]], first, force=force) == sentence
    (tmp_path / "link").symlink_to(first)
    assert "must be none of the merged runs" in refused([first, pieces[1]], tmp_path / "link", force=force)


def test_merging_into_a_run_needs_force(run: Run, pieces: list[Path], copy: Path) -> None:
    (copy / "summary.json").write_text("{}")
    assert refused(pieces, copy) == (
        f"the output folder {copy} must be new; it holds a finished run of lst-sigma (--force overwrites it)."
    )
    assert merge(pieces, copy, force=True).summary == run.summary


def test_a_merge_that_fails_leaves_nothing(pieces: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "write_table", fail)
    with pytest.raises(OSError, match="No space left"):
        merge(pieces, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("numbers", "text"), [([0, 1, 2, 5], "0:3,5:6"), ([3], "3:4"), ([5, 4, 0], "0:1,4:6"), (list(range(9)), "0:9")]
)
def test_member_numbers_in_short(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text
    assert numbers_in(text, 9) == sorted(numbers)


@pytest.mark.parametrize(
    ("text", "numbers"), [(":", [0, 1, 2, 3]), (":2", [0, 1]), ("3:", [3]), ("0:2, 1:3", [0, 1, 2])]
)
def test_cuts_may_leave_out_an_end(text: str, numbers: list[int]) -> None:
    assert numbers_in(text, 4) == numbers


@pytest.mark.parametrize(
    "text", ["", "1", "a:b", "2:2", "3:1", "0:5", "4:", "-1:2", "0:2,", "0:1:2", "0.5:2", "0:2;3:4"]
)
def test_cuts_that_leave_no_member_or_go_beyond_are_refused(text: str) -> None:
    with pytest.raises(BadInput) as error:
        numbers_in(text, 4)
    assert str(error.value) == f"members must be a range I:J within 0:4, or several with commas; got {text!r}."


# Opening a folder


CONFIG = {"format": 1, "study": "s", "scale": "quick", "fields": {"epochs": 1, "sigmas": [0.1]}, "precision": "high"}
CONFIG |= {"device": "cpu", "stack": 2, "members": "0:1", "total": 1, "shape": {"tokens": 2}, "task": {"sha256": "a"}}


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    with Folder.open(path, CONFIG) as folder:
        (folder.checkpoints / "stack-000.json").write_text("{}")
    return path


def refusal(path: Path, config: dict[str, Any], **given: bool) -> str:
    before = contents(path) if path.is_dir() else None
    with pytest.raises(BadInput) as error, Folder.open(path, config, **given):
        pass
    assert (contents(path) if path.is_dir() else None) == before
    return str(error.value)


def test_a_new_an_empty_and_a_deep_folder_are_made(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "new", tmp_path / "a" / "b" / "c"):
        with Folder.open(path, CONFIG) as folder:
            assert json.loads((path / "config.json").read_text()) == CONFIG
            assert not folder.finished


def test_what_is_there_is_kept_or_dropped_only_as_asked(unfinished: Path) -> None:
    assert refusal(unfinished, CONFIG) == (
        f"the output folder {unfinished} must be new; it holds an unfinished run of s "
        "(--resume continues it, --force starts again)."
    )
    assert refusal(unfinished, {**CONFIG, "study": "t"}, resume=True) == (
        f"the output folder {unfinished} must hold no other study; it holds s, and this is t."
    )
    with Folder.open(unfinished, CONFIG, resume=True) as folder:
        assert (folder.checkpoints / "stack-000.json").exists()
    (unfinished / "notes.txt").write_text("the user's own")
    with Folder.open(unfinished, {**CONFIG, "study": "t"}, force=True) as folder:
        assert not (folder.checkpoints / "stack-000.json").exists()
    assert json.loads((unfinished / "config.json").read_text())["study"] == "t"
    assert (unfinished / "notes.txt").read_text() == "the user's own"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fields": {"epochs": 2, "sigmas": [0.1]}}, "epochs was 1, now 2"),
        ({"fields": {"epochs": 1, "sigmas": [0.1, 0.2]}}, "sigmas was [0.1], now [0.1, 0.2]"),
        ({"fields": {"epochs": 1}}, "sigmas was [0.1], now None"),
        ({"precision": "bf16", "stack": 3}, "precision was 'high', now 'bf16'; stack was 2, now 3"),
        ({"fields": {"epochs": 1, "sigmas": [0.5] * 1000}}, f"sigmas was [0.1], now [{'0.5, ' * 11}0.5, ..."),
        ({"task": {"sha256": "b" * 99}}, f"task.sha256 was 'a', now '{'b' * 99}'"),
        ({"task": {"sha256": "b"}}, "task.sha256 was 'a', now 'b'"),
        # what follows from a setting is not told again
        ({"members": "0:2", "total": 2, "task": {"sha256": "b"}}, "members was '0:1', now '0:2'"),
    ],
)
def test_resume_names_what_has_changed(unfinished: Path, change: dict[str, Any], said: str) -> None:
    sentence = f"--resume must use the settings of the run; changed: {said} (--force starts again)."
    assert refusal(unfinished, {**CONFIG, **change}, resume=True) == sentence


def test_a_folder_with_other_files_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("mine")
    for given in ({}, {"resume": True}, {"force": True}):
        assert refusal(tmp_path, CONFIG, **given) == (
            f"the output folder {tmp_path} must be new, empty or a run folder; it holds other files."
        )
    assert refusal(tmp_path / "a.txt", CONFIG) == f"the output {tmp_path / 'a.txt'} must be a folder; it is a file."
    assert "must be writable; it is not (Not a directory)" in refusal(tmp_path / "a.txt" / "b", CONFIG)


@pytest.mark.parametrize("text", ['{"model_type": "bert"}', "[1, 2]", "null", '{"format": 4}'])
def test_another_programs_config_is_never_overwritten(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    for given in ({}, {"resume": True}, {"force": True}):
        assert "must be a run folder of format 1 to 3; its config.json has the format" in refusal(
            tmp_path, CONFIG, **given
        )


@pytest.mark.parametrize(
    "leftovers", [["checkpoints/"], ["checkpoints/lock", ".config.json.0123abcd.part", "figures/"]]
)
def test_what_a_process_leaves_that_was_killed_before_it_began_is_no_hindrance(
    tmp_path: Path, leftovers: list[str]
) -> None:
    for name in leftovers:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    with Folder.open(tmp_path, CONFIG, resume=True):
        assert not list(tmp_path.glob(".*.part"))
        assert (tmp_path / "config.json").is_file()


def test_files_that_killed_processes_had_begun_are_removed_on_resume(unfinished: Path) -> None:
    begun = [
        unfinished / ".metrics.parquet.0123abcd.part",
        unfinished / "checkpoints" / ".stack-000.json.0123abcd.part",
    ]
    for path in begun:
        path.write_bytes(b"half")
    with Folder.open(unfinished, CONFIG, resume=True) as folder:
        assert not any(path.exists() for path in begun)
        assert (folder.checkpoints / "stack-000.json").exists()


@pytest.fixture
def holder(unfinished: Path) -> Iterator[int]:
    """Another process that holds the folder."""
    ready, say = os.pipe()
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with Folder.open(unfinished, CONFIG, resume=True):
                os.write(say, b"x")
                os.close(go)
                os.read(wait, 1)
            os._exit(0)
        finally:
            os._exit(1)
    os.read(ready, 1)
    yield child
    os.close(go)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for number in (ready, say, wait):
        os.close(number)


@pytest.mark.parametrize("given", [{"resume": True}, {"force": True}])
def test_a_folder_that_another_process_fills_is_left_alone(
    unfinished: Path, holder: int, given: dict[str, bool]
) -> None:
    assert refusal(unfinished, CONFIG, **given) == (
        f"the run folder {unfinished} must not be in use; another process is writing to it."
    )


def test_the_lock_ends_with_its_holder(unfinished: Path) -> None:
    for _ in range(2):
        with Folder.open(unfinished, CONFIG, resume=True):
            pass


def test_a_file_system_without_locks_is_used_without(unfinished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def fail(*arguments: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with Folder.open(unfinished, CONFIG, resume=True) as folder:
        assert folder.path == unfinished


def test_killed_while_clearing_it_is_still_a_run_folder(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--force, killed after any number of removals, can be given again; and what is left never passes for finished."""
    config = Run(copy).config
    (copy / "figures").mkdir()
    (copy / "figures" / "accuracy.png").touch()
    unlink = Path.unlink
    left = [0]

    def die(path: Path, missing_ok: bool = False) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise SystemExit
        unlink(path, missing_ok=missing_ok)

    for count in range(1, 8):
        left[0] = count
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", die)
            with pytest.raises(SystemExit), Folder.open(copy, config, force=True):
                pass
        assert not Run(copy).finished
    with Folder.open(copy, config, force=True):
        assert {path.name for path in copy.iterdir()} == {"config.json", "checkpoints", "figures"}


def test_a_finished_run_is_not_touched_by_resume_and_loses_forgotten_checkpoints(copy: Path) -> None:
    before = contents(copy)
    config = Run(copy).config
    (copy / "checkpoints").mkdir()
    (copy / "checkpoints" / "stack-000.json").write_text("{}")
    with Folder.open(copy, config, resume=True) as folder:
        assert folder.finished
    assert contents(copy) == before
    assert not (copy / "checkpoints").exists()


# Reading a folder


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        Run(tmp_path)
    assert str(error.value) == f"{tmp_path} must be a run folder, one with a config.json; there is none."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "is damaged: it is not JSON."),
        (b"\xff\xfe", "is damaged: it is not JSON."),
        (b'{"format": 1}', "is damaged: it has no study."),
        (b'{"format": 1, "study": "s", "scale": 3}', "is damaged: it has no scale."),
    ],
)
def test_a_damaged_config_is_refused(copy: Path, text: bytes, said: str) -> None:
    (copy / "config.json").write_bytes(text)
    with pytest.raises(BadInput) as error:
        Run(copy)
    assert str(error.value) == f"{copy / 'config.json'} {said}"


def test_each_damaged_file_is_named(copy: Path) -> None:
    def said(read: str) -> str:
        with pytest.raises(BadInput) as error:
            getattr(Run(copy), read) if not read.endswith(")") else eval(f"run.{read}", {"run": Run(copy)})
        return str(error.value)

    for name in ("metrics.parquet", "members.parquet", "analysis.parquet"):
        (copy / name).write_bytes((copy / name).read_bytes()[:-10])
        assert said(name.split(".")[0]) == f"{copy / name} is damaged: it is not a Parquet table."
    for name in ("summary.json", "environment.json"):
        (copy / name).write_text("{")
        assert said(name.split(".")[0]) == f"{copy / name} is damaged: it is not JSON."
    (copy / "arrays.safetensors").write_bytes(b"short")
    assert said("array('pe_end/0')").startswith(f"{copy / 'arrays.safetensors'} cannot be read: ")
    for name in ("metrics.parquet", "arrays.safetensors", "summary.json"):
        (copy / name).unlink()
    assert said("metrics") == runs.unfinished(copy, "metrics.parquet")
    assert said("arrays('pe_end')") == runs.unfinished(copy, "arrays.safetensors")
    assert said("has_array('pe_end/0')") == runs.unfinished(copy, "arrays.safetensors")


def test_weights_that_were_not_kept_are_told(copy: Path) -> None:
    (copy / "weights.safetensors").unlink()
    with pytest.raises(BadInput) as error:
        Run(copy).load(0)
    assert str(error.value) == (
        f"{copy} has no weights.safetensors: its weights were not kept, so no member can be loaded."
    )


def test_a_run_without_its_arrays_has_a_report_without_their_pictures(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in runs.TENSORS:
        (copy / name).unlink()
    shutil.rmtree(copy / "figures", ignore_errors=True)
    assert Run(copy).arrays("pe_end") == {}
    assert not Run(copy).has_array("pe_end/0")
    assert cli.main(["report", str(copy)]) == 0
    drawn = ["accuracy", "classes", "curves", "errors", "noise"]
    assert sorted(file.stem for file in (copy / "figures").iterdir()) == drawn
    assert "The PEs as a map" not in (copy / "report.html").read_text()


def test_an_array_that_is_not_there_is_named(run: Run) -> None:
    with pytest.raises(BadInput, match=r"arrays\.safetensors cannot be read: .*pe_end/9"):
        run.array("pe_end/9")


def test_runs_are_found_below_a_folder_newest_first_among_other_things(run: Run, tmp_path: Path) -> None:
    for age, name in enumerate(["new", "deep/er/old"]):
        path = Path(shutil.copytree(run.path, tmp_path / name))
        os.utime(path / "config.json", (1e9 - age, 1e9 - age))
    for name, text in (("bert", '{"model_type": "bert"}'), ("list", "[]"), ("broken", "{"), ("binary", "\0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    assert [found.path.relative_to(tmp_path) for found in runs.find(tmp_path)] == [Path("new"), Path("deep/er/old")]
