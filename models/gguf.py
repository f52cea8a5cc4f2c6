"""A reader of GGUF files: metadata, and tensors as fp32 arrays.

The format is that of ggml (docs/gguf.md in ggml-org/ggml). Only what SmolLM2's file uses is decoded (F32, Q4_1 and
Q8_0), because the general library for it is seven times slower and twice as hungry for memory.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import ModelError

Floats = NDArray[np.float32]

_SCALAR_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_F32, _Q4_1, _Q8_0 = 0, 3, 8
_BLOCK = 32  # weights that share one scale


@dataclass(frozen=True)
class _TensorEntry:
    shape: tuple[int, ...]
    kind: int
    offset: int


class GgufFile:
    """A GGUF file held in memory.

    `metadata` maps a key to its value; `tensor_names` lists the weights in file order.
    """

    def __init__(self, content: bytes) -> None:
        """Read the header.

        Raises:
            ModelError: `content` is not a GGUF file of version 2 or 3.
        """
        if content[:4] != b"GGUF":
            raise ModelError("not a GGUF file: it does not begin with the letters GGUF")
        self._content = content
        self._cursor = 4
        version, tensor_count, key_count = (*self._unpack("I"), *self._unpack("QQ"))
        if version not in (2, 3):
            raise ModelError(f"GGUF version {version} is not read, versions 2 and 3 are")
        self.metadata: dict[str, Any] = {}
        for _ in range(key_count):
            key = self._string()
            self.metadata[key] = self._value(self._unpack("I")[0])
        self._entries = self._read_entries(tensor_count)
        self.tensor_names = list(self._entries)

    def tensor(self, name: str) -> Floats:
        """One weight as fp32, in row-major order (GGUF lists dimensions the other way round).

        Raises:
            ModelError: its quantisation is not one of F32, Q4_1 and Q8_0.
        """
        entry = self._entries[name]
        count = math.prod(entry.shape)
        if entry.kind == _F32:
            values = np.frombuffer(self._content, np.float32, count, entry.offset).copy()
        elif entry.kind == _Q8_0:
            values = _dequantise_q8_0(self._blocks(entry, count, bytes_per_block=34))
        elif entry.kind == _Q4_1:
            values = _dequantise_q4_1(self._blocks(entry, count, bytes_per_block=20))
        else:
            raise ModelError(f"GGUF tensor {name} has quantisation type {entry.kind}; read are F32, Q4_1 and Q8_0")
        return values.reshape(entry.shape)

    def _read_entries(self, tensor_count: int) -> dict[str, _TensorEntry]:
        entries = {}
        for _ in range(tensor_count):
            name = self._string()
            (dimensions,) = self._unpack("I")
            shape = self._unpack(f"{dimensions}Q")
            kind, offset = self._unpack("IQ")
            entries[name] = _TensorEntry(tuple(reversed(shape)), kind, offset)
        alignment = self.metadata.get("general.alignment", 32)
        data_start = -(-self._cursor // alignment) * alignment
        return {
            name: _TensorEntry(entry.shape, entry.kind, data_start + entry.offset) for name, entry in entries.items()
        }

    def _blocks(self, entry: _TensorEntry, count: int, *, bytes_per_block: int) -> NDArray[np.uint8]:
        blocks = count // _BLOCK
        raw = np.frombuffer(self._content, np.uint8, blocks * bytes_per_block, entry.offset)
        return raw.reshape(blocks, bytes_per_block)

    def _unpack(self, codes: str) -> tuple[Any, ...]:
        # "<" also switches off struct's padding, which GGUF does not have.
        layout = struct.Struct("<" + codes)
        values = layout.unpack_from(self._content, self._cursor)
        self._cursor += layout.size
        return values

    def _string(self) -> str:
        (length,) = self._unpack("Q")
        start = self._cursor
        self._cursor += length
        return self._content[start : self._cursor].decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._unpack(_SCALAR_CODES[kind])[0]
        element_kind, count = self._unpack("IQ")
        if element_kind in _SCALAR_CODES:
            return list(self._unpack(f"{count}{_SCALAR_CODES[element_kind]}"))
        return [self._value(element_kind) for _ in range(count)]


def _dequantise_q8_0(blocks: NDArray[np.uint8]) -> Floats:
    """Rows of [fp16 scale, 32 × int8] → weights = scale · q."""
    scale = _half_floats(blocks[:, :2])
    return blocks[:, 2:].view(np.int8).astype(np.float32) * scale


def _dequantise_q4_1(blocks: NDArray[np.uint8]) -> Floats:
    """Rows of [fp16 scale, fp16 minimum, 16 bytes] → weights = scale · q + minimum.

    The low nibbles are a block's first sixteen weights, the high nibbles its last sixteen.
    """
    scale, minimum = _half_floats(blocks[:, :2]), _half_floats(blocks[:, 2:4])
    packed = blocks[:, 4:]
    weights = np.empty((len(blocks), _BLOCK), np.float32)
    weights[:, :16] = packed & 0x0F
    weights[:, 16:] = packed >> 4
    weights *= scale
    weights += minimum
    return weights


def _half_floats(two_bytes: NDArray[np.uint8]) -> Floats:
    return np.ascontiguousarray(two_bytes).view(np.float16).astype(np.float32)
