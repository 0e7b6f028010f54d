"""Bad input through the command line: exit code 2, one sentence, and nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from placecode import cli, experiments
from placecode.data.puzzle_files import write_folder
from placecode.runs.read import Run
from placecode.tasks.latin_squares import make_puzzles

DATA = ["--per-class", "20", "--heldout", "9", "--distance", "0.5"]
TINY = [*DATA, "--epochs", "2", "--evaluations", "2", "--width", "8", "--heads", "2", "--layers", "1", "--batch", "16"]
TINY += ["--sigmas", "0.1,2.0", "--seeds", "2", "--references", "", "--device", "cpu", "--stack", "2"]
RUN = ["run", "lst-sigma", *TINY]
RELATIVE = [*RUN, "--encoding", "relative"]
CAUSAL = [*RUN, "--encoding", "causal-none", "--sigmas", "0.1"]

Refuse = Callable[..., str]
KNOWN = ", ".join(experiments.STUDIES)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: the bytes of files, None for folders."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.fixture
def refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refuse:
    """Calls the command line with words that it must refuse, and gives the sentence."""

    def call(*words: str) -> str:
        capsys.readouterr()
        before = snapshot(tmp_path)
        assert cli.main(list(words)) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("placecode: ")
        assert err.endswith(".\n")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        assert snapshot(tmp_path) == before
        return err.removeprefix("placecode: ").removesuffix("\n")

    return call


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run and one that a full disk has ended in its second stack, to be copied."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "publish", lambda run: run.path / "report.html")
        assert cli.main([*RUN, "--out", str(folder / "finished")]) == 0
        patch.setattr(os, "fsync", disk_full_after(7))
        assert cli.main([*RUN, "--out", str(folder / "unfinished")]) == 2
    assert (folder / "unfinished" / "checkpoints" / "stack-000.json").is_file()
    return folder


@pytest.fixture
def finished(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "finished", tmp_path / "finished"))


@pytest.fixture
def unfinished(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "unfinished", tmp_path / "unfinished"))


def disk_full_after(count: int) -> Callable[[int], None]:
    left = [count]

    def fsync(number: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    return fsync


# Words


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the following arguments are required: COMMAND (see 'placecode --help')."),
        (["frobnicate"], "argument COMMAND: invalid choice: 'frobnicate'"),
        (["run"], "the following arguments are required: STUDY (see 'placecode run --help')."),
        (["run", "lst"], f"study must be one of {KNOWN}; got 'lst'."),
        (["run", "lst", "--epochs", "3"], f"study must be one of {KNOWN}; got 'lst'."),
        (["run", "--scale", "paper", "lst"], f"study must be one of {KNOWN}; got 'lst'."),
        ([*RUN, "--scale", "huge"], "scale must be one of quick, paper; got 'huge'."),
        ([*RUN, "--device", "tpu"], "device must be one of auto, cpu, cuda; got 'tpu'."),
        ([*RUN, "--precision", "fp8"], "precision must be one of high, tf32, highest, bf16; got 'fp8'."),
        ([*RUN, "--stack", "0"], "stack must be a whole number of at least 1; got 0."),
        ([*RUN, "--stack", "few"], "stack must be a whole number; got 'few'."),
        ([*RUN, "--memory", "0"], "memory must be a share of the GPU's memory above 0 and at most 1; got 0.0."),
        ([*RUN, "--memory", "80"], "memory must be a share of the GPU's memory above 0 and at most 1; got 80.0."),
        ([*RUN, "--memory", "nan"], "memory must be a share of the GPU's memory above 0 and at most 1; got nan."),
        ([*RUN, "--memory", "half"], "memory must be a number; got 'half'."),
        ([*RUN, "--workers", "0"], "workers must be a whole number of at least 1; got 0."),
        ([*RUN, "--workers", "two"], "workers must be a whole number; got 'two'."),
        ([*RUN, "--optimizer", "adagrad"], "optimizer must be one of adam, adamw, sgd; got 'adagrad'."),
        (
            [*RUN, "--start", "ones"],
            "start must be one of normal, uniform, zero, true, centred, axes, taken, shuffled, before, sized, "
            "rescaled, rescaled-shuffled, resized, resized-shuffled; got 'ones'.",
        ),
        ([*RUN, "--norm", "both"], "norm must be one of post, pre; got 'both'."),
        ([*RUN, "--placement", "last"], "placement must be one of every, input; got 'last'."),
        ([*RUN, "--sigmas", "-0.1"], "sigma must be a number of at least 0; got -0.1."),
        ([*RUN, "--sigmas", "0.2,-0.1"], "sigma must be a number of at least 0; got -0.1."),
        ([*RUN, "--sigmas", "nan"], "sigma must be a number of at least 0; got nan."),
        ([*RUN, "--sigmas", "0.1", "inf"], "sigma must be a number of at least 0; got inf."),
        ([*RUN, "--sigmas", "small"], "sigmas must be a number; got 'small'."),
        ([*RUN, "--sigmas", "0.1,o.2"], "sigmas must be a number; got 'o.2'."),
        ([*RUN, "--sigmas", ","], "sigmas must be at least one; got []."),
        ([*RUN, "--sigmas", "0.1,0.2,0.1"], "sigmas must be all different; got [0.1, 0.2, 0.1]."),
        ([*RUN, "--sigmas"], "argument --sigmas: expected at least one argument (see 'placecode run --help')."),
        ([*RUN, "--seeds", "0"], "seeds must be at least one, as a number of seeds or a list a,b,c; got 0."),
        ([*RUN, "--seeds", "-3"], "seeds must be at least one, as a number of seeds or a list a,b,c; got -3."),
        ([*RUN, "--seeds=-1,2"], "seed must be a whole number of at least 0; got -1."),
        ([*RUN, "--seeds", "1.5"], "seeds must be a whole number; got '1.5'."),
        ([*RUN, "--seeds", "many"], "seeds must be a whole number; got 'many'."),
        ([*RUN, "--seeds", ","], "seeds must be at least one; got []."),
        ([*RUN, "--seeds", "4,4"], "seeds must be all different; got [4, 4]."),
        ([*RUN, "--heads", "3"], "heads must be a divisor of the width 8; got 3."),
        ([*RUN, "--heads", "0"], "heads must be a whole number of at least 1; got 0."),
        ([*RUN, "--width", "0"], "width must be a whole number of at least 1; got 0."),
        ([*RUN, "--width", "2", "--heads", "1"], "width must be at least 3 for a sinusoid of 2 axes; got 2."),
        ([*RUN, "--layers", "two"], "layers must be a whole number; got 'two'."),
        ([*RUN, "--batch", "0"], "batch must be a whole number of at least 1; got 0."),
        ([*RUN, "--epochs", "0"], "epochs must be a whole number of at least 1; got 0."),
        ([*RUN, "--epochs", "-1"], "epochs must be a whole number of at least 1; got -1."),
        ([*RUN, "--epochs", "1e3"], "epochs must be a whole number; got '1e3'."),
        ([*RUN, "--evaluations", "0"], "evaluations must be a whole number of at least 1; got 0."),
        ([*RUN, "--learning-rate", "fast"], "learning_rate must be a number; got 'fast'."),
        ([*RUN, "--learning-rate", "nan"], "learning_rate must be a number of at least 0; got nan."),
        ([*RUN, "--dropout", "1"], "dropout must be a number of at least 0 and below 1; got 1.0."),
        ([*RUN, "--clip", "-1"], "clip must be a number of at least 0; got -1.0."),
        ([*RUN, "--options", "axes"], "options must be NAME=VALUE, such as axes=2; got 'axes'."),
        ([*RELATIVE, "--options", "causal=2"], "causal must be True or False, or 1 or 0; got 2."),
        ([*RELATIVE, "--options", "causal=yes"], "causal must be True or False, or 1 or 0; got 'yes'."),
        ([*CAUSAL, "--options", "temperature=0"], "temperature must be a number above 0; got 0."),
        ([*CAUSAL, "--options", "temperature=cold"], "temperature must be a number above 0; got 'cold'."),
        (
            [*CAUSAL, "--options", "causal=1"],
            "an option of the encoding causal-none must be one of temperature; got 'causal'.",
        ),
        ([*RUN, "--order", "7"], "order must be 4, 5 or 6; got 7."),
        (
            [*RUN, "--heldout", "10"],
            "heldout must be a positive multiple of 3, for as many puzzles of each class; got 10.",
        ),
        ([*RUN, "--distance", "1"], "distance must be a number of at least 0 and below 1; got 1.0."),
        ([*RUN, "--distance", "nan"], "distance must be a number of at least 0 and below 1; got nan."),
        ([*RUN, "--data-seed", "-1"], "data_seed must be a whole number of at least 0; got -1."),
        (
            [*RUN, "--members", "0:5"],
            "members must be a range I:J within 0:4, or several with commas; got '0:5'.",
        ),
        (
            [*RUN, "--members", "2:2"],
            "members must be a range I:J within 0:4, or several with commas; got '2:2'.",
        ),
        ([*RUN, "--members", "3"], "members must be a range I:J within 0:4, or several with commas; got '3'."),
        (
            [*RUN, "--members", "a:b"],
            "members must be a range I:J within 0:4, or several with commas; got 'a:b'.",
        ),
        ([*RUN, "--frobnicate"], "unrecognized arguments: --frobnicate (see 'placecode --help')."),
        ([*RUN, "--seed", "3"], "unrecognized arguments: --seed 3 (see 'placecode --help')."),
        ([*RUN, "--resume", "--force"], "--resume and --force must not be used together: "),
        (
            [*RUN, "--dry-run", "--members", "9:10"],
            "members must be a range I:J within 0:4, or several with commas; got",
        ),
        ([*RUN, "--dry-run", "--heads", "3"], "heads must be a divisor of the width 8; got 3."),
        (["merge", "a"], "the following arguments are required: --out (see 'placecode merge --help')."),
        (["merge", "none", "none", "--out", "b"], "none must be a run folder, one with a config.json; there is none."),
        (["report", "."], ". must be a run folder, one with a config.json; there is none."),
        (["report", "none"], "none must be a run folder, one with a config.json; there is none."),
        (["runs", "none"], "none must be a folder with runs; there is no such folder."),
        (["runs"], "runs must be a folder with runs; there is no such folder."),
    ],
    ids=lambda value: " ".join(word for word in value if word not in RUN[2:]) if isinstance(value, list) else "",
)
def test_words_that_make_no_sense(refuse: Refuse, words: list[str], sentence: str) -> None:
    """Each before anything is written: the snapshots of the folder are part of `refuse`."""
    assert refuse(*words).startswith(sentence)


BEYOND = [*DATA, "--seeds", "2", "--device", "cpu"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lst-heads", "--heads", "2"], "heads must be left out of lst-heads, which goes through many; got 2."),
        (["lst-heads", "--many", ","], "many must be at least one; got []."),
        (["lst-heads", "--many", "1,1"], "many must be all different; got [1, 1]."),
        (["lst-heads", "--many", "3"], "heads must be a divisor of the width 32; got 3."),
        (["lst-depth", "--layers", "2"], "layers must be left out of lst-depth, which goes through depths; got 2."),
        (["lst-depth", "--depths", "2,2"], "depths must be all different; got [2, 2]."),
        (["lst-depth", "--depths", "0"], "layers must be a whole number of at least 1; got 0."),
        (["lst-width", "--width", "8"], "width must be left out of lst-width, which goes through widths; got 8."),
        (["lst-width", "--widths", ","], "widths must be at least one; got []."),
        (["lst-width", "--widths", "12"], "heads must be a divisor of the width 12; got 8."),
        (["lst-placement", "--placements", "last"], "placement must be one of every, input; got 'last'."),
        (["lst-placement", "--placements", "every,every"], "placements must be all different; got ['every', 'every']."),
        (
            ["lst-gain", "--output-gain", "2"],
            "output_gain must be left out of lst-gain, which goes through gains; got 2",
        ),
        (["lst-gain", "--gains", "0"], "gains must be numbers above 0; got [0.0]."),
        (["lst-gain", "--gains", "1,1.0"], "gains must be all different; got [1.0, 1.0]."),
        (["lst-decay", "--decays", "0"], "decays must be numbers above 0; none is always gone through too; got [0.0]."),
        (
            ["lst-decay", "--decays", "nan"],
            "decays must be numbers above 0; none is always gone through too; got [nan]",
        ),
        (["lst-decay", "--decays", "1,1"], "decays must be all different; got [1.0, 1.0]."),
        (["lst-decay", "--parts", "pe,none"], "parts must be of all, rest, pe; got 'none'."),
        (
            ["lst-decay", "--pe-weight-decay", "1"],
            "pe_weight_decay must be left out of lst-decay, which goes through decays and parts; got 1.0.",
        ),
        (["lst-optimizer", "--rates", ","], "rates must be at least one; got []."),
        (["lst-optimizer", "--sgd-rates", "1,1"], "sgd_rates must be all different; got [1.0, 1.0]."),
        (["lst-optimizer", "--optimizers", "lion"], "optimizer must be one of adam, adamw, sgd; got 'lion'."),
        (
            ["lst-optimizer", "--epsilons", "1e-8"],
            "epsilons must be other than 1e-08, which is always gone through too; got [1e-08].",
        ),
        (
            ["lst-optimizer", "--pe-rates", "0.1,1"],
            "pe_rates must be other than 1, which is always gone through too; got [0.1, 1.0].",
        ),
        (["lst-data", "--samples", "60"], "samples must be whole numbers from 3 to 54; got [60]."),
        (["lst-data", "--samples", "54,2"], "samples must be whole numbers from 3 to 54; got [54, 2]."),
        (["lst-data", "--samples", "18,18"], "samples must be all different; got [18, 18]."),
        (["lst-size", "--to-order", "4"], "to_order must be above from_order, which is 4; got 4."),
        (["lst-size", "--from-order", "6"], "to_order must be above from_order, which is 6; got 5."),
        (["lst-size", "--to-order", "7"], "order must be 4, 5 or 6; got 7."),
        (
            ["lst-size", "--order", "5"],
            "order must be left out of lst-size, which goes through from_order and to_order; got 5.",
        ),
        (
            ["lst-causal", "--sigmas", "0.2,1"],
            "sigmas must be some with 2 among them: PEs are swapped between these; got [0.2, 1.0].",
        ),
        (
            ["lst-causal", "--sigmas", "1,2"],
            "sigmas must be some with 0.2 among them: PEs are swapped between these; got [1.0, 2.0].",
        ),
        (
            ["lst-causal", "--seeds", "3,1000"],
            "seeds must be below 1000: those above are the donors'; got [3, 1000].",
        ),
        (["lst-causal", "--members", "20:30"], "the members must include the origins of all members; 0:2 are"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_settings_of_studies_beyond_the_paper_that_make_no_sense(
    refuse: Refuse, words: list[str], sentence: str
) -> None:
    assert refuse("run", words[0], *BEYOND, *words[1:]).startswith(sentence)


def test_an_unknown_encoding_is_told_all_that_are_known(refuse: Refuse) -> None:
    sentence = refuse(*RUN, "--encoding", "learnt")
    assert sentence.startswith("encoding must be one of ")
    for name in ("none", "causal-none", "sinusoid", "random", "learned", "relative", "rotary", "alibi"):
        assert name in sentence
    assert sentence.endswith("; got 'learnt'.")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_cuda_where_there_is_none(refuse: Refuse, more: list[str]) -> None:
    assert refuse(*RUN, "--device", "cuda", *more) == (
        "device must be one that this machine has; got 'cuda', but torch sees no CUDA device here."
    )


def test_as_a_program_too_it_is_exit_code_2_one_line_and_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "placecode.cli", *RUN, "--sigmas", "small", "--out", "out"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=with_source_path())
    assert done.returncode == 2
    assert done.stderr == "placecode: sigmas must be a number; got 'small'.\n"
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def with_source_path() -> dict[str, str]:
    """The environment of a child in another folder: a relative path to the source would lead nowhere."""
    source = str(Path(cli.__file__).parents[2])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}


def test_long_sentences_stay_on_one_line(refuse: Refuse, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-rather-long-name-of-a-folder"] * 6)
    deep.mkdir(parents=True)
    (deep / "a.txt").touch()
    assert len(refuse(*RUN, "--out", str(deep))) > 200


def test_signs_that_mean_something_to_the_printer_are_printed(refuse: Refuse) -> None:
    assert refuse("run", "[bold]:smile:") == f"study must be one of {KNOWN}; got '[bold]:smile:'."


# The output folder


def test_a_folder_with_a_finished_run(refuse: Refuse, finished: Path) -> None:
    assert refuse(*RUN, "--out", str(finished)) == (
        f"the output folder {finished} must be new; it holds a finished run of lst-sigma (--force overwrites it)."
    )


def test_a_folder_with_an_unfinished_run(refuse: Refuse, unfinished: Path) -> None:
    assert refuse(*RUN, "--out", str(unfinished)) == (
        f"the output folder {unfinished} must be new; it holds an unfinished run of lst-sigma "
        "(--resume continues it, --force starts again)."
    )


@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_a_folder_with_a_different_study(refuse: Refuse, state: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(state)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "study": "lst-encodings"}))
    for more in ([], ["--resume"]):
        assert refuse(*RUN, "--out", str(folder), *more) == (
            f"the output folder {folder} must hold no other study; it holds lst-encodings, and this is lst-sigma."
        )


def test_a_folder_with_other_files(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    for more in ([], ["--resume"], ["--force"]):
        assert refuse(*RUN, "--out", "thesis", *more) == (
            "the output folder thesis must be new, empty or a run folder; it holds other files."
        )


def test_a_file(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert refuse(*RUN, "--out", "file") == "the output file must be a folder; it is a file."
    assert refuse(*RUN, "--out", "file/below") == (
        "the output folder file/below must be writable; it is not (Not a directory)."
    )


def test_a_name_that_no_folder_can_have(refuse: Refuse) -> None:
    assert refuse(*RUN, "--out", "a" * 300).endswith("must be writable; it is not (File name too long).")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc, where even root can make no folder")
def test_a_place_where_nobody_can_write(refuse: Refuse) -> None:
    assert refuse(*RUN, "--out", "/proc/placecode/run").startswith(
        "the output folder /proc/placecode/run must be writable; it is not ("
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("name", ["closed", "closed/new"])
def test_a_folder_without_permission(refuse: Refuse, tmp_path: Path, name: str) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    assert refuse(*RUN, "--out", name) == (f"the output folder {name} must be writable; it is not (Permission denied).")


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(30, "Read-only file system")])
@pytest.mark.parametrize("there", [False, True])
def test_a_folder_that_refuses_the_first_file(
    refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, there: bool
) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise error

    if there:
        (tmp_path / "out").mkdir()
    monkeypatch.setattr(Path, "mkdir", fail)
    assert refuse(*RUN, "--out", "out") == (f"the output folder out must be writable; it is not ({error.strerror}).")


def test_a_damaged_config(refuse: Refuse, unfinished: Path) -> None:
    file = unfinished / "config.json"
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    for more in ([], ["--resume"], ["--force"]):
        assert refuse(*RUN, "--out", str(unfinished), *more) == f"{file} is damaged: it is not JSON."
    file.write_text('{"format": 1}')
    assert refuse(*RUN, "--out", str(unfinished), "--resume") == f"{file} is damaged: it has no study."
    assert refuse("report", str(unfinished)) == f"{file} is damaged: it has no study."


# Resuming


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--epochs", "3"], "epochs was 2, now 3"),
        (["--learning-rate", "0.5"], "learning_rate was 0.0023, now 0.5"),
        (["--sigmas", "0.1,1.5"], "sigmas was [0.1, 2.0], now [0.1, 1.5]"),
        (["--optimizer", "sgd"], "optimizer was 'adam', now 'sgd'"),
        (["--stack", "4"], "stack was 2, now 4"),
        (["--precision", "highest"], "precision was 'high', now 'highest'"),
        (["--members", "0:2"], "members was '0:4', now '0:2'"),
        (["--clip", "1"], "clip was None, now 1.0"),
        (["--data-seed", "1"], "data_seed was 0, now 1"),
    ],
)
@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_resume_with_a_changed_config(
    refuse: Refuse, state: str, more: list[str], said: str, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(state)
    assert refuse(*RUN, "--out", str(folder), "--resume", *more) == (
        f"--resume must use the settings of the run; changed: {said} (--force starts again)."
    )


def test_resume_with_another_scale_names_all_that_comes_with_it(refuse: Refuse, unfinished: Path) -> None:
    sentence = refuse(*RUN, "--out", str(unfinished), "--resume", "--scale", "paper")
    assert "scale was 'quick', now 'paper'; " in sentence
    assert "learning_rate was 0.0023, now 0.0001" in sentence


def test_resume_with_other_puzzles_of_the_same_name(refuse: Refuse, puzzles: Path, tmp_path: Path) -> None:
    words = ["run", "lst-sigma", *TINY, "--puzzles", str(puzzles), "--out", "out"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", disk_full_after(7))
        assert cli.main(words) == 2
    write_folder(puzzles, *make_puzzles(np.random.default_rng(1), 4, 9, 20, 0.5))
    assert "changed: task.sha256 was '" in refuse(*words, "--resume")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def later(path: Path) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "step": 4}))


@pytest.mark.parametrize(
    ("name", "damage", "how"),
    [
        ("stack-000-8.safetensors", cut, "it was cut short or altered"),
        ("stack-000-8.safetensors", flip, "it was cut short or altered"),
        ("stack-000-8.safetensors", Path.unlink, "it is missing"),
        ("stack-000-8.parquet", cut, "it was cut short or altered"),
        ("stack-000-8.parquet", Path.unlink, "it is missing"),
        ("stack-000.json", cut, "it cannot be read"),
        ("stack-000.json", later, "it was altered"),
    ],
)
def test_a_damaged_checkpoint(
    refuse: Refuse, unfinished: Path, name: str, damage: Callable[[Path], None], how: str
) -> None:
    file = unfinished / "checkpoints" / name
    damage(file)
    assert refuse(*RUN, "--out", str(unfinished), "--resume") == (
        f"the checkpoint {file} is damaged, {how}; start the run again with --force."
    )


def test_and_the_advice_works(unfinished: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "publish", lambda run: run.path / "report.html")
    cut(unfinished / "checkpoints" / "stack-000-8.safetensors")
    assert cli.main([*RUN, "--out", str(unfinished), "--force"]) == 0
    assert (unfinished / "metrics.parquet").read_bytes() == (made / "finished" / "metrics.parquet").read_bytes()


# A disk that fills up


def test_a_disk_that_fills_up_is_one_sentence_and_resume_goes_on(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "publish", lambda run: run.path / "report.html")
    for count in (0, 1, 3, 7, 10):  # 0: nothing fits; 7: in the second stack; 10: among the results
        out = tmp_path / str(count)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", disk_full_after(count))
            assert cli.main([*RUN, "--out", str(out)]) == 2
        assert capsys.readouterr().err == (
            "placecode: the disk must have space for the results; it is full (No space left on device); finished "
            "members and the last checkpoint are kept: free some space and continue with --resume.\n"
        )
        assert out.exists() == (count > 0)
        assert cli.main([*RUN, "--out", str(out), "--resume"]) == 0
        for name in ("metrics.parquet", "weights.safetensors", "summary.json"):
            assert (out / name).read_bytes() == (made / "finished" / name).read_bytes()
        capsys.readouterr()


def test_a_real_limit_on_the_size_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoints of single members fit; the weights of all do not. The kernel says so, not a stand-in."""
    pytest.importorskip("resource")
    monkeypatch.setattr(cli, "publish", lambda run: run.path / "report.html")
    words, whole, out = [*RUN, "--stack", "1", "--out"], tmp_path / "whole", tmp_path / "out"
    assert cli.main([*words, str(whole)]) == 0
    limit = (whole / "weights.safetensors").stat().st_size - 1
    script = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit},) * 2)\n"
    script += f"import sys; from placecode import cli; sys.exit(cli.main({[*words, str(out)]!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=with_source_path())
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        "placecode: the disk must have space for the results; it is full (File too large); finished members and the "
        "last checkpoint are kept: free some space and continue with --resume.\n"
    )
    assert not Run(out).finished
    assert len(list(out.glob("checkpoints/*.json"))) == 4
    assert cli.main([*words, str(out), "--resume"]) == 0
    for name in ("metrics.parquet", "weights.safetensors", "summary.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 100 KiB. Only root can make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if (
        not mount
        or subprocess.run([mount, "-t", "tmpfs", "-o", "size=100k", "tmpfs", disk], capture_output=True).returncode
    ):
        pytest.skip("mounting a small disk needs root on Linux")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_real_small_disk(
    small_disk: Path, made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "publish", lambda run: run.path / "report.html")
    out = small_disk / "out"
    assert cli.main([*RUN, "--out", str(out)]) == 2
    assert "it is full (No space left on device); finished members" in capsys.readouterr().err
    assert (out / "checkpoints" / "stack-000.json").is_file()
    assert not list(out.rglob("*.part"))
    subprocess.run(["mount", "-o", "remount,size=10m", small_disk], check=True)
    assert cli.main([*RUN, "--out", str(out), "--resume"]) == 0
    for name in ("metrics.parquet", "weights.safetensors", "summary.json"):
        assert (out / name).read_bytes() == (made / "finished" / name).read_bytes()


def test_a_full_disk_elsewhere_than_in_a_run(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(run: Run) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cli, "publish", fail)
    assert cli.main(["report", str(finished)]) == 2
    assert capsys.readouterr().err == (
        "placecode: the disk must have space for the results; it is full (No space left on device); "
        "free some space and try again.\n"
    )


def test_another_trouble_of_the_system_is_a_failure_in_one_line(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(run: Run) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied", "report.html")

    monkeypatch.setattr(cli, "publish", fail)
    assert cli.main(["report", str(finished)]) == 1
    assert capsys.readouterr().err == "placecode: [Errno 13] Permission denied: 'report.html'\n"


# Puzzle files


@pytest.fixture
def puzzles(tmp_path: Path) -> Path:
    """A folder of puzzles in the published layout."""
    folder = tmp_path / "puzzles"
    write_folder(folder, *make_puzzles(np.random.default_rng(0), 4, 9, 20, 0.5))
    (folder / "sha256.txt").unlink()
    return folder


def test_good_puzzle_files_are_used(puzzles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "publish", lambda run: run.path / "report.html")
    assert cli.main([*RUN, "--puzzles", str(puzzles), "--out", "out"]) == 0
    assert Run("out").config["task"]["source"] == str(puzzles)


def test_held_out_puzzles_of_one_class_alone_are_enough(puzzles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not there has no accuracy, and no member is to blame for that."""
    monkeypatch.setattr(cli, "publish", lambda run: run.path / "report.html")
    file = puzzles / "human_puzzles.csv"
    file.write_text(
        "\n".join(line for line in file.read_text().splitlines() if "ary," not in line or "Binary," in line)
    )
    assert cli.main([*RUN, "--puzzles", str(puzzles), "--out", "out"]) == 0
    assert Run("out").members["state"].tolist() == ["done"] * 4
    assert Run("out").config["task"]["counts"]["ood"] == {"Binary": 3, "Ternary": 0, "Quaternary": 0}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("Binary,123500000000000,4", "a puzzle of order 4 has 16 digits; got 15"),
        ("Binary,12350000000000000,4", "a puzzle of order 4 has 16 digits; got 17."),
        ("Binary,1235000000000009,4", "a puzzle of order 4 has the digits 0 to 5; got '9'."),
        ("Binary,1235000000000x00,4", "a puzzle of order 4 has the digits 0 to 5; got 'x'."),
        ("Binary,1230000000000000,4", "a puzzle of order 4 has one target, 5; got 0."),
        ("Binary,1235000000000005,4", "a puzzle of order 4 has one target, 5; got 2."),
        ("Binary,1235100010000000,4", "the puzzle 1235100010000000 has symbol 1 twice in column 1."),
        ("Binary,1235000400000000,4", "the puzzle 1235000400000000 has no completion to a Latin square."),
        (
            "Binary,1205000000000000,4",
            "the puzzle 1205000000000000 has more than one solution: the target can be 3 or 4.",
        ),
        ("Binary,1235000000000000,3", "the solution of the puzzle 1235000000000000 is 4; got '3'."),
        ("Unary,1235000000000000,4", "condition must be one of Binary, Ternary, Quaternary; got 'Unary'."),
        ("Ternary,1205000300000000,4", "the file is for Binary puzzles; got condition 'Ternary'."),
        ("Binary,1235000000000000", "must have 5 values; got 4."),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(refuse: Refuse, puzzles: Path, row: str, said: str) -> None:
    file = puzzles / "train_binary.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines, f"99,,{row}"]) + "\n")
    place = f"{file}, line {len(lines) + 1}: "
    assert refuse(*RUN, "--puzzles", str(puzzles)).startswith(place + said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty; it must have the columns ID, LST_num, condition, puzzles, solutions."),
        (b"ID,LST_num,condition,puzzles,solutions\n", "has a header and no puzzles."),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "must be a text file in UTF-8; byte 0 is not."),
        (b"a\0b", "must be a text file in UTF-8; it has a zero byte."),
        (b"a,b\n1,2\n", "must have the columns ID, LST_num, condition, puzzles, solutions; missing: condition"),
    ],
)
def test_a_file_that_is_none_is_named(refuse: Refuse, puzzles: Path, content: bytes, said: str) -> None:
    for name in ("train_ternary.csv", "human_puzzles.csv"):
        before = (puzzles / name).read_bytes()
        (puzzles / name).write_bytes(content)
        assert refuse(*RUN, "--puzzles", str(puzzles)).startswith(f"{puzzles / name} {said}")
        (puzzles / name).write_bytes(before)


def test_a_missing_folder_and_a_missing_file_of_puzzles(refuse: Refuse, puzzles: Path) -> None:
    files = "train_binary.csv, train_ternary.csv, train_quaternary.csv, human_puzzles.csv"
    assert refuse(*RUN, "--puzzles", "none") == f"none must be a folder with {files}; missing: {files}."
    (puzzles / "human_puzzles.csv").unlink()
    assert refuse(*RUN, "--puzzles", str(puzzles)) == (
        f"{puzzles} must be a folder with {files}; missing: human_puzzles.csv."
    )


def test_training_puzzles_too_near_to_the_held_out_ones(refuse: Refuse, puzzles: Path) -> None:
    sentence = refuse(*RUN, "--puzzles", str(puzzles), "--distance", "0.95")
    assert f"{puzzles / 'train_binary.csv'}, line " in sentence
    assert "their Jaccard distance must be above 0.95; it is 0." in sentence


# Merging, reporting, listing


def test_merging_what_does_not_belong_together(refuse: Refuse, finished: Path, unfinished: Path) -> None:
    one = str(finished)
    assert refuse("merge", one, "--out", "out") == "merge must be given at least 2 runs; got 1."
    assert refuse("merge", one, one, "--out", "out") == (
        "merged runs must hold different members; more than one holds member 0."
    )
    assert refuse("merge", one, str(unfinished), "--out", "out") == (
        f"{unfinished} has no summary.json: the run is not finished; "
        f"continue it with 'placecode run ... --out {unfinished} --resume'."
    )
    other = Path(shutil.copytree(finished, "other"))
    config = json.loads((other / "config.json").read_text())
    config["fields"]["epochs"] = 9
    (other / "config.json").write_text(json.dumps(config))
    assert refuse("merge", one, "other", "--out", "out") == (
        f"merged runs must be pieces of one study; {one} and other differ: epochs was 2, now 9."
    )


def test_a_report_of_what_is_not_finished_or_not_known(refuse: Refuse, finished: Path, unfinished: Path) -> None:
    assert refuse("report", str(unfinished)) == (
        f"{unfinished} has no summary.json: the run is not finished; "
        f"continue it with 'placecode run ... --out {unfinished} --resume'."
    )
    config = json.loads((finished / "config.json").read_text())
    (finished / "config.json").write_text(json.dumps({**config, "study": "lst-future"}))
    assert refuse("report", str(finished)) == f"study must be one of {KNOWN}; got 'lst-future'."
    fields = {**config["fields"], "temperature": 1.0}
    (finished / "config.json").write_text(json.dumps({**config, "fields": fields}))
    assert refuse("report", str(finished)) == (
        f"{finished / 'config.json'} must have no settings but those of lst-sigma that this version knows; "
        "it also has temperature."
    )


def test_a_report_of_damaged_results(refuse: Refuse, finished: Path) -> None:
    cut(finished / "metrics.parquet")
    assert refuse("report", str(finished)) == f"{finished / 'metrics.parquet'} is damaged: it is not a Parquet table."


def test_listing_a_file(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refuse("runs", "file") == "file must be a folder with runs; there is no such folder."
