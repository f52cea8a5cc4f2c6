"""Whether a Prefect API answers at an address, asked without Prefect."""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cli.prefect_answers import is_up


class Guarded(BaseHTTPRequestHandler):
    """A server behind a user and a password, as a proxy has it."""

    def do_GET(self) -> None:
        known = f"Basic {b64encode(b'team:pass word').decode()}"
        self.send_response(200 if self.headers["Authorization"] == known else 401)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Guarded) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def test_a_password_in_the_address_opens_the_server_that_asks_for_it(guarded: str) -> None:
    assert is_up(f"http://team:pass%20word@{guarded}/api")
    assert not is_up(f"http://team:another@{guarded}/api")
    assert not is_up(f"http://{guarded}/api")


@pytest.mark.parametrize("address", ["http://127.0.0.1:x/api", "127.0.0.1:4200", "http://user:pw@127.0.0.1:9"])
def test_at_an_address_that_is_none_nothing_answers(address: str) -> None:
    assert not is_up(address)
