"""What the embedded engine's process holds at most, in bytes: everything in 32 bits, on a CPU.

Its weights are the base's and, beside them, a merged copy of each adapter in use. Sampling and training take turns, so
what they hold is not added up: the larger counts. Held against the real process by `python -m benchmarks.plan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from algorithms import ALGORITHMS
from algorithms.memory import Memory
from algorithms.model_specs import ModelSpec
from flows.checks.plan_lengths import Lengths
from flows.checks.prepared import Prepared

FP32 = 4
PROCESS = 400_000_000
"""Measured: Python, torch and its work areas, before and beside the weights."""

PACK_TOKENS, HEAD_POSITIONS, CACHE_BYTES, MOST_ROWS, CACHE_BLOCK = 1024, 256, 512 * 2**20, 128, 64
MERGED, SNAPSHOTS = 2, 4
"""The gateway's defaults: what passes through the network or is kept at one time."""

VECTORS = 5
"""Of an adapter that is trained: weights, Adam's two moments, the gathered gradient and the one that is added to it."""

LOGITS_COPIES = 3
"""Logits, probabilities, and what lies between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a run has the engine hold.

    Args:
        rank: of the adapters.
        trained: runs that are trained: the policy, a critic.
        frozen: runs with weights of their own beside those: a teacher, a reference that began from a saved state.
        packed: distinct tokens of a `forward_backward`.
        longest: tokens of the longest sequence.
        prompts: that are sampled at one time; 0 where nothing is.
        rows: completions at one time.
        prompt: tokens of the longest prompt.
        completion: tokens of the longest completion.
    """

    rank: int
    trained: int = 1
    frozen: int = 0
    packed: float
    longest: float
    prompts: int = 0
    rows: int = 0
    prompt: float = 0
    completion: float = 0


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
        return Memory(PROCESS + base + kept, copies * adapter, cache, drawing)
    return Memory(PROCESS + base + kept, copies * adapter, 0, training)


def local_memory(prepared: Prepared, spec: ModelSpec, length: Lengths) -> Memory:
    """The peak of a run on the provider "local"."""
    config, roles = prepared.config, prepared.config.needs(ALGORITHMS[prepared.algorithm]).extra_runs
    groups, size = getattr(config, "groups_per_cycle", 0), getattr(config, "group_size", 0)
    rows, answers = groups * size, getattr(config, "batch_size", 0)
    begun = config.model.initial_state_id or config.model.initial_artifact_id
    return engine_memory(
        spec,
        Held(
            rank=config.lora.rank,
            trained=2 if "critic" in roles else 1,
            frozen=sum(1 for role in roles if role == "teacher" or (role == "reference" and begun)),
            packed=(groups + answers) * length.prompt + (rows + answers) * length.completion.most,
            longest=length.longest_prompt + length.completion.most,
            prompts=groups,
            rows=rows,
            prompt=length.longest_prompt,
            completion=length.completion.most,
        ),
    )


def _training(spec: ModelSpec, held: Held) -> float:
    """A backward pass over one pack: what every layer keeps of a token, and what one layer's needs in passing."""
    queries, keys = spec.heads * spec.head_size, spec.kv_heads * spec.head_size
    layer = 2 * spec.d_model + 4 * queries + 3 * keys + 2 * spec.d_ff
    tokens = min(held.packed, max(PACK_TOKENS, held.longest))
    logits = LOGITS_COPIES * min(HEAD_POSITIONS, tokens) * spec.vocab
    return FP32 * (tokens * (spec.layers * layer + 6 * spec.d_ff) + logits)


def _sampling(spec: ModelSpec, held: Held) -> tuple[float, float]:
    """Keys and values of a wave, and its rows of logits."""
    token = FP32 * 2 * spec.layers * spec.kv_heads * spec.head_size
    own = held.rows * CACHE_BLOCK * ceil(held.completion / CACHE_BLOCK)
    cache = min(token * (held.prompts * held.prompt + own), CACHE_BYTES)
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
