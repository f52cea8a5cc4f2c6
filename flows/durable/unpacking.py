"""An adapter's archive becomes a folder: whole, checked, and nowhere else."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import zlib
from pathlib import Path

from models.adapter import CONFIG_FILE, WEIGHTS_FILE, AdapterFolder
from tasks.adapter import AdapterError, AdapterFacts, Expected, check_adapter

LARGEST_SWELLING, SMALL_BYTES = 20, 64 * 1024**2
"""How many times its own size an archive may unpack to, and what it always may. Trained weights hardly shrink; those of
an adapter before its first step, half of them zeros, to a half."""


def unpack_adapter(archive: Path, folder: Path, expected: Expected) -> tuple[str, AdapterFacts]:
    """Unpack a PEFT archive, check what is in it, and give it its name: a folder of that name is always whole.

    Raises:
        AdapterError: it is no adapter archive, or not the one that is expected.
        OSError: it cannot be read, or there is no room to unpack it; names where.
    """
    beside = folder.with_name(f".{folder.name}.new")  # one attempt at a time is at work in a run folder
    shutil.rmtree(beside, ignore_errors=True)  # what a kill has left
    try:
        _extract(archive, beside)
        inside = next((one.parent for one in sorted(beside.rglob(CONFIG_FILE))), beside)
        facts = check_adapter(AdapterFolder(inside), expected)
        with (inside / WEIGHTS_FILE).open("rb") as weights:
            digest = hashlib.file_digest(weights, "sha256").hexdigest()
        _put_in_place(inside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return digest, facts


def _extract(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(folder, filter=_BoundedFilter(archive.stat().st_size))
        for file in folder.rglob("*"):
            if file.is_file():
                with file.open("rb") as stream:
                    os.fsync(stream)  # or a power cut after the rename leaves empty files with good names
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's fault, and not the archive's
            raise OSError(error.errno, error.strerror, error.filename or str(folder)) from error
        raise AdapterError(f"{archive}: not a readable adapter archive: {error}") from error


class _BoundedFilter:
    """Python's filter for data, which keeps every file within the folder; and an end to what an archive may swell to.

    Raises:
        TarError: a member would be written elsewhere, is no file, or is too much.
    """

    def __init__(self, archive_bytes: int) -> None:
        self._left = self._most = LARGEST_SWELLING * archive_bytes + SMALL_BYTES

    def __call__(self, member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
        """As `TarFile.extractall` asks it, before a member is written."""
        if not (member.isreg() or member.isdir()):
            raise tarfile.TarError(f"{member.name} in it is a link or a device, and an adapter is made of files")
        self._left -= member.size
        if self._left < 0:
            raise tarfile.TarError(f"with {member.name} it would unpack to more than {self._most} bytes")
        return tarfile.data_filter(member, folder)


def _put_in_place(new: Path, folder: Path) -> None:
    """Rename a folder over one of a former attempt, which is moved out of the way first."""
    former = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(former, ignore_errors=True)
    if folder.exists():
        folder.rename(former)
    new.rename(folder)
    shutil.rmtree(former, ignore_errors=True)
