"""LearnedPositions: an estimator among others, whatever holds the table; what it says is what was learned."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from placecode import LearnedPositions, cli
from placecode.cli import reporting
from placecode.data.tables import files as table_files
from placecode.errors import BadInput
from placecode.experiments import study_of
from placecode.experiments.channels import own_results
from placecode.experiments.channels.own import EFFORTS, OwnData
from placecode.fit import fitting, others
from placecode.runs.read import Run
from placecode.tasks.table import tables

TINY: dict[str, Any] = {
    **{"sigma": 0.05, "steps": 1, "width": 8, "layers": 1, "n_seeds": 1, "n_halves": 1, "n_draws": 19},
    "device": "cpu",
}


@pytest.fixture(autouse=True)
def _nothing_is_left_in_the_folder_for_what_passes(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """And UMAP stays away: importing it takes longer than all of this."""
    monkeypatch.setattr(others, "find_spec", lambda name: None)
    folder = tmp_path_factory.mktemp("passing")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert not [path for path in folder.iterdir() if path.name.startswith("placecode-")]


def tiny(**given: Any) -> LearnedPositions:
    return LearnedPositions(**{**TINY, **given})


def table(samples: int = 150, channels: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(samples, channels))


def frame(samples: int = 150) -> pd.DataFrame:
    """Numbers, a category, truth values and people."""
    rng = np.random.default_rng(0)
    found = pd.DataFrame(table(samples, 5), columns=list("abcde"))
    found.insert(2, "wind", rng.choice(np.array(["west", "east", " north ", None], dtype=object), samples))
    found["dry"] = pd.Series(rng.random(samples) < 0.5).map({True: "True", False: "False"})
    found["who"] = [f"p{i * 6 // samples}" for i in range(samples)]
    return found


@parametrize_with_checks([tiny()])
def test_it_keeps_the_promises_of_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    """All but the check of the array API, which skips unless that is switched on."""
    check(estimator)


# A fit that learned something


@pytest.fixture(scope="module")
def pairs() -> np.ndarray:
    """Eight channels: 0 and 1 in meters and millimeters, 2 and 3 likewise, ..."""
    rng = np.random.default_rng(0)
    source = rng.normal(size=(400, 4)).repeat(2, axis=1) + 0.1 * rng.normal(size=(400, 8))
    return np.asarray(source * np.tile([1.0, 1000.0], 4) + np.tile([5.0, -300.0], 4))


@pytest.fixture(scope="module")
def learned(pairs: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> LearnedPositions:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(others, "find_spec", lambda name: None)
        return tiny(
            sigma=[0.05, 0.2],
            steps=400,
            width=16,
            batch=32,
            n_seeds=2,
            n_draws=39,
            learning_rate=5e-3,
            folder=tmp_path_factory.mktemp("fits") / "run",
        ).fit(pairs)


def test_structure_is_found_and_its_map_is_true(learned: LearnedPositions) -> None:
    assert learned.verdict_ == "structure found" and learned.p_value_ == 1 / 40
    assert learned.neighbors_.shape == (8, 4)
    assert (learned.neighbors_[:, 0] == np.arange(8) + np.tile([1, -1], 4)).all()  # each has found its copy
    assert learned.sigma_ in (0.05, 0.2) and [row["sigma"] for row in learned.sigmas_] == [0.05, 0.2]
    assert learned.scores_["heldout_mse"] < 0.8 * learned.scores_["mean_mse"]
    assert learned.scores_["linear_mse"] < 0.5 and set(learned.baselines_) == {"correlation", "pca", "graphical lasso"}
    assert learned.summary_[0].startswith("Structure found")


def test_its_arrays_are_those_of_all_channels(learned: LearnedPositions) -> None:
    assert learned.embedding_.shape[0] == 8 and learned.similarity_.shape == (8, 8)
    assert (learned.map_.shape, learned.map_3d_.shape, learned.modules_.shape) == ((8, 2), (8, 3), (8,))
    assert learned.confidence_["channels"].shape == (8,) and learned.confidence_["pairs"].shape == (8, 8)
    np.testing.assert_allclose(learned.similarity_, learned.similarity_.T, atol=1e-6)
    assert np.isfinite(learned.embedding_).all() and set(learned.module_stability_) == {2, 3, 4}


def test_a_copy_is_predicted_in_its_own_unit(learned: LearnedPositions) -> None:
    rng = np.random.default_rng(9)
    new = rng.normal(size=(100, 4)).repeat(2, axis=1) * np.tile([1.0, 1000.0], 4) + np.tile([5.0, -300.0], 4)
    guess = learned.transform(new)
    assert guess.shape == (100, 8)
    for channel in range(8):
        assert np.corrcoef(guess[:, channel], new[:, channel])[0, 1] > 0.8
    assert guess[:, 1].std() > 200 and guess[:, 0].std() < 2
    np.testing.assert_allclose(guess[:, 1].mean(), new[:, 1].mean(), atol=100)


def test_a_large_offset_changes_nothing_but_the_unit(tmp_path: Path) -> None:
    """Though float32 cannot hold 100000000.5; predictions come back in the unit that was given."""
    values = table()
    away = values + np.array([0, 1e8, 0, -1e9, 0, 0])
    named = pd.DataFrame(away, columns=list("abcdef"))
    named.to_csv(tmp_path / "t.csv", index=False)
    plain = tiny(steps=3).fit(values)
    for given in (away, named, tmp_path / "t.csv"):
        fitted = tiny(steps=3).fit(given)
        np.testing.assert_allclose(fitted.embedding_, plain.embedding_, atol=1e-4)
        told = fitted.transform(given) - (away - values)[0]
        np.testing.assert_allclose(told, plain.transform(values), atol=1e-3)
        assert fitted.score(given) == pytest.approx(plain.score(values), abs=1e-4)
    with pytest.raises(BadInput, match=r"^X must be finite numbers, none beyond 3.4e\+38; got 1e\+39\.$"):
        plain.transform(np.where(np.arange(6) == 2, 1e39, values))


def test_a_guess_does_not_look_at_what_it_guesses(learned: LearnedPositions, pairs: np.ndarray) -> None:
    changed = pairs[:20].copy()
    changed[:, 3] = 1e6
    np.testing.assert_allclose(learned.transform(changed)[:, 3], learned.transform(pairs[:20])[:, 3], rtol=1e-5)
    assert not np.allclose(learned.transform(changed)[:, 2], learned.transform(pairs[:20])[:, 2])


def test_the_score_is_high_where_channels_tell_of_each_other(learned: LearnedPositions, pairs: np.ndarray) -> None:
    assert learned.score(pairs) > 0.5
    shuffled = np.stack([np.random.default_rng(i).permutation(pairs[:, i]) for i in range(8)], axis=1)
    assert learned.score(shuffled) < 0.1
    assert abs(tiny(steps=200, learning_rate=5e-3).fit(table(400)).score(table(400, seed=1))) < 0.1


def test_missing_values_are_told_from_the_rest(learned: LearnedPositions, pairs: np.ndarray) -> None:
    holes = pairs[:50].copy()
    holes[::2, 1], holes[::3, 4] = np.nan, np.nan
    guess = learned.transform(holes)
    assert np.isfinite(guess).all() and np.isfinite(learned.score(holes))
    alone = np.arange(50)[(np.arange(50) % 2 == 0) & (np.arange(50) % 3 > 0)]
    whole = learned.transform(pairs[:50])  # a value that is guessed is not looked at, so that it may as well be missing
    np.testing.assert_allclose(guess[alone, 1], whole[alone, 1], rtol=1e-5)


def test_masked_values_are_missing_ones(learned: LearnedPositions, pairs: np.ndarray) -> None:
    masked = np.ma.masked_array(table(), np.random.default_rng(1).random((150, 6)) < 0.1)
    masked.data[masked.mask] = 1e6
    one, two = tiny().fit(masked), tiny().fit(np.ma.filled(masked, np.nan))
    same(one, two)
    assert not np.array_equal(one.embedding_, tiny().fit(masked.data).embedding_)
    whole = np.ma.masked_greater((table() * 100).astype(np.int64), 150)  # whole numbers cannot be NaN
    same(tiny().fit(whole), tiny().fit(whole.astype(float).filled(np.nan)))
    asked = np.ma.masked_array(pairs[:50], np.tile(np.arange(8) == 3, (50, 1)))
    holes = asked.filled(np.nan)
    np.testing.assert_array_equal(learned.transform(asked), learned.transform(holes))
    assert learned.score(asked) == learned.score(holes) != learned.score(pairs[:50])


def test_the_run_is_kept_where_it_is_asked_for(learned: LearnedPositions, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(learned.folder)
    assert Run(folder).finished and own_results.read(folder).verdict == learned.verdict_
    assert cli.main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"Report: {folder / 'report.html'}\n"
    page = (folder / "report.html").read_text()
    assert learned.summary_[0].split(":")[0] in page
    fields = Run(folder).config["fields"]
    assert (fields["learning_rate"], fields["pe_learning_rate"]) == (5e-3, 15e-3)  # as by `placecode fit`


# What holds the table


def same(one: LearnedPositions, two: LearnedPositions) -> None:
    np.testing.assert_array_equal(one.embedding_, two.embedding_)
    np.testing.assert_array_equal(one.map_, two.map_)
    assert one.p_value_ == two.p_value_ and one.scores_ == two.scores_


def test_arrays_frames_files_and_maps_are_the_same_table(tmp_path: Path) -> None:
    values = table().astype(np.float32)
    named = pd.DataFrame(values, columns=list("abcdef"))
    named.to_csv(tmp_path / "t.csv", index=False)
    named.to_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "t.npy", values)
    first = tiny(steps=3).fit(values)
    assert not hasattr(first, "feature_names_in_") and first.n_features_in_ == 6
    for given in (named, tmp_path / "t.csv", str(tmp_path / "t.parquet"), np.load(tmp_path / "t.npy", mmap_mode="r")):
        again = tiny(steps=3).fit(given)
        same(again, first)
        assert again.n_features_in_ == 6
        if not isinstance(given, np.ndarray):
            assert list(again.feature_names_in_) == list(again.get_feature_names_out()) == list("abcdef")
            assert again.transform(named).shape == (150, 6)
    again = tiny().fit(named)
    with pytest.raises(ValueError, match="feature names should match"):
        again.transform(named[list("bacdef")])


def test_a_mapped_array_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another type it is, since models need float32; to a file where it is larger than memory."""
    shared = []

    def made(values: np.ndarray, **given: Any) -> Any:
        shared.append((np.shares_memory(values, mapped), isinstance(values, np.memmap)))
        return tables(values, **given)

    monkeypatch.setattr(fitting, "tables", made)
    for kind, memory in ((np.float32, 4_000), (np.float64, 10**9), (np.float64, 4_000)):
        monkeypatch.setattr(table_files, "available", lambda memory=memory: memory)
        np.save(tmp_path / "t.npy", table().astype(np.float32).astype(kind))
        mapped = np.load(tmp_path / "t.npy", mmap_mode="r")
        fitted = tiny().fit(mapped)
        assert fitted.n_features_in_ == 6 and fitted.transform(mapped).shape == (150, 6)
    assert shared == [(True, True), (False, False), (False, True)]
    wild = table()
    wild[7, 2] = np.inf
    np.save(tmp_path / "wild.npy", wild)
    with pytest.raises(BadInput, match=r"^row 8: column 'channel 3' must hold finite numbers"):
        tiny().fit(np.load(tmp_path / "wild.npy", mmap_mode="r"))
    np.save(tmp_path / "flat.npy", wild[:, 0])
    with pytest.raises(ValueError, match="Expected 2D array"):
        tiny().fit(np.load(tmp_path / "flat.npy", mmap_mode="r"))


def test_words_are_categories_and_come_back_as_codes() -> None:
    data = frame().drop(columns="who")
    fitted = tiny().fit(data)
    assert list(fitted.feature_names_in_) == ["a", "b", "wind", "c", "d", "e", "dry"]
    told = fitted.transform(data)
    assert set(told[:, 2]) <= {0.0, 1.0, 2.0}  # east, north, west
    unknown = data.assign(wind="south")
    missing = data.assign(wind=None)
    np.testing.assert_array_equal(fitted.transform(unknown), fitted.transform(missing))
    assert np.isfinite(fitted.score(data))
    few = data[data["wind"] == "west"].head(1)  # codes are those of fitting, whichever words there are
    place = data.index.get_loc(few.index[0])
    np.testing.assert_allclose(fitted.transform(few), told[place : place + 1], rtol=1e-5)
    with pytest.raises(BadInput, match=r"^column 'a' must be numbers, as in fitting; got 'low'\.$"):
        fitted.transform(data.assign(a="low"))


def test_a_declared_category_of_numbers_is_one_in_transform_too(tmp_path: Path) -> None:
    data = frame().drop(columns="who")
    data["code"] = pd.Categorical(np.random.default_rng(2).choice([10, 2, 7], len(data)))
    data.to_parquet(tmp_path / "t.parquet")
    fitted = tiny().fit(data)
    told = fitted.transform(data)
    assert set(told[:, -1]) <= {0.0, 1.0, 2.0}  # 10, 2, 7: as words
    same(tiny().fit(tmp_path / "t.parquet"), fitted)
    numbers = data.assign(code=data["code"].astype(float))
    for given in (tmp_path / "t.parquet", numbers, data.assign(code=data["code"].astype(str))):
        np.testing.assert_allclose(fitted.transform(given), told, rtol=1e-5)
    missing = fitted.transform(data.assign(code=None))
    np.testing.assert_array_equal(fitted.transform(data.assign(code=99)), missing)
    assert not np.allclose(missing, told)


def test_categories_of_a_file_are_known_to_a_frame(tmp_path: Path) -> None:
    data = frame().drop(columns="who")
    data.to_csv(tmp_path / "t.csv", index=False)
    one, two = tiny().fit(tmp_path / "t.csv"), tiny().fit(data)
    np.testing.assert_allclose(one.transform(data), two.transform(data), rtol=1e-4)


def test_a_file_is_asked_about_as_its_frame_is(tmp_path: Path) -> None:
    """With its groups and its count of rows, or without; a few rows are enough, with words that are new or lacking."""
    data = frame().rename_axis("time").reset_index()
    for name, write in (("t.csv", data.to_csv), ("t.parquet", data.to_parquet)):
        path = tmp_path / name
        write(path, index=False)
        fitted = tiny().fit(str(path), groups="who")
        assert list(fitted.feature_names_in_) == ["a", "b", "wind", "c", "d", "e", "dry"]
        told, share = fitted.transform(path), fitted.score(str(path))
        for given in (pd.read_csv(path) if name == "t.csv" else data, data.drop(columns=["time", "who"])):
            np.testing.assert_allclose(fitted.transform(given), told, rtol=1e-4)
            assert fitted.score(given) == pytest.approx(share)
        np.testing.assert_allclose(tiny().fit(data, groups="who").transform(path), told, rtol=1e-4)
        for wind in ("south", None):
            few = data.tail(3).assign(wind=wind, dry="True")
            few.drop(columns="who").to_csv(tmp_path / "few.csv", index=False)
            np.testing.assert_allclose(fitted.transform(tmp_path / "few.csv"), fitted.transform(few), rtol=1e-4)
    data.assign(a="low").to_csv(tmp_path / "low.csv", index=False)
    with pytest.raises(BadInput, match=r"^column 'a' must be numbers, as in fitting; got 'low'\.$"):
        fitted.transform(tmp_path / "low.csv")
    with pytest.raises(BadInput, match=r"no\.csv cannot be read: No such file or directory\.$"):
        fitted.score(tmp_path / "no.csv")
    data.drop(columns="b").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(ValueError, match="Feature names seen at fit time, yet now missing:\n- b"):
        fitted.transform(tmp_path / "less.csv")


@pytest.mark.filterwarnings("error")
def test_columns_without_names_are_told_apart_by_their_place(tmp_path: Path) -> None:
    values = np.column_stack([table(channels=6), np.repeat(np.arange(6), 25)])[:, [0, 6, 1, 2, 3, 4, 5]]
    np.save(tmp_path / "t.npy", values)
    bare = pd.DataFrame(values)
    for given in (tmp_path / "t.npy", bare):
        fitted = tiny().fit(given, groups="channel 2")
        assert not hasattr(fitted, "feature_names_in_") and fitted.n_features_in_ == 6
        told = fitted.transform(given)
        rest = np.delete(values, 1, axis=1)
        for other in (tmp_path / "t.npy", bare, rest, pd.DataFrame(rest)):
            np.testing.assert_array_equal(fitted.transform(other), told)


@pytest.mark.parametrize("header", ["time", "Unnamed: 0", "id"])
def test_a_count_of_the_rows_is_no_channel_whatever_holds_it(header: str, tmp_path: Path) -> None:
    """Nor is it one in a frame of numbers; a column that does not count them is."""
    plain = pd.DataFrame(table().astype(np.float32), columns=list("abcdef"))
    data = plain.rename_axis(header).reset_index()
    data.to_csv(tmp_path / "t.csv", index=False)
    one, two = tiny().fit(data), tiny().fit(tmp_path / "t.csv")
    for fitted in (one, two):
        same(fitted, tiny().fit(plain))
        assert list(fitted.feature_names_in_) == list("abcdef")
        later = data.tail(40)
        np.testing.assert_array_equal(fitted.transform(later), fitted.transform(plain.tail(40)))
    other = data.assign(**{header: data["a"] ** 2})
    assert list(tiny().fit(other).feature_names_in_) == [header, *"abcdef"]


def test_the_index_that_pandas_writes_is_no_channel(tmp_path: Path) -> None:
    data = frame().drop(columns=["who", "wind"])
    data.to_csv(tmp_path / "t.csv")
    fitted = tiny().fit(tmp_path / "t.csv")
    assert list(fitted.feature_names_in_) == [*"abcde", "dry"]
    told = fitted.transform(tmp_path / "t.csv")
    for given in (data, pd.read_csv(tmp_path / "t.csv")):
        np.testing.assert_allclose(fitted.transform(given), told, rtol=1e-4)


def test_a_second_fit_forgets_the_first() -> None:
    fitted = tiny().fit(frame().drop(columns="who"))
    values = table()
    same(fitted.fit(values), tiny().fit(values))
    assert fitted.transform(values).shape == (150, 6) and not hasattr(fitted, "feature_names_in_")


def test_groups_may_be_a_column_or_beside_the_table() -> None:
    data = frame()
    plain, codes = data[list("abcde")], data["who"].to_numpy()
    beside = tiny().fit(plain, groups=codes)
    same(tiny().fit(plain.assign(who=codes), groups="who"), beside)
    same(tiny().fit(plain.assign(who=pd.factorize(codes)[0]), groups="who"), beside)
    assert list(beside.feature_names_in_) == list("abcde")
    bare = plain.assign(who=codes).set_axis(range(6), axis=1)
    numbered = tiny().fit(bare, groups=5)
    same(numbered, beside)
    np.testing.assert_array_equal(numbered.transform(bare), beside.transform(plain))
    mixed = tiny().fit(data, groups="who")
    assert "who" not in mixed.feature_names_in_ and mixed.transform(data.drop(columns="who")).shape == (150, 7)
    assert not np.array_equal(tiny().fit(plain).embedding_, beside.embedding_)  # other samples are held out


def test_the_command_in_the_report_of_a_file_makes_the_same_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups and all."""
    monkeypatch.setattr(cli.fit, "publish", lambda run: run.path / "report.html")
    frame().to_csv(tmp_path / "t.csv", index=False)
    tiny(learning_rate=1e-3, folder=tmp_path / "one").fit(tmp_path / "t.csv", groups="who")
    run = Run(tmp_path / "one")
    words = shlex.split(reporting.command_of(run, study_of(run)))
    assert words[words.index("--groups") + 1] == "who"
    assert cli.main([*words[1:], "--out", str(tmp_path / "two")]) == 0
    assert (tmp_path / "one" / "map.csv").read_bytes() == (tmp_path / "two" / "map.csv").read_bytes()
    assert Run(tmp_path / "two").config["fields"] == run.config["fields"]


def test_the_frame_that_was_fitted_is_transformed_with_its_groups_and_its_index() -> None:
    data = frame()
    for given in (data, data[[*"abcde", "who"]], data.rename_axis("day").reset_index().set_index("day")):
        fitted = tiny().fit(given, groups="who")
        np.testing.assert_array_equal(fitted.transform(given), fitted.transform(given.drop(columns="who")))
        assert fitted.transform(given).shape == (150, given.shape[1] - 1) and np.isfinite(fitted.score(given))
    counted = data[list("abcde")].reset_index(names="Unnamed: 0").assign(wind=data["wind"])
    fitted = tiny().fit(counted)
    assert fitted.transform(counted).shape == (150, 6)
    np.testing.assert_array_equal(fitted.transform(counted), fitted.transform(counted.drop(columns="Unnamed: 0")))


def test_channels_that_never_vary_are_left_out_with_a_warning() -> None:
    values = table()
    values[:, 1], values[:, 4] = 3.0, np.nan
    with pytest.warns(
        UserWarning,
        match=r"^channels are left out, since they do not vary in the training samples: 'channel 2', 'channel 5'$",
    ):
        fitted = tiny().fit(values)
    assert fitted.channels_.tolist() == [0, 2, 3, 5] and fitted.map_.shape == (4, 2)
    assert fitted.transform(values).shape == (150, 4)
    assert list(fitted.get_feature_names_out()) == ["channel 1", "channel 3", "channel 4", "channel 6"]


@pytest.mark.parametrize("channels", [2, 3])
def test_two_channels_are_enough(channels: int) -> None:
    fitted = tiny().fit(table(channels=channels))
    assert fitted.map_.shape == (channels, 2) and (fitted.map_3d_ is None) == (channels == 2)
    assert fitted.modules_.tolist() == [-1] * channels  # nothing is learned in a step


def test_a_single_model_says_nothing_of_how_sure_it_is() -> None:
    fitted = tiny(n_halves=0).fit(table())
    assert np.isnan(fitted.confidence_["channels"]).all() and np.isnan(fitted.confidence_["pairs"]).all()
    assert "A single model was trained, so that nothing can be said of how sure its map is." in fitted.summary_


# Among others


def test_it_is_cloned_and_stands_in_a_pipeline() -> None:
    first = tiny(hidden=0.4, random_state=3)
    copy = clone(first)
    assert copy.get_params() == first.get_params() and copy is not first
    values = table() * [1, 10, 100, 1, 1, 1]
    line = make_pipeline(StandardScaler(), clone(first)).fit(values)
    assert line.transform(values).shape == (150, 6) and np.isfinite(line.score(values))
    np.testing.assert_allclose(line[-1].embedding_, first.fit(values).embedding_, atol=1e-3)  # it standardizes anyway
    line.set_params(learnedpositions__steps=2)
    assert line.get_params()["learnedpositions__steps"] == 2


def test_a_random_state_decides_all_that_is_drawn() -> None:
    values = table()
    one, again, other = (tiny(random_state=state).fit(values) for state in (3, 3, 4))
    same(one, again)
    assert not np.array_equal(one.embedding_, other.embedding_)
    drawn = [tiny(random_state=np.random.RandomState(5)).fit(values) for _ in range(2)]
    same(*drawn)
    assert tiny(random_state=None).fit(values).map_.shape == (6, 2)


def test_numbers_of_numpy_are_numbers() -> None:
    given = {"steps": np.int64(1), "neighbors": np.int32(2), "hidden": np.float32(0.3), "sigma": np.array([0.05, 0.1])}
    fitted = tiny(**given, learning_rate=np.float64(1e-3)).fit(table())
    assert fitted.neighbors_.shape == (6, 2) and fitted.sigma_ in (0.05, 0.1)


def test_the_effort_is_by_the_device_unless_it_is_given() -> None:
    for device, usual in (("cpu", "quick"), ("cuda", "thorough")):
        assert [OwnData.effort_on(device, given) for given in EFFORTS] == [usual, "quick", "thorough"]


WHOLE = {"n_seeds": 1, "n_halves": 0, "steps": 1, "batch": 1, "width": 1, "layers": 1, "neighbors": 1, "n_draws": 19}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        *(
            ({name: wrong}, f"{name} must be a whole number of at least {least}; got {wrong!r}.")
            for name, least in WHOLE.items()
            for wrong in (least - 1, 20.5, "3")
        ),
        ({"sigma": "small"}, "sigma must be 'auto', a number or a list of numbers; got 'small'."),
        ({"sigma": None}, "sigma must be 'auto', a number or a list of numbers; got None."),
        ({"sigma": []}, "sigma must be 'auto', a number or a list of numbers; got []."),
        ({"sigma": -1}, "sigma must be a number of at least 0; got -1.0."),
        ({"sigma": [0.1, 0.1]}, "sigmas must be all different; got [0.1, 0.1]."),
        ({"hidden": 1}, "hidden must be a number above 0 and below 1; got 1."),
        ({"hidden": "some"}, "hidden must be a number above 0 and below 1; got 'some'."),
        ({"learning_rate": -1}, "learning_rate must be a number of at least 0; got -1."),
        ({"effort": "huge"}, "effort must be one of auto, quick, thorough; got 'huge'."),
        ({"device": "tpu"}, "device must be one of auto, cpu, cuda; got 'tpu'."),
        ({"random_state": -1}, "random_state must be a whole number of at least 0, a RandomState or None; got -1."),
    ],
)
def test_wrong_parameters_are_refused_in_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as error:
        tiny(**given).fit(table())
    assert str(error.value) == sentence


def test_wrong_tables_are_refused_in_a_sentence(tmp_path: Path) -> None:
    values = table()
    twice = pd.DataFrame(values, columns=list("aabcdb"))
    beside = "the group of each row, since the columns of an array have no names"
    within = "the name of a column or a file with a group a row, since X is a file"
    for act, sentence in (
        (lambda: tiny().fit(values, groups=np.arange(9)), "groups must have a group for each of the 150 rows; got 9."),
        (lambda: tiny().fit(values, groups="channel 2"), f"groups must be {beside}; got 'channel 2'."),
        (lambda: tiny().fit(values, groups=2), f"groups must be {beside}; got 2."),
        (
            lambda: tiny().fit(pd.DataFrame(values), groups=9),
            "groups must be the name of a column of data, or the group of each row; got 9.",
        ),
        (lambda: tiny().fit(tmp_path / "no.csv", groups=9), f"groups must be {within}; got int."),
        (lambda: tiny().fit(values.tolist(), groups="who"), f"groups must be {beside}; got 'who'."),
        (
            lambda: tiny().fit(pd.DataFrame(values, columns=list("abcdef")), groups="who"),
            "groups must be the name of a column of data; got 'who'.",
        ),
        (lambda: tiny().fit(tmp_path / "no.csv", groups=np.arange(150)), f"groups must be {within}; got ndarray."),
        (lambda: tiny().fit(twice), "The names of the columns of X must all be different; given twice: a, b."),
        (
            lambda: tiny().fit(np.ones((99, 5))),
            "at least one channel must vary; all of them are constant or missing in the training samples.",
        ),
        (lambda: tiny().fit(tmp_path / "no.csv"), f"{tmp_path / 'no.csv'} cannot be read: No such file or directory."),
    ):
        with pytest.raises(BadInput) as error:
            act()
        assert str(error.value) == sentence
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    with pytest.raises(BadInput, match="must be new, empty or a run folder; it holds other files"):
        tiny(folder=tmp_path / "other").fit(values)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["mine.txt"]
