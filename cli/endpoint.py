"""Where a command finds Whitney: what the environment names, a gateway that runs here, or one for this command only."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cli.failures import CommandFailedError, UsageError
from cli.greeting import greeting
from cli.local_extra import require_local_extra
from cli.run_data import WhitneyAt, run_data
from cli.terminal import Say
from tasks.credentials import settings_for
from whitney.errors import NoEndpointError
from whitney.kept import forget, keep
from whitney.settings import WhitneySettings, resolve_settings

if TYPE_CHECKING:
    from gateway.launch import GatewayProcess

STARTUP_S = 180.0
LETTING_GO_S = 30.0
LOOK_EVERY_S = 0.25
VARIABLES = ("WHITNEY_BASE_URL", "WHITNEY_API_KEY")


@contextmanager
def endpoint(
    models: Sequence[str], provider: str, *, embedded: bool | None, say: Say, former: Path | None = None
) -> Iterator[WhitneyAt]:
    """Make sure that Whitney answers while the block runs, and say where.

    `embedded` True: always a gateway of one's own; False: never; None: only when there is no other. `former` is the
    data folder of the gateway that an earlier attempt of the run had of its own: its states are there, nowhere else.

    Raises:
        ConfigurationError: there is none, and none may be started; or what is configured cannot be used.
        WhitneyError: it does not answer, or refuses the key. Better known now than after a flow run has begun.
    """
    if former is not None or embedded or (embedded is None and not _configured()):
        with embedded_gateway(models, provider, say=say, former=former) as whitney:
            yield whitney
    else:
        settings = resolve_settings()
        asyncio.run(greet(settings, say))
        yield WhitneyAt(settings.base_url)


async def greet(settings: WhitneySettings, say: Say) -> None:
    """Ask an endpoint what it serves, and say it.

    Raises:
        WhitneyError: as `cli.greeting.greeting`.
    """
    rows = await greeting(settings, say)
    say(
        f"Whitney at {settings.base_url} serves {', '.join(f'{row.provider}/{row.model}' for row in rows) or 'nothing'}"
    )


def greet_named(credentials_block: str, say: Say) -> None:
    """The same of an endpoint that a block on the Prefect server names.

    Raises:
        UsageError: there is no such block.
        WhitneyError: as `cli.greeting.greeting`.
    """
    try:
        settings = settings_for(credentials_block)
    except ValueError as error:
        raise UsageError(f"credentials_block = {credentials_block!r}: {error}") from error
    asyncio.run(greet(settings, say))


def _configured() -> bool:
    """Whether an endpoint is named or running here. One that is named badly is an error, not a reason for another."""
    try:
        resolve_settings()
    except NoEndpointError:
        return False
    return True


@contextmanager
def embedded_gateway(
    names: Sequence[str], provider: str, *, say: Say, former: Path | None = None
) -> Iterator[WhitneyAt]:
    """A gateway with these models for as long as the block runs, named by the environment here and in children.

    Should its process end before the block does, it is started again, a few times, and `say` is told. Where that fails,
    clients of this process stop asking it.

    Its data folder goes with the block, so saved states do too; after an error it stays, to go on from: as `former`.

    Raises:
        UsageError: the gateway's dependencies are not installed.
        CommandFailedError: the gateway does not come up.
        ModelError: the model is unknown or cannot be fetched.
    """
    require_local_extra()
    import models

    for name in names:
        models.resolve(name, progress=say)  # here, where the download's progress can be seen
    with (
        run_data("gateways", former) as data_dir,
        _kept(names, provider, data_dir, say, goes_on=former is not None) as gateway,
        _named_by_the_environment(gateway),
    ):
        yield WhitneyAt(gateway.base_url, data_dir)


@contextmanager
def _kept(names: Sequence[str], provider: str, data_dir: Path, say: Say, *, goes_on: bool) -> Iterator[GatewayProcess]:
    """The gateway, started again where it dies; `goes_on`: its data are those of a former attempt."""
    from gateway.keeper import keep_gateway
    from gateway.launch import LaunchError

    def ended(base_url: str, how: str) -> None:
        keep(base_url).ends.append(how)
        say(f"Warning: {how}; starting it again")

    def given_up(base_url: str, why: str) -> None:
        keep(base_url).lost = why
        say(f"Warning: {why}")

    served = " and ".join(names)
    say(f"Starting {'the' if goes_on else 'an'} embedded gateway with {served} for this run (data in {data_dir})")
    if goes_on:
        _wait_until_let_go(data_dir)
    with ExitStack() as stack:
        kept = keep_gateway(
            data_dir, provider=provider, models=tuple(names), timeout_s=STARTUP_S, ended=ended, given_up=given_up
        )
        try:
            gateway = stack.enter_context(kept)
        except LaunchError as error:
            if goes_on and _is_taken(data_dir):  # between the look and the start
                raise CommandFailedError(
                    f"another process goes on with this run: its gateway works in {data_dir}"
                ) from error
            raise CommandFailedError(str(error)) from error
        yield gateway


@contextmanager
def _named_by_the_environment(gateway: GatewayProcess) -> Iterator[None]:
    """Whoever looks for Whitney here or in a child finds the gateway, and what becomes of it is known here."""
    former = {name: os.environ.get(name) for name in VARIABLES}
    keep(gateway.base_url)
    os.environ.update(zip(VARIABLES, (gateway.base_url, gateway.api_key), strict=True))
    try:
        yield
    finally:
        forget(gateway.base_url)
        for name, value in former.items():
            _restore(name, value)


def _wait_until_let_go(data_dir: Path) -> None:
    """A gateway whose command was killed notices it, and takes a moment to stop.

    Raises:
        CommandFailedError: it does not.
    """
    deadline = time.monotonic() + LETTING_GO_S
    while _is_taken(data_dir):
        if time.monotonic() > deadline:
            raise CommandFailedError(
                f"a gateway still works in {data_dir}: either another process goes on with this run, or the gateway of "
                f"one that was killed does not end (its process id is in {data_dir / 'gateway.json'})"
            )
        time.sleep(LOOK_EVERY_S)


def _is_taken(data_dir: Path) -> bool:
    """Whether another gateway has the data folder.

    Raises:
        CommandFailedError: it cannot be used at all.
    """
    from gateway.storage import DataDirectory, DataDirectoryError, DataDirectoryTakenError

    directory = DataDirectory(data_dir)
    try:
        directory.open()
    except DataDirectoryTakenError:
        return True
    except DataDirectoryError as error:
        raise CommandFailedError(str(error)) from error
    directory.close()
    return False


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
