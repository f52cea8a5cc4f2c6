"""The budget of a whole pipeline: shared by its stages, asked about before each of them, and what it has stopped."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from prefect.exceptions import FailedRun

from flows.checks.prepared import Prepared
from flows.config import ConfigError
from flows.config.budget import OF_THE_RUN
from flows.config.pipeline import PipelineConfig, StageConfig
from flows.counts.part_tokens import least_needs
from flows.counts.parts import EXPORT
from flows.durable.budget.account import Account
from flows.durable.budget.billed import billed
from flows.durable.budget.gate import Budget
from flows.durable.budget.month import open_month
from flows.durable.budget.open import WHOLE, Whole, open_account
from flows.durable.budget.parts import as_usage
from flows.durable.budget.question import ask_for_more, keep_answer, question_about
from flows.durable.budget.rest import Rest, enough, rest_of
from flows.durable.stopwatch import Stopwatch
from flows.early_end import BudgetReachedError
from flows.stages.stop import NAME, Stop, stop_within, too_little
from tasks.stopped import OF_PIPELINE
from whitney.client import WhitneyClient
from whitney.labels import ROOT_FLOW_RUN


class PipelineBudget:
    """The accounts that every stage's gate asks beside its own."""

    def __init__(
        self,
        config: PipelineConfig,
        accounts: Sequence[Account],
        *,
        prepared: Mapping[str, Prepared] | None = None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        self._config = config
        self._accounts = list(accounts)
        self._to_come = dict(prepared or {})
        self._clock_stopped = stopwatch.stopped if stopwatch else nullcontext
        self._stop: Stop | None = None

    @classmethod
    async def open(
        cls,
        config: PipelineConfig,
        client: WhitneyClient,
        flow_run_id: str,
        *,
        prepared: Mapping[str, Prepared],
        stopwatch: Stopwatch,
    ) -> PipelineBudget:
        """With what the stages of all attempts were billed for.

        Args:
            config: the pipeline's.
            client: its endpoint.
            flow_run_id: the pipeline's flow run.
            prepared: the stages that are not finished, by name.
            stopwatch: the pipeline's.

        Raises:
            PriceError: the price file cannot be used.
            ConfigError, WhitneyError: the endpoint does not say what was billed.
        """
        accounts = []
        if config.budget.limits(OF_THE_RUN):
            spent = billed(await client.list_sessions(label=(ROOT_FLOW_RUN, flow_run_id)))
            accounts.append(await open_account(NAME, flow_run_id, config.budget, spent, stopwatch.read))
        if month := await open_month(NAME, flow_run_id, config.budget, client):
            accounts.append(month)
        return cls(config, accounts, prepared=prepared, stopwatch=stopwatch)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While the block runs, training flows that are called in it are stages under this budget."""
        accounts, project = tuple(self._accounts), self._config.budget.project
        token = WHOLE.set(Whole(accounts, project, self._clock_stopped, self._later))
        try:
            yield
        finally:
            WHOLE.reset(token)

    def reaches(self, stage: StageConfig) -> None:
        """A stage is about to begin, or to go on: those before it need nothing more."""
        names = [one.name for one in self._config.stages]
        for name in names[: names.index(stage.name) + 1]:
            self._to_come.pop(name, None)

    def _later(self) -> Rest:
        """What the stages need that are still to come."""
        rest = Rest()
        for prepared in self._to_come.values():
            rest = rest.then(rest_of(prepared))
        return rest

    def _rest_from(self, prepared: Prepared) -> Rest:
        """What a stage that is about to begin needs, and those after it."""
        return rest_of(prepared).then(self._later())

    async def allows(self, stage: StageConfig, prepared: Prepared, done: int) -> bool:
        """Whether a stage can leave an adapter, or a person says that it may cost more.

        Raises:
            ConfigError: it is the first one, so that the limit leaves nothing at all.
            NotAnsweredError, Pause: as `flows.person.ask_person`.
        """
        while True:
            reached = await asyncio.to_thread(self._too_low, stage, prepared)
            if reached is None:
                return True
            if not done:
                raise ConfigError(too_little(reached, prepared))
            account, more = Budget(self._accounts).account_of(reached), None
            if self._config.budget.on_exceed == "pause":
                more = await self._ask(reached, account, prepared, done)
            if more is None:
                rest = await asyncio.to_thread(self._rest_from, prepared)
                self._stop = Stop(str(reached), reached.path, enough(reached, account, rest))
                return False
            await keep_answer(account, reached.field, more)
            account.raise_limit(reached.field, more)

    def _too_low(self, stage: StageConfig, prepared: Prepared) -> BudgetReachedError | None:
        """A limit that leaves a stage no adapter, with the most that it needs of it; None where there is none."""
        found: list[BudgetReachedError] = []
        for operations, tokens in least_needs(prepared):
            gate = Budget(self._accounts)
            try:
                gate.begin(f"stage {stage.name}", operations - Counter({EXPORT: 1}), tokens=[as_usage(tokens)])
            except BudgetReachedError as reached:
                found.append(reached)
        # What is measured before needs less than the first block with it: whoever raises by that is refused again.
        return max((one for one in found if one.path == found[-1].path), key=lambda one: one.needed, default=None)

    async def _ask(self, reached: BudgetReachedError, account: Account, prepared: Prepared, done: int) -> float | None:
        rest = await asyncio.to_thread(self._rest_from, prepared)
        with self._clock_stopped():
            return await ask_for_more(
                question_about(reached, account, rest, done=done, of=f"{len(self._config.stages)} stages")
            )

    @property
    def stopped(self) -> str | None:
        """Which limit has stopped the pipeline, in a sentence; None as long as none has."""
        return self._stop.told if self._stop else None

    def stopped_within(self, summary: Mapping[str, Any]) -> bool:
        """Whether a stage's summary says that a limit of the pipeline's has stopped it."""
        self._stop = stop_within(summary) or self._stop
        return self._stop is not None

    def stopped_at_once(self, failed: FailedRun) -> bool:
        """Whether a stage has failed because a limit of the pipeline's has ended its first block: it leaves nothing."""
        reached = next((account.reached for account in self._accounts if account.reached), None)
        if reached is not None and str(failed).startswith(str(reached)):
            self._stop = Stop(str(reached), reached.path)
        return self._stop is not None

    def told(self, trained: Sequence[str]) -> dict[str, Any]:
        """For the summary, with the stages that were left out, or did not come to their end."""
        used = {path.removeprefix(OF_PIPELINE): row for one in self._accounts for path, row in one.told().items()}
        budget: dict[str, Any] = {"used": used, "reached": None, "left_out": []}
        if self._stop:
            budget["reached"] = self._stop.limit
            budget["left_out"] = [f"stage {one.name}" for one in self._config.stages if one.name not in trained]
            budget |= {"go_on_with": self._stop.go_on_with} if self._stop.go_on_with else {}
        return {"stopped": self.stopped, "budget": budget if self._accounts else None}
