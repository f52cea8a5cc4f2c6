"""What a person has said about a budget, kept where any process of the run finds it: in labels of its flow run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

import orjson
from prefect.client.orchestration import get_client

RAISED = "whitney.budget.raised."
"""Begins the label of a limit that a person has raised: see `Raised`."""

ASKED = "whitney.budget.asked"
"""Label of a run that was suspended with a question: the question, for the process that Resume starts."""


class Raised(NamedTuple):
    """By how much a limit was raised, 0 where it is lifted.

    Of the limit that the configuration then had. Whoever sets another one means that, and nothing beside it.
    """

    configured: float
    more: float


class Asked(NamedTuple):
    """A question about a limit, as it was asked."""

    path: str
    limit: float
    more: float
    timeout_s: float
    text: str

    @property
    def field(self) -> str:
        """The limit's own name."""
        return self.path.rpartition(".")[2]


async def raised(flow_run_id: str, configured: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Those of the limits that are configured which were raised, each with by how much."""
    labels = await _labels(flow_run_id)
    found = ((field, _raised(labels.get(RAISED + field))) for field in configured)
    return iter([(field, one.more) for field, one in found if one and one.configured == configured[field]])


async def note_raised(flow_run_id: str, field: str, configured: float, more: float) -> None:
    """Keep what was said: a Retry does not ask again."""
    before = dict(await raised(flow_run_id, {field: configured})).get(field, 0.0)
    label = Raised(configured, before + more if more else 0.0)
    async with get_client() as api:
        await api.update_flow_run_labels(UUID(flow_run_id), {RAISED + field: orjson.dumps(list(label)).decode()})


async def asked(flow_run_id: str) -> Asked | None:
    """The question that the run was suspended with; None where it was not, or it has been settled."""
    label = (await _labels(flow_run_id)).get(ASKED)
    return Asked(*orjson.loads(str(label))) if label else None


async def note_asked(flow_run_id: str, question: Asked | None) -> None:
    """Keep a question; with None it is settled."""
    async with get_client() as api:
        label = orjson.dumps(list(question)).decode() if question else ""
        await api.update_flow_run_labels(UUID(flow_run_id), {ASKED: label})


def _raised(label: object) -> Raised | None:
    return Raised(*orjson.loads(label)) if isinstance(label, str) else None


async def _labels(flow_run_id: str) -> dict[str, object]:
    async with get_client() as api:
        return dict((await api.read_flow_run(UUID(flow_run_id))).labels)
