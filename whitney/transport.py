"""One request at a time, repeated until it is answered: what client and hooks share above httpx."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import httpx
import orjson
import zstandard

from whitney.errors import ApiError, ConnectionFailedError, api_error
from whitney.retry import Attempts, RetryPolicy, retryable
from whitney.routes import Route, load_routes
from whitney.settings import WhitneySettings

try:
    USER_AGENT = f"whitney-pipelines/{version('whitney-pipelines')}"
except PackageNotFoundError:  # run from a checkout that was never installed
    USER_AGENT = "whitney-pipelines"

# A flow waits for a whole cycle at once: every group's long poll holds a connection of its own.
MAX_CONNECTIONS = 512


@dataclass(frozen=True, slots=True)
class Request:
    """A request ready to be sent, any number of times, byte for byte the same."""

    route: Route
    path: str
    where: str
    body: bytes | None = None
    params: dict[str, str] | None = None
    read_timeout_s: float | None = None


class Endpoint:
    """Addresses, headers and encoding of one Whitney endpoint. Holds the key; shows it to nobody."""

    __slots__ = ("_routes", "policy", "settings")

    def __init__(self, settings: WhitneySettings, policy: RetryPolicy | None = None) -> None:
        self.settings = settings
        self._routes = load_routes(settings.routes_file)
        self.policy = policy or RetryPolicy(
            deadline_s=settings.retry_deadline_s, retry_after_cap_s=settings.retry_after_cap_s
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.base_url})"

    def request(
        self,
        name: str,
        *,
        body: Any = None,
        params: dict[str, str] | None = None,
        read_timeout_s: float | None = None,
        **ids: str | int,
    ) -> Request:
        """Make a request to a named route. `body` is encoded once, NumPy arrays included."""
        route = self._routes[name]
        where = " ".join([name, *(f"{key}={value}" for key, value in ids.items())])
        encoded = None if body is None else orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
        return Request(route, route.path(**ids), where, encoded, params, read_timeout_s)

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
            "limits": httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=64),
        }

    def wire(self, client: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
        """The httpx request, compressed when the body is large."""
        content, headers = request.body, {}
        if content is not None:
            headers["Content-Type"] = "application/json"
            if len(content) > self.settings.compress_above_bytes:
                content = zstandard.ZstdCompressor(level=1).compress(content)
                headers["Content-Encoding"] = "zstd"
        built = client.build_request(
            request.route.method, request.path.lstrip("/"), content=content, headers=headers, params=request.params
        )
        if request.read_timeout_s is not None:
            built.extensions["timeout"]["read"] = request.read_timeout_s
        return built

    def answer(self, request: Request, response: httpx.Response) -> dict[str, Any] | Refusal:
        """The body of a good answer, or why it is not one."""
        try:
            body = orjson.loads(response.content) if response.content else {}
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
        return Refusal(error, response.headers.get("retry-after"))

    def unreachable(self, request: Request, error: httpx.TransportError) -> ConnectionFailedError:
        """What to raise when no answer came until the deadline."""
        return ConnectionFailedError(
            f"{request.where}: no answer from {self.settings.base_url} ({type(error).__name__}): is the gateway "
            "running, and is WHITNEY_BASE_URL right? `whitney serve` starts the embedded one"
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer, and when the endpoint wants to be asked again."""

    error: ApiError
    retry_after: str | None

    def wait_s(self, attempts: Attempts) -> float | None:
        """How long to wait before repeating; None when repeating is senseless or the deadline is near."""
        if not retryable(self.error.status, self.error.code):
            return None
        return attempts.wait_s(self.retry_after)
