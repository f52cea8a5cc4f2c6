"""One run, stopped by a limit in its first block, within a later cycle, within its last measurement; then it ends.

Of each kind of limit that no plan can foresee to the last operation. `test_budget.py` has the one on operations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from flow_probes import Taught, first_attempt, lines, metrics, retry, sessions_of
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from tiny_configs import tiny_config

import flows
from flows.amounts import amount_told
from flows.checks.prepare import prepare
from flows.config.budget import KINDS
from flows.counts.part_tokens import block_tokens, measurement_tokens
from flows.durable import stopwatch
from flows.durable.budget.billed import billed
from gateway.launch import GatewayProcess
from tasks.lineage import count_operations
from tasks.run_folder import RunFolder
from whitney.client import WhitneyClient
from whitney.sequence import OperationHandle

# Slow learners, whose groups still differ in the last cycle. The second cycle is the dearer one, as nobody can know.
FIELDS: dict[str, Any] = {
    "optimizer": {"learning_rate": 2e-3},
    "save_every": 1,
    "seed": 1,
    "evaluation": {"samples": 1, "max_prompts": 2, "greedy": True},
}
PRICES = "[tokens]\nprefill = 1e6\nsampled = 1e6\ntrained = 1e6\n"
"""Of a million tokens: each costs 1."""


def tokens(usage: Any) -> int:
    return int(usage.prefill_tokens + usage.sampled_tokens + usage.trained_tokens)


def tokens_of_cycles(summary: dict[str, Any]) -> list[int]:
    return [sum(int(value) for name, value in row.items() if name.startswith("tokens/")) for row in metrics(summary)]


class Stopped:
    """A flow run that is given one limit after another."""

    def __init__(self, config: Any, field: str) -> None:
        self.config, self.field = config, field
        self.flow_run_id: UUID | None = None

    async def with_limit(self, limit: float | None) -> State[Any]:
        """The next attempt."""
        budget = {} if limit is None else {self.field: limit, "prices": "prices.toml"}
        config = type(self.config).model_validate({**self.config.model_dump(mode="json"), "budget": budget})
        if self.flow_run_id is None:
            self.flow_run_id, state = await first_attempt(flows.grpo, config)
            return state
        async with get_client() as api:
            await api.update_flow_run(self.flow_run_id, parameters={"config": config.model_dump(mode="json")})
        return await retry(flows.grpo, self.flow_run_id)

    async def billed(self) -> int:
        """Tokens of all attempts, by the endpoint; every session is closed."""
        assert self.flow_run_id is not None
        sessions = await sessions_of(self.flow_run_id)
        assert {session.status for session in sessions} == {"closed"}
        return tokens(billed(sessions))

    async def operations(self) -> int:
        """The same."""
        assert self.flow_run_id is not None
        return count_operations(billed(await sessions_of(self.flow_run_id)))

    async def minutes(self) -> float:
        """At work, by the run folder."""
        folder = RunFolder.find(self.config.output_dir, self.config.name, str(self.flow_run_id))
        assert folder is not None
        return sum(RunFolder(folder, str(self.flow_run_id)).read_seconds().values()) / 60


@pytest.fixture(autouse=True)
def _a_minute_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stopwatch's clock goes on by a minute with each operation that is posted."""
    minutes, submit = [0], WhitneyClient._submit

    def counted(self: WhitneyClient, handle: OperationHandle) -> OperationHandle:
        minutes[0] += 1
        return submit(self, handle)

    monkeypatch.setattr(WhitneyClient, "_submit", counted)
    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(monotonic=lambda: 60.0 * minutes[0]))


@pytest.fixture
async def config(local: GatewayProcess, taught: Taught, tmp_path: Path) -> Any:
    Path("prices.toml").write_text(PRICES)
    return tiny_config("grpo", tmp_path, state_id=(await taught("local"))["state_id"], **FIELDS)


@pytest.fixture(scope="module")
def _never_stopped() -> dict[str, Any]:
    return {}


@pytest.fixture
async def never(config: Any, _never_stopped: dict[str, Any]) -> dict[str, Any]:
    """The same run without a limit."""
    if not _never_stopped:
        _never_stopped |= await flows.grpo(config.model_copy(update={"name": "never-stopped"}))
    return _never_stopped


async def limits_by_tokens(run: Stopped, never: dict[str, Any], attempt: int) -> float:
    """What stops an attempt where it is to: in the first block, in the second, among a measurement's greedy answers."""
    client, inputs = await prepare("grpo", run.config)
    await client.aclose()
    measured, first, second = measurement_tokens(inputs), *tokens_of_cycles(never)
    if attempt == 1:  # what is drawn fits, and is not trained on
        return 2 * measured.drawing.counted + block_tokens(inputs, range(1)).drawing.counted
    again = [first + second - 1, second + measured.likely.counted][attempt - 2]
    return await run.billed() + again


async def limits_by_minutes(run: Stopped, never: dict[str, Any], attempt: int) -> float:
    """The same in operations, each of which takes one: a snapshot, two that sample, two for a step, one that saves."""
    measured, drawn, block = 5, 2, 6
    if attempt == 1:
        return measured + drawn
    return await run.minutes() + [block + 1 + drawn, block + 1 + 1][attempt - 2]


Limits = Callable[[Stopped, dict[str, Any], int], Awaitable[float]]


@pytest.mark.parametrize(
    ("field", "limits"),
    [
        pytest.param("max_tokens", limits_by_tokens, id="tokens"),
        # Money is counted as tokens are, by a price; the command line's own test has a run that it stops.
        pytest.param("max_cost", limits_by_tokens, id="cost", marks=pytest.mark.slow),
        pytest.param("max_minutes", limits_by_minutes, id="minutes"),
    ],
)
async def test_stopped_in_its_first_block_in_a_later_one_and_in_a_measurement_a_run_ends_as_one_that_never_stopped(
    field: str, limits: Limits, config: Any, never: dict[str, Any]
) -> None:
    told = partial(amount_told, KINDS[field], currency="USD")
    first, second = tokens_of_cycles(never)
    assert second > first, "else the second block is not begun where it does not fit"
    run = Stopped(config, field)

    limit = await limits(run, never, 1)
    state = await run.with_limit(limit)
    assert state.is_failed()
    assert str(state.message).startswith(f"budget.{field} = {told(limit)}: "), state.message
    assert " used; forward_backward " in str(state.message), "of the first block something was posted"
    assert f"No block is saved yet, so there is no adapter. Go on with a higher budget.{field}" in str(state.message)
    assert (
        f"what was billed so far counts ({(await run.operations()):,} operations, {await run.billed():,} tokens)"
        in str(state.message)
    )
    assert 0 < await run.billed() <= limit or field == "max_minutes"

    after = "the measurement after"
    for attempt, at, left_out in ((2, "forward_backward", ["cycle 2", after]), (3, "sample", [after])):
        limit = await limits(run, never, attempt)
        stopped = await (await run.with_limit(limit)).result()
        assert stopped["stopped"].startswith(f"budget.{field} = {told(limit)}: "), stopped["stopped"]
        assert f" used; {at} " in stopped["stopped"], "it is stopped in the middle"
        assert (stopped["budget"]["left_out"], stopped["open_sessions"]) == (left_out, 0)
        assert stopped["state_id"] == lines(Path(stopped["run_folder"]) / "states.jsonl")[attempt - 2]["state_id"]
        assert Path(stopped["adapter"]).is_dir()
        assert await run.billed() <= limit or field == "max_minutes"

    ended = await (await run.with_limit(None)).result()
    assert (ended["stopped"], ended["cycles"], ended["open_sessions"]) == (None, 2, 0)
    assert ended["adapter_sha256"] == never["adapter_sha256"]
    assert ended["evaluation_after"]["accuracy"] == never["evaluation_after"]["accuracy"]
