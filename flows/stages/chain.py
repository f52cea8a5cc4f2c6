"""A pipeline at work: its folder, the outcomes it has so far, and what each stage begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from prefect.exceptions import FailedRun

from flows.checks.prepared import Prepared
from flows.config import FlowConfig
from flows.config.pipeline import PipelineConfig, StageConfig
from flows.config.stages import stage_config
from flows.durable.earlier import Beginner, give_way
from flows.durable.stopwatch import Stopwatch
from flows.durable.unchanged import remember_fingerprint
from flows.stages.budget import PipelineBudget
from flows.stages.ending import open_sessions_below, tell_of_lost_adapters
from flows.stages.gate import pass_gate
from flows.stages.outcome import StageOutcome, judged, require_own, stage_outcome
from flows.stages.report import PipelineReport
from flows.stages.summary import cost_of, summarize
from tasks.events import Event, emit, listening
from tasks.run_folder import RunFolder
from whitney.client import WhitneyClient


class Chain:
    """What a pipeline knows between two stages. It holds no session: each stage has its own, and closes it."""

    def __init__(
        self,
        config: PipelineConfig,
        recorded: Sequence[StageOutcome],
        prepared: Mapping[str, Prepared],
        *,
        client: WhitneyClient,
        folder: RunFolder,
        process: Beginner,
        budget: PipelineBudget,
        stopwatch: Stopwatch,
        held: AsyncExitStack,
    ) -> None:
        self.config = config
        self.folder = folder
        self.outcomes: dict[str, StageOutcome] = {}
        self._recorded = {outcome.stage: outcome for outcome in recorded}
        self._prepared = prepared
        self._client = client
        self._process = process
        self._held = held
        self._budget = budget
        self._ran: set[str] = set()
        self._former = {str(row["stage"]): row for row in folder.read_stages()}
        self._report = PipelineReport(config, folder.path.name, process.flow_run_id)
        self._current: StageConfig | None = None
        self._unfinished: str | None = None
        self._stopwatch = stopwatch

    async def __aenter__(self) -> Self:
        try:
            self._held.enter_context(listening(self._listen))
            self._held.enter_context(self._budget.shared())
            await self._report.update([])
        except BaseException:
            await self._held.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None and self._current is not None:
                await self._report.ended(list(self.outcomes.values()), self._current, error)
        finally:
            await self._held.aclose()
        await give_way(error, self._process)

    def stages(self) -> Iterator[StageConfig]:
        """Every stage, always from the first: what is finished is adopted, never skipped here."""
        for number, stage in self.config.numbered():
            self._current = stage
            emit("stage", name=stage.name, algorithm=stage.algorithm, number=number, stages=len(self.config.stages))
            yield stage
        self._current = None

    def recorded(self, stage: StageConfig) -> StageOutcome | None:
        """The outcome that an earlier pipeline has left for a stage, where this one starts after it."""
        return self._recorded.get(stage.name)

    async def may_begin(self, stage: StageConfig) -> bool:
        """Whether the pipeline's budget leaves enough for a stage to begin; one that has saved a block only goes on.

        Raises:
            ConfigError, NotAnsweredError, Pause: as `flows.stages.budget.PipelineBudget.allows`.
        """
        self._budget.reaches(stage)
        prepared = self._prepared.get(stage.name)
        number = self.config.stages.index(stage) + 1
        begun = any(self.folder.path.glob(f"{number}-{stage.name}*/states.jsonl"))
        return prepared is None or begun or await self._budget.allows(stage, prepared, len(self.outcomes))

    def stopped_within(self, stage: StageConfig, outcome: StageOutcome, summary: Mapping[str, Any]) -> bool:
        """Whether the pipeline's budget has ended the stage: it is then not finished, nor held to its gate."""
        if self._budget.stopped_within(summary):
            self.outcomes[stage.name] = outcome
            self._unfinished = stage.name
            return True
        return False

    def stopped_at_once(self, failed: FailedRun) -> bool:
        """Whether the pipeline's budget has ended a stage before it left anything, and earlier ones have."""
        return bool(self.outcomes) and self._budget.stopped_at_once(failed)

    def config_of(self, stage: StageConfig) -> FlowConfig:
        """What a stage is trained with, its weights and teacher those of earlier outcomes."""
        return stage_config(self.config, stage, lambda name: self.outcomes[name].state_id, output_dir=self.folder.path)

    def outcome_of(self, stage: StageConfig, summary: Mapping[str, Any]) -> StageOutcome:
        """What the stage has come to, from its summary: just trained, or adopted from an earlier attempt.

        Raises:
            RuntimeError: the summary is another stage's: see `flows.stages.outcome.require_own`.
        """
        require_own(stage, summary, self.folder.path, str(self.config_of(stage).name))
        return stage_outcome(
            self.config,
            stage,
            summary,
            data_fingerprint=self._data_fingerprint(stage),
            flow_run_id=self._process.flow_run_id,
        )

    async def add(self, stage: StageConfig, outcome: StageOutcome) -> None:
        """Judge a stage, and put it on record: folder, page, terminal. Then what its gate says is done.

        Raises:
            GateError: the gate does not hold, and the pipeline is to stop there.
            DeclinedError, NotAnsweredError, Pause: it does not, and a person is asked: see `flows.person.ask_person`.
        """
        outcome = judged(stage, outcome, self.outcomes)
        self.outcomes[stage.name] = outcome
        row = outcome.model_dump(mode="json")
        # What an earlier attempt has finished stays on record, however soon this one ends.
        self._former[stage.name] = row
        self.folder.write_stages(self._former[one.name] for one in self.config.stages if one.name in self._former)
        self._stopwatch.note()
        await self._report.update(list(self.outcomes.values()))
        emit(
            "stage_done",
            outcome=row,
            number=len(self.outcomes),
            stages=len(self.config.stages),
            adopted=outcome.flow_run_id not in self._ran,
        )
        if outcome.gate is not None:
            emit("gate", stage=stage.name, **outcome.gate.model_dump())
            with self._stopwatch.stopped():  # a person may be asked
                await pass_gate(stage, outcome.gate, self.folder.path.name, timeout_s=self.config.approval.timeout_s)

    async def finish(self) -> dict[str, Any]:
        """Write and publish the account of all stages."""
        outcomes, seconds = list(self.outcomes.values()), self._stopwatch.note()
        account = summarize(outcomes, self._process.flow_run_id)
        summary = {
            **account,
            "cost": cost_of(self.config.budget, account, seconds),
            "run_folder": str(self.folder.path),
            "flow_run_id": self._process.flow_run_id,
            "attempt": self._process.attempt,
            "seconds": seconds,
            **self._budget.told([name for name in self.outcomes if name != self._unfinished]),
            "open_sessions": await open_sessions_below(self._process.flow_run_id, self._client),
        }
        tell_of_lost_adapters(outcomes)
        self.folder.write_summary(summary)
        await self._report.finish(outcomes, summary)
        if not self._budget.stopped and (whole := self.folder.read_config().get("fingerprint")):
            await remember_fingerprint(whole)
        return summary

    def _data_fingerprint(self, stage: StageConfig) -> str | None:
        """Of a stage that an earlier attempt has finished the data is not looked at again."""
        prepared = self._prepared.get(stage.name)
        return prepared.data.fingerprint if prepared else self._former.get(stage.name, {}).get("data_fingerprint")

    def _listen(self, event: Event) -> None:
        if event.kind == "finished":
            self._ran.add(str(event.facts["flow_run_id"]))
