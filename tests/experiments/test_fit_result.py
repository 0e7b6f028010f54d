"""The result of a fit is written and read back without loss. Missing values are null."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.made_up_own import made_up, method, scored

from placecode.errors import BadInput
from placecode.experiments.channels import fit_result
from placecode.experiments.channels.fit_result import FitResult
from placecode.reports.pages import fit_text


def rich() -> FitResult:
    result = scored(
        made_up(labels=np.array([0, 0, 0, 1, 1, 1, -1, 0]), label_names=("left", "right")),
        {"ari": 0.5, "ari_p": 0.01, "neighbor_agreement": 0.75, "neighbor_agreement_p": 0.02, "procrustes_r2": 0.9},
        {"ari": 0.25, "ari_p": 0.3, "neighbor_agreement": 0.5, "neighbor_agreement_p": 0.2, "procrustes_r2": 0.5},
    )
    return replace(result, positions=np.arange(16.0).reshape(8, 2))


def same(a: Any, b: Any, rough: float = 1e-6) -> None:
    if isinstance(a, dict):
        assert list(a) == list(b)
        for name in a:
            same(a[name], b[name])
    elif isinstance(a, fit_result.Method):
        for field in fields(a):
            same(getattr(a, field.name), getattr(b, field.name))
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, atol=rough)
    else:
        assert a == b


def test_all_of_it_is_read_back(tmp_path: Path) -> None:
    result = replace(rich(), sigmas=[{"sigma": 0.05, "error": 0.4, "standard_error": 0.02, "stability": 0.9}])
    fit_result.write(result, tmp_path)
    again = fit_result.read(tmp_path)
    for field in fields(result):
        same(getattr(result, field.name), getattr(again, field.name))
    assert fit_text.sentences(again) == fit_text.sentences(result)  # a confidence of 0.9 is less than 0.9 in float32
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit.json", "fit.safetensors", "map.csv"]


def test_missing_values_are_null(tmp_path: Path) -> None:
    unsure = made_up(confidence=np.full(8, np.nan), pairs=np.full((8, 8), np.nan), stability={2: float("nan")})
    unsure = scored(unsure, {"procrustes_r2": float("nan")}, {})
    fit_result.write(unsure, tmp_path)
    record = json.loads((tmp_path / "fit.json").read_text())
    assert record["sigmas"][1]["stability"] is None and record["stability"] == {"2": None}
    assert record["scores"]["ours"]["procrustes_r2"] is None
    again = fit_result.read(tmp_path)
    assert np.isnan(again.confidence).all() and np.isnan(again.stability[2])
    for fitted in (unsure, again):
        summary = fitted.summary()
        assert json.loads(json.dumps(summary, allow_nan=False)) == summary
        assert summary["confidence"] is None and summary["modules_agreement"] is None


def test_map_csv_has_positions_modules_and_neighbours(tmp_path: Path) -> None:
    result = rich()
    fit_result.write(result, tmp_path)
    table = pd.read_csv(tmp_path / "map.csv", keep_default_na=False)
    assert list(table.columns) == [
        *("name", "x", "y", "x_3d", "y_3d", "z_3d", "module", "confidence"),
        *("neighbor_1", "neighbor_1_confidence", "neighbor_2", "neighbor_2_confidence", "label"),
    ]
    assert table["name"].tolist() == list(result.names)
    assert table["module"].tolist() == [1, 2] * 4  # from 1 on
    assert table["neighbor_1"].tolist() == ["c2", "c3", "c4", "c5", "c6", "c7", "c8", "c1"]
    assert table["label"].tolist() == ["left"] * 3 + ["right"] * 3 + ["", "left"]
    np.testing.assert_allclose(table[["x", "y"]], result.ours.maps[2], rtol=1e-5)
    pairs = [result.pairs[i, (i + 1) % 8] for i in range(8)]
    np.testing.assert_allclose(table["neighbor_1_confidence"], pairs, rtol=1e-5)


def test_a_channel_without_a_place_has_empty_cells() -> None:
    result = made_up()
    placeless = np.arange(8) == 4
    ours = replace(result.ours, labels=np.where(placeless, -1, result.ours.labels))
    table = made_up(ours=ours, confidence=np.where(placeless, 0.0, result.confidence)).table()
    assert table["module"].isna().tolist() == table["confidence"].isna().tolist() == placeless.tolist()
    assert table["neighbor_1_confidence"].isna().tolist() == [i in (3, 4) for i in range(8)]


def test_names_with_commas_quotes_and_lines_survive_the_table(tmp_path: Path) -> None:
    names = ("a,b", 'say "x"', "two\nlines", "<b>&amp;</b>", "$x_1$", "é", "", " ")
    fit_result.write(made_up(names=names), tmp_path)
    assert tuple(pd.read_csv(tmp_path / "map.csv", keep_default_na=False)["name"]) == names


def test_two_channels_have_no_third_axis() -> None:
    few = method(2)
    few = replace(few, maps={2: few.maps[2]})
    result = made_up(2, ours=few, neighbors=np.array([[1], [0]]))
    assert "x_3d" not in result.table() and list(result.table()["neighbor_1"]) == ["c2", "c1"]


@pytest.mark.parametrize("name", ["fit.json", "fit.safetensors"])
@pytest.mark.parametrize("size", [None, 40], ids=["missing", "cut short"])
def test_an_incomplete_fit_is_refused(tmp_path: Path, name: str, size: int | None) -> None:
    fit_result.write(made_up(), tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    if size is not None:
        (tmp_path / name).write_bytes(content[:size])
    with pytest.raises(BadInput, match="must hold a finished fit"):
        fit_result.read(tmp_path)
