"""The files of a finished run: complete, consistent with each other, and readable."""

import json
import os
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.refusal import refused
from helpers.training.tiny_runs import RESULTS

import placecode
from placecode import cli, experiments
from placecode.errors import BadInput
from placecode.experiments import Experiment
from placecode.models.member import Member
from placecode.runs import read as runs
from placecode.runs.read import Run, format_ranges, parse_ranges
from placecode.runs.summary import summarize
from placecode.runs.tables import TrainingOutcome, member_table
from placecode.tasks.base import Task


def test_the_folder_has_all_files_and_no_others(run: Run) -> None:
    names = {"config.json", "environment.json", "log.txt", *RESULTS}
    assert {path.name for path in run.path.iterdir()} == names and names <= set(runs.FILES)


def test_config_has_every_field_and_the_shape_of_the_task(run: Run, experiment: Experiment, task: Task) -> None:
    config = json.loads((run.path / "config.json").read_text())
    assert config["format"] == 5
    assert (config["experiment"], config["scale"]) == ("lst-sigma", "quick")
    assert (config["members"], config["total"]) == ("0:4", 4)
    assert (config["device"], config["precision"], config["stack"]) == ("cpu", "high", 2)
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in config["fields"].items()}
    assert type(experiment)(**fields) == experiment and fields.keys() == experiment.fields().keys()
    assert config["shape"]["positions"] == task.positions.tolist()
    assert config["task"]["sha256"] == task.describe()["sha256"]


def test_environment_has_versions_device_threads_precision_and_stacks(run: Run) -> None:
    environment = run.environment
    assert environment["packages"]["torch"] == torch.__version__
    assert environment["placecode"] == placecode.version.VERSION
    assert (environment["device"], environment["precision"], environment["stack"]) == ("cpu", "high", 2)
    assert environment["threads per stack"] * environment["stacks at once"] == torch.get_num_threads()
    assert {"python", "system", "git", "cores"} <= set(environment)


def test_members_table_has_every_member_and_its_state(run: Run, experiment: Experiment) -> None:
    assert run.members["member"].tolist() == [0, 1, 2, 3] and run.members["state"].tolist() == ["done"] * 4
    assert run.members["diverged_at"].tolist() == [-1] * 4 and [run.member(i) for i in range(4)] == experiment.members()
    assert run.members["pe_weight_decay"].dtype == np.float64  # pieces of an experiment have the same columns
    for number in (-1, 4):
        with pytest.raises(BadInput, match=f"0 to 3; got {number}"):
            run.load(number)


def test_metrics_table_has_every_split_condition_and_evaluation(run: Run, experiment: Experiment, task: Task) -> None:
    table = run.metrics
    keys = ["member", "step", "split", "condition", "metric"]
    assert list(table.columns) == [*keys, "value"] and set(table["step"]) == {0, *experiment.evaluate_at(task), 8}
    assert set(table["split"]) == {"train", "test", "ood"}
    assert set(table["condition"]) == {"all", "Binary", "Ternary", "Quaternary"}
    assert set(table["metric"]) == {"accuracy", "loss"}
    assert len(table) == len(set(table["step"])) * 4 * 3 * 4 * 2 and not table.duplicated(keys).any()
    assert table["value"].notna().all() and table.sort_values(["member", "step"], kind="stable").equals(table)


def test_analysis_table_has_every_block_before_and_after_training(run: Run) -> None:
    table = run.analysis
    keys = ["member", "step", "block", "analysis", "target"]
    assert list(table.columns) == [*keys, "value"] and not table.duplicated(keys).any()
    assert set(table["step"]) == {0, 8} and set(table["block"]) == {-2, -1, 0}
    aligned = table[table["target"] == "2d-fixed"]
    names = {"procrustes", "procrustes_raw", "rsa", "cka"}
    for block in (-2, -1, 0):
        of_block = aligned[aligned["block"] == block]
        assert set(of_block["analysis"]) == (names if block != -1 else {*names, "procrustes_z", "procrustes_p"})
        assert len(of_block) == 4 * 2 * len(set(of_block["analysis"]))
    aligned = aligned[aligned["analysis"] != "procrustes_p"]
    before, after = (aligned[aligned["step"] == step].reset_index()["value"] for step in (0, 8))
    assert (before != after).all()  # training changes every PE


def test_summary_has_means_and_deviations_of_the_metrics(run: Run) -> None:
    summary = json.loads((run.path / "summary.json").read_text())
    rows = [row for row in summary["rows"] if row["split"] != "analysis"]
    assert len(rows) == 2 * 3 * 4 * 2 and summary["step"] == 8
    sigmas = run.metrics["member"].map(run.members.set_index("member")["sigma"])
    final = run.metrics[run.metrics["step"] == 8].assign(sigma=sigmas)
    for row in rows:
        names = ("sigma", "split", "condition", "metric")
        values = final.loc[np.logical_and.reduce([final[name] == row[name] for name in names]), "value"].tolist()
        assert row["n"] == len(values) == 2 and row["mean"] == pytest.approx(statistics.mean(values), abs=1e-12)
        assert row["std"] == pytest.approx(statistics.stdev(values), abs=1e-12)  # ddof=1
        assert row["diverged"] == 0 and row["encoding"] == "learned"


def test_summary_has_the_final_analyses_of_all_blocks(run: Run) -> None:
    """The condition of an analysis is its target, or "all" if it has no target."""
    analysed = [row for row in run.summary if row["split"] == "analysis"]
    rows = {(row["sigma"], row["metric"], row["condition"]): row for row in analysed}
    assert len(rows) == len(analysed)
    table = run.analysis[(run.analysis["step"] == 8) & (run.analysis["block"] == -1)]
    pairs = set(zip(table["analysis"], table["target"], strict=True))
    assert {("rsa", "2d-fixed"), ("rsa", "grid"), ("norm", ""), ("probe", "row"), ("agreement", "other seeds")} <= pairs
    assert set(rows) == {(sigma, name, target or "all") for sigma in (0.1, 2.0) for name, target in pairs}
    for name, target in (("rsa", "2d-fixed"), ("rsa", "grid"), ("norm", "")):
        chosen = table[(table["analysis"] == name) & (table["target"] == target) & table["member"].isin([0, 1])]
        assert rows[0.1, name, target or "all"]["mean"] == pytest.approx(chosen["value"].mean(), abs=1e-12)


def test_arrays_are_those_of_the_models(run: Run, experiment: Experiment, task: Task) -> None:
    model = run.load(2)
    fresh = placecode.training.trainer.stack_for([experiment.members()[2]], task)
    assert run.array("pe_start/2").shape == (1, 16, 8) and abs(run.array("pe_start/2").std() - 2.0) < 0.3
    inputs = task.splits["ood"].inputs
    for moment, stack in (("start", fresh), ("end", model)):
        assert np.array_equal(run.array(f"pe_{moment}/2"), stack.encoding.vectors()[0].detach().numpy())
        maps = run.arrays(f"attention_{moment}")
        assert list(maps) == [0, 1, 2, 3] and maps[2].shape == (1, 2, 16, 16)  # (l, h, n, n)
        captured = stack.capture(inputs, "attention.0")["attention.0"]
        assert np.abs(maps[2][0] - captured[0].mean(0).numpy()).max() < 1e-6
        probabilities = stack(inputs).softmax(-1).detach().numpy()
        assert np.abs(run.array(f"probabilities_{moment}/2") - probabilities).max() < 1e-6
        assert not run.arrays(f"attention_each_{moment}")  # too large to keep
    assert run.arrays("no such kind") == {}
    for name, exists in (("pe_end/2", True), ("attention_each_end/2", False), ("pe_end/4", False), ("pe_end", False)):
        assert run.has_array(name) is exists
    with pytest.raises(BadInput, match=r"arrays\.safetensors cannot be read: .*pe_end/9"):
        run.array("pe_end/9")


def test_loaded_members_have_the_recorded_accuracy_and_loss(run: Run, task: Task) -> None:
    inputs, targets = task.splits["ood"].inputs, task.splits["ood"].targets
    final = run.metrics.query("split == 'ood' and condition == 'all' and step == 8").set_index(["metric", "member"])
    outputs = [Run(run.path).load(number)(inputs) for number in range(4)]
    for number in (0, 3):
        accuracy = (outputs[number].argmax(-1) == targets).double().mean().item()
        assert accuracy == final.loc[("accuracy", number), "value"]  # exactly
        loss = torch.nn.functional.cross_entropy(outputs[number], targets).item()
        assert loss == pytest.approx(final.loc[("loss", number), "value"], abs=1e-6)
    assert all((outputs[0] - output).abs().max() > 1e-3 for output in outputs[1:])  # members do differ


def summary_of(members: list[Member], values: list[float], ends: Any = None) -> list[dict[str, Any]]:
    """Return the rows of the summary of members with these accuracies."""
    spec = {"step": 9, "split": "ood", "condition": "all", "metric": "accuracy"}
    metrics = pd.DataFrame([{"member": number, **spec, "value": value} for number, value in enumerate(values)])
    metrics = pd.concat([metrics.assign(step=0, value=0.25), metrics], ignore_index=True)
    no_analysis = pd.DataFrame([], columns=["member", "step", "block", "analysis", "target", "value"])
    rows = summarize("s", member_table(range(len(members)), members, ends), metrics, no_analysis)["rows"]
    json.dumps(rows, allow_nan=False)
    return rows


def test_members_that_diverged_are_counted_and_excluded() -> None:
    members = [Member(sigma=sigma, seed=seed) for sigma in (0.1, 2.0) for seed in range(3)]
    values = [0.5, float("nan"), 0.9, 0.1, float("nan"), 0.3]
    small, large = summary_of(members, values, [TrainingOutcome(at) for at in (-1, 7, -1, 2, 2, 3)])
    assert (small["sigma"], small["n"], small["diverged"]) == (0.1, 2, 1)
    assert small["mean"] == pytest.approx(0.7) and small["std"] == pytest.approx(statistics.stdev([0.5, 0.9]))
    assert (large["sigma"], large["n"], large["diverged"], large["mean"], large["std"]) == (2.0, 0, 3, None, None)


ORIGINS = [Member(sigma=sigma, seed=seed) for sigma in (0.2, 2.0) for seed in (0, 1)]
RESCALED = [Member(sigma=0.2, seed=i % 2, start="rescaled", donor=i, learn=False) for i in range(4)]
PAIR = [Member(sigma=0.2), Member(sigma=2.0)]


@pytest.mark.parametrize(
    ("members", "names", "expected"),
    [
        ([Member()], ("std", "n"), [(None, 1)]),
        # sigma is null for encodings that do not use it, and every varied field has a column
        (
            [Member("sinusoid", sigma=0.2), Member("learned", sigma=0.2), Member("learned", sigma=0.2, width=32)],
            ("encoding", "sigma", "width", "mean"),
            [("sinusoid", None, 160, 0.0), ("learned", 0.2, 160, 0.1), ("learned", 0.2, 32, 0.2)],
        ),
        ([Member("sinusoid", options={"axes": axes}) for axes in (1, 2)], ("axes", "mean"), [(1, 0.0), (2, 0.1)]),
        # members that are rescaled to one sigma differ only in the sigma of their donor
        (
            [*ORIGINS, *RESCALED],
            ("start", "sigma", "donor_sigma", "n", "mean"),
            [
                ("normal", 0.2, None, 2, 0.05),
                ("normal", 2.0, None, 2, 0.25),
                ("rescaled", 0.2, 0.2, 2, 0.45),
                ("rescaled", 0.2, 2.0, 2, 0.65),
            ],
        ),
    ],
)
def test_kinds_of_members(members: list[Member], names: tuple[str, ...], expected: list[tuple[Any, ...]]) -> None:
    rows = summary_of(members, [0.1 * number for number in range(len(members))])
    rounded = [{**row, "mean": round(row["mean"], 9)} for row in rows]
    assert [tuple(row[name] for name in names) for row in rounded] == expected


@pytest.mark.parametrize("heirs", [[], [Member(sigma=s, start="donor", donor=i) for i, s in enumerate((0.2, 2.0))]])
def test_fields_that_say_nothing_more_have_no_column(heirs: list[Member]) -> None:
    rows = summary_of([*PAIR, *heirs], [0.5] * (2 + len(heirs)))
    assert len(rows) == 2 + len(heirs)
    expected = {"encoding", "sigma", "split", "condition", "metric", "mean", "std", "n", "diverged"}
    assert all(set(row) == expected | ({"start"} if heirs else set()) for row in rows)


def test_members_are_read_from_their_table(tmp_path: Path) -> None:
    members = [
        Member("learned", sigma=0.1, clip=1.0, pe_learning_rate=None, start="uniform", learn=False, output_gain=0.5),
        Member("learned", sigma=0.1, weight_decay=0.1, pe_weight_decay=0.0),
        Member("sinusoid", sigma=None, options={"axes": 2, "base": 100.0}, dropout=0.1, dropout_at_evaluation=True),
    ]
    member_table([3, 8, 9], members).to_parquet(tmp_path / "members.parquet")
    table = pd.read_parquet(tmp_path / "members.parquet")
    assert [runs.spec_of(row) for _, row in table.iterrows()] == members


def test_settings_that_an_older_run_lacks_get_their_defaults(copy: Path, run: Run, experiment: Experiment) -> None:
    config = json.loads((copy / "config.json").read_text())
    del config["fields"]["output_gain"], config["fields"]["pe_weight_decay"]
    (copy / "config.json").write_text(json.dumps(config))
    run.members.drop(columns=["output_gain", "pe_weight_decay"]).to_parquet(copy / "members.parquet")
    older = Run(copy)
    assert experiments.experiment_of(older) == experiment and older.member(3) == run.member(3)
    assert torch.equal(older.load(3).flat, run.load(3).flat)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "must be a run folder"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b'{"format": 1}', "it has no experiment"),
        (b'{"format": 1, "experiment": "s", "scale": 3}', "it has no scale"),
    ],
)
def test_a_missing_or_damaged_config(tmp_path: Path, content: bytes | None, text: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(BadInput, match=f"{tmp_path}.* {text}"):
        Run(tmp_path)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("metrics.parquet", lambda run: run.metrics),
        ("members.parquet", lambda run: run.members),
        ("analysis.parquet", lambda run: run.analysis),
        ("summary.json", lambda run: run.summary),
        ("environment.json", lambda run: run.environment),
        ("arrays.safetensors", lambda run: run.array("pe_end/0")),
        ("arrays.safetensors", lambda run: run.arrays("pe_end")),
        ("arrays.safetensors", lambda run: run.has_array("pe_end/0")),
    ],
)
def test_missing_and_damaged_files_are_named(copy: Path, name: str, read: Any) -> None:
    (copy / name).write_bytes((copy / name).read_bytes()[:-10])
    with pytest.raises(BadInput, match=f"{copy / name} (is damaged: it is not|cannot be read)"):
        read(Run(copy))
    (copy / name).unlink()
    (copy / "summary.json").unlink(missing_ok=True)
    with pytest.raises(BadInput, match=f"has no {name}: the run is not finished"):
        read(Run(copy))


def test_a_run_without_arrays_and_weights_has_a_report(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in runs.TENSORS:
        (copy / name).unlink()
    with pytest.raises(BadInput, match=r"has no weights\.safetensors"):
        Run(copy).load(0)
    assert Run(copy).arrays("pe_end") == {} and not Run(copy).has_array("pe_end/0")
    assert cli.main(["report", str(copy)]) == 0
    drawn = ["accuracy", "classes", "curves", "errors", "noise"]
    assert sorted(file.stem for file in (copy / "figures").iterdir()) == drawn
    assert "The PEs as a map" not in (copy / "report.html").read_text()


def test_runs_are_found_in_subfolders_newest_first(run: Run, tmp_path: Path) -> None:
    for age, name in enumerate(["new", "deep/er/old"]):
        path = Path(shutil.copytree(run.path, tmp_path / name))
        os.utime(path / "config.json", (1e9 - age, 1e9 - age))
    for name, text in (("bert", '{"model_type": "bert"}'), ("list", "[]"), ("broken", "{"), ("binary", "\0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    paths = [str(result.path.relative_to(tmp_path)) for result in runs.find_runs(tmp_path)]
    assert paths == ["new", "deep/er/old"]


@pytest.mark.parametrize(
    ("numbers", "text"), [([0, 1, 2, 5], "0:3,5:6"), ([3], "3:4"), ([5, 4, 0], "0:1,4:6"), (list(range(9)), "0:9")]
)
def test_ranges_of_member_numbers(numbers: list[int], text: str) -> None:
    assert format_ranges(numbers) == text and parse_ranges(text, 9) == sorted(numbers)


@pytest.mark.parametrize(
    ("text", "numbers"), [(":", [0, 1, 2, 3]), (":2", [0, 1]), ("3:", [3]), ("0:2, 1:3", [0, 1, 2])]
)
def test_ranges_may_omit_an_end(text: str, numbers: list[int]) -> None:
    assert parse_ranges(text, 4) == numbers


@pytest.mark.parametrize(
    "text", ["", "1", "a:b", "2:2", "3:1", "0:5", "4:", "-1:2", "0:2,", "0:1:2", "0.5:2", "0:2;3:4"]
)
def test_ranges_that_are_invalid(text: str) -> None:
    error = refused(parse_ranges, text, 4)
    assert (error.name, error.given) == ("members", text)
