"""Servers that are no Whitney, or none that is well, as a command meets them before it begins."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from pydantic import SecretStr

from cli.failures import is_user_mistake
from cli.greeting import greeting
from whitney.errors import WhitneyError
from whitney.settings import WhitneySettings

HEAD = "HTTP/1.1 {} \r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n"
PAGE = "<html>not here</html>"
WITHIN_S = 0.6


@pytest.mark.parametrize(
    ("says", "drips", "told"),
    [
        ("", False, "does not say within 0.6 s what it can do: is WHITNEY_BASE_URL right"),
        (HEAD.format(200, "application/json", 10**6), True, "within 0.6 s .* more seconds in WHITNEY_FIRST_CONTACT_S$"),
        (HEAD.format(200, "text/html", len(PAGE)) + PAGE, False, "does not .*: is WHITNEY_BASE_URL right"),
        (HEAD.format(500, "application/json", 2) + "{}", False, "does not .*: is WHITNEY_BASE_URL right"),
    ],
    ids=["silent", "a-byte-now-and-then", "a-page", "an-error"],
)
async def test_a_server_that_is_no_whitney_or_is_not_well_is_told_in_a_sentence_and_soon(
    says: str, drips: bool, told: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(says.encode())
            while (drips or not says) and not reader.at_eof():  # at the end: the client has hung up
                writer.write(b" " if drips else b"")
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.05)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        settings = WhitneySettings(base_url=address, api_key=SecretStr("secret"), first_contact_s=WITHIN_S)
        async with asyncio.timeout(10):
            with pytest.raises(WhitneyError, match=told) as caught:
                await greeting(settings, print)
        server.close()
        await asyncio.sleep(0.1)  # they notice that the client has hung up
    assert str(caught.value).startswith(address)
    assert is_user_mistake(caught.value)
