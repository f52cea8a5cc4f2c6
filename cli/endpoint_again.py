"""The endpoint of an earlier run once more: its states are there."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from cli.endpoint import endpoint
from cli.failures import UsageError
from cli.run_data import Endpoints, WhitneyAt
from cli.served_for import served_for
from cli.terminal import Say
from flows.load_config import AnyConfig
from whitney.errors import NoEndpointError


def endpoint_again(stack: ExitStack, config: AnyConfig, former: Endpoints | None, say: Say) -> WhitneyAt:
    """Enter it into the stack: the gateway that the run had of its own, else the one that is configured or runs here.

    Raises:
        UsageError: there is none; says where the run began.
        ConfigurationError, WhitneyError: as `cli.endpoint.endpoint`.
    """
    own = Path(former.gateway_data_dir) if former and former.gateway_data_dir else None
    models, provider = served_for(config)
    try:
        whitney = stack.enter_context(endpoint(models, provider, embedded=False, say=say, former=own))
    except NoEndpointError as error:
        began = f". This run began at {former.whitney_base_url}" if former and former.whitney_base_url else ""
        raise UsageError(f"{error}{began}") from error
    if former and whitney.data_dir is None and former.whitney_base_url not in (None, whitney.base_url):
        say(f"Warning: this run began at {former.whitney_base_url} and goes on at {whitney.base_url}")
    return whitney
