"""Compute the losses and gradients of a stack on a CPU, with explicit forward and backward passes.

This saves memory and memory traffic over automatic differentiation. Groups of a few members are computed one after
another in the same arrays, which stay in the processor's caches. Some products are replaced by smaller ones, as follows
(x: tokens; q: a query; Q, K, V, W: weights that project to queries, keys, values and output; ': transposed):

- The embedding and the projection to queries, keys and values are both linear. In the first block, their weights are
  multiplied first (the shortcut): inputs have few features, so this is less work than to project all tokens.
- If only the last token is read, the last block has one query per head. Its scores are q (x K)' = (q K') x', and the
  attention-weighted mean of the values x V is that of x, times V. So keys and values are not computed.
- With a single head, four matrices are multiplied into two ("folded"), Q K' and V W. Scores are (x Q K') x', so the
  tokens themselves are the keys. Values are x V W, so the output layer W is not applied afterwards.
- The key bias adds a constant to all scores of a query, which softmax cancels. The value bias adds a constant to all
  means, so it is added to the output bias.

Results equal those of `models.encoder` up to rounding. Automatic differentiation is used for attention with an encoding
that changes queries, keys or scores, for models that `fits` rejects, and as the reference in tests. Shapes: e members,
g members of a group, P parameters per member, b examples, n tokens, f input features, d features, h heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from placecode.compute.cpu.kernels import LANES, Kernels, Parts, kernels_for
from placecode.compute.cpu.products import Round, product, times, to_bf16, unrounded
from placecode.encodings import ALL, Additive, Encoding
from placecode.models.blocks import Attention, Linear, linear
from placecode.models.encoder import Stack

GROUP_VALUES = 1 << 19
"""Maximum size of a group's activation (members x examples x tokens x features), so that it fits into the caches."""
MIN_ROWS_PER_FEATURE = 2
"""Smallest ratio of rows (examples x tokens) to features for which folding (see the top of the module) saves time."""

Loss = Callable[[Tensor, Tensor], Tensor]  # returns losses (g,) from outputs and targets


def fits(stack: Stack) -> bool:
    """Return whether `Step` supports a stack: on a CPU, not created with `fast=False`, post-norm blocks, no dropout,
    and an encoding that is `Additive` or acts only inside attention (changes queries, keys or scores)."""
    member, encoding = stack.members[0], type(stack.encoding)
    supported = (encoding is Additive or encoding.add is Encoding.add) and member.norm == "post" and member.dropout == 0
    return supported and stack.flat.device.type == "cpu" and not stack.plain


class Step:
    """Callable that returns the losses of a stack and writes their gradients to `gradient`, (members, parameters)."""

    def __init__(self, stack: Stack, gradient: Tensor) -> None:
        self.stack, self.gradient, self.kernels = stack, gradient, kernels_for(stack.flat)
        gradient.index_fill_(1, stack.gaps, 0)
        self._stores: dict[str, Tensor] = {}
        self._groups: dict[tuple[int, int], _Group] = {}

    @torch.no_grad()
    def __call__(self, inputs: Tensor, targets: Tensor, loss: Loss) -> Tensor:
        """Return the loss of each member, (e,), for inputs (e, b, n, f). Under autocast, matrix products use bf16."""
        e, b, n, _ = inputs.shape
        rounded = to_bf16 if torch.is_autocast_enabled("cpu") else unrounded
        size = max(1, GROUP_VALUES // (b * n * self.stack.members[0].width))
        if type(self.stack.encoding) is not Additive:  # methods of other encodings compute all members at once
            size = e
        losses = []
        for first in range(0, e, size):
            part = slice(first, min(first + size, e))
            if (first, b) not in self._groups:
                self._groups[first, b] = _Group(self, part, b, n)
            with torch.autocast("cpu", enabled=False):
                losses.append(self._groups[first, b].run(inputs[part], targets[part], loss, rounded))
        return torch.cat(losses)

    def array(self, name: str, *shape: int) -> Tensor:
        """Return an uninitialized array of this shape. Groups of members share the memory of a `name`, so the content
        of an array is valid until the next group is computed."""
        size = math.prod(shape)
        if name not in self._stores or len(self._stores[name]) < size:
            self._stores[name] = self.stack.flat.new_empty(size)
        return self._stores[name][:size].view(shape)

    def named(self, flat: Tensor, part: slice) -> dict[str, Tensor]:
        """Return a dict from parameter names to views of `flat`, (e, P), for members `part`. Matrices: (g, in, out)."""
        by_id = dict(zip(map(id, self.stack.ordered), self.stack.views(flat), strict=True))
        views = {name: by_id[id(parameter)][part] for name, parameter in self.stack.named_parameters()}
        for name, module in self.stack.named_modules():
            if isinstance(module, Linear):
                views[f"{name}.weight"] = module.as_matrix(views[f"{name}.weight"])
        return views


class _Group:
    """A group: the members of a stack in the slice `part`, computed together, and their arrays for one batch size."""

    def __init__(self, step: Step, part: slice, batch: int, tokens: int) -> None:
        stack, self.b, self.n = step.stack, batch, tokens
        self.gain = None if stack.gain is None else stack.gain[part]  # no reference to the stack, to let it be freed
        self.readout = stack.readout
        self.encoding = None if type(stack.encoding) is Additive else stack.encoding
        self.w, self.dw = step.named(stack.flat, part), step.named(step.gradient, part)
        last = stack.members[0].layers - 1
        inside = last + 1 if stack.members[0].placement == "every" else 1  # number of blocks that use `encoding`
        self.blocks = [
            _Block(step, self, i, self.encoding if i < inside else None, i == last and stack.readout == "last")
            for i in range(last + 1)
        ]
        features, width = self.w["embedding.weight"].shape[1:]
        self.shortcut = features < width and self.blocks[0].projects
        tables = 0 if self.encoding is not None else self.w["encoding.table"].shape[1]
        self.with_pe = self.blocks[:tables]  # blocks to whose input a PE is added
        self.output = step.array("output", *self.blocks[-1].middle.shape)

    def run(self, inputs: Tensor, targets: Tensor, loss: Loss, rounded: Round) -> Tensor:
        """Return the losses of g members, (g,), and write gradients to `dw`. `rounded` rounds factors of products."""
        inputs = inputs.flatten(1, 2)  # (g, b n, f)
        for block in self.blocks:
            block.fold()
        self._embed(inputs)
        for i, block in enumerate(self.blocks):
            if i and block in self.with_pe:
                self._by_token(block.x).add_(self.w["encoding.table"][:, i, None])
            if block.projects and not (i == 0 and self.shortcut):
                block.project(rounded)
            block.forward(self.blocks[i + 1].x if i + 1 < len(self.blocks) else self.output, rounded)
        losses, gradient = self._answer(targets, loss)
        for name, dparameter in self.dw.items():
            if self.encoding is not None and name.startswith("encoding."):
                dparameter.zero_()  # blocks add their gradients to it
        for i, block in reversed(list(enumerate(self.blocks))):
            gradient = block.backward(gradient, rounded)
            if block.projects and not (i == 0 and self.shortcut):
                block.project_backward(gradient, rounded)
            if i and block in self.with_pe:
                torch.sum(self._by_token(gradient), 1, out=self.dw["encoding.table"][:, i])
        self._embed_backward(inputs, gradient)
        return losses

    def _by_token(self, x: Tensor) -> Tensor:
        """Return a view of x, (g, b n, d), in which examples and tokens have separate axes: (g, b, n, d)."""
        return x.view(len(x), self.b, self.n, -1)

    def _embed(self, inputs: Tensor) -> None:
        """Compute `x` and, with the shortcut (see the top), `projected` of the first block from raw inputs."""
        first, embedding = self.blocks[0], self.w["embedding.weight"]
        self.base = self.w["embedding.bias"][:, None].expand(-1, self.n, -1)  # (g, n, d)
        if self.with_pe:
            self.base = self.base + self.w["encoding.table"][:, 0]
        self._by_token(first.x).copy_(self.base[:, None])
        first.x.baddbmm_(inputs, embedding)
        if self.shortcut:
            self._by_token(first.projected).copy_(torch.bmm(self.base, first.matrix)[:, None])
            first.projected.baddbmm_(inputs, torch.bmm(embedding, first.matrix))

    def _embed_backward(self, inputs: Tensor, gradient: Tensor) -> None:
        first, dembedding = self.blocks[0], self.dw["embedding.weight"]
        torch.bmm(inputs.mT, gradient, out=dembedding)
        dbase = self._by_token(gradient).sum(1)  # (g, n, d)
        if self.shortcut:
            by_token = self._by_token(first.dprojected).sum(1)  # (g, n, 2 d or 3 d)
            by_feature = torch.bmm(inputs.mT, first.dprojected)  # (g, f, 2 d or 3 d)
            torch.bmm(self.w["embedding.weight"].mT, by_feature, out=first.dmatrix)
            first.dmatrix.baddbmm_(self.base.mT, by_token)
            first.unfold(by_token.sum(1))
            dembedding.baddbmm_(by_feature, first.matrix.mT)
            dbase.baddbmm_(by_token, first.matrix.mT)
        if self.with_pe:
            self.dw["encoding.table"][:, 0] = dbase
        torch.sum(dbase, 1, out=self.dw["embedding.bias"])

    def _answer(self, targets: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
        """Return the losses, (g,), and the gradient of `output`, by autograd. Write those of the read-out to `dw`."""
        arrays = self.output, self.w["answer.weight"], self.w["answer.bias"]
        x, weight, bias = leaves = [array.detach().requires_grad_() for array in arrays]
        with torch.enable_grad():
            if self.readout != "last":
                x = self._by_token(x).mean(2) if self.readout == "mean" else self._by_token(x)
            outputs = linear(x, weight, bias)
            losses = loss(outputs if self.gain is None else outputs * self.gain, targets)
            gradient, dweight, dbias = torch.autograd.grad(losses.sum(), leaves)
        self.dw["answer.weight"].copy_(dweight)
        self.dw["answer.bias"].copy_(dbias)
        return losses.detach(), gradient.contiguous()


class _Block:
    """One transformer block of a group: weights `w`, gradients `dw`, and activations that the backward pass needs. If
    `last_only` is true, only the last token is computed. Torch computes products with weights, `kernels` the rest."""

    def __init__(self, step: Step, group: _Group, index: int, encoding: Encoding | None, last_only: bool) -> None:
        self.kernels: Kernels = step.kernels
        self.encoding = encoding  # set if it acts inside attention
        self.last_only, self.index, name = last_only, index, f"blocks.{index}."
        self.attention: Attention = step.stack.get_submodule(name + "attention")  # type: ignore[assignment]
        self.group = group
        self.w = {key.removeprefix(name): value for key, value in group.w.items() if key.startswith(name)}
        self.dw = {key.removeprefix(name): value for key, value in group.dw.items() if key.startswith(name)}
        (g, d, hidden), b, n = self.w["up.weight"].shape, group.b, group.n
        self.b, self.n, self.heads, rows = b, n, step.stack.members[0].heads, b if last_only else b * n
        # whether `projected`, x times `matrix`, holds the queries, keys (unless folded) and values of all tokens
        self.projects = not last_only and encoding is None
        self.folded = self.projects and self.heads == 1 and rows >= MIN_ROWS_PER_FEATURE * d

        def new(key: str, *shape: int) -> Tensor:
            return step.array(name + key, g, *shape)

        self.x, self.up = new("x", b * n, d), new("up", rows, hidden)
        self.mixed, self.normalized_1, self.middle, self.down, self.normalized_2 = (
            new(key, rows, d) for key in ("mixed", "normalized_1", "middle", "down", "normalized_2")
        )
        self.out = self.mixed if self.folded else new("out", rows, d)
        self.inverse_std_1, self.inverse_std_2 = new("inverse_std_1", rows), new("inverse_std_2", rows)
        self.query_offset, self.offset = self.w["attention.projection.bias"][:, :d], self.w["attention.out.bias"]
        if encoding is None:
            self.offset = new("offset", d)
        if last_only:
            self.read, self.weights = new("read", b, d), new("weights", b, self.heads, n)
            self.query, self.means = new("query", self.heads, b, d), new("means", self.heads, b, d)
        else:
            self.weights = new("weights", b, self.heads, n, -(-n // LANES) * LANES)
        if self.folded:
            self.query_offset = new("query_offset", d)
            self.matrix, self.dmatrix = new("matrix", d, 2 * d), new("dmatrix", d, 2 * d)
        else:
            self.matrix, self.dmatrix = (views["attention.projection.weight"] for views in (self.w, self.dw))
        if self.projects:
            self.projected = new("projected", rows, self.matrix.shape[-1])
            self.dprojected = step.array("dprojected", *self.projected.shape)
        # shared by all blocks
        self.hidden, self.dhidden = step.array("hidden", g, rows, hidden), step.array("dhidden", g, rows, hidden)
        self.dmiddle, self.dsum = step.array("dmiddle", g, rows, d), step.array("dsum", g, rows, d)
        self.dx = step.array("dx", g, b * n, d)

    def _parts(self, projected: Tensor, x: Tensor) -> Parts:
        """Split `projected` into queries, keys and values; if folded, the keys are x. Same for gradients."""
        first, *between, last = projected.chunk(2 if self.folded else 3, -1)
        return first, x if self.folded else between[0], last

    def fold(self) -> None:
        """Set `offset` to value bias times W plus output bias, unless an encoding acts inside attention. If `folded`,
        set `matrix` to Q K' and V W side by side, and `query_offset` to query bias times K' (see the top)."""
        if self.encoding is not None:
            return
        (_, d), out = self.offset.shape, self.w["attention.out.weight"]
        query, key, value = self.w["attention.projection.weight"].chunk(3, -1)
        query_bias, _, value_bias = self.w["attention.projection.bias"].chunk(3, -1)
        torch.add(self.w["attention.out.bias"], times(value_bias, out), out=self.offset)
        if self.folded:
            torch.bmm(query, key.mT, out=self.matrix[..., :d])
            torch.bmm(value, out, out=self.matrix[..., d:])
            self.query_offset.copy_(times(query_bias, key.mT))

    def unfold(self, dprojected: Tensor) -> None:
        """Complete the gradients of the attention matrices and biases in `dw`. They follow from `dmatrix`, from the
        gradient of the output bias, and from that of the queries summed over tokens, `dprojected[:, :d]`. The gradient
        of the key bias is set to exactly 0: Adam would amplify rounding errors."""
        (_, d), out, dout = self.offset.shape, self.w["attention.out.weight"], self.dw["attention.out.weight"]
        query_bias, _, value_bias = self.w["attention.projection.bias"].chunk(3, -1)
        dquery_bias, dkey_bias, dvalue_bias = self.dw["attention.projection.bias"].chunk(3, -1)
        dquery_offset, doffset = dprojected[:, :d], self.dw["attention.out.bias"]
        if self.folded:
            query, key, value = self.w["attention.projection.weight"].chunk(3, -1)
            dquery, dkey, dvalue = self.dw["attention.projection.weight"].chunk(3, -1)
            dscores, dvalues = self.dmatrix.chunk(2, -1)
            torch.bmm(dscores, key, out=dquery)
            torch.bmm(dscores.mT, query, out=dkey).addcmul_(dquery_offset[:, :, None], query_bias[:, None])
            torch.bmm(dvalues, out.mT, out=dvalue)
            torch.bmm(value.mT, dvalues, out=dout)
            dquery_offset = times(dquery_offset, key)
        dout.addcmul_(value_bias[:, :, None], doffset[:, None])
        dquery_bias.copy_(dquery_offset)
        dkey_bias.zero_()
        dvalue_bias.copy_(times(doffset, out.mT))

    def forward(self, y: Tensor, rounded: Round) -> None:
        """Compute the output y of the block from `x` and, if `projects` is true, `projected` (see `project`)."""
        w, kernels = self.w, self.kernels
        if self.last_only:
            self.read.copy_(self.x.view(-1, self.b, self.n, self.x.shape[-1])[:, :, -1])
        if self.encoding is not None:
            self._attend_autograd(rounded)
        elif self.last_only:
            self._attend_last()
        else:
            kernels.attend(self.mixed, self.weights, self._parts(self.projected, self.x), self.query_offset)
        if not self.folded:
            product(self.out, rounded(self.mixed), rounded(w["attention.out.weight"]))
        kernels.norm(
            self.middle, self.normalized_1, self.inverse_std_1, self.read if self.last_only else self.x, self.out,
            self.offset, w["norm_1.scale"], w["norm_1.shift"], False,
        )  # fmt: skip
        product(self.up, rounded(self.middle), rounded(w["up.weight"]))
        kernels.gelu(self.hidden, self.up, w["up.bias"])
        product(self.down, rounded(self.hidden), rounded(w["down.weight"]))
        kernels.norm(
            y, self.normalized_2, self.inverse_std_2, self.middle, self.down,
            w["down.bias"], w["norm_2.scale"], w["norm_2.shift"], True,
        )  # fmt: skip

    def backward(self, dy: Tensor, rounded: Round) -> Tensor:
        """Return the gradient of `x` from `dy`, that of the block's output, without what `project_backward` adds."""
        w, dw, kernels, dmiddle, dsum = self.w, self.dw, self.kernels, self.dmiddle, self.dsum
        kernels.norm_backward(
            dmiddle, self.down, dy, self.normalized_2, self.inverse_std_2, w["down.bias"], w["norm_2.scale"],
            dw["norm_2.scale"], dw["norm_2.shift"], dw["down.bias"], True,
        )  # fmt: skip
        ddown = rounded(self.down)  # `down` now contains its gradient
        product(self.dhidden, ddown, rounded(w["down.weight"]).mT)
        kernels.gelu_backward(self.up, self.dhidden, w["up.bias"], dw["up.bias"])  # `up` now contains `hidden`
        product(dw["down.weight"], rounded(self.up).mT, ddown)
        dup = rounded(self.dhidden)
        product(dw["up.weight"], rounded(self.middle).mT, dup)
        product(dmiddle, dup, rounded(w["up.weight"]).mT, add=True)
        kernels.norm_backward(
            dsum, self.out, dmiddle, self.normalized_1, self.inverse_std_1, self.offset, w["norm_1.scale"],
            dw["norm_1.scale"], dw["norm_1.shift"], dw["attention.out.bias"], False,
        )  # fmt: skip
        dmixed = dsum
        if not self.folded:
            dout = rounded(dsum)
            product(dw["attention.out.weight"], rounded(self.mixed).mT, dout)
            dmixed = product(dmiddle, dout, rounded(w["attention.out.weight"]).mT)
        if self.encoding is not None:
            return self._attend_autograd_backward(dmixed)
        if self.last_only:
            return self._attend_last_backward(dmixed)
        into, parts = self._parts(self.dprojected, dsum), self._parts(self.projected, self.x)
        kernels.attend_backward(into, dmixed, self.weights, parts, self.query_offset, self.folded)
        return dsum

    def project(self, rounded: Round) -> None:
        product(self.projected, rounded(self.x), rounded(self.matrix))

    def project_backward(self, gradient: Tensor, rounded: Round) -> None:
        """Add the part through `projected` to `gradient`, that of `x`. Compute the gradients of attention weights."""
        dprojected = rounded(self.dprojected)
        product(self.dmatrix, rounded(self.x).mT, dprojected)
        product(gradient, dprojected, rounded(self.matrix).mT, add=True)
        self.unfold(self.dprojected[..., : self.x.shape[-1]].sum(1))

    def _by_head(self, x: Tensor) -> Tensor:
        """Return a view of x, (g, b, d), by head: (g, h, b, d / h); or of weights, (g, d, d): (g, h, d, d / h)."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def _attend_last(self) -> None:
        """Compute attention of the last token only. The key matrix is applied to its query instead of to all tokens."""
        d = self.x.shape[-1]
        to_query, to_key, to_value = self.w["attention.projection.weight"].chunk(3, -1)
        x = self.x.view(-1, self.b, self.n, d)
        self.q = self._by_head(linear(self.read, to_query, self.query_offset) * (d // self.heads) ** -0.5)
        torch.matmul(self.q, self._by_head(to_key).mT, out=self.query)
        self.kernels.attend_one(self.means, self.weights, self.query, x)
        self._by_head(self.mixed).copy_(self.means @ self._by_head(to_value))

    def _attend_last_backward(self, dmixed: Tensor) -> Tensor:
        d = self.x.shape[-1]
        to_query, to_key, to_value = self.w["attention.projection.weight"].chunk(3, -1)
        dto_query, dto_key, dto_value = self.dw["attention.projection.weight"].chunk(3, -1)
        x, dx = (array.view(-1, self.b, self.n, d) for array in (self.x, self.dx))
        by_head = self._by_head(dmixed)
        self._by_head(dto_value).copy_(self.means.mT @ by_head)
        dmeans, dquery = by_head @ self._by_head(to_value).mT, torch.empty_like(self.query)
        self.kernels.attend_one_backward(dx, dquery, dmeans, self.weights, self.query, x)
        self._by_head(dto_key).copy_(dquery.mT @ self.q)
        dq = (dquery @ self._by_head(to_key)).transpose(1, 2).flatten(2) * (d // self.heads) ** -0.5  # (g, b, d)
        torch.bmm(self.read.mT, dq, out=dto_query)
        self.unfold(dq.sum(1))
        dx[:, :, -1] += self.dsum.baddbmm_(dq, to_query.mT)
        return self.dx

    def _attend_autograd(self, rounded: Round) -> None:
        """Compute attention by `Attention.mix` and autograd, for an encoding that changes queries, keys or scores."""
        assert self.encoding is not None
        at, e = slice(self.n - 1, self.n) if self.last_only else ALL, len(self.x)
        low = torch.autocast("cpu", torch.bfloat16, enabled=rounded is to_bf16, cache_enabled=False)
        with torch.enable_grad(), low:
            x = self.x.view(e, self.b, self.n, -1).detach().requires_grad_()
            mixed = self.attention.mix(x, self.encoding, self.index, at, None).flatten(1, 2)
        self.mixed.copy_(mixed.detach())
        self.graph = x, mixed

    def _attend_autograd_backward(self, dmixed: Tensor) -> Tensor:
        assert self.encoding is not None
        x, mixed = self.graph
        parameters = {f"encoding.{name}": parameter for name, parameter in self.encoding.named_parameters()}
        leaves = [x, self.attention.projection.weight, self.attention.projection.bias, *parameters.values()]
        # if an encoding does not use a parameter in this block, the gradient of the parameter is zero
        dx, dweight, dbias, *rest = torch.autograd.grad(mixed, leaves, dmixed.to(mixed.dtype), materialize_grads=True)
        self.dw["attention.projection.weight"].copy_(dweight)
        self.dw["attention.projection.bias"].copy_(dbias)
        if "keys" not in self.encoding.rotated:  # otherwise the key bias has no effect
            self.dw["attention.projection.bias"].chunk(3, -1)[1].zero_()
        for name, dparameter in zip(parameters, rest, strict=True):
            self.group.dw[name] += dparameter
        if not self.last_only:
            return self.dsum.add_(dx.flatten(1, 2))
        dx[:, :, -1] += self.dsum
        return dx.flatten(1, 2)
