"""Members that start from the PE that another member of their study has learned: trained after it, from its checkpoint.

Two generations: those who start by themselves, and those who start from one of them. A member whose origin diverged has
nothing to start from, and counts as diverged from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from placecode.encodings import lookup
from placecode.errors import BadInput
from placecode.members import Member, Table
from placecode.runs import ranges
from placecode.tasks.base import Task
from placecode.training import stack_for


def check(members: Sequence[Member], numbers: Sequence[int]) -> None:
    """Refuse members whose origin is not there, is not trained with them, or does not start by itself."""
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
        missing |= {origin} - set(numbers)
    if missing:
        raise BadInput(
            f"the members must include those from whose PEs others start; {ranges(sorted(missing))} are not among them."
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
    learned = _learned(members, {member.origin for member in own if member.origin is not None}, parts, task, weights)
    return [_started(member, learned) for member in own]


def _started(member: Member, learned: Mapping[int, np.ndarray]) -> Member:
    assert member.origin is not None
    pe = np.nan_to_num(learned[member.origin], posinf=0.0, neginf=0.0)  # of one that diverged; this one counts as such
    if member.start == "shuffled":
        pe = pe[:, np.random.default_rng(member.seed).permutation(pe.shape[1])]
    return replace(member, start=Table(pe), origin=None)


def _learned(
    members: Sequence[Member],
    origins: set[int],
    parts: Sequence[Sequence[int]],
    task: Task,
    weights: Callable[[int], Tensor],
) -> dict[int, np.ndarray]:
    """The PE (l, n, d) of each of these members after training."""
    found: dict[int, np.ndarray] = {}
    for index, part in enumerate(parts):
        places = [place for place, number in enumerate(part) if number in origins]
        if not places:
            continue
        mine = [members[part[place]] for place in places]
        stack = stack_for(mine, task.part(mine[0].data))
        stack.flat.copy_(weights(index)[places])
        vectors = stack.encoding.vectors()
        assert vectors is not None  # as was checked
        found |= {part[place]: pe for place, pe in zip(places, vectors.detach().double().numpy(), strict=True)}
    return found
