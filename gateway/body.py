"""Request bodies: bounded after decompression, so that a small bomb cannot fill the memory."""

from __future__ import annotations

import asyncio
import gzip
import io
import zlib
from collections.abc import AsyncIterator

import zstandard

from gateway.errors import GatewayError, shorten

_CHUNK = 1 << 20


async def read_body(stream: AsyncIterator[bytes], encoding: str | None, limit: int) -> bytes:
    """The decompressed body.

    Args:
        stream: the body's pieces as they arrive.
        encoding: the Content-Encoding header: none, `identity`, `gzip` or `zstd`.
        limit: most bytes, counted after decompression (and before it: a compressed body may not be larger either).

    Raises:
        GatewayError: 413 over the limit, 415 for another encoding, 400 when the bytes do not decompress.
    """
    received = bytearray()
    async for piece in stream:
        received += piece
        if len(received) > limit:
            raise _too_large(limit)
    name = (encoding or "identity").strip().lower()
    if name == "identity":
        return bytes(received)
    if name not in ("gzip", "zstd"):
        raise GatewayError(
            415, "unsupported_encoding", f"Content-Encoding {shorten(name)!r} is not known; use zstd, gzip or none"
        )
    # Decompressing takes milliseconds a megabyte and frees the interpreter's lock: other requests go on meanwhile.
    return await asyncio.to_thread(_decompress, bytes(received), name, limit)


def _decompress(compressed: bytes, name: str, limit: int) -> bytes:
    source = io.BytesIO(compressed)
    reader = gzip.GzipFile(fileobj=source) if name == "gzip" else _zstd_reader(source)
    body = bytearray()
    try:
        while piece := reader.read(_CHUNK):
            body += piece
            if len(body) > limit:
                raise _too_large(limit)
    except (zstandard.ZstdError, gzip.BadGzipFile, EOFError, zlib.error):
        raise GatewayError(400, "invalid_body", f"the body does not decompress as {name}") from None
    return bytes(body)


def _zstd_reader(source: io.BytesIO) -> zstandard.ZstdDecompressionReader:
    return zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True)


def _too_large(limit: int) -> GatewayError:
    return GatewayError(
        413,
        "body_too_large",
        f"the body has more than {limit} bytes after decompression; split the data over several operations "
        "(gradients add up until optim_step), or start the gateway with a larger --max-body-mb",
        details={"limit_bytes": limit},
    )
