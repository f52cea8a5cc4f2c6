"""One decoding step over two caches: the prompts', one entry a prompt however many rows continue it, and the rows' own.

A row attends to both; the scores are joined before the softmax. Rows of one prompt read its keys in one product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from gateway.providers.local.base_weights import Shapes
from gateway.providers.local.forward import KeysValues, Network, split_heads
from gateway.providers.local.layers import swiglu
from gateway.providers.local.products import product

_BLOCK = 64  # columns by which the rows' own cache grows


@dataclass(frozen=True)
class PromptCache:
    """By layer, keys and values of P prompts, [P, kv_heads, longest prompt, head_width], padded on the right.

    `lengths` [P] in tokens; `bias` [P, 1, 1, longest] is −inf on the padding.
    """

    keys: list[Tensor]
    values: list[Tensor]
    lengths: Tensor
    bias: Tensor

    @classmethod
    def empty(cls, shapes: Shapes, lengths: list[int]) -> PromptCache:
        """Room for prompts of these lengths."""
        size = (len(lengths), shapes.kv_heads, max(lengths), shapes.head_width)
        measured = torch.tensor(lengths)
        padding = torch.arange(max(lengths))[None] >= measured[:, None]
        return cls(
            keys=[torch.zeros(size) for _ in range(shapes.layers)],
            values=[torch.zeros(size) for _ in range(shapes.layers)],
            lengths=measured,
            bias=torch.zeros(padding.shape).masked_fill_(padding, float("-inf"))[:, None, None],
        )

    def fill(self, paths: dict[int, Tensor], kept: KeysValues) -> None:
        """Copy what one pass over some of the prompts left behind; `paths` gives each prompt's nodes."""
        for layer, (keys, values) in enumerate(kept):
            for place, path in paths.items():
                self.keys[layer][place, :, : len(path)] = keys[path].transpose(0, 1)
                self.values[layer][place, :, : len(path)] = values[path].transpose(0, 1)


@dataclass
class OwnCache:
    """By layer, keys and values of what the rows have written, [B, kv_heads, capacity, head_width]."""

    keys: list[Tensor]
    values: list[Tensor]
    length: int = 0

    @classmethod
    def empty(cls, shapes: Shapes, rows: int) -> OwnCache:
        """No token written yet."""
        size = (rows, shapes.kv_heads, 0, shapes.head_width)
        return cls([torch.zeros(size)] * shapes.layers, [torch.zeros(size)] * shapes.layers)

    def make_room(self) -> None:
        """One more column for every layer."""
        if self.length == self.keys[0].shape[2]:
            self.keys = [F.pad(keys, (0, 0, 0, _BLOCK)) for keys in self.keys]
            self.values = [F.pad(values, (0, 0, 0, _BLOCK)) for values in self.values]
        self.length += 1

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put one token's [B, kv_heads, head_width] into the last column; return all that is written so far."""
        self.keys[layer][:, :, self.length - 1] = key
        self.values[layer][:, :, self.length - 1] = value
        return self.keys[layer][:, :, : self.length], self.values[layer][:, :, : self.length]

    def keep(self, rows: Tensor) -> None:
        """Drop the rows that are finished."""
        self.keys = [keys[rows] for keys in self.keys]
        self.values = [values[rows] for values in self.values]


def decode_step(
    network: Network, tokens: Tensor, positions: Tensor, *, prompts: Tensor, prompt_cache: PromptCache, own: OwnCache
) -> Tensor:
    """The residual stream [B, width] after feeding each row its newest token at its position.

    `prompts` [B] is each row's entry in `prompt_cache`, ascending.
    """
    base, shapes = network.base, network.base.shapes
    groups = _RowGroups.of(prompts, len(prompt_cache.lengths))
    stream = base.embedding[tokens]
    cosines, sines = base.cosines[positions, None], base.sines[positions, None]
    own.make_room()
    for index, weights in enumerate(network.layers):
        normed = F.rms_norm(stream, (shapes.width,), base.attention_norms[index], base.norm_eps)
        query, key, value = split_heads(base, product(normed, weights["qkv"]), cosines, sines)
        own_keys, own_values = own.write(index, key, value)
        # Query heads beside the key head they share: [B, kv_heads, heads / kv_heads, head_width].
        query = query.unflatten(1, (shapes.kv_heads, -1)) / math.sqrt(shapes.head_width)
        prompt_scores = torch.matmul(groups.gather(query), prompt_cache.keys[index].transpose(-1, -2))
        prompt_scores = groups.scatter(prompt_scores + prompt_cache.bias)
        scores = torch.cat([prompt_scores, torch.matmul(query, own_keys.transpose(-1, -2))], -1).softmax(-1)
        on_prompt, on_own = scores.split((prompt_scores.shape[-1], own.length), -1)
        mixed = torch.matmul(on_own, own_values)
        mixed += groups.scatter(torch.matmul(groups.gather(on_prompt), prompt_cache.values[index]))
        stream += product(mixed.flatten(1), weights["o"])
        normed = F.rms_norm(stream, (shapes.width,), base.mlp_norms[index], base.norm_eps)
        stream += product(swiglu(product(normed, weights["gate_up"])), weights["down"])
    return stream


@dataclass(frozen=True)
class _RowGroups:
    """Rows arranged by prompt, padded to the largest group: [B, kv, r, ·] ↔ [P, kv, largest · r, ·]."""

    prompts: int
    largest: int
    slots: Tensor | None
    """Each row's place in the padded arrangement; None where no group needs padding."""

    @classmethod
    def of(cls, prompt_of_row: Tensor, prompts: int) -> _RowGroups:
        sizes = torch.bincount(prompt_of_row, minlength=prompts)
        largest = int(sizes.max())
        if prompts * largest == len(prompt_of_row):
            return cls(prompts, largest, None)
        first = sizes.cumsum(0) - sizes
        within = torch.arange(len(prompt_of_row)) - first[prompt_of_row]
        return cls(prompts, largest, prompt_of_row * largest + within)

    def gather(self, rows: Tensor) -> Tensor:
        if self.slots is not None:
            padded = rows.new_zeros(self.prompts * self.largest, *rows.shape[1:])
            rows = padded.index_copy_(0, self.slots, rows)
        by_prompt: Tensor = rows.unflatten(0, (self.prompts, self.largest))
        return by_prompt.transpose(1, 2).flatten(2, 3)

    def scatter(self, by_prompt: Tensor) -> Tensor:
        rows: Tensor = by_prompt.unflatten(2, (self.largest, -1)).transpose(1, 2).flatten(0, 1)
        return rows if self.slots is None else rows[self.slots]
