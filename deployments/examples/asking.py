"""What a `build_loss` may ask in the middle of a cycle: each call is an operation, ordered, billed and seen.

These are for a synchronous `build_loss`, whose `ctx.client` waits for the answer. In an `async` one each
`ctx.client` call is awaited; nothing else differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from algorithms import Datum, at_trained, completion_logprobs, forward_backward_payload


def teacher_logprobs(prompt: Sequence[int], tokens: Sequence[int], ctx: Any) -> list[float]:
    """`logprobs`: what the teacher of `[teacher]` thinks of each of a completion's n tokens, in nats."""
    asked = {"input": {"token_ids": [*prompt, *tokens]}}
    answer = ctx.client.sampler_operation(ctx.teacher_run_id, ctx.teacher_sampler_id, "logprobs", asked)
    return completion_logprobs(answer["logprobs"], len(tokens))  # the last n: those before them are the prompt's


def greedy_reply(request: dict[str, Any], ctx: Any) -> dict[str, Any]:
    """`sample`: what the policy, as it sampled this group, says without dice: `tokens`, `logprobs`, `stop_reason`."""
    how = {**request["sampling_params"], "temperature": 0.0}  # max_tokens, stop_token_ids and seed stay
    asked = {"prompt": request["prompt"], "num_samples": 1, "sampling_params": how}
    sequence: dict[str, Any] = ctx.client.sampler_operation(ctx.run_id, ctx.sampler_id, "sample", asked)["sequences"][0]
    return sequence


def trainer_logprobs(datum: Datum, ctx: Any) -> list[float]:
    """`forward`: the trainer's log-probs of a datum's n trained tokens, without a gradient.

    `datum` is one of `algorithms.sft_datum`, which `cross_entropy` takes.
    """
    asked = forward_backward_payload([datum], "cross_entropy")  # {"data", "loss_function", "loss_config"}
    answer = ctx.client.run_operation(ctx.run_id, "forward", asked)
    return at_trained(datum, answer["loss_outputs"][0]["logprobs"]["values"])
