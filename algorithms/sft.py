"""SFT: supervised fine-tuning on given answers.

Contract: pairs of prompt and completion tokens; no sampling.
Maths: minimise −Σ w·lp over the completion's tokens, prompt tokens at weight 0. The default `token_mean` makes the
    reported loss the mean negative log-likelihood per token of the optimizer step, in nats.
Loss per provider: `cross_entropy`, empty loss_config, on modal, tinker and local alike.
Fails closed when: the provider has no `cross_entropy`; a prompt is empty; no pair is left. Pairs that are longer than
    the context, and empty completions, are dropped and counted.
Deviates from the paper by: nothing; it is maximum likelihood on the completion.
Paper: arXiv 2203.02155 (InstructGPT), section 3.5, for its place in post-training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from algorithms.aggregation import Aggregation, scale_data
from algorithms.datums import Datum, sft_datum
from algorithms.losses import forward_backward_payload
from algorithms.reasons import EMPTY, TOO_LONG

LOSS_FUNCTION = "cross_entropy"

TokenPair = tuple[Sequence[int], Sequence[int]]
"""(prompt tokens, completion tokens with the stop token at their end)."""


@dataclass(frozen=True, slots=True)
class SftData:
    """Datums with weight 1 on completion tokens, and how many pairs were dropped for which reason."""

    data: list[Datum]
    dropped_by_reason: dict[str, int]


def sft_data(pairs: Iterable[TokenPair], *, max_sequence_tokens: int | None = None) -> SftData:
    """Build one datum per pair that fits.

    Raises:
        ValueError: an empty prompt.
    """
    data: list[Datum] = []
    dropped: Counter[str] = Counter()
    for prompt, completion in pairs:
        if prompt and not completion:
            dropped[EMPTY] += 1
        elif max_sequence_tokens is not None and len(prompt) + len(completion) > max_sequence_tokens:
            dropped[TOO_LONG] += 1
        else:
            data.append(sft_datum(prompt, completion))
    return SftData(data, dict(dropped))


def build_payload(data: Sequence[Datum], aggregation: Aggregation = "token_mean") -> dict[str, Any]:
    """The `forward_backward` payload of a whole optimizer step.

    Raises:
        NoGradientError: there is no datum.
    """
    return forward_backward_payload(scale_data(data, aggregation, field="weights"), LOSS_FUNCTION)
