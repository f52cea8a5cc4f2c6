"""What a handler raises to refuse a request, and the one form every refusal has on the wire."""

from __future__ import annotations

from typing import Any

from whitney.types import WireErrorDetail


class GatewayError(Exception):
    """A refusal: HTTP status and the wire's `{"code", "message", "retryable", "details"}`.

    Messages name ids, fields and what to do. They never hold a key, a token id or a number that was sent.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        retryable: bool = False,
        headers: dict[str, str] | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.detail = WireErrorDetail(code=code, message=message, retryable=retryable, details=details or {})


def not_found(noun: str, identifier: str | int) -> GatewayError:
    """404 for a session, run, sampler, operation, state or artifact that is not there."""
    return GatewayError(404, f"{noun}_not_found", f"there is no {noun} {shorten(identifier)} on this gateway")


def conflict(code: str, message: str, *, retryable: bool = False, **details: Any) -> GatewayError:
    """409: the request is well formed, and what it meets does not allow it."""
    return GatewayError(409, code, message, retryable=retryable, details=details)


def key_conflict(noun: str, identifier: str) -> GatewayError:
    """409: the create_key has been used for another body."""
    return conflict(
        "create_key_conflict",
        f"this create_key made {noun} {identifier} from another body: choose a new key, or send the same body",
    )


def invalid(path: str, message: str, **details: Any) -> GatewayError:
    """422: the field at `path` (`payload.data.0.loss_inputs.weights`) is not acceptable."""
    sentence = f"{path}: {message}" if path else message
    return GatewayError(422, "invalid_request", sentence, details={"path": path, **details})


def shorten(value: object, limit: int = 80) -> str:
    """A caller's own word for a message, cut so that a body can never be echoed whole."""
    text = str(value)
    return text if len(text) <= limit else text[:limit] + "…"
