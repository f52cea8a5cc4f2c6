"""Preference pairs on their way to a step: tokens, log-probs under both runs, and the held-out margin."""

from __future__ import annotations

import math
from collections.abc import Sequence

from algorithms import forward_backward_payload
from algorithms.dpo import LOSS_FUNCTION, Pair, Row, dpo_step, pair_data, pair_up
from algorithms.preferences import Pairs
from flows.config import DpoConfig
from flows.counts.operations import HELDOUT_PAIRS
from flows.durable.attempt import Attempt
from flows.teacher import open_reference
from tasks.examples import Example
from tasks.operations import forward, in_order
from tasks.preferences import preferences
from tasks.run import Run

Logprobs = list[list[float]]


def pairs_of(attempt: Attempt, examples: Sequence[Example]) -> Pairs:
    """Both answers of every example as datums, joined by id; pairs that do not fit the context are dropped, counted."""
    renderer = attempt.inputs.renderer
    rows = []
    for place, item in enumerate(preferences(examples)):
        prompt = renderer.prompt_tokens(item)
        # The place keeps the ids of a small set apart, which comes round more than once in a batch.
        pair_id = f"{place}:{item.id}"
        rows.append(Row(pair_id, "chosen", prompt, renderer.completion_tokens(item.chosen)))
        rows.append(Row(pair_id, "rejected", prompt, renderer.completion_tokens(item.rejected)))
    return pair_up(rows, max_sequence_tokens=attempt.inputs.context_tokens)


async def pair_logprobs(pairs: Sequence[Pair], policy: Run, reference: Run) -> tuple[Logprobs, Logprobs]:
    """One `forward` on each run: log-probs per position of every datum, in `pair_data`'s order."""
    payload = forward_backward_payload(pair_data(pairs), LOSS_FUNCTION)
    answers = await in_order(
        forward(policy, payload, "forward pairs"), forward(reference, payload, "forward pairs, reference")
    )
    ours, frozen = ([output["logprobs"]["values"] for output in answer.result["loss_outputs"]] for answer in answers)
    return ours, frozen


async def heldout_margin(attempt: Attempt, policy: Run) -> dict[str, float]:
    """Of the held-out pairs: `margin`, the mean of β·[(π_c − ref_c) − (π_r − ref_r)], and the share above 0."""
    config = attempt.config
    assert isinstance(config, DpoConfig)
    pairs = pairs_of(attempt, attempt.inputs.heldout).pairs
    if not pairs:
        return {}
    reference = await open_reference(attempt)
    sums = {"margin": 0.0, "accuracy": 0.0}
    for first in range(0, len(pairs), HELDOUT_PAIRS):
        part = pairs[first : first + HELDOUT_PAIRS]
        metrics = dpo_step(part, *await pair_logprobs(part, policy, reference), beta=config.beta).metrics
        sums = {name: total + metrics[name] * len(part) for name, total in sums.items()}
    margin, accuracy = (total / len(pairs) for total in sums.values())
    return {"margin": margin, "preference_accuracy": accuracy} if math.isfinite(margin) else {}
