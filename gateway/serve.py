"""`serve(options)`: a gateway in this process, from the lock on its data directory to the clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import logging
import os
import shlex
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import uvicorn

from gateway.app import build_app
from gateway.emulation import RULES, ProviderName
from gateway.faults import BreakableProtocol, Faults
from gateway.gateway import Gateway
from gateway.handlers import VERSION
from gateway.ledger import LedgerError
from gateway.options import GatewayOptions
from gateway.providers.base import Provider, ProviderLostError
from gateway.providers.delay import DelayProvider
from gateway.scheduler import Gathering
from gateway.storage import KEY_VARIABLE, DataDirectory, DataDirectoryError

logger = logging.getLogger("gateway")

_STOP_PATIENCE_S = 5


class ServeError(RuntimeError):
    """The gateway cannot start; the message says why and what to do."""


def serve(options: GatewayOptions, *, on_listening: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then stop cleanly.

    Args:
        options: what to serve, and where.
        on_listening: called with the base URL once requests are answered; by default what a user needs is printed.

    Raises:
        ServeError: the data directory, the port, the faults file or the provider cannot be used.
    """
    try:
        asyncio.run(_serve(options, on_listening))
    except DataDirectoryError as error:
        raise ServeError(str(error)) from error


async def _serve(options: GatewayOptions, on_listening: Callable[[str], None] | None) -> None:
    data = DataDirectory(options.data_dir.expanduser().resolve())
    with contextlib.ExitStack() as stack:
        try:
            data.open()
            stack.callback(data.close)
            api_key = data.api_key()
            faults = Faults.load(options.faults) if options.faults else Faults()
            listener = stack.enter_context(listen(options.host, options.port))
        except ValueError as error:  # the faults file's
            raise ServeError(str(error)) from error
        base_url = _base_url(options.host, listener)
        notice = {"base_url": base_url, "pid": os.getpid(), "version": VERSION, "provider": options.provider}
        async with started_gateway(options, data, faults) as gateway:
            app = build_app(gateway, api_key, max_body_bytes=int(options.max_body_mb * 1_000_000))

            def listening() -> None:
                data.announce(notice)
                (on_listening or _print_how_to_connect(options, data))(base_url)

            server = GatewayServer(app, gateway, listening, faulty=options.faults is not None)
            with _reading_faults_again(options.faults, faults, lambda read: data.announce(notice | {"faults": read})):
                await server.serve(sockets=[listener])


@contextlib.contextmanager
def _reading_faults_again(
    script: Path | None, faults: Faults, announce: Callable[[dict[str, object]], None]
) -> Iterator[None]:
    """Let SIGHUP change the script, and say so in the notice: whoever sent it waits for that.

    Without a script SIGHUP keeps its meaning: the terminal has gone.
    """
    if script is None:
        yield
        return
    times = itertools.count(1)

    def read_again() -> None:
        error = None
        try:
            logger.warning("scripted faults: %d, read from %s", faults.read_again(script), script)
        except ValueError as mistake:
            error = str(mistake)
            logger.error("scripted faults stay as they were: %s", error)  # noqa: TRY400 - a line of the file, no bug
        announce({"times_read": next(times), "error": error})

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, read_again)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


@contextlib.asynccontextmanager
async def started_gateway(options: GatewayOptions, data: DataDirectory, faults: Faults) -> AsyncIterator[Gateway]:
    """The gateway that `options` describe, without HTTP.

    Raises:
        ServeError: the ledger cannot be used, or the provider cannot start.
    """
    rules: ProviderName = "local" if options.provider == "delay" else options.provider
    async with contextlib.AsyncExitStack() as stack:
        try:
            gateway = await stack.enter_async_context(
                Gateway(
                    data,
                    make_provider(options, data.scratch),
                    RULES[rules],
                    reduction=options.reduction,
                    session_ttl_s=options.session_ttl_s,
                    keep_days=options.keep_days,
                    gathering=Gathering(most_sequences=options.max_batch_sequences),
                    faults=faults,
                )
            )
        except ImportError as error:
            raise ServeError(f'{error}: install the engine with pip install "whitney-pipelines[local]"') from error
        except LedgerError as error:
            raise ServeError(str(error)) from error
        except sqlite3.DatabaseError as error:
            raise ServeError(
                f"the ledger {data.ledger} cannot be used ({error}): make room if its disk is full, else restore it "
                "from a copy, or use another --data-dir"
            ) from error
        except (ValueError, OSError, RuntimeError, ProviderLostError) as error:
            raise ServeError(f"provider {options.provider} cannot start: {error}") from error
        yield gateway


def make_provider(options: GatewayOptions, scratch: Path) -> Provider:
    """What executes the operations, with a folder for its temporary files.

    The engine is imported here, so that nothing else needs its libraries.
    """
    if options.provider == "delay":
        return DelayProvider(options.models, options.delays)
    from gateway.providers.local import EngineOptions, LocalProvider  # noqa: PLC0415 - see above

    engine = EngineOptions(
        models=options.models,
        threads=options.threads,
        deterministic=options.deterministic,
        dppo_variant=options.dppo_variant,
    )
    return LocalProvider(engine, scratch)


class GatewayServer(uvicorn.Server):
    """uvicorn, told when it listens, and stopping as a service should.

    Its own signal handling raises the signal again after a clean stop, which would end the process before the lock and
    `gateway.json` are given up, and cannot be used where SIGINT is ignored (a background job of a shell script).
    """

    def __init__(self, app: object, gateway: Gateway, on_listening: Callable[[], None], *, faulty: bool) -> None:
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type] # Starlette is an ASGI application; uvicorn's union is narrower
                http=BreakableProtocol if faulty else "auto",
                lifespan="off",
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=_STOP_PATIENCE_S,
                server_header=False,
            )
        )
        self._gateway = gateway
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, then say so."""
        await super().startup(sockets)
        self._on_listening()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop the server; long polls are answered first."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        self.should_exit = True
        self._gateway.stop_waiting()


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; listening wider than loopback is warned of.

    Raises:
        ServeError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only on sockets that say they speak TCP; with it, an answer takes 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ServeError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port (0: any)") from error
    if not _is_loopback(listener.getsockname()[0]):
        logger.warning(
            "LISTENING ON %s, WHICH OTHER MACHINES CAN REACH: whoever has the key can use this machine, "
            "and the key travels unencrypted. Put a TLS proxy in front, or use --host 127.0.0.1",
            host,
        )
    return listener


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _base_url(host: str, listener: socket.socket) -> str:
    address, port = listener.getsockname()[:2]
    # A wildcard address is where to listen, not where to connect to.
    reachable = "localhost" if ipaddress.ip_address(address).is_unspecified else host
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def _print_how_to_connect(options: GatewayOptions, data: DataDirectory) -> Callable[[str], None]:
    def show(base_url: str) -> None:
        from_file = not os.environ.get(KEY_VARIABLE, "").strip()
        key = f"$(cat {shlex.quote(str(data.key_file))})" if from_file else f"${KEY_VARIABLE}"
        lines = [
            f"Whitney gateway {VERSION} · provider {options.provider} · models {', '.join(options.models)}",
            f"  listening on  {base_url}",
            f"  data          {data.path}",
            f"  key           {data.key_file if from_file else f'from ${KEY_VARIABLE}'}",
            "In another terminal:",
            f"  export WHITNEY_BASE_URL={base_url}",
        ]
        if from_file:
            lines.append(f"  export {KEY_VARIABLE}={key}")
        print("\n".join(lines), file=sys.stdout, flush=True)

    return show
