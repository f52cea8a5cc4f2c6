"""How a gateway is started: one model for the command line, for `serve()` and for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.providers.delay import Delays
from whitney.settings import default_data_dir


class GatewayOptions(BaseModel):
    """Options of a gateway. Each is a flag of `whitney serve` and `python -m gateway`, its description the help."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8471, ge=0, le=65535, description="Port to listen on; 0 takes any free one.")
    data_dir: Path = Field(
        default_factory=default_data_dir,
        description="Folder of ledger, key, states and artifacts: $WHITNEY_DATA_DIR, or in the user's data folder.",
    )
    provider: Literal["local", "modal", "tinker", "delay"] = Field(
        "local",
        description="local trains; modal and tinker do too, and accept what those providers accept; delay only waits.",
    )
    models: Annotated[tuple[str, ...], Parameter(name="--model", negative="", consume_multiple=True)] = Field(
        ("smollm2-135m-instruct",), min_length=1, description="A model to serve; may be repeated."
    )
    reduction: Literal["sum", "mean"] = Field(
        "sum", description="How a request's loss is reduced; mean emulates a backend whose losses are means."
    )
    deterministic: Annotated[bool, Parameter(negative="")] = Field(
        False, description="An operation's result depends on its own inputs alone; slower."
    )
    threads: int | Literal["auto"] = Field("auto", description="Threads of the engine.")
    dppo_variant: Literal["binary_tv", "binary_kl"] = Field(
        "binary_tv", description="The distance by which the loss dppo masks: total variation, or KL divergence."
    )
    session_ttl_s: float = Field(
        1800.0, ge=0, description="Silence in seconds after which a session is cancelled and closed; 0: never."
    )
    keep_days: float = Field(
        30.0,
        ge=0,
        description="Days that states, artifacts and results of closed sessions are kept while no open session's "
        "flow run could need them; 0: for ever.",
    )
    faults: Path | None = Field(None, description="File of scripted faults, for tests.")
    max_body_mb: float = Field(64.0, gt=0, description="Largest request body after decompression.")
    delays: Annotated[Delays, Parameter(show=False)] = Field(
        default_factory=Delays,
        description='Seconds by operation kind for provider delay, as JSON: {"sample": 2, "default": 1}.',
    )
    max_batch_sequences: int = Field(128, ge=1, description="Most sequences sampled together.")


def flag_mistakes(error: ValidationError) -> str:
    """What is wrong with the flags that an options object was to be made of: flag, value and rule of each."""
    mistakes = []
    for issue in error.errors(include_url=False):
        field = str(issue["loc"][0])
        flag = "model" if field == "models" else field.replace("_", "-")
        mistakes.append(f"--{flag} {issue['input']}: {issue['msg']}")
    return "; ".join(mistakes)
