"""What the Prefect UI shows of a pipeline: one page, there from the beginning, kept up to date, complete at any end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from prefect.artifacts import MarkdownArtifact
from prefect.exceptions import CancelledRun, PrefectSignal
from prefect.utilities.urls import url_for

from flows.cancelling import unheeded
from flows.config.pipeline import PipelineConfig, StageConfig
from flows.durable.telling import warn
from flows.stages.ending import adapter_is_there
from flows.stages.outcome import StageOutcome
from flows.stages.page import pipeline_markdown
from flows.stages.summary import own_bill
from tasks.report import Shown, artifact_key
from tasks.stopped import stopped_by_budget
from tasks.userinfo import without_userinfo

LONGEST_REASON = 300

SHOWN_WITHIN_S = 3.0
"""At an end. Prefect kills a cancelled process after half a minute, most of which the closing of a session may take."""


class PipelineReport:
    """The artifact of one pipeline run."""

    __slots__ = ("_ended", "_flow_run_id", "_name", "_page", "_pipeline")

    def __init__(self, pipeline: PipelineConfig, name: str, flow_run_id: str) -> None:
        self._pipeline = pipeline
        self._name = name
        self._flow_run_id = flow_run_id
        self._page = Shown()
        self._ended: dict[str, str] = {}

    async def finish(self, outcomes: Sequence[StageOutcome], summary: Mapping[str, Any]) -> None:
        """Show the whole account; of stages that the budget has left out, which limit has."""
        begun = {outcome.stage for outcome in outcomes}
        if limit := stopped_by_budget(summary):
            for stage in self._pipeline.stages:
                if f"stage {stage.name}" in summary["budget"]["left_out"]:
                    how = "not finished" if stage.name in begun else "not begun"
                    self._ended[stage.name] = f"**{how}**: {limit} is reached"
        await self.update(outcomes, summary)

    async def update(self, outcomes: Sequence[StageOutcome], summary: Mapping[str, Any] | None = None) -> None:
        """Show what is finished; with the summary, how it ended."""
        markdown = pipeline_markdown(
            self._pipeline,
            outcomes,
            name=self._name,
            ended=self._ended,
            account=summary or own_bill(outcomes, self._flow_run_id),
            lost={outcome.stage for outcome in outcomes if not adapter_is_there(outcome)},
            link=_page_of,
        )
        key, description = artifact_key(f"{self._name}-pipeline"), f"pipeline {self._name}"
        await self._page.show(MarkdownArtifact(key=key, description=description, markdown=markdown))

    async def ended(self, outcomes: Sequence[StageOutcome], stage: StageConfig, error: BaseException) -> None:
        """Show where it ended, and why. What cannot be shown is told: the error itself is what matters then."""
        if isinstance(error, PrefectSignal):  # suspended, or a newer attempt is at work: that one shows how it ends
            return
        self._ended[stage.name] = _how(error)
        try:
            with unheeded():
                async with asyncio.timeout(SHOWN_WITHIN_S):
                    await self.update(outcomes)
        except Exception as unseen:  # of whatever kind
            warn(f"the pipeline's page does not show how stage {stage.name!r} ended: {type(unseen).__name__}: {unseen}")


def _how(error: BaseException) -> str:
    if isinstance(error, CancelledRun):
        return f"**cancelled**: {str(error)[:LONGEST_REASON]}"
    if isinstance(error, Exception):
        return f"**failed**: {f'{type(error).__name__}: {error}'[:LONGEST_REASON]}"
    return "**interrupted**: by Cancel, Ctrl-C or SIGTERM"


def _page_of(flow_run_id: str) -> str | None:
    page = url_for("flow-run", obj_id=UUID(flow_run_id))
    return page and without_userinfo(page)
