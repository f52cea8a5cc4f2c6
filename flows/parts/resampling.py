"""A cycle's resampling, round by round: places of the batch, what is drawn for each, and what of that is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from algorithms import ResamplePolicy, Retained, retained, soft_overlong_penalty
from flows.config import DapoConfig
from flows.durable.cycles import Cycle
from flows.parts.record import describe
from flows.parts.rollout import draw_groups, score_groups
from tasks.examples import Example
from tasks.rewards import Failures
from tasks.scoring import Group

EXHAUSTED = "resample_exhausted"
"""Why a completion that was good is not trained on: caps were reached before its group, or the batch, was complete."""


class Slot:
    """One place of the batch: the prompt that holds it now, everything drawn for it, and what of that is kept.

    `hopeless`: the prompt leaves no room for a reply, however often it is drawn.
    """

    __slots__ = ("drawn", "example", "hopeless", "verdict")

    def __init__(self, example: Example, verdict: Retained) -> None:
        self.example = example
        self.drawn: list[Group] = []
        self.hopeless = False
        self.verdict = verdict

    @property
    def complete(self) -> bool:
        """Whether the group is large enough and has a signal."""
        return self.verdict.complete

    def take(self, group: Group | None, policy: ResamplePolicy) -> None:
        """Judge everything drawn so far, the new group with it."""
        if group is None:
            self.hopeless = True
            return
        self.drawn.append(group)
        sequences = [one for drawn in self.drawn for one in drawn.sequences]
        rewards = [one for drawn in self.drawn for one in drawn.rewards]
        self.verdict = retained(sequences, rewards, policy)

    def group(self) -> Group:
        """What is trained on."""
        group = Group(self.example, self.drawn[0].request, [dict(one) for one in self.verdict.sequences])
        group.rewards = list(self.verdict.rewards)
        return group


class Resampling:
    """A cycle's resampling, from round to round."""

    __slots__ = (
        "config",
        "cursor",
        "cycle",
        "drawn",
        "dropped",
        "failures",
        "flat",
        "operations",
        "policy",
        "rounds",
        "slots",
    )

    def __init__(self, cycle: Cycle, config: DapoConfig, cursor: int) -> None:
        self.cycle = cycle
        self.config = config
        self.cursor = cursor
        self.policy = config.resample_policy()
        self.slots = [self._next_slot() for _ in range(config.groups_per_cycle)]
        self.drawn: list[Group] = []
        self.dropped: Counter[str] = Counter()
        self.failures = Failures()
        self.flat = 0
        self.operations = 0
        self.rounds = 0

    def _next_slot(self) -> Slot:
        example = self.cycle.attempt.inputs.example_at(self.cursor)
        self.cursor += 1
        return Slot(example, retained([], [], self.policy))

    def pending(self) -> list[Slot]:
        """Slots to draw for, no more than the operations that are left allow; a hopeless prompt gives its place up."""
        incomplete = [place for place, slot in enumerate(self.slots) if not slot.complete]
        if self.rounds:
            incomplete = incomplete[: self.policy.max_operations - self.operations]
        for place in incomplete:
            slot = self.slots[place]
            if slot.hopeless or (slot.verdict.zero_signal and self.policy.zero_signal == "next_prompt"):
                self.dropped.update(slot.verdict.dropped)
                self.slots[place] = self._next_slot()
        return [self.slots[place] for place in incomplete]

    async def draw(self, slots: Sequence[Slot]) -> None:
        """One round: a `sample` for each slot, one `score` for all, and the verdicts."""
        size = self.config.group_size
        sizes = [slot.verdict.missing if slot.drawn and slot.verdict.missing else size for slot in slots]
        drawn = await draw_groups(self.cycle, [slot.example for slot in slots], sizes, round_=self.rounds)
        groups = [group for group in drawn if group is not None]
        if groups:
            self.failures.add(await score_groups(self.cycle, groups))
        for slot, group in zip(slots, drawn, strict=True):
            slot.take(group, self.policy)
            self.flat += slot.verdict.zero_signal
        self.drawn += groups
        self.operations += len(groups) if self.rounds else 0
        self.rounds += 1

    def to_train(self) -> list[Group]:
        """The complete groups, if the batch is complete or may be partial; what else was kept counts as dropped."""
        complete = [slot for slot in self.slots if slot.complete]
        if len(complete) < len(self.slots) and self.config.resample.on_exhausted != "train_partial":
            complete = []
        if left := sum(len(slot.verdict.sequences) for slot in self.slots if slot not in complete):
            self.dropped[EXHAUSTED] += left
        return [self._with_length_punished(slot.group()) for slot in complete]

    def _with_length_punished(self, group: Group) -> Group:
        """Soft overlong punishment, added once the group is judged: a length alone is no signal to keep it for."""
        cache = self.config.resample.soft_overlong_cache
        if cache is not None:
            longest = self.config.sampling.max_tokens
            group.rewards = [
                None
                if reward is None
                else reward + soft_overlong_penalty(len(sequence["tokens"]), max_length=longest, cache=cache)
                for sequence, reward in zip(group.sequences, group.rewards, strict=True)
            ]
        return group

    def record(self, first_cursor: int) -> None:
        """Rounds, billed operations, prompts used up and completions dropped, on the cycle's record."""
        describe(self.cycle, self.drawn, self.failures)
        self.cycle.count_dropped(self.dropped, *(slot.verdict.dropped for slot in self.slots))
        flat, judged = self.flat, self.flat + sum(slot.complete for slot in self.slots)
        self.cycle.metrics |= {
            "resample_rounds": self.rounds - 1,
            "resample_operations": self.operations,
            "prompts_drawn": self.cursor - first_cursor,
            # Of the groups that came to their full size: what is drawn in parts says nothing by itself.
            "zero_signal_fraction": flat / judged if judged else 0.0,
        }
