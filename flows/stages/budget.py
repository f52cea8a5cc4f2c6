"""The budget of a whole pipeline: shared by its stages, asked about before each of them, and what it has stopped."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from prefect.exceptions import FailedRun

from flows.checks.planned_part_tokens import least_needs
from flows.checks.planned_parts import EXPORT
from flows.checks.prepared import Prepared
from flows.config import ConfigError
from flows.config.budget import OF_THE_RUN
from flows.config.pipeline import PipelineConfig, StageConfig
from flows.durable.account import Account
from flows.durable.budget import Budget
from flows.durable.budget_begin import WHOLE, Whole, billed, open_account
from flows.durable.budget_labels import note_raised
from flows.durable.budget_month import open_month
from flows.durable.budget_parts import as_usage
from flows.durable.budget_pause import ask_for_more, question_about
from flows.early_end import BudgetReachedError
from whitney.client import WhitneyClient
from whitney.labels import ROOT_FLOW_RUN

NAME = "pipeline.budget"
"""How a stage is told of a limit that is the pipeline's; in the pipeline's own file it is `budget`."""


class PipelineBudget:
    """The accounts that every stage's gate asks beside its own."""

    def __init__(self, config: PipelineConfig, accounts: Sequence[Account]) -> None:
        self._config = config
        self._accounts = list(accounts)
        self.stopped: str | None = None
        self._reached: str | None = None

    @classmethod
    async def open(
        cls, config: PipelineConfig, client: WhitneyClient, flow_run_id: str, seconds: Callable[[], float]
    ) -> PipelineBudget:
        """With what the stages of all attempts were billed for.

        Raises:
            PriceError: the price file cannot be used.
            WhitneyError: the endpoint does not say what was billed.
        """
        accounts = []
        if config.budget.limits(OF_THE_RUN):
            spent = billed(await client.list_sessions(label=(ROOT_FLOW_RUN, flow_run_id)))
            accounts.append(await open_account(NAME, flow_run_id, config.budget, spent, seconds))
        if month := await open_month(NAME, flow_run_id, config.budget, client):
            accounts.append(month)
        return cls(config, accounts)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While the block runs, training flows that are called in it are stages under this budget."""
        token = WHOLE.set(Whole(tuple(self._accounts), self._config.budget.project))
        try:
            yield
        finally:
            WHOLE.reset(token)

    async def allows(self, stage: StageConfig, prepared: Prepared, done: int) -> bool:
        """Whether a stage can leave an adapter, or a person says that it may cost more.

        Raises:
            ConfigError: it is the first one, so that the limit leaves nothing at all.
            NotAnsweredError, Pause: as `flows.person.ask_person`.
        """
        while True:
            gate = Budget(self._accounts)
            try:
                for operations, tokens in await asyncio.to_thread(least_needs, prepared):
                    gate.begin(f"stage {stage.name}", operations - Counter({EXPORT: 1}), tokens=[as_usage(tokens)])
            except BudgetReachedError as limit:
                reached = limit
            else:
                return True
            if not done:
                raise ConfigError(
                    f"budget.{reached.field} = {reached.limit:,.10g}: {reached.used:,.10g} used, and the first stage "
                    f"needs {reached.needed:,.10g} more to leave an adapter; raise it, or lower the stage's save_every"
                )
            account = gate.account_of(reached)
            more = None
            if gate.pauses:
                stages = len(self._config.stages)
                more = await ask_for_more(question_about(reached, account, done, stages, "stages"))
            if more is None:
                self._stop(str(reached), reached.path)
                return False
            await note_raised(account.owner, reached.field, more)
            account.raise_limit(reached.field, more)

    def stopped_within(self, summary: Mapping[str, Any]) -> bool:
        """Whether a stage's summary says that a limit of the pipeline's has stopped it."""
        reached = (summary.get("budget") or {}).get("reached") or ""
        if reached.startswith(f"{NAME}."):
            self._stop(str(summary["stopped"]).removeprefix("budget: "), reached)
        return self.stopped is not None

    def stopped_at_once(self, failed: FailedRun) -> bool:
        """Whether a stage has failed because a limit of the pipeline's has ended its first block: it leaves nothing."""
        reached = next((account.reached for account in self._accounts if account.reached), None)
        if reached is not None and str(failed).startswith(str(reached)):
            self._stop(str(reached), reached.path)
        return self.stopped is not None

    def told(self, trained: Sequence[str]) -> dict[str, Any]:
        """For the summary, with the stages that were left out, or did not come to their end."""
        used = {path.removeprefix("pipeline."): row for one in self._accounts for path, row in one.told().items()}
        left_out = [f"stage {one.name}" for one in self._config.stages if one.name not in trained]
        budget = {"used": used, "reached": self._reached, "left_out": left_out if self.stopped else []}
        return {"stopped": self.stopped, "budget": budget if self._accounts else None}

    def _stop(self, why: str, path: str) -> None:
        self.stopped = f"budget: {why.replace('pipeline.', '')}"
        self._reached = path.removeprefix("pipeline.")
