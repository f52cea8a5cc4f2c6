"""The client against a real gateway in a process of its own: the whole loop, and a line that loses answers."""

from __future__ import annotations

import asyncio
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway_harness import ADAMW, REQUEST, Opened, gateway, sample_payload, settings_of, train_payload
from pydantic import SecretStr
from scripted_endpoint import FakeTime

from gateway.launch import GatewayProcess
from whitney.client import WhitneyClient
from whitney.errors import (
    ConflictError,
    ConnectionFailedError,
    InvalidRequestError,
    NotFoundError,
    OperationCancelledError,
    OperationFailedError,
    OperationNotSentError,
    PayloadTooLargeError,
    UnauthorizedError,
    WaitTimeoutError,
)
from whitney.heartbeat import beat
from whitney.labels import ATTEMPT, FLOW_RUN
from whitney.lifecycle import close_sessions
from whitney.settings import WhitneySettings, local_gateway
from whitney.types import Initial

TOKENS = list(range(3, 20))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with gateway(tmp_path_factory.mktemp("gateway")) as process:
        yield process


async def adapter(client: WhitneyClient, run_id: str, to: Path) -> bytes:
    """The exported weights: with this provider they follow from all that the run was trained with, and its order."""
    exported = await client.run_operation(run_id, "export_lora", {})
    await client.download_artifact(exported["artifact_id"], to)
    return to.read_bytes()


async def one_cycle(client: WhitneyClient, run_id: str, groups: int = 4) -> str:
    """A whole cycle, posted as flows post it; the id of the state it ends in."""
    sampler_id = (await client.run_operation(run_id, "save_weights_for_sampler", {}))["sampler_id"]
    samples = [
        client.submit_sampler_operation(run_id, sampler_id, "sample", sample_payload(seed)) for seed in range(groups)
    ]
    results = await asyncio.gather(*samples)
    assert all(len(result["sequences"]) == 2 for result in results)
    assert sum(handle.usage.sampled_tokens for handle in samples) > 0
    backward = client.submit_run_operation(run_id, "forward_backward", train_payload(TOKENS))
    step = client.submit_run_operation(run_id, "optim_step", ADAMW)
    saved = client.submit_run_operation(run_id, "save_state", {})
    await asyncio.gather(backward, step, saved)
    assert backward.usage.trained_tokens == len(TOKENS) - 1
    return str((await saved)["state_id"])


async def test_the_whole_loop_from_capabilities_to_a_closed_session(server: GatewayProcess, tmp_path: Path) -> None:
    async with WhitneyClient(settings_of(server)) as client:
        assert (await client.healthz()).status == "ok"
        assert [row.model for row in (await client.capabilities()).rows] == ["tiny"]
        opened = await Opened.on(client, "loop", {"who": "test"})
        run_id = opened.run.run_id
        await one_cycle(client, run_id)
        exported = await client.run_operation(run_id, "export_lora", {})
        run = await opened.finish()
        assert run.status == "finished"
        assert run.usage.operations == {
            "save_weights_for_sampler": 1,
            "sample": 4,
            "forward_backward": 1,
            "optim_step": 1,
            "save_state": 1,
            "export_lora": 1,
        }
        assert (await client.get_session(opened.session.session_id)).status == "closed"
        assert await client.list_sessions(label=("who", "test"), status="open") == []

        archive = tmp_path / "downloads" / "adapter.tar.gz"
        await client.download_artifact(exported["artifact_id"], archive)
        with tarfile.open(archive) as tar:
            assert {"adapter_config.json", "adapter_model.safetensors"} <= {Path(name).name for name in tar.getnames()}
        await client.delete_artifact(exported["artifact_id"])
        with pytest.raises(NotFoundError):
            await client.download_artifact(exported["artifact_id"], archive)


async def test_a_state_outlives_its_session_and_a_new_run_goes_on_from_it(
    server: GatewayProcess, tmp_path: Path
) -> None:
    async with WhitneyClient(settings_of(server)) as client:
        first = await Opened.on(client, "first life")
        state_id = await one_cycle(client, first.run.run_id)
        trained = await adapter(client, first.run.run_id, tmp_path / "trained")
        await first.finish()
        assert (await client.get_state(state_id)).run_id == first.run.run_id
        session = await client.create_session(create_key="second life")
        request = REQUEST.model_copy(update={"initial": Initial(state_id=state_id)})
        run = await client.create_run(session.session_id, request)
        assert await adapter(client, run.run_id, tmp_path / "restored") == trained
        await Opened(client, session, run).finish()
        await client.delete_state(state_id)
        with pytest.raises(NotFoundError):
            await client.get_state(state_id)


async def test_what_a_bad_line_does_to_a_run_is_nothing(server: GatewayProcess, tmp_path: Path) -> None:
    faults: list[dict[str, Any]] = [
        {"action": "drop_answer", "route": "create_session"},
        {"action": "drop_answer", "route": "create_run"},
        {"action": "drop_answer", "route": "run_operation", "kind": "forward_backward", "times": 2},
        {"action": "drop_answer", "route": "run_operation", "kind": "optim_step"},
        {"action": "drop_answer", "route": "run_operation", "kind": "save_state"},
        {"action": "drop_answer", "route": "sampler_operation", "times": 3},
        {"action": "reset", "route": "sampler_operation", "nth": 5},
        {"action": "status", "status": 429, "retry_after_s": 0, "route": "get_operation", "nth": 2, "times": 2},
        {"action": "status", "status": 503, "route": "run_operation", "nth": 5},
        {"action": "drop_answer", "route": "get_operation", "nth": 6},
        {"action": "drop_answer", "route": "finish_run"},
        {"action": "drop_answer", "route": "close_session"},
    ]
    quick = FakeTime().policy()
    async with WhitneyClient(settings_of(server)) as client:
        calm = await Opened.on(client, "calm")
        await one_cycle(client, calm.run.run_id)
        expected = await adapter(client, calm.run.run_id, tmp_path / "calm")
        calm_end = await calm.finish()
    with gateway(tmp_path / "bad line", faults=faults) as bad:
        async with WhitneyClient(settings_of(bad), retry=quick) as client:
            stormy = await Opened.on(client, "stormy", {"line": "bad"})
            await one_cycle(client, stormy.run.run_id)
            trained = await adapter(client, stormy.run.run_id, tmp_path / "stormy")
            assert trained == expected, "the weights are those of a calm day"
            stormy_end = await stormy.finish()
            assert stormy_end.usage == calm_end.usage, "and so is the bill"
            assert stormy_end.next_seq_id == calm_end.next_seq_id
            sessions = await client.list_sessions(label=("line", "bad"))
            assert [len(session.runs) for session in sessions] == [1]


async def test_a_cycle_may_be_submitted_at_once_also_beyond_what_the_gateway_holds(server: GatewayProcess) -> None:
    async with WhitneyClient(settings_of(server)) as client:
        opened = await Opened.on(client, "many")
        run_id = opened.run.run_id
        sampler_id = (await client.run_operation(run_id, "save_weights_for_sampler", {}))["sampler_id"]
        handles = [
            client.submit_sampler_operation(run_id, sampler_id, "sample", sample_payload(seed, 1))
            for seed in range(300)
        ]
        await asyncio.gather(*handles)
        assert [handle.seq_id for handle in handles] == list(range(1, 301))
        assert (await opened.finish()).usage.operations["sample"] == 300


async def test_a_refused_operation_stops_those_behind_it_and_costs_nothing(server: GatewayProcess) -> None:
    async with WhitneyClient(settings_of(server)) as client:
        opened = await Opened.on(client, "refused")
        run_id = opened.run.run_id
        wrong = train_payload(TOKENS) | {"loss_function": "cross_entrpoy"}
        backward = client.submit_run_operation(run_id, "forward_backward", wrong)
        step = client.submit_run_operation(run_id, "optim_step", ADAMW)
        with pytest.raises(InvalidRequestError, match=r"payload\.loss_function") as caught:
            await backward
        assert caught.value.details["path"] == "payload.loss_function"
        with pytest.raises(OperationNotSentError):
            await step
        assert (await client.get_run(run_id)).usage.operations == {}
        await client.run_operation(run_id, "forward_backward", train_payload(TOKENS))
        assert (await opened.finish()).usage.operations == {"forward_backward": 1}


async def test_a_large_payload_arrives_compressed_and_one_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with gateway(tmp_path / "small", extra=["--max-body-mb", "0.2"]) as process:
        async with WhitneyClient(settings_of(process, compress_above_bytes=1000)) as client:
            opened = await Opened.on(client, "large")
            fits = train_payload([3 + n % 50 for n in range(8000)])
            await client.run_operation(opened.run.run_id, "forward_backward", fits)
            huge = train_payload(TOKENS)
            huge["data"] *= 4000
            with pytest.raises(PayloadTooLargeError, match="split the data"):
                await client.run_operation(opened.run.run_id, "forward_backward", huge)
            await client.run_operation(opened.run.run_id, "optim_step", ADAMW)
            assert (await opened.finish()).next_seq_id == 2


async def test_long_polls_outlast_their_wait_until_the_operation_ends(tmp_path: Path) -> None:
    with gateway(tmp_path / "slow", delays={"save_state": 0.5}) as process:
        async with WhitneyClient(settings_of(process, wait_s=0.1)) as client:
            opened = await Opened.on(client, "slow")
            handle = client.submit_run_operation(opened.run.run_id, "save_state", {})
            assert "state_id" in await handle
            assert handle.seconds > 0
            await opened.finish()


async def test_closing_the_client_ends_the_waits_and_touches_no_run(tmp_path: Path) -> None:
    with gateway(tmp_path / "closing", delays={"save_state": 1.0}) as process:
        client = WhitneyClient(settings_of(process))
        opened = await Opened.on(client, "closing")
        waits = [asyncio.ensure_future(client.run_operation(opened.run.run_id, "save_state", {})) for _ in range(3)]
        while (await client.get_run(opened.run.run_id)).next_seq_id < 3:
            await asyncio.sleep(0.01)
        await client.aclose()
        outcomes = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 30)
        assert [type(outcome) for outcome in outcomes] == [ConnectionFailedError] * 3
        async with WhitneyClient(settings_of(process)) as another:
            assert (await another.get_run(opened.run.run_id)).status == "active"
            assert (await another.await_operation(opened.run.run_id, 2)).status == "succeeded"


async def test_wrong_keys_and_unknown_ids_and_other_bodies_are_told_apart(server: GatewayProcess) -> None:
    wrong = settings_of(server).model_copy(update={"api_key": SecretStr("sk-somebody-elses")})
    async with WhitneyClient(wrong) as client:
        assert (await client.healthz()).status == "ok", "the one route without a key"
        with pytest.raises(UnauthorizedError, match="WHITNEY_API_KEY") as caught:
            await client.capabilities()
        assert "sk-somebody-elses" not in str(caught.value)
    async with WhitneyClient(settings_of(server)) as client:
        with pytest.raises(NotFoundError, match=r"get_run run_id=run_nowhere: 404 run_not_found.*\[request req_"):
            await client.get_run("run_nowhere")
        with pytest.raises(NotFoundError):
            await client.run_operation("run_nowhere", "save_state", {})
        await client.create_session(create_key="twice", labels={"a": "1"})
        with pytest.raises(ConflictError, match="create_key_conflict"):
            await client.create_session(create_key="twice", labels={"a": "2"})


async def test_a_gateway_that_is_not_there_is_named_with_what_to_do() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        nobody = WhitneySettings(base_url=url, api_key=SecretStr("sk-any-key"), first_contact_s=0.3)
        async with WhitneyClient(nobody) as client:
            with pytest.raises(ConnectionFailedError, match=rf"{url}.*whitney serve"):
                await client.capabilities()


async def test_waiting_for_a_run_that_goes_on_ends_in_time(server: GatewayProcess) -> None:
    async with WhitneyClient(settings_of(server)) as client:
        opened = await Opened.on(client, "goes on")
        with pytest.raises(WaitTimeoutError, match=f"{opened.run.run_id} .*it is active.*cancel it"):
            await client.wait_terminal(opened.run.run_id, timeout_s=0.2)
        with pytest.raises(ConflictError, match="run_not_terminal"):
            await client.close_session(opened.session.session_id)
        await client.cancel(opened.run.run_id)
        assert (await client.wait_terminal(opened.run.run_id, timeout_s=30)).status == "cancelled"
        await client.close_session(opened.session.session_id)
        with pytest.raises(ConflictError, match="run_not_active"):
            await client.run_operation(opened.run.run_id, "save_state", {})


async def test_operations_behind_a_cancel_end_cancelled(tmp_path: Path) -> None:
    with gateway(tmp_path / "cancel", delays={"save_state": 0.3}) as process:
        async with WhitneyClient(settings_of(process)) as client:
            opened = await Opened.on(client, "cancelled")
            handles = [client.submit_run_operation(opened.run.run_id, "save_state", {}) for _ in range(4)]
            await handles[0]
            await client.cancel(opened.run.run_id)
            outcomes = await asyncio.gather(*handles, return_exceptions=True)
            assert isinstance(outcomes[0], dict)
            assert isinstance(outcomes[-1], OperationCancelledError)
            await client.wait_terminal(opened.run.run_id, timeout_s=30)
            await client.close_session(opened.session.session_id)


async def test_hooks_end_active_runs_of_a_label_and_leave_other_labels_and_later_attempts(
    server: GatewayProcess,
) -> None:
    async with WhitneyClient(settings_of(server)) as client:
        mine = [await Opened.on(client, f"mine:{n}", {FLOW_RUN: "mine", ATTEMPT: str(n)}) for n in (1, 2, 3)]
        other = await Opened.on(client, "other:1", {FLOW_RUN: "other", ATTEMPT: "1"})
        pending = client.submit_run_operation(mine[0].run.run_id, "save_state", {})
        await pending

        async def hook(**options: Any) -> dict[str, bool]:
            arguments = {"label": (FLOW_RUN, "mine"), **options}
            verdicts = await asyncio.to_thread(close_sessions, settings_of(server), **arguments)
            return {verdict.session_id: verdict.closed for verdict in verdicts}

        ended = await hook(attempts_up_to=2)
        assert ended == {opened.session.session_id: True for opened in mine[:2]}
        assert [(await client.get_run(opened.run.run_id)).status for opened in mine] == [
            "cancelled",
            "cancelled",
            "active",
        ]
        assert await hook(attempts_up_to=2) == {}, "a second hook finds nothing left to do"
        assert await hook() == {mine[2].session.session_id: True}
        assert (await client.get_run(other.run.run_id)).status == "active"
        assert (await other.finish()).status == "finished"


async def test_a_run_that_has_ended_is_forgotten_and_takes_no_more_operations(server: GatewayProcess) -> None:
    async with WhitneyClient(settings_of(server)) as client:
        opened = await Opened.on(client, "forgotten")
        await client.run_operation(opened.run.run_id, "optim_step", ADAMW)
        assert opened.run.run_id in client._sequences
        await opened.finish()
        assert client._sequences == {}
        with pytest.raises(ConflictError, match="run_not_active"):
            await client.run_operation(opened.run.run_id, "optim_step", ADAMW)


async def test_a_hook_that_loses_every_other_answer_closes_all_the_same(tmp_path: Path) -> None:
    routes = ("list_sessions", "cancel_run", "get_run", "close_session")
    faults = [{"action": "drop_answer", "route": route} for route in routes]
    with gateway(tmp_path / "hook", faults=faults, delays={"save_state": 0.5}) as process:
        async with WhitneyClient(settings_of(process)) as client:
            opened = await Opened.on(client, "hook", {FLOW_RUN: "r"})
            handle = client.submit_run_operation(opened.run.run_id, "save_state", {})
            while handle.seq_id is None:
                await asyncio.sleep(0.01)
            (verdict,) = await asyncio.to_thread(close_sessions, settings_of(process), label=(FLOW_RUN, "r"))
            assert verdict.closed, verdict.message
            assert verdict.runs == {opened.run.run_id: "cancelled"}


async def test_after_a_kill_finished_results_stand_and_the_run_is_lost_not_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "power cut"
    with gateway(folder, delays={"save_state": 30}) as process:
        client = WhitneyClient(settings_of(process))
        opened = await Opened.on(client, "power cut")
        await client.run_operation(opened.run.run_id, "optim_step", ADAMW)
        pending = client.submit_run_operation(opened.run.run_id, "save_state", {})
        while pending.seq_id is None:
            await asyncio.sleep(0.01)
        process.kill()
        port = int(process.base_url.rpartition(":")[2])
    with gateway(folder, port=port) as again:
        assert again.base_url == process.base_url
        with pytest.raises((OperationFailedError, OperationCancelledError)) as caught:
            await pending
        assert "run_lost" in str(caught.value)
        assert (await client.get_run(opened.run.run_id)).status == "failed"
        assert (await client.get_operation(opened.run.run_id, 0)).status == "succeeded"
        await client.close_session(opened.session.session_id)
        await client.aclose()


async def test_a_beaten_session_outlives_its_time_to_live_and_an_abandoned_one_does_not(tmp_path: Path) -> None:
    with gateway(tmp_path / "ttl", extra=["--session-ttl-s", "1"]) as process:
        async with WhitneyClient(settings_of(process)) as client:
            kept, left = [await Opened.on(client, key) for key in ("kept", "left")]
            async with beat(client, kept.session.session_id, every_s=0.1):
                while (await client.get_session(left.session.session_id)).status == "open":
                    await asyncio.sleep(0.1)
                assert (await client.get_session(left.session.session_id)).reason == "expired"
                assert (await client.get_session(kept.session.session_id)).status == "open"
                await kept.finish()


def test_a_running_gateway_is_found_by_its_data_folder(server: GatewayProcess) -> None:
    found = local_gateway(server.data_dir)
    assert found is not None
    assert found.base_url == server.base_url
    assert found.api_key.get_secret_value() == server.api_key
