"""Capabilities: what a provider can do for a model. There is no list of losses in it, by design of the API."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from whitney.types.base import WireAnswer


class CapabilityRow(WireAnswer):
    """One (provider, model) pair."""

    provider: str
    model: str
    operations: list[str]
    max_sequence_tokens: int
    max_lora_rank: int
    loss_reduction: Literal["sum", "mean"] = "sum"
    emulated: bool = False
    tokenizer_sha256: str | None = None


class Capabilities(WireAnswer):
    """The answer of GET /capabilities."""

    rows: list[CapabilityRow] = Field(default_factory=list)
