"""Names of earlier versions: older runs and commands give the same experiment and members as the names of today."""

from pathlib import Path

import pandas as pd
import pytest

from placecode import cli
from placecode.experiments import experiment_of, lookup
from placecode.experiments.base import Experiment
from placecode.models.member import DONOR_STARTS, STARTS, Member
from placecode.runs import former_names
from placecode.runs.read import Run
from placecode.runs.tables import member_table

RESULTS = Path(__file__).parents[2] / "results"


def experiment_from(name: str, *options: str) -> Experiment:
    """Return the experiment that `placecode run NAME` with these options runs."""
    words = ["run", name, *options]
    return lookup(name).from_scale("quick", **cli.flags.settings(cli._parser(words).parse_args(words), lookup(name)))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("brain-mask", "--trained-with 0.15, --ratios 0.15,0.5"),
        ("brain-preprocessing", "--without sub-0,"),
        ("lst-causal", "--master-sigma 0.1"),
        ("lst-decay", "--parts pe,"),
        ("lst-heads", "--many 2,4"),
        ("lst-sigma", "--rest 5"),
        ("lst-slingshot", "--every 2"),
        ("network-sigma", "--hidden 0.3 --ratios 0.3 0.9 --against linear, --slow-in 2"),
        ("network-size", "--many 8,12"),
        ("synergy-size", "--many 2,3 --shares 0.5,"),
    ],
)
def test_a_former_option_sets_the_same_field(name: str, options: str) -> None:
    fields = former_names.former_fields(name)
    flags = {f"--{old}".replace("_", "-"): f"--{new}".replace("_", "-") for old, new in fields.items()}
    former = options.split()
    experiment = experiment_from(name, *former)
    assert experiment == experiment_from(name, *(flags.get(word, word) for word in former))
    assert experiment != experiment_from(name)


@pytest.mark.parametrize(
    ("former", "present"), [("output-gain=1,3", "output_gain=1,3"), ("hidden=0.2,0.5", "mask_ratio=0.2,0.5")]
)
def test_a_former_name_can_be_swept(former: str, present: str) -> None:
    experiment = experiment_from("network-sigma", "--sweep", former)
    assert experiment.members() == experiment_from("network-sigma", "--sweep", present).members()
    assert len(experiment.members()) == 2 * len(experiment_from("network-sigma").members())
    assert experiment.fields()["sweep"] == [present]


def test_former_names_and_values_of_members_are_replaced() -> None:
    members = [Member(mask_ratio=0.3, output_gain=2.0), *(Member(start=start, donor=0) for start in DONOR_STARTS)]
    table = member_table(range(len(members)), members)
    table.loc[1, "diverged_by"] = "donor"
    columns = {new: old for old, new in former_names.MEMBER_FIELDS.items()}
    values = {name: {new: old for old, new in mapping.items()} for name, mapping in former_names.MEMBER_VALUES.items()}
    former = table.replace(values).rename(columns=columns)
    assert {"origin", "hidden", "gain", "rested_epoch"} <= {*former}
    assert {"taken", "before", "sized"} <= {*former["start"]} and former.loc[1, "diverged_by"] == "origin"
    pd.testing.assert_frame_equal(former_names.current_members(former), table)
    rows, former_rows = (rows.astype(object).to_dict("records") for rows in (table, former))
    assert [str(former_names.current_row(row)) for row in former_rows] == [str(row) for row in rows]


@pytest.mark.parametrize("name", sorted(file.parent.name for file in RESULTS.glob("*/config.json")))
def test_committed_runs_have_the_present_names(name: str) -> None:
    run = Run(RESULTS / name)
    fields, experiment = run.config["fields"], experiment_of(run)
    assert not {*former_names.former_fields(run.experiment)} & {*fields}
    described = run.config["task"]
    parts = described.get("parts", {"": described})
    for part in parts.values():
        assert "ratios" not in part and ("eval_mask_ratios" in part) == ("mask_ratio" in fields)
    assert len(parts) == len(run.config.get("shapes", {"": None}))
    assert not {*former_names.MEMBER_FIELDS} & {*run.members, *run.summary[0]}
    assert {*run.members["start"]} <= {*STARTS, *DONOR_STARTS}
    assert {field: experiment.fields()[field] for field in fields} == fields
    specs = experiment.members()
    columns = {"sigma", "seed", "start", "mask_ratio", "output_gain"} & {*run.members}
    for row in run.members.to_dict("records"):
        record = specs[row["member"]].record()
        assert all(row[column] == record[column] or row[column] != row[column] for column in columns)
