"""Frames between gateway and engine: four bytes of length, then JSON. Nothing that could run code is ever read."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from gateway.providers.base import Outcome, RunSpec, Work
from whitney.types import Usage, WireErrorDetail

_LENGTH = struct.Struct(">I")


def frame(message: dict[str, Any]) -> bytes:
    """A message as it goes through the pipe.

    Raises:
        ValueError: it is longer than four bytes of length can say.
    """
    body = orjson.dumps(message, default=_plain)
    if len(body) >= 1 << 32:
        raise ValueError(f"a message of {len(body)} bytes is too long for the engine's pipe; send smaller operations")
    return _LENGTH.pack(len(body)) + body


def read_frame(stream: BinaryIO) -> dict[str, Any] | None:
    """The next message, or None at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    body = stream.read(_LENGTH.unpack(head)[0])
    message: dict[str, Any] = orjson.loads(body)
    return message


async def receive_frame(stream: asyncio.StreamReader) -> dict[str, Any]:
    """The next message.

    Raises:
        asyncio.IncompleteReadError: the stream has ended.
    """
    (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
    message: dict[str, Any] = orjson.loads(await stream.readexactly(length))
    return message


def _plain(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} does not go through the engine's pipe")


def spec_from(record: dict[str, Any]) -> RunSpec:
    """A RunSpec as orjson wrote it."""
    initial = record["initial"]
    return RunSpec(**record | {"initial": Path(initial) if initial else None})


def work_from(record: dict[str, Any]) -> Work:
    """A Work item as orjson wrote it."""
    output = record["output"]
    return Work(**record | {"output": Path(output) if output else None})


def outcome_record(outcome: Outcome) -> dict[str, Any]:
    """An Outcome as plain data."""
    error = outcome.error.model_dump() if outcome.error else None
    return {"result": outcome.result, "error": error, "usage": outcome.usage.model_dump()}


def outcome_from(record: dict[str, Any]) -> Outcome:
    """The inverse of `outcome_record`."""
    error = WireErrorDetail.model_validate(record["error"]) if record["error"] else None
    return Outcome(record["result"], error, Usage.model_validate(record["usage"]))
