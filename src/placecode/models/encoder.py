"""The transformer: many encoders of equal shape in one `Stack`, with parameters stacked along a leading member axis.

A single model is a stack with one member.

>>> stack = Stack([Member(sigma=0.1), Member(sigma=2.0)], tokens=16, features=5, outputs=4)
>>> stack(torch.zeros(2, 8, 16, 5)).shape
torch.Size([2, 8, 4])
>>> stack.member(1)(torch.zeros(8, 16, 5)).shape
torch.Size([8, 4])

The default architecture is that of the paper. It consists of a linear embedding, blocks of LN(x + attention) and
LN(x + MLP), and a linear read-out of the last token. The PE is added to the input of every block. The MLP has GELU
after both linear layers.

Shapes: e members, b examples, n tokens, f input features, d features, o outputs, l blocks, P parameters per member.
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
from placecode.errors import BadInput, must_be
from placecode.models.blocks import Attention, Block, Capture, Linear, Norm
from placecode.models.member import Member
from placecode.validation import choice, whole_number

ALIGNMENT = 64
"""Parameters begin at multiples of this number of columns of `Stack.flat`: GPUs multiply aligned matrices faster."""
READOUTS = ("last", "mean", "token")
"""Values of `readout`: outputs are computed from the last token, from the mean of all tokens, or for every token."""
MAX_GRADIENT_SHRINKAGE = 12
"""Matrix products use float16 only if gradients shrink by at most 2 to this power from the outputs to the inputs."""
MAX_FLOAT16_WEIGHT_DECAY = 0.5
"""Matrix products use float16 only if the weight decay of all members is below this value. Strong decay can shrink the
scales of layer norms until gradients underflow in float16."""


class Stack(nn.Module):
    """Transformers of equal shape, with parameters stacked along a leading member axis.

    All parameters of a member are stored in one row of the array `flat`, and the named parameters are views of `flat`.
    An optimizer therefore updates all members with a few operations, and a member is copied or saved as one row.

    The names of modules and parameters, such as "blocks.0.up.weight", are part of the keys of the random numbers with
    which weights are drawn. Renaming an attribute changes the initial weights of all models.

    Parameters
    ----------
    members : sequence of Member
        Specifications with equal `stack_key`.
    tokens, features, outputs : int
        Number of tokens, input features per token and outputs.
    readout : {"last", "mean", "token"}
        Tokens from which outputs are computed, see `READOUTS`.
    positions : ndarray, shape (n, k), optional
        True coordinates of the tokens.
    dtype : torch.dtype
    device : torch.device or str
    fast : bool, optional
        True uses fused GPU kernels. False uses plain PyTorch operations, the reference implementation. None chooses the
        fastest implementation for the device.

    Attributes
    ----------
    flat : Tensor, shape (e, P)
        All parameters. Those of the encoding are last, from column `encoding_columns`. Columns between two parameters
        (`gaps`, due to `ALIGNMENT`) are always zero.
    """

    flat: Tensor
    sink: Tensor | None
    """If set, (e, P): fused kernels write most gradients of the next backward pass directly into this array."""
    inverse_scale: Tensor | None
    """If set, (e,): fused kernels may multiply the gradients of a member by a power of two, to fit them into float16.
    They write the inverse of that factor into this array."""
    allows_float16: bool
    """Whether gradients are large enough for fused kernels to multiply matrices in float16, without underflow."""
    keep: Tensor
    """Probability that dropout does not set a feature to zero, (e, 1, 1, 1)."""
    dropout_keys: Tensor
    """Random keys of the dropout masks, (e,)."""
    gain: Tensor | None
    """Factor for the outputs of each member, with the number of axes of the outputs. None if all factors are 1."""

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
        choice("readout", readout, READOUTS)
        if len({stack_key(member) for member in members}) > 1:
            raise BadInput("members of a stack must have the same shape and encoding family; these differ.")
        first, e = members[0], len(members)
        self.members, self.readout = tuple(members), readout
        self.shape: dict[str, Any] = {
            "tokens": tokens,
            "features": features,
            "outputs": outputs,
            "positions": positions,
        }
        self.embedding = Linear(e, features, first.width)
        hidden, pre = first.expansion * first.width, first.norm == "pre"
        self.blocks = nn.ModuleList(Block(e, first.width, first.heads, hidden, pre) for _ in range(first.layers))
        self.final_norm = Norm(e, first.width) if pre else None
        self.answer = Linear(e, first.width, outputs)
        self.encoding = encodings.build(members, Layout(tokens, positions))
        self.no_encoding = encodings.Encoding(members, Layout(tokens, positions))
        self._draw_weights()
        rates = torch.tensor([member.dropout for member in members], dtype=torch.float64)  # (e,)
        self.register_buffer("keep", 1 - rates[:, None, None, None], persistent=False)
        self.register_buffer("dropout_keys", random.keys_for([m.seed for m in members], "dropout"), persistent=False)
        gains = torch.tensor([member.output_gain for member in members], dtype=torch.float64)
        gains = gains.view(-1, *[1] * (3 if readout == "token" else 2))
        self.register_buffer("gain", None if (gains == 1).all() else gains, persistent=False)
        self.to(dtype).to(device)
        self._flatten()
        if fast and not self._can_be_fast():
            raise BadInput("the fast path must have float32 parameters, Triton and a CUDA device; one is missing here.")
        self._requested = fast  # True, False, or None for the fastest implementation
        self._choose_implementation()

    def _draw_weights(self) -> None:
        """Draw initial weights as torch does: uniform between -b and b = 1 / sqrt(inputs), but in attention as
        `nn.MultiheadAttention`. Random numbers depend only on the seed of the member and the name of the parameter."""
        seeds = list(dict.fromkeys(member.seed for member in self.members))  # equal seeds give equal weights: draw once
        seed_index = [seeds.index(member.seed) for member in self.members]
        attentions = [module for module in self.modules() if isinstance(module, Attention)]
        projections = {attention.projection for attention in attentions}
        attention_layers = projections | {attention.out for attention in attentions}
        for name, module in self.named_modules():
            if not isinstance(module, Linear):
                continue
            inputs, outputs = module.matrix.shape[1:]
            bound = (6 / (inputs + outputs)) ** 0.5 if module in projections else inputs**-0.5
            for part, parameter in module.named_parameters():
                if part == "bias" and module in attention_layers:  # torch initializes both biases of attention to zero
                    parameter.data.zero_()
                    continue
                unit = random.uniform(random.keys_for(seeds, f"{name}.{part}"), 0, parameter[0].numel())
                target = module.as_matrix(parameter.data) if part == "weight" else parameter.data
                target.copy_((bound * (2 * unit - 1))[seed_index].view(target.shape))

    def _flatten(self) -> None:
        """Copy all parameters into a new array `flat`, those of the encoding last. Make the parameters views of it."""
        vectors = list(self.encoding.parameters())
        weights = [p for p in self.parameters() if all(p is not vector for vector in vectors)]
        self.ordered = weights + vectors
        self._columns = [0, *itertools.accumulate(-(-p[0].numel() // ALIGNMENT) * ALIGNMENT for p in self.ordered)]
        self.encoding_columns = self._columns[len(weights)]
        spans = zip(self.ordered, itertools.pairwise(self._columns), strict=True)
        gaps = [column for p, (first, end) in spans for column in range(first + p[0].numel(), end)]
        self.gaps = torch.tensor(gaps, dtype=torch.int64, device=self.ordered[0].device)
        self.flat = self.ordered[0].new_zeros(len(self.members), self._columns[-1]).detach()
        self.sink = self.inverse_scale = None
        for p, view in zip(self.ordered, self.views(self.flat), strict=True):
            view.copy_(p.data)
            p.data = view

    def _choose_implementation(self) -> None:
        """Choose the implementation and the precision for the current device and dtype."""
        self.fast = self._can_be_fast() and (self.flat.is_cuda if self._requested is None else self._requested)
        self.allows_float16 = self.fast and self._gradients_fit_float16()
        for module in self.modules():
            if isinstance(module, Attention):
                module.fused = not self.plain and self.flat.device.type == "cpu"

    def _gradients_fit_float16(self) -> bool:
        """Return whether gradients are likely to be large enough for float16. In the backward pass, a layer norm
        divides them by the size of its input, which is large if the PE is large."""
        if any(member.weight_decay >= MAX_FLOAT16_WEIGHT_DECAY for member in self.members):
            return False
        first, vectors = self.members[0], self.encoding.vectors()
        if vectors is None:
            return True
        size = vectors.detach().double().square().flatten(1).mean(1).max().sqrt().item()
        doublings = math.log2(math.hypot(1, size)) * (first.layers if first.placement == "every" else 1)
        return doublings <= MAX_GRADIENT_SHRINKAGE

    @property
    def plain(self) -> bool:
        """Whether the reference implementation was requested with `fast=False`."""
        return self._requested is False

    def _can_be_fast(self) -> bool:
        """Return whether fused kernels support the current dtype and device."""
        return self.flat.dtype == torch.float32 and kernels.available(self.flat.device)

    def views(self, flat: Tensor) -> list[Tensor]:
        """Split an array with the columns of `flat`, (e, P), into one view per parameter in the list `ordered`."""
        columns = zip(self.ordered, self._columns[:-1], strict=True)
        return [flat[:, first : first + p[0].numel()].view(p.shape) for p, first in columns]

    def gradients(self, loss: Tensor, out: Tensor) -> None:
        """Write the gradient of `loss`, a scalar, with respect to every parameter into `out`, (e, P)."""
        # a registered encoding may have unused parameters: their gradient is zero
        grads = torch.autograd.grad(loss, self.ordered, materialize_grads=True)
        views = zip(self.views(out), grads, strict=True)
        pairs = [(view, grad) for view, grad in views if view.data_ptr() != grad.data_ptr()]
        torch._foreach_copy_([view for view, _ in pairs], [grad for _, grad in pairs])
        out.index_fill_(1, self.gaps, 0)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Convert device or dtype, as torch does for `to` or `double`, and make the parameters views of a new `flat`.
        An existing trainer would still update the old `flat`, so convert a stack before creating its trainer."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if "flat" in self.__dict__ and self.ordered[0].data_ptr() != self.flat.data_ptr():
            self._flatten()
            self._choose_implementation()
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Stack:
        """Return a copy of the stack, whose parameters are views of a new `flat`."""
        return self._with_weights(self.members, self.flat)

    def member(self, index: int) -> Stack:
        """Return one member as a new stack, with copied weights. This stack also accepts inputs of shape (b, n, f)."""
        return self._with_weights([self.members[index]], self.flat[index])

    def subset(self, indices: Sequence[int]) -> Stack:
        """Return the members at these indices as a new stack, with copied weights."""
        stack = self._with_weights([self.members[index] for index in indices], self.flat[list(indices)])
        stack.allows_float16 = self.allows_float16  # keep the precision in which these members have been trained so far
        return stack

    def _with_weights(self, members: Sequence[Member], flat: Tensor) -> Stack:
        """Return a new stack of these members with a copy of the parameters `flat`, (e, P), or (P,) for one member."""
        fast = None if self._requested and not self.fast else self._requested
        stack = Stack(members, **self.shape, readout=self.readout, dtype=flat.dtype, device=flat.device, fast=fast)
        stack.flat.copy_(flat)
        return stack

    def forward(self, x: Tensor, step: int | Tensor | None = None, first_row: int = 0) -> Tensor:
        """Compute the outputs of all members.

        Parameters
        ----------
        x : Tensor, shape (e, b, n, f)
            Inputs of each member. A stack of one also accepts (b, n, f).
        step : int or Tensor, optional
            Training step, which determines the dropout masks. None at evaluation.
        first_row : int
            Index of the first example of this batch in the evaluated data. With dropout at evaluation, masks depend on
            the index of an example in the data, not on the batch size.

        Returns
        -------
        Tensor, shape (e, b, o)
            The shape is (e, b, n, o) with the "token" read-out. There is no member axis if `x` has none.
        """
        shaped = self._with_member_axis(x)  # (e, b, n, f)
        if self.fast:
            from placecode.compute.gpu import forward as gpu  # needs Triton

            outputs = gpu.forward(self, shaped, step, first_row)
        else:
            outputs = self._forward(shaped, step, None, first_row)
        return outputs if x.dim() == 4 else outputs[0]

    def _with_member_axis(self, x: Tensor) -> Tensor:
        """Return inputs as (e, b, n, f), with a member axis added for a stack of one, or raise `BadInput`."""
        e, f = len(self.members), self.shape["features"]
        shaped = x[None] if x.dim() == 3 and e == 1 else x
        if shaped.dim() != 4 or shaped.shape[0] != e or shaped.shape[3] != f:
            alone = f" or (batch, tokens, {f} features)" if e == 1 else ""
            raise must_be("inputs", f"an array ({e} members, batch, tokens, {f} features){alone}", tuple(x.shape))
        return shaped

    def capture(self, x: Tensor, *patterns: str, first_row: int = 0) -> dict[str, Tensor]:
        """Return named activations of the forward pass at evaluation.

        Parameters
        ----------
        x : Tensor, shape (e, b, n, f)
        *patterns : str
            Names of activations, which may contain shell wildcards such as *. The names are embedding, input.0,
            attention.0, block.0, input.1, ..., output. Attention weights have shape (e, b, h, n, n).
        first_row : int
            As in `forward`.

        Returns
        -------
        dict of str to Tensor
            The activations whose name matches a pattern.

        Examples
        --------
        >>> sorted(stack.capture(torch.zeros(2, 8, 16, 5), "attention.*"))
        ['attention.0', 'attention.1', 'attention.2', 'attention.3']
        """
        activations: dict[str, Tensor] = {}

        def record(name: str, value: Tensor) -> None:
            if any(fnmatchcase(name, pattern) for pattern in patterns):
                activations[name] = value.detach()

        with torch.no_grad():
            record("output", self._forward(self._with_member_axis(x), None, record, first_row))
        return activations

    def with_noise(self, x: Tensor, noise: Tensor, first_row: int = 0) -> Tensor:
        """Return the outputs at evaluation, as `forward` does, with noise added. `noise` of shape (e, b, n, d) is added
        to the embeddings, and `noise` of shape (l, e, b, n, d) to the inputs of the l blocks."""
        with torch.no_grad():
            return self._forward(self._with_member_axis(x), None, None, first_row, noise)

    def _forward(
        self, x: Tensor, step: int | Tensor | None, capture: Capture | None, first_row: int, noise: Tensor | None = None
    ) -> Tensor:
        """Return the outputs, computed by the reference implementation. For the arguments see the public methods."""
        record = capture or (lambda name, value: None)
        x = self.embedding(x)  # (e, b, n, d)
        if noise is not None and noise.dim() == 4:
            x = x + noise
        record("embedding", x)
        for i, block in enumerate(self.blocks):
            encoding = self.encoding_at(i)
            x = self._drop(encoding.add(x, i), i, step, first_row)
            if noise is not None and noise.dim() == 5:
                x = x + noise[i]
            record(f"input.{i}", x)
            # the read-out needs only the last token of the last block
            last_only = self.readout == "last" and capture is None and i == len(self.blocks) - 1
            x = block(x, encoding, i, slice(x.shape[2] - 1, x.shape[2]) if last_only else ALL, capture)
            record(f"block.{i}", x)
        if self.final_norm is not None:
            x = self.final_norm(x)
        if self.readout == "last":
            x = x[:, :, -1]  # (e, b, d)
        elif self.readout == "mean":
            x = x.mean(2)  # (e, b, d)
        return self.amplified(self.answer(x))

    def encoding_at(self, block: int) -> encodings.Encoding:
        """Return the encoding of a block. With placement "input", blocks after the first have one without effect."""
        return self.encoding if block == 0 or self.members[0].placement == "every" else self.no_encoding

    def amplified(self, outputs: Tensor) -> Tensor:
        """Return the outputs of the last layer, (e, b, o) or (e, b, n, o), times each member's `output_gain`."""
        return outputs if self.gain is None else outputs * self.gain

    def _drop(self, x: Tensor, block: int, step: int | Tensor | None, first_row: int) -> Tensor:
        """Return the input x of a block, (e, b, n, d), after dropout."""
        if self.members[0].dropout == 0 or (step is None and not self.members[0].dropout_at_evaluation):
            return x
        count, first = x[0].numel(), first_row * x[0, 0].numel()
        draws = random.uniform(self.dropout_keys, self.dropout_step(block, step), count, torch.float32, first)
        return x * (draws.view(x.shape) < self.keep) / self.keep

    def dropout_step(self, block: int, step: int | Tensor | None) -> int | Tensor:
        """Return a number that differs by step (None at evaluation) and block, from which a dropout mask is drawn."""
        return (-1 if step is None else step) * len(self.blocks) + block


def stack_key(member: Member) -> tuple[object, ...]:
    """Return a key that is equal for members that can be trained together in one stack."""
    return (*member.shape, encodings.family(member))


def plan_stacks(members: Sequence[Member], max_size: int) -> list[list[int]]:
    """Divide members into stacks, as few as possible and of nearly equal size for each `stack_key`.

    Parameters
    ----------
    members : sequence of Member
    max_size : int
        Maximum number of members per stack.

    Returns
    -------
    list of list of int
        Indices of the members of each stack. All members of a stack have the same `stack_key`.
    """
    whole_number("the largest stack", max_size, 1)
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, member in enumerate(members):
        groups.setdefault(stack_key(member), []).append(index)
    parts = [np.array_split(group, -(-len(group) // max_size)) for group in groups.values()]
    return [part.tolist() for split in parts for part in split]
