"""Operations: kinds, payloads by kind, and the record the gateway keeps of each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from whitney.types.base import INT64_MAX, Finite, Long, TokenId, WireAnswer, WireRequest
from whitney.types.tensor import Datum, TokenInput

RunOperationKind = Literal[
    "forward", "forward_backward", "optim_step", "save_weights_for_sampler", "save_state", "export_lora"
]
SamplerOperationKind = Literal["sample", "logprobs"]
OperationKind = Literal[
    "forward",
    "forward_backward",
    "optim_step",
    "save_weights_for_sampler",
    "save_state",
    "export_lora",
    "sample",
    "logprobs",
]
OperationStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]
LossFunction = Literal[
    "cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo", "ppo_critic", "dppo", "sapo"
]

RUN_KINDS: tuple[RunOperationKind, ...] = (
    "forward",
    "forward_backward",
    "optim_step",
    "save_weights_for_sampler",
    "save_state",
    "export_lora",
)
SAMPLER_KINDS: tuple[SamplerOperationKind, ...] = ("sample", "logprobs")
TERMINAL_OPERATION: frozenset[str] = frozenset({"succeeded", "failed", "cancelled"})


class EmptyPayload(WireRequest):
    """The payload of `save_weights_for_sampler`, `save_state` and `export_lora`: `{}`."""


class ForwardPayload(WireRequest):
    """The payload of `forward` and `forward_backward`."""

    data: Long[Datum] = Field(min_length=1)
    loss_function: LossFunction
    loss_config: dict[str, Finite] = Field(default_factory=dict)


class AdamW(WireRequest):
    """AdamW, decoupled weight decay (arXiv 1711.05101); a `grad_clip_norm` of 0 or null does not clip."""

    name: Literal["adamw"] = "adamw"
    learning_rate: Annotated[Finite, Field(ge=0)]
    beta1: Annotated[Finite, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[Finite, Field(ge=0, lt=1)] = 0.95
    eps: Annotated[Finite, Field(gt=0)] = 1e-8
    weight_decay: Annotated[Finite, Field(ge=0)] = 0.0
    grad_clip_norm: Annotated[Finite, Field(ge=0)] | None = 1.0


class OptimStepPayload(WireRequest):
    """The payload of `optim_step`."""

    optimizer: AdamW


class SamplingParams(WireRequest):
    """How to draw. Log-probs in the answer are always the model's own: temperature 1, no top-p, no top-k."""

    max_tokens: Annotated[int, Field(ge=1, le=INT64_MAX)]
    temperature: Annotated[Finite, Field(ge=0)] = 1.0
    top_p: Annotated[Finite, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=INT64_MAX)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    stop_token_ids: Long[TokenId] = Field(default_factory=list)


class SamplePayload(WireRequest):
    """The payload of `sample`: one prompt, `num_samples` completions (a group is one operation)."""

    prompt: TokenInput
    num_samples: Annotated[int, Field(ge=1, le=1024)] = 1
    sampling_params: SamplingParams
    topk_prompt_logprobs: Annotated[int, Field(ge=0, le=100)] = 0


class LogprobsPayload(WireRequest):
    """The payload of `logprobs`: teacher-forced log-probs of every token but the first."""

    input: TokenInput
    topk: Annotated[int, Field(ge=0, le=100)] = 0


PAYLOADS: dict[str, type[WireRequest]] = {
    "forward": ForwardPayload,
    "forward_backward": ForwardPayload,
    "optim_step": OptimStepPayload,
    "save_weights_for_sampler": EmptyPayload,
    "save_state": EmptyPayload,
    "export_lora": EmptyPayload,
    "sample": SamplePayload,
    "logprobs": LogprobsPayload,
}


class OperationRequest(WireRequest):
    """The body of both operation routes; `payload` is checked against `PAYLOADS[kind]`."""

    seq_id: Annotated[int, Field(ge=0, le=INT64_MAX)]
    kind: OperationKind
    payload: dict[str, Any]


class Usage(WireAnswer):
    """What one operation is billed for, in tokens."""

    prefill_tokens: int = 0
    sampled_tokens: int = 0
    trained_tokens: int = 0


class WireErrorDetail(WireAnswer):
    """The body of an error: `{"error": {…}}` on HTTP, `error` on a failed operation."""

    code: str
    message: str
    retryable: bool = False
    details: dict[str, Any] = Field(default_factory=dict)


class Operation(WireAnswer):
    """The gateway's record of one operation."""

    run_id: str
    seq_id: int
    kind: str
    status: OperationStatus
    result: dict[str, Any] | None = None
    error: WireErrorDetail | None = None
    usage: Usage = Field(default_factory=Usage)
