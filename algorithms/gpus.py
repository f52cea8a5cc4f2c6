"""GPUs by memory and speed, as their makers state them: `gpus.toml`. What an hour costs is the reader's to say."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from algorithms.names import did_you_mean

FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind.

    Args:
        name: short, lower case.
        memory: bytes.
        flops: bfloat16 operations a second, dense matrices, no sparsity.
        source: the maker's data sheet.
    """

    name: str
    memory: float
    flops: float
    source: str

    def seconds(self, operations: float, *, utilization: float) -> float:
        """Time for so many floating point operations.

        Args:
            operations: as `costs.flops` counts them.
            utilization: the share of `flops` that is really had (MFU), in 0…1.

        Raises:
            ValueError: a share outside 0…1.
        """
        if not 0 < utilization <= 1:
            raise ValueError(f"utilization is a share of the peak, above 0 and at most 1, and not {utilization:g}")
        return operations / (self.flops * utilization)


@cache
def gpus() -> dict[str, Gpu]:
    """All kinds by name."""
    rows = tomllib.loads(FILE.read_text(encoding="utf-8"))["gpus"]
    return {
        row["name"]: Gpu(row["name"], row["memory_gb"] * 1e9, row["bf16_tflops"] * 1e12, row["source"]) for row in rows
    }


def gpu(name: str) -> Gpu:
    """A kind.

    Raises:
        ValueError: an unknown name.
    """
    if name.lower() in gpus():
        return gpus()[name.lower()]
    raise ValueError(f"unknown GPU {name!r}: {did_you_mean(name, gpus())}known: {', '.join(gpus())}")
