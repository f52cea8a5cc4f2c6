"""What a run trains — LoRA matrices (arXiv 2106.09685), a critic's value head — kept in ONE flat vector.

Parameters, gradients and Adam's moments have the same layout, so that an optimizer step, a snapshot, a norm or a check
for NaN is one operation on one vector; the matrices are views into it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gateway.providers.local.base_weights import FUSED_LINEARS, LayerWeights, Shapes

LINEARS = tuple(linear for group in FUSED_LINEARS.values() for linear in group)


@dataclass(frozen=True)
class LoraLayout:
    """Where each matrix lies in the flat vector. `scale` = alpha / rank multiplies B·A.

    With `value_head`, a critic's, a linear from d_model to 1 with its bias lies behind the matrices.
    """

    shapes: Shapes
    rank: int
    alpha: float
    value_head: bool = False

    @property
    def scale(self) -> float:
        """The factor of the update, alpha / rank."""
        return self.alpha / self.rank

    @cached_property
    def matrices(self) -> list[tuple[int, str, str, tuple[int, int]]]:
        """(layer, linear, "A" | "B", shape) in the vector's order; A is [rank, in], B is [out, rank]."""
        found: list[tuple[int, str, str, tuple[int, int]]] = []
        for layer in range(self.shapes.layers):
            for linear in LINEARS:
                inputs, outputs = self.shapes.linear(linear)
                found.append((layer, linear, "A", (self.rank, inputs)))
                found.append((layer, linear, "B", (outputs, self.rank)))
        return found

    @cached_property
    def size(self) -> int:
        """The number of trainable parameters."""
        head = self.shapes.width + 1 if self.value_head else 0
        return sum(rows * columns for *_, (rows, columns) in self.matrices) + head


class LoraTensors:
    """A flat vector seen as matrices: parameters, a gradient or a moment."""

    def __init__(self, layout: LoraLayout, flat: Tensor | None = None) -> None:
        """View `flat`, or a new vector of zeros."""
        self.layout = layout
        self.flat = torch.zeros(layout.size) if flat is None else flat
        self._views: dict[tuple[int, str, str], Tensor] = {}
        start = 0
        for layer, linear, side, shape in layout.matrices:
            end = start + math.prod(shape)
            self._views[layer, linear, side] = self.flat[start:end].view(shape)
            start = end
        self._head = self.flat[start:]

    def a(self, layer: int, linear: str) -> Tensor:
        """A of one linear, [rank, in]."""
        return self._views[layer, linear, "A"]

    def b(self, layer: int, linear: str) -> Tensor:
        """B of one linear, [out, rank]."""
        return self._views[layer, linear, "B"]

    @property
    def value_weight(self) -> Tensor:
        """The value head's weight, [1, d_model]; of a layout with one."""
        return self._head[None, :-1]

    @property
    def value_bias(self) -> Tensor:
        """The value head's bias, [1]; of a layout with one."""
        return self._head[-1:]

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor under the name it has in a state file, `layers.3.q_proj.A`, `value_head.bias`."""
        for (layer, linear, side), view in self._views.items():
            yield f"layers.{layer}.{linear}.{side}", view
        if self.layout.value_head:
            yield "value_head.weight", self.value_weight
            yield "value_head.bias", self.value_bias

    def changes_nothing(self) -> bool:
        """Whether every B is zero, as in an untrained adapter: the base's layers then are the model's."""
        return not any(bool(view.any()) for (_, _, side), view in self._views.items() if side == "B")


def fresh_parameters(layout: LoraLayout, seed: int) -> LoraTensors:
    """A ~ U(−1/√in, 1/√in), B = 0: PEFT's default start, drawn in a fixed order from a seed; a value head is 0."""
    generator = torch.Generator().manual_seed(seed)
    parameters = LoraTensors(layout)
    for layer, linear, side, shape in layout.matrices:
        if side == "A":
            bound = 1.0 / math.sqrt(shape[1])
            parameters.a(layer, linear).copy_((torch.rand(shape, generator=generator) * 2 - 1) * bound)
    return parameters


def merge(base: list[LayerWeights], lora: LoraTensors, into: list[LayerWeights] | None = None) -> list[LayerWeights]:
    """W + scale·B·A for every linear, written over `into` where given."""
    merged = into or [{group: torch.empty_like(weight) for group, weight in layer.items()} for layer in base]
    for index, layer in enumerate(base):
        for group, linears in FUSED_LINEARS.items():
            row = 0
            for linear in linears:
                b, a = lora.b(index, linear), lora.a(index, linear)
                rows = slice(row, row + len(b))
                torch.addmm(layer[group][rows], b, a, alpha=lora.layout.scale, out=merged[index][group][rows])
                row = rows.stop
    return merged
