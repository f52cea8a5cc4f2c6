from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.states import AwaitingRetry, Scheduled, Suspended

from cli.app import run_command
from cli.smoke_checks import CHECKS, NOT_TAKEN
from gateway.launch import GatewayProcess, start_gateway
from whitney.client import WhitneyClient
from whitney.settings import WhitneySettings


@flow
def asked_and_due() -> None:
    """What is never run."""


def smoke_sessions(gateway: GatewayProcess) -> list[tuple[str, set[str]]]:
    """(status, statuses of its runs) of every session that smoke has opened."""

    async def ask() -> list[tuple[str, set[str]]]:
        settings = WhitneySettings(base_url=gateway.base_url, api_key=gateway.api_key)
        async with WhitneyClient(settings) as client:
            sessions = await client.list_sessions(label=("whitney.smoke", "true"))
            return [(session.status, {run.status for run in session.runs}) for session in sessions]

    return asyncio.run(ask())


def verdicts(shown: str) -> list[str]:
    return [cell for line in shown.splitlines() for cell in [line.split("│")[2].strip() if "│" in line else ""] if cell]


def test_smoke_proves_every_check_on_the_local_engine_and_closes_everything(
    endpoint: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["smoke"]) == 0
    shown = capsys.readouterr().out
    assert verdicts(shown) == ["ok"] * len(CHECKS)
    assert "Billed: 88 operations" in shown
    assert set(map(str, smoke_sessions(endpoint))) == {"('closed', {'cancelled'})"}


@pytest.mark.parametrize("provider", ["modal", "tinker"])
def test_smoke_leaves_out_the_form_that_a_provider_refuses(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with start_gateway(tmp_path / "data", provider=provider, models=("tiny",)) as gateway:
        monkeypatch.setenv("WHITNEY_BASE_URL", gateway.base_url)
        monkeypatch.setenv("WHITNEY_API_KEY", gateway.api_key)
        assert run_command(["smoke", "--provider", provider]) == 0
    shown = capsys.readouterr().out
    assert verdicts(shown) == ["ok"] * (len(CHECKS) - len(NOT_TAKEN[provider]))
    assert not any(name in shown for name in NOT_TAKEN[provider])


def test_smoke_finds_an_endpoint_whose_losses_are_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--reduction", "mean"]
    with start_gateway(tmp_path / "data", models=("tiny",), extra_args=arguments) as gateway:
        monkeypatch.setenv("WHITNEY_BASE_URL", gateway.base_url)
        monkeypatch.setenv("WHITNEY_API_KEY", gateway.api_key)
        assert run_command(["smoke"]) == 1
        assert {status for status, _ in smoke_sessions(gateway)} == {"closed"}
    (failed,) = [line for line in capsys.readouterr().out.splitlines() if "FAIL" in line]
    assert "plain sum" in failed


@pytest.mark.parametrize("provider", ["local", "modal"])
def test_smoke_finds_an_endpoint_that_drops_loss_config_by_every_check_of_it(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dropped = {"action": "drop_loss_config", "times": 1000}
    with start_gateway(tmp_path / "data", provider=provider, faults=[dropped]) as gateway:
        monkeypatch.setenv("WHITNEY_BASE_URL", gateway.base_url)
        monkeypatch.setenv("WHITNEY_API_KEY", gateway.api_key)
        assert run_command(["smoke"]) == 1
    taken = CHECKS.keys() - NOT_TAKEN.get(provider, set())
    failed = {line.split("│")[1].strip() for line in capsys.readouterr().out.splitlines() if "FAIL" in line}
    assert failed == {name for name in taken if "loss_config" in name}


def test_smoke_that_is_refused_half_way_has_failed_closes_its_session_and_says_how_to_make_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = {"action": "status", "status": 401, "route": "create_run"}
    with start_gateway(tmp_path / "data", faults=[refusal]) as gateway:
        monkeypatch.setenv("WHITNEY_BASE_URL", gateway.base_url)
        monkeypatch.setenv("WHITNEY_API_KEY", gateway.api_key)
        assert run_command(["smoke"]) == 1
        assert {status for status, _ in smoke_sessions(gateway)} == {"closed"}
    assert "whitney reap --session ses_" in capsys.readouterr().err


def test_smoke_of_a_model_that_is_not_served_says_what_is(
    endpoint: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["smoke", "--model", "llama-9"]) == 2
    assert "it serves local/tiny" in capsys.readouterr().err


def test_doctor_finds_a_gateway_that_answers(
    endpoint: GatewayProcess, prefect_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "ok   Whitney answers: it takes the key and serves local/tiny" in shown
    assert f"ok   Prefect API: {prefect_server}" in shown
    assert endpoint.api_key not in shown


def test_doctor_tells_a_wrong_key_and_shows_none(
    endpoint: GatewayProcess, prefect_server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHITNEY_API_KEY", "wk-not-the-key-7f3a")
    assert run_command(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "FAIL Whitney answers" in captured.out
    assert "WHITNEY_API_KEY" in captured.out
    assert "wk-not-the-key-7f3a" not in captured.out + captured.err


def test_doctor_without_an_endpoint_says_what_to_set_and_does_not_fail(
    endpoint: GatewayProcess,
    prefect_server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("WHITNEY_BASE_URL")
    monkeypatch.delenv("WHITNEY_API_KEY")
    monkeypatch.setenv("WHITNEY_DATA_DIR", str(tmp_path / "nobody"))
    assert run_command(["doctor"]) == 0
    assert "warn Whitney endpoint: none is named by WHITNEY_BASE_URL and WHITNEY_API_KEY" in capsys.readouterr().out


def test_doctor_names_the_runs_that_wait_and_what_for(
    endpoint: GatewayProcess, prefect_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting: dict[str, State] = {
        "a person: press Resume": Suspended(timeout_seconds=600),
        "a worker, after somebody has pressed Retry": AwaitingRetry(),
        "another run of its deployment to end": Scheduled(name="AwaitingConcurrencySlot"),
    }
    with get_client(sync_client=True) as api:
        runs = {what: api.create_flow_run(asked_and_due, state=state) for what, state in waiting.items()}
        assert run_command(["doctor"]) == 0
        for run in runs.values():
            api.delete_flow_run(run.id)
    shown = capsys.readouterr().out
    for what, run in runs.items():
        assert f"warn waiting run: {run.name} waits for {what}" in shown
        assert f"/runs/flow-run/{run.id}" in shown
