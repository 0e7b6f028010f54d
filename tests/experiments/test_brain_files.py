"""A user's recordings: `placecode run brain-sigma --people FOLDER` on files of simulated people.

People are simulated on one network with known clusters and written to one .npy file each. Other formats give the same
numbers: tests/data/test_recording_files.py.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placecode import cli
from placecode.experiments.channels import structure
from placecode.experiments.channels.brain import BrainSigma
from placecode.runs.read import Run
from placecode.tasks import network

PEOPLE, TIMES, REGIONS, NETWORKS = 4, 400, 60, 6
LABELS = np.tile(np.repeat(np.arange(NETWORKS), REGIONS // NETWORKS // 2), 2)  # both hemispheres have all networks
NAMES = [f"{side}_{place}" for side in "LR" for place in range(REGIONS // 2)]
MODEL = ["--sigmas", "0.1", "--seeds", "1", "--width", "8", "--layers", "1", "--heads", "1", "--expansion", "1"]
MODEL += ["--steps", "2", "--batch", "4", "--evaluations", "1", "--ratios", "0.5,0.9", "--against", "linear,fc"]
DRAWS = 5


def write_people(folder: Path, recordings: list[np.ndarray]) -> Path:
    folder.mkdir()
    for person, recording in enumerate(recordings):
        np.save(folder / f"sub-{person}.npy", recording)
    return folder


@pytest.fixture(scope="module")
def people() -> list[np.ndarray]:
    """Return recordings (T, n) as of a scanner, float32 around 10,000: one network, and separate noise."""
    wiring, *driving = (np.random.default_rng(seed) for seed in np.random.SeedSequence(0).spawn(1 + PEOPLE))
    weights = np.repeat(network.graph([wiring], LABELS), PEOPLE, axis=0)
    states = network.simulate(driving, weights, 100 + TIMES)[:, 100:]
    return [(10_000 + 100 * state).astype(np.float32) for state in states]


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return options with text files of the names, networks and coordinates of the regions."""
    folder = tmp_path_factory.mktemp("regions")
    (folder / "names.txt").write_text("\n".join(NAMES) + "\n")
    (folder / "networks.txt").write_text("".join(f"network {label}\n" for label in LABELS))
    left = np.random.default_rng(1).normal(size=(REGIONS // 2, 3)).round(3) * 40 - [60, 0, 0]
    np.savetxt(folder / "places.csv", np.concatenate([left, left * [-1, 1, 1]]), delimiter=",")
    files = {"--names": "names.txt", "--networks": "networks.txt", "--coordinates": "places.csv"}
    return [word for option, file in files.items() for word in (option, str(folder / file))]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, people: list[np.ndarray], regions: list[str]) -> Run:
    """Return the run of the command, with few draws of nulls and without its report."""
    folder = tmp_path_factory.mktemp("run")
    words = ["--people", str(write_people(folder / "people", people)), *regions, "--device", "cpu"]
    with pytest.MonkeyPatch.context() as patch:
        for name in (name for name in vars(structure) if name.endswith("DRAWS")):
            patch.setattr(structure, name, DRAWS)
        patch.setattr(cli, "publish", lambda page: page.run.path / "report.html")
        assert cli.main(["run", "brain-sigma", *MODEL, *words, "--out", str(folder / "run")]) == 0
    return Run(folder / "run")


def test_the_task_is_that_of_the_files(run: Run) -> None:
    task = run.config["task"]
    assert (task["tokens"], task["counts"]) == (REGIONS, {"train": 3 * TIMES, "test": TIMES})
    for train, test in zip(task["people"]["train"], task["people"]["test"], strict=True):
        assert sorted([*train, *test]) == [f"sub-{i}" for i in range(PEOPLE)] and len(test) == 1
    assert (task["doubts"], task["names"]) == ([], NAMES)
    assert task["labels"] == LABELS.tolist() and len(task["networks"]) == NETWORKS
    assert np.shape(run.config["shape"]["positions"]) == (REGIONS, 3)


def test_tables_have_every_measure_of_brains(run: Run) -> None:
    assert set(run.metrics["split"]) == {"train", "test"} and set(run.metrics["step"]) == {0, 2}
    assert np.isfinite(run.metrics["value"]).all()
    names = ("mirror_agreement partner", "coordinate_agreement positions", "modularity best", "modularity_p labels")
    names += ("neighbor_agreement_z labels", "ari_p labels", "fc_correlation fc", "attention_correlation fc")
    names += ("moved_relative start", "stability other seeds")
    assert set(names) <= set(run.analysis["analysis"] + " " + run.analysis["target"])
    others = run.baselines.set_index(["baseline", "condition", "metric"])["value"]
    assert others["linear", "hidden 0.5", "mse"] < 0.95  # guessing the mean costs 1
    assert others["fc", "labels", "neighbor_agreement"] > 0.9  # the clusters of the simulator
    assert others["fc", "labels", "modularity_p"] <= 1 / (1 + DRAWS) + 1e-9


def test_the_hash_changes_with_a_single_value(tmp_path: Path, people: list[np.ndarray], run: Run) -> None:
    """One value of one person differs by one step of float32."""

    def record(folder: str) -> dict[str, Any]:
        fields = {**run.config["fields"], "people": folder}
        fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        return BrainSigma(**fields).task().describe()

    changed = [people[0].copy(), *people[1:]]
    changed[0][300, 30] = np.nextafter(changed[0][300, 30], np.float32(np.inf))
    same, other = record(run.config["fields"]["people"]), record(str(write_people(tmp_path / "people", changed)))
    assert same["sha256"] == run.config["task"]["sha256"] != other["sha256"]
    assert {**same, "sha256": ""} == {**other, "sha256": ""}
