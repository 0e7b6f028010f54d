"""The specification of one model (a member), with checks, and grids of such specifications.

A member has all hyperparameters of a model: encoding, architecture, and training, such as the learning rate or Adam's
epsilon. Its base class `ModelSettings` declares those that experiments offer as settings.

>>> grid(Member(width=32), sigma=[0.1, 2.0], seed=range(3))[0]
Member(placement='every', width=32, ..., encoding='learned', sigma=0.1, seed=0, ...)
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from placecode.errors import BadInput, must_be
from placecode.settings import Settings, setting
from placecode.validation import choice

OPTIMIZERS = ("adam", "adamw", "sgd")
STARTS = ("normal", "uniform", "zero", "true", "centred", "axes")
"""Values of `Member.start`: initial values of a PE that do not come from another member.

- normal, uniform: random numbers with standard deviation sigma.
- zero: all zeros.
- true: sines and cosines of the true positions, rescaled to a root mean square of sigma.
- centred: as "true", but with the mean over the tokens subtracted before rescaling.
- axes: every row and every column of a grid of tokens gets a random vector, and the PE of a token is the sum of the
  vectors of its row and its column. For other positions, there is one vector per axis and coordinate. The sum has a
  standard deviation of sigma.
"""
POSITION_STARTS = ("true", "centred", "axes")
"""The values in `STARTS` that require known positions of the tokens and an encoding with one vector per token."""
DONOR_STARTS = (
    "donor",
    "shuffled",
    "donor-untrained",
    "donor-size",
    "rescaled",
    "rescaled-shuffled",
    "resized",
    "resized-shuffled",
)
"""Further values of `Member.start`: initial values copied from the PE of another member of the experiment, the donor.

- donor: the donor's PE after training.
- shuffled: as "donor", with the tokens in random order.
- donor-untrained: the donor's PE before training.
- donor-size: the donor's PE before training, in each block rescaled to the root mean square it has after training.
- rescaled, rescaled-shuffled: as "donor" and "shuffled", rescaled to a root mean square of sigma.
- resized, resized-shuffled: as "rescaled" and "rescaled-shuffled", but first interpolated from the donor's grid of
  tokens to this member's grid, which may have another size.
"""
RESIZED_STARTS = ("resized", "resized-shuffled")
"""The values in `DONOR_STARTS` that are interpolated to another grid."""
RESCALED_STARTS = ("rescaled", "rescaled-shuffled", *RESIZED_STARTS)
"""The values in `DONOR_STARTS` that are rescaled to a root mean square of sigma."""
NON_SETTING_COLUMNS = (
    "member", "seed", "donor", "role", "label",
    "state", "diverged_at", "diverged_by", "settled_epoch", "zero_loss_epoch",
)  # fmt: skip
"""Columns of `members.parquet`, the table of the members of a run, that are not settings of the model. They identify
the member or say how its training ended."""
ROLES = ("swept", "reference", "donor", "control")
"""Values of `Member.role`. A member is part of the sweep (swept), serves for comparison (reference), gives its PE to
other members (donor), or should show no effect (control)."""
FIRST_COLUMNS = ("encoding", "sigma", "seed", "start", "donor", "learn")
"""Fields that come first in `Member.record`, and therefore in tables of members."""
NORMS = ("post", "pre")
PLACEMENTS = ("every", "input")


class Options(Mapping[str, Any]):
    """Settings that only some encodings have (axes, base, ...), as a hashable mapping for use in a frozen dataclass.

    Parameters
    ----------
    settings : mapping of str to number, str, bool or None, optional
        Names and values of settings.
    **more : number, str, bool or None
        Further settings. They override those of the same name in `settings`.

    Examples
    --------
    >>> Options({"axes": 2}, base=100.0)
    {'axes': 2, 'base': 100.0}
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        items = {**(settings or {}), **more}
        self._items = {name: _plain(items[name]) for name in sorted(items)}
        for name, value in self._items.items():
            if not isinstance(value, (str, int, float, type(None))):
                raise must_be(f"the option {name}", "a number, a text, True, False or None", value)

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


class InitialPE:
    """Initial values of a PE, as a read-only array that can be hashed and compared with `==`.

    Parameters
    ----------
    array : array-like, shape (n, d) or (l, n, d)
        A vector of d features for each of n tokens, the same in all blocks or different in each of l blocks.

    Attributes
    ----------
    digest : str
        SHA-256 hash of shape and values. Two instances are equal if their hashes are equal.
    """

    def __init__(self, array: Any) -> None:
        allowed = "an array of numbers of shape (tokens, width) or (blocks, tokens, width)"
        try:
            self.array = np.array(np.asarray(array), dtype=np.float64)
        except (ValueError, TypeError, RuntimeError) as error:  # text, ragged lists; tensors on a GPU or with gradients
            raise must_be("start", f"{', '.join(STARTS)}, or {allowed}", array) from error
        if self.array.ndim not in (2, 3):
            raise must_be("start", f"{', '.join(STARTS)}, or {allowed}", array)
        if not np.isfinite(self.array).all():
            raise BadInput("start must be an array of finite numbers; got one with NaN or infinity in it.")
        self.array.setflags(write=False)
        self.digest = hashlib.sha256(repr(self.array.shape).encode() + self.array.tobytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InitialPE) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"array {'x'.join(map(str, self.array.shape))} {self.digest[:12]}"


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """Architecture, optimizer and batch size of a model: the settings that all members of an experiment usually
    share."""

    placement: str = setting(
        "every", "where the encoding acts: in every block, or at the input only", choices=PLACEMENTS
    )
    width: int = setting(160, "features per token", least=1)
    layers: int = setting(4, "transformer blocks", least=1)
    heads: int = setting(1, "attention heads; a divisor of the width", least=1)
    expansion: int = setting(4, "hidden units of the MLP, as a multiple of the width", least=1)
    norm: str = setting("post", "layer norm after (post) or before (pre) attention and MLP", choices=NORMS)
    optimizer: str = setting("adam", "adam, adamw or sgd", choices=OPTIMIZERS)
    learning_rate: float = setting(1e-4, "learning rate", least=0)
    pe_learning_rate: float | None = setting(None, "learning rate of the PE, if it differs", least=0)
    weight_decay: float = setting(
        0.0, "weight decay: added to the gradient by adam and sgd, applied to the weights directly by adamw", least=0
    )
    pe_weight_decay: float | None = setting(None, "weight decay of the PE, if it differs", least=0)
    clip: float | None = setting(None, "maximum norm of a member's gradient; larger ones are scaled down", least=0)
    cooldown: float = setting(
        0.0,
        "fraction of the steps, at the end, in which learning rates fall linearly to zero; 0 as in the paper",
        least=0,
        below=1,
    )
    momentum: float = setting(0.9, "momentum of sgd", least=0, below=1)
    beta1: float = setting(0.9, "decay rate of adam's first moment", least=0, below=1)
    beta2: float = setting(0.999, "decay rate of adam's second moment", least=0, below=1)
    epsilon: float = setting(1e-8, "added to the square root of adam's second moment", least=0)
    batch: int = setting(128, "examples per step", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise must_be("heads", f"a divisor of the width {self.width}", self.heads)


@dataclass(frozen=True)
class Member(ModelSettings):
    """Specification of one model: encoding, architecture and training. `ModelSettings` has further fields.

    Members of equal shape with the same seed have the same initial weights and the same data order, even if their other
    settings differ. They can therefore be compared in pairs.

    Examples
    --------
    >>> Member(sigma=0.5, width=32).heads
    1
    """

    encoding: str = "learned"
    """Name of a registered encoding (`placecode.encodings.names`)."""
    sigma: float | None = setting(
        0.2,
        "initial standard deviation of a random PE, or root mean square of any other initial PE. Encodings without "
        "random initial values ignore it, and so do PEs that are copied without rescaling",
        least=0,
    )
    seed: int = setting(0, "seed of the initial weights, the PE, the data order and dropout", least=0)
    start: str | InitialPE = "normal"
    """Initial values of the PE: a name in `STARTS`, a name in `DONOR_STARTS` (copied from the member `donor`), or an
    array, which becomes an `InitialPE`."""
    donor: int | None = None
    """Index of the donor, the member whose PE is copied, in the list of members of the experiment. Required if `start`
    is in `DONOR_STARTS`, otherwise None. A donor cannot have a donor itself."""
    learn: bool = True
    """Whether a learned PE is trained. If False, it stays at its initial values."""
    options: Options = field(default_factory=Options)
    """Settings that only some encodings have: axes, base, fraction, ... (`Encoding.defaults`)."""

    dropout: float = setting(
        0.0,
        "dropout probability at the input of every block, after the PE is added. The code published with the paper "
        "(Ito et al.) uses 0.1 with fixed PEs",
        least=0,
        below=1,
    )
    dropout_at_evaluation: bool = False
    """Whether dropout is also active at evaluation, as in the paper's code. The seed then fixes the masks."""
    output_gain: float = setting(
        1.0,
        "factor by which the model's outputs are multiplied. Large values lead to lazy learning, in which weights "
        "change little, and small ones to rich learning, in which features are learned",
        above=0,
    )

    last_epoch: int | None = setting(
        None,
        "number of epochs after which this member stops, if other members of the experiment train longer. None: no "
        "limit",
        least=1,
    )
    mask_ratio: float = setting(
        0.5,
        "fraction of the channels (tokens) that are hidden in training, if the task is to predict hidden channels",
        least=0,
        below=1,
    )
    ramp: int = setting(
        0,
        "number of training steps in which the number of hidden channels grows from one to the fraction `mask_ratio`, "
        "as a curriculum. With 0 there is no growth: the full fraction is hidden from the first step",
        least=0,
    )
    data: str = ""
    """Name of the data set to train on, if the experiment has several, otherwise empty."""
    role: str = setting(
        "swept",
        "what the member is for, one of `ROLES`. It does not affect training",
        choices=ROLES,
        compare=False,
    )
    label: str = field(default="", compare=False)
    """Name in legends and tables, such as "2d-fixed". Members that differ only in seed have the same label, and those
    that differ in sigma too if sigma is an axis of the figure. It does not affect training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.start, (str, InitialPE)):
            object.__setattr__(self, "start", InitialPE(self.start))
        if not isinstance(self.options, Options):
            object.__setattr__(self, "options", Options(self.options))
        if isinstance(self.start, str):
            choice("start", self.start, (*STARTS, *DONOR_STARTS))
        has_donor = self.donor is not None and self.donor >= 0
        if has_donor != (self.start in DONOR_STARTS) or (self.donor is not None and not has_donor):
            when = "the number of a member" if self.start in DONOR_STARTS else f"left out for the start {self.start}"
            raise must_be("donor", when, self.donor)
        if self.start in RESCALED_STARTS and self.sigma is None:
            raise must_be("sigma", f"a number of at least 0 for the start {self.start}", None)
        if self.last_epoch is not None and self.cooldown:
            rule = "left out with a cooldown, which ends with the longest training"
            raise must_be("last_epoch", rule, self.last_epoch)

    @property
    def shape(self) -> tuple[object, ...]:
        """A key that is equal for members of one stack. Their encoding family must be equal too (see `stack_key`)."""
        names = ("width", "layers", "heads", "expansion", "norm", "placement", "optimizer", "batch", "data")
        equal = [getattr(self, name) for name in names]
        return (*equal, self.dropout > 0, self.dropout_at_evaluation, self.donor is not None)

    def record(self) -> dict[str, Any]:
        """Return the specification as a row of plain values for tables and files, with one value per field.

        `options` is JSON text, and an initial array is replaced by its shape and hash.
        """
        names = dict.fromkeys((*FIRST_COLUMNS, *(f.name for f in dataclasses.fields(self))))
        flat = {name: getattr(self, name) for name in names if name != "options"}
        return {**flat, "start": str(self.start), "options": json.dumps(dict(self.options))}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Member:
        """Return the member that a row made by `record` describes.

        A row does not contain arrays. If the PE of the member started as an array, `start` is "zero" in the result.
        This is enough to load trained parameters, which replace the initial values.
        """
        # runs of earlier versions have fewer fields
        values = {f.name: record[f.name] for f in dataclasses.fields(cls) if f.name in record}
        start = str(values["start"])
        values["start"] = start if start in (*STARTS, *DONOR_STARTS) else "zero"
        values["donor"] = int(values["donor"]) if values["start"] in DONOR_STARTS else None
        values["last_epoch"] = None if values.get("last_epoch") is None else int(values["last_epoch"])
        return cls(**{**values, "options": Options(json.loads(values["options"]))})

    def without_donor(self) -> Member:
        """Return this member with an initial PE of zeros instead of a copy of the donor's, and without `donor`.

        Such a stand-in has arrays of the same shapes and takes the same time and memory to train, but can be built
        before the donor is trained. A member without donor is returned unchanged.
        """
        return self if self.donor is None else dataclasses.replace(self, start="zero", donor=None)


def _plain(value: Any) -> Any:
    """Return a numpy scalar as a Python scalar, so that specifications compare equal and can be saved. Other values are
    returned unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def grid(base: Member, **fields: Iterable[Any]) -> list[Member]:
    """Return a list with one member per combination of field values.

    Parameters
    ----------
    base : Member
        A member with the values of all other fields.
    **fields : iterable
        The values of each field to vary. In the result, the last field varies fastest.

    Examples
    --------
    >>> [(m.sigma, m.seed) for m in grid(Member(), sigma=[0.1, 2.0], seed=range(2))]
    [(0.1, 0), (0.1, 1), (2.0, 0), (2.0, 1)]
    """
    for name in fields:
        choice("a field of a grid", name, base.record())
    combinations = itertools.product(*fields.values())
    return [dataclasses.replace(base, **dict(zip(fields, values, strict=True))) for values in combinations]


def varied(members: Sequence[Member]) -> list[str]:
    """Return the names of the fields and options that differ between members, except seed, donor, role and label.

    >>> varied(grid(Member(), sigma=[0.1, 2.0], seed=range(2)))
    ['sigma']
    """
    rows = [{**member.record(), **member.options} for member in members]
    names = {name: None for row in rows for name in row if name not in ("seed", "donor", "options", "role", "label")}
    return [name for name in names if len({row.get(name) for row in rows}) > 1]
