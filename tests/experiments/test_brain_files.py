"""A user's recordings of 360 regions: the same data from every file format.

People are simulated on one network with known clusters and written to one file each. The data of every format must be
those of .npy, bit by bit, with which `placecode run brain-sigma --people FOLDER` is run. Recordings are float32, which
every format here holds exactly. Text has all digits of the equal float64: the shortest text of a float32 would be
another float64.
"""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placecode import cli
from placecode.data.recording_files import FORMATS
from placecode.experiments.channels import structure
from placecode.experiments.channels.brain import BrainSigma
from placecode.runs.read import Run
from placecode.tasks import masked, network

EXTRA = "needs the extra: pip install 'placecode[brain]'"
PEOPLE, TIMES, REGIONS, NETWORKS = 4, 400, 360, 12
LABELS = np.tile(np.repeat(np.arange(NETWORKS), REGIONS // NETWORKS // 2), 2)  # both hemispheres have all networks
NAMES = [f"{side}_{place}" for side in "LR" for place in range(REGIONS // 2)]
MODEL = ["--sigmas", "0.1", "--seeds", "1", "--width", "8", "--layers", "1", "--heads", "1", "--expansion", "1"]
MODEL += ["--steps", "2", "--batch", "4", "--evaluations", "1", "--ratios", "0.5,0.9", "--against", "linear,fc"]
FEW = {"MAX_EXAMPLES": 32, **{name: 5 for name in vars(structure) if name.endswith("DRAWS")}}
"""Fewer draws of nulls, and fewer examples over which attention is averaged."""
ASKED = 64
"""Time points of a split that are evaluated; all are learned from, and all are in the hash of the data."""


def simulated() -> list[np.ndarray]:
    """People (T, n) as a scanner may give them, float32 around 10,000: one network, and noise of each person's own."""
    wiring, *driving = (np.random.default_rng(seed) for seed in np.random.SeedSequence(0).spawn(1 + PEOPLE))
    weights = np.repeat(network.graph([wiring], LABELS), PEOPLE, axis=0)
    states = network.simulate(driving, weights, 100 + TIMES)[:, 100:]
    return [(10_000 + 100 * state).astype(np.float32) for state in states]


# A writer for each format: one person's table as it is, and the names of the regions where the format has room for them


def write_npy(path: Path, table: np.ndarray) -> None:
    np.save(path, table)


def write_npz(path: Path, table: np.ndarray) -> None:
    np.savez(path, bold=table, tr=0.72)


def write_mat(path: Path, table: np.ndarray) -> None:
    pytest.importorskip("scipy.io").savemat(path, {"bold": table, "tr": 0.72})


def write_hdf5(path: Path, table: np.ndarray) -> None:
    with pytest.importorskip("h5py", reason=EXTRA).File(path, "w") as file:
        file["rest/bold"] = table


def write_mat_73(path: Path, table: np.ndarray) -> None:
    """As MATLAB does it: HDF5 after a header of 512 bytes, columns first."""
    with pytest.importorskip("h5py", reason=EXTRA).File(path, "w", userblock_size=512) as file:
        file["bold"] = table.T
    with open(path, "r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")


def write_text(path: Path, table: np.ndarray) -> None:
    with open(path, "w", newline="") as text:
        writer = csv.writer(text, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow(NAMES)
        writer.writerows(table.tolist())  # Python's floats are written by repr


def write_text_by_region(path: Path, table: np.ndarray) -> None:
    with open(path, "w", newline="") as text:
        rows = ([name, *row] for name, row in zip(NAMES, table.tolist(), strict=True))
        csv.writer(text).writerows([["region", *range(TIMES)], *rows])


def write_cifti(path: Path, table: np.ndarray) -> None:
    nibabel = pytest.importorskip("nibabel", reason=EXTRA)
    axes, cortex = nibabel.cifti2.cifti2_axes, "CIFTI_STRUCTURE_CORTEX_LEFT"
    voxels, vertices = np.empty((2, REGIONS), dtype=object)
    for region in range(REGIONS):
        voxels[region], vertices[region] = np.empty((0, 3), dtype=int), {cortex: np.array([region])}
    parcels = axes.ParcelsAxis(np.array(NAMES, dtype=object), voxels, vertices, nvertices={cortex: 1000})
    image = nibabel.Cifti2Image(table, (axes.SeriesAxis(0, 0.72, TIMES), parcels))
    image.nifti_header.set_data_dtype(np.float32)
    nibabel.save(image, path)


WRITERS: dict[str, Callable[[Path, np.ndarray], None]] = {
    ".npy": write_npy, ".npz": write_npz, ".mat": write_mat, ".h5": write_hdf5, ".hdf5": write_hdf5,
    ".csv": write_text, ".tsv": write_text, ".ptseries.nii": write_cifti,
}  # fmt: skip


def stored(folder: Path, ending: str, tables: Sequence[np.ndarray], write: Callable[..., None] | None = None) -> Path:
    folder.mkdir()
    for person, table in enumerate(tables):
        (write or WRITERS[ending])(folder / f"sub-{person}{ending}", table)
    return folder


# The runs


@pytest.fixture(scope="module")
def people() -> list[np.ndarray]:
    return simulated()


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that say what is known of the regions: text files with names, networks and coordinates."""
    folder = tmp_path_factory.mktemp("regions")
    (folder / "names.txt").write_text("\n".join(NAMES) + "\n")
    (folder / "networks.txt").write_text("".join(f"network {label}\n" for label in LABELS))
    left = np.random.default_rng(1).normal(size=(REGIONS // 2, 3)).round(3) * 40 - [60, 0, 0]
    np.savetxt(folder / "places.csv", np.concatenate([left, left * [-1, 1, 1]]), delimiter=",")
    files = {"--names": "names.txt", "--networks": "networks.txt", "--coordinates": "places.csv"}
    return [word for option, file in files.items() for word in (option, str(folder / file))]


@contextlib.contextmanager
def shortened() -> Iterator[None]:
    """Few draws, few examples, and no page: other tests draw it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, count in FEW.items():
            patch.setattr(structure, name, count)
        patch.setattr(masked.Masked, "examples", lambda task, split: min(len(task.splits[split]), ASKED))
        patch.setattr(cli, "publish", lambda run: run.path / "report.html")
        yield


def ran(people: Path, out: Path, *words: str) -> Run:
    """What the command leaves behind."""
    command = ["run", "brain-sigma", "--people", str(people), *MODEL, "--device", "cpu", "--out", str(out), *words]
    assert cli.main(command) == 0
    return Run(out)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, people: list[np.ndarray], known: list[str]) -> Run:
    """The run on .npy, time x region, that all others must equal."""
    folder = tmp_path_factory.mktemp("reference")
    with shortened():
        return ran(stored(folder / "people", ".npy", people), folder / "run", *known)


def test_every_supported_format_has_a_writer_here() -> None:
    assert set(WRITERS) == set(FORMATS)


def test_the_recordings_are_those_of_the_files(reference: Run, people: list[np.ndarray]) -> None:
    task = reference.config["task"]
    assert (task["tokens"], task["counts"]) == (REGIONS, {"train": 3 * TIMES, "test": TIMES})
    for learned_from, tested_on in zip(task["people"]["train"], task["people"]["test"], strict=True):
        assert sorted([*learned_from, *tested_on]) == [f"sub-{i}" for i in range(PEOPLE)] and len(tested_on) == 1
    assert (task["doubts"], task["names"]) == ([], NAMES)
    assert task["labels"] == LABELS.tolist() and len(task["networks"]) == NETWORKS
    assert np.shape(reference.config["shape"]["positions"]) == (REGIONS, 3)


def test_the_tables_are_whole(reference: Run) -> None:
    assert set(reference.metrics["split"]) == {"train", "test"} and set(reference.metrics["step"]) == {0, 2}
    assert np.isfinite(reference.metrics["value"]).all()
    found = set(zip(reference.analysis["analysis"], reference.analysis["target"], strict=True))
    assert found >= {
        *(("mirror_agreement", "partner"), ("coordinate_agreement", "positions"), ("modularity", "best")),
        *(
            ("modularity_p", "labels"),
            ("neighbor_agreement_z", "labels"),
            ("ari_p", "labels"),
            ("fc_correlation", "fc"),
        ),
        *(("attention_correlation", "fc"), ("moved_relative", "start"), ("stability", "other seeds")),
    }
    mirrored = reference.analysis[reference.analysis["analysis"] == "mirror_agreement"]
    assert mirrored["value"].between(0, 1).all()  # NaN where no region has a mirror
    others = reference.baselines.set_index(["baseline", "condition", "metric"])["value"]
    assert others["linear", "hidden 0.5", "mse"] < 0.95  # guessing the mean costs 1
    assert others["fc", "labels", "neighbor_agreement"] > 0.9  # the clusters that the simulator put in
    assert others["fc", "labels", "modularity_p"] <= 1 / (1 + FEW["DRAWS"]) + 1e-9


def described(reference: Run, folder: Path, **changes: Any) -> dict[str, Any]:
    """The record of the task of the reference run with other files. It has the hash of the data."""
    fields = {**reference.config["fields"], "people": str(folder), **changes}
    study = BrainSigma(**{name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()})
    record: dict[str, Any] = json.loads(json.dumps(study.task().describe()))
    record["cleaning"].pop("tr")  # a CIFTI file has it, others do not; nothing here uses it
    return record


WAYS: dict[str, Any] = {
    **{ending: (ending, WRITERS[ending], False, {}) for ending in FORMATS},
    "npy by region": (".npy", write_npy, True, {"orientation": "region-time"}),
    "csv by region": (".csv", write_text_by_region, True, {}),
    "mat 7.3 with a key": (".mat", write_mat_73, False, {"key": "bold", "orientation": "time-region"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_format_and_layout_gives_the_same_data(
    way: str, tmp_path: Path, people: list[np.ndarray], reference: Run
) -> None:
    ending, write, turned, changes = WAYS[way]
    tables = [np.ascontiguousarray(person.T) if turned else person for person in people]
    folder = stored(tmp_path / "people", ending, tables, write)
    expected = described(reference, Path(reference.config["fields"]["people"]))
    assert described(reference, folder, **changes) == expected


def test_another_recording_has_another_hash(tmp_path: Path, people: list[np.ndarray], reference: Run) -> None:
    """The negative twin: a single value of one person, one step of float32 away, is other data."""
    changed = [people[0].copy(), *people[1:]]
    changed[0][300, 100] = np.nextafter(changed[0][300, 100], np.float32(np.inf))
    record = described(reference, stored(tmp_path / "people", ".npy", changed))
    expected = described(reference, Path(reference.config["fields"]["people"]))
    assert record["sha256"] != expected["sha256"]
    assert {**record, "sha256": ""} == {**expected, "sha256": ""}


def test_files_that_are_turned_are_refused_where_the_option_says_otherwise(
    tmp_path: Path, people: list[np.ndarray], known: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stored(tmp_path / "people", ".npy", [person.T for person in people])
    words = ["--people", str(folder), *known, "--orientation", "time-region", "--out", str(tmp_path / "run")]
    assert cli.main(["run", "brain-sigma", *MODEL, *words]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert told.endswith("is 360 x 400 and 360 regions are known; got 'time-region'.")
    assert not (tmp_path / "run").exists()
