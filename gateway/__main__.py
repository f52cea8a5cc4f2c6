"""`python -m gateway`: serve on this machine."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.options import GatewayOptions
from gateway.serve import ServeError, serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop; the exit code: 0 after a clean stop, 2 when the gateway cannot start."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        given = {name: value for name, value in vars(_parser().parse_args(arguments)).items() if value is not None}
        serve(GatewayOptions(**given))
    except ValidationError as error:
        problems = "; ".join(f"--{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        return _refuse(problems.replace("_", "-"))
    except ServeError as error:
        return _refuse(str(error))
    return 0


def _refuse(message: str) -> int:
    print(f"gateway: {message}", file=sys.stderr)
    return 2


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error


def _threads(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gateway", description="A Whitney training gateway on this machine."
    )
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on; 0 takes any free one (default 8471)")
    parser.add_argument("--data-dir", type=Path, help="ledger, key, states, artifacts (default $WHITNEY_DATA_DIR)")
    parser.add_argument("--provider", choices=["local", "modal", "tinker", "delay"], help="(default local)")
    parser.add_argument("--model", dest="models", nargs="+", action="extend", metavar="NAME", help="model to serve")
    parser.add_argument("--reduction", choices=["sum", "mean"], help="how a request's loss is reduced (default sum)")
    parser.add_argument("--deterministic", action="store_true", default=None, help="results depend on own inputs alone")
    parser.add_argument("--threads", type=_threads, metavar="auto|N", help="the engine's threads (default auto)")
    parser.add_argument("--session-ttl-s", type=float, help="silence after which a session expires; 0: never")
    parser.add_argument("--faults", type=Path, metavar="FILE", help="scripted faults, for tests")
    parser.add_argument("--max-body-mb", type=float, help="largest request body after decompression (default 64)")
    parser.add_argument("--delays", type=_json, metavar="JSON", help='of provider delay: {"sample": 2, "default": 1}')
    parser.add_argument("--max-batch-sequences", type=int, help="most sequences sampled together (default 128)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
