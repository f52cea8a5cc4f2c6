"""A person is asked before a large run opens a session: with the plan, and as long as nothing is held or billed."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Mapping

from flows.checks.prepared import Prepared
from flows.config import ApprovalConfig
from flows.counts.operations import planned_measurements, planned_sessions
from flows.counts.run import most_operations
from flows.person import ask_person


async def approve(inputs: Prepared) -> None:
    """Wait for a person's word where a training run plans more operations than its configuration lets pass.

    Raises:
        DeclinedError, NotAnsweredError, Pause: as `flows.person.ask_person`.
    """
    approval = inputs.config.approval
    if approval.above_operations is not None:
        await ask_if_large(approval, await asyncio.to_thread(most_operations, inputs), plan_of(inputs))


async def ask_if_large(approval: ApprovalConfig, operations: Counter[str], plan: Mapping[str, object]) -> None:
    """Ask where `operations` are more than `approval.above_operations`.

    Another plan is another question, were it of the same size: whoever changes what was shown is asked again.

    Args:
        approval: when to ask, and how long to wait.
        operations: what is planned, by name.
        plan: what else a person wants to know, by its name.

    Raises:
        DeclinedError, NotAnsweredError, Pause: as `flows.person.ask_person`.
    """
    above, planned = approval.above_operations, operations.total()
    if above is not None and planned > above:
        question = question_about(plan, operations, above)
        why = f"{planned} operations are planned, more than approval.above_operations = {above}"
        key = f"approval-{planned}-{_digest(plan, operations)}"
        await ask_person(key, question, why=why, timeout_s=approval.timeout_s)


def _digest(plan: Mapping[str, object], operations: Counter[str]) -> str:
    """Of all that the form shows of a plan. Not of the bound: that it is raised or lowered changes no plan."""
    shown = repr([sorted((name, str(value)) for name, value in part.items()) for part in (plan, operations)])
    return hashlib.sha256(shown.encode()).hexdigest()[:8]


def plan_of(inputs: Prepared) -> dict[str, object]:
    """A training run in a few rows."""
    config, heldout = inputs.config, len(inputs.heldout)
    sizes = [
        f"{getattr(config, field)} {name}"
        for field, name in (
            ("groups_per_cycle", "prompts"),
            ("group_size", "completions each"),
            ("batch_size", "examples"),
        )
        if hasattr(config, field)
    ]
    return {
        "algorithm": inputs.algorithm,
        "model": f"{config.model.name} on {config.model.provider}, LoRA rank {config.lora.rank}",
        "data": inputs.data.description,
        "cycles": f"{config.cycles} cycle{'' if config.cycles == 1 else 's'} of {', '.join(sizes)}",
        "measurements": f"{planned_measurements(config, heldout)}, of {heldout} held-out examples",
        "sessions at once": planned_sessions(config),
    }


def question_about(plan: Mapping[str, object], operations: Counter[str], above: int) -> str:
    """The plan as markdown, for the form: short, so that the switch below it is in sight.

    A list: the former of Prefect's two UIs wraps no line in a table.
    """
    counts = ", ".join(f"{count} {name}" for name, count in operations.most_common())
    return "\n".join(
        [
            f"**{operations.total()} Whitney operations are planned at most**, more than approval.above_operations = "
            f"{above}. No session is open, nothing is billed yet.",
            "",
            *(f"- **{name}**: {' '.join(str(value).split())}" for name, value in plan.items()),
            f"- **operations**: {counts}",
        ]
    )
