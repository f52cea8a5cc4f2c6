"""Retry, by clicking it: the Prefect UI in a headless Chromium, on a server that serves it, and a served deployment."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from flow_probes import lines
from playwright.async_api import Page, async_playwright, expect
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect_tables import with_tables
from served import RETRY, FaultyGateway, Served, serving, state_of
from tiny_configs import SHORT, tiny_config

from cli.prefect_server import free_port, prefect_server, project_server_environment, wait_until_up
from whitney.labels import ATTEMPT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_MS = 30_000

# Where a server has them, both.
PRESENT_UI, FORMER_UI = "/v2", ""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: the UI cannot be clicked")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FaultyGateway]:
    (tmp_path / "gateway").mkdir()
    with ExitStack() as stack:
        yield FaultyGateway(tmp_path / "gateway", stack)


@pytest.fixture
def served(gateway: FaultyGateway, tmp_path: Path) -> Iterator[Served]:
    """On a server of its own: the one that the other tests share has no UI."""
    environment = project_server_environment(with_tables(tmp_path / "prefect"), free_port())
    log = tmp_path / "prefect.log"
    key = gateway.settings.api_key.get_secret_value()
    with prefect_server(environment, log) as process:
        wait_until_up(process, environment, log)
        api_url = environment["PREFECT_API_URL"]
        environment |= {"WHITNEY_BASE_URL": gateway.settings.base_url, "WHITNEY_API_KEY": key}
        with (
            temporary_settings({PREFECT_API_URL: api_url}),
            serving("grpo", api_url=api_url, folder=tmp_path, environment=environment) as started,
        ):
            yield started


async def click_retry(page: Page, path: str) -> Any:
    """Retry on the flow run's page, and in the dialog that asks whether it is meant; what the page has posted."""
    if path == PRESENT_UI:  # it keeps what can be done to a flow run in a menu
        await page.locator("main button[aria-haspopup=menu]").first.click()
        await page.get_by_role("menuitem", name="Retry").click()
    else:
        await page.get_by_role("button", name="Retry").first.click()
    dialog = page.get_by_role("alertdialog").or_(page.get_by_role("dialog"))
    async with page.expect_request(re.compile(r"/set_state$")) as posted:
        await dialog.get_by_role("button", name="Retry").click()
    return (await posted.value).post_data_json


async def test_retry_clicked_in_either_ui_goes_on_at_the_failed_cycle(
    served: Served, gateway: FaultyGateway, tmp_path: Path
) -> None:
    gateway.fail({"action": "status", "status": 400, "kind": "save_state", "nth": 2})
    config = tiny_config("grpo", tmp_path, cycles=3, save_every=1, rewards=SHORT)
    flow_run_id = await served.press_run("grpo", config)
    screenshots = Path(os.environ.get("SCREENSHOTS", tmp_path))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        for attempt, (path, force) in enumerate(((PRESENT_UI, True), (FORMER_UI, False)), 1):
            assert state_of(await served.ended(flow_run_id, attempt)) == StateType.FAILED
            await page.goto(f"{served.api_url.removesuffix('/api')}{path}/runs/flow-run/{flow_run_id}")
            await expect(page.get_by_text("Failed", exact=True).first).to_be_visible(timeout=PATIENCE_MS)
            await page.screenshot(path=screenshots / f"{attempt}-failed.png")
            gateway.fail(*([{"action": "status", "status": 400, "kind": "export_lora"}] if attempt == 1 else []))
            assert await click_retry(page, path) == RETRY | {"force": force}
            await page.screenshot(path=screenshots / f"{attempt}-retried.png")
        assert state_of(await served.ended(flow_run_id, attempt=3)) == StateType.COMPLETED
        await expect(page.get_by_text("Completed", exact=True).first).to_be_visible(timeout=PATIENCE_MS)
        await page.screenshot(path=screenshots / "3-completed.png")
        await browser.close()
    sessions = await gateway.all_closed(flow_run_id)
    assert sorted(session.labels[ATTEMPT] for session in sessions) == ["1", "2", "3"]
    states = lines(tmp_path / "tiny-grpo" / "states.jsonl")
    assert [(state["block"], state["attempt"]) for state in states] == [(0, 1), (1, 2), (2, 2)]
