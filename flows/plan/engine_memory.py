"""What the embedded engine's process holds at most, in bytes: everything in 32 bits, on a CPU.

Its weights are the base's and, beside them, a merged copy of each adapter in use. Sampling and training take turns, so
what they hold is not added up: the larger counts. Held against the real process by `python -m benchmarks.plan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from algorithms.memory import Memory
from algorithms.model_specs import ModelSpec

FP32 = 4
PROCESS = 300_000_000
"""Measured: Python, torch and its work areas, before and beside the weights."""

PACK_TOKENS, HEAD_POSITIONS, CACHE_BYTES, MOST_ROWS, CACHE_BLOCK = 1024, 256, 512 * 2**20, 128, 64
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a run has the engine hold.

    Args:
        rank: of the adapters.
        trained: runs that are trained: the policy, a critic.
        frozen: runs with weights of their own beside those: a teacher, a reference that began from a saved state.
        prompts: that a `forward_backward` has, each once.
        samples: completions of each, or given replies.
        prompt: tokens of a prompt.
        longest_prompt: tokens of the longest.
        completion: tokens of a completion.
        sampled: whether completions are drawn here, all at one time.
        even: whether completions are all as long.
    """

    rank: int
    trained: int = 1
    frozen: int = 0
    prompts: int
    samples: int
    prompt: float
    longest_prompt: float
    completion: float
    sampled: bool
    even: bool = False

    @property
    def rows(self) -> int:
        """Completions that are drawn at one time."""
        return self.prompts * self.samples if self.sampled else 0

    @property
    def tree(self) -> float:
        """Distinct tokens of a prompt with all that follows it."""
        return self.prompt + self.samples * self.completion

    @property
    def packed(self) -> float:
        """Distinct tokens of a `forward_backward`."""
        return self.prompts * self.tree

    @property
    def pack(self) -> float:
        """Those of its largest pack: whole trees, which fill it where they differ."""
        room = max(PACK_TOKENS, self.longest_prompt + self.completion)
        if self.even and self.tree < room:
            room = room // self.tree * self.tree
        return min(self.packed, room)


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
