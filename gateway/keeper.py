"""A gateway that is started again when it dies in the midst of somebody's work, on the same port and data.

Its ledger is durable: started again it answers for every operation, and sessions can be closed. The weights that its
engine held are gone, so each run that was alive has failed with `run_lost`. What is gained is that its clients hear
so within seconds, instead of asking a dead address for minutes.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from gateway.launch import GatewayProcess, Launch, LaunchError, close_stdin, made

RESTARTS = 3

Told = Callable[[str, str], None]
"""Is given a base URL and a sentence; in another thread."""


@contextmanager
def keep_gateway(
    data_dir: Path,
    *,
    provider: str,
    models: Sequence[str],
    timeout_s: float,
    ended: Told,
    given_up: Told,
    restarts: int = RESTARTS,
) -> Iterator[GatewayProcess]:
    """As `start_gateway`, and start it again when its process ends before the block does.

    Args:
        data_dir: its data directory.
        provider: as `--provider`.
        models: as `--model`.
        timeout_s: how long it may take to listen, each time.
        ended: is told, in another thread, its base URL and how it has ended: it is about to be started again.
        given_up: is told why it stays away: it does not come up again, or has ended after all `restarts`.
        restarts: how often it is started again.

    Raises:
        LaunchError: it did not come up the first time.
    """
    launch = Launch(made(data_dir), ("--provider", provider, "--model", *models), timeout_s)
    gateway = launch.wait_until_listening(launch.spawn(0))
    keeper = _Keeper(launch, gateway, ended, given_up, restarts)
    try:
        yield gateway
    finally:
        keeper.end()


class _Keeper:
    """Waits for the process's end in a thread of its own, which every later process has for its parent."""

    def __init__(
        self,
        launch: Launch,
        gateway: GatewayProcess,
        ended: Told,
        given_up: Told,
        restarts: int,
    ) -> None:
        self._launch = launch
        self._gateway = gateway
        self._port = urlsplit(gateway.base_url).port or 0
        self._ended = ended
        self._given_up = given_up
        self._restarts = restarts
        self._ending = False
        self._spawning = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="gateway-keeper", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop the gateway, whether it serves or is just starting; no other follows it."""
        with self._spawning:
            self._ending = True
        self._gateway.stop()
        self._thread.join()
        close_stdin(self._gateway.process)

    def _watch(self) -> None:
        for left in reversed(range(self._restarts + 1)):
            how = f"the gateway of this run {how_it_ended(self._gateway.process.wait())}"
            if self._ending:
                return
            if not left:
                self._give_up(f"{how}, once more after {self._restarts} restarts; its log: {self._launch.log}")
                return
            self._note(how)
            try:
                if not self._start_again():
                    return
            except LaunchError as error:
                if not self._ending:
                    self._give_up(f"{how}, and does not start again: {error.briefly} (all of it: {self._launch.log})")
                return

    def _start_again(self) -> bool:
        """Start it, unless the block has ended; True once it listens."""
        with self._spawning:
            if self._ending:
                return False
            close_stdin(self._gateway.process)
            # Known to `end` before it listens: a start that takes long must not hold up the end.
            self._gateway.process = self._launch.spawn(self._port)
        self._launch.wait_until_listening(self._gateway.process)
        return True

    def _give_up(self, reason: str) -> None:
        self._given_up(self._gateway.base_url, reason)

    def _note(self, how: str) -> None:
        """Tell it, and write it into the log, where the gateway itself can no longer."""
        with self._launch.log.open("a", encoding="utf-8") as log:
            log.write(f"WARNING gateway.keeper: {how}; starting it again\n")
        self._ended(self._gateway.base_url, how)


def how_it_ended(code: int) -> str:
    """A process's exit code in words."""
    if code >= 0:
        return f"has ended with code {code}"
    if -code == signal.SIGKILL:
        return "was killed (SIGKILL: by somebody, or because memory ran out)"
    return f"has ended by {signal.Signals(-code).name}"
