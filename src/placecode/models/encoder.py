"""The transformer encoder with an explicit member axis: a stack of models of equal shape; one model is a stack of one.

>>> stack = Stack([Member(sigma=0.1), Member(sigma=2.0)], tokens=16, features=5, outputs=4)
>>> stack(torch.zeros(2, 8, 16, 5)).shape
torch.Size([2, 8, 4])
>>> stack.member(1)(torch.zeros(8, 16, 5)).shape
torch.Size([8, 4])

The model is the paper's: a linear embedding, then blocks of LN(x + attention) and LN(x + MLP) with GELU after both
linear layers of the MLP, the PE added to the input of every block, and an answer read from the last token.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from placecode import encodings, random
from placecode.compute.gpu import kernels
from placecode.encodings import ALL, Layout
from placecode.errors import BadInput, must_be, one_of
from placecode.models.blocks import Attention, Block, Capture, Linear, Norm
from placecode.models.member import Member

ALIGNMENT = 64
"""Parameters start at multiples of so many numbers in `flat`: GPUs multiply aligned matrices faster."""
READOUTS = ("last", "mean", "token")
MOST_SHRINKING = 12
"""By how many powers of two gradients at the inputs may be smaller than at the outputs, to be held as float16."""
STRONG_DECAY = 0.5
"""Weight decay from which on the scales of norms may become so small that float16 does not hold gradients."""


class Stack(nn.Module):
    """Members of equal shape, their parameters stacked on a leading axis and kept in one flat array per member.

    `flat` (e, P) holds every parameter, the encoding's own from column `encoding_columns` on; the named parameters are
    views of it, and `gradients` gives their gradients in the same layout. So an optimizer needs a handful of operations
    for all members, and copying, freezing or saving a member is slicing a row. Parameters are aligned; what lies
    between them is zero and stays zero.

    `fast` says how to compute: False for the plain way, which is the reference; True for fused kernels; unless given,
    the fastest way there is on the device.
    """

    flat: Tensor
    sink: Tensor | None
    """Where the gradients of the next pass are wanted, laid out as `flat`: the fast path writes most of them there."""
    unit: Tensor | None
    """Given (e,), the gradients of the next pass may be in a unit for each member, which the fast path writes there."""
    halves: bool
    """Whether products on the fast path may take float16 numbers: not where gradients would become too small for it."""
    keep: Tensor
    dropout_keys: Tensor
    gain: Tensor | None
    """What the outputs of each member are multiplied by, with as many axes as they; None where it is 1 for all."""

    def __init__(
        self,
        members: Sequence[Member],
        *,
        tokens: int,
        features: int,
        outputs: int,
        readout: str = "last",
        positions: np.ndarray | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        fast: bool | None = None,
    ) -> None:
        super().__init__()
        if not members:
            raise BadInput("a stack must have at least one member; got none.")
        if readout not in READOUTS:
            raise one_of("readout", READOUTS, readout)
        if len({stack_key(member) for member in members}) > 1:
            raise BadInput("members of a stack must have the same shape and encoding family; these differ.")
        self.members, first, e = tuple(members), members[0], len(members)
        self.readout = readout
        self.shape: dict[str, Any] = {
            "tokens": tokens,
            "features": features,
            "outputs": outputs,
            "positions": positions,
        }
        self.embedding = Linear(e, features, first.width)
        hidden = first.expansion * first.width
        self.blocks = nn.ModuleList(
            Block(e, first.width, first.heads, hidden, first.norm == "pre") for _ in range(first.layers)
        )
        self.final_norm = Norm(e, first.width) if first.norm == "pre" else None
        self.answer = Linear(e, first.width, outputs)
        self.encoding = encodings.build(members, Layout(tokens, positions))
        self.nowhere = encodings.Encoding(members, Layout(tokens, positions))
        self._draw_weights()
        rates = torch.tensor([member.dropout for member in members], dtype=torch.float64)
        self.register_buffer("keep", 1 - rates[:, None, None, None], persistent=False)
        self.register_buffer("dropout_keys", random.keys_for([m.seed for m in members], "dropout"), persistent=False)
        gains = torch.tensor([member.gain for member in members], dtype=torch.float64)
        gains = gains.view(-1, *[1] * (3 if readout == "token" else 2))
        self.register_buffer("gain", None if (gains == 1).all() else gains, persistent=False)
        self.to(dtype).to(device)
        self._flatten()
        if fast and not self._can_be_fast():
            raise BadInput("the fast path must have float32 parameters, Triton and a CUDA device; one is missing here.")
        self._wanted = fast
        self._choose()

    def _draw_weights(self) -> None:
        """Torch's default start, each parameter drawn from the member's seed and its own name."""
        seeds = list(dict.fromkeys(member.seed for member in self.members))  # members of a seed start alike
        of_member = [seeds.index(member.seed) for member in self.members]
        for name, module in self.named_modules():
            if not isinstance(module, Linear):
                continue
            inputs, outputs = module.matrix.shape[1:]
            bound = (6 / (inputs + outputs)) ** 0.5 if name.endswith("attention.projection") else inputs**-0.5
            for part, parameter in module.named_parameters():
                if part == "bias" and ".attention." in name:  # torch starts both biases of attention at zero
                    parameter.data.zero_()
                    continue
                unit = random.uniform(random.keys_for(seeds, f"{name}.{part}"), 0, parameter[0].numel())
                target = module.as_matrix(parameter.data) if part == "weight" else parameter.data
                target.copy_((bound * (2 * unit - 1))[of_member].view(target.shape))

    def _flatten(self) -> None:
        """Move all parameters into `flat`, the encoding's last."""
        own = [p for name, p in self.named_parameters() if not name.startswith("encoding.")]
        self.ordered = own + list(self.encoding.parameters())
        self._columns = [0, *itertools.accumulate(-(-p[0].numel() // ALIGNMENT) * ALIGNMENT for p in self.ordered)]
        self.encoding_columns = self._columns[len(own)]
        ends = zip(self.ordered, itertools.pairwise(self._columns), strict=True)
        gaps = [column for p, (first, end) in ends for column in range(first + p[0].numel(), end)]
        self.gaps = torch.tensor(gaps, dtype=torch.int64, device=self.ordered[0].device)
        self.flat = self.ordered[0].new_zeros(len(self.members), self._columns[-1]).detach()
        self.sink = self.unit = None
        for p, view in zip(self.ordered, self.views(self.flat), strict=True):
            view.copy_(p.data)
            p.data = view

    def _choose(self) -> None:
        """How to compute, here and now."""
        self.fast = self._can_be_fast() and (self.flat.is_cuda if self._wanted is None else self._wanted)
        decay = max(member.weight_decay for member in self.members)
        self.halves = self.fast and self._shrink() <= MOST_SHRINKING and decay < STRONG_DECAY
        for module in self.modules():
            if isinstance(module, Attention):
                module.fused = not self.plain and self.flat.device.type == "cpu"

    def _shrink(self) -> float:
        """By about how many powers of two gradients are smaller at the inputs than at the outputs: a norm divides by
        the size of its input, and that is the PE's, where it is large."""
        example, vectors = self.members[0], self.encoding.vectors()
        if vectors is None:
            return 0.0
        size = vectors.detach().double().square().flatten(1).mean(1).max().sqrt().item()
        return math.log2(math.hypot(1, size)) * (example.layers if example.placement == "every" else 1)

    @property
    def plain(self) -> bool:
        """Whether the plain way was asked for."""
        return self._wanted is False

    def _can_be_fast(self) -> bool:
        return self.flat.dtype == torch.float32 and kernels.available(self.flat.device)

    def views(self, flat: Tensor) -> list[Tensor]:
        """An array of the layout of `flat` as one view per parameter, in the order of `ordered`."""
        starts = zip(self.ordered, self._columns[:-1], strict=True)
        return [flat[:, first : first + p[0].numel()].view(p.shape) for p, first in starts]

    def gradients(self, loss: Tensor, out: Tensor) -> None:
        """Write the gradient of `loss` with respect to every parameter into `out`, laid out as `flat`."""
        # a registered encoding may leave a parameter unused: its gradient is zero
        found = torch.autograd.grad(loss, self.ordered, materialize_grads=True)
        pairs = [(to, new) for to, new in zip(self.views(out), found, strict=True) if to.data_ptr() != new.data_ptr()]
        torch._foreach_copy_([to for to, _ in pairs], [new for _, new in pairs])
        out.index_fill_(1, self.gaps, 0)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves to another device or dtype (`to`, `double`, ...) go through here: parameters must stay views of `flat`.

        A trainer of this stack holds the old `flat`: move first, then train.
        """
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if "flat" in self.__dict__ and self.ordered[0].data_ptr() != self.flat.data_ptr():
            self._flatten()
            self._choose()
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Stack:
        """A copy whose parameters are views of its own `flat`."""
        return self._with_weights(self.members, self.flat)

    def member(self, index: int) -> Stack:
        """Member `index` alone: a stack of one with its own copy of the weights, called on (b, n, f)."""
        return self._with_weights([self.members[index]], self.flat[index])

    def members_alone(self, indices: Sequence[int]) -> Stack:
        """These members as a stack of their own, with their own copy of the weights."""
        stack = self._with_weights([self.members[index] for index in indices], self.flat[list(indices)])
        stack.halves = self.halves  # in the precision in which they have been computed so far
        return stack

    def _with_weights(self, members: Sequence[Member], flat: Tensor) -> Stack:
        settings: dict[str, Any] = {"readout": self.readout, "dtype": flat.dtype, "device": flat.device}
        stack = Stack(members, **self.shape, **settings, fast=None if self._wanted and not self.fast else self._wanted)
        stack.flat.copy_(flat)
        return stack

    def forward(self, x: Tensor, step: int | Tensor | None = None, first_row: int = 0) -> Tensor:
        """Outputs (e, b, o), or (e, b, n, o) with the "token" read-out, from inputs (e, b, n, f).

        A stack of one also takes (b, n, f) and answers without the member axis. `step` is given in training alone: it
        chooses the dropout masks. At evaluation, `first_row` is the place of the first example among all that are
        evaluated: a mask belongs to an example, in whatever portions they come.
        """
        shaped = self._with_member_axis(x)
        if self.fast:
            from placecode.compute import gpu as fast  # needs Triton

            outputs = fast.forward(self, shaped, step, first_row)
        else:
            outputs = self._forward(shaped, step, None, first_row)
        return outputs if x.dim() == 4 else outputs[0]

    def _with_member_axis(self, x: Tensor) -> Tensor:
        e, f = len(self.members), self.shape["features"]
        shaped = x[None] if x.dim() == 3 and e == 1 else x
        if shaped.dim() != 4 or shaped.shape[0] != e or shaped.shape[3] != f:
            alone = f" or (batch, tokens, {f} features)" if e == 1 else ""
            raise must_be("inputs", f"an array ({e} members, batch, tokens, {f} features){alone}", tuple(x.shape))
        return shaped

    def capture(self, x: Tensor, *patterns: str, first_row: int = 0) -> dict[str, Tensor]:
        """Activations by name, from the forward pass at evaluation, for all tokens; `first_row` as in `forward`.

        Names: embedding, input.0, attention.0 (e, b, h, n, n), block.0, input.1, ..., output; patterns as in a shell.

        >>> sorted(stack.capture(torch.zeros(2, 8, 16, 5), "attention.*"))
        ['attention.0', 'attention.1', 'attention.2', 'attention.3']
        """
        seen: dict[str, Tensor] = {}

        def note(name: str, value: Tensor) -> None:
            if any(fnmatchcase(name, pattern) for pattern in patterns):
                seen[name] = value.detach()

        with torch.no_grad():
            note("output", self._forward(self._with_member_axis(x), None, note, first_row))
        return seen

    def with_noise(self, x: Tensor, noise: Tensor, first_row: int = 0) -> Tensor:
        """The outputs at evaluation with `noise` added: (e, b, n, d) to the embeddings of the tokens, or
        (l, e, b, n, d) to the input of each block."""
        with torch.no_grad():
            return self._forward(self._with_member_axis(x), None, None, first_row, noise)

    def _forward(
        self,
        x: Tensor,
        step: int | Tensor | None,
        capture: Capture | None,
        first_row: int = 0,
        noise: Tensor | None = None,
    ) -> Tensor:
        note = capture or (lambda name, value: None)
        x = self.embedding(x)
        if noise is not None and noise.dim() == 4:
            x = x + noise
        note("embedding", x)
        for i, block in enumerate(self.blocks):
            encoding = self.encoding if i == 0 or self.members[0].placement == "every" else self.nowhere
            x = self._drop(encoding.add(x, i), i, step, first_row)
            if noise is not None and noise.dim() == 5:
                x = x + noise[i]
            note(f"input.{i}", x)
            last_alone = self.readout == "last" and capture is None and i == len(self.blocks) - 1
            x = block(x, encoding, i, slice(x.shape[2] - 1, x.shape[2]) if last_alone else ALL, capture)
            note(f"block.{i}", x)
        if self.final_norm is not None:
            x = self.final_norm(x)
        if self.readout == "last":
            x = x[:, :, -1]
        elif self.readout == "mean":
            x = x.mean(2)
        return self.amplified(self.answer(x))

    def amplified(self, outputs: Tensor) -> Tensor:
        """What members answer: the outputs of their last layer, (e, b, o) or (e, b, n, o), times their gain."""
        return outputs if self.gain is None else outputs * self.gain

    def _drop(self, x: Tensor, block: int, step: int | Tensor | None, first_row: int) -> Tensor:
        example = self.members[0]
        if example.dropout == 0 or (step is None and not example.dropout_at_evaluation):
            return x
        moment, first = self.dropout_moment(block, step), first_row * x[0, 0].numel()
        unit = random.uniform(self.dropout_keys, moment, x[0].numel(), torch.float32, first).view(x.shape)
        return x * (unit < self.keep) / self.keep

    def dropout_moment(self, block: int, step: int | Tensor | None) -> int | Tensor:
        """The step of `draws` whose numbers drop features. Evaluation is step -1: one mask, never one of training."""
        return (-1 if step is None else step) * len(self.blocks) + block


def stack_key(member: Member) -> tuple[object, ...]:
    """Members with equal keys can be trained as one stack."""
    return (*member.shape, encodings.family(member))


def plan_stacks(members: Sequence[Member], most: int) -> list[list[int]]:
    """Indices of members that train together: equal keys, at most `most` to a stack, of nearly equal sizes."""
    if most < 1:
        raise must_be("the largest stack", "a whole number of at least 1", most)
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, member in enumerate(members):
        groups.setdefault(stack_key(member), []).append(index)
    parts = [np.array_split(group, -(-len(group) // most)) for group in groups.values()]
    return [part.tolist() for split in parts for part in split]
