"""How a gateway is started: one model for the command line, for `serve()` and for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.providers.delay import Delays
from whitney.settings import default_data_dir


class GatewayOptions(BaseModel):
    """Options of a gateway; the command line has one flag for each.

    `provider`: `local` trains on this machine; `modal` and `tinker` do the same and accept what those providers
    accept; `delay` answers after `delays` without a model. `reduction`: "mean" emulates a backend whose losses are
    means. `port` 0 takes any free one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(8471, ge=0, le=65535)
    data_dir: Path = Field(default_factory=default_data_dir)
    provider: Literal["local", "modal", "tinker", "delay"] = "local"
    models: tuple[str, ...] = Field(("smollm2-135m-instruct",), min_length=1)
    reduction: Literal["sum", "mean"] = "sum"
    deterministic: bool = False
    threads: int | Literal["auto"] = "auto"
    session_ttl_s: float = Field(1800.0, ge=0)
    faults: Path | None = None
    max_body_mb: float = Field(64.0, gt=0)
    delays: Delays = Field(default_factory=Delays)
    max_batch_sequences: int = Field(128, ge=1)
