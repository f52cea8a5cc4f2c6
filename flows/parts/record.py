"""What a cycle drew, on its record: rewards, lengths, endings, the texts; and when too little of it could be scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prefect.logging import get_run_logger

from algorithms import length_stats, reward_stats, stop_shares
from flows.durable.cycles import Cycle
from flows.durable.outcome import Row
from tasks.rewards import Failures
from tasks.scoring import Group, RewardError


def describe(cycle: Cycle, groups: Sequence[Group], failures: Failures) -> None:
    """Put what was drawn on the cycle's record: rewards, lengths, endings, and the texts themselves.

    Raises:
        RewardError: not one completion has a reward, though there are reward functions.
    """
    require_some_scored(groups, failures, f"cycle {cycle.label}")
    cycle.metrics |= reward_row(groups) | _prefixed("reward_failures/", failures) | length_row(groups)
    cycle.samples = [row for group in groups for row in group.sample_rows()]


def require_some_scored(groups: Sequence[Group], failures: Failures, where: str) -> None:
    """Stop where not one completion could be scored: going on would be paid for and teach nothing.

    A part that fails is counted, logged, and left out.

    Raises:
        RewardError: no completion has a reward; the message says why.
    """
    if not failures:
        return
    rewards = [reward for group in groups for reward in group.rewards]
    unscored = sum(reward is None for reward in rewards)
    message = f"{where}: {unscored} of {len(rewards)} completions could not be scored: {failures.told()}"
    if unscored == len(rewards):
        raise RewardError(message)
    get_run_logger().warning(message)


def reward_row(groups: Sequence[Group]) -> Row:
    """Rewards, as metrics; every reward function apart."""
    rewards = [reward for group in groups for reward in group.rewards]
    if all(reward is None for reward in rewards):
        return {}
    names = sorted({name for group in groups for name in group.by_function})
    means = {name: _mean([value for group in groups for value in group.by_function[name]]) for name in names}
    return {
        **_prefixed("reward_", reward_stats(rewards)),
        **{f"reward/{name}": mean for name, mean in means.items() if mean is not None},
    }


def length_row(groups: Sequence[Group]) -> Row:
    """Lengths of completions and how they ended, as metrics."""
    sequences = [sequence for group in groups for sequence in group.sequences]
    shares = stop_shares(sequence["stop_reason"] for sequence in sequences)
    return {
        **_prefixed("completion_tokens_", length_stats([len(one["tokens"]) for one in sequences])),
        **{f"{reason}_fraction": share for reason, share in shares.items()},
    }


def _mean(values: Sequence[float | None]) -> float | None:
    return reward_stats(values).get("mean")


def _prefixed(prefix: str, values: Mapping[str, float]) -> Row:
    return {f"{prefix}{key}": value for key, value in values.items()}
