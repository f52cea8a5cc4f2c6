"""The differentiable pieces of a layer, each an autograd function over merged weights.

The forward pass multiplies by W + s·B·A as one matrix. The backward pass needs that matrix for the gradient of the
input, and only the thin products for the gradients of A and B, which go straight into the gradient vector: 4 operations
a parameter and token where autograd through separate LoRA branches pays 6. Each piece keeps its input and recomputes
the cheap elementwise part, which halves what a token leaves in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from gateway.providers.local.base_weights import FUSED_LINEARS
from gateway.providers.local.lora import LoraTensors
from gateway.providers.local.products import product


@dataclass(frozen=True)
class TrainedLinear:
    """One fused linear of one layer: its merged weight, the LoRA matrices in it, and where their gradients go."""

    weight: Tensor
    layer: int
    group: str
    lora: LoraTensors
    gradient: LoraTensors

    def backward(self, inputs: Tensor, output_gradient: Tensor) -> Tensor:
        """Add the gradients of A and B; return the gradient of `inputs`, [N, in]."""
        linears, scale, rank = FUSED_LINEARS[self.group], self.lora.layout.scale, self.lora.layout.rank
        down = torch.cat([self.lora.a(self.layer, linear) for linear in linears])
        inputs_down = inputs @ down.t()
        outputs_up = torch.empty_like(inputs_down)
        row = 0
        for index, linear in enumerate(linears):
            b = self.lora.b(self.layer, linear)
            part = output_gradient[:, row : row + len(b)]
            ranks = slice(index * rank, (index + 1) * rank)
            self.gradient.b(self.layer, linear).addmm_(part.t(), inputs_down[:, ranks], alpha=scale)
            torch.mm(part, b, out=outputs_up[:, ranks])
            row += len(b)
        a_gradient = outputs_up.t() @ inputs
        for index, linear in enumerate(linears):
            ranks = slice(index * rank, (index + 1) * rank)
            self.gradient.a(self.layer, linear).add_(a_gradient[ranks], alpha=scale)
        return output_gradient @ self.weight


class LoraLinear(torch.autograd.Function):
    """x [N, in] → x·Wᵀ [N, out]."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, linear: TrainedLinear) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.linear = linear
        return product(inputs, linear.weight)

    @staticmethod
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor, None]:
        (inputs,) = ctx.saved_tensors
        return ctx.linear.backward(inputs, output_gradient), None


class NormedLoraLinear(torch.autograd.Function):
    """x [N, d] → rms_norm(x)·Wᵀ [N, out]; keeps x alone."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, norm: Tensor, eps: float, linear: TrainedLinear) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.norm, ctx.eps, ctx.linear = norm, eps, linear
        return product(F.rms_norm(inputs, norm.shape, norm, eps), linear.weight)

    @staticmethod
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (inputs,) = ctx.saved_tensors
        reciprocal = torch.rsqrt(inputs.square().mean(-1, keepdim=True) + ctx.eps)
        direction = inputs * reciprocal
        gradient = ctx.linear.backward(direction * ctx.norm, output_gradient).mul_(ctx.norm)
        along = (gradient * direction).mean(-1, keepdim=True)
        return gradient.sub_(direction.mul_(along)).mul_(reciprocal), None, None, None


class SwigluLoraLinear(torch.autograd.Function):
    """[gate | up] [N, 2·inner] → (silu(gate)·up)·Wᵀ [N, d] (SwiGLU, arXiv 2002.05202); keeps gate and up alone."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor, linear: TrainedLinear) -> Tensor:
        ctx.save_for_backward(gate_up)
        ctx.linear = linear
        return product(swiglu(gate_up), linear.weight)

    @staticmethod
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor, None]:
        (gate_up,) = ctx.saved_tensors
        gate, up = gate_up.chunk(2, -1)
        sigmoid = torch.sigmoid(gate)
        silu = gate * sigmoid
        inner_gradient = ctx.linear.backward(silu * up, output_gradient)
        gradient = torch.empty_like(gate_up)
        gate_gradient, up_gradient = gradient.chunk(2, -1)
        torch.mul(inner_gradient, silu, out=up_gradient)
        # silu'(g) = σ + silu·(1 − σ)
        torch.mul(inner_gradient.mul_(up), silu.mul_(1 - sigmoid).add_(sigmoid), out=gate_gradient)
        return gradient, None


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate)·up of [gate | up]."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate).mul_(up)


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """RoPE on [N, heads, head_width]; `cosines`, `sines` are [N, 1, head_width] at the tokens' positions."""
    first, second = heads.chunk(2, -1)
    return heads * cosines + torch.cat((-second, first), -1) * sines
