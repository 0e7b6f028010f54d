"""LearnedPositions gives the same fit for the same table as an array, a DataFrame and a file."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.made_up_own import frame, same, table, tiny
from helpers.refusal import refused

from placecode.data.tables import files as table_files
from placecode.errors import BadInput
from placecode.fit import fitting
from placecode.tasks.table import table_tasks


def test_arrays_frames_files_and_maps_are_the_same_table(tmp_path) -> None:
    values = table().astype(np.float32)
    named = pd.DataFrame(values, columns=list("abcdef"))
    named.to_csv(tmp_path / "t.csv", index=False)
    named.to_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "t.npy", values)
    first = tiny(steps=3).fit(values)
    assert not hasattr(first, "feature_names_in_") and first.n_features_in_ == 6
    for source in (named, tmp_path / "t.csv", str(tmp_path / "t.parquet"), np.load(tmp_path / "t.npy", mmap_mode="r")):
        again = tiny(steps=3).fit(source)
        same(again, first)
        assert again.n_features_in_ == 6
        if not isinstance(source, np.ndarray):
            assert list(again.feature_names_in_) == list(again.get_feature_names_out()) == list("abcdef")
            assert again.transform(named).shape == (150, 6)
    again = tiny().fit(named)
    with pytest.raises(ValueError, match="feature names should match"):
        again.transform(named[list("bacdef")])


def test_a_mapped_array_is_not_copied(tmp_path, monkeypatch) -> None:
    """An array of another type than float32 is copied: to a file if it does not fit into memory."""
    shared = []

    def made(values: np.ndarray, **options: Any) -> Any:
        shared.append((np.shares_memory(values, mapped), isinstance(values, np.memmap)))
        return table_tasks(values, **options)

    monkeypatch.setattr(fitting, "table_tasks", made)
    for kind, memory in ((np.float32, 4_000), (np.float64, 10**9), (np.float64, 4_000)):
        monkeypatch.setattr(table_files, "available_memory", lambda memory=memory: memory)
        np.save(tmp_path / "t.npy", table().astype(np.float32).astype(kind))
        mapped = np.load(tmp_path / "t.npy", mmap_mode="r")
        fitted = tiny().fit(mapped)
        assert fitted.n_features_in_ == 6 and fitted.transform(mapped).shape == (150, 6)
    assert shared == [(True, True), (False, False), (False, True)]
    wild = table()
    wild[7, 2] = np.inf
    np.save(tmp_path / "wild.npy", wild)
    with pytest.raises(BadInput, match=r"^row 8: column 'channel 3' must hold finite"):
        tiny().fit(np.load(tmp_path / "wild.npy", mmap_mode="r"))
    np.save(tmp_path / "flat.npy", wild[:, 0])
    with pytest.raises(ValueError, match="Expected 2D array"):
        tiny().fit(np.load(tmp_path / "flat.npy", mmap_mode="r"))


def test_words_are_categories_and_come_back_as_codes() -> None:
    data = frame().drop(columns="who")
    fitted = tiny().fit(data)
    assert list(fitted.feature_names_in_) == ["a", "b", "wind", "c", "d", "e", "dry"]
    predicted = fitted.transform(data)
    assert set(predicted[:, 2]) <= {0.0, 1.0, 2.0}  # east, north, west
    unknown, missing = (fitted.transform(data.assign(wind=wind)) for wind in ("south", None))
    np.testing.assert_array_equal(unknown, missing)
    assert np.isfinite(fitted.score(data))
    few = data[data["wind"] == "west"].head(1)  # codes are those of fitting, whichever words there are
    place = data.index.get_loc(few.index[0])
    np.testing.assert_allclose(fitted.transform(few), predicted[place : place + 1], rtol=1e-5)
    with pytest.raises(BadInput, match=r"^column 'a' must be numbers"):
        fitted.transform(data.assign(a="low"))


def test_a_declared_category_of_numbers_is_one_in_transform_too(tmp_path) -> None:
    data = frame().drop(columns="who")
    data["code"] = pd.Categorical(np.random.default_rng(2).choice([10, 2, 7], len(data)))
    data.to_parquet(tmp_path / "t.parquet")
    fitted = tiny().fit(data)
    predicted = fitted.transform(data)
    assert set(predicted[:, -1]) <= {0.0, 1.0, 2.0}  # 10, 2, 7: as words
    same(tiny().fit(tmp_path / "t.parquet"), fitted)
    numbers = data.assign(code=data["code"].astype(float))
    for source in (tmp_path / "t.parquet", numbers, data.assign(code=data["code"].astype(str))):
        np.testing.assert_allclose(fitted.transform(source), predicted, rtol=1e-5)
    missing = fitted.transform(data.assign(code=None))
    np.testing.assert_array_equal(fitted.transform(data.assign(code=99)), missing)
    assert not np.allclose(missing, predicted)


def test_a_file_is_transformed_as_its_frame(tmp_path) -> None:
    """It may lack groups and row numbers, have few rows, and have unknown or missing categories."""
    data = frame().rename_axis("time").reset_index()
    for name, write in (("t.csv", data.to_csv), ("t.parquet", data.to_parquet)):
        path = tmp_path / name
        write(path, index=False)
        fitted = tiny().fit(str(path), groups="who")
        assert list(fitted.feature_names_in_) == ["a", "b", "wind", "c", "d", "e", "dry"]
        predicted, share = fitted.transform(path), fitted.score(str(path))
        for source in (pd.read_csv(path) if name == "t.csv" else data, data.drop(columns=["time", "who"])):
            np.testing.assert_allclose(fitted.transform(source), predicted, rtol=1e-4)
            assert fitted.score(source) == pytest.approx(share)
        np.testing.assert_allclose(tiny().fit(data, groups="who").transform(path), predicted, rtol=1e-4)
        for wind in ("south", None):
            few = data.tail(3).assign(wind=wind, dry="True")
            few.drop(columns="who").to_csv(tmp_path / "few.csv", index=False)
            np.testing.assert_allclose(fitted.transform(tmp_path / "few.csv"), fitted.transform(few), rtol=1e-4)
    data.assign(a="low").to_csv(tmp_path / "low.csv", index=False)
    with pytest.raises(BadInput, match=r"^column 'a' must be numbers"):
        fitted.transform(tmp_path / "low.csv")
    with pytest.raises(BadInput, match="cannot be read"):
        fitted.score(tmp_path / "no.csv")
    data.drop(columns="b").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(ValueError, match="Feature names seen at fit time, yet now missing:\n- b"):
        fitted.transform(tmp_path / "less.csv")


@pytest.mark.filterwarnings("error")
def test_columns_without_names_are_identified_by_position(tmp_path) -> None:
    values = np.column_stack([table(channels=6), np.repeat(np.arange(6), 25)])[:, [0, 6, 1, 2, 3, 4, 5]]
    np.save(tmp_path / "t.npy", values)
    bare = pd.DataFrame(values)
    for source in (tmp_path / "t.npy", bare):
        fitted = tiny().fit(source, groups="channel 2")
        assert not hasattr(fitted, "feature_names_in_") and fitted.n_features_in_ == 6
        predicted = fitted.transform(source)
        rest = np.delete(values, 1, axis=1)
        for same_table in (tmp_path / "t.npy", bare, rest, pd.DataFrame(rest)):
            np.testing.assert_array_equal(fitted.transform(same_table), predicted)


@pytest.mark.filterwarnings("ignore:the first column of data")
def test_a_count_of_the_rows_is_not_a_channel(tmp_path) -> None:
    """A first column that does not count the rows is a channel."""
    plain = pd.DataFrame(table().astype(np.float32), columns=list("abcdef"))
    data = plain.rename_axis("time").reset_index()
    data.to_csv(tmp_path / "t.csv", index=False)
    from_frame, from_file = tiny().fit(data), tiny().fit(tmp_path / "t.csv")
    for fitted in (from_frame, from_file):
        same(fitted, tiny().fit(plain))
        assert list(fitted.feature_names_in_) == list("abcdef")
        np.testing.assert_array_equal(fitted.transform(data.tail(40)), fitted.transform(plain.tail(40)))
    assert list(tiny().fit(data.assign(time=data["a"] ** 2)).feature_names_in_) == ["time", *"abcdef"]


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


def test_channels_that_never_vary_are_left_out_with_a_warning() -> None:
    values = table()
    values[:, 1], values[:, 4] = 3.0, np.nan
    with pytest.warns(UserWarning, match="channels are left out.*'channel 2', 'channel 5'$"):
        fitted = tiny().fit(values)
    assert fitted.channels_.tolist() == [0, 2, 3, 5] and fitted.map_.shape == (4, 2)
    assert fitted.transform(values).shape == (150, 4)
    assert list(fitted.get_feature_names_out()) == ["channel 1", "channel 3", "channel 4", "channel 6"]


@pytest.mark.parametrize(
    ("data", "groups", "sentence"),
    [
        (table(), np.arange(9), "groups must have a group for each of the 150 rows; got 9."),
        (table(), "channel 2", "groups must be the group of each row, since"),
        (pd.DataFrame(table()), 9, "groups must be the name of a column of data, or the group of each row; got 9."),
        (pd.DataFrame(table(), columns=list("abcdef")), "who", "groups must be the name of a column of data; got"),
        (Path("no.csv"), np.arange(150), "groups must be the name of a column or a file"),
        (Path("no.csv"), None, "no.csv cannot be read"),
        (pd.DataFrame(table(), columns=list("aabcdb")), None, "The names of the columns of X must all be different"),
        (np.ones((99, 5)), None, "at least one channel must vary"),
        (table() * [1, 0, 0, 0, 0, 0], None, "array must be a table in which at least 2 channels vary; got 1."),
    ],
)
@pytest.mark.filterwarnings("ignore:channels are left out")
def test_wrong_tables_are_refused_in_a_sentence(data, groups, sentence) -> None:
    assert str(refused(tiny().fit, data, groups=groups)).startswith(sentence)
