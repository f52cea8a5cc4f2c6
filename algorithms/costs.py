"""What tokens cost in floating point operations, by the counts that tinker-nomics gives.

A multiplication and an addition by each parameter that takes part make 2·P a token forward; the backward pass is two
such products, one for the activations' gradient and one for the weights'. Attention over the context is not in these:
`attention_flops` counts it, since at 32,000 tokens it is no small part of an 8B model's.

Units: parameters, tokens and operations are plain counts; P is the parameters a token meets (`active`), which for a
mixture of experts is less than all.
"""

from __future__ import annotations

from dataclasses import dataclass

from algorithms.model_specs import ModelSpec

FORWARD, FULL_TRAINING, LORA_TRAINING = 2, 6, 4
"""Operations per parameter and token: forward; forward and both backward products; forward and the activations' one."""


def rollout_flops(active: float) -> float:
    """A sampled or a prefilled token: 2P."""
    return FORWARD * active


def logprobs_flops(active: float) -> float:
    """A token whose log-prob a reference or a teacher is asked for: 2P, one forward pass."""
    return FORWARD * active


def training_flops(active: float) -> float:
    """A token trained with all parameters: 6P."""
    return FULL_TRAINING * active


def lora_training_flops_as_given(active: float, *, rank: int, d_model: int) -> float:
    """A token trained with LoRA, as tinker-nomics writes it: 2P + 6P·R/D.

    It leaves out the frozen weights' share of the backward pass, 2P: the gradient must still go through them.
    `lora_training_flops` has it, and is what plans use.
    """
    return FORWARD * active + _adapter_flops(active, rank, d_model)


def lora_training_flops(active: float, *, rank: int, d_model: int) -> float:
    """A token trained with LoRA: 4P + 6P·R/D, two thirds of a full fine-tuning's 6P where R is far below D.

    Args:
        active: P.
        rank: R.
        d_model: D, the width of the residual stream.
    """
    return LORA_TRAINING * active + _adapter_flops(active, rank, d_model)


def attention_flops(spec: ModelSpec, context: float) -> float:
    """What one token adds forward by looking at `context` tokens: 4 · layers · heads · head size · context.

    A product with every key and one with every value. The backward pass takes twice as much, LoRA or not.
    """
    return 4 * spec.layers * spec.heads * spec.head_size * context


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens by what is done with them, as the ledger counts them.

    Args:
        prefill: prompt tokens, of samples and of log-probs.
        sampled: completion tokens.
        trained: tokens that went through `forward_backward`, prompts and all.
        scored: tokens of a `forward`.
    """

    prefill: float = 0
    sampled: float = 0
    trained: float = 0
    scored: float = 0


def flops(tokens: TokenCounts, spec: ModelSpec, *, rank: int | None, context: float = 0) -> float:
    """Operations of a run or a cycle.

    Args:
        tokens: how many of each kind.
        spec: of the model they go through.
        rank: R of the adapter that is trained; None trains all parameters.
        context: tokens that a token looks back at on average, about half a sequence; 0 leaves attention out.
    """
    forward = tokens.prefill + tokens.sampled + tokens.scored
    if rank is None:
        training = training_flops(spec.active)
    else:
        training = lora_training_flops(spec.active, rank=rank, d_model=spec.d_model)
    attention = attention_flops(spec, context) * (forward + 3 * tokens.trained)
    return forward * rollout_flops(spec.active) + tokens.trained * training + attention


def _adapter_flops(active: float, rank: int, d_model: int) -> float:
    return FULL_TRAINING * active * rank / d_model
