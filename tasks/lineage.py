"""A run's lineage: which state came from which, what each block cost, and what was paid for beyond it.

Pure arithmetic on what a run folder records and what Whitney has billed; a flow and the command line use it alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from whitney.labels import attempt_of
from whitney.types import RunUsage, Session

TOKENS = ("prefill", "sampled", "trained")


@dataclass(frozen=True, slots=True)
class Link:
    """A block in the lineage: what it was trained from, by which attempt, into which state, and what that cost."""

    block: int
    cycles: range
    state_id: str
    parent_state_id: str | None
    run_id: str
    attempt: int
    usage: RunUsage

    @property
    def label(self) -> str:
        """Its cycles as people count, from 1."""
        first, last = self.cycles.start + 1, self.cycles.stop
        return f"{first}" if first >= last else f"{first}-{last}"


@dataclass(frozen=True, slots=True)
class Redone:
    """What was billed beyond what a run is made of: operations of blocks that were begun and not saved.

    `by_attempt` is empty where the record does not say which attempt each part of it belongs to.
    """

    total: RunUsage
    by_attempt: dict[int, RunUsage] = field(default_factory=dict)

    @property
    def operations(self) -> int:
        """Operations of every kind."""
        return count_operations(self.total)

    @property
    def tokens(self) -> int:
        """Tokens prefilled, sampled and trained."""
        return count_tokens(self.total)

    def __str__(self) -> str:
        attempts = "; ".join(f"attempt {attempt}: {told(usage)}" for attempt, usage in self.by_attempt.items())
        return told(self.total) + (f" ({attempts})" if attempts else "")

    def as_json(self) -> dict[str, Any]:
        """For summary.json and `--json`."""
        return {
            "operations": self.operations,
            "tokens": self.tokens,
            "by_kind": self.total.operations,
            "tokens_by_kind": {kind: getattr(self.total, f"{kind}_tokens") for kind in TOKENS},
            "by_attempt": {str(attempt): usage.model_dump() for attempt, usage in self.by_attempt.items()},
        }


def redone(billed: Mapping[int, RunUsage], recorded: Iterable[tuple[int | None, Mapping[str, float]]]) -> Redone:
    """What was billed, less what is on record; an attempt that has nothing of either is left out.

    Args:
        billed: by attempt, as `billed_by_attempt` sums it up.
        recorded: every adopted part of the run — a cycle's metrics, an evaluation's or the export's usage — with the
            attempt that paid for it, None where that is not known. Keys other than `operations/…` and `tokens/…` are
            passed over.
    """
    parts = [(attempt, usage_of(row)) for attempt, row in recorded]
    total = less(summed(billed.values()), summed(usage for _, usage in parts))
    if any(attempt is None for attempt, _ in parts):
        return Redone(total)
    differences = {
        attempt: less(usage, summed(part for own, part in parts if own == attempt)) for attempt, usage in billed.items()
    }
    return Redone(total, {attempt: usage for attempt, usage in sorted(differences.items()) if usage != RunUsage()})


def billed_by_attempt(sessions: Iterable[Session]) -> dict[int, RunUsage]:
    """What Whitney has billed for a flow run's sessions: the runs of each, by the attempt that opened it."""
    bills: dict[int, RunUsage] = {}
    for session in sessions:
        attempt = attempt_of(session.labels)
        bills[attempt] = summed([bills.get(attempt, RunUsage()), *(run.usage for run in session.runs)])
    return dict(sorted(bills.items()))


def chain(states: Sequence[Mapping[str, Any]], metrics: Iterable[Mapping[str, float]]) -> list[Link]:
    """The rows of states.jsonl, each with the cycles it covers and what metrics.jsonl says they cost."""
    cost = {int(row["cycle"]): usage_of(row) for row in metrics}
    links, first = [], 0
    for state in states:
        cycles = range(first, int(state["cycle"]) + 1)
        links.append(
            Link(
                block=int(state["block"]),
                cycles=cycles,
                state_id=state["state_id"],
                parent_state_id=state["parent_state_id"],
                run_id=state["run_id"],
                attempt=int(state["attempt"]),
                usage=summed(cost.get(cycle, RunUsage()) for cycle in cycles),
            )
        )
        first = cycles.stop
    return links


def breaks(links: Sequence[Link], metrics: Sequence[Mapping[str, float]]) -> list[str]:
    """What is wrong with a chain, a sentence each: a block or cycle that is not there exactly once, a wrong parent."""
    found = []
    for place, link in enumerate(links):
        if link.block != place:
            found.append(f"block {place} is missing: block {link.block} is in its place")
        if not link.cycles:
            found.append(f"block {link.block} ends in cycle {link.cycles.stop}, which an earlier block has trained")
    for before, link in pairwise(links):
        if link.parent_state_id != before.state_id:
            found.append(
                f"block {link.block} (cycle {link.label}) was trained from {link.parent_state_id or 'the beginning'}, "
                f"not from {before.state_id}, the state of the block before it"
            )
    if links and links[0].parent_state_id is not None:
        found.append(f"block {links[0].block} was trained from {links[0].parent_state_id}, not from the beginning")
    trained = Counter(cycle for link in links for cycle in link.cycles)
    measured = Counter(int(row["cycle"]) for row in metrics)
    for cycle in sorted(trained | measured):
        if trained[cycle] != 1 or measured[cycle] != 1:
            found.append(
                f"cycle {cycle + 1} is in the chain of states {trained[cycle]} times, in the metrics {measured[cycle]}"
            )
    return found


def usage_of(row: Mapping[str, float]) -> RunUsage:
    """The part of a metrics row that is a bill: `operations/<kind>`, `tokens/<prefill|sampled|trained>`."""
    prefix = "operations/"
    return RunUsage(
        operations={key.removeprefix(prefix): int(value) for key, value in row.items() if key.startswith(prefix)},
        **{f"{kind}_tokens": int(row.get(f"tokens/{kind}", 0)) for kind in TOKENS},
    )


def summed(usages: Iterable[RunUsage]) -> RunUsage:
    """The sum of some bills."""
    operations, tokens = Counter[str](), Counter[str]()
    for usage in usages:
        operations.update(usage.operations)
        tokens.update({f"{kind}_tokens": getattr(usage, f"{kind}_tokens") for kind in TOKENS})
    return RunUsage(operations=dict(sorted(operations.items())), **tokens)


def less(usage: RunUsage, other: RunUsage) -> RunUsage:
    """A bill less another. What is below zero stays so: it says that the record holds more than was billed."""
    kinds = sorted({*usage.operations, *other.operations})
    operations = {kind: usage.operations.get(kind, 0) - other.operations.get(kind, 0) for kind in kinds}
    tokens = {name: getattr(usage, name) - getattr(other, name) for name in (f"{kind}_tokens" for kind in TOKENS)}
    return RunUsage(operations={kind: count for kind, count in operations.items() if count}, **tokens)


def count_operations(usage: RunUsage) -> int:
    """Operations of every kind."""
    return sum(usage.operations.values())


def count_tokens(usage: RunUsage) -> int:
    """Tokens prefilled, sampled and trained."""
    return sum(getattr(usage, f"{kind}_tokens") for kind in TOKENS)


def told(usage: RunUsage) -> str:
    """As people read a bill."""
    operations, tokens = count_operations(usage), count_tokens(usage)
    return f"{operations:,} operation{'' if operations == 1 else 's'}, {tokens:,} token{'' if tokens == 1 else 's'}"
