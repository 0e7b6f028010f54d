"""Tables of a run: how members and the end of their training become rows of members.parquet, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from placecode.models.member import Member


def spec_of(row: pd.Series) -> Member:
    """Return the member spec that a row of the table of members describes."""
    return Member.from_record({str(name): None if pd.isna(value) else value for name, value in row.items()})


@dataclass(frozen=True)
class TrainingOutcome:
    """How the training of a member ended. Each field is also a column of members.parquet.

    Steps and epochs are -1 if the member did not diverge, settle or stop because of a loss of 0.
    """

    diverged_at: int = -1
    """Step at which the member diverged."""
    diverged_by: str = ""
    """Check that detected the divergence: loss, gradient, parameters, float16 (values overflow in float16 but not in
    TF32), evaluation (parameters are finite, but metrics are not) or donor (the member's donor diverged). Empty if
    the member did not diverge."""
    settled_epoch: int = -1
    """Number of epochs after which the parameters were bitwise equal to those one or a few epochs before."""
    zero_loss_epoch: int = -1
    """Number of epochs after which training stopped, because the training loss had been exactly 0 for long enough."""

    @property
    def diverged(self) -> bool:
        return self.diverged_at >= 0


def member_table(
    numbers: Sequence[int], members: Sequence[Member], outcomes: Sequence[TrainingOutcome] | None = None
) -> pd.DataFrame:
    """Return a table with the columns of members.parquet and one row per member.

    The columns are the number ("member"), the fields of the member, "state" ("done" or "diverged") and the fields of
    `TrainingOutcome`. Without `outcomes`, no member counts as diverged.
    """
    outcomes = [TrainingOutcome()] * len(members) if outcomes is None else outcomes
    rows = [
        {"member": number, **member.record(), "state": "diverged" if outcome.diverged else "done", **asdict(outcome)}
        for number, member, outcome in zip(numbers, members, outcomes, strict=True)
    ]
    table = pd.DataFrame(rows)
    for name in ("sigma", "pe_learning_rate", "pe_weight_decay", "clip"):
        table[name] = table[name].astype("float64")
    return table.astype(dict.fromkeys(("donor", "last_epoch"), "Int64"))


def with_later_columns(members: pd.DataFrame) -> pd.DataFrame:
    """Return a table of members with the columns that an older run lacks, filled with their default values."""
    default = {**Member().record(), **asdict(TrainingOutcome())}
    missing = {name: value for name, value in default.items() if name not in members}
    table = members.assign(**{name: math.nan if value is None else value for name, value in missing.items()})
    return table.astype(dict.fromkeys(("donor", "last_epoch"), "Int64"))


def no_baselines() -> pd.DataFrame:
    """Return a table with the columns of baselines.parquet and no rows."""
    names = ("data", "world", "baseline", "split", "condition", "metric", "value")
    return pd.DataFrame({name: pd.Series(dtype=object) for name in names})


def set_roles_and_labels(table: pd.DataFrame, members: Sequence[Member]) -> None:
    """Set the columns role and label (see `Member`) of a table of members, in place, to those of `members`.

    `members` are all members of the experiment. Runs of format 1 do not record roles and labels.
    """
    for name in ("role", "label"):
        table[name] = [getattr(members[number], name) for number in table["member"]]
