"""The most that an operation may be billed for, in tokens: what it counts with until its answer is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.durable.budget.used import FREE
from whitney.types import Usage


def most_usage(kind: str, payload: Mapping[str, Any]) -> Usage:
    """The most that an operation may be billed for, in tokens, from what is posted.

    A payload of a user's own that is not as the wire has it counts nothing: the endpoint refuses it unbilled.
    """
    try:
        if kind == "sample":
            drawn = payload.get("num_samples", 1) * payload["sampling_params"]["max_tokens"]
            return Usage(prefill_tokens=len(payload["prompt"]["token_ids"]), sampled_tokens=drawn)
        if kind == "logprobs":
            return Usage(prefill_tokens=len(payload["input"]["token_ids"]))
        if kind in ("forward", "forward_backward"):
            tokens = sum(len(datum["input"]["token_ids"]) for datum in payload["data"])
            return Usage(**{"prefill_tokens" if kind == "forward" else "trained_tokens": tokens})
    except (KeyError, TypeError, ValueError, AttributeError):
        return FREE
    return FREE
