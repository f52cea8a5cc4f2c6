"""An adapter's archive on the disk: what cannot be unpacked is told by whose fault it is."""

from __future__ import annotations

import io
import resource
import tarfile
from pathlib import Path

import pytest

from flows.export import unpack_adapter


def test_a_full_disk_is_not_taken_for_a_bad_archive(tmp_path: Path) -> None:
    archive = tmp_path / "adapter.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("adapter_model.safetensors")
        member.size = 10
        tar.addfile(member, io.BytesIO(b"0123456789"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match=f"File too large: '{tmp_path / 'adapter'}"):
            unpack_adapter(archive, tmp_path / "adapter")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00"])
def test_what_is_no_archive_is_told_by_its_name(content: bytes, tmp_path: Path) -> None:
    archive = tmp_path / "adapter.tar.gz"
    archive.write_bytes(content)
    with pytest.raises(ValueError, match=f"{archive}: not a readable adapter archive"):
        unpack_adapter(archive, tmp_path / "adapter")
