"""The small modules that starter configurations name do what they say."""

from __future__ import annotations

from typing import Any

import pytest

from algorithms import NoGradientError
from deployments.examples.pangram import distinct_letters
from deployments.examples.rank_loss import build_loss
from tasks.completion import Completion
from tasks.examples import example, user

REQUEST = {"prompt": {"token_ids": [5, 6]}}


def group(*rewards: float | None) -> dict[str, Any]:
    """A sampled group, as the loop hands it over."""
    return {"sequences": [{"tokens": [7, 8], "logprobs": [-1.0, -2.0], "reward": reward} for reward in rewards]}


def advantages(*rewards: float | None) -> list[float]:
    payload = build_loss(group(*rewards), 0, REQUEST, None)
    assert payload["loss_function"] == "importance_sampling"
    return [datum["loss_inputs"]["advantages"]["values"][-1] for datum in payload["data"]]


def test_ranks_and_not_sizes_of_rewards_decide() -> None:
    assert advantages(0.0, 1.0, 2.0, 3.0) == advantages(0.0, 0.1, 7.0, 1000.0) == [-0.75, -0.25, 0.25, 0.75]


def test_ranks_sum_to_nothing_with_ties_and_leave_out_what_has_no_reward() -> None:
    assert advantages(1.0, None, 0.0, 0.0, 0.0) == [0.75, -0.25, -0.25, -0.25]


def test_where_nothing_beats_anything_there_is_no_gradient() -> None:
    with pytest.raises(NoGradientError):
        build_loss(group(1.0, 1.0, None), 0, REQUEST, None)


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("", 0.0),
        ("Aa, aa!", 1 / 26),
        ("The quick brown fox jumps over the lazy dog.", 1.0),
        ("The quick brown fox jumps over the lazy dog" + "s" * 10, 0.95),
    ],
)
def test_a_pangram_is_worth_1_and_length_costs(text: str, worth: float) -> None:
    problem = example(user("A sentence, please."))
    assert distinct_letters(Completion(problem.messages, text, 9, True, problem)) == pytest.approx(worth)
