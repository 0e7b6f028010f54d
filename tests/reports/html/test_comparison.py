"""Several runs on one page: joined by setting, told apart by name, and refused in a sentence."""

from pathlib import Path
from typing import Any

import pytest
from helpers.report_parts import CLAIM, UNTESTED, Page, made_up_page, make, plus_minus

from placecode.cli import main
from placecode.errors import BadInput
from placecode.reports.html import comparison
from placecode.reports.html.tables import MISSING

RESULTS = Path(__file__).parents[3] / "results"


def render(*pages: Any) -> Page:
    return Page(comparison.render(pages, [f"placecode run {page.run.path.name}" for page in pages]))


@pytest.fixture
def pair(tmp_path: Path) -> list[Any]:
    runs = [make(tmp_path / "a" / "x", sigmas=(0.2, 2.0)), make(tmp_path / "b" / "x", sigmas=(0.2, 1.0), seeds=2)]
    runs[1].config = {**runs[1].config, "fields": {**runs[1].config["fields"], "epochs": 7, "extra": "<b>"}}
    for run in runs:
        run.path.mkdir(parents=True)
    return runs


def test_common_settings_are_joined(pair: list[Any]) -> None:
    head, *rows = render(*map(made_up_page, pair)).table("Accuracy at the final step on")
    assert head == ["setting", "\N{GREEK SMALL LETTER SIGMA}", "split", "condition", "a/x", "b/x"]
    cells = {tuple(row[:3]): row[4:] for row in rows}
    assert set(cells) == {("learned", sigma, split) for sigma in ("0.2", "2", "1") for split in ("test", "ood")}
    for run, column in zip(pair, (0, 1), strict=True):
        last = run.metrics[(run.metrics["step"] == 9) & (run.metrics["condition"] == "all")]
        chosen = run.members.loc[run.members["sigma"] == 0.2, "member"]
        values = last[last["member"].isin(chosen) & (last["split"] == "test")]["value"].to_numpy()
        assert cells["learned", "0.2", "test"][column] == plus_minus(values)
    assert cells["learned", "2", "test"][1] == cells["learned", "1", "test"][0] == "\N{EN DASH}"


def test_only_settings_that_differ_are_listed(pair: list[Any]) -> None:
    rows = {row[0]: row[1:] for row in render(*map(made_up_page, pair)).table("Settings in which")[1:]}
    assert rows == {"sigmas": ["0.2, 2", "0.2, 1"], "epochs": ["120", "7"], "extra": ["\N{EN DASH}", "<b>"]}


def test_metrics_are_not_mixed(pair: list[Any]) -> None:
    pair[1].summary = [{**row, "metric": "mse"} for row in pair[1].summary]
    page = render(made_up_page(pair[0]), made_up_page(pair[1], metric="mse"))
    assert page.table("Accuracy")[0][4:] == ["a/x"] and page.table("MSE")[0][4:] == ["b/x"]


def test_verdicts_stand_beside_each_other(pair: list[Any]) -> None:
    tested = {**CLAIM, "number": "no match", "number_text": "no match (0.5)"}
    plain = {**CLAIM, "statement": "And so."}
    untested = {**UNTESTED, "number": "no match"}
    page = render(made_up_page(pair[0], claims=[tested, plain]), made_up_page(pair[1], claims=[untested]))
    assert page.table("Verdicts")[1:] == [
        ["It is so.", "reproduced (0.700); number: no match (0.5)", "\N{EN DASH}"],
        ["And so.", "reproduced (0.700)", "\N{EN DASH}"],
    ]


def test_environments_of_runs_stand_beside_each_other(pair: list[Any]) -> None:
    pair[1].environment = {**pair[1].environment, "git": "abc", "versions": {"torch": "2.14.0"}, "split": ["0:6"] * 40}
    rows = {row[0]: row[1:] for row in render(*map(made_up_page, pair)).table("Versions")[1:]}
    assert rows["versions / torch"] == ["2.13.0", "2.14.0"]
    assert rows["versions / numpy"] == ["2.4.6", MISSING] and rows["git"] == [MISSING, "abc"]
    assert rows["device"] == ["cpu", "cpu"] and "split" not in rows


def test_what_cannot_be_compared_is_refused(pair: list[Any], tmp_path: Path) -> None:
    paths, page = [run.path for run in pair], tmp_path / "page.html"
    for runs, target, words in (
        (paths[:1], page, "at least two runs"),
        ([paths[0], paths[0]], page, "more than once"),
        (paths, tmp_path / "page.txt", "ends in .html"),
        (paths, tmp_path / "nowhere" / "page.html", "a folder that exists"),
    ):
        with pytest.raises(BadInput, match=words):
            comparison.refuse(runs, target)
    comparison.refuse(paths, page)
    assert comparison.write([*map(made_up_page, pair)], ["a", "b"], page) == page
    Page(page.read_text())


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (("r/a", "r/b"), ("a", "b")),
        (("r/a", "s/a"), ("r/a", "s/a")),
        (("r/x/a", "s/x/a", "t/b"), ("r/x/a", "s/x/a", "here/t/b")),
    ],
)
def test_names_tell_runs_apart(paths: tuple[str, ...], names: tuple[str, ...], tmp_path: Path) -> None:
    assert comparison.run_names([tmp_path / "here" / path for path in paths]) == list(names)


def test_the_command_writes_the_page_and_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "both.html"
    before = [(RESULTS / name / "report.html").exists() for name in ("demo", "demo-fresh")]
    assert main(["report", str(RESULTS / "demo"), str(RESULTS / "demo-fresh"), "--together", str(page)]) == 0
    assert str(page) in capsys.readouterr().out
    assert len(Page(page.read_text()).table("Verdicts on claims")[0]) == 3
    assert before == [(RESULTS / name / "report.html").exists() for name in ("demo", "demo-fresh")]
    assert main(["report", str(RESULTS / "demo"), "--together", str(page)]) == 2
    assert capsys.readouterr().err == "placecode: together must have at least two runs to compare; got 1.\n"
