"""A PostgreSQL of a test's own, and a Prefect server on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.prefect_server import free_port, prefect_server, project_server_environment, wait_until_up


def programs() -> Path | None:
    """The folder of PostgreSQL's programs: `initdb` is on the PATH, or where Debian has it; None: not installed."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


@dataclass(frozen=True, slots=True)
class Database:
    """A database that answers."""

    bin: Path
    port: int

    @property
    def url(self) -> str:
        """As Prefect's server takes it."""
        return f"postgresql+asyncpg://prefect@127.0.0.1:{self.port}/postgres"

    def ask(self, query: str) -> str:
        """The one value that a query answers with."""
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "prefect", "postgres"]
        done = subprocess.run(
            [self.bin / "psql", "-tAc", query, *where], capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout.strip()


@contextmanager
def postgresql(bin_folder: Path) -> Iterator[Database]:
    """It runs while the block does; its data goes with it. As root, which it refuses, it runs as `nobody`."""
    user = "nobody" if os.geteuid() == 0 else None
    # Not below pytest's folder, which is its user's alone.
    folder = Path(tempfile.mkdtemp(prefix="whitney-postgresql-"))
    if user:
        shutil.chown(folder, user)
    data, port = folder / "data", free_port()

    def run(*command: str | Path) -> None:
        subprocess.run(
            command, user=user, cwd=folder, check=True, timeout=120, stdout=subprocess.DEVNULL, env=os.environ
        )

    try:
        run(bin_folder / "initdb", "-D", data, "-U", "prefect", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        run(bin_folder / "pg_ctl", "-D", data, "-l", folder / "log", "-w", "-o", options, "start")
        try:
            yield Database(bin_folder, port)
        finally:
            run(bin_folder / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)


@contextmanager
def prefect_on(database: Database, home: Path) -> Iterator[str]:
    """A Prefect server whose database is that one; the URL of its API."""
    environment = project_server_environment(home, free_port())
    environment["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = database.url
    log = home / "server.log"
    with prefect_server(environment, log) as process:
        wait_until_up(process, environment, log)
        yield environment["PREFECT_API_URL"]
