"""The engine's process: `python -m gateway.providers.local.worker [SCRATCH]`, driven through stdin and stdout.

SCRATCH is the folder for its temporary files. It ends with its parent: when stdin does, and on Linux by a signal even
while it computes.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from gateway.providers.local.engine import Engine
from gateway.providers.local.errors import EngineError
from gateway.providers.local.ipc import frame, outcome_record, read_frame, spec_from, work_from
from gateway.providers.local.options import EngineOptions

logger = logging.getLogger("engine")

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve requests until stdin ends."""
    parent = os.getppid()
    _die_with_parent(parent)
    # Ctrl-C in a terminal reaches the whole group; when the engine stops is the gateway's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = sys.stdin.buffer, _private_stdout()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(prefix="whitney-engine-", dir=folder) as scratch:
        _serve(requests, answers, Path(scratch))


def _serve(requests: BinaryIO, answers: BinaryIO, scratch: Path) -> None:
    server = _Server(scratch)
    while (request := read_frame(requests)) is not None:
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            answer["result"] = server.call(request["method"], request["params"])
        except (EngineError, ValueError) as error:  # ModelError is a ValueError
            answer["refused"] = str(error)
        except Exception as error:  # the gateway must hear of a bug in here, not wait for ever
            logger.exception("%s failed", request["method"])
            answer["failed"] = f"{type(error).__name__} in {request['method']}; the engine's log has the traceback"
        answers.write(frame(answer))
        answers.flush()


class _Server:
    """The methods the gateway may call."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._engine: Engine | None = None

    def call(self, method: str, params: dict[str, Any]) -> Any:
        if method == "start":
            options = EngineOptions(**params | {"models": tuple(params["models"])})
            self._engine = Engine(options, self._scratch, logger.info)
            return [row.model_dump() for row in self._engine.capabilities()]
        if self._engine is None:
            raise ValueError("the engine has not been started")
        if method == "create_run":
            return self._engine.create_run(spec_from(params))
        if method == "release_run":
            return self._engine.release_run(params["run_id"])
        if method == "execute":
            outcomes = self._engine.execute([work_from(record) for record in params["batch"]])
            return [outcome_record(outcome) for outcome in outcomes]
        raise ValueError(f"unknown method {method!r}")


def _private_stdout() -> BinaryIO:
    """The answers' stream; whatever else prints to stdout from now on goes to stderr, not between two frames."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def _die_with_parent(parent: int) -> None:
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the request was in place
        sys.exit(1)


if __name__ == "__main__":
    main()
