"""The data directory: who may use it, its key, and the files of saved states and exported adapters."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

import orjson
from filelock import FileLock, Timeout

KEY_VARIABLE = "WHITNEY_API_KEY"

_NEW_KEY = "delete it, and the next start writes a new key"
_FOLDERS = {"state": ("states", ".safetensors"), "artifact": ("artifacts", ".tar.gz")}


class DataDirectoryError(RuntimeError):
    """The data directory cannot be used; the message says why and what to do."""


class DataDirectoryTakenError(DataDirectoryError):
    """Another gateway is at work in it."""


class DataDirectory:
    """One gateway's folder, held by a lock while the gateway lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ledger = path / "ledger.sqlite"
        self.key_file = path / "api_key"
        self.notice = path / "gateway.json"
        self.scratch = path / "scratch"
        self._lock = FileLock(path / "gateway.lock")

    def open(self) -> None:
        """Create what is missing and take the lock.

        Raises:
            DataDirectoryTakenError: another gateway has it.
            DataDirectoryError: it cannot be written, or something else is in the place of a file.
        """
        for file in (self.ledger, self.key_file, self.notice):
            if file.is_dir():
                raise DataDirectoryError(f"{file} is a directory, where a file of the gateway's belongs: remove it")
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder, _ in _FOLDERS.values():
                (self.path / folder).mkdir(exist_ok=True)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise DataDirectoryTakenError(
                f"another gateway is using {self.path}: stop it, or give this one another --data-dir"
            ) from None
        except OSError as error:
            at = "" if error.filename in (None, str(self.path)) else f" (at {error.filename})"
            raise DataDirectoryError(f"{self.path} cannot be used as data directory: {error.strerror}{at}") from error

    def close(self) -> None:
        """Take the notice down and give the lock back; idempotent."""
        if self._lock.is_locked:
            self.notice.unlink(missing_ok=True)
            self._lock.release()

    def api_key(self) -> str:
        """$WHITNEY_API_KEY, else the key file's content; the file is made (mode 0600) at first start.

        Raises:
            DataDirectoryError: the file cannot be read or written, is empty, or no key can be what is in it.
        """
        if key := os.environ.get(KEY_VARIABLE, "").strip():
            return _usable(key, f"${KEY_VARIABLE}", "set another")
        if not self.key_file.exists():
            self._write(self.key_file, f"{secrets.token_urlsafe(32)}\n".encode())
        try:
            content = self.key_file.read_bytes()
        except OSError as error:
            raise DataDirectoryError(f"{self.key_file} cannot be read: {error.strerror}") from error
        return _usable(content.decode(errors="replace").strip(), str(self.key_file), _NEW_KEY)

    def announce(self, notice: dict[str, object]) -> None:
        """Write `gateway.json`: clients on this machine find the gateway by it.

        Raises:
            DataDirectoryError: it cannot be written.
        """
        self._write(self.notice, orjson.dumps(notice))

    def _write(self, target: Path, content: bytes) -> None:
        """Write a small file, for its owner's eyes only: whole, or not at all."""
        beside = target.with_name(f".{target.name}.tmp")
        try:
            beside.unlink(missing_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
        except OSError as error:
            raise DataDirectoryError(f"{target} cannot be written: {error.strerror}; make room on its disk") from error

    def file(self, kind: str, file_id: str) -> Path:
        """Where a state (`*.safetensors`) or an artifact (`*.tar.gz`) lies."""
        folder, suffix = _FOLDERS[kind]
        return self.path / folder / f"{file_id}{suffix}"

    def sweep(self, promised: set[str]) -> int:
        """Delete files that no ledger row speaks of: a gateway was killed between writing and recording them."""
        orphans = [
            path
            for folder, suffix in _FOLDERS.values()
            for path in (self.path / folder).iterdir()
            if path.is_file() and path.name.removesuffix(suffix) not in promised
        ]
        for path in orphans:
            path.unlink()
        return len(orphans)


def _usable(key: str, where: str, way_out: str) -> str:
    """A key that can be sent in a header; the message about another does not quote it."""
    if not key:
        raise DataDirectoryError(f"{where} is empty: {way_out}")
    if not all("!" <= character <= "~" for character in key):
        raise DataDirectoryError(f"{where} holds no key: a key is printable ASCII without spaces; {way_out}")
    return key


def measure(path: Path) -> tuple[int, str]:
    """Size in bytes and SHA-256 of a file."""
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()
