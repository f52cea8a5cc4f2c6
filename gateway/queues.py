"""The queue of one run: what has been accepted and not yet executed, and in which order it may go."""

from __future__ import annotations

from dataclasses import dataclass, field

from whitney.types import SAMPLER_KINDS

MAX_AHEAD = 256
"""How far a seq_id may lie ahead of the next expected one: a whole cycle fits, and memory is bounded."""


@dataclass(frozen=True, slots=True)
class QueuedOperation:
    """An accepted operation. Its payload waits in the ledger, not in memory.

    `sequences` is how many sequences it adds to a batch; `arrived_at` is on the event loop's clock.
    """

    seq_id: int
    kind: str
    sampler_id: str | None
    sequences: int
    arrived_at: float

    def joins(self, other: QueuedOperation) -> bool:
        """Whether the two may execute together: one kind, on one snapshot."""
        return self.kind in SAMPLER_KINDS and (self.kind, self.sampler_id) == (other.kind, other.sampler_id)


@dataclass(slots=True, eq=False)
class RunQueue:
    """A live run's operations. `ordinal` numbers the runs since the gateway started: scripted faults know them by it.

    Two marks move along the seq_ids: `next_to_run` is the lowest not yet handed to the provider, `next_expected` the
    lowest not yet accepted. Between them everything is there; beyond `next_expected` there may be gaps.
    """

    run_id: str
    ordinal: int
    next_to_run: int = 0
    next_expected: int = 0
    waiting: dict[int, QueuedOperation] = field(default_factory=dict)
    running: bool = False
    status: str = "active"

    def expected_after(self, seq_id: int) -> int:
        """What `next_expected` becomes once `seq_id` is accepted."""
        expected = self.next_expected
        while expected == seq_id or expected in self.waiting:
            expected += 1
        return expected

    def accept(self, operation: QueuedOperation) -> None:
        """Put an operation in its place."""
        self.next_expected = self.expected_after(operation.seq_id)
        self.waiting[operation.seq_id] = operation

    def take(self, batch: list[QueuedOperation]) -> None:
        """The batch leaves for the provider."""
        for operation in batch:
            del self.waiting[operation.seq_id]
        self.next_to_run += len(batch)
        self.running = True

    @property
    def missing(self) -> int | None:
        """The seq_id that others are held for, if there is a gap."""
        return self.next_expected if any(seq_id > self.next_expected for seq_id in self.waiting) else None

    @property
    def idle(self) -> bool:
        """Nothing runs and nothing can run."""
        return not self.running and self.next_to_run not in self.waiting

    def batch(self, most_sequences: int) -> tuple[list[QueuedOperation], bool]:
        """The operations that may go next, and whether later arrivals could still join them.

        Neighbouring sampler operations of one kind on one snapshot go together, up to `most_sequences` (but always
        one); any other operation goes alone.
        """
        head = self.waiting.get(self.next_to_run)
        if head is None:
            return [], False
        batch, sequences = [head], head.sequences
        while True:
            following = self.waiting.get(head.seq_id + len(batch))
            if following is None:
                return batch, head.kind in SAMPLER_KINDS and sequences < most_sequences
            if not following.joins(head) or sequences + following.sequences > most_sequences:
                return batch, False
            batch.append(following)
            sequences += following.sequences
