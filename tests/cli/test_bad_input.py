"""Bad input through the command line: exit code 2, one sentence, and nothing half-written."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.small_runs import TINY_DATA
from helpers.small_runs import TINY_RUN as RUN

from placecode import cli, experiments
from placecode.runs.read import Run

KNOWN = ", ".join(experiments.EXPERIMENTS)

Refuse = Callable[..., str]


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("frobnicate", "argument COMMAND: invalid choice: 'frobnicate'"),
        ("run", "the following arguments are required: EXPERIMENT"),
        ("run --scale paper lst --epochs 3", "experiment must be one of "),
        ("run [bold]:smile:", f"experiment must be one of {KNOWN}; got '[bold]:smile:'."),  # no markup
        ("merge a", "the following arguments are required: --out"),
        ("merge none none --out b", "none must be a run folder"),
        ("report .", ". must be a run folder"),
        ("runs", "runs must be a folder with runs"),
        ("runs file", "file must be a folder with runs"),
        ("run lst-sigma --frobnicate", "unrecognized arguments: --frobnicate"),
        ("run lst-sigma --seed 3", "unrecognized arguments: --seed 3"),  # no abbreviation of --seeds
        ("run lst-sigma --sigmas", "argument --sigmas: expected at least one argument"),
        ("run lst-sigma --resume --force", "--resume and --force must not be used together"),
        ("fit t.csv --resume --force", "--resume and --force must not be used together"),
    ],
)
def test_invalid_commands(refuse: Refuse, words: str, start: str) -> None:
    Path("file").touch()
    assert refuse(*words.split()).startswith(start)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--scale huge", "scale"),
        ("--device tpu", "device"),
        ("--precision fp8", "precision"),
        ("--stack few", "stack"),
        ("--memory 80", "memory"),
        ("--memory half", "memory"),
        ("--workers 0", "workers"),
        ("--optimizer adagrad", "optimizer"),
        ("--encoding learnt", "encoding"),
        ("--sigmas 0.1 inf", "sigmas"),
        ("--sigmas 0.1,o.2", "sigmas"),
        ("--sigmas ,", "sigmas"),
        ("--seeds 0", "seeds"),
        ("--seeds 99999999999999999999", "seeds"),
        ("--seeds=-1,2", "seed"),
        ("--seeds 1.5", "seeds"),
        ("--heads 3 --dry-run", "heads"),
        ("--width 2 --heads 1", "width"),
        ("--epochs 0", "epochs"),
        ("--options axes", "options"),
        ("--encoding relative --options causal=2", "causal"),
        ("--order 7", "order"),
        ("--heldout 10", "heldout"),
        ("--distance nan", "distance"),
        ("--data-seed -1", "data_seed"),
        ("--members 9:10 --dry-run", "members"),
        ("--puzzles none", "none"),
    ],
)
def test_invalid_options_of_run(refuse: Refuse, words: str, name: str) -> None:
    assert refuse(*RUN, *words.split()).startswith(f"{name} must ")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("lst-heads --head-counts 3", "heads"),
        ("lst-width --widths 12", "heads"),
        ("lst-placement --placements last", "placement"),
        ("lst-decay --decays 0", "decays"),
        ("lst-decay --decayed-weights pe,none", "decayed_weights"),
        ("lst-optimizer --optimizers lion", "optimizer"),
        ("lst-optimizer --epsilons 1e-8", "epsilons"),
        ("lst-optimizer --pe-rates 0.1,1", "pe_rates"),
        ("lst-data --samples 60", "samples"),
        ("lst-data --samples 54,2", "samples"),
        ("lst-size --to-order 4", "to_order"),
        ("lst-size --from-order 6", "to_order"),
        ("lst-size --to-order 7", "order"),
        ("lst-causal --sigmas 0.2,1", "sigmas"),
        ("lst-causal --sigmas 1,2", "sigmas"),
        ("lst-causal --seeds 3,1000", "seeds"),
        ("lst-causal --members 20:30", "the members"),
    ],
)
def test_invalid_settings_of_experiments_beyond_the_paper(refuse: Refuse, words: str, name: str) -> None:
    """Swept fields and repeated values are refused in tests/experiments/test_experiments.py."""
    experiment, *settings = words.split()
    sentence = refuse("run", experiment, *TINY_DATA, "--seeds", "2", "--device", "cpu", *settings)
    assert sentence.startswith(f"{name} must ")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_cuda_where_there_is_none(refuse: Refuse, more: list[str]) -> None:
    assert "torch sees no CUDA device" in refuse(*RUN, "--device", "cuda", *more)


def test_program_exits_with_code_2_and_one_line(tmp_path: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "placecode.cli", *RUN, "--sigmas", "small", "--out", "out"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "placecode: sigmas must be a number; got 'small'.\n"
    assert list(tmp_path.iterdir()) == []


def test_held_out_puzzles_of_one_class_are_enough(puzzles: Path, no_report: None) -> None:
    """Classes without held-out puzzles have no accuracy, and members do not count as diverged because of that."""
    file = puzzles / "human_puzzles.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if "ary," not in line or "Binary," in line))
    assert cli.main([*RUN, "--puzzles", str(puzzles), "--out", "out"]) == 0
    assert Run("out").config["task"]["source"] == str(puzzles)
    assert Run("out").members["state"].tolist() == ["done"] * 4
    assert Run("out").config["task"]["counts"]["ood"] == {"Binary": 3, "Ternary": 0, "Quaternary": 0}


def test_a_bad_row_is_named_by_file_and_line(refuse: Refuse, puzzles: Path) -> None:
    file = puzzles / "train_binary.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines, "99,,Binary,1235000000000000,3"]) + "\n")
    sentence = f"{file}, line {len(lines) + 1}: the solution of the puzzle 1235000000000000 is 4; got '3'."
    assert refuse(*RUN, "--puzzles", str(puzzles)) == sentence
    file.write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    assert refuse(*RUN, "--puzzles", str(puzzles)).startswith(f"{file} must be a text file in UTF-8")


FIT = ["--steps", "20", "--width", "8", "--layers", "1", "--draws", "19", "--device", "cpu", "--batch", "16"]


def table() -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(0).normal(size=(200, 6)), columns=list("abcdef"))


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--sigma nan", "sigma"),
        ("--sigma=-1", "sigma"),
        ("--sigma 0.1,0.1", "sigma"),
        ("--effort huge", "effort"),
        ("--steps 0", "steps"),
        ("--seeds 0", "seeds"),
        ("--draws 3", "draws"),
        ("--halves -1", "halves"),
        ("--mask-ratio 1", "mask_ratio"),
        ("--data-seed -1", "data_seed"),
        ("--groups who", "groups"),
    ],
)
def test_invalid_options_of_fit(words: str, name: str, refuse: Refuse) -> None:
    table().to_csv("t.csv", index=False)
    assert refuse("fit", "t.csv", *FIT, *words.split()).startswith(f"{name} must ")


@pytest.mark.parametrize("option", ["--labels", "--positions", "--names"])
def test_files_of_fit_that_cannot_be_read(option: str, refuse: Refuse) -> None:
    table().to_csv("t.csv", index=False)
    assert refuse("fit", "t.csv", *FIT, option, "no.csv").startswith("no.csv cannot be read")


def test_tables_that_cannot_be_fitted(refuse: Refuse) -> None:
    """tests/data has more invalid tables."""
    plain = table()
    plain.astype(object).assign(c=["low" if i == 6 else 1.5 for i in range(len(plain))]).to_csv("x.csv", index=False)
    assert refuse("fit", "x.csv", *FIT) == "x.csv, line 8: column 'c' must hold numbers; got 'low'."
    (plain * 0 + 1).to_csv("x.csv", index=False)
    assert refuse("fit", "x.csv", *FIT).startswith("at least one channel must vary")
    assert refuse("fit", "none.csv", *FIT) == "none.csv cannot be read: No such file or directory."


def test_too_few_channels_that_vary_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table().assign(a=1.0, b=2.0).to_csv("x.csv", index=False)
    assert cli.main(["fit", "x.csv", *FIT]) == 2
    warning, error = capsys.readouterr().err.splitlines()
    assert "left out" in warning and warning.endswith(": 'a', 'b'") and error.endswith("; got 4.")
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
