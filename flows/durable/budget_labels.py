"""What a person has said about a budget, kept where any process of the run finds it: in labels of its flow run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

import orjson
from prefect.client.orchestration import get_client

RAISED = "whitney.budget.raised."
"""Begins the label of a limit that a person has raised; by how much, 0 where it is lifted."""

ASKED = "whitney.budget.asked"
"""Label of a run that was suspended with a question: the question, for the process that Resume starts."""


class Asked(NamedTuple):
    """A question about a limit, as it was asked."""

    path: str
    limit: float
    more: float
    timeout_s: float
    text: str


async def raised(flow_run_id: str, fields: Iterable[str]) -> Iterator[tuple[str, float]]:
    """The limits that were raised, each with by how much."""
    labels = await _labels(flow_run_id)
    return iter([(field, float(str(labels[RAISED + field]))) for field in fields if RAISED + field in labels])


async def note_raised(flow_run_id: str, field: str, more: float) -> None:
    """Keep what was said: a Retry does not ask again."""
    before = dict(await raised(flow_run_id, [field])).get(field, 0.0)
    async with get_client() as api:
        await api.update_flow_run_labels(UUID(flow_run_id), {RAISED + field: before + more if more else 0.0})


async def asked(flow_run_id: str) -> Asked | None:
    """The question that the run was suspended with; None where it was not, or it has been settled."""
    label = (await _labels(flow_run_id)).get(ASKED)
    return Asked(*orjson.loads(str(label))) if label else None


async def note_asked(flow_run_id: str, question: Asked | None) -> None:
    """Keep a question; with None it is settled."""
    async with get_client() as api:
        label = orjson.dumps(list(question)).decode() if question else ""
        await api.update_flow_run_labels(UUID(flow_run_id), {ASKED: label})


async def _labels(flow_run_id: str) -> dict[str, object]:
    async with get_client() as api:
        return dict((await api.read_flow_run(UUID(flow_run_id))).labels)
