"""What client and hooks share above httpx: addresses, headers, encoding, and what an answer or its absence means."""

from __future__ import annotations

import hashlib
import math
import os
import socket
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Never, TypeVar
from urllib.parse import urlsplit

import httpx
import orjson
import zstandard
from pydantic import ValidationError

from whitney.errors import (
    ApiError,
    ConfigurationError,
    ConnectionFailedError,
    EndpointLostError,
    WhitneyError,
    api_error,
)
from whitney.kept import kept
from whitney.retry import LONGEST_S, OWN_LONGEST_S, Attempts, RetryPolicy, retryable
from whitney.routes import Route, load_routes
from whitney.settings import LOOPBACK, WhitneySettings
from whitney.types import WireAnswer

try:
    USER_AGENT = f"whitney-pipelines/{version('whitney-pipelines')}"
except PackageNotFoundError:  # run from a checkout that was never installed
    USER_AGENT = "whitney-pipelines"

CHECKSUM_HEADER = "x-content-sha256"
"""What an artifact's bytes should hash to, where an endpoint says so."""

# A flow waits for a whole cycle at once: every group's long poll holds a connection of its own.
MAX_CONNECTIONS = 512

# A shorter "key" would be found by chance in an error's text, and cut holes into it.
_SHORTEST_REDACTED = 8

AnswerT = TypeVar("AnswerT", bound=WireAnswer)


@dataclass(frozen=True, slots=True)
class Request:
    """A request ready to be sent, any number of times, byte for byte the same. `where` tells it by its ids."""

    method: str
    path: str
    where: str
    content: bytes | None = field(default=None, repr=False)
    headers: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] | None = None
    read_timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer, or none at all; and when the endpoint wants to be asked again."""

    error: WhitneyError
    passing: bool
    retry_after: str | None = None
    within_s: float = math.inf

    def wait_s(self, attempts: Attempts) -> float | None:
        """How long to wait before repeating; None when repeating is senseless or the deadline is near."""
        return attempts.wait_s(self.retry_after, within_s=self.within_s) if self.passing else None


class Endpoint:
    """One Whitney endpoint. Holds the key; shows it to nobody, and cannot be pickled with it."""

    __slots__ = ("_routes", "policy", "reached", "settings")

    def __init__(self, settings: WhitneySettings, policy: RetryPolicy | None = None) -> None:
        self.settings = settings
        self._routes = _routes(settings)
        self.reached = False  # whether it has ever answered
        self.policy = policy or RetryPolicy(
            deadline_s=settings.retry_deadline_s,
            retry_after_cap_s=settings.retry_after_cap_s,
            longest_s=OWN_LONGEST_S if kept(settings.base_url) else LONGEST_S,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.base_url})"

    def __reduce__(self) -> Never:
        raise TypeError("a Whitney client holds a key and is never pickled: make a new one from settings")

    def request(
        self,
        name: str,
        *,
        body: Any = None,
        about: str = "",
        params: dict[str, str] | None = None,
        read_timeout_s: float | None = None,
        **ids: str | int,
    ) -> Request:
        """Make a request to a named route; `body` is encoded here, once, and compressed when it is large.

        Args:
            name: of the route.
            body: anything JSON can say, NumPy arrays included.
            about: what else an error message should tell, besides the ids.
            params: the query.
            read_timeout_s: instead of the settings' timeout.
            ids: the route's fields.
        """
        route = self._routes[name]
        where = " ".join([name, *(f"{key}={value}" for key, value in ids.items()), *([about] if about else [])])
        content, headers = None, {}
        if body is not None:
            content, headers = encode(body), {"Content-Type": "application/json"}
            if len(content) > self.settings.compress_above_bytes:
                content = zstandard.ZstdCompressor(level=1).compress(content)
                headers["Content-Encoding"] = "zstd"
        return Request(route.method, route.path(**ids), where, content, headers, params, read_timeout_s)

    def http_options(self) -> dict[str, Any]:
        """Arguments of the httpx client."""
        settings = self.settings
        return {
            "base_url": settings.base_url,
            "headers": {
                "Authorization": f"Bearer {settings.api_key.get_secret_value()}",
                "User-Agent": USER_AGENT,
                "Accept": "application/json",
            },
            "timeout": httpx.Timeout(settings.request_timeout_s, connect=settings.connect_timeout_s, pool=None),
            "limits": httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS),
            # A proxy of the environment cannot reach this machine's own gateway, and would be shown its key.
            "trust_env": urlsplit(settings.base_url).hostname not in LOOPBACK,
        }

    def wire(self, client: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
        """The request in httpx's terms."""
        built = client.build_request(
            request.method,
            request.path.lstrip("/"),
            content=request.content,
            headers=request.headers,
            params=request.params,
        )
        if request.read_timeout_s is not None:
            built.extensions["timeout"]["read"] = request.read_timeout_s
        return built

    def answer(self, request: Request, response: httpx.Response) -> dict[str, Any] | Refusal:
        """The body of a good answer, or why it is not one."""
        self.reached = True
        content = response.content if response.is_success else self._without_key(response.content)
        try:
            body = orjson.loads(content) if content else {}
        except orjson.JSONDecodeError:
            body = None
        if response.is_success and isinstance(body, dict):
            return body
        # A 2xx that is not JSON is a proxy's or a truncated answer: the operation may stand, so it is asked again.
        status = 502 if response.is_success else response.status_code
        error = api_error(
            status,
            body if isinstance(body, dict) else {},
            where=request.where,
            request_id=response.headers.get("x-request-id"),
        )
        return Refusal(error, retryable(status, error.code), response.headers.get("retry-after"))

    def unanswered(self, request: Request, error: httpx.RequestError) -> Refusal:
        """What a broken connection means. One that never stood is given up early: nothing can be under way there."""
        own = kept(self.settings.base_url)
        if own is not None and own.lost:
            return Refusal(EndpointLostError(f"{request.where}: {own.lost}"), passing=False)
        unknown = _is_of_no_host(error)
        hint = "" if own else self._what_to_do(unknown=unknown)
        why = "there is no host of this name" if unknown else type(error).__name__
        failure = ConnectionFailedError(f"{request.where}: no answer from {self.settings.base_url} ({why}){hint}")
        passing = self.reached or not unknown
        return Refusal(failure, passing, within_s=math.inf if self.reached else self.settings.first_contact_s)

    def _what_to_do(self, *, unknown: bool) -> str:
        """Where nothing answers. Nobody can start somebody else's server."""
        if urlsplit(self.settings.base_url).hostname in LOOPBACK:
            return ": is the gateway running, and is WHITNEY_BASE_URL right? `whitney serve` starts the embedded one"
        if unknown:
            return ": is WHITNEY_BASE_URL right?"
        return ": is WHITNEY_BASE_URL right, and can this machine reach it?"

    def _without_key(self, content: bytes) -> bytes:
        """An error's text, in case the endpoint, or a proxy before it, repeats the headers it was sent."""
        key = self.settings.api_key.get_secret_value()
        return content.replace(key.encode(), b"[key]") if len(key) >= _SHORTEST_REDACTED else content


def _is_of_no_host(error: BaseException) -> bool:
    """Whether the name is known to be nobody's. A name server that cannot tell for now is another matter."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, socket.gaierror):
        cause = cause.__cause__ or cause.__context__
    return cause is not None and cause.errno == socket.EAI_NONAME


def encode(value: Any) -> bytes:
    """JSON.

    Raises:
        TypeError: something in it has no JSON form; its type is named, never its value.
    """
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)


def _plain(value: Any) -> Any:
    # Arrays that orjson does not read itself: strided views, float16.
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def parse(model: type[AnswerT], request: Request, answer: dict[str, Any]) -> AnswerT:
    """A good answer as the type it should be.

    Raises:
        ApiError: `unexpected_answer`: it is not of that type. The fields are named; what they held is not.
    """
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        issues = error.errors(include_url=False, include_context=False, include_input=False)
    # Raised out here, where the ValidationError with the answer's values is no longer anybody's context.
    fields = "; ".join(f"{'.'.join(map(str, issue['loc']))}: {issue['msg']}" for issue in issues[:3])
    raise ApiError(
        f"{request.where}: the answer is not a {model.__name__} ({fields}): is WHITNEY_BASE_URL a Whitney endpoint?",
        status=200,
        code="unexpected_answer",
    )


async def write(response: httpx.Response, to: Path) -> None:
    """Stream an answer's body into a file, and compare it with the SHA-256 that the endpoint names, if it does.

    Raises:
        ApiError: `artifact_corrupt`: other bytes than those on record. Asked again, it would send the same.
        OSError: the disk has no room; names the file.
    """
    digest = hashlib.sha256()
    try:
        with to.open("wb") as file:
            async for chunk in response.aiter_bytes():
                file.write(chunk)
                digest.update(chunk)
            file.flush()
            os.fsync(file.fileno())  # or a power cut after the rename leaves an empty file with the good name
    except OSError as error:  # of a full disk the error itself names no file
        raise OSError(error.errno, error.strerror, str(to)) from error
    recorded = response.headers.get(CHECKSUM_HEADER)
    if recorded is not None and recorded.lower() != digest.hexdigest():
        raise ApiError(
            f"GET {response.request.url.path}: the SHA-256 of what came is {digest.hexdigest()}, the endpoint has "
            f"{recorded} on record: its file is damaged, or something on the way has changed it. Export again",
            status=response.status_code,
            code="artifact_corrupt",
        )


def _routes(settings: WhitneySettings) -> dict[str, Route]:
    try:
        return load_routes(settings.routes_file)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"WHITNEY_ROUTES_FILE cannot be used: {error}") from error
