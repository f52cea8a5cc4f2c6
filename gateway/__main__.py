"""`python -m gateway`: serve on this machine."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter
from pydantic import ValidationError

from gateway.options import GatewayOptions, flag_mistakes
from gateway.parent import stop_with_parent
from gateway.serve import ServeError, serve

app = App(name="python -m gateway", result_action="return_value", suppress_keyboard_interrupt=False)


@app.default
def serve_until_stopped(
    *,
    options: Annotated[GatewayOptions | None, Parameter(name="*")] = None,
    end_with_parent: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """A Whitney training gateway on this machine, until SIGTERM or Ctrl-C.

    Parameters
    ----------
    options
        What to serve, and where.
    end_with_parent
        Stop also when standard input ends: its writer is the process that needs this gateway.

    Raises:
        ServeError: it cannot start.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if end_with_parent:
        stop_with_parent()
    serve(options or GatewayOptions())
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop; the exit code: 0 after a clean stop, 2 when the gateway cannot start."""
    try:
        return int(app(arguments, exit_on_error=False, print_error=False) or 0)
    except CycloptsError as error:
        cause = error.__cause__
        return _refuse(flag_mistakes(cause) if isinstance(cause, ValidationError) else str(error))
    except ServeError as error:
        return _refuse(str(error))


def _refuse(message: str) -> int:
    print(f"gateway: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
