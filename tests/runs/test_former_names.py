"""Names of earlier versions: older runs and commands give the same experiment and members as the names of today."""

from pathlib import Path

import pytest

from placecode import cli
from placecode.experiments import experiment_of, lookup
from placecode.experiments.base import Experiment
from placecode.models.member import Member
from placecode.runs.former_names import MEMBER_FIELDS, former_fields
from placecode.runs.read import Run

RESULTS = Path(__file__).parents[2] / "results"


def experiment_from(name: str, *options: str) -> Experiment:
    """Return the experiment that `placecode run NAME` with these options runs."""
    words = ["run", name, *options]
    return lookup(name).from_scale("quick", **cli.flags.settings(cli._parser(words).parse_args(words), lookup(name)))


def test_former_names_are_mapped_to_fields_that_exist() -> None:
    assert set(MEMBER_FIELDS.values()) <= {*Member().record(), "donor_sigma"}


@pytest.mark.parametrize(("name", "former", "present"), [("network-sigma", "output-gain=1,3", "output_gain=1,3")])
def test_a_former_name_can_be_swept(name: str, former: str, present: str) -> None:
    members = experiment_from(name, "--sweep", former).members()
    assert members == experiment_from(name, "--sweep", present).members() and len(members) > 12


@pytest.mark.parametrize("name", sorted(file.parent.name for file in RESULTS.glob("*/config.json")))
def test_committed_runs_have_the_present_names(name: str) -> None:
    run = Run(RESULTS / name)
    fields, experiment = run.config["fields"], experiment_of(run)
    assert not {*former_fields(run.experiment)} & {*fields}
    assert not {*MEMBER_FIELDS} & {*run.members, *run.summary[0]}
    assert {field: experiment.fields()[field] for field in fields} == fields
    specs = experiment.members()
    columns = {"sigma", "seed", "start", "output_gain"} & {*run.members}
    for row in run.members.to_dict("records"):
        record = specs[row["member"]].record()
        assert all(row[column] == record[column] or row[column] != row[column] for column in columns)
