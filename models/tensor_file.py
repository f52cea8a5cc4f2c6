"""A safetensors file seen as fp32, one tensor at a time, and written over in place.

The library checks the header; the bytes are read here, because its NumPy side has no bfloat16, in which most base
models are published.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from models.errors import ModelError
from models.gguf import Floats

FLOATING = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}
"""What weights are stored in, by safetensors' names; NumPy holds the bits of a bfloat16 in a uint16."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies, `start` in bytes from the file's beginning, and what it is."""

    dtype: str
    shape: tuple[int, ...]
    start: int


class TensorFile:
    """An open safetensors file. `entries` lists its tensors by name, `metadata` what else its header says."""

    def __init__(self, path: Path) -> None:
        """Read and check the header.

        Raises:
            ModelError: it is missing, cut short, or no safetensors file.
        """
        self.path = path
        try:
            with safe_open(path, "np"):  # it knows all that can be wrong with a header
                pass
            with path.open("rb") as file:
                (size,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(size))
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path.name} cannot be read as safetensors: {error}") from error
        self.metadata: Mapping[str, str] = header.pop("__metadata__", {})
        self.entries = {
            name: TensorEntry(one["dtype"], tuple(one["shape"]), 8 + size + one["data_offsets"][0])
            for name, one in header.items()
        }

    def floats(self, name: str) -> Floats:
        """A tensor as fp32.

        Raises:
            ModelError: it does not hold floating-point numbers.
        """
        stored = self._view(name, "r")
        if self.entries[name].dtype == "BF16":
            return (stored.astype(np.uint32) << 16).view(np.float32)
        return stored.astype(np.float32)

    def overwrite(self, name: str, values: Floats) -> None:
        """Put other numbers in the place of a tensor's, rounded to the nearest that its type has.

        Raises:
            ModelError: as `floats`.
        """
        stored = self._view(name, "r+")
        stored[...] = _as_bfloat16(values) if self.entries[name].dtype == "BF16" else values
        stored.flush()

    def _view(self, name: str, mode: str) -> np.memmap[tuple[int, ...], np.dtype[np.generic]]:
        entry = self.entries[name]
        if entry.dtype not in FLOATING:
            raise ModelError(f"{self.path.name}: {name} is of type {entry.dtype}; read are {', '.join(FLOATING)}")
        dtype = FLOATING[entry.dtype]
        # NumPy's types list the modes one by one.
        return np.memmap(self.path, dtype, mode, entry.start, entry.shape)  # type: ignore[call-overload, no-any-return]


def _as_bfloat16(values: Floats) -> NDArray[np.uint16]:
    """The upper half of fp32's bits, to the nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
