"""When a run cannot go on: a clear message, nothing allocated in vain, nothing left open."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tiny_configs import grpo_config

import flows
from flows.config import ConfigError
from gateway.launch import GatewayProcess, start_gateway
from tasks.events import Event, listening
from whitney.client import WhitneyClient
from whitney.errors import ConnectionFailedError, UnauthorizedError, WhitneyError
from whitney.settings import WhitneySettings

pytestmark = pytest.mark.usefixtures("prefect_server", "endpoint")


async def sessions() -> list[tuple[str, str]]:
    """(session id, status) of everything the gateway of the environment knows."""
    async with WhitneyClient(WhitneySettings()) as client:
        return [(session.session_id, session.status) for session in await client.list_sessions()]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": {"name": "tyni"}}, "tyni"),
        ({"lora": {"rank": 512}}, "lora.rank = 512"),
        ({"model": {"name": "tiny", "provider": "modal"}}, "this gateway serves local/tiny"),
        ({"data": {"source": "adition-1digit"}}, "did you mean 'addition-1digit'?"),
        ({"rewards": [{"function": "nubmer"}]}, "did you mean 'number'?"),
        ({"rewards": [{"function": "no_such_module:reward"}]}, "no_such_module"),
        ({"model": {"name": "tiny", "tokenizer": "smollm2-135m-instruct"}}, "model.tokenizer"),
        ({"data": {"source": "capitals"}, "rewards": [{"function": "number"}]}, "cannot score a single answer"),
        ({"data": {"source": "capitals"}, "evaluation": {"reward": "number"}}, "evaluation.reward = 'number'"),
        ({"data": {"source": "capitals", "heldout_fraction": 0.2}}, "data.heldout_fraction = 0.2 has no effect"),
        ({"data": {"source": "capitals", "reasoning_gym": {"size": 3}}}, "data.reasoning_gym has no effect"),
    ],
)
async def test_what_cannot_work_is_refused_before_anything_is_allocated(
    fields: dict[str, Any], said: str, tmp_path: Path
) -> None:
    before = await sessions()
    with pytest.raises(ValueError, match=r"\w") as raised:
        await flows.grpo(grpo_config(tmp_path, **fields))
    assert said in str(raised.value)
    assert await sessions() == before
    assert not list(tmp_path.iterdir()), "not even a run folder"


async def test_malformed_data_is_named_by_file_and_line(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "1 + 1 = ?", "answer": "2"}\n{"prompt": ""}\n')
    with pytest.raises(ValueError, match=r"data\.jsonl:2: "):
        await flows.grpo(grpo_config(tmp_path, data={"source": str(data), "heldout_fraction": 0}))


async def test_a_special_token_in_the_last_of_many_examples_is_found_before_anything_is_allocated(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data.jsonl"
    rows = [{"prompt": f"{n} + 1 = ?", "answer": "2"} for n in range(300)]
    rows.append({"prompt": "be good<|im_end|>now be bad", "answer": "2"})
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = await sessions()
    with pytest.raises(ValueError, match=r"special token '<\|im_end\|>'"):
        await flows.grpo(grpo_config(tmp_path, data={"source": str(data), "heldout_fraction": 0}))
    assert await sessions() == before


async def test_an_output_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="output_dir = '/proc/nowhere' cannot be written to"):
        await flows.grpo(grpo_config(Path("/proc/nowhere")))


async def test_a_training_flow_inside_a_flow_of_ones_own_is_closed_by_its_own_hook(tmp_path: Path) -> None:
    from prefect import flow
    from prefect.client.orchestration import get_client

    from flows.hooks import close_sessions_of_flow_run
    from whitney.labels import FLOW_RUN, ROOT_FLOW_RUN

    @flow
    async def of_ones_own() -> dict[str, Any]:
        return await flows.grpo(grpo_config(tmp_path, cycles=1, evaluation={"enabled": False}))

    summary = await of_ones_own()
    async with WhitneyClient(WhitneySettings()) as client, get_client() as api:
        (session,) = await client.list_sessions(label=(FLOW_RUN, summary["flow_run_id"]))
        assert session.labels[ROOT_FLOW_RUN] != summary["flow_run_id"]
        # As after a SIGKILL: the flow run is known, its session is still open, and the hook is called elsewhere.
        left = await client.create_session(create_key="left open", labels=session.labels)
        run = await api.read_flow_run(summary["flow_run_id"])
        assert run.state is not None
        close_sessions_of_flow_run(flows.grpo, run, run.state)
        assert (await client.get_session(left.session_id)).status == "closed"


async def test_a_prefect_server_that_hangs_does_not_keep_the_hook_from_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from prefect.client.schemas.objects import FlowRun
    from prefect.settings import PREFECT_API_URL, temporary_settings
    from prefect.states import Crashed

    from flows.hooks import close_sessions_of_flow_run
    from whitney.labels import ATTEMPT, FLOW_RUN

    monkeypatch.setattr("tasks.brief_api.ANSWER_S", 0.3)
    flow_run = FlowRun(flow_id=uuid4(), run_count=1)
    labels = {FLOW_RUN: str(flow_run.id), ATTEMPT: "1"}
    async with WhitneyClient(WhitneySettings()) as client:
        left = await client.create_session(create_key=str(flow_run.id), labels=labels)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/api"
            with temporary_settings({PREFECT_API_URL: url}):
                await asyncio.to_thread(close_sessions_of_flow_run, flows.grpo, flow_run, Crashed())
        assert (await client.get_session(left.session_id)).status == "closed"


async def test_a_wrong_key_is_refused_with_the_variable_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHITNEY_API_KEY", "not-the-key")
    with pytest.raises(UnauthorizedError, match="WHITNEY_API_KEY") as raised:
        await flows.grpo(grpo_config(tmp_path))
    assert "not-the-key" not in str(raised.value)


async def test_an_endpoint_that_is_not_there_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHITNEY_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WHITNEY_RETRY_DEADLINE_S", "0.2")
    with pytest.raises(ConnectionFailedError, match="whitney serve"):
        await flows.grpo(grpo_config(tmp_path))


async def test_rewards_that_raise_or_are_no_number_are_counted_and_the_rest_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graders = tmp_path / "moody_graders.py"
    graders.write_text(
        "import zlib\n"
        "def moody(completion):\n"
        "    mood = zlib.crc32(completion.text.encode()) % 4\n"
        "    if mood == 0:\n"
        "        raise RuntimeError('a bad day')\n"
        "    return float('nan') if mood == 1 else float(mood)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    summary = await flows.grpo(
        grpo_config(tmp_path, rewards=[{"function": "moody_graders:moody"}], cycles=2, evaluation={"enabled": False})
    )
    rows = [json.loads(line) for line in (Path(summary["run_folder"]) / "metrics.jsonl").read_text().splitlines()]
    failures = {key for row in rows for key in row if key.startswith("reward_failures/")}
    assert any("RuntimeError" in key for key in failures)
    assert sum(row.get("dropped/unscored", 0) for row in rows) > 0
    assert summary["open_sessions"] == 0


@pytest.fixture
def faulty(endpoint: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GatewayProcess]:
    """A gateway of its own whose `save_state` posts break, every time."""
    fault = {"action": "reset", "route": "run_operation", "kind": "save_state", "times": 10000}
    with start_gateway(tmp_path / "gateway", faults=[fault]) as gateway:
        monkeypatch.setenv("WHITNEY_BASE_URL", gateway.base_url)
        monkeypatch.setenv("WHITNEY_API_KEY", gateway.api_key)
        monkeypatch.setenv("WHITNEY_RETRY_DEADLINE_S", "0.5")
        yield gateway


@pytest.mark.usefixtures("faulty")
async def test_a_run_that_fails_midway_is_cancelled_and_its_session_closed(tmp_path: Path) -> None:
    events: list[Event] = []
    with listening(events.append), pytest.raises(WhitneyError, match=r"save_state|run_operation"):
        await flows.grpo(grpo_config(tmp_path))
    (opened,) = [event.facts for event in events if event.kind == "session_opened"]
    async with WhitneyClient(WhitneySettings()) as client:
        session = await client.get_session(opened["session_id"])
        assert session.status == "closed"
        assert [run.status for run in session.runs] == ["cancelled"]
    assert [event.kind for event in events][-2:] == ["verdict", "session_closed"], "how it ended is told"


@pytest.mark.parametrize("provider", ["modal", "tinker"])
async def test_the_same_flows_run_against_what_each_provider_accepts(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start_gateway(tmp_path / "gateway", provider=provider, models=("tiny",)) as gateway:
        monkeypatch.setenv("WHITNEY_BASE_URL", gateway.base_url)
        monkeypatch.setenv("WHITNEY_API_KEY", gateway.api_key)
        from tiny_configs import sft_config

        model = {"name": "tiny", "provider": provider}
        trained = await flows.grpo(
            grpo_config(tmp_path, model=model, rewards=[{"function": "length", "arguments": {"target": 3}}])
        )
        taught = await flows.sft(sft_config(tmp_path, model=model, cycles=2))
    assert trained["operations"]["forward_backward"] >= 1
    assert (trained["provider"], trained["open_sessions"]) == (provider, 0)
    assert (taught["operations"]["optim_step"], taught["open_sessions"]) == (2, 0)


async def test_a_reward_that_scores_nothing_stops_the_run_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.scoring import RewardError

    (tmp_path / "broken_graders.py").write_text("def broken(completion):\n    return completion.answr\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    rewards = [{"function": "broken_graders:broken"}]
    config = grpo_config(tmp_path, name="broken", rewards=rewards, evaluation={"enabled": False})
    with pytest.raises(RewardError, match=r"cycle 1: 16 of 16 completions could not be scored: .*AttributeError"):
        await flows.grpo(config)
    assert {status for _, status in await sessions()} <= {"closed"}
