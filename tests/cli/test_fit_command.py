"""`placecode fit`: a table of any format in, a map and a report out; stopped, resumed, forced and refused."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.table_data import write

from placecode import cli
from placecode.cli import reporting
from placecode.data.tables import files as table_files
from placecode.execution import local
from placecode.experiments import study_of
from placecode.experiments.channels.own import OwnData
from placecode.fit import others
from placecode.runs import read as runs
from placecode.runs.read import Run

TINY = ["--steps", "20", "--width", "8", "--layers", "1", "--draws", "19", "--device", "cpu", "--sigma", "0.05,0.2"]
TINY += ["--batch", "16"]
NAMES = ["<b>a</b>", "b & c", "d", "$e$", "f", "g"]
PRODUCTS = {"fit.json", "fit.safetensors", "map.csv"}

Refuse = Callable[..., str]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(others, "find_spec", lambda name: None)  # importing UMAP takes longer than all of this


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.fit, "publish", lambda run: run.path / "report.html")


def frame(samples: int = 200) -> pd.DataFrame:
    """Three pairs of channels, each two nearly the same."""
    rng = np.random.default_rng(0)
    source = rng.normal(size=(samples, 3)).repeat(2, axis=1)
    return pd.DataFrame(source + 0.2 * rng.normal(size=(samples, 6)), columns=NAMES)


def files(folder: Path) -> list[str]:
    """A table and what is known of its channels, as words of the command line."""
    frame().to_csv(folder / "t.csv", index=False)
    pd.DataFrame({"name": NAMES, "x": [0, 1, 5, 6, 9, 10.5], "y": [0, 0, 1, 1, 4, 4]}).to_csv(
        folder / "places.csv", index=False
    )
    pd.DataFrame({"name": NAMES, "label": ["one", "one", "two", "two", "<i>", "<i>"]}).to_csv(
        folder / "labels.csv", index=False
    )
    return ["--positions", str(folder / "places.csv"), "--labels", str(folder / "labels.csv")]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A fit made by the command line, report and all, and what it printed; no test changes it."""
    folder = tmp_path_factory.mktemp("fits")
    known = files(folder)
    code = (
        "import sys; from placecode.fit.fitting import others; others.find_spec = lambda name: None; "
        "from placecode.cli import main; sys.exit(main())"
    )
    words = ["fit", "t.csv", *known, *TINY, "--steps", "300", "--learning-rate", "0.005", "--out", "first"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=folder, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "first", done.stdout


# What it leaves and says


def test_it_leaves_a_run_folder_with_the_map(fitted: tuple[Path, str]) -> None:
    names = {path.name for path in fitted[0].iterdir()}
    assert names == {*runs.FILES, "figures"} - {"baselines.parquet"} and names >= PRODUCTS
    assert {path.stem for path in (fitted[0] / "figures").iterdir()} == {"map", "methods", "sigma"}
    table = pd.read_csv(fitted[0] / "map.csv")
    assert table["name"].tolist() == NAMES and table["label"].tolist() == ["one", "one", "two", "two", "<i>", "<i>"]
    assert {"x", "y", "module", "confidence", "neighbor_1", "neighbor_1_confidence"} <= set(table.columns)


def test_the_summary_holds_what_was_promised(fitted: tuple[Path, str]) -> None:
    told = json.loads((fitted[0] / "summary.json").read_text())
    wanted = {"procrustes_r2", "neighbor_agreement", "ari"}
    assert {"verdict", "p_value", "sigma", "heldout_mse", "linear_mse", *wanted, "rows", "study"} <= set(told)
    assert told["verdict"] == "structure found" and told["p_value"] == 0.05 and told["sigma"] in (0.05, 0.2)
    assert told["heldout_mse"] < 0.9 * told["mean_mse"] and told["neighbor_agreement"] > 0.5
    assert set(told["baselines"]) == {"correlation", "pca", "graphical lasso"}
    for scores in told["baselines"].values():
        assert {"heldout_mse", *wanted} <= set(scores)
    assert told["linear_mse"] == told["baselines"]["correlation"]["heldout_mse"]


def findings(printed: str) -> list[str]:
    """What a command says once it is done."""
    return [line for line in printed.splitlines() if not line.startswith("stack ") and not line.endswith(" ...")]


def test_the_first_sentence_is_the_verdict_here_and_in_the_report(fitted: tuple[Path, str]) -> None:
    told = json.loads((fitted[0] / "summary.json").read_text())
    said = findings(fitted[1])
    assert said[0].startswith("Structure found") and f"p = {told['p_value']:.3g}" in said[0]
    assert f"held-out error {told['heldout_mse']:.3f}" in said[0]
    assert said[-2:] == ["Map: first/map.csv", "Report: first/report.html"]
    page = (fitted[0] / "report.html").read_text()
    assert said[0].split(" (p = ")[0] in page


def test_names_with_html_are_escaped_in_the_report(fitted: tuple[Path, str]) -> None:
    page = (fitted[0] / "report.html").read_text()
    assert "<b>a</b>" not in page and "<i>" not in page
    assert re.search(r"&lt;b&gt;a|\\u003cb\\u003ea|\\u003cb>a", page)


def test_report_runs_and_claims_know_a_fit(fitted: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    before = (fitted[0] / "report.html").read_bytes()
    assert cli.main(["report", str(fitted[0])]) == 0
    assert (fitted[0] / "report.html").read_bytes() == before
    capsys.readouterr()
    assert cli.main(["runs", str(fitted[0].parent)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "│ fit" in line)
    assert "done" in line and re.search(r"30% hidden: 0\.05: \d\.\d\d +0\.2: \d\.\d\d", line)
    assert cli.main(["claims", str(fitted[0])]) == 0
    assert capsys.readouterr().out == f"{fitted[0]}: there are no claims about fit.\n"
    assert cli.main(["claims", "--json", str(fitted[0])]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_the_command_in_the_report_makes_the_same_fit_again(
    fitted: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_report: None
) -> None:
    first = Run(fitted[0])
    monkeypatch.chdir(fitted[0].parent)
    words = shlex.split(reporting.command_of(first, study_of(first)))
    assert words[:2] == ["placecode", "fit"]
    assert cli.main([*words[1:], "--out", str(tmp_path / "again")]) == 0
    assert Run(tmp_path / "again").config == first.config
    for name in (*PRODUCTS, "summary.json", "weights.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (fitted[0] / name).read_bytes(), name


def test_the_pe_learns_three_times_as_fast_unless_it_is_told(fitted: tuple[Path, str]) -> None:
    run = Run(fitted[0])
    fields = run.config["fields"]
    assert (fields["learning_rate"], fields["pe_learning_rate"]) == (0.005, 0.015)
    study = study_of(run)
    assert isinstance(study, OwnData)
    words = reporting.command_of(run, study).split()
    assert "--learning-rate" in words and "--pe-learning-rate" not in words
    words = reporting.command_of(run, replace(study, pe_learning_rate=0.006)).split()
    assert words[words.index("--pe-learning-rate") + 1] == "0.006"
    given = {"learning_rate": 1e-4, "pe_learning_rate": 0.5}
    assert OwnData.sized("quick", 6, **given)["pe_learning_rate"] == 0.5


@pytest.mark.parametrize(
    "name", ["t.csv", "t.tsv", "semicolons.csv", "bare.csv", "t.parquet", "t.npy", "t.npz", "t.mat", "v73.mat", "t.h5"]
)
def test_every_format_is_fitted_alike(
    name: str, tmp_path: Path, no_report: None, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / name, frame(100).astype(np.float32).set_axis(list("abcdef"), axis=1))
    words = [*TINY, "--sigma", "0.05", "--steps", "2", "--seeds", "1"]
    assert cli.main(["fit", name, *words, *(["--key", "rest/series"] if name in ("v73.mat", "t.h5") else [])]) == 0
    out = Path("runs") / f"fit-{Path(name).stem}"
    named = name in ("t.csv", "t.tsv", "semicolons.csv", "t.parquet")
    expected = list("abcdef") if named else [f"channel {i}" for i in range(1, 7)]
    assert pd.read_csv(out / "map.csv")["name"].tolist() == expected
    told = json.loads((out / "summary.json").read_text())
    assert told["heldout_mse"] == pytest.approx(_plain_error(tmp_path), rel=1e-4)  # rounding of texts aside
    assert not list(tmp_path.glob(".placecode-*"))


def _plain_error(folder: Path, known: list[float] = []) -> float:  # noqa: B006  (kept between formats)
    if not known:
        np.save(folder / "plain.npy", frame(100).to_numpy(dtype=np.float32))
        words = [*TINY, "--sigma", "0.05", "--steps", "2", "--seeds", "1", "--out", "plain"]
        assert cli.main(["fit", "plain.npy", *words]) == 0
        known.append(json.loads((folder / "plain" / "summary.json").read_text())["heldout_mse"])
    return known[0]


def test_groups_names_and_categories_are_read(tmp_path: Path, no_report: None) -> None:
    table = frame()
    table["wind"] = np.random.default_rng(0).choice(["west", "east", "north"], len(table))
    table["who"] = [f"p{i // 25}" for i in range(len(table))]
    table.to_csv("t.csv", index=False)
    (tmp_path / "names.txt").write_text("\n".join(["k1", "k2", "k3", "k4", "k5", "k6", "k7"]))
    words = ["fit", "t.csv", *TINY, "--groups", "who", "--names", "names.txt", "--out", "a"]
    assert cli.main(words) == 0
    assert pd.read_csv("a/map.csv")["name"].tolist() == [f"k{i}" for i in range(1, 8)]
    fields = Run("a").config["fields"]
    assert (fields["groups"], fields["names"]) == ("who", "names.txt")
    told = json.loads(Path("a/summary.json").read_text())
    assert told["left_out"]["graphical lasso"] == "left out: it is for numbers, and some channels are categories"


def test_a_single_model_is_told_from_what_is_sure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files(tmp_path)
    assert cli.main(["fit", "t.csv", *TINY, "--sigma", "0.1", "--seeds", "1", "--halves", "0", "--out", "a"]) == 0
    assert "A single model was trained, so that nothing can be said of how sure its map is." in capsys.readouterr().out
    told = json.loads(Path("a/summary.json").read_text())
    assert told["confidence"] is None and told["sigma"] == 0.1 and Path("a/report.html").is_file()
    assert np.isnan(pd.read_csv("a/map.csv")["confidence"]).all()


def test_seeds_are_a_number_or_a_list(tmp_path: Path, no_report: None) -> None:
    files(tmp_path)
    for given, seeds in (("2", [0, 1]), ("7,3", [7, 3])):
        words = ["fit", "t.csv", *TINY, "--sigma", "0.1", "--steps", "2", "--halves", "0"]
        assert cli.main([*words, "--seeds", given, "--out", given]) == 0
        assert Run(Path(given)).members["seed"].tolist() == seeds


def test_labels_that_are_all_empty_score_nothing(tmp_path: Path, no_report: None) -> None:
    files(tmp_path)
    pd.DataFrame({"name": NAMES, "label": [""] * 6}).to_csv("labels.csv", index=False)
    assert cli.main(["fit", "t.csv", *TINY, "--labels", "labels.csv", "--out", "a"]) == 0
    told = json.loads(Path("a/summary.json").read_text())
    assert "ari" not in told and not any("ari" in scores for scores in told["baselines"].values())


def test_constant_channels_are_left_out_with_a_sentence(
    tmp_path: Path, no_report: None, capsys: pytest.CaptureFixture[str]
) -> None:
    frame().assign(still=3.0).to_csv("t.csv", index=False)
    assert cli.main(["fit", "t.csv", *TINY, "--out", "a"]) == 0
    out, err = capsys.readouterr()
    assert err == "placecode: a channel is left out, since it does not vary in the training samples: 'still'\n"
    assert "; 1 channel that does not vary was left out." in out


# Stopped, resumed, forced


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(["fit", "t.csv", *TINY, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("fit: 8 members in ")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture
def copied(fitted: tuple[Path, str], tmp_path: Path) -> tuple[Path, list[str]]:
    """A finished fit that may be changed, and the words that made it."""
    for name in ("t.csv", "places.csv", "labels.csv"):
        shutil.copy(fitted[0].parent / name, tmp_path / name)
    out = Path(shutil.copytree(fitted[0], tmp_path / "first"))
    fields = Run(out).config["fields"]
    words = ["fit", "t.csv", "--positions", fields["positions"], "--labels", fields["labels"], *TINY]
    return out, [*words, "--steps", "300", "--learning-rate", "0.005", "--out", "first"]


def test_a_finished_fit_is_shown_again_and_not_overwritten(
    copied: tuple[Path, list[str]], fitted: tuple[Path, str], no_report: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out, words = copied
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.rglob("*") if path.is_file()}
    assert cli.main([*words, "--resume"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines() == findings(fitted[1])
    assert cli.main(words) == 2
    assert capsys.readouterr().err == (
        "placecode: the output folder first must be new; it holds a finished run of fit (--force overwrites it).\n"
    )
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before} == before


@pytest.mark.parametrize("lost", [PRODUCTS, {"fit.json"}, {"map.csv"}, set()])
def test_a_fit_that_was_killed_before_its_verdict_is_concluded_anew(
    lost: set[str], copied: tuple[Path, list[str]], fitted: tuple[Path, str], no_report: None
) -> None:
    """Training is over, and what was found is not written, or in part, or not yet in the summary."""
    out, words = copied
    for name in lost:
        (out / name).unlink()
    told = json.loads((out / "summary.json").read_text())
    (out / "summary.json").write_text(json.dumps({name: told[name] for name in ("study", "step", "rows")}))
    assert cli.main([*words, "--resume"]) == 0
    for name in (*PRODUCTS, "summary.json"):
        assert (out / name).read_bytes() == (fitted[0] / name).read_bytes(), name


def test_a_report_of_a_fit_without_a_verdict_says_so(
    copied: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (copied[0] / "fit.json").unlink()
    assert cli.main(["report", "first"]) == 2
    assert capsys.readouterr().err == (
        "placecode: first must hold a finished fit, with fit.json and fit.safetensors; it does not.\n"
    )


def test_force_fits_anew(copied: tuple[Path, list[str]], no_report: None) -> None:
    out, words = copied
    before = (out / "map.csv").read_bytes()
    assert cli.main([*words, "--force", "--steps", "5", "--data-seed", "1"]) == 0
    assert Run(out).config["fields"]["steps"] == 5 and (out / "map.csv").read_bytes() != before
    assert (
        json.loads((out / "fit.json").read_text())["heldout_mse"]
        == json.loads((out / "summary.json").read_text())["heldout_mse"]
    )


def test_ctrl_c_saves_and_the_printed_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_report: None, capsys: pytest.CaptureFixture[str]
) -> None:
    files(tmp_path)
    words = ["fit", "t.csv", *TINY, "--steps", "60", "--evaluations", "6"]
    assert cli.main([*words, "--out", "whole"]) == 0
    plain = local.execute

    def execute(*given: Any, notify: Callable[[Any], None], **named: Any) -> Run:
        def told(event: Any) -> None:
            notify(event)
            if event.progress.step and not asked:
                asked.append(True)
                main = threading.main_thread().ident
                assert main is not None
                signal.pthread_kill(main, signal.SIGINT)  # as a terminal does; this thread is another
                time.sleep(0.3)

        asked: list[bool] = []
        return plain(*given, notify=notify if resumed else told, **named)

    resumed = False
    monkeypatch.setattr(local, "execute", execute)
    capsys.readouterr()
    assert cli.main([*words, "--out", "broken", "--force"]) == 130
    said, command = capsys.readouterr().err.splitlines()
    assert said == "Stopped and saved. Continue with:" and not Run("broken").finished
    assert not list(tmp_path.glob(".placecode-*"))
    again = shlex.split(command)
    assert again == ["placecode", *words, "--out", "broken", "--resume"]
    resumed = True
    assert cli.main(again[1:]) == 0
    for name in (*PRODUCTS, "summary.json", "weights.safetensors"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


# Bad input


@pytest.fixture
def refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refuse:
    """Fits what must be refused, and gives the sentence; nothing is left behind."""

    def call(*words: str) -> str:
        capsys.readouterr()
        before = {path: path.read_bytes() if path.is_file() else None for path in sorted(tmp_path.rglob("*"))}
        assert cli.main(["fit", *words]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith("placecode: ") and err.endswith(".\n") and "Traceback" not in err
        after = {path: path.read_bytes() if path.is_file() else None for path in sorted(tmp_path.rglob("*"))}
        assert after == before
        return err.removeprefix("placecode: ").removesuffix("\n")

    return call


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--sigma", "small"], "sigma must be a number; got 'small'."),
        (["--sigma", "-1"], "sigma must be a number of at least 0; got -1.0."),
        (["--sigma", "nan"], "sigma must be a number of at least 0; got nan."),
        (["--sigma", "0.1,0.1"], "sigmas must be all different; got [0.1, 0.1]."),
        (["--sigma", ","], "sigmas must be at least one; got []."),
        (["--sigma"], "argument --sigma: expected at least one argument (see 'placecode fit --help')."),
        (["--effort", "huge"], "effort must be one of auto, quick, thorough; got 'huge'."),
        (["--device", "tpu"], "device must be one of auto, cpu, cuda; got 'tpu'."),
        (["--precision", "fp8"], "precision must be one of high, tf32, highest, bf16; got 'fp8'."),
        (["--steps", "0"], "steps must be a whole number of at least 1; got 0."),
        (["--steps", "1e3"], "steps must be a whole number; got '1e3'."),
        (["--seeds", "0"], "seeds must be at least one, as a number of seeds or a list a,b,c; got 0."),
        (["--seeds", ","], "seeds must be at least one; got []."),
        (["--seeds=-1,0"], "seed must be a whole number of at least 0; got -1."),
        (["--seeds", "4,4"], "seeds must be all different; got [4, 4]."),
        (["--seeds", "two"], "seeds must be a whole number; got 'two'."),
        (["--stack", "0"], "stack must be a whole number of at least 1; got 0."),
        (["--draws", "3"], "draws must be a whole number of at least 19; got 3."),
        (["--halves", "-1"], "halves must be a whole number of at least 0; got -1."),
        (["--neighbors", "0"], "neighbors must be a whole number of at least 1; got 0."),
        (["--hidden", "1"], "the share of hidden channels must be a number above 0 and below 1; got 1.0."),
        (["--data-seed", "-1"], "data_seed must be a whole number of at least 0; got -1."),
        (["--groups", "who"], "groups must be the name of a column of t.csv, or a file with a group a row; got 'who'."),
        (["--labels", "no.csv"], "no.csv cannot be read: No such file or directory."),
        (["--positions", "no.csv"], "no.csv cannot be read: No such file or directory."),
        (["--names", "no.txt"], "no.txt cannot be read: No such file or directory."),
        (["--key", "x"], "key is for files of .npz, .mat, .h5, .hdf5, which hold several tables; got 'x' for t.csv."),
        (
            ["--resume", "--force"],
            "--resume and --force must not be used together: one keeps the earlier run, the other deletes it.",
        ),
    ],
)
def test_wrong_words_are_refused(words: list[str], sentence: str, refuse: Refuse, tmp_path: Path) -> None:
    files(tmp_path)
    assert refuse("t.csv", *TINY, *words) == sentence


def test_wrong_tables_are_refused(refuse: Refuse, tmp_path: Path) -> None:
    plain = frame().set_axis(list("abcdef"), axis=1)

    def told(table: pd.DataFrame, *words: str, name: str = "x.csv") -> str:
        table.to_csv(name, index=False)
        return refuse(name, *TINY, *words)

    text = plain.astype(object)
    text.loc[6, "c"] = "low"
    assert told(text) == "x.csv, line 8: column 'c' must hold numbers; got 'low'."
    assert told(plain[list("abcd")]) == "x.csv must have at least 5 channels, one in each column; it has 4."
    assert told(plain.head(30)) == "x.csv must have at least 50 samples, one in each row; it has 30."
    assert told(plain * 0 + 1) == (
        "at least one channel must vary; all of them are constant or missing in the training samples."
    )
    assert told(plain.set_axis(list("aacdef"), axis=1)) == (
        "The names of the channels of x.csv must all be different; given twice: 'a'."
    )
    holes = plain.copy()
    holes.iloc[:130] = np.nan
    assert told(holes) == "At most half of the values of x.csv may be missing; 65.0% are."
    Path("x.xlsx").write_bytes(b"PK..")
    assert refuse("x.xlsx", *TINY).startswith("The format of x.xlsx must be one of .csv, .tsv, .parquet, .npy, .npz, ")
    Path("x.parquet").write_bytes(b"PAR1 and no more")
    assert refuse("x.parquet", *TINY).startswith("x.parquet ")
    Path("empty.csv").write_text("")
    assert refuse("empty.csv", *TINY) == "empty.csv is empty."
    assert refuse("none.csv", *TINY) == "none.csv cannot be read: No such file or directory."


def test_too_few_channels_that_vary_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame().set_axis(list("abcdef"), axis=1).assign(a=1.0, b=2.0).to_csv("x.csv", index=False)
    assert cli.main(["fit", "x.csv", *TINY]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "placecode: channels are left out, since they do not vary in the training samples: 'a', 'b'",
        "placecode: x.csv must be a table in which at least 5 channels vary; got 4.",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_what_is_known_of_other_channels_is_refused(refuse: Refuse, tmp_path: Path) -> None:
    files(tmp_path)
    places = pd.read_csv("places.csv")
    places.head(5).to_csv("short.csv", index=False)
    assert refuse("t.csv", *TINY, "--positions", "short.csv") == (
        "short.csv must have a row for each of the 6 channels; missing: 'g'."
    )
    places.drop(columns="y").to_csv("flat.csv", index=False)
    assert refuse("t.csv", *TINY, "--positions", "flat.csv") == (
        "flat.csv must have the columns name, x, y and, if any, z; got 'name', 'x'."
    )
    pd.read_csv("labels.csv").head(3).to_csv("few.csv", index=False)
    assert refuse("t.csv", *TINY, "--labels", "few.csv").startswith(
        "few.csv must have a row for each of the 6 channels; missing: "
    )
    Path("groups.txt").write_text("a\nb\n")
    assert refuse("t.csv", *TINY, "--groups", "groups.txt") == (
        "groups.txt must have 200 groups, one for each row of t.csv; it has 2."
    )
    Path("names.txt").write_text("a\nb\n")
    assert refuse("t.csv", *TINY, "--names", "names.txt") == (
        "names must have 6 names, one for each channel of t.csv; got 2."
    )


def test_a_table_larger_than_memory_goes_through_the_disk_or_is_refused(
    refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_report: None
) -> None:
    """A quarter of the memory is for the values; a text file goes beside the run for a while, .npz cannot."""
    values = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    pd.DataFrame(values, columns=list("abcdef")).to_csv("t.csv", index=False)
    np.savez("t.npz", series=values)
    assert cli.main(["fit", "t.csv", *TINY, "--out", "roomy"]) == 0
    monkeypatch.setattr(table_files, "available", lambda: 4 * 1_000)
    assert cli.main(["fit", "t.csv", *TINY, "--out", "tight"]) == 0
    assert Path("roomy/map.csv").read_bytes() == Path("tight/map.csv").read_bytes()
    assert not list(tmp_path.glob(".placecode-*"))
    assert "t.npz" in refuse("t.npz", *TINY)


def test_a_folder_of_something_else_is_refused(refuse: Refuse, tmp_path: Path, fitted: tuple[Path, str]) -> None:
    files(tmp_path)
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    assert refuse("t.csv", *TINY, "--out", "mine") == (
        "the output folder mine must be new, empty or a run folder; it holds other files."
    )
    other = Path(shutil.copytree(fitted[0], tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "study": "lst-sigma"}))
    for words in ([], ["--resume"]):
        assert refuse("t.csv", *TINY, "--out", "other", *words) == (
            "the output folder other must hold no other study; it holds lst-sigma, and this is fit."
        )


def test_a_folder_that_cannot_be_written_is_refused(
    refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(tmp_path)

    def made(reason: int) -> Callable[..., str]:
        def make(*_: object) -> str:
            raise OSError(reason, os.strerror(reason), "a/.placecode-1")

        return make

    for reason, why in ((errno.EACCES, "Permission denied"), (errno.ENOENT, "No such file or directory")):
        monkeypatch.setattr(tempfile, "mkdtemp", made(reason))
        assert refuse("t.csv", *TINY, "--out", "a/b") == f"the output folder a/b must be writable; it is not ({why})."
    monkeypatch.setattr(tempfile, "mkdtemp", made(errno.ENOSPC))  # no fault of the folder
    assert refuse("t.csv", *TINY, "--out", "a/b").startswith("the disk must have space for the results; it is full")


def test_what_is_known_is_not_added_to_a_finished_fit(refuse: Refuse, copied: tuple[Path, list[str]]) -> None:
    shutil.copy("labels.csv", "others.csv")
    assert refuse(*copied[1][1:], "--labels", "others.csv", "--resume") == (
        f"--resume must use the settings of the run; changed: labels was {copied[1][5]!r}, now 'others.csv' (--force "
        "starts again)."
    )


def test_another_table_is_not_resumed(refuse: Refuse, copied: tuple[Path, list[str]]) -> None:
    table = pd.read_csv("t.csv")
    table.iloc[3, 2] += 1
    table.to_csv("t.csv", index=False)
    assert refuse(*copied[1][1:], "--resume").startswith("--resume must use the settings of the run; changed: ")


def test_every_setting_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["fit", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert done.value.code == 0 and "==SUPPRESS==" not in printed
    for word in ("--positions", "--labels", "--groups", "--names", "--sigma", "--effort", "--steps", "--hidden"):
        assert word in printed
