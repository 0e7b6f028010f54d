"""All experiments of masked prediction, run from the command line at quick scale with tiny settings.

Resuming a run, or merging its pieces, must change nothing.
"""

import contextlib
import dataclasses
import html
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from placecode import cli, experiments
from placecode.experiments.channels import baselines, structure
from placecode.experiments.channels.masked import BASELINES, MaskedExperiment
from placecode.models.member import NON_SETTING_COLUMNS
from placecode.runs import read as runs
from placecode.runs.read import Run
from placecode.tasks import network

PEOPLE, TIMES, REGIONS = 4, 120, 12
MODEL = "--width 8 --layers 1 --heads 1 --expansion 1 --batch 4 --seeds 2 --steps 3 --evaluations 1 --device cpu"
MODEL += " --stack 1"  # pieces are equal bit by bit
NETWORK = "--nodes 10 --clusters 2 --train 300 --test 30"
SYNERGY = "--groups 2 --train 300 --test 30"
FEW, THREE = "linear,pca,fc,spectral", "linear,pca,fc"
RESULTS = ("members.parquet", "metrics.parquet", "analysis.parquet", *runs.TENSORS)


@dataclass(frozen=True)
class Case:
    """The options of an experiment and what its run must have; PLACES stands for files that describe the regions."""

    words: str
    members: int
    tokens: dict[str, int]
    figures: set[str]
    shares: tuple[str, ...] = ("hidden 0.5", "hidden 0.9")
    names: str = FEW
    cut: int = 1
    worlds: tuple[int, ...] = (0, 1)


SWEEP, PAIRS, KINDS = {"structure", "error", "curves", "similarity"}, {"errors", "structure"}, {"encodings"}
ON_BRAIN = {"brain"} if find_spec("nilearn") else set()
LOW = ("hidden 0.3", "hidden 0.5")
SIGMAS, ENCODINGS = "--sigmas 0.1,2", "--encodings learned:sigma=0.1,none,rotary"
BY_SIZE = {f"groups={k} samples={n}": 3 * k for k in (2, 3) for n in (100, 200)}
NOISES, NODES = {"noise=0.2": 10, "noise=0.4": 10}, {"nodes=8": 8, "nodes=12": 12}
HALVES = {"first half": REGIONS, "second half": REGIONS}
VARIANTS = {"no preprocessing": REGIONS, "all three": REGIONS, "sub-0 left out": REGIONS}
CASES = {
    "network-sigma": Case(f"{NETWORK} {SIGMAS}", 4, {"": 10}, SWEEP),
    "network-encodings": Case(f"{NETWORK} {ENCODINGS}", 6, {"": 10}, KINDS, cut=3),
    "network-size": Case(f"{NETWORK} {SIGMAS} --node-counts 8,12", 8, NODES, PAIRS, cut=5),
    "network-noise": Case(f"{NETWORK} --sigmas 0.1, --noises 0.2,0.4", 4, NOISES, PAIRS, cut=2),
    "synergy-sigma": Case(f"{SYNERGY} {SIGMAS}", 4, {"": 6}, SWEEP, LOW, ",".join(BASELINES)),
    "synergy-encodings": Case(f"{SYNERGY} {ENCODINGS}", 6, {"": 6}, KINDS, LOW),
    "synergy-size": Case(
        f"{SYNERGY} --sigmas 0.1, --group-counts 2,3 --samples 100,200 --widths 8, --batches 4,",
        members=8,
        tokens=BY_SIZE,
        figures=PAIRS,
        shares=LOW,
        cut=3,
    ),
    "synergy-optimizer": Case(
        f"{SYNERGY} {SIGMAS} --optimizers adam,sgd --rates 0.001,", 8, {"": 6}, PAIRS, LOW, cut=4
    ),
    "pixels-sigma": Case(f"--size 4 --train 300 --test 30 {SIGMAS}", 4, {"": 16}, SWEEP | {"picture"}, names=THREE),
    "brain-sigma": Case(f"PLACES {SIGMAS}", 4, {"": REGIONS}, SWEEP | ON_BRAIN),
    "brain-encodings": Case(f"PLACES {ENCODINGS}", 6, {"": REGIONS}, KINDS, names=THREE, cut=3),
    "brain-mask": Case(
        f"PLACES --folds 1 {SIGMAS} --mask-ratios 0.25,0.75 --eval-mask-ratios 0.25,0.75",
        members=8,
        tokens={"": REGIONS},
        figures=PAIRS,
        shares=("hidden 0.25", "hidden 0.75"),
        names="linear,ridge,fc",
        cut=4,
        worlds=(0,),
    ),
    # a piece must hold the members from which others of it start: sigma by sigma
    "brain-transfer": Case(f"PLACES {SIGMAS}", 24, HALVES, PAIRS, names=THREE, cut=12, worlds=(0,)),
    "brain-preprocessing": Case(
        "PLACES --sigmas 0.01,2 --variants as-is,all,without --left-out-people sub-0, --tr 2",
        members=12,
        tokens=VARIANTS,
        figures=PAIRS | {"preprocessing"},
        names="linear,fc",
        cut=6,
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _few_draws() -> Iterator[None]:
    """Use few draws of nulls, which take longer than training here."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (name for name in vars(structure) if name.endswith("DRAWS")):
            patch.setattr(structure, name, 19)
        yield


@pytest.fixture(scope="module")
def brains(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the options of each experiment on brains: files of simulated people, and of what is known of their
    regions."""
    folder = tmp_path_factory.mktemp("brains")
    labels = np.tile(np.repeat([0, 1], 3), 2)
    wiring, *driving = (np.random.default_rng(seed) for seed in np.random.SeedSequence(0).spawn(1 + PEOPLE))
    weights = np.repeat(network.graph([wiring], labels, density=(1.0, 0.1)), PEOPLE, axis=0)
    (folder / "people").mkdir()
    for person, states in enumerate(network.simulate(driving, weights, 100 + TIMES, noise=0.1)):
        np.save(folder / "people" / f"sub-{person}.npy", states[100:])
    (folder / "names.txt").write_text("\n".join(f"{side}_{i}" for side in "LR" for i in range(REGIONS // 2)))
    (folder / "networks.txt").write_text("\n".join(f"network {label}" for label in labels))
    np.savetxt(folder / "places.csv", np.random.default_rng(1).normal(size=(REGIONS, 3)), delimiter=",")
    people = ["--people", str(folder / "people"), "--orientation", "time-region"]
    names = [*people, "--names", str(folder / "names.txt")]
    everything = [*names, "--networks", str(folder / "networks.txt"), "--coordinates", str(folder / "places.csv")]
    others = {"brain-sigma": everything, "brain-encodings": people}
    return {**dict.fromkeys(("brain-mask", "brain-transfer", "brain-preprocessing"), names), **others}


REPORTED = ("network-sigma", "network-encodings", "synergy-size", "pixels-sigma", "brain-sigma", "brain-preprocessing")
"""Experiments whose reports are made: all kinds of figures, since drawing takes longer than training here."""
MERGED = ("network-sigma", "synergy-size", "brain-mask", "brain-transfer")
"""Experiments that are run in pieces: with one data set, with several, with several fractions, and with donors."""


@dataclass(frozen=True)
class Ran:
    """An experiment that was run from the command line."""

    name: str
    case: Case
    command: list[str]
    run: Run


def settable(name: str, words: list[str]) -> list[str]:
    """Return the options without those of fields that the experiment sweeps."""
    pairs = zip(words[::2], words[1::2], strict=True)
    swept = experiments.lookup(name).swept_by
    return [word for pair in pairs if pair[0][2:].replace("-", "_") not in swept for word in pair]


@contextlib.contextmanager
def without_reports() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "publish", lambda page: page.run.path / "report.html")
        yield


@pytest.fixture(scope="module", params=CASES)
def ran(request: pytest.FixtureRequest, brains: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run each experiment once; no test changes its folder."""
    name, case = request.param, CASES[request.param]
    words = f"{MODEL} {case.words}".replace("PLACES", " ".join(brains.get(name, []))).split()
    command = ["run", name, "--scale", "quick", *settable(name, words), "--baseline-names", case.names]
    out = tmp_path_factory.mktemp("runs") / name
    with contextlib.nullcontext() if name in REPORTED else without_reports():
        assert cli.main([*command, "--out", str(out)]) == 0
    return Ran(name, case, command, Run(out))


def by_world(run: Run) -> pd.DataFrame:
    return run.baselines.sort_values(list(run.baselines.columns), ignore_index=True)


def test_every_experiment_of_masked_prediction_is_here() -> None:
    assert set(CASES) == {name for name, cls in experiments.EXPERIMENTS.items() if issubclass(cls, MaskedExperiment)}


def test_every_kind_of_figure_is_drawn_in_a_report() -> None:
    drawn, reported = ({figure for name in names for figure in CASES[name].figures} for names in (CASES, REPORTED))
    assert drawn == reported


def test_a_run_leaves_all_its_files(ran: Ran) -> None:
    files = {*runs.FILES} - {"fit.json", "fit.safetensors", "map.csv"}
    drawn = {"report.html", "figures"}
    assert {path.name for path in ran.run.path.iterdir()} == (files | drawn if ran.name in REPORTED else files - drawn)
    summary = json.loads((ran.run.path / "summary.json").read_text())
    assert (summary["experiment"], summary["step"]) == (ran.name, 3)
    assert (ran.run.members["state"] == "done").all()


def test_a_run_has_the_members_of_its_options(ran: Ran) -> None:
    members = ran.run.members
    assert members["member"].tolist() == list(range(ran.case.members)) and ran.run.config["total"] == ran.case.members
    assert set(members["seed"]) == {0, 1} and (members["width"] == 8).all()
    assert list(dict.fromkeys(members["data"])) == list(ran.case.tokens)
    specs = [name for name in members.columns if name not in set(NON_SETTING_COLUMNS) - {"seed"}]
    assert not members.duplicated(specs).any()
    assert (members.groupby([name for name in specs if name != "seed"], dropna=False)["seed"].nunique() == 2).all()


def test_every_member_is_evaluated_at_its_own_fraction_and_at_another(ran: Ran) -> None:
    metrics = ran.run.metrics
    assert np.isfinite(metrics["value"]).all() and set(metrics["metric"]) == {"mse"}
    conditions = metrics.groupby(["member", "step", "split"])["condition"].agg(sorted)
    assert len(conditions) == ran.case.members * 2 * 2  # before and after training, training and test
    assert all(names == list(ran.case.shares) for names in conditions)
    assert {f"hidden {fraction:g}" for fraction in ran.run.members["mask_ratio"]} <= set(ran.case.shares)


def test_every_member_has_the_tokens_of_its_data(ran: Ran) -> None:
    config = ran.run.config
    assert len(config.get("shapes", {"": ""})) == len(ran.case.tokens)
    for number, data in zip(ran.run.members["member"], ran.run.members["data"], strict=True):
        tokens = ran.case.tokens[data]
        assert config.get("shapes", {}).get(data, config["shape"])["tokens"] == tokens
        if ran.run.has_array(f"pe_end/{number}"):
            assert ran.run.array(f"pe_end/{number}").shape == (1, tokens, 8)
        out = ran.run.load(number)(torch.zeros(2, tokens, 2))
        assert out.shape == (2, tokens, 1) and bool(torch.isfinite(out).all())


def test_every_world_has_its_baselines(ran: Ran) -> None:
    table, worlds = ran.run.baselines, set(ran.case.worlds)
    for data in ran.case.tokens:
        for world in worlds:
            here = table[(table["data"] == data) & (table["world"] == world)]
            late = baselines.SLOW if world > 0 else ()  # slow ones are fitted in the first world alone, at this scale
            names = list(dict.fromkeys(here["baseline"].str.split(", trained").str[0]))
            assert names == [name for name in ran.case.names.split(",") if name not in late]
            errors = here.loc[here["metric"] == "mse", "baseline"].unique()
            if ran.name == "brain-mask":  # ridge is fitted at each fraction of the members
                assert {"ridge, trained with 0.25 hidden", "ridge, trained with 0.75 hidden"} < set(errors)
            for name in errors:
                rows = here[(here["baseline"] == name) & (here["split"] == "test") & (here["metric"] == "mse")]
                assert rows["condition"].tolist() == list(ran.case.shares) and (rows["value"] > 0).all()
    assert set(table["data"]) == set(ran.case.tokens) and set(table["world"]) == worlds
    if len(worlds) > 1:  # worlds are other data
        linear = table[(table["baseline"] == "linear") & (table["condition"] == ran.case.shares[0])]
        assert (linear.groupby("data")["value"].nunique() == 2).all()


@pytest.mark.parametrize("ran", ["brain-sigma"], indirect=True)
def test_recordings_and_what_is_known_of_regions_reach_the_run(ran: Ran, tmp_path: Path) -> None:
    task, rows = ran.run.config["task"], ran.run.analysis
    assert task["names"] == [f"{side}_{i}" for side in "LR" for i in range(REGIONS // 2)] and not task["doubts"]
    assert task["labels"] == [0, 0, 0, 1, 1, 1] * 2 and np.shape(ran.run.config["shape"]["positions"]) == (REGIONS, 3)
    measures = {"mirror_agreement partner", "coordinate_agreement positions", "modularity best", "ari_p labels"}
    assert measures <= set(rows["analysis"] + " " + rows["target"])
    experiment = experiments.experiment_of(ran.run)
    people = Path(shutil.copytree(experiment.fields()["people"], tmp_path / "people"))
    values = np.load(people / "sub-0.npy")
    for change in (0.0, 1e-4):  # of a single value
        values[60, 3] += change
        np.save(people / "sub-0.npy", values)
        record = dataclasses.replace(experiment, people=str(people)).task().describe()
        assert (record["sha256"] == task["sha256"]) == (change == 0)


@pytest.mark.parametrize("ran", REPORTED, indirect=True)
def test_a_report_has_every_figure_baseline_and_condition(ran: Ran) -> None:
    page = html.unescape((ran.run.path / "report.html").read_text())
    assert len(re.findall(r'<div class="wide[^>]*><svg', page)) == len(ran.case.figures)
    assert {path.stem for path in (ran.run.path / "figures").glob("*.png")} == ran.case.figures
    text = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    predictors = {"linear", "pca", "ridge", "trees"} & set(ran.case.names.split(","))
    assert all(f"baseline:{name}" in text for name in predictors)
    assert all(f">{condition}</th>" in text for condition in ran.case.shares)
    assert all(data in text for data in ran.case.tokens)


def test_a_finished_run_is_resumed_without_work(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in ran.run.path.rglob("*")}
    with without_reports():
        assert cli.main([*ran.command, "--out", str(ran.run.path), "--resume"]) == 0
    assert "step 3/3" not in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in ran.run.path.rglob("*")} == before


@pytest.mark.parametrize("ran", MERGED, indirect=True)
def test_merged_pieces_are_the_whole_run_bit_for_bit(ran: Ran, tmp_path: Path) -> None:
    cut, count = ran.case.cut, ran.case.members
    pieces = {str(tmp_path / "second"): f"{cut}:{count}", str(tmp_path / "first"): f"0:{cut}"}
    with without_reports():
        for folder, numbers in pieces.items():
            assert cli.main([*ran.command, "--members", numbers, "--out", folder]) == 0
        assert cli.main(["merge", *pieces, "--out", str(tmp_path / "merged")]) == 0
    merged = Run(tmp_path / "merged")
    assert merged.config == ran.run.config
    for file in RESULTS:
        assert (merged.path / file).read_bytes() == (ran.run.path / file).read_bytes(), file
    pd.testing.assert_frame_equal(by_world(merged), by_world(ran.run), check_exact=True)
