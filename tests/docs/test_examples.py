"""The examples, run with small settings, do and print what their docstrings say."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.scripts import load

from placecode import encodings
from placecode.analysis.modules import related_neighbor_agreement
from placecode.analysis.partitions import ari
from placecode.analysis.places import neighbors_in_space
from placecode.tasks import pixels

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_shuffled_photo_is_two_tables_and_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("PIL", reason="reads the photographs")
    words = ["--out", str(tmp_path / "new"), "--samples", "400", "--size", "5", "--seed", "3"]
    load(EXAMPLES / "shuffled_photo.py").main(words)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["positions.csv", "shuffled.csv"]
    shuffled, positions = (pd.read_csv(tmp_path / "new" / f"{name}.csv") for name in ("shuffled", "positions"))
    values, names, places, strips = pixels.sample_table(size=5, samples=400, seed=3)
    assert list(shuffled.pop("strip")) == list(strips)
    assert list(shuffled.columns) == list(names) and list(positions["name"]) == list(names)
    np.testing.assert_allclose(shuffled, values, atol=6e-5)
    np.testing.assert_array_equal(positions[["x", "y"]], np.stack([places[:, 1], -places[:, 0]], axis=1))
    near = neighbors_in_space(positions[["x", "y"]])
    assert related_neighbor_agreement(np.corrcoef(shuffled.T), near) > 0.9  # so that a map can be found
    table, places_file = tmp_path / "new" / "shuffled.csv", tmp_path / "new" / "positions.csv"
    command = f"placecode fit {table} --groups strip --positions {places_file}"
    assert capsys.readouterr().out.splitlines()[-1] == command


def test_a_drop_in_encoding_shows_the_ring_at_a_small_sigma_and_predicts_better_after_600_steps() -> None:
    example = load(EXAMPLES / "drop_in_encoding.py")
    early, late = ({sigma: example.train(sigma, steps, 0) for sigma in (0.1, 2.0)} for steps in (200, 600))
    assert late[0.1][2] > 0.8 and late[2.0][2] < 0.3
    assert early[2.0][0] < early[0.1][0] and late[0.1][0] < late[2.0][0] < late[2.0][1]


def test_stations_of_a_lake_are_found_to_belong_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example = load(EXAMPLES / "own_table.py")
    example.stations(1_500).to_csv("stations.csv", index=False)
    fitted = example.main(["--file", "stations.csv", "--steps", "150"])
    out = capsys.readouterr().out
    assert out.startswith("Structure found") and fitted.p_value_ <= 0.05
    lakes = np.unique([name.split()[0] for name in fitted.names_], return_inverse=True)[1]
    assert ari(fitted.modules_, lakes) == 1.0
    for module in range(3):
        (line,) = re.findall(f"module {module + 1}: (.*)", out)
        assert len({name.split()[0] for name in line.split(", ")}) == 1
    assert pd.read_csv("stations.csv").isna().to_numpy().mean() == pytest.approx(0.02, abs=0.005)


@pytest.fixture(scope="module")
def extend() -> Any:
    """The worked example of CONTRIBUTING.md: an encoding, a task, a measure and an experiment of another package."""
    return load(EXAMPLES / "extend.py")


def test_the_experiment_crosses_its_sigmas_and_seeds_with_two_further_axes(extend: Any, tmp_path: Path) -> None:
    run = extend.main(tmp_path / "run")
    assert len(run.members) == 16 and (run.members["encoding"] == "fading").all()
    assert set(run.members["heads"]) == {1, 2} and set(run.members["learning_rate"]) == {0.003, 0.001}
    last = run.metrics[run.metrics["step"] == run.metrics["step"].max()]
    assert last.query("split == 'train' and metric == 'accuracy'")["value"].mean() > 0.9


def test_a_fading_encoding_starts_smaller_at_later_tokens(extend: Any) -> None:
    fading = encodings.make("fading", tokens=8, width=512, sigma=0.5)
    size = fading.vectors().detach().square().mean((0, 1, 3)).sqrt().numpy()
    np.testing.assert_allclose(size, 0.5 / np.arange(1, 9), rtol=0.15)


def test_the_step_ratio_of_a_line_is_known(extend: Any) -> None:
    line = np.arange(10.0)[:, None] * np.ones((1, 3))
    assert extend.step_ratio(line) == pytest.approx(3 / 11)  # all pairs of 10 points are 11 / 3 apart on average
    assert extend.step_ratio(line[np.random.default_rng(0).permutation(10)]) > 2 * extend.step_ratio(line)
