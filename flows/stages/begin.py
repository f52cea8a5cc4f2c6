"""How a pipeline begins: every stage is checked, earlier attempts are dealt with, the run folder is taken."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from flows.checks.planned import planned_operations, planned_sessions
from flows.checks.prepared import Prepared
from flows.config import ConfigError
from flows.config.pipeline import PipelineConfig
from flows.durable.approval import ask_if_large, plan_of
from flows.durable.earlier import take_over
from flows.durable.slots import require_slots
from flows.durable.unchanged import skip_if_unchanged
from flows.reopening import reopen_failed_stages
from flows.stages.chain import Chain
from flows.stages.checks import prepare_stages, record, require_recorded, require_same_stages, whole_fingerprint
from flows.stages.outcome import StageOutcome
from tasks.credentials import settings_for
from tasks.events import emit
from tasks.run_folder import RunFolder
from whitney.client import WhitneyClient


@dataclass(frozen=True, slots=True)
class PipelineProcess:
    """This process's attempt at a pipeline's flow run."""

    flow_run_id: str
    attempt: int
    create_key: str


async def begin_pipeline(config: PipelineConfig, recorded: Sequence[StageOutcome]) -> Chain:
    """Check everything that can be checked of all stages without allocating; then take the run folder.

    Stages that are finished are not checked again: they will be adopted, whatever has become of their data since.

    Raises:
        ConfigError, DataError, RenderingError, ModelError: the pipeline is ruled out; stage and field are named.
        WhitneyError: the gateway cannot be reached, or refuses the key.
        EarlyEnd: nothing has changed since the last run, or a person has declined.
    """
    name = config.name or flow_run.name
    async with AsyncExitStack() as held:
        client = WhitneyClient(await asyncio.to_thread(settings_for, config.credentials_block))
        held.push_async_callback(client.aclose)
        now, (before, finished) = record(config), _earlier(config, name)
        require_same_stages(before, now, finished)
        await require_recorded(config, recorded, client)
        prepared = await prepare_stages(config, {*finished, *(outcome.stage for outcome in recorded)})
        goes_on = before.get("stages") == now["stages"]
        now["fingerprint"] = before["fingerprint"] if goes_on else whole_fingerprint(config, prepared)
        await _ask_leave(config, prepared, now, goes_on=goes_on)
        # Only now: whoever was asked in this process is in another attempt than before.
        process = PipelineProcess(flow_run.id, flow_run.run_count, f"{flow_run.id}:{secrets.token_hex(4)}")
        folder = _folder(config, name)
        lock = await take_over(client, folder, process, whole_tree=True)
        held.callback(lock.release)
        # An earlier attempt that was still at work has failed only now, and its stage with it.
        await reopen_failed_stages()
        folder.write_config(now)
        get_run_logger().info("%d stages; run folder %s", len(config.stages), folder.path)
        emit("pipeline", name=name, folder=str(folder.path), stages=[stage.name for stage in config.stages])
        return Chain(config, recorded, prepared, client=client, folder=folder, process=process, held=held.pop_all())


async def _ask_leave(
    config: PipelineConfig, prepared: Mapping[str, Prepared], now: Mapping[str, Any], *, goes_on: bool
) -> None:
    """What a team's controls have to say: too few slots, nothing new, a person who is to be asked.

    A pipeline that only goes on is not held up again: a person has been asked, and what is new is its own.

    Raises:
        ConfigError: a stage could never have the slots it needs.
        EarlyEnd, NotAnsweredError, Pause: see `flows.durable.unchanged` and `flows.person`.
    """
    if config.session_limit and prepared:
        needed = max(planned_sessions(one.config) for one in prepared.values())
        await require_slots(config.session_limit, needed)
    if goes_on:
        return
    if config.skip_unchanged and now["fingerprint"]:
        await skip_if_unchanged(now["fingerprint"])
    planned = Counter[str]()
    for one in prepared.values():
        planned.update(planned_operations(one.algorithm, one.config, len(one.heldout)))
    await ask_if_large(config.approval, planned, plan_of_stages(prepared))


def plan_of_stages(prepared: Mapping[str, Prepared]) -> dict[str, object]:
    """A pipeline's stages in a row each."""
    plan: dict[str, object] = {}
    for name, one in prepared.items():
        facts = plan_of(one)
        plan[f"stage {name}"] = f"{facts['algorithm']}; {facts['model']}; {facts['data']}; {facts['cycles']}"
    return plan


def _earlier(config: PipelineConfig, name: str) -> tuple[dict[str, Any], set[str]]:
    """What an earlier attempt has on record: its configuration, and the stages it has finished."""
    path = RunFolder.find(config.output_dir, name, flow_run.id)
    if path is None:
        return {}, set()
    folder = RunFolder(path, flow_run.id)
    return folder.read_config(), {str(row["stage"]) for row in folder.read_stages()}


def _folder(config: PipelineConfig, name: str) -> RunFolder:
    try:
        return RunFolder.open(config.output_dir, name, flow_run.id)
    except OSError as error:
        raise ConfigError(f"output_dir = {str(config.output_dir)!r} cannot be written to: {error}") from error
