"""`whitney mcp` as an agent's client sees it: a real client, over stdio, to the command in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from gateway.launch import GatewayProcess

CONFIG = """
algorithm = "grpo"
cycles = 1
groups_per_cycle = 2
group_size = 2
[model]
name = "tiny"
[sampling]
max_tokens = 4
[[rewards]]
function = "length"
arguments = { target = 4 }
[evaluation]
enabled = false
"""


@asynccontextmanager
async def connected(folder: Path, **variables: str) -> AsyncIterator[Client]:
    """A client of `whitney mcp`, run in `folder`."""
    environment = {**os.environ, "PREFECT_HOME": str(folder / "prefect"), **variables}
    server = StdioServerParameters(command=sys.executable, args=["-m", "cli", "mcp"], env=environment, cwd=folder)
    async with Client(server, read_timeout_seconds=120) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers, as data."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """What a tool says when it refuses."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return "".join(part.text for part in result.content if part.type == "text")


async def test_an_agent_reads_checks_runs_and_follows_a_training_and_never_sees_the_key(
    endpoint: GatewayProcess, prefect_server: str, tmp_path: Path
) -> None:
    (tmp_path / "tiny.toml").write_text(CONFIG)
    async with connected(tmp_path, PREFECT_API_URL=prefect_server) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {
            *("capabilities", "algorithms", "check", "run", "status")
        }
        answers = [await call(client, "capabilities")]
        assert [row["model"] for row in answers[0]["rows"]] == ["tiny"]
        answers.append(await call(client, "check", config="tiny.toml"))
        assert answers[-1]["ok"] is True
        assert answers[-1]["summary"] == "grpo on local/tiny: 1 cycles"
        assert answers[-1]["not_default"]["sampling"] == {"max_tokens": 4}
        started = await call(client, "run", config="tiny.toml", name="by-an-agent", overrides=["seed=3"])
        assert started["run_folder"] == "runs/by-an-agent"
        answers.append(started)
        while (status := await call(client, "status", run_folder=started["run_folder"]))["state"] == "running":
            await asyncio.sleep(0.2)
        answers.append(status)
        assert status["state"] == "finished", status["log"]
        assert status["cycles"] == len(status["last_cycles"]) == 1
        assert status["summary"]["open_sessions"] == 0
        assert "is there already" in await refused(client, "run", config="tiny.toml", name="by-an-agent")
    assert endpoint.api_key not in str(answers)
    assert endpoint.api_key not in (tmp_path / started["log"]).read_text()


async def test_what_an_agent_gets_wrong_is_told_as_the_command_line_tells_it(tmp_path: Path) -> None:
    (tmp_path / "sapo.toml").write_text('algorithm = "sapo"\n[model]\nname = "tiny"\nprovider = "modal"\n')
    async with connected(tmp_path, WHITNEY_BASE_URL="") as client:
        assert "did you mean 'grpo'?" in await refused(client, "algorithms", name="gpro")
        assert "no such file" in await refused(client, "check", config="nothing.toml")
        assert "modal does not advertise loss_function='sapo'" in await refused(client, "run", config="sapo.toml")
        assert "no such run folder" in await refused(client, "status", run_folder="runs/none")
        named = await call(client, "algorithms", name="sapo")
        assert any(reason.startswith("modal: has no sapo") for reason in named["refuses"])
        assert named["page"].startswith("# Soft adaptive policy optimization")
        every = (await call(client, "algorithms"))["algorithms"]
        assert len(every) > 20
        assert all(one["options"] for one in every)
    assert not (tmp_path / "runs").exists()


async def test_a_call_with_arguments_that_a_tool_does_not_have_is_refused_and_no_default_is_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "tiny.toml").write_text(CONFIG)
    async with connected(tmp_path) as client:
        for tool in (await client.list_tools()).tools:
            assert tool.input_schema["additionalProperties"] is False
        unknown = await refused(client, "run", config="tiny.toml", override=["cycles=2"])
        wrong = await refused(client, "check", overrides="cycles=2")
    assert unknown == "run: unknown argument 'override': did you mean 'overrides'? it takes config, name, overrides"
    assert "check: config is missing; overrides = 'cycles=2': input should be a valid list" in wrong
    assert "pydantic" not in wrong
    assert not (tmp_path / "runs").exists()


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import cli.mcp_server
    from cli.app import run_command

    monkeypatch.setattr(cli.mcp_server, "find_spec", lambda name: None)
    assert run_command(["mcp"]) == 2
    assert "pip install 'whitney-pipelines[mcp]'" in capsys.readouterr().err
