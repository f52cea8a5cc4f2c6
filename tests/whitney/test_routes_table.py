from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted_endpoint import FakeTime, settings

from whitney.client import WhitneyClient
from whitney.errors import ConfigurationError
from whitney.lifecycle import LifecycleClient
from whitney.routes import ROUTES, Route, load_routes


def overrides(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "routes.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


async def test_a_routes_file_moves_a_path_and_leaves_the_others(tmp_path: Path) -> None:
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200, json={"run_id": "r", "status": "active", "rows": []})

    file = overrides(tmp_path, {"get_run": "/v2/trainings/{run_id}"})
    made = settings(routes_file=file, base_url="http://127.0.0.1:1/hosted/")
    async with WhitneyClient(made, transport=httpx.MockTransport(handle)) as client:
        await client.get_run("run_1")
        await client.capabilities()
    assert asked == [
        "http://127.0.0.1:1/hosted/v2/trainings/run_1",
        "http://127.0.0.1:1/hosted/v1/training/capabilities",
    ]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"get_rnu": "/x/{run_id}"}, "unknown route 'get_rnu'"),
        ({"get_run": "/x/{id}"}, "needs .'run_id'. in its path"),
        ({"get_run": "https://elsewhere.example/{run_id}"}, "begins with /"),
        ({"get_run": 5}, "begins with /"),
        (["get_run"], "JSON object"),
        ("{", "Expecting"),
        (None, "JSON object"),
    ],
)
def test_a_routes_file_that_cannot_be_used_is_a_configuration_error(
    tmp_path: Path, content: Any, complaint: str
) -> None:
    made = settings(routes_file=overrides(tmp_path, content))
    with pytest.raises(ConfigurationError, match=f"WHITNEY_ROUTES_FILE.*{complaint}"):
        LifecycleClient(made, deadline_s=1)


def test_a_routes_file_that_is_not_there_is_one_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"WHITNEY_ROUTES_FILE.*nowhere\.json"):
        LifecycleClient(settings(routes_file=tmp_path / "nowhere.json"), deadline_s=1)


def test_without_a_file_the_table_is_a_copy_of_its_own() -> None:
    load_routes()["get_run"] = Route("GET", "/elsewhere")
    assert ROUTES["get_run"].template.endswith("/runs/{run_id}")


async def test_no_id_can_reach_another_route() -> None:
    asked: list[bytes] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path)
        return httpx.Response(200, json={})

    retry = FakeTime().policy()
    async with WhitneyClient(settings(), transport=httpx.MockTransport(handle), retry=retry) as client:
        await client.delete_artifact("a/../../runs/r?x=1#y")
        for nothing in ("", ".", ".."):
            with pytest.raises(ValueError, match="artifact_id is"):
                await client.delete_artifact(nothing)
    assert asked == [b"/v1/training/artifacts/a%2F..%2F..%2Fruns%2Fr%3Fx%3D1%23y"]
