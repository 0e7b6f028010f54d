"""The worked example of CONTRIBUTING.md: an encoding, a task, a measure and a study from outside the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.scripts import load

from placecode import encodings


@pytest.fixture(scope="module")
def example():
    return load(Path(__file__).parents[2] / "examples" / "extend.py")


def test_the_study_crosses_its_sigmas_and_seeds_with_two_further_axes(example, tmp_path: Path, capsys) -> None:
    run = example.main(tmp_path / "run")
    assert len(run.members) == 16 and (run.members["encoding"] == "fading").all()
    assert set(run.members["heads"]) == {1, 2} and set(run.members["learning_rate"]) == {0.003, 0.001}
    last = run.metrics[run.metrics["step"] == run.metrics["step"].max()]
    trained = last.query("split == 'train' and metric == 'accuracy'")["value"]
    assert trained.mean() > 0.9
    assert "step ratio" in capsys.readouterr().out


def test_a_fading_encoding_starts_smaller_at_later_tokens(example) -> None:
    fading = encodings.make("fading", tokens=8, width=512, sigma=0.5)
    size = fading.vectors().detach().square().mean((0, 1, 3)).sqrt().numpy()
    np.testing.assert_allclose(size, 0.5 / np.arange(1, 9), rtol=0.15)


def test_the_step_ratio_of_a_line_is_known(example) -> None:
    line = np.arange(10.0)[:, None] * np.ones((1, 3))
    assert example.step_ratio(line) == pytest.approx(3 / 11)  # all pairs of 10 points are 11 / 3 apart on average
    shuffled = line[np.random.default_rng(0).permutation(10)]
    assert example.step_ratio(shuffled) > 2 * example.step_ratio(line)
