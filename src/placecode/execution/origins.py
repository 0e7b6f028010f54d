"""Initialize the PE of a member from the PE of another member of the experiment (transfer of a learned PE).

`Member.origin` is the number of the other member, the origin, and `Member.start` says how its PE is changed. Members
train in two generations: first those without an origin, then those that start from a member of the first generation.
The PE is read from the origin's checkpoint. If the origin diverged, the member is recorded in members.parquet as
diverged at step 0, with "origin" in the column diverged_by, unless it starts from the origin's PE before training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from placecode.encodings import lookup
from placecode.encodings.tables import is_grid, resized, root_mean_square, scaled
from placecode.errors import BadInput
from placecode.models.encoder import Stack
from placecode.models.member import RESCALED_STARTS, RESIZED_STARTS, InitialPE, Member
from placecode.runs.read import format_ranges
from placecode.tasks.base import Task
from placecode.training.trainer import stack_for

SHARED_FIELDS = ("width", "layers", "placement")
"""Fields that a member and its origin must have in common, since they determine the shape of the PE."""


def check(members: Sequence[Member], numbers: Sequence[int], task: Task) -> None:
    """Raise BadInput unless the origin of every member exists, is trained too and has a PE of a suitable shape.

    Only the members to train, `numbers`, are checked, and of these only members that have an origin.
    """
    missing = set()
    for number in numbers:
        origin = members[number].origin
        if origin is None:
            continue
        if origin >= len(members) or members[origin].origin is not None:
            raise BadInput(
                f"the origin of member {number} must be a member of the experiment without an origin; got {origin}."
            )
        for checked in (number, origin):
            encoding = members[checked].encoding
            if not lookup(encoding).takes_array:
                role = "start from another member's PE" if checked == number else "be the origin of another member"
                raise BadInput(f"member {checked} must have a learned PE to {role}; got {encoding}.")
        _check_fit(number, members[number], members[origin], task)
        missing |= {origin} - set(numbers)
    if missing:
        raise BadInput(
            f"the members must include the origins of all members; {format_ranges(sorted(missing))} are missing."
        )


def _check_fit(number: int, member: Member, origin: Member, task: Task) -> None:
    """Raise BadInput if the PE of the origin cannot be used for a member, because it has another shape.

    The number of tokens may differ if the member's `start` resizes the PE from one full grid of tokens to another.
    """
    member_task, origin_task = task.for_data_set(member.data), task.for_data_set(origin.data)
    sizes = [(name, getattr(member, name), getattr(origin, name)) for name in SHARED_FIELDS]
    if member.start in RESIZED_STARTS:
        for owner, part in (("the member", member_task), (f"its origin {member.origin}", origin_task)):
            if not is_grid(part.positions):
                raise BadInput(
                    f"the start {member.start} of member {number} must be between tokens on full grids of rows and "
                    f"columns; the tokens of {owner} are not on one."
                )
    else:
        sizes.append(("number of tokens", member_task.tokens, origin_task.tokens))
    for name, size, origin_size in sizes:
        if size != origin_size:
            raise BadInput(
                f"member {number} must have the {name} of its origin {member.origin}, {origin_size}, for the start "
                f"{member.start}; got {size}."
            )


def generations(members: Sequence[Member], parts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return two lists of stack indices: stacks whose members have no origin, and stacks whose members have one.

    `parts` has the member numbers of each stack.
    """
    heirs = [members[part[0]].origin is not None for part in parts]
    return [[index for index, is_heir in enumerate(heirs) if is_heir is later] for later in (False, True)]


def resolve_starts(
    members: Sequence[Member],
    parts: Sequence[Sequence[int]],
    indices: Iterable[int],
    task: Task,
    weights: Callable[[int], Tensor],
) -> dict[int, list[Member]]:
    """Return the members of each stack in `indices`, by stack index. A member with an origin gets its initial PE.

    `parts` has the member numbers of each stack. `weights(index)` must return the weights (e, P) of a trained stack.
    """
    stacks = {index: [members[number] for number in parts[index]] for index in indices}
    numbers = {member.origin for stack in stacks.values() for member in stack if member.origin is not None}
    origin_pes = _origin_pes(members, numbers, parts, task, weights)

    def resolved(member: Member) -> Member:
        if member.origin is None:
            return member
        data_sets = (members[member.origin].data, member.data)
        origin_positions, positions = (task.for_data_set(data).positions for data in data_sets)
        return _with_initial_pe(member, *origin_pes[member.origin], origin_positions, positions)

    return {index: [resolved(member) for member in stack] for index, stack in stacks.items()}


def _with_initial_pe(
    member: Member,
    before: np.ndarray,
    learned: np.ndarray,
    origin_positions: np.ndarray | None,
    positions: np.ndarray | None,
) -> Member:
    """Return a copy of the member whose field `start` is the initial PE, instead of the name of a way to compute it.

    `before` and `learned` are the PEs (l, n, d) of the origin before and after training. The positions are those of the
    tokens of both members, or None if the tokens have no positions.
    """
    # only an origin that diverged has values that are not finite; members that start from it are recorded as diverged
    pe = np.nan_to_num(learned, posinf=0.0, neginf=0.0)
    if member.start == "before":
        pe = before
    if member.start == "sized":
        pe = np.stack([scaled(initial, root_mean_square(final)) for initial, final in zip(before, pe, strict=True)])
    if member.start in ("shuffled", "rescaled-shuffled", "resized-shuffled"):
        pe = pe[:, np.random.default_rng(member.seed).permutation(pe.shape[1])]
    if member.start in RESIZED_STARTS:
        assert origin_positions is not None and positions is not None  # guaranteed by check()
        pe = resized(pe, origin_positions, positions)
    if member.start in RESCALED_STARTS:
        assert member.sigma is not None  # guaranteed by Member
        pe = scaled(pe, member.sigma)
    return replace(member, start=InitialPE(pe), origin=None)


def _origin_pes(
    members: Sequence[Member],
    numbers: set[int],
    parts: Sequence[Sequence[int]],
    task: Task,
    weights: Callable[[int], Tensor],
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return the PEs (l, n, d) before and after training of the members with these `numbers`, by number."""
    pes: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for index, part in enumerate(parts):
        rows = [row for row, number in enumerate(part) if number in numbers]
        if not rows:
            continue
        origin_members = [members[part[row]] for row in rows]
        stack = stack_for(origin_members, task.for_data_set(origin_members[0].data))
        before = _vectors(stack)
        stack.flat.copy_(weights(index)[rows])
        pes |= zip([part[row] for row in rows], zip(before, _vectors(stack), strict=True), strict=True)
    return pes


def _vectors(stack: Stack) -> np.ndarray:
    """Return a copy of the current PEs (e, l, n, d) of a stack."""
    vectors = stack.encoding.vectors()
    assert vectors is not None  # guaranteed by check()
    return vectors.detach().double().numpy()
