"""Members: what is refused and in which words, grids, and the way into tables and back."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from placecode.errors import BadInput
from placecode.models.member import Member, Options, Table, grid, varied

WHOLE = "a whole number of at least"
REFUSED = {
    "negative sigma": ({"sigma": -0.1}, "sigma must be a number of at least 0; got -0.1."),
    "NaN sigma": ({"sigma": float("nan")}, "sigma must be a number of at least 0; got nan."),
    "infinite sigma": ({"sigma": float("inf")}, "sigma must be a number of at least 0; got inf."),
    "text sigma": ({"sigma": "0.2"}, "sigma must be a number of at least 0; got '0.2'."),
    "truth for sigma": ({"sigma": True}, "sigma must be a number of at least 0; got True."),
    "heads": ({"width": 10, "heads": 3}, "heads must be a divisor of the width 10; got 3."),
    "no heads": ({"heads": 0}, f"heads must be {WHOLE} 1; got 0."),
    "optimizer": ({"optimizer": "adagrad"}, "optimizer must be one of adam, adamw, sgd; got 'adagrad'."),
    "norm": ({"norm": "none"}, "norm must be one of post, pre; got 'none'."),
    "placement": ({"placement": "last"}, "placement must be one of every, input; got 'last'."),
    "no origin": ({"start": "taken"}, "origin must be the number of a member; got None."),
    "an origin for nothing": ({"origin": 3}, "origin must be left out for the start normal; got 3."),
    "an origin that is none": (
        {"start": "shuffled", "origin": -1},
        "origin must be the number of a member; got -1.",
    ),
    "start": (
        {"start": "ones"},
        "start must be one of normal, uniform, zero, true, centred, axes, taken, shuffled, before, sized, rescaled, "
        "rescaled-shuffled, resized, resized-shuffled; got 'ones'.",
    ),
    "no sigma to be rescaled to": (
        {"start": "rescaled", "origin": 0, "sigma": None},
        "sigma must be a number of at least 0 for the start rescaled; got None.",
    ),
    "zero batch": ({"batch": 0}, f"batch must be {WHOLE} 1; got 0."),
    "fractional batch": ({"batch": 2.0}, f"batch must be {WHOLE} 1; got 2.0."),
    "zero width": ({"width": 0}, f"width must be {WHOLE} 1; got 0."),
    "no layers": ({"layers": 0}, f"layers must be {WHOLE} 1; got 0."),
    "negative expansion": ({"expansion": -4}, f"expansion must be {WHOLE} 1; got -4."),
    "negative seed": ({"seed": -1}, f"seed must be {WHOLE} 0; got -1."),
    "fractional seed": ({"seed": 0.5}, f"seed must be {WHOLE} 0; got 0.5."),
    "truth for a seed": ({"seed": True}, f"seed must be {WHOLE} 0; got True."),
    "negative ramp": ({"ramp": -1}, f"ramp must be {WHOLE} 0; got -1."),
    "fractional ramp": ({"ramp": 2.0}, f"ramp must be {WHOLE} 0; got 2.0."),
    "truth for a ramp": ({"ramp": True}, f"ramp must be {WHOLE} 0; got True."),
    "text for learn": ({"learn": "no"}, "learn must be True or False; got 'no'."),
    "dropout 1": ({"dropout": 1}, "dropout must be a number of at least 0 and below 1; got 1."),
    "momentum": ({"momentum": 1.0}, "momentum must be a number of at least 0 and below 1; got 1.0."),
    "beta2": ({"beta2": 1.5}, "beta2 must be a number of at least 0 and below 1; got 1.5."),
    "learning rate": ({"learning_rate": -1e-4}, "learning_rate must be a number of at least 0; got -0.0001."),
    "no learning rate": ({"learning_rate": None}, "learning_rate must be a number of at least 0; got None."),
    "PE's learning rate": ({"pe_learning_rate": "a"}, "pe_learning_rate must be a number of at least 0; got 'a'."),
    "clip": ({"clip": -1}, "clip must be a number of at least 0; got -1."),
    "no gain": ({"gain": 0}, "gain must be a number above 0; got 0."),
    "negative gain": ({"gain": -1.0}, "gain must be a number above 0; got -1.0."),
    "infinite gain": ({"gain": float("inf")}, "gain must be a number above 0; got inf."),
    "NaN gain": ({"gain": float("nan")}, "gain must be a number above 0; got nan."),
    "nothing for a gain": ({"gain": None}, "gain must be a number above 0; got None."),
    "PE's weight decay": ({"pe_weight_decay": -0.1}, "pe_weight_decay must be a number of at least 0; got -0.1."),
    "weight decay": ({"weight_decay": float("nan")}, "weight_decay must be a number of at least 0; got nan."),
}


@pytest.mark.parametrize(("fields", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_wrong_values_are_refused_with_a_sentence(fields, sentence) -> None:
    with pytest.raises(BadInput) as error:
        Member(**fields)
    assert str(error.value) == sentence


def test_the_edges_of_what_is_allowed() -> None:
    Member(sigma=0, dropout=0, weight_decay=0, learning_rate=0, pe_learning_rate=0, clip=0, momentum=0, beta1=0)
    Member(sigma=None, seed=0, batch=1, width=1, layers=1, heads=1, expansion=1)
    Member(width=12, heads=12, dropout=0.999, gain=1e-30, pe_weight_decay=0)


def test_numpy_numbers_become_pythons_own() -> None:
    member = Member(seed=np.int64(3), sigma=np.float64(0.5), width=np.int32(8), learn=np.bool_(False))
    assert member == Member(seed=3, sigma=0.5, width=8, learn=False)
    assert [type(value) for value in (member.seed, member.sigma, member.learn)] == [int, float, bool]
    json.dumps(member.record())


@pytest.mark.parametrize(
    "start",
    [[1.0, 2.0], np.zeros((2, 2, 2, 2)), [[1.0], [1.0, 2.0]], [["a", "b"]], 3, None],
    ids=["one axis", "four axes", "ragged", "text", "a number", "nothing"],
)
def test_what_is_no_array_of_vectors_is_refused_as_a_start(start) -> None:
    with pytest.raises(
        BadInput, match=r"^start must be normal, uniform, zero, true, centred, axes, or an array of numbers of shape"
    ):
        Member(start=start)


def test_a_start_that_is_not_finite_is_refused() -> None:
    with pytest.raises(BadInput, match="NaN or infinity"):
        Member(start=[[1.0, float("nan")]])


@pytest.mark.parametrize("wrap", [np.array, torch.tensor, list, tuple, Table], ids=lambda wrap: wrap.__name__)
def test_any_kind_of_array_is_a_start(wrap) -> None:
    member = Member(start=wrap([[1.0, 2.0], [3.0, 4.0]]))
    assert isinstance(member.start, Table)
    assert member.start.array.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_members_are_frozen_and_hashable() -> None:
    one, same, other = Member(seed=1), Member(seed=1), Member(seed=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.seed = 2
    assert one == same
    assert one != other
    assert len({one, same, other}) == 2
    rich = {"start": np.ones((2, 3)), "options": {"axes": 2}}
    assert len({Member(**rich), Member(**rich), Member()}) == 2


class TestOptions:
    def test_order_does_not_matter(self) -> None:
        one, same = Options(axes=2, base=100.0), Options({"base": 100.0, "axes": 2})
        assert one == same
        assert hash(one) == hash(same)
        assert one != Options(axes=1, base=100.0)

    def test_equal_options_have_equal_hashes(self) -> None:
        assert Options(base=100) == Options(base=100.0)
        assert hash(Options(base=100)) == hash(Options(base=100.0))

    def test_a_member_wraps_a_plain_dictionary(self) -> None:
        assert Member(options={"axes": 2}) == Member(options=Options(axes=2))

    @pytest.mark.parametrize("value", [[1], {"a": 1}, np.zeros(2), object])
    def test_values_that_no_file_could_hold_are_refused(self, value) -> None:
        with pytest.raises(BadInput, match=r"^the option axes must be a number, a text, True, False or None; got"):
            Member(options={"axes": value})

    def test_a_mapping_that_cannot_be_changed(self) -> None:
        with pytest.raises(TypeError):
            Options(axes=1)["axes"] = 2


class TestTable:
    def test_compared_and_hashed_by_content(self) -> None:
        array = np.arange(6.0).reshape(2, 3)
        assert Table(array) == Table(array.tolist())
        assert hash(Table(array)) == hash(Table(array.copy()))
        assert Table(array) != Table(array + 1e-12)
        assert Table(array) != Table(array.reshape(3, 2))  # the same bytes in another shape
        assert Table(array) != array.tolist()

    def test_its_own_copy_and_read_only(self) -> None:
        array = np.zeros((2, 3))
        table = Table(array)
        array[0, 0] = 1
        assert table.array[0, 0] == 0
        with pytest.raises(ValueError, match="read-only"):
            table.array[0, 0] = 1


class TestGrid:
    def test_the_last_field_is_fastest(self) -> None:
        members = grid(Member(width=32), sigma=[0.1, 2.0], seed=range(3))
        found = [(member.sigma, member.seed) for member in members]
        assert found == [(0.1, 0), (0.1, 1), (0.1, 2), (2.0, 0), (2.0, 1), (2.0, 2)]
        assert all(member.width == 32 for member in members)

    def test_no_field_gives_the_base(self) -> None:
        assert grid(Member(width=32)) == [Member(width=32)]

    def test_no_value_gives_no_member(self) -> None:
        assert grid(Member(), sigma=[]) == []

    def test_values_may_come_from_numpy_or_a_generator(self) -> None:
        assert grid(Member(), seed=np.arange(2)) == grid(Member(), seed=(i for i in range(2)))

    def test_an_unknown_field_is_refused(self) -> None:
        with pytest.raises(BadInput, match=r"^a field of a grid must be one of encoding, sigma, .*; got 'sigmas'\.$"):
            grid(Member(), sigmas=[1])

    def test_a_wrong_value_is_refused(self) -> None:
        with pytest.raises(BadInput, match=r"^sigma must be"):
            grid(Member(), sigma=[0.1, -1])


class TestVaried:
    def test_names_what_differs_but_not_the_seed(self) -> None:
        assert varied(grid(Member(), sigma=[0.1, 0.2], seed=range(2))) == ["sigma"]
        assert varied(grid(Member(), seed=range(2))) == []
        assert varied([]) == []

    def test_options_count_by_their_own_names(self) -> None:
        members = [
            Member(encoding="sinusoid"),
            Member(encoding="sinusoid", options={"axes": 2}),
            Member(start=np.ones((2, 2)), encoding="learned"),
        ]
        assert sorted(varied(members)) == ["axes", "encoding", "start"]

    def test_the_same_value_in_another_type_is_no_difference(self) -> None:
        assert varied([Member(sigma=1), Member(sigma=1.0)]) == []


class TestRecord:
    @pytest.mark.parametrize(
        "member",
        [
            Member(),
            Member("rotary", None, 7, options={"axes": 2, "fraction": 0.5}, width=64, heads=4, norm="pre", clip=1.0),
            Member(start="uniform", learn=False, placement="input", dropout=0.1, dropout_at_evaluation=True),
            Member("random", 0.5, start="axes", placement="input"),
            Member(start="resized-shuffled", origin=3, sigma=0.1, data="large"),
            Member(optimizer="sgd", learning_rate=0.1, pe_learning_rate=0.0, weight_decay=0.01, momentum=0.5),
            Member(optimizer="adamw", gain=0.1, weight_decay=0.01, pe_weight_decay=0.0),
        ],
        ids=lambda member: member.encoding + "-" + member.optimizer,
    )
    def test_round_trip_through_json(self, member) -> None:
        assert Member.from_record(json.loads(json.dumps(member.record()))) == member

    def test_every_field_is_there_under_its_name(self) -> None:
        assert set(Member().record()) == {field.name for field in dataclasses.fields(Member)}

    def test_further_columns_do_not_disturb(self) -> None:
        assert Member.from_record({"member": 3, **Member(seed=2).record(), "state": "done"}) == Member(seed=2)

    def test_settings_that_came_later_are_as_they_were_before(self) -> None:
        record = Member(seed=2, weight_decay=0.1).record()
        del record["gain"], record["pe_weight_decay"]
        assert Member.from_record(record) == Member(seed=2, weight_decay=0.1, gain=1.0, pe_weight_decay=None)

    def test_a_start_array_is_named_by_its_content_and_comes_back_as_zero(self) -> None:
        member = Member(start=np.ones((2, 3)))
        assert member.record()["start"].startswith("array 2x3 ")
        assert member.record()["start"] != Member(start=np.zeros((2, 3))).record()["start"]
        assert Member.from_record(member.record()) == Member(start="zero")
