"""A block's cycles, one after another, and what each leaves on the record."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

from prefect.logging import get_run_logger

from flows.durable.attempt import Attempt
from flows.durable.budget.parts import begin_block
from flows.durable.outcome import Block, BlockOutcome, Row, Start
from tasks.events import emit
from tasks.run import Run

# What a cycle's line in the flow run's log says; everything else is in metrics.jsonl.
LOGGED = ("reward_mean", "zero_signal_fraction", "teacher_kl", "margin", "loss", "loss_per_token", "grad_norm")


class Cycle:
    """One cycle in the making: which one, on what, and the metrics and samples it has gathered so far."""

    __slots__ = ("attempt", "metrics", "number", "policy", "samples", "saves")

    def __init__(self, attempt: Attempt, policy: Run, number: int, *, saves: bool) -> None:
        self.attempt = attempt
        self.policy = policy
        self.number = number
        self.saves = saves
        self.metrics: Row = {}
        self.samples: list[dict[str, Any]] = []

    @property
    def label(self) -> int:
        """The cycle's number as people count, from 1."""
        return self.number + 1

    def count_dropped(self, *by_reason: Mapping[str, int]) -> None:
        """Add what was left out of training to the record, by reason."""
        for counts in by_reason:
            for reason, count in counts.items():
                key = f"dropped/{reason}"
                self.metrics[key] = self.metrics.get(key, 0) + count


class Cycles:
    """`for cycle in cycles` hands out a block's cycles; each is booked when the next is asked for."""

    __slots__ = ("_attempt", "_block", "_rows", "_start", "carry", "policy")

    def __init__(self, attempt: Attempt, policy: Run, block: Block, start: Start) -> None:
        self._attempt = attempt
        self._block = block
        self._start = start
        self._rows: list[Row] = []
        self.policy = policy
        self.carry: dict[str, Any] = dict(start.carry)

    @classmethod
    async def begin(cls, attempt: Attempt, block: Block, start: Start) -> Self:
        """The cycles of `block`, with the policy at `start`.

        Raises:
            BudgetReachedError: the budget does not allow a whole block, so nothing of it is begun.
        """
        await begin_block(attempt, block)
        return cls(attempt, await attempt.policy(start), block, start)

    def __iter__(self) -> Iterator[Cycle]:
        last = self._block.numbers[-1]
        for number in self._block.numbers:
            began = time.monotonic()
            cycle = Cycle(self._attempt, self.policy, number, saves=number == last)
            yield cycle
            self._book(cycle, time.monotonic() - began)

    @property
    def history(self) -> list[Row]:
        """The metrics of every cycle before the current one, adopted blocks' included."""
        return [*self._attempt.rows, *self._rows]

    def _book(self, cycle: Cycle, seconds: float) -> None:
        """Close a cycle: its metrics, what it cost, how long it took."""
        attempt = self._attempt
        if cycle.samples:
            attempt.folder.write_samples(cycle.number, cycle.samples)
        row: Row = {
            "cycle": cycle.number,
            **cycle.metrics,
            **attempt.scope.meter.take(),
            "seconds/cycle": round(seconds, 3),
        }
        self._rows.append(row)
        shown = ", ".join(f"{key} {row[key]:.4g}" for key in (*LOGGED, "seconds/cycle") if key in row)
        get_run_logger().info("cycle %d of %d: %s", cycle.number + 1, attempt.config.cycles, shown)
        emit("cycle", cycle=cycle.number, cycles=attempt.config.cycles, metrics=row, budget=attempt.budget.share)

    def outcome(self) -> BlockOutcome:
        """What the block leaves behind, once its state is saved."""
        assert self.policy.state_id is not None
        return BlockOutcome(
            block=self._block.index,
            cycle=self._block.numbers[-1],
            state_id=self.policy.state_id,
            parent_state_id=self._start.state_id,
            run_id=self.policy.run_id,
            attempt=self._attempt.scope.attempt,
            rows=self._rows,
            carry=self.carry,
        )
