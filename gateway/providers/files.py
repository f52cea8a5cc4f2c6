"""The files providers write: whole or not there at all, also after a power cut; the same content is the same bytes."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from whitney.types import WireErrorDetail

METADATA_KEY = "whitney"
"""The one entry, of JSON, in the metadata of states: safetensors writes several in an order that changes from process
to process."""


class NotWrittenError(Exception):
    """A file could not be written, and nothing of it is there; the message names it, the reason and the remedy."""

    @property
    def detail(self) -> WireErrorDetail:
        """The error of the operation that was to write it."""
        return WireErrorDetail(code="file_not_written", message=str(self))


@contextmanager
def naming(target: Path, remedy: str) -> Iterator[None]:
    """Say of a disk's refusal which file it hit, by folder and name, and what to do.

    Raises:
        NotWrittenError: the disk is full, or failed.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        _, io_error, reason = str(error).partition("I/O error: ")
        if isinstance(error, SafetensorError) and not io_error:
            raise  # a mistake of ours, not the disk's
        reason = reason or getattr(error, "strerror", None) or type(error).__name__
        raise NotWrittenError(
            f"{target.parent.name}/{target.name} could not be written ({reason}): {remedy}"
        ) from error


def write_durably(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a neighbouring file, bring it to the disk, and rename it onto `target`.

    Raises:
        NotWrittenError: the disk is full, or failed.
    """
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with naming(target, "make room where the gateway keeps its data, and open a new run from the last saved state"):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write(unfinished)
            _sync(unfinished)
            unfinished.replace(target)
            _sync(target.parent)  # the rename itself
        finally:
            with suppress(OSError):  # the error on its way says more
                unfinished.unlink(missing_ok=True)


def write_archive(target: Path, members: Mapping[str, bytes]) -> None:
    """Write `members` as a tar.gz, durably: no times, no owners, a fixed order."""

    def write(unfinished: Path) -> None:
        # Level 1: weights hardly shrink at any level.
        with (
            unfinished.open("wb") as file,
            gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=file, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive,
        ):
            for name, content in sorted(members.items()):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                entry.mode = 0o644
                archive.addfile(entry, io.BytesIO(content))

    write_durably(target, write)


def read_members(path: Path, *names: str) -> list[bytes]:
    """Members of a tar.gz, wherever in it their folder is, read in memory: nothing is unpacked to disk.

    Raises:
        KeyError: the archive has no member of that name.
        tarfile.TarError: it is no archive.
    """
    with tarfile.open(path, "r:gz") as archive:
        return [_member(archive, name) for name in names]


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    for entry in archive.getmembers():
        if Path(entry.name).name == name and (stream := archive.extractfile(entry)):
            return stream.read()
    raise KeyError(name)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
