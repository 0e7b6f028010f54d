"""Rotary positional encoding (RoPE): queries and keys are rotated by angles that grow with position (Su et al. 2021).

The option `axes=2` selects the 2-D version, in which half of the rotated features depend on the first coordinate of a
token and the other half on the second. The frequencies are fixed by the option `base`; nothing is learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from placecode.encodings.base import ALL, Encoding, Layout
from placecode.errors import BadInput
from placecode.models.member import Member
from placecode.validation import real_number, whole_number


class Rotary(Encoding):
    """Rotary encoding: each pair of features (2i, 2i + 1) is rotated by the angle position * base^(-2i / r).

    r is the number of rotated features per axis. With k > 1 axes (axial rotary), the first r features of a head are
    rotated by the position on the first axis, the next r by the position on the second, and so on. The option
    `fraction` is the fraction of the features of each head that is rotated, 0.5 in the code published with the paper
    (Ito et al.).

    To use it in your own model, call `q, k = pe(q, k)` on queries and keys of shape (b, h, n, c), with c features per
    head, before the attention scores are computed.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"axes": 1, "fraction": 1.0, "base": 10000.0}
    cosines: Tensor
    sines: Tensor

    def __init__(self, members: Sequence[Member], layout: Layout) -> None:
        super().__init__(members, layout)
        options, head_width = dict(self.settings(members[0])), members[0].width // members[0].heads
        axes = whole_number("axes", options["axes"], least=1)
        fraction = real_number("fraction", options["fraction"], above=0, most=1)
        coordinates = layout.coordinates(axes)
        # an even number of features per axis; 1e-9 corrects rounding, so that 0.58 of 100 is 58
        axis_features = 2 * int(fraction * head_width / (2 * axes) + 1e-9)
        if axis_features == 0:
            raise BadInput(
                f"rotary with axes={axes} and fraction={fraction:g} must turn at least {2 * axes} features of a head; "
                f"got heads of {head_width} features."
            )
        frequencies = real_number("base", options["base"], above=0) ** (-np.arange(0, axis_features, 2) / axis_features)
        angles = torch.from_numpy((coordinates[:, :, None] * frequencies).reshape(layout.tokens, -1))  # (n, k r / 2)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def _rotate(self, x: Tensor, at: slice) -> Tensor:
        """Return x, (..., m, c), rotated by the positions of the m tokens `at`."""
        cos, sin = self.cosines[at].to(x.dtype), self.sines[at].to(x.dtype)  # (m, k r / 2)
        pairs, rest = x[..., : 2 * cos.shape[-1]], x[..., 2 * cos.shape[-1] :]
        a, b = pairs[..., 0::2], pairs[..., 1::2]
        rotated = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
        return torch.cat([rotated, rest], dim=-1) if rest.shape[-1] else rotated

    def rotate(self, q: Tensor, k: Tensor, block: int = 0, at: slice = ALL) -> tuple[Tensor, Tensor]:
        return self._rotate(q, at), self._rotate(k, ALL)

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return q and k, (b, h, n, c), rotated by position. n is at most the number of tokens of the encoding."""
        if max(q.shape[-2], k.shape[-2]) > self.tokens:
            raise BadInput(f"q and k must have at most {self.tokens} tokens; got {q.shape[-2]} and {k.shape[-2]}.")
        return self._rotate(q, slice(q.shape[-2])), self._rotate(k, slice(k.shape[-2]))
