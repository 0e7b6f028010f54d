"""Members: bad values, grids, and conversion to rows of a table and back."""

import dataclasses
import json
from math import inf, nan

import numpy as np
import pytest
import torch
from helpers.refusal import refused

from placecode.errors import BadInput
from placecode.models.member import InitialPE, Member, Options, grid, varied

REFUSED = {
    "a whole number of at least 0": {"seed": [-1, 0.5, True], "ramp": [-1, 2.0, True]},
    "a whole number of at least 1": {
        **{name: [0] for name in ("width", "layers", "heads")},
        **{"batch": [0, 2.0], "expansion": [-4], "last_epoch": [0, -1, 1.5, True, "3"]},
    },
    "a number of at least 0": {
        **{"sigma": [-0.1, nan, inf, "0.2", True], "learning_rate": [-1e-4, None], "pe_learning_rate": ["a"]},
        **{"weight_decay": [nan], "pe_weight_decay": [-0.1], "clip": [-1]},
    },
    "a number of at least 0 and below 1": {"dropout": [1], "momentum": [1.0], "beta2": [1.5]},
    "a number above 0": {"output_gain": [0, -1.0, inf, nan, None]},
    "a divisor of the width 160": {"heads": [3]},
    "one of adam, adamw, sgd": {"optimizer": ["adagrad"]},
    "one of post, pre": {"norm": ["none"]},
    "one of every, input": {"placement": ["last"]},
    "one of swept, reference, donor, control": {"role": ["none"]},
    "left out for the start normal": {"donor": [3]},
    "True or False": {"learn": ["no"]},
    "a text": {"label": [3]},
}
STARTS = "normal, uniform, zero, true, centred, axes"


@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule in REFUSED for name in REFUSED[rule]])
def test_wrong_values_are_refused(rule, name) -> None:
    for value in REFUSED[rule][name]:
        error = refused(Member, **{name: value})
        assert (error.name, error.allowed) == (name, rule) and error.given is value


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"start": "donor"}, "donor must be the number of a member; got None."),
        ({"start": "shuffled", "donor": -1}, "donor must be the number of a member; got -1."),
        ({"start": "rescaled", "donor": 0, "sigma": None}, "sigma must be a number of at least 0 for the start res"),
        ({"last_epoch": 2, "cooldown": 0.1}, "last_epoch must be left out with a cooldown"),
        ({"start": "ones"}, f"start must be one of {STARTS}, donor, shuffled, "),
        *(({"start": start}, f"start must be {STARTS}, or an array of") for start in ([1.0], [["a", "b"]], 3, None)),
        *(({"start": start}, "start must be") for start in (np.zeros((2, 2, 2, 2)), [[1.0], [1.0, 2.0]])),
        ({"start": [[1.0, nan]]}, "start must be an array of finite numbers"),
        *(({"options": {"axes": value}}, "the option axes must be") for value in ([1], {"a": 1}, np.zeros(2), object)),
    ],
)
def test_values_that_do_not_go_together_are_refused(fields, sentence) -> None:
    assert str(refused(Member, **fields)).startswith(sentence)


def test_values_at_the_edges_are_allowed() -> None:
    Member(sigma=0, dropout=0, weight_decay=0, learning_rate=0, pe_learning_rate=0, clip=0, momentum=0, beta1=0)
    Member(sigma=None, seed=0, batch=1, width=1, layers=1, heads=1, expansion=1)
    Member(width=12, heads=12, dropout=0.999, output_gain=1e-30, pe_weight_decay=0)


def test_numpy_numbers_become_pythons_own() -> None:
    member = Member(seed=np.int64(3), sigma=np.float64(0.5), width=np.int32(8), learn=np.bool_(False))
    assert member == Member(seed=3, sigma=0.5, width=8, learn=False)
    assert [type(value) for value in (member.seed, member.sigma, member.learn)] == [int, float, bool]
    json.dumps(member.record())


@pytest.mark.parametrize("wrap", [np.array, torch.tensor, list, tuple, InitialPE], ids=lambda wrap: wrap.__name__)
def test_any_kind_of_array_is_a_start(wrap) -> None:
    member = Member(start=wrap([[1.0, 2.0], [3.0, 4.0]]))
    assert isinstance(member.start, InitialPE) and member.start.array.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_members_are_frozen_and_hashable() -> None:
    member, same, different = Member(seed=1), Member(seed=1), Member(seed=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        member.seed = 2
    assert member == same and member != different and len({member, same, different}) == 2
    rich = {"start": np.ones((2, 3)), "options": {"axes": 2}}
    assert len({Member(**rich), Member(**rich), Member()}) == 2


def test_options_are_compared_by_content() -> None:
    options, same = Options(axes=2, base=100.0), Options({"base": 100, "axes": 2})
    assert options == same and hash(options) == hash(same) and options != Options(axes=1, base=100.0)
    assert Member(options={"axes": 2}) == Member(options=Options(axes=2))
    with pytest.raises(TypeError):
        options["axes"] = 2


def test_tables_are_compared_by_content() -> None:
    array = np.arange(6.0).reshape(2, 3)
    table = InitialPE(array)
    assert table == InitialPE(array.tolist()) and hash(table) == hash(InitialPE(array.copy()))
    assert table != InitialPE(array + 1e-12)
    assert table != InitialPE(array.reshape(3, 2))  # the same bytes in another shape
    assert table != array.tolist()
    array[0, 0] = 7
    assert table.array[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        table.array[0, 0] = 1


def test_a_grid_varies_the_last_field_fastest() -> None:
    members = grid(Member(width=32), sigma=[0.1, 2.0], seed=range(3))
    result = [(member.sigma, member.seed) for member in members]
    assert result == [(0.1, 0), (0.1, 1), (0.1, 2), (2.0, 0), (2.0, 1), (2.0, 2)]
    assert all(member.width == 32 for member in members)
    assert grid(Member(width=32)) == [Member(width=32)] and grid(Member(), sigma=[]) == []
    assert grid(Member(), seed=np.arange(2)) == grid(Member(), seed=(i for i in range(2)))
    with pytest.raises(BadInput, match=r"^a field of a grid must be one of encoding, sigma, .*; got 'sigmas'\.$"):
        grid(Member(), sigmas=[1])
    with pytest.raises(BadInput, match="sigma must be"):
        grid(Member(), sigma=[0.1, -1])


def test_varied_names_what_differs_but_not_the_seed() -> None:
    assert varied(grid(Member(), sigma=[0.1, 0.2], seed=range(2))) == ["sigma"]
    assert varied(grid(Member(), seed=range(2))) == varied([]) == []
    assert varied([Member(sigma=1), Member(sigma=1.0)]) == []
    sines = [Member(encoding="sinusoid"), Member(encoding="sinusoid", options={"axes": 2})]
    assert sorted(varied([*sines, Member(start=np.ones((2, 2)))])) == ["axes", "encoding", "start"]


@pytest.mark.parametrize(
    "member",
    [
        Member(),
        Member("rotary", None, 7, options={"axes": 2, "fraction": 0.5}, width=64, heads=4, norm="pre", clip=1.0),
        Member(start="uniform", learn=False, placement="input", dropout=0.1, dropout_at_evaluation=True),
        Member(start="resized-shuffled", donor=3, sigma=0.1, data="large"),
        Member(optimizer="sgd", learning_rate=0.1, pe_learning_rate=0.0, weight_decay=0.01, momentum=0.5),
        Member(optimizer="adamw", output_gain=0.1, weight_decay=0.01, pe_weight_decay=0.0, last_epoch=3),
    ],
    ids=lambda member: member.encoding + "-" + member.optimizer,
)
def test_a_record_goes_through_json(member) -> None:
    record = json.loads(json.dumps(member.record()))
    assert set(record) == {field.name for field in dataclasses.fields(Member)}
    assert Member.from_record(record) == Member.from_record({"member": 3, **record, "state": "done"}) == member


def test_records_of_earlier_versions_and_of_arrays() -> None:
    record = Member(seed=2, weight_decay=0.1).record()
    del record["output_gain"], record["pe_weight_decay"]
    assert Member.from_record(record) == Member(seed=2, weight_decay=0.1, output_gain=1.0, pe_weight_decay=None)
    member = Member(start=np.ones((2, 3)))
    assert member.record()["start"].startswith("array 2x3 ")
    assert member.record()["start"] != Member(start=np.zeros((2, 3))).record()["start"]
    assert Member.from_record(member.record()) == Member(start="zero")
