"""Further axes of a sweep, from the command line or from Python."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from helpers.refusal import refused

from placecode import cli, experiments
from placecode.errors import BadInput
from placecode.experiments.base import Experiment
from placecode.experiments.sweeps import axes_of, combinations
from placecode.runs.read import Run
from placecode.tasks.collection import TaskCollection

DATA: dict[str, Any] = {"per_class": 20, "heldout": 9, "distance": 0.5}
TINY = {**DATA, "sigmas": (0.2, 2.0), "seeds": (0, 1), "epochs": 1, "evaluations": 1, "references": (0.0,)}
TINY |= {"width": 8, "heads": 2, "layers": 1, "batch": 16}


def tiny(**fields: Any) -> Experiment:
    return experiments.lookup("lst-sigma").from_scale("quick", **{**TINY, **fields})


def test_axes_are_crossed_with_all_members_of_the_experiment() -> None:
    plain, experiment = tiny().members(), tiny(sweep=("heads=1,2", "learning_rate=1e-3,1e-2"))
    members = experiment.members()
    assert len(members) == 4 * len(plain) == 4 * 6
    pairs = list(itertools.product((1, 2), (1e-3, 1e-2)))
    assert [(member.heads, member.learning_rate) for member in members] == [pair for pair in pairs for _ in plain]
    assert [(member.sigma, member.seed) for member in members] == 4 * [(member.sigma, member.seed) for member in plain]
    assert [member.role for member in members[:6]] == 4 * ["swept"] + 2 * ["reference"]
    assert members[0].label.endswith("0.2, heads 1, learning rate 0.001")
    assert members[-1].label == "2d-fixed, heads 2, learning rate 0.01"


def test_donors_stay_within_their_combination() -> None:
    experiment = experiments.lookup("lst-frozen").from_scale("quick", seeds=(0,), sweep=("heads=1,2",))
    members, half = experiment.members(), len(experiment.members()) // 2
    copies = [(number, member.donor) for number, member in enumerate(members) if member.donor is not None]
    assert copies and all(donor // half == number // half for number, donor in copies)
    assert all(members[donor].heads == members[number].heads for number, donor in copies)


def test_fields_of_the_data_give_data_sets() -> None:
    experiment = tiny(sweep=("per_class=20,40", "heads=1,2"))
    data = experiment.build_task()
    assert isinstance(data, TaskCollection) and list(data.tasks) == ["per_class=20", "per_class=40"]
    sizes = [len(task.splits["train"]) for task in data.tasks.values()]
    assert sizes[0] < sizes[1]
    assert [member.data for member in experiment.members()] == 12 * ["per_class=20"] + 12 * ["per_class=40"]
    assert len({experiment.training_steps(part) for part in data.tasks.values()}) == 1  # all train for as many steps
    of_data = experiments.lookup("lst-data").from_scale("quick", **DATA, samples=(18, 54), sweep=("heldout=6,9",))
    with pytest.raises(BadInput, match="which has several data sets"):
        of_data.build_task()


def test_the_gain_of_a_network_is_not_that_of_the_outputs() -> None:
    sweep = ("gain=0.5,1.0", "output_gain=1.0,3.0")
    fields = {"sigmas": (0.1,), "seeds": (0,), "train": 50, "nodes": 15, "sweep": sweep}
    experiment = experiments.lookup("network-sigma").from_scale("quick", **fields)
    pairs = list(itertools.product(("gain=0.5", "gain=1"), (1.0, 3.0)))
    assert [(member.data, member.output_gain) for member in experiment.members()] == pairs
    data = experiment.build_task()
    assert isinstance(data, TaskCollection) and [task.describe()["gain"] for task in data.tasks.values()] == [0.5, 1.0]


@pytest.mark.parametrize(
    ("texts", "name", "part"),
    [
        (["headz=1,2"], "a field to sweep", "must be one of batch, beta1"),
        (["heads"], "sweep", "NAME=VALUE,VALUE,..., such as heads=1,2,4"),
        (["heads="], "sweep", "NAME=VALUE,VALUE,..., such as heads=1,2,4"),
        (["heads=1,1"], "sweep", "of different values"),
        (["heads=1", "heads=2"], "sweep", "of different fields"),
        (["heads=1,two"], "heads", "a whole number"),
        (["learn=maybe"], "learn", "true or false"),
        (["rest=1,2"], "a field to sweep", "got 'rest'"),  # the name that was given, not the present one
        (["epochs=1,2"], "a field to sweep", "must be one of batch, beta1"),  # one length for the whole run
        (["sigmas=1,2"], "a field to sweep", "must be one of batch, beta1"),  # has a flag of its own
    ],
)
def test_bad_sweeps_are_refused(texts: list[str], name: str, part: str) -> None:
    error = refused(axes_of, tiny(), texts)
    assert error.name == name and part in str(error)
    with pytest.raises(BadInput, match="lst-heads sweeps by head_counts"):
        axes_of(experiments.lookup("lst-heads").from_scale("quick"), ["heads=1,2"])


def test_values_have_the_type_of_their_field() -> None:
    axes = axes_of(tiny(), ["learn=true,false", "clip=none,1", "norm=pre,post", "output-gain=2"])
    assert [axis.values for axis in axes] == [(True, False), (None, 1.0), ("pre", "post"), (2.0,)]
    assert next(iter(combinations(axes)))[0] == "learn True, clip None, norm pre, output gain 2"


def test_the_command_trains_and_draws_all_axes(tmp_path: Path) -> None:
    words = ["run", "lst-sigma", "--sweep", "heads=1,2", "--sweep", "layers=1,2", "--sigmas", "0.2,2.0", "--seeds", "1"]
    words += ["--epochs", "2", "--evaluations", "1", "--per-class", "20", "--heldout", "9", "--distance", "0.5"]
    words += ["--width", "8", "--references", ",", "--device", "cpu", "--out", str(tmp_path / "run")]
    assert cli.main(words) == 0
    run = Run(tmp_path / "run")
    assert run.config["fields"]["sweep"] == ["heads=1,2", "layers=1,2"] and len(run.members) == 8
    experiment = experiments.experiment_of(run)
    assert experiment.findings(run) == []  # claims know nothing of the other axes
    assert set(experiment.lines(run)["line"]) == {label for label, _ in combinations(experiment.axes)}
    assert {path.stem for path in (run.path / "figures").glob("*.png")} == {"accuracy", "curves"}
    assert "--sweep heads=1,2 --sweep layers=1,2" in (run.path / "report.html").read_text()
    assert cli.main(["claims", str(run.path)]) == 0
