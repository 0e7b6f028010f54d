"""Members: what one model is, as a frozen spec; grids of them; and which of them can be trained as one stack.

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

from placecode.errors import BadInput, must_be, one_of
from placecode.validation import choice, flag, is_whole, real_number, whole_number

OPTIMIZERS = ("adam", "adamw", "sgd")
STARTS = ("normal", "uniform", "zero", "true", "centred", "axes")
"""How a PE starts by itself. Of true positions: sines and cosines of them (true), the same less their mean over the
tokens (centred); or for each axis a random vector for each of its coordinates, and their sum over the axes (axes), so
that cells of one row share half of their PE."""
PLACED = ("true", "centred", "axes")
"""Those of them that take the true positions of the tokens, and an encoding that has a vector for each token."""
TAKEN = ("taken", "shuffled", "before", "sized", "rescaled", "rescaled-shuffled", "resized", "resized-shuffled")
"""Starts from the PE of another member of the study. As it has learned it: as it is (taken), its tokens in random order
(shuffled), at another scale (rescaled, rescaled-shuffled), or brought onto another grid of tokens, and to another scale
(resized), in that random order before (resized-shuffled). As it was before training (before); or that, scaled block by
block to the root mean square that it has after training (sized)."""
RESIZED = ("resized", "resized-shuffled")
RESCALED = ("rescaled", "rescaled-shuffled", *RESIZED)
"""Those of them whose root mean square is this member's sigma."""
AUXILIARY = (
    *("member", "seed", "origin", "role", "label"),
    *("state", "diverged_at", "diverged_by", "settled_epoch", "rested_epoch"),
)
"""Columns of a table of members that do not tell one setting from another."""
ROLES = ("swept", "reference", "donor", "control")
"""What a member is for: part of the sweep, a model to compare with, one whose PE others start from, or one that must
show no effect."""
NORMS = ("post", "pre")
PLACEMENTS = ("every", "input")


class Options(Mapping[str, Any]):
    """The settings of one encoding family (axes, base, ...): a mapping that can be hashed, as a frozen spec needs."""

    def __init__(self, *given: Mapping[str, Any], **more: Any) -> None:
        items = {**(given[0] if given else {}), **more}
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
    """An array to start a learned encoding from, (n, d) or (l, n, d): read-only, compared and hashed by its bytes."""

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
    """One model to be trained, spelled out. Members with the same seed start from the same weights and see the same
    data order whatever else differs between them, so that they can be compared pair by pair."""

    encoding: str = "learned"
    """Name of a registered encoding."""
    sigma: float | None = 0.2
    """Standard deviation of the PE at the start, or its root mean square where it is not drawn; ignored by encodings
    that draw nothing, and by PEs that are taken over as they are."""
    seed: int = 0
    """Decides initial weights, PE, data order and dropout."""
    start: str | Table = "normal"
    """How a learned PE starts: normal, uniform, zero, from the true positions (`PLACED`), or an array (numpy
    arrays are wrapped in a Table); or from the PE of the member `origin` of the study (`TAKEN`). `STARTS` and `TAKEN`
    say what each of them is."""
    origin: int | None = None
    """The number, in its study, of the member whose PE this one starts from, where start is one of `TAKEN`. That member
    must start by itself."""
    learn: bool = True
    """Whether a learned PE is trained; False freezes it at its start."""
    placement: str = "every"
    """Where the encoding acts: in every block (the paper), or at the input, in the first block, only."""
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
    """Share of features dropped from the sum of embedding and PE, at every block. The authors' fixed encodings: 0.1."""
    dropout_at_evaluation: bool = False
    """Drop at evaluation too, as the authors' code did; the mask is then fixed by the seed."""
    gain: float = 1.0
    """What the outputs of the model are multiplied by: a large gain makes learning lazy, a small one rich."""

    optimizer: str = "adam"
    """adam, adamw or sgd."""
    learning_rate: float = 1e-4
    """Step size of all parameters."""
    pe_learning_rate: float | None = None
    """Step size of the encoding's own parameters; the same as the rest when not given."""
    weight_decay: float = 0.0
    """Added to the gradient (adam, sgd) or taken off the weights (adamw), as in torch."""
    pe_weight_decay: float | None = None
    """Weight decay of the encoding's own parameters; the same as the rest when not given."""
    clip: float | None = None
    """Largest norm of the member's whole gradient; larger ones are scaled down."""
    momentum: float = 0.9
    """Momentum of sgd."""
    beta1: float = 0.9
    """First moment's memory in adam and adamw."""
    beta2: float = 0.999
    """Second moment's memory in adam and adamw."""
    epsilon: float = 1e-8
    """Added to the root of the second moment in adam and adamw."""
    cooldown: float = 0.0
    """Share of the steps, at the end, over which the rates fall linearly to zero; 0 keeps them constant (the paper)."""
    batch: int = 128
    """Examples per step."""
    last_epoch: int | None = None
    """Passes over the training examples after which the member stops, where others of its study train for longer."""
    hidden: float = 0.5
    """Share of the channels that are hidden in training; for masked prediction alone."""
    ramp: int = 0
    """Steps over which the number of hidden channels grows from one to that share, a curriculum; 0 hides as many from
    the start."""
    data: str = ""
    """Which of the study's data sets the member is trained on, where it has several."""
    role: str = field(default="swept", compare=False)
    """What the member is for, one of `ROLES`. Does not affect training."""
    label: str = field(default="", compare=False)
    """Name of its setting in legends and tables: seed aside, and sigma where that is an axis. Does not affect
    training."""

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            object.__setattr__(self, each.name, _plain(getattr(self, each.name)))
        if not isinstance(self.start, (str, Table)):
            object.__setattr__(self, "start", Table(self.start))
        if not isinstance(self.options, Options):
            object.__setattr__(self, "options", Options(self.options))
        if self.sigma is not None:
            real_number("sigma", self.sigma, least=0)
        if isinstance(self.start, str) and self.start not in (*STARTS, *TAKEN):
            raise one_of("start", (*STARTS, *TAKEN), self.start)
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
        """What members must share to be stacked, their encoding family aside."""
        return (
            *(self.width, self.layers, self.heads, self.expansion, self.norm, self.placement, self.optimizer),
            *(self.batch, self.dropout > 0, self.dropout_at_evaluation, self.data, self.origin is not None),
        )

    def record(self) -> dict[str, Any]:
        """The spec as plain values, options flattened, for tables and files."""
        flat = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "options"}
        return {**flat, "start": str(self.start), "options": json.dumps(dict(self.options))}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Member:
        """The member behind a row of `record`. A start array is not in the row: trained values replace it anyway."""
        given = {f.name: record[f.name] for f in dataclasses.fields(cls) if f.name in record}  # older runs have fewer
        start = str(given["start"])
        given["start"] = start if start in (*STARTS, *TAKEN) else "zero"
        given["origin"] = int(given["origin"]) if given["start"] in TAKEN else None
        given["last_epoch"] = None if given.get("last_epoch") is None else int(given["last_epoch"])
        return cls(**{**given, "options": Options(json.loads(given["options"]))})

    def alone(self) -> Member:
        """The member with a start that needs no other: of the same size and cost."""
        return self if self.origin is None else dataclasses.replace(self, start="zero", origin=None)


def _plain(value: Any) -> Any:
    """Numpy's scalars as Python's own, so that equal specs look equal and go into any file."""
    return value.item() if isinstance(value, np.generic) else value


def grid(base: Member, **fields: Iterable[Any]) -> list[Member]:
    """All combinations of the given values, the last field fastest, on top of `base`."""
    names, known = list(fields), [each.name for each in dataclasses.fields(base)]
    for name in names:
        if name not in known:
            raise one_of("a field of a grid", known, name)
    return [
        dataclasses.replace(base, **dict(zip(names, values, strict=True)))
        for values in itertools.product(*fields.values())
    ]


def varied(members: Sequence[Member]) -> list[str]:
    """The fields (and options) in which members differ, seed aside: the columns that tell them apart."""
    rows = [{**member.record(), **member.options} for member in members]
    names = {name: None for row in rows for name in row if name not in ("seed", "origin", "options", "role", "label")}
    return [name for name in names if len({row.get(name) for row in rows}) > 1]
