"""What a team's controls have to say before a pipeline begins: its slots, what was trained before, a person."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from flows.checks.prepared import Prepared
from flows.config.pipeline import PipelineConfig
from flows.counts.operations import planned_sessions
from flows.counts.run import most_operations
from flows.durable.approval import ask_if_large, plan_of
from flows.durable.slot_limit import require_slots
from flows.durable.unchanged import skip_if_unchanged


async def ask_leave(
    config: PipelineConfig, prepared: Mapping[str, Prepared], now: Mapping[str, Any], *, goes_on: bool
) -> None:
    """Go on only where there are slots enough, something is new, and a person who is to be asked has said yes.

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
    if config.approval.above_operations is not None:
        planned = await asyncio.to_thread(lambda: sum(map(most_operations, prepared.values()), Counter[str]()))
        await ask_if_large(config.approval, planned, plan_of_stages(prepared))


def plan_of_stages(prepared: Mapping[str, Prepared]) -> dict[str, object]:
    """A pipeline's stages in a row each."""
    plan: dict[str, object] = {}
    for name, one in prepared.items():
        facts = plan_of(one)
        plan[f"stage {name}"] = f"{facts['algorithm']}; {facts['model']}; {facts['data']}; {facts['cycles']}"
    return plan
