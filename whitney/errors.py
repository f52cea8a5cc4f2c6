"""What can go wrong between here and a Whitney endpoint.

WhitneyError
├── ConfigurationError          no key, a URL that is none, a variable that cannot be used
│   └── NoEndpointError         nothing says where Whitney is
├── ConnectionFailedError       unreachable, or no answer until the deadline
├── EndpointLostError           whoever ran the endpoint says that it does not come back (whitney.kept)
├── ApiError                    the endpoint answered with an error (status, code, message, details)
│   ├── UnauthorizedError       401, 403
│   ├── NotFoundError           404
│   │   └── GoneError           410: state_expired, artifact_expired, result_expired
│   ├── ConflictError           409: seq_conflict, create_key_conflict, run_not_terminal, run_not_active, …
│   ├── InvalidRequestError     422: the field's path is in the message
│   ├── PayloadTooLargeError    413
│   └── UnavailableError        408, 425, 429, 5xx, after the retries
├── OperationError              an operation that was posted, or was to be
│   ├── OperationFailedError    it ran and failed; its run has failed with it
│   ├── OperationCancelledError it was queued behind a failure or a cancel
│   └── OperationNotSentError   submitted behind an operation that the endpoint refused
└── WaitTimeoutError            a run did not become terminal in time

Every one pickles, names run, seq_id and operation where there are any, and says what to do next. None ever holds a key
or a token value: what they say comes from ids and from the endpoint's `message`, never from a request's body.
"""

from __future__ import annotations

from typing import Any


class WhitneyError(Exception):
    """Anything that went wrong with Whitney."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call __init__ with the message alone, and most of these take more than a message.
        return _rebuild, (type(self), self.args, self.__dict__)


class ConfigurationError(WhitneyError):
    """The endpoint cannot be addressed as configured; nothing was sent."""


class NoEndpointError(ConfigurationError):
    """Nothing names an endpoint, and none is running on this machine."""


class ConnectionFailedError(WhitneyError):
    """No answer: unreachable, or still failing at the deadline."""


class EndpointLostError(WhitneyError):
    """No answer, and none will come: the endpoint's process has ended. Nothing is billing there."""


class ApiError(WhitneyError):
    """The endpoint answered with an error."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str,
        retryable: bool = False,
        details: dict[str, Any] | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retryable = retryable
        self.details = details or {}
        self.request_id = request_id


class UnauthorizedError(ApiError):
    """The key is missing or wrong."""


class NotFoundError(ApiError):
    """No such session, run, operation, state or artifact."""


class GoneError(NotFoundError):
    """It was there, and was deleted on request or has expired; the message says when. It will not come back."""


class ConflictError(ApiError):
    """The request contradicts what the endpoint already knows; repeating it cannot help."""


class InvalidRequestError(ApiError):
    """The request is not valid; `details["path"]` names the field. No seq_id was consumed."""


class PayloadTooLargeError(ApiError):
    """The body is larger than the endpoint takes, counted after decompression."""


class UnavailableError(ApiError):
    """The endpoint could not answer for now, and the deadline for retrying has passed."""


class OperationError(WhitneyError):
    """An operation did not succeed."""

    def __init__(self, message: str, *, run_id: str, seq_id: int | None, kind: str, code: str) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.seq_id = seq_id
        self.kind = kind
        self.code = code


class OperationFailedError(OperationError):
    """The operation failed, and its run with it."""


class OperationCancelledError(OperationError):
    """The operation never ran: the run was cancelled, or one before it failed."""


class OperationNotSentError(OperationError):
    """The operation was not sent, because one that was submitted before it could not be."""


class WaitTimeoutError(WhitneyError):
    """A run was not terminal in time; it may still be running, and billing."""


def _rebuild(kind: type[WhitneyError], args: tuple[Any, ...], state: dict[str, Any]) -> WhitneyError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


_BY_STATUS: dict[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: UnauthorizedError,
    404: NotFoundError,
    408: UnavailableError,
    409: ConflictError,
    410: GoneError,
    413: PayloadTooLargeError,
    422: InvalidRequestError,
    425: UnavailableError,
    429: UnavailableError,
}

_LONGEST_MESSAGE = 2000
_OF_ANOTHER_SERVER = frozenset({"http_404", "http_405", "unexpected_answer"})

_NEXT_STEP: dict[type[ApiError], str] = {
    UnauthorizedError: "check WHITNEY_API_KEY (or the credentials block); the embedded gateway's key is the content of "
    "the api_key file that `whitney serve` names",
    PayloadTooLargeError: "send fewer or shorter examples in one operation, or raise the gateway's --max-body-mb",
    UnavailableError: "this may pass: try again later",
}
_NEXT_STEP_BY_CODE = {
    "run_not_active": "it has ended there; what is saved is not lost, and a Retry goes on from the last saved state",
}


def api_error(status: int, body: dict[str, Any], *, where: str, request_id: str | None = None) -> ApiError:
    """The exception for an error answer. `where` says what was asked, by ids only."""
    error = body.get("error")
    if not isinstance(error, dict):  # a proxy's own page, or an endpoint of another make
        error = {}
    kind = _BY_STATUS.get(status, UnavailableError if status >= 500 else ApiError)
    code = str(error.get("code") or f"http_{status}")
    said = str(error.get("message") or "no message")[:_LONGEST_MESSAGE]
    message = f"{where}: {status} {code}: {said}"
    if 300 <= status < 400:
        message += " — the endpoint is elsewhere: set WHITNEY_BASE_URL to its final address"
    elif step := _NEXT_STEP_BY_CODE.get(code) or _NEXT_STEP.get(kind):
        message += f" — {step}"
    if request_id:
        message += f" [request {request_id}]"
    return kind(
        message,
        status=status,
        code=code,
        retryable=bool(error.get("retryable")),
        details=error.get("details") if isinstance(error.get("details"), dict) else {},
        request_id=request_id,
    )


def of_another_server(error: ApiError, base_url: str) -> ConfigurationError | None:
    """What to say where whoever answers does not know `capabilities`, and not with an error of Whitney's; else None."""
    if error.code not in _OF_ANOTHER_SERVER:
        return None
    answers = f"{error.status} to" if error.status >= 400 else "something else to"
    return ConfigurationError(
        f"{base_url} is no Whitney endpoint: it answers {answers} the question what it can do. "
        "Set WHITNEY_BASE_URL to your Whitney's address; `whitney serve` starts one here"
    )
