"""A `build_loss` of your own: advantages from ranks, so that the scale of a reward cannot matter."""

from __future__ import annotations

from typing import Any

from algorithms import forward_backward_payload, rl_datum


def build_loss(sample: dict[str, Any], cycle: int, request: dict[str, Any], ctx: Any) -> dict[str, Any]:
    """One sampled group in, one `forward_backward` payload out; equal rewards send nothing.

    A completion's advantage is the share of its group that it beats less the share that beats it: between −1 and 1.

    Raises:
        NoGradientError: no completion beats another; the loop counts the group and goes on.
    """
    scored = [one for one in sample["sequences"] if one["reward"] is not None and one["tokens"]]
    data = []
    for one in scored:
        beaten = sum(other["reward"] < one["reward"] for other in scored)
        beaten_by = sum(other["reward"] > one["reward"] for other in scored)
        if beaten or beaten_by:
            advantage = (beaten - beaten_by) / len(scored)
            data.append(rl_datum(request["prompt"]["token_ids"], one["tokens"], one["logprobs"], advantage))
    return forward_backward_payload(data, "importance_sampling")
