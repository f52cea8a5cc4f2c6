"""`whitney serve`: the embedded gateway, until Ctrl-C."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from cli.failures import UsageError
from cli.local_extra import require_local_extra
from gateway.options import GatewayOptions


def serve(*, options: Annotated[GatewayOptions | None, Parameter(name="*")] = None) -> int:
    """Serve Whitney on this machine, training on its CPU, until Ctrl-C. What it prints says how to reach it."""
    require_local_extra()
    from gateway.__main__ import serve_until_stopped
    from gateway.serve import ServeError

    try:
        return serve_until_stopped(options=options)
    except ServeError as error:
        raise UsageError(str(error)) from error
