"""Bad input through the command line: exit code 2, one sentence, and nothing half-written."""

from __future__ import annotations

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

KNOWN = ", ".join(experiments.STUDIES)

Refuse = Callable[..., str]


# Words


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "the following arguments are required: COMMAND (see 'placecode --help')."),
        ("frobnicate", "argument COMMAND: invalid choice: 'frobnicate'"),
        ("run", "the following arguments are required: STUDY (see 'placecode run --help')."),
        ("run lst", f"study must be one of {KNOWN}; got 'lst'."),
        ("run lst --epochs 3", f"study must be one of {KNOWN}; got 'lst'."),
        ("run --scale paper lst", f"study must be one of {KNOWN}; got 'lst'."),
        ("run [bold]:smile:", f"study must be one of {KNOWN}; got '[bold]:smile:'."),  # no markup
        ("merge a", "the following arguments are required: --out (see 'placecode merge --help')."),
        ("merge none none --out b", "none must be a run folder, one with a config.json; there is none."),
        ("report .", ". must be a run folder, one with a config.json; there is none."),
        ("runs none", "none must be a folder with runs; there is no such folder."),
        ("runs", "runs must be a folder with runs; there is no such folder."),
        ("runs file", "file must be a folder with runs; there is no such folder."),
    ],
)
def test_commands_that_make_no_sense(refuse: Refuse, words: str, sentence: str) -> None:
    Path("file").touch()
    assert refuse(*words.split()).startswith(sentence)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--scale huge", "scale must be one of quick, paper; got 'huge'."),
        ("--device tpu", "device must be one of auto, cpu, cuda; got 'tpu'."),
        ("--precision fp8", "precision must be one of high, tf32, highest, bf16; got 'fp8'."),
        ("--stack 0", "stack must be a whole number of at least 1; got 0."),
        ("--stack few", "stack must be a whole number; got 'few'."),
        ("--memory 80", "memory must be a share of the GPU's memory above 0 and at most 1; got 80.0."),
        ("--memory nan", "memory must be a share of the GPU's memory above 0 and at most 1; got nan."),
        ("--memory half", "memory must be a number; got 'half'."),
        ("--workers 0", "workers must be a whole number of at least 1; got 0."),
        ("--workers two", "workers must be a whole number; got 'two'."),
        ("--optimizer adagrad", "optimizer must be one of adam, adamw, sgd; got 'adagrad'."),
        ("--encoding learnt", "encoding must be one of "),
        ("--sigmas 0.2,-0.1", "sigma must be a number of at least 0; got -0.1."),
        ("--sigmas 0.1 inf", "sigma must be a number of at least 0; got inf."),
        ("--sigmas 0.1,o.2", "sigmas must be a number; got 'o.2'."),
        ("--sigmas ,", "sigmas must be at least one; got []."),
        ("--sigmas 0.1,0.2,0.1", "sigmas must be all different; got [0.1, 0.2, 0.1]."),
        ("--sigmas", "argument --sigmas: expected at least one argument (see 'placecode run --help')."),
        ("--seeds 0", "seeds must be at least one, as a number of seeds or a list a,b,c; got 0."),
        ("--seeds=-1,2", "seed must be a whole number of at least 0; got -1."),
        ("--seeds 1.5", "seeds must be a whole number; got '1.5'."),
        ("--seeds ,", "seeds must be at least one; got []."),
        ("--heads 3", "heads must be a divisor of the width 8; got 3."),
        ("--heads 3 --dry-run", "heads must be a divisor of the width 8; got 3."),
        ("--width 2 --heads 1", "width must be at least 3 for a sinusoid of 2 axes; got 2."),
        ("--epochs 0", "epochs must be a whole number of at least 1; got 0."),
        ("--epochs 1e3", "epochs must be a whole number; got '1e3'."),
        ("--learning-rate fast", "learning_rate must be a number; got 'fast'."),
        ("--options axes", "options must be NAME=VALUE, such as axes=2; got 'axes'."),
        ("--encoding relative --options causal=2", "causal must be True or False, or 1 or 0; got 2."),
        ("--order 7", "order must be 4, 5 or 6; got 7."),
        ("--heldout 10", "heldout must be a positive multiple of 3"),
        ("--distance nan", "distance must be a number of at least 0 and below 1; got nan."),
        ("--data-seed -1", "data_seed must be a whole number of at least 0; got -1."),
        ("--members 0:5", "members must be a range I:J within 0:4, or several with commas; got '0:5'."),
        ("--members 9:10 --dry-run", "members must be a range I:J within 0:4, or several with commas; got '9:10'."),
        ("--frobnicate", "unrecognized arguments: --frobnicate (see 'placecode --help')."),
        ("--seed 3", "unrecognized arguments: --seed 3 (see 'placecode --help')."),  # no abbreviation of --seeds
        ("--resume --force", "--resume and --force must not be used together: "),
        ("--puzzles none", "none must be a folder with train_binary.csv, "),
    ],
)
def test_options_of_run_that_make_no_sense(refuse: Refuse, words: str, sentence: str) -> None:
    assert refuse(*RUN, *words.split()).startswith(sentence)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("lst-heads --heads 2", "heads"),  # the study sweeps it
        ("lst-heads --many ,", "many"),
        ("lst-heads --many 1,1", "many"),
        ("lst-heads --many 3", "heads"),
        ("lst-depth --layers 2", "layers"),
        ("lst-depth --depths 2,2", "depths"),
        ("lst-depth --depths 0", "layers"),
        ("lst-width --width 8", "width"),
        ("lst-width --widths ,", "widths"),
        ("lst-width --widths 12", "heads"),
        ("lst-placement --placements last", "placement"),
        ("lst-placement --placements every,every", "placements"),
        ("lst-gain --output-gain 2", "output_gain"),
        ("lst-gain --gains 0", "gains"),
        ("lst-gain --gains 1,1.0", "gains"),
        ("lst-decay --decays 0", "decays"),
        ("lst-decay --decays nan", "decays"),
        ("lst-decay --decays 1,1", "decays"),
        ("lst-decay --parts pe,none", "parts"),
        ("lst-decay --pe-weight-decay 1", "pe_weight_decay"),
        ("lst-optimizer --rates ,", "rates"),
        ("lst-optimizer --sgd-rates 1,1", "sgd_rates"),
        ("lst-optimizer --optimizers lion", "optimizer"),
        ("lst-optimizer --epsilons 1e-8", "epsilons"),
        ("lst-optimizer --pe-rates 0.1,1", "pe_rates"),
        ("lst-data --samples 60", "samples"),
        ("lst-data --samples 54,2", "samples"),
        ("lst-data --samples 18,18", "samples"),
        ("lst-size --to-order 4", "to_order"),
        ("lst-size --from-order 6", "to_order"),
        ("lst-size --to-order 7", "order"),
        ("lst-size --order 5", "order"),
        ("lst-causal --sigmas 0.2,1", "sigmas"),
        ("lst-causal --sigmas 1,2", "sigmas"),
        ("lst-causal --seeds 3,1000", "seeds"),
        ("lst-causal --members 20:30", "the members"),
    ],
)
def test_settings_of_studies_beyond_the_paper_that_make_no_sense(refuse: Refuse, words: str, name: str) -> None:
    study, *settings = words.split()
    sentence = refuse("run", study, *TINY_DATA, "--seeds", "2", "--device", "cpu", *settings)
    assert sentence.startswith(f"{name} must ")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_cuda_where_there_is_none(refuse: Refuse, more: list[str]) -> None:
    assert "torch sees no CUDA device" in refuse(*RUN, "--device", "cuda", *more)


def test_as_a_program_too_it_is_exit_code_2_one_line_and_no_traceback(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "placecode.cli", *RUN, "--sigmas", "small", "--out", "out"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "placecode: sigmas must be a number; got 'small'.\n"
    assert list(tmp_path.iterdir()) == []


# Puzzle files


def test_good_puzzle_files_are_used(puzzles: Path, no_report: None) -> None:
    assert cli.main([*RUN, "--puzzles", str(puzzles), "--out", "out"]) == 0
    assert Run("out").config["task"]["source"] == str(puzzles)


def test_held_out_puzzles_of_one_class_alone_are_enough(puzzles: Path, no_report: None) -> None:
    """What is not there has no accuracy, and no member is to blame for that."""
    file = puzzles / "human_puzzles.csv"
    file.write_text(
        "\n".join(line for line in file.read_text().splitlines() if "ary," not in line or "Binary," in line)
    )
    assert cli.main([*RUN, "--puzzles", str(puzzles), "--out", "out"]) == 0
    assert Run("out").members["state"].tolist() == ["done"] * 4
    assert Run("out").config["task"]["counts"]["ood"] == {"Binary": 3, "Ternary": 0, "Quaternary": 0}


def test_a_bad_row_is_named_by_file_and_line(refuse: Refuse, puzzles: Path) -> None:
    file = puzzles / "train_binary.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines, "99,,Binary,1235000000000000,3"]) + "\n")
    assert refuse(*RUN, "--puzzles", str(puzzles)) == (
        f"{file}, line {len(lines) + 1}: the solution of the puzzle 1235000000000000 is 4; got '3'."
    )
    file.write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    assert refuse(*RUN, "--puzzles", str(puzzles)).startswith(f"{file} must be a text file in UTF-8")


# Tables


FIT = ["--steps", "20", "--width", "8", "--layers", "1", "--draws", "19", "--device", "cpu", "--batch", "16"]


def table() -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(0).normal(size=(200, 6)), columns=list("abcdef"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--sigma small", "sigma must be a number; got 'small'."),
        ("--sigma nan", "sigma must be a number of at least 0; got nan."),
        ("--sigma 0.1,0.1", "sigmas must be all different; got [0.1, 0.1]."),
        ("--sigma ,", "sigmas must be at least one; got []."),
        ("--sigma", "argument --sigma: expected at least one argument (see 'placecode fit --help')."),
        ("--effort huge", "effort must be one of auto, quick, thorough; got 'huge'."),
        ("--precision fp8", "precision must be one of high, tf32, highest, bf16; got 'fp8'."),
        ("--steps 0", "steps must be a whole number of at least 1; got 0."),
        ("--steps 1e3", "steps must be a whole number; got '1e3'."),
        ("--seeds 0", "seeds must be at least one, as a number of seeds or a list a,b,c; got 0."),
        ("--draws 3", "draws must be a whole number of at least 19; got 3."),
        ("--halves -1", "halves must be a whole number of at least 0; got -1."),
        ("--neighbors 0", "neighbors must be a whole number of at least 1; got 0."),
        ("--hidden 1", "the share of hidden channels must be a number above 0 and below 1; got 1.0."),
        ("--data-seed -1", "data_seed must be a whole number of at least 0; got -1."),
        ("--groups who", "groups must be the name of a column of t.csv, or a file with a group a row; got 'who'."),
        ("--labels no.csv", "no.csv cannot be read: No such file or directory."),
        ("--positions no.csv", "no.csv cannot be read: No such file or directory."),
        ("--names no.txt", "no.txt cannot be read: No such file or directory."),
        ("--key x", "key is for files of .npz, .mat, .h5, .hdf5, which hold several tables; got 'x' for t.csv."),
        ("--resume --force", "--resume and --force must not be used together: "),
    ],
)
def test_options_of_fit_that_make_no_sense(words: str, sentence: str, refuse: Refuse) -> None:
    table().to_csv("t.csv", index=False)
    assert refuse("fit", "t.csv", *FIT, *words.split()).startswith(sentence)


def test_tables_that_cannot_be_fitted(refuse: Refuse) -> None:
    """Tests of reading have more of them."""
    plain = table()
    plain.astype(object).assign(c=["low" if i == 6 else 1.5 for i in range(len(plain))]).to_csv("x.csv", index=False)
    assert refuse("fit", "x.csv", *FIT) == "x.csv, line 8: column 'c' must hold numbers; got 'low'."
    (plain * 0 + 1).to_csv("x.csv", index=False)
    assert refuse("fit", "x.csv", *FIT).startswith("at least one channel must vary")
    assert refuse("fit", "none.csv", *FIT) == "none.csv cannot be read: No such file or directory."


def test_too_few_channels_that_vary_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table().assign(a=1.0, b=2.0).to_csv("x.csv", index=False)
    assert cli.main(["fit", "x.csv", *FIT]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "placecode: channels are left out, since they do not vary in the training samples: 'a', 'b'",
        "placecode: x.csv must be a table in which at least 5 channels vary; got 4.",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
