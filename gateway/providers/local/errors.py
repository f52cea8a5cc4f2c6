"""The engine's own failures, each with a code for the wire."""

from __future__ import annotations

from typing import Any


class EngineError(Exception):
    """An operation that cannot be done. The message names fields and sizes, never a token or a weight."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details
