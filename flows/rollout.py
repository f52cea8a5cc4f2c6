"""The parts of a cycle that algorithms with rollouts share: draw groups, score them, describe them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from prefect.logging import get_run_logger

from algorithms import GroupData, length_stats, request_seed, reward_stats, stop_shares, zero_signal_fraction
from flows.attempt import Attempt
from flows.config import GrpoConfig
from flows.outcome import Row
from tasks.examples import Example
from tasks.operations import current_sampler, in_order, sample
from tasks.policy import Opaque, Policy
from tasks.scoring import Group, RewardError, Scored, score


async def draw(
    attempt: Attempt, policy: Policy, examples: Sequence[Example], seeds: Sequence[int], **params: Any
) -> tuple[list[Group], int]:
    """Draw a group for every example at once, one operation a group; (groups, prompts skipped).

    A prompt that fills the context is skipped and counted, never sent.
    """
    sampler_id = await current_sampler(policy)
    requests = [
        (example, attempt.inputs.sample_request(example, seed=seed, **params))
        for example, seed in zip(examples, seeds, strict=True)
    ]
    sent = [(example, request) for example, request in requests if request is not None]
    answers = await in_order(
        *(sample(policy, sampler_id, request, f"sample group {place}") for place, (_, request) in enumerate(sent, 1))
    )
    groups = [
        Group(example, request["prompt"]["token_ids"], answer.result["sequences"])
        for (example, request), answer in zip(sent, answers, strict=True)
    ]
    return groups, len(requests) - len(sent)


async def sample_groups(attempt: Attempt, policy: Policy, config: GrpoConfig, cycle: int) -> Rollouts:
    """The groups of a training cycle, drawn from a snapshot of the current weights, and scored."""
    examples = attempt.inputs.batch(cycle, config.groups_per_cycle)
    seeds = [request_seed(config.seed, cycle, place) for place in range(len(examples))]
    groups, skipped = await draw(
        attempt,
        policy,
        examples,
        seeds,
        num_samples=config.group_size,
        temperature=config.sampling.temperature,
    )
    scored = await score(attempt.inputs.renderer, Opaque(groups), attempt.inputs.rewards, attempt.pool)
    require_some_scored(scored, f"cycle {cycle + 1}")
    return Rollouts(groups, skipped, scored.failures)


def require_some_scored(scored: Scored, where: str) -> None:
    """Stop where not one completion could be scored: going on would be paid for and teach nothing.

    A part that fails is counted, logged, and left out.

    Raises:
        RewardError: no completion has a reward; the message says why.
    """
    if not scored.failures:
        return
    rewards = [reward for group in scored.groups for reward in group.rewards]
    unscored = sum(reward is None for reward in rewards)
    reasons = ", ".join(f"{reason} ({count} times)" for reason, count in scored.failures.most_common())
    message = f"{where}: {unscored} of {len(rewards)} completions could not be scored: {reasons}"
    if unscored == len(rewards):
        raise RewardError(message)
    get_run_logger().warning(message)


class Rollouts(NamedTuple):
    """What a cycle drew: groups with rewards, prompts that were too long, reasons for missing rewards."""

    groups: list[Group]
    skipped: int
    failures: Counter[str]

    def row(self, built: Sequence[GroupData]) -> Row:
        """Rewards, signal, lengths and endings, as metrics."""
        groups = self.groups
        rewards = [reward for group in groups for reward in group.rewards]
        sequences = [sequence for group in groups for sequence in group.sequences]
        dropped: Counter[str] = Counter()
        for one in built:
            dropped.update(one.dropped_by_reason)
        names = sorted({name for group in groups for name in group.by_function})
        means = {name: _mean([value for group in groups for value in group.by_function[name]]) for name in names}
        return {
            **_prefixed("reward_", reward_stats(rewards)),
            **{f"reward/{name}": mean for name, mean in means.items() if mean is not None},
            **_prefixed("reward_failures/", self.failures),
            "zero_signal_fraction": zero_signal_fraction([group.rewards for group in groups]),
            **_prefixed("dropped/", dropped),
            "prompts_skipped": self.skipped,
            **_prefixed("completion_tokens_", length_stats([len(one["tokens"]) for one in sequences])),
            **{
                f"{reason}_fraction": share
                for reason, share in stop_shares(s["stop_reason"] for s in sequences).items()
            },
        }


def _mean(values: Sequence[float | None]) -> float | None:
    return reward_stats(values).get("mean")


def _prefixed(prefix: str, values: dict[str, float] | Counter[str]) -> Row:
    return {f"{prefix}{key}": value for key, value in values.items()}
