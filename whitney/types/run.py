"""Runs: one set of trainable weights, one ordered stream of operations."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from whitney.types.base import CreateKey, WireAnswer, WireRequest

RunStatus = Literal["active", "finishing", "finished", "cancelling", "cancelled", "failed"]
RunRole = Literal["policy", "critic"]
TERMINAL_RUN: frozenset[str] = frozenset({"finished", "cancelled", "failed"})


class LoraConfig(WireRequest):
    """LoRA (arXiv 2106.09685) on every linear layer; the update is scaled by alpha / rank."""

    rank: Annotated[int, Field(ge=1, le=1024)] = 16
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 32.0
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


class Initial(WireRequest):
    """Where a run's weights come from: a saved state or an exported adapter, exactly one of the two."""

    state_id: str | None = None
    artifact_id: str | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.state_id is None) == (self.artifact_id is None):
            raise ValueError("initial needs exactly one of state_id and artifact_id")
        return self


class CreateRun(WireRequest):
    """The body of POST /sessions/{id}/runs."""

    create_key: CreateKey
    provider: str
    model: str
    role: RunRole = "policy"
    lora: LoraConfig = Field(default_factory=LoraConfig)
    initial: Initial | None = None
    with_optimizer: bool = True


class RunUsage(WireAnswer):
    """What a run has been billed for so far."""

    operations: dict[str, int] = Field(default_factory=dict)
    prefill_tokens: int = 0
    sampled_tokens: int = 0
    trained_tokens: int = 0


class Run(WireAnswer):
    """A run as the gateway reports it."""

    run_id: str
    status: RunStatus
    next_seq_id: int = 0
    usage: RunUsage = Field(default_factory=RunUsage)
    reason: str | None = None
