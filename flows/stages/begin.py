"""How a pipeline begins: every stage is checked, earlier attempts are dealt with, the run folder is taken."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from flows.config.pipeline import PipelineConfig
from flows.durable.budget.month import open_month
from flows.durable.earlier import take_over
from flows.durable.stopwatch import Stopwatch
from flows.durable.writable import writable
from flows.reopening import reopen_failed_stages
from flows.stages.budget import PipelineBudget
from flows.stages.chain import Chain
from flows.stages.checks import prepare_stages
from flows.stages.handed_on import require_handed_on, require_recorded
from flows.stages.leave import ask_leave
from flows.stages.outcome import StageOutcome
from flows.stages.record import record, require_same_stages, whole_fingerprint
from flows.stages.refusals import require_sense_of_pipeline
from flows.stages.stop import NAME
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
        now, earlier = record(config), _earlier(config, name)
        before, finished = (earlier.read_config(), earlier.read_stages()) if earlier else ({}, [])
        states = {str(row["stage"]): str(row["state_id"]) for row in finished}
        require_same_stages(before, now, states.keys())
        await require_recorded(config, recorded)
        states |= {outcome.stage: outcome.state_id for outcome in recorded}
        await require_handed_on(config, states, earlier.path if earlier else None, client)
        prepared = await prepare_stages(config, states.keys())
        goes_on = before.get("stages") == now["stages"]
        now["fingerprint"] = before["fingerprint"] if goes_on else whole_fingerprint(config, prepared)
        if earlier is None:
            month = await open_month(NAME, flow_run.id, config.budget, client)
            await require_sense_of_pipeline(config, prepared, month)
        await ask_leave(config, prepared, now, goes_on=goes_on)
        # Only now: whoever was asked in this process is in another attempt than before.
        process = PipelineProcess(flow_run.id, flow_run.run_count, f"{flow_run.id}:{secrets.token_hex(4)}")
        with writable(config.output_dir):
            folder = RunFolder.open(config.output_dir, name, flow_run.id)
        lock = await take_over(client, folder, process, whole_tree=True)
        held.callback(lock.release)
        # An earlier attempt that was still at work has failed only now, and its stage with it.
        await reopen_failed_stages()
        with writable(config.output_dir):
            folder.write_config(now)
        get_run_logger().info("%d stages; run folder %s", len(config.stages), folder.path)
        emit("pipeline", name=name, folder=str(folder.path), stages=[stage.name for stage in config.stages])
        stopwatch = Stopwatch(folder, process.create_key)
        budget = await PipelineBudget.open(config, client, process.flow_run_id, prepared=prepared, stopwatch=stopwatch)
        return Chain(
            config,
            recorded,
            prepared,
            client=client,
            folder=folder,
            process=process,
            budget=budget,
            stopwatch=stopwatch,
            held=held.pop_all(),
        )


def _earlier(config: PipelineConfig, name: str) -> RunFolder | None:
    """The folder of an earlier attempt, with its configuration and the stages it has finished."""
    path = RunFolder.find(config.output_dir, name, flow_run.id)
    return None if path is None else RunFolder(path, flow_run.id)
