"""What drawn completions of held-out prompts say: accuracy, pass@k, and how sure one can be of each."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from algorithms import clustered_interval, pass_at_k
from tasks.scoring import Group

# A reply is correct when its reward, without any bonus, is full.
CORRECT = 1.0


def shares(sampled: Sequence[Group], greedy: Sequence[Group], pass_at: Sequence[int]) -> dict[str, Any]:
    """Of an EvaluationOutcome: `accuracy`, `greedy_accuracy`, `pass_at`, `intervals`, and `correct` by prompt.

    What was not drawn, or could not be scored at all, is left out.
    """
    found: dict[str, Any] = {"intervals": {}, "pass_at": {}}
    if is_scored(sampled):
        found["correct"] = [correct_in(group) for group in sampled]
        samples = max(len(group.rewards) for group in sampled)
        tries = [(len(group.rewards), correct_in(group)) for group in sampled]
        found["accuracy"], found["intervals"]["accuracy"] = _mean([c / n for n, c in tries], samples)
        for k in pass_at:
            name = f"pass@{k}"
            values = [pass_at_k(n, c, k) for n, c in tries]
            found["pass_at"][name], found["intervals"][name] = _mean(values, samples)
    if is_scored(greedy):
        values = [float(correct_in(group)) for group in greedy]
        found["greedy_accuracy"], found["intervals"]["greedy_accuracy"] = _mean(values, 1)
    return found


def is_scored(groups: Sequence[Group]) -> bool:
    """Whether any completion has a reward; one that has none counts as wrong beside them."""
    return any(reward is not None for group in groups for reward in group.rewards)


def correct_in(group: Group) -> int:
    """How many completions of a prompt are correct."""
    return sum(reward is not None and reward >= CORRECT for reward in group.rewards)


def _mean(values: Sequence[float], samples: int) -> tuple[float, tuple[float, float]]:
    return fmean(values), clustered_interval(values, samples)
