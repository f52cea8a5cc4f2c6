"""What the Prefect UI shows of a run: a progress artifact and a page with the curve. About 20 ms each, once a block."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from prefect.artifacts import Artifact, MarkdownArtifact, ProgressArtifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.exceptions import PrefectHTTPStatusError

from tasks.reward_range import Range
from tasks.run_forecast import run_forecast
from tasks.run_page import run_report_markdown

NOT_THERE = 404


class Shown:
    """An artifact that is updated in place. One that somebody deletes meanwhile is made anew: no reason to fail."""

    __slots__ = ("_id",)

    def __init__(self) -> None:
        self._id: UUID | None = None

    async def show(self, artifact: Artifact) -> None:
        """Put it, or its data, on the current flow run's page."""
        if self._id is None or not await _updated(self._id, artifact):
            self._id = (await artifact.acreate()).id


async def _updated(artifact_id: UUID, artifact: Artifact) -> bool:
    """Give the artifact of that id the data of another; False where it is not there any more."""
    update = ArtifactUpdate(data=await artifact.aformat())
    try:
        async with get_client() as api:
            await api.update_artifact(artifact_id, update)
    except PrefectHTTPStatusError as error:
        if error.response.status_code == NOT_THERE:
            return False
        raise
    return True


class Report:
    """The artifacts of one run. They are created with the first block and updated in place after."""

    __slots__ = ("_algorithm", "_cycles", "_name", "_page", "_progress", "_reward_range")

    def __init__(self, algorithm: str, cycles: int, name: str, reward_range: Range | None = None) -> None:
        self._algorithm = algorithm
        self._cycles = cycles
        self._name = name
        self._reward_range = reward_range
        self._progress = Shown()
        self._page = Shown()

    async def update(self, rows: Sequence[dict[str, float]], evaluations: Sequence[dict[str, Any]]) -> None:
        """Show how far the run is."""
        description = f"{self._algorithm}: cycles trained and saved"
        percent = 100.0 * len(rows) / self._cycles
        await self._progress.show(
            ProgressArtifact(key=self._key("progress"), description=description, progress=percent)
        )
        await self._show(None, rows, evaluations)

    async def publish(self, summary: dict[str, Any], rows: Sequence[dict[str, float]]) -> None:
        """Show how the run ended."""
        await self._show(summary, rows, summary.get("evaluations", []))

    async def _show(
        self, summary: dict[str, Any] | None, rows: Sequence[dict[str, float]], evaluations: Sequence[dict[str, Any]]
    ) -> None:
        markdown = run_report_markdown(
            summary,
            rows,
            evaluations,
            name=self._name,
            algorithm=self._algorithm,
            forecast=run_forecast(rows, self._reward_range),
        )
        description = f"{self._algorithm} run {self._name}"
        await self._page.show(MarkdownArtifact(key=self._key("report"), description=description, markdown=markdown))

    def _key(self, what: str) -> str:
        return artifact_key(f"{self._name}-{what}")


def artifact_key(name: str) -> str:
    """A name as the key of an artifact, in which Prefect allows lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
