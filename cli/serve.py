"""`whitney serve`: the embedded gateway, until Ctrl-C."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from cli.failures import UsageError
from cli.local_extra import require_local_extra

Flag = Annotated[bool | None, Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServeFlags:
    """The gateway's options; what is not given keeps the gateway's default."""

    host: str | None = None
    """Address to listen on; default 127.0.0.1."""
    port: int | None = None
    """Port to listen on, 0 for any free one; default 8471."""
    data_dir: Path | None = None
    """Folder of ledger, key, states and artifacts; default $WHITNEY_DATA_DIR, or the user's data folder."""
    provider: Literal["local", "modal", "tinker", "delay"] | None = None
    """local trains; modal and tinker do too, accepting what those providers accept; delay only waits. Default local."""
    models: Annotated[tuple[str, ...] | None, Parameter(name="--model", negative="")] = None
    """A model to serve; may be repeated. Default smollm2-135m-instruct."""
    reduction: Literal["sum", "mean"] | None = None
    """How a request's loss is reduced; default sum."""
    deterministic: Flag = None
    """An operation's result depends on its own inputs alone; slower."""
    threads: int | Literal["auto"] | None = None
    """Threads of the engine; default auto."""
    session_ttl_s: float | None = None
    """Silence in seconds after which a session is closed, 0 for never; default 1800."""
    faults: Path | None = None
    """File of scripted faults, for tests."""
    max_body_mb: float | None = None
    """Largest request body after decompression; default 64."""
    delays: str | None = None
    """Seconds by operation kind for provider delay, as JSON, e.g. {"sample": 2, "default": 1}."""
    max_batch_sequences: int | None = None
    """Most sequences sampled together; default 128."""


def serve(flags: ServeFlags | None = None) -> int:
    """Serve Whitney on this machine, training on its CPU, until Ctrl-C."""
    given = {name: value for name, value in asdict(flags or ServeFlags()).items() if value is not None}
    require_local_extra()
    from pydantic import ValidationError

    from gateway import serve as gateway_server
    from gateway.options import GatewayOptions

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        if "delays" in given:
            given["delays"] = json.loads(given["delays"])
        gateway_server.serve(GatewayOptions(**given))
    except ValidationError as error:
        issues = (f"--{'.'.join(map(str, issue['loc'])).replace('_', '-')}: {issue['msg']}" for issue in error.errors())
        raise UsageError("; ".join(issues)) from error
    except json.JSONDecodeError as error:
        raise UsageError(f"--delays {given['delays']!r} is not JSON: {error}") from error
    except gateway_server.ServeError as error:
        raise UsageError(str(error)) from error
    return 0
