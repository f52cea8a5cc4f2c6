"""The wire's nouns, one a file. Gateway, client and tests share these; nothing else describes the wire."""

from whitney.types.artifact import Health, State
from whitney.types.base import WireAnswer, WireRequest
from whitney.types.capability import Capabilities, CapabilityRow
from whitney.types.operation import (
    PAYLOADS,
    RUN_KINDS,
    SAMPLER_KINDS,
    TERMINAL_OPERATION,
    AdamW,
    EmptyPayload,
    ForwardPayload,
    LogprobsPayload,
    Operation,
    OperationRequest,
    OptimStepPayload,
    SamplePayload,
    SamplingParams,
    Usage,
    WireErrorDetail,
)
from whitney.types.run import TERMINAL_RUN, CreateRun, Initial, LoraConfig, Run, RunUsage
from whitney.types.session import CreateSession, Session, SessionList
from whitney.types.tensor import Datum, FloatTensor, IntTensor, TokenInput

__all__ = [
    "PAYLOADS",
    "RUN_KINDS",
    "SAMPLER_KINDS",
    "TERMINAL_OPERATION",
    "TERMINAL_RUN",
    "AdamW",
    "Capabilities",
    "CapabilityRow",
    "CreateRun",
    "CreateSession",
    "Datum",
    "EmptyPayload",
    "FloatTensor",
    "ForwardPayload",
    "Health",
    "Initial",
    "IntTensor",
    "LogprobsPayload",
    "LoraConfig",
    "Operation",
    "OperationRequest",
    "OptimStepPayload",
    "Run",
    "RunUsage",
    "SamplePayload",
    "SamplingParams",
    "Session",
    "SessionList",
    "State",
    "TokenInput",
    "Usage",
    "WireAnswer",
    "WireErrorDetail",
    "WireRequest",
]
