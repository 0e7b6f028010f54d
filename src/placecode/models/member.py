"""The specification of one model (a member), grids of specifications, and the rules for training them as one stack.

>>> grid(Member(width=32), sigma=[0.1, 2.0], seed=range(3))[0]
Member(encoding='learned', sigma=0.1, seed=0, ...)
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
from placecode.validation import choice, flag, is_whole, real_number, whole_number

OPTIMIZERS = ("adam", "adamw", "sgd")
STARTS = ("normal", "uniform", "zero", "true", "centred", "axes")
"""Initial values of a PE that need no other member.

- normal, uniform: random numbers with standard deviation sigma.
- zero: all zeros.
- true: sines and cosines of the true positions.
- centred: the same, minus their mean over the tokens.
- axes: one random vector per coordinate of each axis, summed over the axes. Cells of one row share half of their PE.
"""
POSITION_STARTS = ("true", "centred", "axes")
"""The initial values in `STARTS` that need true positions, and an encoding with one vector per token."""
TAKEN = ("taken", "shuffled", "before", "sized", "rescaled", "rescaled-shuffled", "resized", "resized-shuffled")
"""Initial values copied from the PE of another member of the study, its donor.

- taken: the donor's PE after training.
- shuffled: the same, with the tokens in random order.
- before: the donor's PE before training.
- sized: the donor's PE before training, each block rescaled to its root mean square after training.
- rescaled, rescaled-shuffled: as taken and shuffled, rescaled to a root mean square of sigma.
- resized, resized-shuffled: the same, interpolated from the donor's grid of tokens to this member's grid.
"""
RESIZED = ("resized", "resized-shuffled")
RESCALED = ("rescaled", "rescaled-shuffled", *RESIZED)
"""The initial values in `TAKEN` that are rescaled to a root mean square of sigma."""
STATES = ("state", "diverged_at", "diverged_by", "settled_epoch", "rested_epoch")
AUXILIARY = ("member", "seed", "origin", "role", "label", *STATES)
"""Columns of a table of members that do not describe a setting."""
ROLES = ("swept", "reference", "donor", "control")
"""What a member is for: part of the sweep, a model to compare with, one whose PE others start from, or one that must
show no effect."""
NORMS = ("post", "pre")
PLACEMENTS = ("every", "input")


class Options(Mapping[str, Any]):
    """Settings of an encoding family (axes, base, ...), as a hashable mapping for use in a frozen dataclass.

    Parameters
    ----------
    *settings : mapping of str to number, str, bool or None
        At most one mapping of settings.
    **more : number, str, bool or None
        Further settings. They override those in `settings`.

    Examples
    --------
    >>> Options({"axes": 2}, base=100.0)
    {'axes': 2, 'base': 100.0}
    """

    def __init__(self, *settings: Mapping[str, Any], **more: Any) -> None:
        items = {**(settings[0] if settings else {}), **more}
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


class Table:
    """Initial values of a learned PE as an array that is read-only, hashable and compared by its bytes.

    Parameters
    ----------
    array : array-like, shape (n, d) or (l, n, d)
        One vector per token, for all blocks or for each block.

    Attributes
    ----------
    digest : str
        SHA-256 hash of shape and values.
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
        return isinstance(other, Table) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"array {'x'.join(map(str, self.array.shape))} {self.digest[:12]}"


@dataclass(frozen=True)
class Member:
    """Specification of one model: encoding, architecture and training.

    Members with the same seed have the same initial weights and the same data order, even if their other settings
    differ. They can therefore be compared in pairs.

    Examples
    --------
    >>> Member(sigma=0.5, width=32).heads
    1
    """

    encoding: str = "learned"
    """Name of a registered encoding."""
    sigma: float | None = 0.2
    """Initial standard deviation of a random PE, or root mean square of any other initial PE. Encodings without random
    initial values ignore it, and so do PEs that are copied without rescaling."""
    seed: int = 0
    """Seed of the initial weights, the PE, the data order and dropout."""
    start: str | Table = "normal"
    """Initial values of a learned PE: a name in `STARTS`, a name in `TAKEN` (copied from the member `origin`), or an
    array. Numpy arrays are wrapped in a `Table`."""
    origin: int | None = None
    """Index in the study of the donor, the member whose PE is copied. Required if `start` is in `TAKEN`. A donor cannot
    have a donor itself."""
    learn: bool = True
    """Whether a learned PE is trained. False keeps its initial values."""
    placement: str = "every"
    """Blocks in which the encoding acts: "every" block (the paper) or only the first ("input")."""
    options: Options = field(default_factory=Options)
    """Settings of the encoding family: axes, base, fraction, ..."""

    width: int = 160
    """Features per token."""
    layers: int = 4
    """Transformer blocks."""
    heads: int = 1
    """Attention heads; must divide the width."""
    expansion: int = 4
    """Hidden units of the MLP, as a multiple of the width."""
    norm: str = "post"
    """Layer norm after each sum (post, the paper) or before each branch (pre)."""
    dropout: float = 0.0
    """Dropout probability of the features of embedding plus PE, in every block. The authors use 0.1 with fixed PEs."""
    dropout_at_evaluation: bool = False
    """Whether dropout is active at evaluation too, as in the authors' code. The seed then fixes the mask."""
    gain: float = 1.0
    """Factor of the model's outputs. Large values lead to lazy learning, small values to rich learning."""

    optimizer: str = "adam"
    """adam, adamw or sgd."""
    learning_rate: float = 1e-4
    """Learning rate of all parameters."""
    pe_learning_rate: float | None = None
    """Learning rate of the encoding's parameters. None uses `learning_rate`."""
    weight_decay: float = 0.0
    """Weight decay as in torch: added to the gradient (adam, sgd) or applied to the weights directly (adamw)."""
    pe_weight_decay: float | None = None
    """Weight decay of the encoding's parameters. None uses `weight_decay`."""
    clip: float | None = None
    """Maximum norm of the gradient of all parameters. Larger gradients are scaled down. None does not clip."""
    momentum: float = 0.9
    """Momentum of sgd."""
    beta1: float = 0.9
    """Decay rate of the first moment in adam and adamw."""
    beta2: float = 0.999
    """Decay rate of the second moment in adam and adamw."""
    epsilon: float = 1e-8
    """Added to the square root of the second moment in adam and adamw."""
    cooldown: float = 0.0
    """Fraction of the steps, at the end, in which learning rates fall linearly to 0. 0 keeps them constant (the
    paper)."""
    batch: int = 128
    """Examples per step."""
    last_epoch: int | None = None
    """Number of epochs after which this member stops, if other members of the study train longer."""
    hidden: float = 0.5
    """Fraction of the channels hidden during training. Used in masked prediction only."""
    ramp: int = 0
    """Number of steps in which the number of hidden channels grows from one to `hidden`, as a curriculum. 0 hides all
    of them from the first step."""
    data: str = ""
    """Name of the data set to train on, if the study has several."""
    role: str = field(default="swept", compare=False)
    """What the member is for, one of `ROLES`. Does not affect training."""
    label: str = field(default="", compare=False)
    """Name of its setting in legends and tables, without the seed, and without sigma if that is an axis. Does not
    affect training."""

    def __post_init__(self) -> None:
        for spec_field in dataclasses.fields(self):
            object.__setattr__(self, spec_field.name, _plain(getattr(self, spec_field.name)))
        if not isinstance(self.start, (str, Table)):
            object.__setattr__(self, "start", Table(self.start))
        if not isinstance(self.options, Options):
            object.__setattr__(self, "options", Options(self.options))
        if self.sigma is not None:
            real_number("sigma", self.sigma, least=0)
        if isinstance(self.start, str):
            choice("start", self.start, (*STARTS, *TAKEN))
        has_origin = is_whole(self.origin) and self.origin >= 0
        if has_origin != (self.start in TAKEN) or (self.origin is not None and not has_origin):
            when = "the number of a member" if self.start in TAKEN else f"left out for the start {self.start}"
            raise must_be("origin", when, self.origin)
        if self.start in RESCALED and self.sigma is None:
            raise must_be("sigma", f"a number of at least 0 for the start {self.start}", None)
        for name, allowed in (("placement", PLACEMENTS), ("norm", NORMS), ("optimizer", OPTIMIZERS), ("role", ROLES)):
            choice(name, getattr(self, name), allowed)
        for name in ("learn", "dropout_at_evaluation"):
            flag(name, getattr(self, name))
        for name in ("seed", "ramp"):
            whole_number(name, getattr(self, name), least=0)
        if self.last_epoch is not None:
            whole_number("last_epoch", self.last_epoch, least=1)
            if self.cooldown:
                rule = "left out with a cooldown, which ends with the longest training"
                raise must_be("last_epoch", rule, self.last_epoch)
        for name in ("width", "layers", "heads", "expansion", "batch"):
            whole_number(name, getattr(self, name), least=1)
        if self.width % self.heads:
            raise must_be("heads", f"a divisor of the width {self.width}", self.heads)
        real_number("gain", self.gain, above=0)
        for name in ("learning_rate", "weight_decay", "epsilon"):
            real_number(name, getattr(self, name), least=0)
        for name in ("pe_learning_rate", "pe_weight_decay", "clip"):
            if getattr(self, name) is not None:
                real_number(name, getattr(self, name), least=0)
        for name in ("dropout", "momentum", "beta1", "beta2", "cooldown", "hidden"):
            real_number(name, getattr(self, name), least=0, below=1)
        for name in ("data", "label"):
            if not isinstance(getattr(self, name), str):
                raise must_be(name, "a text", getattr(self, name))

    @property
    def shape(self) -> tuple[object, ...]:
        """The settings that must be equal to train members in one stack, besides the encoding family."""
        names = ("width", "layers", "heads", "expansion", "norm", "placement", "optimizer", "batch", "data")
        equal = [getattr(self, name) for name in names]
        return (*equal, self.dropout > 0, self.dropout_at_evaluation, self.origin is not None)

    def record(self) -> dict[str, Any]:
        """Return the specification as a row of plain values for tables and files.

        Returns
        -------
        dict of str to value
            One entry per field. `options` is JSON text.
        """
        flat = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "options"}
        return {**flat, "start": str(self.start), "options": json.dumps(dict(self.options))}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Member:
        """Rebuild a member from a row made by `record`.

        An initial array is not part of the row. It becomes "zero", because trained values replace it.

        Parameters
        ----------
        record : mapping of str to value

        Returns
        -------
        Member
        """
        # runs of earlier versions have fewer fields
        values = {f.name: record[f.name] for f in dataclasses.fields(cls) if f.name in record}
        start = str(values["start"])
        values["start"] = start if start in (*STARTS, *TAKEN) else "zero"
        values["origin"] = int(values["origin"]) if values["start"] in TAKEN else None
        values["last_epoch"] = None if values.get("last_epoch") is None else int(values["last_epoch"])
        return cls(**{**values, "options": Options(json.loads(values["options"]))})

    def alone(self) -> Member:
        """Return this member without its donor: the same shape and cost, with an initial PE of zeros."""
        return self if self.origin is None else dataclasses.replace(self, start="zero", origin=None)


def _plain(value: Any) -> Any:
    """Convert a numpy scalar to a Python scalar, so that specifications compare equal and can be saved."""
    return value.item() if isinstance(value, np.generic) else value


def grid(base: Member, **fields: Iterable[Any]) -> list[Member]:
    """Return one member per combination of field values.

    Parameters
    ----------
    base : Member
        Provides the values of all other fields.
    **fields : iterable
        The values of each field. The last field varies fastest.

    Examples
    --------
    >>> [(m.sigma, m.seed) for m in grid(Member(), sigma=[0.1, 2.0], seed=range(2))]
    [(0.1, 0), (0.1, 1), (2.0, 0), (2.0, 1)]
    """
    for name in fields:
        choice("a field of a grid", name, [spec_field.name for spec_field in dataclasses.fields(base)])
    combinations = itertools.product(*fields.values())
    return [dataclasses.replace(base, **dict(zip(fields, values, strict=True))) for values in combinations]


def varied(members: Sequence[Member]) -> list[str]:
    """Return the names of the fields and options that differ between members.

    Parameters
    ----------
    members : sequence of Member

    Returns
    -------
    list of str
        Names without seed and origin.

    Examples
    --------
    >>> varied(grid(Member(), sigma=[0.1, 2.0], seed=range(2)))
    ['sigma']
    """
    rows = [{**member.record(), **member.options} for member in members]
    names = {name: None for row in rows for name in row if name not in ("seed", "origin", "options", "role", "label")}
    return [name for name in names if len({row.get(name) for row in rows}) > 1]
