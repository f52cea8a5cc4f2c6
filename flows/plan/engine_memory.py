"""What the embedded engine's process holds at most, in bytes: everything in 32 bits, on a CPU.

Its weights are the base's and, beside them, a merged copy of each adapter in use. Sampling and training take turns, so
what they hold is not added up: the larger counts. Held against the real process by `python -m benchmarks.plan`.
"""

from __future__ import annotations

from math import ceil

from algorithms.memory import Memory
from algorithms.model_specs import ModelSpec
from flows.plan.engine_work import Held

FP32 = 4
PROCESS = 300_000_000
"""Measured: Python, torch and its work areas, before and beside the weights."""

HEAD_POSITIONS, CACHE_BYTES, MOST_ROWS, CACHE_BLOCK = 256, 512 * 2**20, 128, 64
MERGED, SNAPSHOTS = 2, 4
"""The gateway's defaults: what passes through the network or is kept at one time."""

VECTORS = 5
"""Of an adapter that is trained: weights, Adam's two moments, the gathered gradient and the one that is added to it."""

LOGITS_COPIES = 3
"""Logits, probabilities, and what lies between them."""

HEAP, HEAP_AGAIN = 1.3, 1.75
"""What glibc's heap takes for what a backward pass keeps, measured with one pack and with several.

Room for an aligned tensor is looked for with some to spare, so where one has been there is none for another of its
size, and the second pack finds little where the first one was. With a mapping for each tensor (MALLOC_MMAP_THRESHOLD_)
the factor is 1, for a fifth more CPU time.
"""


def engine_memory(spec: ModelSpec, held: Held) -> Memory:
    """The peak, by what is held."""
    adapter = FP32 * _adapter_parameters(spec, held.rank)
    copies = held.trained * VECTORS + held.frozen + (SNAPSHOTS if held.rows else 0)
    base = FP32 * spec.total
    kept = FP32 * min(MERGED, held.trained + held.frozen) * _linear_parameters(spec)
    # While a model is loaded, its file is in memory beside the weights; nothing else is there yet.
    loading = base - kept - copies * adapter
    training = max(_training(spec, held), loading)
    cache, drawing = _sampling(spec, held)
    if cache + drawing > training:
        return Memory(base + kept, copies * adapter, cache, drawing, PROCESS)
    return Memory(base + kept, copies * adapter, 0, training, PROCESS)


def _training(spec: ModelSpec, held: Held) -> float:
    """A backward pass over one pack: what every layer keeps of a token, and what one layer's needs in passing."""
    queries, keys = spec.heads * spec.head_size, spec.kv_heads * spec.head_size
    layer = 2 * spec.d_model + 4 * queries + 3 * keys + 2 * spec.d_ff
    replies = held.pack * held.samples * held.completion / held.tree
    logits = LOGITS_COPIES * min(HEAD_POSITIONS, replies) * spec.vocab
    heap = HEAP_AGAIN if held.packed >= 2 * held.pack else HEAP
    return FP32 * (heap * held.pack * (spec.layers * layer + 6 * spec.d_ff) + logits)


def _sampling(spec: ModelSpec, held: Held) -> tuple[float, float]:
    """Keys and values of a wave, and its rows of logits."""
    token = FP32 * 2 * spec.layers * spec.kv_heads * spec.head_size
    own = held.rows * CACHE_BLOCK * ceil(held.completion / CACHE_BLOCK)
    cache = min(token * (held.prompts * held.longest_prompt + own), CACHE_BYTES) if held.rows else 0.0
    return cache, FP32 * LOGITS_COPIES * min(held.rows, MOST_ROWS) * spec.vocab


def _linear_parameters(spec: ModelSpec) -> int:
    return sum(inputs * outputs for inputs, outputs in _linears(spec)) * spec.layers


def _adapter_parameters(spec: ModelSpec, rank: int) -> int:
    return sum(inputs + outputs for inputs, outputs in _linears(spec)) * spec.layers * rank


def _linears(spec: ModelSpec) -> list[tuple[int, int]]:
    """(in, out) of the seven that LoRA adapts."""
    d_model, queries, keys = spec.d_model, spec.heads * spec.head_size, spec.kv_heads * spec.head_size
    gated = [(d_model, spec.d_ff)] * 2
    return [(d_model, queries), (d_model, keys), (d_model, keys), (queries, d_model), *gated, (spec.d_ff, d_model)]
