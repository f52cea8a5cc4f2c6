"""One attempt of a training flow: checked inputs, a run folder, and a session that opens only when something runs.

`flows.durable.begin` makes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType
from typing import Self

from filelock import FileLock
from prefect.logging import get_run_logger

from flows.checks.prepared import Prepared
from flows.durable.budget.gate import Budget
from flows.durable.budget.pause import ask_here
from flows.durable.earlier import give_way
from flows.durable.lineage import delete_old_states, require_next, require_taken_at
from flows.durable.outcome import Block, BlockOutcome, EvaluationOutcome, Row, Start
from flows.durable.run_spec import RunSpec
from flows.durable.session_scope import POLICY, SessionScope
from flows.durable.stopwatch import Stopwatch
from tasks.events import emit
from tasks.lineage import count_tokens, usage_of
from tasks.report import Report
from tasks.reward_range import reward_range
from tasks.rewards import RewardPool
from tasks.run import Run
from tasks.run_folder import RunFolder
from whitney.client import WhitneyClient


class Attempt:
    """What a training flow and its subflows share. No `__dict__`: Prefect stores its name where it is a parameter."""

    __slots__ = (
        "_lock",
        "budget",
        "chain",
        "client",
        "config",
        "evaluations",
        "folder",
        "inputs",
        "pool",
        "report",
        "rows",
        "scope",
        "stopped",
        "stopwatch",
        "suspends",
    )

    def __init__(
        self,
        inputs: Prepared,
        client: WhitneyClient,
        folder: RunFolder,
        scope: SessionScope,
        *,
        lock: FileLock,
        stopwatch: Stopwatch,
        budget: Budget,
        suspends: bool,
    ) -> None:
        self.config = config = inputs.config
        self.inputs = inputs
        self.client = client
        self.folder = folder
        self.scope = scope
        self.budget = budget
        scope.meter.gate = budget
        self.pool = RewardPool(timeout_s=config.reward_timeout_s, keys=[client.settings.api_key])
        self.rows: list[Row] = []
        self.chain: list[BlockOutcome] = []
        self.evaluations: list[EvaluationOutcome] = []
        self.stopped: str | None = None
        self._lock = lock
        rewards = reward_range(config.reward_terms())
        self.report = Report(inputs.algorithm, config.cycles, folder.path.name, rewards)
        self.stopwatch = stopwatch
        self.suspends = suspends

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.scope.close()
            else:
                await self.scope.abandon()
        finally:
            await self.pool.close()
            await self.client.aclose()
            self._lock.release()
        await give_way(error, self.scope)

    def blocks(self) -> Iterator[Block]:
        """Every block, always from the first: what a former attempt has finished is adopted, never skipped here."""
        for index, first in enumerate(range(0, self.config.cycles, self.config.save_every)):
            yield Block(index=index, first_cycle=first, cycles=min(self.config.save_every, self.config.cycles - first))

    async def policy(self, start: Start) -> Run:
        """The run to train, at `start`; opens the session if this attempt has none yet."""
        fresh = POLICY not in self.scope.runs
        initial = replace(self.initial_weights, with_optimizer=self.config.model.initial_optimizer)
        policy = await self.trained_run(POLICY, initial, start.state_id)
        if fresh:
            where = f"restored from state {start.state_id}" if start.state_id else "fresh"
            get_run_logger().info("session %s, run %s, %s", policy.session_id, policy.run_id, where)
            emit("session_opened", session_id=policy.session_id, run_id=policy.run_id)
        return policy

    async def trained_run(self, name: str, initial: RunSpec, state_id: str | None) -> Run:
        """A run that is trained: as `initial` says at the first start, from a saved state with its optimizer later.

        Raises:
            RuntimeError: it stands elsewhere than the block starts from.
        """
        run = self.scope.runs.get(name)
        if run is None:
            resumed = replace(initial, state_id=state_id, artifact_id=None, with_optimizer=True)
            run = await self.scope.open_run(name, initial if state_id is None else resumed)
            run.state_id = state_id
        if run.state_id != state_id:
            raise RuntimeError(
                f"{name} run {run.run_id} stands at state {run.state_id}, the next block starts from {state_id}: "
                "training on would lose or repeat a block. Please report this; Retry starts from the last saved block."
            )
        return run

    @property
    def initial_weights(self) -> RunSpec:
        """What the policy is before its first step, in every attempt: what a frozen reference is made of.

        Without an optimizer, for nothing frozen steps; the policy's own is `policy`'s to ask for.
        """
        model, lora = self.config.model, self.config.lora
        return RunSpec(
            provider=model.provider,
            model=model.name,
            rank=lora.rank,
            alpha=lora.alpha,
            seed=self.config.seed,
            state_id=model.initial_state_id,
            artifact_id=model.initial_artifact_id,
        )

    async def frozen_run(self, name: str, spec: RunSpec, *, session: str = "main") -> Run:
        """A run beside the policy that is only asked ("teacher", "reference"), created once an attempt."""
        run = self.scope.runs.get(name)
        if run is None:
            run = await self.scope.open_run(name, spec, session=session)
            get_run_logger().info("%s: session %s, run %s, %s", name, run.session_id, run.run_id, spec.model)
        return run

    async def adopt(self, block: Block, outcome: BlockOutcome) -> BlockOutcome:
        """Take a block's outcome, just trained or from a former attempt, into folder and report.

        Raises:
            RuntimeError: it is another block's, or starts from another state: see `require_next`.
        """
        require_next(self.chain, block, outcome)
        self.rows += outcome.rows
        self.chain.append(outcome)
        if outcome.run_id in {run.run_id for run in self.scope.runs.values()}:
            self.write_blocks()
            await delete_old_states(self.client, self.chain, self.config.keep_states)
            await self.report.update(self.rows, [one.told for one in self.evaluations])
        # Of one that is adopted all that has been done; writing block after block again, a kill would leave the folder
        # with fewer of them than there are.
        tokens = sum(count_tokens(usage_of(row)) for row in outcome.rows)
        emit("block_saved", cycle=outcome.cycle, state_id=outcome.state_id, tokens=tokens)
        return outcome

    async def adopt_measurement(self, start: Start, outcome: EvaluationOutcome | None) -> None:
        """Take what was measured at `start`, just now or by a former attempt, into folder and report.

        Raises:
            ConfigError: it is of another state: see `require_taken_at`.
        """
        if outcome is None:
            return
        require_taken_at(start, outcome)
        self.evaluations.append(outcome)
        if outcome.attempt == self.scope.attempt:
            self.write_measurements()
            await self.report.update(self.rows, [one.told for one in self.evaluations])

    async def ask_for_budget(self, ended: Exception) -> None:
        """As `flows.durable.budget.pause.ask_here`, for `flows.begun_anew`."""
        await ask_here(self, ended)

    def write_blocks(self) -> None:
        """metrics.jsonl and states.jsonl: one row a cycle, one row a block, after however many attempts."""
        self.folder.write_metrics(self.rows)
        self.folder.write_states([one.model_dump(exclude={"rows"}) for one in self.chain])
        self.stopwatch.note()

    def write_measurements(self) -> None:
        """evaluations.jsonl: one row a measurement, after however many attempts."""
        self.folder.write_evaluations([one.told for one in self.evaluations])
        self.stopwatch.note()
