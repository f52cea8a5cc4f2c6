"""A build_loss that asks for more than any plan knows of."""

from __future__ import annotations

from typing import Any

from algorithms import build_loss


def asks_much(sample: dict[str, Any], cycle: int, request: dict[str, Any], ctx: Any) -> dict[str, Any]:
    """As Whitney's own, after two questions whose answers it does not need."""
    for _ in range(2):
        tokens = request["prompt"]["token_ids"]
        ctx.client.sampler_operation(ctx.run_id, ctx.sampler_id, "logprobs", {"input": {"token_ids": tokens}})
    return build_loss(sample, cycle, request, ctx)
