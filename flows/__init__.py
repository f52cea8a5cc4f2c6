"""Each algorithm is a flow: `await flows.grpo(config)` trains and returns the run's summary.

`FLOWS` names them all; `flows.config` holds what each takes, `flows.load_config` reads it from TOML.
"""

from typing import Any

from prefect.flows import Flow

from flows.grpo import grpo
from flows.sft import sft

FLOWS: dict[str, Flow[..., Any]] = {"grpo": grpo, "sft": sft}

__all__ = ["FLOWS", "grpo", "sft"]
