"""What the Prefect UI shows of a pipeline: one page, there from the beginning, kept up to date, complete at any end."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from prefect.artifacts import Artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.exceptions import CancelledRun
from prefect.utilities.urls import url_for

from flows.config.pipeline import PipelineConfig, StageConfig
from flows.stages.ending import adapter_is_there
from flows.stages.outcome import StageOutcome
from flows.stages.page import pipeline_markdown
from tasks.report import artifact_key

LONGEST_REASON = 300


class PipelineReport:
    """The artifact of one pipeline run."""

    __slots__ = ("_ended", "_name", "_page", "_pipeline")

    def __init__(self, pipeline: PipelineConfig, name: str) -> None:
        self._pipeline = pipeline
        self._name = name
        self._page: UUID | None = None
        self._ended: dict[str, str] = {}

    async def update(self, outcomes: Sequence[StageOutcome]) -> None:
        """Show what is finished."""
        markdown = pipeline_markdown(
            self._pipeline,
            outcomes,
            name=self._name,
            ended=self._ended,
            lost={outcome.stage for outcome in outcomes if not adapter_is_there(outcome)},
            link=_page_of,
        )
        if self._page is None:
            description = f"pipeline {self._name}"
            key = artifact_key(f"{self._name}-pipeline")
            artifact = Artifact(type="markdown", key=key, description=description, data=markdown)
            self._page = (await artifact.acreate()).id
            return
        async with get_client() as api:
            await api.update_artifact(self._page, ArtifactUpdate(data=markdown))

    async def failed(self, outcomes: Sequence[StageOutcome], stage: StageConfig, error: Exception) -> None:
        """Show where it ended, and why."""
        cancelled = isinstance(error, CancelledRun)
        how, why = ("cancelled", str(error)) if cancelled else ("failed", f"{type(error).__name__}: {error}")
        self._ended[stage.name] = f"**{how}**: {why[:LONGEST_REASON]}"
        await self.update(outcomes)


def _page_of(flow_run_id: str) -> str | None:
    return url_for("flow-run", obj_id=UUID(flow_run_id))
