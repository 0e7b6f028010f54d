"""Initialize the positional encoding (PE) of a member (model) from that of another member of the experiment, its donor.

`Member.donor` is the number of the donor, and `Member.start` says how the PE of the donor is changed before it is used.
Members train in two generations: first those without a donor, then those whose donor is in the first generation. The PE
is read from the donor's last checkpoint. If the donor diverged, its learned PE cannot be used. A member that needs it
is recorded in members.parquet as diverged at step 0, with "donor" in the column diverged_by.
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
"""Fields that a member and its donor must have in common, since they determine the shape of the PE."""


def check(members: Sequence[Member], numbers: Sequence[int], task: Task) -> None:
    """Raise BadInput unless every member to train that has a donor can use the donor's PE.

    The donor must be trained in the same run, have no donor itself, and have a learned PE of the same shape, or one
    that can be resized. `members` are all members of the experiment, and `numbers` are the numbers of those to train.
    """
    missing = set()
    for number in numbers:
        donor = members[number].donor
        if donor is None:
            continue
        if donor >= len(members) or members[donor].donor is not None:
            raise BadInput(
                f"the donor of member {number} must be a member of the experiment without a donor; got {donor}."
            )
        for checked in (number, donor):
            encoding = members[checked].encoding
            if not lookup(encoding).takes_array:
                role = "start from another member's PE" if checked == number else "be the donor of another member"
                raise BadInput(f"member {checked} must have a learned PE to {role}; got {encoding}.")
        _check_fit(number, members[number], members[donor], task)
        missing |= {donor} - set(numbers)
    if missing:
        raise BadInput(
            f"the members must include the donors of all members; {format_ranges(sorted(missing))} are missing."
        )


def _check_fit(number: int, member: Member, donor: Member, task: Task) -> None:
    """Raise BadInput if the PE of the donor does not have the shape that member `number` needs.

    The number of tokens may differ if the member's `start` resizes the PE. The tokens of both must then form complete
    grids of rows and columns.
    """
    member_task, donor_task = task.for_data_set(member.data), task.for_data_set(donor.data)
    sizes = [(name, getattr(member, name), getattr(donor, name)) for name in SHARED_FIELDS]
    if member.start in RESIZED_STARTS:
        for owner, part in (("the member", member_task), (f"its donor {member.donor}", donor_task)):
            if not is_grid(part.positions):
                raise BadInput(
                    f"the start {member.start} of member {number} must be between tokens on full grids of rows and "
                    f"columns; the tokens of {owner} are not on one."
                )
    else:
        sizes.append(("number of tokens", member_task.tokens, donor_task.tokens))
    for name, size, donor_size in sizes:
        if size != donor_size:
            raise BadInput(
                f"member {number} must have the {name} of its donor {member.donor}, {donor_size}, for the start "
                f"{member.start}; got {size}."
            )


def generations(members: Sequence[Member], numbers_by_stack: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return two lists of stack indices: stacks whose members have no donor, and stacks whose members have one.

    The first must be trained before the second. `numbers_by_stack` has the member numbers of each stack.
    """
    have_donors = [members[numbers[0]].donor is not None for numbers in numbers_by_stack]
    return [[index for index, has_donor in enumerate(have_donors) if has_donor is later] for later in (False, True)]


def resolve_starts(
    members: Sequence[Member],
    numbers_by_stack: Sequence[Sequence[int]],
    indices: Iterable[int],
    task: Task,
    weights: Callable[[int], Tensor],
) -> dict[int, list[Member]]:
    """Return a dict from each stack index in `indices` to the members of the stack, with the initial PE in `start`
    instead of a reference to a donor.

    `numbers_by_stack` has the member numbers of each stack. `weights(index)` must return the parameters of a trained
    stack, (members, parameters).
    """
    stacks = {index: [members[number] for number in numbers_by_stack[index]] for index in indices}
    donors = {member.donor for stack in stacks.values() for member in stack if member.donor is not None}
    donor_pes = _donor_pes(members, donors, numbers_by_stack, task, weights)

    def resolved(member: Member) -> Member:
        if member.donor is None:
            return member
        data_sets = (members[member.donor].data, member.data)
        donor_positions, positions = (task.for_data_set(data).positions for data in data_sets)
        return _with_initial_pe(member, *donor_pes[member.donor], donor_positions, positions)

    return {index: [resolved(member) for member in stack] for index, stack in stacks.items()}


def _with_initial_pe(
    member: Member,
    before: np.ndarray,
    learned: np.ndarray,
    donor_positions: np.ndarray | None,
    positions: np.ndarray | None,
) -> Member:
    """Return a copy of a member in which `start`, such as "shuffled", is replaced by the initial PE that it stands for.

    `before` and `learned` are the donor's PEs before and after training, (blocks, tokens, features). `donor_positions`
    and `positions` are the positions of the tokens of the donor and of the member, or None if they have none.
    """
    # only a donor that diverged has values that are not finite; members that start from it are recorded as diverged
    pe = np.nan_to_num(learned, posinf=0.0, neginf=0.0)
    if member.start == "donor-untrained":
        pe = before
    if member.start == "donor-size":
        pe = np.stack([scaled(initial, root_mean_square(final)) for initial, final in zip(before, pe, strict=True)])
    if member.start in ("shuffled", "rescaled-shuffled", "resized-shuffled"):
        pe = pe[:, np.random.default_rng(member.seed).permutation(pe.shape[1])]
    if member.start in RESIZED_STARTS:
        assert donor_positions is not None and positions is not None  # guaranteed by check()
        pe = resized(pe, donor_positions, positions)
    if member.start in RESCALED_STARTS:
        assert member.sigma is not None  # guaranteed by Member
        pe = scaled(pe, member.sigma)
    return replace(member, start=InitialPE(pe), donor=None)


def _donor_pes(
    members: Sequence[Member],
    donors: set[int],
    numbers_by_stack: Sequence[Sequence[int]],
    task: Task,
    weights: Callable[[int], Tensor],
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return a dict from each number in `donors` to the member's PE before and after training, (blocks, tokens,
    features) each."""
    pes: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for index, numbers in enumerate(numbers_by_stack):
        rows = [row for row, number in enumerate(numbers) if number in donors]
        if not rows:
            continue
        donor_members = [members[numbers[row]] for row in rows]
        stack = stack_for(donor_members, task.for_data_set(donor_members[0].data))
        before = _vectors(stack)
        stack.flat.copy_(weights(index)[rows])
        pes |= zip([numbers[row] for row in rows], zip(before, _vectors(stack), strict=True), strict=True)
    return pes


def _vectors(stack: Stack) -> np.ndarray:
    """Return a copy of the current PEs of a stack, (members, blocks, tokens, features)."""
    vectors = stack.encoding.vectors()
    assert vectors is not None  # guaranteed by check()
    return vectors.detach().double().numpy()
