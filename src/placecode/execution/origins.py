"""Members that start from the PE of another member of their study: trained after it, from its checkpoint.

Two generations: those who start by themselves, and those who start from one of them. A member whose origin diverged has
nothing to start from, and counts as diverged from the beginning, unless it takes the PE that was there before training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from placecode.encodings import lookup
from placecode.encodings.tables import is_grid, resized, root_mean_square, scaled
from placecode.errors import BadInput
from placecode.models.encoder import Stack
from placecode.models.member import RESCALED, RESIZED, Member, Table
from placecode.runs.read import ranges
from placecode.tasks.base import Task
from placecode.training.trainer import stack_for

ALIKE = ("width", "layers", "placement")
"""What a member must share with its origin: a PE has so many features, in so many blocks."""


def check(members: Sequence[Member], numbers: Sequence[int], task: Task) -> None:
    """Refuse members whose origin is not there, is not trained with them, does not start by itself, or has a PE that is
    none for them."""
    missing = set()
    for number in numbers:
        origin = members[number].origin
        if origin is None:
            continue
        if origin >= len(members) or members[origin].origin is not None:
            raise BadInput(f"member {number} must start from a member that starts by itself; {origin} is none.")
        for each in (number, origin):
            if not lookup(members[each].encoding).takes_array:
                what = "take over a PE" if each == number else "leave a PE to others"
                raise BadInput(f"member {each} must have a learned PE to {what}; got {members[each].encoding}.")
        _check_fit(number, members[number], members[origin], task)
        missing |= {origin} - set(numbers)
    if missing:
        raise BadInput(
            f"the members must include those from whose PEs others start; {ranges(sorted(missing))} are not among them."
        )


def _check_fit(number: int, member: Member, origin: Member, task: Task) -> None:
    """Refuse a PE of another size, or one that cannot be brought onto the tokens of this member."""
    own, others = task.part(member.data), task.part(origin.data)
    sizes = [(name, getattr(member, name), getattr(origin, name)) for name in ALIKE]
    if member.start in RESIZED:
        for who, each in (("its own", own), (f"those of its origin {member.origin}", others)):
            if not is_grid(each.positions):
                raise BadInput(
                    f"the start {member.start} of member {number} must be between tokens on full grids of rows and "
                    f"columns; {who} are on none."
                )
    else:
        sizes.append(("number of tokens", own.tokens, others.tokens))
    for name, mine, theirs in sizes:
        if mine != theirs:
            raise BadInput(
                f"member {number} must have the {name} of its origin {member.origin}, {theirs}, for the start "
                f"{member.start}; got {mine}."
            )


def generations(members: Sequence[Member], parts: Sequence[Sequence[int]], left: Iterable[int]) -> list[list[int]]:
    """The stacks that are left to train, those of the first generation before those of the second; none empty."""
    by_age: tuple[list[int], list[int]] = ([], [])
    for index in left:
        by_age[members[parts[index][0]].origin is not None].append(index)
    return [generation for generation in by_age if generation]


def ready(
    members: Sequence[Member],
    part: Sequence[int],
    parts: Sequence[Sequence[int]],
    task: Task,
    weights: Callable[[int], Tensor],
) -> list[Member]:
    """The members of a stack, each with its start at hand; `weights` gives those of a trained stack, by its number."""
    own = [members[number] for number in part]
    if own[0].origin is None:
        return own
    left = _left(members, {member.origin for member in own if member.origin is not None}, parts, task, weights)
    positions = task.part(own[0].data).positions
    return [_started(member, left[member.origin], positions) for member in own if member.origin is not None]


@dataclass(frozen=True)
class Left:
    """What a member leaves to others: its PE (l, n, d) before and after training, and where its tokens are, (n, k)."""

    before: np.ndarray
    learned: np.ndarray
    positions: np.ndarray | None


def _started(member: Member, left: Left, positions: np.ndarray | None) -> Member:
    pe = np.nan_to_num(left.learned, posinf=0.0, neginf=0.0)  # of one that diverged; this one counts as such
    if member.start == "before":
        pe = left.before
    if member.start == "sized":
        pe = np.stack([scaled(own, root_mean_square(after)) for own, after in zip(left.before, pe, strict=True)])
    if member.start in ("shuffled", "rescaled-shuffled", "resized-shuffled"):
        pe = pe[:, np.random.default_rng(member.seed).permutation(pe.shape[1])]
    if member.start in RESIZED:
        assert left.positions is not None and positions is not None  # as was checked
        pe = resized(pe, left.positions, positions)
    if member.start in RESCALED:
        assert member.sigma is not None  # as every member checks
        pe = scaled(pe, member.sigma)
    return replace(member, start=Table(pe), origin=None)


def _left(
    members: Sequence[Member],
    origins: set[int],
    parts: Sequence[Sequence[int]],
    task: Task,
    weights: Callable[[int], Tensor],
) -> dict[int, Left]:
    """What each of these members leaves to others."""
    found: dict[int, Left] = {}
    for index, part in enumerate(parts):
        places = [place for place, number in enumerate(part) if number in origins]
        if not places:
            continue
        mine = [members[part[place]] for place in places]
        theirs = task.part(mine[0].data)
        stack = stack_for(mine, theirs)
        before = _vectors(stack)
        stack.flat.copy_(weights(index)[places])
        for place, begun, learned in zip(places, before, _vectors(stack), strict=True):
            found[part[place]] = Left(begun, learned, theirs.positions)
    return found


def _vectors(stack: Stack) -> np.ndarray:
    """The PEs (e, l, n, d) of a stack as they are now, in arrays of their own."""
    vectors = stack.encoding.vectors()
    assert vectors is not None  # as was checked
    return vectors.detach().double().numpy()
