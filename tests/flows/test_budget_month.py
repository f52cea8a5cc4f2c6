"""A project's month: all its runs count towards it, as the endpoint has them on its bill."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from flow_probes import all_sessions
from tiny_configs import tiny_config

import flows
from flows.config import ConfigError
from flows.durable.budget import month
from flows.durable.budget.billed import billed
from flows.durable.budget.month import spent_this_month
from gateway.launch import GatewayProcess
from tasks.lineage import count_operations
from whitney.client import WhitneyClient
from whitney.labels import PROJECT
from whitney.settings import WhitneySettings
from whitney.types import Run, RunUsage, Session


async def spent(project: str) -> int:
    async with WhitneyClient(WhitneySettings()) as client:
        return count_operations(await spent_this_month(client, project))


async def test_a_second_run_of_a_project_has_what_the_first_one_left_of_the_month(
    local: GatewayProcess, tmp_path: Path
) -> None:
    project = f"project-{uuid4().hex[:8]}"
    budget = {"project": project, "max_operations_per_month": 14}

    async def run(name: str) -> dict[str, Any]:
        config = tiny_config("sft", tmp_path, name=name, cycles=3, save_every=1, budget=budget)
        return await flows.sft(config)

    first = await run("first")
    assert (first["stopped"], await spent(project)) == (None, 10)
    second = await run("second")
    assert second["stopped"].startswith("budget.max_operations_per_month = 14: 13 used; cycle 2 may need 4 more")
    assert (second["cycles"], second["open_sessions"], await spent(project)) == (1, 0, 14)
    before = await all_sessions()
    with pytest.raises(ConfigError) as refused:
        await run("third")
    assert str(refused.value).startswith(
        f"budget.max_operations_per_month = 14: the runs of project {project!r} have used 14 this month, and one more "
        "that leaves an adapter needs 4 at least ("
    )
    assert str(refused.value).endswith("Set it to 18 or more, or wait for the next month")
    assert await all_sessions() == before
    assert not (tmp_path / "third").exists()


@pytest.mark.parametrize("looks", [2, 0], ids=["the-month-turns-while-it-runs", "its-clock-is-ahead-of-the-endpoints"])
async def test_what_a_run_is_billed_for_counts_whatever_the_clock_says(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    clock = iter([datetime.now(UTC)] * looks)
    a_month_on = datetime.now(UTC).replace(day=1) + timedelta(days=32)
    turning = SimpleNamespace(now=lambda zone: next(clock, a_month_on), fromisoformat=datetime.fromisoformat)
    monkeypatch.setattr(month, "datetime", turning)
    budget = {"project": f"project-{uuid4().hex[:8]}", "max_operations_per_month": 8}
    summary = await flows.sft(tiny_config("sft", tmp_path, cycles=3, save_every=1, budget=budget))
    assert (summary["cycles"], sum(summary["operations"].values()), summary["open_sessions"]) == (2, 7, 0)
    assert summary["budget"]["used"]["budget.max_operations_per_month"] == {"limit": 8, "used": 7}


class Endpoint:
    """A client's, as far as it is asked for sessions."""

    def __init__(self, *sessions: Session) -> None:
        self.sessions = sessions

    async def list_sessions(self, *, label: tuple[str, str]) -> list[Session]:
        assert label == (PROJECT, "p")
        return list(self.sessions)


def session(created_at: str | None, operations: int) -> Session:
    usage = RunUsage(operations={"sample": operations}, sampled_tokens=0)
    run = Run(run_id="run_1", status="finished", usage=usage)
    return Session(session_id="ses_1", status="closed", created_at=created_at, runs=[run])


async def test_sessions_of_earlier_months_do_not_count() -> None:
    begins = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    earlier = begins.replace(year=begins.year - 1)
    client: Any = Endpoint(session(earlier.isoformat(), 100), session(begins.isoformat(), 7))
    assert count_operations(await spent_this_month(client, "p")) == 7
    in_utc: Any = Endpoint(session(begins.replace(tzinfo=None).isoformat(), 7))
    assert count_operations(await spent_this_month(in_utc, "p")) == 7


@pytest.mark.parametrize("created_at", [None, "1764498000", "Mon, 30 Nov 2026 10:00:00 GMT"])
async def test_an_endpoint_that_does_not_say_when_a_session_began_is_told_of(created_at: str | None) -> None:
    client: Any = Endpoint(session(created_at, 1))
    with pytest.raises(
        ConfigError, match=rf"an endpoint that says when a session began .* says {created_at!r} of ses_1"
    ):
        await spent_this_month(client, "p")


@pytest.mark.parametrize(
    "usage", [{}, {"usage": {}}, {"usage": {"operations": {"sample": 3}}}], ids=["absent", "empty", "no-tokens"]
)
async def test_an_endpoint_that_does_not_say_what_was_billed_is_told_of(usage: dict[str, Any]) -> None:
    run = Run.model_validate({"run_id": "run_1", "status": "finished", **usage})
    with pytest.raises(ConfigError, match="an endpoint that says what was billed, and this one does not, of run run_1"):
        billed([session(None, 0).model_copy(update={"runs": [run]})])
