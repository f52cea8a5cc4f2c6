"""What a run keeps in a GPU's memory, in bytes: the formulas of tinker-nomics, and what they leave to be added.

Weights are bfloat16, 2 bytes. Keys and values, and activations, depend on how many tokens are held at once; the
estimates here are for kernels that never hold a context × context matrix (FlashAttention, arXiv 2205.14135).
"""

from __future__ import annotations

from dataclasses import dataclass

from algorithms.model_specs import ModelSpec

BF16 = 2
FULL_STATE = 16
"""Bytes per trained parameter: bfloat16 weights and gradients, 32-bit weights and both moments of Adam."""

LORA_BYTES = 500_000_000
"""An adapter of rank 32 with its optimizer, as tinker-nomics rounds it."""

LAYER_BYTES_PER_WIDTH, KEPT_BYTES_PER_WIDTH = 34, 2
"""Activations of one layer and token, per unit of width: all of them, or a block's input alone where the rest is
computed again (arXiv 2205.05198, table 2, without what FlashAttention does not keep)."""

LOGITS_BYTES = 6
"""Per token and row of the vocabulary: the logits in bfloat16 and their gradient in 32 bits."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by what they hold.

    Args:
        weights: of the base, and of copies of it.
        adapter_and_optimizer: of all adapters, with what trains them.
        kv_cache: keys and values; 0 where sampling has no part in the peak.
        activations: of a backward pass; or, where sampling is the peak, of its logits.
        process: what a process takes beside them, Python and its libraries.
    """

    weights: float
    adapter_and_optimizer: float = 0
    kv_cache: float = 0
    activations: float = 0
    process: float = 0

    @property
    def total(self) -> float:
        """All of them at once, as on a GPU that samples and trains in turn without giving memory back."""
        return self.weights + self.adapter_and_optimizer + self.kv_cache + self.activations + self.process


def lora_memory(total: float, frozen: float = 0, *, kv_cache: float = 0, activations: float = 0) -> Memory:
    """GRPO with LoRA and its like: 2·P_total + 2·P_ref + 500 MB + keys and values + activations.

    Args:
        total: parameters of the policy's model.
        frozen: parameters of the reference or teacher, 0 where there is none. A reference that is the policy's base
            without its adapter takes no more.
        kv_cache: bytes, see `kv_cache_bytes`.
        activations: bytes, see `activation_bytes`.
    """
    return Memory(BF16 * (total + frozen), LORA_BYTES, kv_cache, activations)


def ppo_memory(policy: float, critic: float, reference: float, reward_model: float) -> Memory:
    """PPO with all parameters: 16·P_total + 16·P_critic + 2·P_ref + 2·P_RM."""
    trained = policy + critic
    return Memory(BF16 * (trained + reference + reward_model), (FULL_STATE - BF16) * trained)


def adapter_bytes(parameters: float) -> float:
    """An adapter of so many parameters with gradients and Adam's state, where they are counted and not rounded."""
    return FULL_STATE * parameters


def kv_cache_bytes(spec: ModelSpec, tokens: float) -> float:
    """Keys and values of so many tokens held at once: completions at once × their context."""
    return spec.kv_bytes_per_token * tokens


def activation_bytes(spec: ModelSpec, tokens: float, *, recompute: bool = True) -> float:
    """What a backward pass over so many tokens holds, logits among it.

    Args:
        spec: of the model.
        tokens: of one micro-batch.
        recompute: whether blocks are computed again in the backward pass, as all large trainers do: then every block
            keeps its input, and one block at a time all it has.
    """
    everything = LAYER_BYTES_PER_WIDTH * spec.d_model
    if recompute:
        per_token = spec.layers * KEPT_BYTES_PER_WIDTH * spec.d_model + everything
    else:
        per_token = spec.layers * everything
    return tokens * (per_token + LOGITS_BYTES * spec.vocab)
