"""One pass through the layers: the same code trains, scores and prefills."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from gateway.providers.local.base_weights import BaseWeights, LayerWeights
from gateway.providers.local.layers import (
    LoraLinear,
    NormedLoraLinear,
    SwigluLoraLinear,
    TrainedLinear,
    rotate,
    swiglu,
)
from gateway.providers.local.lora import LoraTensors
from gateway.providers.local.packing import Pack
from gateway.providers.local.products import product


@dataclass(frozen=True)
class Network:
    """A base and the weights to compute with: the base's own, or merged ones."""

    base: BaseWeights
    layers: list[LayerWeights]

    def attention_break_even(self) -> float:
        """The sequence length at which attention takes as long as the linears of a layer.

        By operation count it is parameters / (2 · width); attention reaches less of the machine's speed and its
        backward pass costs more, which measured makes it 2.4 times as dear.
        """
        parameters = sum(weight.numel() for weight in self.layers[0].values())
        return parameters / (2 * self.base.shapes.query_width) / 2.4


# By layer, the rotated keys and the values of every node, each [N, kv_heads, head_width].
KeysValues = list[tuple[Tensor, Tensor]]


@torch.no_grad()
def hidden_states(network: Network, pack: Pack, keep: KeysValues | None = None) -> Tensor:
    """The residual stream after the last layer, [N, width], before the final norm; `keep` receives keys and values."""
    base, shapes = network.base, network.base.shapes
    stream, cosines, sines = _start(base, pack)
    for index, weights in enumerate(network.layers):
        normed = F.rms_norm(stream, (shapes.width,), base.attention_norms[index], base.norm_eps)
        query, key, value = split_heads(base, product(normed, weights["qkv"]), cosines, sines)
        if keep is not None:
            keep.append((key, value))
        stream += product(_attention(query, key, value, pack), weights["o"])
        normed = F.rms_norm(stream, (shapes.width,), base.mlp_norms[index], base.norm_eps)
        stream += product(swiglu(product(normed, weights["gate_up"])), weights["down"])
    return stream


def trained_hidden_states(network: Network, pack: Pack, lora: LoraTensors, gradient: LoraTensors) -> Tensor:
    """As `hidden_states`, with a graph behind it: backward adds the gradients of `lora` to `gradient`."""
    base = network.base
    stream, cosines, sines = _start(base, pack)
    # Autograd only walks back to something that wants a gradient, and the LoRA matrices do not pass through it.
    stream.requires_grad_(True)
    for index, weights in enumerate(network.layers):
        linears = {group: TrainedLinear(weights[group], index, group, lora, gradient) for group in weights}
        qkv = NormedLoraLinear.apply(stream, base.attention_norms[index], base.norm_eps, linears["qkv"])
        query, key, value = split_heads(base, qkv, cosines, sines)
        stream = stream + LoraLinear.apply(_attention(query, key, value, pack), linears["o"])
        gate_up = NormedLoraLinear.apply(stream, base.mlp_norms[index], base.norm_eps, linears["gate_up"])
        stream = stream + SwigluLoraLinear.apply(gate_up, linears["down"])
    return stream


def final_norm(base: BaseWeights, stream: Tensor) -> Tensor:
    """The norm between the last layer and the head."""
    return F.rms_norm(stream, (base.shapes.width,), base.final_norm, base.norm_eps)


def split_heads(base: BaseWeights, qkv: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[N, q | k | v] → rotated queries [N, heads, head_width], rotated keys and values [N, kv_heads, head_width]."""
    shapes = base.shapes
    query, key, value = qkv.split((shapes.query_width, shapes.key_width, shapes.key_width), -1)
    query = rotate(query.unflatten(-1, (shapes.heads, shapes.head_width)), cosines, sines)
    key = rotate(key.unflatten(-1, (shapes.kv_heads, shapes.head_width)), cosines, sines)
    return query, key, value.unflatten(-1, (shapes.kv_heads, shapes.head_width))


def _start(base: BaseWeights, pack: Pack) -> tuple[Tensor, Tensor, Tensor]:
    return base.embedding[pack.tokens], base.cosines[pack.positions, None], base.sines[pack.positions, None]


def _attention(query: Tensor, key: Tensor, value: Tensor, pack: Pack) -> Tensor:
    """Attention within each tree, [N, heads · head_width].

    Tree by tree rather than padded to the longest: the linears run unpadded, and no padding is kept for backward.
    """
    outputs = []
    trees = zip(_trees(query, pack), _trees(key, pack), _trees(value, pack), pack.masks, strict=True)
    for q, k, v, mask in trees:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)
        outputs.append(mixed[0].transpose(0, 1).flatten(1))
    return torch.cat(outputs)


def _trees(heads: Tensor, pack: Pack) -> Iterator[Tensor]:
    """[N, heads, head_width] → by tree [1, heads, n, head_width]."""
    for tree in heads.split(pack.lengths):
        yield tree.transpose(0, 1)[None]
