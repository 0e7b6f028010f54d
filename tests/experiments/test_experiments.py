"""Rules that hold for every experiment: its settings, its members, and the form of its claims."""

import dataclasses
import json
import math
from typing import Any

import pytest
from helpers.refusal import refused

from placecode import cli, experiments
from placecode.experiments.claims import LABELS
from placecode.settings import declarations, settings_of

NAMES = list(experiments.EXPERIMENTS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", experiments.SCALES)
def test_every_field_has_a_help_text_and_is_recorded(name: str, scale: str) -> None:
    cls = experiments.lookup(name)
    experiment = cls.from_scale(scale)
    assert settings_of(cls) == [field.name for field in dataclasses.fields(cls)]
    assert all(declarations(cls)[name].help for name in settings_of(cls))
    record = json.loads(json.dumps(experiment.fields()))
    assert cls(**{field: tuple(v) if isinstance(v, list) else v for field, v in record.items()}) == experiment


@pytest.mark.parametrize("name", [name for name in NAMES if experiments.lookup(name).swept_by])
def test_a_swept_field_cannot_be_set(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    cls = experiments.lookup(name)
    for field, listed in cls.swept_by.items():
        assert set(listed.split(" and ")) <= set(settings_of(cls)) or listed == "both placements"
        error = refused(cls.from_scale, "quick", **{field: 1})
        assert error.name == field and listed in error.allowed
        assert cli.main(["run", name, f"--{field.replace('_', '-')}", "1", "--out", "nowhere"]) == 2
        assert f"{field} must be left out of {name}" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_values_of_a_sweep_differ(name: str) -> None:
    cls = experiments.lookup(name)
    for field, declared in declarations(cls).items():
        if declared.count_at_least is not None:
            value = getattr(cls, field)[0]
            error = refused(cls.from_scale, "quick", **{field: (value, value)})
            assert (error.name, error.allowed) == (field, "all different")


@pytest.mark.parametrize("name", NAMES)
def test_claims_have_unique_ids_whole_sentences_and_fixed_margins(name: str) -> None:
    claims: Any = experiments.lookup(name).claims
    assert len({claim.id for claim in claims}) == len({claim.statement for claim in claims}) == len(claims)
    for claim in claims:
        assert claim.id == claim.id.lower() and " " not in claim.id and claim.label in LABELS
        assert not claim.statement[0].islower() and claim.statement.endswith(".")
        assert math.isfinite(claim.margin) and (claim.way != "within" or claim.margin > 0)
