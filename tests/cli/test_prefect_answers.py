"""Whether a Prefect API answers at an address, asked without Prefect; and what is shown of the address."""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from uuid import UUID

import pytest

from cli.failures import in_words
from cli.prefect_answers import is_up
from cli.prefect_setup import flow_run_page
from cli.question import _page
from flows.stages.report import _page_of


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


@pytest.mark.parametrize("setting", ["PREFECT_API_URL", "PREFECT_UI_URL"])
def test_no_page_of_a_flow_run_has_the_password_of_the_server_in_its_address(setting: str) -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL, temporary_settings

    named = {"PREFECT_API_URL": "http://h:4200/api", "PREFECT_UI_URL": "http://h:4200"}
    named[setting] = named[setting].replace("h:", "team:pass%20word@h:")
    settings = {PREFECT_API_URL: named["PREFECT_API_URL"], PREFECT_UI_URL: named["PREFECT_UI_URL"]}
    flow_run_id = UUID(int=7)
    with temporary_settings(settings):
        shown = {flow_run_page(str(flow_run_id)), _page(flow_run_id), _page_of(str(flow_run_id))}
    assert shown == {f"http://h:4200/runs/flow-run/{flow_run_id}"}


def test_an_error_that_repeats_the_address_it_asked_is_told_without_the_password(guarded: str) -> None:
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError
    from prefect.settings import PREFECT_API_URL, temporary_settings

    address = f"http://team:another@{guarded}/api"
    with (
        temporary_settings({PREFECT_API_URL: address}),
        get_client(sync_client=True) as api,
        pytest.raises(PrefectHTTPStatusError) as refused,
    ):
        api.read_flow_run(UUID(int=7))
    assert "team:another@" in str(refused.value), "the client has it in its words"
    told = in_words(refused.value)
    assert f"401 Unauthorized' for url 'http://{guarded}/api/flow_runs/" in told
    assert "another" not in told
