"""How growth of memory is read off: a leak shows as its size for each thousand operations."""

from __future__ import annotations

import psutil
import pytest

from benchmarks.endurance import Memory


def test_a_leak_of_a_hundred_bytes_an_operation_is_a_slope_of_98_kib_a_thousand() -> None:
    memory = Memory(psutil.Process())
    for operations in range(2000, 4001, 100):
        memory.operations.append(operations)
        leaked = 100 * (operations - 2000) / 1024
        memory.rows.append({"gateway": 70_000.0, "engine": 400 * 1024 + leaked})
    assert memory.slopes() == pytest.approx({"gateway": 0.0, "engine": 97.65625}, abs=1e-6)
    assert memory.at(0.5)["engine"] == pytest.approx(400 + 1000 * 100 / 1024 / 1024)


def test_memory_is_that_of_the_processes_themselves() -> None:
    memory = Memory(psutil.Process())
    memory.read(0)
    ballast = bytearray(64 << 20)
    ballast[::4096] = b"x" * (len(ballast) // 4096)
    memory.read(1)
    grown = memory.rows[1]["client"] - memory.rows[0]["client"]
    assert grown > 60 * 1024
    assert memory.rows[1]["gateway"] > 60 * 1024
    assert ballast
