"""What the Prefect UI shows of a run: a progress artifact and a page with the curve. About 20 ms each, once a block."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from prefect.artifacts import Artifact, acreate_progress_artifact, aupdate_progress_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from tasks.reward_range import Range
from tasks.run_forecast import run_forecast
from tasks.run_page import run_report_markdown


class Report:
    """The artifacts of one run. They are created with the first block and updated in place after."""

    __slots__ = ("_algorithm", "_cycles", "_name", "_page", "_progress", "_reward_range")

    def __init__(self, algorithm: str, cycles: int, name: str, reward_range: Range | None = None) -> None:
        self._algorithm = algorithm
        self._cycles = cycles
        self._name = name
        self._reward_range = reward_range
        self._progress: UUID | None = None
        self._page: UUID | None = None

    async def update(self, rows: Sequence[dict[str, float]], evaluations: Sequence[dict[str, Any]]) -> None:
        """Show how far the run is."""
        percent = 100.0 * len(rows) / self._cycles
        if self._progress is None:
            self._progress = await acreate_progress_artifact(
                percent, key=self._key("progress"), description=f"{self._algorithm}: cycles trained and saved"
            )
        else:
            await aupdate_progress_artifact(self._progress, percent)
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
        if self._page is None:
            artifact = await Artifact(
                type="markdown",
                key=self._key("report"),
                description=f"{self._algorithm} run {self._name}",
                data=markdown,
            ).acreate()
            self._page = artifact.id
            return
        async with get_client() as client:
            await client.update_artifact(self._page, ArtifactUpdate(data=markdown))

    def _key(self, what: str) -> str:
        return artifact_key(f"{self._name}-{what}")


def artifact_key(name: str) -> str:
    """A name as the key of an artifact, in which Prefect allows lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
