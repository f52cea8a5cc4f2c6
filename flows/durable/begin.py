"""How an attempt begins: everything is checked, earlier attempts are dealt with, the run folder is taken."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from flows.checks.drift import fingerprint, in_lines, require_no_drift, with_later_fields
from flows.checks.prepare import prepare
from flows.checks.prepared import Prepared
from flows.config import FlowConfig
from flows.counts.operations import planned_sessions
from flows.durable.approval import approve
from flows.durable.attempt import Attempt
from flows.durable.budget.open import open_budget, project_of_pipeline
from flows.durable.budget.pause import read_answer
from flows.durable.budget.refusals import require_month, require_sense
from flows.durable.children import end_cancelling_children
from flows.durable.earlier import take_over
from flows.durable.lost_states import revoke_lost_blocks
from flows.durable.plan_kept import keep_plan
from flows.durable.session_scope import SessionScope
from flows.durable.slots import Slots
from flows.durable.stopwatch import Stopwatch
from flows.durable.telling import warn
from flows.durable.unchanged import skip_if_unchanged
from flows.durable.weights_left import require_weights_left
from flows.durable.writable import writable
from flows.person import is_suspended
from tasks.events import emit
from tasks.run_folder import RunFolder


async def begin_attempt(algorithm: str, config: FlowConfig) -> Attempt:
    """Check everything that can be checked without allocating; then take the run folder.

    Raises:
        ConfigError, DataError, RenderingError, ModelError: the run is ruled out, by what the message names.
        WhitneyError: the gateway cannot be reached, or refuses the key.
        EarlyEnd: nothing has changed since the last run, or a person has declined.
    """
    goes_on = _goes_on(config)
    client, inputs = await prepare(algorithm, config, goes_on=goes_on)
    async with AsyncExitStack() as held:
        held.push_async_callback(client.aclose)
        if config.skip_unchanged:
            await skip_if_unchanged(fingerprint(inputs.record(flow_run.id)))
        slots = Slots(config.session_limit, planned_sessions(config), flow_run_id=flow_run.id)
        await slots.require()
        require_sense(inputs, goes_on=goes_on)
        await require_month(inputs, client, goes_on=goes_on)
        if flow_run.parent_flow_run_id is None:
            await approve(inputs)
        may_ask = await read_answer(flow_run.id, config.budget) if goes_on else True
        # Only now: whoever was asked in this process is in another attempt than before.
        scope = SessionScope(
            client, slots, flow_run_id=flow_run.id, root_id=flow_run.root_flow_run_id, attempt=flow_run.run_count
        )
        with writable(config.output_dir):
            folder = RunFolder.open(config.output_dir, config.name or flow_run.name, scope.flow_run_id)
        lock = await take_over(client, folder, scope)
        held.callback(lock.release)
        before = folder.read_config()
        with writable(config.output_dir):
            _record(inputs, folder, scope.attempt, before)
            await keep_plan(inputs, folder)
        if goes_on:
            await end_cancelling_children(flow_run.id)
            await require_weights_left(client, inputs, await revoke_lost_blocks(client, folder))
        stopwatch = Stopwatch(folder, scope.create_key)
        budget = await open_budget(config.budget, client, scope.flow_run_id, stopwatch.read)
        budget.asks = may_ask
        scope.project = config.budget.project or project_of_pipeline()
        _announce(inputs, folder)
        held.pop_all()  # they are the attempt's now
        return Attempt(
            inputs, client, folder, scope, lock=lock, stopwatch=stopwatch, budget=budget, suspends=is_suspended()
        )


def _goes_on(config: FlowConfig) -> bool:
    """Whether the flow run has begun before. Suspended and resumed it is still attempt 1; its folder knows better."""
    path = RunFolder.find(config.output_dir, config.name or flow_run.name, flow_run.id)
    return flow_run.run_count > 1 or (path is not None and "config" in RunFolder(path, flow_run.id).read_config())


def _announce(inputs: Prepared, folder: RunFolder) -> None:
    facts = inputs.facts()
    logger = get_run_logger()
    logger.info("%s; run folder %s", inputs.data.description, folder.path)
    for warning in facts["warnings"]:
        logger.warning(warning)
    emit("prepared", folder=str(folder.path), cycles=inputs.config.cycles, **facts)


def _record(inputs: Prepared, folder: RunFolder, attempt: int, before: Mapping[str, Any]) -> None:
    """config.json and heldout.jsonl; `drift` lists what has changed between attempts, where that was allowed."""
    now = inputs.record(folder.flow_run_id)
    drift = list(before.get("drift", []))
    known = with_later_fields(before, type(inputs.config)) if "config" in before else None
    if known and (changed := require_no_drift(known, now)):
        warn(f"going on with what has changed since the run began:\n{in_lines(changed)}")
        drift.append({"attempt": attempt, "changes": changed})
    folder.write_config({**now, **({"drift": drift} if drift else {})})
    folder.write_heldout(inputs.heldout_rows())
