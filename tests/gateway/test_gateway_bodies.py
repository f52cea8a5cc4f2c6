"""Request bodies: bounded after decompression, whatever they pretend to be before."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import zstandard

from gateway.body import read_body
from gateway.errors import GatewayError

LIMIT = 1 << 20


async def _stream(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@pytest.mark.parametrize(("encoding", "compress"), [("zstd", zstandard.compress), ("gzip", gzip.compress)])
async def test_a_bomb_is_stopped_at_the_limit_and_not_unpacked(encoding: str, compress: Any) -> None:
    bomb = compress(bytes(64 << 20))
    assert len(bomb) < LIMIT
    tracemalloc.start()
    with pytest.raises(GatewayError, match=f"more than {LIMIT} bytes after decompression") as caught:
        await read_body(_stream(bomb), encoding, LIMIT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.status == 413
    assert peak < 16 * LIMIT


async def test_a_body_of_exactly_the_limit_is_taken() -> None:
    body = bytes(LIMIT)
    assert await read_body(_stream(body[:100], body[100:]), None, LIMIT) == body
    assert await read_body(_stream(zstandard.compress(body)), "zstd", LIMIT) == body
    with pytest.raises(GatewayError):
        await read_body(_stream(body, b"x"), None, LIMIT)


async def test_a_body_in_several_frames_is_one_body() -> None:
    frames = zstandard.compress(b"[1,") + zstandard.compress(b"2]")
    assert await read_body(_stream(frames), "ZSTD", LIMIT) == b"[1,2]"
    assert await read_body(_stream(gzip.compress(b"[1,") + gzip.compress(b"2]")), "gzip", LIMIT) == b"[1,2]"


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("zstd", b"not compressed"), ("gzip", b"not compressed"), ("gzip", gzip.compress(b"[1, 2, 3]", mtime=0)[:-9])],
)
async def test_a_body_that_does_not_decompress_is_refused(encoding: str, body: bytes) -> None:
    with pytest.raises(GatewayError, match=f"does not decompress as {encoding}") as caught:
        await read_body(_stream(body), encoding, LIMIT)
    assert caught.value.status == 400


async def test_a_zstd_body_cut_short_is_not_json_any_more(caller: Any) -> None:
    whole = zstandard.compress(orjson.dumps({"create_key": "k" * 150}))
    answer = await caller.send("POST", "/sessions", content=whole[:-9], headers={"content-encoding": "zstd"})
    assert answer.status_code == 400


async def test_an_unknown_encoding_is_a_415(caller: Any) -> None:
    answer = await caller.send("POST", "/sessions", content=b"x", headers={"content-encoding": "br"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_encoding")


async def test_over_http_a_large_body_is_a_413_that_says_what_to_do(caller: Any, payloads: Any) -> None:
    run_id = await caller.open_run()
    body = orjson.dumps({"seq_id": 0, "kind": "forward_backward", "payload": payloads.training(), "pad": "x" * LIMIT})
    for content, headers in ((body, {}), (zstandard.compress(body), {"content-encoding": "zstd"})):
        answer = await caller.send("POST", f"/runs/{run_id}/operations", content=content, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        assert "--max-body-mb" in answer.json()["error"]["message"]


async def test_a_body_without_a_key_is_not_even_read(caller: Any) -> None:
    answer = await caller.send("POST", "/sessions", content=bytes(2 * LIMIT), headers={"authorization": "Bearer no"})
    assert answer.status_code == 401
