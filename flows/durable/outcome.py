"""What persisted subflows return: small, JSON, and enough to go on from.

A Retry starts the flow again from the top; every subflow that completed hands back its persisted outcome instead of
running. So an outcome must hold whatever its caller would need to know if the work itself were never seen again.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tasks.adapter import AdapterFacts

Row = dict[str, int | float]
"""One cycle's metrics; every key is explained in `tasks.glossary`."""


class Block(BaseModel):
    """`save_every` consecutive cycles: the unit that is persisted, and at most repeated."""

    model_config = ConfigDict(frozen=True)

    index: int
    first_cycle: int
    cycles: int

    @property
    def numbers(self) -> range:
        """The zero-based cycles of the block."""
        return range(self.first_cycle, self.first_cycle + self.cycles)

    @property
    def label(self) -> str:
        """How people count: from 1."""
        first, last = self.first_cycle + 1, self.first_cycle + self.cycles
        return f"cycle {first}" if first == last else f"cycles {first} to {last}"


class Start(BaseModel):
    """Where a block begins: the saved state (None: the initial weights) and what else its algorithm carries along.

    `carry` is small and JSON: a critic's state, the name of a buffer's file. What can be worked out from the metrics of
    earlier cycles (a moving baseline, a stop rule's streak) is not in it.
    """

    model_config = ConfigDict(frozen=True)

    state_id: str | None = None
    carry: dict[str, Any] = Field(default_factory=dict)


class BlockOutcome(BaseModel):
    """A trained and saved block. `state_id` and `carry` are what the next block, in whichever attempt, starts from."""

    model_config = ConfigDict(frozen=True)

    block: int
    cycle: int
    state_id: str
    parent_state_id: str | None
    run_id: str
    attempt: int
    rows: list[Row]
    carry: dict[str, Any] = Field(default_factory=dict)

    @property
    def state_ids(self) -> list[str]:
        """Every state that going on from here needs: the policy's, and what `carry` names (`…_state_id`)."""
        return [self.state_id, *(value for key, value in self.carry.items() if key.endswith("_state_id"))]

    @property
    def end(self) -> Start:
        """The next block's start."""
        return Start(state_id=self.state_id, carry=self.carry)


class EvaluationOutcome(BaseModel):
    """A measurement on held-out examples. Accuracy and shares in 0…1, loss in nats per token, margin as `dpo` has it.

    `when` is "before", "cycle-8" or "after", `cycle` how many cycles had been trained by then. `pass_at` is keyed
    "pass@4"; `intervals` hold 95% of each of "accuracy", "greedy_accuracy" and "pass@4" (`algorithms.intervals`).
    `correct` says of each prompt how many of its `samples` were. `skipped` prompts left no room for a reply; `unscored`
    completions count as wrong, unless none could be scored. What has a default may be missing in an older outcome.
    """

    model_config = ConfigDict(frozen=True)

    when: str
    cycle: int | None = None
    state_id: str | None
    prompts: int
    skipped: int
    samples: int
    unscored: int
    temperature: float
    accuracy: float | None = None
    greedy_accuracy: float | None = None
    pass_at: dict[str, float] = Field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = Field(default_factory=dict)
    correct: list[int] = Field(default_factory=list)
    finished_fraction: float | None = None
    loss: float | None = None
    margin: float | None = None
    preference_accuracy: float | None = None
    attempt: int
    usage: Row

    @property
    def told(self) -> dict[str, Any]:
        """What people are told of it: everything but the bill, and the list that is as long as there are prompts."""
        return self.model_dump(exclude={"usage", "correct"})


class ExportOutcome(BaseModel):
    """An exported adapter on the caller's disk, and what was found in it. Not `final` where the budget stopped the run.

    Such a one is replaced once the run has gone on.
    """

    model_config = ConfigDict(frozen=True)

    state_id: str | None
    artifact_id: str
    path: str
    sha256: str
    facts: AdapterFacts | None = None
    final: bool = True
    attempt: int
    usage: Row
